//! The table of pages to redo, in bounded memory (RECOVER-7).
//!
//! A pool has at most as many dirty pages as frames, so only about as many of the pages in the log have an outdated
//! image. When the table is full, pages whose image is newer than their last change so far are dropped. If such a page
//! is changed again, it is entered anew, and at worst read in vain. That does not help if the database was used with a
//! larger pool. Then the pages are split into parts by a hash of their ids. Pages of later parts are dropped, and each
//! part gets its own pass over the log once the parts before it are redone.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::mtr::{formats, frees};
use crate::redo::group::Group;

/// Most bytes for a page in the table: its place, half as much while the table grows, and its places in the two lists
/// and the table that redo builds from it.
pub(super) const PAGE_NOTED: u64 = 130;

/// Least number of places in the table.
const NOTED_MIN: usize = 64;

/// A page's history in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct History {
    /// End of the last group that changed it.
    pub(super) last: Lsn,
    /// Page LSN of the last image named by a map group.
    pub(super) image: Lsn,
    /// Begin and end of the last group that formatted the page: its earlier contents do not matter.
    format: Option<(Lsn, Lsn)>,
}

/// The table of pages.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) pages: HashMap<PageId, History, FixedState>,
    /// Most pages that the table has places for.
    most: usize,
    /// Number of pages at which the table next makes room.
    room_at: usize,
    /// Number of parts, a power of two, and the current part.
    pub(super) parts: u64,
    part: u64,
    /// Pages that belong to the first part whatever their hash: they may be torn, which is checked before redo.
    watched: BTreeSet<PageId>,
    /// Spaces that the log drops: none of their pages is redone.
    pub(super) dropped: BTreeSet<SpaceId>,
}

impl Noted {
    /// A table for a pool of `frames` frames.
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

    /// Pages of `most` that the first part may have. Later parts are not split again, and their sizes vary a little by
    /// chance.
    fn first_part_of(most: usize) -> usize {
        most / 4 * 3
    }

    /// As many pages as fill seven eighths of a power of two: the hash table does not grow for them.
    pub(super) fn most(frames: usize) -> usize {
        (2 * frames).next_power_of_two().max(NOTED_MIN) / 8 * 7
    }

    fn part_of(&self, id: PageId) -> u64 {
        // Fibonacci hashing, whose upper bits are good.
        (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) & (self.parts - 1)
    }

    fn is_wanted(&self, id: PageId) -> bool {
        if self.parts == 1 {
            return true;
        }
        let is_watched = self.watched.contains(&id);
        if self.part == 0 { is_watched || self.part_of(id) == 0 } else { !is_watched && self.part_of(id) == self.part }
    }

    /// The page's entry; `None` if the page is of another part.
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

    /// Keeps only the pages to redo, as far as is known by now.
    pub(super) fn forget_clean(&mut self) {
        let dropped = &self.dropped;
        self.pages.retain(|id, history| history.last > history.image && !dropped.contains(&id.space()));
    }

    #[cold]
    fn make_room(&mut self) {
        self.forget_clean();
        // Splitting keeps every watched page: a lot of a few dozen may be more than half of a small table.
        while self.part == 0 && self.pages.len() > self.most / 2 + self.watched.len() {
            self.parts *= 2;
            let mut pages = std::mem::take(&mut self.pages);
            pages.retain(|id, _| self.is_wanted(*id));
            self.pages = pages;
        }
        // Next time after an eighth more: each time costs a scan of the table.
        self.room_at = Self::first_part_of(self.most).max(self.pages.len() + self.most / 8);
    }

    /// Begins with the next part; false if there is none.
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
    /// Records that a group changes the page.
    pub(super) fn change(&mut self, group: &Group<'_>, ops: &[u8]) {
        if frees(ops) {
            // The contents before do not belong to the page any more (RECOVER-5).
            *self = History::default();
            return;
        }
        self.last = group.end;
        if formats(ops) {
            self.format = Some((group.start, group.end));
        }
    }

    /// Begin and end of the group that formats the page, if redo begins with it: any image is older.
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

    /// A doublewrite lot has more pages than the smallest pool's table has room for; all of them stay in the table.
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

    /// RECOVER-7: each page of a log enters the table in exactly one part, and the table never exceeds its bound.
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

    /// Clean pages make room: as many pages as a pool can have dirty need only one part.
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

    /// Pages of a tree that the log drops are not redone: they need no part.
    #[test]
    fn pages_of_dropped_spaces_go_before_the_split_into_parts() {
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
