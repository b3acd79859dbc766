//! How a batch is written: plan under latches, then change, log, release, wait. A batch is a transaction.
//!
//! WRITE-1  Keys are taken in (tree, key) order, so two batches never wait for each other's leaves in a circle.
//! WRITE-2  Nothing is changed before every precondition was checked and every leaf has room: a batch that fails has
//!          changed nothing.
//! WRITE-3  All leaves of a batch are latched until its group has its place in the log: readers see all of it or
//!          nothing.

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::engine::Engine;
use super::options::Durability;
use super::plan::{LEAVES_INLINE, Leaf, Leaves, Plan, Planned, plan, shown};
use super::undo::{UndoPages, find_undo_pages};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::op::PageOp;
use crate::base::row::HEAD_LEN;
use crate::btree::descent::{Manner, Restarts, Root, Stop, leaf_write};
use crate::btree::split::{Pending, split_leaf};
use crate::mtr::{COMMIT_LEN, Mtr, RECORD_HEADER};
use crate::txn::slots::Slot;

/// Bytes that a page operation adds to its key and value: kind, two lengths.
const OP_HEADER: usize = 5;

/// What a batch did.
struct Done {
    /// What it saw and what it changed is all before this LSN.
    end: Lsn,
    was_there: bool,
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
    let mut manner = Attempt { redo_len: check_sizes(engine, ops)?, is_short_of_room: false };
    let mut gates: SmallVec<[_; 2]> = SmallVec::new();
    for (index, op) in ops.iter().enumerate() {
        if index == 0 || ops[index - 1].tree.space != op.tree.space {
            gates.push(op.tree.enter()?);
        }
    }
    let mut restarts = Restarts::new(&engine.core.pool);
    let mut slot = engine.txns.begin(&engine.core.store);
    let done = loop {
        match attempt(engine, ops, manner, &mut slot, &mut restarts) {
            Ok(done) => break done,
            Err(Halt::Stop(stop)) => restarts.resolve(stop)?,
            Err(Halt::Full(root, pending)) => match split_leaf(&engine.core, root, &pending, &mut restarts) {
                Err(Error::OutOfSpace(_)) if !manner.is_short_of_room => manner.is_short_of_room = true,
                split => split?,
            },
            Err(Halt::Again) => {}
            Err(Halt::Undo(pages)) => {
                check_undo(engine, pages)?;
                restarts.start_again();
                while slot.pages().len() < pages {
                    slot.add_page(&engine.core)?;
                }
                slot.pages().iter().filter_map(|id| engine.core.pool.fetch(*id)).for_each(|pin| restarts.keep(pin));
            }
            Err(Halt::Redo(bytes)) => manner.redo_len = check_redo(engine, bytes)?,
        }
    };
    drop((slot, restarts, gates));
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

/// Refuses what is too long; returns the redo that the batch probably takes at most.
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
        redo_len += match op.change {
            Change::Expect(_) => 0,
            Change::Insert(_) => RECORD_HEADER + OP_HEADER + op.key.len() + HEAD_LEN + value,
            _ => 2 * (OP_HEADER + op.key.len() + value) + PER_CHANGE,
        };
    }
    Ok(redo_len.min(limits.batch_bytes))
}

/// Bytes of redo that a change takes at most beside what is new and what was before: two records, the row's stamp in
/// two patches, what the undo record says of itself. A guess at first: if what was before is longer than what comes,
/// the room is asked for once more.
const PER_CHANGE: usize = 2 * RECORD_HEADER + 3 * HEAD_LEN + 64;

/// So many undo pages, all in memory at once, must be possible.
fn check_undo(engine: &Engine, pages: usize) -> Result<(), Error> {
    let most = engine.batch_undo_pages();
    if pages > most {
        let message = format!(
            "the batch needs {pages} undo pages at once: at most {most} are allowed with this buffer_pool_size; write it in parts"
        );
        return Err(Error::BatchTooLarge(message.into()));
    }
    Ok(())
}

/// A group of so many bytes must be possible.
fn check_redo(engine: &Engine, bytes: usize) -> Result<usize, Error> {
    let most = engine.limits.batch_bytes;
    if bytes > most {
        let message = format!(
            "the batch takes {bytes} bytes of log: at most {most} are allowed with this redo_capacity; write it in parts"
        );
        return Err(Error::BatchTooLarge(message.into()));
    }
    Ok(bytes)
}

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
    ops: &'a [Op<'a>],
    Attempt { redo_len, is_short_of_room }: Attempt,
    slot: &mut Slot<'_>,
    restarts: &mut Restarts<'p>,
) -> Result<Done, Halt<'p, 'a>> {
    let batch_leaves = engine.batch_leaves();
    let log = &engine.core.log;
    let pages = ops.len().min(batch_leaves) + slot.pages().len();
    let credit = match log.try_reserve(redo_len, pages)? {
        Some(credit) => credit,
        None => {
            // Nothing that others need is held over this wait.
            restarts.begin_wait();
            log.reserve(redo_len, pages)?
        }
    };
    let mut leaves = latch_leaves(engine, ops, batch_leaves)?;
    let mut planned = plan(ops, &leaves, slot.undo(), is_short_of_room)?;
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
    let was_there = planned.was_there;
    if planned.changes.is_empty() {
        // Nothing to change. What makes that true may not be durable yet, and the caller is told that it is.
        let end = leaves.iter().map(|(_, page)| page.lsn()).max().unwrap_or(Lsn::ZERO);
        return Ok(Done { end, was_there });
    }
    let undo = find_undo_pages(engine, slot, &mut planned)?;
    let exact = planned.redo_len() + undo.redo_len() + COMMIT_LEN;
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
    mtr.commit_txn(txn);
    let end = mtr.commit(credit)?;
    slot.appended(records.iter().map(|record| (record.page, record.has_marks)));
    Ok(Done { end, was_there })
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
