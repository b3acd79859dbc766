//! What readers of a transaction share with it: which changes are its own, and whether it is over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::error::Error;
use crate::base::ids::TxnId;

/// The changes of a transaction, as its readers follow them.
///
/// When the transaction is over, its readers end: nothing keeps its rows as it saw them.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges {
    /// The transaction's id; 0: it has changed and locked nothing yet.
    txn: AtomicU64,
    /// Number of statements that may have changed something.
    count: AtomicU64,
    is_over: AtomicBool,
}

impl OwnChanges {
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
        match self.is_over() {
            true if planted!("scan_outlives_its_transaction") => read,
            true => Err(Error::TransactionOver("the transaction of this read is over: begin another".into())),
            false => read,
        }
    }
}
