//! Who appends to which undo page, which transactions are active, and what purge has to go through.
//!
//! Who ends the wait of purge: who leaves delete marks, or rows in flight; the keeper's tick; [`Transactions::stop`].

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::locks::Locks;
use super::purge_queue::{PurgeQueue, Rest};
use super::record::{Kind, RECORD_HEAD_MAX, record_head};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::view::entry_len;
use crate::base::row::{Stamp, UndoRef};
use crate::base::sync::{Condvar, Mutex, Rank};
use crate::base::waits::Waits;
use crate::mtr::{Core, Mtr, RECORD_HEADER, TXN_LEN};
use crate::pace::purge_debt::PurgeDebt;
use crate::store::page_store::PageStore;
use crate::store::space::Share;

/// Bytes of redo that a new undo page takes at most.
const NEW_PAGE_REDO: usize = 128;

/// Bytes of redo that a header takes at most, or another state of one.
const HEADER_REDO: usize = RECORD_HEADER + 16 + RECORD_HEAD_MAX + TXN_LEN;

/// Undo pages with delete marks for which purge is woken at once, and not by the keeper's tick.
const WAKE_AT: usize = 4;

/// Pages that are read for merges before these are tried again: more would drive one another out of a small pool.
const MERGE_READS: usize = 2;

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
pub(crate) struct Transactions {
    directory: Mutex<Directory>,
    /// Purge waits here.
    work: Condvar,
    /// Row locks.
    pub(crate) locks: Locks,
    /// Rows that purge has removed.
    pub(crate) purged_rows: AtomicU64,
    /// Batches of several groups that were undone.
    pub(crate) rollbacks: AtomicU64,
    /// The end of the last group that committed a transaction of several: its rows have the LSNs of earlier ones.
    last_commit: AtomicU64,
}

impl Default for Transactions {
    fn default() -> Self {
        Transactions {
            directory: Mutex::new(Rank::Transactions, Directory::default()),
            work: Condvar::default(),
            locks: Locks::default(),
            purged_rows: AtomicU64::default(),
            rollbacks: AtomicU64::default(),
            last_commit: AtomicU64::default(),
        }
    }
}

#[derive(Default)]
struct Directory {
    /// The slots that nobody has. Who comes takes the last that was used.
    idle: Vec<Kept>,
    active: Vec<TxnId>,
    pages: PurgeQueue,
    purge_debt: PurgeDebt,
    /// Pages that nobody needs and that are to be read before they can be given back.
    cold: Vec<PageId>,
    /// Pages that the keeper wants to merge, or to merge others with.
    cold_merges: VecDeque<PageId>,
    /// So many of these are read before the keeper has looked at what is there now.
    merge_reads: usize,
    /// Transactions whose changes are to be undone.
    losers: VecDeque<Loser>,
    /// Those of them that could not be undone up to now: once more, with the keeper's tick.
    losers_later: Vec<Loser>,
    is_waiting: bool,
    stop: bool,
}

/// A transaction of several groups that will not be committed. It is active, and in flight, until it is undone.
#[derive(Debug)]
pub(crate) struct Loser {
    pub(crate) txn: TxnId,
    pub(crate) header: UndoRef,
    /// Its records, in their order.
    pub(crate) records: Vec<UndoRef>,
    /// The pages in which they are, and others that are needed no more when they are not.
    pub(crate) pages: Vec<PageId>,
}

/// What purge is to do.
pub(crate) enum Work {
    /// Undo what this transaction changed.
    RollBack(Loser),
    /// Go through this page, from this record on.
    Purge(PageId, usize),
    /// Have this page in memory, for the keeper.
    Read(PageId),
}

/// The oldest of `active`; if there is none, the next to begin.
fn oldest(active: &[TxnId], store: &PageStore) -> TxnId {
    active.iter().copied().min().unwrap_or_else(|| store.txn_to_come())
}

impl Transactions {
    /// Begins a transaction. An error: there are no more ids.
    pub(crate) fn begin(&self, store: &PageStore) -> Result<Slot<'_>, Error> {
        let mut directory = self.directory.lock();
        let txn = store.next_txn()?;
        directory.active.push(txn);
        let kept = directory.idle.pop().unwrap_or_default();
        let (marked, left) = (SmallVec::new(), SmallVec::new());
        Ok(Slot { all: self, txn, kept, marked, marked_rows: 0, left, parts: None, row: None, has_ended: false })
    }

    /// The oldest transaction that is active; if there is none, the next to begin (TXN-1).
    pub(crate) fn oldest(&self, store: &PageStore) -> TxnId {
        oldest(&self.directory.lock().active, store)
    }

    /// Pages that were there when the database was opened.
    pub(crate) fn adopt(&self, pages: impl IntoIterator<Item = PageId>) {
        let mut directory = self.directory.lock();
        for id in pages {
            directory.pages.enqueue(id);
            directory.pages.leave(id);
        }
    }

    /// Transactions that were active when the process ended; [`adopt`](Self::adopt) gets the other pages.
    pub(crate) fn adopt_losers(&self, losers: Vec<Loser>) {
        let mut directory = self.directory.lock();
        for loser in losers {
            directory.active.push(loser.txn);
            self.locks.begin(loser.txn);
            directory.losers.push_back(loser);
        }
    }

    /// The next of them.
    pub(crate) fn take_loser(&self) -> Option<Loser> {
        self.directory.lock().losers.pop_front()
    }

    /// An error once purge is to end.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match self.directory.lock().stop {
            true => Err(Error::Closed("the database is being closed: the next open goes on".into())),
            false => Ok(()),
        }
    }

    /// All changes of a transaction are undone, and its header says so.
    pub(crate) fn undone(&self, loser: Loser) {
        self.locks.end(loser.txn);
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        let mut directory = self.directory.lock();
        directory.active.retain(|active| *active != loser.txn);
        for page in loser.pages {
            // Purge has to look at the delete marks that are there again.
            directory.pages.enqueue(page);
            directory.pages.leave(page);
        }
    }

    /// They could not be undone: once more, later.
    pub(crate) fn put_off_loser(&self, loser: Loser) {
        self.directory.lock().losers_later.push(loser);
    }

    /// Everything that transactions of several groups have committed is before this LSN, or a row shows that it is.
    pub(crate) fn last_commit(&self) -> Lsn {
        Lsn(self.last_commit.load(Ordering::Acquire))
    }

    /// Wakes purge if it has work.
    pub(crate) fn wake_purge(&self) {
        let wakes = {
            let mut guard = self.directory.lock();
            let directory = &mut *guard;
            directory.pages.look_again();
            directory.losers.extend(directory.losers_later.drain(..));
            let is_idle = directory.pages.ready() == 0 && directory.cold.is_empty() && directory.losers.is_empty();
            directory.is_waiting && !is_idle
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
            if let Some(loser) = directory.losers.pop_front() {
                return Some(Work::RollBack(loser));
            }
            if let Some(id) = directory.cold.pop() {
                return Some(Work::Read(id));
            }
            if directory.merge_reads > 0
                && let Some(id) = directory.cold_merges.pop_front()
            {
                directory.merge_reads -= 1;
                return Some(Work::Read(id));
            }
            if let Some((id, from)) = directory.pages.take() {
                return Some(Work::Purge(id, from));
            }
            directory.is_waiting = true;
            directory = self.work.wait(directory, "work for purge");
            directory.is_waiting = false;
        }
    }

    /// A page for a writer to go through (PURGE-1).
    pub(crate) fn take_queued(&self, store: &PageStore) -> Option<(PageId, usize)> {
        let mut guard = self.directory.lock();
        let directory = &mut *guard;
        if directory.stop {
            return None;
        }
        let active = &directory.active;
        directory.pages.take_any(|| oldest(active, store))
    }

    /// Somebody went through a page up to record `purged`.
    pub(crate) fn purged(&self, id: PageId, purged: usize, rest: Rest) {
        self.directory.lock().pages.put_back(id, purged, rest);
    }

    /// A writer who owed the purge of so many rows has seen to `done`.
    pub(crate) fn has_purged(&self, owed: usize, done: usize) {
        self.directory.lock().purge_debt.paid(to_u64(owed), to_u64(done));
    }

    /// A page that is to be given back is in memory.
    pub(crate) fn read(&self, id: PageId) {
        self.directory.lock().pages.unneeded.push_back(id);
    }

    /// A page that the keeper wants for a merge is not in memory.
    pub(crate) fn want_merge_read(&self, id: PageId) {
        self.directory.lock().cold_merges.push_back(id);
    }

    /// The keeper is about to merge what is in memory: the next few pages may be read.
    pub(crate) fn allow_merge_reads(&self) {
        let mut directory = self.directory.lock();
        directory.merge_reads = MERGE_READS;
        let wakes = directory.is_waiting && !directory.cold_merges.is_empty();
        drop(directory);
        if wakes {
            self.work.notify_one();
        }
    }

    /// A page that is to be given back is not in memory.
    pub(crate) fn want_read(&self, id: PageId) {
        self.directory.lock().cold.push(id);
    }

    /// A page that nobody needs, if there are more than `keep`.
    pub(crate) fn take_unneeded(&self, keep: usize) -> Option<PageId> {
        let mut directory = self.directory.lock();
        let unneeded = &mut directory.pages.unneeded;
        if unneeded.len() > keep { unneeded.pop_front() } else { None }
    }

    /// The one that was needed last, which is in memory still, mostly.
    fn take_newest_unneeded(&self) -> Option<PageId> {
        self.directory.lock().pages.unneeded.pop_back()
    }

    /// It could not be given back yet.
    pub(crate) fn put_off(&self, id: PageId) {
        self.directory.lock().pages.unneeded.push_back(id);
    }

    /// Undo pages that purge has to go through.
    pub(crate) fn purge_pages(&self) -> usize {
        self.directory.lock().pages.len()
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
    /// Rows with such marks.
    marked_rows: usize,
    /// Pages that are not of the slot any more.
    left: Pages,
    /// Of a transaction of several groups: what it has left in undo pages.
    parts: Option<Parts>,
    /// A row whose lock was waited for, by a transaction with nothing in flight.
    row: Option<(SpaceId, Vec<u8>)>,
    has_ended: bool,
}

/// What a transaction of several groups has left in undo pages.
struct Parts {
    header: UndoRef,
    records: Vec<UndoRef>,
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

    /// What a record is to which `others` come before, that are not appended yet.
    pub(crate) fn next_kind(&self, others: usize) -> Kind {
        match &self.parts {
            None => Kind::Whole,
            Some(parts) => Kind::Part(u32::try_from(parts.records.len() + others).unwrap_or(u32::MAX)),
        }
    }

    /// Whether the transaction has several groups.
    pub(crate) fn is_in_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Records of these numbers were appended to these pages, with so many rows that purge has to look at. All but the
    /// last of the pages are full.
    pub(crate) fn appended(&mut self, records: impl Iterator<Item = (usize, u16, usize)>) {
        let mut last = 0;
        for (index, record, marked_rows) in records {
            let page = self.kept.pages[index];
            self.marked_rows += marked_rows;
            if marked_rows > 0 && self.marked.last() != Some(&page) {
                self.marked.push(page);
            }
            if let Some(parts) = &mut self.parts {
                parts.records.push(UndoRef { page: page.number(), record });
            }
            last = index;
        }
        self.left.extend(self.kept.pages.drain(..last));
    }

    /// Makes this a transaction of several groups (TXN-5), in a mini-transaction of its own. May wait as
    /// [`add_page`](Self::add_page) does.
    pub(crate) fn begin_parts(&mut self, core: &Core) -> Result<(), Error> {
        // It begins with nothing (LOCK-3).
        self.release_row();
        let record = record_head(Kind::Header { is_active: true }, self.txn);
        let (page, credit) = loop {
            let Some(&id) = self.kept.pages.first() else {
                self.add_page(core)?;
                continue;
            };
            let credit = core.log.reserve(HEADER_REDO, 1)?;
            match core.pool.fetch(id).map(|pin| pin.write()) {
                Some(page) if entry_len(size_of::<u16>(), record.len()) <= page.view().free_bytes() => {
                    break (page, credit);
                }
                _ => self.leave(0),
            }
        };
        let (id, number) = (page.id(), u16::try_from(page.view().len()).unwrap_or(u16::MAX));
        let mut mtr = Mtr::new(&core.log, [page]);
        mtr.apply(0, id, &PageOp::Insert { key: &number.to_be_bytes(), value: &record })?;
        mtr.note_txn(self.txn);
        mtr.commit(credit)?;
        self.all.locks.begin(self.txn);
        self.parts = Some(Parts { header: UndoRef { page: id.number(), record: number }, records: Vec::new() });
        Ok(())
    }

    /// Commits a transaction of several groups. Returns the group's end. May wait on `log_space`, `page_read` and
    /// `free_frame`.
    pub(crate) fn commit_parts(&mut self, core: &Core) -> Result<Lsn, Error> {
        let Some(parts) = &self.parts else { return Ok(Lsn::ZERO) };
        let end = end_header(core, self.txn, parts.header)?;
        // Release: who finds the transaction ended finds the LSN here.
        self.all.last_commit.fetch_max(end.0, Ordering::Release);
        self.parts = None;
        self.all.locks.end(self.txn);
        Ok(end)
    }

    /// Waits for a row that is locked, on `row_lock`; `stamp` is what it had a moment ago. Callers hold gates only.
    pub(crate) fn wait_for_row(
        &mut self,
        space: SpaceId,
        key: &[u8],
        stamp: Option<Stamp>,
        waits: &Waits,
    ) -> Result<(), Error> {
        self.release_row();
        if self.all.locks.wait(space, key, stamp, self.txn, waits)? && self.parts.is_none() {
            self.row = Some((space, key.to_vec()));
        }
        Ok(())
    }

    /// LOCK-3
    fn release_row(&mut self) {
        if let Some((space, key)) = self.row.take() {
            self.all.locks.release(space, &key, self.txn);
        }
    }

    /// Adds an empty page, in a mini-transaction of its own: one that nobody needs any more, or a new one. May wait on
    /// `log_space`, `free_frame` and `file_growth`; callers hold nothing else.
    pub(crate) fn add_page(&mut self, core: &Core) -> Result<(), Error> {
        let credit = core.log.reserve(NEW_PAGE_REDO, 1)?;
        let (id, page) = match self.all.take_newest_unneeded() {
            // Read if need be: who looks for what was before may be reading it, too. What cannot be read stays where it
            // is until the next open.
            Some(id) => match core.pool.load(id) {
                Ok(pin) => (id, pin.write()),
                Err(Error::Corruption(_)) => core.new_page(SpaceId::UNDO, Share::Undo)?,
                Err(error) => {
                    self.all.put_off(id);
                    return Err(error);
                }
            },
            None => core.new_page(SpaceId::UNDO, Share::Undo)?,
        };
        let mut mtr = Mtr::new(&core.log, [page]);
        mtr.apply(0, id, &PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() })?;
        mtr.commit(credit)?;
        self.kept.pages.push(id);
        Ok(())
    }
}

/// Has a header say that its transaction is active no more. Returns the group's end.
pub(crate) fn end_header(core: &Core, txn: TxnId, header: UndoRef) -> Result<Lsn, Error> {
    let credit = core.log.reserve(HEADER_REDO, 1)?;
    let page = core.pool.load(PageId::new(SpaceId::UNDO, header.page))?.write();
    let id = page.id();
    let mut mtr = Mtr::new(&core.log, [page]);
    let value = record_head(Kind::Header { is_active: false }, txn);
    mtr.apply(0, id, &PageOp::Replace { key: &header.record.to_be_bytes(), value: &value })?;
    mtr.commit(credit)
}

impl Slot<'_> {
    /// Ends the transaction. Returns of how many rows its writer is to see to the purge now, where `most` pages may
    /// wait for it.
    pub(crate) fn end(mut self, most: usize) -> usize {
        self.give_up(most)
    }

    fn give_up(&mut self, most: usize) -> usize {
        if std::mem::replace(&mut self.has_ended, true) {
            return 0;
        }
        self.release_row();
        let mut directory = self.all.directory.lock();
        let txn = self.txn;
        if let Some(Parts { header, records }) = self.parts.take() {
            // It failed. What it has changed is undone before anything of it is given up.
            let pages = self.left.drain(..).chain(self.kept.pages.drain(..)).collect();
            self.marked.clear();
            directory.losers.push_back(Loser { txn, header, records, pages });
            let wakes = directory.is_waiting;
            drop(directory);
            if wakes {
                self.all.work.notify_one();
            }
            return 0;
        }
        directory.active.retain(|active| *active != txn);
        for page in self.marked.drain(..) {
            directory.pages.enqueue(page);
        }
        for page in self.left.drain(..) {
            directory.pages.leave(page);
        }
        let mut kept = std::mem::take(&mut self.kept);
        // What a large batch did not use in the end, others may.
        let surplus = PAGES_KEPT.min(kept.pages.len());
        for page in kept.pages.drain(surplus..) {
            directory.pages.leave(page);
        }
        if kept.undo.capacity() > UNDO_KEPT {
            kept.undo = Vec::new();
        }
        directory.idle.push(kept);
        let waiting = directory.pages.len();
        let owed = directory.purge_debt.left(to_u64(self.marked_rows), to_u64(waiting), to_u64(most));
        let wakes = directory.is_waiting && directory.pages.ready() >= WAKE_AT;
        drop(directory);
        if wakes {
            self.all.work.notify_one();
        }
        to_usize(owed)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.give_up(usize::MAX);
    }
}
