//! Page replacement by S3-FIFO.
//!
//! A page enters a small queue. When its turn comes, a page that was used again moves to the main queue. Any other page
//! leaves, and the policy remembers its id for a while (a ghost): if it comes back in that time, it enters the main
//! queue at once. The main queue gives each page as many more rounds as it was used, three at most. So a scan passes
//! through the small queue alone. A hit costs one relaxed store, and none once the page is hot.
//!
//! After: Yang, Zhang, Qiu, Yue, Vigfusson, *FIFO Queues are All You Need for Cache Eviction*, SOSP 2023.

use std::collections::{HashSet, VecDeque};

use foldhash::fast::FixedState;

use super::frame::Frame;
use super::replacement::{Pages, Queue, Replacement, Scan};
use crate::base::ids::{FrameId, PageId};
use crate::base::sync::{Mutex, Rank};

/// Frames that a search looks at under one hold of the queues' mutex, for which threads wait that bring a page in.
const LOOKS: usize = 64;

/// [`next`](Replacement::next) looks at up to this many frames of a queue for each frame wanted: some have another
/// round before them.
const NEXT_LOOKS: usize = 4;

/// Uses since its load that move a page from the small queue to the main one. The first use is that of the operation
/// that loaded it.
const WARM: u8 = 2;

/// The small queue's share of the frames, as a divisor.
const SMALL_SHARE: usize = 10;

/// The queues, behind their mutex.
pub(super) struct S3Fifo(Mutex<Queues>);

impl S3Fifo {
    /// Empty queues for a pool of `frames` frames.
    pub(super) fn new(frames: usize) -> S3Fifo {
        S3Fifo(Mutex::new(Rank::Replacement, Queues::new(frames)))
    }
}

impl Replacement for S3Fifo {
    fn admit(&self, frame: FrameId, page: PageId) {
        self.0.lock().admit(frame, page);
    }

    fn hit(&self, _frame: FrameId, meta: &Frame) {
        meta.warm();
    }

    fn candidate(&self, scan: &mut Scan, pages: &dyn Pages) -> Option<(FrameId, Queue)> {
        while scan.steps > 0 {
            let few = LOOKS.min(scan.steps);
            let mut left = few;
            let found = self.0.lock().candidate(&mut left, |frame| pages.cool(frame), |frame| pages.reset(frame));
            scan.steps -= few - left;
            if found.is_some() || left > 0 {
                return found;
            }
        }
        None
    }

    fn takes_out_candidates(&self) -> bool {
        true
    }

    fn stays(&self, frame: FrameId) {
        self.0.lock().keep(frame);
    }

    fn leaves(&self, _frame: FrameId) -> bool {
        true
    }

    fn has_left(&self, page: PageId, queue: Queue) {
        if queue == Queue::Small {
            self.0.lock().remember(page);
        }
    }

    fn next(&self, count: usize, pages: &dyn Pages) -> Vec<FrameId> {
        let mut next = Vec::new();
        for queue in [Queue::Small, Queue::Main] {
            let full = next.len() + count;
            // A few under each hold of the mutex: a frame that moves meanwhile is missed, or seen twice.
            for from in (0..NEXT_LOOKS * count).step_by(LOOKS) {
                next.reserve(LOOKS);
                let looked_at = self.0.lock().leaving(queue, from, |frame| pages.heat(frame), &mut next);
                next.truncate(full);
                if looked_at == 0 || next.len() == full {
                    break;
                }
            }
        }
        next
    }

    fn beyond(&self, count: usize, most: usize) -> Vec<FrameId> {
        self.0.lock().take_beyond(count, most)
    }

    fn resize(&self, frames: usize) {
        self.0.lock().resize(frames);
    }
}

/// The queues. Every frame with a page is in one of them, or in the hand of the thread that took it as a candidate.
struct Queues {
    small: VecDeque<FrameId>,
    main: VecDeque<FrameId>,
    ghosts: VecDeque<PageId>,
    remembered: HashSet<PageId, FixedState>,
    ghosts_max: usize,
}

impl Queues {
    fn new(frames: usize) -> Queues {
        Queues {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            remembered: HashSet::with_hasher(FixedState::default()),
            ghosts_max: frames,
        }
    }

    fn resize(&mut self, frames: usize) {
        self.ghosts_max = frames;
        self.forget_ghosts();
    }

    /// Enters `frame`, which holds `page` now.
    fn admit(&mut self, frame: FrameId, page: PageId) {
        if self.remembered.remove(&page) {
            self.main.push_back(frame);
        } else {
            self.small.push_back(frame);
        }
    }

    /// Puts a candidate that stays, because it is in use, into the main queue.
    fn keep(&mut self, frame: FrameId) {
        self.main.push_back(frame);
    }

    /// Takes the frames from `count` on out of the queues, at most `most`.
    fn take_beyond(&mut self, count: usize, most: usize) -> Vec<FrameId> {
        let mut beyond = Vec::new();
        for queue in [&mut self.small, &mut self.main] {
            queue.retain(|frame| {
                let stays = frame.index() < count || beyond.len() == most;
                if !stays {
                    beyond.push(*frame);
                }
                stays
            });
        }
        beyond
    }

    /// Remembers `page`, which left from the small queue.
    fn remember(&mut self, page: PageId) {
        if self.remembered.insert(page) {
            self.ghosts.push_back(page);
            self.forget_ghosts();
        }
    }

    fn forget_ghosts(&mut self) {
        while self.ghosts.len() > self.ghosts_max {
            // A page that came back meanwhile is no longer in `remembered`, but its id still is in `ghosts`.
            if let Some(page) = self.ghosts.pop_front() {
                self.remembered.remove(&page);
            }
        }
    }

    /// Looks at a few frames of a queue, from its `from`th on. Adds those to `next` that leave at their turn unless
    /// they are used before. Returns how many it looked at.
    fn leaving(&self, queue: Queue, from: usize, heat: impl Fn(FrameId) -> u8, next: &mut Vec<FrameId>) -> usize {
        let (frames, stays_from) = match queue {
            Queue::Small => (&self.small, WARM),
            Queue::Main => (&self.main, 1),
        };
        let few = frames.range(from.min(frames.len())..frames.len().min(from + LOOKS));
        let looked_at = few.len();
        next.extend(few.filter(|frame| heat(**frame) < stays_from));
        looked_at
    }

    /// Takes the next candidate out of its queue. `cool` lowers a page's heat by one, `reset` sets it to 0; both return
    /// the heat before. Each frame looked at costs one of `steps`. `None`: no steps are left, or the queues are empty.
    fn candidate(
        &mut self,
        steps: &mut usize,
        cool: impl Fn(FrameId) -> u8,
        reset: impl Fn(FrameId) -> u8,
    ) -> Option<(FrameId, Queue)> {
        while *steps > 0 {
            *steps -= 1;
            let all = self.small.len() + self.main.len();
            let small_is_long = self.small.len() > all / SMALL_SHARE || self.main.is_empty();
            if small_is_long && let Some(frame) = self.small.pop_front() {
                if reset(frame) < WARM {
                    return Some((frame, Queue::Small));
                }
                self.main.push_back(frame);
            } else {
                let frame = self.main.pop_front()?;
                if cool(frame) == 0 {
                    return Some((frame, Queue::Main));
                }
                self.main.push_back(frame);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;

    use super::super::frame::HEAT_MAX;
    use super::*;
    use crate::base::ids::SpaceId;

    /// A cache of pages by number, as the pool drives the queues.
    struct Cache {
        queues: Queues,
        frames: HashMap<u32, FrameId>,
        heat: RefCell<Vec<u8>>,
        pages: Vec<Option<u32>>,
        misses: usize,
    }

    impl Cache {
        fn new(frames: usize) -> Cache {
            let heat = RefCell::new(vec![0; frames]);
            let pages = vec![None; frames];
            Cache { queues: Queues::new(frames), frames: HashMap::new(), heat, pages, misses: 0 }
        }

        fn touch(&mut self, page: u32) {
            if !self.frames.contains_key(&page) {
                self.misses += 1;
                let free = self.pages.iter().position(Option::is_none);
                let frame = free.map_or_else(|| self.evict(), |index| FrameId(u32::try_from(index).expect("small")));
                self.pages[frame.index()] = Some(page);
                self.heat.borrow_mut()[frame.index()] = 0;
                self.frames.insert(page, frame);
                self.queues.admit(frame, PageId::new(SpaceId(1), page));
            }
            let heat = &mut self.heat.borrow_mut()[self.frames[&page].index()];
            *heat = (*heat + 1).min(HEAT_MAX);
        }

        fn evict(&mut self) -> FrameId {
            let cool = |frame: FrameId| {
                let heat = &mut self.heat.borrow_mut()[frame.index()];
                std::mem::replace(heat, heat.saturating_sub(1))
            };
            let reset = |frame: FrameId| std::mem::take(&mut self.heat.borrow_mut()[frame.index()]);
            let (frame, queue) = self.queues.candidate(&mut 10_000, cool, reset).expect("a page leaves");
            let page = self.pages[frame.index()].take().expect("in use");
            self.frames.remove(&page);
            if queue == Queue::Small {
                self.queues.remember(PageId::new(SpaceId(1), page));
            }
            frame
        }
    }

    #[test]
    fn a_scan_does_not_take_the_place_of_what_is_used() {
        let mut cache = Cache::new(100);
        for round in 0..20 {
            for page in 0..60 {
                cache.touch(page);
            }
            if round == 2 {
                cache.misses = 0;
                for page in 1000..5000 {
                    cache.touch(page);
                }
                assert_eq!(cache.misses, 4000);
                cache.misses = 0;
            }
        }
        assert!(cache.misses <= 12, "{} of 60 pages in use had to be read again", cache.misses);
    }

    /// One of four pages leaves when its turn comes.
    struct OneInFour;

    impl Pages for OneInFour {
        fn is_unused(&self, _: FrameId) -> bool {
            true
        }

        fn is_dirty(&self, _: FrameId) -> bool {
            false
        }

        fn heat(&self, frame: FrameId) -> u8 {
            if frame.0.is_multiple_of(4) { 0 } else { HEAT_MAX }
        }

        fn cool(&self, frame: FrameId) -> u8 {
            self.heat(frame)
        }

        fn reset(&self, frame: FrameId) -> u8 {
            self.heat(frame)
        }
    }

    #[test]
    fn those_that_leave_next_are_found_between_those_that_stay() {
        let queues = S3Fifo::new(2_000);
        (0..1_000).for_each(|frame| queues.0.lock().small.push_back(FrameId(frame)));
        (1_000..2_000).for_each(|frame| queues.0.lock().main.push_back(FrameId(frame)));
        let next: Vec<u32> = queues.next(100, &OneInFour).iter().map(|frame| frame.0).collect();
        assert!(next.iter().all(|frame| frame.is_multiple_of(4)), "{next:?}");
        let small = next.iter().filter(|frame| **frame < 1_000).count();
        assert_eq!((small, next.len()), (100, 200));
        assert_eq!(queues.next(10_000, &OneInFour).len(), 500, "no more than there are");
        assert_eq!(S3Fifo::new(10).next(10, &OneInFour), []);
    }

    #[test]
    fn what_comes_back_soon_stays() {
        let mut cache = Cache::new(50);
        // A loop a little larger than the pool: with plain LRU every touch would miss.
        for _ in 0..40 {
            for page in 0..60 {
                cache.touch(page);
            }
        }
        assert!(cache.misses < 40 * 60 / 2, "{} misses of {}", cache.misses, 40 * 60);
    }
}
