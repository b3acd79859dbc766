//! What a reader sees: the newest committed rows, or those of a snapshot.

use super::transactions::Transactions;
use crate::base::ids::{Lsn, TxnId};

/// A reader's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Each row as it was committed last.
    Newest,
    /// The rows of the snapshot with this CommitTs, which is live.
    At(Lsn),
}

impl Transactions {
    /// Whether the reader must not see what this transaction wrote. Callers have the leaf of the row latched, or a copy
    /// of the row.
    #[inline]
    pub(crate) fn hides(&self, view: View, txn: TxnId) -> bool {
        match view {
            View::Newest => self.locks.is_in_flight(txn),
            View::At(at) => !self.commits.is_visible_at(txn, at),
        }
    }
}
