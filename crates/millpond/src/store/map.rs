//! The page map: for each page id the location of its newest durable image.
//!
//! A space's map is divided into map pages. A map page becomes dirty like any other page: its oldest change holds the
//! checkpoint back until its image is written. The first map page of a small space has no image: the
//! [directory](super::directory) holds its entries.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::base::aligned::{BLOCK_U64, to_u64, to_usize};
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId};
use crate::redo::dirty_counts::DirtyCounts;

/// Location of an image: 40 bits of offset in 4 KiB units, 4 of size, 20 of tag. Zero: no image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapEntry(pub(crate) u64);

pub(crate) const TAG_BITS: u32 = 20;

/// The tag of an image. Different images of a page never have the same page LSN, and rarely the same tag (Fibonacci
/// hashing, Knuth, The Art of Computer Programming 3, 6.4). A moved image stays the same image.
pub(crate) fn tag_of(page_lsn: Lsn) -> u64 {
    page_lsn.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - TAG_BITS)
}

impl MapEntry {
    /// The largest end of a file whose locations an entry can name.
    pub(super) const FILE_END: u64 = BLOCK_U64 << 40;

    /// The entry for an image of `len` bytes at `offset`, both multiples of 4 KiB.
    pub(crate) fn new(offset: u64, len: u64, tag: u64) -> MapEntry {
        MapEntry((offset / BLOCK_U64) << 24 | (len / BLOCK_U64 - 1) << TAG_BITS | tag)
    }

    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn offset(self) -> u64 {
        (self.0 >> 24) * BLOCK_U64
    }

    /// Bytes of the image.
    pub(crate) fn len(self) -> u64 {
        ((self.0 >> TAG_BITS & 0xf) + 1) * BLOCK_U64
    }

    pub(crate) fn tag(self) -> u64 {
        self.0 & ((1 << TAG_BITS) - 1)
    }

    /// The slot, in a file whose slots of `len` bytes begin at `start`; `None`: no slot begins at this location.
    pub(crate) fn slot(self, start: u64, len: u64) -> Option<SlotId> {
        let bytes = self.offset().checked_sub(start)?;
        let whole = self.is_some() && bytes % len == 0 && self.len() == len;
        whole.then_some(SlotId(bytes / len))
    }
}

/// Entries in a map page.
pub(crate) const ENTRIES: u32 = 504;

/// Entries of a map page that a directory can hold.
pub(crate) const INLINE: u32 = 8;

/// Spaces whose entries are looked at before other threads have the store's mutex.
const SPACES_AT_ONCE: usize = 512;

/// End of a space's page numbers: whole map pages of them, within 32 bits.
pub(super) const NUMBERS_END: u32 = u32::MAX / ENTRIES * ENTRIES;

/// A map page: the entries of [`ENTRIES`] pages.
pub(crate) struct MapPage {
    /// Shared with a frozen map until it changes.
    pub(crate) entries: Arc<Vec<MapEntry>>,
    /// End of the last map group applied to it.
    pub(crate) lsn: Lsn,
    /// Begin of the oldest map group that no image of it contains; counted in [`DirtyCounts`].
    pub(super) rec_lsn: Option<Lsn>,
    /// Location of its image in the map file.
    pub(crate) place: MapEntry,
    /// The first checkpoint that will name `place`.
    pub(super) named_by: u64,
}

impl MapPage {
    pub(crate) fn new(place: MapEntry) -> MapPage {
        let entries = Arc::new(vec![MapEntry::default(); to_usize(u64::from(ENTRIES))]);
        MapPage { entries, lsn: Lsn::ZERO, rec_lsn: None, place, named_by: 0 }
    }

    /// Whether the page, of this index in its space, needs a place: a directory cannot hold all its entries.
    pub(super) fn needs_place(&self, index: u32) -> bool {
        index > 0 || self.entries.iter().skip(to_usize(u64::from(INLINE))).any(|entry| entry.is_some())
    }
}

/// The pages of one space.
#[derive(Default)]
pub(crate) struct Space {
    pub(crate) pages: Vec<MapPage>,
    /// The first map page has a place. It keeps one until the space is dropped.
    is_placed: bool,
    /// All page ids below this have been given out, except those in `unused`.
    next_number: u32,
    unused: Vec<u32>,
}

/// The map in memory.
pub(crate) struct PageMap {
    pub(crate) spaces: BTreeMap<SpaceId, Space>,
    /// Page ids given out, in all spaces.
    charged: u64,
    /// Includes map pages of dropped spaces, until their places are given back.
    map_pages: u64,
    /// Spaces whose first map page has no place: a directory may have to hold its entries. Includes dropped ones, until
    /// they are forgotten.
    unplaced: u64,
    counts: Arc<DirtyCounts>,
}

impl Space {
    /// Whether a directory holds all entries of the first map page. Looks at them only if many page ids were given out.
    pub(super) fn is_small(&self) -> bool {
        let few = (1..=INLINE).contains(&self.next_number);
        self.pages.first().is_some_and(|first| !first.place.is_some() && (few || !first.needs_place(0)))
    }

    /// Number of map pages that have places, or may need them.
    fn map_pages(&self) -> u64 {
        let is_small = !self.is_placed && self.next_number <= INLINE;
        if is_small { 0 } else { u64::from(self.next_number.div_ceil(ENTRIES)) }
    }
}

fn position(id: PageId) -> (usize, usize) {
    let (page, entry) = (id.number() / ENTRIES, id.number() % ENTRIES);
    (to_usize(u64::from(page)), to_usize(u64::from(entry)))
}

impl PageMap {
    pub(crate) fn new(counts: Arc<DirtyCounts>) -> PageMap {
        PageMap { spaces: BTreeMap::new(), charged: 0, map_pages: 0, unplaced: 0, counts }
    }

    pub(super) fn charged(&self) -> u64 {
        self.charged
    }

    /// Number of map pages that have places, or may need them for ids given out.
    pub(super) fn map_pages(&self) -> u64 {
        self.map_pages
    }

    /// Number of spaces whose first map page has no place.
    pub(super) fn unplaced(&self) -> u64 {
        self.unplaced
    }

    pub(crate) fn get(&self, id: PageId) -> MapEntry {
        let (page, entry) = position(id);
        let found = self.spaces.get(&id.space()).and_then(|space| space.pages.get(page));
        found.map_or(MapEntry::default(), |page| page.entries[entry])
    }

    pub(super) fn has_space(&self, space: SpaceId) -> bool {
        self.spaces.contains_key(&space)
    }

    /// Makes the map name an image, as the map group from `start` to `end` says. Returns the previous entry. Does
    /// nothing if the map page contains that group already.
    pub(crate) fn apply(&mut self, id: PageId, entry: MapEntry, start: Lsn, end: Lsn) -> Option<MapEntry> {
        let (page, at) = position(id);
        let space = self.spaces.entry(id.space()).or_default();
        while space.pages.len() <= page {
            space.pages.push(MapPage::new(MapEntry::default()));
        }
        let page = &mut space.pages[page];
        // A group may contain several entries of one map page.
        if page.lsn > end || (page.lsn == end && page.rec_lsn.is_none()) {
            return None;
        }
        if page.rec_lsn.is_none() {
            self.counts.add(start);
            page.rec_lsn = Some(start);
        }
        page.lsn = end;
        Some(std::mem::replace(&mut Arc::make_mut(&mut page.entries)[at], entry))
    }

    /// Makes the map name no image of page `id`, which the group from `start` to `end` gave back. Returns the previous
    /// entry. Does nothing if there is none, or if the map page contains that group already.
    pub(crate) fn clear(&mut self, id: PageId, start: Lsn, end: Lsn) -> Option<MapEntry> {
        if !self.get(id).is_some() {
            return None;
        }
        self.apply(id, MapEntry::default(), start, end)
    }

    /// End of the last group applied to the map page of `id`.
    pub(super) fn known_to(&self, id: PageId) -> Lsn {
        let (page, _) = position(id);
        let found = self.spaces.get(&id.space()).and_then(|space| space.pages.get(page));
        found.map_or(Lsn::ZERO, |page| page.lsn)
    }

    /// Gives out a page id of `space`; `None`: all ids are given out.
    pub(super) fn allocate(&mut self, space_id: SpaceId) -> Option<PageId> {
        let space = match self.spaces.entry(space_id) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(none) => {
                self.unplaced += 1;
                none.insert(Space::default())
            }
        };
        let before = space.map_pages();
        let number = match space.unused.pop() {
            Some(number) => number,
            None if space.next_number < NUMBERS_END || planted!("page_numbers_wrap") => {
                let number = space.next_number;
                space.next_number = number.wrapping_add(1);
                number
            }
            None => return None,
        };
        self.map_pages += space.map_pages() - before;
        self.charged += 1;
        Some(PageId::new(space_id, number))
    }

    /// Takes back a page id that was never used, or is no longer used.
    pub(super) fn give_back(&mut self, id: PageId) {
        if let Some(space) = self.spaces.get_mut(&id.space()) {
            space.unused.push(id.number());
            self.charged -= 1;
        }
    }

    /// Page ids of a space in use.
    pub(super) fn used(&self, id: SpaceId) -> Vec<PageId> {
        let Some(space) = self.spaces.get(&id) else { return Vec::new() };
        let unused: BTreeSet<u32> = space.unused.iter().copied().collect();
        let used = (0..space.next_number).filter(|number| !unused.contains(number));
        used.map(|number| PageId::new(id, number)).collect()
    }

    /// Number of page ids of a space in use.
    pub(super) fn used_count(&self, id: SpaceId) -> u64 {
        self.spaces.get(&id).map_or(0, |space| u64::from(space.next_number) - to_u64(space.unused.len()))
    }

    /// After replay, the page ids in use are those with an entry, and those in `formatted`, which have no entry yet.
    pub(super) fn rebuild_ids(&mut self, formatted: &HashSet<PageId, FixedState>) {
        let mut extra: BTreeMap<SpaceId, BTreeSet<u32>> = BTreeMap::new();
        for id in formatted {
            extra.entry(id.space()).or_default().insert(id.number());
            self.spaces.entry(id.space()).or_default();
        }
        (self.charged, self.map_pages, self.unplaced) = (0, 0, 0);
        for (id, space) in &mut self.spaces {
            space.is_placed = space.pages.first().is_some_and(|first| first.place.is_some());
            self.unplaced += u64::from(!space.is_placed);
            let formatted = extra.remove(id).unwrap_or_default();
            let pages = &space.pages;
            let mapped = |number: u32| {
                let (page, entry) = position(PageId::new(*id, number));
                pages.get(page).is_some_and(|page| page.entries[entry].is_some())
            };
            let slots = u32::try_from(pages.len()).expect("STORE: page numbers have 32 bits") * ENTRIES;
            let last_mapped = (0..slots).rev().find(|number| mapped(*number));
            let used = last_mapped.max(formatted.last().copied()).map_or(0, |last| last + 1);
            // Map pages whose pages were all given back still have their places, so they stay charged (STORE-3).
            space.next_number = used.max(slots.checked_sub(ENTRIES).map_or(0, |before| before + 1));
            // Descending: `allocate` pops the last one, so the lowest.
            let free = |number: &u32| !mapped(*number) && !formatted.contains(number);
            space.unused = (0..space.next_number).rev().filter(free).collect();
            self.charged += u64::from(space.next_number) - to_u64(space.unused.len());
            self.map_pages += space.map_pages();
        }
    }

    /// Removes a space. Its map pages stay charged until [`forget`](Self::forget).
    pub(super) fn remove_space(&mut self, id: SpaceId) -> Option<Space> {
        let space = self.spaces.remove(&id)?;
        self.charged = self.charged.saturating_sub(u64::from(space.next_number) - to_u64(space.unused.len()));
        Some(space)
    }

    /// Ends the charge of a removed space's map pages, whose places were given back.
    pub(super) fn forget(&mut self, space: &Space) {
        self.unplaced = self.unplaced.saturating_sub(u64::from(!space.is_placed));
        self.map_pages = self.map_pages.saturating_sub(space.map_pages());
    }

    /// All pages with an image.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (PageId, MapEntry)> {
        self.spaces.iter().flat_map(|(&space, pages)| {
            let numbered = (0u32..).zip(pages.pages.iter().flat_map(|page| page.entries.iter()));
            numbered
                .filter(|(_, entry)| entry.is_some())
                .map(move |(number, entry)| (PageId::new(space, number), *entry))
        })
    }

    /// All map pages: (id of space and index, map page).
    pub(crate) fn map_pages_mut(&mut self) -> impl Iterator<Item = (PageId, &mut MapPage)> {
        self.spaces.iter_mut().flat_map(|(&space, pages)| {
            (0u32..).zip(&mut pages.pages).map(move |(index, page)| (PageId::new(space, index), page))
        })
    }

    /// Cleans map pages, of some spaces from `from` on, whose entries each later directory holds, and whose oldest
    /// change is before `cut`. Returns the space to go on with.
    pub(super) fn clean_small_pages(&mut self, from: SpaceId, cut: Lsn) -> Option<SpaceId> {
        let mut spaces = self.spaces.range_mut(from..);
        for (_, space) in spaces.by_ref().take(SPACES_AT_ONCE) {
            let is_dirty = space.pages.first().is_some_and(|first| first.rec_lsn.is_some_and(|lsn| lsn < cut));
            if is_dirty && space.is_small() {
                let rec_lsn = space.pages.first_mut().and_then(|first| first.rec_lsn.take());
                rec_lsn.into_iter().for_each(|lsn| self.counts.remove(lsn));
            }
        }
        spaces.next().map(|(id, _)| *id)
    }

    /// Notes the place of a map page's image, and the first checkpoint that will name it. Returns those of the previous
    /// image; `None`: the space was dropped.
    pub(super) fn set_place(&mut self, id: PageId, place: MapEntry, named_by: u64) -> Option<(MapEntry, u64)> {
        let space = self.spaces.get_mut(&id.space())?;
        if id.number() == 0 && !space.is_placed {
            debug_assert!(space.map_pages() > 0, "STORE-3: the place of map page {id} is not charged");
            space.is_placed = true;
            self.unplaced -= 1;
        }
        let page = space.pages.get_mut(to_usize(u64::from(id.number())))?;
        let before = (page.place, page.named_by);
        (page.place, page.named_by) = (place, named_by);
        Some(before)
    }

    /// A map page.
    pub(super) fn map_page_mut(&mut self, id: PageId) -> Option<&mut MapPage> {
        self.spaces.get_mut(&id.space())?.pages.get_mut(to_usize(u64::from(id.number())))
    }

    pub(super) fn spaces(&self) -> BTreeSet<SpaceId> {
        self.spaces.keys().copied().collect()
    }

    pub(super) fn memory(&self) -> u64 {
        let page = to_u64(size_of::<MapPage>()) + u64::from(ENTRIES) * to_u64(size_of::<MapEntry>());
        (self.map_pages + self.unplaced) * page + 2 * self.space_count() * to_u64(size_of::<(SpaceId, Space)>())
    }

    pub(crate) fn space_count(&self) -> u64 {
        to_u64(self.spaces.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_place_size_and_tag() {
        let entry = MapEntry::new((1 << 20) + 5 * 16384, 16384, tag_of(Lsn(77)));
        assert_eq!(entry.slot(1 << 20, 16384), Some(SlotId(5)));
        assert_eq!(entry.slot(1 << 20, 4096), None, "of another size");
        assert_eq!(entry.slot((1 << 20) + 4096, 16384), None, "between slots");
        assert_eq!(entry.tag(), tag_of(Lsn(77)));
        assert_eq!(MapEntry::default().slot(0, 4096), None);
        let tags: BTreeSet<u64> = (0..1000u64).map(|n| tag_of(Lsn(4096 + n * (1 << 20)))).collect();
        assert!(tags.len() > 990, "regular LSNs have {} tags of 1,000", tags.len());
    }

    /// Number 0 is the root: a space that has given out its last number never gives out one that is in use.
    #[test]
    fn space_at_its_last_number_gives_out_none_until_one_is_back() {
        let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
        map.spaces.insert(SpaceId(3), Space { next_number: NUMBERS_END - 1, ..Space::default() });
        let last = PageId::new(SpaceId(3), NUMBERS_END - 1);
        assert_eq!([map.allocate(SpaceId(3)), map.allocate(SpaceId(3))], [Some(last), None]);
        assert_eq!(NUMBERS_END % ENTRIES, 0, "no map page is cut off");
        map.charged = 2;
        map.give_back(last);
        assert_eq!([map.allocate(SpaceId(3)), map.allocate(SpaceId(3))], [Some(last), None]);
    }

    #[test]
    fn replay_skips_what_a_map_page_knows_and_finds_free_ids() {
        let counts = Arc::new(DirtyCounts::default());
        let mut map = PageMap::new(Arc::clone(&counts));
        let id = |number| PageId::new(SpaceId(3), number);
        let entry = |slot: u64| MapEntry::new((1 << 20) + slot * 4096, 4096, 9);
        assert_eq!(map.apply(id(0), entry(1), Lsn(100), Lsn(150)), Some(MapEntry::default()));
        assert_eq!(map.apply(id(2), entry(2), Lsn(100), Lsn(150)), Some(MapEntry::default()));
        assert_eq!(map.apply(id(600), entry(3), Lsn(150), Lsn(200)), Some(MapEntry::default()));
        assert_eq!((counts.total(), map.pages().count()), (2, 3));
        // The map page was written with all its changes.
        let page = map.map_page_mut(id(0)).expect("there");
        counts.remove(page.rec_lsn.take().expect("dirty"));
        assert_eq!(map.apply(id(0), entry(9), Lsn(100), Lsn(150)), None, "known");
        assert_eq!(map.apply(id(0), entry(4), Lsn(200), Lsn(250)), Some(entry(1)));
        map.rebuild_ids(&[id(4)].into_iter().collect());
        assert_eq!(map.charged(), 4);
        assert_eq!([map.allocate(SpaceId(3)), map.allocate(SpaceId(3))], [Some(id(1)), Some(id(3))]);
        assert_eq!((map.charged(), map.map_pages()), (6, 2));
        // A page that is given back has no image; its id is free at once, and again after the next replay.
        assert_eq!(map.clear(id(0), Lsn(100), Lsn(150)), None, "known");
        assert_eq!(map.clear(id(0), Lsn(250), Lsn(300)), Some(entry(4)));
        assert_eq!((map.clear(id(0), Lsn(300), Lsn(350)), map.known_to(id(0))), (None, Lsn(300)), "there is no image");
        map.give_back(id(0));
        assert_eq!((map.charged(), map.allocate(SpaceId(3))), (5, Some(id(0))));
        map.rebuild_ids(&HashSet::default());
        assert_eq!((map.charged(), map.allocate(SpaceId(3))), (2, Some(id(0))));
        // A map page without entries still has its place.
        assert_eq!(map.clear(id(600), Lsn(400), Lsn(450)), Some(entry(3)));
        map.rebuild_ids(&HashSet::default());
        assert_eq!((map.charged(), map.map_pages()), (1, 2));
        let removed = map.remove_space(SpaceId(3)).expect("there");
        assert_eq!((map.charged(), map.map_pages()), (0, 2), "its map pages still have their places");
        map.forget(&removed);
        assert_eq!(map.map_pages(), 0);
    }

    #[test]
    fn memory_is_that_of_map_pages_and_of_twice_the_spaces() {
        let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
        assert_eq!(map.memory(), 0);
        let space = 2 * to_u64(size_of::<(SpaceId, Space)>());
        let page = to_u64(size_of::<MapPage>()) + u64::from(ENTRIES) * to_u64(size_of::<MapEntry>());
        map.apply(PageId::new(SpaceId(3), 0), MapEntry::default(), Lsn(100), Lsn(150));
        map.apply(PageId::new(SpaceId(4), ENTRIES), MapEntry::default(), Lsn(100), Lsn(150));
        map.rebuild_ids(&HashSet::default());
        assert_eq!((map.space_count(), map.map_pages(), map.unplaced()), (2, 2, 2));
        assert_eq!(map.memory(), 2 * space + 4 * page, "a map page without a place that may need one counts twice");
        assert!(page > 8 * u64::from(ENTRIES), "an entry takes eight bytes");
    }
}
