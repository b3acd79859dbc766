//! Bulk loads and index builds: they sort rows, and write each page once, in key order.

mod aside;
pub(crate) mod bulk_load;
pub(crate) mod entry_sorter;
pub(crate) mod index_build;
pub(crate) mod load_rows;
pub(crate) mod loading;
pub(crate) mod sorter;
