//! Counters, metrics and the status text.

pub(crate) mod facts;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod metrics_text;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod transactions;
