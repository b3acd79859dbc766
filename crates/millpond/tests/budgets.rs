//! The cost of an operation, in counts: heap allocations, and syncs of the log. For release builds: with debug
//! assertions each mini-transaction keeps copies of its pages.
#![cfg(not(debug_assertions))]

use std::time::Instant;

use millpond::{ByteSize, Db, Durability, Options, Tree, WriteBatch};
use tempfile::TempDir;

fn warm() -> (Db, Tree, TempDir) {
    // The build's file system has O_DIRECT; the file system of temporary files may lack it.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let options = Options::new().buffer_pool_size(ByteSize::mib(64)).redo_capacity(ByteSize::mib(256));
    let db = Db::open(dir.path(), options).expect("opened");
    let tree = db.create_tree("t").expect("created");
    for row in 0..2000u32 {
        tree.put(&row.to_be_bytes(), &[1; 100]).expect("written");
    }
    // Now the routes and the thread's own memory exist.
    for row in 0..2000u32 {
        tree.put(&row.to_be_bytes(), &[2; 100]).expect("written");
    }
    (db, tree, dir)
}

/// Write calls that this thread has made.
fn write_calls() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").expect("Linux");
    io.lines().find_map(|line| line.strip_prefix("syscw: ")).expect("there").parse().expect("a number")
}

/// Heap allocations of 1000 operations. They are counted by thread, so the keeper's are not included.
fn allocations(mut operation: impl FnMut(u32)) -> u64 {
    allocation_counter::measure(|| (0..1000).for_each(&mut operation)).count_total
}

#[test]
fn a_durable_update_allocates_nothing_and_syncs_once() {
    let (db, tree, _dir) = warm();
    let (before, writes, began) = (db.stats(), write_calls(), Instant::now());
    let count = allocations(|row| tree.put(&row.to_be_bytes(), &[3; 100]).expect("written"));
    let (after, writes, elapsed) = (db.stats(), write_calls() - writes, began.elapsed());
    // The keeper runs every 50 ms, and may have the log synced for a page that it writes, or for a checkpoint: the
    // slower the machine, the more often.
    let by_keeper = 3 * (u64::try_from(elapsed.as_millis()).expect("short") / 50 + 1);
    // A commit that comes meanwhile waits for that sync, and allocates its wait place.
    assert!(count <= by_keeper + 10, "{count} heap allocations of 1000 updates in {elapsed:?}");
    let syncs = after.log_syncs - before.log_syncs;
    assert!((1000..=1000 + by_keeper).contains(&syncs), "{syncs} syncs for 1000 commits in {elapsed:?}");
    // Each sync takes one write. The log may end in another file now and then.
    let least = 1000_u64.saturating_sub(by_keeper);
    assert!((least..1010).contains(&writes), "{writes} writes for 1000 commits in {elapsed:?}");
    db.close().expect("closed");
}

#[test]
fn an_update_logs_what_it_changes() {
    let (db, tree, _dir) = warm();
    let row = |k: u32| [&[5; 60][..], &k.to_be_bytes(), &[6; 120]].concat();
    (0..1000u32).for_each(|id| tree.put(&id.to_be_bytes(), &row(0)).expect("written"));
    let before = db.stats().log_lsn_current;
    // Without waits for the device: the shorter the run, the fewer map records the keeper logs meanwhile.
    (0..1000u32).for_each(|id| {
        let mut batch = WriteBatch::new();
        batch.put(&tree, &id.to_be_bytes(), &row(id + 1)).durability(Durability::None);
        db.write(batch).expect("written");
    });
    let bytes = db.stats().log_lsn_current - before;
    // The group takes 21, the commit 7, the row's record 21 and its patch 38 (key, stamp, changed bytes). The undo
    // record for the same takes as much again. The keeper may log map records.
    assert!((130_000..180_000).contains(&bytes), "{bytes} bytes of log for 1000 updates of 4 bytes in rows of 184");
    db.close().expect("closed");
}

#[test]
fn a_read_allocates_the_value_only() {
    let (db, tree, _dir) = warm();
    let count = allocations(|row| {
        tree.get(&row.to_be_bytes()).expect("read");
    });
    assert_eq!(count, 1000, "the values of 1000 reads");
    let count = allocations(|row| {
        let mut scan = tree.scan(&row.to_be_bytes()[..]..&(row + 100).to_be_bytes()[..]);
        while scan.next_row().expect("read").is_some() {}
    });
    // The scan's bounds, and the memory for its rows, which grows a few times: no allocation for each row.
    assert!(count < 20 * 1000, "{count} allocations of 1000 scans of 100 rows");
    db.close().expect("closed");
}

#[test]
fn a_refused_write_allocates_nothing() {
    let (db, tree, _dir) = warm();
    // The first error of the thread allocates what those after it use.
    assert!(tree.insert(1u32.to_be_bytes(), [1; 100]).is_err());
    let count = allocations(|row| assert!(tree.insert(row.to_be_bytes(), [1; 100]).is_err()));
    assert_eq!(count, 0, "for 1000 refused inserts");
    let count = allocations(|row| assert!(tree.update((row + 5000).to_be_bytes(), [1; 100]).is_err()));
    assert_eq!(count, 0, "for 1000 refused updates");
    db.close().expect("closed");
}
