//! InnoDB's link buffer: up to which LSN concurrent threads have finished their parts without a gap.
//!
//! A thread that has finished its part, from one LSN to another, leaves a link: the end LSN, in the place of the begin
//! LSN. Following the links from the tail shows up to where all parts are finished.
//!
//! LINK-1  A place belongs to one part at a time: a thread leaves a link only if there is room (`has_room`), and parts
//!         are at least [`STEP`] bytes long.
//! LINK-2  One thread at a time follows the links, and takes each out before the tail passes it: behind the tail all
//!         places are empty.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// Least bytes of a part of the log: a group's frame and something in it.
const STEP: u64 = 16;

/// Links by their begin.
pub(super) struct LinkBuffer {
    places: Box<[AtomicU64]>,
    tail: AtomicU64,
    following: Mutex<()>,
}

impl LinkBuffer {
    /// An empty buffer for links that begin in `bytes` of log from `tail` on. Its places take half as many bytes of
    /// memory.
    pub(super) fn new(bytes: u64, tail: Lsn) -> LinkBuffer {
        let places = (0..=bytes / STEP).map(|_| AtomicU64::new(0)).collect();
        LinkBuffer { places, tail: AtomicU64::new(tail.0), following: Mutex::new(Rank::Links, ()) }
    }

    /// Memory of a buffer for `bytes` of log.
    pub(super) fn memory_for(bytes: u64) -> u64 {
        (bytes / STEP + 1) * to_u64(size_of::<AtomicU64>())
    }

    fn place(&self, lsn: Lsn) -> &AtomicU64 {
        &self.places[to_usize(lsn.0 / STEP % to_u64(self.places.len()))]
    }

    /// All parts before this LSN are finished, as far as a thread has followed the links.
    pub(super) fn tail(&self) -> Lsn {
        // Acquire: the reader sees the finished parts before the tail, and that their places are empty (LINK-2).
        Lsn(self.tail.load(Ordering::Acquire))
    }

    /// Whether a link that begins at `lsn` has a place now.
    pub(super) fn has_room(&self, lsn: Lsn) -> bool {
        lsn.0 / STEP < self.tail().0 / STEP + to_u64(self.places.len())
    }

    /// Marks the part between the two LSNs finished. There is room.
    pub(super) fn add(&self, from: Lsn, to: Lsn) {
        debug_assert!(self.has_room(from) && to.since(from) >= STEP, "LINK-1: from {from} to {to}");
        // Release: a thread that finds the link sees the finished part.
        self.place(from).store(to.0, Ordering::Release);
    }

    /// Follows the links. Returns where they end.
    pub(super) fn follow(&self) -> Lsn {
        let _following = self.following.lock();
        loop {
            let tail = self.tail();
            let next = self.place(tail).swap(0, Ordering::Acquire);
            if next == 0 {
                return tail;
            }
            self.tail.store(next, Ordering::Release);
        }
    }
}
