//! Figures of an idle snapshot beside updates.
//!
//! `held_figures DIR [PAIR_SECONDS [HELD_SECONDS]]` loads a million rows of the size of sysbench's, 8 bytes of key and
//! 184 of value, with an index on k, into a new database in DIR; all of it fits the pool. DIR must not exist, and is
//! removed at the end. Eight threads change k in random rows, in commits that are durable within 50 ms: in three pairs
//! of PAIR_SECONDS (120), without a snapshot and beside an idle one, all rows equally often; then the same with
//! zipfian rows. At last one snapshot is held for HELD_SECONDS (600) and released, while the updates go on.

mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use millpond::{ByteSize, Db, Durability, Field, Options, Table, TableDefinition};
use rand::distr::Distribution;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;
use rand_xoshiro::Xoshiro256PlusPlus;

use common::{Outcome, VALUE, exit, must_be_new};

const ROWS: u64 = 1_000_000;
const THREADS: u64 = 8;
const PAIRS: usize = 3;

/// Undo pages that no snapshot keeps take less than this.
const NEARLY_NONE: u64 = 1 << 20;

/// Seconds after which what a snapshot has kept is to be gone, at least.
const GOES_WITHIN: u64 = 90;

/// Which rows are changed.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Uniform,
    Zipfian,
}

fn main() -> ExitCode {
    exit("held_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: held_figures DIR [PAIR_SECONDS [HELD_SECONDS]]")?;
    let pair = arguments.next().map_or(Ok(120), |seconds| seconds.parse())?;
    let held = arguments.next().map_or(Ok(600), |seconds| seconds.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    let figures = measure(dir, pair, held);
    std::fs::remove_dir_all(dir)?;
    figures
}

fn measure(dir: &Path, pair: u64, held: u64) -> Outcome<()> {
    let options = Options::new().buffer_pool_size(ByteSize::gib(2)).durability(Durability::Background(50));
    let db = Db::open(dir, options)?;
    let mut load = db.begin_bulk_load_table("sbtest1", TableDefinition::new().index("k", [Field::value(0..4)]))?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for row in 0..ROWS {
        let mut value = [b'0' + (row % 10) as u8; VALUE];
        value[..4].copy_from_slice(&random.random::<u32>().to_be_bytes());
        load.push(row.to_be_bytes(), value)?;
    }
    let table = load.finish()?;
    println!("| updates of k in {ROWS} rows, {THREADS} threads | |\n|---|---|");
    // The first updates of a new database meet memory that is not touched yet.
    update(&table, Rows::Uniform, |gone| Ok((gone.len() as u64) < pair / 4))?;
    for rows in [Rows::Uniform, Rows::Zipfian] {
        pairs(&db, &table, rows, pair)?;
    }
    long(&db, &table, dir, held)?;
    drop(table);
    Ok(db.close()?)
}

/// What threads did that updated rows.
struct Updates {
    /// Updates of each second.
    seconds: Vec<u64>,
    /// In microseconds.
    latencies: Histogram<u64>,
}

impl Updates {
    fn per_s(&self) -> f64 {
        self.seconds.iter().sum::<u64>() as f64 / self.seconds.len() as f64
    }

    fn p99_us(&self) -> f64 {
        self.latencies.value_at_quantile(0.99) as f64
    }

    /// Number of seconds below half of the median.
    fn brownouts(&self) -> usize {
        let median = median(self.seconds.iter().map(|count| *count as f64).collect());
        self.seconds.iter().filter(|count| **count as f64 * 2.0 < median).count()
    }
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Updates `rows` of the table for as many seconds as `go_on` wants; it is called after each second with the number of
/// seconds.
fn update(table: &Table, rows: Rows, mut go_on: impl FnMut(&[u64]) -> Outcome<bool>) -> Outcome<Updates> {
    let (ends, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let of_thread = |number: u64| {
            let (ends, done) = (&ends, &done);
            move || -> Outcome<Histogram<u64>> {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
                let zipf = Zipf::new(ROWS as f64, 0.8)?;
                let mut latencies = Histogram::new(3)?;
                while !ends.load(Ordering::Relaxed) {
                    let row = match rows {
                        Rows::Uniform => random.random_range(0..ROWS),
                        // Rows that are changed often lie apart.
                        Rows::Zipfian => (zipf.sample(&mut random) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % ROWS,
                    };
                    let began = Instant::now();
                    let mut value = table.get(row.to_be_bytes())?.ok_or("a row is gone")?;
                    value[..4].copy_from_slice(&random.random::<u32>().to_be_bytes());
                    table.update(row.to_be_bytes(), &value)?;
                    latencies.saturating_record(began.elapsed().as_micros() as u64);
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(latencies)
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(of_thread(number))).collect();
        let mut seconds = Vec::new();
        let watched = loop {
            let before = done.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(1));
            seconds.push(done.load(Ordering::Relaxed) - before);
            match go_on(&seconds) {
                Ok(true) => {}
                ended => break ended,
            }
        };
        ends.store(true, Ordering::Relaxed);
        let mut latencies = Histogram::new(3)?;
        for thread in threads {
            latencies.add(thread.join().map_err(|_| "a thread panicked")??)?;
        }
        watched?;
        Ok(Updates { seconds, latencies })
    })
}

/// Pairs of runs, without a snapshot and beside an idle one.
fn pairs(db: &Db, table: &Table, rows: Rows, seconds: u64) -> Outcome<()> {
    let once = || update(table, rows, |gone| Ok((gone.len() as u64) < seconds));
    let (mut rates, mut latencies, mut brownouts, mut without) = (Vec::new(), Vec::new(), 0, Vec::new());
    for _ in 0..PAIRS {
        let alone = once()?;
        let snapshot = db.snapshot()?;
        let beside = once()?;
        drop(snapshot);
        wait_for_purge(db)?;
        rates.push(beside.per_s() / alone.per_s());
        latencies.push(beside.p99_us() / alone.p99_us());
        brownouts += beside.brownouts();
        without.push(alone.per_s());
    }
    let all: Vec<String> = rates.iter().map(|rate| format!("{rate:.2}")).collect();
    let (rate, p99, alone) = (median(rates), median(latencies), median(without));
    println!("| {rows:?} rows, without a snapshot | {alone:.0}/s |");
    println!(
        "| {rows:?} rows, beside an idle snapshot, pairs of {seconds} s | {rate:.2} of that ({}), p99 {p99:.2} times, {brownouts} seconds of brownout |",
        all.join(", ")
    );
    Ok(())
}

fn wait_for_purge(db: &Db) -> Outcome<()> {
    for _ in 0..GOES_WITHIN * 10 {
        if db.stats().undo_bytes_retained < NEARLY_NONE {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("undo pages stay after the last snapshot".into())
}

/// A snapshot that is held long, and what becomes of what it keeps.
fn long(db: &Db, table: &Table, dir: &Path, held: u64) -> Outcome<()> {
    let mut snapshot = Some(db.snapshot()?);
    let mut notes = Vec::new();
    let (mut longest, mut gone_after) = (0, 0);
    let updates = update(table, Rows::Uniform, |seconds| {
        let second = seconds.len() as u64;
        let kept = db.stats().undo_bytes_retained;
        if second == held / 2 || second == held {
            notes.push((size_of(dir)?, kept));
        }
        if second == held {
            let live = snapshot.take().ok_or("released twice")?;
            let mut rows = 0u64;
            let mut scan = live.scan(table, ..)?;
            while scan.next_row()?.is_some() {
                rows += 1;
            }
            if rows != ROWS {
                return Err(format!("{rows} rows at the snapshot").into());
            }
            longest = db.stats().snapshot_steps_max;
        }
        if second > held && kept < NEARLY_NONE {
            gone_after = second - held;
        }
        Ok(gone_after == 0 && second < held + GOES_WITHIN)
    })?;
    let mib = |bytes: u64| bytes >> 20;
    let [(half, half_kept), (end, end_kept)] = notes[..] else { return Err("the run was too short".into()) };
    let beside = &updates.seconds[..held as usize];
    let middle = median(beside.iter().map(|count| *count as f64).collect());
    let least = updates.seconds[held as usize..].iter().min().copied().unwrap_or(0) as f64;
    println!(
        "| one snapshot for {held} s | {middle:.0}/s, {} seconds of brownout, longest way back of a row {longest} records |",
        updates.brownouts()
    );
    println!("| files and undo pages kept, after half of that time | {} MiB, {} MiB |", mib(half), mib(half_kept));
    println!("| the same, at the end | {} MiB, {} MiB |", mib(end), mib(end_kept));
    println!("| undo pages kept for each row, at the end | {} bytes |", end_kept / ROWS);
    println!(
        "| snapshot released | after {gone_after} s nothing is kept; the slowest second had {:.2} of the median |",
        least / middle
    );
    Ok(())
}

/// Bytes that the files of a directory take.
fn size_of(dir: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
