//! How a batch is written: plan under latches, then change, log, release, wait. A batch is a transaction.
//!
//! One that is too large for one group is written in parts: leaf by leaf, each part in a group of its own, its rows
//! locked until it is committed ([`crate::txn`]).
//!
//! WRITE-1  Keys are taken in one order, that of [`sort`](super::chunks::sort): rows of tables first. So two batches
//!          never wait for each other's leaves, or rows, in a circle, also when one of them locks its rows before it
//!          reads them ([`Large`](super::write_parts::Large)).
//! WRITE-2  Nothing is changed before every precondition of the group was checked and every leaf has room: a group that
//!          fails has changed nothing. What earlier parts have changed is undone.
//! WRITE-3  All leaves of a group are latched until it has its place in the log; rows of a batch in parts are in flight
//!          until its commit has. Readers see all of a batch or nothing.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::chunks::{Bytes, LongValues, have_places, sort};
use super::engine::Engine;
use super::options::Durability;
use super::plan::{self, LEAVES_INLINE, Leaf, Leaves, Plan, Planned, Stopped, plan, shown};
use super::purge::end_and_purge;
use super::tree::{Gate, TreeState};
use super::undo::{UndoPages, find_undo_pages};
use super::write_parts::write_in_parts;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::row::{HEAD_LEN, Reference, Stamp};
use crate::base::sync::ReadGuard;
use crate::base::waits::{WaitClass, Waited};
use crate::btree::descent::{Manner, Restarts, Root, Stop, leaf_write, pages_ahead};
use crate::btree::split::{Pending, split_leaf};
use crate::mtr::{Mtr, RECORD_HEADER, TXN_LEN};
use crate::txn::slots::Slot;

/// Bytes that a page operation adds to its key and value: kind, two lengths.
const OP_HEADER: usize = 5;

/// What a group did, or a batch.
pub(super) struct Done {
    /// What it saw and what it changed is all before this LSN.
    pub(super) end: Lsn,
    pub(super) was_there: bool,
    /// How many of the ops it was.
    pub(super) ops: usize,
}

/// Of what size a batch may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Any,
    OneGroup,
}

/// Why a plan was not carried out.
pub(super) enum Halt<'p, 'a> {
    Stop(Stop<'p>),
    /// A leaf of this tree has no room for these entries.
    Full(&'a Root, Vec<Pending>),
    /// Old stamps had to go first.
    Again,
    /// The changes that lead back need so many undo pages.
    Undo(usize),
    /// The group takes so many bytes of redo.
    Redo(usize),
    /// There are too many leaves for one group.
    TooLarge,
    /// This row is locked, and has this stamp.
    Locked(SpaceId, &'a [u8], Option<Stamp>),
    /// A row of this tree has a long value, whose chunks are to be deleted with it.
    Replaces(&'a Arc<TreeState>, Reference),
}

impl<'p, T: Into<Stop<'p>>> From<T> for Halt<'p, '_> {
    fn from(stop: T) -> Self {
        Halt::Stop(stop.into())
    }
}

/// Writes `ops` and waits as `durability` says. May wait on `log_space`, `free_frame`, `page_read`, `row_lock`, for its
/// part of the purge on `metadata`, and at the end, with nothing held, on `log_flush`. Returns whether the batch's
/// first key (in its order) was there before.
pub(crate) fn write(engine: &Engine, ops: &mut [Op<'_>], durability: Durability) -> Result<bool, Error> {
    engine.check_changeable()?;
    let _paying = engine.begin_write();
    let done = apply(engine, ops)?;
    wait_durable(engine, done.end, durability)?;
    Ok(done.was_there)
}

/// The same without the wait at the end.
pub(super) fn apply(engine: &Engine, ops: &mut [Op<'_>]) -> Result<Done, Error> {
    apply_sized(engine, ops, Size::Any)?.ok_or_else(|| Error::Bug("a batch of any size is too large".into()))
}

/// The same; `None`: nothing was done, because `ops` are more than a group takes.
pub(super) fn apply_sized(engine: &Engine, ops: &mut [Op<'_>], size: Size) -> Result<Option<Done>, Error> {
    if ops.is_empty() {
        engine.check_open()?;
        return Ok(Some(Done { end: Lsn::ZERO, was_there: false, ops: 0 }));
    }
    sort(ops);
    let ops = &*ops;
    ops.iter().try_for_each(|op| check_sizes(engine, op))?;
    let has_long_values = have_places(engine, ops)?;
    let trees = ops.chunk_by(|one, next| one.tree.space == next.tree.space).map(|of_tree| of_tree[0].tree);
    let _gates = enter_all(engine, trees)?;
    let mut slot = engine.txns.begin(&engine.core.store)?;
    let (bytes, mut ops) = (Bytes::new(), Cow::Borrowed(ops));
    let mut long_values = LongValues::new(&bytes, engine.core.store.page_size());
    if has_long_values {
        long_values.expand(engine, &mut ops, slot.txn())?;
    }
    let done = loop {
        match write_group(engine, &ops, &long_values, &mut slot)? {
            Group::Written(done) => break done,
            Group::TooLarge if size == Size::OneGroup => return Ok(None),
            Group::TooLarge => {
                slot.begin_parts(&engine.core)?;
                break write_in_parts(engine, ops.into_owned(), &mut long_values, &mut slot)?;
            }
            Group::Replaces(tree, reference) => {
                long_values.delete_chunks(tree, reference, ops.to_mut())?;
                sort(ops.to_mut());
            }
        }
    };
    end_and_purge(engine, slot);
    Ok(Some(done))
}

/// Enters trees, each of which is there once: in the order of their spaces, as who drops them does.
pub(super) fn enter_all<'a>(
    engine: &Engine,
    trees: impl Iterator<Item = &'a Arc<TreeState>>,
) -> Result<Gates<'a>, Error> {
    let mut trees: SmallVec<[_; TREES_INLINE]> = trees.collect();
    trees.sort_unstable_by_key(|tree| tree.space);
    trees.into_iter().map(|tree| tree.enter(&engine.waits)).collect()
}

/// Keeps trees from being dropped.
pub(super) type Gates<'a> = SmallVec<[ReadGuard<'a, Gate>; TREES_INLINE]>;

/// Trees of a batch for which no memory is allocated.
const TREES_INLINE: usize = 4;

/// What became of a group.
pub(super) enum Group<'a> {
    Written(Done),
    /// There is too much for one.
    TooLarge,
    /// A row of this tree has a long value, whose chunks are to be deleted with it.
    Replaces(&'a Arc<TreeState>, Reference),
}

/// Writes one group: `ops`, or the first of them if the transaction has several groups.
pub(super) fn write_group<'a>(
    engine: &Engine,
    ops: &[Op<'a>],
    long_values: &LongValues<'_>,
    slot: &mut Slot<'_>,
) -> Result<Group<'a>, Error> {
    let probable = probable_redo(ops);
    if !slot.is_in_parts() && is_large(engine, probable) {
        return Ok(Group::TooLarge);
    }
    let redo_len = probable.min(engine.limits.batch_bytes);
    let mut manner = Attempt { redo_len, is_short_of_room: false };
    let mut restarts = Restarts::new(&engine.core.pool);
    loop {
        match attempt(engine, ops, manner, long_values, slot, &mut restarts) {
            Ok(done) => return Ok(Group::Written(done)),
            Err(Halt::Stop(stop)) => {
                if matches!(stop, Stop::Load(_)) && ops.len() > 1 && restarts.is_to_gather() {
                    // Not many more than one group may change.
                    let keys = ops.iter().map(|op| (&op.tree.root, op.key));
                    let ahead = pages_ahead(&engine.core, keys, engine.batch_leaves());
                    if !slot.is_in_parts() && ahead.leaves > engine.batch_leaves() {
                        return Ok(Group::TooLarge);
                    }
                    restarts.gather(&ahead.pages);
                }
                restarts.resolve(stop)?;
            }
            // Each page that is cut has the whole group tried again.
            Err(Halt::Full(_, pending)) if !slot.is_in_parts() && is_of_many_pages(engine, &pending) => {
                return Ok(Group::TooLarge);
            }
            Err(Halt::Full(root, pending)) => match split_leaf(&engine.core, root, &pending, &mut restarts) {
                Err(Error::OutOfSpace(_)) if !manner.is_short_of_room => manner.is_short_of_room = true,
                split => split?,
            },
            Err(Halt::Again) => {}
            Err(Halt::Undo(pages)) if pages > engine.batch_undo_pages() => return Ok(Group::TooLarge),
            Err(Halt::Undo(pages)) => {
                // Adding waits for log, files and frames, with nothing held: who was in the lane comes to it again.
                restarts.begin_wait();
                while slot.pages().len() < pages {
                    slot.add_page(&engine.core)?;
                }
                restarts.start_again();
                slot.pages().iter().filter_map(|id| engine.core.pool.fetch(*id)).for_each(|pin| restarts.keep(pin));
            }
            Err(Halt::Redo(bytes)) if bytes > engine.limits.batch_bytes => return Ok(Group::TooLarge),
            Err(Halt::Redo(bytes)) => manner.redo_len = bytes,
            Err(Halt::TooLarge) => return Ok(Group::TooLarge),
            Err(Halt::Replaces(tree, reference)) => return Ok(Group::Replaces(tree, reference)),
            Err(Halt::Locked(space, key, stamp)) => {
                restarts.begin_wait();
                slot.wait_for_row(space, key, stamp, &engine.waits)?;
            }
        }
    }
}

/// Whether entries that are to go into one leaf fill a good many.
fn is_of_many_pages(engine: &Engine, pending: &[Pending]) -> bool {
    let bytes = |pending: &Pending| pending.key.len() + pending.value_len;
    pending.len() > 16 && pending.iter().map(bytes).sum::<usize>() > 16 * engine.core.store.page_size()
}

/// Waits until everything before `end` is as safe as `durability` says.
pub(crate) fn wait_durable(engine: &Engine, end: Lsn, durability: Durability) -> Result<(), Error> {
    match durability {
        Durability::Commit => engine.core.log.flush_wait(end),
        Durability::Written => engine.core.log.write_wait(end),
        Durability::Background(ms) => {
            engine.core.log.flush_within(u64::from(ms) * 1_000_000);
            Ok(())
        }
        Durability::None => Ok(()),
    }
}

/// Refuses what is too long.
pub(super) fn check_sizes(engine: &Engine, op: &Op<'_>) -> Result<(), Error> {
    check_lengths(engine, op.key, op.value_len(), op.tree)
}

/// Refuses a key or a value that is too long; `of` says whose it is.
pub(super) fn check_lengths(engine: &Engine, key: &[u8], value_len: usize, of: &dyn Display) -> Result<(), Error> {
    if key.len() > engine.limits.key {
        let (key, len, most) = (shown(key), key.len(), engine.limits.key);
        let page_size = engine.core.store.page_size();
        let message = format!("key {key} of {of} has {len} bytes: at most {most} fit with pages of {page_size} bytes");
        return Err(Error::KeyTooLong(message.into()));
    }
    if u32::try_from(value_len).is_err() {
        let (key, most) = (shown(key), u32::MAX);
        let message = format!(
            "the value for key {key} of {of} has {value_len} bytes: at most {most} are possible; store it in parts"
        );
        return Err(Error::ValueTooLong(message.into()));
    }
    Ok(())
}

/// Bytes of redo that `ops` probably take at most. A guess: if what was before is longer than what comes, the room is
/// asked for once more.
pub(super) fn probable_redo(ops: &[Op<'_>]) -> usize {
    let of_one = |op: &Op<'_>| match op.change {
        Change::Expect(_) => 0,
        Change::Insert(value) => RECORD_HEADER + OP_HEADER + op.key.len() + HEAD_LEN + value.len(),
        _ => 2 * (OP_HEADER + op.key.len() + op.value_len()) + PER_CHANGE,
    };
    ops.iter().map(of_one).sum()
}

/// Whether what probably takes so many bytes of redo is too much for one group without doubt.
pub(super) fn is_large(engine: &Engine, probable: usize) -> bool {
    probable > 2 * engine.limits.batch_bytes
}

/// Bytes of redo that a change takes at most beside what is new and what was before: two records, the row's stamp in
/// two patches, what the undo record says of itself.
const PER_CHANGE: usize = 2 * RECORD_HEADER + 3 * HEAD_LEN + 64;

/// How a batch is tried.
#[derive(Clone, Copy)]
struct Attempt {
    /// Bytes of redo that are reserved.
    redo_len: usize,
    /// There is no room for another page: what can be had within the leaves has to do.
    is_short_of_room: bool,
}

fn attempt<'p, 'a>(
    engine: &'p Engine,
    ops: &[Op<'a>],
    Attempt { redo_len, is_short_of_room }: Attempt,
    long_values: &LongValues<'_>,
    slot: &mut Slot<'_>,
    restarts: &mut Restarts<'p>,
) -> Result<Done, Halt<'p, 'a>> {
    let in_parts = slot.is_in_parts();
    let most_leaves = if in_parts { 1 } else { engine.batch_leaves() };
    let log = &engine.core.log;
    let changes = ops.iter().filter(|op| !matches!(op.change, Change::Expect(_)));
    let pages = changes.take(most_leaves).count() + slot.pages().len();
    if !in_parts && !log.takes(redo_len, pages) {
        return Err(Halt::TooLarge);
    }
    let credit = restarts.reserve(log, redo_len, pages)?;
    let (mut leaves, ops) = latch_leaves(engine, ops, most_leaves, in_parts)?;
    let manner = plan::Manner { locks: &engine.txns.locks, long_values, txn: slot.txn(), in_parts, is_short_of_room };
    let mut planned = plan(ops, &leaves, slot.undo(), manner)?;
    match planned.stopped.filter(|_| !in_parts || planned.ops == 0) {
        Some(Stopped::Locked(space, key, stamp)) => return Err(Halt::Locked(space, key, stamp)),
        Some(Stopped::Replaces(tree, reference)) => return Err(Halt::Replaces(tree, reference)),
        None => {}
    }
    if let Some(full) = find_full(&leaves, &planned) {
        let oldest = engine.txns.oldest(&engine.core.store);
        let gain = leaves[full.leaf].1.view().compactable(oldest);
        let wanted = if is_short_of_room { 0 } else { worth_compacting(engine) };
        if full.shortage.max(wanted) > gain {
            return Err(Halt::Full(leaves[full.leaf].0, full.pending));
        }
        let leaf = leaves.swap_remove(full.leaf).1;
        drop(leaves);
        let id = leaf.id();
        let mut mtr = Mtr::new(log, [leaf]);
        mtr.apply(0, id, &PageOp::Compact { oldest })?;
        mtr.commit(credit)?;
        return Err(Halt::Again);
    }
    let (was_there, planned_ops) = (planned.was_there, planned.ops);
    let done = |end| Done { end, was_there, ops: planned_ops };
    if planned.changes.is_empty() {
        // Nothing to change. What makes that true may not be durable yet, and the caller is told that it is.
        let end = leaves.iter().map(|(_, page)| page.lsn()).max().unwrap_or(Lsn::ZERO);
        return Ok(done(end.max(engine.txns.last_commit())));
    }
    let undo = find_undo_pages(engine, slot, &mut planned)?;
    let exact = planned.redo_len() + undo.redo_len() + TXN_LEN;
    if exact > redo_len {
        return Err(Halt::Redo(exact));
    }
    let first_undo = leaves.len();
    let ids: SmallVec<[PageId; LEAVES_INLINE]> = leaves.iter().map(|(_, page)| page.id()).collect();
    let UndoPages { pages, records } = undo;
    let latched = leaves.into_iter().map(|(_, page)| page).chain(pages);
    let mut mtr = Mtr::new(log, latched);
    let txn = slot.txn();
    // Leaf by leaf (MTR-3), and what frees room comes before what takes it.
    planned.changes.sort_by_key(|change| (change.leaf, change.turn()));
    for change in &mut planned.changes {
        let leaf = change.leaf;
        change.carry_out(txn, |op| mtr.apply(leaf, ids[leaf], op))?;
    }
    for record in &records {
        let id = mtr.page(first_undo + record.page).id();
        record.append(txn, slot.undo(), |op| mtr.apply(first_undo + record.page, id, op))?;
    }
    if !in_parts {
        mtr.note_txn(txn);
    }
    let end = mtr.commit(credit)?;
    slot.appended(records.iter().map(|record| (record.page, record.number, record.marked_rows)));
    Ok(done(end))
}

/// The leaves of all keys, latched exclusively from left to right (BTREE-3); or the leaf of the first, and those of
/// `ops` that are in it.
fn latch_leaves<'p, 's, 'a>(
    engine: &'p Engine,
    ops: &'s [Op<'a>],
    most: usize,
    only_first: bool,
) -> Result<(Leaves<'p, 'a>, &'s [Op<'a>]), Halt<'p, 'a>> {
    let mut leaves = Leaves::new();
    for (index, op) in ops.iter().enumerate() {
        let root = &op.tree.root;
        let covered =
            leaves.last().is_some_and(|(tree, page)| tree.space() == root.space() && page.view().covers(op.key));
        if covered {
            continue;
        }
        if leaves.len() >= most {
            return if only_first { Ok((leaves, &ops[..index])) } else { Err(Halt::TooLarge) };
        }
        let manner = if leaves.is_empty() { Manner::First } else { Manner::Further };
        let before = Waited::on(WaitClass::RecentClosed);
        let leaf = leaf_write(&engine.core, root, op.key, manner)?;
        leaves.iter().for_each(|(_, page)| page.pass_on(before));
        leaves.push((root, leaf));
    }
    Ok((leaves, ops))
}

/// Bytes that a leaf must gain, or it is split: else the rows of a full leaf would get and lose stamps in turns.
fn worth_compacting(engine: &Engine) -> usize {
    engine.core.store.page_size() / 16
}

/// A leaf without room for what is planned.
struct FullLeaf {
    leaf: usize,
    /// Bytes that it lacks.
    shortage: usize,
    pending: Vec<Pending>,
}

/// The first leaf without room for what is planned, which is in the order of the leaves.
fn find_full(leaves: &[Leaf<'_, '_>], plan: &Plan<'_>) -> Option<FullLeaf> {
    plan.changes.chunk_by(|one, next| one.leaf == next.leaf).find_map(|here| {
        let leaf = here[0].leaf;
        let view = leaves[leaf].1.view();
        let sizes = here.iter().map(|change| change.growth(view));
        let (added, freed) = sizes.fold((0, 0), |(a, f), (x, y)| (a + x, f + y));
        let added = added + here.iter().map(Planned::slack).max().unwrap_or(0);
        let shortage = added.checked_sub(view.free_bytes() + freed).filter(|shortage| *shortage > 0)?;
        let pending =
            |change: &Planned<'_>| Pending { key: change.key.to_vec(), value_len: change.new_len() + change.slack() };
        Some(FullLeaf { leaf, shortage, pending: here.iter().map(pending).collect() })
    })
}
