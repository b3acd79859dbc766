//! Figures of snapshots: `make figures`.
//!
//! `snapshot_figures DIR [QUEUE_SECONDS]` makes a database in DIR, with 200,000 rows of 100 bytes, all in the pool. It
//! measures taking and dropping a snapshot, and a read of the newest row beside reads at a snapshot, in turns; medians
//! of five. Then a queue: rows come at its tail and go at its head for QUEUE_SECONDS (20), without a snapshot and
//! beside an idle one; what the first row costs afterwards, and what the snapshot keeps. At last scans of a tree of
//! four times the pool, beside a writer that changes its rows as fast as it can: of the newest rows, and at a snapshot
//! taken just before.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::{ByteSize, Db, Durability, Error, Options, Snapshot, Tree, WriteBatch};

const ROWS: u64 = 200_000;
const ROUNDS: usize = 5;
const READS: u64 = 300_000;
const SNAPSHOTS: u64 = 500_000;

/// Rows that the queue has.
const QUEUED: u64 = 1_000;

/// Rows of the tree that is scanned: some 256 MiB.
const SCANNED: u64 = 2_200_000;

/// Looks at the first row.
const LOOKS: u32 = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("snapshot_figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: snapshot_figures DIR [QUEUE_SECONDS]")?;
    let queue = Duration::from_secs(arguments.next().map_or(Ok(20), |seconds| seconds.parse())?);
    let options = Options::new().buffer_pool_size(ByteSize::mib(256)).durability(Durability::Background(50));
    let db = Db::open(Path::new(&dir), options)?;
    println!("| snapshots | |\n|---|---|");
    let tree = db.bulk_load("rows", (0..ROWS).map(|row| (row.to_be_bytes(), [1; 100])))?;
    taking(&db)?;
    reading(&db, &tree)?;
    for holds in [false, true] {
        queueing(&db, queue, holds)?;
    }
    drop(tree);
    db.close()?;
    scanning(&Path::new(&dir).join("scan"))
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

/// Nanoseconds of each of `count` operations.
fn ns_each<T>(count: u64, mut operation: impl FnMut(u64) -> Result<T, Error>) -> Outcome<f64> {
    let began = Instant::now();
    for number in 0..count {
        drop(operation(number)?);
    }
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

fn taking(db: &Db) -> Outcome<()> {
    for live in [0, 16] {
        let held: Vec<Snapshot> = (0..live).map(|_| db.snapshot()).collect::<Result<_, _>>()?;
        let once = || ns_each(SNAPSHOTS, |_| db.snapshot());
        let runs = (0..ROUNDS).map(|_| once()).collect::<Outcome<Vec<_>>>()?;
        println!("| take and drop one, beside {live} others | {:.0} ns |", median(runs));
        drop(held);
    }
    Ok(())
}

fn reading(db: &Db, tree: &Tree) -> Outcome<()> {
    let key = |number: u64| key_of(number, ROWS);
    let old = db.snapshot()?;
    for first in (0..ROWS).step_by(500) {
        let mut batch = WriteBatch::new();
        (first..first + 500).for_each(|row| _ = batch.put(tree, row.to_be_bytes(), [2; 100]));
        db.write(batch)?;
    }
    let fresh = db.snapshot()?;
    let mut runs = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        runs[0].push(ns_each(READS, |number| tree.get(key(number)))?);
        runs[1].push(ns_each(READS, |number| fresh.get(tree, key(number)))?);
        runs[2].push(ns_each(READS, |number| old.get(tree, key(number)))?);
    }
    let [newest, fresh, old] = runs.map(median);
    println!("| get of the newest row | {newest:.0} ns |");
    println!("| get at a fresh snapshot | {fresh:.0} ns, {:.2} times |", fresh / newest);
    println!("| get at a snapshot, the row changed once since | {old:.0} ns, {:.2} times |", old / newest);
    Ok(())
}

fn queueing(db: &Db, time: Duration, holds: bool) -> Outcome<()> {
    let queue = db.create_tree("queue")?;
    (0..QUEUED).try_for_each(|row| queue.put(row.to_be_bytes(), [1; 100]))?;
    let held = if holds { Some(db.snapshot()?) } else { None };
    let (began, mut head) = (Instant::now(), 0);
    while began.elapsed() < time {
        let mut batch = WriteBatch::new();
        batch.insert(&queue, (head + QUEUED).to_be_bytes(), [1; 100]).delete(&queue, head.to_be_bytes());
        db.write(batch)?;
        head += 1;
    }
    let began = Instant::now();
    for _ in 0..LOOKS {
        let (first, _) = queue.first()?.ok_or("the queue is empty")?;
        if first[..] != head.to_be_bytes() {
            return Err("another row is the first of the queue".into());
        }
    }
    let first_us = began.elapsed().as_secs_f64() * 1e6 / f64::from(LOOKS);
    let kept = ByteSize::b(db.stats().undo_bytes_retained);
    let beside = if holds { "beside an idle snapshot" } else { "without a snapshot" };
    println!("| first row of a queue after {head} rows, {beside} | {first_us:.0} us; {kept} of undo pages kept |");
    drop((queue, held));
    db.drop_tree("queue")?;
    Ok(())
}

/// A key of a tree of `rows` rows.
fn key_of(number: u64, rows: u64) -> [u8; 8] {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows).to_be_bytes()
}

fn scanning(dir: &Path) -> Outcome<()> {
    let options = Options::new().buffer_pool_size(ByteSize::mib(64)).durability(Durability::Background(50));
    let db = Db::open(dir, options)?;
    let tree = db.bulk_load("rows", (0..SCANNED).map(|row| (row.to_be_bytes(), [1; 100])))?;
    let (ends, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let runs = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let number = written.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = tree.put(key_of(number, SCANNED), [3; 100]) {
                    eprintln!("snapshot_figures: the writer ended: {error}");
                    return;
                }
            }
        });
        let rounds = || -> Outcome<[Vec<f64>; 4]> {
            let mut runs = [const { Vec::new() }; 4];
            for round in 0..2 * ROUNDS {
                let (is_old, began, before) = (round % 2, Instant::now(), written.load(Ordering::Relaxed));
                let mut scan = match is_old {
                    0 => tree.scan(..),
                    _ => db.snapshot()?.scan(&tree, ..)?,
                };
                let mut rows = 0;
                while scan.next_row()?.is_some() {
                    rows += 1;
                }
                if rows != SCANNED {
                    return Err("a scan has another number of rows".into());
                }
                let seconds = began.elapsed().as_secs_f64();
                runs[is_old].push(SCANNED as f64 / seconds);
                runs[2 + is_old].push((written.load(Ordering::Relaxed) - before) as f64 / seconds);
            }
            Ok(runs)
        };
        let runs = rounds();
        ends.store(true, Ordering::Relaxed);
        runs
    })?;
    let [newest, old, beside_newest, beside_old] = runs.map(median);
    println!("| scan of four times the pool, newest rows | {newest:.0} rows/s, beside {beside_newest:.0} writes/s |");
    let ratio = old / newest;
    println!("| the same at a snapshot | {old:.0} rows/s, {ratio:.2} times, beside {beside_old:.0} writes/s |");
    drop(tree);
    db.close()?;
    Ok(())
}
