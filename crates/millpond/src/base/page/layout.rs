//! The page header and the layout of a page behind it.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::crc::crc32c;
use crate::base::ids::{Lsn, PageId};

/// The first bytes of every page image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct PageHeader {
    /// CRC-32C of the rest of the page, seeded with the database's uuid and the page id. Stamped before an image is
    /// written.
    pub(crate) crc: U32,
    /// [`TREE_PAGE`], [`MAP_PAGE`], [`FREE_PAGE`], or 0 for a page never formatted.
    pub(crate) page_type: u8,
    /// Height above the leaves.
    pub(crate) level: u8,
    /// Reserved: compressed, encrypted.
    pub(crate) flags: U16,
    /// The page that this is an image of.
    pub(crate) page_id: U64,
    /// End of the last redo group that changed the page. Two different contents of a page never have the same LSN.
    pub(crate) page_lsn: U64,
    pub(crate) spare: U64,
    /// Reserved for encryption.
    pub(crate) key_version: U32,
    /// [`PAGE_FORMAT`].
    pub(crate) format: U16,
    pub(crate) spare2: U16,
    /// Entries in the slot directory.
    pub(crate) entry_count: U16,
    /// Bytes of the low fence.
    pub(crate) low_len: U16,
    /// Bytes of the high fence. [`NO_FENCE`]: the page reaches to the end of the tree.
    pub(crate) high_len: U16,
    /// Bytes of the prefix, which both fences and every key between them begin with. Entries keep the rest of their
    /// keys.
    pub(crate) prefix_len: U16,
    /// Offset of the lowest entry.
    pub(crate) heap_start: U32,
    /// Bytes of removed entries between `heap_start` and the page's end.
    pub(crate) dead_bytes: U32,
    /// Bytes of each suffix that its head skips.
    pub(crate) head_skip: U16,
    pub(crate) spare3: U16,
    pub(crate) spare4: U32,
}

const _: () = assert!(size_of::<PageHeader>() == HEADER_LEN);

/// Whether a page can have this many bytes.
pub(crate) fn is_page_size(bytes: u64) -> bool {
    (4096..=65536).contains(&bytes) && bytes.is_power_of_two()
}

/// Bytes of a [`PageHeader`].
pub(crate) const HEADER_LEN: usize = 64;

/// A page of a tree.
pub(crate) const TREE_PAGE: u8 = 1;

/// A page of the page map.
pub(crate) const MAP_PAGE: u8 = 2;

/// A page that was given back. In memory only: no image has this type.
pub(crate) const FREE_PAGE: u8 = 3;

/// The version of the page format.
pub(crate) const PAGE_FORMAT: u16 = 1;

/// The high fence of the last page of a level.
pub(crate) const NO_FENCE: u16 = u16::MAX;

/// Bytes of a key's head in the slot directory.
pub(crate) const HEAD: usize = 4;

/// Bytes of an entry's offset in the slot directory.
pub(crate) const OFFSET: usize = 2;

/// Bytes of an entry in the slot directory.
pub(super) const DIRECTORY_ENTRY: usize = HEAD + OFFSET;

/// Bytes before an entry's key: the lengths of its suffix and of its value.
pub(crate) const ENTRY_HEADER: usize = 4;

/// The header of a page, to read.
pub(crate) fn header(page: &[u8]) -> &PageHeader {
    PageHeader::ref_from_prefix(page).expect("PAGE: a page is longer than its header").0
}

/// The header of a page, to change.
pub(crate) fn header_mut(page: &mut [u8]) -> &mut PageHeader {
    PageHeader::mut_from_prefix(page).expect("PAGE: a page is longer than its header").0
}

/// The page LSN.
pub(crate) fn page_lsn(page: &[u8]) -> Lsn {
    Lsn(header(page).page_lsn.get())
}

fn checksum(page: &[u8], uuid: [u64; 2], id: PageId) -> u32 {
    crc32c(&[uuid[0], uuid[1], id.0], &[&page[4..]])
}

/// Stamps the checksum into an image that is about to be written to the device.
pub(crate) fn seal(page: &mut [u8], uuid: [u64; 2], id: PageId) {
    let crc = checksum(page, uuid, id);
    header_mut(page).crc = U32::new(crc);
}

/// The damage of an image that was read from the device, or `None`.
pub(crate) fn find_damage(page: &[u8], uuid: [u64; 2], id: PageId, page_type: u8) -> Option<String> {
    let header = header(page);
    if header.crc.get() != checksum(page, uuid, id) {
        return Some(if page.iter().all(|&b| b == 0) {
            "the slot is all zero (a lost write)".to_owned()
        } else {
            "checksum mismatch (torn, flipped or misdirected)".to_owned()
        });
    }
    if header.page_id.get() != id.0 {
        return Some(format!("it holds page {}", PageId(header.page_id.get())));
    }
    if header.format.get() != PAGE_FORMAT || header.page_type != page_type {
        return Some(format!("unknown page type {} of format {}", header.page_type, header.format.get()));
    }
    None
}
