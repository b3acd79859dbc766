//! The public interface: databases, trees, tables, indexes, their scans, snapshots, transactions.

pub(crate) mod commit;
pub(crate) mod cursor;
pub(crate) mod database;
pub(crate) mod index;
pub(crate) mod loads;
pub(crate) mod online;
pub(crate) mod read_mode;
pub(crate) mod reports;
pub(crate) mod retry;
pub(crate) mod snapshot;
pub(crate) mod table;
pub(crate) mod table_indexes;
pub(crate) mod transaction;
pub(crate) mod transaction_indexes;
pub(crate) mod transaction_reads;
pub(crate) mod tree;
pub(crate) mod trees;
pub(crate) mod txn_options;
