//! The catalog: which trees and tables there are, and in which spaces.
//!
//! It is a tree like any other, but for its leaves: their values are plain, an [`Entry`] each, and what changes them
//! is a mini-transaction by itself. Creation and dropping of trees and tables take turns ([`Engine::ddl`]).

use std::collections::BTreeSet;
use std::ops::Bound;

use super::catalog_entry::{ENTRY_MAX, Entry};
use super::engine::Engine;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::page::verify::structure_problem;
use crate::btree::descent::{Manner, Restarts, Root, Stop, Target, child_id, leaf_read, leaf_write};
use crate::btree::scan::{ReadAhead, Rows, leaf_forward};
use crate::btree::split::{Pending, split_leaf};
use crate::mtr::{Core, Mtr};
use crate::redo::credits::LogCredit;

/// Bytes of a tree's or a table's name, at most.
pub(super) const NAME_MAX: usize = 255;

/// Bytes of redo that a change of the catalog takes at most: also a drop of all the spaces that an entry names.
const REDO_LEN: usize = NAME_MAX + 2 * ENTRY_MAX + 128;

fn root() -> Root {
    Root::new(SpaceId::CATALOG)
}

/// What `name` stands for.
pub(super) fn find(core: &Core, name: &str) -> Result<Option<Entry>, Error> {
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

/// All names and what they stand for, in the order of the names.
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

/// What can be read of a catalog that is damaged.
#[derive(Default)]
pub(super) struct Readable {
    /// Names and what they stand for, in the order of the names.
    pub(super) entries: Vec<(String, Entry)>,
    /// What is wrong with entries in pages that can be read.
    pub(super) problems: Vec<String>,
}

/// All that can be read, page by page: what a damaged page leads to is left out. The catalog is at rest.
pub(super) fn readable(core: &Core) -> Readable {
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

/// Enters a name that is not there. Returns the group's end.
pub(super) fn insert(engine: &Engine, name: &str, entry: &Entry) -> Result<Lsn, Error> {
    let (key, value) = (name.as_bytes(), entry.encode());
    change(engine, key, value.len(), &PageOp::Insert { key, value: &value }, &[])
}

/// Has a name that is there stand for something else, and takes spaces that it does not lead to any more out of the
/// map, in one group. Returns the group's end.
pub(super) fn replace(engine: &Engine, name: &str, entry: &Entry, dropped: &[SpaceId]) -> Result<Lsn, Error> {
    let (key, value) = (name.as_bytes(), entry.encode());
    change(engine, key, value.len(), &PageOp::Replace { key, value: &value }, dropped)
}

/// Takes a name out of the catalog and its spaces out of the map, in one group. Returns the group's end.
pub(super) fn remove(engine: &Engine, name: &str, spaces: &[SpaceId]) -> Result<Lsn, Error> {
    let key = name.as_bytes();
    change(engine, key, 0, &PageOp::Remove { key }, spaces)
}

/// Carries `op` out in the leaf of `key`, once there is room for a value of this length, and drops the spaces.
fn change(engine: &Engine, key: &[u8], value_len: usize, op: &PageOp<'_>, dropped: &[SpaceId]) -> Result<Lsn, Error> {
    let core = &engine.core;
    let mut restarts = Restarts::new(&core.pool);
    loop {
        let credit = restarts.reserve(&core.log, REDO_LEN, 1)?;
        let stop: Stop<'_> = match leaf_write(core, &root(), key, Manner::First) {
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

/// Ends `mtr` with the drop of spaces. Until the map knows of it too, no checkpoint is later than the group.
fn drop_spaces(engine: &Engine, mut mtr: Mtr<'_>, spaces: &[SpaceId], credit: LogCredit<'_>) -> Result<Lsn, Error> {
    spaces.iter().for_each(|space| mtr.drop_space(*space));
    let (end, hold) = mtr.commit_holding(credit)?;
    spaces.iter().for_each(|space| engine.core.store.drop_space(*space, end));
    drop(hold);
    engine.drops.lock().extend(spaces.iter().map(|space| (*space, 0)));
    engine.bell.ring();
    Ok(end)
}

/// Drops spaces that no name leads to, a few. Returns the group's end.
pub(super) fn drop_unnamed(engine: &Engine, spaces: &[SpaceId]) -> Result<Lsn, Error> {
    let log = &engine.core.log;
    let credit = log.reserve(16 * spaces.len(), 0)?;
    drop_spaces(engine, Mtr::new(log, []), spaces, credit)
}

/// Drops the spaces that no name leads to: trees and tables whose creation a crash cut short.
pub(super) fn drop_orphans(engine: &Engine) -> Result<Vec<SpaceId>, Error> {
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
