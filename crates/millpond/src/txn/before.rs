//! Rows as a reader sees them that must not see the newest version: before a transaction in flight changed them, or
//! at a snapshot.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::record::{Undo, UndoRecord};
use super::transactions::Transactions;
use super::view::View;
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::op::PageOp;
use crate::base::page::view::PageView;
use crate::base::row::{Reference, Row, Stamp, UndoRef};
use crate::core::Core;

/// The bytes of an undo record; `None`: there is no such record. May wait on `page_read` and `free_frame`; callers hold
/// nothing.
pub(crate) fn load_record(core: &Core, at: UndoRef) -> Result<Option<SmallVec<[u8; 512]>>, Error> {
    let page = core.pool.load(PageId::new(SpaceId::UNDO, at.page))?.read();
    Ok(record_at(page.view(), at.record).map(SmallVec::from_slice))
}

/// The bytes of record `number` of an undo page; `None`: there is no such record. Records have no gaps, so that a
/// record's number is its index.
pub(super) fn record_at(page: PageView<'_>, number: u16) -> Option<&[u8]> {
    let index = usize::from(number);
    (page.is_leaf() && index < page.len()).then(|| page.value(index))
}

/// A row as it was before a transaction.
pub(crate) struct Before {
    pub(crate) payload: Vec<u8>,
    /// Where the payload is, if it is in chunks.
    pub(crate) reference: Option<Reference>,
}

/// What a reader sees of a row whose newest version is hidden from it.
pub(crate) enum Hidden {
    /// This row.
    Row(Before),
    /// No row.
    NoRow,
    /// The newest version is not hidden any more: the row is to be read again.
    Again,
    /// An undo record is missing. Either the row has changed, or the database is damaged ([CHAIN-2](super::versions)).
    Missing(Error),
}

impl Hidden {
    fn row(row: &[u8]) -> Hidden {
        before_of(row).map_or(Hidden::NoRow, Hidden::Row)
    }
}

/// The row of `key`, which was `value` a moment ago with a stamp that the view hides, as the reader sees it.
///
/// The records lead back version by version. For the newest rows they lead to the row before the transaction of
/// `stamp`, which is in flight and may have changed the row several times; for a snapshot, to a version of a visible
/// transaction. Callers have released the leaf. May wait as [`load_record`].
pub(crate) fn before(
    core: &Core,
    txns: &Transactions,
    space: SpaceId,
    key: &[u8],
    value: &[u8],
    stamp: Stamp,
    view: View,
) -> Result<Hidden, Error> {
    let step = |value: &[u8], stamp: Stamp| match stamp.undo {
        Some(at) => match load_record(core, at) {
            Ok(record) => {
                let older = record.and_then(|record| undone(&record, space, key, value, stamp));
                Ok(older.ok_or_else(|| no_record(stamp)))
            }
            // A page without an image has been given back.
            Err(error @ Error::Corruption(_)) => Ok(Err(error)),
            Err(error) => Err(error),
        },
        // There was no row before.
        None => Ok(Ok(None)),
    };
    // A transaction that was hidden once stays so for the whole walk, also when it is undone meanwhile.
    let newest = stamp.txn;
    let (mut version, mut stamp, mut steps) = (Cow::Borrowed(value), stamp, 0);
    let row = loop {
        steps += 1;
        let older = step(&version, stamp)?;
        // The newest rows: a transaction's records stay in the undo pages while it is in flight. So each is read first,
        // and then this checks whether the transaction still is.
        if view.at.is_none() && !txns.hides(view, newest) {
            return Ok(Hidden::Again);
        }
        match older {
            Ok(Some(older)) => version = Cow::Owned(older),
            Ok(None) => break Hidden::NoRow,
            Err(missing) if view.at.is_some() => return Ok(Hidden::Missing(missing)),
            Err(missing) => return Err(missing),
        }
        let hides = |stamp: &Stamp| stamp.txn == newest || txns.hides(view, stamp.txn);
        match Row::decode(&version).and_then(|row| row.stamp).filter(hides) {
            Some(older) => stamp = older,
            None => break Hidden::row(&version),
        }
    };
    if view.at.is_some() {
        txns.snapshots.walks.note(steps);
    }
    Ok(row)
}

#[cold]
fn no_record(stamp: Stamp) -> Error {
    let message = format!("the undo record of a row of transaction {} is not there: run `millpond check`", stamp.txn);
    Error::Corruption(message.into())
}

/// The payload of a version; `None`: it is deleted.
fn before_of(row: &[u8]) -> Option<Before> {
    let row = Row::decode(row)?;
    (!row.is_deleted).then(|| Before { payload: row.payload.to_vec(), reference: row.reference() })
}

/// The whole row that `record` restores; `Some(None)`: none. `None`: the record does not lead back from this row.
pub(super) fn undone(record: &[u8], space: SpaceId, key: &[u8], value: &[u8], stamp: Stamp) -> Option<Option<Vec<u8>>> {
    let record = UndoRecord::decode(record).filter(|record| record.txn == stamp.txn)?;
    let is_it = |change: &Undo<'_>| change.space == space && change.key() == key;
    match record.changes().flatten().find(is_it)?.op {
        PageOp::Remove { .. } => Some(None),
        PageOp::Insert { value, .. } | PageOp::Replace { value, .. } => Some(Some(value.to_vec())),
        PageOp::Patch { patch, .. } => Some(Some(patch.apply(value)?.into_vec())),
        _ => None,
    }
}
