//! Writes batches: plan under latches, then change, log, release, wait. A batch is a transaction.
//!
//! A batch that is too large for one group is written in parts: a few leaves each, in a group of its own. Its rows
//! are locked until it is committed ([`crate::txn`]).
//!
//! WRITE-1  Keys are taken in one order, that of [`sort`](crate::write::chunks::sort): rows of tables first. So two
//!          batches never wait for each other's leaves or rows in a circle. This holds also for a batch that locks its
//!          rows before it reads them ([`Large`](crate::write::parts::Large)).
//! WRITE-2  A writer changes nothing before it has checked every precondition of the group and every leaf has room. So
//!          a group that fails has changed nothing. The changes of earlier parts are undone.
//! WRITE-4  A transaction that has read at a snapshot, and is to find conflicts, changes no row that another
//!          transaction has changed since: the first one wins. The writer looks at the row's stamp while it has the
//!          leaf latched.
//! WRITE-3  All leaves of a group are latched until the group has its place in the log. Rows of a batch in parts are in
//!          flight until its commit has its place in the log. So readers see all of a batch or nothing.

pub(crate) mod batch;
pub(crate) mod chunks;
pub(crate) mod entry_changes;
pub(crate) mod group;
pub(crate) mod op;
pub(crate) mod outcome;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod rows;
pub(crate) mod sizes;
pub(crate) mod statement;
pub(crate) mod undo;

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId};
use crate::engine::Engine;
use crate::engine::durable::wait_durable;
use crate::engine::tree_state::Role;
use crate::options::durability::Durability;
use crate::txn::lock_table::Mode;
use crate::txn::slot::Slot;
use crate::undo::purge::end_and_purge;
use crate::undo::rollback::roll_back_all;
use crate::write::chunks::{Bytes, LongValues, ensure_chunk_trees, sort};
use crate::write::group::{enter_all, write_group};
use crate::write::op::Op;
use crate::write::outcome::{Applied, Done, Extent, GroupOutcome, Size};
use crate::write::parts::{write_all, write_in_parts};
use crate::write::sizes::check_sizes;

/// Writes `ops` and waits for the log as `durability` demands. May wait on `log_space`, `free_frame`, `page_read`,
/// `row_lock`, for its part of purge on `metadata`, and at the end, with nothing held, on `log_flush`.
pub(crate) fn write(engine: &Engine, ops: &mut [Op<'_>], durability: Durability) -> Result<Done, Error> {
    engine.check_changeable()?;
    let _paying = engine.begin_write();
    let done = apply(engine, ops)?;
    wait_durable(engine, done.end, durability)?;
    Ok(done)
}

/// Writes `ops` without the wait for the log. May wait as [`write`], but not on `log_flush`; callers have entered no
/// gates.
pub(crate) fn apply(engine: &Engine, ops: &mut [Op<'_>]) -> Result<Done, Error> {
    if ops.is_empty() {
        engine.check_open()?;
        return Ok(Done { end: Lsn::ZERO, was_there: false, ops: 0 });
    }
    apply_with(engine, |slot| try_apply(engine, ops, Extent::Batch, Size::Any, slot))?
        .ok_or_else(|| Error::Bug("a batch of any size is too large".into()))
}

/// Runs `attempt` until it writes its batch, which is a transaction; `None`: the batch does not fit one group. Between
/// two attempts waits for a row that another transaction has locked, with no gate entered (LOCK-5).
pub(crate) fn apply_with(
    engine: &Engine,
    mut attempt: impl FnMut(&mut Slot<'_>) -> Result<Applied, Error>,
) -> Result<Option<Done>, Error> {
    let mut slot = engine.txns.begin(&engine.core.store)?;
    loop {
        let applied = match attempt(&mut slot) {
            Ok(applied) => applied,
            Err(error) => {
                // The close of the database waits for this. What cannot be undone now, purge undoes later, or the next
                // open does.
                if slot.is_in_parts()
                    && let Ok(_gate) = engine.enter_statement()
                {
                    let _ = roll_back_all(engine, slot);
                }
                return Err(error);
            }
        };
        match applied {
            Applied::Done(done) => {
                end_and_purge(engine, slot);
                return Ok(Some(done));
            }
            Applied::TooLarge => return Ok(None),
            Applied::Locked(space, key, stamp) => {
                slot.wait_for_row(space, &key, stamp, Mode::Exclusive, &engine.waits)?;
            }
            Applied::InParts(spaces) => spaces.into_iter().try_for_each(|space| slot.intend(space, &engine.waits))?,
        }
    }
}

/// Tries to write `ops`, a batch or a statement, without the wait for the log. A batch waits for no row, unless it is
/// written in parts. A statement waits for its rows here, and is written or too large; if it fails, some of it may be
/// written, unless it is to be one group.
pub(crate) fn try_apply(
    engine: &Engine,
    ops: &mut [Op<'_>],
    extent: Extent,
    size: Size,
    slot: &mut Slot<'_>,
) -> Result<Applied, Error> {
    sort(ops);
    let ops = &*ops;
    ops.iter().try_for_each(|op| check_sizes(engine, op))?;
    let has_long_values = ensure_chunk_trees(engine, ops)?;
    let trees = ops.chunk_by(|one, next| one.tree.space == next.tree.space).map(|of_tree| of_tree[0].tree);
    let _gates = enter_all(engine, trees)?;
    let (bytes, mut ops) = (Bytes::new(), Cow::Borrowed(ops));
    let mut long_values = LongValues::new(&bytes, engine.core.store.page_size());
    if has_long_values {
        long_values.expand(engine, &mut ops, slot)?;
    }
    loop {
        match write_group(engine, (&ops, &ops), extent, &long_values, slot)? {
            GroupOutcome::Written(done) => return Ok(Applied::Done(done)),
            GroupOutcome::Locked(space, key, stamp) => return Ok(Applied::Locked(space, key.to_vec(), stamp)),
            GroupOutcome::TooLarge if size == Size::OneGroup => return Ok(Applied::TooLarge),
            GroupOutcome::TooLarge if extent == Extent::Statement => {
                return write_in_parts(engine, ops.into_owned(), &mut long_values, slot).map(Applied::Done);
            }
            GroupOutcome::TooLarge if !slot.has_intents() => return Ok(Applied::InParts(intents(ops.iter().copied()))),
            GroupOutcome::TooLarge => {
                slot.begin_parts(&engine.core)?;
                engine.txns.wide_batches.fetch_add(1, Ordering::Relaxed);
                return write_all(engine, ops.into_owned(), &mut long_values, slot).map(Applied::Done);
            }
            GroupOutcome::Replaces(tree, reference) => {
                long_values.delete_chunks(tree, reference, ops.to_mut())?;
                sort(ops.to_mut());
            }
        }
    }
}

/// The trees and tables on which a batch in parts needs intents, in the order in which it takes them: so batches never
/// wait for one another and for those that drop trees in a circle.
fn intents<'a>(ops: impl Iterator<Item = Op<'a>>) -> Vec<SpaceId> {
    let of_rows = ops.filter(|op| matches!(op.tree.role, Role::Tree | Role::Rows));
    let mut spaces: Vec<SpaceId> = of_rows.map(|op| op.tree.space).collect();
    spaces.sort_unstable();
    spaces.dedup();
    spaces
}
