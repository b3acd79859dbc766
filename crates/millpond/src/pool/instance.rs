//! Buffer pool instances. There is one; with the classic policies there may be several, as in InnoDB. Each has its own
//! free frames and list of pages, and so its own mutexes.
//!
//! A frame belongs to the instance that its number says. A page belongs to the instance of its frame. A page that is
//! read enters the instance that its id says.

use std::sync::atomic::{AtomicU64, Ordering};

use super::buffer_pool::{Empty, Pool};
use super::frame::Frame;
use super::free_frames::FreeFrames;
use super::replacement::{Pages, Replacement};
use super::residence::Evicted;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::{FrameId, PageId};

/// Consecutive pages of a space that are read into one instance, so that neighbours are together.
const PAGES_TOGETHER: u32 = 64;

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

impl Pages for Pool {
    fn is_unused(&self, frame: FrameId) -> bool {
        // Relaxed: eviction checks again under the shard's mutex.
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
        // Called on each use of a page that is not hot: avoids the division where there is one instance.
        match self.instances.len() {
            1 => 0,
            several => frame.index() % several,
        }
    }

    /// The instance that `frame` belongs to.
    pub(super) fn instance_of(&self, frame: FrameId) -> &Instance {
        &self.instances[self.number_of_instance(frame)]
    }

    /// The line for all threads that find no frame in any instance: the first instance's.
    pub(super) fn line(&self) -> &FreeFrames {
        &self.instances[0].free
    }

    /// Has pages read into their own instances from now on. During redo they go wherever there is room: more pages of
    /// one instance may be pinned together than it has frames.
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

    /// Any instance, in round-robin order.
    pub(super) fn any_instance(&self) -> usize {
        match self.instances.len() {
            1 => 0,
            several => self.turn.fetch_add(1, Ordering::Relaxed) % several,
        }
    }

    /// Takes `count` free frames from any one instance.
    pub(super) fn take_anywhere(&self, count: usize) -> Option<Vec<FrameId>> {
        self.instances.iter().find_map(|instance| instance.free.take(count))
    }

    /// How many instances there are.
    pub(crate) fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// Numbers of frames of each instance.
    pub(crate) fn instance_pages(&self) -> Vec<InstancePages> {
        let (frames, several) = (self.len(), self.instances.len());
        let pages = |at: usize| InstancePages {
            total: to_u64(frames.saturating_sub(at).div_ceil(several)),
            free: to_u64(self.instances[at].free.len()),
            dirty: to_u64(self.dirty.len_in(at)),
        };
        (0..several).map(pages).collect()
    }

    /// Counts of what threads did to get frames.
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

    /// Number of free frames of all instances.
    pub(super) fn free_frames(&self) -> usize {
        self.instances.iter().map(|instance| instance.free.len()).sum()
    }

    /// Notes a use of the page in `frame`.
    pub(super) fn touch(&self, frame: FrameId, meta: &Frame) {
        if !meta.is_hot() {
            self.instance_of(frame).replacement.hit(frame, meta);
        }
    }

    /// Enters `frame`, which page `id` was put into, into the replacement queues.
    pub(super) fn queue(&self, frame: FrameId, id: PageId) {
        self.instance_of(frame).replacement.admit(frame, id);
    }

    /// Takes `frame` out of replacement as its page leaves; its shard's mutex is held. False: the frame is not the
    /// caller's to take.
    pub(super) fn leaves(&self, frame: FrameId) -> bool {
        self.instance_of(frame).replacement.leaves(frame)
    }

    /// The outcome for a candidate without a page: free, if the frame is the caller's.
    pub(super) fn without_page(&self, frame: FrameId) -> Evicted {
        match self.instance_of(frame).replacement.takes_out_candidates() {
            true => Evicted::Free(None),
            false => Evicted::InUse,
        }
    }

    /// After a page was thrown out of `frame`: the frame stays in its queue, or is freed now. The shard's mutex is not
    /// held.
    pub(super) fn discarded(&self, frame: FrameId) {
        if !self.instance_of(frame).replacement.takes_out_candidates() {
            self.give(frame);
        }
    }
}
