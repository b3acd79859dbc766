//! A bulk load of a tree or table that does not exist yet.

use millpond::{BulkLoad, Db, Error, OwnedRow, TableBulkLoad, TableDefinition};

use super::place::Place;
use crate::exit::Failure;
use crate::output::talk;
use crate::progress::Progress;

/// The load of a tree or table. If it is dropped before [`finish`](NewLoad::finish), nothing of the tree exists.
pub(super) enum NewLoad {
    Tree(BulkLoad),
    Table(TableBulkLoad),
}

impl NewLoad {
    /// Begins the load of a table with this definition; `None`: of a tree.
    pub(super) fn begin(db: &Db, name: &str, definition: Option<TableDefinition>) -> Result<NewLoad, Error> {
        match definition {
            None => db.begin_bulk_load(name).map(NewLoad::Tree),
            Some(definition) => db.begin_bulk_load_table(name, definition).map(NewLoad::Table),
        }
    }

    /// Adds a row, whose key is greater than that of the row before.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        match self {
            NewLoad::Tree(load) => load.push(key, value),
            NewLoad::Table(load) => load.push(key, value),
        }
    }

    /// Adds rows in any order.
    pub(super) fn push_unsorted(
        &mut self,
        rows: impl Iterator<Item = Result<OwnedRow, Failure>>,
    ) -> Result<(), Failure> {
        match self {
            NewLoad::Tree(load) => load.push_unsorted(rows),
            NewLoad::Table(load) => load.push_unsorted(rows),
        }
    }

    /// Makes the whole tree durable, then its name, and says so.
    pub(super) fn finish(self, progress: &Progress) -> Result<(), Error> {
        let (rows, place) = match self {
            NewLoad::Tree(load) => (load.rows(), Place::Tree(load.finish()?)),
            NewLoad::Table(load) => (load.rows(), Place::Table(load.finish()?)),
        };
        progress.aside(|| talk(&format!("loaded {rows} rows into the new {place}")));
        Ok(())
    }
}
