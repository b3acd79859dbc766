//! Page replacement: the interface that the pool uses. The default is [S3-FIFO](super::s3_fifo); the classic policy is
//! [LRU with a midpoint](super::midpoint_lru).

use super::frame::Frame;
use crate::base::ids::{FrameId, PageId};

/// The queue that a candidate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Small,
    Main,
}

/// The pages that a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Any,
    /// Unpinned pages that could leave now.
    Clean,
    /// Unpinned pages that could leave once they are written.
    Dirty,
}

/// A position in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cursor {
    /// At a frame: its place, and the `turn` of its insertion. Invalid once the frame leaves or is inserted again.
    At(u32, u32),
    /// Past the last frame.
    End,
}

/// A search for pages that may leave.
pub(crate) struct Scan {
    /// The pages wanted. The search may skip others.
    pub(super) wanted: Wanted,
    /// Number of frames that the search may still look at.
    pub(super) steps: usize,
    /// Where the frame looked at last is, and where the next one is.
    pub(super) at: Option<(Cursor, Cursor)>,
}

impl Scan {
    /// A search that looks at `steps` frames at most.
    pub(super) fn new(wanted: Wanted, steps: usize) -> Scan {
        Scan { wanted, steps, at: None }
    }
}

/// The state of the pages in frames, as replacement sees it.
pub(super) trait Pages {
    /// Whether no thread has the page pinned.
    fn is_unused(&self, frame: FrameId) -> bool;
    fn is_dirty(&self, frame: FrameId) -> bool;
    fn heat(&self, frame: FrameId) -> u8;
    /// Lowers the heat by one; returns the heat before.
    fn cool(&self, frame: FrameId) -> u8;
    /// Sets the heat to 0; returns the heat before.
    fn reset(&self, frame: FrameId) -> u8;
}

/// A replacement policy: chooses the pages that leave.
pub(super) trait Replacement: Send + Sync {
    /// Called when a page was put into `frame`.
    fn admit(&self, frame: FrameId, page: PageId);

    /// The page in `frame` was used, and its heat is below [`HEAT_MAX`](super::frame::HEAT_MAX).
    fn hit(&self, frame: FrameId, meta: &Frame);

    /// The next frame to try, while `scan` has steps.
    fn candidate(&self, scan: &mut Scan, pages: &dyn Pages) -> Option<(FrameId, Queue)>;

    /// Whether a candidate is taken out of its queue, and is the caller's until it [stays](Self::stays) or is free.
    /// Otherwise it keeps its place, other threads may look at it, and the thread whose [`leaves`](Self::leaves) takes
    /// it out owns it.
    fn takes_out_candidates(&self) -> bool;

    /// Takes a candidate back that does not leave.
    fn stays(&self, frame: FrameId);

    /// Takes `frame` out as its page leaves; the caller holds its shard's mutex. False: the frame is not the caller's
    /// to take.
    fn leaves(&self, frame: FrameId) -> bool;

    /// Called when `page`, a candidate from `queue`, has left.
    fn has_left(&self, page: PageId, queue: Queue);

    /// About `count` frames whose pages leave next unless they are used before.
    fn next(&self, count: usize, pages: &dyn Pages) -> Vec<FrameId>;

    /// Candidates among the frames from `count` on, at most `most`.
    fn beyond(&self, count: usize, most: usize) -> Vec<FrameId>;

    /// Adapts to a pool of `frames` frames.
    fn resize(&self, frames: usize);

    /// Sets how long after its first use a page must be used again to count as used twice, where the policy asks that.
    fn set_old_blocks_time(&self, _ns: u64) {}
}
