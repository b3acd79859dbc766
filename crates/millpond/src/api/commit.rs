//! The commit of a transaction: at once, or in steps.

use std::fmt;
use std::sync::Arc;

use crate::api::database::Db;
use crate::api::transaction::{COMMITTED, Transaction};
use crate::base::aligned::to_usize;
use crate::base::error::Error;
use crate::base::ids::{CommitTs, Lsn};
use crate::base::operations::OperationKind;
use crate::base::row::UndoRef;
use crate::engine::Engine;
use crate::engine::durable::wait_durable;
use crate::options::FRAMES_MIN;
use crate::options::durability::Durability;
use crate::read::snapshot::LiveSnapshot;
use crate::txn::header::{KeptReady, Ready};
use crate::txn::slot::{Own, Slot};
use crate::undo::purge::end_and_purge;

impl Db {
    /// Has `call` called once a commit and all before it are durable, or with an error once they cannot become durable.
    /// The engine flushes the log for it soon, and together for all such calls that have come meanwhile. If the commit
    /// is durable already, `call` runs at once, in this thread; else in a thread of the engine, or in the one that
    /// closes the database. Commits of other threads may wait for that thread, so `call` must wait for nothing: neither
    /// for this database, nor for a lock that is held around calls of it. It must not drop the last handle of the
    /// database, which closes it. A panic of `call` ends nothing.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: no such commit, since the log is not that long. [`Error::Closed`];
    /// [`Error::OtherProcess`]; [`Error::ReadOnly`]: the log has failed. Then `call` is not called.
    pub fn notify_durable(
        &self,
        commit: CommitTs,
        call: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.here()?.core.log.notify(Lsn(commit.into()), Box::new(call))
    }
}

impl Transaction {
    /// Commits the transaction, and waits for the log as its durability demands. Returns its [`CommitTs`]: a snapshot
    /// of it or a later one sees the transaction. One that has changed nothing returns a moment from which on a
    /// snapshot sees what the transaction saw.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]; [`Error::Closed`]: it is rolled back by the next open. [`Error::DeviceFailed`],
    /// [`Error::ReadOnly`]: the transaction may or may not survive: reopen, then look. After other errors it is rolled
    /// back.
    pub fn commit(mut self) -> Result<CommitTs, Error> {
        if self.changes.txn().is_none() {
            return self.commit_of_nothing();
        }
        let engine = Arc::clone(&self.engine);
        let _operation = engine.waits.operation(OperationKind::Write);
        self.into_commit()?.order()?.finish()
    }

    /// Commits a transaction that has changed and locked nothing: no other thread knows of it.
    fn commit_of_nothing(&mut self) -> Result<CommitTs, Error> {
        self.check_open()?;
        self.open.end(COMMITTED);
        self.changes.end();
        let seen = self.snapshot.take().map(|snapshot| snapshot.at());
        Ok(seen.unwrap_or_else(|| self.engine.txns.commits.last_visible()).into())
    }

    /// Begins a commit in three steps, for a caller that commits many transactions in an order of its own, as a server
    /// with a binary log does. This step may wait, and the transaction can still be rolled back: drop the result.
    ///
    /// Gets room in the log for the next step, and the page that it changes. May wait on `log_space`, `page_read` and
    /// `free_frame`. At most so many transactions have them at a time that they take a sixteenth of the log's buffer
    /// and of the pool's frames beyond the least number; for further ones the next step waits instead.
    ///
    /// Between the steps a transaction counts as one at work: `idle_transaction_timeout` does not end it.
    ///
    /// ```
    /// # use millpond::{Db, Options, TxnOptions};
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = Db::open(dir.path(), Options::new())?;
    /// let tree = db.open_or_create_tree("t")?;
    /// let (mut one, mut two) = (db.begin(TxnOptions::new())?, db.begin(TxnOptions::new())?);
    /// one.put(&tree, "a", "1")?;
    /// two.put(&tree, "b", "2")?;
    /// let (one, two) = (one.begin_commit()?, two.begin_commit()?);
    /// // Under the caller's own lock:
    /// let (two, one) = (two.order()?, one.order()?);
    /// assert!(two.commit_ts() < one.commit_ts());
    /// // In any thread; one wait for the log may serve both.
    /// one.finish()?;
    /// two.finish()?;
    /// # Ok::<(), millpond::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit), before anything is committed: the transaction is rolled back.
    pub fn begin_commit(self) -> Result<ReadyTransaction, Error> {
        let engine = Arc::clone(&self.engine);
        let _operation = engine.waits.operation(OperationKind::Write);
        let mut ready = self.into_commit()?;
        let gate = engine.enter_statement()?;
        if let Some(header) = ready.header() {
            let spare = engine.core.pool.len().saturating_sub(to_usize(FRAMES_MIN)) / 16;
            ready.kept = engine.txns.keep_ready(&engine.core, header, spare)?;
        }
        drop(gate);
        Ok(ready)
    }

    fn into_commit(self) -> Result<ReadyTransaction, Error> {
        self.check_open()?;
        let own = self.open.take()?;
        Ok(ReadyTransaction { inner: Some((self, own)), kept: None })
    }
}

/// A transaction that is about to be committed. When it is dropped, it is rolled back.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct ReadyTransaction {
    /// `None`: it was ordered.
    inner: Option<(Transaction, Option<Own>)>,
    kept: Option<KeptReady>,
}

impl fmt::Debug for ReadyTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyTransaction").finish_non_exhaustive()
    }
}

impl ReadyTransaction {
    fn header(&self) -> Option<UndoRef> {
        self.inner.as_ref()?.1.as_ref()?.header()
    }

    /// Gives the transaction its place in the order of commits: from then on others see it, and it cannot be rolled
    /// back. Until it is finished, it keeps its locks but for those that are stamps: so rows that it has only changed
    /// are free, unless another transaction waits for them already. Any thread may call this.
    ///
    /// Constant time, without I/O. If [`begin_commit`](Transaction::begin_commit) could get everything, waits for the
    /// latch of one undo page at most, and for a thread that closes the database. With the classic
    /// `log_recent_closed` it may also nap.
    ///
    /// # Errors
    /// Those of [`commit`](Transaction::commit).
    pub fn order(mut self) -> Result<OrderedTransaction, Error> {
        let Some((txn, _)) = &self.inner else { return Err(Error::Bug("a transaction was ordered twice".into())) };
        let engine = Arc::clone(&txn.engine);
        engine.home.check()?;
        let _operation = engine.waits.operation(OperationKind::Write);
        let _gate = engine.enter_statement()?;
        let ready = match (self.kept.take(), self.header()) {
            (Some(kept), _) => Some(engine.txns.take_ready(&engine.core, kept)),
            (None, Some(header)) => Some(Ready::of(&engine.core, header)?),
            (None, None) => None,
        };
        let Some((mut txn, own)) = self.inner.take() else { return Err(Error::Bug("a transaction is lost".into())) };
        // Before the commit: once it has its place in the log, its versions may go.
        txn.open.end(COMMITTED);
        txn.changes.end();
        let durability = txn.options.durability.unwrap_or_else(|| engine.in_force.durability());
        let snapshot = txn.snapshot.take();
        let (mut kept, mut end) = (None, None);
        if let Some(own) = own {
            let mut slot = engine.txns.resume(own);
            if let Some(ready) = ready {
                let id = slot.txn();
                let ordered = slot.order(&engine.core, ready);
                end = Some(ordered.inspect_err(|_| engine.open_txns.remove(id))?);
            }
            kept = Some(slot.put_away());
        }
        let began = kept.is_some();
        let seen = snapshot.as_ref().filter(|_| !began).map(|snapshot| snapshot.at());
        let at = end.or(seen).unwrap_or_else(|| engine.txns.commits.last_visible());
        Ok(OrderedTransaction { engine: Arc::clone(&engine), own: kept, at, durability, began, snapshot })
    }
}

impl Drop for ReadyTransaction {
    fn drop(&mut self) {
        let Some((txn, own)) = self.inner.take() else { return };
        // A fork of the opener's process has nothing to give back, and locks nothing.
        if txn.engine.home.is_here() {
            let kept = self.kept.take();
            kept.into_iter().for_each(|kept| drop(txn.engine.txns.take_ready(&txn.engine.core, kept)));
            // Its drop rolls it back.
            txn.open.put(own);
        }
    }
}

/// A transaction that is committed and visible, but perhaps not durable yet. It keeps locks until it is finished or
/// dropped; a drop waits for nothing. [`Db::open_transactions`] lists it until then.
#[must_use = "its locks are held, and it may not be durable"]
pub struct OrderedTransaction {
    engine: Arc<Engine>,
    /// `None`: there is nothing to give up.
    own: Option<Own>,
    at: Lsn,
    durability: Durability,
    /// It has changed or locked something.
    began: bool,
    /// Dropped with the locks, since that may free memory.
    snapshot: Option<Arc<LiveSnapshot>>,
}

impl fmt::Debug for OrderedTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedTransaction").field("at", &self.at).finish_non_exhaustive()
    }
}

impl OrderedTransaction {
    /// The place in the order of commits, as [`commit`](Transaction::commit) returns it.
    pub fn commit_ts(&self) -> CommitTs {
        self.at.into()
    }

    /// Gives up the transaction's locks, does its part of purge, and then waits for the log as its durability demands.
    /// May wait on `page_read`, `free_frame`, `log_space`, `metadata`, `log_write` and `log_flush`. With
    /// [`Durability::None`](crate::Durability::None) it does not wait for the log: [`Db::notify_durable`] tells when
    /// the transaction is durable. One that has locked something and changed nothing waits for all that is visible.
    ///
    /// # Errors
    /// [`Error::OtherProcess`]. [`Error::DeviceFailed`], [`Error::ReadOnly`]: the transaction may or may not survive:
    /// reopen, then look.
    pub fn finish(mut self) -> Result<CommitTs, Error> {
        let engine = Arc::clone(&self.engine);
        engine.home.check()?;
        let _operation = engine.waits.operation(OperationKind::Write);
        if let Some(slot) = self.take_slot(&engine) {
            match engine.enter_statement() {
                Ok(_gate) => end_and_purge(&engine, slot),
                // The database is closed: purge goes on with the next open.
                Err(_) => drop(slot),
            }
        }
        if self.began {
            wait_durable(&engine, self.at, self.durability)?;
        }
        Ok(self.at.into())
    }

    /// The slot of the transaction, whose end gives its locks up.
    fn take_slot<'e>(&mut self, engine: &'e Engine) -> Option<Slot<'e>> {
        self.snapshot.take();
        let slot = engine.txns.resume(self.own.take()?);
        engine.open_txns.remove(slot.txn());
        Some(slot)
    }
}

impl Drop for OrderedTransaction {
    fn drop(&mut self) {
        // A fork of the opener's process leaves it to the opener.
        if self.engine.home.is_here() {
            let engine = Arc::clone(&self.engine);
            drop(self.take_slot(&engine));
        }
    }
}
