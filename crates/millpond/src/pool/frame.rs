//! Frames: memory for a page each, with its latch and the state of the page in it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crossbeam_epoch::{Atomic, Guard, Owned, Shared, pin, unprotected};

use super::page_buf::PageBuf;
use super::route::Route;
use crate::base::clock;
use crate::base::ids::PageId;
use crate::base::sync::RwLock;

/// No page has this id.
const NO_PAGE: u64 = u64::MAX;

/// The largest heat of a page. A use of a page this hot is not told to [replacement](super::replacement).
pub(super) const HEAT_MAX: u8 = 3;

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

    /// Counts `us` microseconds for which a holder of the page's latch has just waited for the window `recent_closed`.
    pub(super) fn waited_in_window(&self, us: u32) {
        if us > 0 {
            self.in_window.add(us, now_us());
        }
    }

    /// The time for which holders of the page's latch waited for the window, in microseconds; wraps.
    pub(super) fn in_window_us(&self) -> u32 {
        self.in_window.us()
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
