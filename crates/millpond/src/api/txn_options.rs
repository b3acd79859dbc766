//! The options of a transaction.

use std::time::Duration;

use crate::options::durability::Durability;
use crate::txn::locks::LOCK_TIMEOUT;

/// What a transaction sees of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed when the first one read, and the transaction's own changes.
    #[default]
    RepeatableRead,
}

/// What becomes of a change at [`Isolation::RepeatableRead`] to a row that another transaction has changed since this
/// one's snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// It fails with [`Error::Conflict`](crate::Error::Conflict): the first updater wins (snapshot isolation). So no
    /// update is lost.
    #[default]
    Error,
    /// It changes the latest version, as InnoDB does without `innodb_snapshot_isolation`. A value computed from what
    /// was read may then undo another transaction's update.
    Latest,
}

/// The options of a transaction.
#[derive(Clone, Debug)]
#[must_use]
pub struct TxnOptions {
    pub(super) isolation: Isolation,
    pub(super) on_conflict: OnConflict,
    pub(super) lock_timeout: Duration,
    pub(super) deadlock_priority: u8,
    pub(super) durability: Option<Durability>,
}

impl Default for TxnOptions {
    fn default() -> Self {
        TxnOptions {
            isolation: Isolation::default(),
            on_conflict: OnConflict::default(),
            lock_timeout: LOCK_TIMEOUT,
            deadlock_priority: 0,
            durability: None,
        }
    }
}

impl TxnOptions {
    /// Repeatable read with an error on conflicts; the database's durability; 50 s of patience for locks.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the transaction sees of others. By default [`Isolation::RepeatableRead`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// What becomes of changes to rows that others have changed. By default [`OnConflict::Error`]; it has no effect at
    /// [`Isolation::ReadCommitted`].
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.on_conflict = on_conflict;
        self
    }

    /// The time for which a statement waits for a lock before it fails with
    /// [`Error::LockTimeout`](crate::Error::LockTimeout). By default 50 s; with zero it does not wait.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Keeps the transaction from being the one that gives way in a deadlock: that is one with the lowest priority, and
    /// of several such the one that has changed least. By default 0. A server gives a higher one to transactions that
    /// must not be chosen by their size, such as those of a replica.
    pub fn deadlock_priority(mut self, priority: u8) -> Self {
        self.deadlock_priority = priority;
        self
    }

    /// How safe the transaction is when [`commit`](crate::Transaction::commit) returns, instead of the database's
    /// option.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }
}
