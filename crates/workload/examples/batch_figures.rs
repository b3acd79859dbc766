//! Figures of durable batches of random rows.
//!
//! `batch_figures DIR [SECONDS [ROWS]]`: batches of 1,000 rows, 8 bytes of random key and 184 of value, with an index
//! on k, the value's first 4 bytes, which are random, too. Each batch is one durable commit, into a table of ROWS (1
//! million) rows. SECONDS (10) each: one thread with a pool of 1 GiB; four threads with a pool of a fourth of the data.
//! With the feature `redb` also redb, one thread with a cache of 1 GiB. Three rounds, in turns. Each run has a new
//! database in DIR. DIR must not exist, and is removed at the end. Prints a Markdown table, each line with its round.

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
const TOGETHER: usize = 1000;

/// Bytes of a row with its entry in the index, with their heads.
const ROW_BYTES: u64 = 240;

/// A row: its key, and its value.
type Row = ([u8; 8], [u8; VALUE]);

/// An engine with a table and its index.
trait Engine: Sync {
    /// Inserts these rows with their entries, all or none.
    fn insert(&self, rows: &[Row], is_durable: bool) -> Outcome<()>;

    /// Makes durable what was inserted, and leaves the engine at rest.
    fn settle(&self) -> Outcome<()>;

    /// The number of rows, and of entries.
    fn counts(&self) -> Outcome<(u64, u64)>;
}

/// Figures of one run.
struct Run {
    calm: Calm,
    slowest: Duration,
    cpu_us_a_row: f64,
}

fn main() -> ExitCode {
    exit("batch_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: batch_figures DIR [SECONDS [ROWS]]")?;
    let seconds = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    println!(
        "| random rows, {TOGETHER} a batch | rows/s, median | worst second | brownout | slowest batch | CPU a row |"
    );
    println!("|---|---|---|---|---|---|");
    for round in 1..=3 {
        let print = |name: &str, run: Outcome<Run>| {
            std::fs::remove_dir_all(dir)?;
            let Run { calm, slowest, cpu_us_a_row } = run?;
            println!(
                "| {name}, round {round} | {:.0} | {} | {} s | {:.1} ms | {cpu_us_a_row:.1} us |",
                calm.median_per_s,
                calm.worst_per_s,
                calm.brownout_s,
                slowest.as_secs_f64() * 1e3
            );
            Outcome::Ok(())
        };
        print("Millpond, pool of 1 GiB, 1 thread", with_millpond(dir, ByteSize::gib(1), 1, seconds, rows))?;
        let fourth = ByteSize::b(rows * ROW_BYTES / 4);
        print("Millpond, pool of a fourth, 4 threads", with_millpond(dir, fourth, 4, seconds, rows))?;
        #[cfg(feature = "redb")]
        print("redb, cache of 1 GiB, 1 thread", peer::with_redb(dir, 1 << 30, seconds, rows))?;
    }
    Ok(())
}

fn with_millpond(dir: &Path, pool: ByteSize, threads: u64, seconds: u64, rows: u64) -> Outcome<Run> {
    let redo_capacity = ByteSize::gib(1);
    let db = Db::open(dir, Options::new().buffer_pool_size(pool).redo_capacity(redo_capacity))?;
    db.set_redo_capacity(redo_capacity)?;
    let table = db.create_table("rows", TableDefinition::new().index("k", [Field::value(0..4)]))?;
    let run = measure(&Millpond { db: db.clone(), table }, threads, seconds, rows);
    db.close()?;
    run
}

struct Millpond {
    db: Db,
    table: Table,
}

impl Engine for Millpond {
    fn insert(&self, rows: &[Row], is_durable: bool) -> Outcome<()> {
        let mut batch = WriteBatch::new();
        batch.durability(if is_durable { Durability::Commit } else { Durability::None });
        rows.iter().for_each(|(key, value)| _ = batch.insert(&self.table, key, value));
        self.db.write(batch)?;
        Ok(())
    }

    fn settle(&self) -> Outcome<()> {
        Ok(self.db.checkpoint()?)
    }

    fn counts(&self) -> Outcome<(u64, u64)> {
        let rows = u64::try_from(self.table.scan(..).count())?;
        Ok((rows, u64::try_from(self.table.index("k")?.scan(..).count())?))
    }
}

/// Inserts `rows` rows, then measures.
fn measure(engine: &impl Engine, threads: u64, seconds: u64, rows: u64) -> Outcome<Run> {
    let mut of_load = Rows::new(0);
    for _ in 0..rows.div_ceil(TOGETHER as u64) {
        engine.insert(of_load.next(), false)?;
    }
    engine.settle()?;
    let (inserted, began, length) = (AtomicU64::new(0), Instant::now(), Duration::from_secs(seconds));
    let cpu_before = cpu();
    let per_thread = std::thread::scope(|scope| {
        let insert = |thread| {
            let (mut rows, mut per_second) = (Rows::new(thread), vec![0; usize::try_from(seconds)?]);
            let mut slowest = Duration::ZERO;
            while began.elapsed() < length {
                let rows = rows.next();
                let before = Instant::now();
                engine.insert(rows, true)?;
                slowest = slowest.max(before.elapsed());
                inserted.fetch_add(TOGETHER as u64, Ordering::Relaxed);
                if let Some(count) = per_second.get_mut(usize::try_from(began.elapsed().as_secs())?) {
                    *count += TOGETHER as u64;
                }
            }
            Outcome::Ok((per_second, slowest))
        };
        let running: Vec<_> = (1..=threads).map(|thread| scope.spawn(move || insert(thread))).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect::<Outcome<Vec<_>>>()
    })?;
    let (cpu, inserted) = (cpu() - cpu_before, inserted.into_inner());
    let all = inserted + rows.div_ceil(TOGETHER as u64) * TOGETHER as u64;
    let counts = engine.counts()?;
    if counts != (all, all) {
        return Err(format!("{counts:?} rows and entries, not {all}").into());
    }
    let sums = |second| per_thread.iter().map(|(per_second, _): &(Vec<u64>, Duration)| per_second[second]).sum();
    let per_second: Vec<u64> = (0..usize::try_from(seconds)?).map(sums).collect();
    Ok(Run {
        calm: Calm::of(&per_second, None).ok_or("a run of no second")?,
        slowest: per_thread.iter().map(|(_, slowest)| *slowest).max().unwrap_or_default(),
        cpu_us_a_row: cpu.as_secs_f64() * 1e6 / inserted.max(1) as f64,
    })
}

/// CPU time of all threads of the process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The rows of one thread.
struct Rows {
    random: rand_xoshiro::Xoshiro256PlusPlus,
    rows: Vec<Row>,
}

impl Rows {
    fn new(thread: u64) -> Rows {
        let random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(17 + thread);
        Rows { random, rows: vec![([0; 8], [0; VALUE]); TOGETHER] }
    }

    /// Draws the next rows. Two keys of 2^64 are hardly ever the same.
    fn next(&mut self) -> &[Row] {
        for (key, value) in &mut self.rows {
            *key = self.random.random();
            self.random.fill(&mut value[..]);
        }
        &self.rows
    }
}

#[cfg(feature = "redb")]
mod peer {
    use std::path::Path;

    use redb::{Database, Durability, ReadableDatabase, ReadableTableMetadata, TableDefinition};

    use super::{Engine, Outcome, Row, Run, measure};

    const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
    const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("k");

    struct Redb(Database);

    pub(super) fn with_redb(dir: &Path, cache: usize, seconds: u64, rows: u64) -> Outcome<Run> {
        std::fs::create_dir(dir)?;
        let db = Database::builder().set_cache_size(cache).create(dir.join("redb"))?;
        measure(&Redb(db), 1, seconds, rows)
    }

    impl Engine for Redb {
        fn insert(&self, rows: &[Row], is_durable: bool) -> Outcome<()> {
            let mut txn = self.0.begin_write()?;
            txn.set_durability(if is_durable { Durability::Immediate } else { Durability::None })?;
            {
                let (mut table, mut entries) = (txn.open_table(ROWS)?, txn.open_table(ENTRIES)?);
                // In the order of keys, as the tree is.
                let mut sorted: Vec<&Row> = rows.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in sorted {
                    table.insert(&key[..], &value[..])?;
                }
                let mut sorted: Vec<[u8; 12]> = rows.iter().map(|(key, value)| entry(key, value)).collect();
                sorted.sort_unstable();
                for entry in &sorted {
                    entries.insert(&entry[..], &[][..])?;
                }
            }
            txn.commit()?;
            Ok(())
        }

        fn settle(&self) -> Outcome<()> {
            self.insert(&[], true)
        }

        fn counts(&self) -> Outcome<(u64, u64)> {
            let txn = self.0.begin_read()?;
            Ok((txn.open_table(ROWS)?.len()?, txn.open_table(ENTRIES)?.len()?))
        }
    }

    /// The entry of a row: k, then the key.
    fn entry(key: &[u8; 8], value: &[u8]) -> [u8; 12] {
        let mut entry = [0; 12];
        entry[..4].copy_from_slice(&value[..4]);
        entry[4..].copy_from_slice(key);
        entry
    }
}
