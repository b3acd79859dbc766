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
//! let accounts = db.open_or_create_tree("accounts")?;
//! let log = db.open_or_create_tree("log")?;
//!
//! accounts.insert("ada", "100")?;
//! accounts.insert("bob", "20")?;
//!
//! // Several changes, over several trees, all or none; durable when `write` returns.
//! let mut batch = WriteBatch::new();
//! batch.update(&accounts, "ada", "70").update(&accounts, "bob", "50").insert(&log, "0001", "ada -> bob 30");
//! db.write(batch)?;
//!
//! assert_eq!(accounts.get("ada")?, Some(b"70".to_vec()));
//! for row in accounts.scan("a".."b") {
//!     let (name, balance) = row?;
//!     assert_eq!((&name[..], &balance[..]), (&b"ada"[..], &b"70"[..]));
//! }
//! db.close()?;
//! # Ok::<(), millpond::Error>(())
//! ```

#![deny(unsafe_code)]

#[macro_use]
mod planted;

mod api;
mod background;
mod backup;
mod base;
mod btree;
mod check;
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

pub use api::commit::{OrderedTransaction, ReadyTransaction};
pub use api::cursor::Cursor;
pub use api::database::Db;
pub use api::index::{Index, IndexRows, IndexScan};
pub use api::loads::{BulkLoad, TableBulkLoad};
pub use api::read_mode::{Read, ReadMode, Ticket};
pub use api::snapshot::{RowsOf, Snapshot};
pub use api::table::{Modify, Table};
pub use api::transaction::{Canceller, Savepoint, Transaction};
pub use api::tree::Tree;
pub use api::txn_options::{Isolation, OnConflict, TxnOptions};
pub use backup::options::{BackupReport, WorkOptions, WorkProgress};
pub use backup::restore::{restore, restore_on};
pub use base::error::{Action, Error, Failure, Result};
pub use base::ids::CommitTs;
pub use base::row_error::RowError;
pub use btree::scan::{OwnedRow, RowRef};
pub use bytesize::ByteSize;
pub use io::batch::IoEngine;
pub use io::directory::GroupAccess;
pub use open::compact::CompactReport;
pub use options::durability::Durability;
pub use options::table::OptionInfo;
pub use options::{Options, PageStoreKind};
pub use read::scan::Scan;
pub use schema::definition::{Field, IndexDefinition, TableDefinition};
pub use schema::key;
pub use schema::key_range::{KeyRange, Prefix};
pub use write::batch::{BatchTarget, WriteBatch};

/// The policies of InnoDB, MySQL and Percona Server, which reproduce the stalls known from them: off by default, and
/// set by [`Options::profile`] and [`Options::classic`].
pub mod classic {
    pub use crate::options::ClassicOptions;
    pub use crate::options::profile::Profile;
    pub use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor};
    pub use crate::pool::neighbors::FlushNeighbors;
    pub use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, PageReplacement};
    pub use crate::redo::log_spin::LogSpin;
    pub use crate::redo::recent_closed::LogRecentClosed;
    pub use crate::store::doublewrite::Doublewrite;
}

/// A closed database looked at, checked and rebuilt.
pub mod inspect {
    pub use crate::check::report::CheckReport;
    pub use crate::tools::check::{CheckOptions, check, check_on};
    pub use crate::tools::inspect::{Figure, Inspector, Lines};
    pub use crate::tools::rebuild::{RebuildOptions, RebuildReport, rebuild, rebuild_on};
}

/// The engine's figures: counters, waits, slow operations.
pub mod metrics {
    pub use crate::base::cpus::Cpus;
    pub use crate::base::stall::{LatchWait, Stall};
    pub use crate::base::waits::{WaitClass, WaitSummary, WaitTimes};
    pub use crate::observe::metrics::{METRICS, Metric, MetricKind, MetricValue};
    pub use crate::observe::stats::Stats;
    pub use crate::observe::transactions::{Deadlock, DeadlockParty, OpenTransaction};
}

/// Other devices than files: a slow one, or the caller's own.
pub mod lab {
    pub use crate::io::device::{Device, Files, ReadPiece, WritePiece};
    pub use crate::io::slow::SlowFiles;
    pub use crate::io::speed::{Slower, Speed};
}

/// The examples of README and documents are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/getting-started.md")]
pub struct Documents;
