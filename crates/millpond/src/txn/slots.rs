//! Slots: which transaction appends to which undo page, which transactions are active, and what purge has to go
//! through.
//!
//! The purge thread's wait ends in four cases: a writer ends a transaction that left enough delete marks or has to be
//! rolled back; the keeper's tick; the keeper has pages to read for merges or to give back; [`Transactions::stop`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::commit_table::{Chunk, CommitTable};
use super::header::{HEADER_REDO, header_ended};
use super::locks::Locks;
use super::purge_queue::{PurgeQueue, Rest};
use super::record::{Kind, record_head};
use super::snapshots::Snapshots;
use super::work::{Loser, Work};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::view::entry_len;
use crate::base::row::{Stamp, UndoRef};
use crate::base::sync::{Condvar, Mutex, Rank};
use crate::base::waits::Waits;
use crate::core::Core;
use crate::mtr::Mtr;
use crate::pace::purge_debt::PurgeDebt;
use crate::redo::credits::LogCredit;
use crate::store::page_store::PageStore;
use crate::store::space::Share;

/// Bytes of redo that a new undo page takes at most.
const NEW_PAGE_REDO: usize = 128;

/// Number of queued undo pages at which a writer wakes purge at once; below that the keeper's tick does.
const WAKE_AT: usize = 4;

/// Pages that are read for merges before the keeper tries these again: more would evict one another from a small pool.
const MERGE_READS: usize = 2;

type Pages = SmallVec<[PageId; 2]>;

/// The resources of a slot.
#[derive(Default)]
struct Kept {
    /// Undo pages: the first is appended to, the others are empty.
    pages: Pages,
    /// Buffer for the changes that lead back.
    undo: Vec<u8>,
    /// The chunk of the commit table in which the last transaction was: mostly that of the next one.
    chunk: Option<Arc<Chunk>>,
}

/// Number of undo pages that an idle slot keeps.
const PAGES_KEPT: usize = 2;

/// Bytes of the buffer that an idle slot keeps.
const UNDO_KEPT: usize = 16 << 10;

/// All transactions of a database.
pub(crate) struct Transactions {
    directory: Mutex<Directory>,
    /// The purge thread waits here for work.
    work: Condvar,
    pub(crate) commits: Arc<CommitTable>,
    pub(crate) snapshots: Snapshots,
    /// Row locks.
    pub(crate) locks: Locks,
    /// Number of rows that purge has removed.
    pub(crate) purged_rows: AtomicU64,
    /// Number of transactions of several groups that were undone.
    pub(crate) rollbacks: AtomicU64,
}

impl Transactions {
    /// No transaction yet; snapshots older than `max_snapshot_age` end.
    pub(crate) fn new(max_snapshot_age: Option<Duration>) -> Transactions {
        let commits = Arc::new(CommitTable::default());
        let snapshots = Snapshots::new(Arc::clone(&commits));
        snapshots.set_max_age(max_snapshot_age);
        Transactions {
            directory: Mutex::new(Rank::Transactions, Directory::default()),
            work: Condvar::default(),
            locks: Locks::new(Arc::clone(&commits)),
            snapshots,
            commits,
            purged_rows: AtomicU64::default(),
            rollbacks: AtomicU64::default(),
        }
    }
}

#[derive(Default)]
struct Directory {
    /// Slots that no transaction has. A new transaction takes the last one used.
    idle: Vec<Kept>,
    /// The chunk of the commit table for the next ids.
    chunk: Option<Arc<Chunk>>,
    pages: PurgeQueue,
    purge_debt: PurgeDebt,
    /// Pages that are no longer needed, and must be read before they can be given back.
    cold: Vec<PageId>,
    /// The last work of the purge thread was the read of such a page.
    has_read: bool,
    /// Pages to read that the keeper wants to merge, or to merge others with.
    cold_merges: VecDeque<PageId>,
    /// Number of `cold_merges` that may be read before the keeper has tried to merge again.
    merge_reads: usize,
    /// Transactions whose changes are to be undone.
    losers: VecDeque<Loser>,
    /// Losers that could not be undone so far: retried after the keeper's tick.
    losers_later: Vec<Loser>,
    is_waiting: bool,
    stop: bool,
}

impl Transactions {
    /// Begins a transaction. Fails when there are no more ids.
    pub(crate) fn begin(&self, store: &PageStore) -> Result<Slot<'_>, Error> {
        let mut directory = self.directory.lock();
        let txn = self.next_id(&mut directory, store)?;
        let mut kept = directory.idle.pop().unwrap_or_default();
        if kept.chunk.as_ref().is_none_or(|chunk| chunk.number() != Chunk::number_of(txn)) {
            kept.chunk.clone_from(&directory.chunk);
        }
        let (marked, left) = (SmallVec::new(), SmallVec::new());
        Ok(Slot { all: self, txn, kept, marked, marked_rows: 0, left, parts: None, row: None, has_ended: false })
    }

    /// Gives out the next id, which is in flight until it is ended (COMMIT-3). Afterwards the directory has its chunk
    /// of the commit table.
    fn next_id(&self, directory: &mut Directory, store: &PageStore) -> Result<TxnId, Error> {
        let txn = store.next_txn()?;
        if directory.chunk.as_ref().is_none_or(|chunk| chunk.number() != Chunk::number_of(txn)) {
            directory.chunk = Some(self.commits.chunk_to_use(txn));
        }
        Ok(txn)
    }

    /// Gives out an id for chunks of values only, and ends it: no row ever has it in its stamp.
    pub(crate) fn id_without_rows(&self, store: &PageStore) -> Result<TxnId, Error> {
        let mut directory = self.directory.lock();
        let txn = self.next_id(&mut directory, store)?;
        if let Some(chunk) = directory.chunk.as_ref().filter(|_| !planted!("load_id_never_ends")) {
            chunk.end(txn);
        }
        Ok(txn)
    }

    /// Begins at the ids that this process gives out, after the redo. The log ends at `log_end`.
    pub(crate) fn open(&self, store: &PageStore, log_end: Lsn) {
        self.commits.open(store.txn_to_come(), log_end);
    }

    /// The oldest transaction that is active (TXN-1), or not visible to each live snapshot; if there is none, the next
    /// to begin.
    pub(crate) fn oldest(&self) -> TxnId {
        self.commits.floor(self.snapshots.horizon())
    }

    /// Whether a transaction has ended, and a snapshot does not see it.
    fn is_kept(&self, txn: TxnId) -> bool {
        self.commits.has_ended(txn) && !self.commits.is_visible_at(txn, self.snapshots.horizon())
    }

    /// Queues the undo pages that existed when the database was opened.
    pub(crate) fn adopt(&self, pages: impl IntoIterator<Item = PageId>) {
        let mut directory = self.directory.lock();
        for id in pages {
            directory.pages.enqueue(id);
            directory.pages.leave(id, Lsn::ZERO);
        }
    }

    /// Takes over the transactions that were active when the process ended; [`adopt`](Self::adopt) gets the other
    /// pages.
    pub(crate) fn adopt_losers(&self, losers: Vec<Loser>) {
        let mut directory = self.directory.lock();
        for loser in losers {
            self.commits.add_loser(loser.txn);
            self.locks.begin(loser.txn);
            directory.losers.push_back(loser);
        }
    }

    /// Takes the next loser.
    pub(crate) fn take_loser(&self) -> Option<Loser> {
        self.directory.lock().losers.pop_front()
    }

    /// Fails once purge is to end.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match self.directory.lock().stop {
            true => Err(Error::Closed("the database is being closed: the next open goes on".into())),
            false => Ok(()),
        }
    }

    /// Ends a loser: all its changes are undone, and its header says so.
    pub(crate) fn undone(&self, loser: Loser) {
        self.commits.end_loser(loser.txn);
        self.locks.end(loser.txn);
        self.rollbacks.fetch_add(1, Ordering::Relaxed);
        let mut directory = self.directory.lock();
        for page in loser.pages {
            // Purge has to look at the delete marks that the rollback restored.
            directory.pages.enqueue(page);
            directory.pages.leave(page, self.commits.last_visible());
        }
    }

    /// Puts off a loser whose changes could not be undone; it is retried later.
    pub(crate) fn put_off_loser(&self, loser: Loser) {
        self.directory.lock().losers_later.push(loser);
    }

    /// Looks at snapshots, queues pages and losers again that were put off, and wakes purge if it has work. For the
    /// keeper.
    pub(crate) fn wake_purge(&self) {
        self.snapshots.tick();
        let wakes = {
            let mut guard = self.directory.lock();
            let directory = &mut *guard;
            directory.pages.look_again(|| self.oldest(), |txn| self.is_kept(txn));
            // So that no writer has to make it.
            if let Some(chunk) = &directory.chunk {
                self.commits.chunk_numbered(chunk.number() + 1);
            }
            directory.losers.extend(directory.losers_later.drain(..));
            let is_idle = directory.pages.ready() == 0 && directory.cold.is_empty() && directory.losers.is_empty();
            directory.is_waiting && !is_idle
        };
        if wakes {
            self.work.notify_one();
        }
    }

    /// Waits for the next work of the purge thread. `None`: the thread is to end.
    pub(crate) fn next_work(&self) -> Option<Work> {
        let mut directory = self.directory.lock();
        loop {
            if directory.stop {
                return None;
            }
            if let Some(loser) = directory.losers.pop_front() {
                return Some(Work::RollBack(loser));
            }
            // In turns with purge: when a long snapshot ends, there may be many.
            if (!directory.has_read || directory.pages.ready() == 0)
                && let Some(id) = directory.cold.pop()
            {
                directory.has_read = true;
                return Some(Work::Read(id));
            }
            directory.has_read = false;
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

    /// Takes a page for a writer to go through (PURGE-1), with the number of its first record to look at.
    pub(crate) fn take_queued(&self) -> Option<(PageId, usize)> {
        let mut guard = self.directory.lock();
        let directory = &mut *guard;
        if directory.stop {
            return None;
        }
        directory.pages.take_any(|| self.oldest())
    }

    /// Puts back a page that the caller went through up to record `purged`.
    pub(crate) fn purged(&self, id: PageId, purged: usize, rest: Rest) {
        let rest = match rest {
            Rest::HeldBack(txn) if self.is_kept(txn) => Rest::Kept(txn),
            other => other,
        };
        self.directory.lock().pages.put_back(id, purged, rest);
    }

    /// Notes that a writer that owed the purge of `owed` rows has seen to `done`.
    pub(crate) fn has_purged(&self, owed: usize, done: usize) {
        self.directory.lock().purge_debt.paid(to_u64(owed), to_u64(done));
    }

    /// Notes that a page that is to be given back is in memory now.
    pub(crate) fn read(&self, id: PageId) {
        self.directory.lock().pages.unneeded.push_back(id);
    }

    /// Asks purge to read a page that the keeper wants for a merge.
    pub(crate) fn want_merge_read(&self, id: PageId) {
        self.directory.lock().cold_merges.push_back(id);
    }

    /// Allows the next few reads for merges: the keeper is about to merge the pages that are in memory.
    pub(crate) fn allow_merge_reads(&self) {
        let mut directory = self.directory.lock();
        directory.merge_reads = MERGE_READS;
        let wakes = directory.is_waiting && !directory.cold_merges.is_empty();
        drop(directory);
        if wakes {
            self.work.notify_one();
        }
    }

    /// Asks purge to read a page that is to be given back.
    pub(crate) fn want_read(&self, id: PageId) {
        self.directory.lock().cold.push(id);
        self.work.notify_one();
    }

    /// Takes a page that is no longer needed, if there are more than `keep`.
    pub(crate) fn take_unneeded(&self, keep: usize) -> Option<PageId> {
        let mut directory = self.directory.lock();
        directory.pages.reap(|| self.snapshots.horizon());
        let unneeded = &mut directory.pages.unneeded;
        if unneeded.len() > keep { unneeded.pop_front() } else { None }
    }

    /// Takes the page that was needed last: mostly it is still in memory.
    fn take_newest_unneeded(&self) -> Option<PageId> {
        let mut directory = self.directory.lock();
        directory.pages.reap(|| self.snapshots.horizon());
        directory.pages.unneeded.pop_back()
    }

    /// Puts back a page that could not be given back yet.
    pub(crate) fn put_off(&self, id: PageId) {
        self.directory.lock().pages.unneeded.push_back(id);
    }

    /// Number of undo pages that snapshots keep.
    pub(crate) fn kept_pages(&self) -> usize {
        self.directory.lock().pages.kept()
    }

    /// Number of undo pages that purge has to go through.
    pub(crate) fn purge_pages(&self) -> usize {
        self.directory.lock().pages.len()
    }

    /// Ends purge.
    pub(crate) fn stop(&self) {
        self.directory.lock().stop = true;
        self.work.notify_one();
    }
}

/// A transaction under way, with the undo pages that are its own meanwhile.
pub(crate) struct Slot<'t> {
    all: &'t Transactions,
    txn: TxnId,
    kept: Kept,
    /// Pages in which the transaction left records with delete marks.
    marked: Pages,
    /// Number of rows with delete marks.
    marked_rows: usize,
    /// Pages that the slot has left.
    left: Pages,
    /// The records of a transaction of several groups; `None`: the transaction has one group.
    parts: Option<Parts>,
    /// A row lock obtained by a wait, of a transaction with nothing in flight.
    row: Option<(SpaceId, Vec<u8>)>,
    has_ended: bool,
}

/// The undo records of a transaction of several groups.
struct Parts {
    header: UndoRef,
    records: Vec<UndoRef>,
}

impl Slot<'_> {
    pub(crate) fn txn(&self) -> TxnId {
        self.txn
    }

    /// The pages to append to, in order.
    pub(crate) fn pages(&self) -> &[PageId] {
        &self.kept.pages
    }

    /// Buffer for the changes that lead back.
    pub(crate) fn undo(&mut self) -> &mut Vec<u8> {
        &mut self.kept.undo
    }

    /// Leaves page `index`: it is full, or not in memory.
    pub(crate) fn leave(&mut self, index: usize) {
        self.left.push(self.kept.pages.remove(index));
    }

    /// The kind of the next record, which follows `others` records that are not appended yet.
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

    /// Notes appended records: for each the index of its page, its number, and the number of its rows that purge has to
    /// look at. All pages but the last are full.
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
        // It starts without a row lock (LOCK-3).
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

    /// Logs the group that commits the transaction (COMMIT-1, COMMIT-2). Returns its end, the CommitTs.
    pub(crate) fn commit(&self, mtr: Mtr<'_>, credit: LogCredit<'_>) -> Result<Lsn, Error> {
        let order = |end| {
            if let Some(chunk) = &self.kept.chunk {
                chunk.commit(self.txn, end);
            }
        };
        mtr.commit_in_order(credit, order, |end| self.all.commits.show(end))
    }

    /// Commits a transaction of several groups. Returns the group's end. May wait on `log_space`, `page_read` and
    /// `free_frame`.
    pub(crate) fn commit_parts(&mut self, core: &Core) -> Result<Lsn, Error> {
        let Some(parts) = &self.parts else { return Ok(Lsn::ZERO) };
        let (mtr, credit) = header_ended(core, self.txn, parts.header)?;
        let end = self.commit(mtr, credit)?;
        self.parts = None;
        self.all.locks.end(self.txn);
        Ok(end)
    }

    /// Waits for a locked row, on `row_lock`; `stamp` is the stamp that the row had a moment ago. Callers hold gates
    /// only.
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

    /// LOCK-3: gives up the lock of a row that the transaction had waited for.
    fn release_row(&mut self) {
        if let Some((space, key)) = self.row.take() {
            self.all.locks.release(space, &key, self.txn);
        }
    }

    /// Adds an empty page, one that is no longer needed or a new one, in a mini-transaction of its own. May wait on
    /// `log_space`, `page_read`, `free_frame` and `file_growth`; callers hold nothing else.
    pub(crate) fn add_page(&mut self, core: &Core) -> Result<(), Error> {
        let credit = core.log.reserve(NEW_PAGE_REDO, 1)?;
        let (id, page) = match self.all.take_newest_unneeded() {
            // Read if need be: a reader of earlier rows may be reading the page, too. An unreadable page stays where it
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

impl Slot<'_> {
    /// Ends the transaction. Returns how many rows its writer is to purge now, where `most` undo pages may wait for
    /// purge.
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
            // The transaction failed. Its changes are undone before any of its pages are given up.
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
        if let Some(chunk) = &self.kept.chunk {
            chunk.end(txn);
        }
        for page in self.marked.drain(..) {
            directory.pages.enqueue(page);
        }
        let visible = self.all.commits.last_visible();
        for page in self.left.drain(..) {
            directory.pages.leave(page, visible);
        }
        let mut kept = std::mem::take(&mut self.kept);
        // A large batch's unused pages are left to others.
        let surplus = PAGES_KEPT.min(kept.pages.len());
        for page in kept.pages.drain(surplus..) {
            directory.pages.leave(page, visible);
        }
        if kept.undo.capacity() > UNDO_KEPT {
            kept.undo = Vec::new();
        }
        directory.idle.push(kept);
        // What a snapshot keeps is no debt: no writer can pay it.
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
