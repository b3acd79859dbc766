//! Bulk loads of tables: rows, long values and every index are there together or not at all.

use millpond::simulation::{ServiceTime, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Error, Field, Modify, Table, TableBulkLoad, TableDefinition};

use crate::crash_matrix::stride;
use crate::loads::{
    Recorded, Rows, check_all_or_nothing, check_beside_each_other, check_closing, check_failing_calls, check_rebuilds,
    is_left, record, shapes, shuffled, slots_in_use, start,
};
use crate::support::{SMALL, Shape, disk_of, open, recover, recover_shaped, reopen_options, settle, small_options};

/// One unique index, one over the whole key and bytes that many rows share, and one into the long part of the value.
fn indexes() -> TableDefinition {
    TableDefinition::new()
        .unique("number", [Field::value(0..4)])
        .index("group", [Field::value(4..8), Field::key(..)])
        .index("end", [Field::value(8..16)])
}

/// A row: a unique number, a group, text. Every tenth is long.
fn row(number: u32, page_kib: u64, round: u8) -> Vec<u8> {
    let (at, page) = (number as usize, usize::try_from(page_kib).expect("small") << 10);
    let mut value = number.wrapping_mul(0x9E37_79B1).to_be_bytes().to_vec();
    value.extend_from_slice(&(number % 7).to_be_bytes());
    value.extend_from_slice(&[round; 8]);
    let text = if at % 10 == 3 { page / 4 + at * 977 % (6 * page) } else { at * 37 % (page / 10) };
    value.resize(16 + text, number.to_le_bytes()[0]);
    value
}

fn rows(count: u32, page_kib: u64, round: u8) -> Rows {
    (0..count).map(|number| (number.to_be_bytes().to_vec(), row(number, page_kib, round))).collect()
}

/// Compares the table and each of its indexes with the wanted rows.
fn compare(table: &Table, wanted: &Rows) {
    let found: Vec<_> = table.scan(..).map(|row| row.expect("read")).collect();
    assert!(found.iter().map(|(key, value)| (key, value)).eq(wanted), "{} of {} rows", found.len(), wanted.len());
    let by = |fields: fn(&[u8], &[u8]) -> Vec<u8>| {
        let mut entries: Vec<_> = wanted.iter().map(|(key, value)| (fields(key, value), key.clone())).collect();
        entries.sort();
        entries
    };
    for (index, wanted) in [
        ("number", by(|_, value| value[..4].to_vec())),
        ("group", by(|key, value| [&value[4..8], key].concat())),
        ("end", by(|_, value| value[8..16].to_vec())),
    ] {
        let entries = table.index(index).expect("there").scan(..);
        let found: Vec<_> = entries.collect::<Result<_, _>>().expect("read");
        assert!(found == wanted, "index {index}: {} of {} entries", found.len(), wanted.len());
    }
}

#[test]
fn a_loaded_table_is_as_one_that_rows_were_written_to() {
    for shape in shapes() {
        let disk = SimulatedDisk::new();
        let mut model = rows(1201, shape.page_kib, 1);
        run(1, || {
            let db = open(&disk, Shape { frames: 232, ..shape }.options().redo_capacity(ByteSize::mib(4)));
            let t = db.bulk_load_table("t", indexes(), &model).expect("loaded");
            assert_eq!(t.name(), "t");
            compare(&t, &model);
            let u = db.bulk_load_table_unsorted("u", indexes(), shuffled(&model)).expect("loaded");
            compare(&u, &model);
            let crashed = disk_of(disk.crash_now(Unsynced::None));
            let found = recover_shaped(&crashed, Shape { frames: 232, ..shape }).expect("sound");
            assert!(found["t"] == model && found["u"] == model, "{shape:?}");
            // Taken numbers are refused; changed and deleted rows have the right entries.
            let taken = t.insert(b"new", row(5, shape.page_kib, 9)).expect_err("its number is there");
            assert!(matches!(taken, Error::KeyExists(_)), "{taken}");
            for number in (0..1300u32).step_by(3) {
                let key = number.to_be_bytes();
                let new = row(number + 2000, shape.page_kib, 2);
                for table in [&t, &u] {
                    match number % 4 {
                        0 => drop(table.modify(key, |_| Modify::Put(new.clone())).expect("written")),
                        1 => drop(table.delete(key).expect("written")),
                        _ => table.put(key, row(number, shape.page_kib, 3)).expect("written"),
                    }
                }
                match number % 4 {
                    0 => drop(model.insert(key.to_vec(), new)),
                    1 => drop(model.remove(&key[..])),
                    _ => drop(model.insert(key.to_vec(), row(number, shape.page_kib, 3))),
                }
            }
            settle(&db);
            compare(&t, &model);
            compare(&u, &model);
            let made = t.create_index("later", [Field::value(0..1)]).expect("made");
            assert_eq!(made.scan(..).count(), model.len());
            db.truncate_table("t").expect("truncated");
            drop((t, u, made));
            db.close().expect("closed");
        });
        let found = recover_shaped(&disk, Shape { frames: 232, ..shape }).expect("sound");
        assert!(found["t"].is_empty() && found["u"] == model, "{shape:?}");
    }
}

#[test]
fn a_table_without_rows_or_without_indexes_is_loaded_too() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let empty = db.bulk_load_table("empty", indexes(), Rows::new()).expect("loaded");
    empty.insert(b"k", row(7, 4, 1)).expect("written");
    let bare = db.bulk_load_table("bare", TableDefinition::new(), &rows(90, 4, 1)).expect("loaded");
    assert_eq!(bare.scan(..).count(), 90);
    // Twenty indexes in the same memory as two: their entries go to files.
    let many = (0..20).fold(TableDefinition::new(), |all, index| {
        all.index(&format!("i{index}"), [Field::value(index..index + 4), Field::value(30..60)])
    });
    let wide = |number: u32| (number.to_be_bytes(), number.wrapping_mul(0x9E37_79B1).to_be_bytes().repeat(20));
    let table = db.bulk_load_table_unsorted("many", many, (0..6000).rev().map(wide)).expect("loaded");
    assert!((0..20).all(|index| table.index(&format!("i{index}")).expect("there").scan(..).count() == 6000));
    assert!(!is_left(&disk.image()));
    drop((empty, bare, table));
    db.close().expect("closed");
    assert_eq!(recover(&disk).expect("sound")["many"].len(), 6000);
}

fn pushed(mut load: TableBulkLoad, rows: &Rows) -> Result<TableBulkLoad, Error> {
    rows.iter().try_for_each(|(key, value)| load.push(key, value)).map(|()| load)
}

#[test]
fn rows_that_cannot_be_in_the_table_are_named_and_leave_nothing() {
    let disk = SimulatedDisk::with_image(start(SMALL), ServiceTime::default());
    let db = open(&disk, reopen_options());
    let in_use = slots_in_use(&db);
    let good = rows(1500, 4, 1);
    let with = |key: &[u8], value: &[u8]| -> Rows {
        let mut rows = good.clone();
        rows.insert(key.to_vec(), value.to_vec());
        rows
    };
    let twin = with(&9000u32.to_be_bytes(), &row(700, 4, 2));
    for twice in [
        db.bulk_load_table("t", indexes(), &twin).expect_err("twice"),
        db.bulk_load_table_unsorted("t", indexes(), shuffled(&twin)).expect_err("twice"),
    ] {
        assert!(matches!(twice, Error::NotUnique(_)), "{twice}");
        let message = twice.to_string();
        let parts = ["index 'number' of table 't' cannot be unique", r"'\x00\x00\x02\xbc' and '\x00\x00#('"];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let short = with(&9000u32.to_be_bytes(), &[1; 12]);
    let last = good.iter().next_back().expect("there");
    let long_key = with(&[9; 769], &row(9000, 4, 1));
    let long_entry = with(&[9; 767], &row(9000, 4, 1));
    for (result, parts) in [
        (db.bulk_load_table("t", indexes(), &short), ["row 1500 ", "table 't'", "has 12 bytes: index 'end' wants"]),
        (db.bulk_load_table("t", indexes(), good.iter().chain([last])), ["row 1500 ", "the same as", "table 't'"]),
        (db.bulk_load_table("t", indexes(), &long_key), ["row 1500 ", "has 769 bytes", "at most 768"]),
        (db.bulk_load_table("t", indexes(), &long_entry), ["row 1500 ", "index 'group' has ", "at most 768"]),
    ] {
        let message = result.expect_err("refused").to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    assert!(matches!(db.bulk_load_table("t", indexes(), &short), Err(Error::RowTooShort(_))));
    assert!(matches!(db.bulk_load_table("t", indexes(), &long_entry), Err(Error::KeyTooLong(_))));
    assert!(matches!(db.bulk_load_table("old", indexes(), &good), Err(Error::TreeExists(_))));
    assert!(matches!(db.bulk_load_table("", indexes(), &good), Err(Error::InvalidOptions(_))));
    let bad = TableDefinition::new().index("i", []);
    assert!(matches!(db.bulk_load_table("t", bad, &good), Err(Error::InvalidOptions(_))));
    // A load that failed, and a load that was given up.
    let mut load = pushed(db.begin_bulk_load_table("t", indexes()).expect("begun"), &good).expect("taken");
    assert_eq!(load.rows(), 1500);
    assert!(matches!(load.push(b"z", b"short"), Err(Error::RowTooShort(_))));
    assert!(matches!(load.push(b"z", row(9000, 4, 1)), Err(Error::TreeNotFound(_))));
    assert!(matches!(load.finish(), Err(Error::TreeNotFound(_))));
    drop(pushed(db.begin_bulk_load_table("t", indexes()).expect("begun"), &good).expect("taken"));
    assert_eq!((slots_in_use(&db), db.stats().trees_dropping), (in_use, 0));
    assert!(!is_left(&disk.image()));
    assert!(db.tables().expect("listed").is_empty());
    // A name that is taken during the load.
    let load = pushed(db.begin_bulk_load_table("t", indexes()).expect("begun"), &good).expect("taken");
    db.create_table("t", TableDefinition::new()).expect("created");
    let taken = load.finish().expect_err("taken").to_string();
    assert!(taken.contains("table 't' exists already"), "{taken}");
    db.drop_table("t").expect("dropped");
    assert_eq!(slots_in_use(&db), in_use);
    compare(&db.bulk_load_table("t", indexes(), &good).expect("loaded"), &good);
    db.close().expect("closed");
    assert!(recover(&disk).expect("sound")["t"] == good);
}

#[test]
fn table_load_on_a_full_disk_gives_everything_back() {
    for shape in shapes() {
        let disk = SimulatedDisk::with_image(start(shape), ServiceTime::default());
        let db = open(&disk, shape.reopen_options());
        let in_use = slots_in_use(&db);
        let used: usize = disk.image().values().map(Vec::len).sum();
        // From too little room for the rows to too little for the last index.
        let wanted = rows(3000, shape.page_kib, 2);
        let (mut refused, mut room) = (0, 1 << 20);
        loop {
            disk.limit_space(Some(u64::try_from(used).expect("small") + room));
            match db.bulk_load_table("t", indexes(), &wanted) {
                Ok(_) => break,
                Err(error) => assert!(matches!(error, Error::OutOfSpace(_)), "{error}"),
            }
            assert_eq!((slots_in_use(&db), db.stats().trees_dropping), (in_use, 0), "{shape:?}");
            refused += 1;
            room += 1 << 20;
        }
        assert!(refused > 2, "{refused}");
        db.close().expect("closed");
        assert!(recover_shaped(&disk, shape).expect("sound")["t"] == wanted);
    }
}

/// Each call to the device fails once.
#[test]
fn device_failing_at_any_call_costs_a_table_load_at_most() {
    let wanted = rows(160, 4, 2);
    let load = |db: &Db| db.bulk_load_table("t", indexes(), &wanted).map(drop);
    let (loaded, refused) = check_failing_calls(&wanted, load);
    assert!(loaded > 2 && refused > 5, "{loaded} loaded, {refused} refused");
}

fn wanted(shape: Shape) -> Rows {
    rows(701, shape.page_kib, 2)
}

/// A load, changes of its rows, and a load that is given up.
fn record_table(shape: Shape, seed: u64) -> Recorded {
    let load = |db: &Db| match seed % 2 {
        0 => drop(db.bulk_load_table_unsorted("t", indexes(), shuffled(&wanted(shape))).expect("loaded")),
        _ => drop(db.bulk_load_table("t", indexes(), wanted(shape)).expect("loaded")),
    };
    let behind = |db: &Db| {
        let t = db.open_table("t").expect("there");
        t.insert(b"z", row(9003, shape.page_kib, 5)).expect("written");
        let load = db.begin_bulk_load_table("u", indexes()).expect("begun");
        drop(pushed(load, &rows(300, shape.page_kib, 6)).expect("taken"));
    };
    record(shape, seed, load, behind)
}

#[test]
fn a_crash_at_any_io_of_a_table_load_leaves_all_or_nothing() {
    for (seed, shape) in (1..).zip(shapes()) {
        let step = stride(if shape.page_kib == 4 { 2 } else { 5 });
        check_all_or_nothing(shape, &record_table(shape, seed), &wanted(shape), step);
    }
}

#[test]
fn a_rebuild_finds_a_loaded_table() {
    check_rebuilds(&record_table(SMALL, 9), &wanted(SMALL), stride(9));
}

#[test]
fn a_database_that_is_closed_during_a_load_of_a_table_ends_it() {
    let ended = check_closing(12, 10_000_000, &wanted(SMALL), |db, seed| match seed % 2 {
        0 => db.bulk_load_table("t", indexes(), wanted(SMALL)).map(drop),
        _ => db.bulk_load_table_unsorted("t", indexes(), shuffled(&wanted(SMALL))).map(drop),
    });
    assert!(ended > 3, "{ended}");
}

/// In a log with room for little more than the map records of the pages in flight.
#[test]
fn concurrent_table_loads_in_a_small_log_end() {
    let load = |db: &Db, name: &str, load| match load {
        2 => db.bulk_load_table_unsorted(name, indexes(), rows(500, 4, load)).map(drop),
        _ => db.bulk_load_table(name, indexes(), rows(500, 4, load)).map(drop),
    };
    check_beside_each_other(load, |load| rows(500, 4, load));
}
