//! The classic ways to free frames: the stalls that they are known for, in virtual time.

use millpond::simulation::{ServiceTime, SimulatedDisk, now_ns, run, sleep_ns};
use millpond::{ByteSize, Db, Durability, EmptyFreeListAlgorithm, Options, Tree, WaitClass, WriteBatch};

use crate::pool::scattered;
use crate::support::open;

/// Rows of the tree, each of which has a leaf of its own.
pub(crate) const ROWS: u32 = 6_000;

/// Frames that are kept free.
const TARGET: usize = 100;

/// A tree four times the pool, of which all frames are in use.
pub(crate) fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(EmptyFreeListAlgorithm::Handoff));
        let mut keys: Vec<[u8; 4]> = (0..ROWS).map(scattered).collect();
        keys.sort_unstable();
        db.bulk_load("t", keys.iter().map(|key| (*key, [1; 2_100]))).expect("loaded");
        db.close().expect("closed");
    });
    SimulatedDisk::with_image(disk.image(), ServiceTime { read_ns: 20_000, write_ns: 50_000, sync_ns: 100_000 })
}

pub(crate) fn options(empty: EmptyFreeListAlgorithm) -> Options {
    Options::new()
        .page_size(ByteSize::kib(4))
        .buffer_pool_size(ByteSize::kib(4 * 1_500))
        .redo_capacity(ByteSize::mib(4))
        .empty_free_list_algorithm(empty)
        .lru_scan_depth(TARGET)
        .read_ahead_pages(0)
}

/// Reads rows that are not in memory, most of them, one after the other; returns the longest that one took, in ms.
fn read_some(tree: &Tree, from: u32, count: u32) -> f64 {
    let slowest = (from..from + count).map(|row| {
        let began = now_ns();
        assert!(tree.get(&scattered(row % ROWS)).expect("read").is_some());
        now_ns() - began
    });
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let slowest = slowest.max().unwrap_or(0) as f64;
    slowest / 1e6
}

/// After each time of quiet, so many ms, what the slowest of 400 reads took.
fn slowest_after(empty: EmptyFreeListAlgorithm, quiet_ms: &[u64]) -> (Vec<f64>, u64, u64) {
    let disk = disk();
    run(2, || {
        let db: Db = open(&disk, options(empty).create(false));
        let tree = db.open_tree("t").expect("there");
        // All frames are in use, and the manager is awake.
        read_some(&tree, 0, 3_000);
        let mut row = 3_000;
        let slowest = quiet_ms.iter().map(|ms| {
            sleep_ns(ms * 1_000_000);
            row += 400;
            read_some(&tree, row, 400)
        });
        let slowest = slowest.collect();
        let waits = db.waits().iter().find(|of| of.class == WaitClass::FreeFrame).map_or(0, |of| of.count);
        (slowest, waits, db.stats().buffer_pool_wait_free_loops)
    })
    .0
}

/// `sqrt(2t)` ms after t ms of quiet, within a third: 100 ms after 5 s, 346 after a minute, 707 after 250 s.
#[test]
fn the_stall_of_backoff_grows_with_the_root_of_the_quiet_time() {
    let (slowest, waits, loops) = slowest_after(EmptyFreeListAlgorithm::Backoff, &[5_000, 60_000, 250_000]);
    for (slowest, told) in slowest.iter().zip([100.0, 346.0, 707.0]) {
        assert!((slowest / told - 1.0).abs() < 1.0 / 3.0, "{slowest} ms, and {told} are told");
    }
    assert!(waits < 100 && loops > 3 * waits, "a stall is counted once: {waits} waits of {loops} sleeps");
}

/// With everything at the tail clean the other two take a frame at once, however long it was quiet.
#[test]
fn neither_legacy_nor_the_handoff_has_it() {
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Handoff] {
        let (slowest, _, loops) = slowest_after(empty, &[0, 5_000, 60_000]);
        assert!(slowest.iter().all(|ms| *ms < 1.0) && loops == 0, "{empty:?}: {slowest:?} ms");
    }
}

/// A batch that changes rows of neighbouring leaves, as many as a part of the pool has frames: they come into one part.
#[test]
fn a_batch_takes_frames_of_another_part_where_all_of_its_own_are_pinned() {
    let disk = disk();
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Backoff] {
        let ((), _) = run(3, || {
            // As few frames are kept free as a split needs.
            let options =
                options(empty).create(false).buffer_pool_size(ByteSize::kib(4 * 1_024)).buffer_pool_instances(32);
            let kept = empty == EmptyFreeListAlgorithm::Backoff;
            let db: Db = open(&disk, if kept { options.free_list_target(2) } else { options });
            let tree = db.open_tree("t").expect("there");
            let mut keys: Vec<[u8; 4]> = (0..ROWS).map(scattered).collect();
            keys.sort_unstable();
            for keys in keys.chunks(64).step_by(8) {
                let mut batch = WriteBatch::new();
                keys.iter().for_each(|key| _ = batch.put(&tree, key, &[2; 2_100]));
                // Splits, too.
                keys.iter().for_each(|key| _ = batch.put(&tree, &[&key[..], b"new"].concat(), &[3; 2_100]));
                batch.durability(Durability::None);
                db.write(batch).expect("written");
            }
            db.close().expect("closed");
        });
    }
}
