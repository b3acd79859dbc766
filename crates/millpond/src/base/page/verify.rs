//! Checks the structure of a tree page. Total: accepts any bytes.

use super::layout::{DIRECTORY_ENTRY, ENTRY_HEADER, HEADER_LEN, NO_FENCE, TREE_PAGE};
use super::view::{PageView, prefix_len, u16_at};
use crate::base::aligned::to_usize;

/// The first problem in the structure of a tree page. `None`: fences, prefix, heads, offsets, entries, dead bytes and
/// key order are right, and a [`PageView`] may be trusted.
pub(crate) fn structure_problem(page: &[u8]) -> Option<String> {
    if page.len() < HEADER_LEN {
        return Some(format!("it has {} bytes, fewer than a header", page.len()));
    }
    let view = PageView::new(page);
    let header = view.header();
    if header.page_type != TREE_PAGE {
        return Some(format!("its page type is {}, not that of a tree page", header.page_type));
    }
    let directory_end = view.directory() + view.len() * DIRECTORY_ENTRY;
    let heap_start = to_usize(u64::from(header.heap_start.get()));
    if directory_end > heap_start || heap_start > page.len() {
        let (count, len) = (view.len(), page.len());
        return Some(format!(
            "{count} entries end at {directory_end}, the heap begins at {heap_start} of {len}: they overlap"
        ));
    }
    if let Some(high) = view.high_fence()
        && high <= view.low_fence()
    {
        return Some("its high fence is not above its low fence".to_owned());
    }
    let prefix = prefix_len(view.low_fence(), view.high_fence());
    if view.prefix_len() != prefix {
        return Some(format!("its header states a prefix of {} bytes instead of {prefix}", view.prefix_len()));
    }
    let mut extents = Vec::with_capacity(view.len());
    for index in 0..view.len() {
        let start = view.offset(index);
        let end = start + ENTRY_HEADER + u16_at(page, start) + u16_at(page, start + 2);
        if start < heap_start || end > page.len() {
            return Some(format!("entry {index} is at {start}..{end}, outside of the heap from {heap_start}"));
        }
        extents.push((start, end, index));
    }
    entries_problem(view).or_else(|| heads_problem(view)).or_else(|| {
        let dead = to_usize(u64::from(header.dead_bytes.get()));
        heap_problem(&mut extents, page.len() - heap_start, dead)
    })
}

fn entries_problem(view: PageView<'_>) -> Option<String> {
    // The fences without the prefix, like the suffixes that they are compared with.
    let low = view.strip(view.low_fence()).unwrap_or_default();
    let high = view.high_fence().map(|high| view.strip(high).unwrap_or_default());
    for index in 0..view.len() {
        let suffix = view.suffix(index);
        if index > 0 && view.suffix(index - 1) >= suffix {
            return Some(format!("keys {} and {index} are out of order", index - 1));
        }
        if suffix < low || high.is_some_and(|high| suffix >= high) {
            return Some(format!("key {index} is outside of the page's fences"));
        }
        if !view.is_leaf() && view.child(index).is_none() {
            return Some(format!("entry {index} of an inner page names no child"));
        }
    }
    let begins = view.is_leaf() || (view.len() > 0 && view.suffix(0) == low);
    (!begins).then(|| "an inner page that does not begin at its low fence".to_owned())
}

fn heads_problem(view: PageView<'_>) -> Option<String> {
    let (said, skip) = (view.head_skip(), view.wanted_skip());
    if said != skip {
        return Some(format!("its heads skip {said} bytes, and should skip {skip}"));
    }
    let heads = view.heads().iter().enumerate();
    let wrong = heads.filter(|(index, head)| head.get() != view.wanted_head(*index)).map(|(index, _)| index).next();
    wrong.map(|index| format!("head {index} is not that of its key"))
}

/// Checks that entries do not overlap, and that the gaps between them are counted as dead bytes.
fn heap_problem(extents: &mut [(usize, usize, usize)], heap: usize, dead: usize) -> Option<String> {
    extents.sort_unstable();
    if let Some(pair) = extents.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        return Some(format!("entries {} and {} overlap", pair[0].2, pair[1].2));
    }
    let used: usize = extents.iter().map(|(start, end, _)| end - start).sum();
    (heap - used != dead).then(|| format!("its header counts {dead} dead bytes instead of {}", heap - used))
}

const _: () = assert!(NO_FENCE == u16::MAX, "a fence is shorter than a page");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::PageId;
    use crate::base::page::apply::apply;
    use crate::base::page::layout::HEAD;
    use crate::base::page::op::PageOp;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    const ID: PageId = PageId(5);

    fn sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let mut page = vec![0u8; 4096];
        let init = PageOp::Init { level: 0, low: b"k", high: Some(b"z"), entries: vec![] };
        apply(&mut page, ID, &init).expect("fits");
        for _ in 0..200 {
            let r = rng.next_u64();
            let key = format!("k{:03}", r % 200).into_bytes();
            let value = vec![7; to_usize((r >> 8) % 60)];
            let there = PageView::new(&page).search(&key).is_ok();
            let op = match ((r >> 32) % 3, there) {
                (0, true) => PageOp::Remove { key: &key },
                (_, true) => PageOp::Replace { key: &key, value: &value },
                (_, false) => PageOp::Insert { key: &key, value: &value },
            };
            // Operations that do not fit leave the page as it is.
            let _ = apply(&mut page, ID, &op);
        }
        page
    }

    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn what_operations_make_is_sound_at_every_step() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for _ in 0..50 {
            assert_eq!(structure_problem(&sample(&mut rng)), None);
        }
        let mut page = vec![0u8; 65_536];
        let entries: Vec<_> = [&b"a"[..], b"b"].into_iter().map(|key| (key, &b"1234"[..])).collect();
        let inner = PageOp::Init { level: 1, low: b"a", high: None, entries };
        apply(&mut page, ID, &inner).expect("fits");
        assert_eq!(structure_problem(&page), None);
        apply(&mut page, ID, &PageOp::Remove { key: b"a" }).expect("there");
        assert!(structure_problem(&page).is_some_and(|what| what.contains("low fence")));
    }

    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn any_bytes_may_be_given() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let (mut found, mut noise) = (0, vec![0u8; 4096]);
        for round in 0..4000 {
            let mut page = sample(&mut rng);
            for _ in 0..=round % 3 {
                // Mostly in header, fences and directory.
                let at = to_usize(rng.next_u64() % if round % 2 == 0 { 300 } else { 4096 });
                page[at] = u8::try_from(rng.next_u64() & 0xff).expect("a byte");
            }
            found += usize::from(structure_problem(&page).is_some());
            rng.fill_bytes(&mut noise);
            noise[4] = TREE_PAGE;
            assert!(structure_problem(&noise[..to_usize(rng.next_u64() % 4096)]).is_some());
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "long")]
    fn each_kind_of_damage_is_named() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let page = sample(&mut rng);
        let view = PageView::new(&page);
        let (heads, offsets, at) = (view.directory(), view.directory() + view.len() * HEAD, view.offset(0));
        let changed = |at: usize, bytes: &[u8]| {
            let mut copy = page.clone();
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            structure_problem(&copy).unwrap_or_default()
        };
        assert!(changed(4, &[9]).contains("page type"));
        assert!(changed(40, &[255, 7]).contains("overlap"));
        assert!(changed(48, &[0, 0, 1, 0]).contains("heap"));
        assert!(changed(52, &[1, 0, 0, 0]).contains("dead"));
        assert!(changed(46, &[1]).contains("prefix"));
        assert!(changed(56, &[1]).contains("skip"));
        assert!(changed(heads + 1, &[0]).contains("head 0"));
        assert!(changed(offsets, &[255, 15]).contains("outside of the heap"));
        assert!(changed(at + 4, b"k9").contains("order"));
        assert!(changed(HEADER_LEN, b"\x7a").contains("fence"));
    }
}
