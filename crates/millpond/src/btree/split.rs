//! Splits: a page gives its upper part to a new one, and its parent learns of it, in a mini-transaction of its own.
//!
//! Who finds no room releases everything, has the page split, and starts again. When the parent has no room for the
//! separator, the parent is split first.

use super::descent::{Restarts, Stop, child_id, fetch};
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::op::PageOp;
use crate::base::page::view::{PageView, entry_len};
use crate::mtr::{Core, Mtr};
use crate::pool::buffer_pool::FrameTicket;
use crate::pool::frame::PageWrite;

/// An entry that is to come into the page being split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) key: Vec<u8>,
    /// Bytes that it will take, directory included.
    pub(crate) len: usize,
}

/// Where a page is cut: the separator, and how many of its entries stay.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    separator: Vec<u8>,
    keep: usize,
}

/// The shortest byte string above `low` and not above `high`, which is above `low`.
fn shortest_separator(low: &[u8], high: &[u8]) -> Vec<u8> {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    high[..(common + 1).min(high.len())].to_vec()
}

/// Bytes that a page takes without its entries.
fn frame_len(low: &[u8], high: Option<&[u8]>) -> usize {
    HEADER_LEN + low.len() + high.map_or(0, <[u8]>::len)
}

/// Whether both pages of a cut hold their entries **and their new fences**.
fn both_fit(page: PageView<'_>, cut: &Cut, page_size: usize) -> bool {
    let entries = |range: std::ops::Range<usize>| range.map(|i| page.entry_len(i)).sum::<usize>();
    let left = frame_len(page.low_fence(), Some(&cut.separator)) + entries(0..cut.keep);
    let right = frame_len(&cut.separator, page.high_fence()) + entries(cut.keep..page.len());
    left <= page_size && right <= page_size
}

/// Chooses the cut of a leaf so that the pending entries find room in few splits. `None`: they fit as it is.
///
/// All of `pending` belong into the page. Each cut has entries, there or pending, on both sides, so that repeated
/// splits come to an end.
fn cut_leaf(page: PageView<'_>, pending: &[&Pending], page_size: usize) -> Result<Option<Cut>, Error> {
    // The entries as they will be: those there, and the pending ones (which replace equal keys).
    let mut entries: Vec<(&[u8], usize, bool)> =
        (0..page.len()).map(|i| (page.key(i), page.entry_len(i), false)).collect();
    for new in pending {
        match entries.binary_search_by(|(key, _, _)| (*key).cmp(&new.key)) {
            Ok(index) => entries[index].1 = entries[index].1.max(new.len),
            Err(index) => entries.insert(index, (&new.key, new.len, true)),
        }
    }
    let total: usize = entries.iter().map(|(_, len, _)| len).sum();
    let room = page_size - page.directory();
    if total <= room {
        return Ok(None);
    }
    // Ascending inserts leave the left page as full as it gets; others leave halves, in bytes.
    let appends = entries.iter().position(|(_, _, is_new)| *is_new) == Some(page.len());
    let goal = if appends { room } else { total / 2 };
    let mut used = 0;
    let fitting = entries.iter().take_while(|(_, len, _)| {
        used += len;
        used <= goal
    });
    let wanted = fitting.count().max(1);
    let cut = nearest_first(wanted, 1..entries.len()).find_map(|cut| {
        let separator = shortest_separator(entries[cut - 1].0, entries[cut].0);
        let keep = (0..page.len()).take_while(|&i| page.key(i) < separator.as_slice()).count();
        let cut = Cut { separator, keep };
        both_fit(page, &cut, page_size).then_some(cut)
    });
    cut.map(Some).ok_or_else(|| no_cut(page))
}

/// The limits of keys and values see to it that there always is one.
fn no_cut(page: PageView<'_>) -> Error {
    let id = PageId(page.header().page_id.get());
    Error::Corruption(
        format!("page {id} is full and cannot be split: run `millpond check`, restore the database from a backup")
            .into(),
    )
}

/// The numbers of `range`, those near `wanted` first.
fn nearest_first(wanted: usize, range: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
    let mut numbers: Vec<usize> = range.collect();
    numbers.sort_by_key(|number| number.abs_diff(wanted));
    numbers.into_iter()
}

/// Chooses the cut of an inner page: halves, or the last entry alone when `key` lies beyond it (ascending inserts).
/// `None`: it has fewer than two entries.
fn cut_inner(page: PageView<'_>, key: &[u8], page_size: usize) -> Result<Option<Cut>, Error> {
    if page.len() < 2 {
        // Another thread has split it meanwhile.
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
        .map(|keep| Cut { separator: page.key(keep).to_vec(), keep })
        .find(|cut| both_fit(page, cut, page_size));
    cut.map(Some).ok_or_else(|| no_cut(page))
}

/// What a split needs before its first latch: two frames, two page ids. What is not used goes back.
struct Supplies<'p> {
    core: &'p Core,
    pages: Vec<(PageId, FrameTicket<'p>)>,
}

impl<'p> Supplies<'p> {
    fn have(core: &'p Core, space: SpaceId) -> Result<Self, Error> {
        let mut supplies = Supplies { core, pages: Vec::with_capacity(2) };
        for ticket in core.pool.take_frames(2)? {
            supplies.pages.push((core.store.allocate(space)?, ticket));
        }
        Ok(supplies)
    }

    fn install(&mut self) -> Result<(PageId, PageWrite<'p>), Error> {
        let (id, ticket) =
            self.pages.pop().ok_or_else(|| Error::Bug("BTREE: a split needs two pages at most".into()))?;
        Ok((id, self.core.pool.install(id, ticket)))
    }
}

impl Drop for Supplies<'_> {
    fn drop(&mut self) {
        for (id, _ticket) in self.pages.drain(..) {
            self.core.store.give_back(id);
        }
    }
}

/// Splits the leaf that covers the first of `pending`, unless those of them that belong into it fit by now.
pub(crate) fn split_leaf<'p>(
    core: &'p Core,
    space: SpaceId,
    pending: &[Pending],
    restarts: &mut Restarts<'p>,
) -> Result<(), Error> {
    let Some(first) = pending.first() else { return Ok(()) };
    split_level(core, space, &first.key, 0, pending, restarts)
}

enum Outcome {
    Done,
    /// The parent has no room for this separator.
    ParentFull(Vec<u8>),
}

fn split_level<'p>(
    core: &'p Core,
    space: SpaceId,
    key: &[u8],
    level: u8,
    pending: &[Pending],
    restarts: &mut Restarts<'p>,
) -> Result<(), Error> {
    loop {
        restarts.begin_wait();
        match attempt(core, space, key, level, pending) {
            Ok(Outcome::Done) => return Ok(()),
            Ok(Outcome::ParentFull(separator)) => {
                split_level(core, space, &separator, level + 1, &[], restarts)?;
            }
            Err(stop) => restarts.resolve(stop)?,
        }
    }
}

/// Bytes of redo that a split takes at most: three pages' contents.
fn redo_len(page_size: usize) -> usize {
    3 * page_size + 1024
}

fn attempt<'p>(
    core: &'p Core,
    space: SpaceId,
    key: &[u8],
    level: u8,
    pending: &[Pending],
) -> Result<Outcome, Stop<'p>> {
    let mut supplies = Supplies::have(core, space)?;
    let credit = core.log.reserve(redo_len(core.store.page_size()), 3)?;
    let mut parent: Option<PageWrite<'p>> = None;
    let mut page = fetch(core, PageId::root(space))?.write();
    while page.view().level() > level {
        let child = child_id(space, page.view(), page.view().child_index(key))?;
        let next = fetch(core, child)?.write();
        parent = Some(std::mem::replace(&mut page, next));
    }
    let page_size = core.store.page_size();
    let cut = if level == 0 {
        // Another thread may have split the leaf meanwhile: the others of `pending` are of its neighbours then.
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
            let mtr = Mtr::new(&core.log, vec![page, left, right]);
            split_root(mtr, [left_id, right_id], &cut, credit)
        }
        Some(parent) => {
            if parent.view().free_bytes() < entry_len(cut.separator.len(), 4) {
                return Ok(Outcome::ParentFull(cut.separator));
            }
            let (right_id, right) = supplies.install()?;
            drop(supplies);
            let mtr = Mtr::new(&core.log, vec![parent, page, right]);
            split_child(mtr, right_id, &cut, credit)
        }
    }
}

fn entries<'a>(page: PageView<'a>, range: std::ops::Range<usize>) -> Vec<(&'a [u8], &'a [u8])> {
    range.map(|i| (page.key(i), page.value(i))).collect()
}

/// The root keeps its id: both halves move into new pages.
fn split_root<'p>(
    mut mtr: Mtr<'p>,
    children: [PageId; 2],
    cut: &Cut,
    credit: crate::redo::log::LogCredit<'_>,
) -> Result<Outcome, Stop<'p>> {
    let root_id = mtr.page(0).id();
    let old = mtr.page(0).bytes().to_vec();
    let view = PageView::new(&old);
    let level = view.level();
    let separator = Some(cut.separator.as_slice());
    let left = PageOp::Init { level, low: b"", high: separator, entries: entries(view, 0..cut.keep) };
    let right = PageOp::Init { level, low: &cut.separator, high: None, entries: entries(view, cut.keep..view.len()) };
    let numbers = children.map(|id| id.number().to_le_bytes());
    let named: Vec<(&[u8], &[u8])> = vec![(b"", &numbers[0]), (&cut.separator, &numbers[1])];
    mtr.apply(1, children[0], &left)?;
    mtr.apply(2, children[1], &right)?;
    mtr.apply(0, root_id, &PageOp::Init { level: level + 1, low: b"", high: None, entries: named })?;
    mtr.commit(credit)?;
    Ok(Outcome::Done)
}

fn split_child<'p>(
    mut mtr: Mtr<'p>,
    right_id: PageId,
    cut: &Cut,
    credit: crate::redo::log::LogCredit<'_>,
) -> Result<Outcome, Stop<'p>> {
    let (parent_id, left_id) = (mtr.page(0).id(), mtr.page(1).id());
    let old = mtr.page(1).bytes().to_vec();
    let view = PageView::new(&old);
    let upper = entries(view, cut.keep..view.len());
    let right = PageOp::Init { level: view.level(), low: &cut.separator, high: view.high_fence(), entries: upper };
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

    fn leaf(keys: &[&[u8]]) -> Vec<u8> {
        let mut page = vec![0u8; 4096];
        let entries = keys.iter().map(|k| (*k, &[7u8; 500][..])).collect();
        apply(&mut page, PageId(1), &PageOp::Init { level: 0, low: b"", high: None, entries }).expect("fits");
        page
    }

    fn pending(key: &[u8], len: usize) -> Pending {
        Pending { key: key.to_vec(), len }
    }

    #[test]
    fn separators_are_short_and_between() {
        assert_eq!(shortest_separator(b"abc", b"abd"), b"abd");
        assert_eq!(shortest_separator(b"abc", b"b"), b"b");
        assert_eq!(shortest_separator(b"ab", b"abc"), b"abc");
        assert_eq!(shortest_separator(b"", b"xyz"), b"x");
    }

    #[test]
    fn ascending_inserts_leave_the_left_page_full_and_others_cut_it_in_half() {
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
}
