//! The memory that a database takes, against the stated budget. A process of its own, since its peak counts. For
//! release builds: with debug assertions each mini-transaction keeps copies of its pages.
#![cfg(not(debug_assertions))]

use std::sync::Arc;

use millpond::{ByteSize, Db, Durability, Options, WriteBatch};

/// Variables that tell a process of the second test to write, or to recover; their value is the directory.
const TO_WRITE: &str = "MILLPOND_MEMORY_TO_WRITE";
const TO_RECOVER: &str = "MILLPOND_MEMORY_TO_RECOVER";

/// Peak resident memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A table four times the pool, opened twice, written and read by 64 threads, also with scans and batches.
#[test]
fn memory_is_what_is_stated_and_64_mib() {
    // The build's file system has O_DIRECT; the file system of temporary files may lack it.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let options = || {
        Options::new()
            .buffer_pool_size(ByteSize::mib(32))
            .redo_capacity(ByteSize::mib(64))
            .durability(Durability::Background(50))
    };
    let (rows, mut stated) = (131_072u32, 0);
    for pass in 0..2u8 {
        let db = Db::open(dir.path(), options()).expect("opened");
        let tree = if pass == 0 { db.create_tree("t") } else { db.open_tree("t") }.expect("there");
        let (db, tree) = (Arc::new(db), Arc::new(tree));
        std::thread::scope(|scope| {
            for client in 0..64u32 {
                let (db, tree) = (Arc::clone(&db), Arc::clone(&tree));
                scope.spawn(move || {
                    let mine = |turn: u32| (client * (rows / 64) + turn).wrapping_mul(2_654_435_761) % rows;
                    for turn in (0..rows / 64).step_by(32) {
                        let mut batch = WriteBatch::new();
                        for turn in turn..turn + 32 {
                            batch.put(&*tree, &mine(turn).to_be_bytes(), &[pass; 900]);
                        }
                        db.write(batch).expect("written");
                        assert!(tree.get(&mine(turn).to_be_bytes()).expect("read").is_some());
                        assert!(tree.scan(&mine(turn).to_be_bytes()[..]..).take(50).all(|row| row.is_ok()));
                    }
                });
            }
        });
        stated = db.stats().memory_budget;
        db.checkpoint().expect("done");
        Arc::into_inner(tree).expect("the only one");
        Arc::into_inner(db).expect("the only one").close().expect("closed");
    }
    let peak = peak();
    println!("{} MiB at most, {} MiB stated", peak >> 20, stated >> 20);
    assert!(stated > 32 << 20 && stated < 64 << 20, "{stated} bytes are stated for a pool of 32 MiB");
    assert!(peak < stated + (64 << 20), "{peak} bytes at most, {stated} stated");
    // The peak cannot be much lower: the pool was full.
    assert!(peak > 32 << 20, "{peak}");
}

/// Rows, each nearly as large as a page: about as many pages are dirty in a large pool when the process is killed.
const SCATTERED: u32 = 100_000;

/// A permutation that scatters the rows: factor and number of rows are coprime.
fn scattered(turn: u32) -> u32 {
    turn * 7_919 % SCATTERED
}

/// Fills a pool of 512 MiB with dirty pages of 4 KiB, and ends without closing.
fn write_scattered(dir: &std::path::Path) -> ! {
    let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(640));
    let options = options.redo_capacity(ByteSize::gib(1)).durability(Durability::Background(100));
    let db = Db::open(dir, options).expect("opened");
    let rows = (0..SCATTERED).map(|row| (row.to_be_bytes(), vec![1; 900]));
    let tree = db.bulk_load("t", rows).expect("loaded");
    for turn in 0..SCATTERED {
        let row = scattered(turn);
        tree.put(&row.to_be_bytes(), &[2; 900]).expect("written");
    }
    // Makes the log durable up to here.
    let mut batch = WriteBatch::new();
    batch.put(&tree, b"the last", b"1").durability(Durability::Commit);
    db.write(batch).expect("written");
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// A recovery of many more pages than the pool has frames for, in a process of its own.
#[test]
fn recovery_takes_what_is_stated_and_64_mib() {
    if let Some(dir) = std::env::var_os(TO_WRITE) {
        write_scattered(dir.as_ref());
    }
    if let Some(dir) = std::env::var_os(TO_RECOVER) {
        let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::mib(8));
        let options = options.redo_capacity(ByteSize::gib(1));
        let db = Db::open(&dir, options).expect("recovered");
        let stats = db.stats();
        let (peak, stated) = (peak(), stats.memory_budget);
        println!(
            "recovered {} pages of {} MiB of log: {} MiB at most, {} MiB stated",
            stats.open_redo_pages,
            stats.open_redo_bytes >> 20,
            peak >> 20,
            stated >> 20
        );
        assert!(stats.open_redo_pages > 10_000, "{} pages: more than the 2,048 frames", stats.open_redo_pages);
        assert!(peak < stated + (64 << 20), "{peak} bytes at most, {stated} stated");
        let tree = db.open_tree("t").expect("there");
        assert_eq!(
            tree.scan(..).filter(|row| row.as_ref().is_ok_and(|(_, row)| row[0] == 2)).count(),
            to_usize(SCATTERED)
        );
        db.close().expect("closed");
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    for variable in [TO_WRITE, TO_RECOVER] {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this binary"));
        let child = child.args(["--exact", "recovery_takes_what_is_stated_and_64_mib", "--nocapture"]);
        let ended = child.env(variable, dir.path()).status().expect("started");
        assert!(ended.success(), "{variable}: {ended}");
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).expect("Linux has 64 bits, or 32")
}
