//! Eviction: how frames become free, for the keeper and for threads that find none.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::HEAT_MAX;
use super::pin::Pin;
use super::replacement::{Pages, Queue, Scan, Wanted};
use super::residence::Evicted;
use crate::base::aligned::to_u64;
use crate::base::ids::{FrameId, Lsn, PageId, SpaceId};

/// Frames that one step searches for a dropped space's pages.
const DISCARD_STEPS: usize = 4096;

impl Pages for Pool {
    fn is_unused(&self, frame: FrameId) -> bool {
        // Relaxed: eviction checks again under the shard's mutex.
        self.frame(frame).pins.load(Ordering::Relaxed) == 0
    }

    fn is_dirty(&self, frame: FrameId) -> bool {
        self.dirty.since(frame).is_some()
    }

    fn heat(&self, frame: FrameId) -> u8 {
        self.frame(frame).heat()
    }

    fn cool(&self, frame: FrameId) -> u8 {
        self.frame(frame).cool()
    }

    fn reset(&self, frame: FrameId) -> u8 {
        self.frame(frame).reset_heat()
    }
}

impl Pool {
    /// Evicts `frame`, a candidate from `queue`. If it is in use, it becomes a candidate again.
    pub(super) fn evict_candidate(&self, frame: FrameId, queue: Queue) -> Evicted {
        let evicted = self.evict(frame);
        let replacement = &self.instance_of(frame).replacement;
        match evicted {
            Evicted::Free(Some(page)) => replacement.has_left(page, queue),
            Evicted::InUse => replacement.stays(frame),
            _ => {}
        }
        evicted
    }

    /// Evicts one clean, unused page of an instance, with at most `steps` looks, and returns its frame.
    pub(super) fn steal(&self, at: usize, steps: usize) -> Option<FrameId> {
        let instance = &self.instances[at];
        let mut scan = Scan::new(Wanted::Clean, steps);
        let mut found = None;
        while found.is_none()
            && let Some((frame, queue)) = instance.replacement.candidate(&mut scan, self)
        {
            match self.evict_candidate(frame, queue) {
                Evicted::Free(_) => found = Some(frame),
                Evicted::InUse => {}
                // Not written here: the keeper or another page writer does that.
                Evicted::Dirty => instance.replacement.stays(frame),
            }
        }
        instance.searches.fetch_add(1, Ordering::Relaxed);
        instance.searched.fetch_add(to_u64(steps - scan.steps), Ordering::Relaxed);
        found
    }

    /// The number of free frames that the keeper, LRU managers or page cleaners refill to.
    pub(crate) fn target(&self) -> usize {
        let target = self.target.load(Ordering::Relaxed);
        if self.is_handoff() { target } else { self.refilled_to(target) * self.instances.len() }
    }

    /// At this number of free frames or fewer the keeper is asked for more.
    pub(super) fn low(&self) -> usize {
        if self.is_handoff() { self.low.load(Ordering::Relaxed) } else { self.target() / 4 * 3 }
    }

    /// For the keeper: sets the `target` of free frames, and the `low` mark at which it is asked for more.
    pub(crate) fn keep_free(&self, target: usize, low: usize) {
        self.target.store(target, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
    }

    /// For the keeper: how many free frames are missing from what it should keep ready; 0: enough.
    pub(crate) fn frames_short(&self) -> usize {
        self.bell_wanted.store(false, Ordering::Relaxed);
        let (len, wanted) = (self.line().len(), self.line().wanted());
        // With the classic policies the keeper frees no frames ahead of need.
        if wanted == 0 && (!self.is_handoff() || len > self.low()) {
            return 0;
        }
        let target = if self.is_handoff() { self.target() } else { 0 };
        (target + wanted).saturating_sub(len)
    }

    /// For the keeper: frees clean victims until `wanted` are free, and collects the dirty victims on the way, pinned,
    /// at most `lot`. Returns how many it freed, and the dirty ones. These are candidates again after
    /// [`free_cleaned`](Self::free_cleaned).
    pub(crate) fn sweep(&self, wanted: usize, lot: usize) -> (usize, Vec<Pin<'_>>) {
        if self.is_handoff() {
            return self.sweep_counted(0, wanted, lot);
        }
        let (mut freed, mut dirty) = (0, Vec::new());
        for at in 0..self.instances.len() {
            // Frames that came free in another instance while a thread took its place in the line.
            while freed + dirty.len() < wanted
                && at > 0
                && let Some(frames) = self.instances[at].free.take(1)
            {
                freed += frames.len();
                frames.into_iter().for_each(|frame| self.give(frame));
            }
            let left = wanted.saturating_sub(freed + dirty.len());
            let (more, also) = self.sweep_counted(at, left, lot - dirty.len());
            freed += more;
            dirty.extend(also);
        }
        (freed, dirty)
    }

    /// [`sweep`](Self::sweep) in one instance, counted as a pass.
    fn sweep_counted(&self, at: usize, wanted: usize, lot: usize) -> (usize, Vec<Pin<'_>>) {
        let mut scan = self.long_scan();
        let steps = scan.steps;
        let (freed, dirty) = self.sweep_in(at, wanted, lot, &mut scan);
        self.counters.swept(steps - scan.steps, freed);
        (freed, dirty)
    }

    /// A search that still looks at each page once more after all heat is gone. (A shrunken pool's frames beyond its
    /// end are in the queues as well.)
    pub(super) fn long_scan(&self) -> Scan {
        Scan::new(Wanted::Any, (usize::from(HEAT_MAX) + 2) * self.frames.made())
    }

    /// [`sweep`](Self::sweep) in one instance.
    pub(super) fn sweep_in(&self, at: usize, wanted: usize, lot: usize, scan: &mut Scan) -> (usize, Vec<Pin<'_>>) {
        let replacement = &self.instances[at].replacement;
        let (mut freed, mut dirty) = (0, Vec::new());
        while freed + dirty.len() < wanted
            && dirty.len() < lot
            && let Some((frame, queue)) = replacement.candidate(scan, self)
        {
            match self.evict_candidate(frame, queue) {
                Evicted::Free(_) => {
                    self.give(frame);
                    freed += 1;
                }
                Evicted::InUse => {}
                Evicted::Dirty => match self.pin_dirty_frame(frame) {
                    Some(pin) => dirty.push(pin),
                    None => replacement.stays(frame),
                },
            }
        }
        (freed, dirty)
    }

    /// For the keeper: the dirty pages among the next `count` victims of each queue, pinned, at most `lot`. They keep
    /// their places: once clean, they leave at their turn without a wait.
    pub(crate) fn dirty_victims(&self, count: usize, lot: usize) -> Vec<Pin<'_>> {
        let victims = self.instances.iter().flat_map(|of| of.replacement.next(count, self));
        victims.filter_map(|frame| self.pin_dirty_frame(frame)).take(lot).collect()
    }

    /// For the keeper: frees the frames that [`sweep`](Self::sweep) collected, except those used or dirtied since.
    /// (With the list of the classic policies earlier uses do not count: InnoDB, too, frees the pages that it has
    /// written from the tail.)
    pub(crate) fn free_cleaned(&self, frames: &[FrameId]) {
        for &frame in frames {
            if self.evict_cleaned(frame) {
                self.give(frame);
            }
        }
    }

    /// Evicts the page in `frame`, which a sweep collected and a write has cleaned, unless it was used or dirtied
    /// since. True: the frame is the caller's.
    pub(super) fn evict_cleaned(&self, frame: FrameId) -> bool {
        let used = self.frame(frame).heat() > 0;
        let left = !used && matches!(self.evict(frame), Evicted::Free(_));
        if !left {
            self.instance_of(frame).replacement.stays(frame);
        }
        left
    }

    /// Pins the page in `frame` if it is dirty.
    fn pin_dirty_frame(&self, frame: FrameId) -> Option<Pin<'_>> {
        // Most frames that are looked at ahead of need are clean: these cost no look into the page table.
        self.dirty.since(frame)?;
        let id = self.frame(frame).holds()?;
        self.fetch_cold(id).filter(|pin| pin.frame == frame && self.dirty.since(frame).is_some())
    }

    /// For the keeper: pins the dirty frames among `frames`.
    pub(crate) fn pin_dirty(&self, frames: &[FrameId]) -> Vec<Pin<'_>> {
        frames.iter().filter_map(|frame| self.pin_dirty_frame(*frame)).collect()
    }

    /// For the keeper: pins the page if it is dirty.
    pub(crate) fn pin_dirty_page(&self, id: PageId) -> Option<Pin<'_>> {
        self.fetch_cold(id).filter(|pin| self.dirty.since(pin.frame).is_some())
    }

    /// For the keeper: pins `frame` if its oldest change is before `cut`.
    pub(crate) fn pin_dirty_before(&self, frame: FrameId, cut: Lsn) -> Option<Pin<'_>> {
        self.dirty.since(frame).filter(|since| *since < cut)?;
        self.pin_dirty_frame(frame)
    }

    /// Gives back the dirtiness that a failed write took.
    pub(crate) fn dirty_again(&self, frame: FrameId, rec_lsn: Lsn) {
        self.dirty.again(frame, rec_lsn);
    }

    /// The dirty frames whose oldest change is before `cut`, with that change's start LSN.
    pub(crate) fn dirty_before(&self, cut: Lsn) -> Vec<(Lsn, FrameId)> {
        self.dirty.before(cut, self.frames.made())
    }

    /// The dirty frames of an instance whose oldest change is before `cut`, at most `most`, the oldest first. Only with
    /// flush lists.
    pub(crate) fn oldest_dirty(&self, at: usize, cut: Lsn, most: usize) -> Vec<FrameId> {
        self.dirty.oldest(at, cut, most).into_iter().map(|(_, frame)| frame).collect()
    }

    /// The same one by one, as in InnoDB 5.5 while pages are being flushed. After each frame the list is searched again
    /// from its end, past all frames already taken, with its mutex held. Also returns how many entries that looked at.
    pub(crate) fn rescan_dirty(&self, at: usize, cut: Lsn, most: usize) -> (Vec<FrameId>, usize) {
        let (mut taken, mut frames, mut looked_at) = (HashSet::new(), Vec::new(), 0);
        while frames.len() < most {
            let (found, entries) = self.dirty.rescan(at, cut, &taken);
            looked_at += entries;
            let Some(frame) = found else { break };
            taken.insert(frame);
            frames.push(frame);
        }
        (frames, looked_at)
    }

    /// The start LSN of the oldest change that no image has. Only with flush lists.
    pub(crate) fn oldest_change(&self) -> Option<Lsn> {
        let oldest = |at| self.dirty.oldest(at, Lsn(u64::MAX), 1).first().map(|(lsn, _)| *lsn);
        (0..self.instances.len()).filter_map(oldest).min()
    }

    /// Number of pages dirtied before `cut`, at most `most` for each instance. Only with flush lists.
    pub(crate) fn dirtied_before(&self, cut: Lsn, most: usize) -> usize {
        (0..self.instances.len()).map(|at| self.dirty.oldest(at, cut, most).len()).sum()
    }

    /// Sorts frames by the ids of their pages.
    pub(crate) fn sort_by_page(&self, frames: &mut [FrameId]) {
        frames.sort_by_cached_key(|frame| self.frame(*frame).holds());
    }

    /// Throws the pages of `space`, which was dropped, out of the frames from `from` on, one step of frames. Only the
    /// keeper still uses such pages. A page that it uses becomes clean, since its image goes nowhere, and leaves in its
    /// turn. Returns where to go on; `None`: it was the last step.
    ///
    /// The frames stay in the queues, and become free when their turn comes.
    pub(crate) fn discard_step(&self, space: SpaceId, from: usize) -> Option<usize> {
        let made = self.frames.made();
        let upto = made.min(from + DISCARD_STEPS);
        for index in from..upto {
            let frame = FrameId(u32::try_from(index).expect("IDS-2: a frame id has 32 bits"));
            if let Some(page) = self.frame(frame).holds().filter(|page| page.space() == space) {
                self.discard(frame, page);
            }
        }
        (upto < made).then_some(upto)
    }

    /// The outcome for a candidate without a page: free, if the frame is the caller's.
    pub(super) fn without_page(&self, frame: FrameId) -> Evicted {
        match self.instance_of(frame).replacement.takes_out_candidates() {
            true => Evicted::Free(None),
            false => Evicted::InUse,
        }
    }

    /// After a page was thrown out of `frame`: the frame stays in its queue, or is freed now. The shard's mutex is not
    /// held.
    pub(super) fn discarded(&self, frame: FrameId) {
        if !self.instance_of(frame).replacement.takes_out_candidates() {
            self.give(frame);
        }
    }
}
