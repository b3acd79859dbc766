//! The undo records of a group: one in each undo page that it needs.
//!
//! [`find_undo_pages`] finds room for the planned changes in the pages of the transaction's [`Slot`] and latches these.
//! If the pages lack room, the caller adds pages with nothing held, and tries again.

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::ids::TxnId;
use crate::base::page::op::PageOp;
use crate::base::page::view::entry_len;
use crate::base::row::UndoRef;
use crate::engine::Engine;
use crate::mtr::RECORD_HEADER;
use crate::pool::pin::PageWrite;
use crate::txn::record::{Kind, RECORD_HEAD_MAX, record_head};
use crate::txn::slots::Slot;
use crate::write::outcome::Obstacle;
use crate::write::plan::Plan;

/// Bytes of a record's key: its number in the page.
const NUMBER_LEN: usize = size_of::<u16>();

/// Bytes of an undo page that are not counted on when the number of missing pages is estimated.
const NOT_COUNTED_ON: usize = 256;

/// The undo records of a group, and their latched pages, in the order of the slot's pages.
pub(crate) struct UndoPages<'p> {
    pub(super) pages: SmallVec<[PageWrite<'p>; 1]>,
    pub(super) records: SmallVec<[RecordPlan; 1]>,
}

/// A planned undo record.
pub(crate) struct RecordPlan {
    /// Index of its page in [`UndoPages::pages`].
    pub(super) page: usize,
    pub(super) number: u16,
    kind: Kind,
    /// The changes that lead back, as a range of the slot's buffer.
    changes: Range<usize>,
    /// Number of its rows that purge has to look at.
    pub(super) marked_rows: usize,
}

impl RecordPlan {
    fn len(&self) -> usize {
        RECORD_HEAD_MAX + self.changes.len()
    }

    /// Has `apply` append the record to its page.
    pub(super) fn append<R>(&self, txn: TxnId, undo: &[u8], apply: impl FnOnce(&PageOp<'_>) -> R) -> R {
        let mut record: SmallVec<[u8; 512]> = SmallVec::from_slice(&record_head(self.kind, txn));
        record.extend_from_slice(&undo[self.changes.clone()]);
        apply(&PageOp::Insert { key: &self.number.to_be_bytes(), value: &record })
    }
}

impl UndoPages<'_> {
    /// Bytes of redo for the records.
    pub(super) fn redo_len(&self) -> usize {
        let op = PageOp::Insert { key: &[0; NUMBER_LEN], value: b"" }.encoded_len();
        self.records.iter().map(|record| RECORD_HEADER + op + record.len()).sum()
    }

    /// Whether the page that was latched last has room for `more` bytes of changes.
    fn has_room(&self, more: usize) -> bool {
        let Some(page) = self.pages.last() else { return false };
        let last = self.records.last().filter(|record| record.page + 1 == self.pages.len());
        entry_len(NUMBER_LEN, last.map_or(RECORD_HEAD_MAX, RecordPlan::len) + more) <= page.view().free_bytes()
    }
}

/// Finds room for the changes that lead back in the slot's undo pages, and latches these after the leaves (TXN-3). Sets
/// in each planned change the undo record that leads back from it.
pub(super) fn find_undo_pages<'p, 'a>(
    engine: &'p Engine,
    slot: &mut Slot<'_>,
    plan: &mut Plan<'_>,
) -> Result<UndoPages<'p>, Obstacle<'p, 'a>> {
    let mut undo = UndoPages { pages: SmallVec::new(), records: SmallVec::new() };
    let mut left: usize = plan.changes.iter().map(|change| change.undo.len()).sum();
    for change in plan.changes.iter_mut().filter(|change| !change.undo.is_empty()) {
        while !undo.has_room(change.undo.len()) {
            let next = undo.records.last().map_or(0, |record| record.page + 1);
            if undo.pages.len() > next {
                // The page has no room even for one change: it is full.
                undo.pages.truncate(next);
                slot.leave(next);
            }
            let Some(&id) = slot.pages().get(next) else {
                let capacity = engine.core.store.page_size() - NOT_COUNTED_ON;
                return Err(Obstacle::Undo(next + left.div_ceil(capacity)));
            };
            match engine.core.pool.fetch(id) {
                Some(pin) => undo.pages.push(pin.write()),
                // Reading the page would take longer than to use another.
                None => slot.leave(next),
            }
        }
        let page = undo.pages.len() - 1;
        let is_open = undo.records.last().is_some_and(|record| record.page == page);
        if !is_open {
            let number = u16::try_from(undo.pages[page].view().len()).unwrap_or(u16::MAX);
            let changes = change.undo.start..change.undo.start;
            let kind = slot.next_kind(undo.records.len());
            undo.records.push(RecordPlan { page, number, kind, changes, marked_rows: 0 });
        }
        if let Some(record) = undo.records.last_mut() {
            record.changes.end = change.undo.end;
            record.marked_rows += usize::from(change.needs_purge);
            change.undo_ref = Some(UndoRef { page: undo.pages[page].id().number(), record: record.number });
        }
        left -= change.undo.len();
    }
    Ok(undo)
}
