//! Figures beside LMDB, redb, fjall and RocksDB: `make figures-others`.
//!
//! `other_figures DIR [SECONDS [ROWS [ROUNDS [ENGINE[,ENGINE]]]]]`: ROWS (1 million) sorted rows, 8 bytes of key and
//! 184 of value, are loaded with an index on k, the value's first 4 bytes, which are random. Then come the figures of
//! the loaded table, each of SECONDS (5). In each of ROUNDS (3), the engines (all) take turns, each with a new database
//! in DIR. DIR must not exist, and is removed at the end. Every commit is durable, and nothing is compressed.
//!
//! The cache is 1 GiB. Only "beyond the cache" it is a fourth of the data, and SECONDS of the same work come before the
//! figure, so that the cache is full and has dirty pages. There, an engine that reads through the system's page cache
//! has no figure: nothing would bound its memory. LMDB has that cache alone, in all figures.
//!
//! Prints a Markdown table with the medians of the rounds; each round's figures go to standard error.

mod common;
mod others;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Outcome, exit, must_be_new};
use others::{Engine, Kind, Memory, ROW_BYTES, Random, Row, loaded_key};

const USAGE: &str = "usage: other_figures DIR [SECONDS [ROWS [ROUNDS [ENGINE[,ENGINE]]]]]";

/// Rows that are inserted together.
const TOGETHER: usize = 1000;

/// Rows of a scan.
const SCANNED: usize = 100;

// The lines of the table.
const LOAD: &str = "load of sorted rows, rows/s";
const UPDATES: [(&str, u64); 3] =
    [("durable updates/s, 1 thread", 1), ("durable updates/s, 16 threads", 16), ("durable updates/s, 64 threads", 64)];
const GETS: [(&str, u64); 3] =
    [("point reads/s, 1 thread", 1), ("point reads/s, 2 threads", 2), ("point reads/s, 16 threads", 16)];
const SCANS: (&str, u64) = ("scans of 100 rows/s, 2 threads", 2);
const BATCHES: &str = "random rows, 1,000 a durable batch, rows/s";
const BATCHES_CPU: &str = "the same: CPU us a row";
const BEYOND: (&str, u64) = ("beyond the cache: durable updates/s, 16 threads", 16);
const BEYOND_BYTES: &str = "the same: bytes written to the device an update";

/// Figures of one engine in one round, by their lines.
type Figures = BTreeMap<&'static str, f64>;

/// What a run does.
struct Plan {
    length: Duration,
    rows: u64,
    /// The next seed. Each thread of each figure draws with a seed of its own: the same values again would move no
    /// entry.
    seed: AtomicU64,
}

impl Plan {
    fn random(&self) -> Random {
        Random::new(self.seed.fetch_add(1, Ordering::Relaxed))
    }
}

fn main() -> ExitCode {
    exit("other_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or(USAGE)?;
    let seconds = arguments.next().map_or(Ok(5), |seconds| seconds.parse())?;
    let rows = arguments.next().map_or(Ok(1_000_000), |rows| rows.parse())?;
    let rounds: u64 = arguments.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let kinds = match arguments.next() {
        Some(names) => names.split(',').map(str::parse).collect::<Result<Vec<Kind>, _>>()?,
        None => Kind::ALL.to_vec(),
    };
    if arguments.next().is_some() || [seconds, rows, rounds].contains(&0) {
        return Err(USAGE.into());
    }
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    let mut runs: Vec<Vec<Figures>> = vec![Vec::new(); kinds.len()];
    for round in 1..=rounds {
        for (kind, runs) in kinds.iter().zip(&mut runs) {
            let plan = Plan { length: Duration::from_secs(seconds), rows, seed: AtomicU64::new(round << 32) };
            let figures = measure(*kind, dir, &plan);
            std::fs::remove_dir_all(dir)?;
            let figures = figures.map_err(|error| format!("{}: {error}", kind.name()))?;
            eprintln!("round {round}, {}: {figures:.1?}", kind.name());
            runs.push(figures);
        }
    }
    print_table(&kinds, &runs, rows);
    Ok(())
}

/// Prints the median of each figure.
fn print_table(kinds: &[Kind], runs: &[Vec<Figures>], rows: u64) {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    println!("| {rows} rows with an index | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(kinds.len()));
    let updates = UPDATES.map(|(line, _)| line);
    let reads = GETS.iter().chain([&SCANS]).map(|(line, _)| *line);
    let last = [BATCHES, BATCHES_CPU, BEYOND.0, BEYOND_BYTES];
    for line in [LOAD].into_iter().chain(updates).chain(reads).chain(last) {
        let cells: Vec<String> = runs.iter().map(|runs| cell(line, runs)).collect();
        println!("| {line} | {} |", cells.join(" | "));
    }
}

fn cell(line: &str, runs: &[Figures]) -> String {
    let mut figures: Vec<f64> = runs.iter().filter_map(|figures| figures.get(line).copied()).collect();
    figures.sort_by(f64::total_cmp);
    match figures.get(figures.len() / 2) {
        Some(median) if *median < 100.0 => format!("{median:.1}"),
        Some(median) => format!("{median:.0}"),
        None => "-".to_owned(),
    }
}

/// One engine's round. The batches come last, because they make the table larger: not all engines' by as much.
fn measure(kind: Kind, dir: &Path, plan: &Plan) -> Outcome<Figures> {
    let mut figures = Figures::new();
    let mut engine = kind.open(dir, Memory::Ample)?;
    let (mut random, rows) = (plan.random(), plan.rows);
    let began = Instant::now();
    engine.load(&mut (0..rows).map(|row| (loaded_key(row, rows), random.value())))?;
    figures.insert(LOAD, rows as f64 / began.elapsed().as_secs_f64());
    // This fills the cache, too.
    check_counts(&*engine, rows)?;
    for (line, threads) in UPDATES {
        figures.insert(line, updates(&*engine, threads, plan)?.per_s());
    }
    check_counts(&*engine, rows)?;
    for (line, threads) in GETS {
        figures.insert(line, gets(&*engine, threads, plan)?.per_s());
    }
    figures.insert(SCANS.0, scans(&*engine, SCANS.1, plan)?.per_s());
    engine.close()?;
    if kind.has_bound() {
        let engine = kind.open(dir, Memory::Bounded(rows * ROW_BYTES / 4))?;
        updates(&*engine, BEYOND.1, plan)?;
        let before = written_bytes()?;
        let done = updates(&*engine, BEYOND.1, plan)?;
        figures.insert(BEYOND_BYTES, (written_bytes()? - before) as f64 / done.count.max(1) as f64);
        figures.insert(BEYOND.0, done.per_s());
        check_counts(&*engine, rows)?;
        engine.close()?;
    }
    let engine = kind.open(dir, Memory::Ample)?;
    check_counts(&*engine, rows)?;
    let (done, cpu) = batches(&*engine, plan)?;
    figures.insert(BATCHES, done.per_s());
    figures.insert(BATCHES_CPU, cpu.as_secs_f64() * 1e6 / done.count.max(1) as f64);
    check_counts(&*engine, rows + done.count)?;
    engine.close()?;
    Ok(figures)
}

/// Fails unless there are so many rows, and as many entries.
fn check_counts(engine: &dyn Engine, rows: u64) -> Outcome<()> {
    match engine.counts()? {
        counts if counts == (rows, rows) => Ok(()),
        (found, entries) => Err(format!("{found} rows and {entries} entries, not {rows} of each").into()),
    }
}

fn updates(engine: &dyn Engine, threads: u64, plan: &Plan) -> Outcome<Done> {
    repeat(threads, plan, || Ok(|random: &mut Random| engine.update(&random.loaded_key(plan.rows), &random.value())))
}

fn gets(engine: &dyn Engine, threads: u64, plan: &Plan) -> Outcome<Done> {
    repeat(threads, plan, || {
        let mut reader = engine.reader()?;
        Ok(move |random: &mut Random| match reader.get(&random.loaded_key(plan.rows))? {
            true => Ok(()),
            false => Err("a row is gone, or not whole".into()),
        })
    })
}

fn scans(engine: &dyn Engine, threads: u64, plan: &Plan) -> Outcome<Done> {
    repeat(threads, plan, || {
        let mut reader = engine.reader()?;
        Ok(move |random: &mut Random| {
            let found = reader.scan(&random.loaded_key(plan.rows), SCANNED)?;
            // Near the last row there are fewer.
            if found > 0 { Ok(()) } else { Err("a scan found no row".into()) }
        })
    })
}

/// Batches of one thread; also returns the CPU time of the process. The count is of rows.
fn batches(engine: &dyn Engine, plan: &Plan) -> Outcome<(Done, Duration)> {
    let mut random = plan.random();
    let (began, cpu_before, mut count) = (Instant::now(), cpu(), 0);
    while began.elapsed() < plan.length {
        let rows: Vec<Row> = (0..TOGETHER).map(|_| (random.new_key(), random.value())).collect();
        engine.insert_batch(&rows)?;
        count += TOGETHER as u64;
    }
    Ok((Done { count, elapsed: began.elapsed() }, cpu() - cpu_before))
}

/// Work that was done.
struct Done {
    count: u64,
    elapsed: Duration,
}

impl Done {
    fn per_s(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }
}

/// Repeats work on some threads for the plan's length. Each thread makes a worker of its own.
fn repeat<W>(threads: u64, plan: &Plan, new_worker: impl Fn() -> Outcome<W> + Sync) -> Outcome<Done>
where
    W: FnMut(&mut Random) -> Outcome<()>,
{
    let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = || -> Outcome<()> {
        let (mut random, mut worker, mut own) = (plan.random(), new_worker()?, 0);
        while !is_over.load(Ordering::Relaxed) {
            worker(&mut random)?;
            own += 1;
        }
        count.fetch_add(own, Ordering::Relaxed);
        Ok(())
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        std::thread::sleep(plan.length);
        is_over.store(true, Ordering::Relaxed);
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(Done { elapsed: began.elapsed(), count: count.into_inner() })
}

/// CPU time of all threads of the process.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes that the process has had written to devices.
fn written_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(line.ok_or("no write_bytes in /proc/self/io")?.parse()?)
}
