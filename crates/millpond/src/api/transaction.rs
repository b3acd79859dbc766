//! Transactions: many statements, all or nothing, isolated from those of other threads.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::api::database::Db;
use crate::api::snapshot::RowsOf;
use crate::api::table::{Modify, Table};
use crate::api::txn_options::{Isolation, OnConflict, TxnOptions};
use crate::base::clock::{self, nanos};
use crate::base::error::Error;
use crate::engine::Engine;
use crate::engine::open_txns::OpenTxn;
use crate::engine::tree_state::TreeState;
use crate::read::snapshot::LiveSnapshot;
use crate::txn::locks::Patience;
use crate::txn::own_changes::OwnChanges;
use crate::txn::slot::Slot;
use crate::txn::snapshots::Live;
use crate::undo::rollback::{roll_back_all, roll_back_to};
use crate::write::batch::{BatchTarget, WriteBatch};
use crate::write::op::Change;
use crate::write::statement::{Failed, modify_statement, write_statement};

/// A place in a transaction to which [`Transaction::rollback_to`] leads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Tells the transactions of a process apart.
    of: u64,
    number: u32,
}

/// Many reads and writes that others see together or not at all.
///
/// Each call that writes is a statement: it has changed everything that it was to change, or nothing. Rows that the
/// transaction has changed are locked until it ends; other transactions that want to change them wait. Readers never
/// wait. When a transaction is dropped, it is rolled back.
///
/// A transaction belongs to one thread at a time, and may move between threads. It does not keep the database open.
/// A close of the database lets no transaction go on; the next open rolls it back.
///
/// ```
/// # use millpond::{Db, Options, TxnOptions};
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let db = Db::open(dir.path(), Options::new())?;
/// let accounts = db.open_or_create_tree("accounts")?;
/// accounts.insert("ada", "100")?;
///
/// let mut txn = db.begin(TxnOptions::new())?;
/// txn.update(&accounts, "ada", "70")?;
/// txn.insert(&accounts, "bob", "30")?;
/// assert_eq!(txn.get(&accounts, "bob")?, Some(b"30".to_vec()));
/// assert_eq!(accounts.get("bob")?, None, "not yet");
/// txn.commit()?;
/// assert_eq!(accounts.get("bob")?, Some(b"30".to_vec()));
/// # Ok::<(), millpond::Error>(())
/// ```
pub struct Transaction {
    pub(super) engine: Arc<Engine>,
    pub(super) options: TxnOptions,
    /// What its scans share with it.
    pub(super) changes: Arc<OwnChanges>,
    /// The snapshot of repeatable read, once something was read.
    pub(super) snapshot: OnceLock<Arc<LiveSnapshot>>,
    pub(super) open: Arc<OpenTxn>,
    cancelled: Arc<AtomicBool>,
}

/// The reasons for which a transaction is over, as errors show them.
pub(super) const COMMITTED: &str = "it was committed";
const ROLLED_BACK: &str = "it was rolled back";
const FAILED: &str = "it was rolled back after a statement failed with an error that leaves no other way";

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Cancels the waits of a [`Transaction`] from another thread.
#[derive(Clone)]
pub struct Canceller {
    /// Not the changes alone: each share of those counts as a reader ([`Transaction::is_mixed`]).
    open: Arc<OpenTxn>,
    cancelled: Arc<AtomicBool>,
    engine: Arc<Engine>,
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

impl Canceller {
    /// Ends the transaction's statement with [`Error::Cancelled`] if it waits for a lock, or as soon as it would begin
    /// to. Between two statements it has this effect on the next one. Later statements may wait again.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        if let Some(txn) = self.open.changes.txn().filter(|_| self.engine.home.is_here()) {
            self.engine.txns.locks.cancel(txn);
        }
    }
}

impl Db {
    /// Begins a transaction. Costs nothing until the transaction reads or writes.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: the durability is out of range. [`Error::Closed`] when the database was closed,
    /// [`Error::OtherProcess`] in a fork of the process that opened the database.
    pub fn begin(&self, options: TxnOptions) -> Result<Transaction, Error> {
        let engine = self.here()?;
        engine.check_open()?;
        if let Some(durability) = options.durability {
            durability.validate().map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        }
        let open = Arc::new(OpenTxn::new());
        let (engine, changes) = (Arc::clone(engine), Arc::clone(&open.changes));
        Ok(Transaction { engine, options, changes, snapshot: OnceLock::new(), open, cancelled: Arc::default() })
    }
}

impl Transaction {
    pub(super) fn check_open(&self) -> Result<(), Error> {
        self.engine.check_usable()?;
        self.changes.touch();
        if self.changes.is_over() { self.open.check() } else { Ok(()) }
    }

    /// Adds `key`, which must not exist yet.
    ///
    /// # Errors
    /// [`Error::KeyExists`], and those of [`write`](Self::write).
    pub fn insert(
        &mut self,
        to: impl Into<BatchTarget>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.insert(to, key, value);
        self.write(batch)
    }

    /// Sets `key`, whether it exists or not.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn put(
        &mut self,
        to: impl Into<BatchTarget>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.put(to, key, value);
        self.write(batch)
    }

    /// Sets `key`, which must exist.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`], and those of [`write`](Self::write).
    pub fn update(
        &mut self,
        to: impl Into<BatchTarget>,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.update(to, key, value);
        self.write(batch)
    }

    /// Removes `key`. True: it existed.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn delete(&mut self, from: impl Into<BatchTarget>, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let mut batch = WriteBatch::new();
        batch.delete(from, key);
        self.write_batch(&batch)
    }

    /// Makes all changes of a batch, or none, as one statement. Changes are of the newest committed rows, and of the
    /// transaction's own. The batch's durability has no effect.
    ///
    /// Waits on `row_lock` for other transactions that have changed or locked the same rows; otherwise as
    /// [`Db::write`] does.
    ///
    /// # Errors
    /// * [`Error::Conflict`]: an expectation of the batch does not hold; or at repeatable read another transaction has
    ///   changed a row since this one's snapshot ([`OnConflict`]). Then roll back and begin again.
    /// * [`Error::Deadlock`]: the whole transaction was rolled back.
    /// * [`Error::LockTimeout`], [`Error::Cancelled`]: the statement has changed nothing.
    /// * [`Error::TransactionOver`].
    /// * Those of [`Db::write`]. If the statement could not be undone, the whole transaction was rolled back.
    pub fn write(&mut self, batch: WriteBatch) -> Result<(), Error> {
        self.write_batch(&batch).map(drop)
    }

    fn write_batch(&mut self, batch: &WriteBatch) -> Result<bool, Error> {
        self.check_open()?;
        for (_, op) in batch.ops() {
            if op.tree.database != Arc::as_ptr(&self.engine).addr() {
                return Err(of_another_database(op.tree));
            }
        }
        self.changes.note();
        self.statement(None, |engine, slot| write_statement(engine, batch, slot).map(|done| done.was_there))
    }

    /// Reads the newest row `key`, calls `decide` with it (`None`: no such row), and makes the change that `decide`
    /// returns, as one statement: no other transaction changes the row in between. Waits as [`write`](Self::write)
    /// does, and may then call `decide` a second time. True: the row existed.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn modify(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&[u8]>) -> Modify,
    ) -> Result<bool, Error> {
        self.state_of(RowsOf::from(table))?;
        self.changes.note();
        let mut decide = |old: Option<&[u8]>| match decide(old) {
            Modify::Keep => None,
            Modify::Put(row) => Some(Change::Put(row)),
            Modify::Delete => Some(Change::Delete),
        };
        self.statement(None, |engine, slot| modify_statement(engine, &table.state, key.as_ref(), &mut decide, slot))
    }

    /// The present place in the transaction's changes. Costs nothing.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { of: self.number(), number: self.open.savepoint() }
    }

    /// Undoes all changes made since `savepoint`. The transaction goes on, with all its locks and its snapshot. May
    /// wait on `page_read`, `free_frame`, `log_space` and `metadata`.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]; [`Error::WrongKind`]: the savepoint is of another transaction. If the changes cannot
    /// be undone, the whole transaction is over, and the engine undoes it as soon as that is possible: then those of
    /// [`write`](Self::write).
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        self.check_open()?;
        if savepoint.of != self.number() {
            let message = "the savepoint is of another transaction: use one that this transaction has returned";
            return Err(Error::WrongKind(message.into()));
        }
        if self.changes.txn().is_none() {
            return Ok(());
        }
        self.changes.note();
        self.statement(None, |engine, slot| {
            roll_back_to(engine, slot, savepoint.number).map_err(|error| Failed { error, is_undone: false })
        })
    }

    /// Undoes all changes of the transaction, and gives its locks up. Takes about as long as the changes took. May wait
    /// as [`rollback_to`](Self::rollback_to) does.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]. If the changes cannot be undone now, those of [`rollback_to`](Self::rollback_to):
    /// the engine undoes them as soon as that is possible.
    pub fn rollback(mut self) -> Result<(), Error> {
        self.check_open()?;
        self.undo_all(ROLLED_BACK)
    }

    /// A handle with which another thread can end this transaction's waits for locks.
    pub fn canceller(&self) -> Canceller {
        let (open, cancelled) = (Arc::clone(&self.open), Arc::clone(&self.cancelled));
        Canceller { open, cancelled, engine: Arc::clone(&self.engine) }
    }

    /// Ends the transaction without its changes; afterwards it is over because of `why`.
    fn undo_all(&mut self, why: &'static str) -> Result<(), Error> {
        // An error means that it is over already.
        let Ok(own) = self.open.take() else { return Ok(()) };
        self.open.end(why);
        // Before its changes are undone, as above.
        self.changes.end();
        self.changes.txn().into_iter().for_each(|txn| self.engine.open_txns.remove(txn));
        let undone = own.map_or(Ok(()), |own| match self.engine.enter_statement() {
            Ok(_gate) => roll_back_all(&self.engine, self.engine.txns.resume(own)),
            // The next open undoes it.
            Err(error) => Err(error),
        });
        self.snapshot.take();
        undone
    }

    /// Runs a statement that changes or locks something; `timeout` for locks instead of that of the options.
    pub(super) fn statement<T>(
        &mut self,
        timeout: Option<Duration>,
        run: impl FnOnce(&Engine, &mut Slot<'_>) -> Result<T, Failed>,
    ) -> Result<T, Error> {
        self.engine.check_changeable()?;
        let engine = Arc::clone(&self.engine);
        let _gate = engine.enter_statement()?;
        let mut slot = match self.open.take()? {
            Some(own) => engine.txns.resume(own),
            None => self.first_slot(&engine)?,
        };
        // After a panic the slot's end leaves the transaction to purge.
        let mut ends = Ends { txn: self, is_over: true };
        let paying = match self.changes.txn() {
            None => engine.begin_write(),
            Some(_) => engine.begin_statement(slot.owed()),
        };
        slot.set_terms(self.patience(timeout), self.first_wins(), self.is_mixed());
        self.changes.begin(slot.txn());
        let done = run(&engine, &mut slot);
        self.cancelled.store(false, Ordering::Release);
        *slot.owed() += paying.charge();
        let (done, is_undone) = match done {
            Ok(done) => (Ok(done), true),
            Err(Failed { error, is_undone }) => (Err(error), is_undone),
        };
        if is_undone {
            ends.is_over = false;
            self.open.put(Some(slot.put_away()));
        } else {
            // Before its changes are undone: a reader must not take that for what is there.
            drop(ends);
            // If this fails, too, the first error says why.
            let _ = roll_back_all(&engine, slot);
            self.snapshot.take();
        }
        done
    }

    /// Begins the transaction in the engine, with its first call that changes or locks something.
    fn first_slot<'e>(&self, engine: &'e Engine) -> Result<Slot<'e>, Error> {
        let mut slot = engine.txns.begin(&engine.core.store).inspect_err(|_| self.open.put(None))?;
        slot.begin_statements();
        engine.open_txns.add(slot.txn(), &self.open);
        Ok(slot)
    }

    fn patience(&self, timeout: Option<Duration>) -> Patience {
        let timeout = timeout.unwrap_or(self.options.lock_timeout);
        let until_ns = if timeout.is_zero() { 0 } else { clock::now_ns().saturating_add(nanos(timeout)) };
        let (priority, cancelled) = (self.options.deadlock_priority, Some(Arc::clone(&self.cancelled)));
        Patience { until_ns: Some(until_ns), priority, cancelled, ..Patience::BATCH }
    }

    /// Whether it has readers of a snapshot, and may change rows beyond that: at repeatable read with the latest rows,
    /// and at read committed while a scan is open. Two others know of its changes: the handle, and what it shares with
    /// the engine.
    fn is_mixed(&self) -> bool {
        let has_readers = match self.options.isolation {
            Isolation::ReadCommitted => Arc::strong_count(&self.changes) > 2,
            Isolation::RepeatableRead => self.snapshot.get().is_some(),
        };
        has_readers && self.first_wins().is_none()
    }

    /// The snapshot since which no other transaction may have changed a row that this one changes.
    fn first_wins(&self) -> Option<Arc<Live>> {
        let snapshot = self.snapshot.get().filter(|_| self.options.on_conflict == OnConflict::Error)?;
        Some(Arc::clone(snapshot.live()))
    }
}

/// Ends a transaction whose call does not come to its end.
struct Ends<'t> {
    txn: &'t Transaction,
    is_over: bool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.is_over {
            let Transaction { engine, open, changes, .. } = self.txn;
            open.end(FAILED);
            changes.end();
            changes.txn().into_iter().for_each(|txn| engine.open_txns.remove(txn));
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // A fork of the opener's process leaves it to the opener.
        if self.engine.home.is_here() {
            // The engine goes on with it if it fails; a caller that wants the result calls `rollback`.
            let _ = self.undo_all(ROLLED_BACK);
        }
    }
}

#[cold]
pub(super) fn of_another_database(tree: &TreeState) -> Error {
    let message = format!("{tree} is of another database than the transaction: use a handle from the same");
    Error::TreeNotFound(message.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// Else each statement beside a canceller would write all index entries of its rows.
    #[test]
    fn a_canceller_is_no_reader_and_an_open_scan_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(dir.path(), Options::new()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let mut txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted)).expect("begun");
        let canceller = txn.canceller();
        txn.put(&tree, "a", "1").expect("written");
        assert!(!txn.is_mixed());
        let scan = txn.scan(&tree, ..).expect("here");
        assert!(txn.is_mixed());
        drop((scan, canceller));
        assert!(!txn.is_mixed());
    }
}
