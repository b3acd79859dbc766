//! The catalog: the names of trees and tables, with their spaces and definitions.
//!
//! The catalog is a tree whose leaves have plain values, an [`Entry`] each, without stamps or undo. Each change is a
//! mini-transaction of its own. [`Engine::ddl`] serialises the creation and dropping of trees and tables.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::page::verify::structure_problem;
use crate::btree::descent::{LatchOrder, Restarts, Root, Stop, Target, child_id, leaf_read, leaf_write};
use crate::btree::scan::{ReadAhead, Rows, leaf_forward};
use crate::btree::split::{Pending, split_leaf};
use crate::core::Core;
use crate::engine::Engine;
use crate::mtr::Mtr;
use crate::redo::credits::LogCredit;
use crate::schema::catalog_entry::{ENTRY_MAX, Entry};

/// Most bytes of a tree's or a table's name.
pub(super) const NAME_MAX: usize = 255;

/// Most bytes of redo of a change of the catalog, including the drop of all spaces that an entry names.
const REDO_LEN: usize = NAME_MAX + 2 * ENTRY_MAX + 128;

fn root() -> Root {
    Root::new(SpaceId::CATALOG)
}

/// The entry of `name`, if there is one.
pub(crate) fn find(core: &Core, name: &str) -> Result<Option<Entry>, Error> {
    let mut restarts = Restarts::new(&core.pool);
    loop {
        let stop = match leaf_read(core, &root(), Target::Key(name.as_bytes())) {
            Ok(page) => {
                let view = page.view();
                let found = view.search(name.as_bytes()).ok();
                return found.map(|index| Entry::decode_named(name.as_bytes(), view.value(index))).transpose();
            }
            Err(stop) => stop,
        };
        restarts.resolve(stop)?;
    }
}

/// All names with their entries, in the order of the names.
pub(crate) fn all(core: &Core) -> Result<Vec<(String, Entry)>, Error> {
    let (mut ahead, mut rows, mut entries) = (ReadAhead::new(0), Rows::default(), Vec::new());
    let mut lower = Bound::Unbounded;
    loop {
        let next = leaf_forward(core, &root(), &|_| false, &lower, &Bound::Unbounded, &mut ahead, &mut rows)?;
        while let Some((name, value)) = rows.take_first() {
            entries.push((String::from_utf8_lossy(name).into_owned(), Entry::decode_named(name, value)?));
        }
        match next {
            Some(high) => lower = Bound::Included(high),
            None => return Ok(entries),
        }
    }
}

/// The readable part of a damaged catalog.
#[derive(Default)]
pub(crate) struct Readable {
    /// Names with their entries, in the order of the names.
    pub(crate) entries: Vec<(String, Entry)>,
    /// The errors of damaged entries in readable pages.
    pub(crate) problems: Vec<String>,
}

/// Reads the catalog page by page, and leaves out damaged pages and the pages below them. No thread changes the catalog
/// meanwhile.
pub(crate) fn readable(core: &Core) -> Readable {
    let mut readable = Readable::default();
    let (mut open, mut seen) = (vec![PageId::root(SpaceId::CATALOG)], BTreeSet::new());
    while let Some(id) = open.pop() {
        let Ok(pin) = core.pool.load(id) else { continue };
        let page = pin.read();
        let view = page.view();
        if !seen.insert(id) || structure_problem(page.bytes()).is_some() {
            continue;
        }
        for index in 0..view.len() {
            let name = view.key(index);
            let read = if view.is_leaf() {
                let text = String::from_utf8_lossy(&name).into_owned();
                Entry::decode_named(&name, view.value(index)).map(|entry| readable.entries.push((text, entry)))
            } else {
                child_id(SpaceId::CATALOG, view, index).map(|child| open.push(child))
            };
            readable.problems.extend(read.err().map(|error| error.to_string()));
        }
    }
    readable.entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    readable
}

/// Adds a name that is not in the catalog. Returns the group's end.
pub(crate) fn insert(engine: &Engine, name: &str, entry: &Entry) -> Result<Lsn, Error> {
    let (key, value) = (name.as_bytes(), entry.encode());
    change(engine, key, value.len(), &PageOp::Insert { key, value: &value }, &[])
}

/// Replaces the entry of a name, and takes the spaces that it no longer names out of the map, in one group. Returns the
/// group's end.
pub(crate) fn replace(engine: &Engine, name: &str, entry: &Entry, dropped: &[SpaceId]) -> Result<Lsn, Error> {
    let (key, value) = (name.as_bytes(), entry.encode());
    change(engine, key, value.len(), &PageOp::Replace { key, value: &value }, dropped)
}

/// Takes a name out of the catalog and its spaces out of the map, in one group. Returns the group's end.
pub(crate) fn remove(engine: &Engine, name: &str, spaces: &[SpaceId]) -> Result<Lsn, Error> {
    let key = name.as_bytes();
    change(engine, key, 0, &PageOp::Remove { key }, spaces)
}

/// Applies `op` in the leaf of `key`, which is split first if it lacks room for a value of `value_len` bytes, and drops
/// the spaces.
fn change(engine: &Engine, key: &[u8], value_len: usize, op: &PageOp<'_>, dropped: &[SpaceId]) -> Result<Lsn, Error> {
    let core = &engine.core;
    let mut restarts = Restarts::new(&core.pool);
    loop {
        let credit = restarts.reserve(&core.log, REDO_LEN, 1)?;
        let stop: Stop<'_> = match leaf_write(core, &root(), key, LatchOrder::First) {
            Ok(page) if value_len > 0 && page.view().free_bytes() < page.view().entry_len_of(key.len(), value_len) => {
                drop((page, credit));
                let pending = Pending { key: key.to_vec(), value_len };
                split_leaf(core, &root(), &[pending], &mut restarts)?;
                continue;
            }
            Ok(page) => {
                let id = page.id();
                let mut mtr = Mtr::new(&core.log, [page]);
                mtr.apply(0, id, op)?;
                return if dropped.is_empty() { mtr.commit(credit) } else { drop_spaces(engine, mtr, dropped, credit) };
            }
            Err(stop) => stop,
        };
        drop(credit);
        restarts.resolve(stop)?;
    }
}

/// Commits `mtr` with the drop of spaces. No checkpoint passes the group before the map has dropped the spaces, too.
fn drop_spaces(engine: &Engine, mut mtr: Mtr<'_>, spaces: &[SpaceId], credit: LogCredit<'_>) -> Result<Lsn, Error> {
    spaces.iter().for_each(|space| mtr.drop_space(*space));
    let (end, hold) = mtr.commit_holding(credit)?;
    spaces.iter().for_each(|space| engine.core.store.drop_space(*space, end));
    drop(hold);
    engine.drops.lock().extend(spaces.iter().map(|space| (*space, 0)));
    engine.bell.ring();
    Ok(end)
}

/// Drops a few spaces that no name leads to. Returns the group's end.
pub(crate) fn drop_unnamed(engine: &Engine, spaces: &[SpaceId]) -> Result<Lsn, Error> {
    let log = &engine.core.log;
    let credit = log.reserve(16 * spaces.len(), 0)?;
    drop_spaces(engine, Mtr::new(log, []), spaces, credit)
}

/// Drops the spaces that no name leads to and returns them: a crash interrupted the creation of their trees or tables.
pub(crate) fn drop_orphans(engine: &Engine) -> Result<Vec<SpaceId>, Error> {
    let mut orphans = engine.core.store.spaces();
    orphans.remove(&SpaceId::CATALOG);
    orphans.remove(&SpaceId::UNDO);
    for (_, entry) in all(&engine.core)? {
        let spaces = entry.spaces();
        let known = if planted!("index_taken_for_orphan") { &spaces[..1] } else { &spaces };
        orphans.retain(|space| !known.contains(space));
    }
    for &space in &orphans {
        drop_unnamed(engine, &[space])?;
    }
    Ok(orphans.into_iter().collect())
}
