//! One setting of an experiment, in a process of its own. So the setting can run under a quota, and begins without
//! leftovers of another one in memory. The process reads the plan on standard input, and prints an outcome for each
//! phase.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use millpond::lab::{Slower, Speed};
use millpond::metrics::{MetricKind, MetricValue};
use millpond::{Db, OptionInfo, Options};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use workload::adapters::millpond::Millpond;
use workload::canary::Canary;
use workload::driver::{self, Interval, Observer, Pace, Plan};
use workload::engine::{IdColumn, Index, Layout, TableNo};
use workload::generators::insert_benchmark::Step;
use workload::generators::oltp::{Load, Mix, TableSet, Workload};
use workload::insert_benchmark::{self, Done};
use workload::keys::RandType;
use workload::prepare::{self, LoadPlan};
use workload::probe::Access;

use super::beside::{self, Beside};
use super::marks;
use super::outcome::{Outcome, Slow, Writers};
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::signals;

/// Seed of all random numbers.
const SEED: u64 = 42;

/// Rows in a transaction of `l.i0`, of `l.i1` and the queries, of `l.i2`, and in a query: iibench's numbers.
const ROWS_A_LOAD: u64 = 1_000;
const ROWS_A_COMMIT: u64 = 50;
const ROWS_A_SMALL_COMMIT: u64 = 5;
const ROWS_A_QUERY: u64 = 10;

/// The engine's names for slow operations of a scan, and of DDL.
const OF_SCANS: [&str; 1] = ["scan"];
const OF_DDL: [&str; 2] = ["bulk load", "index build"];

/// Arguments of the child: there are none.
#[derive(Debug, Args)]
pub(crate) struct ArmArgs {}

/// The plan of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ArmPlan {
    /// Process id of the lab; the child runs nothing if that process has ended.
    pub(super) lab: u32,
    /// The directory of its database; created if it is missing.
    pub(super) dir: PathBuf,
    /// Options of the engine, by name.
    pub(super) options: Vec<(String, String)>,
    /// The imitated device, if any.
    pub(super) device: Option<SlowDevice>,
    /// Phases, run one after the other with the database open.
    pub(super) phases: Vec<Phase>,
    /// Whether the database is needed afterwards. If not, it is not closed: on a slow device a close takes longer than
    /// a phase.
    pub(super) is_kept: bool,
}

/// An imitated slow device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SlowDevice {
    /// Writes and syncs a second, and bytes.
    pub(super) writes_per_s: f64,
    pub(super) bytes_per_s: f64,
    /// Times at which the device is slower.
    pub(super) slower: Vec<SlowTime>,
}

/// A time at which a device is slower.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SlowTime {
    /// Begin, in seconds since the database was opened.
    pub(super) from_s: f64,
    pub(super) for_s: f64,
    /// Period in seconds after which it repeats; 0: never.
    pub(super) every_s: f64,
    /// Remaining share of the speed.
    pub(super) factor: f64,
}

/// A part of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Phase {
    pub(super) name: String,
    /// Idle seconds before the phase. After them all files are read once, past the engine: on some machines, pages that
    /// were untouched for minutes are slow in the page cache, and a phase must not measure that.
    pub(super) quiet_s: f64,
    pub(super) work: Work,
    /// Length in whole seconds, for timed work.
    pub(super) time_s: u64,
    /// The activity beside the load.
    pub(super) beside: Option<Beside>,
}

/// The work of a phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Loads sysbench's tables.
    Prepare(Tables),
    /// One of sysbench's workloads, rows drawn uniformly.
    Oltp { workload: String, tables: Tables, threads: usize, per_s: Option<f64> },
    /// A step of the insert benchmark, a table for each client.
    Insert { step: String, clients: u32, rows: u64 },
}

/// The number of tables, and the rows of each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Tables {
    pub(super) count: u32,
    pub(super) rows: u64,
}

impl Tables {
    fn set(self) -> Result<TableSet, Failure> {
        Ok(TableSet::new(self.count, self.rows)?)
    }
}

impl SlowDevice {
    /// Its speed, in words.
    pub(super) fn text(&self) -> String {
        format!("{:.0} writes and syncs, and {:.0} MB, a second", self.writes_per_s, self.bytes_per_s / 1e6)
    }

    /// Its speed, in the engine's type.
    fn speed(&self) -> Speed {
        let ns = |s: f64| (s * 1e9) as u64;
        let slower = |of: &SlowTime| Slower {
            from_ns: ns(of.from_s),
            for_ns: ns(of.for_s),
            every_ns: ns(of.every_s),
            factor: of.factor,
        };
        Speed {
            writes_per_s: self.writes_per_s,
            bytes_per_s: self.bytes_per_s,
            slower: self.slower.iter().map(slower).collect(),
        }
    }
}

/// Runs the plan from standard input.
pub(crate) fn run(_: &ArmArgs) -> Result<Answer, Failure> {
    // A killed lab cannot signal this child, so the kernel does. The child must not go on without the lab, nor stay
    // stopped under an imitated quota: KILL ends a stopped process, too. The next run removes its files.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let mut text = String::new();
    let wrong = |what: &str| {
        Failure::message(format!("no plan of an experiment on standard input ({what}): use 'millpond lab'"))
    };
    std::io::stdin().read_to_string(&mut text).map_err(|e| wrong(&e.to_string()))?;
    let plan: ArmPlan = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
    if getppid().map(Pid::as_raw_nonzero).map(|lab| lab.get().unsigned_abs()) != Some(plan.lab) {
        return Err(Failure::message("the lab that has started this run is gone"));
    }
    let stop = signals::stop_flag()?;
    let known = |name: &str| OptionInfo::ALL.iter().any(|info| info.name == name);
    if let Some((name, _)) = plan.options.iter().find(|(name, _)| !known(name)) {
        return Err(wrong(&format!("'{name}' is no option")));
    }
    let mut options = Options::new().create(true);
    // In the table's order, so that a profile is set before the options given beside it. The last of two values counts.
    for info in const { &OptionInfo::ALL } {
        if let Some((_, value)) = plan.options.iter().rfind(|(name, _)| name == info.name) {
            options = info.set(options, value).map_err(Failure::message)?;
        }
    }
    let opened = Instant::now();
    let db = match &plan.device {
        None => Db::open(&plan.dir, options.clone())?,
        Some(device) => Db::open_slowed(&plan.dir, options.clone(), device.speed())?,
    };
    let engine = Millpond::ready(db, &options)?;
    let mut answer = Answer::Yes;
    // Each phase has a seed of its own: with the same rows in the same order it would find many of them in the pool.
    for (phase, seed) in plan.phases.iter().zip(SEED..) {
        let began_s = opened.elapsed().as_secs_f64() + phase.quiet_s;
        let mut outcome = phase.run(&engine, &plan.dir, seed, &stop)?;
        outcome.marks = marks::of(plan.device.as_ref(), phase, began_s, &outcome);
        outcome.quiet_s = phase.quiet_s;
        print(&format!("{}\n", serde_json::to_string(&outcome).map_err(|e| wrong(&e.to_string()))?))?;
        if stop.load(Ordering::Relaxed) {
            answer = Answer::Interrupted;
            break;
        }
    }
    if plan.is_kept {
        engine.close()?;
    } else {
        // The engine's threads end with the process, as in a crash.
        std::mem::forget(engine);
    }
    Ok(answer)
}

impl Phase {
    fn run(&self, engine: &Millpond, dir: &Path, seed: u64, stop: &AtomicBool) -> Result<Outcome, Failure> {
        let began = Instant::now();
        // In small parts, so that an interrupt is noticed.
        while began.elapsed().as_secs_f64() < self.quiet_s && !stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_secs_f64((self.quiet_s - began.elapsed().as_secs_f64()).clamp(0.0, 0.1)));
        }
        if self.quiet_s > 0.0 {
            let cannot = |e| Failure::message(format!("cannot read the files in '{}': {e}", dir.display()));
            read_all(dir, stop).map_err(cannot)?;
        }
        let before = numbers(engine.db());
        let beside_done = AtomicBool::new(false);
        let (finished, log, beside) = thread::scope(|scope| {
            let beside = self.beside.as_ref().map(|beside| {
                let done = &beside_done;
                scope.spawn(move || beside::run(beside, engine.db(), done))
            });
            let finished = self.work(engine, dir, seed, stop);
            // Read now: the activity beside the load may last longer, and later stalls do not belong to the phase.
            let log: Vec<Slow> = engine.db().stalls().iter().map(Slow::of_stall).collect();
            beside_done.store(true, Ordering::Relaxed);
            let beside = beside.map(|thread| thread.join().map_err(|_| Failure::message("what ran beside panicked")));
            (finished, log, beside)
        });
        let beside = beside.transpose()?.transpose()?;
        let after = numbers(engine.db());
        let finished = finished?;
        let Some(done) = finished else {
            return Ok(Outcome::of(&self.name, None, changes(&before, &after), beside));
        };
        let mut outcome = Outcome::of(&self.name, Some(&done.finished), changes(&before, &after), beside);
        outcome = match self.operations_beside() {
            [] => outcome.with_stalls(&log),
            beside => outcome.without(beside, &log),
        };
        if self.only_the_other_scans() {
            outcome = outcome.with_clients(&done.finished);
        }
        if let Work::Insert { step, clients, rows } = &self.work {
            outcome = outcome.with_clients(&done.finished);
            outcome.writers = writers(step.parse().map_err(Failure::message)?, &sizes(*clients, *rows), &done);
        }
        Ok(outcome)
    }

    /// Names of the operations that all belong to the activity beside the load: they are left out of the clients' slow
    /// operations.
    fn operations_beside(&self) -> &'static [&'static str] {
        match self.beside {
            Some(Beside::Ddl { .. }) => &OF_DDL,
            _ if self.only_the_other_scans() => &OF_SCANS,
            _ => &[],
        }
    }

    /// Whether all scans belong to the activity beside the load.
    fn only_the_other_scans(&self) -> bool {
        let scans_beside = matches!(self.beside, Some(Beside::Scan { .. } | Beside::LongReader));
        let scans = |work: &Work| match work {
            Work::Oltp { workload, .. } => !["oltp_point_select", "oltp_update_index"].contains(&workload.as_str()),
            Work::Prepare(_) | Work::Insert { .. } => true,
        };
        scans_beside && !scans(&self.work)
    }

    /// Does the work of the phase; `None` if it has no figures.
    fn work(&self, engine: &Millpond, dir: &Path, seed: u64, stop: &AtomicBool) -> Result<Option<Done>, Failure> {
        let seen = &mut Watching { canary: Arc::new(Canary::new(dir, Access::Direct)?) };
        match &self.work {
            Work::Prepare(tables) => load(engine, *tables, stop).map(|()| None),
            Work::Oltp { workload, tables, threads, per_s } => {
                let workload: Workload = workload.parse().map_err(Failure::message)?;
                let load = Load::new(engine, workload, tables.set()?, RandType::Uniform, &Mix::default())?;
                let pace = per_s.map_or(Pace::ClosedLoop, |per_s| Pace::OpenLoop { per_s });
                let finished = driver::run(engine, &load, &self.plan(*threads, pace, seed), stop, seen)?;
                Ok(Some(Done { finished, beside: None }))
            }
            Work::Insert { step, clients, rows } => {
                let (step, sizes) = (step.parse().map_err(Failure::message)?, sizes(*clients, *rows));
                let plan = self.plan(0, Pace::ClosedLoop, seed);
                let missing = insert_benchmark::missing(engine, &sizes)?;
                let done = match step {
                    Step::Load => insert_benchmark::load(engine, &sizes, &missing, &plan, stop, seen),
                    Step::CreateIndexes => insert_benchmark::create_indexes(engine, &sizes, &plan, stop, seen),
                    step => insert_benchmark::run(engine, &sizes, step, &plan, stop, seen),
                };
                Ok(Some(done?))
            }
        }
    }

    fn plan(&self, threads: usize, pace: Pace, seed: u64) -> Plan {
        Plan { threads, time_s: self.time_s, warmup_s: 0, events: 0, report_interval_s: 0, pace, seed }
    }
}

/// An observer that only watches the machine beside a phase.
struct Watching {
    canary: Arc<Canary>,
}

impl Observer for Watching {
    fn canary(&self) -> Option<Arc<Canary>> {
        Some(Arc::clone(&self.canary))
    }

    fn interval(&mut self, _: &Interval) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Reads all files of a directory from begin to end.
fn read_all(dir: &Path, stop: &AtomicBool) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for entry in fs::read_dir(dir)? {
        let mut file = File::open(entry?.path())?;
        while !stop.load(Ordering::Relaxed) && file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// The insert benchmark's sizes.
fn sizes(clients: u32, rows: u64) -> insert_benchmark::Sizes {
    insert_benchmark::Sizes {
        clients,
        load: workload::engine::purchases::PurchaseLoad { rows, data_len: 10 },
        load_rows_per_commit: ROWS_A_LOAD,
        rows_per_commit: ROWS_A_COMMIT,
        small_rows_per_commit: ROWS_A_SMALL_COMMIT,
        rows_per_query: ROWS_A_QUERY,
    }
}

/// Results of the writers beside queries; `None` if the step has none.
fn writers(step: Step, sizes: &insert_benchmark::Sizes, done: &Done) -> Option<Writers> {
    let (Step::Queries { rows_per_s, .. }, Some(beside)) = (step, &done.beside) else { return None };
    Some(Writers {
        rows_per_s: beside.mean_per_s() * sizes.rows_per_commit(step) as f64,
        wanted_per_s: f64::from(rows_per_s) * f64::from(sizes.clients),
        is_kept: done.is_rate_kept()?,
        slowest_ms: beside.record.max_ns as f64 / 1e6,
    })
}

fn load(engine: &Millpond, tables: Tables, stop: &AtomicBool) -> Result<(), Failure> {
    let set = tables.set()?;
    let plan = LoadPlan {
        set,
        rand_type: RandType::Uniform,
        seed: SEED,
        threads: 4,
        layout: Layout { id: IdColumn::PrimaryKey, k: Index::OnK },
    };
    let missing: Vec<TableNo> = prepare::missing(engine, set)?;
    Ok(prepare::load(engine, &plan, &missing, stop, &|_| {})?)
}

/// All numbers of the engine, each with whether it is a counter.
fn numbers(db: &Db) -> BTreeMap<&'static str, (bool, u64)> {
    let number = |(metric, value): (&'static millpond::metrics::Metric, MetricValue)| match value {
        MetricValue::Number(number) => Some((metric.name, (metric.kind == MetricKind::Counter, number))),
        _ => None,
    };
    db.metrics().into_iter().filter_map(number).collect()
}

/// The increase of each counter, and the final value of each other number.
fn changes(
    before: &BTreeMap<&'static str, (bool, u64)>,
    after: &BTreeMap<&'static str, (bool, u64)>,
) -> BTreeMap<String, u64> {
    let change = |(name, (is_counter, value)): (&&'static str, &(bool, u64))| {
        let earlier = if *is_counter { before.get(name).map_or(0, |(_, value)| *value) } else { 0 };
        ((*name).to_owned(), value.saturating_sub(earlier))
    };
    after.iter().map(change).collect()
}
