//! Reading rows: point reads, scans, and long values in chunks.
//!
//! Reads go down the tree with [`descent`](crate::btree::descent), a leaf at a time, and hold no latch between leaves.
//! For rows that a transaction in flight has changed, they take the row [before it](crate::txn::before).

mod get;
pub(crate) mod long_values;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod snapshot;
