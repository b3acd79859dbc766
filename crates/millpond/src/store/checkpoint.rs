//! Checkpoints: writing map pages, the directory, and the superblock that names the directory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::directory::{self, Directory};
use super::lot::LOT_PAGES;
use super::map::{ENTRIES, MapEntry, MapPage, tag_of};
use super::page_store::{PageStore, State};
use super::space::PLACES_START;
use super::superblock::Superblock;
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, to_u64};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId, TxnId};
use crate::base::page::layout::{HEADER_LEN, MAP_PAGE, PAGE_FORMAT, find_damage, header_mut, page_lsn, seal};
use crate::redo::files::{Geometry, Switch};

/// The contents of a checkpoint's superblock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointFacts {
    pub(crate) checkpoint_lsn: Lsn,
    pub(crate) durable_lsn: Lsn,
    pub(crate) nonce: u64,
    pub(crate) redo: Geometry,
    pub(crate) switch: Option<Switch>,
    /// The device's measured write capacity, in bytes of pages a second.
    pub(crate) write_capacity: u64,
    /// As in [`Superblock`].
    pub(crate) apply_rate: u64,
}

/// A directory that is about to be written.
pub(crate) struct Snapshot {
    directory: Directory,
    /// Larger than the number of each space in the directory.
    next_space: u32,
    next_txn: TxnId,
    /// Places that are free once this directory is durable: no directory names them then.
    frees: Vec<SlotId>,
}

/// Encodes the image of a map page.
pub(crate) fn encode(id: PageId, page: &MapPage, uuid: [u64; 2], out: &mut [u8]) {
    out.fill(0);
    let header = header_mut(out);
    header.page_type = MAP_PAGE;
    header.page_id = U64::new(id.0);
    header.page_lsn = U64::new(page.lsn.0);
    header.format = U16::new(PAGE_FORMAT);
    for (bytes, entry) in out[HEADER_LEN..].chunks_mut(8).zip(page.entries.iter()) {
        bytes.copy_from_slice(U64::new(entry.0).as_bytes());
    }
    seal(out, uuid, id);
}

/// Fills a map page from its image; `Err`: the image's damage.
pub(crate) fn decode(id: PageId, page: &mut MapPage, uuid: [u64; 2], image: &[u8]) -> Result<(), String> {
    if let Some(damage) = find_damage(image, uuid, id, MAP_PAGE) {
        return Err(damage);
    }
    page.lsn = page_lsn(image);
    if tag_of(page.lsn) != page.place.tag() {
        return Err("the image is an older one (a lost write)".to_owned());
    }
    for (bytes, entry) in image[HEADER_LEN..].chunks_exact(8).zip(Arc::make_mut(&mut page.entries)) {
        *entry = MapEntry(bytes.try_into().map_or(0, u64::from_le_bytes));
    }
    Ok(())
}

impl PageStore {
    pub(super) fn place_of(entry: MapEntry) -> Option<SlotId> {
        entry.slot(PLACES_START, BLOCK_U64)
    }

    /// STORE-1, for the map file: a place that a durable directory may name is free only when the next directory is
    /// durable.
    pub(super) fn replace_place(state: &mut State, old: MapEntry, named_by: u64) {
        let Some(place) = Self::place_of(old) else { return };
        if named_by > state.directories {
            state.places.give(place);
        } else {
            state.replaced_places.push(place);
        }
    }

    /// Writes the dirty map pages whose oldest change is before `cut`, one lot (batch of pages) at a time. Returns
    /// their number. Those that a directory can hold are clean without a write: each later directory holds them.
    ///
    /// They may be ahead of the log: only a superblock names them, and it is written after the log was flushed.
    pub(crate) fn write_map_pages(&self, cut: Lsn) -> Result<usize, Error> {
        let mut from = Some(SpaceId::CATALOG);
        while let Some(space) = from {
            from = self.state.lock().map.clean_small_pages(space, cut);
        }
        let mut count = 0;
        loop {
            let written = self.write_map_lot(cut)?;
            count += written;
            if written < LOT_PAGES {
                return Ok(count);
            }
        }
    }

    fn write_map_lot(&self, cut: Lsn) -> Result<usize, Error> {
        let mut buf = aligned(LOT_PAGES * BLOCK);
        let mut lot: Vec<(PageId, Lsn, MapEntry)> = Vec::with_capacity(LOT_PAGES);
        let named_by = {
            let mut state = self.state.lock();
            let State { map, places, .. } = &mut *state;
            let is_dirty = |(id, page): &(PageId, &mut MapPage)| {
                page.rec_lsn.is_some_and(|lsn| lsn < cut) && (page.place.is_some() || page.needs_place(id.number()))
            };
            let dirty = map.map_pages_mut().filter(is_dirty);
            for ((id, page), image) in dirty.zip(buf.chunks_mut(BLOCK)) {
                let Some(place) = places.take_many(1).and_then(|places| places.first().copied()) else {
                    return Err(Error::Bug("STORE-3: a map page finds no place".into()));
                };
                let Some(rec_lsn) = page.rec_lsn.take() else { continue };
                encode(id, page, self.uuid, image);
                lot.push((id, rec_lsn, MapEntry::new(PLACES_START + place.0 * BLOCK_U64, BLOCK_U64, tag_of(page.lsn))));
            }
            state.directories + 1
        };
        let writes: Vec<_> = lot.iter().zip(buf.chunks(BLOCK)).map(|(page, image)| (image, page.2.offset())).collect();
        let ends = self.map_file.write_many(&writes);
        ends.into_iter()
            .collect::<io::Result<()>>()
            .map_err(|e| Error::device(&format!("write a map page to '{}'", self.map_file.name()), e))?;
        self.counters.map_page_writes.fetch_add(to_u64(lot.len()), Ordering::Relaxed);
        let mut state = self.state.lock();
        for &(id, rec_lsn, entry) in &lot {
            // If the space was dropped meanwhile, the new place is freed.
            let (old, old_named_by) = state.map.set_place(id, entry, named_by).unwrap_or((entry, named_by));
            Self::replace_place(&mut state, old, old_named_by);
            self.counts.remove(rec_lsn);
        }
        Ok(lot.len())
    }

    /// Takes the directory that the next superblock will name. The caller computes its checkpoint LSN **before** this
    /// call. So the directory contains the image, or the entries, of every map page that held no change back then.
    pub(crate) fn snapshot(&self) -> Snapshot {
        // A transaction with a group before the checkpoint LSN took its id before that LSN was known: `next_txn` is
        // beyond it.
        let next_txn = self.txn_to_come();
        let mut state = self.state.lock();
        state.directories += 1;
        let frees = std::mem::take(&mut state.replaced_places);
        Snapshot { directory: directory::encode(&state.map), next_space: state.next_space, next_txn, frees }
    }

    /// Notes in the superblock that the log ends with it, durable on return. The log is closed at `log_end`.
    pub(crate) fn mark_closed(&self, log_end: Lsn) -> Result<(), Error> {
        let superblock = Superblock { closed: true, ..self.superblock() };
        if superblock.durable_lsn == log_end {
            superblock.write(&*self.data)?;
            self.sync_data()?;
        }
        Ok(())
    }

    /// Makes a directory durable: writes it, syncs it and the map pages, writes the superblock, syncs it. The log is
    /// durable up to `facts.durable_lsn`. The last sync covers images, too: returns the same as [`sync`](Self::sync).
    pub(crate) fn publish(&self, snapshot: Snapshot, facts: CheckpointFacts) -> Result<u64, Error> {
        let old = self.superblock();
        let sequence = old.sequence + 1;
        let superblock = Superblock {
            sequence,
            features: old.features | snapshot.directory.features,
            next_space: snapshot.next_space,
            next_txn: snapshot.next_txn,
            checkpoint_lsn: facts.checkpoint_lsn,
            durable_lsn: facts.durable_lsn,
            nonce: facts.nonce,
            directory_bytes: to_u64(snapshot.directory.bytes.len()),
            directory_crc: directory::directory_crc(self.uuid, sequence, &snapshot.directory.bytes),
            redo: facts.redo,
            switch: facts.switch,
            write_capacity: facts.write_capacity,
            apply_rate: facts.apply_rate,
            closed: planted!("closed_for_ever"),
            ..old
        };
        let file = &*self.directory_files[superblock.place()];
        directory::write(file, &superblock, &snapshot.directory.bytes)?;
        let places = self.state.lock().places.total();
        if !planted!("directory_not_synced") {
            for file in [&*self.map_file, file] {
                file.sync().map_err(|e| Error::device(&format!("sync '{}'", file.name()), e))?;
            }
        }
        superblock.write(&*self.data)?;
        // STORE-2: read before the sync starts.
        let covered = self.state.lock().turn;
        self.sync_data()?;
        let mut state = self.state.lock();
        state.superblock = superblock;
        state.places_synced = places;
        for place in snapshot.frees {
            state.places.give(place);
        }
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(covered)
    }
}

const _: () = assert!(HEADER_LEN + 8 * 504 == BLOCK && ENTRIES == 504);

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::base::aligned::to_usize;
    use crate::base::scheduler::run;
    use crate::io::simulated::SimulatedDisk;
    use crate::{Db, Options};

    #[test]
    fn a_map_page_survives_encoding_and_every_flipped_bit_is_found() {
        let id = PageId::new(SpaceId(3), 1);
        let mut page = MapPage::new(MapEntry::default());
        page.lsn = Lsn(77);
        Arc::make_mut(&mut page.entries)[to_usize(u64::from(ENTRIES)) - 1] = MapEntry(42);
        let mut image = vec![0; BLOCK];
        encode(id, &page, [1, 2], &mut image);
        let mut again = MapPage::new(MapEntry::new(4096, 4096, tag_of(Lsn(77))));
        assert_eq!(decode(id, &mut again, [1, 2], &image), Ok(()));
        assert_eq!((again.entries, again.lsn), (page.entries, Lsn(77)));
        let mut older = MapPage::new(MapEntry::new(4096, 4096, tag_of(Lsn(76))));
        assert!(decode(id, &mut older, [1, 2], &image).is_err_and(|what| what.contains("lost write")));
        for position in 0..BLOCK {
            image[position] ^= 4;
            assert!(decode(id, &mut older, [1, 2], &image).is_err(), "byte {position}");
            image[position] ^= 4;
        }
    }

    /// STORE-3: one place in the durable directory, one in the directory being written, and one written since.
    #[test]
    fn each_map_page_finds_a_third_place_beside_a_directory() {
        run(1, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(2));
            let db =
                Db::open_on(Arc::new(SimulatedDisk::new()), options.redo_capacity(ByteSize::mib(8))).expect("opened");
            let store = &db.engine().core.store;
            let write_all = || {
                {
                    let mut state = store.state.lock();
                    for (_, page) in state.map.map_pages_mut().filter(|(_, page)| page.rec_lsn.is_none()) {
                        page.rec_lsn = Some(page.lsn);
                        store.counts.add(page.lsn);
                    }
                }
                store.write_map_pages(Lsn(u64::MAX)).expect("each map page finds a place")
            };
            // The file grows by half each time. Just before it grows, it has no place more than necessary.
            for number in 0..400 {
                let tree = db.create_tree(&format!("t{number}")).expect("created");
                // More pages than a directory holds entries.
                (0..40u32).for_each(|row| tree.put(row.to_be_bytes(), [7; 900]).expect("written"));
                if number % 4 == 0 {
                    db.checkpoint().expect("each map page has a place that a durable directory names");
                    let first = write_all();
                    assert!(first > number, "{first} map pages of {number} trees");
                    let on_its_way = store.snapshot();
                    assert!(write_all() >= first);
                    // This directory is not published: the places that it would free become free with the next one.
                    store.state.lock().replaced_places.extend(on_its_way.frees);
                }
            }
            db.close().expect("closed");
        });
    }
}
