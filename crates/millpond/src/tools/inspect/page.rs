//! A page image as text.

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::{PageId, SlotId};
use crate::base::page::layout::{NO_FENCE, header, page_lsn};
use crate::base::page::verify::structure_problem;
use crate::base::page::view::{PageView, entry_len};
use crate::store::image::{SlotContent, content_of, image_problem};
use crate::store::look::DataFile;
use crate::store::map::MapEntry;
use crate::store::superblock::Superblock;
use crate::tools::inspect::Lines;

/// Most bytes of a value that are shown.
const SHOWN: usize = 32;

/// A key or a value, `at_most` bytes of it: printable characters as they are, the others escaped.
pub(crate) fn shown(bytes: &[u8], at_most: usize) -> String {
    let cut = bytes.len().min(at_most);
    let more = if cut < bytes.len() { "..." } else { "" };
    format!("'{}{more}'", bytes[..cut].escape_ascii())
}

pub(super) fn shown_value(bytes: &[u8]) -> String {
    format!("{} ({} bytes)", shown(bytes, SHOWN), bytes.len())
}

pub(super) fn shown_fences(low: &[u8], high: Option<&[u8]>) -> String {
    let high = high.map_or("the end".to_owned(), |high| shown(high, usize::MAX));
    format!("from {} to {high}", shown(low, usize::MAX))
}

/// The contents of `slot`: as the image that the map `named`, or whatever they are.
pub(crate) fn image(
    data: &DataFile,
    superblock: &Superblock,
    slot: SlotId,
    named: Option<(PageId, MapEntry)>,
    out: Lines<'_>,
) -> Result<(), Error> {
    let page_size = u64::from(superblock.page_size);
    let slots = data.slots(page_size)?;
    if slot.0 >= slots {
        let message =
            format!("there is no slot {}: '{}' has slots 0 to {}", slot.0, data.file.name(), slots.max(1) - 1);
        return Err(Error::InvalidOptions(message.into()));
    }
    let image = data.read_slots(slot, 1, page_size)?;
    let verdict = match named {
        Some((id, entry)) => {
            let problem = image_problem(&image, superblock.uuid, id, entry.tag());
            let verdict = problem.unwrap_or("whole: checksum and tag hold".to_owned());
            format!("page {id} in slot {}, tag {:05x}: {verdict}", slot.0, entry.tag())
        }
        None => match content_of(&image, superblock.uuid) {
            SlotContent::Zero => format!("slot {}: all zero, never written", slot.0),
            SlotContent::Image(id) => format!("slot {}: a whole image of page {id}", slot.0),
            SlotContent::Garbage => format!("slot {}: no image: its checksum does not hold", slot.0),
        },
    };
    let zero = image.iter().all(|byte| *byte == 0);
    if out(&verdict) && !zero {
        contents(&image, out);
    }
    Ok(())
}

/// Header, fences, entries; as far as the structure can be trusted.
fn contents(image: &[u8], out: Lines<'_>) {
    let header = header(image);
    let view = PageView::new(image);
    let high_len = header.high_len.get();
    let fields = [
        ("crc", format!("{:08x}", header.crc.get())),
        ("page_type", header.page_type.to_string()),
        ("level", header.level.to_string()),
        ("page_id", PageId(header.page_id.get()).to_string()),
        ("page_lsn", page_lsn(image).to_string()),
        ("format", header.format.get().to_string()),
        ("entry_count", header.entry_count.get().to_string()),
        ("low_len", header.low_len.get().to_string()),
        ("high_len", if high_len == NO_FENCE { "none".to_owned() } else { high_len.to_string() }),
        ("prefix_len", header.prefix_len.get().to_string()),
        ("heap_start", header.heap_start.get().to_string()),
        ("dead_bytes", header.dead_bytes.get().to_string()),
        ("free_bytes", view.free_bytes().to_string()),
    ];
    for (name, value) in fields {
        if !out(&format!("  {name:<14}{value}")) {
            return;
        }
    }
    let problem = structure_problem(image);
    let structure = problem.as_deref().unwrap_or("sound");
    if !out(&format!("  {:<14}{structure}", "structure"))
        || !out(&format!("  {:<14}{}", "covers", shown_fences(view.low_fence(), view.high_fence())))
    {
        return;
    }
    // If a page claims more entries than it has bytes for, the rest is garbage.
    for index in 0..view.len().min(image.len() / entry_len(0, 0)) {
        let value = match view.child(index).filter(|_| !view.is_leaf()) {
            Some(child) => format!("page {child}"),
            None => shown_value(view.value(index)),
        };
        if !out(&format!("  {index:>5}  {} = {value}", shown(&view.key(index), usize::MAX))) {
            return;
        }
    }
    if to_u64(view.len()) > to_u64(image.len() / entry_len(0, 0)) {
        out("  the other entries cannot be there: the count is damaged");
    }
}
