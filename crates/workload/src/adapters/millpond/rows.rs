//! A table `sbtestN`: its rows by id, whether that is their primary key or a column with an index.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::millpond::{Error as MillpondError, Field, Index, IndexRows, Modify, Scan, Table, TableDefinition, Transaction};

use super::first_number;
use crate::Error;
use crate::engine::{IdColumn, IdRange, Index as KIndex, Layout, Outcome, TableNo};
use crate::generators::row::{C_LEN, PAD_LEN, Row};

/// The index on `k`.
pub(super) const K_INDEX: &str = "k";

/// The index on `id`, if `id` is not the primary key.
pub(super) const ID_INDEX: &str = "xid";

/// Bytes of `k` in a row.
pub(super) const K_LEN: usize = 4;

/// Bytes of a row's value.
pub(super) const ROW_LEN: usize = K_LEN + C_LEN + PAD_LEN;

/// Bytes of an id, and of a row's hidden key.
const ID_LEN: usize = 8;

/// The definition of a table `sbtestN`.
pub(super) fn definition(layout: Layout) -> TableDefinition {
    let definition = match layout.id {
        IdColumn::PrimaryKey => TableDefinition::new(),
        IdColumn::Indexed => TableDefinition::new().index(ID_INDEX, [Field::value(ROW_LEN..ROW_LEN + ID_LEN)]),
    };
    match layout.k {
        KIndex::OnK => definition.index(K_INDEX, [Field::value(..K_LEN)]),
        KIndex::Absent => definition,
    }
}

/// Whether the rows' primary key is hidden.
pub(super) fn has_hidden_keys(table: &Table) -> bool {
    table.indexes().any(|index| index == ID_INDEX)
}

/// The largest id in a table, 0 if it is empty.
pub(super) fn last_id(table: &Table) -> Result<u64, Error> {
    if has_hidden_keys(table) {
        return first_number(table.index(ID_INDEX).map_err(Error::engine)?.scan(..).rev());
    }
    first_number(table.scan(..).rev())
}

/// A table's rows by id.
pub(super) struct Rows {
    number: TableNo,
    pub(super) table: Table,
    hidden: Option<Hidden>,
}

/// The parts of a table with a hidden primary key.
struct Hidden {
    by_id: Index,
    /// The key of the next row, shared by all sessions.
    next_key: Arc<AtomicU64>,
}

impl Rows {
    /// The rows of `table`; new ones get their hidden keys from `next_key`.
    pub(super) fn new(number: TableNo, table: Table, next_key: &Arc<AtomicU64>) -> Result<Rows, Error> {
        let mut hidden = None;
        if has_hidden_keys(&table) {
            let last_key = first_number(table.scan(..).rev())?;
            // Relaxed: the key only has to be unique; the engine orders the inserts.
            next_key.fetch_max(last_key + 1, Ordering::Relaxed);
            let by_id = table.index(ID_INDEX).map_err(Error::engine)?;
            hidden = Some(Hidden { by_id, next_key: Arc::clone(next_key) });
        }
        Ok(Rows { number, table, hidden })
    }

    /// The rows of a range of ids, as `txn` sees them if there is one.
    pub(super) fn range(&self, ids: IdRange, txn: Option<&Transaction>) -> Result<IdRows<'_>, Error> {
        let (first, last) = (ids.first.to_be_bytes(), ids.last.to_be_bytes());
        let range: RangeInclusive<&[u8]> = &first[..]..=&last[..];
        let found = match (&self.hidden, txn) {
            (None, None) => Ok(Found::ByKey(self.table.scan(range))),
            (None, Some(txn)) => txn.scan(&self.table, range).map(Found::ByKey),
            (Some(hidden), None) => Ok(Found::ByIndex(hidden.by_id.rows(range))),
            (Some(hidden), Some(txn)) => txn.rows(&hidden.by_id, range).map(Found::ByIndex),
        };
        Ok(IdRows { of: self, found: found.map_err(Error::engine)? })
    }

    /// Reads the row with this id: [`Outcome::Done`] or [`Outcome::NoRow`].
    pub(super) fn get(&self, id: u64, txn: Option<&Transaction>) -> Result<Outcome, Error> {
        let Some(_) = &self.hidden else {
            let row = match txn {
                None => self.table.get(id.to_be_bytes()),
                Some(txn) => txn.get(&self.table, id.to_be_bytes()),
            };
            return match row.map_err(Error::engine)? {
                None => Ok(Outcome::NoRow),
                Some(row) => self.whole(id, &row).map(|_| Outcome::Done),
            };
        };
        let mut rows = self.range(IdRange { first: id, last: id }, txn)?;
        let mut outcome = Outcome::NoRow;
        while rows.next_row()?.is_some() {
            outcome = Outcome::Done;
        }
        Ok(outcome)
    }

    /// Changes the row with this id by `change`; several rows with the id are changed one by one.
    pub(super) fn update(
        &self,
        id: u64,
        txn: Option<&mut Transaction>,
        change: impl Fn(&mut [u8]),
    ) -> Result<Outcome, Error> {
        let mut wrong = None;
        let mut decide = |old: Option<&[u8]>| {
            let Some(old) = old else { return Modify::Keep };
            if let Err(error) = self.whole(id, old) {
                wrong = Some(error);
                return Modify::Keep;
            }
            let mut new = old.to_vec();
            change(&mut new);
            Modify::Put(new)
        };
        let outcome = self.each_key(id, txn, |key, txn| match txn {
            None => self.table.modify(key, &mut decide),
            Some(txn) => txn.modify(&self.table, key, &mut decide),
        })?;
        wrong.map_or(Ok(outcome), Err)
    }

    /// Deletes the row with this id; several rows with the id are deleted one by one.
    pub(super) fn delete(&self, id: u64, txn: Option<&mut Transaction>) -> Result<Outcome, Error> {
        self.each_key(id, txn, |key, txn| match txn {
            None => self.table.delete(key),
            Some(txn) => txn.delete(&self.table, key),
        })
    }

    /// Inserts a row.
    pub(super) fn insert(&self, row: &Row, txn: Option<&mut Transaction>) -> Result<Outcome, Error> {
        let value = self.value(row);
        let key = match &self.hidden {
            None => row.id,
            Some(hidden) => hidden.next_key.fetch_add(1, Ordering::Relaxed), // Relaxed: as in `new`
        };
        inserted(match txn {
            None => self.table.insert(key.to_be_bytes(), &value),
            Some(txn) => txn.insert(&self.table, key.to_be_bytes(), &value),
        })
    }

    /// The value of a row.
    pub(super) fn value(&self, row: &Row) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.value_len());
        value.extend_from_slice(&row.k.to_be_bytes());
        value.extend_from_slice(&row.c);
        value.extend_from_slice(&row.pad);
        if self.hidden.is_some() {
            value.extend_from_slice(&row.id.to_be_bytes());
        }
        value
    }

    /// Calls `change` with the key of each row that has this id; `change` returns whether the row was still there.
    fn each_key(
        &self,
        id: u64,
        mut txn: Option<&mut Transaction>,
        mut change: impl FnMut(&[u8], Option<&mut Transaction>) -> Result<bool, MillpondError>,
    ) -> Result<Outcome, Error> {
        let id = id.to_be_bytes();
        let mut was_there = Ok(false);
        match &self.hidden {
            None => was_there = change(&id, txn),
            Some(hidden) => {
                let mut entries = match &txn {
                    None => hidden.by_id.scan(&id[..]..=&id[..]),
                    Some(txn) => txn.entries(&hidden.by_id, &id[..]..=&id[..]).map_err(Error::engine)?,
                };
                while let Ok(before) = was_there
                    && let Some((_, key)) = entries.next_entry().map_err(Error::engine)?
                {
                    was_there = change(key, txn.as_deref_mut()).map(|is_there| before || is_there);
                }
            }
        }
        found(was_there)
    }

    /// Bytes that a row's value has.
    fn value_len(&self) -> usize {
        ROW_LEN + if self.hidden.is_some() { ID_LEN } else { 0 }
    }

    /// The columns k, c and pad of a row's value, after a check of its length.
    pub(super) fn whole<'r>(&self, id: u64, value: &'r [u8]) -> Result<&'r [u8; ROW_LEN], Error> {
        match value.first_chunk() {
            Some(row) if value.len() == self.value_len() => Ok(row),
            _ => {
                let (length, wanted) = (value.len(), self.value_len());
                Err(Error::RowMalformed { table: self.number.to_string(), id, length, wanted })
            }
        }
    }
}

/// The outcome of a statement that looked for a row and may have found it.
pub(super) fn found(was_there: Result<bool, MillpondError>) -> Result<Outcome, Error> {
    match was_there {
        Ok(true) => Ok(Outcome::Done),
        Ok(false) => Ok(Outcome::NoRow),
        Err(error) => conflict(error),
    }
}

/// The outcome of an insert.
pub(super) fn inserted(inserted: Result<(), MillpondError>) -> Result<Outcome, Error> {
    match inserted {
        Ok(()) => Ok(Outcome::Done),
        Err(MillpondError::KeyExists(..)) => Ok(Outcome::Exists),
        Err(other) => conflict(other),
    }
}

/// The outcome of a statement that failed because another transaction was in the way. sysbench begins a transaction
/// again after the same errors: a deadlock, a lock that came too late, a row that has changed.
pub(super) fn conflict(error: MillpondError) -> Result<Outcome, Error> {
    match error {
        MillpondError::Conflict(_) | MillpondError::Deadlock(_) | MillpondError::LockTimeout(_) => {
            Ok(Outcome::Conflict)
        }
        other => Err(Error::engine(other)),
    }
}

/// The rows of a range of ids, ascending.
pub(super) struct IdRows<'r> {
    of: &'r Rows,
    found: Found,
}

enum Found {
    ByKey(Scan),
    ByIndex(IndexRows),
}

impl IdRows<'_> {
    /// The next row's columns k, c and pad.
    pub(super) fn next_row(&mut self) -> Result<Option<&[u8; ROW_LEN]>, Error> {
        let row = match &mut self.found {
            Found::ByKey(rows) => rows.next_row(),
            Found::ByIndex(rows) => rows.next_row(),
        };
        row.map_err(Error::engine)?.map(|(key, row)| self.of.whole(id_of(key), row)).transpose()
    }
}

/// The `k` of a row; the caller has checked the row's length.
pub(super) fn k_of(row: &[u8]) -> u32 {
    u32::from_be_bytes([row[0], row[1], row[2], row[3]])
}

/// The number in a key of 8 bytes.
pub(super) fn id_of(key: &[u8]) -> u64 {
    key.iter().fold(0, |id, &byte| id << 8 | u64::from(byte))
}

/// The text of a row's column `c`.
pub(super) fn c_of(row: &[u8; ROW_LEN]) -> [u8; C_LEN] {
    std::array::from_fn(|index| row[K_LEN + index])
}
