//! The controller in the engine, in virtual time, on a device that cannot keep up with its writers.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millpond::lab::{SlowFiles, Slower, Speed};
use millpond::metrics::{Stats, WaitClass, WaitSummary};
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Options};

use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{SMALL, Shape, disk_of, open, reopen_options};

const ROWS: u32 = 8_000;
const SECONDS: usize = 20;

/// The seed of the schedule, for tests that need only one.
const SEED: u64 = 7;

/// Eight writers on a tree that is in the pool as a whole, on a device that writes 300 pages a second. Each updates a
/// row all over the tree every `every_ns`. Returns the updates in each second, the statistics, and how often a writer
/// was slowed down.
pub(crate) fn at_work(every_ns: u64, slower: &[Slower], look: impl Fn(&Db)) -> (Vec<usize>, Stats, u64) {
    let image = scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(32)));
    at_work_on(&disk_with(image), every_ns, slower, all_over, look)
}

/// The same with a database of another shape.
pub(crate) fn at_work_with(shape: Shape, every_ns: u64, look: impl Fn(&Db)) -> (Vec<usize>, Stats) {
    let image = scattered_rows(ROWS, shape.options().redo_capacity(ByteSize::mib(32)));
    at_work_changed(SEED, &disk_with(image), roomy(shape.reopen_options()), (every_ns, all_over), &[], &look, |db| {
        look(db)
    })
}

/// The row of a turn: all rows, each equally often.
fn all_over(turn: u32) -> u32 {
    turn * 61 % ROWS
}

fn disk_with(image: Image) -> SimulatedDisk {
    SimulatedDisk::with_image(image, ServiceTime { read_ns: 20_000, write_ns: 0, sync_ns: 100_000 })
}

fn at_work_on(
    disk: &SimulatedDisk,
    every_ns: u64,
    slower: &[Slower],
    row: fn(u32) -> u32,
    look: impl Fn(&Db),
) -> (Vec<usize>, Stats, u64) {
    let mut throttled = 0;
    let (per_second, stats) =
        at_work_changed(SEED, disk, roomy(reopen_options()), (every_ns, row), slower, &look, |db| {
            look(db);
            throttled = db.waits().into_iter().find(|wait| wait.class == WaitClass::Throttle).expect("a class").count;
        });
    (per_second, stats, throttled)
}

/// A pool with room for all pages, and a log that is filled in half a minute.
fn roomy(options: Options) -> Options {
    options.buffer_pool_size(ByteSize::mib(16)).redo_capacity(ByteSize::mib(32))
}

/// Each writer updates the row of the turn every `every_ns`. `begin` is called when the writers have begun, `end` when
/// they have ended.
fn at_work_changed(
    seed: u64,
    disk: &SimulatedDisk,
    options: Options,
    (every_ns, row): (u64, fn(u32) -> u32),
    slower: &[Slower],
    begin: impl Fn(&Db),
    end: impl FnOnce(&Db),
) -> (Vec<usize>, Stats) {
    let (found, _) = run(seed, || {
        let speed = Speed { writes_per_s: 1e6, bytes_per_s: 300.0 * 4096.0, slower: slower.to_vec() };
        let files = SlowFiles::new(Arc::new(disk.clone()), speed).only("data.mpd");
        let db = Db::open_on(Arc::new(files), options).expect("opened");
        assert_eq!(db.open_tree("t").expect("there").scan(..).count(), ROWS as usize);
        let began = now_ns();
        let done: Arc<Vec<AtomicUsize>> = Arc::new((0..SECONDS).map(|_| AtomicUsize::new(0)).collect());
        let writers: Vec<_> = (0..8u32)
            .map(|writer| {
                let (db, tree, done) = (db.clone(), db.open_tree("t").expect("there"), Arc::clone(&done));
                let work = move || {
                    for turn in 0.. {
                        sleep_ns(every_ns);
                        let key = scattered(row(turn * 8 + writer));
                        put_loosely(&db, &tree, &key, &[turn.to_le_bytes()[0]; 900]);
                        let second = (now_ns() - began) / 1_000_000_000;
                        let Some(of_second) = done.get(usize::try_from(second).expect("few")) else { return };
                        of_second.fetch_add(1, Ordering::Relaxed);
                    }
                };
                spawn("writer", work).expect("a thread")
            })
            .collect();
        begin(&db);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        end(&db);
        let stats = db.stats();
        db.close().expect("closed");
        (done.iter().map(|of| of.load(Ordering::Relaxed)).collect(), stats)
    });
    found
}

/// For the first call of `look` in [`at_work`]: calls `act` once all is settled, while writers go on.
fn in_the_middle(act: impl Fn(&Db)) -> impl Fn(&Db) {
    let is_done = Cell::new(false);
    move |db| {
        if !is_done.replace(true) {
            sleep_ns(9_000_000_000);
            act(db);
        }
    }
}

/// Two thousand updates a second; the device sustains two thirds of them.
pub(crate) const OVERLOAD_NS: u64 = 4_000_000;

fn assert_even(per_second: &[usize], percent: usize) {
    let mut settled = per_second[8..].to_vec();
    settled.sort_unstable();
    let median = settled[settled.len() / 2];
    assert!(settled[0] * 100 > median * percent, "a second of {} updates of {median}: {per_second:?}", settled[0]);
}

#[test]
fn writers_are_slowed_down_evenly_before_the_log_is_full() {
    let (per_second, stats, throttled) = at_work(OVERLOAD_NS, &[], |_| ());
    println!("{per_second:?} {throttled} {stats:?}");
    assert!(throttled > 100 && stats.pace_limited_us > 1_000_000, "{throttled} waits: {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert!((200..400).contains(&stats.pace_write_capacity), "{stats:?}");
    assert_even(&per_second, 60);
}

/// Every third update is of the same row. A slowed-down writer pays before it latches the row's page, or after it has
/// released it: no writer waits for a row while another pays.
#[test]
fn writer_that_waits_for_its_payment_holds_no_row() {
    let image = scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(32)));
    let row = |turn: u32| if turn.is_multiple_of(3) { 0 } else { all_over(turn) };
    let held = Cell::new(Duration::ZERO);
    let look = |db: &Db| {
        let of_others = |wait: &WaitSummary| matches!(wait.class, WaitClass::PageLatch | WaitClass::RowLock);
        held.set(db.waits().into_iter().filter(of_others).map(|wait| wait.total).sum());
    };
    let (per_second, stats, throttled) = at_work_on(&disk_with(image), OVERLOAD_NS * 2 / 3, &[], row, look);
    assert!(held.get() < Duration::from_millis(10), "{:?} for a page or a row", held.get());
    println!("{per_second:?} {throttled} {stats:?}");
    assert!(throttled > 100 && stats.pace_limited_us > 1_000_000, "{throttled} waits: {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 60);
}

/// The keeper waits for the device all the while, so writers run the controller.
#[test]
fn a_device_that_stops_for_half_a_second_stops_no_operation() {
    let stop = Slower { from_ns: 12_000_000_000, for_ns: 500_000_000, every_ns: 0, factor: 0.0 };
    let (per_second, stats, _) = at_work(2 * OVERLOAD_NS, &[stop], |_| ());
    println!("{per_second:?} {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 90);
    let (per_second, stats, _) = at_work(OVERLOAD_NS, &[stop], |_| ());
    println!("{per_second:?} {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 33);
}

/// Each update needs a frame. All pages in frames are dirty, except those kept clean ahead of need: as many as are
/// wanted while the device stands still.
#[test]
fn a_stopped_device_is_not_felt_where_pages_come_and_go() {
    let stops = Slower { from_ns: 6_000_000_000, for_ns: 500_000_000, every_ns: 3_000_000_000, factor: 0.0 };
    let disk = disk_with(scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(32))));
    let options = roomy(reopen_options()).buffer_pool_size(ByteSize::mib(5)).stall_threshold(Duration::from_millis(50));
    let (per_second, stats) = at_work_changed(SEED, &disk, options, (40_000_000, all_over), &[stops], |_| (), |_| ());
    println!("{per_second:?} {stats:?}");
    assert!(stats.data_page_reads > 4_000 && stats.buffer_pool_pages_lru_flushed > 1_000, "{stats:?}");
    assert_eq!((stats.stalls, stats.log_wall_waits), (0, 0), "{stats:?}");
}

/// The same, with half of the updates on a quarter of the rows. Pages in use stand before those that leave, and all
/// writers may be waiting when the last free frame is gone. In half of the schedules a few writers come just as the
/// keeper goes to the device again. They wait for its next turn, 30 or 60 ms: over all schedules at most one update in
/// two thousand.
#[test]
fn a_stopped_device_is_felt_by_1_in_2000_beside_pages_in_use() {
    let (mut updates, mut late) = (0, 0);
    for seed in 1..=14 {
        let stops = Slower { from_ns: 6_000_000_000, for_ns: 500_000_000, every_ns: 3_000_000_000, factor: 0.0 };
        let disk = disk_with(scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(32))));
        let options = roomy(reopen_options()).buffer_pool_size(ByteSize::mib(5));
        let options = options.stall_threshold(Duration::from_millis(20));
        let row = |turn: u32| if turn % 16 < 8 { turn * 61 % (ROWS / 4) } else { all_over(turn) };
        let mut slowest = Duration::ZERO;
        let (per_second, stats) = at_work_changed(
            seed,
            &disk,
            options,
            (30_000_000, row),
            &[stops],
            |_| (),
            |db| {
                slowest = db.stalls().iter().map(|stall| stall.elapsed).max().unwrap_or_default();
            },
        );
        println!("{seed}: {} of {}, slowest {slowest:?}", stats.stalls, per_second.iter().sum::<usize>());
        assert!(stats.data_page_reads > 4_000 && stats.buffer_pool_pages_lru_flushed > 1_000, "{stats:?}");
        assert_eq!(stats.log_wall_waits, 0, "{seed}: {stats:?}");
        assert!(slowest < Duration::from_millis(100), "{seed}: {slowest:?}");
        assert!(stats.stalls <= 8, "{seed}: {stats:?}");
        updates += per_second.iter().sum::<usize>();
        late += usize::try_from(stats.stalls).expect("few");
    }
    assert!(late * 2_000 <= updates, "{late} of {updates}");
}

/// The dirty pages are as many as a log of twice the size allows, and must be clean before the new files are full.
#[test]
fn log_moves_to_smaller_files_under_overload_and_is_never_full() {
    let change = in_the_middle(|db| {
        let before = db.stats();
        assert!(before.log_checkpoint_age > 16 << 20, "{before:?}");
        db.set_redo_capacity(ByteSize::mib(16)).expect("set");
    });
    let (per_second, stats, throttled) = at_work(OVERLOAD_NS, &[], change);
    println!("{per_second:?} {throttled} {stats:?}");
    assert!(stats.log_capacity < 16 << 20 && throttled > 100, "{throttled} waits: {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 33);
}

/// After a crash at full load: redo has dirtied all pages again, and most of the log is in use.
#[test]
fn database_opened_with_a_nearly_full_log_meets_no_wall() {
    let first = disk_with(scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(32))));
    let (age, at) = (Cell::new(0), Cell::new(0));
    at_work_on(&first, OVERLOAD_NS, &[], all_over, |db| {
        age.set(db.stats().log_checkpoint_age);
        at.set(first.boundaries());
    });
    assert!(age.get() > 20 << 20, "{} bytes of log", age.get());
    let image = disk_of(first.history().crash_image(at.get(), Unsynced::All)).image();
    let (per_second, stats, throttled) = at_work_on(&disk_with(image), OVERLOAD_NS, &[], all_over, |_| ());
    println!("{per_second:?} {throttled} {stats:?}");
    assert!(stats.open_redo_bytes > 20 << 20 && throttled > 100, "{throttled} waits: {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 33);
}

/// The checkpoint writes all dirty pages, but after those that the log needs clean.
#[test]
fn requested_checkpoint_stops_no_operation() {
    let checkpoint = in_the_middle(|db| {
        let before = db.stats();
        db.checkpoint().expect("taken");
        let after = db.stats();
        assert!(after.log_lsn_last_checkpoint >= before.log_lsn_current, "{before:?} {after:?}");
        assert!(after.buffer_flush_sync_total_pages > 100 && before.log_checkpoint_age > 8 << 20, "{after:?}");
    });
    let (per_second, stats, _) = at_work(OVERLOAD_NS, &[], checkpoint);
    println!("{per_second:?} {stats:?}");
    assert_eq!((stats.log_wall_waits, stats.stalls), (0, 0), "{stats:?}");
    assert_even(&per_second, 60);
}

/// A crash with more log than is replayed in the wanted time. The next open measures the rate, and keeps the log short
/// enough for that time, without a wait at its wall.
#[test]
fn the_log_is_kept_as_short_as_is_recovered_from_in_time() {
    let redo = ByteSize::mib(32);
    let options = || reopen_options().buffer_pool_size(ByteSize::mib(16)).redo_capacity(redo);
    let image = scattered_rows(ROWS, SMALL.options().redo_capacity(redo));
    let disk = SimulatedDisk::with_image(image, ServiceTime { read_ns: 1_000_000, write_ns: 10_000, sync_ns: 100_000 });
    let update = |db: &Db, seconds: u32| {
        let tree = db.open_tree("t").expect("there");
        let mut oldest = 0;
        for turn in 0..seconds * 500 {
            sleep_ns(2_000_000);
            put_loosely(db, &tree, &scattered(turn * 61 % ROWS), &[turn.to_le_bytes()[0]; 900]);
            oldest = oldest.max(db.stats().log_checkpoint_age);
        }
        oldest
    };
    // An image from before the close.
    let crash = |disk: &SimulatedDisk, at: usize| disk_of(disk.history().crash_image(at, Unsynced::All)).image();
    let target = Some(Duration::from_secs(1));
    let ((age, at), _) = run(8, || {
        let db = Db::open_on(Arc::new(disk.clone()), options()).expect("opened");
        (update(&db, 20), disk.boundaries())
    });
    assert!(age > 8 << 20, "{age} bytes of log, and no reason for less");

    let slow = SimulatedDisk::with_image(
        crash(&disk, at),
        ServiceTime { read_ns: 50_000_000, write_ns: 10_000, sync_ns: 100_000 },
    );
    let ((first, age, last, at), _) = run(9, || {
        let db = Db::open_on(Arc::new(slow.clone()), options().recovery_time_target(target)).expect("opened");
        let first = db.stats();
        // The log becomes shorter little by little.
        let _ = update(&db, 40);
        let age = update(&db, 20);
        let (last, at) = (db.stats(), slow.boundaries());
        db.set_recovery_time_target(None).expect("set");
        assert_eq!(db.stats().log_capacity_effective, last.log_capacity);
        assert!(db.set_recovery_time_target(Some(Duration::from_millis(1))).is_err());
        (first, age, last, at)
    });
    assert!(first.open_redo_bytes > 8 << 20 && first.log_apply_rate > 0, "{first:?}");
    assert!(first.open_us > 2_000_000 && first.log_capacity_effective < 8 << 20, "{first:?}");
    assert!(age <= last.log_capacity_effective, "{age}: {last:?}");
    assert_eq!(last.log_wall_waits, 0);

    let (again, _) = run(10, || {
        let db = Db::open_on(Arc::new(disk_of(crash(&slow, at))), options()).expect("opened");
        db.stats()
    });
    assert!(again.open_redo_bytes <= last.log_capacity_effective, "{again:?}");
    assert!(again.log_apply_rate > 0 && again.log_capacity_effective == again.log_capacity, "{again:?}");
}

/// A device on which the log takes a twentieth of a second to write, and a writer that does not wait for that. Another
/// thread writes the log before the writer needs its buffer.
#[test]
fn commit_that_does_not_wait_for_the_log_does_not_write_it() {
    let image = scattered_rows(ROWS, SMALL.options().redo_capacity(ByteSize::mib(256)));
    let slow = ServiceTime { read_ns: 20_000, write_ns: 30_000_000, sync_ns: 20_000_000 };
    run(1, || {
        let db = open(&SimulatedDisk::with_image(image, slow), reopen_options().buffer_pool_size(ByteSize::mib(16)));
        let tree = db.open_tree("t").expect("there");
        let waits = || {
            let all = db.waits().into_iter();
            all.filter(|of| matches!(of.class, WaitClass::LogFlush | WaitClass::LogSpace))
                .map(|of| of.count)
                .sum::<u64>()
        };
        let (before, waited) = (db.stats().log_lsn_current, waits());
        for turn in 0..12_000u32 {
            put_loosely(&db, &tree, &scattered(all_over(turn)), &[turn.to_le_bytes()[0]; 900]);
            sleep_ns(60_000);
        }
        let grown = db.stats().log_lsn_current - before;
        assert!(grown > 4 * (4 << 20), "{grown} bytes: the buffer was full several times");
        assert_eq!(waits(), waited);
        db.close().expect("closed");
    });
}
