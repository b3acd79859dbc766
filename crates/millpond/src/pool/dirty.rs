//! Which pages are dirty, and since which LSN.
//!
//! DIRTY-1  A frame's `rec_lsn` is set with the page latched exclusively, and under the log's mutex or (CLOSED-2) while
//!          its group holds the checkpoint back. A `rec_lsn` is taken with the page latched. While set, it is counted;
//!          the thread that takes it takes over its count.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::memory::Frames;
use super::options::{DirtyTracking, PoolOptions};
use crate::base::ids::{FrameId, Lsn};
use crate::base::sync::{Mutex, Rank};
use crate::redo::dirty_counts::DirtyCounts;

/// Dirty pages, the oldest first.
type FlushList = BTreeSet<(Lsn, FrameId)>;

/// The dirty pages of a pool.
pub(crate) struct DirtyPages {
    frames: Arc<Frames>,
    counts: Arc<DirtyCounts>,
    /// A flush list for each instance of the pool; empty with [`DirtyTracking::Scan`].
    lists: Box<[Mutex<FlushList>]>,
    /// Number of dirty pages of each instance.
    dirty: Box<[AtomicUsize]>,
    /// For a planted bug: the `rec_lsn` that was taken from each frame.
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

    /// The flush list of the frame's instance, if there are lists.
    fn list(&self, frame: FrameId) -> Option<&Mutex<FlushList>> {
        match &*self.lists {
            [] => None,
            [only] => Some(only),
            several => Some(&several[frame.index() % several.len()]),
        }
    }

    /// The number of dirty pages of the frame's instance.
    fn dirty_with(&self, frame: FrameId) -> &AtomicUsize {
        match &*self.dirty {
            [only] => only,
            several => &several[frame.index() % several.len()],
        }
    }

    /// The start LSN of the oldest change to the frame's page that no image has; `None`: clean.
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
        // Counted first: as soon as another thread can see the mark and take it, there is a count to take.
        self.counts.add_frame(start);
        if let Some(list) = self.list(frame) {
            list.lock().insert((start, frame));
        }
        if self.frames.rec_lsn(frame).compare_exchange(0, start.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.dirty_with(frame).fetch_add(1, Ordering::Relaxed);
            return;
        }
        // A failed write has just given its dirtiness back.
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

    /// Forgets that the frame's page is dirty: no thread needs its contents any more.
    pub(super) fn forget(&self, frame: FrameId) {
        if let Some(lsn) = self.take(frame) {
            self.counts.remove(lsn);
        }
    }

    /// Gives back the dirtiness, with its count, that a failed write took. If the page is dirty again, the older LSN
    /// stays.
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

    /// The dirty frames among the first `count` whose oldest change is before `cut`, with the start LSN of that change.
    pub(super) fn before(&self, cut: Lsn, count: usize) -> Vec<(Lsn, FrameId)> {
        if self.lists.is_empty() {
            let dirty = self.frames.dirty(count).map(|(lsn, frame)| (Lsn(lsn), frame));
            return dirty.filter(|(lsn, _)| *lsn < cut).collect();
        }
        (0..self.lists.len()).flat_map(|at| self.oldest(at, cut, usize::MAX)).collect()
    }

    /// The same from an instance's flush list, at most `most`, the oldest first.
    pub(super) fn oldest(&self, at: usize, cut: Lsn, most: usize) -> Vec<(Lsn, FrameId)> {
        let Some(list) = self.lists.get(at) else { return Vec::new() };
        let list = list.lock();
        let before = list.iter().take_while(|(lsn, _)| *lsn < cut).copied();
        // An entry may be stale: dirtiness was given back just as the page was marked again.
        before.filter(|(lsn, frame)| self.since(*frame) == Some(*lsn)).take(most).collect()
    }

    /// The oldest frame before `cut` in an instance's flush list that is not in `taken`. The search passes all taken
    /// entries, with the list's mutex held. Returns the frame and the number of entries looked at.
    pub(super) fn rescan(&self, at: usize, cut: Lsn, taken: &HashSet<FrameId>) -> (Option<FrameId>, usize) {
        let Some(list) = self.lists.get(at) else { return (None, 0) };
        let list = list.lock();
        let mut looked_at = 0;
        let before = list.iter().take_while(|(lsn, _)| *lsn < cut).map(|(_, frame)| *frame);
        let found = before.inspect(|_| looked_at += 1).find(|frame| !taken.contains(frame));
        (found, looked_at)
    }

    /// Number of dirty pages.
    pub(super) fn len(&self) -> usize {
        (0..self.dirty.len()).map(|at| self.len_in(at)).sum()
    }

    /// Number of dirty pages of one instance.
    pub(super) fn len_in(&self, at: usize) -> usize {
        self.dirty[at].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::options::{EmptyFreeListAlgorithm, Freeing, PageReplacement};

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
    fn search_begun_anew_after_each_page_repeats_earlier_looks() {
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

    /// While a thread holds the last mutex in rank order it may wait for no other (RANK-1): a search that takes a mutex
    /// panics.
    #[test]
    fn a_scan_for_dirty_pages_takes_no_mutex_unlike_a_list() {
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
