//! The page map: for each page id the slot of its newest image.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::aligned::{BLOCK_U64, to_u64};
use crate::base::error::Error;
use crate::base::ids::{PageId, SlotId, SpaceId};
use crate::base::page::op::Reader;
use crate::store::superblock::SLOTS_START;

/// Where a page's image is: 40 bits of place in the data file in 4 KiB units, 4 of size, 20 of the image's sequence.
/// Zero: no image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapEntry(u64);

/// The bits of an image sequence that a map entry keeps.
const TAG_MASK: u64 = (1 << 20) - 1;

impl MapEntry {
    /// The entry for an image of sequence `image` in `slot`.
    pub(crate) fn new(slot: SlotId, page_size: u64, image: u64) -> MapEntry {
        let unit = (SLOTS_START + slot.0 * page_size) / BLOCK_U64;
        MapEntry(unit << 24 | (page_size / BLOCK_U64 - 1) << 20 | image & TAG_MASK)
    }

    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }

    /// The slot, for pages of `page_size`; `None`: the entry is no place where a slot begins.
    pub(crate) fn slot(self, page_size: u64) -> Option<SlotId> {
        let bytes = ((self.0 >> 24) * BLOCK_U64).checked_sub(SLOTS_START)?;
        let whole = bytes % page_size == 0 && (self.0 >> 20 & 0xf) == page_size / BLOCK_U64 - 1;
        whole.then_some(SlotId(bytes / page_size))
    }

    /// Whether an image of sequence `image` may be the one meant.
    pub(crate) fn matches(self, image: u64) -> bool {
        self.0 & TAG_MASK == image & TAG_MASK
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    entry: MapEntry,
    /// Which checkpoint's snapshot will be the first to name this entry: until then the slot is nobody else's.
    epoch: u64,
}

/// The pages of one space.
#[derive(Default)]
struct Space {
    places: Vec<Place>,
    /// Page ids given out: all below, but for those returned unused.
    next_number: u32,
    unused: Vec<u32>,
}

/// The map in memory.
#[derive(Default)]
pub(crate) struct PageMap {
    spaces: BTreeMap<SpaceId, Space>,
    /// Page ids given out, over all spaces.
    charged: u64,
}

impl PageMap {
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    pub(crate) fn get(&self, id: PageId) -> MapEntry {
        let place = self.spaces.get(&id.space()).and_then(|space| space.places.get(index(id.number())));
        place.map_or(MapEntry::default(), |place| place.entry)
    }

    pub(crate) fn has_space(&self, space: SpaceId) -> bool {
        self.spaces.contains_key(&space)
    }

    /// Sets a page's entry; returns the one before, and whether a checkpoint may know it.
    pub(crate) fn set(&mut self, id: PageId, entry: MapEntry, epoch: u64) -> (MapEntry, bool) {
        self.note_use(id);
        let space = self.spaces.entry(id.space()).or_default();
        let at = index(id.number());
        if space.places.len() <= at {
            space.places.resize(at + 1, Place::default());
        }
        let old = std::mem::replace(&mut space.places[at], Place { entry, epoch });
        (old.entry, old.epoch != epoch)
    }

    /// Gives out a page id of `space`.
    pub(crate) fn allocate(&mut self, space_id: SpaceId) -> PageId {
        let space = self.spaces.entry(space_id).or_default();
        let number = space.unused.pop().unwrap_or_else(|| {
            space.next_number += 1;
            space.next_number - 1
        });
        self.charged += 1;
        PageId::new(space_id, number)
    }

    /// Takes back a page id that was not used.
    pub(crate) fn give_back(&mut self, id: PageId) {
        if let Some(space) = self.spaces.get_mut(&id.space()) {
            space.unused.push(id.number());
            self.charged -= 1;
        }
    }

    /// Learns that a page id is in use (recovery).
    pub(crate) fn note_use(&mut self, id: PageId) {
        let space = self.spaces.entry(id.space()).or_default();
        if id.number() >= space.next_number {
            self.charged += u64::from(id.number() + 1 - space.next_number);
            space.next_number = id.number() + 1;
        }
    }

    /// Removes a space; returns its entries, and whether a checkpoint may know each.
    pub(crate) fn remove_space(&mut self, id: SpaceId, epoch: u64) -> Vec<(MapEntry, bool)> {
        let Some(space) = self.spaces.remove(&id) else { return Vec::new() };
        self.charged -= u64::from(space.next_number) - to_u64(space.unused.len());
        let entries = space.places.into_iter().filter(|place| place.entry.is_some());
        entries.map(|place| (place.entry, place.epoch != epoch)).collect()
    }

    /// All pages that have an image.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (PageId, MapEntry)> {
        self.spaces.iter().flat_map(|(&space, pages)| {
            let numbered = (0u32..).zip(&pages.places);
            numbered
                .filter(|(_, place)| place.entry.is_some())
                .map(move |(number, place)| (PageId::new(space, number), place.entry))
        })
    }

    /// Bytes that [`encode`](Self::encode) may need.
    pub(crate) fn encoded_len(spaces: u64, pages: u64) -> u64 {
        spaces * 8 + pages * 8
    }

    pub(crate) fn spaces(&self) -> BTreeSet<SpaceId> {
        self.spaces.keys().copied().collect()
    }

    pub(crate) fn space_count(&self) -> u64 {
        to_u64(self.spaces.len())
    }

    /// The map's bytes: for each space its id, its number of entries, its entries.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, space) in &self.spaces {
            let count = u32::try_from(space.places.len()).expect("STORE: page numbers have 32 bits");
            out.extend_from_slice(&id.0.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
            for place in &space.places {
                out.extend_from_slice(&place.entry.0.to_le_bytes());
            }
        }
        out
    }

    /// The map that `bytes` are.
    pub(crate) fn decode(bytes: &[u8]) -> Result<PageMap, Error> {
        let mut map = PageMap::default();
        let mut reader = Reader::new(bytes);
        let mut decode = || -> Option<()> {
            while !reader.is_empty() {
                let space = SpaceId(reader.u32()?);
                let count = reader.u32()?;
                map.spaces.entry(space).or_default();
                for number in 0..count {
                    let entry = MapEntry(reader.u64()?);
                    if entry.is_some() {
                        map.set(PageId::new(space, number), entry, 0);
                    }
                }
            }
            Some(())
        };
        match decode() {
            Some(()) => Ok(map),
            None => Err(Error::Corruption("the page map ends too soon: restore the database from a backup".into())),
        }
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("BASE-1: a usize has 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_survives_encoding_and_counts_what_it_gave_out() {
        let mut map = PageMap::default();
        let first = map.allocate(SpaceId(3));
        let second = map.allocate(SpaceId(3));
        map.set(second, MapEntry::new(SlotId(9), 4096, 77), 1);
        map.set(PageId::new(SpaceId(5), 4), MapEntry::new(SlotId(1), 4096, 78), 1);
        map.give_back(first);
        assert_eq!(map.charged(), 1 + 5);
        let bytes = map.encode();
        let again = PageMap::decode(&bytes).expect("whole");
        assert_eq!(again.pages().collect::<Vec<_>>(), map.pages().collect::<Vec<_>>());
        assert_eq!(again.get(second).slot(4096), Some(SlotId(9)));
        assert!(again.get(second).matches(77) && !again.get(second).matches(78));
        assert!(!again.get(first).is_some());
        for end in 1..bytes.len() {
            if end != 8 + 16 {
                assert!(PageMap::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
        }
    }
}
