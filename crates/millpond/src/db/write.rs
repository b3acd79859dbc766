//! How a batch is written: plan under latches, then change, log, release, wait.
//!
//! WRITE-1  Keys are taken in (tree, key) order, so two batches never wait for each other's leaves in a circle.
//! WRITE-2  Nothing is changed before every precondition was checked and every leaf has room: a batch that fails has
//!          changed nothing.
//! WRITE-3  All leaves of a batch are latched until its group has its place in the log: readers see all of it or
//!          nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::engine::{Engine, MergeWish};
use super::options::Durability;
use super::tree::TreeState;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::op::PageOp;
use crate::base::page::patch::{Patch, PatchBuf, find_patch};
use crate::base::page::view::PageView;
use crate::btree::descent::{Manner, Restarts, Root, Stop, leaf_write};
use crate::btree::merge::is_underfull;
use crate::btree::split::{Pending, split_leaf};
use crate::mtr::{Mtr, RECORD_HEADER};
use crate::pool::frame::PageWrite;

/// Bytes that a page operation adds to its key and value: kind, two lengths.
const OP_HEADER: usize = 5;

/// The net effect of a batch on one key.
enum Effect<'a> {
    Insert(&'a [u8]),
    Replace(&'a [u8]),
    /// Replaces the value with this one, most of which is there.
    Patch(&'a [u8], PatchBuf),
    Remove,
}

impl Effect<'_> {
    /// Bytes of the value that is left.
    fn value_len(&self) -> Option<usize> {
        match self {
            Effect::Insert(value) | Effect::Replace(value) | Effect::Patch(value, _) => Some(value.len()),
            Effect::Remove => None,
        }
    }
}

struct Planned<'a> {
    leaf: usize,
    tree: &'a Arc<TreeState>,
    key: &'a [u8],
    effect: Effect<'a>,
    /// Bytes of the value that is there.
    old_len: usize,
}

impl Planned<'_> {
    /// Removals first, then what shrinks, then what grows, then what is new.
    fn turn(&self) -> u8 {
        match self.effect {
            Effect::Remove => 0,
            Effect::Replace(value) | Effect::Patch(value, _) if value.len() <= self.old_len => 1,
            Effect::Replace(_) | Effect::Patch(..) => 2,
            Effect::Insert(_) => 3,
        }
    }
}

/// What a batch did.
struct Done {
    /// What it saw and what it changed is all before this LSN.
    end: Lsn,
    was_there: bool,
}

/// A latched leaf, and the tree that it is of.
type Leaf<'p, 'a> = (&'a Root, PageWrite<'p>);

/// Leaves of a batch for which no memory is allocated.
const LEAVES_INLINE: usize = 4;

type Leaves<'p, 'a> = SmallVec<[Leaf<'p, 'a>; LEAVES_INLINE]>;

/// Why a plan was not carried out.
enum Halt<'p, 'a> {
    Stop(Stop<'p>),
    /// A leaf of this tree has no room for these entries.
    Full(&'a Root, Vec<Pending>),
}

impl<'p, T: Into<Stop<'p>>> From<T> for Halt<'p, '_> {
    fn from(stop: T) -> Self {
        Halt::Stop(stop.into())
    }
}

/// Writes `ops` and waits as `durability` says. May wait on `log_space`, `free_frame`, `page_read`, and at the end,
/// with nothing held, on `log_flush`. Returns whether the batch's first key (in key order) was there before.
pub(crate) fn write(engine: &Engine, ops: &mut [Op<'_>], durability: Durability) -> Result<bool, Error> {
    if ops.is_empty() {
        return engine.check_open().map(|()| false);
    }
    let _operation = engine.waits.operation("write");
    ops.sort_by(|a, b| (a.tree.space, a.key).cmp(&(b.tree.space, b.key)));
    let ops = &*ops;
    let redo_len = check_sizes(engine, ops)?;
    let mut gates: SmallVec<[_; 2]> = SmallVec::new();
    for (index, op) in ops.iter().enumerate() {
        if index == 0 || ops[index - 1].tree.space != op.tree.space {
            gates.push(op.tree.enter()?);
        }
    }
    let mut restarts = Restarts::new(&engine.core.pool);
    let done = loop {
        match attempt(engine, ops, redo_len, &mut restarts) {
            Ok(done) => break done,
            Err(Halt::Stop(stop)) => restarts.resolve(stop)?,
            Err(Halt::Full(root, pending)) => split_leaf(&engine.core, root, &pending, &mut restarts)?,
        }
    };
    drop((restarts, gates));
    wait_durable(engine, done.end, durability)?;
    Ok(done.was_there)
}

/// Waits until everything before `end` is as safe as `durability` says.
pub(crate) fn wait_durable(engine: &Engine, end: Lsn, durability: Durability) -> Result<(), Error> {
    match durability {
        Durability::Commit => engine.core.log.flush_wait(end),
        Durability::Background(ms) => {
            engine.core.log.flush_by(clock::now_ns() + u64::from(ms) * 1_000_000);
            Ok(())
        }
        Durability::None => Ok(()),
    }
}

fn shown(key: &[u8]) -> String {
    let short = &key[..key.len().min(32)];
    let dots = if short.len() < key.len() { "..." } else { "" };
    format!("'{}{dots}'", short.escape_ascii())
}

/// Refuses what is too long; returns the redo that the batch takes at most.
fn check_sizes(engine: &Engine, ops: &[Op<'_>]) -> Result<usize, Error> {
    let limits = engine.limits;
    let page_size = engine.core.store.page_size();
    let mut redo_len = 0;
    for op in ops {
        let value = match &op.change {
            Change::Insert(value) | Change::Put(value) | Change::Update(value) => value.len(),
            Change::Delete | Change::Expect(_) => 0,
        };
        if op.key.len() > limits.key {
            let message = format!(
                "key {} of tree '{}' has {} bytes: at most {} fit with pages of {page_size} bytes",
                shown(op.key),
                op.tree.name,
                op.key.len(),
                limits.key
            );
            return Err(Error::KeyTooLong(message.into()));
        }
        if value > limits.value {
            let message = format!(
                "the value for key {} of tree '{}' has {value} bytes: at most {} (a quarter of a page) fit; store it in parts or use larger pages",
                shown(op.key),
                op.tree.name,
                limits.value
            );
            return Err(Error::ValueTooLong(message.into()));
        }
        if !matches!(op.change, Change::Expect(_)) {
            redo_len += RECORD_HEADER + OP_HEADER + op.key.len() + value;
        }
    }
    if redo_len > limits.batch_bytes {
        let message = format!(
            "the batch takes {redo_len} bytes of log: at most {} are allowed with this redo_capacity; write it in parts",
            limits.batch_bytes
        );
        return Err(Error::BatchTooLarge(message.into()));
    }
    Ok(redo_len)
}

fn attempt<'p, 'a>(
    engine: &'p Engine,
    ops: &'a [Op<'a>],
    redo_len: usize,
    restarts: &mut Restarts<'p>,
) -> Result<Done, Halt<'p, 'a>> {
    let batch_leaves = engine.batch_leaves();
    let log = &engine.core.log;
    let pages = ops.len().min(batch_leaves);
    let credit = match log.try_reserve(redo_len, pages)? {
        Some(credit) => credit,
        None => {
            // Nothing that others need is held over this wait.
            restarts.begin_wait();
            log.reserve(redo_len, pages)?
        }
    };
    let leaves = latch_leaves(engine, ops, batch_leaves)?;
    let mut planned = plan(ops, &leaves)?;
    check_room(&leaves, &planned)?;
    let was_there = leaves.first().is_some_and(|(_, page)| page.view().search(ops[0].key).is_ok());
    if planned.is_empty() {
        // Nothing to change. What makes that true may not be durable yet, and the caller is told that it is.
        let end = leaves.iter().map(|(_, page)| page.lsn()).max().unwrap_or(Lsn::ZERO);
        return Ok(Done { end, was_there });
    }
    let ids: SmallVec<[_; LEAVES_INLINE]> = leaves.iter().map(|(_, page)| page.id()).collect();
    let mut mtr = Mtr::new(&engine.core.log, leaves.into_iter().map(|(_, page)| page));
    // Leaf by leaf (MTR-3), and what frees room comes before what takes it.
    planned.sort_by_key(|change| (change.leaf, change.turn()));
    let mut thinned: SmallVec<[(&Planned<'_>, Before); LEAVES_INLINE]> = SmallVec::new();
    let mut last = None;
    for change in &planned {
        let key = change.key;
        // Removals come first.
        if last.replace(change.leaf) != Some(change.leaf) && matches!(change.effect, Effect::Remove) {
            let view = mtr.page(change.leaf).view();
            thinned.push((change, Before { free_bytes: view.free_bytes(), entries: view.len() }));
        }
        let op = match &change.effect {
            Effect::Insert(value) => PageOp::Insert { key, value },
            Effect::Replace(value) => PageOp::Replace { key, value },
            Effect::Patch(_, patch) => PageOp::Patch { key, patch: Patch(patch) },
            Effect::Remove => PageOp::Remove { key },
        };
        mtr.apply(change.leaf, ids[change.leaf], &op)?;
    }
    let page_size = engine.core.store.page_size();
    thinned.retain(|(change, before)| wants_merge(mtr.page(change.leaf), before, page_size));
    let end = mtr.commit(credit)?;
    for (change, _) in thinned {
        let (tree, key) = (Arc::clone(change.tree), change.key.to_vec());
        engine.wish_merge(MergeWish { tree, key, level: 0, tries: 0 });
    }
    Ok(Done { end, was_there })
}

/// How full a leaf was.
struct Before {
    free_bytes: usize,
    entries: usize,
}

/// Whether a leaf from which something was removed is to be merged: when it has become too empty just now, and each
/// time that its entries have come below another power of two.
fn wants_merge(leaf: &PageWrite<'_>, before: &Before, page_size: usize) -> bool {
    let view = leaf.view();
    let is_root = leaf.id() == PageId::root(leaf.id().space());
    let halved = view.len().checked_ilog2() < before.entries.checked_ilog2();
    !is_root && (before.free_bytes <= page_size / 4 * 3 || halved) && is_underfull(view, page_size)
}

/// The leaves of all keys, latched exclusively from left to right (BTREE-3).
fn latch_leaves<'p, 'a>(
    engine: &'p Engine,
    ops: &'a [Op<'a>],
    batch_leaves: usize,
) -> Result<Leaves<'p, 'a>, Halt<'p, 'a>> {
    let mut leaves = Leaves::new();
    for op in ops {
        let root = &op.tree.root;
        let covered =
            leaves.last().is_some_and(|(tree, page)| tree.space() == root.space() && page.view().covers(op.key));
        if covered {
            continue;
        }
        if leaves.len() >= batch_leaves {
            let message = format!(
                "the batch changes more than {} pages at once: write it in parts, or use a larger buffer_pool_size",
                batch_leaves
            );
            return Err(Error::BatchTooLarge(message.into()).into());
        }
        let manner = if leaves.is_empty() { Manner::First } else { Manner::Further };
        leaves.push((root, leaf_write(&engine.core, root, op.key, manner)?));
    }
    Ok(leaves)
}

/// Checks all preconditions and reduces the changes of each key to their net effect.
fn plan<'a>(ops: &'a [Op<'a>], leaves: &[Leaf<'_, '_>]) -> Result<SmallVec<[Planned<'a>; LEAVES_INLINE]>, Error> {
    let mut planned = SmallVec::with_capacity(ops.len());
    let mut leaf = 0;
    let mut from = 0;
    while from < ops.len() {
        let first = &ops[from];
        let upto =
            from + ops[from..].iter().take_while(|op| op.tree.space == first.tree.space && op.key == first.key).count();
        while leaves[leaf].0.space() != first.tree.space || !leaves[leaf].1.view().covers(first.key) {
            leaf += 1;
        }
        let view = leaves[leaf].1.view();
        let before = view.search(first.key).ok().map(|index| view.value(index));
        let effect = match (before, net_change(&ops[from..upto], before)?) {
            (None, Some(Some(value))) => Some(Effect::Insert(value)),
            (Some(old), Some(Some(value))) if old != value => {
                let mut patch = PatchBuf::new();
                let is_shorter = find_patch(old, value, &mut patch);
                Some(if is_shorter { Effect::Patch(value, patch) } else { Effect::Replace(value) })
            }
            (Some(_), Some(None)) => Some(Effect::Remove),
            _ => None,
        };
        if let Some(effect) = effect {
            let old_len = before.map_or(0, <[u8]>::len);
            planned.push(Planned { leaf, tree: first.tree, key: first.key, effect, old_len });
        }
        from = upto;
    }
    Ok(planned)
}

/// What `ops`, which are all of one key whose value is `before`, leave of it: nothing changed (`None`), a value, or
/// no key. An error names the precondition that does not hold.
fn net_change<'a>(ops: &[Op<'a>], before: Option<&[u8]>) -> Result<Option<Option<&'a [u8]>>, Error> {
    let mut changed: Option<Option<&'a [u8]>> = None;
    for op in ops {
        let value = if let Some(value) = changed { value } else { before };
        match &op.change {
            Change::Insert(_) if value.is_some() => {
                let message = format!("tree '{}' has key {} already: update or put it", op.tree.name, shown(op.key));
                return Err(Error::KeyExists(message.into()));
            }
            Change::Update(_) if value.is_none() => {
                let message = format!("tree '{}' has no key {}: insert or put it", op.tree.name, shown(op.key));
                return Err(Error::KeyNotFound(message.into()));
            }
            Change::Expect(expected) if value != *expected => {
                let message = format!(
                    "key {} of tree '{}' is not as the batch expects: read it again and retry",
                    shown(op.key),
                    op.tree.name
                );
                return Err(Error::Conflict(message.into()));
            }
            Change::Insert(new) | Change::Put(new) | Change::Update(new) => changed = Some(Some(*new)),
            Change::Delete => changed = Some(None),
            Change::Expect(_) => {}
        }
    }
    Ok(changed)
}

/// Bytes that a change adds to `leaf`, and bytes that it frees.
fn growth(leaf: PageView<'_>, change: &Planned<'_>) -> (usize, usize) {
    let entry_len = |value: usize| leaf.entry_len_of(change.key.len(), value);
    let freed = if matches!(change.effect, Effect::Insert(_)) { 0 } else { entry_len(change.old_len) };
    (change.effect.value_len().map_or(0, entry_len), freed)
}

/// Checks that every leaf has room for what is planned, which is in the order of the leaves.
fn check_room<'p, 'a>(leaves: &[Leaf<'_, 'a>], planned: &[Planned<'_>]) -> Result<(), Halt<'p, 'a>> {
    for here in planned.chunk_by(|one, next| one.leaf == next.leaf) {
        let (root, page) = &leaves[here[0].leaf];
        let view = page.view();
        let sizes = here.iter().map(|change| growth(view, change));
        let (added, freed) = sizes.fold((0, 0), |(a, f), (x, y)| (a + x, f + y));
        if added > view.free_bytes() + freed {
            let pending = here.iter().filter_map(|change| {
                let value_len = change.effect.value_len()?;
                Some(Pending { key: change.key.to_vec(), value_len })
            });
            return Err(Halt::Full(root, pending.collect()));
        }
    }
    Ok(())
}
