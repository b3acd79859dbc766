//! Statements: the writes of a transaction that is committed later.
//!
//! A statement is one group of the log over all its leaves, or several if it is too large. Rows that it changes are
//! locked by their stamps until the transaction ends. A statement that fails has changed nothing: what it had written
//! is undone here, by its own thread.

use std::sync::Arc;

use crate::base::error::Error;
use crate::engine::Engine;
use crate::engine::table_state::TableState;
use crate::txn::slot::Slot;
use crate::undo::rollback::roll_back_to;
use crate::write::batch::WriteBatch;
use crate::write::op::Decide;
use crate::write::outcome::Done;
use crate::write::rows::{modify_row_of, write_rows_of};

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
    all_or_nothing(engine, slot, |slot| write_rows_of(engine, batch, slot))
}

/// Reads the row `key` of `table`, and makes the change that `decide` returns for it (`None`: none), as one statement.
/// `decide` may be called twice. True: the row existed.
pub(crate) fn modify_statement(
    engine: &Engine,
    table: &Arc<TableState>,
    key: &[u8],
    decide: &mut Decide<'_>,
    slot: &mut Slot<'_>,
) -> Result<bool, Failed> {
    all_or_nothing(engine, slot, |slot| modify_row_of(engine, table, key, decide, slot))
}

/// Runs `write`, which changes rows; undoes what it has changed if it fails.
fn all_or_nothing<T>(
    engine: &Engine,
    slot: &mut Slot<'_>,
    write: impl FnOnce(&mut Slot<'_>) -> Result<T, Error>,
) -> Result<T, Failed> {
    if !slot.is_in_parts() {
        slot.begin_parts(&engine.core).map_err(|error| Failed { error, is_undone: true })?;
    }
    let savepoint = slot.savepoint();
    write(slot).map_err(|error| match error {
        Error::Deadlock(_) => Failed { error, is_undone: false },
        _ => match roll_back_to(engine, slot, savepoint) {
            Ok(()) => Failed { error, is_undone: true },
            Err(error) => Failed { error, is_undone: false },
        },
    })
}
