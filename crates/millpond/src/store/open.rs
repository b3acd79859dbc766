//! Creating a store, opening it, and replaying map groups into it.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;

use super::checkpoint::decode;
use super::copy_on_write::CopyOnWrite;
use super::counters::StoreCounters;
use super::directory;
use super::files::{DATA_FILE, DATA_FILE_NEW, DIRECTORY_FILES, MAP_FILE, is_map_file, len_of, open_file};
use super::in_place::InPlace;
use super::map::{ENTRIES, MapEntry, MapPage, PageMap};
use super::page_store::{MapRecord, PageStore, State};
use super::pins::Pins;
use super::placement::Placement;
use super::slots::Slots;
use super::space::{MAP_ZONE, PLACES_START, Room};
use super::superblock::{FEATURE_IN_PLACE, Found, SLOTS_START, Superblock};
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, to_u64, to_usize};
use crate::base::error::{Error, MEND_MAP};
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::parallel;
use crate::base::sync::{Mutex, Rank, Turn};
use crate::io::device::{Device, Files};
use crate::redo::dirty_counts::DirtyCounts;

/// Bound for page ids given out whose format is not in the log: a few for each batch in progress.
const IDS_IN_FLIGHT: u64 = 1 << 16;

/// Largest number of map pages in one read.
const READ_PLACES: u64 = 256;

/// Largest number of threads that read the map.
const READERS_MAX: usize = 8;

/// Map pages for which a further thread is worth its start.
const PAGES_A_READER: usize = 512;

/// Whether map files exist.
pub(super) fn is_beside_map(files: &dyn Files) -> Result<bool, Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    Ok(names.iter().any(|name| is_map_file(name)))
}

/// An error if both superblocks of the data file are foreign although map files exist.
pub(super) fn check_not_overwritten(found: [Found; 2], beside_map: bool) -> Result<(), Error> {
    if found != [Found::Foreign; 2] || !beside_map {
        return Ok(());
    }
    let message = format!("both superblocks of '{DATA_FILE}' are overwritten: {MEND_MAP}");
    Err(Error::Corruption(message.into()))
}

impl PageStore {
    /// Creates the files of an empty store, durable on return. The data file is renamed last: then the database exists.
    pub(crate) fn create(files: &dyn Files, superblock: Superblock) -> Result<(), Error> {
        let make = |name: &str, len: u64| {
            let file =
                files.create(name).map_err(|e| Error::io(&format!("create '{name}' in '{}'", files.place()), e))?;
            file.grow(len).map_err(|e| Error::io(&format!("grow '{name}' to {len} bytes"), e))?;
            Ok::<_, Error>(file)
        };
        let sync = |file: &dyn Device| file.sync().map_err(|e| Error::io(&format!("sync '{}'", file.name()), e));
        let room = Room::initial();
        let data = make(DATA_FILE_NEW, Self::data_len(room.slots, u64::from(superblock.page_size)))?;
        // Before map files exist: a creation cut short later must not look like a database without its data file.
        files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))?;
        sync(&*make(MAP_FILE, Self::map_len(room.places))?)?;
        // Writes both, so that one that is not whole always means damage.
        for (sequence, name) in (0..).zip(DIRECTORY_FILES) {
            let directory_crc = directory::directory_crc(superblock.uuid, sequence, &[]);
            let superblock = Superblock { sequence, directory_crc, ..superblock };
            let file = make(name, room.directory_len)?;
            directory::write(&*file, &superblock, &[])?;
            sync(&*file)?;
            superblock.write(&*data)?;
        }
        sync(&*data)?;
        let name_it = || -> std::io::Result<()> {
            files.sync_names()?;
            files.rename(DATA_FILE_NEW, DATA_FILE)?;
            files.sync_names()
        };
        name_it().map_err(|e| Error::io(&format!("name the data file in '{}'", files.place()), e))
    }

    /// Total length of the files that [`create`](Self::create) makes.
    pub(crate) fn created_bytes(page_size: u64) -> u64 {
        let room = Room::initial();
        Self::data_len(room.slots, page_size) + Self::map_len(room.places) + 2 * room.directory_len
    }

    /// Opens the store with the map of the last checkpoint, as its superblock says. The caller then replays map groups,
    /// and calls [`finish_replay`](Self::finish_replay), which makes the store writable.
    pub(crate) fn open(files: &dyn Files, counts: Arc<DirtyCounts>) -> Result<(PageStore, [Found; 2]), Error> {
        let data = open_file(files, DATA_FILE)?;
        let found = Superblock::read_both(&*data)?;
        check_not_overwritten(found, is_beside_map(files)?)?;
        let superblock = Superblock { closed: false, ..Superblock::choose(found, data.name())? };
        let directory_files = [open_file(files, DIRECTORY_FILES[0])?, open_file(files, DIRECTORY_FILES[1])?];
        if !matches!(found[1 - superblock.place()], Found::Valid(_)) {
            Self::mend_other_superblock(&superblock, &*data, &directory_files)?;
        }
        // The previous process may have named the data file, or written the newest superblock, and ended before the
        // sync. Or that sync failed, and a later one would not cover the lost writes. Later writes rely on both. The
        // superblock gets the same bytes in one sector, so no crash leaves it damaged (STORE-4). Only the mark of a
        // close goes: behind this sync, groups may follow.
        files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))?;
        superblock.write(&*data)?;
        data.sync().map_err(|e| Error::io(&format!("sync '{}'", data.name()), e))?;
        let map_file = open_file(files, MAP_FILE)?;
        let mut map = PageMap::new(Arc::clone(&counts));
        let directory = directory::read(&*directory_files[superblock.place()], &superblock)?;
        if directory::decode(&directory, &mut map).is_none() {
            let message = format!("the map directory ends too soon, or names a space twice: {MEND_MAP}");
            return Err(Error::Corruption(message.into()));
        }
        read_map_pages(&map_file, superblock.uuid, &mut map, &mut Err)?;
        let page_size = u64::from(superblock.page_size);
        let in_place = superblock.features & FEATURE_IN_PLACE != 0;
        let placement: Box<dyn Placement> = if in_place { Box::new(InPlace) } else { Box::new(CopyOnWrite) };
        let state = State {
            next_space: superblock.next_space.max(map.spaces().last().map_or(0, |last| last.0.saturating_add(1))),
            map,
            slots: Slots::all_free(Self::zone_slots(page_size), 0),
            lean_upto: 0,
            places: Slots::all_free(MAP_ZONE, 0),
            places_synced: 0,
            directory_len: len_of(&*directory_files[0])?.min(len_of(&*directory_files[1])?),
            unsynced: BTreeMap::new(),
            loaded: 0,
            freed: BTreeSet::new(),
            turn: 0,
            replaced: VecDeque::new(),
            bad_slots: BTreeSet::new(),
            overwriting: BTreeSet::new(),
            late: BTreeSet::new(),
            replaced_places: Vec::new(),
            dropped: VecDeque::new(),
            written: Vec::new(),
            dropped_upto: Lsn::ZERO,
            directories: 0,
            formatted: HashSet::default(),
            superblock,
            pins: Pins::default(),
        };
        let next_txn = AtomicU64::new(superblock.next_txn.0);
        let uuid = superblock.uuid;
        let (state, growth, syncing) =
            (Mutex::new(Rank::Store, state), Turn::new(Rank::Growth, ()), Turn::new(Rank::Syncing, false));
        let counters = StoreCounters::default();
        let store = PageStore {
            data,
            map_file,
            directory_files,
            page_size,
            uuid,
            next_txn,
            placement,
            copies: None,
            state,
            growth,
            log_end: AtomicU64::new(u64::MAX),
            syncing,
            synced: AtomicU64::new(0),
            counts,
            counters,
        };
        Ok((store, found))
    }

    /// Repairs the damaged superblock of two. A superblock is one sector, so a crash leaves it old or new, never
    /// damaged. One that is damaged all the same must be the older one: data of a newer one may be gone. Its directory
    /// proves that.
    ///
    /// The repaired superblock is written before that directory changes (the caller syncs it). Otherwise a crash in the
    /// next checkpoint would leave the newer directory beside a superblock that is still damaged.
    fn mend_other_superblock(
        chosen: &Superblock,
        data: &dyn Device,
        directories: &[Arc<dyn Device>; 2],
    ) -> Result<(), Error> {
        let other = 1 - chosen.place();
        if let Some(copy) = directory::superblock_in(&*directories[other])?
            && (copy.uuid, Some(copy.sequence)) == (chosen.uuid, chosen.sequence.checked_sub(1))
        {
            return copy.write(data);
        }
        let message = format!(
            "superblock {other} is damaged and may be newer than superblock {}, of sequence {}: {MEND_MAP}",
            chosen.place(),
            chosen.sequence
        );
        Err(Error::Corruption(message.into()))
    }

    /// Replays a map group; `Err`: its problem. A record of an absent space was made before the space was dropped, and
    /// logged after it: its slot may belong to another page by now.
    ///
    /// The number is below [`numbers_end`](Self::numbers_end). Without this check a wrong number would make the map
    /// huge.
    pub(crate) fn replay_records(&self, records: &[MapRecord], start: Lsn, end: Lsn) -> Result<(), String> {
        let numbers_end = self.numbers_end().map_err(|error| error.to_string())?;
        let mut state = self.state.lock();
        for record in records {
            let id = PageId(record.page_id.get());
            if u64::from(id.number()) >= numbers_end {
                return Err(format!("a map group names page {id}, and the files have room for {numbers_end} pages"));
            }
            if state.map.has_space(id.space()) {
                let _ = state.map.apply(id, MapEntry(record.entry.get()), start, end);
                if state.map.get(id).is_some() {
                    // Its image shows that the id is in use: `formatted` is for pages without an image.
                    state.formatted.remove(&id);
                }
            }
        }
        Ok(())
    }

    /// SPACE-2: the end of the numbers of pages whose images were durable at some time. Each page id was charged a
    /// slot, and the sync of the page's image made the data file's length durable. If the file was cut later, the map
    /// file has places for the map pages of all numbers that were given out before.
    fn numbers_end(&self) -> Result<u64, Error> {
        let places = len_of(&*self.map_file)?.saturating_sub(PLACES_START) / BLOCK_U64;
        Ok(self.slots_in_file()?.max(places * u64::from(ENTRIES)))
    }

    /// Slots in the data file, as long as it is now.
    pub(super) fn slots_in_file(&self) -> Result<u64, Error> {
        Ok(len_of(&*self.data)?.saturating_sub(SLOTS_START) / self.page_size)
    }

    /// Notes that the log names `space`, so that its number is not given out again.
    pub(crate) fn note_space(&self, space: SpaceId) {
        let mut state = self.state.lock();
        state.next_space = state.next_space.max(space.0.saturating_add(1));
    }

    /// Notes that a transaction had this id, so that it is not given out again.
    pub(crate) fn note_txn(&self, txn: TxnId) {
        self.next_txn.fetch_max(txn.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Replays a page's format: its id is in use, and its space exists.
    pub(crate) fn replay_format(&self, id: PageId) {
        let mut state = self.state.lock();
        state.map.spaces.entry(id.space()).or_default();
        state.formatted.insert(id);
    }

    /// Replays that a page was given back: it has no image, and its id is free unless a later group formats it.
    pub(crate) fn replay_free(&self, id: PageId, start: Lsn, end: Lsn) {
        let mut state = self.state.lock();
        state.formatted.remove(&id);
        if !planted!("free_not_replayed") {
            let _ = state.map.clear(id, start, end);
        }
    }

    /// Determines the free slots, places and page ids, after the last group. The log drops the spaces in `dropped`.
    pub(crate) fn finish_replay(&self, dropped: &BTreeSet<SpaceId>) -> Result<(), Error> {
        let (slots, places, end) = (self.slots_in_file()?, len_of(&*self.map_file)?, self.numbers_end()?);
        let short = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            state.slots = Slots::all_free(Self::zone_slots(self.page_size), slots);
            state.places = Slots::all_free(MAP_ZONE, places.saturating_sub(PLACES_START) / BLOCK_U64);
            for &space in dropped {
                // Its slots are free, because its drop is durable. The superblock still names its map pages.
                if let Some(space) = state.map.remove_space(space) {
                    for page in space.pages {
                        if let Some(lsn) = page.rec_lsn {
                            self.counts.remove(lsn);
                        }
                        if let Some(place) = Self::place_of(page.place).filter(|place| state.places.take(*place)) {
                            state.replaced_places.push(place);
                        }
                    }
                }
            }
            check_numbers(&state.formatted, end)?;
            state.formatted.retain(|id| !dropped.contains(&id.space()));
            self.take_what_is_named(state)?;
            let formatted = std::mem::take(&mut state.formatted);
            state.map.rebuild_ids(&formatted);
            let room = state.room();
            if (state.lean_room().slots..state.usual_room().slots).contains(&room.slots) {
                // It may have been made short: the first new page has it grow ahead of need.
                state.lean_upto = state.map.charged();
            }
            drop(guard);
            self.wants_room()
        };
        if !short {
            return Ok(());
        }
        // It is enough that there is what is needed, though not all that growth wants.
        self.grow().or_else(|error| if self.wants_room() { Err(error) } else { Ok(()) })
    }

    /// Takes the slots and places that the map names; each must exist, and belong to one page only.
    fn take_what_is_named(&self, state: &mut State) -> Result<(), Error> {
        for (id, entry) in state.map.pages() {
            if !self.slot_of(entry).is_some_and(|slot| state.slots.take(slot)) {
                let message = format!(
                    "the page map gives page {id} a slot that is not in '{}', or another page's: {MEND_MAP}",
                    self.data.name()
                );
                return Err(Error::Corruption(message.into()));
            }
        }
        for (id, page) in state.map.map_pages_mut().filter(|(_, page)| page.place.is_some()) {
            if !Self::place_of(page.place).is_some_and(|place| state.places.take(place)) {
                let message = format!(
                    "the map directory gives map page {id} a place that is not in '{}', or another's: {MEND_MAP}",
                    self.map_file.name()
                );
                return Err(Error::Corruption(message.into()));
            }
        }
        Ok(())
    }
}

/// Checks that the numbers of pages formatted in the log are possible: each unused number below them takes memory.
///
/// A number that was given out is below `end` (SPACE-2), unless a crash has taken back the slots by which the file grew
/// since the checkpoint. Then each page in them is formatted in the log, too, or was given back after that, or its id
/// was in flight. The bound for ids in flight also covers those given back.
fn check_numbers(formatted: &HashSet<PageId, FixedState>, end: u64) -> Result<(), Error> {
    let bound = end + to_u64(formatted.len()) + IDS_IN_FLIGHT;
    match formatted.iter().find(|id| u64::from(id.number()) >= bound) {
        None => Ok(()),
        Some(id) => {
            let message = format!(
                "the log formats page {id}, and the files have room for {end} pages: put back the whole data file, or {MEND_MAP}"
            );
            Err(Error::Corruption(message.into()))
        }
    }
}

/// Reads all map pages, neighbours together, by several threads if many. `on_damage` decides whether to go on.
pub(super) fn read_map_pages(
    file: &Arc<dyn Device>,
    uuid: [u64; 2],
    map: &mut PageMap,
    on_damage: &mut dyn FnMut(Error) -> Result<(), Error>,
) -> Result<(), Error> {
    let len = len_of(&**file)?;
    let named = map.map_pages_mut().filter(|(_, page)| page.place.is_some());
    let mut wanted: Vec<(PageId, MapEntry)> = named.map(|(id, page)| (id, page.place)).collect();
    wanted.sort_unstable_by_key(|(_, place)| place.offset());
    let readers = (wanted.len() / PAGES_A_READER).clamp(1, READERS_MAX);
    let share = wanted.len().div_ceil(readers).max(1);
    let wanted = Arc::new(wanted);
    let read = parallel::in_parallel("mp-map", readers, |reader| {
        let (file, wanted) = (Arc::clone(file), Arc::clone(&wanted));
        move || read_share(&*file, len, uuid, wanted.chunks(share).nth(reader).unwrap_or_default())
    })?;
    for (id, page) in read.into_iter().flatten() {
        match (page, map.map_page_mut(id)) {
            (Ok(page), Some(place)) => *place = page,
            (Ok(_), None) => {}
            (Err(damage), _) => on_damage(damage)?,
        }
    }
    Ok(())
}

/// A map page, or the damage of its image.
type ReadPage = (PageId, Result<MapPage, Error>);

fn read_share(
    file: &dyn Device,
    len: u64,
    uuid: [u64; 2],
    wanted: &[(PageId, MapEntry)],
) -> Result<Vec<ReadPage>, Error> {
    let mut pages = Vec::with_capacity(wanted.len());
    let mut buf = aligned(to_usize(READ_PLACES.min(to_u64(wanted.len()) * 2)) * BLOCK);
    let (mut from, mut upto) = (0, 0);
    for &(id, place) in wanted {
        let offset = place.offset();
        let damaged = |what: &str| {
            let message = format!("map page {id} at offset {offset} of '{}': {what}; {MEND_MAP}", file.name());
            Error::Corruption(message.into())
        };
        if offset + BLOCK_U64 > len {
            pages.push((id, Err(damaged("the file ends before it"))));
            continue;
        }
        if offset >= upto {
            (from, upto) = (offset, (offset + to_u64(buf.len())).min(len));
            file.read_at(&mut buf[..to_usize(upto - from)], from)
                .map_err(|e| Error::io(&format!("read the page map in '{}'", file.name()), e))?;
        }
        let at = to_usize(offset - from);
        let mut page = MapPage::new(place);
        let decoded = decode(id, &mut page, uuid, &buf[at..at + BLOCK]);
        pages.push((id, decoded.map(|()| page).map_err(|what| damaged(&what))));
    }
    Ok(pages)
}

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::waits::Waits;
    use crate::io::simulated::SimulatedDisk;
    use crate::store::checkpoint::{CheckpointFacts, Snapshot};
    use crate::store::lot::WriteOp;
    use crate::store::map::INLINE;
    use crate::store::page_store::MapRecord;
    use crate::store::space::Share;

    fn open(disk: &SimulatedDisk) -> PageStore {
        PageStore::open(disk, Arc::new(DirtyCounts::default())).expect("opened").0
    }

    fn new_store(disk: &SimulatedDisk) -> PageStore {
        PageStore::create(disk, Superblock::of_tests()).expect("created");
        let store = open(disk);
        store.finish_replay(&BTreeSet::new()).expect("nothing to replay");
        store
    }

    fn waits() -> Waits {
        Waits::new(Duration::from_secs(1))
    }

    fn publish(store: &PageStore, lsn: Lsn) {
        publish_snapshot(store, store.snapshot(), lsn);
    }

    fn publish_snapshot(store: &PageStore, snapshot: Snapshot, lsn: Lsn) {
        let (checkpoint_lsn, durable_lsn) = (lsn, lsn);
        let redo = Superblock::of_tests().redo;
        let facts = CheckpointFacts {
            checkpoint_lsn,
            durable_lsn,
            nonce: 7,
            redo,
            switch: None,
            write_capacity: 0,
            apply_rate: 0,
        };
        store.publish(snapshot, facts).expect("published");
    }

    /// A store with one page in one space, whose image a sync has covered, and the map record to log.
    struct Covered {
        store: PageStore,
        space: SpaceId,
        /// Free slots before that.
        free: u64,
        records: Vec<MapRecord>,
    }

    fn covered(disk: &SimulatedDisk) -> Covered {
        let store = new_store(disk);
        let (_, free) = store.slot_counts();
        let space = store.new_space().expect("there are numbers");
        let id = store.allocate(space, Share::Common, &waits()).expect("there is room");
        let op = WriteOp { id, lsn: Lsn(5000), rec_lsn: Some(Lsn(4096)) };
        store.counts.add(Lsn(4096));
        assert_eq!(store.write(&[op], &mut aligned(4096), Lsn(5000)).expect("written"), Some(1));
        let records = store.map_records(store.sync().expect("synced"));
        assert_eq!(records.len(), 1);
        Covered { store, space, free, records }
    }

    /// A space is dropped after a map record of its page was logged, and before the map contains it. While the drop is
    /// not durable, a crash may keep only the group.
    #[test]
    fn an_image_that_is_named_outlives_a_drop_that_is_not_durable() {
        let Covered { store, space, free, records } = covered(&SimulatedDisk::new());
        store.drop_space(space, Lsn(5200));
        store.apply_records(&records, Lsn(5000), Lsn(5100));
        while store.give_back_step() {}
        store.release_slots(Lsn(5199));
        assert_eq!(store.slot_counts().1, free - 1, "the group names the slot, and the drop may be lost");
        store.release_slots(Lsn(5200));
        assert_eq!((store.slot_counts().1, store.counts.oldest()), (free, None));
    }

    /// A space is dropped after a map record of its page was made, and before the record is logged.
    #[test]
    fn a_map_record_does_not_bring_a_dropped_space_back() {
        let disk = SimulatedDisk::new();
        let Covered { store, space, free, records } = covered(&disk);
        store.drop_space(space, Lsn(5100));
        store.apply_records(&records, Lsn(5100), Lsn(5200));
        while store.give_back_step() {}
        assert_eq!(store.slot_counts().1, free, "the slot is free");
        // The checkpoint's directory is later than the drop; its LSN need not be later than the map group.
        publish(&store, Lsn(5100));
        let next = store.new_space().expect("there are numbers");
        drop(store);
        let store = open(&disk);
        store.replay_records(&records, Lsn(5100), Lsn(5200)).expect("a record of a space that is gone");
        store.finish_replay(&BTreeSet::new()).expect("replayed");
        assert_eq!((store.spaces(), store.slot_counts().1), (BTreeSet::new(), free));
        assert_eq!((space, next, store.new_space().expect("there are numbers")), (SpaceId(1), SpaceId(2), SpaceId(2)));
        // The log names this space, so its number is taken for ever.
        store.note_space(SpaceId(9));
        assert_eq!(store.new_space().expect("there are numbers"), SpaceId(10));
    }

    /// No number is given out twice; at the end there is an error. The superblock holds the next numbers.
    #[test]
    fn numbers_of_spaces_and_transactions_end_with_an_error() {
        let store = new_store(&SimulatedDisk::new());
        store.note_space(SpaceId(u32::MAX - 3));
        assert_eq!(store.new_space().ok(), Some(SpaceId(u32::MAX - 2)));
        for _ in 0..2 {
            assert!(matches!(store.new_space(), Err(Error::TooLarge(_))));
        }
        store.note_txn(TxnId(TxnId::END.0 - 2));
        assert_eq!(store.next_txn().ok(), Some(TxnId(TxnId::END.0 - 1)));
        for _ in 0..2 {
            assert!(matches!(store.next_txn(), Err(Error::TooLarge(_))));
        }
        assert_eq!(store.txn_to_come(), TxnId::END);
        publish(&store, Lsn(5000));
        assert_eq!(store.superblock().next_space, u32::MAX - 1, "as a superblock allows");
    }

    /// Gives out more pages of a space than a directory holds entries.
    fn outgrow_directory(store: &PageStore, space: SpaceId) {
        (0..=INLINE).for_each(|_| _ = store.allocate(space, Share::Common, &waits()).expect("there is room"));
    }

    /// DIRECTORY-1: a checkpoint between the group that names a ninth page and the write of the map page. Its LSN is
    /// that of the group, so the log has nothing else of that page.
    #[test]
    fn log_has_the_entries_that_a_directory_leaves_out() {
        let disk = SimulatedDisk::new();
        let store = new_store(&disk);
        let space = store.new_space().expect("there are numbers");
        outgrow_directory(&store, space);
        let mut groups = Vec::new();
        for (start, numbers) in [(5000, 0..INLINE), (6000, 2..INLINE + 1), (7000, 0..2)] {
            let (start, end) = (Lsn(start), Lsn(start + 1000));
            let op = |number| WriteOp { id: PageId::new(space, number), lsn: start, rec_lsn: Some(start) };
            let ops: Vec<WriteOp> = numbers.map(op).collect();
            ops.iter().for_each(|_| store.counts.add(start));
            store.write(&ops, &mut aligned(4096 * ops.len()), start).expect("written");
            let records = store.map_records(store.sync().expect("synced"));
            assert_eq!(records.len(), ops.len());
            store.apply_records(&records, start, end);
            store.release_slots(end);
            if start == Lsn(5000) {
                assert_eq!(store.write_map_pages(Lsn(u64::MAX)).expect("clean"), 0, "no image is written");
                publish(&store, end);
            }
            groups.push((records, start, end));
        }
        publish(&store, Lsn(6000));
        let named = |store: &PageStore| store.state.lock().map.pages().collect::<Vec<_>>();
        let before = named(&store);
        assert_eq!(before.len(), to_usize(u64::from(INLINE)) + 1);
        drop(store);
        let again = open(&disk);
        assert_eq!(named(&again).len(), to_usize(u64::from(INLINE)), "the log has one more");
        for (records, start, end) in &groups[1..] {
            again.replay_records(records, *start, *end).expect("replayed");
        }
        assert_eq!(named(&again), before);
        again.finish_replay(&BTreeSet::new()).expect("sound");
        assert_eq!(again.write_map_pages(Lsn(u64::MAX)).expect("written"), 1);
    }

    /// A map page has three places: in the durable directory, in the one being written, and one written since.
    #[test]
    fn map_pages_find_places_while_a_directory_is_under_way() {
        let disk = SimulatedDisk::new();
        let store = new_store(&disk);
        let mut lsn = 4096;
        for trees in 1..200 {
            outgrow_directory(&store, SpaceId(trees));
            let mut under_way = None;
            for round in 0..3 {
                lsn += 100;
                for tree in 1..=trees {
                    let entry = MapEntry::new(SLOTS_START, 4096, 0);
                    let mut state = store.state.lock();
                    let _ = state.map.apply(PageId::new(SpaceId(tree), INLINE), entry, Lsn(lsn), Lsn(lsn + 50));
                }
                let written = store.write_map_pages(Lsn(u64::MAX)).expect("each map page finds a place");
                assert_eq!(written, to_usize(u64::from(trees)));
                match under_way.take() {
                    None if round == 0 => under_way = Some(store.snapshot()),
                    Some(snapshot) => publish_snapshot(&store, snapshot, Lsn(lsn)),
                    None => {}
                }
            }
        }
    }

    /// Trees are dropped and created faster than the places of the dropped ones are given back.
    #[test]
    fn map_pages_find_places_before_dropped_spaces_return_theirs() {
        let disk = SimulatedDisk::new();
        let store = new_store(&disk);
        let mut lsn = 4096;
        let mut write = |store: &PageStore, spaces: &[SpaceId]| {
            lsn += 100;
            for &space in spaces {
                let entry = MapEntry::new(SLOTS_START, 4096, 0);
                let _ = store.state.lock().map.apply(PageId::new(space, INLINE), entry, Lsn(lsn), Lsn(lsn + 50));
            }
            let written = store.write_map_pages(Lsn(u64::MAX)).expect("each map page finds a place");
            assert_eq!(written, spaces.len());
            Lsn(lsn)
        };
        for _ in 0..20 {
            let spaces: Vec<SpaceId> = (0..20).map(|_| store.new_space().expect("there are numbers")).collect();
            spaces.iter().for_each(|space| outgrow_directory(&store, *space));
            let lsn = write(&store, &spaces);
            publish(&store, lsn);
            write(&store, &spaces);
            spaces.iter().for_each(|space| store.drop_space(*space, lsn));
        }
        let places = store.state.lock().places.total();
        while store.give_back_step() {}
        publish(&store, Lsn(100_000));
        let state = store.state.lock();
        assert_eq!((state.places.free(), state.map.map_pages()), (places, 0), "all places are given back");
        assert_eq!(state.map.unplaced(), 0);
    }
}
