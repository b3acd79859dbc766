//! Bulk loads of long values: rows and chunks are there together or not at all, and equal written ones.

use millpond::simulation::{ServiceTime, SimulatedDisk, Unsynced, run};
use millpond::{Db, Error};

use crate::crash_matrix::stride;
use crate::loads::{
    Recorded, Rows, check_all_or_nothing, check_beside_each_other, check_closing, check_failing_calls, check_rebuilds,
    record, shapes, shuffled, slots_in_use, start,
};
use crate::support::{SMALL, Shape, disk_of, open, recover, recover_shaped, reopen_options, settle};

/// `count` rows. Every fourth has a long value, of up to eight pages. `round` tells the values of two loads apart.
fn long_rows(count: u32, page_kib: u64, round: u8) -> Rows {
    let page = usize::try_from(page_kib).expect("small") << 10;
    let row = |number: u32| {
        let at = number as usize;
        let len = if at % 4 == 1 { page / 4 + 1 + at * 977 % (8 * page) } else { at * 37 % (page / 8) };
        let mut value = vec![round; len];
        value.iter_mut().step_by(100).zip(0u32..).for_each(|(byte, turn)| *byte = (number + turn).to_le_bytes()[0]);
        (number.to_be_bytes().to_vec(), value)
    };
    (0..count).map(row).collect()
}

fn compare(db: &Db, name: &str, wanted: &Rows) {
    let tree = db.open_tree(name).expect("there");
    let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read")).collect();
    assert!(rows.iter().map(|(key, value)| (key, value)).eq(wanted), "{name}: {} rows", rows.len());
    for (key, value) in wanted.iter().step_by(7) {
        assert_eq!(tree.get(key).expect("read").as_ref(), Some(value));
    }
}

#[test]
fn loaded_long_values_behave_as_written_ones() {
    for shape in shapes() {
        let disk = SimulatedDisk::new();
        let mut model = long_rows(401, shape.page_kib, 3);
        run(1, || {
            let db = open(&disk, shape.options());
            db.bulk_load("t", &model).expect("loaded");
            db.bulk_load_unsorted("u", shuffled(&model)).expect("loaded");
            for name in ["t", "u"] {
                compare(&db, name, &model);
            }
            let crashed = disk_of(disk.crash_now(Unsynced::None));
            let found = recover_shaped(&crashed, shape).expect("sound");
            assert!(found["t"] == model && found["u"] == model, "{shape:?}");
            let full = slots_in_use(&db);
            let later = long_rows(401, shape.page_kib, 4);
            for name in ["t", "u"] {
                let tree = db.open_tree(name).expect("there");
                for (number, key) in later.keys().enumerate() {
                    match number % 5 {
                        0 => tree.put(key, &later[key]).expect("written"),
                        1 => tree.update(key, &later[later.keys().nth(number / 2).expect("there")]).expect("written"),
                        2 => assert!(tree.delete(key).expect("written")),
                        _ => {}
                    }
                }
            }
            for (number, key) in later.keys().enumerate() {
                match number % 5 {
                    0 => drop(model.insert(key.clone(), later[key].clone())),
                    1 => {
                        let value = later.values().nth(number / 2).expect("there");
                        model.insert(key.clone(), value.clone());
                    }
                    2 => drop(model.remove(key)),
                    _ => {}
                }
            }
            settle(&db);
            for name in ["t", "u"] {
                compare(&db, name, &model);
            }
            let tree = db.open_tree("t").expect("there");
            model.keys().for_each(|key| assert!(tree.delete(key).expect("deleted")));
            db.drop_tree("u").expect("dropped");
            settle(&db);
            let left = slots_in_use(&db);
            assert!(left < full / 3, "{shape:?}: {full} slots were in use, {left} are");
            drop(tree);
            db.close().expect("closed");
        });
        assert_eq!(recover_shaped(&disk, shape).expect("sound")["t"].len(), 0);
    }
}

/// Chunks take little more room than their bytes.
#[test]
fn leaves_of_chunks_are_full() {
    for shape in shapes() {
        let page = usize::try_from(shape.page_kib).expect("small") << 10;
        let disk = SimulatedDisk::new();
        let db = open(&disk, shape.options());
        let in_use = slots_in_use(&db);
        db.bulk_load("t", (0..20u8).map(|key| ([key], vec![key; 40 * page]))).expect("loaded");
        let used = slots_in_use(&db) - in_use;
        assert!((800..=880).contains(&used), "{shape:?}: {used} pages for 800 of values");
        db.close().expect("closed");
        assert!(recover_shaped(&disk, shape).expect("sound")["t"].values().all(|value| value.len() == 40 * page));
    }
}

/// References of transactions after a crash must not collide with those of a load before it (LOAD-5).
#[test]
fn no_later_transaction_has_the_references_of_a_load() {
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    let wanted = long_rows(9, 4, 2);
    let db = open(&disk, reopen_options());
    db.bulk_load("t", &wanted).expect("loaded");
    let disk = disk_of(disk.crash_now(Unsynced::None));
    drop(db);
    assert!(recover(&disk.clone()).expect("sound")["t"] == wanted);
    let db = open(&disk, reopen_options());
    let tree = db.open_tree("t").expect("there");
    for turn in 100..110u32 {
        tree.insert(turn.to_be_bytes(), [9; 5000]).expect("written");
    }
    assert!(wanted.iter().all(|(key, value)| tree.get(key).expect("read").as_ref() == Some(value)));
    drop(tree);
    db.close().expect("closed");
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 19);
}

#[test]
fn failed_load_of_long_values_gives_both_spaces_back() {
    for shape in shapes() {
        let disk = SimulatedDisk::with_image(start(shape), ServiceTime::default());
        let db = open(&disk, shape.reopen_options());
        let in_use = slots_in_use(&db);
        let wanted = long_rows(300, shape.page_kib, 1);
        let bad = db.bulk_load("t", wanted.iter().chain(wanted.iter().skip(5).take(1)));
        assert!(matches!(bad, Err(Error::NotAscending(_))));
        let twice = wanted.iter().nth(5).expect("there");
        let bad = db.bulk_load_unsorted("t", shuffled(&wanted).chain([twice]));
        assert!(matches!(bad, Err(Error::NotAscending(_))));
        let mut load = db.begin_bulk_load("t").expect("begun");
        wanted.iter().for_each(|(key, value)| load.push(key, value).expect("taken"));
        assert_eq!(load.rows(), 300);
        drop(load);
        assert_eq!(slots_in_use(&db), in_use, "{shape:?}");
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(u64::try_from(used).expect("small") + (2 << 20)));
        let error = db.bulk_load("t", long_rows(4000, shape.page_kib, 2)).expect_err("too large");
        assert!(matches!(error, Error::OutOfSpace(_)), "{error}");
        assert_eq!((slots_in_use(&db), db.stats().trees_dropping), (in_use, 0), "{shape:?}");
        disk.limit_space(None);
        db.bulk_load("t", &wanted).expect("loaded");
        db.close().expect("closed");
        assert!(recover_shaped(&disk, shape).expect("sound")["t"] == wanted);
    }
}

/// Each call to the device fails once.
#[test]
fn device_failing_at_any_call_costs_a_long_value_load_at_most() {
    let wanted = long_rows(160, 4, 2);
    let (loaded, refused) = check_failing_calls(&wanted, |db| db.bulk_load("t", &wanted).map(drop));
    assert!(loaded > 2 && refused > 5, "{loaded} loaded, {refused} refused");
}

fn record_long(shape: Shape, seed: u64) -> Recorded {
    let behind = |db: &Db| {
        let t = db.open_tree("t").expect("there");
        t.put(b"z", [5; 9000]).expect("written");
        let mut load = db.begin_bulk_load("u").expect("begun");
        for (key, value) in long_rows(60, shape.page_kib, 5) {
            load.push(&key, &value).expect("taken");
        }
    };
    let load = |db: &Db| match seed % 2 {
        0 => drop(db.bulk_load_unsorted("t", shuffled(&wanted(shape))).expect("loaded")),
        _ => drop(db.bulk_load("t", wanted(shape)).expect("loaded")),
    };
    record(shape, seed, load, behind)
}

fn wanted(shape: Shape) -> Rows {
    long_rows(301, shape.page_kib, 2)
}

#[test]
fn a_crash_at_any_io_of_a_long_value_load_leaves_all_or_nothing() {
    for (seed, shape) in (1..).zip(shapes()) {
        let step = stride(if shape.page_kib == 4 { 2 } else { 6 });
        check_all_or_nothing(shape, &record_long(shape, seed), &wanted(shape), step);
    }
}

#[test]
fn a_rebuild_finds_the_chunks_of_a_load() {
    check_rebuilds(&record_long(SMALL, 9), &wanted(SMALL), stride(7));
}

/// Two lots of each load are in flight, in a log with room for little more than their map records.
#[test]
fn concurrent_loads_of_long_values_in_a_small_log_end() {
    let load = |db: &Db, name: &str, load| db.bulk_load(name, long_rows(250, 4, load)).map(drop);
    check_beside_each_other(load, |load| long_rows(250, 4, load));
}

#[test]
fn closing_the_database_ends_a_load_of_long_values() {
    let ended = check_closing(8, 12_000_000, &wanted(SMALL), |db, seed| match seed % 2 {
        0 => db.bulk_load("t", wanted(SMALL)).map(drop),
        _ => db.bulk_load_unsorted("t", shuffled(&wanted(SMALL))).map(drop),
    });
    assert!(ended > 2, "{ended} loads ended early");
}
