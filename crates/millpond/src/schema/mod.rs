//! Definitions of trees, tables and indexes.
//!
//! [`definition`] has the definitions that users make, [`catalog_entry`] their encoding as values of the catalog, and
//! [`index_key`] the keys of index entries. [`key_range`] has ranges of keys. Nothing here reads or writes pages.

pub(crate) mod catalog_entry;
pub(crate) mod definition;
pub(crate) mod index_key;
pub mod key;
pub(crate) mod key_range;
