//! The facts of a finished run, for the page and for the last line of JSON.

use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use workload::adapters::millpond::Millpond;
use workload::driver::maximum::Maximum;
use workload::figures::RunFigures;
use workload::histogram_text::Bucket;
use workload::probe::{Access, SyncPairs};

use super::Job;
use crate::database_files::{self, Bytes};
use crate::machine::Machine;
use crate::settings::{self, Setting};
use crate::values::Benchmark;

/// A run, its figures, and the circumstances.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    #[serde(flatten)]
    pub(super) on: Circumstances,
    /// Whether transactions of several statements ran statement by statement, each as a transaction of its own.
    pub(super) is_statement_by_statement: bool,
    /// Arrivals a second; `None` in a closed loop.
    pub(super) offered_per_s: Option<f64>,
    /// The maximum rate that the first phase found, if there was one.
    pub(super) maximum_per_s: Option<f64>,
    pub(super) maximum_is_steady: Option<bool>,
    #[serde(flatten)]
    pub(super) figures: RunFigures,
    /// Commits per write + sync pair of the device; `None` if they are not comparable.
    pub(super) commits_per_pair: Option<f64>,
    /// Commits per sync of the log; `None` if commits are not durable.
    pub(super) commits_per_log_sync: Option<f64>,
    /// Rows at the end, and index entries that agree with them; `None` if the workload has no check of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows_verified: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entries_verified: Option<u64>,
    /// The latencies of all transactions, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_histogram: Option<Vec<Bucket>>,
}

/// The circumstances of a run: command, database, machine.
#[derive(Debug, Serialize)]
pub(super) struct Circumstances {
    pub(super) version: &'static str,
    /// Begin of the command, in UTC.
    pub(super) began: String,
    pub(super) workload: &'static str,
    pub(super) dir: String,
    pub(super) tables: u32,
    /// Rows of each table; 0 if the tables begin empty.
    pub(super) table_size: u64,
    pub(super) device_access: &'static str,
    pub(super) io_engine: &'static str,
    #[serde(flatten)]
    pub(super) machine: Machine,
    #[serde(flatten)]
    pub(super) bytes: Bytes,
    pub(super) settings: Vec<Setting>,
}

/// Facts from before the run itself.
#[derive(Debug)]
pub(super) struct Before {
    /// Begin of the command.
    pub(super) began: SystemTime,
    /// Arrivals a second.
    pub(super) offered_per_s: Option<f64>,
    pub(super) maximum: Option<Maximum>,
}

impl Circumstances {
    /// Gathers the circumstances.
    pub(super) fn of(job: &Job<'_>, engine: &Millpond, began: SystemTime, device: &SyncPairs) -> Circumstances {
        let (args, dir) = (job.args, &job.args.load.dir);
        let (tables, table_size) = match args.workload {
            workload if workload.uses_tables() => (args.load.tables, args.load.table_size),
            Benchmark::Oltp(_) => (args.load.threads, 0),
            _ => (args.load.threads, args.load.table_size),
        };
        Circumstances {
            version: env!("CARGO_PKG_VERSION"),
            began: humantime::format_rfc3339_seconds(began).to_string(),
            workload: args.workload.name(),
            dir: absolute(dir),
            tables,
            table_size,
            device_access: match device.access {
                Access::Direct => "direct",
                Access::Cached => "cached",
            },
            io_engine: engine.io_engine(),
            machine: Machine::under(dir),
            bytes: database_files::bytes(dir),
            settings: settings::with_engine(job.given, job.engine_settings, &engine.options()),
        }
    }
}

/// The absolute path; the path as given if the system cannot resolve it.
fn absolute(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
