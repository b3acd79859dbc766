//! What an operation costs, in counts: heap allocations, and syncs of the log. For release builds: with debug
//! assertions each mini-transaction keeps copies of its pages.
#![cfg(not(debug_assertions))]

use millpond::{ByteSize, Db, Options, Tree};
use tempfile::TempDir;

fn warm() -> (Db, Tree, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::new().buffer_pool_size(ByteSize::mib(64)).redo_capacity(ByteSize::mib(256));
    let db = Db::open(dir.path(), options).expect("opened");
    let tree = db.create_tree("t").expect("created");
    for row in 0..2000u32 {
        tree.put(&row.to_be_bytes(), &[1; 100]).expect("written");
    }
    // Routes and the thread's own memory are there.
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

/// Some operations, whose counts the keeper's work at the same time does not reach: allocations are counted by thread.
fn allocations(mut operation: impl FnMut(u32)) -> u64 {
    allocation_counter::measure(|| (0..1000).for_each(&mut operation)).count_total
}

#[test]
fn a_durable_update_allocates_nothing_and_syncs_once() {
    let (db, tree, _dir) = warm();
    let (before, writes) = (db.stats(), write_calls());
    let count = allocations(|row| tree.put(&row.to_be_bytes(), &[3; 100]).expect("written"));
    let (after, writes) = (db.stats(), write_calls() - writes);
    // Who comes while the keeper has the log synced waits for it, and has a place for that wait allocated.
    assert!(count <= 20, "{count} heap allocations of 1000 updates");
    // Each writes and syncs the log; the keeper may have it synced as well, for a page that it writes.
    let syncs = after.log_syncs - before.log_syncs;
    assert!((1000..1100).contains(&syncs), "{syncs} syncs for 1000 commits of one thread");
    // With the sync these are its system calls. The log may end in another file, now and then.
    assert!((900..1010).contains(&writes), "{writes} writes for 1000 commits");
    db.close().expect("closed");
}

#[test]
fn an_update_logs_what_it_changes() {
    let (db, tree, _dir) = warm();
    let row = |k: u32| [&[5; 60][..], &k.to_be_bytes(), &[6; 120]].concat();
    (0..1000u32).for_each(|id| tree.put(&id.to_be_bytes(), &row(0)).expect("written"));
    let before = db.stats().log_lsn_current;
    (0..1000u32).for_each(|id| tree.put(&id.to_be_bytes(), &row(id + 1)).expect("written"));
    let bytes = db.stats().log_lsn_current - before;
    // Its group 21, the commit 7, the row's record 21 and its patch 38: key, stamp, what changes; the same for what leads
    // back, in the undo page. The keeper may log map records.
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
    // Its bounds, and the memory for its rows, which grows a few times; not one for each row.
    assert!(count < 20 * 1000, "{count} allocations of 1000 scans of 100 rows");
    db.close().expect("closed");
}
