//! What is known of a run when it is over: the page shows it, and JSON's last line is made of it.

use std::path::Path;

use serde::Serialize;
use workload::driver::maximum::Maximum;
use workload::figures::RunFigures;
use workload::probe::{Access, SyncPairs};

use super::Job;
use crate::database_files::{self, Bytes};
use crate::machine::Machine;
use crate::settings::{self, Setting};

/// A run, its figures, and the circumstances.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) version: &'static str,
    /// When it began, in UTC.
    pub(super) began: String,
    pub(super) workload: &'static str,
    pub(super) dir: String,
    pub(super) tables: u32,
    pub(super) table_size: u64,
    /// Whether transactions of several statements were asked for, and run statement by statement.
    pub(super) is_statement_by_statement: bool,
    /// Arrivals a second; none in a closed loop.
    pub(super) offered_per_s: Option<f64>,
    /// What the first phase found, if there was one.
    pub(super) maximum_per_s: Option<f64>,
    pub(super) maximum_is_steady: Option<bool>,
    #[serde(flatten)]
    pub(super) figures: RunFigures,
    /// Commits for each pair that the device makes, where they can be compared.
    pub(super) commits_per_pair: Option<f64>,
    pub(super) device_access: &'static str,
    pub(super) io_engine: &'static str,
    #[serde(flatten)]
    pub(super) machine: Machine,
    #[serde(flatten)]
    pub(super) bytes: Bytes,
    pub(super) settings: Vec<Setting>,
}

/// What was found before the run itself.
#[derive(Debug)]
pub(super) struct Before {
    /// When it began.
    pub(super) began: std::time::SystemTime,
    /// Arrivals a second.
    pub(super) offered_per_s: Option<f64>,
    pub(super) maximum: Option<Maximum>,
}

impl Facts {
    /// Gathers them; `commits_per_pair` is none where commits cannot be compared with the device.
    pub(super) fn of(
        job: &Job<'_>,
        io_engine: &'static str,
        before: &Before,
        figures: RunFigures,
        device: &SyncPairs,
        commits_per_pair: Option<f64>,
    ) -> Facts {
        let (args, dir) = (job.args, &job.args.load.dir);
        Facts {
            version: env!("CARGO_PKG_VERSION"),
            began: humantime::format_rfc3339_seconds(before.began).to_string(),
            workload: args.workload.name(),
            dir: absolute(dir),
            tables: if args.workload.uses_tables() { args.load.tables } else { args.load.threads },
            table_size: if args.workload.uses_tables() { args.load.table_size } else { 0 },
            is_statement_by_statement: args.runs_statement_by_statement(),
            offered_per_s: before.offered_per_s,
            maximum_per_s: before.maximum.map(|maximum| maximum.per_s),
            maximum_is_steady: before.maximum.map(|maximum| maximum.has_settled),
            figures,
            commits_per_pair,
            device_access: match device.access {
                Access::Direct => "direct",
                Access::Cached => "cached",
            },
            io_engine,
            machine: Machine::under(dir),
            bytes: database_files::bytes(dir),
            settings: settings::with_engine(job.given, job.engine_settings),
        }
    }
}

/// The whole path, as far as the system tells.
fn absolute(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}
