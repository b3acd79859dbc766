//! Creation, opening, emptying and dropping of trees and tables by their names.

use std::sync::Arc;

use crate::api::database::Db;
use crate::api::table::Table;
use crate::api::tree::Tree;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::ddl::{
    catalog, check_definition, check_free, check_name, claim_name, close_trees, create_root, create_space,
    create_spaces, open_table, open_tree,
};
use crate::engine::Engine;
use crate::engine::durable::wait_durable;
use crate::engine::tree_state::{Gate, TreeState};
use crate::schema::catalog_entry::{Entry, TableEntry};
use crate::schema::definition::TableDefinition;

impl Db {
    /// Creates an empty tree.
    ///
    /// # Errors
    /// [`Error::TreeExists`]: a tree or a table has this name already; [`Error::InvalidOptions`]: the name is empty or
    /// longer than 255 bytes; those of [`write`](Self::write).
    pub fn create_tree(&self, name: &str) -> Result<Tree, Error> {
        let engine = self.here()?;
        check_name("tree", name)?;
        let _ddl = engine.ddl();
        engine.check_changeable()?;
        check_free(engine, name)?;
        self.make_tree(name)
    }

    /// Opens the tree `name`; creates an empty one if there is none.
    ///
    /// # Errors
    /// Those of [`open_tree`](Self::open_tree) except [`Error::TreeNotFound`], and those of
    /// [`create_tree`](Self::create_tree) except [`Error::TreeExists`].
    pub fn open_or_create_tree(&self, name: &str) -> Result<Tree, Error> {
        let engine = self.here()?;
        check_name("tree", name)?;
        let _ddl = engine.ddl();
        match self.find_tree(name, "open_table", "") {
            Err(Error::TreeNotFound(_)) => {
                engine.check_changeable()?;
                self.make_tree(name)
            }
            found => found,
        }
    }

    /// Creates a tree. Callers hold the turn of `ddl`, and have found the name free.
    fn make_tree(&self, name: &str) -> Result<Tree, Error> {
        let engine = self.engine();
        let space = engine.core.store.new_space()?;
        create_root(&engine.core, space)?;
        // A crash before this insert leaves a space without a name; the next open drops the space.
        let end = catalog::insert(engine, name, &Entry::Tree { rows: space, chunks: None })?;
        wait_durable(engine, end, engine.in_force.durability())?;
        Ok(self.tree(name, space, None))
    }

    /// Opens a tree.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: a table has this name; those of [`Tree::get`].
    pub fn open_tree(&self, name: &str) -> Result<Tree, Error> {
        let _ddl = self.here()?.ddl();
        self.find_tree(name, "open_table", ": create it, or see `trees`")
    }

    /// The names of all trees, in byte order, without tables and their indexes.
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn trees(&self) -> Result<Vec<String>, Error> {
        self.names(|entry| matches!(entry, Entry::Tree { .. }))
    }

    /// Drops a tree. Waits for operations on the tree that have begun, and for transactions that have changed or locked
    /// rows of it; later ones get [`Error::TreeNotFound`].
    ///
    /// # Errors
    /// [`Error::LockTimeout`]: such a transaction has not ended within 50 s. [`Error::TreeNotFound`];
    /// [`Error::WrongKind`]: a table has this name; those of [`write`](Self::write).
    pub fn drop_tree(&self, name: &str) -> Result<(), Error> {
        let (_claim, _ddl) = claim_name(self.here()?, name)?;
        let tree = self.find_tree(name, "drop_table", " to drop: see `trees`")?.state;
        self.drop_all(name, tree.with_chunks().cloned().collect())
    }

    /// Creates an empty table with the indexes of `definition`; [`Table::create_index`] adds more later. A crash leaves
    /// the whole table or nothing.
    ///
    /// # Errors
    /// * [`Error::TreeExists`]: a tree or a table has this name already.
    /// * [`Error::InvalidOptions`]: the name is empty or longer than 255 bytes, or `definition` has mistakes. The error
    ///   lists every mistake:
    ///   * an index name that is not 1 to 64 bytes long, or that another index has;
    ///   * an index without fields, or whose fields do not fit in a key;
    ///   * an empty field, or an open-ended field that is not the last one;
    ///   * more indexes and fields than fit in the catalog's 1,013 bytes: an index takes 7 and its name, a field 7.
    /// * Those of [`write`](Self::write).
    pub fn create_table(&self, name: &str, definition: TableDefinition) -> Result<Table, Error> {
        let engine = self.here()?;
        let table = checked(engine, name, definition)?;
        let _ddl = engine.ddl();
        engine.check_changeable()?;
        check_free(engine, name)?;
        self.make_table(name, table)
    }

    /// Opens the table `name`; creates it with the indexes of `definition` if there is none. The order of indexes in
    /// the definition does not matter.
    ///
    /// # Errors
    /// * [`Error::DefinitionDiffers`]: the table has other indexes, or indexes of other fields. The error lists what
    ///   differs.
    /// * Those of [`open_table`](Self::open_table) except [`Error::TreeNotFound`], and those of
    ///   [`create_table`](Self::create_table) except [`Error::TreeExists`].
    pub fn open_or_create_table(&self, name: &str, definition: TableDefinition) -> Result<Table, Error> {
        let engine = self.here()?;
        let table = checked(engine, name, definition)?;
        let _ddl = engine.ddl();
        match self.find_table(name, "open_tree", "") {
            Ok(found) => match found.definition.differences(&table.definition) {
                differences if differences.is_empty() => Ok(self.table(name, found)),
                differences => {
                    let message = format!(
                        "table '{name}' is not as defined: {}: open it with `open_table` and change its indexes, or \
                         correct the definition",
                        differences.join("; ")
                    );
                    Err(Error::DefinitionDiffers(message.into()))
                }
            },
            Err(Error::TreeNotFound(_)) => {
                engine.check_changeable()?;
                self.make_table(name, table)
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a table. Callers hold the turn of `ddl`, and have found the name free.
    fn make_table(&self, name: &str, mut table: TableEntry) -> Result<Table, Error> {
        let engine = self.engine();
        create_spaces(engine, &mut table)?;
        // A crash before this insert leaves spaces without a name; the next open drops them.
        let end = catalog::insert(engine, name, &Entry::Table(table.clone()))?;
        wait_durable(engine, end, engine.in_force.durability())?;
        Ok(self.table(name, table))
    }

    /// Opens a table.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: a tree has this name; those of [`Tree::get`].
    pub fn open_table(&self, name: &str) -> Result<Table, Error> {
        let _ddl = self.here()?.ddl();
        let entry = self.find_table(name, "open_tree", ": create it, or see `tables`")?;
        Ok(self.table(name, entry))
    }

    /// The names of all tables, in byte order.
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn tables(&self) -> Result<Vec<String>, Error> {
        self.names(|entry| matches!(entry, Entry::Table(_)))
    }

    /// Drops a table with its indexes; a crash leaves the whole table or nothing. Waits for operations on the table
    /// that have begun; later ones get [`Error::TreeNotFound`].
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: a tree has this name; those of [`write`](Self::write).
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        let (_claim, _ddl) = claim_name(self.here()?, name)?;
        let entry = self.find_table(name, "drop_tree", " to drop: see `tables`")?;
        self.drop_all(name, self.table(name, entry).state.trees(&self.engine().waits))
    }

    /// Empties a tree: a new, empty tree takes over its name, in a time that does not depend on the old tree's size.
    ///
    /// Waits for operations on the old tree that have begun. Its handles get [`Error::TreeNotFound`] afterwards: open
    /// the tree again. After a crash the tree exists, with all its old rows or with none.
    ///
    /// # Errors
    /// Those of [`drop_tree`](Self::drop_tree), and [`Error::OutOfSpace`].
    pub fn truncate_tree(&self, name: &str) -> Result<(), Error> {
        let engine = self.here()?;
        let (_claim, _ddl) = claim_name(engine, name)?;
        engine.check_changeable()?;
        let tree = self.find_tree(name, "truncate_table", " to truncate: see `trees`")?.state;
        let empty = Entry::Tree { rows: create_space(engine)?, chunks: None };
        self.replace_all(name, tree.with_chunks().cloned().collect(), &empty)
    }

    /// Empties a table as [`truncate_tree`](Self::truncate_tree) empties a tree. The table keeps its indexes, which
    /// are then empty. A build of another index that is under way fails.
    ///
    /// # Errors
    /// Those of [`drop_table`](Self::drop_table), and [`Error::OutOfSpace`].
    pub fn truncate_table(&self, name: &str) -> Result<(), Error> {
        let engine = self.here()?;
        let (_claim, _ddl) = claim_name(engine, name)?;
        engine.check_changeable()?;
        let mut empty = self.find_table(name, "truncate_tree", " to truncate: see `tables`")?;
        let table = self.table(name, empty.clone());
        create_spaces(engine, &mut empty)?;
        self.replace_all(name, table.state.trees(&engine.waits), &Entry::Table(empty))
    }

    /// The tree `name`. Callers hold the turn of `ddl`. If a table has the name, the error proposes `other_call`; if
    /// nothing has it, the error ends with `missing`.
    fn find_tree(&self, name: &str, other_call: &str, missing: &str) -> Result<Tree, Error> {
        match self.find(name)? {
            Some(Entry::Tree { rows, chunks }) => Ok(self.tree(name, rows, chunks)),
            Some(Entry::Table(_)) => Err(is_a_table(name, other_call)),
            None => Err(Error::TreeNotFound(format!("no tree '{name}'{missing}").into())),
        }
    }

    /// The same for a table.
    fn find_table(&self, name: &str, other_call: &str, missing: &str) -> Result<TableEntry, Error> {
        match self.find(name)? {
            Some(Entry::Table(entry)) => Ok(entry),
            Some(Entry::Tree { .. }) => Err(is_a_tree(name, other_call)),
            None => Err(Error::TreeNotFound(format!("no table '{name}'{missing}").into())),
        }
    }

    fn find(&self, name: &str) -> Result<Option<Entry>, Error> {
        self.engine().check_open()?;
        catalog::find(&self.engine().core, name)
    }

    fn names(&self, is_wanted: impl Fn(&Entry) -> bool) -> Result<Vec<String>, Error> {
        let engine = self.here()?;
        let _ddl = engine.ddl();
        engine.check_open()?;
        let all = catalog::all(&engine.core)?;
        Ok(all.into_iter().filter(|(_, entry)| is_wanted(entry)).map(|(name, _)| name).collect())
    }

    /// Drops `trees`, which `name` stands for, and removes the name.
    fn drop_all(&self, name: &str, trees: Vec<Arc<TreeState>>) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_changeable()?;
        let end = close_trees(engine, trees, Gate::Dropped, |spaces| catalog::remove(engine, name, spaces))?;
        wait_durable(engine, end, engine.in_force.durability())
    }

    /// Drops `trees`, which `name` stands for, and enters `empty` under the name.
    fn replace_all(&self, name: &str, trees: Vec<Arc<TreeState>>, empty: &Entry) -> Result<(), Error> {
        let engine = self.engine();
        let replace = |spaces: &[SpaceId]| catalog::replace(engine, name, empty, spaces);
        let end = close_trees(engine, trees, Gate::Truncated, replace)?;
        // Its content begins now, not when a handle is opened: later snapshots see that it is empty.
        match empty {
            Entry::Tree { rows, chunks, .. } => drop(self.tree(name, *rows, *chunks)),
            Entry::Table(table) => drop(self.table(name, table.clone())),
        }
        wait_durable(engine, end, engine.in_force.durability())
    }

    fn tree(&self, name: &str, rows: SpaceId, chunks: Option<SpaceId>) -> Tree {
        handle(self.engine(), name, rows, chunks)
    }

    pub(crate) fn table(&self, name: &str, table: TableEntry) -> Table {
        table_handle(self.engine(), name, table)
    }
}

/// The entry of a new table, whose spaces are still to be created; an error if name or definition have mistakes.
pub(crate) fn checked(engine: &Engine, name: &str, definition: TableDefinition) -> Result<TableEntry, Error> {
    check_name("table", name)?;
    let indexes = vec![SpaceId::FIRST; definition.indexes.len()];
    let table = TableEntry { rows: SpaceId::FIRST, chunks: None, definition, indexes };
    check_definition(engine, name, &table)?;
    Ok(table)
}

pub(crate) fn is_a_table(name: &str, call: &str) -> Error {
    Error::WrongKind(format!("'{name}' is a table, and no tree: use `{call}`").into())
}

pub(crate) fn is_a_tree(name: &str, call: &str) -> Error {
    Error::WrongKind(format!("'{name}' is a tree, and no table: use `{call}`").into())
}

/// A handle of the tree `name`, whose rows are in space `rows` and long values in space `chunks`.
pub(crate) fn handle(engine: &Arc<Engine>, name: &str, rows: SpaceId, chunks: Option<SpaceId>) -> Tree {
    Tree { engine: Arc::clone(engine), state: open_tree(engine, name, rows, chunks) }
}

/// A handle of the table `name`, which all its other handles share state with.
pub(crate) fn table_handle(engine: &Arc<Engine>, name: &str, table: TableEntry) -> Table {
    Table { engine: Arc::clone(engine), state: open_table(engine, name, table) }
}
