//! What is noted of pages, in bounded memory (RECOVER-7).
//!
//! A pool has as many dirty pages as it has frames, so of all pages that the log names only about as many have an image
//! that is too old. When the table is full, pages whose image is newer than their last change so far are forgotten: if
//! one is changed again, it is noted anew, and read, at the worst, for nothing. Where that does not help, because the
//! database was used with a larger pool, the pages are cut into parts by a hash of their ids; those of the other parts
//! are forgotten, and each has a pass over the log to itself when those before it are redone.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::mtr::{formats, frees};
use crate::redo::group::Group;

/// Bytes that a page takes at most that is noted: its place in the table, half as much while that grows, and its places
/// in the two lists and the table that redo makes of it.
pub(super) const PAGE_NOTED: u64 = 130;

/// Pages that a table of what is noted has places for, at least.
const NOTED_MIN: usize = 64;

/// What the log says of one page.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    /// End of the last group that changed it.
    pub(super) last: Lsn,
    /// Page LSN of the last image that a map group names.
    pub(super) image: Lsn,
    /// Begin and end of the last group that formatted it: what was before does not matter.
    format: Option<(Lsn, Lsn)>,
}

/// What is noted of pages.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) pages: HashMap<PageId, History, FixedState>,
    /// Pages that the table has places for.
    most: usize,
    /// Pages at which room is made the next time.
    room_at: usize,
    /// How many parts there are, a power of two, and which one this is.
    pub(super) parts: u64,
    part: u64,
    /// Pages of any part that are noted with the first one: those that may be torn, which is looked at before redo.
    watched: BTreeSet<PageId>,
    /// Spaces that the log drops: of their pages nothing is redone.
    pub(super) dropped: BTreeSet<SpaceId>,
}

impl Noted {
    /// For a pool of so many frames.
    pub(super) fn new(frames: usize, watched: BTreeSet<PageId>) -> Noted {
        let most = Self::most(frames);
        Noted {
            pages: HashMap::default(),
            most,
            room_at: Self::first_part_of(most),
            parts: 1,
            part: 0,
            watched,
            dropped: BTreeSet::new(),
        }
    }

    /// How many of `most` the first part may have: the others, which are not cut any more, are a little larger or
    /// smaller by chance.
    fn first_part_of(most: usize) -> usize {
        most / 4 * 3
    }

    /// As many as a table has places for, seven in eight of a power of two: it is not made larger for one more.
    pub(super) fn most(frames: usize) -> usize {
        (2 * frames).next_power_of_two().max(NOTED_MIN) / 8 * 7
    }

    fn part_of(&self, id: PageId) -> u64 {
        // Fibonacci hashing, of which the upper bits are good.
        (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & (self.parts - 1)
    }

    fn is_wanted(&self, id: PageId) -> bool {
        if self.parts == 1 {
            return true;
        }
        let is_watched = self.watched.contains(&id);
        if self.part == 0 { is_watched || self.part_of(id) == 0 } else { !is_watched && self.part_of(id) == self.part }
    }

    /// What is noted of a page; `None`: it is of another part.
    pub(super) fn of(&mut self, id: PageId) -> Option<&mut History> {
        if !self.is_wanted(id) {
            return None;
        }
        if self.pages.len() >= self.room_at && !self.pages.contains_key(&id) {
            self.make_room();
            if !self.is_wanted(id) {
                return None;
            }
        }
        Some(self.pages.entry(id).or_default())
    }

    /// Leaves those that are to be redone, as far as is known by now.
    pub(super) fn forget_clean(&mut self) {
        let dropped = &self.dropped;
        self.pages.retain(|id, history| history.last > history.image && !dropped.contains(&id.space()));
    }

    #[cold]
    fn make_room(&mut self) {
        self.forget_clean();
        // Cutting takes no page that is watched: a lot of a few dozen may be more than a small table's half.
        while self.part == 0 && self.pages.len() > self.most / 2 + self.watched.len() {
            self.parts *= 2;
            let mut pages = std::mem::take(&mut self.pages);
            pages.retain(|id, _| self.is_wanted(*id));
            self.pages = pages;
        }
        // Not before an eighth more has come: each time costs a look at all.
        self.room_at = Self::first_part_of(self.most).max(self.pages.len() + self.most / 8);
    }

    /// Begins with the next part; false: there is none.
    pub(super) fn next_part(&mut self) -> bool {
        if self.part + 1 == self.parts || planted!("later_parts_forgotten") {
            return false;
        }
        self.part += 1;
        self.pages.clear();
        self.room_at = self.most;
        true
    }
}

impl History {
    /// A group changes the page.
    pub(super) fn change(&mut self, group: &Group<'_>, ops: &[u8]) {
        if frees(ops) {
            // What was before is not the page's any more (RECOVER-5).
            *self = History::default();
            return;
        }
        self.last = group.end;
        if formats(ops) {
            self.format = Some((group.start, group.end));
        }
    }

    /// Begin and end of the group that formats the page, if redo begins with it: the image, if there is one, is older.
    pub(super) fn starts_empty(&self) -> Option<(Lsn, Lsn)> {
        self.format.filter(|(_, end)| !planted!("init_reads_old_image") && self.image < *end)
    }

    /// Groups before this LSN do not matter to the page.
    pub(super) fn begin(&self) -> Lsn {
        self.starts_empty().map_or(Lsn::ZERO, |(start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirty(at: u64) -> History {
        History { last: Lsn(at), ..History::default() }
    }

    /// A doublewrite lot has more pages than the table of the smallest pool has room for: none is left out for that.
    #[test]
    fn watched_pages_alone_may_fill_the_table_of_a_small_pool() {
        let id = |n: u32| PageId::new(SpaceId(2), n);
        let watched: BTreeSet<PageId> = (0..64).map(id).collect();
        let mut noted = Noted::new(32, watched.clone());
        for (at, n) in (1..).zip(0..10_000u32) {
            if let Some(history) = noted.of(id(n)) {
                *history = dirty(at);
            }
        }
        assert!(watched.iter().all(|id| noted.pages.contains_key(id)) && noted.parts > 64, "{} parts", noted.parts);
        assert!(noted.pages.len() <= noted.most + watched.len() + noted.most / 8);
    }

    /// RECOVER-7: all pages of a log are noted once, in one part or another, and never more than there is room for.
    #[test]
    fn pages_beyond_the_room_are_noted_in_parts_each_once() {
        let ids: Vec<PageId> = (0..40_000u32).map(|n| PageId::new(SpaceId(2 + n % 7), n / 7)).collect();
        let watched: BTreeSet<PageId> = ids.iter().copied().step_by(1000).collect();
        let mut noted = Noted::new(400, watched.clone());
        let (mut found, mut parts) = (BTreeSet::new(), 0);
        loop {
            for (at, id) in (1..).zip(&ids) {
                if let Some(history) = noted.of(*id) {
                    *history = dirty(at);
                }
                assert!(noted.pages.len() <= noted.most, "{} of {}", noted.pages.len(), noted.most);
            }
            assert!(parts > 0 || watched.iter().all(|id| noted.pages.contains_key(id)), "the first part has them");
            for id in noted.pages.keys() {
                assert!(found.insert(*id), "page {id} is in two parts");
            }
            parts += 1;
            if !noted.next_part() {
                break;
            }
        }
        assert_eq!(found.len(), ids.len());
        assert_eq!((parts, noted.most), (64, 896));
    }

    /// Pages that are clean again make room: as many as a pool can have dirty need one part.
    #[test]
    fn clean_pages_are_forgotten_before_pages_are_cut_into_parts() {
        let mut noted = Noted::new(400, BTreeSet::new());
        for n in 0..100_000u32 {
            *noted.of(PageId::new(SpaceId(2), n)).expect("one part") = dirty(u64::from(n) + 1);
            if let Some(cleaned) = n.checked_sub(400)
                && let Some(history) = noted.of(PageId::new(SpaceId(2), cleaned))
            {
                history.image = history.last;
            }
        }
        assert_eq!(noted.parts, 1);
        noted.forget_clean();
        assert_eq!(noted.pages.len(), 400);
    }

    /// The pages of a tree that the log drops are nobody's: they need no part.
    #[test]
    fn pages_of_dropped_spaces_are_forgotten_before_pages_are_cut_into_parts() {
        let mut noted = Noted::new(400, BTreeSet::new());
        for space in 2..100 {
            for n in 0..400 {
                *noted.of(PageId::new(SpaceId(space), n)).expect("one part") = dirty(1);
            }
            noted.dropped.insert(SpaceId(space));
        }
        noted.forget_clean();
        assert_eq!((noted.parts, noted.pages.len()), (1, 0));
    }
}
