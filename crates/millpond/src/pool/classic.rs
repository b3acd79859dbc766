//! The state of the classic policies, for a pool without the hand-off of free frames: [`legacy`](super::legacy) and
//! [`backoff`](super::backoff). One of the two is in force. The other may replace it while operations wait for frames.
//!
//! How each wait ends when one replaces the other:
//!
//! * A thread that sleeps (`backoff`) wakes by its own timer, then checks which policy is in force. If `backoff` no
//!   longer is, it gives back the frames in its hand and looks for frames itself.
//! * A thread that waits for the turn to search or write (`legacy`) waits only for the thread that has the turn. That
//!   one does its own work and gives the turn up, whatever is in force. The waiter goes on by `legacy` until it has its
//!   frames or a place in the line.
//! * A thread with a place in the line, which is where `legacy` ends, is served by the keeper, with either policy.
//!   Frames that LRU managers and page cleaners free go to the line first.
//! * LRU managers are started, where there are none yet, before `backoff` is put in force, and stay until the database
//!   is closed. While `backoff` is not in force they wait for it or for the end. They are woken only after it is in
//!   force. So a thread that begins to sleep in between gets frames as soon as they are awake. A manager that sleeps
//!   when `legacy` replaces `backoff` notices when its sleep is over.
//! * Page cleaners refill free frames only with `adaptive_flushing_method` adaptive and `legacy`. No thread waits for
//!   that.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::options::{EmptyFreeListAlgorithm, Freeing};
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::FrameId;
use crate::base::sync::{Rank, Turn};

/// Both classic policies with their counters, and which one is in force.
pub(super) struct Classic {
    is_backoff: AtomicBool,
    /// Whether page cleaners refill free frames.
    cleaners_refill: AtomicBool,
    pub(super) legacy: Legacy,
    pub(super) backoff: Backoff,
}

impl Classic {
    pub(super) fn new(instances: usize) -> Classic {
        Classic {
            is_backoff: AtomicBool::new(false),
            cleaners_refill: AtomicBool::new(false),
            legacy: Legacy::new(instances),
            backoff: Backoff::default(),
        }
    }

    /// Puts the policy that `freeing` names in force.
    pub(super) fn put_in_force(&self, freeing: Freeing) {
        let is_backoff = freeing.empty == EmptyFreeListAlgorithm::Backoff;
        self.cleaners_refill.store(!is_backoff && freeing.free_list_target.is_some(), Ordering::Relaxed);
        self.is_backoff.store(is_backoff, Ordering::Relaxed);
    }

    pub(super) fn is_backoff(&self) -> bool {
        // Relaxed: a thread that sees it late has slept, or worked, once more. LRU managers check again under their
        // mutex.
        self.is_backoff.load(Ordering::Relaxed)
    }

    pub(super) fn cleaners_refill(&self) -> bool {
        self.cleaners_refill.load(Ordering::Relaxed)
    }
}

/// The state of `legacy`.
pub(super) struct Legacy {
    /// One turn for each instance, held during a search for frames and the write of a page. The convoy is the point.
    pub(super) lru: Box<[Turn<()>]>,
    pub(super) flush: OnceLock<Box<dyn SinglePageFlush>>,
    pub(super) single_flushes: AtomicU64,
    /// Searches for a page to write, and pages that they looked at.
    pub(super) flush_searches: CountedCalls,
}

impl Legacy {
    pub(super) fn new(instances: usize) -> Legacy {
        Legacy {
            lru: (0..instances).map(|_| Turn::new(Rank::Lru, ())).collect(),
            flush: OnceLock::new(),
            single_flushes: AtomicU64::new(0),
            flush_searches: CountedCalls::default(),
        }
    }
}

/// Writes a page for a thread that finds no free frame.
pub(crate) trait SinglePageFlush: Send + Sync {
    /// Writes the dirty page in `frame`, which the caller has pinned, and syncs it. False: it cannot be written now.
    fn flush(&self, frame: FrameId) -> Result<bool, Error>;
}

/// Counters of `backoff`.
#[derive(Default)]
pub(super) struct Backoff {
    /// Sleeps. A wait has many. Written by waiters, read by [`Pool::searches`](super::buffer_pool::Pool::searches).
    pub(super) loops: AtomicU64,
}
