//! Millpond: durable ordered tables of byte strings, without stalls.
//!
//! A [`Db`] is a directory of files that one process has open and many threads use. It holds named [`Tree`]s, ordered
//! maps from byte strings to byte strings, and [`Table`]s, which keep indexes beside their rows. Writes go through a
//! redo log and are durable when they return (see [`Durability`]). The pages of the trees live in a buffer pool of
//! fixed size; a background thread writes them later.
//!
//! ```
//! use millpond::{Db, Options, WriteBatch};
//!
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let path = dir.path();
//! let db = Db::open(path, Options::new())?;
//! let accounts = db.create_tree("accounts")?;
//! let log = db.create_tree("log")?;
//!
//! accounts.insert(b"ada", b"100")?;
//! accounts.insert(b"bob", b"20")?;
//!
//! // Several changes, over several trees, all or none; durable when `write` returns.
//! let mut batch = WriteBatch::new();
//! batch.update(&accounts, b"ada", b"70").update(&accounts, b"bob", b"50").insert(&log, b"0001", b"ada -> bob 30");
//! db.write(batch)?;
//!
//! assert_eq!(accounts.get(b"ada")?, Some(b"70".to_vec()));
//! for row in accounts.scan(&b"a"[..]..&b"b"[..]) {
//!     let (name, balance) = row?;
//!     assert_eq!((name.as_slice(), balance.as_slice()), (&b"ada"[..], &b"70"[..]));
//! }
//! db.close()?;
//! # Ok::<(), millpond::Error>(())
//! ```

#![deny(unsafe_code)]

#[macro_use]
mod planted;

mod api;
mod background;
mod base;
mod btree;
mod core;
mod ddl;
mod engine;
#[cfg(test)]
mod format_test;
mod io;
mod load;
mod mtr;
mod observe;
mod open;
mod options;
mod pace;
mod pool;
mod read;
mod recovery;
mod redo;
mod schema;
#[cfg(feature = "simulation")]
pub mod simulation;
mod store;
mod tools;
mod txn;
mod undo;
mod write;

pub use api::database::Db;
pub use api::index::{Index, IndexRows, IndexScan};
pub use api::loads::BulkLoad;
pub use api::loads::TableBulkLoad;
pub use api::table::{Modify, Table};
pub use api::tree::Tree;
pub use base::cpus::Cpus;
pub use base::error::{Action, Error, Failure};
pub use base::stall::{LatchWait, Stall};
pub use base::waits::{WaitClass, WaitSummary, WaitTimes};
pub use btree::scan::{OwnedRow, RowRef};
pub use bytesize::ByteSize;
pub use io::batch::IoEngine;
pub use io::device::{Device, Files, ReadPiece, WritePiece};
pub use io::directory::GroupAccess;
pub use io::slow::SlowFiles;
pub use io::speed::{Slower, Speed};
pub use observe::metrics::{METRICS, Metric, MetricKind, MetricValue};
pub use observe::stats::Stats;
pub use options::durability::Durability;
pub use options::profile::Profile;
pub use options::table::OptionInfo;
pub use options::{Options, PageStoreKind};
pub use pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
pub use pool::dirty::DirtyTracking;
pub use pool::legacy::EmptyFreeListAlgorithm;
pub use pool::neighbors::FlushNeighbors;
pub use pool::replacement::PageReplacement;
pub use read::scan::Scan;
pub use redo::log_spin::LogSpin;
pub use redo::recent_closed::LogRecentClosed;
pub use schema::definition::{Field, TableDefinition};
pub use store::doublewrite::Doublewrite;
pub use tools::check::{CheckOptions, check, check_on};
pub use tools::check_report::CheckReport;
pub use tools::inspect::{Figure, Inspector, Lines};
pub use tools::rebuild::{RebuildOptions, RebuildReport, rebuild, rebuild_on};
pub use write::batch::{BatchTarget, WriteBatch};

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
