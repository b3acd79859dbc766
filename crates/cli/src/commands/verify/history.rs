//! The oracle: what writers committed, in the order of their CommitTs, and so what each read has to return.
//!
//! It knows only what the engine returned to its callers: the CommitTs of batches and snapshots, and rows.

use std::fmt;
use std::ops::Range;

use millpond::CommitTs;

use super::rows::{KEYS, Place, group};

/// A committed batch.
pub(super) struct Batch {
    pub(super) commit: CommitTs,
    /// The changed rows; a row without a version was deleted.
    pub(super) changes: Vec<(Place, u32, Option<u64>)>,
}

/// What a read asks for.
#[derive(Clone, Debug)]
pub(super) enum Question {
    Get(Place, u32),
    First(Place),
    Last(Place),
    /// At most `limit` rows with keys in the range, from its begin or its end.
    Scan {
        place: Place,
        keys: Range<u32>,
        is_back: bool,
        limit: usize,
    },
    /// Index entries with these groups.
    Entries(Range<u8>),
    /// Rows by index with these groups.
    ByIndex(Range<u8>),
}

/// A read, and what it returned: number and version of each row; of an index entry number and group.
pub(super) struct Read {
    pub(super) at: CommitTs,
    /// The latest CommitTs that was returned before the read began.
    pub(super) committed: u64,
    pub(super) question: Question,
    pub(super) answer: Vec<(u32, u64)>,
}

/// A version of a row, from this commit on.
#[derive(Clone, Copy)]
struct Change {
    commit: CommitTs,
    version: Option<u64>,
}

/// What a right read had to look behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    /// Rows, deleted ones too, of which a newer version was committed before the read began.
    pub(super) old_rows: u64,
    /// The most newer versions of one of them.
    pub(super) most_newer: u64,
}

impl Looked {
    pub(super) fn add(&mut self, other: Looked) {
        self.old_rows += other.old_rows;
        self.most_newer = self.most_newer.max(other.most_newer);
    }
}

/// All committed versions that a live snapshot may see.
pub(super) struct History {
    /// By place and row, ascending by CommitTs.
    changes: [Vec<Vec<Change>>; 2],
    last: Option<CommitTs>,
}

impl History {
    pub(super) fn new() -> History {
        let none = || (0..KEYS).map(|_| Vec::new()).collect();
        History { changes: [none(), none()], last: None }
    }

    fn of(&self, place: Place, number: u32) -> &[Change] {
        self.changes[place as usize].get(number as usize).map_or(&[], Vec::as_slice)
    }

    /// Adds batches that were all written after the batches of earlier calls. Fails if their CommitTs is not later, or
    /// if two of them have the same.
    pub(super) fn add(&mut self, mut batches: Vec<Batch>) -> Result<(), String> {
        batches.sort_by_key(|batch| batch.commit);
        for batch in batches {
            let commit = batch.commit;
            if let Some(last) = self.last.filter(|last| *last >= commit) {
                return Err(format!("a batch has the CommitTs {commit}, another one before it {last}"));
            }
            self.last = Some(commit);
            for (place, number, version) in batch.changes {
                self.changes[place as usize][number as usize].push(Change { commit, version });
            }
        }
        Ok(())
    }

    /// Forgets what no snapshot from `oldest` on sees.
    pub(super) fn forget(&mut self, oldest: CommitTs) {
        for changes in self.changes.iter_mut().flatten() {
            let seen = changes.partition_point(|change| change.commit <= oldest);
            changes.drain(..seen.saturating_sub(1));
        }
    }

    /// The version of a row at a moment.
    fn version(&self, place: Place, number: u32, read: &Read, looked: &mut Looked) -> Option<u64> {
        let changes = self.of(place, number);
        let seen = changes.partition_point(|change| change.commit <= read.at);
        let newer = changes[seen..].partition_point(|change| u64::from(change.commit) <= read.committed) as u64;
        looked.add(Looked { old_rows: u64::from(newer > 0), most_newer: newer });
        changes[..seen].last().and_then(|change| change.version)
    }

    /// What the read has to return.
    fn expected(&self, read: &Read, looked: &mut Looked) -> Vec<(u32, u64)> {
        let mut row = |place, number| Some((number, self.version(place, number, read, looked)?));
        match &read.question {
            Question::Get(place, number) => row(*place, *number).into_iter().collect(),
            Question::First(place) => (0..KEYS).find_map(|number| row(*place, number)).into_iter().collect(),
            Question::Last(place) => (0..KEYS).rev().find_map(|number| row(*place, number)).into_iter().collect(),
            Question::Scan { place, keys, is_back: false, limit } => {
                keys.clone().filter_map(|number| row(*place, number)).take(*limit).collect()
            }
            Question::Scan { place, keys, is_back: true, limit } => {
                keys.clone().rev().filter_map(|number| row(*place, number)).take(*limit).collect()
            }
            Question::Entries(groups) | Question::ByIndex(groups) => {
                let rows = (0..KEYS).filter_map(|number| row(Place::Table, number));
                let mut rows: Vec<_> = rows.filter(|(_, version)| groups.contains(&group(*version))).collect();
                rows.sort_by_key(|(number, version)| (group(*version), *number));
                if matches!(read.question, Question::Entries(_)) {
                    rows.iter_mut().for_each(|(_, version)| *version = u64::from(group(*version)));
                }
                rows
            }
        }
    }

    /// Compares a read with the history. An error says what is wrong.
    pub(super) fn check(&self, read: &Read) -> Result<Looked, String> {
        let mut looked = Looked::default();
        let expected = self.expected(read, &mut looked);
        if expected == read.answer {
            return Ok(looked);
        }
        let at = (0..).find(|at| expected.get(*at) != read.answer.get(*at)).unwrap_or_default();
        let (wanted, found) = (expected.get(at).copied(), read.answer.get(at).copied());
        let (wanted, found) = (Shown(self, wanted), Shown(self, found));
        Err(format!("{read}: row {at} of the answer is {found}, and has to be {wanted}"))
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.question {
            Question::Get(place, number) => write!(f, "row {number} of {} at {at}", place.name()),
            Question::First(place) => write!(f, "the first row of {} at {at}", place.name()),
            Question::Last(place) => write!(f, "the last row of {} at {at}", place.name()),
            Question::Scan { place, keys, is_back, limit } => {
                let end = if *is_back { "back" } else { "front" };
                let (place, keys) = (place.name(), (keys.start, keys.end));
                write!(f, "a scan of rows {keys:?} of {place} at {at}, from the {end}, at most {limit}")
            }
            Question::Entries(groups) => write!(f, "index entries of groups {groups:?} at {at}"),
            Question::ByIndex(groups) => write!(f, "rows by index of groups {groups:?} at {at}"),
        }
    }
}

/// A row of an answer, with the commit of its version.
struct Shown<'h>(&'h History, Option<(u32, u64)>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(history, Some((number, version))) = self else { return f.write_str("none") };
        write!(f, "{number} with {version:#x}")?;
        let places = Place::ALL.into_iter().flat_map(|place| history.of(place, *number));
        match places.into_iter().find(|change| change.version == Some(*version)) {
            Some(change) => write!(f, " (committed at {})", change.commit),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History {
        let ts = CommitTs::from;
        let mut history = History::new();
        let changes = |version| vec![(Place::Table, 7, version), (Place::Tree, 9, Some(5))];
        let batches = [(30, None), (10, Some(1)), (20, Some(2))];
        let batches = batches.map(|(at, version)| Batch { commit: ts(at), changes: changes(version) });
        history.add(batches.into()).expect("in order");
        history
    }

    fn read(at: u64, question: Question, answer: &[(u32, u64)]) -> Read {
        Read { at: CommitTs::from(at), committed: 30, question, answer: answer.to_vec() }
    }

    #[test]
    fn reads_are_checked_against_their_moment() {
        let history = history();
        let get = |at, answer: &[_]| history.check(&read(at, Question::Get(Place::Table, 7), answer));
        assert!(
            get(9, &[]).is_ok() && get(10, &[(7, 1)]).is_ok() && get(29, &[(7, 2)]).is_ok() && get(30, &[]).is_ok()
        );
        let looked = get(9, &[]).expect("right");
        assert_eq!((looked.old_rows, looked.most_newer), (1, 3));
        assert_eq!(get(30, &[]).expect("right").old_rows, 0);
        let wrong = get(19, &[(7, 2)]).expect_err("the next version");
        assert!(
            wrong.ends_with("is 7 with 0x2 (committed at 20), and has to be 7 with 0x1 (committed at 10)"),
            "{wrong}"
        );
        for wrong in [get(9, &[(7, 1)]), get(30, &[(7, 2)]), get(20, &[]), get(20, &[(7, 2), (8, 2)])] {
            assert!(wrong.is_err());
        }
        let entries = |answer: &[_]| history.check(&read(25, Question::Entries(group(2)..group(2) + 1), answer));
        assert!(entries(&[(7, u64::from(group(2)))]).is_ok() && entries(&[]).is_err());
        let scan = Question::Scan { place: Place::Tree, keys: 0..KEYS, is_back: true, limit: 1 };
        assert!(history.check(&read(10, scan, &[(9, 5)])).is_ok());
    }

    #[test]
    fn forgotten_versions_are_those_below_the_oldest_snapshot() {
        let mut history = history();
        history.forget(CommitTs::from(25));
        assert_eq!(history.of(Place::Table, 7).len(), 2);
        assert!(history.check(&read(25, Question::Get(Place::Table, 7), &[(7, 2)])).is_ok());
    }

    #[test]
    fn commits_are_later_than_those_before_and_each_other() {
        let batch = |at| Batch { commit: CommitTs::from(at), changes: Vec::new() };
        assert!(history().add(vec![batch(31), batch(32)]).is_ok());
        assert!(history().add(vec![batch(30)]).is_err() && history().add(vec![batch(40), batch(40)]).is_err());
    }
}
