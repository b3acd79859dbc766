//! The lane of one: an operation that was restarted too often goes on alone and keeps its pages pinned.
//!
//! The wait for the lane ends when the operation in it leaves. If that operation spent at least half of this time
//! waiting for a free frame, the wait is counted as a wait for a frame instead.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::sync::{Rank, Turn, TurnGuard};
use crate::base::waits::{WaitClass, Waited, Waits, is_half};

/// The lane.
pub(super) struct Lane {
    turn: Turn<()>,
    /// Microseconds that operations in the lane waited for frames; each adds its own as it leaves.
    frame_us: AtomicU64,
}

/// Sole use of the lane, until dropped.
#[must_use]
pub(crate) struct InLane<'p> {
    lane: &'p Lane,
    before: Waited,
    _turn: TurnGuard<'p, ()>,
}

impl Lane {
    pub(super) fn new() -> Lane {
        Lane { turn: Turn::new(Rank::Lane, ()), frame_us: AtomicU64::new(0) }
    }

    /// Waits for the lane; callers hold nothing. Calls `behind` with the length of the wait in nanoseconds if it counts
    /// as a wait for a frame.
    pub(super) fn enter(&self, waits: &Waits, behind: impl FnOnce(u64)) -> InLane<'_> {
        // Relaxed: it is only compared with half of a wait's time.
        let frame_us = || self.frame_us.load(Ordering::Relaxed);
        let before_us = frame_us();
        let class_of = |ns: u64| {
            if !is_half(frame_us() - before_us, ns) {
                return WaitClass::Lane;
            }
            behind(ns);
            WaitClass::FreeFrame
        };
        let turn = waits.timed_as(WaitClass::Lane, || (true, self.turn.lock()), class_of);
        InLane { lane: self, before: Waited::on(WaitClass::FreeFrame), _turn: turn }
    }
}

impl Drop for InLane<'_> {
    fn drop(&mut self) {
        // The turn ends after this: the next holder sees the sum.
        self.lane.frame_us.fetch_add(self.before.elapsed_us().into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::simulation::{run, sleep_ns, spawn};

    /// One thread holds for 10 ms what another waits for, and itself waits for a frame for `frame_ms` of them. Returns
    /// how many waits there were of `class` and for frames, and whether `behind` was called for the other thread.
    pub(in crate::pool) fn behind<H>(
        class: WaitClass,
        frame_ms: u64,
        hold: impl FnOnce(&Waits) -> H,
        wait: impl FnOnce(&Waits, &mut dyn FnMut(u64)) + Send + 'static,
    ) -> (u64, u64, bool) {
        run(1, || {
            let waits = Arc::new(Waits::new(Duration::from_secs(1)));
            let held = hold(&waits);
            let of_second = Arc::clone(&waits);
            let second = spawn("second", move || {
                let mut is_behind = false;
                wait(&of_second, &mut |_| is_behind = true);
                is_behind
            });
            waits.timed(WaitClass::FreeFrame, || sleep_ns(frame_ms * 1_000_000));
            sleep_ns((10 - frame_ms) * 1_000_000);
            drop(held);
            let is_behind = second.expect("a thread").join().expect("no panic");
            let count = |class| waits.summary().iter().find(|of| of.class == class).map_or(0, |of| of.count);
            (count(class), count(WaitClass::FreeFrame), is_behind)
        })
        .0
    }

    fn behind_one_who_waits(frame_ms: u64) -> (u64, u64, bool) {
        let lane = Arc::new(Lane::new());
        let first = |waits: &Waits| lane.enter(waits, |_| ());
        let of_second = Arc::clone(&lane);
        behind(WaitClass::Lane, frame_ms, first, move |waits, told| drop(of_second.enter(waits, told)))
    }

    #[test]
    fn waiter_behind_a_frame_waiter_waits_for_a_frame() {
        // The first finds the lane free, and then waits for its own frame.
        assert_eq!(behind_one_who_waits(8), (1, 2, true));
        assert_eq!(behind_one_who_waits(2), (2, 1, false));
    }
}
