//! What readers of a transaction share with it: which changes are its own, and whether it is over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::TxnId;

/// The changes of a transaction, as its readers follow them.
///
/// When the transaction is over, its readers end: nothing keeps its rows as it saw them.
#[derive(Debug)]
pub(crate) struct OwnChanges {
    /// Tells the transactions of a process apart.
    pub(crate) number: u64,
    /// When the last call on the transaction was made, or one of its scans went on: in ns of the coarse clock.
    used_ns: AtomicU64,
    /// The transaction's id; 0: it has changed and locked nothing yet.
    txn: AtomicU64,
    /// Number of statements that may have changed something.
    count: AtomicU64,
    is_over: AtomicBool,
}

impl Default for OwnChanges {
    fn default() -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        OwnChanges {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            used_ns: AtomicU64::new(clock::coarse_ns()),
            txn: AtomicU64::default(),
            count: AtomicU64::default(),
            is_over: AtomicBool::default(),
        }
    }
}

impl OwnChanges {
    /// Notes that the transaction is in use.
    pub(crate) fn touch(&self) {
        // Relaxed: a figure for people, and for a timeout of seconds.
        self.used_ns.store(clock::coarse_ns(), Ordering::Relaxed);
    }

    /// For how long it has not been in use.
    pub(crate) fn idle(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.used_ns.load(Ordering::Relaxed)))
    }

    /// The transaction, once it has changed or locked something.
    pub(crate) fn txn(&self) -> Option<TxnId> {
        Some(TxnId(self.txn.load(Ordering::Acquire))).filter(|txn| txn.0 != 0)
    }

    /// Notes the transaction's id, before it changes or locks something.
    pub(crate) fn begin(&self, txn: TxnId) {
        self.txn.store(txn.0, Ordering::Release);
    }

    /// Notes that the transaction is about to change something, or to undo some of its changes.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// A number that rises with each change: what was read at a lower one may be old.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Called before the transaction's commit, and after its rollback.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether the transaction is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// What was read for the transaction, or the error that it was over before.
    pub(crate) fn unless_over<T>(&self, read: Result<T, Error>) -> Result<T, Error> {
        self.touch();
        match self.is_over() {
            true if planted!("scan_outlives_its_transaction") => read,
            true => Err(Error::TransactionOver("the transaction of this read is over: begin another".into())),
            false => read,
        }
    }
}
