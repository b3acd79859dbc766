//! Statements: the writes of a transaction that is committed later.
//!
//! A statement is one group of the log over all its leaves, or several if it is too large. Rows that it changes are
//! locked by their stamps until the transaction ends. A statement that fails has changed nothing: what it had written is
//! undone here, by its own thread.

use std::borrow::Cow;

use crate::base::error::Error;
use crate::engine::Engine;
use crate::txn::slot::Slot;
use crate::undo::rollback::roll_back_to;
use crate::write::batch::WriteBatch;
use crate::write::chunks::{Bytes, LongValues, sort};
use crate::write::group::{enter_all, write_group};
use crate::write::op::Op;
use crate::write::outcome::{Done, Extent, GroupOutcome};
use crate::write::parts::write_in_parts;
use crate::write::rows::write_rows_of;
use crate::write::sizes::check_sizes;

/// A statement that failed.
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// It has changed nothing, and the transaction may go on. Else the whole transaction is to be rolled back.
    pub(crate) is_undone: bool,
}

/// Writes the changes of `batch` as one statement of the transaction of `slot`, all of them or none.
///
/// May wait as [`write`](crate::write::write), but not on `log_flush`.
pub(crate) fn write_statement(engine: &Engine, batch: &WriteBatch, slot: &mut Slot<'_>) -> Result<Done, Failed> {
    if !slot.is_in_parts() {
        slot.begin_parts(&engine.core).map_err(|error| Failed { error, is_undone: true })?;
    }
    let savepoint = slot.savepoint();
    write_rows_of(engine, batch, slot).map_err(|error| match error {
        Error::Deadlock(_) => Failed { error, is_undone: false },
        _ => match roll_back_to(engine, slot, savepoint) {
            Ok(()) => Failed { error, is_undone: true },
            Err(error) => Failed { error, is_undone: false },
        },
    })
}

/// Writes `ops` as changes of the transaction of `slot`. If it fails, some of them may be written.
pub(super) fn write_ops(engine: &Engine, ops: &mut [Op<'_>], slot: &mut Slot<'_>) -> Result<Done, Error> {
    sort(ops);
    let ops = &*ops;
    ops.iter().try_for_each(|op| check_sizes(engine, op))?;
    let trees = ops.chunk_by(|one, next| one.tree.space == next.tree.space).map(|of_tree| of_tree[0].tree);
    let _gates = enter_all(engine, trees)?;
    let (bytes, mut ops) = (Bytes::new(), Cow::Borrowed(ops));
    let mut long_values = LongValues::new(&bytes, engine.core.store.page_size());
    if ops.iter().any(|op| op.value_len() > engine.limits.value) {
        long_values.expand(engine, &mut ops, slot)?;
    }
    loop {
        match write_group(engine, &ops, Extent::Statement, &long_values, slot)? {
            GroupOutcome::Written(done) => return Ok(done),
            GroupOutcome::TooLarge => return write_in_parts(engine, ops.into_owned(), &mut long_values, slot),
            GroupOutcome::Replaces(tree, reference) => {
                long_values.delete_chunks(tree, reference, ops.to_mut())?;
                sort(ops.to_mut());
            }
        }
    }
}
