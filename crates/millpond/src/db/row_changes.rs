//! What changes in a table's indexes when its rows change.
//!
//! ROWS-1  A row and its entries change in one batch, which demands that the row is the one that the old entries were
//!         computed from, or that there is none; or has had the row locked since before it was read.
//! ROWS-2  Entries go before entries come: so rows may exchange what is unique among them in one batch.
//! ROWS-3  Who changes rows holds the table's gate, shared, from when he looks which indexes there are until his batch
//!         is written. Who changes which there are holds it exclusively: nobody writes by an old list.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::definition::{IndexDefinition, TooShort, row_of};
use super::engine::Engine;
use super::index_key::EntryBytes;
use super::tree::TreeState;
use crate::base::error::Error;
use crate::base::sync::{Rank, ReadGuard, RwLock, Turn, TurnGuard, WriteGuard};
use crate::base::waits::WaitClass;

/// What all handles of a table share.
pub(crate) struct TableState {
    pub(super) rows: Arc<TreeState>,
    /// The table's gate (ROWS-3). It is entered before those of trees, and those of several tables are in the order of
    /// their rows' spaces; who creates or drops trees closes it behind [`Engine::ddl`].
    indexes: RwLock<Indexes>,
    /// Who has it makes an index.
    build: Turn<()>,
}

/// The indexes of a table.
#[derive(Default)]
pub(super) struct Indexes {
    pub(super) all: Vec<Arc<IndexState>>,
    /// One that is being made: what changes in it is noted for now ([`super::index_build`]).
    pub(super) noted: Option<Arc<IndexState>>,
}

/// An index, and the tree with its entries. Of one that is noted: what its entries would be, were it not unique, and
/// the tree with the keys of those that came or went.
pub(super) struct IndexState {
    pub(super) definition: IndexDefinition,
    pub(super) entries: Arc<TreeState>,
}

impl TableState {
    pub(super) fn new(rows: Arc<TreeState>, all: Vec<Arc<IndexState>>) -> TableState {
        TableState { rows, indexes: RwLock::new(Indexes { all, noted: None }), build: Turn::new(Rank::IndexBuild, ()) }
    }

    /// Lets in a change of rows, or who looks which indexes there are. May wait on `metadata`.
    pub(super) fn enter(&self, engine: &Engine) -> ReadGuard<'_, Indexes> {
        match self.indexes.try_read() {
            Some(indexes) => indexes,
            None => engine.waits.timed(WaitClass::Metadata, || self.indexes.read()),
        }
    }

    /// Waits on `metadata` for all changes of rows that are under way, and lets no other in.
    pub(super) fn close(&self, engine: &Engine) -> WriteGuard<'_, Indexes> {
        engine.waits.timed(WaitClass::Metadata, || self.indexes.write())
    }

    /// Waits on `metadata` until no other index of the table is being made.
    pub(super) fn build_turn(&self, engine: &Engine) -> TurnGuard<'_, ()> {
        engine.waits.timed(WaitClass::Metadata, || self.build.lock())
    }

    /// The indexes that there are at the moment. May wait on `metadata`.
    pub(super) fn indexes(&self, engine: &Engine) -> Vec<Arc<IndexState>> {
        self.enter(engine).all.clone()
    }

    /// The trees of rows and indexes, and that of the rows' chunks. May wait on `metadata`.
    pub(super) fn trees(&self, engine: &Engine) -> Vec<Arc<TreeState>> {
        self.trees_with(&Indexes { all: self.indexes(engine), noted: None })
    }

    /// The same, and that with the notes, of who has the table's gate.
    pub(super) fn trees_with(&self, indexes: &Indexes) -> Vec<Arc<TreeState>> {
        let of_indexes = indexes.all.iter().chain(&indexes.noted).map(|index| &index.entries);
        std::iter::once(&self.rows).chain(of_indexes).chain(self.rows.chunks()).cloned().collect()
    }

    /// The error for a row that lacks what an index wants.
    pub(super) fn too_short(&self, index: &IndexState, key: &[u8], short: TooShort) -> Error {
        short.error(&index.definition.name, &row_of(&self.rows, key))
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
    is_noted: bool,
    row_key: &'t [u8],
    gone: Option<Range<usize>>,
    new: Option<Range<usize>>,
}

impl<'t> EntryChanges<'t> {
    /// Adds what changes in `indexes` when the row `key` of `table` becomes `new`; `None`: there is no row.
    pub(super) fn add(
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
            self.note(EntryChange { index, is_noted: false, row_key: key, gone, new });
        }
        if let Some(index) = indexes.noted.as_ref().filter(|_| !planted!("build_forgets_changes")) {
            // A row that is too short has no entry, and goes or grows before the build comes to it, or ends it.
            let gone = self.keep(index, key, old).unwrap_or(None);
            let new = self.keep(index, key, new).map_err(|short| table.too_short(index, key, short))?;
            self.note(EntryChange { index, is_noted: true, row_key: key, gone, new });
        }
        Ok(())
    }

    fn note(&mut self, change: EntryChange<'t>) {
        match (&change.gone, &change.new) {
            (Some(gone), Some(new)) if self.bytes[gone.clone()] == self.bytes[new.clone()] => {
                self.bytes.truncate(gone.start);
            }
            (None, None) => {}
            (Some(_), Some(_)) if planted!("old_entry_kept") => {
                self.changes.push(EntryChange { gone: None, ..change });
            }
            _ => self.changes.push(change),
        }
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
            Some(Op::new(&change.index.entries, key, if change.is_noted { NOTE } else { Change::Delete }))
        });
        let new = self.changes.iter().filter_map(|change| {
            let key = &self.bytes[change.new.clone()?];
            let value = if change.index.definition.is_unique { change.row_key } else { &[] };
            let change_of_tree = match change.is_noted {
                true => NOTE,
                false if planted!("unique_not_demanded") => Change::Put(value),
                false => Change::Insert(value),
            };
            Some(Op::new(&change.index.entries, key, change_of_tree))
        });
        gone.chain(new)
    }
}

/// That an entry came or went.
const NOTE: Change<&[u8]> = Change::Put(&[]);

/// The error for a row of the table that lacks what an index wants: it was written with its entry.
#[cold]
fn damaged(table: &TableState, index: &IndexState) -> Error {
    let message = format!(
        "{} has a row without the fields of index '{}': drop the index, put the row anew and create the index again; if `millpond check` finds more, restore the database from a backup",
        table.rows, index.definition.name
    );
    Error::Corruption(message.into())
}
