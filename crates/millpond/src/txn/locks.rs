//! Row locks: whose rows are in flight, and who waits for them.
//!
//! LOCK-1  A transaction of several groups is in flight from before its first change until after its commit has its
//!         place in the log, or until all its changes are undone. A row with its stamp is locked: that is the lock.
//! LOCK-2  Who finds a row locked waits in the row's line with nothing latched, first come, first served. The oldest in
//!         the line has the lock before it runs; newcomers respect that.
//! LOCK-3  Locks are taken in (tree, key) order, and who has no rows in flight gives its lock up before it waits for
//!         another: nobody waits in a circle.
//!
//! Who ends a wait: the holder's [`Locks::end`] or [`Locks::release`]; [`Locks::fail`] if its changes cannot be undone.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::FixedState;

use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::row::Stamp;
use crate::base::sync::Mutex;
use crate::base::waits::{WaitClass, Waits};

/// How a wait for a row ends: with its lock, or with the reason why there is none.
type Answer = Result<(), Arc<str>>;

/// All row locks of a database.
#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
    /// The oldest transaction in flight, plus one; 0: there is none. Who sees a row's stamp sees at least what was here
    /// when it was made: the page's latch is between them.
    oldest: AtomicU64,
    /// Rows in the table.
    rows: AtomicUsize,
}

/// The rows of one space that somebody waits for, has been handed, or holds without a stamp.
type SpaceLocks = HashMap<Box<[u8]>, RowLock, FixedState>;

#[derive(Default)]
struct Table {
    in_flight: BTreeSet<TxnId>,
    /// Those of them whose changes cannot be undone, and why.
    failed: HashMap<TxnId, Arc<str>, FixedState>,
    rows: HashMap<SpaceId, SpaceLocks, FixedState>,
}

struct RowLock {
    holder: TxnId,
    waiters: VecDeque<(TxnId, Arc<Handoff<Answer>>)>,
}

impl RowLock {
    /// Hands the lock to the oldest in the line. False: nobody is there.
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
    fn count(&self, table: &Table) {
        let oldest = table.in_flight.first().map_or(0, |txn| txn.0 + 1);
        // Release: who finds a transaction ended sees what it did before.
        self.oldest.store(oldest, Ordering::Release);
        // Relaxed: who must see it has the latch that its owner had.
        self.rows.store(table.rows.values().map(HashMap::len).sum(), Ordering::Relaxed);
    }

    /// LOCK-1: from now on rows with its stamp are locked.
    pub(crate) fn begin(&self, txn: TxnId) {
        let mut table = self.table.lock();
        table.in_flight.insert(txn);
        self.count(&table);
    }

    /// Whether rows of this transaction are locked. One load, if none is in flight.
    pub(crate) fn is_in_flight(&self, txn: TxnId) -> bool {
        if cfg!(planted = "row_in_flight_not_locked") {
            return false;
        }
        let oldest = self.oldest.load(Ordering::Acquire);
        oldest != 0 && txn.0 + 1 >= oldest && self.table.lock().in_flight.contains(&txn)
    }

    /// Whether `txn` must wait for a row, which has this stamp, if it is there. Callers have its leaf latched. Two
    /// loads, if nothing is locked.
    pub(crate) fn is_locked(&self, space: SpaceId, key: &[u8], stamp: Option<Stamp>, txn: TxnId) -> bool {
        if stamp.is_some_and(|stamp| stamp.txn != txn && self.is_in_flight(stamp.txn)) {
            return true;
        }
        self.rows.load(Ordering::Relaxed) > 0 && self.table.lock().row(space, key).is_some_and(|row| row.holder != txn)
    }

    /// Locks a row for a transaction in flight that leaves no stamp there. Callers have its leaf latched, and nobody
    /// else has it locked.
    pub(crate) fn hold(&self, space: SpaceId, key: &[u8], txn: TxnId) {
        let mut table = self.table.lock();
        let rows = table.rows.entry(space).or_default();
        let lock = rows.entry(key.into()).or_insert_with(|| RowLock { holder: txn, waiters: VecDeque::new() });
        debug_assert_eq!(lock.holder, txn, "LOCK-2: a row is held by one transaction");
        self.count(&table);
    }

    /// Waits in a row's line, on `row_lock`; `stamp` is what the row had a moment ago. On return it is the caller's, or
    /// it was given up meanwhile: it is to be looked at again. True: it must be [released](Self::release).
    pub(crate) fn wait(
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
            let holder = table.row(space, key).map(|row| row.holder).or(stamped);
            let Some(holder) = holder.filter(|holder| *holder != txn) else { return Ok(false) };
            if let Some(why) = table.failed.get(&holder) {
                return Err(not_undone(why));
            }
            let handoff = Handoff::new();
            let rows = table.rows.entry(space).or_default();
            let row = rows.entry(key.into()).or_insert_with(|| RowLock { holder, waiters: VecDeque::new() });
            row.waiters.push_back((txn, Arc::clone(&handoff)));
            self.count(&table);
            handoff
        };
        handoff.take_wait(WaitClass::RowLock, waits).map_err(|why| not_undone(&why)).map(|()| true)
    }

    /// Gives up the lock of one row that was waited for.
    pub(crate) fn release(&self, space: SpaceId, key: &[u8], txn: TxnId) {
        let mut table = self.table.lock();
        if let Some(row) = table.row(space, key).filter(|row| row.holder == txn)
            && !row.hand_on()
        {
            table.remove(space, key);
        }
        self.count(&table);
    }

    /// LOCK-1: the transaction is committed, or undone. All its locks go to those who wait.
    pub(crate) fn end(&self, txn: TxnId) {
        let mut table = self.table.lock();
        table.in_flight.remove(&txn);
        table.rows.retain(|_, rows| {
            rows.retain(|_, row| row.holder != txn || row.hand_on());
            !rows.is_empty()
        });
        self.count(&table);
    }

    /// The transaction's changes cannot be undone: who waits for its rows, or will, is told so.
    pub(crate) fn fail(&self, txn: TxnId, why: &str) {
        let mut table = self.table.lock();
        let why: Arc<str> = why.into();
        for row in table.rows.values_mut().flat_map(HashMap::values_mut).filter(|row| row.holder == txn) {
            row.waiters.drain(..).for_each(|(_, handoff)| handoff.give(Err(Arc::clone(&why))));
        }
        table.failed.insert(txn, why);
    }

    /// Transactions in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.table.lock().in_flight.len()
    }
}

fn not_undone(why: &str) -> Error {
    let message = format!(
        "the row is locked by a batch that failed and cannot be undone ({why}): reopen the database; if that does not help, run `millpond check`"
    );
    Error::ReadOnly(message.into())
}
