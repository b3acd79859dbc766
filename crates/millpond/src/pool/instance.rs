//! Buffer pool instances. There is one; with the classic policies there may be several, as in InnoDB. Each has its own
//! free frames and list of pages, and so its own mutexes.
//!
//! A frame belongs to the instance that its number says. A page belongs to the instance of its frame. A page that is
//! read enters the instance that its id says.

use std::sync::atomic::AtomicU64;

use super::free_frames::FreeFrames;
use super::replacement::Replacement;

/// Counts of what threads did to get frames.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    /// Searches for a clean page to evict, and pages that they looked at.
    pub(crate) searches: u64,
    pub(crate) searched: u64,
    /// Searches for a page to write, and pages that they looked at.
    pub(crate) flush_searches: u64,
    pub(crate) flush_searched: u64,
    /// Pages that the last of these searches looked at.
    pub(crate) last_flush_searched: u64,
    /// Sleeps, with `backoff`.
    pub(crate) wait_loops: u64,
}

/// Numbers of frames of an instance, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstancePages {
    /// Number of frames.
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) dirty: u64,
}

impl InstancePages {
    /// Frames that have a page or are about to get one.
    pub(crate) fn data(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// A buffer pool instance.
pub(super) struct Instance {
    pub(super) free: FreeFrames,
    pub(super) replacement: Box<dyn Replacement>,
    /// Searches for a clean page to evict, by threads that need a frame, and pages that they looked at.
    pub(super) searches: AtomicU64,
    pub(super) searched: AtomicU64,
}

impl Instance {
    pub(super) fn new(replacement: Box<dyn Replacement>) -> Instance {
        let (searches, searched) = (AtomicU64::new(0), AtomicU64::new(0));
        Instance { free: FreeFrames::new(), replacement, searches, searched }
    }
}
