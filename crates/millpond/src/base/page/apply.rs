//! `apply(page, operation)`: the only code that changes a page's contents.

use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

use super::layout::{
    DIRECTORY_ENTRY, ENTRY_HEADER, FREE_PAGE, HEAD, HEADER_LEN, NO_FENCE, OFFSET, PAGE_FORMAT, PageHeader, TREE_PAGE,
    header_mut,
};
use super::op::PageOp;
use super::view::{PageView, entry_len, prefix_len};
use crate::base::ids::{PageId, TxnId};
use crate::base::row::{Compacted, Row};

/// Why an operation does not fit a page. Callers check before they build an operation, so only recovery, on damage,
/// sees one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    NoRoom,
    KeyThere,
    KeyMissing,
    KeyOutside,
    NotATreePage,
    NotALeaf,
    BadCount,
    BadFence,
    BadPatch,
}

/// Applies `op` to the bytes of page `id`. On `Err` the page is as it was.
pub(crate) fn apply(page: &mut [u8], id: PageId, op: &PageOp<'_>) -> Result<(), Misfit> {
    if let PageOp::Init { level, low, high, entries } = op {
        return init(page, id, *level, low, *high, entries);
    }
    if PageView::new(page).header().page_type != TREE_PAGE {
        return Err(Misfit::NotATreePage);
    }
    match op {
        PageOp::Init { .. } => Ok(()),
        PageOp::Free => {
            free(page, id);
            Ok(())
        }
        PageOp::Insert { key, value } => {
            let view = PageView::new(page);
            match view.search(key) {
                Ok(_) => Err(Misfit::KeyThere),
                Err(_) if !view.covers(key) => Err(Misfit::KeyOutside),
                Err(index) => insert(page, index, view.strip(key).ok_or(Misfit::KeyOutside)?, value),
            }
        }
        PageOp::Replace { key, value } => match PageView::new(page).search(key) {
            Ok(index) => replace(page, index, key, value),
            Err(_) => Err(Misfit::KeyMissing),
        },
        PageOp::Patch { key, patch } => match PageView::new(page).search(key) {
            Ok(index) => {
                if patch.apply_in_place(value_mut(page, index)) {
                    return Ok(());
                }
                let new = patch.apply(PageView::new(page).value(index)).ok_or(Misfit::BadPatch)?;
                replace(page, index, key, &new)
            }
            Err(_) => Err(Misfit::KeyMissing),
        },
        PageOp::Remove { key } => match PageView::new(page).search(key) {
            Ok(index) => {
                remove(page, index);
                Ok(())
            }
            Err(_) => Err(Misfit::KeyMissing),
        },
        PageOp::Truncate { keep, high } => truncate(page, id, usize::from(*keep), high),
        PageOp::Compact { oldest } => compact_rows(page, id, *oldest),
    }
}

fn narrow(value: usize) -> u16 {
    u16::try_from(value).expect("PAGE-3: offsets and lengths inside of a page are below 64 KiB")
}

/// Formats the page. The keys of `entries` lack the prefix that the fences imply.
fn init(
    page: &mut [u8],
    id: PageId,
    level: u8,
    low: &[u8],
    high: Option<&[u8]>,
    entries: &[(&[u8], &[u8])],
) -> Result<(), Misfit> {
    if high.is_some_and(|high| high <= low) {
        return Err(Misfit::BadFence);
    }
    let directory = HEADER_LEN + low.len() + high.map_or(0, <[u8]>::len);
    let needed = directory + entries.iter().map(|(k, v)| entry_len(k.len(), v.len())).sum::<usize>();
    if needed > page.len() {
        return Err(Misfit::NoRoom);
    }
    // The page LSN stays: the writer stamps the page when its redo group has a place in the log.
    let page_lsn = header_mut(page).page_lsn;
    // All bytes before and behind the gap are written below.
    let gap = directory + entries.len() * DIRECTORY_ENTRY;
    let heap_len = needed - gap;
    let heap_start = page.len() - heap_len;
    page[gap..heap_start].fill(0);
    page[HEADER_LEN..HEADER_LEN + low.len()].copy_from_slice(low);
    if let Some(high) = high {
        page[HEADER_LEN + low.len()..directory].copy_from_slice(high);
    }
    let mut heap = page.len();
    let offsets = directory + entries.len() * HEAD;
    for (index, (suffix, value)) in entries.iter().enumerate() {
        heap -= ENTRY_HEADER + suffix.len() + value.len();
        write_entry(page, heap, suffix, value);
        write_offset(page, offsets + index * OFFSET, heap);
    }
    let heap_start = u32::try_from(heap_start).expect("PAGE-3: a page is at most 64 KiB");
    let mut header = PageHeader::new_zeroed();
    header.page_type = TREE_PAGE;
    header.level = level;
    header.page_id = U64::new(id.0);
    header.page_lsn = page_lsn;
    header.format = U16::new(PAGE_FORMAT);
    header.entry_count = U16::new(narrow(entries.len()));
    header.low_len = U16::new(narrow(low.len()));
    header.high_len = U16::new(high.map_or(NO_FENCE, |h| narrow(h.len())));
    header.prefix_len = U16::new(narrow(prefix_len(low, high)));
    header.heap_start = U32::new(heap_start);
    *header_mut(page) = header;
    write_heads(page);
    Ok(())
}

/// Formats a page of type [`FREE_PAGE`]: both fences are empty, so no key lies between them.
fn free(page: &mut [u8], id: PageId) {
    let page_lsn = header_mut(page).page_lsn;
    page.fill(0);
    let heap_start = u32::try_from(page.len()).expect("PAGE-3: a page is at most 64 KiB");
    let mut header = PageHeader::new_zeroed();
    header.page_type = FREE_PAGE;
    header.page_id = U64::new(id.0);
    header.page_lsn = page_lsn;
    header.format = U16::new(PAGE_FORMAT);
    header.heap_start = U32::new(heap_start);
    *header_mut(page) = header;
}

fn write_entry(page: &mut [u8], at: usize, suffix: &[u8], value: &[u8]) {
    page[at..at + 2].copy_from_slice(&narrow(suffix.len()).to_le_bytes());
    page[at + 2..at + 4].copy_from_slice(&narrow(value.len()).to_le_bytes());
    let start = at + ENTRY_HEADER;
    page[start..start + suffix.len()].copy_from_slice(suffix);
    page[start + suffix.len()..start + suffix.len() + value.len()].copy_from_slice(value);
}

/// Writes all heads.
fn write_heads(page: &mut [u8]) {
    let skip = PageView::new(page).wanted_skip();
    header_mut(page).head_skip = U16::new(narrow(skip));
    for index in 0..PageView::new(page).len() {
        write_head(page, index);
    }
}

fn write_head(page: &mut [u8], index: usize) {
    let view = PageView::new(page);
    let (at, head) = (view.directory() + index * HEAD, view.wanted_head(index));
    page[at..at + HEAD].copy_from_slice(&head.to_le_bytes());
}

/// Rewrites all heads if inserting or removing entry `index` changed the wanted skip, which the second and the last
/// entry determine.
fn mend_heads(page: &mut [u8], index: usize) {
    let view = PageView::new(page);
    let decides = index <= 1 || index + 1 >= view.len();
    if decides && view.wanted_skip() != view.head_skip() {
        write_heads(page);
    }
}

fn write_offset(page: &mut [u8], at: usize, offset: usize) {
    page[at..at + OFFSET].copy_from_slice(&narrow(offset).to_le_bytes());
}

fn insert(page: &mut [u8], index: usize, suffix: &[u8], value: &[u8]) -> Result<(), Misfit> {
    let view = PageView::new(page);
    if view.free_bytes() < entry_len(suffix.len(), value.len()) {
        return Err(Misfit::NoRoom);
    }
    let (count, heads) = (view.len(), view.directory());
    let (offsets, end) = (heads + count * HEAD, heads + count * DIRECTORY_ENTRY);
    let bytes = ENTRY_HEADER + suffix.len() + value.len();
    if heap_start(page) < end + DIRECTORY_ENTRY + bytes {
        compact(page);
    }
    let heap = heap_start(page) - bytes;
    write_entry(page, heap, suffix, value);
    // Offsets behind the new one move up by a head and an offset; heads behind the new one and offsets before it, by a
    // head.
    let (head, offset) = (heads + index * HEAD, offsets + index * OFFSET);
    page.copy_within(offset..end, offset + DIRECTORY_ENTRY);
    page.copy_within(head..offset, head + HEAD);
    write_offset(page, offset + HEAD, heap);
    set_heap_start(page, heap);
    header_mut(page).entry_count = U16::new(narrow(count + 1));
    write_head(page, index);
    mend_heads(page, index);
    Ok(())
}

/// The value of entry `index`, to overwrite.
fn value_mut(page: &mut [u8], index: usize) -> &mut [u8] {
    let value = PageView::new(page).value(index);
    let (start, len) = (value.as_ptr().addr() - page.as_ptr().addr(), value.len());
    if len == 0 { &mut [] } else { &mut page[start..start + len] }
}

fn replace(page: &mut [u8], index: usize, key: &[u8], value: &[u8]) -> Result<(), Misfit> {
    let view = PageView::new(page);
    let old = view.value(index);
    if old.len() == value.len() {
        value_mut(page, index).copy_from_slice(value);
        return Ok(());
    }
    if view.free_bytes() + old.len() < value.len() {
        return Err(Misfit::NoRoom);
    }
    let suffix = view.strip(key).ok_or(Misfit::KeyOutside)?;
    remove(page, index);
    insert(page, index, suffix, value)
}

fn remove(page: &mut [u8], index: usize) {
    let view = PageView::new(page);
    let (count, heads) = (view.len(), view.directory());
    let freed = view.entry_len(index) - DIRECTORY_ENTRY;
    let (offsets, end) = (heads + count * HEAD, heads + count * DIRECTORY_ENTRY);
    let (head, offset) = (heads + index * HEAD, offsets + index * OFFSET);
    page.copy_within(head + HEAD..offset, head);
    page.copy_within(offset + OFFSET..end, offset - HEAD);
    let header = header_mut(page);
    header.entry_count = U16::new(narrow(count - 1));
    header.dead_bytes = U32::new(header.dead_bytes.get() + u32::from(narrow(freed)));
    mend_heads(page, index);
}

fn truncate(page: &mut [u8], id: PageId, keep: usize, high: &[u8]) -> Result<(), Misfit> {
    let old = page.to_vec();
    let view = PageView::new(&old);
    if keep > view.len() {
        return Err(Misfit::BadCount);
    }
    let low = view.low_fence();
    if high <= low || view.high_fence().is_some_and(|old| high > old) {
        return Err(Misfit::BadFence);
    }
    // Any key between the fences begins with the common bytes of low and old high fence: the prefix can only grow.
    let prefix = prefix_len(low, Some(high));
    debug_assert!(prefix >= view.prefix_len(), "PAGE-4: prefix of {} bytes shrinks to {prefix}", view.prefix_len());
    let below = view.strip(high).ok_or(Misfit::BadFence)?;
    let gained =
        prefix.checked_sub(view.prefix_len()).and_then(|gained| below.get(..gained)).ok_or(Misfit::BadFence)?;
    let entries = (0..keep).map(|index| {
        let suffix = Some(view.suffix(index)).filter(|suffix| *suffix < below)?;
        Some((suffix.strip_prefix(gained)?, view.value(index)))
    });
    let entries: Vec<_> = entries.collect::<Option<_>>().ok_or(Misfit::KeyOutside)?;
    init(page, id, view.level(), low, Some(high), &entries)
}

/// Drops stamps below `oldest`, and rows whose delete mark has such a stamp.
fn compact_rows(page: &mut [u8], id: PageId, oldest: TxnId) -> Result<(), Misfit> {
    let old = page.to_vec();
    let view = PageView::new(&old);
    if !view.is_leaf() {
        return Err(Misfit::NotALeaf);
    }
    let mut cold = Vec::new();
    let left: Vec<_> = (0..view.len())
        .filter_map(|index| {
            let left = Row::compacted(view.value(index), oldest)?;
            if let Compacted::Cold(flags, payload) = left {
                cold.push(flags);
                cold.extend_from_slice(payload);
            }
            Some((view.suffix(index), left))
        })
        .collect();
    let mut rest = &cold[..];
    let entries: Vec<_> = left
        .into_iter()
        .map(|(suffix, left)| match left {
            Compacted::Same(value) => (suffix, value),
            Compacted::Cold(..) => {
                let (value, behind) = rest.split_at(left.len());
                rest = behind;
                (suffix, value)
            }
        })
        .collect();
    init(page, id, 0, view.low_fence(), view.high_fence(), &entries)
}

fn heap_start(page: &[u8]) -> usize {
    usize::try_from(super::layout::header(page).heap_start.get()).expect("BASE-1: a usize has 64 bits")
}

fn set_heap_start(page: &mut [u8], at: usize) {
    header_mut(page).heap_start = U32::new(u32::try_from(at).expect("PAGE-3: a page is at most 64 KiB"));
}

/// Moves the entries together at the page's end, so that all free bytes are in one piece.
fn compact(page: &mut [u8]) {
    let old = page.to_vec();
    let view = PageView::new(&old);
    let mut heap = page.len();
    let offsets = view.directory() + view.len() * HEAD;
    for index in 0..view.len() {
        let (suffix, value) = (view.suffix(index), view.value(index));
        heap -= ENTRY_HEADER + suffix.len() + value.len();
        write_entry(page, heap, suffix, value);
        write_offset(page, offsets + index * OFFSET, heap);
    }
    set_heap_start(page, heap);
    header_mut(page).dead_bytes = U32::new(0);
}

#[cfg(test)]
mod tests {
    use super::super::patch::Patch;
    use super::*;
    use crate::base::ids::SpaceId;
    use std::collections::BTreeMap;

    const ID: PageId = PageId(5);

    fn empty_page() -> Vec<u8> {
        let mut page = vec![0u8; 4096];
        apply(&mut page, ID, &PageOp::Init { level: 0, low: b"", high: None, entries: vec![] }).expect("fits");
        page
    }

    fn contents(page: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let view = PageView::new(page);
        (0..view.len()).map(|i| (view.key(i), view.value(i).to_vec())).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn a_page_agrees_with_a_map_through_a_thousand_operations() {
        use rand_core::{Rng, SeedableRng};
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(11);
        let mut page = empty_page();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let (mut full, mut done) = (0, 0);
        for _ in 0..5000 {
            let r = rng.next_u64();
            let key = format!("k{}", r % 40).into_bytes();
            let value = vec![b'v'; usize::try_from((r >> 8) % 300).expect("small")];
            let op = match (r >> 32) % 3 {
                0 => PageOp::Remove { key: &key },
                _ if model.contains_key(&key) => PageOp::Replace { key: &key, value: &value },
                _ => PageOp::Insert { key: &key, value: &value },
            };
            match apply(&mut page, ID, &op) {
                Ok(()) => {
                    done += 1;
                    match op {
                        PageOp::Remove { .. } => model.remove(&key),
                        _ => model.insert(key, value),
                    };
                }
                Err(Misfit::NoRoom) => full += 1,
                Err(Misfit::KeyMissing) => assert!(!model.contains_key(&key)),
                Err(other) => assert_eq!(other, Misfit::NoRoom),
            }
            let view = PageView::new(&page);
            let used: usize = (0..view.len()).map(|i| view.entry_len(i)).sum();
            assert_eq!(view.free_bytes() + used + view.directory(), page.len());
        }
        assert_eq!(contents(&page), model);
        assert!(full > 50 && done > 1000, "the page was full {full} times, {done} operations applied");
    }

    #[test]
    fn a_split_leaves_every_entry_on_one_side() {
        let mut left = empty_page();
        for i in 0..20u8 {
            apply(&mut left, ID, &PageOp::Insert { key: &[i], value: &[i; 100] }).expect("fits");
        }
        let before = left.clone();
        let view = PageView::new(&before);
        let entries: Vec<_> = (10..20).map(|i| (view.suffix(i), view.value(i))).collect();
        let mut right = vec![0u8; 4096];
        let right_id = PageId::new(SpaceId(0), 6);
        apply(&mut right, right_id, &PageOp::Init { level: 0, low: &[10], high: None, entries }).expect("fits");
        apply(&mut left, ID, &PageOp::Truncate { keep: 10, high: &[10] }).expect("fits");
        let mut both = contents(&left);
        both.extend(contents(&right));
        assert_eq!(both, contents(&before));
        assert!(PageView::new(&left).covers(&[9]) && !PageView::new(&left).covers(&[10]));
        assert!(PageView::new(&right).covers(&[10]) && PageView::new(&right).covers(&[255]));
    }

    #[test]
    fn page_given_back_covers_no_key_and_takes_only_a_format() {
        for (low, high) in [(&b""[..], None), (b"a", Some(&b"x"[..]))] {
            let mut page = empty_page();
            apply(&mut page, ID, &PageOp::Init { level: 1, low, high, entries: vec![] }).expect("fits");
            header_mut(&mut page).page_lsn = U64::new(77);
            assert_eq!(apply(&mut page, ID, &PageOp::Free), Ok(()));
            let view = PageView::new(&page);
            assert!(["", "a", "m"].iter().all(|key| !view.covers(key.as_bytes())));
            assert!(view.is_leaf() && view.len() == 0 && view.header().page_lsn.get() == 77);
            assert_eq!(view.header().page_id.get(), ID.0);
            for op in [PageOp::Insert { key: b"a", value: b"" }, PageOp::Free, PageOp::Truncate { keep: 0, high: b"a" }]
            {
                assert_eq!(apply(&mut page, ID, &op), Err(Misfit::NotATreePage));
            }
            assert_eq!(apply(&mut page, ID, &PageOp::Init { level: 0, low, high, entries: vec![] }), Ok(()));
        }
    }

    #[test]
    fn operations_that_do_not_fit_leave_the_page_as_it_was() {
        let mut page = empty_page();
        apply(&mut page, ID, &PageOp::Insert { key: b"a", value: &[1; 2000] }).expect("fits");
        let before = page.clone();
        for (op, why) in [
            (PageOp::Insert { key: b"a", value: b"" }, Misfit::KeyThere),
            (PageOp::Insert { key: b"b", value: &[1; 2100] }, Misfit::NoRoom),
            (PageOp::Replace { key: b"a", value: &[1; 4100] }, Misfit::NoRoom),
            (PageOp::Patch { key: b"a", patch: Patch(&[0, 0, 209, 7, 0, 0]) }, Misfit::BadPatch),
            (PageOp::Patch { key: b"b", patch: Patch(b"") }, Misfit::KeyMissing),
            (PageOp::Remove { key: b"b" }, Misfit::KeyMissing),
            (PageOp::Truncate { keep: 2, high: b"" }, Misfit::BadCount),
            (PageOp::Truncate { keep: 1, high: b"" }, Misfit::BadFence),
            (PageOp::Truncate { keep: 1, high: b"a" }, Misfit::KeyOutside),
        ] {
            assert_eq!(apply(&mut page, ID, &op), Err(why));
            assert_eq!(page, before);
        }
        assert_eq!(apply(&mut vec![0; 4096], ID, &PageOp::Remove { key: b"a" }), Err(Misfit::NotATreePage));
    }
}
