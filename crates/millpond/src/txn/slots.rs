//! Who appends to which undo page, which transactions are active, and what purge has to go through.
//!
//! Who ends the wait of purge: who leaves delete marks, the keeper's tick, [`Transactions::stop`].

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::sync::{Condvar, Mutex};
use crate::base::waits::WaitClass;
use crate::mtr::{Core, Mtr};
use crate::store::page_store::PageStore;

/// Bytes of redo that a new undo page takes at most.
const NEW_PAGE_REDO: usize = 128;

/// Undo pages with delete marks for which purge is woken at once, and not by the keeper's tick.
const WAKE_AT: usize = 4;

type Pages = SmallVec<[PageId; 2]>;

/// What a slot has.
#[derive(Default)]
struct Kept {
    /// The first is appended to, the others are empty.
    pages: Pages,
    /// Memory for the changes that lead back.
    undo: Vec<u8>,
}

/// Pages that an idle slot keeps.
const PAGES_KEPT: usize = 2;

/// Bytes of that memory that a slot keeps.
const UNDO_KEPT: usize = 16 << 10;

/// All transactions of a database.
#[derive(Default)]
pub(crate) struct Transactions {
    directory: Mutex<Directory>,
    /// Purge waits here.
    work: Condvar,
    /// Rows that purge has removed.
    pub(crate) purged_rows: AtomicU64,
}

#[derive(Default)]
struct Directory {
    /// The slots that nobody has. Who comes takes the last that was used.
    idle: Vec<Kept>,
    active: Vec<TxnId>,
    /// Pages that purge has not been through, or not to their ends.
    pages: HashMap<PageId, UndoPage, FixedState>,
    queue: VecDeque<PageId>,
    /// Those that a transaction keeps it from: they are queued again by the keeper's tick.
    later: Vec<PageId>,
    /// Pages that nobody needs.
    unneeded: VecDeque<PageId>,
    /// Those of them that are to be read before they can be given back.
    cold: Vec<PageId>,
    is_waiting: bool,
    stop: bool,
}

/// What purge knows of a page.
#[derive(Clone, Copy, Debug, Default)]
struct UndoPage {
    /// Records that it has been through.
    purged: usize,
    is_queued: bool,
    /// Purge is going through it.
    is_under_way: bool,
    /// No slot has it.
    is_left: bool,
}

/// What purge is to do.
pub(crate) enum Work {
    /// Go through this page, from this record on.
    Purge(PageId, usize),
    /// Have this page in memory, for the keeper.
    Read(PageId),
}

impl Directory {
    fn enqueue(&mut self, id: PageId) {
        let page = self.pages.entry(id).or_default();
        if !std::mem::replace(&mut page.is_queued, true) {
            self.queue.push_back(id);
        }
    }

    /// TXN-4: no slot has the page any more.
    fn leave(&mut self, id: PageId) {
        match self.pages.get_mut(&id) {
            Some(page) if (page.is_queued || page.is_under_way) && !cfg!(planted = "undo_page_left_early") => {
                page.is_left = true;
            }
            _ => {
                self.pages.remove(&id);
                self.unneeded.push_back(id);
            }
        }
    }
}

impl Transactions {
    /// Begins a transaction.
    pub(crate) fn begin(&self, store: &PageStore) -> Slot<'_> {
        let mut directory = self.directory.lock();
        let txn = store.next_txn();
        directory.active.push(txn);
        let kept = directory.idle.pop().unwrap_or_default();
        Slot { all: self, txn, kept, marked: SmallVec::new(), left: SmallVec::new() }
    }

    /// The oldest transaction that is active; if there is none, the next to begin (TXN-1).
    pub(crate) fn oldest(&self, store: &PageStore) -> TxnId {
        let directory = self.directory.lock();
        directory.active.iter().copied().min().unwrap_or_else(|| store.txn_to_come())
    }

    /// Pages that were there when the database was opened.
    pub(crate) fn adopt(&self, pages: impl IntoIterator<Item = PageId>) {
        let mut directory = self.directory.lock();
        for id in pages {
            directory.enqueue(id);
            directory.leave(id);
        }
    }

    /// Wakes purge if it has work.
    pub(crate) fn wake_purge(&self) {
        let wakes = {
            let mut guard = self.directory.lock();
            let directory = &mut *guard;
            directory.queue.extend(directory.later.drain(..));
            directory.is_waiting && !(directory.queue.is_empty() && directory.cold.is_empty())
        };
        if wakes {
            self.work.notify_one();
        }
    }

    /// What purge is to do next; waits for it. `None`: it is to end.
    pub(crate) fn next_work(&self) -> Option<Work> {
        let mut directory = self.directory.lock();
        loop {
            if directory.stop {
                return None;
            }
            if let Some(id) = directory.cold.pop() {
                return Some(Work::Read(id));
            }
            if let Some(id) = directory.queue.pop_front() {
                let page = directory.pages.entry(id).or_default();
                (page.is_queued, page.is_under_way) = (false, true);
                return Some(Work::Purge(id, page.purged));
            }
            directory.is_waiting = true;
            directory = self.work.wait(directory, WaitClass::Keeper);
            directory.is_waiting = false;
        }
    }

    /// Purge went through a page up to record `purged`, and to its end or not.
    pub(crate) fn purged(&self, id: PageId, purged: usize, to_the_end: bool) {
        let mut directory = self.directory.lock();
        let Some(page) = directory.pages.get_mut(&id) else { return };
        (page.purged, page.is_under_way) = (purged, false);
        if !to_the_end && !std::mem::replace(&mut page.is_queued, true) {
            directory.later.push(id);
        } else if page.is_left && !page.is_queued {
            directory.leave(id);
        }
    }

    /// A page that is to be given back is in memory.
    pub(crate) fn read(&self, id: PageId) {
        self.directory.lock().unneeded.push_back(id);
    }

    /// A page that is to be given back is not in memory.
    pub(crate) fn want_read(&self, id: PageId) {
        self.directory.lock().cold.push(id);
    }

    /// A page that nobody needs, if there are more than `keep`.
    pub(crate) fn take_unneeded(&self, keep: usize) -> Option<PageId> {
        let mut directory = self.directory.lock();
        if directory.unneeded.len() > keep { directory.unneeded.pop_front() } else { None }
    }

    /// It could not be given back yet.
    pub(crate) fn put_off(&self, id: PageId) {
        self.directory.lock().unneeded.push_back(id);
    }

    /// Undo pages that purge has to go through.
    pub(crate) fn purge_pages(&self) -> usize {
        let directory = self.directory.lock();
        directory.queue.len() + directory.later.len()
    }

    /// Ends purge.
    pub(crate) fn stop(&self) {
        self.directory.lock().stop = true;
        self.work.notify_one();
    }
}

/// A transaction under way, and the undo pages that are its own meanwhile.
pub(crate) struct Slot<'t> {
    all: &'t Transactions,
    txn: TxnId,
    kept: Kept,
    /// Pages in which it left records with delete marks.
    marked: Pages,
    /// Pages that are not of the slot any more.
    left: Pages,
}

impl Slot<'_> {
    pub(crate) fn txn(&self) -> TxnId {
        self.txn
    }

    /// The pages to append to, the first first.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.kept.pages
    }

    /// Memory for the changes that lead back.
    pub(crate) fn undo(&mut self) -> &mut Vec<u8> {
        &mut self.kept.undo
    }

    /// Does without page `index`: it is full, or not in memory.
    pub(crate) fn leave(&mut self, index: usize) {
        self.left.push(self.kept.pages.remove(index));
    }

    /// Records were appended to these pages, with delete marks or without. All but the last of them are full.
    pub(crate) fn appended(&mut self, records: impl Iterator<Item = (usize, bool)>) {
        let mut last = 0;
        for (index, has_marks) in records {
            if has_marks {
                self.marked.push(self.kept.pages[index]);
            }
            last = index;
        }
        self.left.extend(self.kept.pages.drain(..last));
    }

    /// Adds an empty page, in a mini-transaction of its own: one that nobody needs any more, or a new one. May wait on
    /// `log_space`, `free_frame` and `file_growth`; callers hold nothing else.
    pub(crate) fn add_page(&mut self, core: &Core) -> Result<(), Error> {
        let credit = core.log.reserve(NEW_PAGE_REDO, 1)?;
        let id = match self.all.take_unneeded(0) {
            Some(id) => id,
            None => core.store.allocate(SpaceId::UNDO, core.pool.waits())?,
        };
        let page = match core.pool.fetch(id) {
            Some(pin) => pin.write(),
            // What is in its image does not matter. Nobody else has it read.
            None => match core.pool.take_frame() {
                Ok(ticket) => core.pool.install(id, ticket),
                Err(error) => {
                    self.all.put_off(id);
                    return Err(error);
                }
            },
        };
        let mut mtr = Mtr::new(&core.log, [page]);
        mtr.apply(0, id, &PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() })?;
        mtr.commit(credit)?;
        self.kept.pages.push(id);
        Ok(())
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut directory = self.all.directory.lock();
        let txn = self.txn;
        directory.active.retain(|active| *active != txn);
        for page in self.marked.drain(..) {
            directory.enqueue(page);
        }
        for page in self.left.drain(..) {
            directory.leave(page);
        }
        let mut kept = std::mem::take(&mut self.kept);
        // What a large batch did not use in the end, others may.
        let surplus = PAGES_KEPT.min(kept.pages.len());
        for page in kept.pages.drain(surplus..) {
            directory.leave(page);
        }
        if kept.undo.capacity() > UNDO_KEPT {
            kept.undo = Vec::new();
        }
        directory.idle.push(kept);
        let wakes = directory.is_waiting && directory.queue.len() >= WAKE_AT;
        drop(directory);
        if wakes {
            self.all.work.notify_one();
        }
    }
}
