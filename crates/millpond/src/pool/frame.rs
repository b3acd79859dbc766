//! Frames, and the guards that give access to pages.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared, pin, unprotected};
use zerocopy::little_endian::U64;

use super::buffer_pool::Pool;
use super::memory::PageBuf;
use super::replacement::HEAT_MAX;
use super::route::Route;
use crate::base::clock;
use crate::base::ids::{FrameId, Lsn, PageId};
use crate::base::laws::LatchHeld;
use crate::base::page::layout::{header, header_mut, page_lsn};
use crate::base::page::view::PageView;
use crate::base::sync::{ReadGuard, RwLock, WriteGuard};
use crate::base::waits::{WaitClass, Waited, is_half, note_latch};

/// No page has this id.
const NO_PAGE: u64 = u64::MAX;

/// Microseconds in which at least one holder of a page's latch waited for the window `recent_closed`; wraps. Each
/// waiter reports its wait as it ends. Only the part after the end of the last report counts, so that waits that
/// overlap count once.
#[derive(Default)]
struct WindowTime {
    us: AtomicU32,
    /// The end of the last report, on a microsecond clock that wraps, too.
    told_us: AtomicU32,
}

impl WindowTime {
    /// Adds a wait of `us` that ends at `now_us`.
    fn add(&self, us: u32, now_us: u32) {
        // Relaxed, and in two steps: the sum is only compared with half of a wait's time.
        let told_us = self.told_us.swap(now_us, Ordering::Relaxed);
        self.us.fetch_add(us.min(now_us.wrapping_sub(told_us)), Ordering::Relaxed);
    }

    fn us(&self) -> u32 {
        self.us.load(Ordering::Relaxed)
    }
}

/// The clock of [`WindowTime`]: microseconds; wraps.
#[expect(clippy::cast_possible_truncation, reason = "it goes round")]
fn now_us() -> u32 {
    (clock::now_ns() / 1_000) as u32
}

/// A frame: memory for one page, with its state.
#[repr(align(64))]
pub(crate) struct Frame {
    /// The page, behind its latch.
    pub(super) page: RwLock<PageBuf>,
    /// The id of the page in the frame; [`NO_PAGE`]: none, or not yet. Changed with the page latched exclusively and
    /// under the mutex of the page's table shard.
    holds: AtomicU64,
    /// Number of operations that need the page to stay. Raised under the shard's mutex, or with the page latched.
    pub(super) pins: AtomicU32,
    /// Uses since replacement last looked, [`HEAT_MAX`] at most.
    heat: AtomicU8,
    /// Whether the frame is beyond the pool's end and no thread uses it.
    retired: AtomicBool,
    /// Time for which a holder of the page's latch waited for the window `recent_closed`.
    in_window: WindowTime,
    /// A copy of the inner page in the frame, or null.
    route: Atomic<Route>,
}

impl Frame {
    pub(super) fn new(page: PageBuf) -> Frame {
        Frame {
            page: RwLock::new(page),
            holds: AtomicU64::new(NO_PAGE),
            pins: AtomicU32::new(0),
            heat: AtomicU8::new(0),
            retired: AtomicBool::new(true),
            in_window: WindowTime::default(),
            route: Atomic::null(),
        }
    }

    /// The id of the page in the frame.
    pub(super) fn holds(&self) -> Option<PageId> {
        // Acquire: pairs with `set_holds`, so that a thread that finds the id also finds the page's contents.
        let id = self.holds.load(Ordering::Acquire);
        (id != NO_PAGE).then_some(PageId(id))
    }

    pub(super) fn set_holds(&self, page: Option<PageId>) {
        self.holds.store(page.map_or(NO_PAGE, |id| id.0), Ordering::Release);
    }

    /// Sets whether the frame is out of use; returns whether it was.
    pub(super) fn set_retired(&self, retired: bool) -> bool {
        self.retired.swap(retired, Ordering::Relaxed)
    }

    /// Whether the page's heat is [`HEAT_MAX`].
    pub(super) fn is_hot(&self) -> bool {
        self.heat() >= HEAT_MAX
    }

    /// Notes a use of the page.
    pub(super) fn warm(&self) {
        // Relaxed, and in two steps: one use more or less does not matter.
        let heat = self.heat.load(Ordering::Relaxed);
        if heat < HEAT_MAX {
            self.heat.store(heat + 1, Ordering::Relaxed);
        }
    }

    /// Lowers the heat by one; returns the heat before.
    pub(super) fn cool(&self) -> u8 {
        let heat = self.heat.load(Ordering::Relaxed);
        self.heat.store(heat.saturating_sub(1), Ordering::Relaxed);
        heat
    }

    /// Sets the heat to 0; returns the heat before.
    pub(super) fn reset_heat(&self) -> u8 {
        self.heat.swap(0, Ordering::Relaxed)
    }

    pub(super) fn heat(&self) -> u8 {
        self.heat.load(Ordering::Relaxed)
    }

    /// The copy of the inner page in the frame.
    pub(super) fn route<'g>(&self, guard: &'g Guard) -> Option<&'g Route> {
        // Acquire: pairs with `set_route`.
        let shared = self.route.load(Ordering::Acquire, guard);
        #[expect(unsafe_code, reason = "epochs: a route loaded under a guard lives as long as the guard")]
        // SAFETY: a route is destroyed only by `clear_route`, two epochs after it was taken out.
        unsafe {
            shared.as_ref()
        }
    }

    /// Whether the frame has a copy.
    pub(super) fn has_route(&self) -> bool {
        #[expect(unsafe_code, reason = "epochs: a look at the address alone needs no guard")]
        // SAFETY: the loaded pointer is compared with null, and not followed.
        let route = self.route.load(Ordering::Relaxed, unsafe { unprotected() });
        !route.is_null()
    }

    /// Sets the copy. The caller has the page latched, so it does not change. Of several readers one wins.
    pub(super) fn set_route(&self, route: Route, guard: &Guard) -> bool {
        let null = Shared::null();
        self.route.compare_exchange(null, Owned::new(route), Ordering::Release, Ordering::Relaxed, guard).is_ok()
    }

    /// Forgets the copy. The caller has the page latched exclusively.
    pub(super) fn clear_route(&self) -> Option<usize> {
        if !self.has_route() {
            return None;
        }
        let guard = pin();
        let old = self.route.swap(Shared::null(), Ordering::AcqRel, &guard);
        #[expect(unsafe_code, reason = "epochs: the thread that takes it out destroys it, later")]
        // SAFETY: `old` came out of the only place where readers find it, so no new reader gets it. The destruction
        // waits for the guards of the readers that have it.
        unsafe {
            let len = old.as_ref().map(Route::len);
            if !old.is_null() {
                guard.defer_destroy(old);
                // Flush at once: otherwise a thread keeps up to 64 deferred routes for itself, of a page each.
                guard.flush();
            }
            len
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let _ = self.clear_route();
    }
}

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

impl<'p> Pin<'p> {
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

    fn waited_in_window(&self, us: u32) {
        if us > 0 {
            self.frame().in_window.add(us, now_us());
        }
    }

    /// Waits for the page's latch. If its holders spent at least half of that time waiting for the window
    /// `recent_closed`, the wait is counted as a wait for the window instead.
    fn latched<G: Deref<Target = PageBuf>>(&self, wait: impl FnOnce() -> G) -> G {
        let window_us = || self.frame().in_window.us();
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

    pub(crate) fn frame_id(&self) -> FrameId {
        self.pin.frame
    }

    /// Releases the latch, keeps the pin.
    pub(super) fn unlatch(self) -> Pin<'p> {
        self.pin.count()
    }

    /// Counts the time that this thread waited for the window since `before` for threads that wait for this page, too.
    pub(crate) fn pass_on(&self, before: Waited) {
        self.pin.waited_in_window(before.elapsed_us());
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
        self.pin.waited_in_window(us);
    }

    /// Counts the time that this thread waited for the window since `before` for threads that wait for this page, too.
    pub(crate) fn pass_on(&self, before: Waited) {
        self.pin.waited_in_window(before.elapsed_us());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_window_is_a_union_over_concurrent_waiters() {
        let of = WindowTime::default();
        // Three threads wait from 1,000 to 1,100, and one of them on to 1,150.
        for _ in 0..3 {
            of.add(100, 1_100);
        }
        of.add(50, 1_150);
        assert_eq!(of.us(), 150);
        // One thread waits from 1,120 to 1,200: only the part after 1,150 counts.
        of.add(80, 1_200);
        assert_eq!(of.us(), 200);
        // After a pause all of a wait counts, also where the clock has wrapped.
        of.add(10, 2_000);
        of.add(u32::MAX, 1_000);
        assert_eq!(of.us(), 210_u32.wrapping_add(1_000_u32.wrapping_sub(2_000)));
        let round = WindowTime::default();
        round.add(10, u32::MAX);
        round.add(30, 19);
        assert_eq!(round.us(), 30, "ten, and the twenty after them");
    }
}
