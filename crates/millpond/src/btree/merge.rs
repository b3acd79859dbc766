//! Merges: a page that has become too empty and its neighbour become one, and the other is given back.
//!
//! The left one of the two is formatted anew with what both hold, the right one is freed, its separator leaves the
//! parent: one mini-transaction. A root with one child takes that child's contents over: the tree gets lower.
//!
//! Nobody waits for a merge, so it never waits for anything that others may keep for long: pages must be in memory (the
//! caller learns which are not), the neighbour's latch and the room in the log are only tried for. Who merges is the
//! one who logs map groups (STORE-9).

use std::borrow::Cow;

use super::descent::{Root, Stop, child_id, page_and_parent};
use crate::base::error::Error;
use crate::base::ids::PageId;
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::op::PageOp;
use crate::base::page::verify::structure_problem;
use crate::base::page::view::{PageView, entry_len, prefix_len};
use crate::base::waits::{WaitClass, Waited};
use crate::mtr::{Core, Mtr};
use crate::pool::frame::PageWrite;
use crate::redo::credits::LogCredit;

/// What became of a page that was said to be too empty.
pub(crate) enum Outcome {
    /// It is not, any more, or it cannot be merged as things are.
    Nothing,
    /// It is its parent's only child: the parent is to be merged.
    OnlyChild,
    /// A latch was not to be had.
    Refused,
    /// This page is not in memory.
    Missing(PageId),
    /// There is no room in the log.
    LogFull,
    Merged(Merged),
}

/// A page was given back.
pub(crate) struct Merged {
    pub(crate) freed: PageId,
    /// It is in no frame any more: its id may be given out again.
    pub(crate) is_gone: bool,
    /// The page that is left is too empty still.
    pub(crate) again: bool,
    /// The parent may be too empty now, or is a root with one child.
    pub(crate) parent: bool,
}

/// Whether less than a quarter of the page is in use.
pub(crate) fn is_underfull(page: PageView<'_>, page_size: usize) -> bool {
    page.free_bytes() > page_size / 4 * 3
}

/// How full a merge leaves a page at most: some rows find room before it is split again.
fn full_enough(page_size: usize) -> usize {
    page_size / 5 * 4
}

/// Bytes of redo that a merge takes at most: a page's contents, a separator, and the records around them.
fn redo_len(page_size: usize) -> usize {
    2 * page_size + 1024
}

/// Merges the page of `level` that covers `key` with a neighbour, if it is too empty and both fit into one. The caller
/// lets no page be written meanwhile.
pub(crate) fn merge(core: &Core, root: &Root, key: &[u8], level: u8) -> Result<Outcome, Error> {
    let page_size = core.store.page_size();
    let Some(credit) = core.log.try_reserve(redo_len(page_size), 3)? else { return Ok(Outcome::LogFull) };
    match page_and_parent(core, root, key, level) {
        Ok((Some(parent), page)) => merge_child(core, root, parent, page, key, credit),
        Ok((None, page)) => take_over_child(core, root, page, credit),
        // Damage is for those to report who need the page.
        Err(Stop::Failed(Error::Corruption(_))) => Ok(Outcome::Nothing),
        Err(Stop::Load(id)) => Ok(Outcome::Missing(id)),
        Err(Stop::Refused(_)) => Ok(Outcome::Refused),
        Err(Stop::Failed(error)) => Err(error),
    }
}

fn merge_child(
    core: &Core,
    root: &Root,
    parent: PageWrite<'_>,
    page: PageWrite<'_>,
    key: &[u8],
    credit: LogCredit<'_>,
) -> Result<Outcome, Error> {
    let page_size = core.store.page_size();
    if parent.view().len() < 2 {
        // An only child has no neighbour to go to: its parent is what can go.
        return if parent.id() == PageId::root(root.space()) {
            drop(page);
            take_over_child(core, root, parent, credit)
        } else {
            Ok(Outcome::OnlyChild)
        };
    }
    if !is_underfull(page.view(), page_size) {
        return Ok(Outcome::Nothing);
    }
    let index = parent.view().child_index(key);
    let (mut refused, mut missing) = (false, None);
    let neighbours = [Some(index + 1).filter(|next| *next < parent.view().len()), index.checked_sub(1)];
    for at in neighbours.into_iter().flatten() {
        let id = child_id(root.space(), parent.view(), at)?;
        let Some(pin) = core.pool.fetch(id) else {
            missing = missing.or(Some(id));
            continue;
        };
        // BTREE-3: the neighbour is only tried, on either side.
        let Some(other) = pin.try_write() else {
            refused = true;
            continue;
        };
        let is_right = at > index;
        let (left, right) = if is_right { (&page, &other) } else { (&other, &page) };
        if belong_together(parent.view(), index.max(at), left.view(), right.view()) && both_fit(left, right) {
            let (left, right) = if is_right { (page, other) } else { (other, page) };
            return join(core, root, Mtr::new(&core.log, [parent, left, right]), credit);
        }
    }
    Ok(match missing {
        _ if refused => Outcome::Refused,
        Some(id) => Outcome::Missing(id),
        None => Outcome::Nothing,
    })
}

/// Whether the two are what the parent says of them: entry `at` is the right one's. Damage is not made worse.
fn belong_together(parent: PageView<'_>, at: usize, left: PageView<'_>, right: PageView<'_>) -> bool {
    let number = |page: PageView<'_>| Some(PageId(page.header().page_id.get()).number());
    let named = parent.child(at) == number(right) && parent.child(at - 1) == number(left);
    named && left.high_fence() == Some(right.low_fence()) && parent.key(at) == right.low_fence()
}

/// Whether one page holds the entries of both, with a prefix that is shorter perhaps, and is not too full. One without
/// entries goes in any case: nothing comes back to it where keys only ascend.
fn both_fit(left: &PageWrite<'_>, right: &PageWrite<'_>) -> bool {
    let (low, high) = (left.view().low_fence(), right.view().high_fence());
    let prefix = prefix_len(low, high);
    let len = |page: PageView<'_>| -> usize {
        let len = |i| entry_len(page.prefix_len() + page.suffix(i).len() - prefix, page.value(i).len());
        (0..page.len()).map(len).sum()
    };
    let fences = low.len() + high.map_or(0, <[u8]>::len);
    let page_size = left.bytes().len();
    let is_any_empty = left.view().len() == 0 || right.view().len() == 0;
    let limit = if is_any_empty { page_size } else { full_enough(page_size) };
    // Mostly they do not fit: the cheaper question first.
    HEADER_LEN + fences + len(left.view()) + len(right.view()) <= limit
        && [left, right].iter().all(|page| structure_problem(page.bytes()).is_none())
}

/// The entries of a page for one whose prefix has `prefix` bytes, no more than the page's.
fn entries(page: PageView<'_>, prefix: usize) -> impl Iterator<Item = (Cow<'_, [u8]>, &[u8])> {
    let lost = page.prefix().get(prefix..).unwrap_or_default();
    (0..page.len()).map(move |i| {
        let suffix = page.suffix(i);
        let key = if lost.is_empty() { Cow::Borrowed(suffix) } else { Cow::Owned([lost, suffix].concat()) };
        (key, page.value(i))
    })
}

/// `mtr` is over the parent, the left page, and the right one, which goes.
fn join(core: &Core, root: &Root, mut mtr: Mtr<'_>, credit: LogCredit<'_>) -> Result<Outcome, Error> {
    let page_size = core.store.page_size();
    let [parent_id, left_id, right_id] = [0, 1, 2].map(|index| mtr.page(index).id());
    let (left, right) = (mtr.page(1).bytes().to_vec(), mtr.page(2).bytes().to_vec());
    let (left, right) = (PageView::new(&left), PageView::new(&right));
    let (low, high) = (left.low_fence(), right.high_fence());
    let prefix = prefix_len(low, high);
    let all: Vec<_> = entries(left, prefix).chain(entries(right, prefix)).collect();
    let named = all.iter().map(|(key, value)| (&**key, *value)).collect();
    mtr.apply(1, left_id, &PageOp::Init { level: left.level(), low, high, entries: named })?;
    mtr.apply(2, right_id, &PageOp::Free)?;
    mtr.apply(0, parent_id, &PageOp::Remove { key: right.low_fence() })?;
    let parent = mtr.page(0).view();
    let is_root = parent_id == PageId::root(root.space());
    let again = parent.len() > 1 && is_underfull(mtr.page(1).view(), page_size);
    let parent = parent.len() == 1 || (!is_root && is_underfull(parent, page_size));
    give_back(core, mtr, right_id, credit, again, parent)
}

/// The root takes its only child's contents over.
fn take_over_child(core: &Core, root: &Root, page: PageWrite<'_>, credit: LogCredit<'_>) -> Result<Outcome, Error> {
    if page.view().is_leaf() || page.view().len() != 1 {
        return Ok(Outcome::Nothing);
    }
    let (root_id, child_id) = (page.id(), child_id(root.space(), page.view(), 0)?);
    let Some(child) = core.pool.fetch(child_id) else { return Ok(Outcome::Missing(child_id)) };
    let before = Waited::on(WaitClass::RecentClosed);
    let child = child.write();
    page.pass_on(before);
    let contents = child.bytes().to_vec();
    let view = PageView::new(&contents);
    let whole = view.low_fence().is_empty() && view.high_fence().is_none();
    let below = view.level().checked_add(1) == Some(page.view().level());
    if !whole || !below || structure_problem(&contents).is_some() {
        return Ok(Outcome::Nothing);
    }
    let named = (0..view.len()).map(|i| (view.suffix(i), view.value(i))).collect();
    let mut mtr = Mtr::new(&core.log, [page, child]);
    mtr.apply(0, root_id, &PageOp::Init { level: view.level(), low: b"", high: None, entries: named })?;
    mtr.apply(1, child_id, &PageOp::Free)?;
    // A root with one child again.
    let parent = !view.is_leaf() && view.len() == 1;
    give_back(core, mtr, child_id, credit, false, parent)
}

/// Ends `mtr`, which has freed a page, and has store and pool know of it.
fn give_back(
    core: &Core,
    mtr: Mtr<'_>,
    freed: PageId,
    credit: LogCredit<'_>,
    again: bool,
    parent: bool,
) -> Result<Outcome, Error> {
    debug_assert_ne!(freed.number(), 0, "BTREE-5: the root is never given back");
    let is_gone = commit_freeing(core, mtr, freed, credit)?;
    Ok(Outcome::Merged(Merged { freed, is_gone, again, parent }))
}

/// The same; whether the page is in no frame any more.
pub(crate) fn commit_freeing(core: &Core, mtr: Mtr<'_>, freed: PageId, credit: LogCredit<'_>) -> Result<bool, Error> {
    let (end, hold) = mtr.commit_holding(credit)?;
    core.store.free_page(freed, hold.start(), end);
    drop(hold);
    // Until here the page kept its frame, and nobody could read an image of it.
    Ok(core.pool.discard_freed(freed))
}
