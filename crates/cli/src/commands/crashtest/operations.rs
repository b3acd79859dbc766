//! One thread of the victim: random operations on keys of its own, each announced before and confirmed after.
//!
//! The thread knows the values of its keys, so it notices a wrong answer at once. It also reads keys, scans its range,
//! and tries operations that the database must refuse.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use millpond::{Db, Error, Modify, Table, Tree, WriteBatch};
use rand::RngExt;

use super::protocol::{Change, Frame, TreeId, Value};
use super::transactions::Plan;
use super::values::{ROW_LEN_MIN, Random, SERIAL, key};

/// Keys of each thread in the tree of single keys.
pub(super) const SINGLE_KEYS: u32 = 150;

/// Keys of each thread in the table.
pub(super) const ROW_KEYS: u32 = 60;

/// The most rows in one batch: with their index entries they touch no more leaves than the small pool allows (ten).
const BATCH_ROWS_MAX: u32 = 2;

/// The open database.
#[derive(Clone)]
pub(super) struct Trees {
    pub(super) db: Db,
    pub(super) single: Tree,
    pub(super) rows: Table,
}

/// One thread.
pub(super) struct Worker<'a> {
    thread: u8,
    number: u64,
    random: Random,
    trees: Trees,
    pipe: &'a File,
    /// Every second operation is a transaction of several statements.
    has_transactions: bool,
    /// The current values of the thread's keys.
    single: BTreeMap<u32, Vec<u8>>,
    rows: BTreeMap<u32, Vec<u8>>,
}

/// Why a thread stops before it is killed.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The pipe to the parent failed: the parent has ended.
    Pipe(io::Error),
    /// The database gave a wrong answer; the thread has reported it to the parent.
    Fault,
}

impl From<io::Error> for Stopped {
    fn from(cause: io::Error) -> Stopped {
        Stopped::Pipe(cause)
    }
}

/// One operation.
#[derive(Debug)]
enum Operation {
    Put(u32, Value),
    Insert(u32, Value),
    Update(u32, Value),
    Delete(u32),
    /// Rows with their new values, `None` to delete a row; the indexes follow.
    Batch(Vec<(u32, Option<Value>)>),
    /// The same with one row, by a method of the table.
    Row(u32, Option<Value>),
    /// An insert of a key that exists.
    BadInsert(u32, Value),
    /// An update of a key that does not exist.
    BadUpdate(u32, Value),
    /// A batch with a precondition that does not hold.
    BadBatch(u32, Value),
    /// A row with the serial number of another row.
    BadRow(u32),
    Get(u32),
    /// A row by its serial number.
    GetRow(u32),
    Scan,
    Transaction(Plan),
}

impl<'a> Worker<'a> {
    /// Makes a thread; reads the current values of its keys from the database.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) fn new(
        thread: u8,
        random: Random,
        trees: Trees,
        has_transactions: bool,
        pipe: &'a File,
    ) -> Result<Worker<'a>, Error> {
        let (from, to) = range_of(thread);
        let single = numbered(trees.single.scan(from.as_slice()..to.as_slice()))?;
        let rows = numbered(trees.rows.scan(from.as_slice()..to.as_slice()))?;
        Ok(Worker { thread, number: 0, random, trees, pipe, has_transactions, single, rows })
    }

    /// Does one operation.
    ///
    /// # Errors
    /// The thread must stop.
    pub(super) fn step(&mut self) -> Result<(), Stopped> {
        let operation = self.draw();
        let (thread, number) = (self.thread, self.number);
        self.number += 1;
        Frame::Begin { thread, number, changes: self.changes(&operation) }.send(self.pipe)?;
        match self.carry_out(&operation) {
            Ok(()) => Ok(Frame::Ack { thread, number }.send(self.pipe)?),
            Err(text) => {
                Frame::Fault { thread, number, text: format!("{text} ({operation:?})") }.send(self.pipe)?;
                Err(Stopped::Fault)
            }
        }
    }

    fn draw(&mut self) -> Operation {
        if self.has_transactions && self.random.random() {
            return Operation::Transaction(Plan::draw(&mut self.random));
        }
        let number = self.random.random_range(0..SINGLE_KEYS);
        let is_there = self.single.contains_key(&number);
        let value = Value::draw(0, &mut self.random);
        match self.random.random_range(0..100) {
            0..25 => Operation::Put(number, value),
            25..40 if is_there => Operation::BadInsert(number, value),
            25..40 => Operation::Insert(number, value),
            40..55 if is_there => Operation::Update(number, value),
            40..55 => Operation::BadUpdate(number, value),
            55..67 => Operation::Delete(number),
            67..79 => Operation::Batch(self.draw_rows(BATCH_ROWS_MAX)),
            79..91 => {
                let (number, value) = self.draw_rows(1)[0];
                Operation::Row(number, value)
            }
            91..93 => Operation::BadBatch(number % ROW_KEYS, Value::draw(ROW_LEN_MIN, &mut self.random)),
            93..95 => Operation::BadRow(number % ROW_KEYS),
            95..97 => Operation::Get(number),
            97..99 => Operation::GetRow(number % ROW_KEYS),
            _ => Operation::Scan,
        }
    }

    /// Draws distinct rows: one in four of the existing rows is deleted, all others get a value.
    fn draw_rows(&mut self, most: u32) -> Vec<(u32, Option<Value>)> {
        let first = self.random.random_range(0..ROW_KEYS);
        let count = self.random.random_range(1..=most);
        (0..count)
            .map(|offset| {
                let number = (first + offset * 7) % ROW_KEYS;
                let is_deleted = self.rows.contains_key(&number) && self.random.random_ratio(1, 4);
                (number, (!is_deleted).then(|| Value::draw(ROW_LEN_MIN, &mut self.random)))
            })
            .collect()
    }

    /// The changes that the operation makes if it happens.
    fn changes(&self, operation: &Operation) -> Vec<Change> {
        let single = |number: u32, value| vec![Change { tree: TreeId::Single, key: key(self.thread, number), value }];
        match operation {
            Operation::Put(number, value) | Operation::Insert(number, value) | Operation::Update(number, value) => {
                single(*number, Some(*value))
            }
            Operation::Delete(number) => single(*number, None),
            Operation::Batch(rows) => rows.iter().map(|(number, value)| self.row_change(*number, *value)).collect(),
            Operation::Row(number, value) => vec![self.row_change(*number, *value)],
            Operation::Transaction(plan) => {
                let change = |(tree, number, value)| Change { tree, key: key(self.thread, number), value };
                plan.net().into_iter().map(change).collect()
            }
            Operation::BadInsert(..)
            | Operation::BadUpdate(..)
            | Operation::BadBatch(..)
            | Operation::BadRow(..)
            | Operation::Get(_)
            | Operation::GetRow(_)
            | Operation::Scan => Vec::new(),
        }
    }

    fn row_change(&self, number: u32, value: Option<Value>) -> Change {
        Change { tree: TreeId::Rows, key: key(self.thread, number), value }
    }

    /// Performs the operation, and compares the answer with the required one.
    fn carry_out(&mut self, operation: &Operation) -> Result<(), String> {
        let tree = &self.trees.single;
        match operation {
            Operation::Put(number, value) => {
                tree.put(key(self.thread, *number), value.bytes()).map_err(unexpected)?;
                self.single.insert(*number, value.bytes());
            }
            Operation::Insert(number, value) => {
                tree.insert(key(self.thread, *number), value.bytes()).map_err(unexpected)?;
                self.single.insert(*number, value.bytes());
            }
            Operation::Update(number, value) => {
                tree.update(key(self.thread, *number), value.bytes()).map_err(unexpected)?;
                self.single.insert(*number, value.bytes());
            }
            Operation::Delete(number) => {
                let was_there = tree.delete(key(self.thread, *number)).map_err(unexpected)?;
                if was_there != self.single.remove(number).is_some() {
                    return Err(format!("delete answered {was_there}"));
                }
            }
            Operation::Batch(rows) => self.write_batch(rows)?,
            Operation::BadInsert(number, value) => match tree.insert(key(self.thread, *number), value.bytes()) {
                Err(Error::KeyExists(..)) => {}
                other => return Err(format!("insert of a key that is there answered {other:?}")),
            },
            Operation::BadUpdate(number, value) => match tree.update(key(self.thread, *number), value.bytes()) {
                Err(Error::KeyNotFound(..)) => {}
                other => return Err(format!("update of a key that is not there answered {other:?}")),
            },
            Operation::Row(number, value) => self.write_row(*number, *value)?,
            Operation::BadBatch(number, value) => self.write_bad_batch(*number, *value)?,
            Operation::BadRow(number) => self.write_bad_row(*number)?,
            Operation::GetRow(number) => self.get_row(*number)?,
            Operation::Get(number) => {
                let found = tree.get(key(self.thread, *number)).map_err(unexpected)?;
                if found.as_ref() != self.single.get(number) {
                    return Err("get answered another value than the last one written".to_owned());
                }
            }
            Operation::Scan => self.scan()?,
            Operation::Transaction(plan) => {
                plan.run(&self.trees, self.thread).map_err(unexpected)?;
                for (tree, number, value) in plan.net() {
                    match (tree, value) {
                        (TreeId::Rows, value) => self.note_row(number, value),
                        (TreeId::Single, Some(value)) => _ = self.single.insert(number, value.bytes()),
                        (TreeId::Single, None) => _ = self.single.remove(&number),
                    }
                }
            }
        }
        Ok(())
    }

    fn write_batch(&mut self, rows: &[(u32, Option<Value>)]) -> Result<(), String> {
        let mut batch = WriteBatch::new();
        for (number, value) in rows {
            let row_key = key(self.thread, *number);
            let (table, old) = (&self.trees.rows, self.rows.get(number));
            batch.expect(table, &row_key, old.map(Vec::as_slice));
            match (value, old) {
                (None, _) => batch.delete(table, &row_key),
                (Some(value), Some(_)) => batch.update(table, &row_key, value.bytes()),
                (Some(value), None) => batch.insert(table, &row_key, value.bytes()),
            };
        }
        self.trees.db.write(batch).map_err(unexpected)?;
        rows.iter().for_each(|(number, value)| self.note_row(*number, *value));
        Ok(())
    }

    /// Writes one row, by one of the table's methods.
    fn write_row(&mut self, number: u32, value: Option<Value>) -> Result<(), String> {
        let (table, row_key) = (&self.trees.rows, key(self.thread, number));
        let is_there = self.rows.contains_key(&number);
        let by_modify = self.random.random::<bool>();
        match value.map(Value::bytes) {
            Some(row) if by_modify => {
                let was_there = table.modify(&row_key, |_| Modify::Put(row.clone())).map_err(unexpected)?;
                if was_there != is_there {
                    return Err(format!("modify answered {was_there}"));
                }
            }
            Some(row) if is_there => table.update(&row_key, &row).map_err(unexpected)?,
            Some(row) => table.insert(&row_key, &row).map_err(unexpected)?,
            None => {
                let was_there = table.delete(&row_key).map_err(unexpected)?;
                if was_there != is_there {
                    return Err(format!("delete of a row answered {was_there}"));
                }
            }
        }
        self.note_row(number, value);
        Ok(())
    }

    fn note_row(&mut self, number: u32, value: Option<Value>) {
        match value {
            Some(value) => self.rows.insert(number, value.bytes()),
            None => self.rows.remove(&number),
        };
    }

    /// Tries to write a row with the serial number of another row.
    fn write_bad_row(&mut self, number: u32) -> Result<(), String> {
        let Some((_, row)) = self.rows.iter().find(|(other, _)| **other != number) else { return Ok(()) };
        match self.trees.rows.put(key(self.thread, number), row) {
            Err(Error::KeyExists(..)) => Ok(()),
            other => Err(format!("a row with another one's serial number answered {other:?}")),
        }
    }

    /// Reads a row by its serial number.
    fn get_row(&self, number: u32) -> Result<(), String> {
        let Some(row) = self.rows.get(&number) else { return Ok(()) };
        let index = self.trees.rows.index("serial").map_err(unexpected)?;
        match index.get(&row[SERIAL]).map_err(unexpected)? {
            Some((found, value)) if found == key(self.thread, number) && value == *row => Ok(()),
            other => Err(format!("the index answered {other:?}")),
        }
    }

    /// Tries to write a row on a precondition that does not hold.
    fn write_bad_batch(&mut self, number: u32, value: Value) -> Result<(), String> {
        let row_key = key(self.thread, number);
        let wrong = match self.rows.get(&number) {
            Some(_) => None,
            None => Some(b"never written".as_slice()),
        };
        let mut batch = WriteBatch::new();
        batch.put(&self.trees.rows, &row_key, value.bytes()).put(&self.trees.single, &row_key, []).expect(
            &self.trees.rows,
            &row_key,
            wrong,
        );
        match self.trees.db.write(batch) {
            Err(Error::Conflict(..)) => Ok(()),
            other => Err(format!("a batch whose precondition does not hold answered {other:?}")),
        }
    }

    /// Scans the thread's range of single keys, in one direction or the other.
    fn scan(&mut self) -> Result<(), String> {
        let (from, to) = range_of(self.thread);
        let range = from.as_slice()..to.as_slice();
        let is_forward = self.random.random::<bool>();
        let scan = self.trees.single.scan(range);
        let found: Result<Vec<_>, Error> = if is_forward { scan.collect() } else { scan.rev().collect() };
        let mut found = found.map_err(unexpected)?;
        if !is_forward {
            found.reverse();
        }
        let expected = self.single.iter().map(|(number, value)| (key(self.thread, *number), value.clone()));
        if !found.into_iter().eq(expected) {
            return Err("a scan found other entries than were written".to_owned());
        }
        Ok(())
    }
}

/// The key range of a thread: from the first key to before the second.
fn range_of(thread: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![thread], vec![thread + 1])
}

/// The entries by the number in their key.
fn numbered(entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>) -> Result<BTreeMap<u32, Vec<u8>>, Error> {
    entries
        .map(|entry| {
            let (key, value) = entry?;
            let number = key.get(1..5).and_then(|bytes| bytes.try_into().ok()).map_or(u32::MAX, u32::from_be_bytes);
            Ok((number, value))
        })
        .collect()
}

fn unexpected(error: Error) -> String {
    format!("the operation must succeed, and answered: {error}")
}
