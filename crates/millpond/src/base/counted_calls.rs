//! A set of three counters, as in InnoDB's monitors: the total over all calls, the number of calls, and the number of
//! the last call.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls that each yield a number, such as pages scanned or pages written.
#[derive(Debug, Default)]
pub(crate) struct CountedCalls {
    total: AtomicU64,
    calls: AtomicU64,
    last: AtomicU64,
}

impl CountedCalls {
    /// Counts one more call, which yielded `count`.
    pub(crate) fn add(&self, count: u64) {
        // Relaxed, here and below: each counter is read by itself.
        self.total.fetch_add(count, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.last.store(count, Ordering::Relaxed);
    }

    /// The sum over all calls.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The number of calls.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The number that the last call yielded.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_add_up_and_the_last_one_stands_alone() {
        let counted = CountedCalls::default();
        [5, 0, 3].into_iter().for_each(|count| counted.add(count));
        assert_eq!((counted.total(), counted.calls(), counted.last()), (8, 3, 3));
    }
}
