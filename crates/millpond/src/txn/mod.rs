//! Transactions: their ids, their undo records, and which of them are active.
//!
//! TXN-1  A transaction has its id before its first latch, and is active until its last group has its place in the log
//!        or all its changes are undone ([commit table](commit_table)). So a stamp below the oldest active id belongs
//!        to a committed transaction.
//! TXN-2  The record that undoes a change is in the group of the change.
//! TXN-3  Only the thread that has an undo page's slot appends to the page. The undo page is latched after leaves.
//! TXN-4  An undo page is given back, or passed to another slot, when three things hold. No slot has it, and each
//!        transaction with changes there has ended. Purge has gone through all of it. No reader needs it: each live
//!        snapshot sees those transactions, or all changes are cut out ([CHAIN-2](versions)).
//! TXN-5  A transaction of several groups has a header, a record that is in the log before its first change. The header
//!        says that the transaction is active until it is committed or all its changes are undone. Once that last
//!        header change is in the log, the transaction has ended.
//!
//! An undo page is a page of entries like a leaf. The key is the record's number in the page, two bytes, the largest
//! first. The value is the [record](record). Slots exist in memory only: at open the existing undo pages belong to no
//! slot, and are purged.
//!
//! A transaction that fits one group is that group. A transaction of several groups [locks](locks) the rows that it has
//! changed; readers meanwhile see [the rows before it](before), as readers of [snapshots] do. If it fails, or the
//! process ends, it becomes a [`Loser`](work::Loser), and its changes are undone. Beside old snapshots
//! [chains of versions](versions) stay short.

pub(crate) mod before;
pub(crate) mod commit_table;
#[cfg(test)]
mod commit_table_tests;
pub(crate) mod header;
pub(crate) mod lock_table;
pub(crate) mod locks;
pub(crate) mod own_changes;
mod primitives;
pub(crate) mod purge_queue;
pub(crate) mod record;
pub(crate) mod slot;
pub(crate) mod snapshots;
pub(crate) mod transactions;
pub(crate) mod versions;
pub(crate) mod view;
pub(crate) mod work;

use record::{Kind, UndoRecord};

use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::view::PageView;
use crate::base::row::Row;

/// The latest transaction that an entry of a leaf or of an undo page names: the last writer of the row, or the writer
/// of its chunks. (The value of an inner page is a page number: to read that as a row does no harm.)
pub(crate) fn txn_of(id: PageId, value: &[u8]) -> Option<TxnId> {
    match id.space() {
        SpaceId::CATALOG => None,
        SpaceId::UNDO => UndoRecord::decode(value).map(|record| record.txn),
        _ => {
            let row = Row::decode(value)?;
            row.stamp.map(|stamp| stamp.txn).max(row.reference().map(|reference| reference.txn))
        }
    }
}

/// Whether a page has the header of a transaction of several groups that has not ended.
pub(crate) fn begins_batch(id: PageId, page: PageView<'_>) -> bool {
    let is_header = |index| {
        let record = UndoRecord::decode(page.value(index));
        record.is_some_and(|record| record.kind == Kind::Header { is_active: true })
    };
    id.space() == SpaceId::UNDO && (0..page.len()).any(is_header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::row::{COLD_CHUNKED, Reference, Stamp};

    /// A row keeps its chunks when its stamp goes: the id of their transaction must never come again (ROW-3).
    #[test]
    fn row_without_a_stamp_names_the_transaction_of_its_chunks() {
        let id = PageId::new(SpaceId::FIRST, 0);
        let reference = Reference { txn: TxnId(7), number: 0, len: 9000 }.to_bytes();
        let head = |txn| Stamp { txn: TxnId(txn), undo: None }.head(false, true);
        assert_eq!(txn_of(id, &[&COLD_CHUNKED[..], &reference].concat()), Some(TxnId(7)));
        for (txn, latest) in [(6, 7), (9, 9)] {
            assert_eq!(txn_of(id, &[&head(txn)[..], &reference].concat()), Some(TxnId(latest)));
        }
        assert_eq!(txn_of(id, b"\0value"), None);
    }
}
