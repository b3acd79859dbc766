//! How frames become free: for the keeper, and for who finds none.

use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::Pin;
use super::replacement::{HEAT_MAX, Queue};
use super::residence::Evicted;
use crate::base::ids::{FrameId, Lsn, PageId, SpaceId};

/// Frames that are looked at under one hold of the queues' mutex.
const LOOKS: usize = 64;

/// Victims of each queue that are looked at ahead of need, under one hold of the queues' mutex.
const VICTIMS: usize = 256;

/// Frames that are looked at for a dropped space's pages at once.
const DISCARD_STEPS: usize = 4096;

impl Pool {
    /// The next frame that should leave, out of its queue.
    fn candidate(&self, steps: &mut usize) -> Option<(FrameId, Queue)> {
        let cool = |frame| self.frame(frame).cool();
        let reset = |frame| self.frame(frame).reset_heat();
        while *steps > 0 {
            // A few looks at a time: who brings a page in waits for this mutex.
            let few = LOOKS.min(*steps);
            let mut left = few;
            let found = self.replacement.lock().candidate(&mut left, cool, reset);
            *steps -= few - left;
            if found.is_some() || left > 0 {
                return found;
            }
        }
        None
    }

    /// Evicts `frame`, which came from `queue`; what cannot leave goes back into the queues.
    fn evict_candidate(&self, frame: FrameId, queue: Queue) -> Evicted {
        let evicted = self.evict(frame);
        match evicted {
            Evicted::Free(Some(page)) if queue == Queue::Small => self.replacement.lock().remember(page),
            Evicted::InUse => self.replacement.lock().keep(frame),
            _ => {}
        }
        evicted
    }

    /// One clean page that nobody uses, out of its frame, in at most `steps` looks.
    pub(super) fn steal(&self, mut steps: usize) -> Option<FrameId> {
        while let Some((frame, queue)) = self.candidate(&mut steps) {
            match self.evict_candidate(frame, queue) {
                Evicted::Free(_) => return Some(frame),
                Evicted::InUse => {}
                // The keeper writes it when it gets there.
                Evicted::Dirty => self.replacement.lock().keep(frame),
            }
        }
        None
    }

    /// For the keeper: how many free frames are short of what it should keep ready; 0: enough.
    pub(crate) fn frames_short(&self) -> usize {
        self.bell_wanted.store(false, Ordering::Relaxed);
        let (free, wanted) = (self.free.len(), self.free.wanted());
        // With `legacy` nobody keeps frames free ahead of need, as in the InnoDB before page cleaners.
        if wanted == 0 && (free >= self.low() || self.is_legacy()) {
            return 0;
        }
        (self.target() + wanted).saturating_sub(free)
    }

    /// For the keeper: frees clean victims until `wanted` are free, and collects dirty ones, pinned, that would have
    /// been next: at most `lot`. Returns how many it freed, and the dirty ones, which are out of the queues until
    /// [`free_cleaned`](Self::free_cleaned).
    pub(crate) fn sweep(&self, wanted: usize, lot: usize) -> (usize, Vec<Pin<'_>>) {
        let (mut freed, mut dirty) = (0, Vec::new());
        // Enough to look at each page once more after all heat is gone.
        // (Those beyond the end of a pool that was made smaller are in the queues as well.)
        let mut steps = (usize::from(HEAT_MAX) + 2) * self.frames.made();
        while freed + dirty.len() < wanted
            && dirty.len() < lot
            && let Some((frame, queue)) = self.candidate(&mut steps)
        {
            match self.evict_candidate(frame, queue) {
                Evicted::Free(_) => {
                    self.give(frame);
                    freed += 1;
                }
                Evicted::InUse => {}
                Evicted::Dirty => match self.pin_dirty_frame(frame) {
                    Some(pin) => dirty.push(pin),
                    None => self.replacement.lock().keep(frame),
                },
            }
        }
        (freed, dirty)
    }

    /// For the keeper: the dirty pages among those that are to leave next, so many as the target of free frames, or
    /// [`VICTIMS`]; pinned, at most `lot`. They keep their places: clean when their turn comes, they leave without a
    /// wait.
    pub(crate) fn dirty_victims(&self, lot: usize) -> Vec<Pin<'_>> {
        let victims = self.replacement.lock().next(self.target().min(VICTIMS), |frame| self.frame(frame).heat());
        victims.into_iter().filter_map(|frame| self.pin_dirty_frame(frame)).take(lot).collect()
    }

    /// For the keeper: frees the frames that [`sweep`](Self::sweep) collected, but for those used or dirtied since.
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
            self.replacement.lock().keep(frame);
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
