//! Figures of durable updates: `make figures`.
//!
//! `update_figures DIR [SECONDS [CALM_SECONDS]]`: sysbench's `oltp_update_index` on two databases made in DIR. One fits
//! in its pool, the other is four times its pool. Three rounds, each a probe of the device and a run of SECONDS (10) of
//! every kind; the table shows medians. Then, with data four times the pool, CALM_SECONDS (60) at 80 % of the maximum
//! rate and as long at the maximum. Prints Markdown tables.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond::{ByteSize, Options};
use workload::adapters::millpond::Millpond;
use workload::calm::Calm;
use workload::driver::{self, Finished, Pace, Plan, Unobserved, maximum};
use workload::engine::{IdColumn, Index, Layout};
use workload::generators::oltp::{Client, Load, Mix, TableSet, Workload};
use workload::keys::RandType;
use workload::prepare::{self, LoadPlan};
use workload::probe::{self, Access};

/// Tables of each database.
const TABLES: u32 = 4;

/// Rows of each table of the database that fits in its pool: 25 MiB with the indexes, in a pool of 256 MiB.
const IN_POOL_ROWS: u64 = 25_000;

/// Rows of each table of the other database: 250 MiB with the indexes, in a pool of 64 MiB.
const LARGER_ROWS: u64 = 250_000;

/// Share of the maximum at which the engine must be calm.
const CALM_SHARE: f64 = 0.8;

const SEED: u64 = 1;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("update_figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: update_figures DIR [SECONDS [CALM_SECONDS]]")?;
    let seconds = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let calm_seconds = arguments.next().map_or(Ok(60), |seconds| seconds.parse())?;
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    let in_pool = database(&dir.join("in_pool"), IN_POOL_ROWS, ByteSize::mib(256))?;
    let larger = database(&dir.join("four_pools"), LARGER_ROWS, ByteSize::mib(64))?;
    let special = RandType::default();
    let mut kinds = [
        Kind::new("in the pool, 16 threads", &in_pool, IN_POOL_ROWS, special, 16)?,
        Kind::new("in the pool, 64 threads", &in_pool, IN_POOL_ROWS, special, 64)?,
        Kind::new("four times the pool, 16 threads", &larger, LARGER_ROWS, special, 16)?,
        Kind::new("the same, `uniform`", &larger, LARGER_ROWS, RandType::Uniform, 16)?,
    ];
    for _ in 0..3 {
        let device = probe::sync_pairs(dir, Access::Direct, Duration::from_secs(1))?;
        for kind in &mut kinds {
            let finished = kind.run(seconds, Pace::ClosedLoop)?;
            let calm = Calm::of(&finished.seconds, finished.offered_per_s).ok_or("a run of no second")?;
            let log_bytes = finished.counters.log_bytes as f64 / finished.record.latencies.len().max(1) as f64;
            kind.runs.push([calm.median_per_s / device.per_s, calm.median_per_s, log_bytes]);
        }
    }
    println!(
        "| durable updates | per second | commits per write + sync pair | bytes of log an update |\n|---|---|---|---|"
    );
    for kind in &mut kinds {
        kind.runs.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let [per_pair, per_s, log_bytes] = kind.runs[1];
        println!("| {} | {per_s:.0} | {per_pair:.1} | {log_bytes:.0} |", kind.name);
    }
    let (probed, kind) = (probe::sync_pairs(dir, Access::Direct, Duration::from_secs(5))?, &kinds[2]);
    let clients = Client::all(&kind.load, kind.engine, kind.threads)?;
    let found = maximum::measure(kind.engine, clients, &kind.plan(0, Pace::ClosedLoop), &AtomicBool::new(false))?;
    let calm = kind.run(calm_seconds, Pace::OpenLoop { per_s: found.per_s * CALM_SHARE })?;
    let full = kind.run(calm_seconds, Pace::ClosedLoop)?;
    println!("\n| four times the pool, {calm_seconds} s | at 80 % | at 100 % |\n|---|---|---|");
    both("median, per second", &calm, &full, |_, calm| format!("{:.0}", calm.median_per_s));
    both("worst second", &calm, &full, |_, calm| calm.worst_per_s.to_string());
    both("seconds under half of the median", &calm, &full, |_, calm| calm.brownout_s.to_string());
    both("longest gap", &calm, &full, |run, _| format!("{:.1} ms", run.blackout_ms()));
    both("slowest", &calm, &full, |run, _| format!("{:.1} ms", run.record.max_ns as f64 / 1e6));
    both("stalls", &calm, &full, |run, _| run.counters.stalls.to_string());
    both("law violations", &calm, &full, |run, _| run.counters.law_violations.to_string());
    both("waits for a free frame", &calm, &full, |run, _| {
        run.counters.waits.iter().find(|wait| wait.class == "free_frame").map_or(0, |wait| wait.count).to_string()
    });
    println!("\nThe device's slowest write + sync pair of five seconds before: {:.1} ms.", probed.worst_ms);
    drop(kinds);
    in_pool.close()?;
    larger.close()?;
    Ok(())
}

/// The database in `dir`, loaded.
fn database(dir: &Path, table_size: u64, pool: ByteSize) -> Outcome<Millpond> {
    let engine = Millpond::open(dir, Options::new().buffer_pool_size(pool))?;
    let set = TableSet::new(TABLES, table_size)?;
    let layout = Layout { id: IdColumn::PrimaryKey, k: Index::OnK };
    let plan = LoadPlan { set, rand_type: RandType::default(), seed: SEED, threads: 16, layout };
    let missing = prepare::missing(&engine, set)?;
    prepare::load(&engine, &plan, &missing, &AtomicBool::new(false), &|_| {})?;
    Ok(engine)
}

/// One kind of run. Each entry of `runs`: commits per sync pair, commits per second, bytes of log per commit.
struct Kind<'e> {
    name: &'static str,
    engine: &'e Millpond,
    load: Load,
    threads: usize,
    runs: Vec<[f64; 3]>,
}

impl<'e> Kind<'e> {
    fn new(
        name: &'static str,
        engine: &'e Millpond,
        rows: u64,
        rand_type: RandType,
        threads: usize,
    ) -> Outcome<Kind<'e>> {
        let load = Load::new(engine, Workload::UpdateIndex, TableSet::new(TABLES, rows)?, rand_type, &Mix::default())?;
        Ok(Kind { name, engine, load, threads, runs: Vec::new() })
    }

    fn plan(&self, time_s: u64, pace: Pace) -> Plan {
        Plan { threads: self.threads, time_s, warmup_s: 0, events: 0, report_interval_s: 0, pace, seed: SEED }
    }

    fn run(&self, time_s: u64, pace: Pace) -> Outcome<Finished> {
        Ok(driver::run(self.engine, &self.load, &self.plan(time_s, pace), &AtomicBool::new(false), &mut Unobserved)?)
    }
}

/// One row of the second table.
fn both(what: &str, calm: &Finished, full: &Finished, figure: impl Fn(&Finished, Calm) -> String) {
    let of =
        |run: &Finished| Calm::of(&run.seconds, run.offered_per_s).map_or_else(String::new, |calm| figure(run, calm));
    println!("| {what} | {} | {} |", of(calm), of(full));
}
