//! How frames become free: for the keeper, and for who finds none.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::Pin;
use super::replacement::{HEAT_MAX, Queue, Scan, Wanted};
use super::residence::Evicted;
use crate::base::aligned::to_u64;
use crate::base::ids::{FrameId, Lsn, PageId, SpaceId};

/// Frames that are looked at for a dropped space's pages at once.
const DISCARD_STEPS: usize = 4096;

impl Pool {
    /// Evicts `frame`, a candidate that came from `queue`; one that cannot leave is a candidate again.
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

    /// One clean page of an instance that nobody uses, out of its frame, in at most `steps` looks.
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
                // It is written by whoever does that.
                Evicted::Dirty => instance.replacement.stays(frame),
            }
        }
        instance.searches.fetch_add(1, Ordering::Relaxed);
        instance.searched.fetch_add(to_u64(steps - scan.steps), Ordering::Relaxed);
        found
    }

    /// Free frames that are refilled to, by the keeper or whose work it is.
    pub(crate) fn target(&self) -> usize {
        let target = self.target.load(Ordering::Relaxed);
        if self.is_handoff() { target } else { self.refilled_to(target) * self.instances.len() }
    }

    /// Free frames with which the keeper is asked for more.
    pub(super) fn low(&self) -> usize {
        if self.is_handoff() { self.low.load(Ordering::Relaxed) } else { self.target() / 4 * 3 }
    }

    /// For the keeper: keeps `target` frames free from now on, and is asked for more when no more than `low` are.
    pub(crate) fn keep_free(&self, target: usize, low: usize) {
        self.target.store(target, Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
    }

    /// For the keeper: how many free frames are short of what it should keep ready; 0: enough.
    pub(crate) fn frames_short(&self) -> usize {
        self.bell_wanted.store(false, Ordering::Relaxed);
        let (len, wanted) = (self.line().len(), self.line().wanted());
        // With the classic policies the keeper frees none ahead of need.
        if wanted == 0 && (!self.is_handoff() || len > self.low()) {
            return 0;
        }
        let target = if self.is_handoff() { self.target() } else { 0 };
        (target + wanted).saturating_sub(len)
    }

    /// For the keeper: frees clean victims until `wanted` are free, and collects dirty ones, pinned, that would have
    /// been next: at most `lot`. Returns how many it freed, and the dirty ones, which are candidates again after
    /// [`free_cleaned`](Self::free_cleaned).
    pub(crate) fn sweep(&self, wanted: usize, lot: usize) -> (usize, Vec<Pin<'_>>) {
        if self.is_handoff() {
            return self.sweep_counted(0, wanted, lot);
        }
        let (mut freed, mut dirty) = (0, Vec::new());
        for at in 0..self.instances.len() {
            // What nobody knew of who took a place in the line.
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

    /// The same in one instance, counted as a pass.
    fn sweep_counted(&self, at: usize, wanted: usize, lot: usize) -> (usize, Vec<Pin<'_>>) {
        let mut scan = self.long_scan();
        let steps = scan.steps;
        let (freed, dirty) = self.sweep_in(at, wanted, lot, &mut scan);
        self.counters.swept(steps - scan.steps, freed);
        (freed, dirty)
    }

    /// A search that looks at each page once more after all heat is gone. (Those beyond the end of a pool that was made
    /// smaller are in the queues as well.)
    pub(super) fn long_scan(&self) -> Scan {
        Scan::new(Wanted::Any, (usize::from(HEAT_MAX) + 2) * self.frames.made())
    }

    /// As [`sweep`](Self::sweep), in one instance.
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

    /// For the keeper: the dirty pages among the `count` of each queue that are to leave next; pinned, at most `lot`.
    /// They keep their places: clean when their turn comes, they leave without a wait.
    pub(crate) fn dirty_victims(&self, count: usize, lot: usize) -> Vec<Pin<'_>> {
        let victims = self.instances.iter().flat_map(|of| of.replacement.next(count, self));
        victims.filter_map(|frame| self.pin_dirty_frame(frame)).take(lot).collect()
    }

    /// For the keeper: frees the frames that [`sweep`](Self::sweep) collected, but for those used or dirtied since.
    /// (With the list of the classic policies only those in use at the moment: like InnoDB, which frees what it has
    /// written from the tail.)
    pub(crate) fn free_cleaned(&self, frames: &[FrameId]) {
        for &frame in frames {
            if self.evict_cleaned(frame) {
                self.give(frame);
            }
        }
    }

    /// The page leaves `frame`, which a sweep collected and which was written since, unless it was used or dirtied
    /// meanwhile. True: the frame is the caller's.
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
        // Most of those that are looked at ahead of need are clean: they cost no look into the table.
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

    /// Gives back the dirtiness that a write took and could not end.
    pub(crate) fn dirty_again(&self, frame: FrameId, rec_lsn: Lsn) {
        self.dirty.again(frame, rec_lsn);
    }

    /// The dirty frames whose oldest change is before `cut`, and where that is.
    pub(crate) fn dirty_before(&self, cut: Lsn) -> Vec<(Lsn, FrameId)> {
        self.dirty.before(cut, self.frames.made())
    }

    /// The dirty frames of an instance whose oldest change is before `cut`, the oldest first, at most so many. Only
    /// where there are flush lists.
    pub(crate) fn oldest_dirty(&self, at: usize, cut: Lsn, most: usize) -> Vec<FrameId> {
        self.dirty.oldest(at, cut, most).into_iter().map(|(_, frame)| frame).collect()
    }

    /// The same one by one, as the InnoDB of 5.5 does while pages are being flushed: after each the list is searched
    /// again from its end, past those that were taken, its mutex held. Returns how many entries that looked at, too.
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

    /// The begin of the oldest change that is in a frame only. Only where there are flush lists.
    pub(crate) fn oldest_change(&self) -> Option<Lsn> {
        let oldest = |at| self.dirty.oldest(at, Lsn(u64::MAX), 1).first().map(|(lsn, _)| *lsn);
        (0..self.instances.len()).filter_map(oldest).min()
    }

    /// Pages that were dirtied before `cut`, at most `most` of each instance. Only where there are flush lists.
    pub(crate) fn dirtied_before(&self, cut: Lsn, most: usize) -> usize {
        (0..self.instances.len()).map(|at| self.dirty.oldest(at, cut, most).len()).sum()
    }

    /// Orders frames by the ids of their pages.
    pub(crate) fn sort_by_page(&self, frames: &mut [FrameId]) {
        frames.sort_by_cached_key(|frame| self.frame(*frame).holds());
    }

    /// Throws the pages of `space`, which was dropped, out of the frames from `from` on, a step of them. Nobody uses
    /// them any more but the keeper, whose pages stay until they leave by themselves: clean, since their images go
    /// nowhere. Returns where to go on; `None`: it was the last step.
    ///
    /// The frames stay in the queues, and are free when their turn comes.
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
}
