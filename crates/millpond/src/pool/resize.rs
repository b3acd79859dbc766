//! Resizes the pool online.
//!
//! A shrunken pool ends earlier at once: a frame beyond its end that becomes free is not used again. The keeper evicts
//! the pages in the others. Every change to which frames are beyond the end happens under the mutex of `leaving`.

use std::sync::atomic::Ordering;

use super::buffer_pool::{Pool, places};
use super::residence::Evicted;
use crate::base::error::Error;
use crate::base::ids::{FrameId, Lsn};

/// Frames beyond the end that the keeper handles before it turns to its other duties.
const RETIRED_A_STEP: usize = 256;

impl Pool {
    /// Sets the pool's size to `count` frames. For the keeper alone.
    pub(crate) fn resize(&self, count: usize) -> Result<(), Error> {
        self.frames.make(count)?;
        let before = self.len();
        self.frames.forget_touched(before);
        let back = {
            let mut leaving = self.leaving.lock();
            self.count.store(count, Ordering::Relaxed);
            *leaving += before.saturating_sub(count);
            let beyond = (before..count).map(|index| FrameId(u32::try_from(index).expect("IDS-2: 32 bits")));
            let (back, still_used): (Vec<_>, Vec<_>) = beyond.partition(|frame| self.frame(*frame).set_retired(false));
            *leaving -= still_used.len();
            back
        };
        self.instances.iter().for_each(|instance| instance.replacement.resize(count));
        self.admission.resize(places(count));
        self.line().cancel_batches(self.window());
        back.into_iter().for_each(|frame| self.ring_for(frame).give(frame));
        Ok(())
    }

    /// Dirty frames beyond the end, at most [`RETIRED_A_STEP`].
    pub(crate) fn dirty_beyond(&self) -> Vec<FrameId> {
        let count = self.len();
        let dirty = self.dirty.before(Lsn(u64::MAX), self.frames.made());
        let beyond = dirty.into_iter().map(|(_, frame)| frame).filter(|frame| frame.index() >= count);
        beyond.take(RETIRED_A_STEP).collect()
    }

    /// Retires frames beyond the end that are free or hold clean, unused pages. For the keeper alone.
    pub(crate) fn retire_step(&self) {
        // Again: a batch may have reckoned with the larger pool, and waited later.
        self.line().cancel_batches(self.window());
        for instance in &self.instances {
            for _ in 0..instance.free.len() {
                match instance.free.take(1) {
                    Some(frames) => frames.into_iter().for_each(|frame| self.give(frame)),
                    None => break,
                }
            }
            for frame in instance.replacement.beyond(self.len(), RETIRED_A_STEP) {
                match self.evict(frame) {
                    Evicted::Free(_) => self.give(frame),
                    Evicted::InUse | Evicted::Dirty => instance.replacement.stays(frame),
                }
            }
        }
    }
}
