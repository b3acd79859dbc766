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

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::files::{len_of, open_file};
use super::lot::{LOT_PAGES, WriteOp};
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId};
use crate::base::sync::{Rank, Turn, TurnGuard};
use crate::io::device::{Device, Files};

/// The file of copies.
pub(crate) const DOUBLEWRITE_FILE: &str = "doublewrite.mpd";

pub(crate) const MAGIC: [u8; 8] = *b"MPDBLWR1";

/// What a store that writes in place keeps of an image before it overwrites the previous one: see
/// [`ClassicOptions::doublewrite`](crate::classic::ClassicOptions::doublewrite).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
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
    /// Whether the write of the images has failed: pages may be torn, and only the copies are whole.
    pub(super) fn has_failed(&self) -> bool {
        self.turn == UNDER_WAY
    }

    /// The write turn of the images.
    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

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

    /// Waits for the turn to write copies.
    pub(super) fn lock(&self) -> TurnGuard<'_, Area> {
        self.area.lock()
    }

    /// Makes a note of each page durable, with a copy of its image if the file has images. The caller has the turn, and
    /// a data sync covers the images of the lot before (DBLWR-2).
    pub(super) fn keep(
        &self,
        area: &mut Area,
        (uuid, page_size): ([u64; 2], usize),
        ops: &[WriteOp],
        images: &[&[u8]],
    ) -> Result<(), Error> {
        area.turn = UNDER_WAY;
        let lot = Lot::of(uuid, to_u64(page_size), self.has_images, ops);
        area.buf[..size_of::<Lot>()].copy_from_slice(lot.as_bytes());
        let mut len = BLOCK;
        if self.has_images {
            for (image, to) in images.iter().zip(area.buf[BLOCK..].chunks_mut(page_size)) {
                to.copy_from_slice(image);
            }
            len += ops.len() * page_size;
        }
        let doing = |what: &str| format!("{what} '{}'", self.file.name());
        self.file.write_at(&area.buf[..len], 0).map_err(|e| Error::device(&doing("write"), e))?;
        if !planted!("copies_not_synced") {
            self.file.sync().map_err(|e| Error::device(&doing("sync"), e))?;
        }
        self.pages.fetch_add(to_u64(ops.len()), Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The file of copies as an open finds it.
pub(super) struct FoundCopies {
    pub(super) file: Arc<dyn Device>,
    /// Bytes of the file.
    pub(super) len: u64,
    pub(super) lot: Lot,
}

impl FoundCopies {
    /// Reads the lot in the file of copies; `None`: there is no lot.
    pub(super) fn read(files: &dyn Files, uuid: [u64; 2], page_size: u64) -> Result<Option<FoundCopies>, Error> {
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
        Ok(Lot::read(&block, uuid, page_size).map(|lot| FoundCopies { file, len, lot }))
    }
}
