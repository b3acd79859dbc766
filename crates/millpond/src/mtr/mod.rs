//! Mini-transactions: page changes that happen together or not at all.
//!
//! MTR-1  The pages of a mini-transaction stay latched exclusively from their first change until the group has its
//!        place in the log, the pages are counted dirty, and their LSNs are stamped.
//! MTR-2  Log space is reserved before the first latch; a mini-transaction that has begun to change pages cannot fail.
//! MTR-3  The changes of one page are consecutive and form one record: redo processes each page by itself.
//! MTR-4  The operations, applied to the pages as they were before, give the changed pages, byte for byte (checked in
//!        debug builds).
//! MTR-5  A mini-transaction may change pages and get no place in the log (a panic, an operation that a page refuses).
//!        Its pages stay latched until the log has stopped, and stay in memory as dirty: no such change is ever
//!        written, nor read after a restart.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::apply::{Misfit, apply};
use crate::base::page::op::PageOp;
use crate::base::page::reader::Reader;
use crate::pool::pin::PageWrite;
use crate::redo::credits::LogCredit;
use crate::redo::group::GroupKind;
use crate::redo::log::Log;

pub(crate) const RECORD_PADDING: u8 = 0;
pub(crate) const RECORD_PAGE: u8 = 1;
pub(crate) const RECORD_DROP_SPACE: u8 = 2;
pub(crate) const RECORD_TXN: u8 = 5;

/// Bytes that a page's record adds to its operations: kind, page id, previous LSN, length.
pub(crate) const RECORD_HEADER: usize = 21;

/// Bytes of the record that names a transaction.
pub(crate) const TXN_LEN: usize = 1 + TxnId::LEN;

/// Offset of the length in a page's record.
const LEN_AT: usize = 17;

/// A record of a group's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Changes of a page, as encoded operations. The page's LSN was `previous` before the group.
    Page { id: PageId, previous: Lsn, ops: &'a [u8] },
    /// A space is dropped; earlier records of its pages no longer matter.
    DropSpace(SpaceId),
    /// The transaction of the group, whose first group in the log this is.
    Txn(TxnId),
    /// No content, to the payload's end.
    Padding,
}

impl<'a> Record<'a> {
    /// The records of a payload. An unreadable record yields `None`, and ends the iteration.
    pub(crate) fn all(payload: &'a [u8]) -> impl Iterator<Item = Option<Record<'a>>> {
        each(payload, Self::decode)
    }

    /// The operations of a page's record, in the same way.
    pub(crate) fn ops(ops: &'a [u8]) -> impl Iterator<Item = Option<PageOp<'a>>> {
        each(ops, PageOp::decode)
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Record<'a>> {
        match reader.u8()? {
            RECORD_PAGE => {
                let id = PageId(reader.u64()?);
                let previous = Lsn(reader.u64()?);
                let len = usize::try_from(reader.u32()?).ok()?;
                Some(Record::Page { id, previous, ops: reader.take(len)? })
            }
            RECORD_DROP_SPACE => Some(Record::DropSpace(SpaceId(reader.u32()?))),
            RECORD_TXN => Some(Record::Txn(TxnId::from_bytes(*reader.take(TxnId::LEN)?.first_chunk()?))),
            RECORD_PADDING => {
                reader.rest();
                Some(Record::Padding)
            }
            _ => None,
        }
    }
}

fn each<'a, T>(bytes: &'a [u8], decode: impl Fn(&mut Reader<'a>) -> Option<T>) -> impl Iterator<Item = Option<T>> {
    let mut reader = Reader::new(bytes);
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken || reader.is_empty() {
            return None;
        }
        let item = decode(&mut reader);
        broken = item.is_none();
        Some(item)
    })
}

/// Whether the operations begin by formatting the page: then its old contents do not matter.
pub(crate) fn formats(ops: &[u8]) -> bool {
    PageOp::is_init(ops)
}

/// Whether the operations free the page: then neither its contents nor its images matter any more.
pub(crate) fn frees(ops: &[u8]) -> bool {
    PageOp::is_free(ops)
}

/// Applies the operations of one record to a page. `Err`: damage in recovery, a bug otherwise.
pub(crate) fn replay(page: &mut [u8], id: PageId, ops: &[u8]) -> Result<(), String> {
    for op in Record::ops(ops) {
        let op = op.ok_or("an operation that is none")?;
        apply(page, id, &op).map_err(|misfit: Misfit| format!("the page does not take its change ({misfit:?})"))?;
    }
    Ok(())
}

/// A mini-transaction under way.
pub(crate) struct Mtr<'p> {
    log: &'p Log,
    pages: SmallVec<[PageWrite<'p>; 4]>,
    /// The thread's own buffer. Drop puts it back into `PAYLOAD`.
    payload: Vec<u8>,
    /// Index of the page whose record is being written, and the record's begin in `payload`.
    open: Option<(usize, usize)>,
    /// Indexes of the pages that have a record. The other pages were only read.
    changed: SmallVec<[usize; 4]>,
    /// Debug builds: indexes and bytes of the pages before their change (MTR-4).
    before: Vec<(usize, Vec<u8>)>,
    /// The changes are in the log.
    is_logged: bool,
}

/// Keeps the checkpoint before a group until the caller has done what the group announces.
#[must_use]
pub(crate) struct Hold<'p> {
    log: &'p Log,
    start: Lsn,
}

impl Hold<'_> {
    /// The group's begin.
    pub(crate) fn start(&self) -> Lsn {
        self.start
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.log.counts.remove(self.start);
    }
}

thread_local! {
    /// Memory for the next mini-transaction's records.
    static PAYLOAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Most bytes of payload memory that a thread keeps.
const PAYLOAD_KEPT: usize = 64 << 10;

impl Drop for Mtr<'_> {
    /// MTR-5: runs before the latches of `pages` are released.
    fn drop(&mut self) {
        if !self.is_logged && !self.changed.is_empty() && !planted!("unlogged_change_stays") {
            self.log.stop(&Error::Bug("a thread ended between the change of a page and its place in the log".into()));
            self.keep_in_memory();
        }
        let mut payload = std::mem::take(&mut self.payload);
        if payload.capacity() <= PAYLOAD_KEPT {
            payload.clear();
            // A thread that is ending may have lost its thread-locals.
            let _ = PAYLOAD.try_with(|place| place.set(payload));
        }
    }
}

impl<'p> Mtr<'p> {
    /// A mini-transaction over `pages`, which are latched and not yet changed.
    pub(crate) fn new(log: &'p Log, pages: impl IntoIterator<Item = PageWrite<'p>>) -> Self {
        let pages = pages.into_iter().collect();
        Mtr {
            log,
            pages,
            payload: PAYLOAD.take(),
            open: None,
            changed: SmallVec::new(),
            before: Vec::new(),
            is_logged: false,
        }
    }

    pub(crate) fn page(&self, index: usize) -> &PageWrite<'p> {
        &self.pages[index]
    }

    /// Changes page `index`, which is page `id`, and notes the operation.
    pub(crate) fn apply(&mut self, index: usize, id: PageId, op: &PageOp<'_>) -> Result<(), Error> {
        if self.open.is_none_or(|(open, _)| open != index) {
            self.close_record();
            let previous = self.pages[index].lsn();
            self.open = Some((index, self.payload.len()));
            self.changed.push(index);
            self.payload.push(RECORD_PAGE);
            self.payload.extend_from_slice(&id.0.to_le_bytes());
            self.payload.extend_from_slice(&previous.0.to_le_bytes());
            self.payload.extend_from_slice(&[0; 4]);
            if cfg!(debug_assertions) {
                debug_assert!(self.before.iter().all(|(other, _)| *other != index), "MTR-3: page {id} came twice");
                self.before.push((index, self.pages[index].bytes().to_vec()));
            }
        }
        if let Err(misfit) = apply(self.pages[index].bytes_mut(), id, op) {
            // Earlier operations of this group are in the pages and will not be in the log: no page may be written any
            // more.
            let error = Error::Bug(format!("MTR-2: page {id} refused an operation: {misfit:?}").into());
            self.log.stop(&error);
            return Err(error);
        }
        op.encode(&mut self.payload);
        Ok(())
    }

    fn close_record(&mut self) {
        if let Some((_, begin)) = self.open.take() {
            let len = self.payload.len() - begin - RECORD_HEADER;
            let len = u32::try_from(len).expect("REDO-5: a group is shorter than the log buffer");
            self.payload[begin + LEN_AT..begin + RECORD_HEADER].copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Marks the pages dirty, since their changes are not in the log: they are not evicted, and reads stay consistent.
    fn keep_in_memory(&self) {
        let next = self.log.positions().next;
        for &index in &self.changed {
            self.pages[index].mark_dirty(next);
        }
    }

    /// Records that a space is dropped.
    pub(crate) fn drop_space(&mut self, space: SpaceId) {
        self.close_record();
        self.payload.push(RECORD_DROP_SPACE);
        self.payload.extend_from_slice(&space.0.to_le_bytes());
    }

    /// Records the group's transaction, so that no other transaction gets its id.
    pub(crate) fn note_txn(&mut self, txn: TxnId) {
        self.close_record();
        self.payload.push(RECORD_TXN);
        self.payload.extend_from_slice(&txn.to_bytes());
    }

    /// Gives the group its place in the log and releases the pages. Returns the group's end.
    pub(crate) fn commit(self, credit: LogCredit<'_>) -> Result<Lsn, Error> {
        self.commit_holding(credit).map(|(end, _)| end)
    }

    /// As [`commit`](Self::commit), and holds the checkpoint before the group as long as the caller keeps the [`Hold`].
    pub(crate) fn commit_holding(self, credit: LogCredit<'_>) -> Result<(Lsn, Hold<'p>), Error> {
        self.log_group(credit, |_| {}, |_| {})
    }

    /// As [`commit`](Self::commit), of a group that commits a transaction. `order` runs with the group's end inside the
    /// log's mutex, and `show` afterwards, before the pages are released.
    pub(crate) fn commit_in_order(
        self,
        credit: LogCredit<'_>,
        order: impl FnOnce(Lsn),
        show: impl FnOnce(Lsn),
    ) -> Result<Lsn, Error> {
        self.log_group(credit, order, show).map(|(end, _)| end)
    }

    fn log_group(
        mut self,
        credit: LogCredit<'_>,
        order: impl FnOnce(Lsn),
        show: impl FnOnce(Lsn),
    ) -> Result<(Lsn, Hold<'p>), Error> {
        self.close_record();
        if cfg!(debug_assertions) {
            self.check_replay();
        }
        let (log, pages, changed) = (self.log, &self.pages, &self.changed);
        let mut hold = None;
        let mark = |start| {
            log.counts.add(start);
            hold = Some(Hold { log, start });
            for &index in changed {
                pages[index].mark_dirty(start);
            }
        };
        let in_window = |us| pages.iter().for_each(|page| page.waited_in_window(us));
        let appended = log.append_latched(credit, GroupKind::Pages, &self.payload, order, mark, in_window);
        let (end, hold) = match (appended, hold) {
            (Ok(end), Some(hold)) => (end, hold),
            (appended, _) => {
                // MTR-5: the log has stopped for good, so no page is written any more.
                return Err(appended.err().unwrap_or_else(|| Error::Bug("REDO: a group was not marked".into())));
            }
        };
        // Only pages with a record: with another LSN, redo would miss the change behind it.
        for &index in &self.changed {
            self.pages[index].set_lsn(end);
        }
        self.is_logged = true;
        show(end);
        Ok((end, hold))
    }

    fn check_replay(&mut self) {
        for record in Record::all(&self.payload).flatten() {
            let Record::Page { id, ops, .. } = record else { continue };
            for (index, copy) in self.before.iter_mut().filter(|(index, _)| self.pages[*index].id() == id) {
                assert_eq!(replay(copy, id, ops), Ok(()), "MTR-4: page {id}");
                assert!(*copy == self.pages[*index].bytes(), "MTR-4: page {id} is not the result of its operations");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_at_the_first_that_cannot_be_read() {
        let mut ops = Vec::new();
        PageOp::Remove { key: b"k" }.encode(&mut ops);
        let mut payload = Vec::new();
        payload.push(RECORD_PAGE);
        payload.extend_from_slice(&5u64.to_le_bytes());
        payload.extend_from_slice(&7u64.to_le_bytes());
        payload.extend_from_slice(&u32::try_from(ops.len()).expect("short").to_le_bytes());
        assert_eq!(payload.len(), RECORD_HEADER);
        payload.extend_from_slice(&ops);
        payload.push(RECORD_DROP_SPACE);
        payload.extend_from_slice(&3u32.to_le_bytes());
        let all: Vec<_> = Record::all(&payload).collect();
        let page = Record::Page { id: PageId(5), previous: Lsn(7), ops: &ops };
        assert_eq!(all, [Some(page), Some(Record::DropSpace(SpaceId(3)))]);
        assert_eq!(Record::ops(&ops).collect::<Vec<_>>(), [Some(PageOp::Remove { key: b"k" })]);
        assert!(!formats(&ops));
        assert_eq!(Record::all(&[&payload[..], &[0; 9]].concat()).last(), Some(Some(Record::Padding)));
        payload.push(99);
        assert_eq!(Record::all(&payload).last(), Some(None));
    }
}
