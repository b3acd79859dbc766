//! The map as it was at one moment, with its images pinned: what a backup copies.
//!
//! BACKUP-1  A slot that is pinned is neither given out nor overwritten ([`slots`](super::slots)): a page written
//!           meanwhile gets another slot, also in place. Writers never wait for a backup: where they would find no
//!           slot, the pins are broken, and the backup fails.
//! BACKUP-2  The map is frozen by the thread that logs map groups, and the log's end is read after that: it is the
//!           backup's LSN. All that changed the frozen map is in the log before it. Groups between the two that change
//!           the map are of pages and spaces given back, which replay repeats.
//! BACKUP-3  From the frozen map's superblock on, the log is kept until it is copied: a count holds the checkpoint. The
//!           keeper breaks the hold, and the backup fails, before writers would feel that the log is longer.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::checkpoint::encode;
use super::directory;
use super::files::{DATA_FILE, DIRECTORY_FILES, MAP_FILE, create, sync, write};
use super::image::slot_of;
use super::map::{ENTRIES, MapEntry, MapPage, PageMap, Space, tag_of};
use super::page_store::{PageStore, State};
use super::pins::Pins;
use super::space::{MAP_PAGES_FOR_UNDO, PLACES_START};
use super::superblock::{SLOTS_START, Superblock};
use super::zones::ZONE_BYTES;
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId, TxnId};
use crate::base::page::layout::header;
use crate::io::device::{Device, Files};
use crate::redo::dirty_counts::DirtyCounts;

/// Bytes of the data file that are read together. Many small transfers lengthen a log sync more than few large ones of
/// the same bytes, and behind a very large one it waits too long.
pub(crate) const PIECE: usize = 512 << 10;

/// Map pages of a backup in one write.
const MAP_PAGES_TOGETHER: usize = 256;

/// The entries of a map page, and its page LSN.
type FrozenPage = (Arc<Vec<MapEntry>>, Lsn);

/// The map at one moment.
pub(crate) struct Frozen {
    /// The newest durable superblock: redo begins at its checkpoint.
    pub(crate) superblock: Superblock,
    next_space: u32,
    next_txn: TxnId,
    spaces: BTreeMap<SpaceId, Vec<FrozenPage>>,
    /// Zones of the data file.
    pub(crate) zones: usize,
    /// Places of the map file. The copy has as many, because its log may name pages of high numbers (SPACE-2).
    places: u64,
}

impl State {
    /// Breaks the pins of a backup. Returns whether that freed slots.
    pub(super) fn break_pins(&mut self) -> bool {
        let helps = self.pins.is_there && self.slots.held_back() > 0;
        // Also if it does not: the backup may be what fills the file system.
        self.pins.is_broken |= self.pins.is_there;
        if helps {
            self.slots.unpin_all();
        }
        helps
    }
}

impl PageStore {
    /// Freezes the map, and pins all images. `None`: another backup has pinned them. Only the thread that logs map
    /// groups calls this, and no checkpoint is under way.
    pub(crate) fn freeze(&self) -> Option<Frozen> {
        let next_txn = self.txn_to_come();
        let mut state = self.state.lock();
        if state.pins.is_there {
            return None;
        }
        state.pins = Pins { is_there: true, is_broken: false, overwritten: state.overwriting.clone() };
        state.slots.pin_used();
        let pages = |space: &Space| space.pages.iter().map(|page| (Arc::clone(&page.entries), page.lsn)).collect();
        Some(Frozen {
            superblock: state.superblock,
            next_space: state.next_space,
            next_txn,
            spaces: state.map.spaces.iter().map(|(id, space)| (*id, pages(space))).collect(),
            zones: state.slots.zones(),
            places: state.places.total(),
        })
    }

    /// Ends the pins, a zone at a time: readers and writers come in between.
    pub(crate) fn thaw(&self) {
        let zones = self.state.lock().slots.zones();
        (0..zones).for_each(|zone| self.unpin_zone(zone));
        self.state.lock().pins = Pins::default();
    }

    /// Whether all writes to pinned slots that were under way when the map was frozen have ended.
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = self.state.lock();
        state.pins.overwritten.is_disjoint(&state.overwriting)
    }

    /// Whether the pins are broken: writers needed the slots.
    pub(crate) fn lost_pins(&self) -> bool {
        self.state.lock().pins.is_broken
    }

    /// Ends the pins of a zone, which was copied.
    pub(crate) fn unpin_zone(&self, zone: usize) {
        self.state.lock().slots.unpin(zone);
    }

    /// Reads the [`PIECE`] of this number to `buf`, and leaves the images in it that the frozen map names, which are in
    /// the slots `named`; all else is zeroed. Before the caller believes the images, or an error, it looks whether the
    /// pins hold.
    pub(crate) fn read_frozen(
        &self,
        frozen: &Frozen,
        piece: usize,
        named: &NamedSlots,
        buf: &mut [u8],
    ) -> Result<PieceRead, Error> {
        let slots = to_u64(PIECE) / self.page_size;
        let first = to_u64(piece) * slots;
        if !(first..first + slots).any(|slot| named.has(slot)) {
            return Ok(PieceRead::default());
        }
        let offset = self.offset(SlotId(first));
        let reading = |e| Error::io(&format!("read {PIECE} bytes at {offset} of '{}'", self.data.name()), e);
        self.data.read_at(buf, offset).map_err(reading)?;
        let (mut found, mut owners) = (PieceRead::default(), None);
        for (at, image) in (0..).zip(buf.chunks_mut(self.page_size())) {
            if !named.has(first + at) {
                image.fill(0);
                continue;
            }
            // The id in the image counts only if the map names this slot for it.
            let id = PageId(header(image).page_id.get());
            let entry = frozen.get(id);
            let problem = match self.slot_of(entry) == Some(SlotId(first + at)) {
                true => self.problem_of(id, entry, image).map(|problem| (id, entry, problem)),
                false => {
                    // One pass over the map for a piece, however much is damaged.
                    let owners = owners.get_or_insert_with(|| self.owners(frozen, first..first + slots));
                    owners.get(&(first + at)).map(|&(id, entry)| {
                        let problem = self.problem_of(id, entry, image);
                        (id, entry, problem.unwrap_or_else(|| "it is of another page".to_owned()))
                    })
                }
            };
            if let Some((id, entry, problem)) = problem {
                found.damage.push(self.damaged(id, entry, &problem));
            }
            found.images += 1;
            found.end = to_usize(at + 1) * self.page_size();
        }
        Ok(found)
    }

    /// The pages whose images are in these slots, by slot.
    fn owners(&self, frozen: &Frozen, slots: Range<u64>) -> BTreeMap<u64, (PageId, MapEntry)> {
        let in_slot = |(id, entry): (PageId, MapEntry)| self.slot_of(entry).map(|slot| (slot.0, (id, entry)));
        frozen.all().filter_map(in_slot).filter(|(slot, _)| slots.contains(slot)).collect()
    }

    fn damaged(&self, id: PageId, entry: MapEntry, problem: &str) -> Error {
        let message = format!(
            "page {id} in '{}': at offset {}, {problem}: close the database, and run `millpond check` to learn what it belongs to",
            self.data.name(),
            entry.offset()
        );
        Error::Corruption(message.into())
    }
}

/// The images of a piece.
#[derive(Default)]
pub(crate) struct PieceRead {
    /// The number of images.
    pub(crate) images: u64,
    /// The end of the last one, in bytes from the piece's begin.
    pub(crate) end: usize,
    /// An error for each damaged image.
    pub(crate) damage: Vec<Error>,
}

impl PieceRead {
    pub(crate) fn is_empty(&self) -> bool {
        self.images == 0
    }
}

/// Slots of a data file, one bit each.
pub(crate) struct NamedSlots(Vec<u64>);

impl NamedSlots {
    fn has(&self, slot: u64) -> bool {
        self.0.get(to_usize(slot / 64)).is_some_and(|bits| bits >> (slot % 64) & 1 == 1)
    }
}

impl Frozen {
    /// The slots of all images.
    pub(crate) fn named_slots(&self) -> NamedSlots {
        let page_size = u64::from(self.superblock.page_size);
        let mut bits = vec![0; (self.zones * ZONE_BYTES).div_ceil(to_usize(64 * page_size))];
        for slot in self.all().filter_map(|(_, entry)| slot_of(entry, page_size)) {
            bits[to_usize(slot.0 / 64)] |= 1 << (slot.0 % 64);
        }
        NamedSlots(bits)
    }

    /// The location of the page's image.
    fn get(&self, id: PageId) -> MapEntry {
        let (page, at) = (id.number() / ENTRIES, id.number() % ENTRIES);
        let pages = self.spaces.get(&id.space());
        let found = pages.and_then(|pages| pages.get(to_usize(u64::from(page))));
        found.map_or(MapEntry::default(), |(entries, _)| entries[to_usize(u64::from(at))])
    }

    /// All pages with their images.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PageId, MapEntry)> {
        self.spaces.iter().flat_map(|(&space, pages)| {
            let numbered = (0u32..).zip(pages.iter().flat_map(|(entries, _)| entries.iter()));
            let named = numbered.filter(|(_, entry)| entry.is_some());
            named.map(move |(number, entry)| (PageId::new(space, number), *entry))
        })
    }

    /// Makes the map and both directories of a copy in `files`, durable on return. Returns the superblocks, which the
    /// copy's data file gets last. The copy's log is durable up to `lsn`, and has one ring.
    pub(crate) fn write_map(&self, files: &dyn Files, lsn: Lsn) -> Result<[Superblock; 2], Error> {
        let uuid = self.superblock.uuid;
        let file = create(files, MAP_FILE)?;
        let len = PageStore::map_len(self.places.max(to_u64(self.spaces.values().map(Vec::len).sum())));
        file.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", file.name()), e))?;
        let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
        let mut buf = aligned(MAP_PAGES_TOGETHER * BLOCK);
        let (mut held, mut offset) = (0, PLACES_START);
        write(&*file, &buf[..BLOCK], 0)?;
        for (&space, pages) in &self.spaces {
            let places = map.spaces.entry(space).or_default();
            for (index, (entries, page_lsn)) in (0u32..).zip(pages) {
                let at = offset + to_u64(held * BLOCK);
                let mut page = MapPage::new(MapEntry::new(at, BLOCK_U64, tag_of(*page_lsn)));
                (page.entries, page.lsn) = (Arc::clone(entries), *page_lsn);
                if !page.needs_place(index) {
                    // The directory holds its entries.
                    page.place = MapEntry::default();
                    places.pages.push(page);
                    continue;
                }
                encode(PageId::new(space, index), &page, uuid, &mut buf[held * BLOCK..(held + 1) * BLOCK]);
                // Only its place is needed from here on.
                page.entries = Arc::default();
                places.pages.push(page);
                held += 1;
                if held == MAP_PAGES_TOGETHER {
                    write(&*file, &buf, offset)?;
                    (held, offset) = (0, offset + to_u64(buf.len()));
                }
            }
        }
        write(&*file, &buf[..held * BLOCK], offset)?;
        sync(&*file)?;
        let directory = directory::encode(&map);
        let mut both = [self.superblock; 2];
        // As a creation does: a place without a whole superblock always means damage.
        for sequence in [self.superblock.sequence, self.superblock.sequence + 1] {
            let superblock = Superblock {
                sequence,
                next_space: self.next_space,
                next_txn: self.next_txn,
                durable_lsn: lsn,
                features: self.superblock.features | directory.features,
                directory_bytes: to_u64(directory.bytes.len()),
                directory_crc: directory::directory_crc(uuid, sequence, &directory.bytes),
                ..self.superblock
            };
            both[superblock.place()] = superblock;
        }
        let (spaces, placed) = (map.space_count(), to_u64(map.spaces.values().map(|space| space.pages.len()).sum()));
        // As long as the copy needs them for the next page: an open would make them longer, and the data file, too.
        let len =
            directory::file_len(spaces + 1, spaces + 1, placed + 1 + MAP_PAGES_FOR_UNDO).next_multiple_of(16 << 10);
        for superblock in both {
            let file = create(files, DIRECTORY_FILES[superblock.place()])?;
            file.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", file.name()), e))?;
            directory::write(&*file, &superblock, &directory.bytes)?;
            sync(&*file)?;
        }
        Ok(both)
    }

    /// Bytes of the copy's data file.
    pub(crate) fn data_len(&self) -> u64 {
        SLOTS_START + to_u64(self.zones * ZONE_BYTES)
    }

    /// Makes the copy's data file, without superblocks.
    pub(crate) fn create_data(&self, files: &dyn Files) -> Result<Arc<dyn Device>, Error> {
        let file = create(files, DATA_FILE)?;
        let len = self.data_len();
        file.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", file.name()), e))?;
        Ok(file)
    }

    /// Writes what was read of a piece to the copy's data file.
    pub(crate) fn write_piece(&self, data: &dyn Device, piece: usize, images: &[u8]) -> Result<(), Error> {
        write(data, &images[..to_usize(round_up(to_u64(images.len())))], SLOTS_START + to_u64(piece * PIECE))
    }
}

/// Writes both superblocks to a copy's data file, which makes it a database; durable on return.
pub(crate) fn finish_data(data: &dyn Device, superblocks: &[Superblock; 2]) -> Result<(), Error> {
    sync(data)?;
    superblocks.iter().try_for_each(|superblock| superblock.write(data))?;
    sync(data)
}

const _: () = assert!(ZONE_BYTES.is_multiple_of(PIECE) && PIECE >= 64 << 10, "a piece has whole slots");
