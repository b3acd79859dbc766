//! Which pages are dirty, and since when.
//!
//! DIRTY-1  A frame's `rec_lsn` is set with the page latched exclusively, under the log's mutex or (CLOSED-2) while its
//!          group holds the checkpoint back, and taken with the page latched. As long as it is set it is counted; who
//!          takes it has the count from then on.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::buffer_pool::PoolOptions;
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
    /// By a list in the order of LSNs, behind a mutex, as InnoDB does: one for each instance of the buffer pool.
    FlushList,
}

/// Dirty pages, the oldest first.
type FlushList = BTreeSet<(Lsn, FrameId)>;

/// The dirty pages of a pool.
pub(crate) struct DirtyPages {
    frames: Arc<Frames>,
    counts: Arc<DirtyCounts>,
    /// One for each instance of the pool; none, if there are no lists.
    lists: Box<[Mutex<FlushList>]>,
    /// How many there are of each instance.
    dirty: Box<[AtomicUsize]>,
    /// For a planted bug: what each frame was dirtied with first.
    kept: Vec<AtomicU64>,
}

impl DirtyPages {
    pub(super) fn new(frames: Arc<Frames>, counts: Arc<DirtyCounts>, options: &PoolOptions) -> Self {
        let lists = if options.tracking == DirtyTracking::FlushList { options.instances } else { 0 };
        let lists = (0..lists).map(|_| Mutex::new(Rank::DirtyList, BTreeSet::new())).collect();
        let kept = if planted!("count_kept_on_redirty") { FrameId(options.frames).index() } else { 0 };
        let kept = (0..kept).map(|_| AtomicU64::new(0)).collect();
        let dirty = (0..options.instances).map(|_| AtomicUsize::new(0)).collect();
        DirtyPages { frames, counts, lists, dirty, kept }
    }

    /// The list of the frame's instance, if there are lists.
    fn list(&self, frame: FrameId) -> Option<&Mutex<FlushList>> {
        match &*self.lists {
            [] => None,
            [only] => Some(only),
            several => Some(&several[frame.index() % several.len()]),
        }
    }

    /// The count of the frame's instance.
    fn dirty_with(&self, frame: FrameId) -> &AtomicUsize {
        match &*self.dirty {
            [only] => only,
            several => &several[frame.index() % several.len()],
        }
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
        if let Some(list) = self.list(frame) {
            list.lock().insert((start, frame));
        }
        if self.frames.rec_lsn(frame).compare_exchange(0, start.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.dirty_with(frame).fetch_add(1, Ordering::Relaxed);
            return;
        }
        // A write that failed has just given its dirtiness back.
        self.counts.frame_taken(start);
        self.counts.remove(start);
        if let Some(list) = self.list(frame) {
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
        self.dirty_with(frame).fetch_sub(1, Ordering::Relaxed);
        self.counts.frame_taken(lsn);
        if let Some(list) = self.list(frame) {
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
            self.dirty_with(frame).fetch_add(1, Ordering::Relaxed);
        } else {
            let younger = Lsn(now.max(rec_lsn.0));
            self.counts.frame_taken(younger);
            self.counts.remove(younger);
        }
        if let Some(list) = self.list(frame) {
            let mut list = list.lock();
            list.remove(&(Lsn(now), frame));
            list.insert((older(now).map_or(rec_lsn, Lsn), frame));
        }
    }

    /// The dirty ones among the first `count` frames whose oldest change is before `cut`, and where that is.
    pub(super) fn before(&self, cut: Lsn, count: usize) -> Vec<(Lsn, FrameId)> {
        if self.lists.is_empty() {
            let dirty = self.frames.dirty(count).map(|(lsn, frame)| (Lsn(lsn), frame));
            return dirty.filter(|(lsn, _)| *lsn < cut).collect();
        }
        (0..self.lists.len()).flat_map(|at| self.oldest(at, cut, usize::MAX)).collect()
    }

    /// The same from an instance's list, at most so many, the oldest first.
    pub(super) fn oldest(&self, at: usize, cut: Lsn, most: usize) -> Vec<(Lsn, FrameId)> {
        let Some(list) = self.lists.get(at) else { return Vec::new() };
        let list = list.lock();
        let before = list.iter().take_while(|(lsn, _)| *lsn < cut).copied();
        // Who gives dirtiness back while it is marked anew may leave an entry that nothing stands behind.
        before.filter(|(lsn, frame)| self.since(*frame) == Some(*lsn)).take(most).collect()
    }

    /// The oldest in an instance's list before `cut` that is not `taken` yet: all the others are passed over, with the
    /// list's mutex held. Returns it with the entries that were looked at.
    pub(super) fn rescan(&self, at: usize, cut: Lsn, taken: &HashSet<FrameId>) -> (Option<FrameId>, usize) {
        let Some(list) = self.lists.get(at) else { return (None, 0) };
        let list = list.lock();
        let mut looked_at = 0;
        let before = list.iter().take_while(|(lsn, _)| *lsn < cut).map(|(_, frame)| *frame);
        let found = before.inspect(|_| looked_at += 1).find(|frame| !taken.contains(frame));
        (found, looked_at)
    }

    /// How many pages are dirty.
    pub(super) fn len(&self) -> usize {
        (0..self.dirty.len()).map(|at| self.len_in(at)).sum()
    }

    /// The same of one instance.
    pub(super) fn len_in(&self, at: usize) -> usize {
        self.dirty[at].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::buffer_pool::Freeing;
    use crate::pool::legacy::EmptyFreeListAlgorithm;
    use crate::pool::replacement::PageReplacement;

    fn dirty_pages(instances: usize) -> DirtyPages {
        tracked(DirtyTracking::FlushList, instances)
    }

    fn tracked(tracking: DirtyTracking, instances: usize) -> DirtyPages {
        let frames = Arc::new(Frames::new(16, 4096).expect("memory"));
        let options = PoolOptions {
            frames: 16,
            frames_max: 16,
            tracking,
            replacement: PageReplacement::MidpointLru,
            instances,
            freeing: Freeing {
                empty: EmptyFreeListAlgorithm::Legacy,
                lru_scan_depth: 100,
                free_list_target: None,
                old_blocks_ns: 0,
            },
        };
        DirtyPages::new(frames, Arc::default(), &options)
    }

    #[test]
    fn a_search_that_begins_anew_after_each_page_looks_at_all_before_it_again() {
        let dirty = dirty_pages(1);
        (0..10).for_each(|frame| dirty.mark(FrameId(frame), Lsn(1_000 - u64::from(frame))));
        let (mut taken, mut looked_at) = (HashSet::new(), Vec::new());
        while let (Some(frame), entries) = dirty.rescan(0, Lsn(1_000), &taken) {
            taken.insert(frame);
            looked_at.push(entries);
        }
        assert_eq!(looked_at, [1, 2, 3, 4, 5, 6, 7, 8, 9], "n (n + 1) / 2, but for the one at the cut");
    }

    #[test]
    fn each_instance_has_the_oldest_of_its_frames() {
        let dirty = dirty_pages(2);
        (0..10).for_each(|frame| dirty.mark(FrameId(frame), Lsn(1_000 - u64::from(frame))));
        let oldest =
            |at, most| dirty.oldest(at, Lsn(999), most).into_iter().map(|(_, frame)| frame.0).collect::<Vec<_>>();
        assert_eq!((oldest(0, 2), oldest(1, 9)), (vec![8, 6], vec![9, 7, 5, 3]));
        assert_eq!(dirty.before(Lsn(992), 16).len(), 1);
        dirty.forget(FrameId(8));
        assert_eq!(((dirty.len_in(0), dirty.len_in(1)), dirty.len()), ((4, 5), 9));
    }

    /// With the last mutex of all held no other can be waited for (RANK-1): a search that took one would be refused.
    #[test]
    fn a_scan_for_dirty_pages_takes_no_mutex_and_that_of_a_list_does() {
        let found = |tracking| {
            let dirty = tracked(tracking, 1);
            (0..10).for_each(|frame| dirty.mark(FrameId(frame), Lsn(1_000 - u64::from(frame))));
            let last: Mutex<()> = Mutex::new(Rank::Device, ());
            let search = || {
                let _held = last.lock();
                (dirty.before(Lsn(995), 16).len(), dirty.len())
            };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(search)).ok()
        };
        assert_eq!(found(DirtyTracking::Scan), Some((4, 10)));
        assert_eq!(found(DirtyTracking::FlushList), None);
    }
}
