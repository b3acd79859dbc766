//! Figures of an index that is created on a table with rows.
//!
//! `index_figures DIR [ROWS [POOL_MIB]]`: ROWS (20 million) rows of the size of sysbench's, 8 bytes of key and 184 of
//! value, are loaded into a new database in DIR with a pool of POOL_MIB (256). DIR must not exist, and is removed at
//! the end. One load has an index on k, 4 random bytes; the other has none. Then the index is created: by itself, and
//! beside a thread that updates k in rows of the table, each in a durable commit. Prints a Markdown table.

mod beside;
mod common;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::{ByteSize, Db, Field, Options, Table, TableDefinition};
use rand::{RngExt, SeedableRng};

use beside::{Updates, update_while};
use common::{Outcome, VALUE, exit, must_be_new};

/// Bytes of the text that the values are cut from: few enough for the CPU's cache.
const TEXT: usize = 64 << 10;

fn main() -> ExitCode {
    exit("index_figures", run())
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("usage: index_figures DIR [ROWS [POOL_MIB]]")?;
    let rows = arguments.next().map_or(Ok(20_000_000), |rows| rows.parse())?;
    let pool = arguments.next().map_or(Ok(256), |mib| mib.parse())?;
    let dir = Path::new(&dir);
    must_be_new(dir)?;
    let figures = measure(dir, rows, pool);
    std::fs::remove_dir_all(dir)?;
    figures
}

fn measure(dir: &Path, rows: u64, pool: u64) -> Outcome<()> {
    let redo_capacity = ByteSize::gib(1);
    let options = Options::new().buffer_pool_size(ByteSize::mib(pool)).redo_capacity(redo_capacity);
    let db = Db::open(dir, options)?;
    db.set_redo_capacity(redo_capacity)?;
    let on_k = || [Field::value(0..4)];
    let per_s = |began: Instant| rows as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    load(&db, TableDefinition::new().index("k", on_k()), rows)?;
    let with_index = per_s(began);
    db.drop_table("sbtest1")?;
    let began = Instant::now();
    let table = load(&db, TableDefinition::new(), rows)?;
    let without = per_s(began);

    let began = Instant::now();
    table.create_index("k", on_k())?;
    let by_itself = per_s(began);
    let began = Instant::now();
    table.drop_index("k")?;
    let dropped_ms = began.elapsed().as_secs_f64() * 1e3;

    let began = Instant::now();
    let alone = update_table(&table, rows, || began.elapsed() < Duration::from_secs(5))?;
    let making = AtomicBool::new(true);
    let began = Instant::now();
    let (beside, updates) = std::thread::scope(|scope| -> Outcome<_> {
        let updates = scope.spawn(|| update_table(&table, rows, || making.load(Ordering::Relaxed)));
        let made = table.create_index("k", on_k());
        let beside = per_s(began);
        making.store(false, Ordering::Relaxed);
        let updates = updates.join().map_err(|_| "a thread panicked")??;
        made?;
        Ok((beside, updates))
    })?;
    let entries = table.index("k")?.scan(..).count();
    if entries as u64 != rows {
        return Err(format!("the index has {entries} entries").into());
    }
    let began = Instant::now();
    db.truncate_table("sbtest1")?;
    let truncated_ms = began.elapsed().as_secs_f64() * 1e3;
    db.close()?;

    println!("| index on k of {rows} rows of {} bytes, pool of {pool} MiB | |\n|---|---|", 8 + VALUE);
    println!("| rows per second of a bulk load, without an index | {without:.0} |");
    println!("| rows per second of a bulk load with the index | {with_index:.0} |");
    println!("| rows per second of the index, made by itself | {by_itself:.0} |");
    println!("| the same, beside a thread that updates | {beside:.0} |");
    for (what, updates) in [("by itself", &alone), ("beside the build", &updates)] {
        println!("| durable updates of k, one thread {what} | {updates} |");
    }
    println!("| the index dropped, the table truncated | {dropped_ms:.1} ms, {truncated_ms:.1} ms |");
    Ok(())
}

/// The table, of rows with ascending keys.
fn load(db: &Db, definition: TableDefinition, rows: u64) -> Outcome<Table> {
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(1);
    let text: Vec<u8> = (0..TEXT + VALUE).map(|_| random.random_range(b'0'..=b'9')).collect();
    let mut load = db.begin_bulk_load_table("sbtest1", definition)?;
    let mut value = [0; VALUE];
    for row in 0..rows {
        let from = row.wrapping_mul(0x9E37_79B9) as usize % TEXT;
        value.copy_from_slice(&text[from..from + VALUE]);
        value[..4].copy_from_slice(&random.random::<u32>().to_be_bytes());
        load.push(row.to_be_bytes(), value)?;
    }
    Ok(load.finish()?)
}

/// Changes k of random rows while `go_on` returns true.
fn update_table(table: &Table, rows: u64, go_on: impl Fn() -> bool) -> Outcome<Updates> {
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(2);
    update_while(go_on, |_| {
        let key = random.random_range(0..rows).to_be_bytes();
        let mut row = table.get(key)?.ok_or("a row is gone")?;
        row[..4].copy_from_slice(&random.random::<u32>().to_be_bytes());
        let before = Instant::now();
        table.update(key, &row)?;
        Ok(before.elapsed())
    })
}
