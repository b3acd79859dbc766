//! Descents: from the root to a leaf.

use crossbeam_epoch::{Guard, pin};

use crate::base::error::{Error, MEND_TREE};
use crate::base::ids::{FrameId, PageId, SpaceId, TxnId};
use crate::base::page::view::PageView;
use crate::base::sync::preemption_point;
use crate::base::waits::{WaitClass, Waited};
use crate::core::Core;
use crate::pool::buffer_pool::Pool;
use crate::pool::held_pages::HeldPages;
use crate::pool::pin::{PageRead, PageWrite, Pin};
use crate::pool::route::FrameHint;
use crate::redo::credits::LogCredit;
use crate::redo::log::Log;
use crate::store::space::Share;

/// Restarts after which an operation goes on in the lane of one.
const RESTARTS_BEFORE_LANE: u32 = 8;

/// Pages that an operation loads one by one before it reads ahead again: inner pages were missing, or guesses were
/// wrong.
const MISSED_BEFORE_READING: u32 = 2;

/// Keys for each page to be read ahead that are looked at.
const KEYS_A_PAGE: usize = 16;

/// Pages without an image that an operation may come to before that counts as damage. After a look at the parent, the
/// page that it names may be given back. For that to happen again, another merge must just have come between.
const HOLES_MAX: u32 = 64;

/// Why a descent ended without its leaf. In each case nothing is latched when the caller deals with it.
pub(crate) enum Stop<'p> {
    /// This page must be read first.
    Load(PageId),
    /// This page's latch was refused; wait for it holding nothing.
    Refused(Pin<'p>),
    /// The descent failed.
    Failed(Error),
}

impl From<Error> for Stop<'_> {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Counts an operation's restarts, and has the pages that it holds between them.
pub(crate) struct Restarts<'p> {
    pool: &'p Pool,
    count: u32,
    /// Number of pages that could not be read; a page that has an image counts as many.
    holes: u32,
    /// Number of pages loaded one by one since the operation last held nothing.
    missed: u32,
    held: HeldPages<'p>,
    room: Share,
}

impl<'p> Restarts<'p> {
    pub(crate) fn new(pool: &'p Pool) -> Self {
        Restarts { pool, count: 0, holes: 0, missed: 0, held: HeldPages::new(pool), room: Share::Common }
    }

    /// Marks the operation as a rollback: it may use the last room in the data files.
    pub(crate) fn for_rollback(&mut self) -> &mut Self {
        self.room = Share::Rollback;
        self
    }

    /// The share of room in the data files that the operation may use.
    pub(super) fn room(&self) -> Share {
        self.room
    }

    /// Gives up everything: the caller is about to wait for frames or for the log.
    pub(crate) fn begin_wait(&mut self) {
        self.missed = 0;
        self.held.give_up();
    }

    /// Restarts the operation because pages of its own are missing. After several such restarts it goes on in the lane
    /// of one, where pages can be [kept](Self::keep). Nothing is latched here.
    pub(crate) fn start_again(&mut self) {
        self.count += 1;
        if !self.held.is_in_lane() {
            self.begin_wait();
            if self.count > RESTARTS_BEFORE_LANE {
                self.held.enter_lane();
            }
        }
    }

    /// Prepares for a split: outside the lane the operation gives up everything, in the lane it keeps its pages.
    /// Nothing is latched here.
    pub(super) fn begin_split(&mut self) {
        if self.held.is_in_lane() {
            // The pool may have shrunk meanwhile.
            self.held.bound_kept();
        } else {
            self.begin_wait();
        }
    }

    /// Keeps a page in memory while the operation is in the lane; outside the lane nothing is kept.
    pub(crate) fn keep(&mut self, pin: Pin<'p>) {
        self.held.keep_in_lane(pin);
    }

    /// Whether it is time to [read ahead](Self::read_ahead). It is at the first page that is missed since the operation
    /// held nothing, and after every [`MISSED_BEFORE_READING`] loaded one by one.
    pub(crate) fn is_to_read_ahead(&self) -> bool {
        self.missed.is_multiple_of(MISSED_BEFORE_READING)
    }

    /// Reads pages that the operation will probably come to: those of `keys`, which are sorted, that are missing. No
    /// page is pinned: one that is evicted again before its use is loaded once more. Nothing is latched here. May wait
    /// on `page_read`.
    pub(crate) fn read_ahead<'a>(&self, core: &Core, keys: impl IntoIterator<Item = (&'a Root, &'a [u8])>) {
        let most = self.pool.window();
        if most > 1 {
            self.pool.load_to_change(&missing_ahead(core, keys, most));
        }
    }

    /// The same for a batch, which gives up everything first and waits for frames. `batch` is larger for a younger one.
    /// May wait on `free_frame` and `page_read`.
    pub(crate) fn read_ahead_for_batch<'a>(
        &mut self,
        core: &Core,
        keys: impl IntoIterator<Item = (&'a Root, &'a [u8])>,
        batch: TxnId,
    ) -> Result<(), Error> {
        let most = self.pool.window().min(self.pool.batch_window());
        if most <= 1 || self.held.is_in_lane() {
            return Ok(());
        }
        let missing = missing_ahead(core, keys, most);
        if missing.len() > 1 {
            self.begin_wait();
            self.pool.load_for_batch(&missing, batch.0)?;
        }
        Ok(())
    }

    /// Gives up the pages that the operation holds between its restarts, but not its place in the lane.
    pub(crate) fn give_up_pages(&mut self) {
        self.held.give_up_pages();
    }

    /// The frames of the pages that the operation holds between its restarts.
    pub(crate) fn held_frames(&self) -> impl Iterator<Item = FrameId> {
        self.held.frames()
    }

    /// Whether the operation is in the lane of one.
    pub(crate) fn is_in_lane(&self) -> bool {
        self.held.is_in_lane()
    }

    /// Number of pages that the operation keeps in the lane; `None`: it is not in the lane.
    #[cfg(test)]
    pub(crate) fn kept_in_lane(&self) -> Option<usize> {
        self.held.kept_in_lane()
    }

    /// Reserves room in the log. An operation that must wait for it gives up everything first.
    pub(crate) fn reserve<'l>(&mut self, log: &'l Log, bytes: usize, pages: usize) -> Result<LogCredit<'l>, Error> {
        if let Some(credit) = log.try_reserve(bytes, pages)? {
            return Ok(credit);
        }
        self.begin_wait();
        log.reserve(bytes, pages)
    }

    /// Deals with the [`Stop`] of a descent, so that the operation can start again. Nothing is latched here.
    pub(crate) fn resolve(&mut self, stop: Stop<'p>) -> Result<(), Error> {
        self.count += 1;
        match stop {
            Stop::Failed(error) => Err(error),
            Stop::Refused(pin) => {
                self.held.give_up_loaded();
                drop(pin.read());
                Ok(())
            }
            Stop::Load(id) => {
                self.missed += 1;
                self.held.admit_one();
                if self.count > RESTARTS_BEFORE_LANE && !self.held.is_in_lane() {
                    self.held.enter_lane();
                }
                match self.held.load(id) {
                    Err(error) if self.may_be_gone(id, &error) => Ok(()),
                    done => done,
                }
            }
        }
    }

    /// Whether the unreadable page may have been given back since the operation looked at its parent: then the descent
    /// starts again. If the page has an image, its id may have been allocated again: it is read once more.
    fn may_be_gone(&mut self, id: PageId, error: &Error) -> bool {
        if !matches!(error, Error::Corruption(_)) {
            return false;
        }
        self.holes += if self.pool.has_image(id) { HOLES_MAX / 2 } else { 1 };
        self.holes < HOLES_MAX
    }
}

/// The leaf that a descent looks for.
#[derive(Clone, Copy)]
pub(crate) enum Target<'k> {
    /// The leaf that covers this key.
    Key(&'k [u8]),
    /// The leaf that covers the largest keys below this bound; `None`: the last leaf.
    Below(Option<&'k [u8]>),
}

impl Target<'_> {
    fn child_index(self, page: PageView<'_>) -> usize {
        match self {
            Target::Key(key) => page.child_index(key),
            Target::Below(bound) => page.child_index_below(bound),
        }
    }

    /// Whether the target can be in `page`, or below it.
    fn is_within(self, page: PageView<'_>) -> bool {
        match self {
            Target::Key(key) => page.covers(key),
            Target::Below(None) => page.high_fence().is_none(),
            Target::Below(Some(bound)) => {
                let low = page.low_fence();
                (low < bound || low.is_empty()) && page.high_fence().is_none_or(|high| high >= bound)
            }
        }
    }
}

/// Which latches the caller of a descent holds already (BTREE-3).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatchOrder {
    /// None: the descent waits for all latches.
    First,
    /// Leaves to the left: the descent only tries inner pages, and waits for the leaf.
    Further,
}

/// The root of a tree. Its page id is fixed for life.
pub(crate) struct Root {
    id: PageId,
    hint: FrameHint,
}

impl Root {
    /// The root of `space`.
    pub(crate) fn new(space: SpaceId) -> Root {
        Root { id: PageId::root(space), hint: FrameHint::unknown() }
    }

    pub(crate) fn space(&self) -> SpaceId {
        self.id.space()
    }
}

/// The child of inner page `page` of `space` that entry `index` names.
pub(crate) fn child_id(space: SpaceId, page: PageView<'_>, index: usize) -> Result<PageId, Error> {
    let id = PageId(page.header().page_id.get());
    match page.child(index) {
        Some(number) => Ok(PageId::new(space, number)),
        None => Err(Error::Corruption(format!("inner page {id} has no child {index}: {MEND_TREE}").into())),
    }
}

/// Pins the page if it is in memory; else it must be loaded first.
pub(crate) fn fetch(core: &Core, id: PageId) -> Result<Pin<'_>, Stop<'_>> {
    core.pool.fetch(id).ok_or(Stop::Load(id))
}

/// Latches the page shared; it may be where `hint` says.
fn latch_read<'p>(core: &'p Core, id: PageId, hint: &FrameHint) -> Result<PageRead<'p>, Stop<'p>> {
    if let Some(page) = core.pool.read_at(id, hint) {
        return Ok(page);
    }
    let page = fetch(core, id)?.read();
    hint.set(page.frame_id());
    Ok(page)
}

/// Latches the page exclusively; it may be where `hint` says.
fn latch_write<'p>(core: &'p Core, id: PageId, hint: &FrameHint) -> Result<PageWrite<'p>, Stop<'p>> {
    if let Some(page) = core.pool.write_at(id, hint) {
        return Ok(page);
    }
    let page = fetch(core, id)?.write();
    hint.set(page.frame_id());
    Ok(page)
}

/// Latches the page exclusively, if its latch is free.
fn try_latch_write<'p>(core: &'p Core, id: PageId, hint: &FrameHint) -> Result<Option<PageWrite<'p>>, Stop<'p>> {
    match core.pool.write_at(id, hint) {
        Some(page) => Ok(Some(page)),
        None => Ok(fetch(core, id)?.try_write()),
    }
}

/// Follows routes to the page of `level` that contains the target, or did: no latch is held, so the caller checks. An
/// error is the page at which the routes end: it has no route, or the root is not above `level`.
fn by_routes<'g>(
    core: &'g Core,
    root: &'g Root,
    target: Target<'_>,
    level: u8,
    guard: &'g Guard,
) -> Result<(PageId, &'g FrameHint), PageId> {
    let (mut id, mut hint) = (root.id, &root.hint);
    let mut expected = None;
    loop {
        let route = core.pool.route(id, hint, guard).ok_or(id)?;
        let view = route.view();
        // Levels descend: otherwise damage could lead the descent in circles.
        if expected.is_some_and(|level| view.level() != level) {
            return Err(id);
        }
        expected = view.level().checked_sub(1);
        // BTREE-3: a page split since its parent's route was read would lead to its last child. That may be a leaf that
        // this thread holds, or one to the left.
        if !planted!("route_of_split_page") && !target.is_within(view) {
            return Err(id);
        }
        let above = view.level().checked_sub(level + 1).ok_or(id)?;
        let index = target.child_index(view);
        let child = view.child(index).ok_or(id)?;
        hint = route.hint(index).ok_or(id)?;
        id = PageId::new(root.space(), child);
        if above == 0 {
            return Ok((id, hint));
        }
        // The parent may be split before its child's route is looked at.
        preemption_point();
    }
}

/// Up to `count` leaves with one parent, from the target's leaf on; to the left, if `leftwards`. A guess, without a
/// latch.
pub(super) fn leaves_ahead(core: &Core, root: &Root, target: Target<'_>, leftwards: bool, count: usize) -> Vec<PageId> {
    let guard = pin();
    let (id, hint) = by_routes(core, root, target, 1, &guard).unwrap_or((root.id, &root.hint));
    let Some(route) = core.pool.route(id, hint, &guard).filter(|route| route.view().level() == 1) else {
        return Vec::new();
    };
    let view = route.view();
    let first = target.child_index(view);
    let children = (0..count).map_while(|step| {
        let index = if leftwards { first.checked_sub(step)? } else { first + step };
        if index < view.len() { view.child(index) } else { None }
    });
    children.map(|number| PageId::new(root.space(), number)).collect()
}

/// The leaf that covers `key`, or did. An error is the page above it from which there is no route. A guess; no latch is
/// held on return or waited for.
fn leaf_ahead(core: &Core, root: &Root, key: &[u8]) -> Result<PageId, PageId> {
    let guard = pin();
    let mut before = None;
    loop {
        let above = match by_routes(core, root, Target::Key(key), 0, &guard) {
            Ok((leaf, _)) => return Ok(leaf),
            Err(above) => above,
        };
        let page = core.pool.fetch(above).and_then(|pin| pin.try_read().ok());
        match page {
            Some(page) if before != Some(above) && !page.view().is_leaf() => page.leave_route(&guard),
            _ => return Err(above),
        }
        before = Some(above);
    }
}

/// The page to look for on the way to the leaf of `key`: the leaf, or the inner page at which the guess ends.
fn page_ahead(core: &Core, root: &Root, key: &[u8]) -> PageId {
    leaf_ahead(core, root, key).unwrap_or_else(|above| above)
}

/// The leaves of `keys`, which are sorted, as far as they can be guessed, and inner pages whose children cannot: at
/// most `most` that are not in memory.
fn missing_ahead<'a>(core: &Core, keys: impl IntoIterator<Item = (&'a Root, &'a [u8])>, most: usize) -> Vec<PageId> {
    let mut missing = Vec::new();
    let mut last = None;
    for (root, key) in keys.into_iter().take(KEYS_A_PAGE * most) {
        let page = page_ahead(core, root, key);
        if last.replace(page) != Some(page) && !core.pool.is_known(page) {
            missing.push(page);
            if missing.len() == most {
                break;
            }
        }
    }
    missing
}

/// Whether `keys`, which are sorted, are of more than `most` leaves. A guess.
pub(crate) fn are_of_more_leaves<'a>(
    core: &Core,
    keys: impl IntoIterator<Item = (&'a Root, &'a [u8])>,
    most: usize,
) -> bool {
    let (mut leaves, mut last) = (0, None);
    keys.into_iter().any(|(root, key)| {
        let page = page_ahead(core, root, key);
        leaves += usize::from(last.replace(page) != Some(page));
        leaves > most
    })
}

/// Descends to the target's leaf and latches it shared.
pub(crate) fn leaf_read<'p>(core: &'p Core, root: &Root, target: Target<'_>) -> Result<PageRead<'p>, Stop<'p>> {
    let guard = pin();
    let (id, hint) = by_routes(core, root, target, 0, &guard).unwrap_or((root.id, &root.hint));
    let mut page = latch_read(core, id, hint)?;
    if page.view().is_leaf() && target.is_within(page.view()) {
        return Ok(page);
    }
    if id != root.id {
        // An outdated route, or damage: the descent with latches tells.
        drop(page);
        page = latch_read(core, root.id, &root.hint)?;
    }
    while !page.view().is_leaf() {
        page.leave_route(&guard);
        let child = child_id(root.space(), page.view(), target.child_index(page.view()))?;
        // The parent stays latched until the child is.
        let before = Waited::on(WaitClass::RecentClosed);
        let next = fetch(core, child)?.read();
        page.pass_on(before);
        check_level(page.view(), next.view())?;
        page = next;
    }
    check_arrival(page.view(), target)?;
    Ok(page)
}

/// A child is one level below its parent: otherwise a descent could go in circles.
fn check_level(parent: PageView<'_>, child: PageView<'_>) -> Result<(), Error> {
    if child.level().checked_add(1) == Some(parent.level()) { Ok(()) } else { Err(contradiction(child)) }
}

fn contradiction(page: PageView<'_>) -> Error {
    let id = PageId(page.header().page_id.get());
    let message = format!("page {id} is not the one that its parent says it is: {MEND_TREE}");
    Error::Corruption(message.into())
}

/// Checks BTREE-2 from below: pages that contradict each other are damage, and must not lead a scan in circles.
fn check_arrival(page: PageView<'_>, target: Target<'_>) -> Result<(), Error> {
    if page.is_leaf() && target.is_within(page) { Ok(()) } else { Err(contradiction(page)) }
}

/// Descends to the leaf that covers `key` and latches it exclusively.
pub(crate) fn leaf_write<'p>(
    core: &'p Core,
    root: &Root,
    key: &[u8],
    order: LatchOrder,
) -> Result<PageWrite<'p>, Stop<'p>> {
    let (guard, target) = (pin(), Target::Key(key));
    if let Ok((id, hint)) = by_routes(core, root, target, 0, &guard) {
        let page = match order {
            LatchOrder::First => Some(latch_write(core, id, hint)?),
            // BTREE-3: the page may be another leaf by now, with keys to the left.
            LatchOrder::Further if planted!("route_of_split_page") => Some(latch_write(core, id, hint)?),
            LatchOrder::Further => try_latch_write(core, id, hint)?,
        };
        if let Some(page) = page.filter(|page| page.view().is_leaf() && page.view().covers(key)) {
            return Ok(page);
        }
    }
    loop {
        let mut page = match order {
            LatchOrder::First => latch_read(core, root.id, &root.hint)?,
            LatchOrder::Further => fetch(core, root.id)?.try_read().map_err(Stop::Refused)?,
        };
        if page.view().is_leaf() {
            drop(page);
            let page = latch_write(core, root.id, &root.hint)?;
            if page.view().is_leaf() {
                return Ok(page);
            }
            // The root was split between the two latches.
            continue;
        }
        loop {
            page.leave_route(&guard);
            let child = child_id(root.space(), page.view(), page.view().child_index(key))?;
            let pin = fetch(core, child)?;
            if page.view().level() == 1 {
                let before = Waited::on(WaitClass::RecentClosed);
                let leaf = pin.write();
                page.pass_on(before);
                check_arrival(leaf.view(), target)?;
                return Ok(leaf);
            }
            let next = match order {
                LatchOrder::First => {
                    let before = Waited::on(WaitClass::RecentClosed);
                    let next = pin.read();
                    page.pass_on(before);
                    next
                }
                LatchOrder::Further => pin.try_read().map_err(Stop::Refused)?,
            };
            check_level(page.view(), next.view())?;
            page = next;
        }
    }
}

/// Latches the page of `level` that covers `key`, and its parent, exclusively; no parent: the page is the root. If the
/// root is below `level` by now, returns the root, too.
pub(super) fn page_and_parent<'p>(
    core: &'p Core,
    root: &Root,
    key: &[u8],
    level: u8,
) -> Result<(Option<PageWrite<'p>>, PageWrite<'p>), Stop<'p>> {
    let guard = pin();
    let mut page = match by_routes(core, root, Target::Key(key), level + 1, &guard) {
        Ok((id, hint)) => latch_write(core, id, hint)?,
        Err(_) => latch_write(core, root.id, &root.hint)?,
    };
    if page.view().level() != level + 1 || !page.view().covers(key) {
        drop(page);
        page = latch_write(core, root.id, &root.hint)?;
    }
    let mut parent = None;
    while page.view().level() > level {
        let child = child_id(root.space(), page.view(), page.view().child_index(key))?;
        let before = Waited::on(WaitClass::RecentClosed);
        let next = fetch(core, child)?.write();
        page.pass_on(before);
        check_level(page.view(), next.view())?;
        parent = Some(std::mem::replace(&mut page, next));
    }
    Ok((parent, page))
}
