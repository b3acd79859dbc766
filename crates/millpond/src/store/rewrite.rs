//! Writes a new map for the images that `rebuild` found.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use super::checkpoint::encode;
use super::directory::{self, Directory};
use super::files::{DATA_FILE, DIRECTORY_FILES, MAP_FILE, len_of, open_file};
use super::map::{MapEntry, MapPage, PageMap, tag_of};
use super::page_store::PageStore;
use super::space::PLACES_START;
use super::superblock::{FEATURE_IN_PLACE, SLOTS_START, Superblock};
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, round_down, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId};
use crate::io::device::{Device, Files};
use crate::redo::dirty_counts::DirtyCounts;

/// The slot of each page's newest image, and its page LSN; `None`: it is lost. A lost page's id stays in use, and
/// reading it fails.
pub(crate) type Images = BTreeMap<PageId, Option<(SlotId, Lsn)>>;

/// The name of a file until it is whole.
pub(crate) const FILE_NEW: &str = "rebuild-new.mpd";

/// The files to keep, and how many bytes of each. The data file, which always exists, is last: its copy shows that the
/// others are kept.
const KEPT: [(&str, u64); 4] =
    [(MAP_FILE, u64::MAX), (DIRECTORY_FILES[0], u64::MAX), (DIRECTORY_FILES[1], u64::MAX), (DATA_FILE, SLOTS_START)];

/// Bytes of one copy step.
const CHUNK: u64 = 64 << 10;

/// The name under which rebuild number `turn` keeps the old file `name`.
pub(crate) fn kept_name(turn: u64, name: &str) -> String {
    format!("old-{turn}-{name}")
}

/// Writes map pages that contain all map groups up to `lsn`, both directories, and last the superblocks, with the
/// sequence of `superblock` and the next one. Copies of the old files are kept beside them.
///
/// After a crash in between, the next rebuild finds the same as this one. The old map pages stay where they are, and
/// the new ones follow them. Each directory is replaced as a whole, when the map pages that it names are durable.
pub(crate) fn rewrite(files: &dyn Files, superblock: Superblock, images: &Images, lsn: Lsn) -> Result<(), Error> {
    rewrite_files(files, superblock, images, lsn).inspect_err(|_| {
        // A partial file would keep a full disk full.
        let _ = files.remove(FILE_NEW);
    })
}

fn rewrite_files(files: &dyn Files, superblock: Superblock, images: &Images, lsn: Lsn) -> Result<(), Error> {
    keep_old(files)?;
    let data = open_file(files, DATA_FILE)?;
    let mut map = map_of(&*data, &superblock, images, lsn)?;
    map.map_pages_mut().for_each(|(_, page)| page.lsn = lsn);
    // The directory holds the entries of the others.
    let needs_place = |(id, page): &(PageId, &mut MapPage)| page.needs_place(id.number());
    let count = to_u64(map.map_pages_mut().filter(needs_place).count());
    let (map_file, first) = map_file(files, count)?;
    let mut image = aligned(BLOCK);
    for ((id, page), number) in map.map_pages_mut().filter(needs_place).zip(first..) {
        let place = PLACES_START + number * BLOCK_U64;
        page.place = MapEntry::new(place, BLOCK_U64, tag_of(lsn));
        encode(id, page, superblock.uuid, &mut image);
        map_file.write_at(&image, place).map_err(|e| Error::io(&format!("write '{}'", map_file.name()), e))?;
    }
    sync(&*map_file)?;
    sync_names(files)?;
    let Directory { bytes, features } = directory::encode(&map);
    let superblocks = [superblock.sequence, superblock.sequence + 1].map(|sequence| Superblock {
        sequence,
        features: superblock.features | features,
        directory_bytes: to_u64(bytes.len()),
        directory_crc: directory::directory_crc(superblock.uuid, sequence, &bytes),
        ..superblock
    });
    for superblock in &superblocks {
        let len = directory::file_len(map.space_count(), map.space_count(), count).next_multiple_of(16 << 10);
        let file = create(files, FILE_NEW, len)?;
        directory::write(&*file, superblock, &bytes)?;
        give_name(files, &*file, DIRECTORY_FILES[superblock.place()])?;
    }
    sync(&*data)?;
    // The newer first: if only the older existed, the other place would seem to hold a newer one.
    for superblock in superblocks.iter().rev() {
        superblock.write(&*data)?;
        sync(&*data)?;
    }
    Ok(())
}

/// Copies the files that a rebuild replaces, so that a wrong rebuild can be undone. It overwrites no earlier copy,
/// except one that a crash cut short.
fn keep_old(files: &dyn Files) -> Result<(), Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    let is_taken = |turn: &u64| names.contains(&kept_name(*turn, DATA_FILE));
    let turn = (0..).find(|turn| !is_taken(turn)).expect("names are fewer than numbers");
    let mut chunk = aligned(to_usize(CHUNK));
    for (old_name, upto) in KEPT {
        let Ok(old) = files.open(old_name) else { continue };
        let len = round_down(len_of(&*old)?.min(upto));
        let copy = create(files, FILE_NEW, len)?;
        for at in (0..len).step_by(to_usize(CHUNK)) {
            let chunk = &mut chunk[..to_usize(CHUNK.min(len - at))];
            // Unreadable bytes stay zero in the copy, as do zeroes.
            if old.read_at(chunk, at).is_ok() && chunk.iter().any(|byte| *byte != 0) {
                copy.write_at(chunk, at).map_err(|e| Error::io(&format!("write '{FILE_NEW}'"), e))?;
            }
        }
        give_name(files, &*copy, &kept_name(turn, old_name))?;
    }
    Ok(())
}

/// Gives a whole new file its name; durable on return.
fn give_name(files: &dyn Files, file: &dyn Device, name: &str) -> Result<(), Error> {
    sync(file)?;
    files.rename(FILE_NEW, name).map_err(|e| Error::io(&format!("rename '{FILE_NEW}' to '{name}'"), e))?;
    sync_names(files)
}

/// The map file, with room for `count` map pages from the returned place on, behind all existing ones.
fn map_file(files: &dyn Files, count: u64) -> Result<(Arc<dyn Device>, u64), Error> {
    let file = match files.open(MAP_FILE) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => create(files, MAP_FILE, PLACES_START)?,
        Err(e) => return Err(Error::io(&format!("open '{MAP_FILE}' in '{}'", files.place()), e)),
    };
    let first = len_of(&*file)?.saturating_sub(PLACES_START).div_ceil(BLOCK_U64);
    let len = PageStore::map_len(first + count);
    file.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", file.name()), e))?;
    Ok((file, first))
}

fn map_of(data: &dyn Device, superblock: &Superblock, images: &Images, lsn: Lsn) -> Result<PageMap, Error> {
    let page_size = u64::from(superblock.page_size);
    // Lost pages get slots of zeroes.
    let slots =
        (len_of(data)?.saturating_sub(SLOTS_START) / page_size).next_multiple_of(PageStore::zone_slots(page_size));
    let lost = to_u64(images.values().filter(|image| image.is_none()).count());
    let len = PageStore::data_len(slots + lost, page_size);
    data.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", data.name()), e))?;
    let mut zeroes = (slots..).map(|slot| (SlotId(slot), Lsn::ZERO));
    let in_place = superblock.features & FEATURE_IN_PLACE != 0;
    let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
    for (&id, image) in images {
        let Some((slot, image_lsn)) = image.or_else(|| zeroes.next()) else { continue };
        let tag = if in_place { 0 } else { tag_of(image_lsn) };
        let _ = map.apply(id, MapEntry::new(SLOTS_START + slot.0 * page_size, page_size, tag), lsn, lsn);
    }
    Ok(map)
}

fn create(files: &dyn Files, name: &str, len: u64) -> Result<Arc<dyn Device>, Error> {
    let file = files.create(name).map_err(|e| Error::io(&format!("create '{name}' in '{}'", files.place()), e))?;
    file.grow(len).map_err(|e| Error::io(&format!("grow '{name}' to {len} bytes"), e))?;
    Ok(file)
}

fn sync_names(files: &dyn Files) -> Result<(), Error> {
    files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))
}

fn sync(file: &dyn Device) -> Result<(), Error> {
    file.sync().map_err(|e| Error::io(&format!("sync '{}'", file.name()), e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::page_store_tests::{new_pages, new_store, opened, read, write_durably};
    use super::*;
    use crate::io::simulated::{ServiceTime, SimulatedDisk};

    #[test]
    fn rewritten_map_finds_each_image_and_keeps_lost_pages_ids() {
        for features in [0, FEATURE_IN_PLACE] {
            let disk = SimulatedDisk::new();
            let store = new_store(&disk, features);
            let [first, second, lost] = new_pages(&store);
            write_durably(&store, &[first, second], 5000);
            let named = |id| store.slot_of(store.state.lock().newest(id)).map(|slot| (slot, Lsn(5000)));
            let images = [first, second, lost].map(|id| (id, named(id))).into();
            rewrite(&disk, store.superblock(), &images, Lsn(6000)).expect("rewritten");
            let store = opened(&disk);
            store.finish_replay(&BTreeSet::new()).expect("nothing to replay");
            assert_eq!([first, second].map(|id| read(&store, id).ok()), [Some(Lsn(5000)); 2]);
            assert!(matches!(read(&store, lost), Err(Error::Corruption(_))));
            assert_eq!(store.used(first.space()), [first, second, lost]);
        }
    }

    /// A rebuild goes on over an unreadable block, and the copy does not claim to know its bytes.
    #[test]
    fn unreadable_bytes_of_an_old_file_are_zeroes_in_its_copy() {
        let created = SimulatedDisk::new();
        let superblock = new_store(&created, 0).superblock();
        let mut image = created.image();
        let map = image.get_mut(MAP_FILE).expect("there");
        map.fill(7);
        let (mut expected, chunk) = (map.clone(), to_usize(CHUNK));
        expected[chunk..2 * chunk].fill(0);
        let disk = SimulatedDisk::with_image(image, ServiceTime::default());
        // The names, the old file, the copy, its length, and the first chunk, read and written.
        disk.fail_at(disk.calls() + 6, ErrorKind::Other);
        rewrite(&disk, superblock, &Images::new(), Lsn(6000)).expect("rewritten");
        assert!(disk.image()[&kept_name(0, MAP_FILE)] == expected);
    }
}
