//! From the root to a leaf.

use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId};
use crate::base::page::view::PageView;
use crate::base::sync::MutexGuard;
use crate::mtr::Core;
use crate::pool::buffer_pool::Pool;
use crate::pool::frame::{PageRead, PageWrite, Pin};

/// Restarts after which an operation goes on in the lane of one.
const RESTARTS_BEFORE_LANE: u32 = 8;

/// Why a descent ended without its leaf. In each case nothing is latched any more when the caller deals with it.
pub(crate) enum Stop<'p> {
    /// This page must be read first.
    Load(PageId),
    /// This page's latch was refused; wait for it holding nothing.
    Refused(Pin<'p>),
    /// It cannot be done.
    Failed(Error),
}

impl From<Error> for Stop<'_> {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Counts an operation's restarts, and keeps what must stay in memory between them.
pub(crate) struct Restarts<'p> {
    pool: &'p Pool,
    count: u32,
    loaded: Option<Pin<'p>>,
    kept: Vec<Pin<'p>>,
    lane: Option<MutexGuard<'p, ()>>,
}

impl<'p> Restarts<'p> {
    pub(crate) fn new(pool: &'p Pool) -> Self {
        Restarts { pool, count: 0, loaded: None, kept: Vec::new(), lane: None }
    }

    /// Gives up what is kept for speed alone: the caller is about to wait for frames.
    pub(crate) fn begin_wait(&mut self) {
        self.loaded = None;
    }

    /// Deals with what stopped a descent, so that the operation can start again. Nothing is latched here.
    pub(crate) fn resolve(&mut self, stop: Stop<'p>) -> Result<(), Error> {
        self.count += 1;
        match stop {
            Stop::Failed(error) => return Err(error),
            Stop::Refused(pin) => {
                self.loaded = None;
                drop(pin.read());
            }
            Stop::Load(id) => {
                self.loaded = None;
                if self.count > RESTARTS_BEFORE_LANE && self.lane.is_none() {
                    self.lane = Some(self.pool.lane.lock());
                }
                let pin = self.pool.load(id)?;
                if self.lane.is_some() {
                    // `Limits::batch_leaves` times a tree's depth is below this: what goes beyond is of descents that
                    // were given up.
                    if self.kept.len() > self.pool.len() / 2 {
                        self.kept.clear();
                    }
                    self.kept.push(pin);
                } else {
                    self.loaded = Some(pin);
                }
            }
        }
        Ok(())
    }
}

/// Which leaf is looked for.
#[derive(Clone, Copy)]
pub(crate) enum Target<'k> {
    /// The one that covers this key.
    Key(&'k [u8]),
    /// The one that covers the largest keys below this bound; `None`: the last one.
    Below(Option<&'k [u8]>),
}

impl Target<'_> {
    fn child_index(self, page: PageView<'_>) -> usize {
        match self {
            Target::Key(key) => page.child_index(key),
            Target::Below(bound) => page.child_index_below(bound),
        }
    }

    /// Whether `page` is a leaf that the target can be in.
    fn is_covered_by(self, page: PageView<'_>) -> bool {
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

/// How latches are taken on the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Wait for them: the caller holds none.
    Wait,
    /// Only try: the caller holds some.
    Try,
}

/// The child of inner page `page` of `space` that entry `index` names.
pub(crate) fn child_id(space: SpaceId, page: PageView<'_>, index: usize) -> Result<PageId, Error> {
    let id = PageId(page.header().page_id.get());
    match page.child(index) {
        Some(number) => Ok(PageId::new(space, number)),
        None => Err(Error::Corruption(
            format!("inner page {id} has no child {index}: run `millpond check`, restore the database from a backup")
                .into(),
        )),
    }
}

/// The page, if it is in memory; else it must be loaded first.
pub(crate) fn fetch(core: &Core, id: PageId) -> Result<Pin<'_>, Stop<'_>> {
    core.pool.fetch(id).ok_or(Stop::Load(id))
}

fn latch_read(pin: Pin<'_>, manner: Manner) -> Result<PageRead<'_>, Stop<'_>> {
    match manner {
        Manner::Wait => Ok(pin.read()),
        Manner::Try => pin.try_read().map_err(Stop::Refused),
    }
}

fn latch_write(pin: Pin<'_>, manner: Manner) -> Result<PageWrite<'_>, Stop<'_>> {
    match manner {
        Manner::Wait => Ok(pin.write()),
        Manner::Try => pin.try_write().map_err(Stop::Refused),
    }
}

/// The leaf, latched shared.
pub(crate) fn leaf_read<'p>(core: &'p Core, space: SpaceId, target: Target<'_>) -> Result<PageRead<'p>, Stop<'p>> {
    let mut page = fetch(core, PageId::root(space))?.read();
    while !page.view().is_leaf() {
        let child = child_id(space, page.view(), target.child_index(page.view()))?;
        // The parent stays latched until the child is.
        let next = fetch(core, child)?.read();
        check_level(page.view(), next.view())?;
        page = next;
    }
    check_arrival(page.view(), target)?;
    Ok(page)
}

/// A child is one level below its parent: else a descent could go in circles.
fn check_level(parent: PageView<'_>, child: PageView<'_>) -> Result<(), Error> {
    if child.level().checked_add(1) == Some(parent.level()) { Ok(()) } else { Err(contradiction(child)) }
}

fn contradiction(page: PageView<'_>) -> Error {
    let id = PageId(page.header().page_id.get());
    let message = format!(
        "page {id} is not the one that its parent says it is: run `millpond check`, restore the database from a backup"
    );
    Error::Corruption(message.into())
}

/// BTREE-2, looked at from below: pages that contradict each other are damage, and must not send a scan in circles.
fn check_arrival(page: PageView<'_>, target: Target<'_>) -> Result<(), Error> {
    if page.is_leaf() && target.is_covered_by(page) { Ok(()) } else { Err(contradiction(page)) }
}

/// The leaf that covers `key`, latched exclusively.
pub(crate) fn leaf_write<'p>(
    core: &'p Core,
    space: SpaceId,
    key: &[u8],
    manner: Manner,
) -> Result<PageWrite<'p>, Stop<'p>> {
    loop {
        let mut page = latch_read(fetch(core, PageId::root(space))?, manner)?;
        if page.view().is_leaf() {
            let root = latch_write(page.unlatch(), manner)?;
            if root.view().is_leaf() {
                return Ok(root);
            }
            // The root was split between the two latches.
            continue;
        }
        loop {
            let child = child_id(space, page.view(), page.view().child_index(key))?;
            let pin = fetch(core, child)?;
            if page.view().level() == 1 {
                let leaf = latch_write(pin, manner)?;
                check_arrival(leaf.view(), Target::Key(key))?;
                return Ok(leaf);
            }
            let next = latch_read(pin, manner)?;
            check_level(page.view(), next.view())?;
            page = next;
        }
    }
}
