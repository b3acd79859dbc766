//! The classic ways to free frames: the stalls that they are known for, in virtual time.

use std::time::Duration;

use millpond::simulation::{ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, EmptyFreeListAlgorithm, Options, Stall, Tree, WaitClass, WriteBatch};

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

/// What reads after some times of quiet came to.
struct Read {
    /// What the slowest of 400 took, in ms, after each.
    slowest_ms: Vec<f64>,
    /// Waits for a free frame, as the class counts them, and as the pool does.
    waits: [u64; 2],
    loops: u64,
    stalls: Vec<Stall>,
}

/// Reads after each time of quiet, so many ms.
fn read_after(empty: EmptyFreeListAlgorithm, quiet_ms: &[u64]) -> Read {
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
        let slowest_ms = slowest.collect();
        let (waits, stats) = (waits_for_frames(&db), db.stats());
        Read { slowest_ms, waits, loops: stats.buffer_pool_wait_free_loops, stalls: db.stalls() }
    })
    .0
}

/// Waits for a free frame, as their class counts them, and as the pool does.
fn waits_for_frames(db: &Db) -> [u64; 2] {
    let of_class = db.waits().iter().find(|of| of.class == WaitClass::FreeFrame).map_or(0, |of| of.count);
    [of_class, db.stats().buffer_pool_wait_free]
}

/// A stall is explained by its line alone: so much of it, in per cent, was spent on this class.
pub(crate) fn share(stall: &Stall, class: WaitClass) -> u128 {
    let waited = stall.waits.iter().find(|(of, _)| *of == class).map_or(0, |(_, time)| time.as_micros());
    waited * 100 / stall.elapsed.as_micros()
}

/// `sqrt(2t)` ms after t ms of quiet, within a third: 100 ms after 5 s, 346 after a minute, 707 after 250 s.
#[test]
fn the_stall_of_backoff_grows_with_the_root_of_the_quiet_time() {
    let Read { slowest_ms, waits, loops, stalls } =
        read_after(EmptyFreeListAlgorithm::Backoff, &[5_000, 60_000, 250_000]);
    for (slowest, told) in slowest_ms.iter().zip([100.0, 346.0, 707.0]) {
        assert!((slowest / told - 1.0).abs() < 1.0 / 3.0, "{slowest} ms, and {told} are told");
    }
    assert!(
        waits[0] == waits[1] && (2..100).contains(&waits[0]),
        "a stall is counted once: {waits:?} of {loops} sleeps"
    );
    assert!(loops > 3 * waits[0], "{waits:?} waits of {loops} sleeps");
    assert!(stalls.len() >= 2, "{stalls:?}");
    stalls.iter().for_each(|stall| assert!(share(stall, WaitClass::FreeFrame) >= 90, "{stall}"));
}

/// With everything at the tail clean the other two take a frame at once, however long it was quiet. With `legacy` no
/// frame is ever free then, and nobody has waited for one.
#[test]
fn neither_legacy_nor_the_handoff_has_it() {
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Handoff] {
        let Read { slowest_ms, waits, loops, stalls } = read_after(empty, &[0, 5_000, 60_000]);
        assert!(slowest_ms.iter().all(|ms| *ms < 1.0) && loops == 0, "{empty:?}: {slowest_ms:?} ms");
        assert!(stalls.is_empty() && (empty == EmptyFreeListAlgorithm::Handoff || waits == [0, 0]), "{waits:?}");
    }
}

/// Everything dirty: who needs a frame writes a page, with the others behind him, and each of them has waited once.
#[test]
fn a_convoy_of_legacy_is_told_by_the_class_of_its_waits() {
    let disk = disk();
    let disk =
        SimulatedDisk::with_image(disk.image(), ServiceTime { read_ns: 20_000, write_ns: 50_000, sync_ns: 9_000_000 });
    let ((waits, single, stalls), _) = run(4, || {
        let options = options(EmptyFreeListAlgorithm::Legacy).create(false).durability(Durability::None);
        let db: Db = open(&disk, options.stall_threshold(Duration::from_millis(20)));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let db = db.clone();
                spawn("writer", move || {
                    let tree = db.open_tree("t").expect("there");
                    for row in (0..1_000).map(|row| scattered((writer * 1_500 + row) % ROWS)) {
                        tree.put(&row, &[2; 2_100]).expect("written");
                    }
                })
                .expect("a thread")
            })
            .collect();
        writers.into_iter().for_each(|thread| thread.join().expect("no panic"));
        (waits_for_frames(&db), db.stats().buffer_pool_single_page_flushes, db.stalls())
    });
    // The engine's own threads wait for frames, too, and are in the pool's count only.
    assert!(single > 100 && waits[0] >= single && waits[1] >= waits[0], "{single} pages in {waits:?} waits");
    // Others were behind one of these in the lane, or came when the log was short.
    let explained = stalls.iter().filter(|stall| share(stall, WaitClass::FreeFrame) >= 80).count();
    assert!(stalls.len() > 50 && explained * 5 >= stalls.len() * 4, "{explained} of {}", stalls.len());
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
