//! Handles of indexes: entries in the order of their fields, and the rows that they point to.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::Arc;

use crate::api::table::Table;
use crate::base::error::{Error, MEND_INDEX};
use crate::base::ids::TxnId;
use crate::base::operations::OperationKind;
use crate::base::quoted::quoted;
use crate::btree::scan::{OwnedRow, RowRef, owned};
use crate::engine::table_state::IndexState;
use crate::read::reader::Reader;
use crate::read::scan::{At, Scan};
use crate::schema::key_range::{KeyBounds, KeyRange};
use crate::txn::view::View;
use crate::write::op::{Change, Op};
use crate::write::outcome::{Applied, Extent, Size};
use crate::write::try_apply;

/// Number of times in a row that a reader meets an entry and a row that disagree, until it takes that for damage. Each
/// time is a commit between two reads, unless a transaction that has not ended hides the damage from a closer look.
pub(super) const DISAGREEMENTS: usize = 1000;

/// An index of a table: its rows in the order of some of their bytes. When it is dropped, its handles get
/// [`Error::TreeNotFound`].
///
/// A range bounds the index's fields, concatenated and compared as byte strings. With one field of 4 bytes,
/// `..="abcd"` holds all rows whose field is at most `abcd`. With two fields of 4 bytes,
/// [`Prefix("abcd")`](crate::Prefix) holds all rows whose first field is `abcd`.
#[derive(Clone)]
pub struct Index {
    pub(crate) table: Table,
    pub(crate) state: Arc<IndexState>,
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

    /// Whether the index is unique: no two rows have the same fields.
    pub fn is_unique(&self) -> bool {
        self.state.definition.is_unique
    }

    /// The primary key and the row with these fields; for a unique index only. May wait on `admission`, `free_frame`
    /// and `page_read`.
    ///
    /// # Errors
    /// [`Error::WrongKind`]: the index is not unique. Those of [`Table::get`].
    pub fn get(&self, fields: impl AsRef<[u8]>) -> Result<Option<OwnedRow>, Error> {
        let fields = fields.as_ref();
        self.check_unique()?;
        self.newest(fields, None)
    }

    /// The newest committed row with these fields of a unique index, or that of the transaction `own`.
    pub(super) fn newest(&self, fields: &[u8], own: Option<TxnId>) -> Result<Option<OwnedRow>, Error> {
        let (IndexState { definition, entries }, view) = (&*self.state, View::newest_for(own));
        let Table { engine, state } = &self.table;
        for _ in 0..DISAGREEMENTS {
            let Some(key) = entries.get(engine, fields, view)? else { return Ok(None) };
            let row = state.rows.get(engine, &key, view)?;
            match row {
                Some(row) if definition.has_fields(&key, &row, fields) => return Ok(Some((key, row))),
                // Most probably a writer changed the row in between: then the entry has changed, too.
                other => self.check_disagreement(fields, &key, other.as_deref())?,
            }
        }
        Err(self.is_of_another_row(fields, &entries.get(engine, fields, view)?.unwrap_or_default()))
    }

    /// Fails if the index is not unique.
    pub(super) fn check_unique(&self) -> Result<(), Error> {
        if self.is_unique() {
            return Ok(());
        }
        let message =
            format!("{} is not unique, so several rows may have the same fields: use `rows`", self.state.entries);
        Err(Error::WrongKind(message.into()))
    }

    /// The entries with fields in `range`, ascending: fields and primary key of each. [`rev`](Iterator::rev) makes it
    /// descending. Not a snapshot: the scan sees each leaf of the index as it is on arrival there.
    pub fn scan(&self, range: impl KeyRange) -> IndexScan {
        self.scan_at(Reader::newest(), range)
    }

    /// The entries that a snapshot sees, or those that the scan comes to.
    pub(crate) fn scan_at(&self, reader: Reader, range: impl KeyRange) -> IndexScan {
        self.scan_entries(reader, self.state.definition.entry_range(&range.into_bounds()))
    }

    /// The same for a range of the entries' keys; `None`: an empty one.
    pub(super) fn scan_entries(&self, reader: Reader, range: Option<KeyBounds>) -> IndexScan {
        let entries = Scan::new(&self.table.engine, &self.state.entries, reader, range);
        IndexScan { index: self.clone(), entries, fields: Vec::new(), key: Vec::new(), has_failed: false }
    }

    /// The rows with fields in `range`, in the order of the fields: primary key and row of each. [`rev`](Iterator::rev)
    /// makes it the reverse order.
    ///
    /// Not a snapshot. Each row had these fields when it was read. The scan may miss a row whose fields change
    /// meanwhile, or return it twice: also once from each end.
    pub fn rows(&self, range: impl KeyRange) -> IndexRows {
        self.rows_at(Reader::newest(), range)
    }

    /// The rows that a snapshot sees, or those that the scan comes to.
    pub(crate) fn rows_at(&self, reader: Reader, range: impl KeyRange) -> IndexRows {
        IndexRows::of(self.scan_at(reader, range))
    }

    /// After reading an entry and then a row with other fields: compares both at one moment. An error if they disagree.
    #[cold]
    fn check_disagreement(&self, fields: &[u8], key: &[u8], row: Option<&[u8]>) -> Result<(), Error> {
        let (table, entries) = (&self.table.state, &self.state.entries);
        let mut both =
            [Op::new(entries, fields, Change::Expect(Some(key))), Op::new(&table.rows, key, Change::Expect(row))];
        self.table.engine.check_open()?;
        let _operation = self.table.engine.waits.operation(OperationKind::Get);
        // The batch changes nothing, so a read-only database allows it, too.
        let mut slot = self.table.engine.txns.begin(&self.table.engine.core.store)?;
        match try_apply(&self.table.engine, &mut both, Extent::Batch, Size::OneGroup, &mut slot) {
            Err(Error::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(Applied::Done(_)) => Err(self.is_of_another_row(fields, key)),
            // A transaction that has not ended has changed one of them: readers do not wait for it.
            Ok(_) => Ok(()),
        }
    }

    /// The error for an entry whose row has other fields at the same moment.
    #[cold]
    pub(super) fn is_of_another_row(&self, fields: &[u8], key: &[u8]) -> Error {
        let (entries, fields, key, way_out) = (&self.state.entries, quoted(fields), quoted(key), MEND_INDEX);
        let message = format!("{entries} has the entry {fields} of row {key}, which is another: {way_out}");
        Error::Corruption(message.into())
    }

    /// The error for a key in the index that is not a valid entry.
    #[cold]
    fn no_entry(&self, entry: &[u8]) -> Error {
        let (index, entry) = (&self.state.entries, quoted(entry));
        let way_out = MEND_INDEX;
        Error::Corruption(format!("{index} has {entry}, which is no entry: {way_out}").into())
    }
}

/// The entries of an index in a range, from both ends; ends after the first error. The iterator returns owned entries;
/// [`next_entry`](IndexScan::next_entry) and [`next_entry_back`](IndexScan::next_entry_back) lend them.
#[must_use]
pub struct IndexScan {
    index: Index,
    entries: Scan,
    /// Fields of the current entry; `key`: its primary key.
    pub(super) fields: Vec<u8>,
    pub(super) key: Vec<u8>,
    has_failed: bool,
}

impl IndexScan {
    /// Goes to the next entry at an end. False: there is none.
    pub(super) fn advance(&mut self, at: At) -> Result<bool, Error> {
        if self.has_failed {
            return Ok(false);
        }
        let Some((entry, value)) = self.entries.row_at(at)? else { return Ok(false) };
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

    /// Goes to the next entry at an end whose row the reader sees with these fields. False: there is none.
    fn advance_to_a_row(&mut self, at: At) -> Result<bool, Error> {
        while self.advance(at)? {
            if !self.entries.may_disagree() {
                return Ok(true);
            }
            let (table, view) = (&self.index.table, self.entries.view());
            let row = self.entries.unless_ended(table.state.rows.get(&table.engine, &self.key, view));
            let row = row.inspect_err(|_| self.has_failed = true)?;
            if row.is_some_and(|row| self.index.state.definition.has_fields(&self.key, &row, &self.fields)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next entry's fields and primary key, borrowed until the next call. `None`: the range is exhausted, or an
    /// error came before.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn next_entry(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        Ok(self.advance_to_a_row(At::Front)?.then_some((&self.fields, &self.key)))
    }

    /// The fields and primary key of the last entry not taken yet; otherwise like [`next_entry`](Self::next_entry).
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn next_entry_back(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        Ok(self.advance_to_a_row(At::Back)?.then_some((&self.fields, &self.key)))
    }
}

impl Iterator for IndexScan {
    type Item = Result<OwnedRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|entry| entry.map(owned)).transpose()
    }
}

impl DoubleEndedIterator for IndexScan {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_entry_back().map(|entry| entry.map(owned)).transpose()
    }
}

impl FusedIterator for IndexScan {}

/// The rows of an index in a range, from both ends; ends after the first error. The iterator returns owned rows;
/// [`next_row`](IndexRows::next_row) and [`next_row_back`](IndexRows::next_row_back) lend them.
#[must_use]
pub struct IndexRows {
    pub(super) scan: IndexScan,
    row: Vec<u8>,
}

impl IndexRows {
    pub(super) fn of(scan: IndexScan) -> IndexRows {
        IndexRows { scan, row: Vec::new() }
    }

    /// The next row's primary key and value, borrowed until the next call. `None`: the range is exhausted, or an
    /// error came before.
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        self.row_at(At::Front)
    }

    /// The primary key and value of the last row not taken yet; otherwise like [`next_row`](Self::next_row).
    ///
    /// # Errors
    /// Those of [`Table::get`].
    pub fn next_row_back(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        self.row_at(At::Back)
    }

    pub(super) fn row_at(&mut self, at: At) -> Result<Option<RowRef<'_>>, Error> {
        while self.scan.advance(at)? {
            let IndexScan { index, entries, fields, key, .. } = &self.scan;
            let (table, view) = (&index.table, entries.view());
            let found = entries.unless_ended(table.state.rows.get(&table.engine, key, view));
            let found = found.map(|row| row.filter(|row| index.state.definition.has_fields(key, row, fields)));
            let row = match found {
                // By now a writer may have deleted the row or changed its fields.
                Ok(None) if view.at.is_none() || entries.is_behind() || entries.may_disagree() => continue,
                Ok(None) => {
                    self.scan.has_failed = true;
                    return Err(self.scan.index.is_of_another_row(&self.scan.fields, &self.scan.key));
                }
                Ok(row) => row,
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
        self.next_row().map(|row| row.map(owned)).transpose()
    }
}

impl DoubleEndedIterator for IndexRows {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_row_back().map(|row| row.map(owned)).transpose()
    }
}

impl FusedIterator for IndexRows {}
