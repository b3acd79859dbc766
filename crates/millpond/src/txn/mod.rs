//! Transactions: their ids, their undo records, and which of them are active.
//!
//! TXN-1  A transaction has its id before its first latch, and is active until its last group has its place in the log.
//!        So a stamp below the oldest active id is of a transaction that is committed.
//! TXN-2  What undoes a change is in the group of the change.
//! TXN-3  An undo page is appended to by whoever has its slot, and by nobody else. It is latched behind leaves.
//! TXN-4  An undo page is given back, or to another slot, when no slot has it, no transaction that is active has
//!        records there, and purge went through all of it.
//! TXN-5  A transaction of several groups has a header, a record that is in the log before its first change. It says
//!        that the transaction is active, until that is committed or all its changes are undone: with that in the log
//!        it is.
//!
//! An undo page is a page of entries like a leaf: the key is the record's number in the page, two bytes, the largest
//! first; the value is the [record](record). Which slots there are is known in memory only: at open the undo pages that
//! are there belong to none, and are purged.
//!
//! A transaction that fits one group is that group. One of several groups [locks](locks) the rows that it has changed;
//! who reads them meanwhile looks at [what was before](before). If it fails, or the process ends, it becomes a
//! [`Loser`](slots::Loser), and its changes are undone.

pub(crate) mod before;
pub(crate) mod locks;
pub(crate) mod purge_queue;
pub(crate) mod record;
pub(crate) mod slots;

use record::{Kind, UndoRecord};

use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::view::PageView;
use crate::base::row::Row;

/// The latest transaction that an entry of a leaf or of an undo page names: who changed a row last, and who wrote its
/// chunks. (The value of an inner page is a page number: what it is taken for, does no harm.)
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

    /// The chunks of a row stay when its stamp goes: their transaction must not come again, ever (ROW-3).
    #[test]
    fn a_row_names_the_transaction_of_its_chunks_also_without_a_stamp() {
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
