//! Creation, opening, emptying and dropping of trees and tables. They share one set of names.

use std::collections::btree_map;
use std::sync::{Arc, OnceLock};

use super::catalog::{self, NAME_MAX};
use super::catalog_entry::{ENTRY_MAX, Entry, TableEntry};
use super::database::Db;
use super::definition::{IndexDefinition, TableDefinition};
use super::engine::Engine;
use super::row_changes::{IndexState, TableState};
use super::table::Table;
use super::tree::{Gate, Role, Tree, TreeState};
use super::write::wait_durable;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::sync::RwLock;
use crate::base::waits::WaitClass;
use crate::btree::descent::Root;
use crate::mtr::{Core, Mtr};
use crate::store::space::Share;

impl Db {
    /// Creates an empty tree.
    ///
    /// # Errors
    /// [`Error::TreeExists`]: a tree or a table has the name; [`Error::InvalidOptions`] for a name that is empty or
    /// longer than 255 bytes; those of [`write`](Self::write).
    pub fn create_tree(&self, name: &str) -> Result<Tree, Error> {
        let engine = self.here()?;
        check_name("tree", name)?;
        let _ddl = engine.ddl();
        engine.check_changeable()?;
        check_free(engine, name)?;
        let space = engine.core.store.new_space()?;
        create_root(&engine.core, space)?;
        // A crash before this leaves a space that no name leads to; the next open drops it.
        let end = catalog::insert(engine, name, &Entry::Tree { rows: space, chunks: None })?;
        wait_durable(engine, end, engine.in_force.durability())?;
        Ok(self.tree(name, space, None))
    }

    /// Opens a tree.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: it is a table; those of [`Tree::get`].
    pub fn open_tree(&self, name: &str) -> Result<Tree, Error> {
        let _ddl = self.here()?.ddl();
        self.find_tree(name, "open_table", ": create it, or see `trees`")
    }

    /// The names of all trees, in byte order. Tables are not among them, nor their indexes.
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn trees(&self) -> Result<Vec<String>, Error> {
        self.names(|entry| matches!(entry, Entry::Tree { .. }))
    }

    /// Drops a tree. Waits for operations on it that have begun; later ones get [`Error::TreeNotFound`].
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: it is a table; those of [`write`](Self::write).
    pub fn drop_tree(&self, name: &str) -> Result<(), Error> {
        let _ddl = self.here()?.ddl();
        let tree = self.find_tree(name, "drop_table", " to drop: see `trees`")?.state;
        self.drop_all(name, tree.with_chunks().cloned().collect())
    }

    /// Creates an empty table with these indexes; [`Table::create_index`] makes more of them later. A crash leaves all
    /// of it or nothing.
    ///
    /// # Errors
    /// * [`Error::TreeExists`]: a tree or a table has the name.
    /// * [`Error::InvalidOptions`]: the name is empty or longer than 255 bytes; or every mistake of the definition: an
    ///   index without a name (1 to 64 bytes) or of a name that another has, without fields, with an empty field, with
    ///   one without an end that is not the last, with fields that do not fit in a key; or more indexes and fields than
    ///   the catalog has room for: 1,013 bytes, of which an index takes 7 and its name, and each of its fields 7.
    /// * Those of [`write`](Self::write).
    pub fn create_table(&self, name: &str, definition: TableDefinition) -> Result<Table, Error> {
        let engine = self.here()?;
        check_name("table", name)?;
        let indexes = vec![SpaceId::FIRST; definition.indexes.len()];
        let mut table = TableEntry { rows: SpaceId::FIRST, chunks: None, definition, indexes };
        check_definition(engine, name, &table)?;
        let _ddl = engine.ddl();
        engine.check_changeable()?;
        check_free(engine, name)?;
        create_spaces(engine, &mut table)?;
        // A crash before this leaves spaces that no name leads to; the next open drops them.
        let end = catalog::insert(engine, name, &Entry::Table(table.clone()))?;
        wait_durable(engine, end, engine.in_force.durability())?;
        Ok(self.table(name, table))
    }

    /// Opens a table.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: it is a tree; those of [`Tree::get`].
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

    /// Drops a table with its indexes; a crash leaves all of it or nothing. Waits for operations on it that have
    /// begun; later ones get [`Error::TreeNotFound`].
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]; [`Error::WrongKind`]: it is a tree; those of [`write`](Self::write).
    pub fn drop_table(&self, name: &str) -> Result<(), Error> {
        let _ddl = self.here()?.ddl();
        let entry = self.find_table(name, "drop_tree", " to drop: see `tables`")?;
        self.drop_all(name, self.table(name, entry).state.trees(self.engine()))
    }

    /// Empties a tree: another one has its name from then on, in a time that does not depend on what was in it. Waits
    /// for operations on the old one that have begun; its handles get [`Error::TreeNotFound`] later: open it again. A
    /// crash leaves all that was there or nothing of it, and the tree in either case.
    ///
    /// # Errors
    /// Those of [`drop_tree`](Self::drop_tree), and [`Error::OutOfSpace`].
    pub fn truncate_tree(&self, name: &str) -> Result<(), Error> {
        let engine = self.here()?;
        let _ddl = engine.ddl();
        engine.check_changeable()?;
        let tree = self.find_tree(name, "truncate_table", " to truncate: see `trees`")?.state;
        let empty = Entry::Tree { rows: create_space(engine)?, chunks: None };
        self.replace_all(name, tree.with_chunks().cloned().collect(), &empty)
    }

    /// Empties a table, whose indexes stay, as [`truncate_tree`](Self::truncate_tree) does a tree. An index that is
    /// being made for it is given up.
    ///
    /// # Errors
    /// Those of [`drop_table`](Self::drop_table), and [`Error::OutOfSpace`].
    pub fn truncate_table(&self, name: &str) -> Result<(), Error> {
        let engine = self.here()?;
        let _ddl = engine.ddl();
        engine.check_changeable()?;
        let mut empty = self.find_table(name, "truncate_tree", " to truncate: see `tables`")?;
        let table = self.table(name, empty.clone());
        create_spaces(engine, &mut empty)?;
        self.replace_all(name, table.state.trees(engine), &Entry::Table(empty))
    }

    /// The tree `name`. Callers have the turn of `ddl`; for a table there is `other_call`, and `missing` ends the error
    /// when there is nothing.
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

    /// Drops what `name` stands for: these trees.
    fn drop_all(&self, name: &str, trees: Vec<Arc<TreeState>>) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_changeable()?;
        let end = close_trees(engine, trees, Gate::Dropped, |spaces| catalog::remove(engine, name, spaces))?;
        wait_durable(engine, end, engine.in_force.durability())
    }

    /// Drops these trees, and has `name`, which stood for them, stand for `empty` instead.
    fn replace_all(&self, name: &str, trees: Vec<Arc<TreeState>>, empty: &Entry) -> Result<(), Error> {
        let engine = self.engine();
        let replace = |spaces: &[SpaceId]| catalog::replace(engine, name, empty, spaces);
        let end = close_trees(engine, trees, Gate::Truncated, replace)?;
        wait_durable(engine, end, engine.in_force.durability())
    }

    fn tree(&self, name: &str, rows: SpaceId, chunks: Option<SpaceId>) -> Tree {
        handle(self.engine(), name, rows, chunks)
    }

    pub(super) fn table(&self, name: &str, table: TableEntry) -> Table {
        table_handle(self.engine(), name, table)
    }
}

/// What handles of an index share.
pub(super) fn open_index(engine: &Engine, table: &str, definition: IndexDefinition, space: SpaceId) -> Arc<IndexState> {
    let role = Role::Index { table: table.to_owned(), is_unique: definition.is_unique };
    let entries = open_state(engine, &definition.name, space, role);
    Arc::new(IndexState { definition, entries })
}

/// Waits for operations on these trees that have begun, has `change` write a group that takes their spaces out of the
/// map, and lets no operation in any more: `gate` says why. Returns the group's end.
///
/// Gates are closed in the order of the spaces, in which operations enter them.
pub(super) fn close_trees(
    engine: &Engine,
    mut trees: Vec<Arc<TreeState>>,
    gate: Gate,
    change: impl FnOnce(&[SpaceId]) -> Result<Lsn, Error>,
) -> Result<Lsn, Error> {
    trees.sort_by_key(|tree| tree.space);
    let spaces: Vec<SpaceId> = trees.iter().map(|tree| tree.space).collect();
    let close = || trees.iter().map(|tree| tree.gate.write()).collect::<Vec<_>>();
    let gates = engine.waits.timed(WaitClass::Metadata, close);
    let end = {
        let _spaces = engine.all_spaces();
        change(&spaces)?
    };
    gates.into_iter().for_each(|mut of_tree| *of_tree = gate);
    engine.open_trees.lock().retain(|space, _| !spaces.contains(space));
    engine.open_tables.lock().retain(|space, _| !spaces.contains(space));
    Ok(end)
}

pub(super) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_MAX {
        let message = format!("the {what} name has {} bytes: use 1 to {NAME_MAX}", name.len());
        return Err(Error::InvalidOptions(message.into()));
    }
    Ok(())
}

/// Refuses a table that cannot be, or is too long for the catalog.
pub(super) fn check_definition(engine: &Engine, name: &str, table: &TableEntry) -> Result<(), Error> {
    let mistakes = table.definition.mistakes(engine.limits.key);
    if !mistakes.is_empty() {
        return Err(Error::InvalidOptions(format!("table '{name}': {}", mistakes.join("; ")).into()));
    }
    // It may have long values one day.
    let len = Entry::Table(TableEntry { chunks: Some(SpaceId::FIRST), ..table.clone() }).encode().len();
    if len > ENTRY_MAX {
        let message = format!(
            "the definition of table '{name}' takes {len} bytes in the catalog: at most {ENTRY_MAX} fit; use fewer indexes, fewer fields, or shorter names"
        );
        return Err(Error::InvalidOptions(message.into()));
    }
    Ok(())
}

/// Nothing may have the name.
fn check_free(engine: &Engine, name: &str) -> Result<(), Error> {
    match catalog::find(&engine.core, name)? {
        None => Ok(()),
        Some(Entry::Tree { .. }) => Err(Error::TreeExists(format!("tree '{name}' exists already: open it").into())),
        Some(Entry::Table(_)) => Err(Error::TreeExists(format!("table '{name}' exists already: open it").into())),
    }
}

fn is_a_table(name: &str, call: &str) -> Error {
    Error::WrongKind(format!("'{name}' is a table, and no tree: use `{call}`").into())
}

fn is_a_tree(name: &str, call: &str) -> Error {
    Error::WrongKind(format!("'{name}' is a tree, and no table: use `{call}`").into())
}

/// A handle of the tree `name`, which is in `space`.
pub(super) fn handle(engine: &Arc<Engine>, name: &str, rows: SpaceId, chunks: Option<SpaceId>) -> Tree {
    let state = open_state(engine, name, rows, Role::Tree);
    state.set_chunks(engine, chunks);
    Tree { engine: Arc::clone(engine), state }
}

/// The same of a table.
pub(super) fn table_handle(engine: &Arc<Engine>, name: &str, table: TableEntry) -> Table {
    let TableEntry { rows, chunks, definition, indexes } = table;
    let open = engine.open_tables.lock().get(&rows).cloned();
    let state = open.unwrap_or_else(|| {
        let indexes = definition.indexes.into_iter().zip(indexes);
        let indexes = indexes.map(|(definition, space)| open_index(engine, name, definition, space)).collect();
        let state = Arc::new(TableState::new(open_state(engine, name, rows, Role::Rows), indexes));
        engine.open_tables.lock().insert(rows, Arc::clone(&state));
        state
    });
    state.rows.set_chunks(engine, chunks);
    Table { engine: Arc::clone(engine), state }
}

/// Sees to it that there is a space for the chunks of a tree's long values. May wait on `metadata`; callers hold
/// nothing.
pub(super) fn have_chunks(engine: &Engine, tree: &TreeState) -> Result<(), Error> {
    if tree.chunks().is_some() {
        return Ok(());
    }
    let _ddl = engine.ddl();
    engine.check_open()?;
    let entry = catalog::find(&engine.core, &tree.name)?.filter(|entry| entry.rows() == tree.space);
    let Some(mut entry) = entry else { return Err(tree.gone(&engine.waits)) };
    if entry.chunks().is_none() {
        // A crash before the name leads to it leaves an orphan, which the next open drops.
        *entry.chunks() = Some(create_space(engine)?);
        catalog::replace(engine, &tree.name, &entry, &[])?;
    }
    tree.set_chunks(engine, *entry.chunks());
    Ok(())
}

/// What handles of the tree in `space` share.
pub(super) fn open_state(engine: &Engine, name: &str, space: SpaceId, role: Role) -> Arc<TreeState> {
    match engine.open_trees.lock().entry(space) {
        btree_map::Entry::Occupied(open) => Arc::clone(open.get()),
        btree_map::Entry::Vacant(vacant) => Arc::clone(vacant.insert(tree_state(engine, name, space, role))),
    }
}

/// The same for a tree without a name.
pub(super) fn tree_state(engine: &Engine, name: &str, space: SpaceId, role: Role) -> Arc<TreeState> {
    let database = std::ptr::from_ref(engine).addr();
    let (root, gate) = (Root::new(space), RwLock::new(Gate::Open));
    let chunks = OnceLock::new();
    Arc::new(TreeState { name: name.to_owned(), role, space, root, chunks, database, gate })
}

/// A new space with an empty tree.
pub(super) fn create_space(engine: &Engine) -> Result<SpaceId, Error> {
    let space = engine.core.store.new_space()?;
    create_root(&engine.core, space)?;
    Ok(space)
}

/// New spaces with empty trees for a table's rows and indexes. Rows first: batches come to them before they come to the
/// indexes.
fn create_spaces(engine: &Engine, table: &mut TableEntry) -> Result<(), Error> {
    table.rows = create_space(engine)?;
    table.chunks = None;
    table.indexes.iter_mut().try_for_each(|index| create_space(engine).map(|space| *index = space))
}

/// Formats the root of a new tree, in a mini-transaction of its own. Returns the group's end.
pub(super) fn create_root(core: &Core, space: SpaceId) -> Result<Lsn, Error> {
    let credit = core.log.reserve(256, 1)?;
    let (id, page) = core.new_page(space, Share::Common)?;
    debug_assert_eq!(id, PageId::root(space), "BTREE-1: the root is the first page of its space");
    let mut mtr = Mtr::new(&core.log, [page]);
    mtr.apply(0, id, &PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() })?;
    mtr.commit(credit)
}
