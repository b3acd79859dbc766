//! Percona Server's answer to a pool without a free frame, to be seen beside the others: who needs one sleeps, a little
//! longer each time, until the [LRU manager](super::lru_manager) has made some. He does not look for a clean page
//! himself, so that nobody contends for the list; and nobody wakes the manager.
//!
//! Who ends the wait: the LRU manager, when it has slept enough; and the own timer, which has him look, also whether
//! there is a manager still ([`classic`](super::classic)).

use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer_pool::Pool;
use super::classic::Classic;
use crate::base::clock;
use crate::base::ids::FrameId;
use crate::base::sync::sleep_until;

/// The first sleep, and the longest one.
const FIRST_NS: u64 = 1_000_000;
const LONGEST_NS: u64 = 10_000_000;

/// All of an instance's pages may be pinned by who waits: then he looks in the others, too.
const OWN_NS: u64 = 1_000_000_000;

/// What `backoff` counts.
#[derive(Default)]
pub(super) struct Backoff {
    /// Sleeps, of which a wait has many.
    pub(super) loops: AtomicU64,
}

/// How a wait has ended.
pub(super) enum Slept {
    Frames(Vec<FrameId>),
    /// There is no LRU manager any more.
    Deserted,
    /// No page can be written any more.
    Stopped,
}

/// How long the next sleep is.
fn longer(sleep_ns: u64) -> u64 {
    (2 * sleep_ns).min(LONGEST_NS)
}

impl Pool {
    /// `count` frames of an instance, when they are there. Says whether it slept in `waited`.
    pub(super) fn take_backoff(&self, classic: &Classic, at: usize, count: usize, waited: &mut bool) -> Slept {
        let began = clock::now_ns();
        let mut sleep_ns = FIRST_NS;
        // Kept in hand one by one: others take one when there is one.
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
                // Where few pages can leave, those who sleep with one in hand each would wait for each other.
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
