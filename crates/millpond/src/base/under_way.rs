//! Waits in progress.

use std::sync::atomic::{AtomicU64, Ordering};

/// Waits in progress: their number and start times in one word, so that both are of the same moment. The lower bits
/// hold the number; the upper ones hold the sum of the start times in microseconds, modulo their width.
#[derive(Default)]
pub(super) struct UnderWay(AtomicU64);

impl UnderWay {
    const COUNT_BITS: u32 = 16;

    /// Records the start of a wait; returns the amount that [`end`](Self::end) takes off.
    pub(super) fn begin(&self, now_ns: u64) -> u64 {
        let one = ((now_ns / 1000) << Self::COUNT_BITS) | 1;
        // Relaxed: no other data depends on it.
        self.0.fetch_add(one, Ordering::Relaxed);
        one
    }

    pub(super) fn end(&self, one: u64) {
        self.0.fetch_sub(one, Ordering::Relaxed);
    }

    /// The number of waits in progress, and the sum of their durations so far, in microseconds.
    pub(super) fn now(&self, now_ns: u64) -> (u64, u64) {
        let word = self.0.load(Ordering::Relaxed);
        let count = word & ((1 << Self::COUNT_BITS) - 1);
        let us = ((now_ns / 1000) << Self::COUNT_BITS).wrapping_mul(count).wrapping_sub(word - count);
        let us = us >> Self::COUNT_BITS;
        // A wait that began after the clock was read makes the sum negative: report 0.
        (count, if us >> (u64::BITS - Self::COUNT_BITS - 1) == 0 { us } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_under_way_are_counted_with_their_times() {
        let under_way = UnderWay::default();
        let first = under_way.begin(5_000_000);
        let second = under_way.begin(7_000_000);
        assert_eq!(under_way.now(10_000_000), (2, 8_000));
        under_way.end(first);
        assert_eq!(under_way.now(10_000_000), (1, 3_000));
        assert_eq!(under_way.now(6_000_000), (1, 0), "the clock was read before it began");
        under_way.end(second);
        assert_eq!(under_way.now(11_000_000), (0, 0));
        // The sum may overflow, however long the process runs: the same amount is subtracted at the end.
        let late_ns = u64::MAX / 2;
        let many: Vec<u64> = (0..1_000).map(|_| under_way.begin(late_ns)).collect();
        assert_eq!(under_way.now(late_ns + 2_000_000), (1_000, 2_000_000));
        many.into_iter().for_each(|one| under_way.end(one));
        assert_eq!(under_way.now(late_ns), (0, 0));
    }
}
