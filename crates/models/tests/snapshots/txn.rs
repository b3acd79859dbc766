//! The engine's commit table and its list of live snapshots.

#[expect(dead_code, reason = "the engine tells its size, and has losers")]
#[path = "../../../millpond/src/txn/commit_table.rs"]
pub(crate) mod commit_table;
#[expect(dead_code, reason = "the engine counts what its readers do")]
#[path = "../../../millpond/src/txn/snapshots.rs"]
pub(crate) mod snapshots;

/// Loom's atomics for what threads share beside the values of a chunk: of those there are thousands.
mod primitives {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64};
}

use commit_table::CommitTable;

use crate::base::ids::{Lsn, TxnId};

/// The last two ids of a chunk, and one of the next: the first ids that a process gives out.
pub(crate) const IDS: [TxnId; 3] = [TxnId(4094), TxnId(4095), TxnId(4096)];

/// A table at these ids, with all up to `visible` visible.
pub(crate) fn table(visible: Lsn) -> CommitTable {
    let table = CommitTable::default();
    table.open(IDS[0], visible);
    IDS.iter().for_each(|txn| drop(table.chunk_to_use(*txn)));
    table
}

/// Commits a transaction and shows it.
pub(crate) fn commit(table: &CommitTable, txn: TxnId, end: Lsn) {
    table.chunk_to_use(txn).commit(txn, end);
    table.show(end);
}
