//! The base of all layers: ids, errors, page layout and page operations, checksums, and the one seam for time and
//! waiting.

pub(crate) mod aligned;
pub(crate) mod bell;
pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod counted_calls;
pub(crate) mod cpus;
pub(crate) mod crc;
pub(crate) mod error;
pub(crate) mod handoff;
pub(crate) mod ids;
pub(crate) mod latch;
#[cfg(test)]
mod latch_tests;
pub(crate) mod laws;
pub(crate) mod operations;
pub(crate) mod page;
pub(crate) mod parallel;
pub(crate) mod pending;
pub(crate) mod primitives;
pub(crate) mod process;
pub(crate) mod quoted;
pub(crate) mod random;
pub(crate) mod rank;
#[cfg(test)]
#[cfg(debug_assertions)]
mod rank_tests;
pub(crate) mod row;
pub(crate) mod row_error;
#[cfg(feature = "simulation")]
pub(crate) mod scheduler;
pub(crate) mod stall;
pub(crate) mod sync;
mod under_way;
mod wait_class;
pub(crate) mod waits;
