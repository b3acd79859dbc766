//! The experiments, a file for each.

mod cpu_quota;
mod free_list;
mod free_list_writes;
mod insert_benchmark;
mod log_closer;
mod others;
mod sync_flush;

use serde::Serialize;

use super::arm::{Phase, Tables, Work};
use super::findings::Findings;
use super::laboratory::Lab;
use crate::exit::Failure;

/// An experiment.
#[derive(Serialize)]
pub(super) struct Experiment {
    pub(super) name: &'static str,
    /// What is seen in it.
    pub(super) title: &'static str,
    /// Which text describes it.
    pub(super) source: &'static str,
    #[serde(skip)]
    pub(super) run: fn(&Lab) -> Result<Findings, Failure>,
}

/// All of them.
pub(super) static EXPERIMENTS: [Experiment; 10] = [
    free_list::EXPERIMENT,
    free_list_writes::EXPERIMENT,
    cpu_quota::EXPERIMENT,
    log_closer::EXPERIMENT,
    sync_flush::EXPERIMENT,
    insert_benchmark::EXPERIMENT,
    others::DDL_DROP,
    others::LONG_READER,
    others::HICCUP,
    others::BURST,
];

/// Threads that update an indexed field of rows at random.
fn updates(name: &str, tables: Tables, threads: usize, time_s: u64) -> Phase {
    let work = Work::Oltp { workload: "oltp_update_index".into(), tables, threads, per_s: None };
    Phase { name: name.into(), quiet_s: 0.0, work, time_s, beside: None }
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
