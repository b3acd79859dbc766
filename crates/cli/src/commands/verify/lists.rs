//! The lists of `verify isolation`, and the transactions that read and extend them.
//!
//! Each row is a list of elements, of which no two are alike: so what a read returns tells which transactions it saw.
//! With every element that is added, the row's entries in a unique and in a non-unique index move.

use std::sync::atomic::{AtomicU64, Ordering};

use millpond::{
    CommitTs, Cursor, Db, Error, Field, Index, Modify, Prefix, ReadMode, Table, TableDefinition, Transaction,
    TxnOptions,
};
use rand::RngExt;

use super::rows::Random;

/// Number of lists.
pub(super) const LISTS: u32 = 240;

/// Lists that half of all steps take.
const HOT: u32 = 6;

/// The last elements of a list, which its row keeps.
const KEPT: usize = 12;

/// Values of the non-unique index.
pub(super) const BUCKETS: u32 = 40;

/// Bytes before the elements: the list's number, the number of all elements so far, the bucket.
const HEAD_LEN: usize = 9;

/// Bytes behind the elements, so that a leaf has few rows.
const FILLER: usize = 120;

/// A list at a moment: how many elements it ever had, and the last of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct List {
    pub(super) count: u32,
    pub(super) last: Vec<u64>,
}

impl List {
    /// The list with one more element.
    pub(super) fn with(&self, element: u64) -> List {
        let mut last = self.last.clone();
        last.push(element);
        last.drain(..last.len().saturating_sub(KEPT));
        List { count: self.count + 1, last }
    }

    pub(super) fn bucket(&self) -> u32 {
        self.count % BUCKETS
    }

    fn to_row(&self, number: u32) -> Vec<u8> {
        let mut row = Vec::with_capacity(HEAD_LEN + 8 * self.last.len() + FILLER);
        row.extend(number.to_be_bytes());
        row.extend(self.count.to_be_bytes());
        row.push(self.bucket() as u8);
        self.last.iter().for_each(|element| row.extend(element.to_be_bytes()));
        row.resize(row.len() + FILLER, 0);
        row
    }

    /// The list in a row; an error says what is wrong with the row.
    fn of_row(number: u32, row: &[u8]) -> Result<List, String> {
        let wrong = || format!("the row of list {number} has bytes that no transaction has written");
        let count = row.get(4..8).and_then(|count| count.try_into().ok()).map(u32::from_be_bytes).ok_or_else(wrong)?;
        let elements = row.get(HEAD_LEN..row.len().saturating_sub(FILLER)).ok_or_else(wrong)?;
        let last = elements
            .chunks_exact(8)
            .map(|element| element.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        let list = List { count, last: last.collect() };
        if list.to_row(number) == row { Ok(list) } else { Err(wrong()) }
    }
}

/// A step of a transaction, with what it saw.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// It read one list: by its row, or by the unique index.
    Read { list: u32, seen: List, by_index: bool },
    /// It read all lists of a bucket, by the non-unique index.
    ReadBucket { bucket: u32, seen: Vec<(u32, List)> },
    /// It wrote a list, which it took to be `base` before. `from_a_read`: it had read that in an earlier step.
    Write { list: u32, base: List, new: List, from_a_read: bool },
    /// It took all its writes so far back.
    TookBack,
}

/// A transaction that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) id: u64,
    /// The moment of its snapshot, at repeatable read.
    pub(super) snapshot: Option<CommitTs>,
    /// `None`: it was rolled back.
    pub(super) commit: Option<CommitTs>,
    /// Its steps, each with the latest CommitTs that a caller knew of before.
    pub(super) events: Vec<(u64, Event)>,
    /// Why it was rolled back, if it was not its own wish.
    pub(super) refused: Option<Refused>,
}

/// Why a transaction was rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Conflict,
    Deadlock,
}

/// The database under test.
pub(super) struct Lists {
    pub(super) db: Db,
    table: Table,
}

impl Lists {
    /// Creates the table, with all lists empty.
    pub(super) fn create(db: Db) -> Result<Lists, Error> {
        let definition = TableDefinition::new();
        let definition = definition.unique("head", [Field::value(0..8)]).index("bucket", [Field::value(8..9)]);
        let table = db.create_table("lists", definition)?;
        for number in 0..LISTS {
            table.insert(number.to_be_bytes(), List::default().to_row(number))?;
        }
        Ok(Lists { db, table })
    }
}

/// A thread of the test.
pub(super) struct Client {
    random: Random,
    options: TxnOptions,
    /// The number of the next transaction. No other thread has the same.
    next: u64,
}

/// Numbers of transactions of one thread.
const OF_A_THREAD: u64 = 1 << 40;

/// Elements of a transaction.
const ELEMENTS: u64 = 16;

/// The transaction that has written an element.
pub(super) fn writer_of(element: u64) -> u64 {
    element / ELEMENTS
}

impl Client {
    pub(super) fn new(random: Random, thread: u8, options: TxnOptions) -> Client {
        Client { random, options, next: u64::from(thread) * OF_A_THREAD + 1 }
    }

    /// Runs so many transactions. An error says what was wrong.
    pub(super) fn run(&mut self, lists: &Lists, committed: &AtomicU64, count: u64) -> Result<Vec<Ended>, String> {
        (0..count).map(|_| self.run_once(lists, committed)).collect()
    }

    fn run_once(&mut self, lists: &Lists, committed: &AtomicU64) -> Result<Ended, String> {
        let id = self.next;
        self.next += 1;
        let mut txn = lists.db.begin(self.options.clone()).map_err(|error| format!("no transaction: {error}"))?;
        let mut ended = Ended { id, snapshot: None, commit: None, events: Vec::new(), refused: None };
        let done = self.steps(lists, committed, &mut txn, &mut ended);
        ended.snapshot = txn.snapshot_commit_ts().or(ended.snapshot);
        match done {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => return Err(wrong),
            Err(Error::Conflict(_)) => ended.refused = Some(Refused::Conflict),
            Err(Error::Deadlock(_)) => ended.refused = Some(Refused::Deadlock),
            Err(error) => return Err(format!("transaction {id} failed: {error}")),
        }
        if ended.refused.is_none() && !self.random.random_ratio(1, 12) {
            let commit = self.commit(txn, committed);
            ended.commit = Some(commit.map_err(|error| format!("the commit of transaction {id} failed: {error}"))?);
        }
        Ok(ended)
    }

    /// Commits at once, or in steps: then others know of the commit before its locks are given up.
    fn commit(&mut self, txn: Transaction, committed: &AtomicU64) -> Result<CommitTs, Error> {
        let note = |commit: CommitTs| _ = committed.fetch_max(commit.into(), Ordering::SeqCst);
        if self.random.random_ratio(2, 3) {
            return txn.commit().inspect(|commit| note(*commit));
        }
        let ordered = txn.begin_commit()?.order()?;
        note(ordered.commit_ts());
        ordered.finish()
    }

    fn any_list(&mut self) -> u32 {
        let hot = self.random.random_range(0..HOT) * (LISTS / HOT);
        if self.random.random() { hot } else { self.random.random_range(0..LISTS) }
    }

    /// The steps; an inner error says what was wrong.
    fn steps(
        &mut self,
        lists: &Lists,
        committed: &AtomicU64,
        txn: &mut Transaction,
        ended: &mut Ended,
    ) -> Result<Result<(), String>, Error> {
        let mut elements = (0..ELEMENTS).map(|number| ended.id * ELEMENTS + number);
        let steps = self.random.random_range(1..=6);
        let place = txn.savepoint();
        for step in 0..steps {
            let known = committed.load(Ordering::SeqCst);
            let list = self.any_list();
            let key = list.to_be_bytes();
            let read = |txn: &Transaction| match txn.get(&lists.table, key)? {
                Some(row) => Ok::<_, Error>(List::of_row(list, &row)),
                None => Ok(Err(format!("list {list} is gone"))),
            };
            let event = match self.random.random_range(0..20) {
                0..6 => match read(txn)? {
                    Ok(seen) => Event::Read { list, seen, by_index: false },
                    Err(wrong) => return Ok(Err(wrong)),
                },
                6..9 => {
                    let rows = txn.rows(&lists.table.index("head")?, Prefix(key))?;
                    let rows: Vec<_> = rows.collect::<Result<_, _>>()?;
                    let [(_, row)] = &rows[..] else {
                        return Ok(Err(format!("list {list} has {} entries in the unique index", rows.len())));
                    };
                    match List::of_row(list, row) {
                        Ok(seen) => Event::Read { list, seen, by_index: true },
                        Err(wrong) => return Ok(Err(wrong)),
                    }
                }
                9..11 => {
                    let bucket = self.random.random_range(0..BUCKETS);
                    let range = [bucket as u8]..=[bucket as u8];
                    let mut seen = Vec::new();
                    for row in txn.rows(&lists.table.index("bucket")?, range)? {
                        let (key, row) = row?;
                        let list = key.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
                        match List::of_row(list, &row) {
                            Ok(found) => seen.push((list, found)),
                            Err(wrong) => return Ok(Err(wrong)),
                        }
                    }
                    seen.sort_by_key(|(list, _)| *list);
                    Event::ReadBucket { bucket, seen }
                }
                // The client computes the new list from what it has read.
                11..14 => {
                    let base = match read(txn)? {
                        Ok(base) => base,
                        Err(wrong) => return Ok(Err(wrong)),
                    };
                    ended.events.push((known, Event::Read { list, seen: base.clone(), by_index: false }));
                    if self.random.random() {
                        std::thread::yield_now();
                    }
                    let new = base.with(elements.next().unwrap_or_default());
                    txn.put(&lists.table, key, new.to_row(list))?;
                    Event::Write { list, base, new, from_a_read: true }
                }
                // The same with the row locked before it is read, by its key or through the unique index.
                14..16 => {
                    let row = match self.random.random() {
                        true => txn.get_for_update(&lists.table, key)?,
                        false => lock_through(&lists.table.index("head")?, key, txn)?,
                    };
                    let base =
                        match row.map_or_else(|| Err(format!("list {list} is gone")), |row| List::of_row(list, &row)) {
                            Ok(base) => base,
                            Err(wrong) => return Ok(Err(wrong)),
                        };
                    let new = base.with(elements.next().unwrap_or_default());
                    txn.put(&lists.table, key, new.to_row(list))?;
                    Event::Write { list, base, new, from_a_read: false }
                }
                // As a statement that computes in the database.
                _ => {
                    let element = elements.next().unwrap_or_default();
                    let mut written = Err(format!("list {list} is gone"));
                    txn.modify(&lists.table, key, |row| {
                        written = row.map_or_else(|| written.clone(), |row| List::of_row(list, row));
                        written.as_ref().map_or(Modify::Keep, |base| Modify::Put(base.with(element).to_row(list)))
                    })?;
                    match written {
                        Ok(base) => Event::Write { list, new: base.with(element), base, from_a_read: false },
                        Err(wrong) => return Ok(Err(wrong)),
                    }
                }
            };
            ended.events.push((known, event));
            // After a deadlock it is not known any more.
            ended.snapshot = txn.snapshot_commit_ts();
            // Now and then all writes so far are taken back.
            if step + 1 < steps && self.random.random_ratio(1, 20) {
                txn.rollback_to(place)?;
                ended.events.push((known, Event::TookBack));
            }
        }
        Ok(Ok(()))
    }
}

/// Locks the row whose fields in the index begin with `key`. While others move its entry, a cursor may miss it.
fn lock_through(index: &Index, key: [u8; 4], txn: &mut Transaction) -> Result<Option<Vec<u8>>, Error> {
    for _ in 0..LOCK_TRIES {
        let mut rows = Cursor::through(index, Prefix(key));
        if let Some((_, row)) = rows.next(txn, ReadMode::exclusive())? {
            return Ok(Some(row.to_vec()));
        }
    }
    Ok(None)
}

/// More than a row's entry can move between a look and a lock.
const LOCK_TRIES: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_survive_their_rows_and_other_bytes_are_refused() {
        let mut list = List::default();
        for element in 1..40 {
            let row = list.to_row(7);
            assert_eq!(List::of_row(7, &row), Ok(list.clone()));
            assert!(List::of_row(8, &row).is_err() && List::of_row(7, &row[1..]).is_err());
            list = list.with(element);
        }
        assert_eq!((list.count, list.last.len(), list.last.last()), (39, KEPT, Some(&39)));
    }
}
