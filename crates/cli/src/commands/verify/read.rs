//! A reader: snapshots of all ages, and random reads of them.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::{Error, OwnedRow, Snapshot};
use rand::RngExt;

use super::history::{Question, Read};
use super::rows::{GROUPS, KEYS, Place, Random, Rows, any_key, number_of, version_of};

/// Snapshots that a reader holds. One of them is renewed at each read, another at every 8th, and so on.
const HELD: u32 = 6;

/// Reads between two looks at cold rows.
const READS_PER_COLD: u64 = 50;

/// The latest moments that callers know of.
#[derive(Default)]
pub(super) struct Moments {
    /// The latest CommitTs of a batch that was returned.
    pub(super) committed: AtomicU64,
    /// The latest CommitTs of a snapshot that was taken.
    pub(super) taken: AtomicU64,
}

pub(super) struct Reader {
    random: Random,
    held: Vec<Snapshot>,
    reads: u64,
}

impl Reader {
    pub(super) fn new(random: Random) -> Reader {
        Reader { random, held: Vec::new(), reads: 0 }
    }

    /// The oldest snapshot that the reader holds.
    pub(super) fn oldest(&self) -> Option<&Snapshot> {
        self.held.iter().min_by_key(|snapshot| snapshot.commit_ts())
    }

    /// Reads so often. An error says what was wrong.
    pub(super) fn read(&mut self, rows: &Rows, moments: &Moments, reads: u64) -> Result<Vec<Read>, String> {
        (0..reads).map(|_| self.read_once(rows, moments)).collect()
    }

    fn read_once(&mut self, rows: &Rows, moments: &Moments) -> Result<Read, String> {
        if self.reads.is_multiple_of(READS_PER_COLD) {
            rows.take_frames(&mut self.random)?;
        }
        for (turn, at) in (0..HELD).enumerate() {
            if self.reads.is_multiple_of(8u64.pow(at)) {
                let snapshot = take(rows, moments)?;
                match self.held.get_mut(turn) {
                    Some(held) => *held = snapshot,
                    None => self.held.push(snapshot),
                }
            }
        }
        self.reads += 1;
        let which = self.random.random_range(0..self.held.len());
        let question = any_question(&mut self.random);
        ask(rows, &self.held[which], question, moments)
    }
}

/// Takes a snapshot. It has to see all batches that were returned before.
fn take(rows: &Rows, moments: &Moments) -> Result<Snapshot, String> {
    let committed = moments.committed.load(Ordering::SeqCst);
    let snapshot = rows.db.snapshot().map_err(|error| format!("no snapshot: {error}"))?;
    let at = snapshot.commit_ts();
    if u64::from(at) < committed {
        return Err(format!("a snapshot is of {at}, though the batch with CommitTs {committed} was returned before"));
    }
    moments.taken.fetch_max(at.into(), Ordering::SeqCst);
    Ok(snapshot)
}

fn any_question(random: &mut Random) -> Question {
    let place = Place::ALL[usize::from(random.random::<bool>())];
    let groups = |random: &mut Random| {
        let from = random.random_range(0..GROUPS);
        from..from + random.random_range(0..=3)
    };
    match random.random_range(0..800) {
        0 => Question::Scan { place, keys: 0..KEYS, is_back: random.random(), limit: usize::MAX },
        1..12 => Question::First(place),
        12..24 => Question::Last(place),
        24..44 => Question::Entries(groups(random)),
        44..64 => Question::ByIndex(groups(random)),
        64..224 => {
            let from = any_key(random);
            let keys = from..from.saturating_add(random.random_range(0..90)).min(KEYS);
            Question::Scan { place, keys, is_back: random.random(), limit: random.random_range(1..60) }
        }
        _ => Question::Get(place, any_key(random)),
    }
}

/// Asks a question at a snapshot.
pub(super) fn ask(rows: &Rows, snapshot: &Snapshot, question: Question, moments: &Moments) -> Result<Read, String> {
    let committed = moments.committed.load(Ordering::SeqCst);
    let mut read = Read { at: snapshot.commit_ts(), committed, question, answer: Vec::new() };
    match answer(rows, snapshot, &read.question) {
        Ok(Ok(answer)) => read.answer = answer,
        Ok(Err(wrong)) => return Err(format!("{read}: {wrong}")),
        Err(error) => return Err(format!("{read}: {error}")),
    }
    Ok(read)
}

/// The answer; an inner error says which row is none of the test's.
fn answer(rows: &Rows, snapshot: &Snapshot, question: &Question) -> Result<Result<Vec<(u32, u64)>, String>, Error> {
    let of_group = |groups: &Range<u8>| [groups.start]..[groups.end];
    let found: Vec<OwnedRow> = match question {
        Question::Get(place, number) => {
            let key = super::rows::key(*number);
            let value = snapshot.get(rows.of(*place), &key)?;
            value.map(|value| (key, value)).into_iter().collect()
        }
        Question::First(place) => snapshot.first(rows.of(*place))?.into_iter().collect(),
        Question::Last(place) => snapshot.last(rows.of(*place))?.into_iter().collect(),
        Question::Scan { place, keys, is_back, limit } => {
            let range = keys.start.to_be_bytes()..keys.end.to_be_bytes();
            // The scan holds the snapshot.
            let scan = snapshot.clone().scan(rows.of(*place), range)?;
            match is_back {
                false => scan.take(*limit).collect::<Result<_, _>>()?,
                true => scan.rev().take(*limit).collect::<Result<_, _>>()?,
            }
        }
        Question::Entries(groups) => {
            let index = rows.table.index("group")?;
            let entries = snapshot.entries(&index, of_group(groups))?;
            let entries = entries.collect::<Result<Vec<_>, _>>()?;
            let number_and_group = |(fields, key): (Vec<u8>, Vec<u8>)| match (number_of(&key), &fields[..]) {
                (Some(number), [group]) => Ok((number, u64::from(*group))),
                _ => Err(format!("the entry {fields:?} of {key:?} is none of the test's")),
            };
            return Ok(entries.into_iter().map(number_and_group).collect());
        }
        Question::ByIndex(groups) => {
            let index = rows.table.index("group")?;
            snapshot.rows(&index, of_group(groups))?.collect::<Result<_, _>>()?
        }
    };
    let number_and_version = |(key, value): OwnedRow| match number_of(&key) {
        Some(number) => Ok((number, version_of(number, &value)?)),
        None => Err(format!("the key {key:?} is none of the test's")),
    };
    Ok(found.into_iter().map(number_and_version).collect())
}
