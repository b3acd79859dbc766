//! Routes: copies of inner pages, for finding children without latches.
//!
//! A route is the bytes of an inner page as they were at some moment and, for each child, the frame where it was seen
//! last. Both may be outdated. A route decides nothing: a thread that reaches a leaf by routes checks that it is the
//! wanted page and covers the key. If not, the thread descends with latches.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::ids::FrameId;
use crate::base::page::view::PageView;

/// No frame has this id.
const UNKNOWN: u32 = u32::MAX;

/// The frame where a page was last seen, or [`UNKNOWN`].
pub(crate) struct FrameHint {
    frame: AtomicU32,
}

impl FrameHint {
    pub(crate) fn unknown() -> FrameHint {
        FrameHint { frame: AtomicU32::new(UNKNOWN) }
    }

    pub(crate) fn get(&self) -> Option<FrameId> {
        // Relaxed: the reader checks the frame that it finds.
        let frame = self.frame.load(Ordering::Relaxed);
        (frame != UNKNOWN).then_some(FrameId(frame))
    }

    pub(crate) fn set(&self, frame: FrameId) {
        self.frame.store(frame.0, Ordering::Relaxed);
    }
}

/// A copy of an inner page.
pub(crate) struct Route {
    page: Box<[u8]>,
    hints: Box<[FrameHint]>,
}

impl Route {
    pub(super) fn new(page: &[u8]) -> Route {
        let children = PageView::new(page).len();
        Route { page: page.into(), hints: (0..children).map(|_| FrameHint::unknown()).collect() }
    }

    /// Bytes of memory that this copy takes.
    pub(super) fn len(&self) -> usize {
        Self::len_for(&self.page)
    }

    /// Bytes of memory that the copy of `page` takes.
    pub(super) fn len_for(page: &[u8]) -> usize {
        page.len() + PageView::new(page).len() * size_of::<FrameHint>()
    }

    /// The copied page.
    pub(crate) fn view(&self) -> PageView<'_> {
        PageView::new(&self.page)
    }

    /// The frame where child `index` was last seen.
    pub(crate) fn hint(&self, index: usize) -> Option<&FrameHint> {
        self.hints.get(index)
    }
}
