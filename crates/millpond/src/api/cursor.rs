//! Cursors: scans row by row, each step in a transaction and a way to read that the caller chooses.

use std::fmt;
use std::sync::Arc;

use crate::api::index::{Index, IndexRows};
use crate::api::read_mode::{Read, ReadMode, Sees};
use crate::api::snapshot::RowsOf;
use crate::api::transaction::Transaction;
use crate::base::error::Error;
use crate::btree::scan::RowRef;
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::read::scan::{At, Scan, pass};
use crate::schema::key_range::{KeyBounds, KeyRange};

/// A place in a range of rows: of a tree or a table, or of a table in the order of an index.
///
/// A cursor belongs to no transaction. Each step says in which transaction it reads and how: so a cursor can go on in
/// another one. It keeps the key of its last row and nothing else: the row may be changed or deleted meanwhile.
pub struct Cursor {
    engine: Arc<Engine>,
    /// The rows.
    state: Arc<TreeState>,
    /// The index whose order they are in.
    index: Option<Index>,
    /// The keys that it has not come to yet: of the rows, or of the index's entries. `None`: there can be none.
    left: Option<KeyBounds>,
    at: At,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The fields of the last row in the index.
    fields: Vec<u8>,
    /// The rows that were fetched last, and for which transaction and what it is to see.
    fetched: Option<(u64, Sees, Fetched)>,
}

enum Fetched {
    Rows(Scan),
    OfIndex(IndexRows),
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("of", &self.state.name).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Cursor {
    /// A cursor before the first row of `range`, which goes up.
    pub fn new<'t>(of: impl Into<RowsOf<'t>>, range: impl KeyRange) -> Cursor {
        let RowsOf { engine, state } = of.into();
        Cursor::over(engine, state, None, Some(range.into_bounds()))
    }

    /// A cursor before the first row with fields in `range`, in the order of an index. If the transaction changes the
    /// fields of a row so that the row is ahead of the cursor again, the cursor comes to it again.
    pub fn through(index: &Index, range: impl KeyRange) -> Cursor {
        let left = index.state.definition.entry_range(&range.into_bounds());
        Cursor::over(&index.table.engine, &index.table.state.rows, Some(index.clone()), left)
    }

    fn over(engine: &Arc<Engine>, rows: &Arc<TreeState>, index: Option<Index>, left: Option<KeyBounds>) -> Cursor {
        Cursor {
            engine: Arc::clone(engine),
            state: Arc::clone(rows),
            index,
            left,
            at: At::Front,
            key: Vec::new(),
            value: Vec::new(),
            fields: Vec::new(),
            fetched: None,
        }
    }

    /// The same range from its last row down.
    #[must_use]
    pub fn reversed(mut self) -> Cursor {
        self.at = At::Back;
        self
    }

    /// Goes to the next row and reads it in a transaction: its (primary) key and value, borrowed until the next step.
    /// `None`: there is no further row. A locking read keeps the lock until the transaction ends. It finds the rows
    /// that are committed when the cursor comes to their leaf. It passes over rows that it is to leave out, and over
    /// those that are deleted, or have other fields, by the time that it has the lock.
    ///
    /// # Errors
    /// Those of [`Transaction::read`]. After [`Error::LockTimeout`], [`Error::Cancelled`] and [`Error::TooManyLocks`]
    /// the next step tries the same row again.
    pub fn next(&mut self, txn: &mut Transaction, mode: ReadMode) -> Result<Option<RowRef<'_>>, Error> {
        loop {
            if !self.fetch_next(txn, mode.sees)? {
                return Ok(None);
            }
            let Sees::Locked(_) = mode.sees else {
                self.pass();
                break;
            };
            let of = RowsOf { engine: &self.engine, state: &self.state };
            let read = txn.read(of, &self.key, mode);
            if let Err(Error::LockTimeout(_) | Error::Cancelled(_) | Error::TooManyLocks(_)) = read {
                self.fetched = None;
            } else {
                self.pass();
            }
            let Read { value, ticket, .. } = read?;
            if let Some(value) = value.filter(|value| self.has_fields(value)) {
                self.value = value;
                break;
            }
            // Through an index: the row is not in the range any more. Otherwise the lock of the absent row stays.
            if self.index.is_some() {
                ticket.into_iter().try_for_each(|ticket| txn.unlock(ticket))?;
            }
        }
        Ok(Some((&self.key, &self.value)))
    }

    /// Whether a row is the one that the index's entry says.
    fn has_fields(&self, value: &[u8]) -> bool {
        self.index.as_ref().is_none_or(|index| index.state.definition.has_fields(&self.key, value, &self.fields))
    }

    /// Goes to the next row as the transaction sees it without a lock; false: there is none.
    fn fetch_next(&mut self, txn: &Transaction, sees: Sees) -> Result<bool, Error> {
        let of = txn.number();
        if !self.fetched.as_ref().is_some_and(|(txn, before, _)| (*txn, *before) == (of, sees)) {
            let Some(left) = self.left.clone() else { return Ok(false) };
            let rows = match &self.index {
                None => {
                    let rows = RowsOf { engine: &self.engine, state: &self.state };
                    Fetched::Rows(txn.scan_that(rows, sees, left)?)
                }
                Some(index) => Fetched::OfIndex(IndexRows::of(txn.entries_that(index, sees, left)?)),
            };
            self.fetched = Some((of, sees, rows));
        }
        let next = self.take_next(sees);
        if next.is_err() {
            // What was fetched is at its end now, and the cursor is not.
            self.fetched = None;
        }
        next
    }

    /// Takes the next of the rows that were fetched; through an index, only its key if it is to be locked.
    fn take_next(&mut self, sees: Sees) -> Result<bool, Error> {
        let copy = |to: &mut Vec<u8>, from: &[u8]| {
            to.clear();
            to.extend_from_slice(from);
        };
        match &mut self.fetched {
            None => return Ok(false),
            Some((_, _, Fetched::Rows(scan))) => {
                let Some((key, value)) = scan.row_at(self.at)? else { return Ok(false) };
                copy(&mut self.key, key);
                copy(&mut self.value, value);
            }
            Some((_, _, Fetched::OfIndex(rows))) => {
                if let Sees::Locked(_) = sees {
                    if !rows.scan.advance(self.at)? {
                        return Ok(false);
                    }
                } else {
                    let Some((_, value)) = rows.row_at(self.at)? else { return Ok(false) };
                    copy(&mut self.value, value);
                }
                copy(&mut self.key, &rows.scan.key);
                copy(&mut self.fields, &rows.scan.fields);
            }
        }
        Ok(true)
    }

    /// Notes that the cursor has come past its row.
    fn pass(&mut self) {
        let Some(left) = &mut self.left else { return };
        match &self.index {
            None => pass(left, self.at, &self.key),
            Some(index) => pass(left, self.at, &index.state.definition.joined_entry(&self.fields, &self.key)),
        }
    }
}
