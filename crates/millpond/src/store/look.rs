//! Reads a store's files without opening the store: for dumps and for `rebuild`. Nothing is written.

use std::cmp::Reverse;
use std::sync::Arc;

use super::directory;
use super::files::{DATA_FILE, DIRECTORY_FILES, MAP_FILE, len_of, open_file};
use super::map::PageMap;
use super::open::{check_not_overwritten, is_beside_map, read_map_pages};
use super::superblock::{Found, SLOTS_START, Superblock};
use crate::base::aligned::{AlignedBuf, aligned, to_usize};
use crate::base::error::Error;
use crate::base::ids::SlotId;
use crate::io::device::{Device, Files};
use crate::redo::dirty_counts::DirtyCounts;

/// The data file, for reading.
pub(crate) struct DataFile {
    pub(crate) file: Arc<dyn Device>,
    /// The contents of the superblocks' places.
    pub(crate) found: [Found; 2],
    beside_map: bool,
}

impl DataFile {
    pub(crate) fn open(files: &dyn Files) -> Result<DataFile, Error> {
        let file = open_file(files, DATA_FILE)?;
        let found = Superblock::read_both(&*file)?;
        Ok(DataFile { file, found, beside_map: is_beside_map(files)? })
    }

    /// The valid superblock with the higher sequence.
    pub(crate) fn superblock(&self) -> Result<Superblock, Error> {
        check_not_overwritten(self.found, self.beside_map)?;
        Superblock::choose(self.found, self.file.name())
    }

    /// Number of whole slots of `page_size` in the file.
    pub(crate) fn slots(&self, page_size: u64) -> Result<u64, Error> {
        Ok(len_of(&*self.file)?.saturating_sub(SLOTS_START) / page_size)
    }

    /// Reads `count` slots.
    pub(crate) fn read_slots(&self, first: SlotId, count: u64, page_size: u64) -> Result<AlignedBuf, Error> {
        let offset = SLOTS_START + first.0 * page_size;
        let mut buf = aligned(to_usize(count * page_size));
        self.file
            .read_at(&mut buf, offset)
            .map_err(|e| Error::io(&format!("read {count} slots at {offset} of '{}'", self.file.name()), e))?;
        Ok(buf)
    }
}

/// The map that a superblock names. Unreadable map pages are empty in it, and listed in `problems`.
pub(crate) fn read_map(
    files: &dyn Files,
    superblock: &Superblock,
    problems: &mut Vec<String>,
) -> Result<PageMap, Error> {
    let mut map = PageMap::new(Arc::new(DirtyCounts::default()));
    let file = open_file(files, DIRECTORY_FILES[superblock.place()])?;
    if directory::decode(&directory::read(&*file, superblock)?, &mut map).is_none() {
        problems.push("the map directory ends too soon".to_owned());
    }
    read_map_pages(&open_file(files, MAP_FILE)?, superblock.uuid, &mut map, &mut |error| {
        problems.push(error.to_string());
        Ok(())
    })?;
    Ok(map)
}

/// The copy in front of directory `place`: of the superblock in that place, or of the next one.
pub(crate) fn copy_of(files: &dyn Files, place: usize) -> Option<Superblock> {
    directory::superblock_in(&*files.open(DIRECTORY_FILES[place]).ok()?).ok()?
}

/// All whole superblocks of the database, and whole copies in front of directories, newest first.
pub(crate) fn superblocks(files: &dyn Files, data: &DataFile, uuid: [u64; 2]) -> Vec<Superblock> {
    let named = data.found.iter().filter_map(|found| match found {
        Found::Valid(superblock) => Some(*superblock),
        _ => None,
    });
    let copies = [0, 1].into_iter().filter_map(|place| copy_of(files, place));
    let mut all: Vec<Superblock> = named.chain(copies).filter(|superblock| superblock.uuid == uuid).collect();
    all.sort_unstable_by_key(|superblock| Reverse(superblock.sequence));
    all.dedup_by_key(|superblock| superblock.sequence);
    all
}

#[cfg(test)]
mod tests {
    use super::super::page_store_tests::new_store;
    use super::super::superblock::OFFSETS;
    use super::*;
    use crate::io::simulated::{ServiceTime, SimulatedDisk};

    /// A directory copied from another database must not lend its superblock to a rebuild of this one.
    #[test]
    fn superblocks_of_one_database_are_found_newest_first() {
        let disk = SimulatedDisk::new();
        let uuid = new_store(&disk, 0).superblock().uuid;
        let sequences = |disk: &SimulatedDisk, uuid| {
            let found = superblocks(disk, &DataFile::open(disk).expect("opened"), uuid);
            found.iter().map(|superblock| superblock.sequence).collect::<Vec<_>>()
        };
        assert_eq!(sequences(&disk, uuid), [1, 0]);
        assert_eq!(sequences(&disk, [8, 9]), [0; 0], "another database has none here");
        let mut image = disk.image();
        for offset in OFFSETS.map(to_usize) {
            image.get_mut(DATA_FILE).expect("there")[offset..offset + 512].fill(0);
        }
        let overwritten = SimulatedDisk::with_image(image, ServiceTime::default());
        assert_eq!(sequences(&overwritten, uuid), [1, 0], "the copies in front of the directories");
    }
}
