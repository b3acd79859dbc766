//! Figures of scans from the device: `make figures`.
//!
//! `scan_figures DIR [ROWS]` makes a database in DIR and loads ROWS rows (400,000) of 500 bytes in key order. The pool
//! holds a sixth of them. It scans all rows as loaded, and again after about three random overwrites of each row.
//! Leaves are read one by one, or 32 ahead; the latter by both I/O engines. It prints a Markdown table with medians of
//! three runs, which take turns.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use millpond::{ByteSize, Db, Durability, IoEngine, Options, WriteBatch};

/// Bytes of a value.
const VALUE: usize = 492;

/// Rows written together.
const BATCH: u64 = 100;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scan_figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: scan_figures DIR [ROWS]")?;
    let rows = arguments.next().map_or(Ok(400_000), |rows| rows.parse())?;
    let dir = Path::new(&dir);
    println!("| scan from the device | leaf by leaf | 32 leaves ahead | 32 ahead, by threads |\n|---|---|---|---|");
    write(dir, rows, |row| row)?;
    figure(dir, rows, "as loaded")?;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..3 {
        write(dir, rows, |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % rows
        })?;
    }
    figure(dir, rows, "after 3 random overwrites of each row")
}

fn options(rows: u64) -> Options {
    Options::new()
        .buffer_pool_size(ByteSize::b((rows * 500 / 6).max(17 << 20)))
        .redo_capacity(ByteSize::mib(256))
        .durability(Durability::None)
}

fn write(dir: &Path, rows: u64, mut row_of: impl FnMut(u64) -> u64) -> Outcome<()> {
    let db = Db::open(dir, options(rows))?;
    let tree = if db.trees()?.is_empty() { db.create_tree("t")? } else { db.open_tree("t")? };
    for first in (0..rows).step_by(usize::try_from(BATCH)?) {
        let mut batch = WriteBatch::new();
        for row in first..rows.min(first + BATCH) {
            batch.put(&tree, row_of(row).to_be_bytes(), [first.to_le_bytes()[0]; VALUE]);
        }
        db.write(batch)?;
    }
    Ok(db.close()?)
}

/// Scans all rows. Returns MB of rows per second.
fn scan(dir: &Path, rows: u64, ahead: usize, engine: IoEngine) -> Outcome<f64> {
    let db = Db::open(dir, options(rows).read_ahead_pages(ahead).io_engine(engine))?;
    let tree = db.open_tree("t")?;
    let began = Instant::now();
    let (mut found, mut bytes) = (0, 0);
    let mut scan = tree.scan(..);
    while let Some((key, value)) = scan.next_row()? {
        found += 1;
        bytes += key.len() + value.len();
    }
    let elapsed = began.elapsed().as_secs_f64();
    if found != rows {
        return Err(format!("the database has {found} rows, not {rows}: name a new directory").into());
    }
    db.close()?;
    Ok(bytes as f64 / 1e6 / elapsed)
}

fn figure(dir: &Path, rows: u64, what: &str) -> Outcome<()> {
    let ways = [(0, IoEngine::Auto), (32, IoEngine::Auto), (32, IoEngine::Threads)];
    let mut runs = [const { Vec::new() }; 3];
    for _ in 0..3 {
        for ((ahead, engine), runs) in ways.into_iter().zip(&mut runs) {
            runs.push(scan(dir, rows, ahead, engine)?);
        }
    }
    let median = |runs: &mut Vec<f64>| {
        runs.sort_by(f64::total_cmp);
        runs[1]
    };
    let [one, ahead, threads] = runs.each_mut().map(median);
    println!("| {what} | {one:.0} MB/s | {ahead:.0} MB/s | {threads:.0} MB/s |");
    Ok(())
}
