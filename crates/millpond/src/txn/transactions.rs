//! All transactions of a database: their ids, the undo pages that no slot has, and what purge has to go through.
//!
//! The purge thread's wait ends in four cases: a writer ends a transaction that left enough delete marks or has to be
//! rolled back; the keeper's tick; the keeper has pages to read for merges or to give back; [`Transactions::stop`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::commit_table::{Chunk, CommitTable};
use super::locks::Locks;
use super::purge_queue::{PurgeQueue, Rest};
use super::snapshots::Snapshots;
use super::work::{Loser, Work};
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, TxnId};
use crate::base::sync::{Condvar, Mutex, Rank};
use crate::pace::purge_debt::PurgeDebt;
use crate::store::page_store::PageStore;

/// Number of queued undo pages at which a writer wakes purge at once; below that the keeper's tick does.
pub(super) const WAKE_AT: usize = 4;

/// Pages that are read for merges before the keeper tries these again: more would evict one another from a small pool.
const MERGE_READS: usize = 2;

/// An undo page of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnPage {
    pub(crate) id: PageId,
    /// Number of changes in its records that readers may follow.
    pub(super) changes: i64,
}

/// The resources of a slot.
#[derive(Default)]
pub(super) struct Kept {
    /// Undo pages: the first is appended to, the others are empty.
    pub(super) pages: SmallVec<[OwnPage; 2]>,
    /// Buffer for the changes that lead back.
    pub(super) undo: Vec<u8>,
    /// The chunk of the commit table in which the last transaction was: mostly that of the next one.
    pub(super) chunk: Option<Arc<Chunk>>,
}

/// Changes of an undo page whose number is not known: they are never all cut out.
const UNKNOWN: i64 = i64::MAX / 2;

/// All transactions of a database.
pub(crate) struct Transactions {
    pub(super) directory: Mutex<Directory>,
    /// The purge thread waits here for work.
    pub(super) work: Condvar,
    pub(crate) commits: Arc<CommitTable>,
    pub(crate) snapshots: Snapshots,
    /// Row locks.
    pub(crate) locks: Locks,
    /// Number of rows that purge has removed.
    pub(crate) purged_rows: AtomicU64,
    /// Number of batches that were written in parts.
    pub(crate) wide_batches: AtomicU64,
    /// Number of transactions of several groups that were undone.
    pub(crate) rollbacks: AtomicU64,
    /// Number of transactions that keep what their commit needs.
    pub(super) kept_ready: AtomicUsize,
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
            wide_batches: AtomicU64::default(),
            rollbacks: AtomicU64::default(),
            kept_ready: AtomicUsize::default(),
        }
    }
}

#[derive(Default)]
pub(super) struct Directory {
    /// Slots that no transaction has. A new transaction takes the last one used.
    pub(super) idle: Vec<Kept>,
    /// The chunk of the commit table for the next ids.
    pub(super) chunk: Option<Arc<Chunk>>,
    pub(super) pages: PurgeQueue,
    pub(super) purge_debt: PurgeDebt,
    /// Pages that are no longer needed, and must be read before they can be given back.
    cold: Vec<PageId>,
    /// The last work of the purge thread was the read of such a page.
    has_read: bool,
    /// Pages to read that the keeper wants to merge, or to merge others with.
    cold_merges: VecDeque<PageId>,
    /// Number of `cold_merges` that may be read before the keeper has tried to merge again.
    merge_reads: usize,
    /// Transactions whose changes are to be undone.
    pub(super) losers: VecDeque<Loser>,
    /// Losers that could not be undone so far: retried after the keeper's tick.
    losers_later: Vec<Loser>,
    pub(super) is_waiting: bool,
    stop: bool,
}

impl Transactions {
    /// Gives out the next id, which is in flight until it is ended (COMMIT-3). Afterwards the directory has its chunk
    /// of the commit table.
    pub(super) fn next_id(&self, directory: &mut Directory, store: &PageStore) -> Result<TxnId, Error> {
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

    /// Queues the undo pages that existed when the database was opened.
    pub(crate) fn adopt(&self, pages: impl IntoIterator<Item = PageId>) {
        let mut directory = self.directory.lock();
        for id in pages {
            directory.pages.enqueue(id);
            directory.pages.leave(id, Lsn::ZERO, 0);
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

    /// Has purge undo a transaction that its own thread could not undo.
    pub(crate) fn give_to_purge(&self, loser: Loser) {
        let mut directory = self.directory.lock();
        directory.losers.push_back(loser);
        let wakes = directory.is_waiting;
        drop(directory);
        if wakes {
            self.work.notify_one();
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
            directory.pages.leave(page, self.commits.last_visible(), UNKNOWN);
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
            directory.pages.look_again(|txn| self.commits.has_ended(txn), |at| self.snapshots.is_live(at));
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
        directory.pages.take_any(|txn| self.commits.has_ended(txn))
    }

    /// Puts back a page that the caller went through up to record `purged`; `pinned_by` is the latest snapshot that
    /// kept one of its rows.
    pub(crate) fn purged(&self, id: PageId, purged: usize, rest: Rest, pinned_by: Option<Lsn>) {
        self.directory.lock().pages.put_back(id, purged, rest, pinned_by);
    }

    /// Notes that no reader follows these changes any more: one in each of the undo pages, which had the LSN at that
    /// time.
    pub(crate) fn cut_out(&self, changes: &[(PageId, Lsn)]) {
        let mut directory = self.directory.lock();
        changes.iter().for_each(|(id, seen)| directory.pages.cut_out(*id, *seen));
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
    pub(super) fn take_newest_unneeded(&self) -> Option<PageId> {
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
