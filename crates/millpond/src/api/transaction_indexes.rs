//! What a transaction reads through indexes, with and without locks.

use crate::api::index::{DISAGREEMENTS, Index, IndexRows, IndexScan};
use crate::api::read_mode::{OnLocked, Read, ReadMode, Sees};
use crate::api::snapshot::RowsOf;
use crate::api::transaction::Transaction;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::btree::scan::OwnedRow;
use crate::read::reader::Reader;
use crate::schema::key_range::{KeyBounds, KeyRange};
use crate::txn::lock_table::Mode;
use crate::txn::view::View;

impl Transaction {
    /// The entries of an index with fields in `range`: fields and primary key of each. Sees changes as
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn entries(&self, of: &Index, range: impl KeyRange) -> Result<IndexScan, Error> {
        let reader = self.reader_of_index(of)?;
        Ok(of.scan_at(reader, range))
    }

    /// The rows with fields in `range`, in the order of the fields: primary key and row of each. Sees changes as
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn rows(&self, of: &Index, range: impl KeyRange) -> Result<IndexRows, Error> {
        let reader = self.reader_of_index(of)?;
        Ok(of.rows_at(reader, range))
    }

    /// Reads the row with these fields of a unique index in the given way: its primary key, and the row as
    /// [`read`](Self::read) has it. No primary key: no row has these fields.
    ///
    /// A locking read locks the row. Where there is none, it locks the fields: no other transaction adds such a row
    /// before this one ends.
    ///
    /// # Errors
    /// [`Error::WrongKind`]: the index is not unique. Those of [`read`](Self::read).
    pub fn read_by(
        &mut self,
        index: &Index,
        fields: impl AsRef<[u8]>,
        mode: ReadMode,
    ) -> Result<(Option<Vec<u8>>, Read), Error> {
        index.check_unique()?;
        let fields = fields.as_ref();
        let found = match mode.sees {
            Sees::Locked(lock) => return self.lock_by(index, fields, lock, mode.on_locked),
            Sees::Snapshot => self.rows(index, fields..=fields)?.next().transpose()?,
            Sees::Newest => self.newest_by(index, fields)?,
        };
        let (key, value) = found.unzip();
        Ok((key, Read { value, ticket: None, is_locked_by_other: false }))
    }

    fn newest_by(&self, index: &Index, fields: &[u8]) -> Result<Option<OwnedRow>, Error> {
        self.check_index(index)?;
        self.changes.unless_over(index.newest(fields, self.changes.txn()))
    }

    /// Locks the row with these fields. The entry is looked at without a lock. Once the row is locked, its own fields
    /// say whether it is the right one: entry and row change together.
    fn lock_by(
        &mut self,
        index: &Index,
        fields: &[u8],
        lock: Mode,
        on_locked: OnLocked,
    ) -> Result<(Option<Vec<u8>>, Read), Error> {
        let space = self.check_index(index)?;
        let (rows, entries) = (&index.table.state.rows, &index.state.entries);
        let mut last = Vec::new();
        for _ in 0..DISAGREEMENTS {
            let seen = entries.get(&self.engine, fields, View::newest_for(self.changes.txn()))?;
            let Some(key) = seen else {
                // Perhaps another transaction is adding it: that one has the entry locked.
                let read = self.read_locked(space, entries, fields, lock, on_locked)?;
                match read {
                    Read { value: Some(_), ticket, .. } => {
                        ticket.into_iter().try_for_each(|ticket| self.unlock(ticket))?
                    }
                    none => return Ok((None, none)),
                }
                continue;
            };
            let read = self.read_locked(space, rows, &key, lock, on_locked)?;
            let is_it = |row: &Vec<u8>| index.state.definition.has_fields(&key, row, fields);
            let is_left_out = read.is_locked_by_other && on_locked == OnLocked::Skip;
            if read.value.as_ref().map_or(is_left_out, is_it) {
                return Ok((Some(key), read));
            }
            // The row was changed before it was locked. By now the entry is of another, or gone.
            let again = entries.get(&self.engine, fields, View::newest_for(self.changes.txn()))?;
            if !read.is_locked_by_other && again.as_ref() == Some(&key) {
                return Err(index.is_of_another_row(fields, &key));
            }
            read.ticket.into_iter().try_for_each(|ticket| self.unlock(ticket))?;
            last = key;
        }
        Err(index.is_of_another_row(fields, &last))
    }

    /// Entries of an index as a cursor goes through them; `left`: the range of their keys.
    pub(super) fn entries_that(&self, of: &Index, sees: Sees, left: KeyBounds) -> Result<IndexScan, Error> {
        self.check_index(of)?;
        let reader = if sees == Sees::Snapshot { self.reader_of_index(of)? } else { self.newest_reader() };
        Ok(of.scan_entries(reader, Some(left)))
    }

    /// Fails if the index is of another database, or the transaction over. Returns the space of the table's rows.
    fn check_index(&self, index: &Index) -> Result<SpaceId, Error> {
        self.state_of(RowsOf::from(&index.table)).map(|rows| rows.space)
    }

    fn reader_of_index(&self, index: &Index) -> Result<Reader, Error> {
        self.check_index(index)?;
        let reader = self.reader_of(&index.state.entries)?;
        reader.snapshot.as_ref().map_or(Ok(()), |snapshot| index.table.state.rows.check_snapshot(snapshot.at()))?;
        Ok(reader)
    }
}
