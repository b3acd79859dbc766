//! An image in a slot: what it is of, and whether the map names it.

use super::map::{MapEntry, tag_of};
use super::superblock::SLOTS_START;
use crate::base::ids::{Lsn, PageId, SlotId};
use crate::base::page::layout::{TREE_PAGE, find_damage, header, page_lsn};

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotContent {
    /// Never written.
    Zero,
    /// A whole image of the page that it names.
    Image(PageId),
    /// Anything else.
    Garbage,
}

/// Classifies a slot's bytes.
pub(crate) fn content_of(image: &[u8], uuid: [u64; 2]) -> SlotContent {
    let id = PageId(header(image).page_id.get());
    if find_damage(image, uuid, id, TREE_PAGE).is_none() {
        return SlotContent::Image(id);
    }
    if image.iter().all(|byte| *byte == 0) { SlotContent::Zero } else { SlotContent::Garbage }
}

/// The problem of an image that the map names; `None`: it is the page's newest durable image.
pub(crate) fn image_problem(image: &[u8], uuid: [u64; 2], id: PageId, tag: u64) -> Option<String> {
    match find_damage(image, uuid, id, TREE_PAGE) {
        None if tag == tag_in(image, tag) => None,
        None => Some("the image is an older one (a lost write)".to_owned()),
        Some(what) => Some(what),
    }
}

/// Whether the map's entry names the image of page LSN `lsn` in `slot`. A failed write may have left the same image in
/// another slot, too: the tag decides, and the slot only where there is no tag.
pub(crate) fn names(entry: MapEntry, slot: SlotId, lsn: Lsn, page_size: u64) -> bool {
    match entry.tag() {
        0 => slot_of(entry, page_size) == Some(slot),
        tag => tag == tag_of(lsn),
    }
}

/// The tag of an image in the map: 0 for pages written in place.
fn tag_in(image: &[u8], expected: u64) -> u64 {
    if expected == 0 { 0 } else { tag_of(page_lsn(image)) }
}

/// The slot that an entry names.
pub(crate) fn slot_of(entry: MapEntry, page_size: u64) -> Option<SlotId> {
    entry.slot(SLOTS_START, page_size)
}
