//! Transactions: many statements, all or nothing, isolated from those of other threads.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::api::database::Db;
use crate::api::index::{Index, IndexRows, IndexScan};
use crate::api::snapshot::RowsOf;
use crate::api::txn_options::{Isolation, OnConflict, TxnOptions};
use crate::base::clock::{self, nanos};
use crate::base::error::Error;
use crate::base::ids::{CommitTs, Lsn};
use crate::base::operations::OperationKind;
use crate::base::random::random_u64;
use crate::base::sync;
use crate::btree::scan::OwnedRow;
use crate::engine::Engine;
use crate::engine::durable::wait_durable;
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::read::snapshot::LiveSnapshot;
use crate::schema::key_range::KeyRange;
use crate::txn::lock_table::Mode;
use crate::txn::locks::Patience;
use crate::txn::own_changes::OwnChanges;
use crate::txn::slot::{Own, Slot};
use crate::txn::snapshots::Live;
use crate::txn::view::View;
use crate::undo::purge::end_and_purge;
use crate::undo::rollback::{roll_back, roll_back_to};
use crate::write::batch::{BatchTarget, WriteBatch};
use crate::write::parts::lock_row;
use crate::write::statement::{Failed, write_statement};

/// A place in a transaction to which [`Transaction::rollback_to`] leads back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint(u32);

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
    engine: Arc<Engine>,
    options: TxnOptions,
    /// What its scans share with it.
    changes: Arc<OwnChanges>,
    /// The snapshot of repeatable read, once something was read.
    snapshot: OnceLock<Arc<LiveSnapshot>>,
    state: State,
    cancelled: Arc<AtomicBool>,
}

/// Whether a transaction goes on.
enum State {
    /// `None`: it has neither changed nor locked anything yet.
    Open(Option<Own>),
    /// It is over, for this reason.
    Over(&'static str),
}

/// The reasons for which a transaction is over, as errors show them.
const COMMITTED: &str = "it was committed";
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
    changes: Arc<OwnChanges>,
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
        if let Some(txn) = self.changes.txn().filter(|_| self.engine.home.is_here()) {
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
        Ok(Transaction {
            engine: Arc::clone(engine),
            options,
            changes: Arc::default(),
            snapshot: OnceLock::new(),
            state: State::Open(None),
            cancelled: Arc::default(),
        })
    }
}

/// Most times that [`Db::retry`] runs a transaction.
const TRIES_MAX: u32 = 100;

/// The pause before the second try of [`Db::retry`] is at most this long, and each later one at most twice as long as
/// the one before, up to the longest.
const PAUSE_NS: u64 = 50_000;
const PAUSE_NS_MAX: u64 = 20_000_000;

impl Db {
    /// Runs `run` in a transaction, and commits it. If that fails with [`Error::Conflict`], [`Error::Deadlock`] or
    /// [`Error::SnapshotTooOld`], rolls back, waits for a short random time, and runs it again: side effects of `run` may
    /// happen more than once.
    ///
    /// # Errors
    /// Any other error of `run` or of the commit; after 100 tries the last error.
    pub fn retry<T>(
        &self,
        options: &TxnOptions,
        mut run: impl FnMut(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pause_ns = PAUSE_NS;
        for tried in 1.. {
            let mut txn = self.begin(options.clone())?;
            let done = run(&mut txn).and_then(|done| txn.commit().map(|_| done));
            match done {
                Err(Error::Conflict(_) | Error::Deadlock(_) | Error::SnapshotTooOld(_)) if tried < TRIES_MAX => {}
                done => return done,
            }
            sync::sleep_until(clock::now_ns() + random_u64() % pause_ns);
            pause_ns = (2 * pause_ns).min(PAUSE_NS_MAX);
        }
        Err(Error::Bug("a transaction was tried without end".into()))
    }
}

impl Transaction {
    fn check_open(&self) -> Result<(), Error> {
        self.engine.check_usable()?;
        match self.state {
            State::Open(_) => Ok(()),
            State::Over(why) => Err(over(why)),
        }
    }

    /// The transaction's snapshot: at repeatable read the one that all reads share, else a new one.
    fn snapshot(&self) -> Arc<LiveSnapshot> {
        let take = || Arc::new(LiveSnapshot::take(&self.engine));
        match self.options.isolation {
            Isolation::ReadCommitted => take(),
            Isolation::RepeatableRead => Arc::clone(self.snapshot.get_or_init(take)),
        }
    }

    /// A reader of the rows that this transaction sees.
    fn reader(&self) -> Reader {
        Reader { snapshot: Some(self.snapshot()), own: Some(Arc::clone(&self.changes)) }
    }

    fn state_of<'t>(&self, RowsOf { engine, state }: RowsOf<'t>) -> Result<&'t Arc<TreeState>, Error> {
        self.check_open()?;
        if !Arc::ptr_eq(engine, &self.engine) {
            return Err(of_another_database(state));
        }
        Ok(state)
    }

    /// Reads the value of `key`: that of the transaction's own last change, or else the one that its
    /// [`Isolation`] lets it see.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]; those of [`Snapshot::get`](crate::Snapshot::get).
    pub fn get<'t>(&self, of: impl Into<RowsOf<'t>>, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let state = self.state_of(of.into())?;
        let own = self.changes.txn();
        if self.options.isolation == Isolation::ReadCommitted {
            let view = View { at: None, own };
            return state.get(&self.engine, key.as_ref(), view);
        }
        let snapshot = self.snapshot.get_or_init(|| Arc::new(LiveSnapshot::take(&self.engine)));
        state.check_snapshot(snapshot.at())?;
        let view = View { at: Some(snapshot.at()), own };
        snapshot.unless_ended(state.get(&self.engine, key.as_ref(), view))
    }

    /// The rows in `range`, ascending; [`rev`](Iterator::rev) makes it descending. The scan sees changes that the
    /// transaction makes meanwhile: it goes on from the last row that it has returned. When the transaction is over, the
    /// scan fails with [`Error::TransactionOver`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn scan<'t>(&self, of: impl Into<RowsOf<'t>>, range: impl KeyRange) -> Result<Scan, Error> {
        let state = self.state_of(of.into())?;
        let reader = self.reader_of(state)?;
        Ok(Scan::new(&self.engine, state, reader, Some(range.into_bounds())))
    }

    /// The row with the lowest key. Costs as much as a [`scan`](Self::scan) of one leaf.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first<'t>(&self, of: impl Into<RowsOf<'t>>) -> Result<Option<OwnedRow>, Error> {
        self.scan(of, ..)?.next().transpose()
    }

    /// The row with the highest key; otherwise like [`first`](Self::first).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last<'t>(&self, of: impl Into<RowsOf<'t>>) -> Result<Option<OwnedRow>, Error> {
        self.scan(of, ..)?.next_back().transpose()
    }

    /// The entries of an index with fields in `range`: fields and primary key of each. Sees changes as
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn entries(&self, of: &Index, range: impl KeyRange) -> Result<IndexScan, Error> {
        let reader = self.reader_of_index(of)?;
        Ok(of.scan_at(reader, range))
    }

    /// The rows with fields in `range`, in the order of the fields: primary key and row of each. Sees changes as
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn rows(&self, of: &Index, range: impl KeyRange) -> Result<IndexRows, Error> {
        let reader = self.reader_of_index(of)?;
        Ok(of.rows_at(reader, range))
    }

    fn reader_of(&self, state: &TreeState) -> Result<Reader, Error> {
        let reader = self.reader();
        reader.snapshot.as_ref().map_or(Ok(()), |snapshot| state.check_snapshot(snapshot.at()))?;
        Ok(reader)
    }

    fn reader_of_index(&self, index: &Index) -> Result<Reader, Error> {
        self.state_of(RowsOf::from(&index.table))?;
        let reader = self.reader_of(&index.state.entries)?;
        reader.snapshot.as_ref().map_or(Ok(()), |snapshot| index.table.state.rows.check_snapshot(snapshot.at()))?;
        Ok(reader)
    }

    /// Reads the newest committed value of `key` and locks the row, or the key if there is no row, until the transaction
    /// ends: no other transaction changes it before. Waits on `row_lock` for a transaction that has it.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn get_for_update<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.get_locked(of.into(), key.as_ref(), Mode::Exclusive)
    }

    /// As [`get_for_update`](Self::get_for_update), but other transactions may lock the row in the same way.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn get_for_share<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.get_locked(of.into(), key.as_ref(), Mode::Shared)
    }

    fn get_locked(&mut self, of: RowsOf<'_>, key: &[u8], mode: Mode) -> Result<Option<Vec<u8>>, Error> {
        let state = self.state_of(of)?;
        self.statement(|engine, slot| {
            let locked = state.enter(&engine.waits).and_then(|_gate| lock_row(engine, slot, state, key, mode));
            locked.map_err(|error| Failed { is_undone: !matches!(error, Error::Deadlock(_)), error })
        })
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
        self.statement(|engine, slot| write_statement(engine, batch, slot).map(|done| done.was_there))
    }

    /// The present place in the transaction's changes. Costs nothing.
    pub fn savepoint(&self) -> Savepoint {
        match &self.state {
            State::Open(Some(own)) => Savepoint(own.savepoint()),
            State::Open(None) | State::Over(_) => Savepoint(0),
        }
    }

    /// Undoes all changes made since `savepoint`. The transaction goes on, with all its locks and its snapshot. May wait
    /// on `page_read`, `free_frame`, `log_space` and `metadata`.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]. If the changes cannot be undone, the whole transaction is over, and the engine undoes
    /// it as soon as that is possible: then those of [`write`](Self::write).
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), Error> {
        self.check_open()?;
        if matches!(self.state, State::Open(None)) {
            return Ok(());
        }
        self.statement(|engine, slot| {
            roll_back_to(engine, slot, savepoint.0).map_err(|error| Failed { error, is_undone: false })
        })
    }

    /// Commits the transaction, and waits for the log as its durability demands. Returns its [`CommitTs`]: a snapshot of
    /// it or a later one sees the transaction. One that has changed nothing returns a moment from which on a snapshot
    /// sees what the transaction saw.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]; [`Error::Closed`]: it is rolled back by the next open. [`Error::DeviceFailed`],
    /// [`Error::ReadOnly`]: the transaction may or may not survive: reopen, then look. After other errors it is rolled
    /// back.
    pub fn commit(mut self) -> Result<CommitTs, Error> {
        self.check_open()?;
        let State::Open(own) = std::mem::replace(&mut self.state, State::Over(COMMITTED)) else {
            return Err(over(COMMITTED));
        };
        let engine = &self.engine;
        let Some(own) = own else {
            self.changes.end();
            let at = self.snapshot.get().map(|snapshot| snapshot.at());
            return Ok(at.unwrap_or_else(|| engine.txns.commits.last_visible()).into());
        };
        let _operation = engine.waits.operation(OperationKind::Write);
        let end = {
            let gate = engine.enter_statement();
            let _gate = match gate {
                Ok(gate) => gate,
                Err(error) => {
                    self.state = State::Open(Some(own));
                    return Err(error);
                }
            };
            // Before the commit: once it has its place in the log, its versions may go.
            self.changes.end();
            self.snapshot.take();
            let mut slot = engine.txns.resume(own);
            let end = slot.commit_parts(&engine.core)?;
            end_and_purge(engine, slot);
            if end == Lsn::ZERO { engine.txns.commits.last_visible() } else { end }
        };
        wait_durable(engine, end, self.options.durability.unwrap_or_else(|| engine.in_force.durability()))?;
        Ok(end.into())
    }

    /// Undoes all changes of the transaction, and gives its locks up. Takes about as long as the changes took. May wait
    /// as [`rollback_to`](Self::rollback_to) does.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]. If the changes cannot be undone now, those of [`rollback_to`](Self::rollback_to): the
    /// engine undoes them as soon as that is possible.
    pub fn rollback(mut self) -> Result<(), Error> {
        self.check_open()?;
        self.undo_all(ROLLED_BACK)
    }

    /// A handle with which another thread can end this transaction's waits for locks.
    pub fn canceller(&self) -> Canceller {
        let (changes, cancelled) = (Arc::clone(&self.changes), Arc::clone(&self.cancelled));
        Canceller { changes, cancelled, engine: Arc::clone(&self.engine) }
    }

    /// Ends the transaction without its changes; afterwards it is over because of `why`.
    fn undo_all(&mut self, why: &'static str) -> Result<(), Error> {
        let State::Open(own) = std::mem::replace(&mut self.state, State::Over(why)) else { return Ok(()) };
        let undone = match own {
            None => Ok(()),
            Some(own) => match self.engine.enter_statement() {
                Ok(_gate) => undo(&self.engine, self.engine.txns.resume(own)),
                // The next open undoes it.
                Err(error) => Err(error),
            },
        };
        self.changes.end();
        self.snapshot.take();
        undone
    }

    /// Runs a statement that changes or locks something.
    fn statement<T>(&mut self, run: impl FnOnce(&Engine, &mut Slot<'_>) -> Result<T, Failed>) -> Result<T, Error> {
        self.engine.check_changeable()?;
        let engine = Arc::clone(&self.engine);
        // A panic leaves the transaction to purge.
        let State::Open(own) = std::mem::replace(&mut self.state, State::Over(FAILED)) else {
            return Err(over(FAILED));
        };
        let _gate = match engine.enter_statement() {
            Ok(gate) => gate,
            Err(error) => {
                self.state = State::Open(own);
                return Err(error);
            }
        };
        let is_first = own.is_none();
        let begun = match own {
            Some(own) => Ok(engine.txns.resume(own)),
            None => engine.txns.begin(&engine.core.store),
        };
        let mut slot = match begun {
            Ok(slot) => slot,
            Err(error) => {
                self.state = State::Open(None);
                return Err(error);
            }
        };
        if is_first {
            slot.begin_statements();
        }
        let paying = match is_first {
            true => engine.begin_write(),
            false => engine.begin_statement(slot.owed()),
        };
        slot.set_terms(self.patience(), self.first_wins());
        self.changes.note(slot.txn());
        let done = run(&engine, &mut slot);
        self.cancelled.store(false, Ordering::Release);
        *slot.owed() += paying.charge();
        match done {
            Ok(done) => {
                self.state = State::Open(Some(slot.put_away()));
                Ok(done)
            }
            Err(Failed { error, is_undone: true }) => {
                self.state = State::Open(Some(slot.put_away()));
                Err(error)
            }
            Err(Failed { error, is_undone: false }) => {
                // If this fails, too, the first error says why.
                let _ = undo(&engine, slot);
                self.changes.end();
                self.snapshot.take();
                Err(error)
            }
        }
    }

    fn patience(&self) -> Patience {
        let timeout = self.options.lock_wait_timeout;
        let until_ns = if timeout.is_zero() { 0 } else { clock::now_ns().saturating_add(nanos(timeout)) };
        Patience { until_ns: Some(until_ns), cancelled: Some(Arc::clone(&self.cancelled)), ..Patience::BATCH }
    }

    /// The snapshot since which no other transaction may have changed a row that this one changes.
    fn first_wins(&self) -> Option<Arc<Live>> {
        let snapshot = self.snapshot.get().filter(|_| self.options.on_conflict == OnConflict::Error)?;
        Some(Arc::clone(snapshot.live()))
    }
}

/// Undoes all changes of a transaction in this thread; purge goes on with what could not be undone.
fn undo(engine: &Engine, slot: Slot<'_>) -> Result<(), Error> {
    let Some(loser) = slot.into_loser() else { return Ok(()) };
    match roll_back(engine, &loser) {
        Ok(()) => {
            engine.txns.undone(loser);
            Ok(())
        }
        Err(error) => {
            engine.txns.give_to_purge(loser);
            Err(error)
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
fn over(why: &str) -> Error {
    Error::TransactionOver(format!("the transaction is over: {why}; begin another").into())
}

#[cold]
fn of_another_database(tree: &TreeState) -> Error {
    let message = format!("{tree} is of another database than the transaction: use a handle from the same");
    Error::TreeNotFound(message.into())
}
