//! Figures of logged inserts into a table with an index.
//!
//! `insert_figures DIR [SECONDS [ROWS]]`: batches of 1,000 rows of the size of sysbench's, 8 bytes of ascending key and
//! 184 of value, with an index on k, the value's first 4 bytes. Each batch is one durable commit. SECONDS (10) each: k
//! ascending, k at random with all pages in the pool, k at random in a table of ROWS (4 million) rows whose index is
//! larger than the pool; with one thread, and with four. Each run has a new database in DIR. DIR must not exist, and is
//! removed at the end. Prints a Markdown table.

mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::{ByteSize, Db, Durability, Field, Options, Table, TableDefinition, WriteBatch};
use rand::{RngExt, SeedableRng};
use workload::calm::Calm;

use common::{Outcome, VALUE, exit, must_be_new};

/// Rows that are inserted together.
const TOGETHER: u64 = 1000;

#[derive(Clone, Copy)]
enum K {
    Ascending,
    Random,
}

/// One kind of run.
struct Kind {
    name: &'static str,
    k: K,
    pool: ByteSize,
    rows_before: u64,
}

/// Figures of one run.
struct Run {
    calm: Calm,
    slowest: Duration,
}

fn main() -> ExitCode {
    exit("insert_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: insert_figures DIR [SECONDS [ROWS]]")?;
    let seconds = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let rows = arguments.next().map_or(Ok(4_000_000), |rows| rows.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    let kinds = [
        Kind { name: "k ascending, pool of 256 MiB", k: K::Ascending, pool: ByteSize::mib(256), rows_before: 0 },
        Kind { name: "k at random, all in the pool", k: K::Random, pool: ByteSize::gib(4), rows_before: 0 },
        Kind { name: "k at random, pool of 64 MiB", k: K::Random, pool: ByteSize::mib(64), rows_before: rows },
    ];
    println!("| logged inserts, {TOGETHER} a batch | rows/s, median | worst second | brownout | slowest batch |");
    println!("|---|---|---|---|---|");
    for kind in &kinds {
        for threads in [1, 4] {
            let run = measure(dir, kind, threads, seconds);
            std::fs::remove_dir_all(dir)?;
            let Run { calm, slowest } = run?;
            let (name, slowest_ms) = (kind.name, slowest.as_secs_f64() * 1e3);
            println!(
                "| {name}, {threads} thread{} | {:.0} | {} | {} s | {slowest_ms:.1} ms |",
                if threads == 1 { "" } else { "s" },
                calm.median_per_s,
                calm.worst_per_s,
                calm.brownout_s
            );
        }
    }
    Ok(())
}

fn measure(dir: &Path, kind: &Kind, threads: u64, seconds: u64) -> Outcome<Run> {
    let redo_capacity = ByteSize::gib(1);
    let options = Options::new().buffer_pool_size(kind.pool).redo_capacity(redo_capacity);
    let db = Db::open(dir, options)?;
    db.set_redo_capacity(redo_capacity)?;
    let table = db.create_table("sbtest1", TableDefinition::new())?;
    let mut rows = Rows::new(0);
    for first in (0..kind.rows_before).step_by(TOGETHER as usize) {
        rows.insert(&db, &table, first, kind.k, Durability::None)?;
    }
    table.create_index("k", [Field::value(0..4)])?;
    db.checkpoint()?;

    let (next, began, length) = (AtomicU64::new(kind.rows_before), Instant::now(), Duration::from_secs(seconds));
    let per_thread = std::thread::scope(|scope| {
        let insert = |thread| {
            let (mut rows, mut per_second) = (Rows::new(thread), vec![0; usize::try_from(seconds)?]);
            let mut slowest = Duration::ZERO;
            while began.elapsed() < length {
                let before = Instant::now();
                rows.insert(&db, &table, next.fetch_add(TOGETHER, Ordering::Relaxed), kind.k, Durability::Commit)?;
                slowest = slowest.max(before.elapsed());
                if let Some(count) = per_second.get_mut(usize::try_from(began.elapsed().as_secs())?) {
                    *count += TOGETHER;
                }
            }
            Outcome::Ok((per_second, slowest))
        };
        let running: Vec<_> = (1..=threads).map(|thread| scope.spawn(move || insert(thread))).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Outcome<Vec<_>>>()
    })?;
    let rows = u64::try_from(table.index("k")?.scan(..).count())?;
    if rows != next.load(Ordering::Relaxed) {
        return Err(format!("the index has {rows} entries").into());
    }
    db.close()?;
    let sums = |second| per_thread.iter().map(|(per_second, _): &(Vec<u64>, Duration)| per_second[second]).sum();
    let per_second: Vec<u64> = (0..usize::try_from(seconds)?).map(sums).collect();
    let slowest = per_thread.iter().map(|(_, slowest)| *slowest).max().unwrap_or_default();
    Ok(Run { calm: Calm::of(&per_second, None).ok_or("a run of no second")?, slowest })
}

/// Makes rows.
struct Rows {
    random: rand_xoshiro::Xoshiro256PlusPlus,
    value: Vec<u8>,
}

impl Rows {
    fn new(seed: u64) -> Rows {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let value = (0..VALUE).map(|_| random.random_range(b'0'..=b'9')).collect();
        Rows { random, value }
    }

    /// Inserts a batch of rows, keys from `first` on.
    fn insert(&mut self, db: &Db, table: &Table, first: u64, k: K, durability: Durability) -> Outcome<()> {
        let mut batch = WriteBatch::new();
        batch.durability(durability);
        for row in first..first + TOGETHER {
            let k = match k {
                K::Ascending => u32::try_from(row)?,
                K::Random => self.random.random(),
            };
            self.value[..4].copy_from_slice(&k.to_be_bytes());
            batch.insert(table, row.to_be_bytes(), &self.value);
        }
        db.write(batch)?;
        Ok(())
    }
}
