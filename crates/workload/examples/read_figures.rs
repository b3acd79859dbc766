//! Figures of reads in the pool: `make figures`.
//!
//! `read_figures DIR [ROWS [SECONDS]]` makes a database of ROWS rows (1 million) in DIR, unless it exists. It measures
//! point reads, scans of 100 rows and of all, with all pages in the pool, and prints a Markdown table with medians of
//! three runs of SECONDS (3). Machines are shared, so rates are also given per second of CPU used. `runnable` is the
//! share of the threads' time for which they waited for a CPU.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millpond::{ByteSize, Db, Durability, Options, Snapshot, Tree, WriteBatch};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a value, as in sysbench's rows.
const VALUE: usize = 184;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("read_figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: read_figures DIR [ROWS [SECONDS]]")?;
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let seconds = arguments.next().map_or(Ok(3), |seconds| seconds.parse())?;
    let options = Options::new().buffer_pool_size(ByteSize::gib(1)).durability(Durability::None);
    let db = Db::open(Path::new(&dir), options)?;
    let tree = load(&db, rows)?;
    let length = Duration::from_secs(seconds);
    println!("| figure | per second | per CPU-second | runnable | p99.99 |\n|---|---|---|---|---|");
    for threads in [1, 2, 16] {
        figure(&format!("point reads, {threads} threads"), threads, length, false, &tree, rows, point)?;
    }
    figure("point reads, 2 threads, timed", 2, length, true, &tree, rows, point)?;
    for threads in [1, 2] {
        figure(&format!("scans of 100 rows, {threads} threads"), threads, length, false, &tree, rows, scan)?;
    }
    for (what, at) in [("a scan of all rows", None), ("the same at a snapshot", Some(db.snapshot()?))] {
        let mut runs = (0..3).map(|_| scan_all(&tree, at.as_ref(), rows)).collect::<Outcome<Vec<_>>>()?;
        runs.sort_unstable();
        let (elapsed, used) = (runs[1].0.as_secs_f64(), runs[1].1.as_secs_f64());
        let gb_per_s = rows as f64 * (8 + VALUE) as f64 / elapsed / 1e9;
        println!("| {what}: {gb_per_s:.2} GB/s | {:.0} | {:.0} | | |", rows as f64 / elapsed, rows as f64 / used);
    }
    db.close()?;
    Ok(())
}

/// Scans all rows; returns the time, and the CPU time.
fn scan_all(tree: &Tree, at: Option<&Snapshot>, rows: u64) -> Outcome<(Duration, Duration)> {
    let (began, cpu_before) = (Instant::now(), cpu());
    let mut scan = match at {
        Some(snapshot) => snapshot.scan(tree, ..)?,
        None => tree.scan(..),
    };
    let mut found = 0;
    while let Some((key, value)) = scan.next_row()? {
        found += u64::from(key.len() == 8 && value.len() == VALUE);
    }
    if found == rows { Ok((began.elapsed(), cpu() - cpu_before)) } else { Err(format!("{found} rows").into()) }
}

/// The tree of `rows` rows, all in the pool.
fn load(db: &Db, rows: u64) -> Outcome<Tree> {
    if db.trees()?.is_empty() {
        let tree = db.create_tree("t")?;
        for first in (0..rows).step_by(100) {
            let mut batch = WriteBatch::new();
            for row in first..rows.min(first + 100) {
                batch.put(&tree, row.to_be_bytes(), [7; VALUE]);
            }
            db.write(batch)?;
        }
        db.checkpoint()?;
    }
    let tree = db.open_tree("t")?;
    let mut found = 0;
    for row in tree.scan(..) {
        row?;
        found += 1;
    }
    if found != rows {
        return Err(format!("the database has {found} rows, not {rows}: name another directory").into());
    }
    Ok(tree)
}

fn point(tree: &Tree, row: u64) -> Outcome<()> {
    match tree.get(row.to_be_bytes())? {
        Some(value) if value.len() == VALUE => Ok(()),
        other => Err(format!("row {row} is {other:?}").into()),
    }
}

fn scan(tree: &Tree, row: u64) -> Outcome<()> {
    let first = row.saturating_sub(100);
    let mut count = 0;
    let mut rows = tree.scan(&first.to_be_bytes()[..]..&(first + 100).to_be_bytes()[..]);
    while let Some((key, value)) = rows.next_row()? {
        count += u64::from(key.len() == 8 && value.len() == VALUE);
    }
    if count == 100 || row < 100 { Ok(()) } else { Err(format!("{count} rows from {first} on").into()) }
}

/// CPU used by the process so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Time for which this thread was runnable without a CPU.
fn runnable() -> Outcome<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let waited = text.split_ascii_whitespace().nth(1).ok_or("no second number in schedstat")?;
    Ok(Duration::from_nanos(waited.parse()?))
}

#[derive(Clone, Copy)]
struct Measured {
    per_second: f64,
    per_cpu_second: f64,
    runnable_percent: f64,
    p9999_us: f64,
}

fn figure(
    what: &str,
    threads: u64,
    length: Duration,
    timed: bool,
    tree: &Tree,
    rows: u64,
    operation: fn(&Tree, u64) -> Outcome<()>,
) -> Outcome<()> {
    let mut runs = Vec::new();
    for run in 0..3 {
        runs.push(measure(threads, length, timed, tree, rows, run, operation)?);
    }
    runs.sort_by(|a, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
    let median = runs[1];
    let tail = if timed { format!("{:.1} us", median.p9999_us) } else { String::new() };
    let Measured { per_second, per_cpu_second, runnable_percent, .. } = median;
    println!("| {what} | {per_second:.0} | {per_cpu_second:.0} | {runnable_percent:.2} % | {tail} |");
    Ok(())
}

fn measure(
    threads: u64,
    length: Duration,
    timed: bool,
    tree: &Tree,
    rows: u64,
    run: u64,
    operation: fn(&Tree, u64) -> Outcome<()>,
) -> Outcome<Measured> {
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (began, cpu_before) = (Instant::now(), cpu());
    let running: Vec<_> = (0..threads)
        .map(|thread| {
            let (tree, done, stop) = (tree.clone(), Arc::clone(&done), Arc::clone(&stop));
            std::thread::spawn(move || -> Outcome<(Histogram<u32>, Duration)> {
                let mut histogram = Histogram::new(3)?;
                let mut random = (run << 32 | thread << 8 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let began = timed.then(Instant::now);
                    operation(&tree, random % rows)?;
                    if let Some(began) = began {
                        histogram.saturating_record(u64::try_from(began.elapsed().as_nanos())?);
                    }
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
                Ok((histogram, runnable()?))
            })
        })
        .collect();
    std::thread::sleep(length);
    stop.store(true, Ordering::Relaxed);
    let mut all = Histogram::<u32>::new(3)?;
    let mut waited = Duration::ZERO;
    for thread in running {
        let (histogram, runnable) = thread.join().map_err(|_| "a thread panicked")??;
        all.add(histogram)?;
        waited += runnable;
    }
    let (elapsed, used) = (began.elapsed().as_secs_f64(), (cpu() - cpu_before).as_secs_f64());
    let done = done.load(Ordering::Relaxed) as f64;
    let p9999_us = all.value_at_quantile(0.9999) as f64 / 1e3;
    let runnable_percent = waited.as_secs_f64() / (elapsed * threads as f64) * 100.0;
    Ok(Measured { per_second: done / elapsed, per_cpu_second: done / used, runnable_percent, p9999_us })
}
