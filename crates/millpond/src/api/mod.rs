//! The public interface: databases, trees, tables, indexes, and their scans.

pub(crate) mod database;
pub(crate) mod index;
pub(crate) mod loads;
pub(crate) mod online;
pub(crate) mod reports;
pub(crate) mod snapshot;
pub(crate) mod table;
pub(crate) mod table_indexes;
pub(crate) mod tree;
pub(crate) mod trees;
