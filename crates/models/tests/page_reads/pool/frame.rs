//! Frames of the model: a latch around one number, which is the page.

use std::sync::PoisonError;

use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shuttle::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::base::ids::PageId;

const NO_PAGE: u64 = u64::MAX;

/// Contents of a frame: the page's id, as the store wrote it.
pub(crate) type PageBuf = u64;

pub(super) struct Latch(RwLock<PageBuf>);

impl Latch {
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, PageBuf> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, PageBuf> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn try_write(&self) -> Option<RwLockWriteGuard<'_, PageBuf>> {
        self.0.try_write().ok()
    }
}

pub(crate) struct Frame {
    pub(super) page: Latch,
    holds: AtomicU64,
    pub(super) pins: AtomicU32,
}

impl Frame {
    pub(super) fn new() -> Frame {
        let page = Latch(RwLock::new(NO_PAGE));
        Frame { page, holds: AtomicU64::new(NO_PAGE), pins: AtomicU32::new(0) }
    }

    pub(super) fn holds(&self) -> Option<PageId> {
        let id = self.holds.load(Ordering::Acquire);
        (id != NO_PAGE).then_some(PageId(id))
    }

    pub(super) fn set_holds(&self, page: Option<PageId>) {
        self.holds.store(page.map_or(NO_PAGE, |id| id.0), Ordering::Release);
    }

    pub(super) fn reset_heat(&self) {}
}
