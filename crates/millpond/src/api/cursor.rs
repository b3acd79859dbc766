//! Cursors: scans row by row, each step in a transaction and a way to read that the caller chooses.

use std::fmt;
use std::sync::Arc;

use crate::api::read_mode::{ReadMode, Sees};
use crate::api::snapshot::RowsOf;
use crate::api::transaction::Transaction;
use crate::base::error::Error;
use crate::btree::scan::RowRef;
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::read::scan::{At, Scan, pass};
use crate::schema::key_range::{KeyBounds, KeyRange};

/// A place in a range of a tree's or a table's rows.
///
/// A cursor belongs to no transaction. Each step says in which transaction it reads and how: so a cursor can go on in
/// another one. It keeps the key of its last row and nothing else: the row may be changed or deleted meanwhile.
pub struct Cursor {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    /// The keys that it has not come to yet.
    left: KeyBounds,
    at: At,
    key: Vec<u8>,
    value: Vec<u8>,
    /// The rows that were fetched last, and for which transaction and what it is to see.
    fetched: Option<(u64, Sees, Scan)>,
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
        let (engine, state) = (Arc::clone(engine), Arc::clone(state));
        let (key, value) = (Vec::new(), Vec::new());
        Cursor { engine, state, left: range.into_bounds(), at: At::Front, key, value, fetched: None }
    }

    /// The same range from its last row down.
    #[must_use]
    pub fn reversed(mut self) -> Cursor {
        self.at = At::Back;
        self
    }

    /// Goes to the next row and reads it in a transaction: its key and value, borrowed until the next step. `None`:
    /// there is no further row. A locking read keeps the lock until the transaction ends; rows that it leaves out, or
    /// that are deleted by the time that it has the lock, are passed over.
    ///
    /// # Errors
    /// Those of [`Transaction::read`]. After [`Error::LockTimeout`] and [`Error::Cancelled`] the next step tries the
    /// same row again.
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
            if let Err(Error::LockTimeout(_) | Error::Cancelled(_)) = read {
                self.fetched = None;
            } else {
                self.pass();
            }
            if let Some(value) = read?.value {
                self.value = value;
                break;
            }
        }
        Ok(Some((&self.key, &self.value)))
    }

    /// Goes to the next row as the transaction sees it without a lock; false: there is none.
    fn fetch_next(&mut self, txn: &Transaction, sees: Sees) -> Result<bool, Error> {
        let of = txn.number();
        if !self.fetched.as_ref().is_some_and(|(txn, before, _)| (*txn, *before) == (of, sees)) {
            let rows = RowsOf { engine: &self.engine, state: &self.state };
            let scan = txn.scan_that(rows, sees, self.left.clone())?;
            self.fetched = Some((of, sees, scan));
        }
        let Some((_, _, scan)) = &mut self.fetched else { return Ok(false) };
        let row = match scan.row_at(self.at) {
            Ok(row) => row,
            Err(error) => {
                // The scan is at its end now, and the cursor is not.
                self.fetched = None;
                return Err(error);
            }
        };
        let Some((key, value)) = row else { return Ok(false) };
        self.key.clear();
        self.value.clear();
        self.key.extend_from_slice(key);
        self.value.extend_from_slice(value);
        Ok(true)
    }

    /// Notes that the cursor has come past its key.
    fn pass(&mut self) {
        pass(&mut self.left, self.at, &self.key);
    }
}
