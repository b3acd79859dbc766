//! What a reader sees: the newest committed rows, or those of a snapshot; and the changes of its own transaction.

use super::transactions::Transactions;
use crate::base::ids::{Lsn, TxnId};

/// A reader's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The CommitTs of a live snapshot, whose rows the reader sees; `None`: each row as it was committed last.
    pub(crate) at: Option<Lsn>,
    /// The reader's own transaction, whose changes it sees in any case.
    pub(crate) own: Option<TxnId>,
}

impl View {
    /// Each row as it was committed last.
    pub(crate) const NEWEST: View = View { at: None, own: None };

    /// Each row as it was committed last, or as this transaction has changed it.
    pub(crate) fn newest_for(own: Option<TxnId>) -> View {
        View { at: None, own }
    }
}

impl Transactions {
    /// Whether the reader must not see what this transaction wrote. Callers have the leaf of the row latched, or a copy
    /// of the row.
    #[inline]
    pub(crate) fn hides(&self, view: View, txn: TxnId) -> bool {
        let hides = match view.at {
            None if planted!("shown_before_the_commit") => false,
            None => self.locks.is_in_flight(txn),
            Some(at) => !self.commits.is_visible_at(txn, at),
        };
        hides && view.own != Some(txn)
    }
}
