//! The state of a change of the log's capacity, and of the log's growth.
//!
//! [`log_resize`](crate::background::log_resize) makes the files of a new ring and has the keeper switch the log to it.
//! This structure serialises the changes, asks for them when the log should grow, and holds the message about them that
//! the status page shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::bell::Bell;
use crate::base::sync::{Mutex, Rank, Turn};

/// A log grows by this factor at a time.
pub(crate) const STEP: u64 = 4;

/// A log grows once this part of it is in use, and as many bytes of pages are dirty.
const WORTH: u64 = 4;

/// The change of the log's capacity that is under way, and the growth that is wanted.
pub(crate) struct RedoChange {
    /// The turn to change the capacity.
    pub(crate) turn: Turn<()>,
    /// Number of threads that wait for the turn.
    pub(crate) waiting: AtomicUsize,
    /// The capacity up to which the log grows, in bytes; 0: it does not grow.
    most: AtomicU64,
    /// The capacity that the background thread is to give the log; 0: none.
    asked: AtomicU64,
    /// After an attempt, the LSN before which the log is not asked to grow again.
    not_before: AtomicU64,
    /// Wakes the background thread.
    pub(crate) bell: Arc<Bell>,
    /// A message about files that are made in the background, or about why they could not be made.
    news: Mutex<Option<String>>,
}

/// What decides whether a log should grow.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    /// Capacity of the log's ring.
    pub(crate) capacity: u64,
    /// Bytes between checkpoint and end.
    pub(crate) age: u64,
    /// Bytes of dirty pages.
    pub(crate) dirty: u64,
    /// The log's end.
    pub(crate) next_lsn: u64,
}

impl Default for RedoChange {
    fn default() -> Self {
        RedoChange {
            turn: Turn::new(Rank::RedoChange, ()),
            waiting: AtomicUsize::new(0),
            most: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
            bell: Arc::default(),
            news: Mutex::new(Rank::Status, None),
        }
    }
}

impl RedoChange {
    /// Sets the capacity up to which the log grows.
    pub(crate) fn set_most(&self, capacity: u64) {
        // Relaxed, here and below: independent values; the bell's mutex orders what its thread reads.
        self.most.store(capacity, Ordering::Relaxed);
    }

    /// The capacity up to which the log grows; 0: it does not grow.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Asks the background thread for a log of this capacity.
    pub(crate) fn ask(&self, capacity: u64) {
        self.asked.store(capacity, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Whether a capacity was asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Lets the next look ask again.
    pub(crate) fn try_again(&self) {
        self.not_before.store(0, Ordering::Relaxed);
    }

    /// The capacity that was asked for; 0: none.
    pub(crate) fn take_asked(&self) -> u64 {
        self.asked.swap(0, Ordering::Relaxed)
    }

    /// Asks for a larger log if a longer one spares page writes: a part of it is in use, and as much of the pool is
    /// dirty. The dirty pages of a small database, however often they change, are fewer. The caller has found that the
    /// log has one ring.
    pub(crate) fn look(&self, usage: Usage) {
        let Usage { capacity, age, dirty, next_lsn } = usage;
        let part = capacity / WORTH;
        if capacity >= self.most() || age < part || dirty < part || next_lsn < self.not_before.load(Ordering::Relaxed) {
            return;
        }
        // An attempt that fails is made again after as much log.
        self.not_before.store(next_lsn + capacity, Ordering::Relaxed);
        self.ask(self.most().min(capacity * STEP));
    }

    /// Sets the message for the status page.
    pub(crate) fn tell(&self, news: Option<String>) {
        *self.news.lock() = news;
    }

    /// The message about the log's files, for the status page.
    pub(crate) fn news(&self) -> Option<String> {
        self.news.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn log_grows_when_it_is_in_use_and_as_much_is_dirty() {
        let change = RedoChange::default();
        let usage = Usage { capacity: 16 * MIB, age: 4 * MIB, dirty: 4 * MIB, next_lsn: 4 * MIB };
        change.look(usage);
        assert_eq!(change.take_asked(), 0, "it has no other size");
        change.set_most(100 * MIB);
        change.look(Usage { age: 4 * MIB - 1, ..usage });
        change.look(Usage { dirty: 4 * MIB - 1, ..usage });
        change.look(Usage { capacity: 100 * MIB, age: 50 * MIB, dirty: 50 * MIB, ..usage });
        assert_eq!(change.take_asked(), 0);
        change.look(usage);
        assert_eq!(change.take_asked(), 64 * MIB);
        change.look(Usage { next_lsn: 20 * MIB - 1, ..usage });
        assert_eq!(change.take_asked(), 0, "too soon after an attempt");
        let later = Usage { next_lsn: 20 * MIB, ..usage };
        change.look(later);
        assert_eq!(change.take_asked(), 64 * MIB);
        change.look(Usage { capacity: 64 * MIB, age: 16 * MIB, dirty: 16 * MIB, next_lsn: 100 * MIB });
        assert_eq!(change.take_asked(), 100 * MIB, "no more than that");
    }
}
