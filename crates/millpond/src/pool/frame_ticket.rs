//! A frame that is in nobody's use yet, and does not get lost.

use super::buffer_pool::Pool;
use crate::base::ids::FrameId;

/// A frame in one thread's hand; it goes back when dropped.
#[must_use]
pub(crate) struct FrameTicket<'p> {
    pool: &'p Pool,
    pub(super) frame: FrameId,
    /// It does not go back any more.
    pub(super) kept: bool,
}

impl<'p> FrameTicket<'p> {
    /// `frame` came out of the ring.
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
