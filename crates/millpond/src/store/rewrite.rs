//! Writing a map anew, for the images that `rebuild` found.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checkpoint::encode;
use super::directory::{self, DIRECTORY_FILES};
use super::map::{MapEntry, PageMap, tag_of};
use super::open::{DATA_FILE, MAP_FILE, len_of, open_file};
use super::page_store::PageStore;
use super::space::PLACES_START;
use super::superblock::{FEATURE_IN_PLACE, SLOTS_START, Superblock};
use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, to_u64};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId};
use crate::io::device::{Device, Files};
use crate::redo::dirty_counts::DirtyCounts;

/// Where a page's newest image is, and its page LSN; `None`: it is lost. Its id stays in use, and reading it fails.
pub(crate) type Images = BTreeMap<PageId, Option<(SlotId, Lsn)>>;

/// Writes map pages that know all map groups up to `lsn`, both directories, and last the superblocks, of the sequences
/// of `superblock` and the one behind it. What was there before is gone from the first write on.
pub(crate) fn rewrite(files: &dyn Files, superblock: Superblock, images: &Images, lsn: Lsn) -> Result<(), Error> {
    let data = open_file(files, DATA_FILE)?;
    let mut map = map_of(&*data, &superblock, images, lsn)?;
    let count = to_u64(map.map_pages_mut().count());
    let map_file = create(files, MAP_FILE, PageStore::map_len(2 * count + 1))?;
    let mut image = aligned(BLOCK);
    for ((id, page), number) in map.map_pages_mut().zip(0..) {
        let place = PLACES_START + number * BLOCK_U64;
        page.lsn = lsn;
        page.place = MapEntry::new(place, BLOCK_U64, tag_of(lsn));
        encode(id, page, superblock.uuid, &mut image);
        map_file.write_at(&image, place).map_err(|e| Error::io(&format!("write '{}'", map_file.name()), e))?;
    }
    sync(&*map_file)?;
    let bytes = directory::encode(&map);
    let superblocks = [superblock.sequence, superblock.sequence + 1].map(|sequence| Superblock {
        sequence,
        directory_bytes: to_u64(bytes.len()),
        directory_crc: directory::directory_crc(superblock.uuid, sequence, &bytes),
        ..superblock
    });
    for superblock in &superblocks {
        let len = directory::file_len(map.space_count(), count).next_multiple_of(16 << 10);
        let file = create(files, DIRECTORY_FILES[superblock.place()], len)?;
        directory::write(&*file, superblock.uuid, superblock.sequence, &bytes)?;
        sync(&*file)?;
    }
    files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))?;
    sync(&*data)?;
    // The newer first: with the older alone the other place would seem to have been the newer.
    for superblock in superblocks.iter().rev() {
        superblock.write(&*data)?;
        sync(&*data)?;
    }
    Ok(())
}

fn map_of(data: &dyn Device, superblock: &Superblock, images: &Images, lsn: Lsn) -> Result<PageMap, Error> {
    let page_size = u64::from(superblock.page_size);
    // Slots of zeroes, for what is lost.
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

fn sync(file: &dyn Device) -> Result<(), Error> {
    file.sync().map_err(|e| Error::io(&format!("sync '{}'", file.name()), e))
}
