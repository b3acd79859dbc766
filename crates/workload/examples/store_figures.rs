//! Figures of the store: `make figures`.
//!
//! Loads a database, opens it clean, updates it at random, kills a process during updates, and opens the database that
//! the process left. Prints a Markdown table. `store_figures DIR [GIB]` makes the database in DIR, which must not
//! exist, and removes it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millpond::metrics::Stats;
use millpond::{ByteSize, Db, Durability, Error, Options, WriteBatch};

/// Bytes of a row's value: three rows fit in a page.
const VALUE: usize = 4000;
const PAGE: u64 = 16 << 10;
const THREADS: u64 = 8;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const REDO_CAPACITY: ByteSize = ByteSize::mib(2560);

fn options() -> Options {
    Options::new()
        .buffer_pool_size(ByteSize::mib(512))
        .redo_capacity(REDO_CAPACITY)
        .durability(Durability::Background(100))
}

fn open(dir: &Path) -> Result<Db, Error> {
    let db = Db::open(dir, options())?;
    // Waits for the log's files: no measurement runs while a thread makes them.
    db.set_redo_capacity(REDO_CAPACITY)?;
    Ok(db)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let outcome = match arguments.get(1).map(String::as_str) {
        Some("--update-until-killed") => update_until_killed(Path::new(&arguments[2])),
        Some(dir) => {
            let gib = arguments.get(2).map_or(Ok(10), |gib| gib.parse::<u64>());
            gib.map_err(Into::into).and_then(|gib| figures(Path::new(dir), gib))
        }
        None => Err("usage: store_figures DIR [GIB]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("store_figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn line(what: &str, value: &str) {
    println!("| {what} | {value} |");
}

fn figures(dir: &Path, gib: u64) -> Outcome<()> {
    if dir.exists() {
        return Err(format!("'{}' exists: name a directory that does not", dir.display()).into());
    }
    let result = measure(dir, gib);
    std::fs::remove_dir_all(dir)?;
    result
}

fn measure(dir: &Path, gib: u64) -> Outcome<()> {
    let rows = load(dir, gib)?;
    println!("| figure | value |\n|---|---|");
    let mut opens = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let db = open(dir)?;
        opens.push(began.elapsed());
        db.close()?;
    }
    opens.sort();
    let map_len = std::fs::metadata(dir.join("map.mpd"))?.len() + std::fs::metadata(dir.join("directory-0.mpd"))?.len();
    let pages = std::fs::metadata(dir.join("data.mpd"))?.len();
    line("rows, each of 4,000 bytes", &rows.to_string());
    line("data file", &ByteSize::b(pages).to_string());
    line("clean open, median of 5", &format!("{:.0} ms", opens[2].as_secs_f64() * 1e3));
    let share = map_len as f64 / (pages as f64 / (1u64 << 30) as f64);
    line("map and directory files per GiB of data file", &ByteSize::b(share as u64).to_string());
    writes(dir, rows)?;
    crash(dir)
}

/// Loads rows in ascending order from one thread. Returns their number.
fn load(dir: &Path, gib: u64) -> Outcome<u64> {
    let rows = (gib << 30) / (VALUE as u64 + 100);
    let db = open(dir)?;
    let tree = db.create_tree("t")?;
    let value = [7u8; VALUE];
    let mut row = 0;
    while row < rows {
        let mut batch = WriteBatch::new();
        for _ in 0..16.min(rows - row) {
            batch.put(&tree, row.to_be_bytes(), value);
            row += 1;
        }
        db.write(batch)?;
        if row % (1 << 18) == 0 {
            eprint!("\rloaded {} of {rows} rows", row);
        }
    }
    eprintln!("\rloaded {rows} rows      ");
    db.close()?;
    Ok(rows)
}

/// Updates whole rows, uniformly at random, from several threads while `go_on` is true. Returns the number of updates.
fn update(db: &Db, rows: u64, go_on: impl Fn() -> bool + Sync) -> Outcome<u64> {
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let (done, go_on) = (&done, &go_on);
                scope.spawn(move || -> Outcome<()> {
                    let tree = db.open_tree("t")?;
                    let mut random = thread.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let mut value = [0u8; VALUE];
                    while go_on() {
                        // xorshift64 (Marsaglia, 2003).
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        value[..8].copy_from_slice(&random.to_le_bytes());
                        tree.put((random % rows).to_be_bytes(), value)?;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok(done.load(Ordering::Relaxed))
}

fn writes(dir: &Path, rows: u64) -> Outcome<()> {
    let db = open(dir)?;
    let before = db.stats();
    let began = Instant::now();
    let updates = update(&db, rows, || began.elapsed() < Duration::from_secs(20))?;
    let elapsed = began.elapsed();
    let after = db.stats();
    let of = |field: fn(&Stats) -> u64| field(&after) - field(&before);
    let pages = of(|stats| stats.data_page_writes);
    let per = |count: u64, by: u64| format!("{:.1}", count as f64 / by.max(1) as f64);
    line(
        "uniform updates, 8 threads, background durability",
        &format!("{:.0}/s", updates as f64 / elapsed.as_secs_f64()),
    );
    line("page writes per second", &format!("{:.0}", pages as f64 / elapsed.as_secs_f64()));
    line("page writes per write call", &per(pages, of(|stats| stats.data_write_calls)));
    line("page writes per data sync", &per(pages, of(|stats| stats.data_syncs)));
    line("map records per map group", &per(of(|stats| stats.map_records), of(|stats| stats.map_groups)));
    let map_pages = of(|stats| stats.map_page_writes);
    let bytes = of(|stats| stats.log_bytes_written) + pages * PAGE + map_pages * 4096;
    line("log bytes per updated row of 4,000 bytes", &per(of(|stats| stats.log_bytes_written), updates));
    line("map page bytes per updated row", &per(map_pages * 4096, updates));
    line("bytes written per updated row, all", &per(bytes, updates));
    line("the same, per page written", &per(bytes, pages));
    db.close()?;
    Ok(())
}

/// Updates rows. Prints `full` once the checkpoint age exceeds a GiB, and goes on until it is killed.
fn update_until_killed(dir: &Path) -> Outcome<()> {
    let db = open(dir)?;
    // As many rows as the pool holds: pages stay dirty until the log needs them written.
    let rows = (400 << 20) / (VALUE as u64 + 100);
    let (began, told) = (Instant::now(), AtomicU64::new(0));
    update(&db, rows, || {
        if db.stats().log_checkpoint_age > 1 << 30 && told.fetch_add(1, Ordering::Relaxed) == 0 {
            println!("full");
        }
        began.elapsed() < Duration::from_secs(120)
    })?;
    Err("the log was not full after 120 s".into())
}

fn crash(dir: &Path) -> Outcome<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--update-until-killed".as_ref(), dir.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut first = [0];
    let told = child.stdout.as_mut().map(|out| out.read_exact(&mut first));
    child.kill()?;
    child.wait()?;
    if !matches!(told, Some(Ok(()))) {
        return Err("the child ended before the log was full".into());
    }
    let began = Instant::now();
    let db = open(dir)?;
    let elapsed = began.elapsed().as_secs_f64();
    let stats = db.stats();
    line("open after kill -9, pool of 512 MiB", &format!("{elapsed:.2} s"));
    line("log read", &ByteSize::b(stats.open_redo_bytes).to_string());
    line("pages redone", &stats.open_redo_pages.to_string());
    line("pages read", &stats.data_page_reads.to_string());
    db.close()?;
    Ok(())
}
