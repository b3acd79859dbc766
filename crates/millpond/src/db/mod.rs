//! The public face: databases, trees, batches, and the keeper that works behind them.

pub(crate) mod batch;
pub(crate) mod check;
mod create;
pub(crate) mod database;
pub(crate) mod engine;
pub(crate) mod inspect;
pub(crate) mod keeper;
mod memory;
pub(crate) mod online;
pub(crate) mod options;
mod page_writer;
pub(crate) mod rebuild;
pub(crate) mod stats;
pub(crate) mod tree;
pub(crate) mod write;
