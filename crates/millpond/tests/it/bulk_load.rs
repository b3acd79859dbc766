//! Bulk loads: the whole tree or nothing, in all cases, and nothing left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Field, PageStoreKind, TableDefinition, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::{seeds, stride};
use crate::loads::{
    Recorded, Rows, SLOW, check_all_or_nothing, check_closing, check_failing_calls, check_rebuilds, is_left, record,
    rows, shapes, slots_in_use, start,
};
use crate::support::{SMALL, Shape, disk_of, open, recover, recover_shaped, reopen_options, small_options};

#[test]
fn a_loaded_tree_has_its_rows_and_is_written_as_any_other() {
    for page_kib in [4, 16, 64] {
        for (seed, store) in (0..).zip([PageStoreKind::CopyOnWrite, PageStoreKind::InPlace]) {
            for common in [0, 40, 380] {
                let shape = Shape { page_kib, store, ..SMALL };
                let page_size = usize::try_from(page_kib).expect("small") << 10;
                let mut rng = SmallRng::seed_from_u64(seed);
                let mut row = |number: u32| {
                    let mut key = vec![b'k'; common];
                    key.extend_from_slice(&number.to_be_bytes());
                    let longest = (page_size / 16 * 3).min(3072);
                    key.resize(rng.random_range(key.len()..=longest), b'z');
                    (key, vec![7; rng.random_range(0..=page_size / 4)])
                };
                let mut model: Rows = (0..600).map(|number| row(number * 3)).collect();
                let disk = SimulatedDisk::new();
                let db = open(&disk, shape.options());
                let tree = db.bulk_load("t", &model).expect("loaded");
                assert_eq!((tree.name(), db.trees().expect("listed")), ("t", vec!["t".to_owned()]));
                let back: Vec<_> = tree.scan(..).rev().collect::<Result<_, _>>().expect("scanned");
                assert!(back.iter().rev().map(|(key, value)| (key, value)).eq(&model));
                for number in (0..1800).step_by(7) {
                    let (key, value) = row(number);
                    tree.put(&key, &value).expect("written");
                    model.insert(key, value);
                }
                // Deletes enough rows that pages merge.
                let gone: Vec<_> = model.keys().filter(|key| key[common + 3] % 5 != 0).cloned().collect();
                for key in gone {
                    assert!(tree.delete(&key).expect("deleted"));
                    model.remove(&key);
                }
                let crashed = disk_of(disk.crash_now(Unsynced::None));
                db.close().expect("closed");
                for disk in [crashed, disk] {
                    assert!(recover_shaped(&disk, shape).expect("sound")["t"] == model, "{shape:?}");
                }
            }
        }
    }
}

#[test]
fn an_empty_load_makes_an_empty_tree_and_a_small_one_a_leaf() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let empty = db.bulk_load("empty", Rows::new()).expect("loaded");
    let writes = db.stats().data_page_writes;
    db.bulk_load("small", rows(5, 100, 1)).expect("loaded");
    assert_eq!(db.stats().data_page_writes, writes, "the root has it all");
    empty.put(b"k", b"v").expect("written");
    db.close().expect("closed");
    let found = recover(&disk).expect("sound");
    assert_eq!((found["empty"].len(), &found["small"]), (1, &rows(5, 100, 1)));
}

#[test]
fn unordered_or_too_long_rows_are_named_and_leave_nothing() {
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    let db = open(&disk, reopen_options());
    let in_use = slots_in_use(&db);
    let row = |number: u32, len: usize| (number.to_be_bytes().to_vec(), vec![1; len]);
    let good = || (0..1500).map(|number| row(number, 300));
    let below = db.bulk_load("t", good().chain([row(700, 1)]));
    let same = db.bulk_load("t", good().chain([row(1499, 1)]));
    let long_key = db.bulk_load("t", good().chain([(vec![9; 769], vec![])]));
    // Its memory is never touched, so the value takes none.
    let long_value = db.bulk_load("t", good().chain([(1500u32.to_be_bytes().to_vec(), vec![0; 1 << 32])]));
    for (result, parts) in [
        (&below, ["row 1500 ", r"'\x00\x00\x02\xbc', which is below", r"'\x00\x00\x05\xdb'"]),
        (&same, ["row 1500 ", "the same as", "tree 't'"]),
        (&long_key, ["row 1500 ", "has 769 bytes", "at most 768"]),
        (&long_value, ["row 1500 ", "has 4294967296 bytes", "at most 4294967295"]),
    ] {
        let message = result.as_ref().expect_err("refused").to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    assert!(matches!((below, same), (Err(Error::NotAscending(_)), Err(Error::NotAscending(_)))));
    assert!(matches!((long_key, long_value), (Err(Error::KeyTooLong(_)), Err(Error::ValueTooLong(_)))));
    assert!(matches!(db.bulk_load("old", good()), Err(Error::TreeExists(_))));
    assert!(matches!(db.bulk_load("", good()), Err(Error::InvalidOptions(_))));
    // A load that failed, and a load that was given up.
    let mut load = db.begin_bulk_load("t").expect("begun");
    for (key, value) in good() {
        load.push(&key, &value).expect("taken");
    }
    assert_eq!(load.rows(), 1500);
    assert!(load.push(b"", b"").is_err());
    assert!(matches!(load.push(b"z", b""), Err(Error::TreeNotFound(_))));
    assert!(matches!(load.finish(), Err(Error::TreeNotFound(_))));
    let mut load = db.begin_bulk_load("t").expect("begun");
    good().for_each(|(key, value)| load.push(&key, &value).expect("taken"));
    drop(load);
    let panics = good().map(|(key, value)| {
        assert!(key != 1499u32.to_be_bytes(), "the source of the rows fails");
        (key, value)
    });
    assert!(catch_unwind(AssertUnwindSafe(|| db.bulk_load("t", panics))).is_err());
    assert_eq!(slots_in_use(&db), in_use);
    assert_eq!(db.trees().expect("listed"), ["old"]);
    assert_eq!(db.stats().trees_dropping, 0);
    db.bulk_load("t", good()).expect("loaded");
    db.close().expect("closed");
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 1500);
}

#[test]
fn source_that_fails_leaves_nothing_of_an_unsorted_load() {
    #[derive(Debug)]
    enum Stop {
        Source(u32),
        Engine(Error),
    }
    impl From<Error> for Stop {
        fn from(error: Error) -> Stop {
            Stop::Engine(error)
        }
    }
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    let db = open(&disk, reopen_options());
    let in_use = slots_in_use(&db);
    let by_end = || TableDefinition::new().index("by_end", [Field::value(2..4)]);
    let source = |count: u32, len| (0..count).rev().map(move |key| Ok((key.to_be_bytes(), vec![7; len])));
    for count in [0, 3, 6000] {
        let mut load = db.begin_bulk_load("t").expect("begun");
        let stop = load.push_unsorted(source(count, 300).chain([Err(Stop::Source(count))])).expect_err("it fails");
        assert!(matches!(stop, Stop::Source(at) if at == count), "{stop:?}");
        assert!(matches!(load.finish(), Err(Error::TreeNotFound(_))));
        let mut load = db.begin_bulk_load_table("t", by_end()).expect("begun");
        let stop = load.push_unsorted(source(count, 300).chain([Err(Stop::Source(count))])).expect_err("it fails");
        assert!(matches!(stop, Stop::Source(at) if at == count), "{stop:?}");
    }
    let mut load = db.begin_bulk_load_table("t", by_end()).expect("begun");
    let stop = load.push_unsorted(source(1, 3)).expect_err("too short for the index");
    assert!(matches!(stop, Stop::Engine(Error::RowTooShort(_))), "{stop:?}");
    drop(load);
    assert_eq!(slots_in_use(&db), in_use);
    assert!(!is_left(&disk.image()));
    let mut load = db.begin_bulk_load_table("t", by_end()).expect("begun");
    load.push_unsorted(source(3, 4)).expect("taken");
    let table = load.finish().expect("loaded");
    assert_eq!((table.definition(), table.scan(..).count()), (by_end(), 3));
    db.close().expect("closed");
}

#[test]
fn rows_in_any_order_are_sorted_and_nothing_is_left_of_the_sort() {
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    let wanted = rows(6000, 300, 2);
    let shuffled = (0..6000u32).map(|row| (row * 7919 % 6000).to_be_bytes()).map(|key| (key, &wanted[&key[..]]));
    let db = open(&disk, reopen_options());
    let in_use = slots_in_use(&db);
    let (mut seen, empty) = (false, vec![]);
    let watched = shuffled.clone().inspect(|_| seen = seen || is_left(&disk.image()));
    let twice = db.bulk_load_unsorted("t", watched.chain([(5u32.to_be_bytes(), &empty)])).expect_err("twice");
    assert!(matches!(twice, Error::NotAscending(_)) && twice.to_string().contains("the same as"), "{twice}");
    assert!(seen && !is_left(&disk.image()), "rows went to files, and these are gone");
    assert_eq!(slots_in_use(&db), in_use);
    assert!(matches!(db.bulk_load_unsorted("t", [([1; 769], b"")]), Err(Error::KeyTooLong(_))));
    // A crash in the middle: the next open removes the files.
    let mut crashed = None;
    let watched = shuffled.clone().enumerate().map(|(turn, row)| {
        if turn == 5000 {
            crashed = Some(disk.crash_now(Unsynced::All));
        }
        row
    });
    db.bulk_load_unsorted("t", watched).expect("loaded");
    db.close().expect("closed");
    assert!(recover(&disk).expect("sound")["t"] == wanted);
    let crashed = crashed.expect("in the middle");
    assert!(is_left(&crashed));
    let disk = disk_of(crashed);
    assert!(!recover(&disk).expect("sound").contains_key("t"));
    assert!(!is_left(&disk.image()));
}

#[test]
fn a_name_that_is_taken_meanwhile_is_refused_at_the_end() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let mut load = db.begin_bulk_load("t").expect("begun");
    for (key, value) in rows(2500, 300, 1) {
        load.push(&key, &value).expect("taken");
    }
    let in_use = slots_in_use(&db);
    let other = db.bulk_load("t", rows(10, 100, 2)).expect("loaded");
    assert!(matches!(load.finish(), Err(Error::TreeExists(_))));
    assert!(slots_in_use(&db) < in_use);
    assert_eq!(other.scan(..).count(), 10);
    db.close().expect("closed");
    assert_eq!(recover(&disk).expect("sound")["t"], rows(10, 100, 2));
}

/// In a pool of 40 frames, with a device so slow that pages of other threads wait for their syncs, too.
#[test]
fn loads_beside_each_other_and_beside_updates_are_all_whole() {
    for (seed, shape) in (1..).zip(shapes()) {
        let (disk, scale) =
            (SimulatedDisk::with_image(start(shape), SLOW), u32::try_from(shape.page_kib).expect("small"));
        let loads = |load: u8| rows(500 * (u32::from(load) + 1), 100 * scale as usize, load);
        run(seed, || {
            let db = open(&disk, shape.reopen_options());
            let loaders: Vec<_> = (0..3u8)
                .map(|load| {
                    let db = db.clone();
                    let source = loads(load);
                    spawn("load", move || db.bulk_load(&format!("load {load}"), source).map(drop)).expect("a thread")
                })
                .collect();
            let tree = db.open_tree("old").expect("there");
            for turn in 0..300u32 {
                let mut batch = WriteBatch::new();
                batch.put(&tree, (turn % 120).to_be_bytes(), [3; 400]).durability(Durability::None);
                db.write(batch).expect("written");
                sleep_ns(2_000_000);
            }
            for loader in loaders {
                loader.join().expect("no panic").expect("loaded");
            }
            db.close().expect("closed");
        });
        let found = recover_shaped(&disk, shape).expect("sound");
        assert!((0..3u8).all(|load| found[&format!("load {load}")] == loads(load)), "{shape:?}");
        assert!(found["old"].values().all(|value| value == &[3; 400]), "{shape:?}");
    }
}

#[test]
fn a_database_that_is_closed_during_a_load_ends_it() {
    let ended = check_closing(seeds(8, 100), 15_000_000, &rows(3000, 300, 2), |db, seed| match seed % 2 {
        0 => db.bulk_load("t", rows(3000, 300, 2)).map(drop),
        _ => db.bulk_load_unsorted("t", rows(3000, 300, 2)).map(drop),
    });
    assert!(ended > 1, "{ended} loads ended early");
}

#[test]
fn a_load_that_finds_the_disk_full_gives_everything_back() {
    for shape in shapes() {
        let disk = SimulatedDisk::with_image(start(shape), ServiceTime::default());
        let len = 100 * usize::try_from(shape.page_kib).expect("small");
        let db = open(&disk, shape.reopen_options());
        let in_use = slots_in_use(&db);
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(u64::try_from(used).expect("small") + (3 << 20)));
        for _ in 0..3 {
            let error = db.bulk_load("t", rows(20_000, len, 2)).expect_err("too large");
            assert!(matches!(error, Error::OutOfSpace(_)), "{error}");
            assert_eq!(slots_in_use(&db), in_use);
        }
        let small = rows(500, len, 3);
        db.bulk_load("t", small.clone()).expect("loaded");
        db.close().expect("closed");
        assert_eq!(recover_shaped(&disk, shape).expect("sound")["t"], small);
    }
}

/// Each call to the device fails once. A failed page write is redirected; any other failure stops the engine, or the
/// load.
#[test]
fn a_device_that_fails_at_any_call_costs_the_load_at_most() {
    let load = |db: &Db| db.bulk_load("t", rows(4000, 300, 2)).map(drop);
    let (loaded, refused) = check_failing_calls(&rows(4000, 300, 2), load);
    assert!(loaded > 5 && refused > 5, "{loaded} loaded, {refused} refused");
}

/// Every write of a lot fails, three times in a row: the load ends, and the database goes on.
#[test]
fn load_without_page_writes_leaves_the_database_at_work() {
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    let (in_use, _) = run(1, || {
        let db = open(&disk, reopen_options());
        let in_use = slots_in_use(&db);
        disk.refuse_writes("data.mpd", true);
        assert!(matches!(db.bulk_load("t", rows(900, 300, 2)), Err(Error::DeviceFailed(_))));
        disk.refuse_writes("data.mpd", false);
        assert!(db.stats().data_write_failures >= 3);
        // Slots with failed writes are not used again before the next open.
        let lost = slots_in_use(&db) - in_use;
        assert!((1..=3 * 64).contains(&lost), "{lost}");
        db.bulk_load("t", rows(900, 300, 3)).expect("loaded");
        db.close().expect("closed");
        in_use
    });
    let db = open(&disk, reopen_options());
    assert_eq!(db.open_tree("t").expect("there").scan(..).count(), 900);
    db.drop_tree("t").expect("dropped");
    assert_eq!(slots_in_use(&db), in_use);
}

/// Rows for more pages than may be in flight.
const LOADED: u32 = 3000;

/// As `record`, with rows of any length; then changes, and a load that is given up.
fn record_rows(shape: Shape, seed: u64) -> Recorded {
    let len = 90 * usize::try_from(shape.page_kib).expect("small");
    let behind = |db: &Db| {
        let t = db.open_tree("t").expect("there");
        t.put(b"z", b"behind").expect("written");
        let mut load = db.begin_bulk_load("u").expect("begun");
        for (key, value) in rows(LOADED / 2, len, 5) {
            load.push(&key, &value).expect("taken");
        }
    };
    record(shape, seed, |db| drop(db.bulk_load("t", rows(LOADED, len, 2)).expect("loaded")), behind)
}

#[test]
fn a_crash_at_any_io_of_a_load_leaves_the_whole_tree_or_nothing() {
    for (seed, shape) in (1..).zip(shapes()) {
        let recorded = record_rows(shape, seed);
        let len = 90 * usize::try_from(shape.page_kib).expect("small");
        let step = stride(if shape.page_kib == 4 { 2 } else { 5 });
        check_all_or_nothing(shape, &recorded, &rows(LOADED, len, 2), step);
    }
}

/// On a full disk other pages may occupy the slots that are charged for a load, until their images are named.
#[test]
fn a_load_on_a_full_disk_finds_the_slots_that_it_was_promised() {
    for store in [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace] {
        let options = small_options().buffer_pool_size(ByteSize::mib(32)).redo_capacity(ByteSize::mib(4));
        // Many images are written during one sync.
        let time = ServiceTime { read_ns: 100_000, write_ns: 1_000_000, sync_ns: 60_000_000 };
        let disk = SimulatedDisk::with_image(Image::new(), time);
        run(3, || {
            let db = open(&disk, options.page_store(store));
            let old = db.create_tree("old").expect("created");
            let put_all = |value| {
                for row in 0..2400u32 {
                    let mut batch = WriteBatch::new();
                    batch.put(&old, row.to_be_bytes(), [value; 900]).durability(Durability::None);
                    db.write(batch).expect("a rewrite needs no new page");
                }
            };
            put_all(1);
            db.checkpoint().expect("done");
            let used: usize = disk.image().values().map(Vec::len).sum();
            disk.limit_space(Some(u64::try_from(used).expect("small")));
            let (other, done) = (db.clone(), Arc::new(AtomicBool::new(false)));
            let ended = Arc::clone(&done);
            // As many trees as there is room for; after that each new tree replaces the oldest.
            let loader = spawn("load", move || {
                let (mut first, mut next) = (0, 0);
                while !ended.load(Ordering::Relaxed) {
                    match other.bulk_load(&format!("load {next}"), rows(800, 300, 2)) {
                        Ok(_) => next += 1,
                        Err(Error::OutOfSpace(_)) => {
                            other.drop_tree(&format!("load {first}")).expect("dropped");
                            first += 1;
                        }
                        Err(error) => unreachable!("{error}"),
                    }
                }
                (first, next)
            });
            for value in 2..16 {
                put_all(value);
            }
            done.store(true, Ordering::Relaxed);
            let (first, next) = loader.expect("a thread").join().expect("no panic");
            assert!(first > 3 && next > first, "the disk was full: {first} of {next} trees were dropped");
            db.close().expect("closed");
        });
        let found = recover_shaped(&disk, Shape { store, ..SMALL }).expect("sound");
        assert!(found["old"].values().all(|value| value == &[15; 900]), "{store:?}");
        assert!(found.iter().filter(|(name, _)| *name != "old").all(|(_, t)| *t == rows(800, 300, 2)), "{store:?}");
    }
}

#[test]
fn rebuild_finds_a_loaded_tree_and_no_unfinished_one() {
    check_rebuilds(&record_rows(SMALL, 9), &rows(LOADED, 360, 2), stride(5));
}

/// The log has room for little more than the load's map records: loads wait for it as other writers do, and leave
/// cleaning its reserve.
#[test]
fn loads_in_a_small_log_beside_writers_at_its_wall_end() {
    let options = || small_options().buffer_pool_size(ByteSize::kib(256)).redo_capacity(ByteSize::kib(512));
    for seed in 0..seeds(3, 20) {
        let disk = SimulatedDisk::with_image(Image::new(), SLOW);
        run(seed, || {
            let db = open(&disk, options());
            let old = db.create_tree("old").expect("created");
            let writers: Vec<_> = (0..3u32)
                .map(|client| {
                    let (db, old) = (db.clone(), old.clone());
                    spawn("writer", move || {
                        for turn in 0..700u32 {
                            let mut batch = WriteBatch::new();
                            let key = (turn * 3 + client) * 7919 % 400;
                            batch.put(&old, key.to_be_bytes(), [5; 800]).durability(Durability::None);
                            db.write(batch).expect("written");
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            for load in 0..4u8 {
                db.bulk_load(&format!("load {load}"), rows(2500, 300, load)).expect("loaded");
            }
            for writer in writers {
                writer.join().expect("no panic");
            }
            assert!(db.stats().log_space_waits > 0, "the log was full");
            db.close().expect("closed");
        });
        let found = recover(&disk).expect("sound");
        assert!((0..4u8).all(|load| found[&format!("load {load}")] == rows(2500, 300, load)));
    }
}
