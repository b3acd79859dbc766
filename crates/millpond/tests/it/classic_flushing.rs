//! The classic flushing methods: their known behaviour, in virtual time.

use std::cell::RefCell;
use std::time::Duration;

use millpond::classic::{AdaptiveFlushingMethod, Doublewrite, EmptyFreeListAlgorithm, FlushNeighbors};
use millpond::metrics::{Stall, Stats, WaitClass, WaitSummary};
use millpond::simulation::{ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, WriteBatch};

use crate::classic_pool::share;
use crate::pace::{OVERLOAD_NS, at_work_with};
use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{IN_PLACE, Shape, open};

/// Updates in each second, on a device that sustains two thirds of them. These updates fill three quarters of the log
/// in 12 s.
fn at_work(flushing: AdaptiveFlushingMethod) -> (Vec<usize>, Stats, Vec<WaitSummary>, Vec<Stall>) {
    let (waits, stalls) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let (per_second, stats) = at_work_with(Shape { flushing, ..IN_PLACE }, OVERLOAD_NS, |db| {
        *waits.borrow_mut() = db.waits();
        *stalls.borrow_mut() = db.stalls();
    });
    (per_second, stats, waits.into_inner(), stalls.into_inner())
}

fn least(per_second: &[usize]) -> usize {
    *per_second.iter().min().expect("a second")
}

#[test]
fn sync_only_leaves_the_log_alone_until_all_writers_wait() {
    let (per_second, stats, waits, stalls) = at_work(AdaptiveFlushingMethod::SyncOnly);
    assert!(least(&per_second[..5]) > 1_900, "{per_second:?}");
    assert!(least(&per_second) < 400, "{per_second:?}");
    let (lazy, at_once) = (stats.buffer_flush_adaptive_total_pages, stats.buffer_flush_sync_total_pages);
    assert!(lazy < at_once / 10, "{lazy} pages before, {at_once} then");
    assert!(stats.buffer_flush_sync_scanned > at_once, "the list is searched anew after each page");
    // Operations wait almost only in `log_space`: they flush, or wait in line behind the flushing thread.
    let total: Duration = waits.iter().map(|of| of.total).sum();
    let of_log = waits.iter().find(|of| of.class == WaitClass::LogSpace).expect("a class").total;
    assert!(of_log > total * 9 / 10, "{of_log:?} of {total:?}");
    assert_eq!(stats.log_wall_waits, 0, "three quarters come first");
    // Each stalled operation names this class, and counts one wait, also if it did the flush itself.
    let (noted, counted) = (waits[WaitClass::LogSpace as usize].count, stats.log_space_waits);
    assert!(noted == counted && counted > 0, "{noted} waits, {counted} counted");
    assert!(!stalls.is_empty());
    stalls.iter().for_each(|stall| assert!(share(stall, WaitClass::LogSpace) >= 90, "{stall}"));
}

/// A batch longer than the log: its parts wait as other operations do, and do not run on to the log's end.
#[test]
fn a_large_batch_waits_at_three_quarters_of_the_log_too() {
    let shape = Shape { flushing: AdaptiveFlushingMethod::SyncOnly, frames: 1_500, ..IN_PLACE };
    let disk = SimulatedDisk::with_image(
        scattered_rows(10, shape.options().redo_capacity(ByteSize::mib(4))),
        ServiceTime { read_ns: 20_000, write_ns: 20_000, sync_ns: 100_000 },
    );
    let stats = run(7, || {
        let db = open(&disk, shape.reopen_options().redo_capacity(ByteSize::mib(4)));
        let tree = db.open_tree("t").expect("there");
        let mut batch = WriteBatch::new();
        (0..6_000u32).for_each(|row| {
            batch.put(&tree, row.to_be_bytes(), [7; 900]);
        });
        db.write(batch).expect("written");
        let stats = db.stats();
        db.close().expect("closed");
        stats
    })
    .0;
    let (sync, wall) = (stats.log_space_waits, stats.log_wall_waits);
    // The checkpoint is the keeper's, and may come a little late.
    assert!(sync > 100 && wall < 10, "{sync} waits at three quarters, {wall} at the end");
}

/// Pages that were written as neighbours, and all pages written, in the same load.
fn beside(neighbors: FlushNeighbors) -> (u64, u64) {
    let shape = Shape { flushing: AdaptiveFlushingMethod::KeepAverage, neighbors, ..IN_PLACE };
    let (_, stats) = at_work_with(shape, OVERLOAD_NS, |_| ());
    (stats.buffer_flush_neighbor_total_pages, stats.data_page_writes)
}

#[test]
fn neighbors_leave_with_a_page_that_is_due() {
    let [(none, _), (seq, of_seq), (area, of_area)] =
        [FlushNeighbors::None, FlushNeighbors::Seq, FlushNeighbors::Area].map(beside);
    assert_eq!(none, 0);
    assert!(seq > 0 && seq < of_seq, "{seq} of {of_seq}");
    assert!(area * of_seq > seq * of_area, "{area} of {of_area}, and {seq} of {of_seq}");
}

#[test]
fn adaptive_writes_before_and_stalls_less() {
    let (per_second, stats, ..) = at_work(AdaptiveFlushingMethod::Adaptive);
    let (before, at_once) = (stats.buffer_flush_adaptive_total_pages, stats.buffer_flush_sync_total_pages);
    assert!(before > 10 * at_once, "{before} pages before, {at_once} then");
    assert!(least(&per_second) > 500, "{per_second:?}");
}

/// Time until nine of ten dirty pages of the pool are clean, in ms, with so many cleaners for four instances, after
/// `change`.
pub(crate) fn cleaned_in(flushing: AdaptiveFlushingMethod, cleaners: Option<usize>, change: fn(&Db)) -> u64 {
    let shape = Shape {
        empty: EmptyFreeListAlgorithm::Legacy,
        flushing,
        instances: 4,
        frames: 8_000,
        doublewrite: Doublewrite::Off,
        ..IN_PLACE
    };
    let image = scattered_rows(4_000, shape.options().redo_capacity(ByteSize::mib(32)));
    let disk = SimulatedDisk::with_image(image, ServiceTime { read_ns: 20_000, write_ns: 1_000_000, sync_ns: 100_000 });
    let (took_ns, _) = run(5, || {
        let options = shape.reopen_options().redo_capacity(ByteSize::mib(32));
        let options = options.classic(|classic| classic.io_capacity(10_000).max_dirty_pages_pct(0));
        let db = open(
            &disk,
            cleaners.into_iter().fold(options, |options, n| options.classic(|classic| classic.page_cleaners(n))),
        );
        change(&db);
        let tree = db.open_tree("t").expect("there");
        (0..4_000).for_each(|row| put_loosely(&db, &tree, &scattered(row), &[7; 900]));
        let dirty = db.stats().buffer_pool_pages_dirty;
        assert!(dirty > 500, "{dirty}");
        while db.stats().buffer_pool_pages_dirty == dirty {
            sleep_ns(100_000);
        }
        let began = now_ns();
        while db.stats().buffer_pool_pages_dirty > dirty / 10 {
            sleep_ns(100_000);
        }
        let took = now_ns() - began;
        db.close().expect("closed");
        took
    });
    took_ns / 1_000_000
}

#[test]
fn cleaners_share_the_instances() {
    let [one, four] = [1, 4].map(|cleaners| cleaned_in(AdaptiveFlushingMethod::Adaptive, Some(cleaners), |_| ()));
    assert!(four * 3 < one, "{four} ms with four, {one} with one");
}

/// An even load that doubles in the middle, on a device that sustains it. Returns for each tenth of a second: bytes of
/// log growth, dirty pages, pages written.
fn tenths(flushing: AdaptiveFlushingMethod) -> (Vec<[u64; 3]>, Stats) {
    const ROWS: u32 = 2_000;
    let shape = Shape { flushing, frames: 1_500, ..IN_PLACE };
    let redo = ByteSize::mib(8);
    let image = scattered_rows(ROWS, shape.options().redo_capacity(redo));
    let disk = SimulatedDisk::with_image(image, ServiceTime { read_ns: 20_000, write_ns: 20_000, sync_ns: 100_000 });
    let (found, _) = run(6, || {
        let db = open(&disk, shape.reopen_options().redo_capacity(redo));
        let tree = db.open_tree("t").expect("there");
        assert_eq!(tree.scan(..).count(), ROWS as usize);
        let of_writer = db.clone();
        let work = move || {
            for turn in 0..3_000u32 {
                sleep_ns(if turn < 1_000 { 2_000_000 } else { 1_000_000 });
                put_loosely(&of_writer, &tree, &scattered(turn * 61 % ROWS), &[turn.to_le_bytes()[0]; 900]);
            }
        };
        let writer = spawn("writer", work).expect("a thread");
        // Intervals reach from the middle between two turns of a cleaner to the next such middle.
        sleep_ns(150_000_000 - now_ns() % 100_000_000);
        let mut seen = Vec::new();
        let mut before = db.stats();
        for _ in 0..38 {
            sleep_ns(100_000_000);
            let after = db.stats();
            let written = after.data_page_writes - before.data_page_writes;
            // Dirty pages when the cleaner counted them, in the middle of the interval.
            let dirty = (before.buffer_pool_pages_dirty + after.buffer_pool_pages_dirty + written) / 2;
            seen.push([after.log_lsn_current - before.log_lsn_current, dirty, written]);
            before = after;
        }
        writer.join().expect("no panic");
        let stats = db.stats();
        db.close().expect("closed");
        (seen, stats)
    });
    found
}

/// The tenth of a second in which the load doubles. The cleaner's turn in it has seen a part of the new load, its next
/// turn the rest.
const DOUBLES: usize = 18;

#[test]
fn keep_average_writes_the_growth_of_the_log_ten_times_a_second() {
    let (seen, stats) = tenths(AdaptiveFlushingMethod::KeepAverage);
    let [slow, fast] = [DOUBLES - 1, DOUBLES + 1].map(|tenth| seen[tenth][0]);
    assert!(fast * 10 > slow * 19, "{slow} bytes in a tenth of a second, and then {fast}");
    let limit = stats.log_capacity / 4 * 3 / 15 * 14;
    for (_, [grown, dirty, written]) in
        seen.iter().enumerate().filter(|(tenth, _)| ![DOUBLES, DOUBLES + 1].contains(tenth))
    {
        let told = dirty * grown / limit + 1;
        assert!(written.abs_diff(told) <= 1, "{written} pages, and {told} are told: {seen:?}");
    }
    let last: u64 = seen[DOUBLES + 1..].iter().map(|[.., written]| written).sum();
    assert!(last > 300, "{last} pages: {seen:?}");
    // The newer method has one turn a second.
    let (seen, _) = tenths(AdaptiveFlushingMethod::Adaptive);
    let turns = seen.iter().filter(|[.., written]| *written > 0).count();
    assert!((2..=4).contains(&turns), "{seen:?}");
}
