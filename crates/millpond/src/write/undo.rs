//! The undo records of a group: one in each undo page that it needs, and one for each [step](Link) of a shortcut
//! (CHAIN-1).
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
use crate::txn::slot::{Appended, Slot};
use crate::txn::versions::Link;
use crate::write::outcome::Obstacle;
use crate::write::plan::{Overwritten, Plan};

/// Bytes of a record's key: its number in the page.
const NUMBER_LEN: usize = size_of::<u16>();

/// Bytes of an undo page that are not counted on when the number of missing pages is estimated.
const NOT_COUNTED_ON: usize = 256;

/// The undo records of a group, and their latched pages, in the order of the slot's pages.
pub(crate) struct UndoPages<'p> {
    pub(super) pages: SmallVec<[PageWrite<'p>; 1]>,
    pub(super) records: SmallVec<[RecordPlan; 1]>,
    /// Bytes that the records take in the page that was latched last.
    used: usize,
    /// Their number there.
    count: usize,
}

/// A planned undo record.
pub(crate) struct RecordPlan {
    /// Index of its page in [`UndoPages::pages`].
    pub(super) page: usize,
    number: u16,
    content: Content,
}

/// What a record holds.
enum Content {
    /// Changes of the transaction.
    Own {
        kind: Kind,
        txn: TxnId,
        /// The changes that lead back, as a range of the slot's buffer.
        bytes: Range<usize>,
        changes: u32,
        /// Number of its rows that purge has to look at.
        marked_rows: usize,
    },
    /// The whole record of a step.
    Link(Vec<u8>),
}

impl RecordPlan {
    fn len(&self) -> usize {
        match &self.content {
            Content::Own { bytes, .. } => RECORD_HEAD_MAX + bytes.len(),
            Content::Link(record) => record.len(),
        }
    }

    /// Has `apply` append the record to its page. `undo` is the slot's buffer.
    pub(super) fn append<R>(&self, undo: &[u8], apply: impl FnOnce(&PageOp<'_>) -> R) -> R {
        let key = &self.number.to_be_bytes();
        match &self.content {
            Content::Own { kind, txn, bytes, .. } => {
                let mut record: SmallVec<[u8; 512]> = SmallVec::from_slice(&record_head(*kind, *txn));
                record.extend_from_slice(&undo[bytes.clone()]);
                apply(&PageOp::Insert { key, value: &record })
            }
            Content::Link(record) => apply(&PageOp::Insert { key, value: record }),
        }
    }

    /// The record, appended.
    pub(super) fn appended(&self) -> Appended {
        let (changes, marked_rows, is_own) = match self.content {
            Content::Own { changes, marked_rows, .. } => (changes, marked_rows, true),
            Content::Link(_) => (1, 0, false),
        };
        Appended { page: self.page, number: self.number, changes, marked_rows, is_own }
    }
}

impl<'p> UndoPages<'p> {
    /// Bytes of redo for the records.
    pub(super) fn redo_len(&self) -> usize {
        let op = PageOp::Insert { key: &[0; NUMBER_LEN], value: b"" }.encoded_len();
        self.records.iter().map(|record| RECORD_HEADER + op + record.len()).sum()
    }

    /// Whether the page that was latched last has room for another record of this length.
    fn has_room(&self, record_len: usize) -> bool {
        let Some(page) = self.pages.last() else { return false };
        self.used + entry_len(NUMBER_LEN, record_len) <= page.view().free_bytes()
    }

    /// The transaction's record in the page that was latched last, if more changes may be added to it.
    fn open_record(&self) -> Option<&RecordPlan> {
        let last = self.records.last().filter(|last| last.page + 1 == self.pages.len());
        last.filter(|last| matches!(last.content, Content::Own { .. }))
    }

    /// Latches the slot's next page. `left`: bytes for which there is no room yet.
    fn latch_next<'a>(&mut self, engine: &'p Engine, slot: &mut Slot<'_>, left: usize) -> Result<(), Obstacle<'p, 'a>> {
        let next = self.records.last().map_or(0, |record| record.page + 1);
        if self.pages.len() > next {
            // The page has no room even for one record: it is full.
            self.pages.truncate(next);
            slot.leave(next);
        }
        (self.used, self.count) = (0, 0);
        loop {
            let Some(page) = slot.pages().get(next) else {
                let capacity = engine.core.store.page_size() - NOT_COUNTED_ON;
                return Err(Obstacle::Undo(next + left.div_ceil(capacity)));
            };
            if let Some(pin) = engine.core.pool.fetch(page.id) {
                self.pages.push(pin.write());
                return Ok(());
            }
            // Reading the page would take longer than to use another.
            slot.leave(next);
        }
    }

    /// Adds a record, for which the page that was latched last has room.
    fn add(&mut self, content: Content) -> UndoRef {
        let page = self.pages.len() - 1;
        let number = u16::try_from(self.pages[page].view().len() + self.count).unwrap_or(u16::MAX);
        let record = RecordPlan { page, number, content };
        self.count += 1;
        self.used += entry_len(NUMBER_LEN, record.len());
        self.records.push(record);
        UndoRef { page: self.pages[page].id().number(), record: number }
    }

    /// Adds the records of a shortcut, from the last step on: each record names that of the next step. Returns the one
    /// that the overwritten version is to name.
    fn add_shortcut<'a>(
        &mut self,
        engine: &'p Engine,
        slot: &mut Slot<'_>,
        links: &mut [Link],
        left: usize,
    ) -> Result<Option<UndoRef>, Obstacle<'p, 'a>> {
        let mut next = None;
        for link in links.iter_mut().rev() {
            while !self.has_room(link.record_len()) {
                self.latch_next(engine, slot, left)?;
            }
            next = Some(self.add(Content::Link(link.record(next))));
        }
        Ok(next)
    }
}

/// Finds room for the changes that lead back in the slot's undo pages, and latches these after the leaves (TXN-3). Sets
/// in each planned change the undo record that leads back from it.
pub(super) fn find_undo_pages<'p, 'a>(
    engine: &'p Engine,
    slot: &mut Slot<'_>,
    plan: &mut Plan<'_>,
) -> Result<UndoPages<'p>, Obstacle<'p, 'a>> {
    let mut undo = UndoPages { pages: SmallVec::new(), records: SmallVec::new(), used: 0, count: 0 };
    let links_len = |overwritten: &Overwritten| -> usize {
        overwritten.shortcut.links.iter().map(|link| entry_len(NUMBER_LEN, link.record_len())).sum()
    };
    let mut left: usize = plan.changes.iter().map(|change| change.undo.len()).sum();
    left += plan.changes.iter().filter_map(|change| change.shortcut.as_deref()).map(links_len).sum::<usize>();
    let mut own_records = 0;
    // All shortcuts first: so the transaction's own changes share records.
    for overwritten in plan.changes.iter_mut().filter_map(|change| change.shortcut.as_deref_mut()) {
        let first = undo.add_shortcut(engine, slot, &mut overwritten.shortcut.links, left)?;
        let at = overwritten.names_at;
        slot.undo()[at..at + UndoRef::LEN].copy_from_slice(&UndoRef::to_bytes(first));
        left -= links_len(overwritten);
    }
    for change in plan.changes.iter_mut().filter(|change| !change.undo.is_empty()) {
        loop {
            let room = match undo.open_record() {
                // The record grows: what it has taken so far is counted already.
                Some(record) => {
                    let page = &undo.pages[record.page];
                    undo.used + change.undo.len() <= page.view().free_bytes()
                }
                None => undo.has_room(RECORD_HEAD_MAX + change.undo.len()),
            };
            if room {
                break;
            }
            undo.latch_next(engine, slot, left)?;
        }
        if undo.open_record().is_none() {
            let kind = slot.next_kind(own_records)?;
            own_records += 1;
            let bytes = change.undo.start..change.undo.start;
            undo.add(Content::Own { kind, txn: slot.txn(), bytes, changes: 0, marked_rows: 0 });
        }
        let page = undo.pages.len() - 1;
        if let Some(RecordPlan { number, content: Content::Own { bytes, changes, marked_rows, .. }, .. }) =
            undo.records.last_mut()
        {
            bytes.end = change.undo.end;
            *changes += 1;
            *marked_rows += usize::from(change.needs_purge);
            change.undo_ref = Some(UndoRef { page: undo.pages[page].id().number(), record: *number });
        }
        undo.used += change.undo.len();
        left -= change.undo.len();
    }
    Ok(undo)
}
