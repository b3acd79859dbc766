//! Row locks: which transactions' rows are in flight, and which transactions wait for them.
//!
//! LOCK-1  A transaction of several groups is in flight from before its first change. It stays so until after its
//!         commit has its place in the log, or until all its changes are undone. A row with its stamp is locked: the
//!         stamp is the lock. A row that is undone has another stamp and is not locked, though some transactions may
//!         still wait for it.
//! LOCK-2  A transaction that finds a row locked waits in the row's line (FIFO), with nothing latched. The oldest
//!         waiter has the lock before it runs; newcomers respect that.
//! LOCK-3  Locks are taken in one order (WRITE-1). A transaction without rows in flight gives up its lock before it
//!         waits for another. So no transactions wait in a circle.
//!
//! A wait ends by the holder's [`Locks::end`] or [`Locks::release`]; by [`Locks::fail`] if the holder's changes cannot
//! be undone; by [`Locks::stop`] if the thread that would undo them is gone, or the log takes no more.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;

use super::commit_table::CommitTable;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::row::Stamp;
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::{WaitClass, Waits};

/// The end of a wait for a row: its lock, or the reason why there is none.
type Answer = Result<(), NoLock>;

/// The reason why a lock is not given up.
#[derive(Clone)]
enum NoLock {
    /// The holder's changes cannot be undone as things are.
    NotUndone(Arc<str>),
    /// No thread is left that would give the lock up.
    Stopped(Arc<str>),
}

impl NoLock {
    #[cold]
    fn error(&self) -> Error {
        match self {
            NoLock::NotUndone(why) => Error::NotUndone(
                format!("the row is locked by a batch that failed and is not undone ({why}): fix the cause (the undo is retried all the time); if that does not help, run `millpond check`").into(),
            ),
            NoLock::Stopped(why) => Error::ReadOnly(
                format!("the row is locked by a batch that no thread will end after an earlier failure ({why}): reopen the database").into(),
            ),
        }
    }
}

/// All row locks of a database.
pub(crate) struct Locks {
    table: Mutex<Table>,
    /// The id of the oldest transaction in flight, plus one; 0: there is none. A thread that sees a row's stamp sees
    /// this value as of that stamp, or a later one: the page's latch is between the two.
    oldest: AtomicU64,
    /// Number of rows in the table.
    rows: AtomicUsize,
    /// Number of transactions that wait in a row's line.
    waiting: AtomicUsize,
    commits: Arc<CommitTable>,
}

/// The rows of one space that a transaction waits for, has been handed, or holds without a stamp.
type SpaceLocks = HashMap<Box<[u8]>, RowLock, FixedState>;

#[derive(Default)]
struct Table {
    in_flight: BTreeSet<TxnId>,
    /// Transactions in flight whose changes cannot be undone, and why.
    failed: HashMap<TxnId, NoLock, FixedState>,
    /// The reason why no lock will be given up any more, if so.
    stopped: Option<NoLock>,
    rows: HashMap<SpaceId, SpaceLocks, FixedState>,
}

struct RowLock {
    holder: TxnId,
    waiters: VecDeque<(TxnId, Arc<Handoff<Answer>>)>,
}

impl RowLock {
    /// Hands the lock to the oldest waiter. False: there is none.
    fn hand_on(&mut self) -> bool {
        match self.waiters.pop_front() {
            Some((next, handoff)) => {
                self.holder = next;
                handoff.give(Ok(()));
                true
            }
            None => false,
        }
    }
}

impl Table {
    fn row(&mut self, space: SpaceId, key: &[u8]) -> Option<&mut RowLock> {
        self.rows.get_mut(&space)?.get_mut(key)
    }

    /// Ends the waits for the rows of these holders, without a lock.
    fn tell(&mut self, why: &NoLock, is_meant: impl Fn(TxnId) -> bool) {
        for row in self.rows.values_mut().flat_map(HashMap::values_mut).filter(|row| is_meant(row.holder)) {
            row.waiters.drain(..).for_each(|(_, handoff)| handoff.give(Err(why.clone())));
        }
    }

    fn remove(&mut self, space: SpaceId, key: &[u8]) {
        if let Some(rows) = self.rows.get_mut(&space) {
            rows.remove(key);
            if rows.is_empty() {
                self.rows.remove(&space);
            }
        }
    }
}

impl Locks {
    pub(super) fn new(commits: Arc<CommitTable>) -> Locks {
        Locks {
            table: Mutex::new(Rank::RowLocks, Table::default()),
            oldest: AtomicU64::default(),
            rows: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            commits,
        }
    }

    fn count(&self, table: &Table) {
        let oldest = table.in_flight.first().map_or(0, |txn| txn.0 + 1);
        // Release: a thread that finds a transaction ended sees what it did before.
        self.oldest.store(oldest, Ordering::Release);
        // Relaxed: a thread that must see it has the latch that the lock's owner had.
        self.rows.store(table.rows.values().map(HashMap::len).sum(), Ordering::Relaxed);
    }

    /// LOCK-1: rows with this transaction's stamp are locked from now on.
    pub(super) fn begin(&self, txn: TxnId) {
        let mut table = self.table.lock();
        table.in_flight.insert(txn);
        self.count(&table);
    }

    /// Whether rows of this transaction are locked. One load if no transaction of several groups is in flight, or only
    /// younger ones are; else a look at the commit table.
    pub(crate) fn is_in_flight(&self, txn: TxnId) -> bool {
        if planted!("row_in_flight_not_locked") {
            return false;
        }
        let oldest = self.oldest.load(Ordering::Acquire);
        oldest != 0 && txn.0 + 1 >= oldest && !self.commits.has_ended(txn)
    }

    /// Whether `txn` must wait for a row with this stamp, which may not exist. Callers have its leaf latched. Two
    /// loads, if nothing is locked.
    pub(crate) fn is_locked(&self, space: SpaceId, key: &[u8], stamp: Option<Stamp>, txn: TxnId) -> bool {
        if stamp.is_some_and(|stamp| stamp.txn != txn && self.is_in_flight(stamp.txn)) {
            return true;
        }
        self.rows.load(Ordering::Relaxed) > 0 && self.table.lock().row(space, key).is_some_and(|row| row.holder != txn)
    }

    /// Locks a row for a transaction in flight that leaves no stamp there. False: another transaction has the lock by
    /// now. Callers have the row's leaf latched.
    #[must_use]
    pub(crate) fn hold(&self, space: SpaceId, key: &[u8], txn: TxnId) -> bool {
        let mut table = self.table.lock();
        let rows = table.rows.entry(space).or_default();
        let lock = rows.entry(key.into()).or_insert_with(|| RowLock { holder: txn, waiters: VecDeque::new() });
        let is_held = lock.holder == txn;
        self.count(&table);
        is_held
    }

    /// Waits in a row's line, on `row_lock`; `stamp` is the stamp that the row had a moment ago. On return the row is
    /// the caller's, or its lock was given up meanwhile: the row is to be looked at again. True: the lock must be
    /// [released](Self::release).
    pub(super) fn wait(
        &self,
        space: SpaceId,
        key: &[u8],
        stamp: Option<Stamp>,
        txn: TxnId,
        waits: &Waits,
    ) -> Result<bool, Error> {
        let handoff = {
            let mut table = self.table.lock();
            let stamped = stamp.map(|stamp| stamp.txn).filter(|holder| table.in_flight.contains(holder));
            let stamped = stamped.filter(|holder| *holder != txn);
            let held = table.row(space, key).map(|row| row.holder);
            // A transaction that was handed the lock may find that another was faster while the row was missing from
            // the table.
            let was_handed = held == Some(txn);
            let Some(holder) = held.filter(|_| !was_handed).or(stamped) else { return Ok(false) };
            if let Some(why) = table.stopped.as_ref().or_else(|| table.failed.get(&holder)) {
                return Err(why.error());
            }
            let handoff = Handoff::new();
            let rows = table.rows.entry(space).or_default();
            let row = rows.entry(key.into()).or_insert_with(|| RowLock { holder, waiters: VecDeque::new() });
            row.holder = holder;
            let waiter = (txn, Arc::clone(&handoff));
            if was_handed {
                row.waiters.push_front(waiter);
            } else {
                row.waiters.push_back(waiter);
            }
            self.count(&table);
            handoff
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let answer = handoff.take_wait(WaitClass::RowLock, waits);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        answer.map_err(|why| why.error()).map(|()| true)
    }

    /// Whether any transaction waits for a row.
    pub(crate) fn is_anybody_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Gives up the lock of a row that the transaction had waited for.
    pub(crate) fn release(&self, space: SpaceId, key: &[u8], txn: TxnId) {
        let mut table = self.table.lock();
        if let Some(row) = table.row(space, key).filter(|row| row.holder == txn)
            && !row.hand_on()
        {
            table.remove(space, key);
        }
        self.count(&table);
    }

    /// LOCK-1: the transaction is committed or undone, and the commit table says so. All its locks go to their oldest
    /// waiters.
    pub(super) fn end(&self, txn: TxnId) {
        let mut table = self.table.lock();
        table.in_flight.remove(&txn);
        table.failed.remove(&txn);
        table.rows.retain(|_, rows| {
            rows.retain(|_, row| row.holder != txn || row.hand_on());
            !rows.is_empty()
        });
        self.count(&table);
    }

    /// Notes that the transaction's changes cannot be undone as things are. Current and later waiters for its rows get
    /// this error until they are undone.
    pub(crate) fn fail(&self, txn: TxnId, why: &str) {
        let mut table = self.table.lock();
        let why = NoLock::NotUndone(why.into());
        table.tell(&why, |holder| holder == txn);
        table.failed.insert(txn, why);
        self.count(&table);
    }

    /// Notes that no thread is left that would undo or end a transaction. Current and later waiters get this error.
    pub(crate) fn stop(&self, why: &str) {
        let mut table = self.table.lock();
        let why = NoLock::Stopped(why.into());
        table.tell(&why, |_| true);
        table.stopped = Some(why);
        self.count(&table);
    }

    /// Number of transactions in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.lock().in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::ids::Lsn;

    /// The locks of a database in which no transaction has ended.
    fn locks() -> Locks {
        let commits = Arc::new(CommitTable::default());
        commits.open(TxnId(1), Lsn(1));
        commits.chunk_to_use(TxnId(9));
        Locks::new(commits)
    }

    /// X is being undone; the row, which it had inserted, is gone already. Z has seen X's stamp there before. Z begins
    /// to wait between W's check and W's hold, which it may, since it has no latch.
    #[test]
    fn holder_of_a_row_lock_has_it_alone() {
        let (locks, waits, space) = (locks(), Waits::new(Duration::from_secs(1)), SpaceId::FIRST);
        let [x, w, z] = [TxnId(1), TxnId(2), TxnId(3)];
        locks.begin(x);
        locks.begin(w);
        assert!(!locks.is_locked(space, b"k", None, w), "W looks: the row is not there");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| locks.wait(space, b"k", Some(Stamp { txn: x, undo: None }), z, &waits));
            while locks.rows.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert!(!locks.hold(space, b"k", w), "Z's turn comes first");
            locks.end(x);
            assert!(waiter.join().expect("no panic").expect("no error"), "Z has it");
            assert!(locks.is_locked(space, b"k", None, w), "and W waits for Z");
            locks.release(space, b"k", z);
            assert!(locks.hold(space, b"k", w));
        });
    }

    #[test]
    fn waiter_for_a_lock_that_never_comes_gets_an_error() {
        let (locks, waits, space) = (locks(), Waits::new(Duration::from_secs(1)), SpaceId::FIRST);
        let [x, z] = [TxnId(1), TxnId(3)];
        let stamp = Some(Stamp { txn: x, undo: None });
        locks.begin(x);
        for stops in [false, true] {
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| locks.wait(space, b"k", stamp, z, &waits));
                while locks.table.lock().rows.values().flat_map(HashMap::values).all(|row| row.waiters.is_empty()) {
                    std::thread::yield_now();
                }
                if stops {
                    locks.stop("the log is gone")
                } else {
                    locks.fail(x, "the disk is full")
                }
                let error = waiter.join().expect("no panic").expect_err("told");
                assert!(
                    error.to_string().contains(if stops { "the log is gone" } else { "the disk is full" }),
                    "{error}"
                );
                assert!(matches!((stops, &error), (true, Error::ReadOnly(_)) | (false, Error::NotUndone(_))));
            });
            assert!(locks.wait(space, b"k", stamp, z, &waits).is_err(), "at once, from now on");
            locks.table.lock().failed.clear();
        }
        locks.end(x);
        assert!(!locks.is_locked(space, b"k", None, z));
    }
}
