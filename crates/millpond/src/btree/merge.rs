//! Merges: an underfull page and its neighbour become one page, and the other is given back.
//!
//! The left page is formatted anew with the entries of both, the right page is freed, and its separator leaves the
//! parent: one mini-transaction. A root with one child takes over that child's contents: the tree becomes lower.
//!
//! No thread waits for a merge, so a merge never waits for anything that others may keep for long. Pages must be in
//! memory (the caller learns which are not). The neighbour's latch and the room in the log are only tried for. The
//! thread that merges is the one that logs map groups (STORE-9).

use std::borrow::Cow;

use super::descent::{Root, Stop, child_id, page_and_parent};
use crate::base::error::Error;
use crate::base::ids::PageId;
use crate::base::page::layout::HEADER_LEN;
use crate::base::page::op::PageOp;
use crate::base::page::verify::structure_problem;
use crate::base::page::view::{PageView, entry_len, prefix_len};
use crate::base::waits::{WaitClass, Waited};
use crate::core::Core;
use crate::mtr::Mtr;
use crate::pool::pin::PageWrite;
use crate::redo::credits::LogCredit;

/// The outcome for a page that was reported as underfull.
pub(crate) enum Outcome {
    /// The page is no longer underfull, or cannot be merged as things are.
    Nothing,
    /// The page is its parent's only child: the parent is to be merged.
    OnlyChild,
    /// A latch was refused.
    Refused,
    /// This page is not in memory.
    Missing(PageId),
    /// There is no room in the log.
    LogFull,
    Merged(Merged),
}

/// The result of a merge, which gave a page back.
pub(crate) struct Merged {
    pub(crate) freed: PageId,
    /// The freed page is in no frame any more: its id may be allocated again.
    pub(crate) is_gone: bool,
    /// The remaining page is still underfull.
    pub(crate) again: bool,
    /// The parent may be underfull now, or is a root with one child.
    pub(crate) parent: bool,
}

/// Whether less than a quarter of the page is in use.
pub(crate) fn is_underfull(page: PageView<'_>, page_size: usize) -> bool {
    page.free_bytes() > page_size / 4 * 3
}

/// The most bytes that a merge leaves in a page: some rows find room before the page is split again.
fn full_enough(page_size: usize) -> usize {
    page_size / 5 * 4
}

/// Bytes of redo that a merge takes at most: a page's contents, a separator, and the records around them.
fn redo_len(page_size: usize) -> usize {
    2 * page_size + 1024
}

/// Merges the page of `level` that covers `key` with a neighbour, if it is underfull and both fit into one page. The
/// caller ensures that no page is written meanwhile.
pub(crate) fn merge(core: &Core, root: &Root, key: &[u8], level: u8) -> Result<Outcome, Error> {
    let page_size = core.store.page_size();
    let Some(credit) = core.log.try_reserve(redo_len(page_size), 3)? else { return Ok(Outcome::LogFull) };
    match page_and_parent(core, root, key, level) {
        Ok((Some(parent), page)) => merge_child(core, root, parent, page, key, credit),
        Ok((None, page)) => take_over_child(core, root, page, credit),
        // Damage is reported by operations that need the page.
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
        // An only child has no neighbour to merge with: its parent may be merged.
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
        // BTREE-3: the neighbour's latch is only tried, on either side.
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

/// Whether the pages are as the parent says: entry `at` is the right one's. A merge must not make damage worse.
fn belong_together(parent: PageView<'_>, at: usize, left: PageView<'_>, right: PageView<'_>) -> bool {
    let number = |page: PageView<'_>| Some(PageId(page.header().page_id.get()).number());
    let named = parent.child(at) == number(right) && parent.child(at - 1) == number(left);
    named && left.high_fence() == Some(right.low_fence()) && parent.key(at) == right.low_fence()
}

/// Whether one page holds the entries of both, with a perhaps shorter prefix, and is not too full. A page without
/// entries is merged in any case: with ascending keys it gets no entries any more.
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
    // Most pairs do not fit: the cheaper test first.
    HEADER_LEN + fences + len(left.view()) + len(right.view()) <= limit
        && [left, right].iter().all(|page| structure_problem(page.bytes()).is_none())
}

/// The entries of a page for a page with a prefix of `prefix` bytes, no more than this page's.
fn entries(page: PageView<'_>, prefix: usize) -> impl Iterator<Item = (Cow<'_, [u8]>, &[u8])> {
    let lost = page.prefix().get(prefix..).unwrap_or_default();
    (0..page.len()).map(move |i| {
        let suffix = page.suffix(i);
        let key = if lost.is_empty() { Cow::Borrowed(suffix) } else { Cow::Owned([lost, suffix].concat()) };
        (key, page.value(i))
    })
}

/// Merges the right page into the left one. `mtr` has the parent, the left page, and the right page, which is freed.
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

/// Moves the contents of the root's only child into the root.
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
    // Whether the root again has one child.
    let parent = !view.is_leaf() && view.len() == 1;
    give_back(core, mtr, child_id, credit, false, parent)
}

/// Commits `mtr`, which has freed a page, and tells the store and the pool.
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

/// Commits `mtr`, which has freed page `freed`, and tells the store and the pool. Returns whether the page is in no
/// frame any more.
pub(crate) fn commit_freeing(core: &Core, mtr: Mtr<'_>, freed: PageId, credit: LogCredit<'_>) -> Result<bool, Error> {
    let (end, hold) = mtr.commit_holding(credit)?;
    core.store.free_page(freed, hold.start(), end);
    drop(hold);
    // Until here the page kept its frame, so no thread could read an image of it.
    Ok(core.pool.discard_freed(freed))
}
