//! The public face: databases, trees, batches, and the keeper that works behind them.

pub(crate) mod batch;
pub(crate) mod catalog;
pub(crate) mod check;
mod create;
pub(crate) mod database;
pub(crate) mod engine;
pub(crate) mod inspect;
pub(crate) mod keeper;
mod memory;
pub(crate) mod metrics;
pub(crate) mod online;
pub(crate) mod option_table;
pub(crate) mod options;
mod page_writer;
mod plan;
mod purge;
pub(crate) mod rebuild;
mod rollback;
pub(crate) mod stats;
mod status;
mod status_socket;
pub(crate) mod tree;
mod undo;
pub(crate) mod write;
