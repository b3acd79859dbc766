//! What a pool has that does not hand free frames over: [`legacy`](super::legacy) and [`backoff`](super::backoff), of
//! which one is in force, and may be exchanged for the other while operations wait for frames.
//!
//! Who ends whose wait, when the one takes the other's place:
//!
//! * Who sleeps (`backoff`) is woken by his own timer, and looks then which of them is in force. Where the LRU managers
//!   have gone he gives back what he has in hand, and looks for frames himself.
//! * Who waits for the turn to look or to write (`legacy`) is waited for by nobody's supplier: who has the turn works
//!   himself, and gives it up, whatever is in force. He goes on in that way until he has his frames, or a place in the
//!   line.
//! * Who has a place in the line, which is where `legacy` ends, is the keeper's, with either; and what LRU managers and
//!   page cleaners free goes to the line first.
//! * LRU managers are started, where there are none yet, before `backoff` is put in force, and stay until the database
//!   is closed: while it is not in force they wait for it, or for the end. It is put in force first and they are woken
//!   then: who begins to sleep between the two is supplied as soon as they are awake. One that is asleep by the clock
//!   when it becomes `legacy` looks when its time has come.
//! * Page cleaners refill with the method `adaptive` and `legacy` only. Nobody waits for that.

use std::sync::atomic::{AtomicBool, Ordering};

use super::backoff::{Backoff, Slept};
use super::buffer_pool::{Freeing, Pool};
use super::legacy::{EmptyFreeListAlgorithm, Legacy};
use crate::base::error::Error;
use crate::base::ids::FrameId;

/// Both, with what they count, and which is in force.
pub(super) struct Classic {
    is_backoff: AtomicBool,
    /// Page cleaners refill free frames.
    cleaners_refill: AtomicBool,
    pub(super) legacy: Legacy,
    pub(super) backoff: Backoff,
}

/// What one who needed frames has got.
pub(super) enum Got {
    Frames(Vec<FrameId>),
    /// There is nothing to be had by his own work.
    PlaceInLine,
    /// No page can be written any more.
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
        // Relaxed: who sees it late has slept, or worked, once more. LRU managers look again under their mutex.
        self.is_backoff.load(Ordering::Relaxed)
    }
}

impl Pool {
    /// How frames come free from now on. The hand-off stays as it is, and finds out by itself how many are needed.
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

    /// Whether LRU managers are to work now.
    pub(crate) fn is_managed(&self) -> bool {
        self.classic().is_some_and(Classic::is_backoff)
    }

    /// Whether page cleaners do what LRU managers do elsewhere.
    pub(crate) fn cleaners_refill(&self) -> bool {
        self.classic().is_some_and(|classic| classic.cleaners_refill.load(Ordering::Relaxed))
    }

    /// `count` frames, in the way that is in force. May wait on `free_frame`, and says whether it did in `waited`;
    /// callers hold no latch.
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
        // Where all is pinned in one, from another.
        let several = self.instances.len();
        for other in 0..several {
            if let Some(frames) = self.take_legacy(&classic.legacy, (at + other) % several, count, waited)? {
                return Ok(Got::Frames(frames));
            }
        }
        Ok(Got::PlaceInLine)
    }
}
