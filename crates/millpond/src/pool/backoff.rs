//! Percona Server's policy for a pool without a free frame, kept for comparison. A thread that needs a frame sleeps, a
//! little longer each time, until the [LRU manager](super::lru_manager) has freed some. The thread does not look for a
//! clean page itself, so no threads contend for the list. No thread wakes the manager.
//!
//! Two things end the wait. The LRU manager frees frames once its sleep is over. The thread's own timer makes it look
//! again, also at whether the managers still work ([`classic`](super::classic)).

use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::classic::Classic;
use crate::base::clock;
use crate::base::ids::FrameId;
use crate::base::sync::sleep_until;

/// The first sleep and the longest one, in nanoseconds.
const FIRST_NS: u64 = 1_000_000;
const LONGEST_NS: u64 = 10_000_000;

/// After this wait, in nanoseconds, a thread also takes frames of other instances. Waiters may have all pages of its
/// own pinned.
const OWN_NS: u64 = 1_000_000_000;

/// How a wait has ended.
pub(super) enum Slept {
    Frames(Vec<FrameId>),
    /// `backoff` is no longer in force, so no LRU manager works.
    Deserted,
    /// All page writes have stopped.
    Stopped,
}

/// The length of the next sleep.
fn longer(sleep_ns: u64) -> u64 {
    (2 * sleep_ns).min(LONGEST_NS)
}

impl Pool {
    /// Waits for `count` frames of instance `at`. Sets `waited` if it slept.
    pub(super) fn take_backoff(&self, classic: &Classic, at: usize, count: usize, waited: &mut bool) -> Slept {
        let began = clock::now_ns();
        let mut sleep_ns = FIRST_NS;
        // Frames collected one by one: other threads also take single frames as they come free.
        let mut hand = Vec::with_capacity(count);
        let is_stopped = loop {
            if self.line().stopped() {
                break true;
            }
            let beyond = clock::now_ns() >= began + OWN_NS || self.spread.load(Ordering::Relaxed);
            let own = || self.instances[at].free.take(1);
            while hand.len() < count
                && let Some(frames) = own().or_else(|| if beyond { self.take_anywhere(1) } else { None })
            {
                hand.extend(frames);
            }
            if hand.len() == count || !classic.is_backoff() {
                break false;
            }
            *waited = true;
            if beyond {
                // Give the frames back: with few evictable pages, threads that sleep with a frame each would wait for
                // one another.
                hand.drain(..).for_each(|frame| self.give(frame));
            }
            classic.backoff.loops.fetch_add(1, Ordering::Relaxed);
            sleep_until(clock::now_ns() + sleep_ns);
            sleep_ns = longer(sleep_ns);
        };
        if !is_stopped && hand.len() == count {
            return Slept::Frames(hand);
        }
        hand.into_iter().for_each(|frame| self.give(frame));
        if is_stopped { Slept::Stopped } else { Slept::Deserted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_double_up_to_ten_milliseconds() {
        let sleeps = std::iter::successors(Some(FIRST_NS), |ns| Some(longer(*ns)));
        let ms: Vec<u64> = sleeps.map(|ns| ns / 1_000_000).take(7).collect();
        assert_eq!(ms, [1, 2, 4, 8, 10, 10, 10]);
    }
}
