//! Up to where something is done without a gap, when many do it side by side: InnoDB's link buffer.
//!
//! Who has done his part, from one LSN to another, leaves a link from the one to the other, in the place that the first
//! one has; whoever follows the links from the tail finds how far all is done.
//!
//! LINK-1  A place belongs to one part at a time: who leaves a link has room (`has_room`), and parts are
//!         [`STEP`] bytes long at least.
//! LINK-2  One thread at a time follows the links, and takes each out before the tail passes it: behind the tail all
//!         places are empty.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// A part of the log is at least so long: a group's frame and something in it.
const STEP: u64 = 16;

/// Links by where they begin.
pub(super) struct LinkBuffer {
    places: Box<[AtomicU64]>,
    tail: AtomicU64,
    following: Mutex<()>,
}

impl LinkBuffer {
    /// An empty one for links that begin in `bytes` of log from `tail` on, whose places take half as many bytes.
    pub(super) fn new(bytes: u64, tail: Lsn) -> LinkBuffer {
        let places = (0..=bytes / STEP).map(|_| AtomicU64::new(0)).collect();
        LinkBuffer { places, tail: AtomicU64::new(tail.0), following: Mutex::new(Rank::Links, ()) }
    }

    /// Bytes of memory that one for so many bytes of log takes.
    pub(super) fn memory_for(bytes: u64) -> u64 {
        (bytes / STEP + 1) * to_u64(size_of::<AtomicU64>())
    }

    fn place(&self, lsn: Lsn) -> &AtomicU64 {
        &self.places[to_usize(lsn.0 / STEP % to_u64(self.places.len()))]
    }

    /// Up to here all is done, as far as anybody has looked.
    pub(super) fn tail(&self) -> Lsn {
        // Acquire: what was done before is seen, and its place is empty (LINK-2).
        Lsn(self.tail.load(Ordering::Acquire))
    }

    /// Whether a link that begins at `lsn` has a place now.
    pub(super) fn has_room(&self, lsn: Lsn) -> bool {
        lsn.0 / STEP < self.tail().0 / STEP + to_u64(self.places.len())
    }

    /// What is between the two LSNs is done. There is room.
    pub(super) fn add(&self, from: Lsn, to: Lsn) {
        debug_assert!(self.has_room(from) && to.since(from) >= STEP, "LINK-1: from {from} to {to}");
        // Release: who finds the link finds what was done.
        self.place(from).store(to.0, Ordering::Release);
    }

    /// Follows the links; returns where they end.
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
