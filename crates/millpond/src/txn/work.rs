//! Work for the purge thread.

use crate::base::ids::{PageId, TxnId};
use crate::base::row::UndoRef;

/// A transaction of several groups that will not be committed. It is active and in flight until it is undone.
#[derive(Debug)]
pub(crate) struct Loser {
    pub(crate) txn: TxnId,
    pub(crate) header: UndoRef,
    /// The transaction's records, in their order.
    pub(crate) records: Vec<UndoRef>,
    /// The pages that hold the records, and other pages that are no longer needed once the records are not.
    pub(crate) pages: Vec<PageId>,
}

/// Work for the purge thread.
pub(crate) enum Work {
    /// Undo what this transaction changed.
    RollBack(Loser),
    /// Go through this page, from this record on.
    Purge(PageId, usize),
    /// Read this page into memory, for the keeper.
    Read(PageId),
}
