//! Pins, which keep pages in their frames, and the guards that give access to pages.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use crossbeam_epoch::Guard;
use zerocopy::little_endian::U64;

use super::buffer_pool::Pool;
use super::frame::Frame;
use super::page_buf::PageBuf;
use crate::base::ids::{FrameId, Lsn, PageId};
use crate::base::laws::LatchHeld;
use crate::base::page::layout::{header, header_mut, page_lsn};
use crate::base::page::view::PageView;
use crate::base::sync::{ReadGuard, WriteGuard};
use crate::base::waits::{WaitClass, Waited, is_half, note_latch};

/// Keeps a page in its frame.
#[must_use]
pub(crate) struct Pin<'p> {
    pub(super) pool: &'p Pool,
    pub(super) frame: FrameId,
    pub(super) held_by: HeldBy,
}

/// The mechanism that keeps a pinned page in its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// The frame's number of pins.
    Count,
    /// The same, for a page writer: its own pins are no news to it, so their end rings no bell.
    Writer,
    /// The page's latch.
    Latch,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.held_by != HeldBy::Latch {
            // Release: pairs with the Acquire of the thread that evicts the page, so that this use of the page came
            // before.
            self.pool.frame(self.frame).pins.fetch_sub(1, Ordering::Release);
        }
        if self.held_by != HeldBy::Writer {
            self.pool.unpinned();
        }
    }
}

/// A pin without its pool, for a caller that keeps it from call to call. It is to be made a [`Pin`] again.
#[must_use = "the page stays in its frame until this is a `Pin` again"]
#[derive(Debug)]
pub(crate) struct KeptPin(FrameId);

impl Pool {
    /// The pin that was [kept](Pin::keep), of a page of this pool.
    pub(crate) fn kept(&self, KeptPin(frame): KeptPin) -> Pin<'_> {
        Pin { pool: self, frame, held_by: HeldBy::Count }
    }
}

impl<'p> Pin<'p> {
    /// Keeps the pin from call to call. `None`: it ends with a latch.
    pub(crate) fn keep(self) -> Option<KeptPin> {
        (self.held_by == HeldBy::Count).then(|| KeptPin(std::mem::ManuallyDrop::new(self).frame))
    }

    pub(crate) fn frame_id(&self) -> FrameId {
        self.frame
    }

    fn frame(&self) -> &'p Frame {
        self.pool.frame(self.frame)
    }

    /// Makes this a pin that outlives the latch. The page is latched.
    fn count(mut self) -> Self {
        if self.held_by == HeldBy::Latch {
            // Relaxed: eviction needs the latch, whose release orders this.
            self.frame().pins.fetch_add(1, Ordering::Relaxed);
            self.held_by = HeldBy::Count;
        }
        self
    }

    /// Waits for the page's latch, shared.
    pub(crate) fn read(self) -> PageRead<'p> {
        let page = &self.frame().page;
        let guard = page.try_read().unwrap_or_else(|| self.latched(|| page.read()));
        PageRead::new(guard, self)
    }

    /// Waits for the page's latch, exclusive.
    pub(crate) fn write(self) -> PageWrite<'p> {
        let page = &self.frame().page;
        let guard = page.try_write().unwrap_or_else(|| self.latched(|| page.write()));
        PageWrite::new(guard, self)
    }

    /// Waits for the page's latch. If its holders spent at least half of that time waiting for the window
    /// `recent_closed`, the wait is counted as a wait for the window instead.
    fn latched<G: Deref<Target = PageBuf>>(&self, wait: impl FnOnce() -> G) -> G {
        let window_us = || self.frame().in_window_us();
        let before_us = window_us();
        let mut took_ns = 0;
        let class_of = |ns: u64| {
            took_ns = ns;
            match is_half(window_us().wrapping_sub(before_us).into(), ns) {
                true => WaitClass::RecentClosed,
                false => WaitClass::PageLatch,
            }
        };
        let page = self.pool.waits.timed_as(WaitClass::PageLatch, || (true, wait()), class_of);
        if let Some(id) = self.frame().holds() {
            note_latch(id, header(&page).level, took_ns);
        }
        page
    }

    /// Latches the page exclusively, if the latch is free.
    pub(crate) fn try_write(self) -> Option<PageWrite<'p>> {
        let guard = self.frame().page.try_write()?;
        Some(PageWrite::new(guard, self))
    }

    /// Latches the page shared if the latch is free, else returns the pin.
    pub(crate) fn try_read(self) -> Result<PageRead<'p>, Pin<'p>> {
        match self.frame().page.try_read() {
            Some(guard) => Ok(PageRead::new(guard, self)),
            None => Err(self),
        }
    }
}

/// A page, latched shared. The latch is released before the pin: fields drop in order.
#[must_use]
pub(crate) struct PageRead<'p> {
    guard: ReadGuard<'p, PageBuf>,
    _held: LatchHeld,
    pin: Pin<'p>,
}

impl<'p> PageRead<'p> {
    pub(super) fn new(guard: ReadGuard<'p, PageBuf>, pin: Pin<'p>) -> Self {
        PageRead { guard, _held: LatchHeld::new(), pin }
    }

    pub(crate) fn view(&self) -> PageView<'_> {
        PageView::new(&self.guard)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.guard
    }

    pub(crate) fn lsn(&self) -> Lsn {
        page_lsn(&self.guard)
    }

    pub(crate) fn frame_id(&self) -> FrameId {
        self.pin.frame
    }

    /// Releases the latch, keeps the pin.
    pub(super) fn unlatch(self) -> Pin<'p> {
        self.pin.count()
    }

    /// Counts the time that this thread waited for the window since `before` for threads that wait for this page, too.
    pub(crate) fn pass_on(&self, before: Waited) {
        self.pin.frame().waited_in_window(before.elapsed_us());
    }

    /// Takes the frame's dirtiness while the latch is held, then releases the latch.
    pub(crate) fn take_dirtiness(self) -> (Pin<'p>, Option<Lsn>) {
        let taken = self.pin.pool.dirty.take(self.pin.frame);
        (self.unlatch(), taken)
    }

    /// Leaves a copy of this inner page for threads that look for its children.
    pub(crate) fn leave_route(&self, guard: &Guard) {
        self.pin.pool.leave_route(self.pin.frame, &self.guard, guard);
    }
}

/// A page, latched exclusively.
#[must_use]
pub(crate) struct PageWrite<'p> {
    guard: WriteGuard<'p, PageBuf>,
    _held: LatchHeld,
    pin: Pin<'p>,
}

impl<'p> PageWrite<'p> {
    pub(super) fn new(guard: WriteGuard<'p, PageBuf>, pin: Pin<'p>) -> Self {
        PageWrite { guard, _held: LatchHeld::new(), pin }
    }

    pub(crate) fn view(&self) -> PageView<'_> {
        PageView::new(&self.guard)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.guard
    }

    /// The bytes, to change. The route of an inner page is dropped: threads that look for children use the page itself
    /// until there is a new copy.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if !self.view().is_leaf() {
            self.pin.pool.clear_route(self.pin.frame);
        }
        &mut self.guard
    }

    pub(crate) fn frame_id(&self) -> FrameId {
        self.pin.frame
    }

    pub(crate) fn id(&self) -> PageId {
        PageId(header(&self.guard).page_id.get())
    }

    pub(crate) fn lsn(&self) -> Lsn {
        page_lsn(&self.guard)
    }

    /// Sets the page LSN: the end of the group that changed the page.
    pub(crate) fn set_lsn(&mut self, lsn: Lsn) {
        header_mut(&mut self.guard).page_lsn = U64::new(lsn.0);
    }

    /// Counts `us` microseconds of waiting for the window for threads that wait for this page's latch.
    pub(crate) fn waited_in_window(&self, us: u32) {
        self.pin.frame().waited_in_window(us);
    }

    /// Counts the time that this thread waited for the window since `before` for threads that wait for this page, too.
    pub(crate) fn pass_on(&self, before: Waited) {
        self.pin.frame().waited_in_window(before.elapsed_us());
    }

    /// Marks the page dirty from the group at `start` on, unless it is dirty already. Under the log's mutex (COUNT-1).
    pub(crate) fn mark_dirty(&self, start: Lsn) {
        self.pin.pool.dirty.mark(self.pin.frame, start);
    }

    /// Releases the latch, keeps the pin.
    pub(crate) fn unlatch(self) -> Pin<'p> {
        self.pin.count()
    }
}
