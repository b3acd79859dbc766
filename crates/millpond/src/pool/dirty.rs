//! Which pages are dirty, and since when.
//!
//! DIRTY-1  A frame's `rec_lsn` is set under the log's mutex with the page latched exclusively, and taken with the page
//!          latched. As long as it is set it is counted; who takes it has the count from then on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::memory::Frames;
use crate::base::ids::{FrameId, Lsn};
use crate::base::sync::{Mutex, Rank};
use crate::redo::dirty_counts::DirtyCounts;

/// How the pages that were dirtied before an LSN are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DirtyTracking {
    /// By a pass over one number for each frame. Nothing is shared between those who dirty pages.
    #[default]
    Scan,
    /// By a list in the order of LSNs, behind a mutex, as in the InnoDB of old.
    FlushList,
}

/// The dirty pages of a pool.
pub(crate) struct DirtyPages {
    frames: Arc<Frames>,
    counts: Arc<DirtyCounts>,
    list: Option<Mutex<BTreeSet<(Lsn, FrameId)>>>,
    dirty: AtomicUsize,
    /// For a planted bug: what each frame was dirtied with first.
    kept: Vec<AtomicU64>,
}

impl DirtyPages {
    pub(super) fn new(frames: Arc<Frames>, count: usize, counts: Arc<DirtyCounts>, tracking: DirtyTracking) -> Self {
        let list = (tracking == DirtyTracking::FlushList).then(|| Mutex::new(Rank::DirtyList, BTreeSet::new()));
        let kept = if planted!("count_kept_on_redirty") { count } else { 0 };
        let kept = (0..kept).map(|_| AtomicU64::new(0)).collect();
        DirtyPages { frames, counts, list, dirty: AtomicUsize::new(0), kept }
    }

    /// The begin of the oldest change of the frame's page that is in no image; `None`: clean.
    pub(super) fn since(&self, frame: FrameId) -> Option<Lsn> {
        // Relaxed: the page's latch or the log's mutex orders this where it decides something.
        match self.frames.rec_lsn(frame).load(Ordering::Relaxed) {
            0 => None,
            lsn => Some(Lsn(lsn)),
        }
    }

    /// Marks the frame's page dirty from the group at `start` on, unless it is dirty already.
    pub(super) fn mark(&self, frame: FrameId, start: Lsn) {
        let start = match self.kept.get(frame.index()).map(|kept| kept.load(Ordering::Relaxed)) {
            Some(kept) if kept > 0 => Lsn(kept),
            _ => start,
        };
        if self.since(frame).is_some() {
            return;
        }
        // Counted first: from the moment at which the mark can be seen, who takes it takes a count.
        self.counts.add_frame(start);
        if let Some(list) = &self.list {
            list.lock().insert((start, frame));
        }
        if self.frames.rec_lsn(frame).compare_exchange(0, start.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.dirty.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // A write that failed has just given its dirtiness back.
        self.counts.frame_taken(start);
        self.counts.remove(start);
        if let Some(list) = &self.list {
            list.lock().remove(&(start, frame));
        }
    }

    /// Takes the frame's dirtiness, and its count with it.
    pub(super) fn take(&self, frame: FrameId) -> Option<Lsn> {
        let lsn = match self.frames.rec_lsn(frame).swap(0, Ordering::Relaxed) {
            0 => return None,
            lsn => Lsn(lsn),
        };
        if let Some(kept) = self.kept.get(frame.index()) {
            kept.fetch_max(lsn.0, Ordering::Relaxed);
        }
        self.dirty.fetch_sub(1, Ordering::Relaxed);
        self.counts.frame_taken(lsn);
        if let Some(list) = &self.list {
            list.lock().remove(&(lsn, frame));
        }
        Some(lsn)
    }

    /// Forgets that the frame's page is dirty: nobody wants it any more.
    pub(super) fn forget(&self, frame: FrameId) {
        if let Some(lsn) = self.take(frame) {
            self.counts.remove(lsn);
        }
    }

    /// Gives back the dirtiness, and its count, that a write took and could not end: the older of the two begins
    /// counts.
    pub(super) fn again(&self, frame: FrameId, rec_lsn: Lsn) {
        let slot = self.frames.rec_lsn(frame);
        let older = |now: u64| Some(if now == 0 { rec_lsn.0 } else { now.min(rec_lsn.0) });
        // Counted first, as in `mark`.
        self.counts.frame_again(rec_lsn);
        let now = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, older).unwrap_or(0);
        if now == 0 {
            self.dirty.fetch_add(1, Ordering::Relaxed);
        } else {
            let younger = Lsn(now.max(rec_lsn.0));
            self.counts.frame_taken(younger);
            self.counts.remove(younger);
        }
        if let Some(list) = &self.list {
            let mut list = list.lock();
            list.remove(&(Lsn(now), frame));
            list.insert((older(now).map_or(rec_lsn, Lsn), frame));
        }
    }

    /// The dirty ones among the first `count` frames whose oldest change is before `cut`, and where that is.
    pub(super) fn before(&self, cut: Lsn, count: usize) -> Vec<(Lsn, FrameId)> {
        match &self.list {
            Some(list) => {
                let list = list.lock();
                let before = list.iter().take_while(|(lsn, _)| *lsn < cut).copied();
                // Who gives dirtiness back while it is marked anew may leave an entry that nothing stands behind.
                before.filter(|(lsn, frame)| self.since(*frame) == Some(*lsn)).collect()
            }
            None => {
                let dirty = self.frames.dirty(count).map(|(lsn, frame)| (Lsn(lsn), frame));
                dirty.filter(|(lsn, _)| *lsn < cut).collect()
            }
        }
    }

    /// How many pages are dirty.
    pub(super) fn len(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }
}
