//! How the LRU manager of Percona Server works: a thread for each instance, which refills its free frames from the tail
//! of its list, and sleeps in between for as long as it has found fit, whoever waits.
//!
//! The sleep begins at a second. A pass that finds fewer than a twentieth of the target free, and has made frames, is
//! followed by the next at once; each that finds more than a fifth free makes the sleep a millisecond longer. So `t`
//! ms after frames ran out it sleeps for about `sqrt(2t)` ms, for 1 + 2 + ... + n is `n(n + 1) / 2`; and who then finds
//! no frame waits for what is left of that.

use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::Pin;
use super::replacement::{Scan, Wanted};
use super::residence::Evicted;

/// The longest sleep, with which it begins.
const LONGEST_MS: u64 = 1_000;

/// No more than this part of an instance's frames is kept free, as a divisor.
const FREE_SHARE: usize = 4;

/// How long the LRU manager sleeps.
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
    /// That of one who is needed at once.
    pub(crate) fn awake() -> AdaptiveSleep {
        AdaptiveSleep { ms: 0 }
    }

    /// After a pass that began with `free` of `target` frames free. `made`: it has made some.
    pub(crate) fn adapt(&mut self, free: usize, target: usize, made: bool) {
        if free * 20 < target && made {
            self.ms = 0;
        } else if free * 5 > target {
            self.ms = (self.ms + 1).min(LONGEST_MS);
        }
    }
}

impl Pool {
    /// Frames that are free in an instance, and how many should be.
    pub(crate) fn free_in(&self, at: usize) -> (usize, usize) {
        (self.instances[at].free.len(), self.target() / self.instances.len())
    }

    /// Frames of an instance that are refilled to, where `wanted` are for all: two at least, for a split needs two
    /// together.
    pub(super) fn refilled_to(&self, wanted: usize) -> usize {
        let several = self.instances.len();
        if wanted == 0 { 0 } else { (wanted / several).min(self.len() / several / FREE_SHARE).max(2) }
    }

    /// Looks at the tail of an instance's list, and frees clean pages, until the target is free. Returns how many it
    /// freed, and dirty ones that were in the way, pinned, at most `lot`: [`free_cleaned`](Self::free_cleaned) frees
    /// them when they are written. `scan` says how far it has come.
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

    /// A search through so much of an instance's list as `lru_scan_depth` says.
    pub(crate) fn lru_scan(&self) -> Scan {
        Scan::new(Wanted::Any, self.lru_scan_depth.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it sleeps so many milliseconds after frames ran out, with 1,024 to be kept free.
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
    fn it_wakes_at_once_only_where_frames_ran_out_and_some_were_made() {
        let after = |free, made| {
            let mut sleep = AdaptiveSleep { ms: 300 };
            sleep.adapt(free, 1000, made);
            sleep.ms
        };
        assert_eq!([after(49, true), after(49, false), after(50, true)], [0, 300, 300]);
        assert_eq!([after(200, true), after(201, true), after(1000, false)], [300, 301, 301]);
    }
}
