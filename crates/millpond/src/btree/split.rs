//! Splits: the upper part of a page moves to a new one, which the parent then names, in a mini-transaction of its own.
//!
//! An operation that finds no room releases everything, splits the page, and starts again. If the parent has no room
//! for the separator, the parent is split first.

use std::ops::Range;

use smallvec::SmallVec;

use super::descent::{Restarts, Root, Stop, page_and_parent};
use crate::base::error::{Error, MEND_TREE};
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::op::PageOp;
use crate::base::page::verify::structure_problem;
use crate::base::page::view::{PageView, common_len, entry_len, prefix_len};
use crate::core::Core;
use crate::mtr::Mtr;
use crate::pool::frame_ticket::FrameTicket;
use crate::pool::pin::PageWrite;
use crate::store::space::Share;

/// Bytes of an inner page's value: the child's number.
const CHILD_LEN: usize = size_of::<u32>();

/// An entry that is to be inserted into the page being split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) key: Vec<u8>,
    pub(crate) value_len: usize,
}

/// Where a page is cut: the separator, and how many of its entries stay.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    separator: Vec<u8>,
    keep: usize,
}

/// The shortest byte string above `low` and not above `high`, which is above `low`.
fn shortest_separator<'k>(low: &[u8], high: &'k [u8]) -> &'k [u8] {
    &high[..(common_len(low, high) + 1).min(high.len())]
}

/// Bytes that a page with these fences takes with the entries `range` of `page`. Its prefix is not shorter than that of
/// `page` (PAGE-4).
fn part_len(page: PageView<'_>, range: Range<usize>, low: &[u8], high: Option<&[u8]>) -> usize {
    let entries: usize = range.clone().map(|i| page.entry_len(i)).sum();
    let gained = prefix_len(low, high) - page.prefix_len();
    HEADER_LEN + low.len() + high.map_or(0, <[u8]>::len) + entries - gained * range.len()
}

/// Whether both pages of a cut hold their entries **and their new fences**.
fn both_fit(page: PageView<'_>, cut: &Cut, page_size: usize) -> bool {
    part_len(page, 0..cut.keep, page.low_fence(), Some(&cut.separator)) <= page_size
        && part_len(page, cut.keep..page.len(), &cut.separator, page.high_fence()) <= page_size
}

/// Chooses the cut of a leaf so that the pending entries find room in few splits. `None`: they fit without a cut.
///
/// All of `pending` belong into the page. Each cut has entries, existing or pending, on both sides, so that repeated
/// splits come to an end.
fn cut_leaf(page: PageView<'_>, pending: &[&Pending], page_size: usize) -> Result<Option<Cut>, Error> {
    // The future entries, without the prefix: the existing ones, and the pending ones (which replace equal keys).
    let mut entries: Vec<(&[u8], usize, bool)> =
        (0..page.len()).map(|i| (page.suffix(i), page.entry_len(i), false)).collect();
    for new in pending {
        let suffix = page.strip(&new.key).ok_or_else(|| no_cut(page))?;
        let len = entry_len(suffix.len(), new.value_len);
        match entries.binary_search_by(|(other, _, _)| (*other).cmp(suffix)) {
            Ok(index) => entries[index].1 = entries[index].1.max(len),
            Err(index) => entries.insert(index, (suffix, len, true)),
        }
    }
    let total: usize = entries.iter().map(|(_, len, _)| len).sum();
    let room = page_size - page.directory();
    if total <= room {
        return Ok(None);
    }
    // Ascending inserts leave the left page as full as possible; other inserts leave halves, in bytes.
    let appends = entries.iter().position(|(_, _, is_new)| *is_new) == Some(page.len());
    let goal = if appends { room } else { total / 2 };
    let mut used = 0;
    let fitting = entries.iter().take_while(|(_, len, _)| {
        used += len;
        used <= goal
    });
    let wanted = fitting.count().max(1);
    let cut = nearest_first(wanted, 1..entries.len()).find_map(|cut| {
        let separator = [page.prefix(), shortest_separator(entries[cut - 1].0, entries[cut].0)].concat();
        let keep = page.search(&separator).unwrap_or_else(|index| index);
        let cut = Cut { separator, keep };
        both_fit(page, &cut, page_size).then_some(cut)
    });
    cut.map(Some).ok_or_else(|| no_cut(page))
}

fn corruption(page: PageView<'_>, problem: &str) -> Error {
    let id = PageId(page.header().page_id.get());
    let message = format!("page {id}: {problem}: {MEND_TREE}");
    Error::Corruption(message.into())
}

/// The error for a page without a cut. The limits of keys and values ensure that there always is one.
fn no_cut(page: PageView<'_>) -> Error {
    corruption(page, "it is full and cannot be split")
}

/// The numbers of `range`, those near `wanted` first.
fn nearest_first(wanted: usize, range: Range<usize>) -> impl Iterator<Item = usize> {
    let mut numbers: Vec<usize> = range.collect();
    numbers.sort_by_key(|number| number.abs_diff(wanted));
    numbers.into_iter()
}

/// Chooses the cut of an inner page: halves, or the last entry alone when `key` belongs to it (ascending inserts).
/// `None`: the page has fewer than two entries.
fn cut_inner(page: PageView<'_>, key: &[u8], page_size: usize) -> Result<Option<Cut>, Error> {
    if page.len() < 2 {
        // Another thread has split the page meanwhile.
        return Ok(None);
    }
    let last = page.len() - 1;
    let wanted = if page.child_index(key) == last {
        last
    } else {
        let total: usize = (0..page.len()).map(|i| page.entry_len(i)).sum();
        let mut used = 0;
        let half = (0..page.len()).take_while(|&i| {
            used += page.entry_len(i);
            used * 2 <= total
        });
        half.count()
    };
    let cut = nearest_first(wanted, 1..page.len())
        .map(|keep| Cut { separator: page.key(keep), keep })
        .find(|cut| both_fit(page, cut, page_size));
    cut.map(Some).ok_or_else(|| no_cut(page))
}

/// The supplies of a split, taken before its first latch: two page ids, two frames. Unused ones are given back.
struct Supplies<'p> {
    core: &'p Core,
    ids: SmallVec<[PageId; 2]>,
    frames: Vec<FrameTicket<'p>>,
}

impl<'p> Supplies<'p> {
    fn have(core: &'p Core, space: SpaceId, room: Share) -> Result<Self, Error> {
        let mut supplies = Supplies { core, ids: SmallVec::new(), frames: Vec::new() };
        // Ids first: a thread that makes the files grow holds no frame.
        for _ in 0..2 {
            supplies.ids.push(core.store.allocate(space, room, core.pool.waits())?);
        }
        supplies.frames = core.pool.take_frames(2)?;
        Ok(supplies)
    }

    fn install(&mut self) -> Result<(PageId, PageWrite<'p>), Error> {
        match (self.ids.pop(), self.frames.pop()) {
            (Some(id), Some(ticket)) => Ok((id, self.core.pool.install(id, ticket))),
            _ => Err(Error::Bug("BTREE: a split needs two pages at most".into())),
        }
    }
}

impl Drop for Supplies<'_> {
    fn drop(&mut self) {
        self.ids.drain(..).for_each(|id| self.core.store.give_back(id));
    }
}

/// Splits the leaf that covers the first of `pending`, unless the pending entries of that leaf fit by now.
pub(crate) fn split_leaf<'p>(
    core: &'p Core,
    root: &Root,
    pending: &[Pending],
    restarts: &mut Restarts<'p>,
) -> Result<(), Error> {
    let Some(first) = pending.first() else { return Ok(()) };
    split_level(core, root, &first.key, 0, pending, restarts)
}

enum Outcome {
    Done,
    /// The parent has no room for this separator.
    ParentFull(Vec<u8>),
}

fn split_level<'p>(
    core: &'p Core,
    root: &Root,
    key: &[u8],
    level: u8,
    pending: &[Pending],
    restarts: &mut Restarts<'p>,
) -> Result<(), Error> {
    loop {
        restarts.begin_split();
        match attempt(core, root, key, level, pending, restarts) {
            Ok(Outcome::Done) => return Ok(()),
            Ok(Outcome::ParentFull(separator)) => {
                split_level(core, root, &separator, level + 1, &[], restarts)?;
            }
            Err(stop) => restarts.resolve(stop)?,
        }
    }
}

/// Bytes of redo that a split takes at most: the contents of three pages. An operation that formats a page takes no
/// more than the page, since both hold the keys without their prefix.
fn redo_len(page_size: usize) -> usize {
    3 * page_size + 1024
}

fn attempt<'p>(
    core: &'p Core,
    root: &Root,
    key: &[u8],
    level: u8,
    pending: &[Pending],
    restarts: &mut Restarts<'p>,
) -> Result<Outcome, Stop<'p>> {
    // First the log, then frames: a thread that waits for the log holds no frame.
    let credit = restarts.reserve(&core.log, redo_len(core.store.page_size()), 3)?;
    let mut supplies = Supplies::have(core, root.space(), restarts.room())?;
    let (parent, page) = page_and_parent(core, root, key, level)?;
    // Damage must not spread over two pages. A sound page's separator is between its fences (PAGE-4).
    if let Some(problem) = structure_problem(page.bytes()) {
        return Err(corruption(page.view(), &problem).into());
    }
    if page.view().level() != level {
        // The tree has become lower meanwhile, and this is its root.
        return Ok(Outcome::Done);
    }
    let page_size = core.store.page_size();
    let cut = if level == 0 {
        // Another thread may have split the leaf meanwhile: the other pending entries then belong to its neighbours.
        let ours: Vec<&Pending> = pending.iter().filter(|new| page.view().covers(&new.key)).collect();
        cut_leaf(page.view(), &ours, page_size)?
    } else {
        cut_inner(page.view(), key, page_size)?
    };
    let Some(cut) = cut else { return Ok(Outcome::Done) };
    match parent {
        None => {
            let (left_id, left) = supplies.install()?;
            let (right_id, right) = supplies.install()?;
            drop(supplies);
            let mtr = Mtr::new(&core.log, [page, left, right]);
            split_root(mtr, [left_id, right_id], &cut, credit)
        }
        Some(parent) => {
            if !parent.view().covers(&cut.separator) {
                return Err(corruption(page.view(), "its keys are not those that its parent says").into());
            }
            if parent.view().free_bytes() < parent.view().entry_len_of(cut.separator.len(), CHILD_LEN) {
                return Ok(Outcome::ParentFull(cut.separator));
            }
            let (right_id, right) = supplies.install()?;
            drop(supplies);
            let mtr = Mtr::new(&core.log, [parent, page, right]);
            split_child(mtr, right_id, &cut, credit)
        }
    }
}

/// The operation that formats a page between these fences with the entries `range` of `page`.
fn part<'a>(page: PageView<'a>, range: Range<usize>, low: &'a [u8], high: Option<&'a [u8]>) -> PageOp<'a> {
    let gained = prefix_len(low, high) - page.prefix_len();
    let entries = range.map(|i| (page.suffix(i).get(gained..).unwrap_or_default(), page.value(i)));
    PageOp::Init { level: page.level(), low, high, entries: entries.collect() }
}

/// The root keeps its id: both halves move into new pages.
fn split_root<'p>(
    mut mtr: Mtr<'p>,
    children: [PageId; 2],
    cut: &Cut,
    credit: crate::redo::credits::LogCredit<'_>,
) -> Result<Outcome, Stop<'p>> {
    let root_id = mtr.page(0).id();
    let old = mtr.page(0).bytes().to_vec();
    let view = PageView::new(&old);
    let left = part(view, 0..cut.keep, view.low_fence(), Some(&cut.separator));
    let right = part(view, cut.keep..view.len(), &cut.separator, view.high_fence());
    let numbers = children.map(|id| id.number().to_le_bytes());
    let named: Vec<(&[u8], &[u8])> = vec![(b"", &numbers[0]), (&cut.separator, &numbers[1])];
    mtr.apply(1, children[0], &left)?;
    mtr.apply(2, children[1], &right)?;
    mtr.apply(0, root_id, &PageOp::Init { level: view.level() + 1, low: b"", high: None, entries: named })?;
    mtr.commit(credit)?;
    Ok(Outcome::Done)
}

fn split_child<'p>(
    mut mtr: Mtr<'p>,
    right_id: PageId,
    cut: &Cut,
    credit: crate::redo::credits::LogCredit<'_>,
) -> Result<Outcome, Stop<'p>> {
    let (parent_id, left_id) = (mtr.page(0).id(), mtr.page(1).id());
    let old = mtr.page(1).bytes().to_vec();
    let view = PageView::new(&old);
    let right = part(view, cut.keep..view.len(), &cut.separator, view.high_fence());
    let keep = u16::try_from(cut.keep).map_err(|_| Error::Bug("PAGE-3: too many entries in a page".into()))?;
    mtr.apply(2, right_id, &right)?;
    mtr.apply(1, left_id, &PageOp::Truncate { keep, high: &cut.separator })?;
    mtr.apply(0, parent_id, &PageOp::Insert { key: &cut.separator, value: &right_id.number().to_le_bytes() })?;
    mtr.commit(credit)?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::page::apply::apply;
    use crate::base::row::HEAD_LEN;
    use rand_core::{Rng, SeedableRng};

    fn leaf(keys: &[&[u8]]) -> Vec<u8> {
        let mut page = vec![0u8; 4096];
        let entries = keys.iter().map(|k| (*k, &[7u8; 500][..])).collect();
        apply(&mut page, PageId(1), &PageOp::Init { level: 0, low: b"", high: None, entries }).expect("fits");
        page
    }

    fn pending(key: &[u8], value_len: usize) -> Pending {
        Pending { key: key.to_vec(), value_len }
    }

    #[test]
    fn separators_are_short_and_between() {
        assert_eq!(shortest_separator(b"abc", b"abd"), b"abd");
        assert_eq!(shortest_separator(b"abc", b"b"), b"b");
        assert_eq!(shortest_separator(b"ab", b"abc"), b"abc");
        assert_eq!(shortest_separator(b"", b"xyz"), b"x");
    }

    #[test]
    fn ascending_inserts_fill_the_left_page_and_others_halve_it() {
        let page = leaf(&[b"a", b"b", b"c", b"d", b"e", b"f", b"g"]);
        let view = PageView::new(&page);
        let after = cut_leaf(view, &[&pending(b"h", 600)], 4096).expect("can be cut").expect("does not fit");
        assert_eq!((after.keep, after.separator.as_slice()), (7, &b"h"[..]));
        let between = cut_leaf(view, &[&pending(b"bb", 600)], 4096).expect("can be cut").expect("does not fit");
        assert!((2..=4).contains(&between.keep), "{between:?}");
        assert!(matches!(cut_leaf(view, &[&pending(b"bb", 300)], 4096), Ok(None)));
    }

    #[test]
    fn a_page_of_one_large_entry_is_cut_beside_it() {
        let mut page = vec![0u8; 4096];
        let entries = vec![(&b"m"[..], &[1u8; 2500][..])];
        apply(&mut page, PageId(1), &PageOp::Init { level: 0, low: b"", high: None, entries }).expect("fits");
        let view = PageView::new(&page);
        let below = cut_leaf(view, &[&pending(b"a", 2500)], 4096).expect("can be cut").expect("does not fit");
        assert_eq!((below.keep, below.separator.as_slice()), (0, &b"m"[..]));
        let above = cut_leaf(view, &[&pending(b"z", 2500)], 4096).expect("can be cut").expect("does not fit");
        assert_eq!((above.keep, above.separator.as_slice()), (1, &b"z"[..]));
    }

    /// Cuts a page, and the part of it that covers the new entry, until that fits. Each cut fits its log and both
    /// pages.
    fn cut_until_it_fits(page: &[u8], new: &Pending) -> usize {
        let (mut page, mut cuts) = (page.to_vec(), 0);
        while let Some(cut) = cut_leaf(PageView::new(&page), &[new], page.len()).expect("can be cut") {
            cuts += 1;
            let view = PageView::new(&page);
            let all = (view.low_fence().to_vec(), view.high_fence().map(<[u8]>::to_vec));
            let left = part(view, 0..cut.keep, &all.0, Some(&cut.separator));
            let right = part(view, cut.keep..view.len(), &cut.separator, all.1.as_deref());
            let mut redo = Vec::new();
            let parts = [left, right].map(|op| {
                op.encode(&mut redo);
                let mut part = vec![0u8; page.len()];
                apply(&mut part, PageId(1), &op).expect("fits");
                assert_eq!(structure_problem(&part), None);
                part
            });
            assert!(redo.len() <= 2 * page.len(), "{} bytes of redo for two pages of {}", redo.len(), page.len());
            let mut truncated = page.clone();
            let keep = u16::try_from(cut.keep).expect("few");
            apply(&mut truncated, PageId(1), &PageOp::Truncate { keep, high: &cut.separator }).expect("fits");
            assert!(truncated == parts[0], "the left part is not what truncation makes");
            let keys =
                |page: &[u8]| (0..PageView::new(page).len()).map(|i| PageView::new(page).key(i)).collect::<Vec<_>>();
            assert_eq!([keys(&parts[0]), keys(&parts[1])].concat(), keys(&page));
            let [left, right] = parts;
            page = if PageView::new(&left).covers(&new.key) { left } else { right };
        }
        cuts
    }

    #[test]
    fn a_page_of_any_keys_is_cut_until_what_is_new_fits() {
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(31);
        let mut number = |below: usize| usize::try_from(rng.next_u64()).expect("BASE-1") % below;
        let (mut cuts, mut most) = (0, 0);
        for page_size in [4096, 8192, 16_384, 32_768, 65_536] {
            let (key_max, value_max) = ((page_size / 16 * 3).min(3072), page_size / 4 + HEAD_LEN + 64);
            for round in 0..120 {
                let prefix = vec![b'p'; [0, 3, 100, key_max / 2, key_max - 8, key_max][round % 6]];
                let key = |number: &mut dyn FnMut(usize) -> usize| {
                    let mut key = prefix.clone();
                    let tail = number(key_max - prefix.len() + 1);
                    key.extend((0..tail.min([4, 8, key_max][number(3)])).map(|_| [b'a', b'z', 0, 0xff][number(4)]));
                    key
                };
                let ends = [key(&mut number), key(&mut number)];
                let (low, high) = (ends[0].clone().min(ends[1].clone()), ends[0].clone().max(ends[1].clone()));
                let low = if number(3) == 0 { Vec::new() } else { low };
                let high = (number(3) > 0 && high > low).then_some(high);
                let mut page = vec![0u8; page_size];
                let init = PageOp::Init { level: 0, low: &low, high: high.as_deref(), entries: vec![] };
                apply(&mut page, PageId(1), &init).expect("fits");
                let longest = [1, 20, value_max / 3, value_max + 1][number(4)];
                for _ in 0..600 {
                    let (key, value) = (key(&mut number), vec![7; number(longest)]);
                    let _ = apply(&mut page, PageId(1), &PageOp::Insert { key: &key, value: &value });
                }
                for _ in 0..6 {
                    let new = pending(&key(&mut number), number(value_max + 1));
                    if PageView::new(&page).covers(&new.key) {
                        let more = cut_until_it_fits(&page, &new);
                        (cuts, most) = (cuts + more, most.max(more));
                    }
                }
            }
        }
        assert!(cuts > 500 && most < 8, "{cuts} cuts, at most {most} for one entry");
    }
}
