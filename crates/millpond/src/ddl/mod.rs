//! Steps of creating, opening, emptying and dropping trees and tables, which share one set of names.
//!
//! The names are in the [`catalog`], a tree of its own. A new space is filled first, and a name leads to it last: a
//! crash in between leaves an orphan space, which the next open drops. [`Engine::ddl`] serialises creation and
//! dropping.

pub(crate) mod catalog;

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::sync::TurnGuard;
use crate::base::waits::WaitClass;
use crate::core::Core;
use crate::ddl::catalog::NAME_MAX;
use crate::engine::Engine;
use crate::engine::open_trees::{open_state, set_chunks};
use crate::engine::table_state::{IndexState, TableState};
use crate::engine::tree_state::{Gate, Role, TreeState};
use crate::mtr::Mtr;
use crate::schema::catalog_entry::{ENTRY_MAX, Entry, TableEntry};
use crate::schema::definition::IndexDefinition;
use crate::store::space::Share;
use crate::txn::locks::Claim;

/// The state that handles of an index share; made if the index is not open.
pub(crate) fn open_index(engine: &Engine, table: &str, definition: IndexDefinition, space: SpaceId) -> Arc<IndexState> {
    let role = Role::Index { table: table.to_owned(), is_unique: definition.is_unique };
    let entries = open_state(engine, &definition.name, space, role);
    Arc::new(IndexState { definition, entries })
}

/// The state that handles of the tree `name` share, whose rows are in space `rows` and long values in space `chunks`.
pub(crate) fn open_tree(engine: &Engine, name: &str, rows: SpaceId, chunks: Option<SpaceId>) -> Arc<TreeState> {
    let state = open_state(engine, name, rows, Role::Tree);
    set_chunks(engine, &state, chunks);
    state
}

/// The state that handles of the table `name` share.
pub(crate) fn open_table(engine: &Engine, name: &str, table: TableEntry) -> Arc<TableState> {
    let TableEntry { rows, chunks, definition, indexes } = table;
    let open = engine.open_tables.lock().get(&rows).cloned();
    let state = open.unwrap_or_else(|| {
        let indexes = definition.indexes.into_iter().zip(indexes);
        let indexes = indexes.map(|(definition, space)| open_index(engine, name, definition, space)).collect();
        let state = Arc::new(TableState::new(open_state(engine, name, rows, Role::Rows), indexes));
        engine.open_tables.lock().insert(rows, Arc::clone(&state));
        state
    });
    set_chunks(engine, &state.rows, chunks);
    state
}

/// Closes trees: waits for the operations on them that have begun, and has `change` write a group that takes their
/// spaces out of the map. Leaves `gate` as the reason why no operation may enter. Returns the group's end.
///
/// The gates are closed in the order of the spaces, the order in which operations enter them.
pub(crate) fn close_trees(
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

/// LOCK-5: keeps transactions from the tree or table of the rows in `rows` until the claim is dropped. Waits on
/// `metadata` for those that use it; callers hold neither the turn of `ddl` nor gates.
pub(crate) fn claim(engine: &Engine, rows: SpaceId) -> Result<Claim<'_>, Error> {
    engine.check_open()?;
    let txn = engine.txns.id_without_rows(&engine.core.store)?;
    engine.txns.locks.claim(rows, txn, &engine.waits)
}

/// The [`claim`] of what `name` stands for, if anything does, and the turn of `ddl`.
pub(crate) fn claim_name<'e>(engine: &'e Engine, name: &str) -> Result<(Option<Claim<'e>>, TurnGuard<'e, ()>), Error> {
    let rows = || {
        engine.check_open()?;
        Ok::<_, Error>(catalog::find(&engine.core, name)?.map(|entry| entry.rows()))
    };
    let mut claimed: Option<(SpaceId, Claim<'_>)> = None;
    loop {
        let ddl = engine.ddl();
        match rows()? {
            None => return Ok((None, ddl)),
            Some(rows) if claimed.as_ref().is_some_and(|(space, _)| *space == rows) => {
                return Ok((claimed.map(|(_, claim)| claim), ddl));
            }
            Some(rows) => {
                drop(ddl);
                claimed = None;
                claimed.get_or_insert((rows, claim(engine, rows)?));
            }
        }
    }
}

/// Refuses a name that is empty or too long.
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > NAME_MAX {
        let message = format!("the {what} name has {} bytes: use 1 to {NAME_MAX}", name.len());
        return Err(Error::InvalidOptions(message.into()));
    }
    Ok(())
}

/// Refuses a table whose definition has mistakes, or is too long for the catalog.
pub(crate) fn check_definition(engine: &Engine, name: &str, table: &TableEntry) -> Result<(), Error> {
    let mistakes = table.definition.mistakes(engine.limits.key);
    if !mistakes.is_empty() {
        return Err(Error::InvalidOptions(format!("table '{name}': {}", mistakes.join("; ")).into()));
    }
    // Room for the space of chunks: the table may get long values later.
    let len = Entry::Table(TableEntry { chunks: Some(SpaceId::FIRST), ..table.clone() }).encode().len();
    if len > ENTRY_MAX {
        let message = format!(
            "the definition of table '{name}' takes {len} bytes in the catalog: at most {ENTRY_MAX} fit; use fewer indexes, fewer fields, or shorter names"
        );
        return Err(Error::InvalidOptions(message.into()));
    }
    Ok(())
}

/// Refuses a name that a tree or table has.
pub(crate) fn check_free(engine: &Engine, name: &str) -> Result<(), Error> {
    match catalog::find(&engine.core, name)? {
        None => Ok(()),
        Some(Entry::Tree { .. }) => Err(Error::TreeExists(format!("tree '{name}' exists already: open it").into())),
        Some(Entry::Table(_)) => Err(Error::TreeExists(format!("table '{name}' exists already: open it").into())),
    }
}

/// Creates the space for the chunks of a tree's long values, unless it exists. May wait on `metadata`; callers hold
/// nothing.
pub(crate) fn ensure_chunk_tree(engine: &Engine, tree: &TreeState) -> Result<(), Error> {
    if tree.chunks().is_some() {
        return Ok(());
    }
    let _ddl = engine.ddl();
    engine.check_open()?;
    let entry = catalog::find(&engine.core, &tree.name)?.filter(|entry| entry.rows() == tree.space);
    let Some(mut entry) = entry else { return Err(tree.gone(&engine.waits)) };
    if entry.chunks().is_none() {
        // A crash before the catalog names the space leaves an orphan, which the next open drops.
        *entry.chunks() = Some(create_space(engine)?);
        catalog::replace(engine, &tree.name, &entry, &[])?;
    }
    set_chunks(engine, tree, *entry.chunks());
    Ok(())
}

/// A new space with an empty tree.
pub(crate) fn create_space(engine: &Engine) -> Result<SpaceId, Error> {
    let space = engine.core.store.new_space()?;
    create_root(&engine.core, space)?;
    Ok(space)
}

/// New spaces with empty trees for a table's rows and indexes. The space of the rows comes first, since batches come to
/// rows before they come to indexes.
pub(crate) fn create_spaces(engine: &Engine, table: &mut TableEntry) -> Result<(), Error> {
    table.rows = create_space(engine)?;
    table.chunks = None;
    table.indexes.iter_mut().try_for_each(|index| create_space(engine).map(|space| *index = space))
}

/// Formats the root of a new tree, in a mini-transaction of its own. Returns the group's end.
pub(crate) fn create_root(core: &Core, space: SpaceId) -> Result<Lsn, Error> {
    let credit = core.log.reserve(256, 1)?;
    let (id, page) = core.new_page(space, Share::Common)?;
    debug_assert_eq!(id, PageId::root(space), "BTREE-1: the root is the first page of its space");
    let mut mtr = Mtr::new(&core.log, [page]);
    mtr.apply(0, id, &PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() })?;
    mtr.commit(credit)
}
