//! Figures of the bytes that updates write, by kind: `make figures`.
//!
//! `byte_figures DIR [SECONDS]`: sysbench's updates with 16 threads, SECONDS (10) each, on databases made in DIR. Data
//! of 250 MiB are in a pool of 64 MiB; pages have 16 KiB, then 4 KiB. DIR must not exist, and is removed at the end.
//! Prints a Markdown table of bytes an update.

mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use millpond::metrics::Stats;
use millpond::{ByteSize, Options};
use workload::adapters::millpond::Millpond;
use workload::driver::{self, Pace, Plan, Unobserved};
use workload::engine::{IdColumn, Index, Layout};
use workload::generators::oltp::{Load, Mix, TableSet, Workload};
use workload::keys::RandType;
use workload::prepare::{self, LoadPlan};

use common::{Outcome, exit, must_be_new};

const TABLES: u32 = 4;

/// Rows of each table.
const ROWS: u64 = 250_000;

const THREADS: usize = 16;

const SEED: u64 = 1;

fn main() -> ExitCode {
    exit("byte_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: byte_figures DIR [SECONDS]")?;
    let seconds = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    println!(
        "| bytes an update, data four times the pool | {} | updates/s |",
        COLUMNS.map(|(name, _)| name).join(" | ")
    );
    println!("|---|{}---|", "---|".repeat(COLUMNS.len()));
    for page in [16, 4] {
        let engine = database(dir, ByteSize::kib(page))?;
        for (what, workload) in [("of k", Workload::UpdateIndex), ("of c", Workload::UpdateNonIndex)] {
            for keys in [RandType::Special, RandType::Uniform] {
                let load = Load::new(&engine, workload, TableSet::new(TABLES, ROWS)?, keys, &Mix::default())?;
                let before = engine.db().stats();
                let plan = Plan {
                    threads: THREADS,
                    time_s: seconds,
                    warmup_s: 0,
                    events: 0,
                    report_interval_s: 0,
                    pace: Pace::ClosedLoop,
                    seed: SEED,
                };
                let finished = driver::run(&engine, &load, &plan, &AtomicBool::new(false), &mut Unobserved)?;
                let (after, updates) = (engine.db().stats(), finished.record.latencies.len() as f64);
                let figures = COLUMNS.map(|(_, figure)| {
                    let sum = figure(&after, page << 10) - figure(&before, page << 10);
                    format!("{:.0}", sum as f64 / updates)
                });
                let per_s = updates / seconds as f64;
                println!("| {what}, `{keys}`, pages of {page} KiB | {} | {per_s:.0} |", figures.join(" | "));
            }
        }
        engine.close()?;
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// A sum of bytes, with pages of so many bytes.
type Figure = fn(&Stats, u64) -> u64;

const COLUMNS: [(&str, Figure); 7] = [
    ("log records", |stats, _| stats.log_lsn_current),
    ("log written, in blocks", |stats, _| stats.log_bytes_written),
    ("undo pages", |stats, page| stats.data_undo_page_writes * page),
    ("tree pages", |stats, page| tree_pages(stats) * page),
    ("pages moved", |stats, page| stats.data_pages_moved * page),
    ("map pages", |stats, page| stats.map_page_writes * page),
    ("all", |stats, page| stats.log_bytes_written + (stats.data_page_writes + stats.map_page_writes) * page),
];

fn tree_pages(stats: &Stats) -> u64 {
    stats.data_page_writes - stats.data_undo_page_writes - stats.data_pages_moved
}

/// A loaded database in `dir`, with pages of this size.
fn database(dir: &Path, page: ByteSize) -> Outcome<Millpond> {
    let engine = Millpond::open(dir, Options::new().buffer_pool_size(ByteSize::mib(64)).page_size(page))?;
    let set = TableSet::new(TABLES, ROWS)?;
    let layout = Layout { id: IdColumn::PrimaryKey, k: Index::OnK };
    let plan = LoadPlan { set, rand_type: RandType::Uniform, seed: SEED, threads: THREADS, layout };
    let missing = prepare::missing(&engine, set)?;
    prepare::load(&engine, &plan, &missing, &AtomicBool::new(false), &|_| {})?;
    Ok(engine)
}
