//! The map as it was at one moment, with its images pinned: what a backup copies.
//!
//! BACKUP-1  A slot that is pinned is neither given out nor overwritten ([`slots`](super::slots)): a page written
//!           meanwhile gets another slot, also in place. Writers never wait for a backup: where they would find no
//!           slot, the pins are broken, and the backup fails.
//! BACKUP-2  The map is frozen by the thread that logs map groups, and the log's end is read after that: it is the
//!           backup's LSN. All that changed the frozen map is in the log before it. Groups between the two that change
//!           the map are of pages and spaces given back, which replay repeats.
//! BACKUP-3  From the frozen map's superblock on, the log is kept until it is copied: a count holds the checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checkpoint::encode;
use super::directory;
use super::files::{DATA_FILE, DIRECTORY_FILES, MAP_FILE};
use super::image::{SlotContent, content_of};
use super::map::{ENTRIES, MapEntry, MapPage, PageMap, Space, tag_of};
use super::page_store::{PageStore, State};
use super::pins::Pins;
use super::space::PLACES_START;
use super::superblock::{SLOTS_START, Superblock};
use super::zones::ZONE_BYTES;
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId, TxnId};
use crate::io::device::{Device, Files};
use crate::redo::dirty_counts::DirtyCounts;

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
}

impl State {
    /// Breaks the pins of a backup, if that frees slots.
    pub(super) fn break_pins(&mut self) -> bool {
        let helps = self.pins.is_there && self.slots.held_back() > 0;
        if helps {
            self.slots.unpin_all();
            self.pins.is_broken = true;
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
        })
    }

    /// Ends the pins.
    pub(crate) fn thaw(&self) {
        let mut state = self.state.lock();
        state.slots.unpin_all();
        state.pins = Pins::default();
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

    /// Reads `zone` to `buf`, and leaves the images in it that the frozen map names; all else is zeroed. Returns their
    /// number and the end of the last one in `buf`. The caller then looks whether the pins hold.
    pub(crate) fn read_frozen(&self, frozen: &Frozen, zone: usize, buf: &mut [u8]) -> Result<(u64, usize), Error> {
        let first = to_u64(zone) * Self::zone_slots(self.page_size);
        let offset = self.offset(SlotId(first));
        let reading = |e| Error::io(&format!("read {ZONE_BYTES} bytes at {offset} of '{}'", self.data.name()), e);
        if !self.state.lock().slots.has_pins(zone) {
            return Ok((0, 0));
        }
        self.data.read_at(buf, offset).map_err(reading)?;
        let (mut count, mut end) = (0, 0);
        for (at, image) in (0..).zip(buf.chunks_mut(self.page_size())) {
            let named = match content_of(image, self.uuid) {
                SlotContent::Image(id) => Some((id, frozen.get(id))),
                SlotContent::Zero | SlotContent::Garbage => None,
            };
            let Some((id, entry)) = named.filter(|(_, entry)| self.slot_of(*entry) == Some(SlotId(first + at))) else {
                image.fill(0);
                continue;
            };
            if let Some(problem) = self.problem_of(id, entry, image) {
                return Err(self.damaged(id, entry, &problem));
            }
            count += 1;
            end = to_usize(at + 1) * self.page_size();
        }
        Ok((count, end))
    }

    /// The error for the first page of the frozen map without a whole image.
    pub(crate) fn missing_page(&self, frozen: &Frozen) -> Error {
        let mut image = aligned(self.page_size());
        for (id, entry) in frozen.all() {
            let read = self.data.read_at(&mut image, entry.offset());
            let problem = match read {
                Ok(()) => self.problem_of(id, entry, &image),
                Err(e) => Some(e.to_string()),
            };
            if let Some(problem) = problem {
                return self.damaged(id, entry, &problem);
            }
        }
        Error::Bug("BACKUP-1: a pinned image was overwritten while it was copied".into())
    }

    fn damaged(&self, id: PageId, entry: MapEntry, problem: &str) -> Error {
        let message = format!(
            "page {id} in '{}': at offset {}, {problem}; a backup would lack it: run `millpond check` to learn what it belongs to",
            self.data.name(),
            entry.offset()
        );
        Error::Corruption(message.into())
    }
}

impl Frozen {
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
        let len = PageStore::map_len(to_u64(self.spaces.values().map(Vec::len).sum()));
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
                directory_bytes: to_u64(directory.len()),
                directory_crc: directory::directory_crc(uuid, sequence, &directory),
                ..self.superblock
            };
            both[superblock.place()] = superblock;
        }
        for superblock in both {
            let file = create(files, DIRECTORY_FILES[superblock.place()])?;
            directory::write(&*file, &superblock, &directory)?;
            sync(&*file)?;
        }
        Ok(both)
    }

    /// Makes the copy's data file, without superblocks.
    pub(crate) fn create_data(&self, files: &dyn Files) -> Result<Arc<dyn Device>, Error> {
        let file = create(files, DATA_FILE)?;
        let len = SLOTS_START + to_u64(self.zones * ZONE_BYTES);
        file.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", file.name()), e))?;
        Ok(file)
    }

    /// Writes what was read of a zone to the copy's data file.
    pub(crate) fn write_zone(&self, data: &dyn Device, zone: usize, images: &[u8]) -> Result<(), Error> {
        write(data, &images[..to_usize(round_up(to_u64(images.len())))], SLOTS_START + to_u64(zone * ZONE_BYTES))
    }
}

/// Writes both superblocks to a copy's data file, which makes it a database; durable on return.
pub(crate) fn finish_data(data: &dyn Device, superblocks: &[Superblock; 2]) -> Result<(), Error> {
    sync(data)?;
    superblocks.iter().try_for_each(|superblock| superblock.write(data))?;
    sync(data)
}

fn create(files: &dyn Files, name: &str) -> Result<Arc<dyn Device>, Error> {
    files.create(name).map_err(|e| Error::io(&format!("create '{name}' in '{}'", files.place()), e))
}

fn write(file: &dyn Device, bytes: &[u8], offset: u64) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    file.write_at(bytes, offset)
        .map_err(|e| Error::io(&format!("write {} bytes at {offset} of '{}'", bytes.len(), file.name()), e))
}

fn sync(file: &dyn Device) -> Result<(), Error> {
    file.sync().map_err(|e| Error::io(&format!("sync '{}'", file.name()), e))
}
