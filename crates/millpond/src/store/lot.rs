//! A lot: images of pages that are written together.

use crate::base::ids::{Lsn, PageId};

/// Largest number of images in a lot (a batch written together).
pub(crate) const LOT_PAGES: usize = 64;

/// Bound for images of bulk loads and of zones being emptied that wait for their data sync, in total: 1 MiB at 4 KiB.
/// These are durable after a few milliseconds, in which a load writes half as many more.
pub(crate) const LOADED_MAX: usize = 4 * LOT_PAGES;

/// A page's image to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOp {
    pub(crate) id: PageId,
    /// The page LSN of the image.
    pub(crate) lsn: Lsn,
    /// LSN where the oldest change begins that is in this image and in no durable one; counted. From
    /// `PageStore::write` on the store holds the count. `None`: the page is bulk-loaded, so the log does not know it,
    /// or moved unchanged.
    pub(crate) rec_lsn: Option<Lsn>,
}
