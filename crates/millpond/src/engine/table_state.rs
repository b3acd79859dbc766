//! The state that all handles of one table share: its rows' tree, its indexes, and the table's gate.
//!
//! The gate (ROWS-3) is a latch around the list of indexes. Changes of rows hold it shared; a change of the list holds
//! it exclusively.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::{Rank, ReadGuard, RwLock, Turn, TurnGuard, WriteGuard};
use crate::base::waits::{WaitClass, Waits};
use crate::engine::tree_state::TreeState;
use crate::schema::definition::{IndexDefinition, TooShort, row_of};

/// The state that all handles of a table share.
pub(crate) struct TableState {
    pub(crate) rows: Arc<TreeState>,
    /// The table's gate (ROWS-3). A thread enters it before the gates of trees, and the gates of several tables in the
    /// order of their rows' spaces. A thread that creates or drops trees closes it after [`Engine::ddl`].
    indexes: RwLock<Indexes>,
    /// The turn to build an index.
    build: Turn<()>,
}

/// The indexes of a table.
#[derive(Default)]
pub(crate) struct Indexes {
    pub(crate) all: Vec<Arc<IndexState>>,
    /// The index that is being built: its changes are only noted for now ([`crate::load::index_build`]).
    pub(crate) noted: Option<Arc<IndexState>>,
}

/// An index, and the tree with its entries. For an index whose changes are noted: its definition as if it were not
/// unique, and the tree with the keys of the entries that came or went.
pub(crate) struct IndexState {
    pub(crate) definition: IndexDefinition,
    pub(crate) entries: Arc<TreeState>,
}

impl TableState {
    pub(crate) fn new(rows: Arc<TreeState>, all: Vec<Arc<IndexState>>) -> TableState {
        TableState { rows, indexes: RwLock::new(Indexes { all, noted: None }), build: Turn::new(Rank::IndexBuild, ()) }
    }

    /// Enters the gate, shared, to change rows or to read the list of indexes. May wait on `metadata`.
    pub(crate) fn enter(&self, waits: &Waits) -> ReadGuard<'_, Indexes> {
        match self.indexes.try_read() {
            Some(indexes) => indexes,
            None => waits.timed(WaitClass::Metadata, || self.indexes.read()),
        }
    }

    /// Closes the gate: waits on `metadata` for the changes of rows under way, and lets no other in.
    pub(crate) fn close(&self, waits: &Waits) -> WriteGuard<'_, Indexes> {
        waits.timed(WaitClass::Metadata, || self.indexes.write())
    }

    /// Waits on `metadata` until no other index of the table is being built.
    pub(crate) fn build_turn(&self, waits: &Waits) -> TurnGuard<'_, ()> {
        waits.timed(WaitClass::Metadata, || self.build.lock())
    }

    /// The table's present indexes. May wait on `metadata`.
    pub(crate) fn indexes(&self, waits: &Waits) -> Vec<Arc<IndexState>> {
        self.enter(waits).all.clone()
    }

    /// The trees of the rows, of the indexes and of the rows' chunks. May wait on `metadata`.
    pub(crate) fn trees(&self, waits: &Waits) -> Vec<Arc<TreeState>> {
        self.trees_with(&Indexes { all: self.indexes(waits), noted: None })
    }

    /// The same trees, and the tree with the notes if there is one, for a caller that holds the table's gate.
    pub(crate) fn trees_with(&self, indexes: &Indexes) -> Vec<Arc<TreeState>> {
        let of_indexes = indexes.all.iter().chain(&indexes.noted).map(|index| &index.entries);
        std::iter::once(&self.rows).chain(of_indexes).chain(self.rows.chunks()).cloned().collect()
    }

    /// The error for a row that is too short for an index.
    pub(crate) fn too_short(&self, index: &IndexState, key: &[u8], short: TooShort) -> Error {
        short.error(&index.definition.name, &row_of(&self.rows, key))
    }
}
