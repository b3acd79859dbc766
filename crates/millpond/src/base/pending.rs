//! Work that the device has in hand now.

use std::sync::atomic::{AtomicU64, Ordering};

/// A gauge of pages or calls that the device has in hand.
#[derive(Debug, Default)]
pub(crate) struct Pending(AtomicU64);

/// A part of [`Pending`] that counts until it is dropped.
#[must_use]
pub(crate) struct InHandOf<'p> {
    pending: &'p Pending,
    count: u64,
}

impl Pending {
    /// Adds `count` until the returned guard is dropped.
    pub(crate) fn begin(&self, count: u64) -> InHandOf<'_> {
        // Relaxed, here and below: the number is read by itself.
        self.0.fetch_add(count, Ordering::Relaxed);
        InHandOf { pending: self, count }
    }

    /// Adds `count` while `call` runs.
    pub(crate) fn during<T>(&self, count: u64, call: impl FnOnce() -> T) -> T {
        let _these = self.begin(count);
        call()
    }

    /// The current value.
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for InHandOf<'_> {
    fn drop(&mut self) {
        self.pending.0.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pending_is_counted_until_it_ends_also_by_a_panic() {
        let pending = Pending::default();
        let three = pending.begin(3);
        assert_eq!((pending.during(1, || pending.now()), pending.now()), (4, 3));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pending.during(1, || std::panic::resume_unwind(Box::new(())))
        }));
        assert!(panicked.is_err());
        drop(three);
        assert_eq!(pending.now(), 0);
    }
}
