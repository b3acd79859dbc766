//! Frames, and the guards through which pages are seen and changed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use zerocopy::little_endian::U64;

use super::buffer_pool::Pool;
use crate::base::aligned::{AlignedBuf, aligned};
use crate::base::ids::{FrameId, Lsn, PageId};
use crate::base::page::layout::{header, header_mut, page_lsn};
use crate::base::page::view::PageView;
use crate::base::sync::{ReadGuard, RwLock, WriteGuard};

/// A place for one page.
pub(crate) struct Frame {
    /// The page, behind its latch. Without memory until the frame is used for the first time.
    pub(crate) page: RwLock<AlignedBuf>,
    /// Operations that need the page to stay. Raised under the table's mutex only.
    pub(crate) pins: AtomicU32,
    /// Used since the clock's hand passed last.
    pub(crate) used: AtomicBool,
}

impl Frame {
    /// The memory for a page, had when it is asked for first: a large pool opens at once.
    pub(super) fn buffer(page: &mut AlignedBuf, len: usize) -> &mut [u8] {
        if page.is_empty() {
            *page = aligned(len);
        }
        page
    }
}

/// Keeps a page in its frame.
#[must_use]
pub(crate) struct Pin<'p> {
    pub(super) pool: &'p Pool,
    pub(super) frame: FrameId,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of whoever evicts the frame, so that our use of the page came before.
        self.pool.frame(self.frame).pins.fetch_sub(1, Ordering::Release);
        self.pool.unpinned();
    }
}

impl<'p> Pin<'p> {
    pub(crate) fn frame(&self) -> &'p Frame {
        self.pool.frame(self.frame)
    }

    /// Waits for the page's latch, shared.
    pub(crate) fn read(self) -> PageRead<'p> {
        PageRead { guard: self.frame().page.read(), pin: self }
    }

    /// Waits for the page's latch, exclusive.
    pub(crate) fn write(self) -> PageWrite<'p> {
        PageWrite { guard: self.frame().page.write(), pin: self }
    }

    /// The page latched shared, or the pin back.
    pub(crate) fn try_read(self) -> Result<PageRead<'p>, Pin<'p>> {
        match self.frame().page.try_read() {
            Some(guard) => Ok(PageRead { guard, pin: self }),
            None => Err(self),
        }
    }

    /// The page latched exclusively, or the pin back.
    pub(crate) fn try_write(self) -> Result<PageWrite<'p>, Pin<'p>> {
        match self.frame().page.try_write() {
            Some(guard) => Ok(PageWrite { guard, pin: self }),
            None => Err(self),
        }
    }
}

/// A page, latched shared. The latch is released before the pin: fields drop in order.
#[must_use]
pub(crate) struct PageRead<'p> {
    guard: ReadGuard<'p, AlignedBuf>,
    pin: Pin<'p>,
}

impl<'p> PageRead<'p> {
    pub(crate) fn view(&self) -> PageView<'_> {
        PageView::new(&self.guard)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.guard
    }

    /// Releases the latch, keeps the pin.
    pub(crate) fn unlatch(self) -> Pin<'p> {
        self.pin
    }

    /// Takes the frame's dirtiness while the latch is still held, then releases the latch.
    pub(crate) fn take_dirtiness(self) -> (Pin<'p>, Option<Lsn>) {
        let taken = self.pin.pool.take_dirtiness(self.pin.frame);
        (self.unlatch(), taken)
    }
}

/// A page, latched exclusively.
#[must_use]
pub(crate) struct PageWrite<'p> {
    guard: WriteGuard<'p, AlignedBuf>,
    pin: Pin<'p>,
}

impl<'p> PageWrite<'p> {
    pub(crate) fn view(&self) -> PageView<'_> {
        PageView::new(&self.guard)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.guard
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.guard
    }

    /// The frame's memory, for a page that is not there yet.
    pub(super) fn buffer(&mut self, len: usize) -> &mut [u8] {
        Frame::buffer(&mut self.guard, len)
    }

    pub(crate) fn id(&self) -> PageId {
        PageId(header(&self.guard).page_id.get())
    }

    pub(crate) fn lsn(&self) -> Lsn {
        page_lsn(&self.guard)
    }

    /// Stamps the page LSN: the end of the group that changed the page.
    pub(crate) fn set_lsn(&mut self, lsn: Lsn) {
        header_mut(&mut self.guard).page_lsn = U64::new(lsn.0);
    }

    /// Marks the page dirty from the group at `start` on, unless it is dirty already. Under the log's mutex (COUNT-1).
    pub(crate) fn mark_dirty(&self, start: Lsn) {
        self.pin.pool.mark_dirty(self.pin.frame, start);
    }

    /// Releases the latch, keeps the pin.
    pub(crate) fn unlatch(self) -> Pin<'p> {
        self.pin
    }
}
