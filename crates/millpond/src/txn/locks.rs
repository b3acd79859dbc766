//! Row locks: which transactions' rows are in flight, and which transactions wait for them.
//!
//! LOCK-1  A transaction of several groups is in flight from before its first change. It stays so until after its
//!         commit has its place in the log, or until all its changes are undone. A row with its stamp is locked: the
//!         stamp is the lock. A row that is undone has another stamp and is not locked by one, though some transactions
//!         may still wait for it. All other locks are in the [table](super::lock_table): those of rows that were only
//!         read, of absent keys, and of whole trees.
//! LOCK-2  A transaction that finds a row locked waits in the row's line (FIFO), with nothing latched. The oldest
//!         waiter has the lock before it runs; newcomers respect that.
//! LOCK-3  Batches take locks in one order (WRITE-1). A transaction of one group gives up its lock before it waits for
//!         another. So batches alone never wait in a circle. Transactions of statements may
//!         ([LOCK-4](super::lock_table)).
//!
//! LOCK-5  A thread that waits for a row has entered no gate of a tree or table, or its transaction has an intent on
//!         each tree and table that it has entered: a shared lock of the whole. A thread that drops a tree, or changes
//!         a table's list of indexes, first has the exclusive lock. So it waits at a gate only for threads that wait
//!         for no row, and all other waits for transactions are in the table, where circles are found.
//!
//! A wait ends by the holder's [`Locks::end`] or [`Locks::release`]; by an error for one member of a circle, for a
//! transaction that is [cancelled](Locks::cancel), or that has waited for as long as it wants; by [`Locks::fail`] if
//! the holder's changes cannot be undone; by [`Locks::stop`] if the thread that would undo them is gone, or the log
//! takes no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytesize::ByteSize;

use super::commit_table::CommitTable;
use super::lock_table::{Circle, LockTable, Mode, NoLock, Place, Waiter, Waiting};
use crate::base::aligned::to_u64;
use crate::base::clock::{self, nanos};
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::row::Stamp;
use crate::base::sync::{Mutex, MutexGuard, Rank};
use crate::base::waits::{WaitClass, Waits};

/// All row locks of a database.
pub(crate) struct Locks {
    table: Mutex<LockTable>,
    /// The id of the oldest transaction in flight, plus one; 0: there is none. A thread that sees a row's stamp sees
    /// this value as of that stamp, or a later one: the page's latch is between the two.
    oldest: AtomicU64,
    /// Number of rows in the table.
    rows: AtomicUsize,
    /// Number of transactions that wait in a line.
    waiting: AtomicUsize,
    deadlocks: AtomicU64,
    commits: Arc<CommitTable>,
}

/// The time for which a wait for a lock lasts if nothing else is said: that of InnoDB.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(50);

/// The exclusive lock of a whole tree or table (LOCK-5), until dropped.
#[must_use]
pub(crate) struct Claim<'l> {
    locks: &'l Locks,
    txn: TxnId,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.locks.end(self.txn);
    }
}

/// The outcome of [`Locks::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The lock is held; this is how it was held before.
    Held(Option<Mode>),
    /// Another transaction has the lock by now.
    OfAnother,
    /// The locks of all transactions take as much memory as they may.
    TooMany,
}

/// How a transaction waits for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) mode: Mode,
    /// The time at which the wait ends, in ns of the clock; `None`: the default time later. 0: no wait begins.
    pub(crate) until_ns: Option<u64>,
    /// For a transaction of statements, which may be the victim of a deadlock: the number of its changes.
    pub(crate) written: Option<u64>,
    /// Its priority: of a circle a transaction with the lowest one is the victim.
    pub(crate) priority: u8,
    /// Another thread has cancelled the statement.
    pub(crate) cancelled: Option<Arc<AtomicBool>>,
}

impl Patience {
    /// That of a batch.
    pub(crate) const BATCH: Patience =
        Patience { mode: Mode::Exclusive, until_ns: None, written: None, priority: 0, cancelled: None };

    fn is_cancelled(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled.load(Ordering::Acquire))
    }
}

/// The least bytes that row locks may take before reads lock no more.
const LOCK_MEMORY_MIN: usize = 1 << 20;

/// Bytes that row locks may take before reads lock no more, with a pool of so many bytes. (InnoDB keeps locks in its
/// pool, and fails when they leave too little of it for pages.)
pub(crate) fn lock_memory_max(pool_bytes: usize) -> usize {
    LOCK_MEMORY_MIN.max(pool_bytes / 8)
}

/// The error for [`Hold::TooMany`].
#[cold]
pub(crate) fn too_many_locks(most: usize) -> Error {
    let most = ByteSize::b(to_u64(most));
    let message = format!(
        "the locks of rows take {most}, an eighth of the buffer pool or the least that is allowed: end transactions that have locked many rows, lock fewer rows at a time, or raise buffer_pool_size"
    );
    Error::TooManyLocks(message.into())
}

impl Locks {
    pub(super) fn new(commits: Arc<CommitTable>) -> Locks {
        Locks {
            table: Mutex::new(Rank::RowLocks, LockTable::default()),
            oldest: AtomicU64::default(),
            rows: AtomicUsize::default(),
            waiting: AtomicUsize::default(),
            deadlocks: AtomicU64::default(),
            commits,
        }
    }

    /// Runs `change` on the table, and notes its figures.
    fn with<T>(&self, change: impl FnOnce(&mut LockTable) -> T) -> T {
        let mut table = self.table.lock();
        let done = change(&mut table);
        self.count(&table);
        done
    }

    fn count(&self, table: &MutexGuard<'_, LockTable>) {
        let oldest = table.in_flight.first().map_or(0, |txn| txn.0 + 1);
        // Release: a thread that finds a transaction ended sees what it did before.
        self.oldest.store(oldest, Ordering::Release);
        // Relaxed: a thread that must see it has the latch that the lock's owner had.
        self.rows.store(table.rows(), Ordering::Relaxed);
        self.waiting.store(table.waiting.len(), Ordering::Relaxed);
    }

    /// Notes a transaction of statements.
    pub(super) fn begin_statements(&self, txn: TxnId) {
        self.with(|table| _ = table.of_statements.insert(txn));
    }

    /// Whether a transaction waits for a lock.
    pub(crate) fn is_waiting(&self, txn: TxnId) -> bool {
        self.table.lock().waiting.contains_key(&txn)
    }

    /// The last circles of waiting transactions, the newest first.
    pub(crate) fn circles(&self) -> Vec<Circle> {
        self.table.lock().circles.iter().cloned().collect()
    }

    /// Number of circles so far.
    pub(crate) fn deadlocks(&self) -> u64 {
        self.deadlocks.load(Ordering::Relaxed)
    }

    /// The database is being closed. Current and later waiters for a transaction of statements get an error: its thread
    /// may come back only after the close.
    pub(crate) fn close(&self) {
        self.with(|table| {
            table.is_closing = true;
            table.tell(&NoLock::Closing, |table, holder| table.of_statements.contains(&holder));
            // These, too: a later waiter for what they would get might wait for ever.
            let waiting: Vec<TxnId> =
                table.waiting.keys().filter(|txn| table.of_statements.contains(*txn)).copied().collect();
            waiting.into_iter().for_each(|txn| _ = table.refuse(txn, Some(NoLock::Closing)));
        });
    }

    /// LOCK-1: rows with this transaction's stamp are locked from now on.
    pub(super) fn begin(&self, txn: TxnId) {
        self.with(|table| _ = table.in_flight.insert(txn));
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

    /// Whether `txn` must wait for a row with this stamp, which may not exist, to lock it in this mode. Callers have
    /// its leaf latched. Two loads, if nothing is locked.
    pub(crate) fn is_locked(&self, space: SpaceId, key: &[u8], stamp: Option<Stamp>, txn: TxnId, mode: Mode) -> bool {
        if stamp.is_some_and(|stamp| stamp.txn != txn && self.is_in_flight(stamp.txn)) {
            return true;
        }
        self.rows.load(Ordering::Relaxed) > 0
            && self.table.lock().row(space, key).is_some_and(|row| row.blocks(txn, mode))
    }

    /// Locks a row for a transaction that leaves no stamp there, unless all such locks take `most` bytes already.
    /// Callers have the row's leaf latched.
    #[must_use]
    pub(crate) fn hold(&self, space: SpaceId, key: &[u8], txn: TxnId, mode: Mode, most: usize) -> Hold {
        self.with(|table| {
            let lock = table.row(space, key);
            if lock.is_some_and(|lock| lock.blocks(txn, mode)) {
                return Hold::OfAnother;
            }
            let before = lock.and_then(|lock| lock.mode_of(txn));
            if before.is_none() && table.bytes() >= most {
                return Hold::TooMany;
            }
            table.hold(&Place::row(space, key), txn, mode);
            Hold::Held(before)
        })
    }

    /// How a transaction holds a row in the table.
    pub(crate) fn mode_of(&self, space: SpaceId, key: &[u8], txn: TxnId) -> Option<Mode> {
        if self.rows.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.table.lock().row(space, key).and_then(|lock| lock.mode_of(txn))
    }

    /// Gives up what a [`hold`](Self::hold) in this mode has added to what the transaction held `before`.
    pub(crate) fn let_go(&self, space: SpaceId, key: &[u8], txn: TxnId, mode: Mode, before: Option<Mode>) {
        if before != Some(mode) {
            self.with(|table| table.go_back(&Place::row(space, key), txn, mode, before));
        }
    }

    /// Waits in a row's line, on `row_lock`; `stamp` is the stamp that the row had a moment ago. On return the row is
    /// the caller's, or its lock was given up meanwhile: the row is to be looked at again. True: the lock must be
    /// [released](Self::release).
    pub(super) fn wait(
        &self,
        (space, key): (SpaceId, &[u8]),
        stamp: Option<Stamp>,
        txn: TxnId,
        patience: &Patience,
        waits: &Waits,
    ) -> Result<bool, Error> {
        let place = Place::row(space, key);
        let stamped = stamp.map(|stamp| stamp.txn).filter(|holder| *holder != txn);
        self.line_up(place, stamped, txn, patience, WaitClass::RowLock, waits)
    }

    /// LOCK-5: notes that a transaction uses a tree or table, that of the rows in `space`. May wait on `metadata` for a
    /// thread that drops or changes it. Callers have entered no gate, unless the transaction has intents on all that
    /// they have entered.
    pub(super) fn intend(&self, space: SpaceId, txn: TxnId, patience: &Patience, waits: &Waits) -> Result<(), Error> {
        let patience = Patience { mode: Mode::Shared, ..patience.clone() };
        self.line_up(Place { space, key: None }, None, txn, &patience, WaitClass::Metadata, waits).map(drop)
    }

    /// LOCK-5: keeps transactions from a tree or table, that of the rows in `space`, until the claim is dropped. `txn`
    /// is an id without rows. Waits on `metadata` until those that use it have ended, but 50 s at most. Callers hold no
    /// turn that a statement may wait for.
    pub(crate) fn claim(&self, space: SpaceId, txn: TxnId, waits: &Waits) -> Result<Claim<'_>, Error> {
        if planted!("intents_not_waited_for") {
            return Ok(Claim { locks: self, txn });
        }
        let until_ns = Some(clock::now_ns().saturating_add(nanos(LOCK_TIMEOUT)));
        let patience = Patience { until_ns, ..Patience::BATCH };
        self.line_up(Place { space, key: None }, None, txn, &patience, WaitClass::Metadata, waits)?;
        Ok(Claim { locks: self, txn })
    }

    /// Waits in the line of a place that `stamped` may hold by a stamp. False: there is nothing to wait for. The lock
    /// of a whole tree is the caller's in any case.
    fn line_up(
        &self,
        place: Place,
        stamped: Option<TxnId>,
        txn: TxnId,
        patience: &Patience,
        class: WaitClass,
        waits: &Waits,
    ) -> Result<bool, Error> {
        let handoff = self.with(|table| {
            if let Some(holder) = stamped.filter(|holder| table.in_flight.contains(holder))
                // The stamp may have gone meanwhile. Then others may have the row, and it must not come between them.
                && table.lock(&place).is_none_or(|lock| lock.is_held_by(holder) || !lock.blocks(txn, patience.mode))
            {
                table.hold(&place, holder, Mode::Exclusive);
            }
            if table.lock(&place).is_none_or(|lock| !lock.blocks(txn, patience.mode)) {
                if place.key.is_none() {
                    table.hold(&place, txn, patience.mode);
                }
                return Ok(None);
            }
            if let Some(why) = table.in_vain(&place, txn) {
                return Err(why);
            }
            if patience.is_cancelled() {
                return Err(NoLock::Cancelled);
            }
            if patience.until_ns == Some(0) {
                return Err(NoLock::TooLate);
            }
            let handoff = Handoff::new();
            let waiter = Waiter { txn, mode: patience.mode, handoff: Arc::clone(&handoff) };
            let cost = patience.written.map(|written| (patience.priority, written));
            table.queue(waiter, Waiting { place, cost });
            loop {
                let circle = table.circle(txn);
                if circle.is_empty() || planted!("deadlocks_not_found") {
                    return Ok(Some(handoff));
                }
                let victim = table.victim(&circle);
                table.note_circle(&circle, victim.unwrap_or(txn));
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                match victim {
                    Some(victim) if victim != txn => _ = table.refuse(victim, Some(NoLock::Deadlock)),
                    _ => {
                        table.leave(txn);
                        return Err(NoLock::Deadlock);
                    }
                }
            }
        });
        let Some(handoff) = handoff.map_err(|why| why.error())? else { return Ok(false) };
        let answer = match patience.until_ns {
            None => handoff.take_wait(class, waits),
            Some(until_ns) => match handoff.take_wait_by(until_ns, class, waits) {
                Some(answer) => answer,
                // Too late, unless the answer came meanwhile.
                None if self.with(|table| table.leave(txn)) => Err(NoLock::TooLate),
                None => handoff.take_wait(class, waits),
            },
        };
        answer.map_err(|why| why.error()).map(|()| true)
    }

    /// Ends the wait of a transaction that another thread wants to go on without the lock. Nothing happens if it does
    /// not wait.
    pub(crate) fn cancel(&self, txn: TxnId) {
        self.with(|table| _ = table.refuse(txn, Some(NoLock::Cancelled)));
    }

    /// Whether any transaction waits for a row.
    pub(crate) fn is_anybody_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Gives up the lock of a row that the transaction had waited for.
    pub(crate) fn release(&self, space: SpaceId, key: &[u8], txn: TxnId) {
        self.with(|table| table.release(&Place::row(space, key), txn));
    }

    /// LOCK-1: the transaction is committed, and the commit table says so. Its stamps are no locks any more; it keeps
    /// those in the table.
    pub(super) fn commit(&self, txn: TxnId) {
        self.with(|table| _ = table.in_flight.remove(&txn));
    }

    /// LOCK-1: the transaction is committed or undone, and the commit table says so. All its locks go to their oldest
    /// waiters.
    pub(super) fn end(&self, txn: TxnId) {
        self.with(|table| table.end(txn));
    }

    /// Notes that the transaction's changes cannot be undone as things are. Current and later waiters for its rows get
    /// this error until they are undone.
    pub(crate) fn fail(&self, txn: TxnId, why: &str) {
        let why = NoLock::NotUndone(why.into());
        self.with(|table| {
            table.tell(&why, |_, holder| holder == txn);
            table.failed.insert(txn, why);
        });
    }

    /// Notes that no thread is left that would undo or end a transaction. Current and later waiters get this error.
    pub(crate) fn stop(&self, why: &str) {
        let why = NoLock::Stopped(why.into());
        self.with(|table| {
            table.tell(&why, |_, _| true);
            table.stopped = Some(why);
        });
    }

    /// Whether a transaction of statements has not ended.
    pub(crate) fn has_statements(&self) -> bool {
        !self.table.lock().of_statements.is_empty()
    }

    /// Number of transactions in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.lock().in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::Lsn;

    const X: Mode = Mode::Exclusive;

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
        assert!(!locks.is_locked(space, b"k", None, w, X), "W looks: the row is not there");
        std::thread::scope(|scope| {
            let waiter = scope
                .spawn(|| locks.wait((space, b"k"), Some(Stamp { txn: x, undo: None }), z, &Patience::BATCH, &waits));
            while locks.rows.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(locks.hold(space, b"k", w, X, usize::MAX), Hold::OfAnother, "Z's turn comes first");
            locks.end(x);
            assert!(waiter.join().expect("no panic").expect("no error"), "Z has it");
            assert!(locks.is_locked(space, b"k", None, w, X), "and W waits for Z");
            locks.release(space, b"k", z);
            assert_eq!(locks.hold(space, b"k", w, X, usize::MAX), Hold::Held(None));
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
                let waiter = scope.spawn(|| locks.wait((space, b"k"), stamp, z, &Patience::BATCH, &waits));
                while !locks.is_anybody_waiting() {
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
            assert!(locks.wait((space, b"k"), stamp, z, &Patience::BATCH, &waits).is_err(), "at once, from now on");
            locks.table.lock().failed.clear();
        }
        locks.end(x);
        assert!(!locks.is_locked(space, b"k", None, z, X));
    }
}
