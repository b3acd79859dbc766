//! Figures of a backup beside a load: `make figures`.
//!
//! `backup_figures DIR [PAIRS [ROWS [PART]]]`: sysbench's `oltp_update_index` with 16 threads at 80 % of the highest rate, on
//! 4 tables of ROWS (1 million) rows in a pool of 256 MiB. Each of PAIRS (3) pairs is a run without a backup, and one
//! beside backups, one after the other until the run ends. These go at PART (0.5) of the device's sequential rate. The last
//! backup is restored and checked. The last column is of one more client, which writes a row each ms and waits for it: it has
//! no queue of operations that are due. DIR must not exist, and is removed at the end. Prints a Markdown table.

mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::inspect::{CheckOptions, check};
use millpond::{ByteSize, Error, Options, Tree, WorkOptions, restore};
use workload::adapters::millpond::Millpond;
use workload::calm::Calm;
use workload::driver::{self, Finished, Pace, Plan, Unobserved, maximum};
use workload::engine::{IdColumn, Index, Layout};
use workload::generators::oltp::{Client, Load, Mix, TableSet, Workload};
use workload::keys::RandType;
use workload::prepare::{self, LoadPlan};
use workload::probe::{self, Access};

use common::{Outcome, exit, must_be_new};

const TABLES: u32 = 4;

const THREADS: usize = 16;

const SEED: u64 = 1;

/// Seconds of each run.
const TIME_S: u64 = 20;

/// Share of the highest rate.
const SHARE: f64 = 0.8;

/// Bytes of the device's probe.
const PROBE: u64 = 1 << 30;

fn main() -> ExitCode {
    exit("backup_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: backup_figures DIR [PAIRS [ROWS [PART]]]")?;
    let pairs = arguments.next().map_or(Ok(3), |pairs| pairs.parse())?;
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let part = arguments.next().map_or(Ok(0.5), |part| part.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    std::fs::create_dir(dir)?;
    let figures = measure(dir, pairs, rows, part);
    std::fs::remove_dir_all(dir)?;
    figures
}

fn measure(dir: &Path, pairs: usize, rows: u64, part: f64) -> Outcome<()> {
    let sequential = probe::sequential_write(dir, Access::Direct, PROBE)?;
    let engine = Millpond::open(&dir.join("db"), Options::new().buffer_pool_size(ByteSize::mib(256)))?;
    let set = TableSet::new(TABLES, rows)?;
    let layout = Layout { id: IdColumn::PrimaryKey, k: Index::OnK };
    let load = LoadPlan { set, rand_type: RandType::Uniform, seed: SEED, threads: THREADS, layout };
    prepare::load(&engine, &load, &prepare::missing(&engine, set)?, &AtomicBool::new(false), &|_| {})?;
    let load = Load::new(&engine, Workload::UpdateIndex, set, RandType::Special, &Mix::default())?;
    let plan = |pace| Plan {
        threads: THREADS,
        time_s: TIME_S,
        warmup_s: 0,
        events: 0,
        report_interval_s: 0,
        pace,
        seed: SEED,
    };
    let clients = Client::all(&load, &engine, THREADS)?;
    let most = maximum::measure(&engine, clients, &plan(Pace::ClosedLoop), &AtomicBool::new(false))?;
    let pace = Pace::OpenLoop { per_s: most.per_s * SHARE };
    println!(
        "Device: {:.0} MB/s sequential. {} rows; {:.0} updates/s at most, {:.0} % of that offered.\n",
        sequential / 1e6,
        u64::from(TABLES) * rows,
        most.per_s,
        SHARE * 100.0
    );
    println!(
        "| | median, per second | worst second | brownout | p99 | p99.9 | slowest | backups, MB/s | p99 of one client |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for pair in 1..=pairs {
        let one_run = || driver::run(&engine, &load, &plan(pace), &AtomicBool::new(false), &mut Unobserved);
        let (alone, client) = beside_a_client(&engine, one_run)?;
        print(&format!("without, {pair}"), &alone?, "", client);
        let is_over = Arc::new(AtomicBool::new(false));
        let (beside, client, made) = std::thread::scope(|scope| -> Outcome<_> {
            let backups = scope.spawn(|| back_up_until(&engine, dir, sequential * part, &is_over));
            let beside = beside_a_client(&engine, one_run);
            // Relaxed: an independent flag.
            is_over.store(true, Ordering::Relaxed);
            let made = backups.join().map_err(|_| "a thread panicked")??;
            let (beside, client) = beside?;
            Ok((beside?, client, made))
        })?;
        print(&format!("beside backups, {pair}"), &beside, &made, client);
    }
    engine.close()?;
    // The last one is whole.
    restore(dir.join("backup"), dir.join("restored"), WorkOptions::new())?;
    let report = check(dir.join("restored"), CheckOptions::default())?;
    let entries = 2 * u64::from(TABLES) * rows;
    if !report.problems.is_empty() || report.entries < entries {
        return Err(format!("restored: {} entries of {entries}, {:?}", report.entries, report.problems).into());
    }
    println!("\nThe last backup was restored, and checked: {} pages, no problem.", report.pages);
    Ok(())
}

/// Runs `work` beside a client that writes a row each ms. Returns the p99 of its writes in ms, too.
fn beside_a_client<T>(engine: &Millpond, work: impl FnOnce() -> T) -> Outcome<(T, f64)> {
    let (is_over, tree) = (AtomicBool::new(false), client_tree(engine)?);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| -> Result<Vec<Duration>, Error> {
            let mut took = Vec::new();
            // Relaxed: an independent flag.
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                tree.put(b"key", b"value")?;
                took.push(began.elapsed());
                std::thread::sleep(Duration::from_millis(1));
            }
            took.sort_unstable();
            Ok(took)
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let took = client.join().map_err(|_| "a thread panicked")??;
        Ok((done, took.get(took.len() * 99 / 100).map_or(0.0, Duration::as_secs_f64) * 1e3))
    })
}

fn client_tree(engine: &Millpond) -> Result<Tree, Error> {
    match engine.db().open_tree("one client") {
        Ok(tree) => Ok(tree),
        Err(_) => engine.db().create_tree("one client"),
    }
}

/// Makes backups until `is_over`, the last of which stays. Returns their number and rate.
fn back_up_until(engine: &Millpond, dir: &Path, rate: f64, is_over: &Arc<AtomicBool>) -> Outcome<String> {
    let (mut made, mut bytes, began) = (0, 0, Instant::now());
    loop {
        let next = dir.join("backup-next");
        let options = WorkOptions::new().rate(ByteSize::b(rate as u64));
        let report = engine.db().backup(&next, options)?;
        (made, bytes) = (made + 1, bytes + report.pages * 16384 + report.log_bytes);
        let last = dir.join("backup");
        if last.exists() {
            std::fs::remove_dir_all(&last)?;
        }
        std::fs::rename(&next, &last)?;
        if is_over.load(Ordering::Relaxed) {
            return Ok(format!("{made}, {:.0}", bytes as f64 / began.elapsed().as_secs_f64() / 1e6));
        }
    }
}

/// A line of the table.
fn print(what: &str, run: &Finished, backups: &str, client_ms: f64) {
    let Some(calm) = Calm::of(&run.seconds, run.offered_per_s) else { return };
    let ms = |quantile: f64| run.record.latencies.value_at_quantile(quantile) as f64 / 1e6;
    println!(
        "| {what} | {:.0} | {} | {} s | {:.1} ms | {:.1} ms | {:.1} ms | {backups} | {client_ms:.1} ms |",
        calm.median_per_s,
        calm.worst_per_s,
        calm.brownout_s,
        ms(0.99),
        ms(0.999),
        run.record.max_ns as f64 / 1e6
    );
}
