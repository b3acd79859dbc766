//! The LRU manager of Percona Server: one thread for each instance. It refills the instance's free frames from the tail
//! of its list. Between passes it sleeps for a time of its own choice, even while threads wait for frames.
//!
//! The sleep starts at one second. A pass that begins with less than a twentieth of the target free is followed by the
//! next at once, if the pass before it freed frames. Each pass that begins with more than a fifth free lengthens the
//! sleep by a millisecond. So `t` ms after frames ran out the sleep is about `sqrt(2t)` ms, since 1 + 2 + ... + n is
//! `n(n + 1) / 2`. A thread that then finds no frame waits for the rest of that sleep.

use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::pin::Pin;
use super::replacement::{Scan, Wanted};
use super::residence::Evicted;

/// The longest sleep in milliseconds, and the first one.
const LONGEST_MS: u64 = 1_000;

/// At most this part of an instance's frames is kept free, as a divisor.
const FREE_SHARE: usize = 4;

/// The LRU manager's sleep, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdaptiveSleep {
    pub(crate) ms: u64,
}

impl Default for AdaptiveSleep {
    fn default() -> Self {
        AdaptiveSleep { ms: LONGEST_MS }
    }
}

impl AdaptiveSleep {
    /// No sleep: threads may be waiting already.
    pub(crate) fn awake() -> AdaptiveSleep {
        AdaptiveSleep { ms: 0 }
    }

    /// Adapts the sleep before a pass that begins with `free` of `target` frames free. `made`: the pass before freed
    /// some.
    pub(crate) fn adapt(&mut self, free: usize, target: usize, made: bool) {
        if free * 20 < target && made {
            self.ms = 0;
        } else if free * 5 > target {
            self.ms = (self.ms + 1).min(LONGEST_MS);
        }
    }
}

impl Pool {
    /// The number of free frames of an instance, and its target.
    pub(crate) fn free_in(&self, at: usize) -> (usize, usize) {
        (self.instances[at].free.len(), self.target() / self.instances.len())
    }

    /// The number of free frames that an instance is refilled to, where `wanted` is the target for all instances. Two
    /// at least: a split needs two at once.
    pub(super) fn refilled_to(&self, wanted: usize) -> usize {
        let several = self.instances.len();
        if wanted == 0 { 0 } else { (wanted / several).min(self.len() / several / FREE_SHARE).max(2) }
    }

    /// Scans an instance's list from the tail, and frees clean pages until the target is free. Returns how many it
    /// freed, and the dirty pages in the way, pinned, at most `lot`. Once they are written,
    /// [`free_cleaned`](Self::free_cleaned) frees them. `scan` keeps the position.
    pub(crate) fn lru_pass(&self, at: usize, scan: &mut Scan, lot: usize) -> (usize, Vec<Pin<'_>>) {
        let replacement = &self.instances[at].replacement;
        let (mut freed, mut dirty) = (0, Vec::new());
        let steps = scan.steps;
        while dirty.len() < lot
            && self.is_short_in(at, dirty.len())
            && let Some((frame, queue)) = replacement.candidate(scan, self)
        {
            match self.evict_candidate(frame, queue) {
                Evicted::Free(_) => {
                    self.give(frame);
                    freed += 1;
                }
                Evicted::InUse => {}
                Evicted::Dirty => dirty.extend(self.pin_dirty(&[frame])),
            }
        }
        self.counters.swept(steps - scan.steps, freed);
        (freed, dirty)
    }

    fn is_short_in(&self, at: usize, coming: usize) -> bool {
        let (free, target) = self.free_in(at);
        free + coming < target
    }

    /// A search of an instance's list as deep as `lru_scan_depth` says.
    pub(crate) fn lru_scan(&self) -> Scan {
        Scan::new(Wanted::Any, self.lru_scan_depth.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sleep `quiet_ms` milliseconds after frames ran out, with a target of 1,024.
    fn sleep_after(quiet_ms: u64) -> u64 {
        let mut sleep = AdaptiveSleep::default();
        sleep.adapt(0, 1024, true);
        assert_eq!(sleep.ms, 0);
        let mut now = 0;
        while now + sleep.ms <= quiet_ms {
            now += sleep.ms;
            sleep.adapt(1024, 1024, false);
        }
        sleep.ms
    }

    #[test]
    fn it_sleeps_for_the_root_of_twice_the_quiet_time() {
        for (quiet_ms, told) in [(5_000, 100), (30_000, 245), (60_000, 346), (245_350, 700)] {
            let slept = sleep_after(quiet_ms);
            assert!(slept.abs_diff(told) <= 2, "{slept} ms after {quiet_ms} ms of quiet, and {told} are told");
        }
        assert_eq!(sleep_after(3_600_000), 1_000, "a second at most");
    }

    #[test]
    fn manager_wakes_at_once_only_after_frames_ran_out() {
        let after = |free, made| {
            let mut sleep = AdaptiveSleep { ms: 300 };
            sleep.adapt(free, 1000, made);
            sleep.ms
        };
        assert_eq!([after(49, true), after(49, false), after(50, true)], [0, 300, 300]);
        assert_eq!([after(200, true), after(201, true), after(1000, false)], [300, 301, 301]);
    }
}
