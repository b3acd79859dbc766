//! Rows as they were before a transaction in flight changed them.

use smallvec::SmallVec;

use super::record::{Undo, UndoRecord};
use super::slots::Transactions;
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::row::{Reference, Row, Stamp, UndoRef};
use crate::core::Core;

/// The bytes of an undo record; `None`: there is no such record. May wait on `page_read` and `free_frame`; callers hold
/// nothing.
pub(crate) fn load_record(core: &Core, at: UndoRef) -> Result<Option<SmallVec<[u8; 512]>>, Error> {
    let page = core.pool.load(PageId::new(SpaceId::UNDO, at.page))?.read();
    let view = page.view();
    let found = if view.is_leaf() { view.search(&at.record.to_be_bytes()).ok() } else { None };
    Ok(found.map(|index| SmallVec::from_slice(view.value(index))))
}

/// A row as it was before a transaction.
pub(crate) struct Before {
    pub(crate) payload: Vec<u8>,
    /// Where the payload is, if it is in chunks.
    pub(crate) reference: Option<Reference>,
}

/// The row of `key`, which is `value` now, as it was before the transaction of `stamp`; `Some(None)`: there was none.
/// `None`: that transaction is no longer in flight, so the row is to be read again.
///
/// A transaction's records stay in the undo pages while it is in flight. So the record is read first, and then this
/// checks whether the transaction still is. May wait as [`load_record`].
pub(crate) fn before(
    core: &Core,
    txns: &Transactions,
    space: SpaceId,
    key: &[u8],
    value: &[u8],
    stamp: Stamp,
) -> Result<Option<Option<Before>>, Error> {
    let found = match stamp.undo {
        Some(at) => {
            load_record(core, at).map(|record| record.and_then(|record| undone(&record, space, key, value, stamp)))
        }
        None => Ok(None),
    };
    if !txns.locks.is_in_flight(stamp.txn) {
        return Ok(None);
    }
    found?.map(Some).ok_or_else(|| {
        let message = format!(
            "the undo record of a row of transaction {}, which is in flight, is not there: run `millpond check`",
            stamp.txn
        );
        Error::Corruption(message.into())
    })
}

/// The row that `record` restores; `None`: the record does not lead back from this row.
fn undone(record: &[u8], space: SpaceId, key: &[u8], value: &[u8], stamp: Stamp) -> Option<Option<Before>> {
    let record = UndoRecord::decode(record).filter(|record| record.txn == stamp.txn)?;
    let is_it = |change: &Undo<'_>| change.space == space && change.key() == key;
    let payload = |row: &[u8]| {
        let row = Row::decode(row)?;
        Some((!row.is_deleted).then(|| Before { payload: row.payload.to_vec(), reference: row.reference() }))
    };
    match record.changes().flatten().find(is_it)?.op {
        PageOp::Remove { .. } => Some(None),
        PageOp::Insert { value, .. } | PageOp::Replace { value, .. } => payload(value),
        PageOp::Patch { patch, .. } => payload(&patch.apply(value)?),
        _ => None,
    }
}
