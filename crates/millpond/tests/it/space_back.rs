//! The data file gives its free end back: by itself, and on request, without loss, and without a wait for writers.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond::classic::EmptyFreeListAlgorithm;
use millpond::lab::Files;
use millpond::metrics::{Stats, WaitClass};
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Options, WorkOptions, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::{Oracle, Recorded, check_images, stride};
use crate::support::{Contents, IN_PLACE, SLOW, SMALL, Shape, TWICE, contents, disk_of, open, settle, sound};

/// Rows of `big`, four to a page: 20 MiB.
const BIG: u32 = 20_000;

/// Rows of `loose`, which is loaded behind `big`: its images are the last in the file.
const LOOSE: u32 = 1500;

const MIB: usize = 1 << 20;

fn options(shape: Shape) -> Options {
    Shape { frames: 120, ..shape }.options().redo_capacity(ByteSize::mib(1))
}

fn reopen(disk: &SimulatedDisk, shape: Shape) -> Db {
    open(disk, Shape { frames: 120, ..shape }.reopen_options())
}

fn row(number: u32) -> [u8; 900] {
    [number.to_le_bytes()[0]; 900]
}

fn loose() -> impl Iterator<Item = ([u8; 4], [u8; 900])> {
    (0..LOOSE).map(|number| (number.to_be_bytes(), row(number)))
}

/// A closed database with a large tree, and smaller ones behind it in the file.
fn start(shape: Shape) -> Image {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(shape));
        db.create_tree("a").expect("created");
        db.bulk_load("big", (0..BIG).map(|number| (number.to_be_bytes(), row(number)))).expect("loaded");
        db.bulk_load("loose", loose()).expect("loaded");
        db.close().expect("closed");
    });
    disk.image()
}

fn on_slow_disk(image: Image) -> SimulatedDisk {
    SimulatedDisk::with_image(image, SLOW)
}

fn len(disk: &SimulatedDisk) -> usize {
    usize::try_from(disk.open("data.mpd").and_then(|file| file.len()).expect("there")).expect("small")
}

/// Rows of `loose` as they were loaded.
fn check_loose(found: &Contents) -> Result<(), String> {
    let found = found.get("loose").ok_or("no tree 'loose'")?;
    let wanted = loose().map(|(key, value)| (key.to_vec(), value.to_vec()));
    if found.len() == LOOSE as usize && wanted.eq(found.iter().map(|(k, v)| (k.clone(), v.clone()))) {
        Ok(())
    } else {
        Err(format!("{} rows of 'loose', or other values", found.len()))
    }
}

/// Waits until the file is not longer than `bytes`.
fn wait_for(disk: &SimulatedDisk, bytes: usize) {
    for _ in 0..600 {
        if len(disk) <= bytes {
            return;
        }
        sleep_ns(100_000_000);
    }
    assert!(len(disk) <= bytes, "the file has {} bytes", len(disk));
}

fn compact(db: &Db) -> (u64, u64) {
    let report = db.compact(WorkOptions::new()).expect("done");
    (report.bytes_before, report.bytes_after)
}

/// Writes rows of its own of tree `a`, durably, until `stop` returns true. Each is noted.
fn write_rows(db: &Db, disk: &SimulatedDisk, oracle: &Oracle, client: u32, stop: impl Fn(u32) -> bool) {
    let a = db.open_tree("a").expect("there");
    let mut rng = SmallRng::seed_from_u64(u64::from(client));
    let mut turn = 0;
    while !stop(turn) {
        turn += 1;
        let number: u32 = rng.random_range(0..60) * 4 + client;
        let value = rng.random_bool(0.8).then(|| row(turn));
        let effects = vec![(("a", number.to_be_bytes().to_vec()), value.map(|value| value.to_vec()))];
        oracle.note(disk, client as usize, effects, || {
            let mut batch = WriteBatch::new();
            match value {
                Some(value) => batch.put(&a, number.to_be_bytes(), value),
                None => batch.delete(&a, number.to_be_bytes()),
            }
            .durability(Durability::Commit);
            db.write(batch).map(drop)
        });
    }
}

fn calm(stats: &Stats) {
    assert_eq!((stats.log_wall_waits, stats.law_violations), (0, 0), "{stats:?}");
}

/// All pages of the last zones are dirty, and each instance of the pool has more of them than one lot (batch of pages).
#[test]
fn dirty_pages_of_several_instances_leave_the_end() {
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    run(1, || {
        let shape = Shape { frames: 2000, empty: EmptyFreeListAlgorithm::Backoff, instances: 2, ..SMALL };
        let options = shape.reopen_options().redo_capacity(ByteSize::mib(8));
        let db = open(&disk, options);
        let tree = db.open_tree("loose").expect("there");
        db.drop_tree("big").expect("dropped");
        let mut all = WriteBatch::new();
        loose().for_each(|(key, value)| _ = all.put(&tree, key, value));
        all.durability(Durability::None);
        db.write(all).expect("written");
        let (before, after) = compact(&db);
        assert!(after < before / 2, "{before} to {after}");
        check_loose(&contents(&db).expect("read")).expect("as loaded");
        db.close().expect("closed");
    });
}

#[test]
fn file_of_an_idle_database_becomes_shorter_by_itself() {
    for shape in [SMALL, IN_PLACE, TWICE] {
        let disk = on_slow_disk(start(shape));
        run(2, || {
            let before = len(&disk);
            let db = reopen(&disk, shape);
            sleep_ns(20_000_000_000);
            assert!(len(&disk) >= before, "as many slots are used as are free");
            db.drop_tree("big").expect("dropped");
            wait_for(&disk, 7 * MIB);
            let stats = db.stats();
            assert!(stats.data_file_cuts > 0 && stats.data_bytes_cut >= 16 << 20, "{stats:?}");
            assert!(stats.data_pages_moved >= u64::from(LOOSE / 5), "{stats:?}");
            calm(&stats);
            check_loose(&contents(&db).expect("read")).expect("all rows");
            // It stays as it is.
            let after = len(&disk);
            sleep_ns(30_000_000_000);
            assert_eq!((len(&disk), db.stats().data_file_cuts), (after, stats.data_file_cuts));
            db.close().expect("closed");
            sound(&disk);
        });
    }
}

#[test]
fn compaction_leaves_little_room_and_tells_how_far_it_is() {
    for shape in [SMALL, IN_PLACE, TWICE] {
        let disk = on_slow_disk(start(shape));
        run(3, || {
            let db = reopen(&disk, shape);
            db.drop_tree("big").expect("dropped");
            let seen = Arc::new(AtomicU64::new(0));
            let told = Arc::clone(&seen);
            let options = WorkOptions::new().progress(move |progress| {
                assert!(progress.done <= progress.total);
                told.fetch_max(progress.done, Ordering::Relaxed);
                ControlFlow::Continue(())
            });
            let report = db.compact(options).expect("done");
            assert!(report.bytes_before > 20 << 20 && report.bytes_after <= 5 << 20, "{report:?}");
            assert_eq!(report.bytes_after, len(&disk) as u64);
            assert!(seen.load(Ordering::Relaxed) >= 1 << 20, "{seen:?}");
            // It does not grow again before pages come; then it does.
            sleep_ns(10_000_000_000);
            assert_eq!(report.bytes_after, len(&disk) as u64);
            assert_eq!(compact(&db), (report.bytes_after, report.bytes_after), "there is no more to win");
            db.bulk_load("more", loose()).expect("loaded");
            assert!(report.bytes_after < len(&disk) as u64);
            let found = contents(&db).expect("read");
            check_loose(&found).expect("all rows");
            assert_eq!(found["more"], found["loose"]);
            calm(&db.stats());
            db.close().expect("closed");
            sound(&disk);
        });
        // The next open leaves it as it is, too.
        let closed = len(&disk);
        run(4, || {
            let db = reopen(&disk, shape);
            sleep_ns(10_000_000_000);
            db.close().expect("closed");
            assert_eq!(len(&disk), closed);
        });
    }
}

/// Rows are deleted one by one: pages stay here and there, with high numbers.
#[test]
fn pages_of_deleted_rows_make_the_file_shorter() {
    let disk = on_slow_disk(start(SMALL));
    run(5, || {
        let db = reopen(&disk, SMALL);
        let big = db.open_tree("big").expect("there");
        for first in (0..BIG).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500).filter(|number| number % 500 != 0).for_each(|number| {
                batch.delete(&big, number.to_be_bytes());
            });
            db.write(batch).expect("deleted");
        }
        settle(&db);
        // By itself first: how soon depends on the order of the threads.
        wait_for(&disk, 20 * MIB);
        let (before, after) = compact(&db);
        assert!(before <= 20 << 20 && after < 8 << 20, "{before} by itself, then {after}");
        check_loose(&contents(&db).expect("read")).expect("all rows");
        // A crash now: the numbers of the pages that stay are beyond the slots of the file.
        big.put(0_u32.to_be_bytes(), [7; 900]).expect("written");
    });
    let crashed = disk_of(disk.crash_now(millpond::simulation::Unsynced::None));
    run(6, || {
        let db = reopen(&crashed, SMALL);
        let found = contents(&db).expect("read");
        check_loose(&found).expect("all rows");
        assert_eq!(found["big"].len(), (BIG / 500) as usize);
        db.close().expect("closed");
        sound(&crashed);
    });
}

/// A tree is loaded, dropped and cut off between two checkpoints: the log still names its pages.
#[test]
fn log_may_name_pages_that_the_file_has_no_room_for() {
    let disk = on_slow_disk(start(SMALL));
    run(7, || {
        let db = reopen(&disk, SMALL);
        db.drop_tree("big").expect("dropped");
        compact(&db);
        for _ in 0..3 {
            db.bulk_load("more", (0..8000_u32).map(|number| (number.to_be_bytes(), row(number)))).expect("loaded");
            db.drop_tree("more").expect("dropped");
            compact(&db);
            let from = disk.boundaries().saturating_sub(60);
            for boundary in (from..disk.boundaries()).step_by(stride(7)) {
                let image = disk.history().crash_image(boundary, millpond::simulation::Unsynced::None);
                let crashed = disk_of(image);
                let db = reopen(&crashed, SMALL);
                check_loose(&contents(&db).expect("read")).expect("all rows");
                db.close().expect("closed");
                sound(&crashed);
            }
        }
        let backup = SimulatedDisk::new();
        db.backup_on(&backup, WorkOptions::new()).expect("done");
        db.close().expect("closed");
        let restored = SimulatedDisk::new();
        millpond::restore_on(&backup, &restored).expect("restored");
        let db = reopen(&restored, SMALL);
        check_loose(&contents(&db).expect("read")).expect("all rows");
        db.close().expect("closed");
    });
}

fn record(shape: Shape, seed: u64, by_itself: bool) -> Recorded {
    let disk = on_slow_disk(start(shape));
    let oracle = Oracle::default();
    let ((), trace) = run(seed, || {
        let db = Arc::new(reopen(&disk, shape));
        db.drop_tree("big").expect("dropped");
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let (db, disk, oracle) = (Arc::clone(&db), disk.clone(), oracle.clone());
                let body = move || {
                    write_rows(&db, &disk, &oracle, client, |turn| turn >= 20 && len(&disk) <= 8 * MIB);
                };
                spawn("client", body).expect("a thread")
            })
            .collect();
        if !by_itself {
            compact(&db);
        }
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        // Growth right after the cut, and images in it.
        let grown = db.bulk_load("loose2", loose());
        grown.expect("loaded");
        db.drop_tree("loose2").expect("dropped");
        write_rows(&db, &disk, &oracle, 3, |turn| turn >= 40);
        calm(&db.stats());
        assert!(db.stats().data_file_cuts > 0);
        Arc::into_inner(db).expect("the only one").close().expect("closed");
    });
    Recorded { shape: Shape { frames: 120, ..shape }, history: disk.history(), oracle, trace }
}

fn crash_everywhere(shape: Shape, seed: u64, by_itself: bool, count: usize) {
    let recorded = record(shape, seed, by_itself);
    let boundaries = recorded.history.boundaries();
    let images = check_images(&recorded, 0, stride(boundaries / count), |found, boundary| {
        let mut found = found.clone();
        check_loose(&found)?;
        ["big", "loose2"].iter().for_each(|name| drop(found.remove(*name)));
        recorded.oracle.compare(&found, boundary)
    });
    assert!(images > count, "{images} of {boundaries}");
}

#[test]
fn a_crash_while_the_file_becomes_shorter_loses_nothing() {
    crash_everywhere(SMALL, 11, false, 40);
    crash_everywhere(SMALL, 12, true, 25);
}

#[test]
fn a_crash_while_a_file_in_place_becomes_shorter_loses_nothing() {
    crash_everywhere(IN_PLACE, 13, false, 20);
    crash_everywhere(TWICE, 14, false, 20);
    crash_everywhere(TWICE, 15, true, 20);
}

#[test]
fn nothing_is_cut_beside_a_backup() {
    for shape in [SMALL, TWICE] {
        let disk = on_slow_disk(start(shape));
        run(16, || {
            let db = Arc::new(reopen(&disk, shape));
            let db_of_backup = Arc::clone(&db);
            let backup = SimulatedDisk::new();
            let copy = backup.clone();
            let (told, disk_of_backup) = (Arc::clone(&db), disk.clone());
            let before = len(&disk);
            let thread = spawn("backup", move || {
                let mut steps = 0;
                let options = WorkOptions::new().rate(ByteSize::mib(1)).progress(move |_| {
                    steps += 1;
                    assert!(len(&disk_of_backup) >= before, "cut beside a backup");
                    if steps == 2 {
                        told.drop_tree("big").expect("dropped");
                        assert!(matches!(told.compact(WorkOptions::new()), Err(Error::InUse(_))));
                    }
                    ControlFlow::Continue(())
                });
                db_of_backup.backup_on(&copy, options).expect("done")
            })
            .expect("a thread");
            thread.join().expect("no panic");
            wait_for(&disk, 8 * MIB);
            check_loose(&contents(&db).expect("read")).expect("all rows");
            Arc::into_inner(db).expect("the only one").close().expect("closed");
            sound(&disk);
            let restored = SimulatedDisk::new();
            millpond::restore_on(&backup, &restored).expect("restored");
            let db = reopen(&restored, shape);
            let found = contents(&db).expect("read");
            check_loose(&found).expect("all rows");
            assert_eq!(found["big"].len(), BIG as usize);
            db.close().expect("closed");
        });
    }
}

/// A backup that begins while the file is being made shorter holds that up, and gets what it needs.
#[test]
fn a_backup_begun_during_a_compaction_goes_first() {
    let disk = on_slow_disk(start(SMALL));
    run(17, || {
        let db = Arc::new(reopen(&disk, SMALL));
        db.drop_tree("big").expect("dropped");
        let of_compaction = Arc::clone(&db);
        let thread = spawn("compaction", move || compact(&of_compaction)).expect("a thread");
        sleep_ns(30_000_000);
        let backup = SimulatedDisk::new();
        db.backup_on(&backup, WorkOptions::new()).expect("done");
        let (before, after) = thread.join().expect("no panic");
        assert!(before > 20 << 20 && after < 6 << 20, "{before} {after}");
        Arc::into_inner(db).expect("the only one").close().expect("closed");
        sound(&disk);
        let restored = SimulatedDisk::new();
        millpond::restore_on(&backup, &restored).expect("restored");
        let db = reopen(&restored, SMALL);
        check_loose(&contents(&db).expect("read")).expect("all rows");
        db.close().expect("closed");
    });
}

#[test]
fn a_compaction_ends_when_cancelled_or_when_the_database_closes() {
    let disk = on_slow_disk(start(SMALL));
    run(18, || {
        let db = Arc::new(reopen(&disk, SMALL));
        db.drop_tree("big").expect("dropped");
        let slowly = || WorkOptions::new().rate(ByteSize::kib(1));
        let cancelled = db.compact(slowly().progress(|_| ControlFlow::Break(())));
        assert!(matches!(cancelled, Err(Error::Cancelled(_))));
        sleep_ns(500_000_000);
        assert_eq!(db.stats().data_file_end_wanted, len(&disk) as u64, "all room is used again");
        let (one, other) = (Arc::clone(&db), Arc::clone(&db));
        let one = spawn("one", move || one.compact(slowly())).expect("a thread");
        sleep_ns(500_000_000);
        assert!(matches!(other.compact(slowly()), Err(Error::InUse(_))));
        db.open_tree("a").expect("there").put("k", "v").expect("written");
        (*db).clone().close().expect("closed");
        assert!(matches!(one.join().expect("no panic"), Err(Error::Closed(_))));
        sound(&disk);
    });
}

/// Readers of pages whose slots are cut off look them up again, and writers go on: none waits for growth of the file.
#[test]
fn readers_and_writers_go_on_while_the_file_is_cut() {
    for (seed, shape) in [(21, SMALL), (22, SMALL), (23, IN_PLACE), (24, TWICE)] {
        let disk = on_slow_disk(start(shape));
        run(seed, || {
            let db = Arc::new(reopen(&disk, shape));
            db.drop_tree("big").expect("dropped");
            let growth = |db: &Db| {
                let waits = db.waits().into_iter().find(|wait| wait.class == WaitClass::FileGrowth);
                waits.expect("a class").count
            };
            let before = growth(&db);
            let is_done = Arc::new(AtomicBool::new(false));
            let readers = (0..2).map(|reader| {
                let (db, is_done) = (Arc::clone(&db), Arc::clone(&is_done));
                let body = move || {
                    let tree = db.open_tree("loose").expect("there");
                    let mut rng = SmallRng::seed_from_u64(seed + reader);
                    while !is_done.load(Ordering::Relaxed) {
                        let number = rng.random_range(0..LOOSE);
                        let found = tree.get(number.to_be_bytes()).expect("read");
                        assert_eq!(found.as_deref(), Some(&row(number)[..]));
                    }
                };
                spawn("reader", body).expect("a thread")
            });
            let oracle = Oracle::default();
            let writers = (0..2).map(|client| {
                let (db, disk, is_done) = (Arc::clone(&db), disk.clone(), Arc::clone(&is_done));
                let oracle = oracle.clone();
                let body = move || write_rows(&db, &disk, &oracle, client, |_| is_done.load(Ordering::Relaxed));
                spawn("writer", body).expect("a thread")
            });
            let threads: Vec<_> = readers.chain(writers).collect();
            let (_, after) = compact(&db);
            is_done.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert!(after < 6 << 20, "{after}");
            assert_eq!(growth(&db), before, "a writer waited for the file");
            calm(&db.stats());
            Arc::into_inner(db).expect("the only one").close().expect("closed");
            sound(&disk);
        });
    }
}

/// A damaged page stays where it is, and so does what is before it in the file.
#[test]
fn a_damaged_page_at_the_end_keeps_the_file() {
    let disk = on_slow_disk(start(SMALL));
    let last = disk.image()["data.mpd"].iter().rposition(|byte| *byte != 0).expect("images");
    assert!(disk.flip_bit("data.mpd", last as u64, 1));
    run(25, || {
        let db = reopen(&disk, SMALL);
        db.drop_tree("big").expect("dropped");
        let (_, after) = compact(&db);
        assert!(after > last as u64 && after <= (last + MIB) as u64, "{after}, damage at {last}");
        let read = db.open_tree("loose").expect("there").scan(..).collect::<Result<Vec<_>, _>>();
        assert!(matches!(read, Err(Error::Corruption(_))));
        // All others are at the file's begin.
        db.drop_tree("loose").expect("dropped");
        let moved = db.stats().data_pages_moved;
        let (_, after) = compact(&db);
        assert!(after <= 4 << 20, "{after}");
        assert!(db.stats().data_pages_moved < moved + 20, "{moved}, then {}", db.stats().data_pages_moved);
        db.close().expect("closed");
        sound(&disk);
    });
}

/// The keeper works on the file by itself, at one moment or another, when a caller asks.
#[test]
fn a_request_comes_while_the_keeper_shortens_the_file() {
    for wait_ms in [4_900, 5_010, 5_040, 5_100, 5_300] {
        let disk = on_slow_disk(start(SMALL));
        run(wait_ms, || {
            let db = reopen(&disk, SMALL);
            db.drop_tree("big").expect("dropped");
            sleep_ns(wait_ms * 1_000_000);
            let (_, after) = compact(&db);
            assert!(after <= 8 << 20, "{after} after {wait_ms} ms");
            db.close().expect("closed");
        });
        sound(&disk);
    }
}

/// The file becomes shorter on a full disk, and then there is room for others.
#[test]
fn a_full_disk_gets_room_by_a_compaction() {
    let disk = on_slow_disk(start(SMALL));
    run(19, || {
        let db = reopen(&disk, SMALL);
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(used as u64));
        db.drop_tree("big").expect("dropped");
        let (before, after) = compact(&db);
        assert!(after < before / 3, "{before} {after}");
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(used as u64));
        // Rows that are there can be changed; new pages have the small rest only.
        let tree = db.open_tree("loose").expect("there");
        for number in 0..LOOSE {
            tree.put(number.to_be_bytes(), row(number)).expect("written");
        }
        let more = db.bulk_load("more", (0..BIG).map(|number| (number.to_be_bytes(), row(number))));
        assert!(matches!(more, Err(Error::OutOfSpace(_))));
        check_loose(&contents(&db).expect("read")).expect("all rows");
        db.close().expect("closed");
        sound(&disk);
    });
}

/// A cut that the device refuses leaves the database at work.
#[test]
fn a_refused_cut_is_an_error_of_the_call_alone() {
    let disk = on_slow_disk(start(SMALL));
    run(20, || {
        let db = reopen(&disk, SMALL);
        db.drop_tree("big").expect("dropped");
        disk.refuse_cuts(true);
        assert!(matches!(db.compact(WorkOptions::new()), Err(Error::DeviceFailed(_))));
        sleep_ns(500_000_000);
        assert_eq!(db.stats().data_file_end_wanted, len(&disk) as u64, "all room is used again");
        db.open_tree("a").expect("there").put("k", "v").expect("written");
        disk.refuse_cuts(false);
        let (_, after) = compact(&db);
        assert!(after < 6 << 20, "{after}");
        check_loose(&contents(&db).expect("read")).expect("all rows");
        db.close().expect("closed");
        sound(&disk);
    });
}
