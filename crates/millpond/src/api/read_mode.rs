//! How a read of a transaction meets rows that other transactions have changed or locked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::tree_state::TreeState;
use crate::txn::lock_table::Mode;

/// The way in which [`Transaction::read`](crate::Transaction::read) and [`Cursor::next`](crate::Cursor::next) read:
/// what they see, whether they lock, and what they do about locks of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ReadMode {
    pub(super) sees: Sees,
    pub(super) on_locked: OnLocked,
}

/// What a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sees {
    /// What the transaction's isolation lets it see.
    Snapshot,
    /// The newest committed row.
    Newest,
    /// The newest committed row, which it locks.
    Locked(Mode),
}

/// What a locking read does about a row that another transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnLocked {
    /// Waits, for as long as the transaction's options say.
    Wait,
    WaitFor(Duration),
    Skip,
    ReadCommitted,
}

impl ReadMode {
    const fn of(sees: Sees) -> ReadMode {
        ReadMode { sees, on_locked: OnLocked::Wait }
    }

    /// Reads what the transaction's [`Isolation`](crate::Isolation) lets it see; never waits for a lock.
    pub const fn snapshot() -> ReadMode {
        ReadMode::of(Sees::Snapshot)
    }

    /// Reads the newest committed row, or the transaction's own; never waits for a lock.
    pub const fn newest() -> ReadMode {
        ReadMode::of(Sees::Newest)
    }

    /// Reads the newest committed row and locks it together with others that lock it in this way.
    pub const fn shared() -> ReadMode {
        ReadMode::of(Sees::Locked(Mode::Shared))
    }

    /// Reads the newest committed row and locks it for this transaction alone.
    pub const fn exclusive() -> ReadMode {
        ReadMode::of(Sees::Locked(Mode::Exclusive))
    }

    /// Fails with [`Error::LockTimeout`](crate::Error::LockTimeout) at once where another transaction has the lock.
    /// Like the other ways below, without effect on reads that do not lock.
    pub const fn no_wait(self) -> ReadMode {
        self.timeout(Duration::ZERO)
    }

    /// Waits for this time at most, instead of the time that the transaction's options say.
    pub const fn timeout(mut self, timeout: Duration) -> ReadMode {
        self.on_locked = OnLocked::WaitFor(timeout);
        self
    }

    /// Leaves rows out that another transaction has locked, as `SKIP LOCKED` does.
    pub const fn skip_locked(mut self) -> ReadMode {
        self.on_locked = OnLocked::Skip;
        self
    }

    /// Reads the committed version of a row that another transaction has locked, without a lock
    /// ([`Read::is_locked_by_other`]). The caller decides by that version whether it wants the row at all, and then
    /// reads it again in a way that waits: the semi-consistent read of InnoDB.
    pub const fn semi_consistent(mut self) -> ReadMode {
        self.on_locked = OnLocked::ReadCommitted;
        self
    }
}

/// A row as [`Transaction::read`](crate::Transaction::read) found it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Read {
    /// `None`: there is no row, or it was left out.
    pub value: Option<Vec<u8>>,
    /// The lock that the read took, if it did not have it before.
    pub ticket: Option<Ticket>,
    /// Another transaction has locked the row: it was left out, or this is its committed version.
    pub is_locked_by_other: bool,
}

/// A lock that a read has taken. [`Transaction::unlock`](crate::Transaction::unlock) gives it up before the transaction
/// ends.
#[must_use = "without a call of `unlock` the lock is kept until the transaction ends"]
pub struct Ticket {
    /// Tells the transactions of a process apart.
    pub(super) of: u64,
    pub(super) tree: Arc<TreeState>,
    pub(super) key: Box<[u8]>,
    pub(super) mode: Mode,
    /// The lock that the transaction had on the row before.
    pub(super) had: Option<Mode>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("of", &self.tree.name).field("mode", &self.mode).finish_non_exhaustive()
    }
}
