//! A free frame in a thread's hand, which cannot get lost.

use super::buffer_pool::Pool;
use crate::base::ids::FrameId;

/// A frame in one thread's hand; given back when dropped.
#[must_use]
pub(crate) struct FrameTicket<'p> {
    pool: &'p Pool,
    pub(super) frame: FrameId,
    /// Whether the frame has got a page, and is not given back.
    pub(super) kept: bool,
}

impl<'p> FrameTicket<'p> {
    /// For a frame that came out of the ring.
    pub(super) fn new(pool: &'p Pool, frame: FrameId) -> Self {
        FrameTicket { pool, frame, kept: false }
    }
}

impl Drop for FrameTicket<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.give(self.frame);
        }
    }
}
