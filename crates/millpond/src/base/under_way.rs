//! Waits that have not ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// Waits that have not ended: how many, and when they began, all in one word, so that both are of the same moment. The
/// lower bits count; the upper ones are the sum of the microseconds at which they began, as far as they fit.
#[derive(Default)]
pub(super) struct UnderWay(AtomicU64);

impl UnderWay {
    const COUNT_BITS: u32 = 16;

    /// A wait begins; returns what ends it.
    pub(super) fn begin(&self, now_ns: u64) -> u64 {
        let one = ((now_ns / 1000) << Self::COUNT_BITS) | 1;
        // Relaxed: nothing is told by it but this.
        self.0.fetch_add(one, Ordering::Relaxed);
        one
    }

    pub(super) fn end(&self, one: u64) {
        self.0.fetch_sub(one, Ordering::Relaxed);
    }

    /// How many there are, and their microseconds so far, together.
    pub(super) fn now(&self, now_ns: u64) -> (u64, u64) {
        let word = self.0.load(Ordering::Relaxed);
        let count = word & ((1 << Self::COUNT_BITS) - 1);
        let us = ((now_ns / 1000) << Self::COUNT_BITS).wrapping_mul(count).wrapping_sub(word - count);
        let us = us >> Self::COUNT_BITS;
        // One that has begun since the clock was read takes more off than there is.
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
        // However long the process runs: a sum that does not fit is taken off again as a whole.
        let late_ns = u64::MAX / 2;
        let many: Vec<u64> = (0..1_000).map(|_| under_way.begin(late_ns)).collect();
        assert_eq!(under_way.now(late_ns + 2_000_000), (1_000, 2_000_000));
        many.into_iter().for_each(|one| under_way.end(one));
        assert_eq!(under_way.now(late_ns), (0, 0));
    }
}
