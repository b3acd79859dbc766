//! The classic policies, for a pool without the hand-off of free frames: [`legacy`](super::legacy) and
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

use std::sync::atomic::{AtomicBool, Ordering};

use super::backoff::{Backoff, Slept};
use super::buffer_pool::Pool;
use super::legacy::Legacy;
use super::options::{EmptyFreeListAlgorithm, Freeing};
use crate::base::error::Error;
use crate::base::ids::FrameId;

/// Both classic policies with their counters, and which one is in force.
pub(super) struct Classic {
    is_backoff: AtomicBool,
    /// Whether page cleaners refill free frames.
    cleaners_refill: AtomicBool,
    pub(super) legacy: Legacy,
    pub(super) backoff: Backoff,
}

/// The result for a thread that needs frames.
pub(super) enum Got {
    Frames(Vec<FrameId>),
    /// No frame can be had by the thread's own work: it is to take a place in the line.
    PlaceInLine,
    /// All page writes have stopped.
    Stopped,
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

    pub(super) fn is_backoff(&self) -> bool {
        // Relaxed: a thread that sees it late has slept, or worked, once more. LRU managers check again under their
        // mutex.
        self.is_backoff.load(Ordering::Relaxed)
    }
}

impl Pool {
    /// Sets how frames come free. The hand-off ignores the free-frame target: it learns the need by itself.
    pub(crate) fn set_freeing(&self, freeing: Freeing) {
        self.lru_scan_depth.store(freeing.lru_scan_depth, Ordering::Relaxed);
        self.instances.iter().for_each(|instance| instance.replacement.set_old_blocks_time(freeing.old_blocks_ns));
        let Some(classic) = self.classic() else { return };
        // `legacy` alone keeps none free.
        let target = freeing.free_list_target.unwrap_or(0) * self.instances.len();
        self.target.store(target, Ordering::Relaxed);
        let is_backoff = freeing.empty == EmptyFreeListAlgorithm::Backoff;
        classic.cleaners_refill.store(!is_backoff && freeing.free_list_target.is_some(), Ordering::Relaxed);
        classic.is_backoff.store(is_backoff, Ordering::Relaxed);
    }

    /// Whether LRU managers are to work now: `backoff` is in force.
    pub(crate) fn is_managed(&self) -> bool {
        self.classic().is_some_and(Classic::is_backoff)
    }

    /// Whether page cleaners refill free frames, as LRU managers do with `backoff`.
    pub(crate) fn cleaners_refill(&self) -> bool {
        self.classic().is_some_and(|classic| classic.cleaners_refill.load(Ordering::Relaxed))
    }

    /// Takes `count` frames by the policy in force. May wait on `free_frame`, and then sets `waited`; callers hold no
    /// latch.
    pub(super) fn take_classic(
        &self,
        classic: &Classic,
        at: usize,
        count: usize,
        waited: &mut bool,
    ) -> Result<Got, Error> {
        if classic.is_backoff() {
            match self.take_backoff(classic, at, count, waited) {
                Slept::Frames(frames) => return Ok(Got::Frames(frames)),
                Slept::Stopped => return Ok(Got::Stopped),
                Slept::Deserted => {}
            }
        }
        // If all pages of one instance are pinned, try another.
        let several = self.instances.len();
        for other in 0..several {
            if let Some(frames) = self.take_legacy(&classic.legacy, (at + other) % several, count, waited)? {
                return Ok(Got::Frames(frames));
            }
        }
        Ok(Got::PlaceInLine)
    }
}
