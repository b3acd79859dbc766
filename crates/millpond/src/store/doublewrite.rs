//! Doublewrite: before images overwrite others, copies of them are made durable in a file of their own, so that a
//! page that a crash tears is whole there. InnoDB's, and what makes a store that writes in place safe: each page is
//! written twice, each lot synced twice.
//!
//! DBLWR-1  An image overwrites another only while a durable copy of it is in the file.
//! DBLWR-2  A copy is written over only when a data sync has covered the image that it is of.
//! DBLWR-3  A copy is put back only if its page LSN is beyond the checkpoint. An image that a data sync has not covered
//!          holds the checkpoint back behind its oldest change, so what a crash can have torn is beyond it; and from
//!          any image beyond it the log leads on. An older copy may be of an image before the last.
//! DBLWR-4  An image with a copy goes where its page was, or nowhere: elsewhere it would need its copy until a map
//!          group names it. So a device that fails there stops the engine, and the next open puts back what was torn.
//! DBLWR-5  An open has the last lot's images durable before the first copy is written over: the process before may
//!          have ended at a sync that failed, and the kernel have given them up.

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

/// What a store that writes in place keeps of an image before it overwrites the one before: see
/// [`Options::doublewrite`](crate::Options::doublewrite).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Doublewrite {
    /// A copy: what a crash tears is put back at the next open.
    #[default]
    On,
    /// Nothing: what a crash tears is lost, and is found when it is read.
    Off,
    /// Its page id and LSN: what a crash tears is lost, and is found at the next open, which is refused.
    DetectOnly,
}

/// The first block of the file: whose copies they are.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Lot {
    pub(crate) magic: [u8; 8],
    pub(crate) uuid: [U64; 2],
    pub(crate) page_size: U32,
    pub(crate) count: U32,
    /// 1: the images follow, from the next block on; 0: they do not.
    pub(crate) has_images: U32,
    pub(crate) crc: U32,
    pub(crate) of: [Copied; LOT_PAGES],
}

/// A page that was about to be written over, and the LSN of its new image.
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

    /// The lot that a block tells of. `None`: a crash has cut its write short, so nothing was overwritten behind it.
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

/// Where copies go.
pub(crate) struct CopyFile {
    file: Arc<dyn Device>,
    has_images: bool,
    /// Of the buffer.
    bytes: u64,
    area: Turn<Area>,
    /// Pages that were copied, or noted, and lots of them.
    pub(crate) pages: AtomicU64,
    pub(crate) writes: AtomicU64,
}

/// The copies of one lot. Its turn is held until the images are written.
pub(super) struct Area {
    /// Which turn of writing its images were of: they may be overwritten when that is synced.
    turn: u64,
    buf: AlignedBuf,
}

/// The turn of images that are being written, or whose write has failed: no sync covers them.
const UNDER_WAY: u64 = u64::MAX;

impl Area {
    /// The images are written, in this turn.
    pub(super) fn written(&mut self, turn: u64) {
        self.turn = turn;
    }
}

impl CopyFile {
    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        self.bytes
    }

    /// Opens the file, or makes it.
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

/// The file of copies, its length, and the lot that it says it has.
type CopiedLot = (Arc<dyn Device>, u64, Lot);

impl PageStore {
    /// From now on copies are kept of images before they overwrite others.
    pub(crate) fn keep_copies_in(&mut self, file: CopyFile) {
        self.copies = Some(file);
    }

    /// Where copies go.
    pub(crate) fn copies(&self) -> Option<&CopyFile> {
        self.copies.as_ref()
    }

    /// Makes durable what tells of the images that are about to overwrite others, and copies of them. The turn is held
    /// until they have (DBLWR-1). `None`: none does, or nothing is kept.
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
            // DBLWR-2: whose turn it was has left it so. What he wrote over may be torn; the copies are all there is.
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

    /// The lot of copies in the file, and the file with its length; `None`: there is none.
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

    /// Puts back what a crash has torn, as far as there are copies, and writes the others of the lot again; durable on
    /// return: what comes next may overwrite the copies. `is_redone` says whether the log
    /// from `checkpoint` on changes a page, and needs its image for that. Returns how many pages were put back.
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
