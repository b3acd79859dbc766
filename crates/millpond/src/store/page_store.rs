//! Reading and writing pages, and the checkpoint.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::map::{MapEntry, PageMap};
use super::slots::Slots;
use super::superblock::{Found, SLOTS_START, Superblock};
use crate::base::aligned::{BLOCK_U64, aligned, round_up, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId};
use crate::base::page::layout::{find_damage, header, page_lsn, seal};
use crate::base::page::op::Reader;
use crate::base::sync::Mutex;
use crate::io::device::{Device, Files};

/// The data file.
pub(crate) const DATA_FILE: &str = "data.mpd";
/// The data file while the database is being created.
pub(crate) const DATA_FILE_NEW: &str = "data-new.mpd";
/// The two map files.
pub(crate) const MAP_FILES: [&str; 2] = ["map-0.mpd", "map-1.mpd"];

/// Images written together, at most.
pub(crate) const LOT_PAGES: usize = 64;

/// Slots beyond the charged ones without which no page id is given out: two lots, so that while one lot is in flight
/// the next finds room, and a checkpoint frees what the first replaced.
const SLOTS_RESERVED: u64 = 2 * 64;

/// Counters of the store.
#[derive(Default)]
pub(crate) struct StoreCounters {
    pub(crate) page_reads: AtomicU64,
    pub(crate) page_writes: AtomicU64,
    pub(crate) write_calls: AtomicU64,
    pub(crate) data_syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

struct State {
    map: PageMap,
    slots: Slots,
    /// Counts snapshots of the map; entries set since the last one are known to no checkpoint.
    epoch: u64,
    /// Slots replaced since the last snapshot that a checkpoint may name.
    replaced: Vec<SlotId>,
    next_image: u64,
    superblock: Superblock,
}

/// Page images on the data file.
pub(crate) struct PageStore {
    data: Arc<dyn Device>,
    maps: [Arc<dyn Device>; 2],
    page_size: u64,
    uuid: [u64; 2],
    state: Mutex<State>,
    /// Held while the files grow; the state is not.
    growth: Mutex<()>,
    pub(crate) counters: StoreCounters,
}

/// What a checkpoint is to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointFacts {
    pub(crate) checkpoint_lsn: Lsn,
    pub(crate) durable_lsn: Lsn,
    pub(crate) nonce: u64,
    pub(crate) next_space: u32,
    pub(crate) redo_generation: u32,
    pub(crate) redo_payload_bytes: u64,
}

/// A snapshot of the map on its way to the device.
pub(crate) struct MapSnapshot {
    bytes: Vec<u8>,
    next_image: u64,
    /// Slots that no map will name once this snapshot is the durable one.
    frees: Vec<SlotId>,
}

fn slot_count(file_len: u64, page_size: u64) -> u64 {
    file_len.saturating_sub(SLOTS_START) / page_size
}

impl PageStore {
    /// Makes the files of an empty store, durable on return. The data file gets its name last: from then on the
    /// database exists.
    pub(crate) fn create(files: &dyn Files, superblock: Superblock) -> Result<(), Error> {
        let make = |name: &str| {
            files.create(name).map_err(|e| Error::io(&format!("create '{name}' in '{}'", files.place()), e))
        };
        let data = make(DATA_FILE_NEW)?;
        let page_size = u64::from(superblock.page_size);
        let slots = 2 * SLOTS_RESERVED;
        let len = SLOTS_START + slots * page_size;
        data.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", data.name()), e))?;
        for name in MAP_FILES {
            let map = make(name)?;
            let len = Self::map_file_len(slots, 1);
            map.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", map.name()), e))?;
            let sequence = u64::from(name == MAP_FILES[1]);
            Self::write_map(&*map, superblock.uuid, sequence, &[])?;
            map.sync().map_err(|e| Error::io(&format!("sync '{}'", map.name()), e))?;
        }
        // Both, so that one that is not whole is always damage.
        for sequence in [0, 1] {
            let map_crc = Self::map_crc(superblock.uuid, sequence, &[]);
            Superblock { sequence, map_crc, ..superblock }.write(&*data)?;
        }
        data.sync().map_err(|e| Error::io(&format!("sync '{}'", data.name()), e))?;
        let name_it = || -> std::io::Result<()> {
            files.sync_names()?;
            files.rename(DATA_FILE_NEW, DATA_FILE)?;
            files.sync_names()
        };
        name_it().map_err(|e| Error::io(&format!("name the data file in '{}'", files.place()), e))
    }

    /// Opens the store: superblocks and map.
    pub(crate) fn open(files: Arc<dyn Files>) -> Result<(PageStore, [Found; 2]), Error> {
        let open = |name: &str| {
            files.open(name).map_err(|e| {
                if e.kind() == std::io::ErrorKind::NotFound {
                    let message = format!(
                        "file '{name}' is missing in '{}': restore it, or the database from a backup",
                        files.place()
                    );
                    return Error::Corruption(message.into());
                }
                Error::io(&format!("open '{name}' in '{}'", files.place()), e)
            })
        };
        let data = open(DATA_FILE)?;
        let found = Superblock::read_both(&*data)?;
        let superblock = Superblock::choose(found, data.name())?;
        let maps = [open(MAP_FILES[0])?, open(MAP_FILES[1])?];
        if !matches!(found[1 - superblock.place()], Found::Valid(_)) {
            Self::mend_other_superblock(&superblock, &*data, &maps)?;
        }
        let map = Self::read_map(&*maps[superblock.place()], &superblock)?;
        let page_size = u64::from(superblock.page_size);
        let len = data.len().map_err(|e| Error::io(&format!("look at '{}'", data.name()), e))?;
        let mut slots = Slots::all_free(slot_count(len, page_size));
        for (id, entry) in map.pages() {
            let taken = entry.slot(page_size).is_some_and(|slot| slots.take(slot));
            if !taken {
                let message = format!(
                    "the page map gives page {id} a slot that is not in '{}', or another page's: restore the database from a backup",
                    data.name()
                );
                return Err(Error::Corruption(message.into()));
            }
        }
        Ok((Self::assemble(data, maps, superblock, map, slots), found))
    }

    fn assemble(
        data: Arc<dyn Device>,
        maps: [Arc<dyn Device>; 2],
        superblock: Superblock,
        map: PageMap,
        slots: Slots,
    ) -> PageStore {
        // Images of before a crash that no superblock counted must not pass for later ones: leave a gap.
        let next_image = superblock.next_image + 100_003;
        PageStore {
            data,
            maps,
            page_size: u64::from(superblock.page_size),
            uuid: superblock.uuid,
            state: Mutex::new(State { map, slots, epoch: 1, replaced: Vec::new(), next_image, superblock }),
            growth: Mutex::new(()),
            counters: StoreCounters::default(),
        }
    }

    /// A superblock is one sector, so a crash leaves it old or new, never damaged. Where one is damaged all the
    /// same, it must be the older one: what the newer one named may be gone already. The map beside it tells.
    ///
    /// The damaged one is written anew before that map changes: else a crash in the next checkpoint would leave the
    /// map of the newer beside a superblock that is damaged still.
    fn mend_other_superblock(chosen: &Superblock, data: &dyn Device, maps: &[Arc<dyn Device>; 2]) -> Result<(), Error> {
        let other = 1 - chosen.place();
        if let Some(older) = chosen.sequence.checked_sub(1)
            && Self::map_sequence(&*maps[other], chosen.uuid)? == Some(older)
        {
            // It names no map that can be read: its checksum is that of another sequence.
            Superblock { sequence: older, ..*chosen }.write(data)?;
            return data.sync().map_err(|e| Error::io(&format!("sync '{}'", data.name()), e));
        }
        let message = format!(
            "superblock {other} is damaged and may be newer than superblock {}, of sequence {}: restore the database from a backup",
            chosen.place(),
            chosen.sequence
        );
        Err(Error::Corruption(message.into()))
    }

    /// Which checkpoint's map is in this file; `None`: the head of the file is not whole.
    fn map_sequence(file: &dyn Device, uuid: [u64; 2]) -> Result<Option<u64>, Error> {
        let mut block = aligned(to_usize(BLOCK_U64));
        file.read_at(&mut block, 0).map_err(|e| Error::io(&format!("read the page map in '{}'", file.name()), e))?;
        let mut reader = Reader::new(&block);
        let (sequence, crc) = (reader.u64(), reader.u32());
        Ok(sequence.filter(|&sequence| crc == Some(Self::map_crc(uuid, sequence, b"head"))))
    }

    fn read_map(file: &dyn Device, superblock: &Superblock) -> Result<PageMap, Error> {
        let damaged = || {
            let message = format!(
                "the page map in '{}' is not the one that superblock {} names: restore the database from a backup",
                file.name(),
                superblock.sequence
            );
            Error::Corruption(message.into())
        };
        let file_len = file.len().map_err(|e| Error::io(&format!("look at '{}'", file.name()), e))?;
        if BLOCK_U64 + round_up(superblock.map_bytes) > file_len {
            return Err(damaged());
        }
        let mut bytes = aligned(to_usize(round_up(superblock.map_bytes)));
        file.read_at(&mut bytes, BLOCK_U64)
            .map_err(|e| Error::io(&format!("read the page map in '{}'", file.name()), e))?;
        let map = &bytes[..to_usize(superblock.map_bytes)];
        if Self::map_crc(superblock.uuid, superblock.sequence, map) != superblock.map_crc {
            return Err(damaged());
        }
        PageMap::decode(map)
    }

    fn map_crc(uuid: [u64; 2], sequence: u64, map: &[u8]) -> u32 {
        crc32c(&[uuid[0], uuid[1], sequence], &[map])
    }

    pub(crate) fn page_size(&self) -> usize {
        to_usize(self.page_size)
    }

    /// What the newest durable superblock says.
    pub(crate) fn superblock(&self) -> Superblock {
        self.state.lock().superblock
    }

    /// Whether the page has an image.
    pub(crate) fn has_image(&self, id: PageId) -> bool {
        self.state.lock().map.get(id).is_some()
    }

    /// All spaces.
    pub(crate) fn spaces(&self) -> BTreeSet<SpaceId> {
        self.state.lock().map.spaces()
    }

    /// All pages that have an image.
    pub(crate) fn pages(&self) -> Vec<PageId> {
        self.state.lock().map.pages().map(|(id, _)| id).collect()
    }

    fn offset(&self, slot: SlotId) -> u64 {
        SLOTS_START + slot.0 * self.page_size
    }

    /// Reads a page's newest image and checks that it is that.
    pub(crate) fn read(&self, id: PageId, buf: &mut [u8]) -> Result<(), Error> {
        loop {
            let entry = self.state.lock().map.get(id);
            let damage = |what: &str| {
                let message = format!(
                    "page {id} in '{}': {what}; nothing else is affected: restore the database from a backup",
                    self.data.name()
                );
                Error::Corruption(message.into())
            };
            let Some(slot) = entry.slot(self.page_size).filter(|_| entry.is_some()) else {
                return Err(damage("it is named by a tree and has no image"));
            };
            let offset = self.offset(slot);
            let read = self.data.read_at(buf, offset);
            self.counters.page_reads.fetch_add(1, Ordering::Relaxed);
            let problem = match read {
                Ok(()) => match find_damage(buf, self.uuid, id) {
                    None if entry.matches(header(buf).image_sequence.get()) => return Ok(()),
                    None => "the image is an older one (a lost write)".to_owned(),
                    Some(what) => what,
                },
                Err(e) => {
                    return Err(Error::io(&format!("read page {id} at {offset} of '{}'", self.data.name()), e));
                }
            };
            if self.state.lock().map.get(id) == entry {
                return Err(damage(&format!("at offset {offset}, {problem}")));
            }
            // The map changed meanwhile: what was read was no longer this page's.
        }
    }

    /// Gives out a page id, with a slot charged for it. May grow the files; callers hold no latch.
    pub(crate) fn allocate(&self, space: SpaceId) -> Result<PageId, Error> {
        loop {
            {
                let mut state = self.state.lock();
                if state.map.charged() + 1 + SLOTS_RESERVED <= state.slots.total() {
                    return Ok(state.map.allocate(space));
                }
            }
            self.grow()?;
        }
    }

    /// Takes back a page id that was not used.
    pub(crate) fn give_back(&self, id: PageId) {
        self.state.lock().map.give_back(id);
    }

    /// Learns that a page id is in use (recovery). May grow the files.
    pub(crate) fn note_use(&self, id: PageId) -> Result<(), Error> {
        let short = {
            let mut state = self.state.lock();
            state.map.note_use(id);
            state.map.charged() + SLOTS_RESERVED > state.slots.total()
        };
        if short { self.grow() } else { Ok(()) }
    }

    /// Whether growing now would spare a later allocation the wait.
    pub(crate) fn wants_growth(&self) -> bool {
        let state = self.state.lock();
        let comfortable = state.map.charged() + state.map.charged() / 2 + 2 * SLOTS_RESERVED;
        state.slots.total() < comfortable
    }

    /// Whether a checkpoint is wanted for the slots that it frees.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let state = self.state.lock();
        state.slots.free() < SLOTS_RESERVED.max(state.slots.total() / 16) && !state.replaced.is_empty()
    }

    /// Makes the data file longer: by a fourth, between 1 and 64 MiB; by less when there is less.
    pub(crate) fn grow(&self) -> Result<(), Error> {
        let _growth = self.growth.lock();
        let (total, spaces, needed) = {
            let state = self.state.lock();
            (state.slots.total(), state.map.space_count(), state.map.charged() + 1 + SLOTS_RESERVED)
        };
        let wanted_bytes = (total * self.page_size / 4).clamp(1 << 20, 64 << 20);
        let wanted = total + wanted_bytes.div_ceil(self.page_size);
        let mut result = self.grow_to(wanted.max(needed), spaces);
        if result.is_err() && total < needed && needed < wanted {
            result = self.grow_to(needed, spaces);
        }
        match result {
            // Somebody else grew it while this thread waited, or it is only a wish: the next allocation decides.
            Err(_) if total >= needed => Ok(()),
            other => other,
        }
    }

    fn grow_to(&self, slots: u64, spaces: u64) -> Result<(), Error> {
        self.grow_maps(slots, spaces)?;
        let len = SLOTS_START + slots * self.page_size;
        self.data.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", self.data.name()), e))?;
        self.state.lock().slots.grow(slots);
        Ok(())
    }

    fn map_file_len(slots: u64, spaces: u64) -> u64 {
        BLOCK_U64 + round_up(PageMap::encoded_len(spaces + 1024, slots)).next_multiple_of(64 << 10)
    }

    /// Map files are charged with the slots, so that a checkpoint never lacks space either.
    fn grow_maps(&self, slots: u64, spaces: u64) -> Result<(), Error> {
        let len = Self::map_file_len(slots, spaces);
        for map in &self.maps {
            map.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", map.name()), e))?;
        }
        Ok(())
    }

    /// Writes the images in `buf`, one a page of `ids`, to free slots, and makes the map name them.
    ///
    /// On `Ok(false)` nothing was written: there are no free slots before the next checkpoint.
    /// STORE-5: `durable` is where the log is durable; no image may be ahead of it.
    pub(crate) fn write(&self, ids: &[PageId], buf: &mut [u8], durable: Lsn) -> Result<bool, Error> {
        let size = self.page_size();
        for (id, image) in ids.iter().zip(buf.chunks(size)) {
            let lsn = page_lsn(image);
            assert!(lsn <= durable, "STORE-5: page {id} at LSN {lsn} leaves before the log, durable to {durable}");
        }
        let (mut slots, first_image, epoch) = {
            let mut state = self.state.lock();
            let Some(slots) = state.slots.take_many(ids.len()) else { return Ok(false) };
            let first_image = state.next_image;
            state.next_image += to_u64(ids.len());
            (slots, first_image, state.epoch)
        };
        slots.sort_unstable();
        let images = || ids.iter().zip(&slots).zip(first_image..);
        for (((&id, _), image), bytes) in images().zip(buf.chunks_mut(size)) {
            seal(bytes, self.uuid, id, image);
        }
        let mut from = 0;
        while from < slots.len() {
            let run = slots[from..].windows(2).take_while(|pair| pair[0].0 + 1 == pair[1].0).count() + 1;
            let offset = self.offset(slots[from]);
            self.data
                .write_at(&buf[from * size..(from + run) * size], offset)
                .map_err(|e| Error::io(&format!("write {run} pages at {offset} of '{}'", self.data.name()), e))?;
            self.counters.write_calls.fetch_add(1, Ordering::Relaxed);
            from += run;
        }
        self.counters.page_writes.fetch_add(to_u64(ids.len()), Ordering::Relaxed);
        let mut state = self.state.lock();
        debug_assert_eq!(epoch, state.epoch, "STORE-1: no snapshot is taken while images are in flight");
        for ((&id, &slot), image) in images() {
            if !state.map.has_space(id.space()) {
                // Dropped meanwhile.
                state.slots.give(slot);
                continue;
            }
            let (old, known) = state.map.set(id, MapEntry::new(slot, self.page_size, image), epoch);
            if let Some(old) = old.slot(self.page_size).filter(|_| old.is_some()) {
                Self::free_or_defer(&mut state, old, known);
            }
        }
        Ok(true)
    }

    /// STORE-1: a slot that a checkpoint may name is freed by the checkpoint that no longer names it.
    fn free_or_defer(state: &mut State, slot: SlotId, known_to_checkpoint: bool) {
        if known_to_checkpoint && !cfg!(planted = "slot_freed_early") {
            state.replaced.push(slot);
        } else {
            state.slots.give(slot);
        }
    }

    /// Takes a space out of the map. Its slots are free after the next checkpoint.
    pub(crate) fn drop_space(&self, space: SpaceId) {
        let mut state = self.state.lock();
        let epoch = state.epoch;
        for (entry, known) in state.map.remove_space(space, epoch) {
            if let Some(slot) = entry.slot(self.page_size) {
                Self::free_or_defer(&mut state, slot, known);
            }
        }
    }

    /// Takes the snapshot that the next checkpoint will write. The caller has computed its checkpoint LSN **before**:
    /// every page that was clean then has its image in the snapshot.
    pub(crate) fn snapshot(&self) -> MapSnapshot {
        let mut state = self.state.lock();
        state.epoch += 1;
        MapSnapshot {
            bytes: state.map.encode(),
            next_image: state.next_image,
            frees: std::mem::take(&mut state.replaced),
        }
    }

    /// Makes a snapshot the durable map: map and images, sync, superblock, sync. The log is durable up to
    /// `facts.durable_lsn`.
    pub(crate) fn publish(&self, snapshot: MapSnapshot, facts: CheckpointFacts) -> Result<(), Error> {
        let old = self.superblock();
        let sequence = old.sequence + 1;
        let superblock = Superblock {
            uuid: self.uuid,
            sequence,
            page_size: old.page_size,
            next_space: facts.next_space,
            checkpoint_lsn: facts.checkpoint_lsn,
            durable_lsn: facts.durable_lsn,
            nonce: facts.nonce,
            next_image: snapshot.next_image,
            map_bytes: to_u64(snapshot.bytes.len()),
            map_crc: Self::map_crc(self.uuid, sequence, &snapshot.bytes),
            redo_generation: facts.redo_generation,
            redo_payload_bytes: facts.redo_payload_bytes,
        };
        let map = &self.maps[superblock.place()];
        Self::write_map(&**map, self.uuid, sequence, &snapshot.bytes)?;
        map.sync().map_err(|e| Error::io(&format!("sync '{}'", map.name()), e))?;
        if !cfg!(planted = "map_before_data") {
            self.sync_data()?;
        }
        superblock.write(&*self.data)?;
        self.sync_data()?;
        let mut state = self.state.lock();
        state.superblock = superblock;
        for slot in snapshot.frees {
            if !cfg!(planted = "slot_freed_early") {
                state.slots.give(slot);
            }
        }
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a map: a block that tells which checkpoint's it is, then its bytes.
    fn write_map(map: &dyn Device, uuid: [u64; 2], sequence: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut block = aligned(to_usize(round_up(to_u64(bytes.len().min(1 << 20))).max(BLOCK_U64)));
        let head = [&sequence.to_le_bytes()[..], &Self::map_crc(uuid, sequence, b"head").to_le_bytes()].concat();
        let mut offset = 0;
        for chunk in [head.as_slice()].into_iter().chain(bytes.chunks(1 << 20)) {
            let len = to_usize(round_up(to_u64(chunk.len())));
            block[..chunk.len()].copy_from_slice(chunk);
            block[chunk.len()..len].fill(0);
            map.write_at(&block[..len], offset)
                .map_err(|e| Error::io(&format!("write the page map in '{}'", map.name()), e))?;
            offset += to_u64(len);
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.counters.data_syncs.fetch_add(1, Ordering::Relaxed);
        self.data.sync().map_err(|e| Error::io(&format!("sync '{}'", self.data.name()), e))
    }

    /// Slots in all, and free ones.
    pub(crate) fn slot_counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.slots.total(), state.slots.free())
    }
}

const _: () = assert!(SLOTS_START.is_multiple_of(BLOCK_U64));
