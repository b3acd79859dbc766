//! Handles of indexes: entries in the order of their fields, and the rows that they are of.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use super::batch::{Change, Op};
use super::plan::shown;
use super::row_changes::IndexState;
use super::table::Table;
use super::tree::{Direction, Scan, Tree};
use super::write::apply;
use crate::base::error::{Error, MEND_INDEX};
use crate::btree::scan::{OwnedRow, RowRef};

/// An index of a table: its rows in the order of some of their bytes. When it is dropped, its handles get
/// [`Error::TreeNotFound`].
///
/// Ranges are of the index's fields, put one behind the other, and compared as byte strings: with a field of 4 bytes
/// `..=&b"abcd"[..]` has all rows whose field is at most `abcd`, and with two fields of 4 bytes, all whose first field is
/// `abcd` are in `&b"abcd"[..]..&b"abce"[..]`.
#[derive(Clone)]
pub struct Index {
    pub(super) table: Table,
    pub(super) state: Arc<IndexState>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (table, name) = (self.table.name(), self.name());
        f.debug_struct("Index").field("table", &table).field("name", &name).finish_non_exhaustive()
    }
}

impl Index {
    /// The index's name.
    pub fn name(&self) -> &str {
        &self.state.definition.name
    }

    /// Whether no two rows have the same fields.
    pub fn is_unique(&self) -> bool {
        self.state.definition.is_unique
    }

    /// The primary key and the row with these fields, of a unique index. May wait on `admission`,
    /// `free_frame` and `page_read`.
    ///
    /// # Errors
    /// [`Error::WrongKind`]: the index is not unique. Those of [`Table::get`].
    pub fn get(&self, fields: &[u8]) -> Result<Option<OwnedRow>, Error> {
        let IndexState { definition, entries } = &*self.state;
        if !definition.is_unique {
            let message = format!("{entries} is not unique, so several rows may have the same fields: use `rows`");
            return Err(Error::WrongKind(message.into()));
        }
        loop {
            let Some(key) = entries.get(&self.table.engine, fields)? else { return Ok(None) };
            let row = self.table.get(&key)?;
            match row {
                Some(row) if definition.has_fields(&key, &row, fields) => return Ok(Some((key, row))),
                // It has changed in between, most probably: then the entry has, too.
                other => self.check_disagreement(fields, &key, other.as_deref())?,
            }
        }
    }

    /// The entries with fields in `range`, ascending: fields and primary key of each. Not a snapshot: each leaf of the
    /// index is seen as it is when the scan comes to it.
    pub fn scan<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> IndexScan {
        self.scan_towards(&range, Direction::Forward)
    }

    /// The entries with fields in `range`, descending. Not a snapshot, either.
    pub fn scan_back<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> IndexScan {
        self.scan_towards(&range, Direction::Backward)
    }

    /// The rows with fields in `range`, in the order of the fields: primary key and row of each.
    ///
    /// Not a snapshot. Each row had these fields when it was read; one that changes its fields while the scan is under
    /// way may be missed, or come twice.
    pub fn rows<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> IndexRows {
        IndexRows { scan: self.scan(range), row: Vec::new() }
    }

    /// The rows with fields in `range`, in the reverse order. Not a snapshot, either.
    pub fn rows_back<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> IndexRows {
        IndexRows { scan: self.scan_back(range), row: Vec::new() }
    }

    fn scan_towards<'k>(&self, range: &impl RangeBounds<&'k [u8]>, direction: Direction) -> IndexScan {
        let state = &*self.state;
        let tree = Tree { engine: Arc::clone(&self.table.engine), state: Arc::clone(&state.entries) };
        let entries = tree.scan_range(state.definition.entry_range(range), direction);
        IndexScan { index: self.clone(), entries, fields: Vec::new(), key: Vec::new(), has_failed: false }
    }

    /// An entry was read, and then a row that has other fields. Looks at both at one moment: an error if they disagree.
    #[cold]
    fn check_disagreement(&self, fields: &[u8], key: &[u8], row: Option<&[u8]>) -> Result<(), Error> {
        let (table, entries) = (&self.table.state, &self.state.entries);
        let mut both =
            [Op::new(entries, fields, Change::Expect(Some(key))), Op::new(&table.rows, key, Change::Expect(row))];
        self.table.engine.check_open()?;
        // Nothing is changed: a database that is only read is looked at, too.
        match apply(&self.table.engine, &mut both) {
            Err(Error::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                let way_out = MEND_INDEX;
                let (fields, key) = (shown(fields), shown(key));
                let message = format!("{entries} has the entry {fields} of row {key}, which is another: {way_out}");
                Err(Error::Corruption(message.into()))
            }
        }
    }

    /// The error for an entry that is none.
    #[cold]
    fn no_entry(&self, entry: &[u8]) -> Error {
        let (index, entry) = (&self.state.entries, shown(entry));
        let way_out = MEND_INDEX;
        Error::Corruption(format!("{index} has {entry}, which is no entry: {way_out}").into())
    }
}

/// The entries of an index in a range; ends after the first error. As an iterator it gives each entry its own memory;
/// [`next_entry`](IndexScan::next_entry) only lends them.
#[must_use]
pub struct IndexScan {
    index: Index,
    entries: Scan,
    /// Of the entry that the scan is at.
    fields: Vec<u8>,
    key: Vec<u8>,
    has_failed: bool,
}

impl IndexScan {
    /// Goes to the next entry; false: there is none.
    fn advance(&mut self) -> Result<bool, Error> {
        if self.has_failed {
            return Ok(false);
        }
        let Some((entry, value)) = self.entries.next_row()? else { return Ok(false) };
        match self.index.state.definition.split_entry(entry, value, &mut self.fields) {
            Some(key) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                Ok(true)
            }
            None => {
                self.has_failed = true;
                Err(self.index.no_entry(entry))
            }
        }
    }

    /// The next entry's fields and primary key, borrowed until the scan goes on; `None`: the range is exhausted, or an
    /// error came before.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn next_entry(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        Ok(self.advance()?.then_some((&self.fields, &self.key)))
    }
}

impl Iterator for IndexScan {
    type Item = Result<OwnedRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| entry.map(|(fields, key)| (fields.to_vec(), key.to_vec()))).transpose()
    }
}

/// The rows of an index in a range; ends after the first error. As an iterator it gives each row its own memory;
/// [`next_row`](IndexRows::next_row) only lends them.
#[must_use]
pub struct IndexRows {
    scan: IndexScan,
    row: Vec<u8>,
}

impl IndexRows {
    /// The next row's primary key and value, borrowed until the scan goes on; `None`: the range is exhausted, or an
    /// error came before.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        while self.scan.advance()? {
            let IndexScan { index, fields, key, .. } = &self.scan;
            // By now the row may be gone, or have other fields.
            let row = match index.table.get(key) {
                Ok(row) => row.filter(|row| index.state.definition.has_fields(key, row, fields)),
                Err(error) => {
                    self.scan.has_failed = true;
                    return Err(error);
                }
            };
            if let Some(row) = row {
                self.row = row;
                return Ok(Some((&self.scan.key, &self.row)));
            }
        }
        Ok(None)
    }
}

impl Iterator for IndexRows {
    type Item = Result<OwnedRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().map(|row| row.map(|(key, row)| (key.to_vec(), row.to_vec()))).transpose()
    }
}
