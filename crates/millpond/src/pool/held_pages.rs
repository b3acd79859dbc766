//! The pages that an operation holds between its restarts, and its right to hold them (POOL-4).
//!
//! An operation that misses pages asks for [admission](super::admission) first. Admitted, it pins the pages that it
//! loads one by one, as many as a way from root to leaf has. An operation in the [lane](super::lane) needs no
//! admission, and keeps its pages, up to a bound.

use smallvec::SmallVec;

use super::admission::Admitted;
use super::buffer_pool::Pool;
use super::lane::InLane;
use super::pin::Pin;
use crate::base::error::Error;
use crate::base::ids::{FrameId, PageId};

/// Number of pages from the root of a large tree to a leaf.
const WAY: usize = 4;

/// Most pages that an operation keeps in the lane.
const KEPT_MAX: usize = 24;

/// Pins, and the right to them.
pub(crate) struct HeldPages<'p> {
    pool: &'p Pool,
    /// The pages loaded last, outside the lane.
    loaded: SmallVec<[Pin<'p>; 1]>,
    /// The pages that were loaded in the lane.
    kept: Vec<Pin<'p>>,
    lane: Option<InLane<'p>>,
    admitted: Option<Admitted<'p>>,
}

impl<'p> HeldPages<'p> {
    /// Holds nothing.
    pub(crate) fn new(pool: &'p Pool) -> Self {
        HeldPages { pool, loaded: SmallVec::new(), kept: Vec::new(), lane: None, admitted: None }
    }

    /// Gives up the pages, the place in the lane, and the admission.
    pub(crate) fn give_up(&mut self) {
        self.give_up_pages();
        self.lane = None;
        self.admitted = None;
    }

    /// Gives up the pages.
    pub(crate) fn give_up_pages(&mut self) {
        self.loaded.clear();
        self.kept.clear();
    }

    /// Gives up the pages that were loaded one by one outside the lane.
    pub(crate) fn give_up_loaded(&mut self) {
        self.loaded.clear();
    }

    /// Whether the operation is in the lane of one.
    pub(crate) fn is_in_lane(&self) -> bool {
        self.lane.is_some()
    }

    /// Gives up the pages, then waits on `lane` until no other operation is in it.
    pub(crate) fn enter_lane(&mut self) {
        // The operation in the lane may be waiting for the frames that this one has pinned.
        self.give_up_pages();
        self.lane = Some(self.pool.enter_lane());
    }

    /// Waits on `admission` for the right to load pages one by one, unless the operation has it already.
    pub(crate) fn admit_one(&mut self) {
        // An operation in the lane must not wait for one that may wait for the lane.
        if self.admitted.is_none() && self.lane.is_none() {
            self.admitted = Some(self.pool.admit());
        }
    }

    /// Loads and holds the page. Outside the lane the operation unpins its pages before it waits for a frame that
    /// another thread must free: in a pool that has shrunk they may be all there is.
    pub(crate) fn load(&mut self, id: PageId) -> Result<(), Error> {
        if self.lane.is_some() {
            let pin = self.pool.load(id)?;
            self.bound_kept();
            self.kept.push(pin);
            return Ok(());
        }
        if self.loaded.len() >= self.pool.way() {
            self.loaded.clear();
        }
        let is_empty = self.loaded.is_empty() && self.kept.is_empty();
        let held = if is_empty { None } else { self.pool.load_holding(id)? };
        let pin = match held {
            Some(pin) => pin,
            None => {
                self.give_up_pages();
                self.pool.load(id)?
            }
        };
        self.loaded.push(pin);
        Ok(())
    }

    /// Holds the page if the operation is in the lane.
    pub(crate) fn keep_in_lane(&mut self, pin: Pin<'p>) {
        if self.lane.is_some() {
            self.kept.push(pin);
        }
    }

    /// Gives up the kept pages if they are too many: as many as the leaves of a group in the lane and the pages on the
    /// way to them. The others come from descents that were given up.
    pub(crate) fn bound_kept(&mut self) {
        if self.kept.len() >= KEPT_MAX.min(self.pool.len() / 2) {
            self.kept.clear();
        }
    }

    /// The frames of the pages that the operation holds.
    pub(crate) fn frames(&self) -> impl Iterator<Item = FrameId> {
        self.loaded.iter().chain(&self.kept).map(Pin::frame_id)
    }

    /// Number of pages that the operation keeps in the lane; `None`: it is not in the lane.
    #[cfg(test)]
    pub(crate) fn kept_in_lane(&self) -> Option<usize> {
        self.lane.is_some().then_some(self.kept.len())
    }
}

impl Pool {
    /// Number of pages that an operation keeps pinned on its way down when it misses one after the other. With `legacy`
    /// the whole way: pages just read may be the only clean ones, and would be evicted for the next.
    pub(crate) fn way(&self) -> usize {
        if self.is_handoff() || self.is_managed() { 1 } else { WAY }
    }

    /// Admits an operation to miss pages and to pin a whole [way](Self::way). May wait on `admission`; callers hold
    /// nothing.
    pub(crate) fn admit(&self) -> Admitted<'_> {
        self.admission.enter(self.way(), &self.waits, |ns| self.counters.waited_behind(ns))
    }

    /// Waits for the lane of one. Callers hold nothing.
    pub(super) fn enter_lane(&self) -> InLane<'_> {
        self.lane.enter(&self.waits, |ns| self.counters.waited_behind(ns))
    }
}
