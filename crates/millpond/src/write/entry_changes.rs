//! The changes of index entries that follow from changes of a table's rows.
//!
//! ROWS-1  A row and its entries change in one batch. Either the batch demands that the row, or its absence, is the one
//!         that the old entries were computed from; or it has had the row locked since before the row was read.
//! ROWS-2  A batch removes entries before it adds entries: so rows may exchange unique values in one batch.
//! ROWS-3  A writer of rows holds the table's gate, shared, from its look at the list of indexes until its batch is
//!         written. A thread that changes the list holds the gate exclusively. So no writer uses an old list.
//! ROWS-4  A transaction that may change a row beyond its snapshot changes all entries of the row: those that stay get
//!         its stamp. So its readers see the row's entries if they see the row, though others made them since.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::error::Error;
use crate::engine::table_state::{IndexState, Indexes, TableState};
use crate::schema::definition::TooShort;
use crate::schema::index_key::EntryBytes;
use crate::write::op::{Change, Op};

/// The changes of entries that follow from changes of some rows.
#[derive(Default)]
pub(crate) struct EntryChanges<'t> {
    /// The keys of all these entries.
    bytes: EntryBytes,
    changes: SmallVec<[EntryChange<'t>; 4]>,
    /// Entries that stay are changed, too (ROWS-4).
    changes_all: bool,
}

struct EntryChange<'t> {
    index: &'t IndexState,
    is_noted: bool,
    row_key: &'t [u8],
    gone: Option<Range<usize>>,
    new: Option<Range<usize>>,
    /// Both are the same entry, which stays.
    stays: bool,
}

impl<'t> EntryChanges<'t> {
    /// No changes so far, of a transaction that changes all entries of its rows.
    pub(crate) fn of_all_entries() -> EntryChanges<'t> {
        EntryChanges { changes_all: true, ..EntryChanges::default() }
    }

    /// Adds the changes in `indexes` when the row `key` of `table` changes from `old` to `new`; `None`: there is no
    /// row.
    pub(crate) fn add(
        &mut self,
        table: &TableState,
        indexes: &'t Indexes,
        key: &'t [u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(), Error> {
        for index in &indexes.all {
            let gone = self.keep(index, key, old).map_err(|_| damaged(table, index))?;
            let new = self.keep(index, key, new).map_err(|short| table.too_short(index, key, short))?;
            self.note(EntryChange { index, is_noted: false, row_key: key, gone, new, stays: false });
        }
        if let Some(index) = indexes.noted.as_ref().filter(|_| !planted!("build_forgets_changes")) {
            // A row that is too short has no entry. It is removed or grows before the build reads it, or the build
            // fails.
            let gone = self.keep(index, key, old).unwrap_or(None);
            let new = self.keep(index, key, new).map_err(|short| table.too_short(index, key, short))?;
            self.note(EntryChange { index, is_noted: true, row_key: key, gone, new, stays: false });
        }
        Ok(())
    }

    fn note(&mut self, change: EntryChange<'t>) {
        match (&change.gone, &change.new) {
            (Some(gone), Some(new)) if self.bytes[gone.clone()] == self.bytes[new.clone()] => {
                if self.changes_all && !change.is_noted && !planted!("entries_that_stay_keep_their_stamp") {
                    self.changes.push(EntryChange { stays: true, ..change });
                } else {
                    self.bytes.truncate(gone.start);
                }
            }
            (None, None) => {}
            (Some(_), Some(_)) if planted!("old_entry_kept") => {
                self.changes.push(EntryChange { gone: None, ..change });
            }
            _ => self.changes.push(change),
        }
    }

    /// Stores the key of a row's entry; `None`: there is no row.
    fn keep(&mut self, index: &IndexState, key: &[u8], row: Option<&[u8]>) -> Result<Option<Range<usize>>, TooShort> {
        let Some(row) = row else { return Ok(None) };
        let begin = self.bytes.len();
        index.definition.append_entry_key(key, row, &mut self.bytes)?;
        Ok(Some(begin..self.bytes.len()))
    }

    /// The changes of the indexes' trees: first the entries that go, then the new ones (ROWS-2).
    pub(crate) fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        let gone = self.changes.iter().filter(|change| !change.stays).filter_map(|change| {
            let key = &self.bytes[change.gone.clone()?];
            Some(Op::new(&change.index.entries, key, if change.is_noted { NOTE } else { Change::Delete }))
        });
        let new = self.changes.iter().filter_map(|change| {
            let key = &self.bytes[change.new.clone()?];
            let value = if change.index.definition.is_unique { change.row_key } else { &[] };
            let change_of_tree = match change.is_noted {
                true => NOTE,
                // A change that is none: only the stamp is new.
                false if change.stays => Change::Expect(Some(value)),
                false if planted!("unique_not_demanded") => Change::Put(value),
                false => Change::Insert(value),
            };
            Some(Op::new(&change.index.entries, key, change_of_tree))
        });
        gone.chain(new)
    }
}

/// The note that an entry came or went.
const NOTE: Change<&[u8]> = Change::Put(&[]);

/// The error for a stored row that is too short for an index. Rows are written with their entries, so this is damage.
#[cold]
fn damaged(table: &TableState, index: &IndexState) -> Error {
    let message = format!(
        "{} has a row without the fields of index '{}': drop the index, put the row anew and create the index again; if `millpond check` finds more, restore a backup (`millpond restore`)",
        table.rows, index.definition.name
    );
    Error::Corruption(message.into())
}
