//! Figures of bulk loads: `make figures`.
//!
//! `bulk_figures DIR [ROWS [RUNS]]`: ROWS (20 million) sorted rows of the size of sysbench's, 8 bytes of key and 184 of
//! value, are loaded into a new database in DIR. DIR must not exist, and is removed at the end. Each of RUNS (3) loads
//! is compared with a sequential write of as many bytes to the device. In each run, a thread also updates rows of
//! another tree, each in a durable commit: by itself, then beside a load. Prints a Markdown table of the median run.

mod beside;
mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::{ByteSize, Db, Options, Tree};
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use workload::probe::{self, Access};

use beside::{Updates, update_while};
use common::{Outcome, VALUE, exit, must_be_new};

/// Bytes of a key.
const KEY: usize = size_of::<u64>();

/// Bytes of the text that the values are cut from: few enough for the CPU's cache.
const TEXT: usize = 64 << 10;

/// One run.
struct Figures {
    rows_per_s: f64,
    pages_bytes_per_s: f64,
    device_bytes_per_s: f64,
    cpu_s: f64,
    alone: Updates,
    beside: Updates,
}

fn main() -> ExitCode {
    exit("bulk_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: bulk_figures DIR [ROWS [RUNS]]")?;
    let rows = arguments.next().map_or(Ok(20_000_000), |rows| rows.parse())?;
    let runs = arguments.next().map_or(Ok(3), |runs| runs.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    let figures = (0..runs).map(|_| {
        let figures = measure(dir, rows);
        std::fs::remove_dir_all(dir)?;
        figures
    });
    let mut figures = figures.collect::<Outcome<Vec<_>>>()?;
    figures.sort_by(|a, b| a.rows_per_s.total_cmp(&b.rows_per_s));
    let median = figures.get(figures.len() / 2).ok_or("no run")?;
    let mb = |bytes: f64| format!("{:.0} MB/s", bytes / 1e6);
    println!("| bulk load of {rows} rows of {} bytes, median of {runs} | |\n|---|---|", KEY + VALUE);
    println!("| rows per second | {:.0} |", median.rows_per_s);
    println!("| pages written | {} |", mb(median.pages_bytes_per_s));
    println!("| the device's own sequential write, beside it | {} |", mb(median.device_bytes_per_s));
    println!("| share of it | {:.0} % |", median.pages_bytes_per_s / median.device_bytes_per_s * 100.0);
    for (what, updates) in [("by itself", &median.alone), ("beside a load", &median.beside)] {
        println!("| durable updates, one thread {what} | {updates} |");
    }
    println!("| CPU time per row | {:.0} ns |", median.cpu_s / rows as f64 * 1e9);
    Ok(())
}

fn measure(dir: &Path, rows: u64) -> Outcome<Figures> {
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
    let text: Vec<u8> = (0..TEXT + VALUE).map(|_| random.random_range(b'0'..=b'9')).collect();
    let db = Db::open(dir, Options::new().buffer_pool_size(ByteSize::mib(256)))?;
    let (before, cpu, began) = (db.stats(), cpu_s(), Instant::now());
    let tree = load(&db, "sbtest1", rows, &text)?;
    let (elapsed, cpu_s) = (began.elapsed().as_secs_f64(), cpu_s() - cpu);
    let after = db.stats();
    let bytes = (after.data_page_writes - before.data_page_writes) * 16384;
    eprintln!(
        "{rows} rows in {elapsed:.2} s: {} data syncs, {} write calls, {:.1} MiB of log",
        after.data_syncs - before.data_syncs,
        after.data_write_calls - before.data_write_calls,
        (after.log_bytes_written - before.log_bytes_written) as f64 / 1048576.0
    );
    if tree.get((rows / 2).to_be_bytes())?.is_none() {
        return Err("a row is not there".into());
    }
    let began = Instant::now();
    let alone = update_tree(&db, "alone", || began.elapsed() < Duration::from_secs(3))?;
    let loading = AtomicBool::new(true);
    let beside = std::thread::scope(|scope| {
        let updates = scope.spawn(|| update_tree(&db, "beside", || loading.load(Ordering::Relaxed)));
        let loaded = load(&db, "sbtest2", rows / 2, &text);
        loading.store(false, Ordering::Relaxed);
        let updates = updates.join().map_err(|_| "a thread panicked")?;
        loaded.and(updates)
    })?;
    db.close()?;
    let device_bytes_per_s = probe::sequential_write(dir, Access::Direct, bytes)?;
    Ok(Figures {
        rows_per_s: rows as f64 / elapsed,
        pages_bytes_per_s: bytes as f64 / elapsed,
        device_bytes_per_s,
        cpu_s,
        alone,
        beside,
    })
}

/// A tree of sorted rows.
fn load(db: &Db, name: &str, rows: u64, text: &[u8]) -> Outcome<Tree> {
    let mut load = db.begin_bulk_load(name)?;
    for row in 0..rows {
        let from = row.wrapping_mul(0x9E37_79B9) as usize % TEXT;
        load.push(row.to_be_bytes(), &text[from..from + VALUE])?;
    }
    Ok(load.finish()?)
}

/// Makes a small tree, then updates its rows while `go_on` returns true.
fn update_tree(db: &Db, name: &str, go_on: impl Fn() -> bool) -> Outcome<Updates> {
    let tree = db.bulk_load(name, (0..10_000u64).map(|row| (row.to_be_bytes(), [0; VALUE])))?;
    update_while(go_on, |count| {
        let before = Instant::now();
        tree.put((count.wrapping_mul(7919) % 10_000).to_be_bytes(), [count as u8; VALUE])?;
        Ok(before.elapsed())
    })
}

/// CPU seconds that this process has used.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
