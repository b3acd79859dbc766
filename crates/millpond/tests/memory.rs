//! The memory that a database takes, against what it says. A process of its own: its peak counts. For release builds:
//! with debug assertions each mini-transaction keeps copies of its pages.
#![cfg(not(debug_assertions))]

use std::sync::Arc;

use millpond::{ByteSize, Db, Durability, Options, WriteBatch};

/// Bytes of memory that this process had resident at most.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A table four times the pool, written and read by 64 threads, scans and batches among it, twice opened.
#[test]
fn memory_is_what_is_stated_and_64_mib() {
    // The build's file system has O_DIRECT, which that of temporary files may not have.
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
    // It cannot be much less: the pool was full.
    assert!(peak > 32 << 20, "{peak}");
}
