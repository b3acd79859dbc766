//! Doublewrite, as in InnoDB: before images overwrite others, copies of them are made durable in a separate file. So a
//! page that a crash tears is whole there. It makes writing in place safe, at the price of writing each page twice and
//! syncing each lot (batch of pages) twice.
//!
//! DBLWR-1  An image overwrites another only while a durable copy of it is in the file.
//! DBLWR-2  A copy is overwritten only when a data sync has covered its image.
//! DBLWR-3  Recovery restores a copy only if its page LSN is beyond the checkpoint. An image that no data sync has
//!          covered keeps the checkpoint before its oldest change. So every page that a crash can have torn is beyond
//!          the checkpoint, and the log leads on from any image beyond it. An older copy may be of an earlier image.
//! DBLWR-4  An image with a copy goes to its page's slot, or nowhere: in another slot it would need its copy until a
//!          map group names it. So if the device fails there, the engine stops, and the next open restores the torn
//!          pages.
//! DBLWR-5  An open makes the last lot's images durable before the first copy is overwritten: the previous process may
//!          have ended at a failed sync, after which the kernel may have dropped them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::open::{len_of, open_file};
use super::page_store::{LOT_PAGES, PageStore, WriteOp};
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::page::layout::{TREE_PAGE, find_damage, page_lsn};
use crate::base::sync::{Rank, Turn, TurnGuard};
use crate::io::device::{Device, Files};

/// The file of copies.
pub(crate) const DOUBLEWRITE_FILE: &str = "doublewrite.mpd";

pub(crate) const MAGIC: [u8; 8] = *b"MPDBLWR1";

/// What a store that writes in place keeps of an image before it overwrites the previous one: see
/// [`Options::doublewrite`](crate::Options::doublewrite).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Doublewrite {
    /// A copy: the next open restores pages that a crash tears.
    #[default]
    On,
    /// Nothing: a page that a crash tears is lost, and its damage is found when the page is read.
    Off,
    /// Its page id and LSN: a page that a crash tears is lost. The next open finds the damage and fails.
    DetectOnly,
}

/// The first block of the file: which pages the copies are of.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Lot {
    pub(crate) magic: [u8; 8],
    pub(crate) uuid: [U64; 2],
    pub(crate) page_size: U32,
    pub(crate) count: U32,
    /// 1: the images follow, from the next block on; 0: no images follow.
    pub(crate) has_images: U32,
    pub(crate) crc: U32,
    pub(crate) of: [Copied; LOT_PAGES],
}

/// A page about to be overwritten, and the LSN of its new image.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Copied {
    pub(crate) page_id: U64,
    pub(crate) lsn: U64,
}

const _: () = assert!(size_of::<Lot>() <= BLOCK);

impl Lot {
    pub(crate) fn checksum(&self) -> u32 {
        let copy = Lot { crc: U32::new(0), ..*self };
        crc32c(&[], &[copy.as_bytes()])
    }

    pub(crate) fn of(uuid: [u64; 2], page_size: u64, has_images: bool, ops: &[WriteOp]) -> Lot {
        assert!(ops.len() <= LOT_PAGES, "DBLWR-1: a lot of {} pages", ops.len());
        let mut of = [Copied::default(); LOT_PAGES];
        for (copied, op) in of.iter_mut().zip(ops) {
            *copied = Copied { page_id: U64::new(op.id.0), lsn: U64::new(op.lsn.0) };
        }
        let small = |value: u64| U32::new(u32::try_from(value).expect("a lot and its pages are small"));
        let mut lot = Lot {
            magic: MAGIC,
            uuid: uuid.map(U64::new),
            page_size: small(page_size),
            count: small(to_u64(ops.len())),
            has_images: U32::new(u32::from(has_images)),
            crc: U32::new(0),
            of,
        };
        lot.crc = U32::new(lot.checksum());
        lot
    }

    /// Decodes a lot's block. `None`: a crash has cut its write short, so no page was overwritten after it.
    pub(crate) fn read(block: &[u8], uuid: [u64; 2], page_size: u64) -> Option<Lot> {
        let (lot, _) = Lot::read_from_prefix(block).ok()?;
        let is_ours =
            lot.magic == MAGIC && lot.uuid.map(U64::get) == uuid && u64::from(lot.page_size.get()) == page_size;
        let is_whole = lot.crc.get() == lot.checksum() && u64::from(lot.count.get()) <= to_u64(LOT_PAGES);
        (is_ours && is_whole).then_some(lot)
    }

    pub(crate) fn copied(&self) -> impl Iterator<Item = (usize, PageId, Lsn)> {
        let count = to_usize(u64::from(self.count.get()));
        self.of
            .iter()
            .take(count)
            .enumerate()
            .map(|(place, copied)| (place, PageId(copied.page_id.get()), Lsn(copied.lsn.get())))
    }
}

/// The file of copies.
pub(crate) struct CopyFile {
    file: Arc<dyn Device>,
    has_images: bool,
    /// Length of the buffer.
    bytes: u64,
    area: Turn<Area>,
    /// Pages copied or noted, and lots of them.
    pub(crate) pages: AtomicU64,
    pub(crate) writes: AtomicU64,
}

/// The copies of one lot. A writer holds this turn until the images are written in place.
pub(super) struct Area {
    /// The write turn of its images: the copies may be overwritten once that turn is synced.
    turn: u64,
    buf: AlignedBuf,
}

/// The turn while images are being written, or after their write has failed: no sync covers them.
const UNDER_WAY: u64 = u64::MAX;

impl Area {
    /// Notes that the images are written, in this write turn.
    pub(super) fn written(&mut self, turn: u64) {
        self.turn = turn;
    }
}

impl CopyFile {
    /// Memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.bytes
    }

    /// Opens the file, or creates it.
    pub(crate) fn open(files: &dyn Files, page_size: usize, has_images: bool) -> Result<CopyFile, Error> {
        let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
        let file = if names.iter().any(|name| name == DOUBLEWRITE_FILE) {
            open_file(files, DOUBLEWRITE_FILE)?
        } else {
            let doing = |what: &str| format!("{what} '{DOUBLEWRITE_FILE}' in '{}'", files.place());
            let file = files.create(DOUBLEWRITE_FILE).map_err(|e| Error::io(&doing("create"), e))?;
            files.sync_names().map_err(|e| Error::io(&doing("name"), e))?;
            file
        };
        let buf = aligned(BLOCK + if has_images { LOT_PAGES * page_size } else { 0 });
        let len = to_u64(buf.len());
        if len_of(&*file)? < len {
            file.grow(len).map_err(|e| Error::io(&format!("grow '{DOUBLEWRITE_FILE}' to {len} bytes"), e))?;
        }
        let area = Turn::new(Rank::Doublewrite, Area { turn: 0, buf });
        Ok(CopyFile { file, has_images, bytes: len, area, pages: AtomicU64::new(0), writes: AtomicU64::new(0) })
    }
}

/// The file of copies, its length, and the lot in it.
type CopiedLot = (Arc<dyn Device>, u64, Lot);

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
        let mut area = copies.area.lock();
        if area.turn == UNDER_WAY {
            // DBLWR-2: the previous writer's write has failed. Pages that it overwrote may be torn, and only the copies
            // are whole.
            let message = format!("an earlier write to '{}' failed: reopen the database", self.data.name());
            return Err(Error::ReadOnly(message.into()));
        }
        if area.turn > self.synced.load(Ordering::Relaxed) && !planted!("copies_overwritten_early") {
            // DBLWR-2
            self.sync()?;
        }
        area.turn = UNDER_WAY;
        let lot = Lot::of(self.uuid, self.page_size, copies.has_images, &over);
        area.buf[..size_of::<Lot>()].copy_from_slice(lot.as_bytes());
        let mut len = BLOCK;
        if copies.has_images {
            for (image, to) in from.iter().zip(area.buf[BLOCK..].chunks_mut(size)) {
                to.copy_from_slice(image);
            }
            len += over.len() * size;
        }
        let doing = |what: &str| format!("{what} '{}'", copies.file.name());
        copies.file.write_at(&area.buf[..len], 0).map_err(|e| Error::device(&doing("write"), e))?;
        if !planted!("copies_not_synced") {
            copies.file.sync().map_err(|e| Error::device(&doing("sync"), e))?;
        }
        copies.pages.fetch_add(to_u64(over.len()), Ordering::Relaxed);
        copies.writes.fetch_add(1, Ordering::Relaxed);
        Ok(Some(area))
    }

    /// The lot in the file of copies, and the file with its length; `None`: there is no lot.
    fn copied_lot(&self, files: &dyn Files) -> Result<Option<CopiedLot>, Error> {
        let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
        if !names.iter().any(|name| name == DOUBLEWRITE_FILE) {
            return Ok(None);
        }
        let file = open_file(files, DOUBLEWRITE_FILE)?;
        let len = len_of(&*file)?;
        if len < BLOCK_U64 {
            return Ok(None);
        }
        let mut block = aligned(BLOCK);
        let reading = |e| Error::io(&format!("read '{DOUBLEWRITE_FILE}' in '{}'", files.place()), e);
        file.read_at(&mut block, 0).map_err(reading)?;
        Ok(Lot::read(&block, self.uuid, self.page_size).map(|lot| (file, len, lot)))
    }

    /// The pages of the last lot, whose writes a crash may have torn.
    pub(crate) fn copied(&self, files: &dyn Files) -> Result<BTreeSet<PageId>, Error> {
        let found = self.copied_lot(files)?;
        Ok(found.map_or_else(BTreeSet::new, |(_, _, lot)| lot.copied().map(|(_, id, _)| id).collect()))
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
        let Some((file, len, lot)) = self.copied_lot(files)? else { return Ok(0) };
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
                    "page {id} in '{}': at offset {offset}, {damage}; a crash tore it while it was written, and there is no copy of it: `millpond rebuild` goes on without the page, or restore the database from a backup",
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
    use super::super::open::DATA_FILE;
    use super::super::page_store_tests::{new_pages, new_store, read, write, write_durably};
    use super::super::superblock::FEATURE_IN_PLACE;
    use super::*;
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
