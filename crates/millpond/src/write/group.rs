//! Writes one group of the log: all its leaves are latched, planned for, changed and logged together.
//!
//! [`write_group`] repeats [`attempt`]s until one succeeds. An attempt that cannot go on returns an [`Obstacle`].
//! `write_group` deals with it while nothing is latched: loads a page, splits a leaf, waits for a row.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::Error;
use crate::base::ids::{FrameId, Lsn, PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::sync::ReadGuard;
use crate::base::waits::{WaitClass, Waited};
use crate::btree::descent::{LatchOrder, Restarts, Stop, Target, are_of_more_leaves, leaf_read, leaf_write};
use crate::btree::split::{Pending, split_leaf};
use crate::engine::tree_state::{Gate, TreeState};
use crate::engine::{Engine, GROUP_PAGES};
use crate::mtr::{Mtr, TXN_LEN};
use crate::pool::pin::PageWrite;
use crate::txn::lock_table::Mode;
use crate::txn::locks::Hold;
use crate::txn::slot::Slot;
use crate::txn::versions::{looks_at, read_ahead, reads_ahead};
use crate::write::chunks::LongValues;
use crate::write::op::{Change, Op};
use crate::write::outcome::{Done, Extent, GroupOutcome, Obstacle};
use crate::write::plan::{LEAVES_INLINE, Leaf, Leaves, Plan, PlanContext, Planned, RowObstacle, plan};
use crate::write::sizes::{is_large, probable_redo};
use crate::write::undo::{RecordPlan, UndoPages, find_undo_pages};

/// Enters trees, each listed once, in the order of their spaces: the order in which a drop closes their gates.
pub(super) fn enter_all<'a>(
    engine: &Engine,
    trees: impl Iterator<Item = &'a Arc<TreeState>>,
) -> Result<Gates<'a>, Error> {
    let mut trees: SmallVec<[_; TREES_INLINE]> = trees.collect();
    trees.sort_unstable_by_key(|tree| tree.space);
    trees.into_iter().map(|tree| tree.enter(&engine.waits)).collect()
}

/// Keeps trees from being dropped.
pub(crate) type Gates<'a> = SmallVec<[ReadGuard<'a, Gate>; TREES_INLINE]>;

/// Number of trees of a batch up to which no memory is allocated.
const TREES_INLINE: usize = 4;

/// Writes one group: `ops`, or of a part the first of them. `ahead` are all ops that are left
/// of the batch, from the first of `ops` on: their leaves are read together.
pub(crate) fn write_group<'a>(
    engine: &Engine,
    (ops, ahead): (&[Op<'a>], &[Op<'a>]),
    extent: Extent,
    long_values: &LongValues<'_>,
    slot: &mut Slot<'_>,
) -> Result<GroupOutcome<'a>, Error> {
    let probable = probable_redo(ops);
    let is_whole = extent != Extent::Part;
    if is_whole && (is_large(engine, probable) || is_wide(engine, ops)) {
        return Ok(GroupOutcome::TooLarge);
    }
    // Beside a snapshot, shortcuts may take about as much again.
    let shortcuts = engine.txns.snapshots.oldest_hint().map_or(0, |_| probable);
    let redo_len = (probable + shortcuts).min(engine.limits.batch_bytes);
    if is_whole {
        read_versions(engine, ops, slot.txn());
    }
    let mut next = Attempt { extent, redo_len, is_short_of_room: false, cuts_chains: true };
    let mut restarts = Restarts::new(&engine.core.pool);
    loop {
        match attempt(engine, ops, next, long_values, slot, &mut restarts) {
            Ok(done) => return Ok(GroupOutcome::Written(done)),
            Err(Obstacle::Stop(stop)) => {
                if matches!(stop, Stop::Load(_)) && ahead.len() > 1 && restarts.is_to_read_ahead() {
                    let keys = ahead.iter().map(|op| (&op.tree.root, op.key));
                    match extent {
                        Extent::Part => restarts.read_ahead_for_batch(&engine.core, keys, slot.txn())?,
                        _ => restarts.read_ahead(&engine.core, keys),
                    }
                }
                restarts.resolve(stop)?;
                // The pages that the operation keeps in the lane are bounded: a part goes on with the leaves at hand.
                if is_whole && ops.len() > LANE_LEAVES && restarts.is_in_lane() {
                    return Ok(GroupOutcome::TooLarge);
                }
            }
            // Each split has the whole group tried again: too slow with many pages.
            Err(Obstacle::Full(_, pending)) if is_whole && is_of_many_pages(engine, &pending) => {
                return Ok(GroupOutcome::TooLarge);
            }
            Err(Obstacle::Full(root, pending)) => match split_leaf(&engine.core, root, &pending, &mut restarts) {
                Err(Error::OutOfSpace(_)) if !next.is_short_of_room => next.is_short_of_room = true,
                split => {
                    split?;
                    if !is_whole && planted!("leaf_forgotten_after_split") {
                        return Ok(GroupOutcome::Written(Done { end: Lsn::ZERO, was_there: false, ops: ops.len() }));
                    }
                }
            },
            Err(Obstacle::Again) => {}
            // Without shortcuts the group may fit.
            Err(obstacle) if next.cuts_chains && is_too_large(engine, &obstacle) => next.cuts_chains = false,
            Err(obstacle) if is_too_large(engine, &obstacle) => return Ok(GroupOutcome::TooLarge),
            Err(Obstacle::Undo(pages)) => {
                // Adding waits for log, files and frames with nothing held, so the writer leaves the lane, and may
                // enter it again.
                restarts.begin_wait();
                while slot.pages().len() < pages {
                    match slot.add_page(&engine.core) {
                        // Without shortcuts the pages may suffice.
                        Err(Error::OutOfSpace(_)) if next.cuts_chains => {
                            next.cuts_chains = false;
                            break;
                        }
                        added => added?,
                    }
                }
                restarts.start_again();
                slot.pages()
                    .iter()
                    .filter_map(|page| engine.core.pool.fetch(page.id))
                    .for_each(|pin| restarts.keep(pin));
            }
            Err(Obstacle::Redo(bytes)) => next.redo_len = bytes,
            Err(Obstacle::TooLarge) => return Ok(GroupOutcome::TooLarge),
            Err(Obstacle::Replaces(tree, reference)) => return Ok(GroupOutcome::Replaces(tree, reference)),
            Err(Obstacle::Locked(space, key, stamp)) if extent == Extent::Batch => {
                return Ok(GroupOutcome::Locked(space, key, stamp));
            }
            Err(Obstacle::Locked(space, key, stamp)) => {
                restarts.begin_wait();
                slot.wait_for_row(space, key, stamp, Mode::Exclusive, &engine.waits)?;
            }
        }
    }
}

/// Reads undo pages that the writer looks at when it overwrites rows (CHAIN-1), as far as it has to read any. Rows
/// whose leaves are not in memory are left out: those leaves are read together later.
fn read_versions(engine: &Engine, ops: &[Op<'_>], txn: TxnId) {
    let mut reads = reads_ahead(txn);
    if engine.txns.snapshots.oldest_hint().is_none() {
        return;
    }
    for op in ops.iter().take(READ_VERSIONS_OF) {
        if reads == 0 {
            break;
        }
        let Ok(page) = leaf_read(&engine.core, &op.tree.root, Target::Key(op.key)) else { continue };
        let value = page.view().search(op.key).ok().map(|index| page.view().value(index).to_vec());
        drop(page);
        if let Some(value) = value {
            read_ahead(&engine.core, &engine.txns, (op.tree.space, op.key), value, &mut reads);
        }
    }
}

/// Most leaves of a group that is written in the lane. With them, the pages on the way to them, and undo pages, the
/// group has [`GROUP_PAGES`] at most.
const LANE_LEAVES: usize = 8;

/// Most rows of a group for which undo pages are read.
const READ_VERSIONS_OF: usize = 32;

/// Whether the group takes more undo pages or more redo than a group may.
fn is_too_large(engine: &Engine, obstacle: &Obstacle<'_, '_>) -> bool {
    match obstacle {
        Obstacle::Undo(pages) => *pages > engine.group_undo_pages(),
        Obstacle::Redo(bytes) => *bytes > engine.limits.batch_bytes,
        _ => false,
    }
}

/// Whether a batch probably changes more leaves than a group may. Looks at some of its keys, if it has so many.
pub(super) fn is_wide(engine: &Engine, ops: &[Op<'_>]) -> bool {
    let most = engine.group_leaves();
    if ops.len() <= most {
        return false;
    }
    let some = ops.iter().step_by(ops.len().div_ceil(2 * most));
    are_of_more_leaves(&engine.core, some.map(|op| (&op.tree.root, op.key)), most)
}

/// Whether the entries that are to go into one leaf fill many leaves.
fn is_of_many_pages(engine: &Engine, pending: &[Pending]) -> bool {
    let bytes = |pending: &Pending| pending.key.len() + pending.value_len;
    pending.len() > 16 && pending.iter().map(bytes).sum::<usize>() > 16 * engine.core.store.page_size()
}

/// The parameters of an attempt to write a group.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    extent: Extent,
    /// Bytes of redo that are reserved.
    redo_len: usize,
    /// The files have no room for another page: the room within the leaves must suffice.
    is_short_of_room: bool,
    /// Versions that no reader looks for are left out (CHAIN-1).
    cuts_chains: bool,
}

/// Tries to write a group: reserves log, latches leaves, plans, checks for room, and then changes and logs. If it ends
/// without the group, no row was changed (WRITE-2), but a leaf may have been compacted.
pub(crate) fn attempt<'p, 'a>(
    engine: &'p Engine,
    ops: &[Op<'a>],
    Attempt { extent, redo_len, is_short_of_room, cuts_chains }: Attempt,
    long_values: &LongValues<'_>,
    slot: &mut Slot<'_>,
    restarts: &mut Restarts<'p>,
) -> Result<Done, Obstacle<'p, 'a>> {
    let is_whole = extent != Extent::Part;
    let most_leaves = engine.group_leaves().min(if restarts.is_in_lane() { LANE_LEAVES } else { usize::MAX });
    let log = &engine.core.log;
    let changes = ops.iter().filter(|op| !matches!(op.change, Change::Expect(_)));
    let pages = changes.take(most_leaves).count() + slot.pages().len();
    if is_whole && !log.takes(redo_len, pages) {
        return Err(Obstacle::TooLarge);
    }
    let credit = restarts.reserve(log, redo_len, pages)?;
    let (mut leaves, mut ops) = latch_leaves(engine, ops, most_leaves, !is_whole)?;
    if leaves.len() + restarts.held_frames().count() + engine.group_undo_pages() > GROUP_PAGES {
        count_pages(engine, &leaves, &[], restarts);
        // What leads to the leaves is not needed any more.
        restarts.give_up_pages();
    }
    // The records of shortcuts need room, too.
    let looks_at = if cuts_chains && !is_short_of_room { looks_at(slot.txn(), ops.len()) } else { 0 };
    let (txn, in_parts, first_wins) = (slot.txn(), extent != Extent::Batch, slot.first_wins().cloned());
    let first_wins = first_wins.as_deref();
    let context = PlanContext { engine, long_values, txn, in_parts, first_wins, is_short_of_room, looks_at };
    let mut planned = plan(ops, &leaves, slot.undo(), context)?;
    if planted!("absent_keys_held_early") {
        hold_absent(engine, txn, &planned.absent)?;
    }
    check_stopped(&mut planned, is_whole)?;
    let mut full = find_full(&leaves, &planned);
    if let Some(FullLeaf { leaf, .. }) = full.take_if(|full| !is_whole && full.leaf > 0) {
        // First the leaves before it.
        let (root, page) = &leaves[leaf];
        let is_here = |op: &Op<'_>| op.tree.space == root.space() && page.view().covers(op.key);
        ops = &ops[..ops.iter().position(is_here).unwrap_or(ops.len())];
        leaves.truncate(leaf);
        planned = plan(ops, &leaves, slot.undo(), context)?;
        // A waiter may have had a row's lock entered in the table of locks meanwhile.
        check_stopped(&mut planned, is_whole)?;
    }
    if let Some(full) = full {
        let oldest = engine.txns.oldest();
        let gain = leaves[full.leaf].1.view().compactable(oldest);
        let wanted = if is_short_of_room { 0 } else { worth_compacting(engine) };
        if full.shortage.max(wanted) > gain {
            return Err(Obstacle::Full(leaves[full.leaf].0, full.pending));
        }
        let leaf = leaves.swap_remove(full.leaf).1;
        drop(leaves);
        let id = leaf.id();
        let mut mtr = Mtr::new(log, [leaf]);
        mtr.apply(0, id, &PageOp::Compact { oldest })?;
        mtr.commit(credit)?;
        return Err(Obstacle::Again);
    }
    let (was_there, planned_ops) = (planned.was_there, planned.ops);
    let done = |end| Done { end, was_there, ops: planned_ops };
    if planned.changes.is_empty() {
        hold_absent(engine, txn, &planned.absent)?;
        // Nothing to change. The earlier change that makes this true may not be durable yet, but the caller is told
        // that it is: so the caller waits for the log up to there. All commits up to there are in the commit table: a
        // later snapshot is of that moment, or a later one.
        let end = leaves.iter().map(|(_, page)| page.lsn()).max().unwrap_or(Lsn::ZERO);
        engine.txns.commits.show(end);
        return Ok(done(engine.txns.commits.last_visible()));
    }
    let undo = find_undo_pages(engine, slot, &mut planned)?;
    let exact = planned.redo_len() + undo.redo_len() + TXN_LEN;
    if exact > redo_len {
        return Err(Obstacle::Redo(exact));
    }
    hold_absent(engine, txn, &planned.absent)?;
    count_pages(engine, &leaves, &undo.pages, restarts);
    let first_undo = leaves.len();
    let ids: SmallVec<[PageId; LEAVES_INLINE]> = leaves.iter().map(|(_, page)| page.id()).collect();
    let UndoPages { pages, records, .. } = undo;
    let latched = leaves.into_iter().map(|(_, page)| page).chain(pages);
    let mut mtr = Mtr::new(log, latched);
    // Leaf by leaf (MTR-3); in a leaf, changes that free room come before changes that take room.
    planned.changes.sort_by_key(|change| (change.leaf, change.turn()));
    for change in &mut planned.changes {
        let leaf = change.leaf;
        change.carry_out(txn, |op| mtr.apply(leaf, ids[leaf], op))?;
    }
    for record in &records {
        let id = mtr.page(first_undo + record.page).id();
        record.append(slot.undo(), |op| mtr.apply(first_undo + record.page, id, op))?;
    }
    let end = match extent {
        Extent::Statement | Extent::Part => mtr.commit(credit)?,
        Extent::Batch => {
            mtr.note_txn(txn);
            slot.commit(mtr, credit)?
        }
    };
    slot.appended(records.iter().map(RecordPlan::appended));
    slot.cut_out(planned.cut_out());
    Ok(done(end))
}

/// The obstacle at which the plan stopped, unless a part can be written up to there.
fn check_stopped<'p, 'a>(planned: &mut Plan<'a>, is_whole: bool) -> Result<(), Obstacle<'p, 'a>> {
    match planned.stopped.take() {
        Some(RowObstacle::Locked(space, key, stamp)) if is_whole || planned.ops == 0 => {
            Err(Obstacle::Locked(space, key, stamp))
        }
        Some(RowObstacle::Replaces(tree, reference)) if is_whole || planned.ops == 0 => {
            Err(Obstacle::Replaces(tree, reference))
        }
        _ => Ok(()),
    }
}

/// Notes how many pages the writer keeps in memory.
fn count_pages(engine: &Engine, leaves: &Leaves<'_, '_>, undo: &[PageWrite<'_>], restarts: &Restarts<'_>) {
    let latched = leaves.iter().map(|(_, page)| page).chain(undo);
    let latched: SmallVec<[FrameId; LEAVES_INLINE]> = latched.map(PageWrite::frame_id).collect();
    let others = restarts.held_frames().filter(|frame| !latched.contains(frame));
    engine.core.pool.counters.group_pages(latched.len() + others.count());
}

/// Latches the leaves of all keys exclusively, from left to right (BTREE-3); returns them with the ops whose leaves
/// they are. With `only_first`: at most `most` leaves, up to the first that is not at hand, and the ops in them.
fn latch_leaves<'p, 's, 'a>(
    engine: &'p Engine,
    ops: &'s [Op<'a>],
    most: usize,
    only_first: bool,
) -> Result<(Leaves<'p, 'a>, &'s [Op<'a>]), Obstacle<'p, 'a>> {
    let mut leaves = Leaves::new();
    for (index, op) in ops.iter().enumerate() {
        let root = &op.tree.root;
        let covered =
            leaves.last().is_some_and(|(tree, page)| tree.space() == root.space() && page.view().covers(op.key));
        if covered {
            continue;
        }
        if leaves.len() >= most {
            return if only_first { Ok((leaves, &ops[..index])) } else { Err(Obstacle::TooLarge) };
        }
        let order = if leaves.is_empty() { LatchOrder::First } else { LatchOrder::Further };
        let before = Waited::on(WaitClass::RecentClosed);
        let leaf = match leaf_write(&engine.core, root, op.key, order) {
            Err(Stop::Load(_) | Stop::Refused(_)) if only_first && !leaves.is_empty() => {
                return Ok((leaves, &ops[..index]));
            }
            leaf => leaf?,
        };
        if before.elapsed_us() > 0 {
            leaves.iter().for_each(|(_, page)| page.pass_on(before));
        }
        leaves.push((root, leaf));
    }
    Ok((leaves, ops))
}

/// Locks keys without a row, all of them or none, as the last step that an attempt may fail at. An attempt that kept
/// some would have them before the rows that come before them (LOCK-3).
fn hold_absent<'p, 'a>(engine: &Engine, txn: TxnId, absent: &[(SpaceId, &[u8])]) -> Result<(), Obstacle<'p, 'a>> {
    let locks = &engine.txns.locks;
    let mut before: SmallVec<[Option<Mode>; 1]> = SmallVec::new();
    for &(space, key) in absent {
        // As many as there are changes: these bound them.
        let Hold::Held(mode) = locks.hold(space, key, txn, Mode::Exclusive, usize::MAX) else {
            for (&(space, key), before) in absent.iter().zip(before) {
                locks.let_go(space, key, txn, Mode::Exclusive, before);
            }
            // The next attempt waits for that key where the order allows it.
            return Err(Obstacle::Again);
        };
        before.push(mode);
    }
    Ok(())
}

/// Least bytes that a compaction must gain, or the leaf is split. Otherwise the rows of a full leaf would get and lose
/// stamps in turns.
fn worth_compacting(engine: &Engine) -> usize {
    engine.core.store.page_size() / 16
}

/// A leaf without room for the planned changes.
pub(crate) struct FullLeaf {
    leaf: usize,
    /// Bytes that the leaf lacks.
    shortage: usize,
    pending: Vec<Pending>,
}

/// The first leaf without room for its planned changes. The changes are in the order of the leaves.
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
