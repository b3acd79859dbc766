//! The experiments, a file for each.

mod burst;
mod cpu_quota;
mod ddl_drop;
mod free_list;
mod free_list_writes;
mod hiccup;
mod insert_benchmark;
mod log_closer;
mod long_reader;
mod sync_flush;

use serde::Serialize;

use super::arm::{Phase, Tables, Work};
use super::findings::Findings;
use super::laboratory::{Arm, Lab};
use crate::exit::Failure;

/// An experiment.
#[derive(Serialize)]
pub(super) struct Experiment {
    pub(super) name: &'static str,
    /// The symptom.
    pub(super) title: &'static str,
    /// The text that describes it.
    pub(super) source: &'static str,
    #[serde(skip)]
    pub(super) run: fn(&Lab) -> Result<Findings, Failure>,
}

/// All experiments.
pub(super) static EXPERIMENTS: [Experiment; 10] = [
    free_list::EXPERIMENT,
    free_list_writes::EXPERIMENT,
    cpu_quota::EXPERIMENT,
    log_closer::EXPERIMENT,
    sync_flush::EXPERIMENT,
    insert_benchmark::EXPERIMENT,
    ddl_drop::EXPERIMENT,
    long_reader::EXPERIMENT,
    hiccup::EXPERIMENT,
    burst::EXPERIMENT,
];

/// Clients of the experiments without a text, and their tables: some 32 MiB each.
const THREADS: usize = 16;
const TABLES: Tables = Tables { count: 4, rows: 150_000 };

/// Bytes a second of imitated devices: those of a usual cloud volume.
const BYTES_PER_S: f64 = 125e6;

/// Full load for some seconds, which fills the pool: the load that a setting has to bear is judged when no frame is
/// unused any more.
fn filling(lab: &Lab) -> Phase {
    updates("to begin with", TABLES, THREADS, lab.seconds(2, 5))
}

/// Threads that update an indexed field of rows at random.
fn updates(name: &str, tables: Tables, threads: usize, time_s: u64) -> Phase {
    let work = Work::Oltp { workload: "oltp_update_index".into(), tables, threads, per_s: None };
    Phase { name: name.into(), quiet_s: 0.0, work, time_s, beside: None }
}

/// Updates that arrive at a rate.
fn offered(name: &str, per_s: f64, time_s: u64) -> Phase {
    let work =
        Work::Oltp { workload: "oltp_update_index".into(), tables: TABLES, threads: THREADS, per_s: Some(per_s) };
    Phase { name: name.into(), quiet_s: 0.0, work, time_s, beside: None }
}

/// The two servers that are compared, and the default. mysql-5.6 has no flushing of neighbours, like 8.0 by default:
/// its own default is made for rotating disks.
fn servers(words: &[&'static str]) -> [Arm; 3] {
    let with = |profile: &'static str| [&[profile], words].concat();
    [
        Arm::classic("mysql-5.6", &[&with("profile=mysql-5.6")[..], &["flush_neighbors=none"]].concat()),
        Arm::classic("mysql-8.0", &with("profile=mysql-8.0")),
        Arm::default(words),
    ]
}

/// The server whose operations always wait for a thread when they find no free frame.
const PERCONA: &str = "percona-5.7";

/// That server, one whose operations look for a clean page themselves (mysql-8.0), and the default.
fn with_percona(words: &[&'static str]) -> [Arm; 3] {
    let with = |profile: &'static str| [&[profile], words].concat();
    [
        Arm::classic(PERCONA, &[&with("profile=percona-5.7")[..], &["flush_neighbors=none"]].concat()),
        Arm::classic("mysql-8.0", &with("profile=mysql-8.0")),
        Arm::default(words),
    ]
}

impl Experiment {
    /// Findings without verdicts.
    fn findings(&self, how: impl Into<String>, settings: Vec<super::findings::Setting>, phases: &[&str]) -> Findings {
        Findings {
            name: self.name,
            title: self.title,
            how: how.into(),
            settings,
            phases: phases.iter().map(|phase| (*phase).to_owned()).collect(),
            loops: None,
            verdicts: Vec::new(),
            notes: Vec::new(),
        }
    }
}
