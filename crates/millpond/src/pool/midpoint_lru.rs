//! Page replacement by LRU with a midpoint, as in InnoDB.
//!
//! One list under one mutex. Its tail, three eighths of it, is *old*. A page that is read enters at the head of the old
//! part. It moves to the list's head when it is used again at least `old_blocks_time` after its first use (a second by
//! default). If that time is 0, its first use after the read moves it. A page of the young part moves to the head on a
//! use if, since its last move, more pages than a fourth of the young part's length have left. So a scan passes through
//! the old part alone, and a hit takes the mutex only now and then. A dirty or pinned page keeps its place: a search
//! for a page that may leave goes from the tail past such pages.
//!
//! After: MySQL 8.0 Reference Manual, "Making the Buffer Pool Scan Resistant"; `innodb_old_blocks_pct` of 37 and
//! `innodb_old_blocks_time` of 1,000 ms are its defaults.
//!
//! LRU-1  A frame is in the list only while it has a page: it enters after the page, and leaves before it. The thread
//!        that takes the frame out owns it, and no other does.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::frame::Frame;
use super::replacement::{Cursor, Pages, Queue, Replacement, Scan, Wanted};
use crate::base::clock;
use crate::base::ids::{FrameId, PageId};
use crate::base::sync::{Mutex, Rank};

/// The old part's share of the list, in eighths.
const OLD_EIGHTHS: usize = 3;

/// Pages below which no part of the list is old.
const OLD_MIN: usize = 512;

/// Pages by which the old part's length may be off.
const OLD_TOLERANCE: usize = 20;

/// No place.
const NONE: u32 = u32::MAX;

/// Marks in one chunk, which are allocated together.
const MARKS: usize = 1024;

/// The state of a frame that a hit reads without the mutex.
#[derive(Default)]
struct Mark {
    is_old: AtomicBool,
    /// The value of [`MidpointLru::left`] when the page last came in or moved to the head.
    moved_at: AtomicU32,
    /// Time of the first use since the page was read, in nanoseconds; 0: not used yet.
    used_ns: AtomicU64,
}

/// A frame's neighbours in the list.
#[derive(Clone, Copy)]
struct Link {
    /// Towards the head.
    newer: u32,
    /// Towards the tail.
    older: u32,
    is_in: bool,
    is_old: bool,
    /// The number of this insertion among all insertions into the list; a [`Cursor`] checks it.
    turn: u32,
}

const OUT: Link = Link { newer: NONE, older: NONE, is_in: false, is_old: false, turn: 0 };

/// The list. It refers to frames by their *places*: their numbers among the frames of the instance.
struct List {
    links: Vec<Link>,
    head: u32,
    tail: u32,
    len: usize,
    /// The place at the head of the old part, or [`NONE`].
    first_old: u32,
    old_len: usize,
    /// Number of insertions so far; wraps.
    turns: u32,
}

/// The list of one instance of the buffer pool. It has each frame whose number modulo `instances` is `instance`.
pub(super) struct MidpointLru {
    instance: usize,
    instances: usize,
    list: Mutex<List>,
    marks: Box<[OnceLock<Box<[Mark]>>]>,
    /// Number of pages that have left; wraps. Hits read it without the mutex.
    left: AtomicU32,
    /// Length of the young part, for hits, which read it without the mutex.
    young_len: AtomicU32,
    /// Nanoseconds after its first use at which another use makes an old page young.
    old_ns: AtomicU64,
}

impl MidpointLru {
    /// The list of instance `instance` of `instances`, which have `frames_max` frames together at most.
    pub(super) fn new(instance: usize, instances: usize, frames_max: usize) -> MidpointLru {
        let list = List { links: Vec::new(), head: NONE, tail: NONE, len: 0, first_old: NONE, old_len: 0, turns: 0 };
        let chunks = frames_max.div_ceil(instances).div_ceil(MARKS);
        MidpointLru {
            instance,
            instances,
            list: Mutex::new(Rank::Replacement, list),
            marks: (0..chunks).map(|_| OnceLock::new()).collect(),
            left: AtomicU32::new(0),
            young_len: AtomicU32::new(0),
            old_ns: AtomicU64::new(1_000_000_000),
        }
    }

    fn place(&self, frame: FrameId) -> u32 {
        u32::try_from(frame.index() / self.instances).expect("IDS-2: a frame id has 32 bits")
    }

    fn frame(&self, place: u32) -> FrameId {
        let index = FrameId(place).index() * self.instances + self.instance;
        FrameId(u32::try_from(index).expect("IDS-2: a frame id has 32 bits"))
    }

    fn mark(&self, place: u32) -> &Mark {
        let (chunk, at) = (FrameId(place).index() / MARKS, FrameId(place).index() % MARKS);
        &self.marks[chunk].get_or_init(|| (0..MARKS).map(|_| Mark::default()).collect())[at]
    }

    /// Restores the old part's length after a change of the list, and copies the result to the marks.
    fn adjust(&self, list: &mut List) {
        for (place, is_old) in list.adjust() {
            self.mark(place).is_old.store(is_old, Ordering::Relaxed);
        }
        let young = list.len - list.old_len;
        self.young_len.store(u32::try_from(young).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    fn make_young(&self, place: u32) {
        let mut list = self.list.lock();
        // The page may have left meanwhile.
        if list.remove(place) {
            list.push_head(place);
            let mark = self.mark(place);
            mark.is_old.store(false, Ordering::Relaxed);
            mark.moved_at.store(self.left.load(Ordering::Relaxed), Ordering::Relaxed);
            self.adjust(&mut list);
        }
    }

    fn hit_at(&self, frame: FrameId, now_ns: u64) {
        let place = self.place(frame);
        let mark = self.mark(place);
        let move_it = if mark.is_old.load(Ordering::Relaxed) {
            let (used_ns, old_ns) = (mark.used_ns.load(Ordering::Relaxed), self.old_ns.load(Ordering::Relaxed));
            if used_ns == 0 {
                mark.used_ns.store(now_ns.max(1), Ordering::Relaxed);
            }
            old_ns == 0 || (used_ns > 0 && now_ns >= used_ns.saturating_add(old_ns))
        } else {
            let left = self.left.load(Ordering::Relaxed).wrapping_sub(mark.moved_at.load(Ordering::Relaxed));
            left > self.young_len.load(Ordering::Relaxed) / 4
        };
        if move_it {
            self.make_young(place);
        }
    }
}

impl Replacement for MidpointLru {
    fn admit(&self, frame: FrameId, _page: PageId) {
        let place = self.place(frame);
        let mark = self.mark(place);
        mark.used_ns.store(0, Ordering::Relaxed);
        mark.moved_at.store(self.left.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut list = self.list.lock();
        let is_old = list.push_middle(place);
        mark.is_old.store(is_old, Ordering::Relaxed);
        self.adjust(&mut list);
    }

    fn hit(&self, frame: FrameId, _meta: &Frame) {
        self.hit_at(frame, clock::coarse_ns());
    }

    /// Holds the mutex for the whole search, as InnoDB does.
    fn candidate(&self, scan: &mut Scan, pages: &dyn Pages) -> Option<(FrameId, Queue)> {
        let list = self.list.lock();
        while scan.steps > 0 {
            // If the next frame has left or moved meanwhile, continue after the last one; if that has too, from the
            // tail.
            let place = match scan.at {
                None => list.tail,
                Some((_, Cursor::End)) => NONE,
                Some((last, next)) => {
                    let link = |of| list.at(of).and_then(|place| list.link(place));
                    list.at(next).or_else(|| link(last).map(|link| link.newer)).unwrap_or(list.tail)
                }
            };
            let link = list.link(place)?;
            scan.steps -= 1;
            let frame = self.frame(place);
            let next = list.link(link.newer).map_or(Cursor::End, |next| Cursor::At(link.newer, next.turn));
            scan.at = Some((Cursor::At(place, link.turn), next));
            let is_wanted = match scan.wanted {
                Wanted::Any => true,
                Wanted::Clean => pages.is_unused(frame) && !pages.is_dirty(frame),
                Wanted::Dirty => pages.is_unused(frame) && pages.is_dirty(frame),
            };
            if is_wanted {
                return Some((frame, Queue::Main));
            }
        }
        None
    }

    fn takes_out_candidates(&self) -> bool {
        false
    }

    fn stays(&self, _frame: FrameId) {}

    fn leaves(&self, frame: FrameId) -> bool {
        let mut list = self.list.lock();
        let is_ours = list.remove(self.place(frame));
        if is_ours {
            self.left.fetch_add(1, Ordering::Relaxed);
            self.adjust(&mut list);
        }
        is_ours
    }

    fn has_left(&self, _page: PageId, _queue: Queue) {}

    fn next(&self, count: usize, _pages: &dyn Pages) -> Vec<FrameId> {
        let list = self.list.lock();
        list.tail_first().take(count).map(|place| self.frame(place)).collect()
    }

    fn beyond(&self, count: usize, most: usize) -> Vec<FrameId> {
        let list = self.list.lock();
        let frames = list.tail_first().map(|place| self.frame(place));
        frames.filter(|frame| frame.index() >= count).take(most).collect()
    }

    fn resize(&self, _frames: usize) {}

    fn set_old_blocks_time(&self, ns: u64) {
        // Relaxed: a hit may see either value.
        self.old_ns.store(ns, Ordering::Relaxed);
    }
}

impl List {
    /// The frame's link, if it is in the list.
    fn link(&self, place: u32) -> Option<Link> {
        self.links.get(FrameId(place).index()).copied().filter(|link| link.is_in)
    }

    /// The cursor's place, if its frame has not left or moved since.
    fn at(&self, cursor: Cursor) -> Option<u32> {
        match cursor {
            Cursor::At(place, turn) => self.link(place).filter(|link| link.turn == turn).map(|_| place),
            Cursor::End => None,
        }
    }

    fn link_mut(&mut self, place: u32) -> &mut Link {
        let index = FrameId(place).index();
        if self.links.len() <= index {
            self.links.resize(index + 1, OUT);
        }
        &mut self.links[index]
    }

    /// Inserts a frame between two neighbours, or at an end.
    fn insert(&mut self, place: u32, newer: u32, older: u32, is_old: bool) {
        debug_assert!(self.link(place).is_none(), "LRU-1: a frame is in the list once");
        self.turns = self.turns.wrapping_add(1);
        *self.link_mut(place) = Link { newer, older, is_in: true, is_old, turn: self.turns };
        match newer {
            NONE => self.head = place,
            _ => self.link_mut(newer).older = place,
        }
        match older {
            NONE => self.tail = place,
            _ => self.link_mut(older).newer = place,
        }
        self.len += 1;
        self.old_len += usize::from(is_old);
    }

    fn push_head(&mut self, place: u32) {
        self.insert(place, NONE, self.head, false);
    }

    /// Inserts a frame at the head of the old part, or of the list if there is no old part. Returns whether it is old.
    fn push_middle(&mut self, place: u32) -> bool {
        if self.first_old == NONE {
            self.push_head(place);
            return false;
        }
        let newer = self.links[FrameId(self.first_old).index()].newer;
        self.insert(place, newer, self.first_old, true);
        self.first_old = place;
        true
    }

    /// Removes a frame. Returns whether it was in the list.
    fn remove(&mut self, place: u32) -> bool {
        let Some(link) = self.link(place) else { return false };
        match link.newer {
            NONE => self.head = link.older,
            newer => self.link_mut(newer).older = link.older,
        }
        match link.older {
            NONE => self.tail = link.newer,
            older => self.link_mut(older).newer = link.newer,
        }
        if self.first_old == place {
            // All frames behind an old one are old.
            self.first_old = link.older;
        }
        self.len -= 1;
        self.old_len -= usize::from(link.is_old);
        *self.link_mut(place) = OUT;
        true
    }

    /// Moves the border of the old part to its wanted place. Returns the frames that became old (true) or young
    /// (false).
    fn adjust(&mut self) -> Vec<(u32, bool)> {
        let wanted = if self.len < OLD_MIN { 0 } else { self.len * OLD_EIGHTHS / 8 };
        let mut changed = Vec::new();
        while self.old_len + OLD_TOLERANCE < wanted {
            let place = match self.first_old {
                NONE => self.tail,
                first => self.links[FrameId(first).index()].newer,
            };
            self.link_mut(place).is_old = true;
            self.first_old = place;
            self.old_len += 1;
            changed.push((place, true));
        }
        let most = if wanted == 0 { 0 } else { wanted + OLD_TOLERANCE };
        while self.old_len > most {
            let place = self.first_old;
            let link = self.link_mut(place);
            link.is_old = false;
            self.first_old = link.older;
            self.old_len -= 1;
            changed.push((place, false));
        }
        changed
    }

    fn tail_first(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(self.tail).filter(|tail| *tail != NONE), |place| {
            Some(self.links[FrameId(*place).index()].newer).filter(|newer| *newer != NONE)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SpaceId;

    /// No page is pinned; odd frames are dirty.
    struct Odd;

    impl Pages for Odd {
        fn is_unused(&self, _frame: FrameId) -> bool {
            true
        }
        fn is_dirty(&self, frame: FrameId) -> bool {
            frame.0 % 2 == 1
        }
        fn heat(&self, _frame: FrameId) -> u8 {
            0
        }
        fn cool(&self, _frame: FrameId) -> u8 {
            0
        }
        fn reset(&self, _frame: FrameId) -> u8 {
            0
        }
    }

    fn page(number: u32) -> PageId {
        PageId::new(SpaceId(1), number)
    }

    fn order(lru: &MidpointLru) -> Vec<u32> {
        lru.next(usize::MAX, &Odd).iter().map(|frame| frame.0).collect()
    }

    /// Checks the list: the links in both directions, and the old part at its end.
    fn check(lru: &MidpointLru) {
        let list = lru.list.lock();
        let mut places: Vec<u32> = list.tail_first().collect();
        assert_eq!(places.len(), list.len);
        let is_old = |place: &u32| list.links[FrameId(*place).index()].is_old;
        let old = places.iter().take_while(|place| is_old(place)).count();
        assert_eq!(old, list.old_len);
        assert!(places.iter().skip(old).all(|place| !is_old(place)), "the old part is the tail");
        assert!(places.iter().all(|place| lru.mark(*place).is_old.load(Ordering::Relaxed) == is_old(place)));
        assert_eq!(list.first_old, if old == 0 { NONE } else { places[old - 1] });
        let mut forwards = Vec::new();
        let mut at = list.head;
        while at != NONE {
            forwards.push(at);
            at = list.links[FrameId(at).index()].older;
        }
        places.reverse();
        assert_eq!(forwards, places);
    }

    #[test]
    fn a_short_list_is_plain_lru() {
        let lru = MidpointLru::new(0, 1, 100);
        (0..10).for_each(|n| lru.admit(FrameId(n), page(n)));
        assert_eq!(order(&lru), (0..10).collect::<Vec<_>>());
        // Nothing has left: a young page keeps its place.
        lru.hit_at(FrameId(0), 5_000_000_000);
        assert_eq!(order(&lru)[0], 0);
        for n in 1..5 {
            assert!(lru.leaves(FrameId(n)));
            assert!(!lru.leaves(FrameId(n)), "LRU-1");
        }
        lru.hit_at(FrameId(0), 5_000_000_000);
        assert_eq!(order(&lru), [5, 6, 7, 8, 9, 0]);
        check(&lru);
    }

    #[test]
    fn three_eighths_are_old_and_a_scan_passes_through_them_alone() {
        let lru = MidpointLru::new(0, 1, 2000);
        for n in 0..1000 {
            lru.admit(FrameId(n), page(n));
            check(&lru);
        }
        let old = lru.list.lock().old_len;
        assert!(old.abs_diff(375) <= OLD_TOLERANCE, "{old}");
        // A page used twice within a second, as by a scan that reads its rows, stays old. A later use makes it young.
        let young: Vec<u32> = order(&lru)[old..].to_vec();
        for n in 1000..3000 {
            let victim = order(&lru)[0];
            assert!(!young.contains(&victim), "a scan evicted a page that is in use");
            assert!(lru.leaves(FrameId(victim)));
            lru.admit(FrameId(victim), page(n));
            lru.hit_at(FrameId(victim), 7_000_000_000);
            lru.hit_at(FrameId(victim), 7_900_000_000);
        }
        check(&lru);
        let last = order(&lru)[old - 1];
        lru.hit_at(FrameId(last), 8_000_000_000);
        assert_eq!(order(&lru).last(), Some(&last));
        check(&lru);
        // As in MySQL 5.5: one use after the read is enough, and a scan evicts pages that are in use.
        lru.set_old_blocks_time(0);
        let victim = order(&lru)[0];
        assert!(lru.leaves(FrameId(victim)));
        lru.admit(FrameId(victim), page(3_000));
        assert_ne!(order(&lru).last(), Some(&victim));
        lru.hit_at(FrameId(victim), 8_000_000_001);
        assert_eq!(order(&lru).last(), Some(&victim));
        check(&lru);
    }

    #[test]
    fn search_goes_on_past_the_pages_it_has_seen() {
        // The third of four instances.
        let lru = MidpointLru::new(2, 4, 100);
        let frames = [2, 6, 10, 14].map(FrameId);
        frames.iter().for_each(|frame| lru.admit(*frame, page(frame.0)));
        let mut scan = Scan::new(Wanted::Any, 10);
        let mut seen = || lru.candidate(&mut scan, &Odd).map(|(frame, _)| frame);
        assert_eq!([seen(), seen()], [Some(frames[0]), Some(frames[1])]);
        lru.leaves(frames[2]);
        assert_eq!([seen(), seen()], [Some(frames[3]), None]);
        // A frame that left and came in again is not where it was.
        let mut scan = Scan::new(Wanted::Any, 10);
        let mut seen = || lru.candidate(&mut scan, &Odd).map(|(frame, _)| frame);
        assert_eq!([seen(), seen()], [Some(frames[0]), Some(frames[1])]);
        assert!(lru.leaves(frames[1]) && lru.leaves(frames[3]));
        lru.admit(frames[1], page(6));
        assert_eq!(seen(), Some(frames[0]), "from the tail on, not from the other end");
        lru.leaves(frames[1]);
        lru.admit(frames[3], page(14));
        let mut short = Scan::new(Wanted::Any, 1);
        assert_eq!(lru.candidate(&mut short, &Odd).map(|(frame, _)| frame), Some(frames[0]));
        assert_eq!(lru.candidate(&mut short, &Odd).map(|(frame, _)| frame), None);
        assert_eq!(lru.beyond(7, 10), [FrameId(14)]);
    }

    #[test]
    fn search_for_a_dirty_page_passes_over_clean_ones() {
        let lru = MidpointLru::new(0, 1, 100);
        (0..6).map(|n| n * 2).chain([13]).for_each(|n| lru.admit(FrameId(n), page(n)));
        let found = |wanted, steps| {
            let mut scan = Scan::new(wanted, steps);
            (lru.candidate(&mut scan, &Odd).map(|(frame, _)| frame.0), steps - scan.steps)
        };
        assert_eq!(found(Wanted::Dirty, 10), (Some(13), 7));
        assert_eq!(found(Wanted::Dirty, 6), (None, 6));
        assert_eq!(found(Wanted::Clean, 10), (Some(0), 1));
    }
}
