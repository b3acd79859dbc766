//! The parts of the buffer pool. There is one; with the classic policies there may be several, each with its own free
//! frames and its own list of pages, so that there are as many mutexes: InnoDB's buffer pool instances.
//!
//! A frame belongs to the instance of its number; a page is in whichever frame it was put into, and one that is read
//! comes into the instance that its id says.

use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer_pool::{Empty, Pool};
use super::frame::Frame;
use super::free_frames::FreeFrames;
use super::replacement::{Pages, Replacement};
use super::residence::Evicted;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::{FrameId, PageId};

/// Pages of a space that come into one instance, so that neighbours are together.
const PAGES_TOGETHER: u32 = 64;

/// What those who needed frames have done for them.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    /// Searches for a clean page that leaves, and pages that they looked at.
    pub(crate) searches: u64,
    pub(crate) searched: u64,
    /// Searches for a page to write, and pages that they looked at.
    pub(crate) flush_searches: u64,
    pub(crate) flush_searched: u64,
    /// And those that the last one looked at.
    pub(crate) last_flush_searched: u64,
    /// Sleeps.
    pub(crate) wait_loops: u64,
}

/// What is in a part of the buffer pool, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstancePages {
    /// Frames.
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) dirty: u64,
}

impl InstancePages {
    /// Frames with a page, or about to get one.
    pub(crate) fn data(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}

/// A part of the buffer pool.
pub(super) struct Instance {
    pub(super) free: FreeFrames,
    pub(super) replacement: Box<dyn Replacement>,
    /// Searches for a clean page that leaves, by who needs a frame, and pages that they looked at.
    pub(super) searches: AtomicU64,
    pub(super) searched: AtomicU64,
}

impl Instance {
    pub(super) fn new(replacement: Box<dyn Replacement>) -> Instance {
        let (searches, searched) = (AtomicU64::new(0), AtomicU64::new(0));
        Instance { free: FreeFrames::new(), replacement, searches, searched }
    }
}

impl Pages for Pool {
    fn is_unused(&self, frame: FrameId) -> bool {
        // Relaxed: it is looked at again under the shard's mutex.
        self.frame(frame).pins.load(Ordering::Relaxed) == 0
    }

    fn is_dirty(&self, frame: FrameId) -> bool {
        self.dirty.since(frame).is_some()
    }

    fn heat(&self, frame: FrameId) -> u8 {
        self.frame(frame).heat()
    }

    fn cool(&self, frame: FrameId) -> u8 {
        self.frame(frame).cool()
    }

    fn reset(&self, frame: FrameId) -> u8 {
        self.frame(frame).reset_heat()
    }
}

impl Pool {
    /// The number of the instance that `frame` belongs to.
    pub(crate) fn number_of_instance(&self, frame: FrameId) -> usize {
        // This is asked with each use of a page that is not hot: without a division where there is one.
        match self.instances.len() {
            1 => 0,
            several => frame.index() % several,
        }
    }

    /// The instance that `frame` belongs to.
    pub(super) fn instance_of(&self, frame: FrameId) -> &Instance {
        &self.instances[self.number_of_instance(frame)]
    }

    /// The line for all who find no frame in any instance. It is the first one's.
    pub(super) fn line(&self) -> &FreeFrames {
        &self.instances[0].free
    }

    /// From now on pages are read into their own instances. While the log is redone they go wherever there is room:
    /// more of one instance may be pinned together than it has frames.
    pub(crate) fn keep_pages_together(&self) {
        self.spread.store(false, Ordering::Relaxed);
    }

    /// The instance that page `id` is read into.
    pub(super) fn instance_for(&self, id: PageId) -> usize {
        match self.instances.len() {
            1 => 0,
            _ if self.spread.load(Ordering::Relaxed) => self.any_instance(),
            several => to_usize((u64::from(id.space().0) + u64::from(id.number() / PAGES_TOGETHER)) % to_u64(several)),
        }
    }

    /// An instance for who does not mind: each in turn.
    pub(super) fn any_instance(&self) -> usize {
        match self.instances.len() {
            1 => 0,
            several => self.turn.fetch_add(1, Ordering::Relaxed) % several,
        }
    }

    /// `count` frames that are free in one of them.
    pub(super) fn take_anywhere(&self, count: usize) -> Option<Vec<FrameId>> {
        self.instances.iter().find_map(|instance| instance.free.take(count))
    }

    /// How many instances there are.
    pub(crate) fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// What is in each of them.
    pub(crate) fn instance_pages(&self) -> Vec<InstancePages> {
        let (frames, several) = (self.len(), self.instances.len());
        let pages = |at: usize| InstancePages {
            total: to_u64(frames.saturating_sub(at).div_ceil(several)),
            free: to_u64(self.instances[at].free.len()),
            dirty: to_u64(self.dirty.len_in(at)),
        };
        (0..several).map(pages).collect()
    }

    /// What those who needed frames have done for them.
    pub(crate) fn searches(&self) -> Searches {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut found = Searches::default();
        for instance in &self.instances {
            found.searches += count(&instance.searches);
            found.searched += count(&instance.searched);
        }
        match &self.empty {
            Empty::Handoff => {}
            Empty::Classic(classic) => {
                found.flush_searches = classic.legacy.flush_searches.calls();
                found.flush_searched = classic.legacy.flush_searches.total();
                found.last_flush_searched = classic.legacy.flush_searches.last();
                found.wait_loops = count(&classic.backoff.loops);
            }
        }
        found
    }

    /// Frames that are free, of all instances.
    pub(super) fn free_frames(&self) -> usize {
        self.instances.iter().map(|instance| instance.free.len()).sum()
    }

    /// The page in `frame` was used.
    pub(super) fn touch(&self, frame: FrameId, meta: &Frame) {
        if !meta.is_hot() {
            self.instance_of(frame).replacement.hit(frame, meta);
        }
    }

    /// Page `id` was put into `frame`, and may leave some day.
    pub(super) fn queue(&self, frame: FrameId, id: PageId) {
        self.instance_of(frame).replacement.admit(frame, id);
    }

    /// The page in `frame` leaves now; its shard's mutex is held. False: the frame is not the caller's to take.
    pub(super) fn leaves(&self, frame: FrameId) -> bool {
        self.instance_of(frame).replacement.leaves(frame)
    }

    /// What a candidate is that has no page: free, if it is the caller's.
    pub(super) fn without_page(&self, frame: FrameId) -> Evicted {
        match self.instance_of(frame).replacement.takes_out_candidates() {
            true => Evicted::Free(None),
            false => Evicted::InUse,
        }
    }

    /// A page was thrown out of `frame`, which stays in its queue, or is free now. The shard's mutex is not held.
    pub(super) fn discarded(&self, frame: FrameId) {
        if !self.instance_of(frame).replacement.takes_out_candidates() {
            self.give(frame);
        }
    }
}
