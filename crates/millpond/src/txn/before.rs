//! What a row was before a transaction in flight changed it.

use smallvec::SmallVec;

use super::record::{Undo, UndoRecord};
use super::slots::Transactions;
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::row::{Row, Stamp, UndoRef};
use crate::mtr::Core;

/// The bytes of an undo record; `None`: there is no such record. May wait on `page_read` and `free_frame`; callers hold
/// nothing.
pub(crate) fn load_record(core: &Core, at: UndoRef) -> Result<Option<SmallVec<[u8; 512]>>, Error> {
    let page = core.pool.load(PageId::new(SpaceId::UNDO, at.page))?.read();
    let view = page.view();
    let found = if view.is_leaf() { view.search(&at.record.to_be_bytes()).ok() } else { None };
    Ok(found.map(|index| SmallVec::from_slice(view.value(index))))
}

/// The payload that the row of `key` had before the transaction of `stamp`, of which `value` is; `Some(None)`: there
/// was no row. `None`: that transaction is in flight no more, so the row is to be read again.
///
/// What a transaction leaves in undo pages stays there while it is in flight, and is looked at before it is asked
/// whether it still is. May wait as [`load_record`].
pub(crate) fn before(
    core: &Core,
    txns: &Transactions,
    space: SpaceId,
    key: &[u8],
    value: &[u8],
    stamp: Stamp,
) -> Result<Option<Option<Vec<u8>>>, Error> {
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

/// What `record` leads back to; `None`: it does not.
fn undone(record: &[u8], space: SpaceId, key: &[u8], value: &[u8], stamp: Stamp) -> Option<Option<Vec<u8>>> {
    let record = UndoRecord::decode(record).filter(|record| record.txn == stamp.txn)?;
    let is_it = |change: &Undo<'_>| change.space == space && change.key() == key;
    let payload = |row: &[u8]| Row::decode(row).map(|row| (!row.is_deleted).then(|| row.payload.to_vec()));
    match record.changes().flatten().find(is_it)?.op {
        PageOp::Remove { .. } => Some(None),
        PageOp::Insert { value, .. } | PageOp::Replace { value, .. } => payload(value),
        PageOp::Patch { patch, .. } => payload(&patch.apply(value)?),
        _ => None,
    }
}
