//! Page changes that happen together or not at all.
//!
//! MTR-1  The pages of a mini-transaction stay latched exclusively from their first change until the group has its
//!        place in the log, they are counted dirty, and their LSNs are stamped.
//! MTR-2  Room in the log is had before the first latch; a mini-transaction that has begun to change pages cannot fail.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::apply::apply;
use crate::base::page::op::{PageOp, Reader};
use crate::pool::buffer_pool::Pool;
use crate::pool::frame::PageWrite;
use crate::redo::log::{Log, LogCredit};
use crate::store::page_store::PageStore;

/// What a mini-transaction works on.
pub(crate) struct Core {
    pub(crate) store: Arc<PageStore>,
    pub(crate) pool: Pool,
    pub(crate) log: Log,
}

const RECORD_PAGE: u8 = 1;
const RECORD_DROP_SPACE: u8 = 2;

/// Bytes that a record adds to its page operation: kind, page id, previous LSN.
pub(crate) const RECORD_HEADER: usize = 17;

/// A record of a group's payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A change of a page whose LSN was `previous` before the group.
    Page { id: PageId, previous: Lsn, op: PageOp<'a> },
    /// A space is gone; earlier records of its pages do not matter any more.
    DropSpace(SpaceId),
}

impl<'a> Record<'a> {
    /// The records of a payload; `None` in the place of one that cannot be read, which is then the last.
    pub(crate) fn all(payload: &'a [u8]) -> impl Iterator<Item = Option<Record<'a>>> {
        let mut reader = Reader::new(payload);
        let mut broken = false;
        std::iter::from_fn(move || {
            if broken || reader.is_empty() {
                return None;
            }
            let record = Self::decode(&mut reader);
            broken = record.is_none();
            Some(record)
        })
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Record<'a>> {
        match reader.u8()? {
            RECORD_PAGE => {
                let id = PageId(reader.u64()?);
                let previous = Lsn(reader.u64()?);
                Some(Record::Page { id, previous, op: PageOp::decode(reader)? })
            }
            RECORD_DROP_SPACE => Some(Record::DropSpace(SpaceId(reader.u32()?))),
            _ => None,
        }
    }
}

/// A mini-transaction under way.
pub(crate) struct Mtr<'p> {
    log: &'p Log,
    pages: Vec<PageWrite<'p>>,
    payload: Vec<u8>,
}

impl<'p> Mtr<'p> {
    /// One over `pages`, which are latched and not yet changed.
    pub(crate) fn new(log: &'p Log, pages: Vec<PageWrite<'p>>) -> Self {
        Mtr { log, pages, payload: Vec::with_capacity(512) }
    }

    pub(crate) fn page(&self, index: usize) -> &PageWrite<'p> {
        &self.pages[index]
    }

    /// Changes page `index`, which is page `id`, and notes the operation.
    pub(crate) fn apply(&mut self, index: usize, id: PageId, op: &PageOp<'_>) -> Result<(), Error> {
        let page = &mut self.pages[index];
        let previous = page.lsn();
        if let Err(misfit) = apply(page.bytes_mut(), id, op) {
            // Earlier operations of this group are in the pages and will not be in the log: nothing may leave any more.
            let error = Error::Bug(format!("MTR-2: page {id} refused an operation: {misfit:?}").into());
            self.log.stop(&error);
            self.keep_in_memory();
            return Err(error);
        }
        self.payload.push(RECORD_PAGE);
        self.payload.extend_from_slice(&id.0.to_le_bytes());
        self.payload.extend_from_slice(&previous.0.to_le_bytes());
        op.encode(&mut self.payload);
        Ok(())
    }

    /// The pages hold changes that the log does not: as dirty ones they are not evicted, and reads stay consistent.
    fn keep_in_memory(&self) {
        let next = self.log.positions().next;
        for page in &self.pages {
            page.frame().mark_dirty(next);
        }
    }

    /// Notes that a space is dropped.
    pub(crate) fn drop_space(&mut self, space: SpaceId) {
        self.payload.push(RECORD_DROP_SPACE);
        self.payload.extend_from_slice(&space.0.to_le_bytes());
    }

    /// Gives the group its place in the log and releases the pages. Returns the group's end.
    pub(crate) fn commit(mut self, credit: LogCredit<'_>) -> Result<Lsn, Error> {
        let pages = &self.pages;
        let appended = self.log.append(credit, &self.payload, |start, _| {
            for page in pages {
                page.frame().mark_dirty(start);
            }
        });
        let end = match appended {
            Ok(end) => end,
            Err(error) => {
                // The log has stopped for good, so no page is written any more.
                self.keep_in_memory();
                return Err(error);
            }
        };
        for page in &mut self.pages {
            page.set_lsn(end);
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_end_at_the_first_that_cannot_be_read() {
        let mut payload = Vec::new();
        payload.push(RECORD_PAGE);
        payload.extend_from_slice(&5u64.to_le_bytes());
        payload.extend_from_slice(&7u64.to_le_bytes());
        PageOp::Remove { key: b"k" }.encode(&mut payload);
        payload.push(RECORD_DROP_SPACE);
        payload.extend_from_slice(&3u32.to_le_bytes());
        let all: Vec<_> = Record::all(&payload).collect();
        let page = Record::Page { id: PageId(5), previous: Lsn(7), op: PageOp::Remove { key: b"k" } };
        assert_eq!(all, [Some(page), Some(Record::DropSpace(SpaceId(3)))]);
        payload.push(99);
        assert_eq!(Record::all(&payload).last(), Some(None));
    }
}
