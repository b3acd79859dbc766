//! What InnoDB's monitors count in sets of three: what calls came to together, how many there were, and what the last
//! one came to.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls, each of which comes to a number: pages that were looked at, or written.
#[derive(Debug, Default)]
pub(crate) struct CountedCalls {
    total: AtomicU64,
    calls: AtomicU64,
    last: AtomicU64,
}

impl CountedCalls {
    /// One more call, which came to `count`.
    pub(crate) fn add(&self, count: u64) {
        // Relaxed, here and below: each number stands for itself.
        self.total.fetch_add(count, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.last.store(count, Ordering::Relaxed);
    }

    /// What all of them came to.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// How many there were.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// What the last one came to.
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
