//! Pins of the model.

use shuttle::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use crate::base::ids::{FrameId, PageId};

pub(crate) struct Pin<'p> {
    pub(super) pool: &'p Pool,
    pub(super) frame: FrameId,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.pool.frame(self.frame).pins.fetch_sub(1, Ordering::Release);
        self.pool.unpinned();
    }
}

impl Pin<'_> {
    /// The id of the page in the frame.
    pub(crate) fn read(&self) -> PageId {
        PageId(*self.pool.frame(self.frame).page.read())
    }
}
