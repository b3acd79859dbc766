//! Rows, and the transactions over them.

pub mod oltp;
pub mod row;
