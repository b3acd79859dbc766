//! Space: page ids, growth of the files, and giving back the slots and places of a dropped space.

use std::sync::atomic::Ordering;

use super::directory;
use super::lot::LOT_PAGES;
use super::map::{ENTRIES, MapEntry, NUMBERS_END};
use super::page_store::{DroppedSpace, PageStore, State};
use super::superblock::SLOTS_START;
use super::zones::ZONE_BYTES;
use crate::base::aligned::{BLOCK_U64, to_u64};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId, TxnId};
use crate::base::waits::{WaitClass, Waits};
use crate::io::device::Device;

/// Slots to spare, beyond the charged ones, without which no page id is given out. Two lots (batches): while one is in
/// flight the next finds slots, and a map group frees those that the first replaced. One in fifty charged slots is
/// added.
const SLOTS_RESERVED: u64 = 2 * 64;

/// The purpose of a page allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Any purpose that may fail for lack of space.
    Common,
    /// An undo page, which updates and deletes need.
    Undo,
    /// A rollback, which must be able to finish.
    Rollback,
}

/// How the files fit their contents. Both may be true: the data file is too long, and the map file too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Growing now would spare a later allocation the wait.
    pub(crate) is_too_short: bool,
    /// The data file should become shorter.
    pub(crate) is_too_long: bool,
}

/// Slots that only undo and rollback may take: on a full disk, rows can still be updated and deleted.
const SLOTS_FOR_UNDO: u64 = 64;

/// Slots among them that only rollback may take.
const SLOTS_FOR_ROLLBACK: u64 = 16;

/// Map pages that only undo and rollback may make. The undo pages are of one space: they make one, and the next one is
/// asked for. Each page of a rollback may be the one with which its tree outgrows the directory.
pub(super) const MAP_PAGES_FOR_UNDO: u64 = 2 + SLOTS_FOR_ROLLBACK;

/// Map pages among them that only rollback may make.
const MAP_PAGES_FOR_ROLLBACK: u64 = SLOTS_FOR_ROLLBACK;

/// The largest number of a next space that fits a superblock (`Superblock::is_possible`).
const SPACES_END: u32 = u32::MAX - 1;

/// The error for a tree that has all its possible pages.
#[cold]
fn full_space(space: SpaceId) -> Error {
    let message = format!(
        "the tree in space {space} has all {NUMBERS_END} pages that a tree may have: delete rows, or put new ones into another tree"
    );
    Error::TooLarge(message.into())
}

/// The error for a database that has given out all transaction ids.
#[cold]
fn all_txns_used() -> Error {
    let message = format!(
        "the database has given out all {} ids of transactions: load its contents into a new database",
        TxnId::END
    );
    Error::TooLarge(message.into())
}

/// Places that form a zone of the map file.
pub(super) const MAP_ZONE: u64 = 16;

/// Offset of the first place in the map file.
pub(crate) const PLACES_START: u64 = BLOCK_U64;

/// The capacity of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) slots: u64,
    pub(super) places: u64,
    pub(super) directory_len: u64,
}

impl Room {
    /// The room for `charged` pages in `spaces` spaces with `map_pages` map pages. A map page may have three places:
    /// one that the durable directory names, one in the directory being written, and one written since that was taken.
    /// A lot being written needs further places. The directory may hold entries of `unplaced` spaces. `share` decides
    /// how much must be left for others.
    fn needed(charged: u64, spaces: u64, unplaced: u64, map_pages: u64, share: Share) -> Room {
        let (slots_left, map_pages_left) = match share {
            Share::Common => (SLOTS_FOR_UNDO, MAP_PAGES_FOR_UNDO),
            Share::Undo => (SLOTS_FOR_ROLLBACK, MAP_PAGES_FOR_ROLLBACK),
            Share::Rollback => (0, 0),
        };
        let slots = charged + SLOTS_RESERVED + slots_left + charged / 50;
        let map_pages = map_pages + map_pages_left;
        let places = if planted!("map_places_short") { 2 } else { 3 } * map_pages + to_u64(LOT_PAGES);
        Room { slots, places, directory_len: directory::file_len(spaces, unplaced, map_pages) }
    }

    /// The room of an empty database.
    pub(super) fn initial() -> Room {
        let needed = Room::needed(SLOTS_RESERVED, 8, 8, 16, Share::Common);
        Room { directory_len: needed.directory_len.next_multiple_of(16 << 10), ..needed }
    }

    pub(super) fn covers(self, needed: Room) -> bool {
        self.slots >= needed.slots && self.places >= needed.places && self.directory_len >= needed.directory_len
    }

    /// The room to grow to. Slots grow by a fourth, but by 1 to 64 MiB, unless there are `comfortable` ones already.
    /// `None`: the map has no entry for an image in the last one of the `needed` slots.
    fn grown(self, needed: Room, comfortable: u64, page_size: u64) -> Option<Room> {
        // Whole zones, as both bounds are multiples of their size.
        let most = (MapEntry::FILE_END - SLOTS_START) / page_size;
        if needed.slots > most {
            return None;
        }
        let step = (self.slots * page_size / 4).clamp(1 << 20, 64 << 20) / page_size;
        let slots = if self.slots < comfortable { self.slots + step } else { self.slots };
        Some(Room {
            slots: slots.max(needed.slots).min(most),
            places: needed.places + needed.places / 2 + self.slots / u64::from(ENTRIES),
            directory_len: (needed.directory_len * 2).next_multiple_of(16 << 10),
        })
    }
}

impl State {
    pub(super) fn room(&self) -> Room {
        let slots = self.slots.total() - self.slots_without_room();
        Room { slots, places: self.places.total(), directory_len: self.directory_len }
    }

    /// The room for the page ids given out, with `more` further ones for this purpose, each with a map page. Undo and
    /// rollback make no space.
    fn needed(&self, more: u64, share: Share) -> Room {
        let new = if share == Share::Common { more } else { 0 };
        let (spaces, unplaced) = (self.map.space_count() + new, self.map.unplaced() + new);
        Room::needed(self.map.charged() + more, spaces, unplaced, self.map.map_pages() + more, share)
    }

    /// The room that makes growth rare: half as much again.
    pub(super) fn usual_room(&self) -> Room {
        let (needed, charged) = (self.needed(1, Share::Common), self.map.charged());
        Room { slots: needed.slots.max(charged + charged / 2 + 2 * SLOTS_RESERVED), ..needed }
    }

    /// The room below which the file grows ahead of need. A file that was made short stays so until pages come.
    fn comfortable(&self) -> Room {
        let (usual, charged) = (self.usual_room(), self.map.charged());
        let is_lean = charged <= self.lean_upto;
        let lean = self.needed(1, Share::Common).slots.max(lean(charged));
        Room { slots: if is_lean { lean } else { usual.slots }, ..usual }
    }

    /// The least room in which pages are written without haste, and a few may come.
    pub(super) fn lean_room(&self) -> Room {
        let needed = self.needed(1, Share::Common);
        Room { slots: needed.slots.max(lean(with_a_few(self.map.charged()))), ..needed }
    }

    /// Has the file not grow ahead of need before some pages have come.
    pub(super) fn stay_lean(&mut self) {
        self.lean_upto = with_a_few(self.map.charged());
    }

    /// Slots that are no room: bad ones, and those held back for a backup.
    pub(super) fn slots_without_room(&self) -> u64 {
        to_u64(self.bad_slots.len()) + self.slots.held_back()
    }
}

/// Slots for `charged` pages in a short file: an eighth of them spare, so that a map group need not follow each lot
/// ([`PageStore::wants_slots`]).
fn lean(charged: u64) -> u64 {
    charged + charged / 8 + 2 * SLOTS_RESERVED
}

/// So many pages, and those that may come before a short file grows ahead of need.
fn with_a_few(charged: u64) -> u64 {
    charged + charged / 32
}

impl PageStore {
    /// Slots in a zone of 1 MiB.
    pub(super) fn zone_slots(page_size: u64) -> u64 {
        to_u64(ZONE_BYTES) / page_size
    }

    pub(super) fn data_len(slots: u64, page_size: u64) -> u64 {
        SLOTS_START + slots.next_multiple_of(Self::zone_slots(page_size)) * page_size
    }

    pub(super) fn map_len(places: u64) -> u64 {
        PLACES_START + places.next_multiple_of(MAP_ZONE) * BLOCK_U64
    }

    /// A new space number, never used before.
    pub(crate) fn new_space(&self) -> Result<SpaceId, Error> {
        let mut state = self.state.lock();
        if state.next_space >= SPACES_END {
            let message = format!(
                "the database has given out all {SPACES_END} numbers of trees and indexes: load its contents into a new database"
            );
            return Err(Error::TooLarge(message.into()));
        }
        let space = SpaceId(state.next_space);
        state.next_space += 1;
        Ok(space)
    }

    /// The number that the next space gets.
    pub(crate) fn space_to_come(&self) -> SpaceId {
        SpaceId(self.state.lock().next_space)
    }

    /// A new transaction id, never used before.
    pub(crate) fn next_txn(&self) -> Result<TxnId, Error> {
        let txn = TxnId(self.next_txn.fetch_add(1, Ordering::Relaxed));
        if txn >= TxnId::END {
            // The superblock has no room for a larger id. Each failed call takes its own increment back.
            self.next_txn.fetch_sub(1, Ordering::Relaxed);
            return Err(all_txns_used());
        }
        Ok(txn)
    }

    /// The next transaction id to be given out.
    pub(crate) fn txn_to_come(&self) -> TxnId {
        TxnId(self.next_txn.load(Ordering::Relaxed)).min(TxnId::END)
    }

    /// Gives out a page id, with a slot charged for it; `share` decides how much must be left for others. May wait for
    /// growth of the files (class `file_growth`). The caller holds no latch.
    pub(crate) fn allocate(&self, space: SpaceId, share: Share, waits: &Waits) -> Result<PageId, Error> {
        loop {
            {
                let mut state = self.state.lock();
                if state.room().covers(state.needed(1, share)) {
                    return state.map.allocate(space).ok_or_else(|| full_space(space));
                }
            }
            waits.timed(WaitClass::FileGrowth, || self.grow())?;
        }
    }

    /// Takes back a page id that was never used, or that of a [freed](Self::free_page) page that no frame holds any
    /// more.
    pub(crate) fn give_back(&self, id: PageId) {
        let mut state = self.state.lock();
        state.freed.remove(&id);
        state.map.give_back(id);
    }

    /// Removes a page that the group from `start` to `end` gave back (STORE-9). The caller holds the checkpoint before
    /// the group, is the only thread that logs map groups, and writes no pages meanwhile. The page's id is given out
    /// again only after [`give_back`](Self::give_back).
    pub(crate) fn free_page(&self, id: PageId, start: Lsn, end: Lsn) {
        let mut state = self.state.lock();
        if !state.map.has_space(id.space()) {
            return;
        }
        debug_assert!(state.map.known_to(id) <= start, "STORE-9: page {id} is given back at LSN {start}, out of order");
        let in_flight = if planted!("freed_image_named") { None } else { state.landed(id) };
        if let Some(written) = in_flight {
            self.forget(&mut state, &written);
        }
        if let Some(slot) = state.map.clear(id, start, end).and_then(|old| self.slot_of(old)) {
            state.replace_slot(end, slot);
        }
        let first = state.freed.insert(id);
        debug_assert!(first, "STORE-9: page {id} was given back already");
        if id.space() != SpaceId::UNDO {
            self.counters.pages_freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All free slots.
    pub(crate) fn free_slots(&self) -> Vec<SlotId> {
        let state = self.state.lock();
        (0..state.slots.total()).map(SlotId).filter(|slot| state.slots.is_free(*slot)).collect()
    }

    /// Number of slots, and of free ones.
    pub(crate) fn slot_counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.slots.total(), state.slots.free())
    }

    /// How the files fit their contents. One look for both questions, as the keeper asks them at each tick.
    pub(crate) fn fit(&self) -> Fit {
        let mut state = self.state.lock();
        // Of a file that has fewer pages than when it was made short, others may make it grow.
        state.lean_upto = state.lean_upto.min(with_a_few(state.map.charged()));
        Fit { is_too_short: !state.room().covers(state.comfortable()), is_too_long: state.has_too_many_slots() }
    }

    /// Whether the files are too short for their contents: a crash may take growth back.
    pub(super) fn wants_room(&self) -> bool {
        let state = self.state.lock();
        !state.room().covers(state.needed(0, Share::Rollback))
    }

    /// Frees the slots whose replacement is durable, in a log that is durable up to `durable`.
    pub(crate) fn release_slots(&self, durable: Lsn) {
        self.state.lock().release_slots(durable);
    }

    /// Whether a map group should be logged soon, for the slots that it frees.
    pub(crate) fn wants_slots(&self) -> bool {
        let state = self.state.lock();
        state.slots.free() < SLOTS_RESERVED.max(state.slots.total() / 16)
    }

    /// Makes the files longer: the data file by a fourth, but by 1 to 64 MiB; by less if the device has less space.
    pub(crate) fn grow(&self) -> Result<(), Error> {
        let _growth = self.growth.lock();
        let (room, needed, comfortable) = {
            let state = self.state.lock();
            (state.room(), state.needed(1, Share::Common), state.comfortable())
        };
        let Some(wanted) = room.grown(needed, comfortable.slots, self.page_size) else {
            let message = format!(
                "'{}' would need {} bytes, and may have {}: drop trees, or load some into another database",
                self.data.name(),
                Self::data_len(needed.slots, self.page_size),
                MapEntry::FILE_END
            );
            return Err(Error::TooLarge(message.into()));
        };
        let mut result = self.grow_to(room, wanted);
        if result.is_err() && !room.covers(needed) && needed != wanted {
            result = self.grow_to(room, needed);
        }
        match result {
            // Another thread made it grow meanwhile, or growth is only desirable: the next allocation decides.
            Err(_) if room.covers(needed) && !self.wants_slots() => Ok(()),
            // On a full disk a backup gives way.
            Err(_) if self.state.lock().break_pins() => Ok(()),
            Err(_) if room.covers(needed) => Ok(()),
            other => other,
        }
    }

    fn grow_to(&self, now: Room, wanted: Room) -> Result<(), Error> {
        let grow = |file: &dyn Device, len: u64| {
            file.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", file.name()), e))
        };
        if wanted.directory_len > now.directory_len {
            for file in &self.directory_files {
                grow(&**file, wanted.directory_len)?;
            }
            self.state.lock().directory_len = wanted.directory_len;
        }
        if wanted.places > now.places {
            grow(&*self.map_file, Self::map_len(wanted.places))?;
            self.state.lock().places.grow(wanted.places.next_multiple_of(MAP_ZONE));
        }
        if wanted.slots > now.slots {
            // Slots that are no room, bad or held back for a backup, are in the file, too.
            let total = self.state.lock().slots.total() + (wanted.slots - now.slots);
            let most = (MapEntry::FILE_END - SLOTS_START) / self.page_size;
            let slots = total.next_multiple_of(Self::zone_slots(self.page_size)).min(most);
            grow(&*self.data, Self::data_len(slots, self.page_size))?;
            let mut state = self.state.lock();
            state.slots.grow(slots);
            state.lean_upto = 0;
        }
        Ok(())
    }

    /// Removes a space from the map, as the group that ends at `lsn` says. Its slots and places are given back in
    /// steps.
    pub(crate) fn drop_space(&self, space: SpaceId, lsn: Lsn) {
        let mut state = self.state.lock();
        if let Some(space) = state.map.remove_space(space) {
            state.dropped.push_back(DroppedSpace { lsn, space });
            state.dropped_upto = state.dropped_upto.max(lsn);
        }
    }

    /// Gives back one map page of a dropped space, and the slots in it; false: no dropped space is left.
    pub(crate) fn give_back_step(&self) -> bool {
        let mut state = self.state.lock();
        let Some(front) = state.dropped.front_mut() else { return false };
        let (lsn, Some(page)) = (front.lsn, front.space.pages.pop()) else {
            // Its map pages stay charged until here. Otherwise the places that it still has would be promised to
            // others.
            if let Some(dropped) = state.dropped.pop_front() {
                state.map.forget(&dropped.space);
            }
            return true;
        };
        if let Some(rec_lsn) = page.rec_lsn {
            self.counts.remove(rec_lsn);
        }
        // Free only when the drop is durable: a crash may undo it before.
        let lsn = if planted!("drop_frees_slots_early") { Lsn::ZERO } else { lsn };
        for slot in page.entries.iter().filter_map(|entry| self.slot_of(*entry)) {
            state.replace_slot(lsn, slot);
        }
        Self::replace_place(&mut state, page.place, page.named_by);
        true
    }
}

const _: () = assert!(SLOTS_RESERVED == 128 && LOT_PAGES == 64);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::map::INLINE;
    use super::super::page_store_tests::new_store;
    use super::*;
    use crate::io::simulated::SimulatedDisk;

    #[test]
    fn room_has_what_undo_and_rolling_back_may_take_beyond_others() {
        let of = |share| Room::needed(1000, 3, 3, 5, share);
        let room = |slots, map_pages: u64| Room {
            slots: 1000 + SLOTS_RESERVED + 20 + slots,
            places: 3 * (5 + map_pages) + to_u64(LOT_PAGES),
            directory_len: 8192,
        };
        assert_eq!(of(Share::Common), room(64, 18));
        assert_eq!(of(Share::Undo), room(16, 16));
        assert_eq!(of(Share::Rollback), room(0, 0));
        let directory = |share| Room::needed(1000, 0, 0, 512 - 18, share).directory_len;
        assert_eq!([Share::Common, Share::Rollback].map(directory), [8192; 2]);
        assert_eq!(Room::needed(1000, 0, 0, 512 - 17, Share::Common).directory_len, 12_288);
    }

    /// The file system is full: each page of a rollback is the ninth of its tree, also behind the last new tree.
    #[test]
    fn full_disk_has_room_for_ninth_pages_of_undo_and_rollback() {
        let disk = SimulatedDisk::new();
        let store = new_store(&disk, 0);
        let waits = Waits::new(Duration::from_secs(1));
        let trees: Vec<SpaceId> =
            (0..SLOTS_FOR_ROLLBACK).map(|_| store.new_space().expect("there are numbers")).collect();
        let eight = |space: SpaceId| (0..INLINE).all(|_| store.allocate(space, Share::Common, &waits).is_ok());
        assert!(trees.iter().chain([&SpaceId::UNDO]).all(|space| eight(*space)));
        disk.limit_space(Some(0));
        while store.new_space().is_ok_and(|space| store.allocate(space, Share::Common, &waits).is_ok()) {}
        let undo = || store.allocate(SpaceId::UNDO, Share::Undo, &waits);
        let given = (0..SLOTS_FOR_UNDO).take_while(|_| undo().is_ok()).count();
        assert!(to_u64(given) >= SLOTS_FOR_UNDO - SLOTS_FOR_ROLLBACK, "{given}");
        for space in trees {
            store.allocate(space, Share::Rollback, &waits).expect("a rollback has room");
        }
    }

    #[test]
    fn files_have_whole_zones_of_a_mebibyte() {
        assert_eq!([4096, 16_384, 65_536].map(PageStore::zone_slots), [256, 64, 16]);
        assert_eq!(PageStore::data_len(65, 16_384), SLOTS_START + (2 << 20));
        assert_eq!(PageStore::map_len(17), PLACES_START + 32 * BLOCK_U64);
        assert_eq!(directory::file_len(512, 0, 0), 2 * BLOCK_U64);
        assert_eq!((directory::file_len(1, 0, 511), directory::file_len(1, 0, 512)), (2 * BLOCK_U64, 3 * BLOCK_U64));
        assert_eq!((directory::file_len(1, 1, 502), directory::file_len(1, 1, 503)), (2 * BLOCK_U64, 3 * BLOCK_U64));
    }

    #[test]
    fn places_and_directory_grow_beyond_what_is_needed() {
        let needed = Room { directory_len: 20_000, ..Room::needed(1000, 3, 3, 500, Share::Common) };
        let grown = Room::initial().grown(needed, 0, 4096).unwrap();
        assert_eq!((grown.places, grown.directory_len), (needed.places + needed.places / 2, 48 << 10));
    }

    #[test]
    fn slots_grow_by_a_fourth_but_by_a_mebibyte_at_least() {
        // Pages of 4 KiB.
        let (mib, most) = (256, (1 << 40) - 256);
        let room = |slots| Room { slots, ..Room::initial() };
        let grown =
            |slots, needed, comfortable| room(slots).grown(room(needed), comfortable, 4096).map(|room| room.slots);
        assert_eq!(grown(2 * mib, 2 * mib, 3 * mib), Some(3 * mib));
        assert_eq!(grown(40 * mib, 40 * mib, 41 * mib), Some(50 * mib));
        assert_eq!(grown(1000 * mib, 1000 * mib, 1001 * mib), Some(1064 * mib));
        assert_eq!(grown(40 * mib, 55 * mib, 60 * mib), Some(55 * mib), "what is needed");
        assert_eq!(grown(40 * mib, 30 * mib, 40 * mib), Some(40 * mib), "there is enough");
        assert_eq!(grown(most - 1, most, most + 1), Some(most), "the last slot that an entry can name");
        assert_eq!(grown(most - 1, most + 1, most + 1), None);
        assert_eq!(PageStore::data_len(most, 4096), MapEntry::FILE_END);
    }

    /// A step of growth exceeds the space that is left on the device, but the next page's slot does not.
    #[test]
    fn file_on_a_nearly_full_device_grows_by_what_is_needed() {
        let disk = SimulatedDisk::new();
        let store = new_store(&disk, 0);
        let (space, waits) = (store.new_space().expect("there are numbers"), Waits::new(Duration::from_secs(1)));
        let allocate = || store.allocate(space, Share::Common, &waits);
        (0..3000).for_each(|_| assert!(allocate().is_ok()));
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(to_u64(used) + (2 << 20)));
        let (slots, _) = store.slot_counts();
        assert!(slots / 4 > 512, "a step is more than the 2 MiB that are left");
        while allocate().is_ok() {}
        assert!(store.slot_counts().0 > slots, "the file has not grown");
    }
}
