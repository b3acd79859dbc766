//! The classic ways to free frames: their known stalls, in virtual time.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use millpond::classic::{AdaptiveFlushingMethod, DirtyTracking, EmptyFreeListAlgorithm};
use millpond::metrics::{Stall, Stats, WaitClass};
use millpond::simulation::{ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Options, Tree, WriteBatch};

use crate::pool::scattered;
use crate::support::open;

/// Rows of the tree, each on a leaf of its own.
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
        .classic(|classic| classic.empty_free_list_algorithm(empty).lru_scan_depth(TARGET))
        .read_ahead_pages(0)
}

/// Reads rows, most of which are not in memory, one after the other. Returns the longest time of a read, in ms.
fn read_some(tree: &Tree, from: u32, count: u32) -> f64 {
    let slowest = (from..from + count).map(|row| {
        let began = now_ns();
        assert!(tree.get(scattered(row % ROWS)).expect("read").is_some());
        now_ns() - began
    });
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let slowest = slowest.max().unwrap_or(0) as f64;
    slowest / 1e6
}

/// Results of reads after times of quiet.
struct Read {
    /// The slowest of 400 reads after each time of quiet, in ms.
    slowest_ms: Vec<f64>,
    /// Waits for a free frame, as the class counts them, and as the pool does.
    waits: [u64; 2],
    loops: u64,
    stalls: Vec<Stall>,
}

/// Reads after each time of quiet, given in ms.
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

/// The per cent of a stall that its report ascribes to this class.
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

/// With only clean pages at the tail, the other two take a frame at once, after any time of quiet. `legacy` keeps no
/// frames free, and counts no wait for one.
#[test]
fn neither_legacy_nor_the_handoff_has_it() {
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Handoff] {
        let Read { slowest_ms, waits, loops, stalls } = read_after(empty, &[0, 5_000, 60_000]);
        assert!(slowest_ms.iter().all(|ms| *ms < 1.0) && loops == 0, "{empty:?}: {slowest_ms:?} ms");
        assert!(stalls.is_empty() && (empty == EmptyFreeListAlgorithm::Handoff || waits == [0, 0]), "{waits:?}");
    }
}

/// A thread that panics drops the last handle of the database. A thread with a handle of a tree still gets frames,
/// although the threads that supply them are gone.
#[test]
fn tree_handle_reads_on_after_the_database_dropped_in_a_panic() {
    use EmptyFreeListAlgorithm::{Backoff, Handoff, Legacy};
    for empty in [Handoff, Legacy, Backoff] {
        let disk = disk();
        run(3, || {
            let db = open(&disk, options(empty).create(false));
            let tree = db.open_tree("t").expect("there");
            read_some(&tree, 0, 3_000);
            let unwinds = std::panic::catch_unwind(AssertUnwindSafe(|| {
                let _db = db;
                panic!("as planned");
            }));
            assert!(unwinds.is_err());
            read_some(&tree, 3_000, 3_000);
        });
    }
}

/// Clients, each of which starts a read of a row not in memory at this interval in ns, however slow the read before
/// was.
const CLIENTS: u32 = 4;
const EVERY_NS: u64 = 40_000_000;

/// Reads of light clients beside a scan that takes all free frames.
struct Beside {
    /// When each read began, and how long it took, in ms, by client.
    reads: Vec<Vec<[f64; 2]>>,
    /// When the scan began, and how long it took.
    scan: [f64; 2],
    /// Stalls since the clients started.
    stalls: Vec<Stall>,
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Frames ran out, and clients take few of them during the time of quiet. Then, just after a refill, a scan takes all
/// free frames.
fn clients_beside_a_scan(empty: EmptyFreeListAlgorithm, quiet_ms: u64) -> Beside {
    let disk = disk();
    run(8, || {
        let db = open(&disk, options(empty).create(false));
        let tree = db.open_tree("t").expect("there");
        read_some(&tree, 0, 3_000);
        // Stalls of the reads so far.
        let stalls = db.stalls().len();
        let began = now_ns();
        let ends = began + (quiet_ms + 3_000) * 1_000_000;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let tree = tree.clone();
                let work = move || {
                    let mut reads = Vec::new();
                    for turn in 0.. {
                        let at = began + u64::from(turn * CLIENTS + client) * EVERY_NS / u64::from(CLIENTS);
                        sleep_ns(at.saturating_sub(now_ns()));
                        if at > ends {
                            return reads;
                        }
                        let row = (client * ROWS / CLIENTS + turn * 7) % ROWS;
                        let from = now_ns();
                        assert!(tree.get(scattered(row)).expect("read").is_some());
                        reads.push([from, now_ns() - from].map(ms));
                    }
                    reads
                };
                spawn("client", work).expect("a thread")
            })
            .collect();
        sleep_ns(quiet_ms * 1_000_000);
        let free = || db.stats().buffer_pool_pages_free;
        // The hand-off keeps few frames free at all times.
        let mut before = free();
        while empty == EmptyFreeListAlgorithm::Backoff && free() <= before {
            before = free();
            sleep_ns(1_000_000);
        }
        let from = now_ns();
        assert_eq!(tree.scan(..).take(600).filter(Result::is_ok).count(), 600);
        let scan = [from, now_ns() - from].map(ms);
        let reads = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        Beside { reads, scan, stalls: db.stalls().split_off(stalls) }
    })
    .0
}

/// The published text has 326 to 405 ms, and 555, with one scan in two minutes. Each client waits once, and so does the
/// scan: about `sqrt(2t)` ms, less the part that has passed when a client comes, plus a sleep of 10 ms.
#[test]
fn a_scan_that_takes_all_frames_stalls_all_with_backoff() {
    for (quiet_ms, text) in [(60_000, 300.0..400.0), (120_000, 400.0..555.0)] {
        let Beside { reads, scan: [scan_at, scan_took], stalls } =
            clients_beside_a_scan(EmptyFreeListAlgorithm::Backoff, quiet_ms);
        let told = (2.0 * scan_at).sqrt();
        assert!(scan_took > told - 10.0, "{scan_took} ms, and {told} are told");
        for reads in &reads {
            let slow: Vec<_> = reads.iter().filter(|[_, took]| *took > 5.0).collect();
            let [[at, took]] = slow[..] else { unreachable!("{slow:?} of {}", reads.len()) };
            assert!((0.0..ms(EVERY_NS) + 5.0).contains(&(at - scan_at)), "{at} ms, and the scan at {scan_at}");
            let least = told - ms(EVERY_NS) - 15.0;
            assert!((least..told + 10.0).contains(took) && text.contains(took), "{took} ms, and {told} are told");
        }
        assert_eq!(stalls.len(), 5, "{stalls:?}");
        stalls.iter().for_each(|stall| assert!(share(stall, WaitClass::FreeFrame) >= 90, "{stall}"));
    }
}

/// Beside the same scan no client waits for a millisecond, in which the device reads fifty pages. The scan reads its
/// own pages without a stall.
#[test]
fn a_scan_that_takes_all_frames_stalls_none_with_the_others() {
    for empty in [EmptyFreeListAlgorithm::Handoff, EmptyFreeListAlgorithm::Legacy] {
        let Beside { reads, scan: [_, scan_took], stalls } = clients_beside_a_scan(empty, 10_000);
        let slowest = reads.iter().flatten().map(|[_, took]| *took).fold(0.0, f64::max);
        assert!(reads.iter().all(|reads| reads.len() > 250), "at their rate, until the end");
        assert!(slowest < 1.0 && scan_took < 600.0 * 0.05, "{empty:?}: {slowest} ms; the scan {scan_took}");
        assert!(stalls.is_empty(), "{stalls:?}");
    }
}

/// All pages are dirty. A thread that needs a frame writes a page, the others queue behind it, and each has waited
/// once.
#[test]
fn a_convoy_of_legacy_is_told_by_the_class_of_its_waits() {
    let disk = disk();
    let disk =
        SimulatedDisk::with_image(disk.image(), ServiceTime { read_ns: 20_000, write_ns: 50_000, sync_ns: 9_000_000 });
    let ((waits, single, stalls), _) = run(4, || {
        // A log so long that nothing is written for its sake: that would leave clean pages to take.
        let options = options(EmptyFreeListAlgorithm::Legacy)
            .create(false)
            .redo_capacity(ByteSize::mib(64))
            .redo_capacity_min(ByteSize::mib(64));
        let options = options.durability(Durability::None).stall_threshold(Duration::from_millis(20));
        let db: Db = open(&disk, options);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let db = db.clone();
                spawn("writer", move || {
                    let tree = db.open_tree("t").expect("there");
                    for row in (0..1_000).map(|row| scattered((writer * 1_500 + row) % ROWS)) {
                        tree.put(row, [2; 2_100]).expect("written");
                    }
                })
                .expect("a thread")
            })
            .collect();
        writers.into_iter().for_each(|thread| thread.join().expect("no panic"));
        (waits_for_frames(&db), db.stats().buffer_pool_single_page_flushes, db.stalls())
    });
    // The engine's own threads also wait for frames, and are only in the pool's count.
    assert!(single > 100 && waits[0] >= single && waits[1] >= waits[0], "{single} pages in {waits:?} waits");
    // Other operations waited in the lane behind one of these.
    let explained = stalls.iter().filter(|stall| share(stall, WaitClass::FreeFrame) >= 80).count();
    assert!(stalls.len() > 50 && explained * 5 >= stalls.len() * 4, "{explained} of {}", stalls.len());
}

/// All pages are dirty, so only pages just read may leave at once. An operation keeps the pages on its way down: else
/// the leaf would drive out the page above it, and that page the leaf.
#[test]
fn with_legacy_an_operation_keeps_its_way_down() {
    let disk = disk();
    let ((reads, single), _) = run(2, || {
        let options = options(EmptyFreeListAlgorithm::Legacy).create(false).durability(Durability::None);
        let db = open(&disk, options.redo_capacity(ByteSize::mib(64)).redo_capacity_min(ByteSize::mib(64)));
        let tree = db.open_tree("t").expect("there");
        let put = |row: u32| {
            let mut value = [1; 2_100];
            value[0] = 2;
            tree.put(scattered(row), value).expect("written");
        };
        (0..2_500).for_each(put);
        let before = db.stats();
        (2_500..3_500).for_each(put);
        let after = db.stats();
        let single = after.buffer_pool_single_page_flushes - before.buffer_pool_single_page_flushes;
        (after.data_page_reads - before.data_page_reads, single)
    });
    assert!(single > 500, "{single} pages were written for frames");
    // Root, inner page and leaf, and some more: 4.9 to 5.4 with other schedules. Twice as many if one drives out the
    // other.
    assert!(reads < 1_000 * 6, "{reads} pages were read for 1,000 rows");
}

/// Groups of eight rows: no leaf has the first rows of two groups.
const EIGHTHS: u32 = 6_000;

/// The key of a group's first row. (A leaf holds at most four rows.)
fn eighth(number: u32) -> [u8; 4] {
    (number * 8).to_be_bytes()
}

/// A disk with this tree.
fn disk_of_eighths() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(EmptyFreeListAlgorithm::Handoff));
        db.bulk_load("t", (0..EIGHTHS * 8).map(|row| (row.to_be_bytes(), [1; 900]))).expect("loaded");
        db.close().expect("closed");
    });
    SimulatedDisk::with_image(disk.image(), ServiceTime::default())
}

/// Dirty pages are written only for frames, and when the server is idle.
fn lazy(empty: EmptyFreeListAlgorithm) -> Options {
    options(empty).durability(Durability::None).classic(|classic| {
        let classic = classic.dirty_tracking(DirtyTracking::FlushList);
        classic.adaptive_flushing_method(AdaptiveFlushingMethod::SyncOnly)
    })
}

/// Counts between two snapshots of searches by threads that need a frame: for a clean page, and for a page to write.
/// Each has the number of searches and of pages looked at. Also the pages read meanwhile.
fn searched(before: &Stats, after: &Stats) -> ([u64; 2], [u64; 2], u64) {
    let since = |of: fn(&Stats) -> u64| of(after) - of(before);
    let clean = [since(|stats| stats.buffer_lru_search_num_scan), since(|stats| stats.buffer_lru_search_scanned)];
    let dirty =
        [since(|stats| stats.buffer_lru_single_flush_num_scan), since(|stats| stats.buffer_lru_single_flush_scanned)];
    (clean, dirty, since(|stats| stats.data_page_reads))
}

/// Each search passes over the dirty pages at the tail; from a hundred of them on, there are two searches.
#[test]
fn searches_for_a_clean_page_count_each_page_that_they_look_at() {
    let disk = disk_of_eighths();
    run(5, || {
        let db = open(&disk, lazy(EmptyFreeListAlgorithm::Legacy).create(false));
        let tree = db.open_tree("t").expect("there");
        let mut rows = (0..EIGHTHS).map(eighth);
        let mut next = |count: usize| rows.by_ref().take(count).collect::<Vec<_>>();
        let read = |rows: Vec<[u8; 4]>| rows.iter().for_each(|row| assert!(tree.get(row).expect("read").is_some()));
        // All frames are in use.
        read(next(1_600));
        for (dirty, searches) in [(0, 1), (60, 1), (99, 1), (100, 2), (130, 2)] {
            while db.stats().buffer_pool_pages_dirty < dirty {
                next(1).iter().for_each(|row| tree.put(row, [2; 900]).expect("written"));
            }
            // Three eighths of the list lie between the insertion point and the tail.
            read(next(700));
            let before = db.stats();
            assert_eq!(before.buffer_pool_pages_dirty, dirty);
            read(next(100));
            let (clean, to_write, misses) = searched(&before, &db.stats());
            let looked_at = dirty + 1 + if searches == 2 { 100 } else { 0 };
            assert!(misses >= 100 && to_write == [0, 0], "{misses} misses, {to_write:?}");
            assert_eq!(clean, [misses * searches, misses * looked_at], "{misses} misses behind {dirty} dirty pages");
        }
        let stats = db.stats();
        assert_eq!(
            [stats.buffer_lru_batch_scanned, stats.buffer_pool_single_page_flushes],
            [0, 0],
            "no other thread searches"
        );
        db.close().expect("closed");
    });
}

/// All pages are dirty: each miss looks at the hundred at the tail, then at all pages, then at the page that it writes.
#[test]
fn a_page_that_is_written_for_its_frame_counts_with_searches() {
    run(6, || {
        // The root is directly above all leaves.
        let options = lazy(EmptyFreeListAlgorithm::Legacy).page_size(ByteSize::kib(16));
        let options = options.buffer_pool_size(ByteSize::kib(16 * 400));
        let options = options.redo_capacity(ByteSize::mib(64)).redo_capacity_min(ByteSize::mib(64));
        let db = open(&SimulatedDisk::new(), options);
        let tree = db.create_tree("t").expect("created");
        (0..2_600u32).for_each(|row| tree.put(row.to_be_bytes(), [1; 3_600]).expect("written"));
        // A split may have given a frame back.
        (0..10).for_each(|row| tree.put(eighth(row), [2; 3_600]).expect("written"));
        let before = db.stats();
        assert_eq!([before.buffer_pool_pages_total, before.buffer_pool_pages_free], [400, 0]);
        assert_eq!(before.buffer_pool_pages_dirty, 400);
        (10..110).for_each(|row| tree.put(eighth(row), [2; 3_600]).expect("written"));
        let after = db.stats();
        let (clean, to_write, misses) = searched(&before, &after);
        assert_eq!(misses, 100, "the pages put in first have left");
        // If a page cannot be written at once, the keeper writes it, for the waiter in line.
        let single = after.buffer_pool_single_page_flushes - before.buffer_pool_single_page_flushes;
        let in_lots = after.buffer_lru_batch_flush_total_pages - before.buffer_lru_batch_flush_total_pages;
        assert!(single + in_lots == misses && single >= 90, "{single} and {in_lots} of {misses}");
        assert_eq!(after.data_page_writes - before.data_page_writes, misses, "nothing else is written");
        assert_eq!(clean, [misses * 2, misses * (100 + 400)]);
        assert_eq!((to_write, after.buffer_lru_single_flush_scanned_per_call), ([misses, misses], 1));
        assert_eq!(after.buffer_pool_pages_dirty, 400);
        db.close().expect("closed");
    });
}

/// Only an LRU manager frees frames: as many as were taken. It looks at each page once, and writes the dirty ones.
#[test]
fn what_an_lru_manager_frees_and_writes_is_what_it_looked_at() {
    let disk = disk_of_eighths();
    run(7, || {
        let db = open(&disk, lazy(EmptyFreeListAlgorithm::Backoff).create(false));
        let tree = db.open_tree("t").expect("there");
        let mut rows = (0..EIGHTHS).map(eighth);
        let mut next = |count: usize| rows.by_ref().take(count).collect::<Vec<_>>();
        let read = |rows: Vec<[u8; 4]>| rows.iter().for_each(|row| assert!(tree.get(row).expect("read").is_some()));
        read(next(1_600));
        sleep_ns(2_000_000_000);
        let quiet = db.stats();
        assert_eq!([quiet.buffer_pool_pages_free, quiet.buffer_pool_free_target], [100, 100]);
        let since = |before: &Stats, of: fn(&Stats) -> u64| of(&db.stats()) - of(before);
        let evicted: fn(&Stats) -> u64 = |stats| stats.buffer_lru_batch_evict_total_pages;
        let flushed: fn(&Stats) -> u64 = |stats| stats.buffer_lru_batch_flush_total_pages;
        let scanned: fn(&Stats) -> u64 = |stats| stats.buffer_lru_batch_scanned;
        let reads: fn(&Stats) -> u64 = |stats| stats.data_page_reads;
        // All pages that leave are clean.
        read(next(40));
        sleep_ns(2_000_000_000);
        let taken = since(&quiet, reads);
        assert!(taken >= 40);
        assert_eq!([evicted, scanned, flushed].map(|of| since(&quiet, of)), [taken, taken, 0]);
        let passes = |stats: &Stats| [stats.buffer_lru_batches_evict, stats.buffer_lru_batch_evict_pages];
        let after = db.stats();
        assert_eq!(passes(&after), [passes(&quiet)[0] + 1, taken], "in one pass");
        // Forty pages are dirty, and leave when they have come to the tail. (The first changes bring new pages.)
        next(20).iter().for_each(|row| tree.put(row, [2; 900]).expect("written"));
        // Long enough for the manager to refill the list, and too short for the server to count as idle.
        sleep_ns(500_000_000);
        let before = db.stats();
        while db.stats().buffer_pool_pages_dirty < 40 {
            next(1).iter().for_each(|row| tree.put(row, [2; 900]).expect("written"));
        }
        assert_eq!(db.stats().buffer_pool_pages_dirty, 40);
        read(next(900));
        sleep_ns(2_000_000_000);
        assert_eq!(db.stats().buffer_pool_pages_free, 100);
        let taken = since(&before, reads);
        assert_eq!([flushed, evicted, scanned].map(|of| since(&before, of)), [40, taken - 40, taken]);
        let stats = db.stats();
        assert_eq!(stats.buffer_pool_pages_lru_flushed, stats.buffer_lru_batch_flush_total_pages);
        assert!((1..=40).contains(&stats.buffer_lru_batch_flush_pages) && stats.buffer_lru_batches_flush > 0);
        db.close().expect("closed");
    });
}

/// A batch changes rows on neighbouring leaves, as many as an instance of the pool has frames: all in one instance.
#[test]
fn a_batch_takes_frames_of_another_part_if_its_own_are_pinned() {
    let disk = disk();
    for empty in [EmptyFreeListAlgorithm::Legacy, EmptyFreeListAlgorithm::Backoff] {
        let ((), _) = run(3, || {
            // Only as many frames are kept free as a split needs.
            let options = options(empty).create(false).buffer_pool_size(ByteSize::kib(4 * 1_024));
            let options = options.classic(|classic| classic.buffer_pool_instances(32));
            let kept = empty == EmptyFreeListAlgorithm::Backoff;
            let db: Db = open(&disk, if kept { options.classic(|of| of.free_list_target(2)) } else { options });
            let tree = db.open_tree("t").expect("there");
            let mut keys: Vec<[u8; 4]> = (0..ROWS).map(scattered).collect();
            keys.sort_unstable();
            for keys in keys.chunks(64).step_by(8) {
                let mut batch = WriteBatch::new();
                keys.iter().for_each(|key| _ = batch.put(&tree, key, [2; 2_100]));
                // These cause splits, too.
                keys.iter().for_each(|key| _ = batch.put(&tree, [&key[..], b"new"].concat(), [3; 2_100]));
                batch.durability(Durability::None);
                db.write(batch).expect("written");
            }
            db.close().expect("closed");
        });
    }
}
