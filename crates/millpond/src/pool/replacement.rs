//! Who leaves: what the pool asks of it. By default [S3-FIFO](super::s3_fifo); the classic answer is
//! [LRU with a midpoint](super::midpoint_lru).

use super::frame::Frame;
use crate::base::ids::{FrameId, PageId};

/// Which pages leave the buffer pool first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PageReplacement {
    /// Those that were not used again: queues, of which a hit takes no mutex. A scan does not take the place of what is
    /// used.
    #[default]
    S3Fifo,
    /// Those that were not used for longest, with a midpoint at which pages come in: InnoDB's list, behind a mutex.
    MidpointLru,
}

/// The largest heat of a page. Whoever uses a page that is as hot tells nobody.
pub(super) const HEAT_MAX: u8 = 3;

/// From which queue a candidate comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Small,
    Main,
}

/// Which pages a search is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Any,
    /// Those that could leave now.
    Clean,
    /// Those that could leave when they are written.
    Dirty,
}

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cursor {
    /// That of a frame, as long as it has not been put into the list anew: it says which time it was.
    At(u32, u32),
    /// Past all.
    End,
}

/// A search for pages that may leave.
pub(crate) struct Scan {
    /// Others may be passed over.
    pub(super) wanted: Wanted,
    /// Frames that may still be looked at.
    pub(super) steps: usize,
    /// The one that was looked at last, and the next one.
    pub(super) at: Option<(Cursor, Cursor)>,
}

impl Scan {
    /// A search that looks at so many frames.
    pub(super) fn new(wanted: Wanted, steps: usize) -> Scan {
        Scan { wanted, steps, at: None }
    }
}

/// How the pages in frames are.
pub(super) trait Pages {
    /// Whether nobody has it pinned.
    fn is_unused(&self, frame: FrameId) -> bool;
    fn is_dirty(&self, frame: FrameId) -> bool;
    fn heat(&self, frame: FrameId) -> u8;
    /// Takes the heat down by one; returns what it was.
    fn cool(&self, frame: FrameId) -> u8;
    /// Takes it down to 0; returns what it was.
    fn reset(&self, frame: FrameId) -> u8;
}

/// Who leaves.
pub(super) trait Replacement: Send + Sync {
    /// A page was put into `frame`.
    fn admit(&self, frame: FrameId, page: PageId);

    /// The page in `frame` was used, and is not as hot as can be.
    fn hit(&self, frame: FrameId, meta: &Frame);

    /// The next frame to look at, while `scan` has steps.
    fn candidate(&self, scan: &mut Scan, pages: &dyn Pages) -> Option<(FrameId, Queue)>;

    /// Whether a candidate is taken out, and the caller's: until it [stays](Self::stays), or is free. Otherwise it is
    /// where it was, others may be looking at it, and it is his who takes it out when its page [leaves](Self::leaves).
    fn takes_out_candidates(&self) -> bool;

    /// A candidate that does not leave.
    fn stays(&self, frame: FrameId);

    /// The page in `frame` leaves now; its shard's mutex is held. False: the frame is not the caller's to take.
    fn leaves(&self, frame: FrameId) -> bool;

    /// `page`, which came from `queue`, has left.
    fn has_left(&self, page: PageId, queue: Queue);

    /// The first of those that leave if nobody uses them before, about `count`.
    fn next(&self, count: usize, pages: &dyn Pages) -> Vec<FrameId>;

    /// Candidates among the frames from `count` on, at most so many.
    fn beyond(&self, count: usize, most: usize) -> Vec<FrameId>;

    /// The pool has another size now.
    fn resize(&self, frames: usize);

    /// How long after its first use a page has to be used again to count as used twice, where that is asked.
    fn set_old_blocks_time(&self, _ns: u64) {}
}
