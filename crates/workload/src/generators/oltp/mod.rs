//! sysbench 1.0's OLTP workloads: which statements, over which rows.
//!
//! | workload | statements of a transaction, with the default options |
//! |---|---|
//! | `oltp_point_select` | 1 row by id |
//! | `oltp_read_only` | 10 rows by id; 4 ranges of 100 ids: rows, sum, sorted, sorted and distinct |
//! | `oltp_read_write` | those, then those of `oltp_write_only` |
//! | `oltp_write_only` | `k + 1`, another `c`, a row deleted and inserted again |
//! | `oltp_update_index` | `k + 1` |
//! | `oltp_update_non_index` | another `c` |
//! | `oltp_insert` | a row, above all others or anywhere |
//! | `oltp_delete` | a row deleted, if it is still there |
//! | `select_random_points` | the rows of 10 values of `k` |
//! | `select_random_ranges` | how many rows are in 10 ranges of `k` |
//! | `bulk_insert` | one row of a packet, which is inserted when it is full |
//! | `random_batches` | 1,000 rows anywhere, inserted together (not one of sysbench's) |
//!
//! `oltp_read_only`, `oltp_read_write` and `oltp_write_only` run their statements between a begin and a commit; in the
//! other workloads each statement is a transaction of its own. A transaction here is one event of sysbench.

mod bulk;
mod client;
mod load;
mod mix;
mod new_ids;
mod statement;
mod workload;

pub use bulk::bulk_name;
pub use client::{Client, Ran, Tally};
pub(crate) use client::{Step, until_done};
pub use load::{Load, TableSet};
pub use mix::Mix;
pub use statement::{Statement, Transaction};
pub use workload::{Queries, Workload};
