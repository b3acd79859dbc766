//! A store that writes in place keeps copies of images, and restores the pages that a crash tore
//! ([`doublewrite`](super::doublewrite) has the file and its rules).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::doublewrite::{Area, CopyFile, DOUBLEWRITE_FILE, FoundCopies};
use super::lot::WriteOp;
use super::page_store::PageStore;
use crate::base::aligned::{BLOCK_U64, aligned, to_u64};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::layout::{TREE_PAGE, find_damage, page_lsn};
use crate::base::sync::TurnGuard;
use crate::io::device::Files;

impl PageStore {
    /// Keeps copies in `file` from now on, before images overwrite others.
    pub(crate) fn keep_copies_in(&mut self, file: CopyFile) {
        self.copies = Some(file);
    }

    /// The file of copies, if copies are kept.
    pub(crate) fn copies(&self) -> Option<&CopyFile> {
        self.copies.as_ref()
    }

    /// Makes notes, or copies, of those images durable that are about to overwrite others. The caller holds the
    /// returned turn until they are written (DBLWR-1). `None`: no image overwrites another, or nothing is kept.
    pub(super) fn keep_copies<'s>(
        &'s self,
        ops: &[WriteOp],
        overwrites: impl Fn(usize) -> bool,
        images: &[u8],
    ) -> Result<Option<TurnGuard<'s, Area>>, Error> {
        let Some(copies) = &self.copies else { return Ok(None) };
        let size = self.page_size();
        let (over, from): (Vec<WriteOp>, Vec<&[u8]>) =
            ops.iter().zip(images.chunks(size)).enumerate().filter(|(at, _)| overwrites(*at)).map(|(_, of)| of).unzip();
        if over.is_empty() {
            return Ok(None);
        }
        let mut area = copies.lock();
        if area.has_failed() {
            // DBLWR-2: pages that the previous writer overwrote may be torn.
            let message = format!("an earlier write to '{}' failed: reopen the database", self.data.name());
            return Err(Error::ReadOnly(message.into()));
        }
        if area.turn() > self.synced.load(Ordering::Relaxed) && !planted!("copies_overwritten_early") {
            // DBLWR-2
            self.sync()?;
        }
        copies.keep(&mut area, (self.uuid, size), &over, &from)?;
        Ok(Some(area))
    }

    /// The pages of the last lot, whose writes a crash may have torn.
    pub(crate) fn copied(&self, files: &dyn Files) -> Result<BTreeSet<PageId>, Error> {
        let found = FoundCopies::read(files, self.uuid, self.page_size)?;
        Ok(found.map_or_else(BTreeSet::new, |found| found.lot.copied().map(|(_, id, _)| id).collect()))
    }

    /// Restores torn pages of the last lot from their copies, and writes its other images again. All are durable on
    /// return, since later writes may overwrite the copies. `is_redone` tells whether the log from `checkpoint` on
    /// changes a page, and needs its image for that. Returns the number of restored pages.
    pub(crate) fn put_back_torn(
        &self,
        files: &dyn Files,
        checkpoint: Lsn,
        is_redone: impl Fn(PageId) -> bool,
    ) -> Result<u64, Error> {
        let found = FoundCopies::read(files, self.uuid, self.page_size)?;
        let Some(FoundCopies { file, len, lot }) = found else { return Ok(0) };
        let reading = |e| Error::io(&format!("read '{DOUBLEWRITE_FILE}' in '{}'", files.place()), e);
        let (mut copy, mut image) = (aligned(self.page_size()), aligned(self.page_size()));
        let (mut put_back, mut written) = (0, false);
        for (place, id, lsn) in lot.copied() {
            // DBLWR-3
            let may_be_torn = lsn > checkpoint && is_redone(id);
            let Some(slot) = self.slot_of(self.state.lock().newest(id)).filter(|_| may_be_torn) else { continue };
            let offset = self.offset(slot);
            let doing = |what: &str| format!("{what} page {id} at {offset} of '{}'", self.data.name());
            self.data.read_at(&mut image, offset).map_err(|e| Error::io(&doing("read"), e))?;
            let Some(damage) = find_damage(&image, self.uuid, id, TREE_PAGE) else {
                // DBLWR-5
                self.data.write_at(&image, offset).map_err(|e| Error::device(&doing("write"), e))?;
                written = true;
                continue;
            };
            let at = BLOCK_U64 + to_u64(place) * self.page_size;
            let has_copy = lot.has_images.get() == 1 && at + self.page_size <= len;
            if has_copy {
                file.read_at(&mut copy, at).map_err(reading)?;
            }
            if !has_copy || page_lsn(&copy) != lsn || find_damage(&copy, self.uuid, id, TREE_PAGE).is_some() {
                let message = format!(
                    "page {id} in '{}': at offset {offset}, {damage}; a crash tore it while it was written, and there is no copy of it: `millpond rebuild` goes on without the page, or restore a backup (`millpond restore`)",
                    self.data.name()
                );
                return Err(Error::Corruption(message.into()));
            }
            self.data.write_at(&copy, offset).map_err(|e| Error::device(&doing("write"), e))?;
            (put_back, written) = (put_back + 1, true);
        }
        if written && !planted!("put_back_not_synced") {
            self.data.sync().map_err(|e| Error::device(&format!("sync '{}'", self.data.name()), e))?;
        }
        Ok(put_back)
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::DATA_FILE;
    use super::super::page_store_tests::{new_pages, new_store, read, write, write_durably};
    use super::super::superblock::FEATURE_IN_PLACE;
    use super::*;
    use crate::base::aligned::BLOCK;
    use crate::io::simulated::{ServiceTime, SimulatedDisk};

    /// A store with a page that is torn while its image of LSN 6000 overwrites another; the copy is durable.
    fn torn(disk: &SimulatedDisk) -> (PageStore, PageId) {
        let mut store = new_store(disk, FEATURE_IN_PLACE);
        store.keep_copies_in(CopyFile::open(disk, 4096, true).expect("made"));
        let [id] = new_pages(&store);
        write_durably(&store, &[id], 5000);
        write(&store, &[id], 6000).expect("written");
        let offset = store.state.lock().newest(id).offset();
        assert!(disk.flip_bit(DATA_FILE, offset + 100, 3) && read(&store, id).is_err());
        (store, id)
    }

    /// DBLWR-3: the log must lead on from the copy, so it must be of a page to redo, and beyond the checkpoint.
    #[test]
    fn torn_page_is_put_back_if_the_log_leads_on_from_its_copy() {
        let disk = SimulatedDisk::new();
        let (store, id) = torn(&disk);
        assert_eq!(store.copied(&disk).expect("read"), BTreeSet::from([id]));
        let put_back = |checkpoint, is_redone| {
            let count = store.put_back_torn(&disk, Lsn(checkpoint), |_| is_redone).expect("put back");
            (count, read(&store, id).ok())
        };
        assert_eq!(put_back(5999, false), (0, None));
        assert_eq!(put_back(6000, true), (0, None));
        assert_eq!(put_back(5999, true), (1, Some(Lsn(6000))));
    }

    /// A file of copies that is cut short is like one without the copy: the error says what helps.
    #[test]
    fn torn_page_whose_copy_is_cut_off_is_reported_as_damage() {
        let disk = SimulatedDisk::new();
        let (store, _) = torn(&disk);
        let mut image = disk.image();
        image.get_mut(DOUBLEWRITE_FILE).expect("there").truncate(BLOCK);
        let cut = SimulatedDisk::with_image(image, ServiceTime::default());
        let refused = store.put_back_torn(&cut, Lsn(5999), |_| true);
        assert!(matches!(&refused, Err(Error::Corruption(what)) if what.contains("no copy of it")), "{refused:?}");
    }
}
