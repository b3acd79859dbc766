//! What changes in a table's indexes when its rows change.
//!
//! ROWS-1  A row and its entries change in one batch, which demands that the row is the one that the old entries were
//!         computed from, or that there is none; or has had the row locked since before it was read.
//! ROWS-2  Entries go before entries come: so rows may exchange what is unique among them in one batch.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::definition::{IndexDefinition, TooShort};
use super::index_key::EntryBytes;
use super::tree::TreeState;
use crate::base::error::Error;

/// What all handles of a table share.
pub(crate) struct TableState {
    pub(super) rows: Arc<TreeState>,
    pub(super) indexes: Vec<IndexState>,
}

/// An index, and the tree with its entries.
pub(super) struct IndexState {
    pub(super) definition: IndexDefinition,
    pub(super) entries: Arc<TreeState>,
}

impl TableState {
    /// The trees of rows and indexes, and that of the rows' chunks.
    pub(super) fn trees(&self) -> impl Iterator<Item = &Arc<TreeState>> {
        let indexes = self.indexes.iter().map(|index| &index.entries);
        std::iter::once(&self.rows).chain(indexes).chain(self.rows.chunks())
    }

    /// The error for a row that lacks what an index wants.
    pub(super) fn too_short(&self, index: &IndexState, key: &[u8], short: TooShort) -> Error {
        short.error(&self.rows.name, &index.definition.name, key)
    }
}

/// The entries that change with some rows.
#[derive(Default)]
pub(super) struct EntryChanges<'t> {
    /// The keys of all of them.
    bytes: EntryBytes,
    changes: SmallVec<[EntryChange<'t>; 4]>,
}

struct EntryChange<'t> {
    index: &'t IndexState,
    row_key: &'t [u8],
    gone: Option<Range<usize>>,
    new: Option<Range<usize>>,
}

impl<'t> EntryChanges<'t> {
    /// Adds what changes when the row `key` of `table` becomes `new`; `None`: there is no row.
    pub(super) fn add(
        &mut self,
        table: &'t TableState,
        key: &'t [u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<(), Error> {
        for index in &table.indexes {
            let gone = self.keep(index, key, old).map_err(|_| damaged(table, index))?;
            let new = self.keep(index, key, new).map_err(|short| table.too_short(index, key, short))?;
            match (&gone, &new) {
                (Some(gone), Some(new)) if self.bytes[gone.clone()] == self.bytes[new.clone()] => {
                    self.bytes.truncate(gone.start);
                }
                (None, None) => {}
                (Some(_), Some(_)) if cfg!(planted = "old_entry_kept") => {
                    self.changes.push(EntryChange { index, row_key: key, gone: None, new });
                }
                _ => self.changes.push(EntryChange { index, row_key: key, gone, new }),
            }
        }
        Ok(())
    }

    /// Appends the key of a row's entry.
    fn keep(&mut self, index: &IndexState, key: &[u8], row: Option<&[u8]>) -> Result<Option<Range<usize>>, TooShort> {
        let Some(row) = row else { return Ok(None) };
        let begin = self.bytes.len();
        index.definition.append_entry_key(key, row, &mut self.bytes)?;
        Ok(Some(begin..self.bytes.len()))
    }

    /// The changes of the indexes' trees.
    pub(super) fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        let gone = self.changes.iter().filter_map(|change| {
            let key = &self.bytes[change.gone.clone()?];
            Some(Op::new(&change.index.entries, key, Change::Delete))
        });
        let new = self.changes.iter().filter_map(|change| {
            let key = &self.bytes[change.new.clone()?];
            let value = if change.index.definition.is_unique { change.row_key } else { &[] };
            let change_of_tree =
                if cfg!(planted = "unique_not_demanded") { Change::Put(value) } else { Change::Insert(value) };
            Some(Op::new(&change.index.entries, key, change_of_tree))
        });
        gone.chain(new)
    }
}

/// The error for a row of the table that lacks what an index wants: it was written with its entry.
#[cold]
fn damaged(table: &TableState, index: &IndexState) -> Error {
    let message = format!(
        "{} has a row without the fields of index '{}': run `millpond check`, restore the database from a backup",
        table.rows, index.definition.name
    );
    Error::Corruption(message.into())
}
