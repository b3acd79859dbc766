//! Indexes built on tables with rows, and dropped one by one: right beside any writers, whole or absent, nothing left
//! behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond::simulation::{Image, ServiceTime, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{Db, Durability, Error, Field, Index, Options, Table, TableDefinition, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::{SMALL, Shape, open, recover_shaped, settle, sound};
use crate::tables::{options, refused};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A disk so slow that writers come between the steps of a build.
const SLOW: ServiceTime = ServiceTime { read_ns: 100_000, write_ns: 1_000_000, sync_ns: 2_000_000 };

/// As `tables::options`.
const SHAPE: Shape = Shape { frames: 232, ..SMALL };

fn slow_disk() -> SimulatedDisk {
    SimulatedDisk::with_image(BTreeMap::default(), SLOW)
}

/// Rows of a unique name of 4 bytes, a kind of 1 byte, and a text.
fn row_of(name: u32, rng: &mut SmallRng) -> Vec<u8> {
    let mut row = name.to_be_bytes().to_vec();
    row.push(rng.random_range(b'a'..=b'e'));
    row.extend_from_slice(&vec![rng.random_range(0..3); rng.random_range(0..40)]);
    row
}

fn key_of(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

fn rows_of(table: &Table) -> Rows {
    table.scan(..).collect::<Result<_, _>>().expect("scanned")
}

/// Fields and keys, in the order of the index.
fn entries(index: &Index) -> Vec<(Vec<u8>, Vec<u8>)> {
    index.scan(..).collect::<Result<_, _>>().expect("scanned")
}

fn wanted(rows: &Rows, fields: impl Fn(&[u8]) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut wanted: Vec<_> = rows.iter().map(|(key, row)| (fields(row), key.clone())).collect();
    wanted.sort();
    wanted
}

fn quick() -> Options {
    options(4).durability(Durability::None)
}

/// Closes the database and checks it: this many index entries, all right, and no space without a name.
fn close_and_check(db: Db, disk: &SimulatedDisk, index_entries: usize) {
    db.close().expect("closed");
    let report = sound(disk);
    assert_eq!((report.index_entries, report.orphan_spaces), (u64::try_from(index_entries).expect("few"), 0));
}

/// A table of `count` rows with the index 'text', and a tree beside it.
fn fill(db: &Db, count: u32) -> Table {
    let table = db.create_table("t", TableDefinition::new().index("text", [Field::value(5..)])).expect("created");
    let mut rng = SmallRng::seed_from_u64(7);
    for number in 0..count {
        table.insert(key_of(number), row_of(number, &mut rng)).expect("inserted");
    }
    table
}

/// Rows of [`large_table`], whose leaves do not all fit the pool: time passes in each step of a build.
const COUNT: u32 = 2000;

fn large_row(name: u32, rng: &mut SmallRng) -> Vec<u8> {
    [row_of(name, rng), vec![b'.'; rng.random_range(300..700)]].concat()
}

/// A closed database with a table with rows like those of [`row_of`], with long tails, and the index 'text'.
fn large_table() -> Image {
    let disk = SimulatedDisk::new();
    let db = open(&disk, quick());
    let table = db.create_table("t", TableDefinition::new().index("text", [Field::value(4..12)])).expect("created");
    let mut rng = SmallRng::seed_from_u64(8);
    for number in 0..COUNT {
        table.insert(key_of(number), large_row(number, &mut rng)).expect("inserted");
    }
    drop(table);
    db.close().expect("closed");
    disk.image()
}

/// A writer's work while indexes are built, until `is_over`: most of it on a few rows. Names are unique at every
/// moment. Returns the number of changes.
fn writer(db: &Db, id: u32, seed: u64, is_over: &AtomicBool) -> u32 {
    let table = db.open_table("t").expect("there");
    let mut rng = SmallRng::seed_from_u64(seed * 10 + u64::from(id));
    let mut changes = 0;
    for turn in 0..100_000 {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // Sometimes writers are faster than the build that follows them.
        sleep_ns(rng.random_range(0..if seed % 3 == 1 { 200_000 } else { 1_000_000 }));
        let below = if rng.random_bool(0.7) { 8 } else { COUNT };
        let keys = [(); 2].map(|()| key_of(rng.random_range(0..below)));
        // No other writer ever gives this name.
        let new = large_row(1_000_000 * (id + 1) + turn, &mut rng);
        let [one, two] = [0, 1].map(|at| table.get(&keys[at]).expect("read"));
        let mut batch = WriteBatch::new();
        batch.expect(&table, &keys[0], one.as_deref());
        match (rng.random_range(0..6), &one, &two) {
            (0, Some(_), _) => _ = batch.delete(&table, &keys[0]),
            // The same name, with another kind and text.
            (1 | 2, Some(one), _) => _ = batch.put(&table, &keys[0], [&one[..4], &new[4..]].concat()),
            (3 | 4, Some(one), Some(two)) if keys[0] != keys[1] => {
                batch.expect(&table, &keys[1], Some(two)).put(&table, &keys[0], two).put(&table, &keys[1], one);
            }
            (3 | 4, Some(one), None) => {
                batch.delete(&table, &keys[0]).expect(&table, &keys[1], None).insert(&table, &keys[1], one);
            }
            _ => _ = batch.put(&table, &keys[0], &new),
        }
        match db.write(batch) {
            Ok(_) => changes += 1,
            Err(Error::Conflict(_)) => {}
            Err(error) => unreachable!("seed {seed}: {error}"),
        }
    }
    changes
}

/// Builds an index of each kind, in this order or the other.
fn build_two(db: &Db, seed: u64) {
    let table = db.open_table("t").expect("there");
    if seed.is_multiple_of(2) {
        table.create_index("kind", [Field::value(4..5)]).expect("made");
        table.create_unique_index("name", [Field::value(0..4)]).expect("made");
    } else {
        table.create_unique_index("name", [Field::value(0..4)]).expect("made");
        table.create_index("kind", [Field::value(4..5), Field::key(..)]).expect("made");
    }
}

/// Three writers work on the large table while `with` runs. Then compares indexes and rows.
fn beside_writers(image: &Image, seed: u64, indexes: usize, with: impl FnOnce(&Db)) {
    run(seed, || {
        let disk = SimulatedDisk::with_image(image.clone(), SLOW);
        let db = open(&disk, SHAPE.reopen_options().durability(Durability::None));
        let is_over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (1..4)
            .map(|id| {
                let (db, is_over) = (db.clone(), Arc::clone(&is_over));
                spawn("writer", move || writer(&db, id, seed, &is_over)).expect("a thread")
            })
            .collect();
        with(&db);
        is_over.store(true, Ordering::Relaxed);
        let changes: u32 = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
        assert!(changes > 100, "seed {seed}: only {changes} changes");
        let table = db.open_table("t").expect("there");
        let rows = rows_of(&table);
        for (name, fields) in [("name", 0..4), ("text", 4..12)] {
            if let Ok(index) = table.index(name) {
                assert_eq!(entries(&index), wanted(&rows, |row| row[fields.clone()].to_vec()), "seed {seed}");
            }
        }
        drop(table);
        close_and_check(db, &disk, indexes * rows.len());
    });
}

#[test]
fn index_made_beside_writers_is_right_under_any_schedule() {
    let image = large_table();
    for seed in 0..6 {
        beside_writers(&image, seed, 3, |db| {
            let table = db.open_table("t").expect("there");
            build_two(db, seed);
            assert_eq!(table.indexes().count(), 3, "an older handle has them");
        });
    }
}

/// Each new row and note sorts behind all others, from writers that end only after the build: it does end.
#[test]
fn a_build_ends_beside_writers_that_are_always_ahead() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), quick().cached(true)).expect("opened");
    let table = db.create_table("t", TableDefinition::new()).expect("created");
    let (next, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    let insert = || {
        let number = next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        table.insert(number, number).expect("inserted");
    };
    (0..1000).for_each(|_| insert());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    insert();
                }
            });
        }
        while next.load(Ordering::Relaxed) == 1000 {
            std::thread::yield_now();
        }
        let made = table.create_index("number", [Field::value(0..4)]);
        is_over.store(true, Ordering::Relaxed);
        made.expect("made");
    });
    let index = table.index("number").expect("there");
    assert_eq!(index.scan(..).count(), table.scan(..).count());
    drop((table, index));
    db.close().expect("closed");
}

/// Rows whose indexed texts are in chunks, put and deleted beside the build.
#[test]
fn rows_with_long_values_have_their_entries() {
    for seed in 0..6 {
        run(seed, || {
            let disk = slow_disk();
            let db = open(&disk, quick());
            let table = db.create_table("t", TableDefinition::new()).expect("created");
            let row = |name: u32, len: usize| [&name.to_be_bytes()[..], b"k", &vec![b'x'; len]].concat();
            for number in 0..60 {
                table.insert(key_of(number), row(number, 3000)).expect("inserted");
            }
            let other = table.clone();
            let writer = spawn("writer", move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                for turn in 0..60 {
                    sleep_ns(rng.random_range(0..1_000_000));
                    let (key, len) = (key_of(rng.random_range(0..60)), rng.random_range(0..6000));
                    match rng.random_range(0..3) {
                        0 => drop(other.delete(&key).expect("deleted")),
                        _ => other.put(&key, row(1000 + turn, len)).expect("put"),
                    }
                }
            });
            table.create_unique_index("name", [Field::value(0..4)]).expect("made");
            table.create_index("kind", [Field::value(4..5)]).expect("made");
            writer.expect("a thread").join().expect("no panic");
            let rows = rows_of(&table);
            assert_eq!(entries(&table.index("name").expect("there")), wanted(&rows, |row| row[..4].to_vec()));
            drop(table);
            close_and_check(db, &disk, 2 * rows.len());
        });
    }
}

/// Batches of several groups are in flight when a build begins and when it ends. Half of them fail with their last row.
#[test]
fn builds_see_concurrent_large_batches_whole_or_not_at_all() {
    let mut failed = 0;
    for seed in 0..12 {
        failed += run(seed, || {
            let count = 400;
            let disk = slow_disk();
            let db = open(&disk, quick());
            let table = fill(&db, count);
            let (other, other_db) = (table.clone(), db.clone());
            let writer = spawn("writer", move || {
                let (mut rng, mut failed) = (SmallRng::seed_from_u64(seed), 0);
                for turn in 0..8 {
                    sleep_ns(rng.random_range(0..4_000_000));
                    let mut batch = WriteBatch::new();
                    for number in (0..count).step_by(3) {
                        let name = 1_000_000 * (turn + 1) + number;
                        batch.put(&other, key_of(number), row_of(name, &mut rng));
                    }
                    if rng.random() {
                        batch.expect(&other, b"none", Some(b"row"));
                    }
                    match other_db.write(batch) {
                        Ok(_) => {}
                        Err(Error::Conflict(_)) => failed += 1,
                        Err(error) => unreachable!("{error}"),
                    }
                }
                failed
            });
            build_two(&db, seed);
            let failed = writer.expect("a thread").join().expect("no panic");
            let rows = rows_of(&table);
            assert_eq!(entries(&table.index("name").expect("there")), wanted(&rows, |row| row[..4].to_vec()));
            drop(table);
            settle(&db);
            close_and_check(db, &disk, 3 * rows.len());
            failed
        })
        .0;
    }
    assert!(failed > 10, "only {failed} batches were undone");
}

#[test]
fn rows_that_no_index_can_have_are_named_and_nothing_is_left() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, quick());
    let table = fill(&db, 500);
    let is = |error: Error, wanted: fn(&Error) -> bool| assert!(wanted(&error), "{error:?}");
    table.put(b"00499", table.get(b"00007").expect("read").expect("there")).expect("put");
    let made = table.create_unique_index("name", [Field::value(0..4)]);
    let parts = ["index 'name' of table 't' cannot be unique", "rows '00007' and '00499'", r"'\x00\x00\x00\x07'"];
    is(refused(made, &parts), |error| matches!(error, Error::NotUnique(_)));
    table.put(b"00000", b"short").expect("put");
    let made = table.create_index("far", [Field::value(2..9)]);
    let parts = ["of row '00000' of table 't' has 5 bytes", "index 'far' wants at least 9"];
    is(refused(made, &parts), |error| matches!(error, Error::RowTooShort(_)));
    table.put([b'k'; 700], b"....k").expect("put");
    let made = table.create_index("long", [Field::key(..), Field::key(..)]);
    is(refused(made, &["the field key[0..] has no end"]), |error| matches!(error, Error::InvalidOptions(_)));
    let made = table.create_index("long", [Field::key(0..5), Field::value(..), Field::key(0..5)]);
    is(refused(made, &["the field value[0..] has no end"]), |error| matches!(error, Error::InvalidOptions(_)));
    let made = table.create_index("long", [Field::value(0..4), Field::key(..)]);
    let parts = ["the entry of row 'kkk", "in index 'long' has 1406 bytes: at most 768 fit"];
    is(refused(made, &parts), |error| matches!(error, Error::KeyTooLong(_)));
    let made = table.create_index("text", [Field::value(0..1)]);
    let parts = ["table 't' has an index 'text' already", "drop it, or name this one otherwise"];
    is(refused(made, &parts), |error| matches!(error, Error::TreeExists(_)));
    let made = table.create_index(&"n".repeat(65), [Field::value(0..1)]);
    is(refused(made, &["has 65 bytes: use 1 to 64"]), |error| matches!(error, Error::InvalidOptions(_)));
    // The catalog has room for 1,024 bytes: the table takes 11, 'text' 18, and each of these 78.
    for number in 10..22 {
        let name = format!("{number}{}", "n".repeat(62));
        table.create_index(&name, [Field::value(0..1)]).expect("made");
    }
    let made = table.create_index(&"m".repeat(62), [Field::value(0..1)]);
    is(refused(made, &["takes 1041 bytes in the catalog"]), |error| matches!(error, Error::InvalidOptions(_)));
    let names: Vec<String> = table.indexes().skip(1).collect();
    for name in names {
        table.drop_index(&name).expect("dropped");
    }
    assert_eq!(table.indexes().collect::<Vec<_>>(), ["text"]);
    // None of the refused indexes is in the way.
    table.create_index("name", [Field::value(0..4)]).expect("made");
    table.insert(b"more", b".....").expect("inserted");
    drop(table);
    close_and_check(db, &disk, 2 * 502);
}

/// A row that the index cannot accept comes at some moment: the row is refused, or the index.
#[test]
fn unfit_row_during_a_build_is_refused_or_ends_the_build() {
    let (mut rows_refused, mut builds_refused) = (0, 0);
    for seed in 0..40u64 {
        let (row, wanted): (&[u8], fn(&Error) -> bool) = if seed.is_multiple_of(2) {
            (b"..k", |error| matches!(error, Error::RowTooShort(_)))
        } else {
            (b"\0\0\0\x05ktext", |error| matches!(error, Error::KeyExists(_) | Error::NotUnique(_)))
        };
        run(seed, || {
            let disk = slow_disk();
            let db = open(&disk, quick());
            let table = db.create_table("t", TableDefinition::new()).expect("created");
            let mut rng = SmallRng::seed_from_u64(seed);
            for number in 0..200 {
                table.insert(key_of(number), row_of(number, &mut rng)).expect("inserted");
            }
            let other = table.clone();
            let writer = spawn("writer", move || {
                sleep_ns(seed * 300_000);
                other.insert(b"new", row)
            });
            let made = table.create_unique_index("name", [Field::value(0..4)]);
            let inserted = writer.expect("a thread").join().expect("no panic");
            let has_index = match (made, inserted) {
                (Ok(_), Err(error)) => {
                    assert!(wanted(&error), "{error}");
                    rows_refused += 1;
                    true
                }
                (Err(error), Ok(())) => {
                    assert!(wanted(&error), "{error}");
                    builds_refused += 1;
                    false
                }
                (made, inserted) => unreachable!("seed {seed}: {made:?}, {inserted:?}"),
            };
            let rows = rows_of(&table);
            assert_eq!((rows.len(), table.indexes().count()), if has_index { (200, 1) } else { (201, 0) });
            drop(table);
            close_and_check(db, &disk, if has_index { 200 } else { 0 });
        });
    }
    assert!(rows_refused > 3 && builds_refused > 3, "{rows_refused} rows, {builds_refused} builds");
}

#[test]
fn a_build_ends_when_its_table_goes_or_the_database_is_closed() {
    let mut ended = [0; 3];
    for seed in 0..30 {
        let disk = slow_disk();
        let (made, _) = run(seed, || {
            let db = open(&disk, quick());
            let table = fill(&db, 300);
            let other = table.clone();
            let build = spawn("build", move || other.create_index("kind", [Field::value(4..5)]).map(drop));
            sleep_ns(seed * 600_000);
            match seed % 3 {
                0 => db.drop_table("t").expect("dropped"),
                1 => db.truncate_table("t").expect("truncated"),
                _ => {}
            }
            // Other threads may create trees meanwhile.
            db.create_tree("tree").expect("created");
            drop(table);
            if seed % 3 == 2 {
                db.close().expect("closed");
                return build.expect("a thread").join().expect("no panic");
            }
            let made = build.expect("a thread").join().expect("no panic");
            db.close().expect("closed");
            made
        });
        ended[usize::try_from(seed % 3).expect("small")] += u32::from(made.is_err());
        match (seed % 3, made) {
            (_, Ok(())) | (0 | 1, Err(Error::TreeNotFound(_))) | (2, Err(Error::Closed(_))) => {}
            (_, Err(error)) => unreachable!("seed {seed}: {error}"),
        }
        // The next open frees the remains of the closed database.
        drop(open(&disk, quick()));
        let report = sound(&disk);
        assert_eq!(report.orphan_spaces, 0, "seed {seed}");
    }
    assert!(ended.iter().all(|ended| *ended > 1), "{ended:?}");
}

#[test]
fn two_builds_of_one_table_come_one_after_the_other() {
    for seed in 0..6 {
        run(seed, || {
            let disk = slow_disk();
            let db = open(&disk, quick());
            let table = fill(&db, 200);
            let builds = ["kind", "kind", "name"].map(|name| {
                let table = table.clone();
                spawn("build", move || table.create_index(name, [Field::value(0..5)]).map(drop)).expect("a thread")
            });
            let made = builds.map(|build| build.join().expect("no panic"));
            let exists = made.iter().filter(|made| matches!(made, Err(Error::TreeExists(_)))).count();
            assert_eq!((exists, made.iter().filter(|made| made.is_ok()).count()), (1, 2), "{made:?}");
            assert_eq!(table.indexes().count(), 3);
            drop(table);
            close_and_check(db, &disk, 600);
        });
    }
}

/// A note has the primary key, also if the index is unique and its entries have none.
#[test]
fn a_row_whose_note_is_too_long_waits_until_the_index_is_there() {
    let mut refusals = 0;
    for seed in 0..20 {
        run(seed, || {
            let disk = slow_disk();
            let db = open(&disk, quick());
            let table = db.create_table("t", TableDefinition::new()).expect("created");
            (0..100).for_each(|number| table.insert(key_of(number), [b'x'; 300]).expect("inserted"));
            let other = table.clone();
            let made =
                spawn("build", move || other.create_unique_index("long", [Field::value(0..300), Field::key(0..5)]));
            sleep_ns(seed * 1_000_000);
            let key = [&b"long key"[..], &[b'k'; 500]].concat();
            if let Err(error) = table.insert(&key, [b'x'; 300]) {
                let parts = ["what is noted while index 'long' of table 't' is made has 813 bytes: at most 768 fit"];
                assert!(matches!(refused::<()>(Err(error), &parts), Error::KeyTooLong(_)));
                refusals += 1;
                made.expect("a thread").join().expect("no panic").expect("made");
                table.insert(&key, [b'x'; 300]).expect("inserted");
            } else {
                made.expect("a thread").join().expect("no panic").expect("made");
            }
            drop(table);
            close_and_check(db, &disk, 101);
        });
    }
    assert!((1..20).contains(&refusals), "{refusals} of 20");
}

/// Each call to the device fails once: that costs at most the index.
#[test]
fn device_failing_at_any_call_leaves_the_index_whole_or_gone() {
    let image = {
        let disk = SimulatedDisk::new();
        let db = open(&disk, quick());
        fill(&db, 600);
        db.close().expect("closed");
        disk.image()
    };
    let (mut made, mut refused) = (0, 0);
    for call in 0.. {
        let disk = SimulatedDisk::with_image(image.clone(), ServiceTime::default());
        let ((outcome, calls), _) = run(call, || {
            let db = open(&disk, SHAPE.reopen_options());
            let first = disk.calls();
            disk.fail_at(first + call, std::io::ErrorKind::Other);
            let table = db.open_table("t");
            let outcome = table.and_then(|table| table.create_index("kind", [Field::value(4..5)]).map(drop));
            let calls = disk.calls() - first;
            disk.fail_at(u64::MAX, std::io::ErrorKind::Other);
            let _ = db.close();
            (outcome, calls)
        });
        assert_eq!(recover_shaped(&disk, SHAPE).expect("sound")["t"].len(), 600);
        let index_entries = sound(&disk).index_entries;
        match outcome {
            Ok(()) => {
                made += 1;
                assert_eq!(index_entries, 1200, "call {call}");
                if calls <= call {
                    break;
                }
            }
            Err(_) => {
                refused += 1;
                assert!([600, 1200].contains(&index_entries), "call {call}: {index_entries} entries");
            }
        }
    }
    assert!(made > 5 && refused > 5, "{made} made, {refused} refused");
}

#[test]
fn indexes_come_and_go_beside_real_threads() {
    let disk = SimulatedDisk::with_image(large_table(), ServiceTime::default());
    let db = open(&disk, SHAPE.reopen_options().durability(Durability::None));
    let table = db.open_table("t").expect("there");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for id in 0..4 {
            scope.spawn({
                let (db, is_over) = (&db, &is_over);
                move || writer(db, id, 1, is_over)
            });
        }
        for seed in 0..6 {
            build_two(&db, seed);
            table.drop_index("kind").expect("dropped");
            if seed < 5 {
                table.drop_index("name").expect("dropped");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let rows = rows_of(&table);
    assert_eq!(entries(&table.index("name").expect("there")), wanted(&rows, |row| row[..4].to_vec()));
    drop(table);
    close_and_check(db, &disk, 2 * rows.len());
}

#[test]
fn a_build_on_a_full_disk_gives_everything_back() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, quick());
    let table = fill(&db, 10_000);
    db.checkpoint().expect("done");
    let used: usize = disk.image().values().map(Vec::len).sum();
    disk.limit_space(Some(u64::try_from(used).expect("small")));
    let mut full = 0;
    for number in 0..100 {
        match table.create_index(&format!("{number}"), [Field::value(0..5), Field::value(5..)]) {
            Ok(_) => {}
            Err(Error::OutOfSpace(_)) => full += 1,
            Err(error) => unreachable!("{error}"),
        }
        if full == 3 {
            break;
        }
    }
    assert_eq!(full, 3, "the disk is full");
    let made = table.indexes().count();
    table.update(key_of(5), b"0123k").expect("an update needs no room");
    disk.limit_space(None);
    table.create_index("more", [Field::value(0..5)]).expect("made");
    drop(table);
    close_and_check(db, &disk, 10_000 * (made + 1));
}

#[test]
fn dropped_index_refuses_all_and_others_go_on_beside_writers() {
    let image = large_table();
    for seed in 0..2 {
        beside_writers(&image, seed, 1, |db| {
            let table = db.open_table("t").expect("there");
            for _ in 0..2 {
                let index = table.create_index("kind", [Field::value(4..5)]).expect("made");
                let mut scan = index.scan(..);
                assert!(scan.next_entry().expect("read").is_some());
                table.clone().drop_index("kind").expect("dropped");
                let gone = "index 'kind' of table 't' was dropped";
                let error = refused(index.rows(..).next().expect("an error"), &[gone]);
                assert!(matches!(error, Error::TreeNotFound(_)), "{error:?}");
                assert_eq!(index.name(), "kind");
                refused(table.index("kind"), &["table 't' has no index 'kind': it has 'text'"]);
                refused(table.drop_index("kind"), &["table 't' has no index 'kind': it has 'text'"]);
            }
        });
    }
}

#[test]
fn what_is_truncated_is_empty_and_as_it_was_created() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, quick());
        let table = fill(&db, 300);
        table.create_unique_index("name", [Field::value(0..4)]).expect("made");
        let (tree, index) = (db.create_tree("tree").expect("created"), table.index("name").expect("there"));
        tree.put(b"short", b"value").expect("put");
        tree.put(b"long", [7; 9000]).expect("put");
        let mut scan = tree.scan(..);
        assert!(scan.next_row().expect("read").is_some());
        db.truncate_table("t").expect("truncated");
        db.truncate_tree("tree").expect("truncated");
        for error in [
            refused(table.get(b"00001"), &["table 't' was truncated: open it again"]),
            refused(table.insert(b"1", b"12345"), &["table 't' was truncated: open it again"]),
            refused(index.get(b"1234"), &["index 'name' of table 't' was truncated"]),
            refused(table.create_index("kind", [Field::value(4..5)]), &["table 't' was truncated: open it again"]),
            refused(table.drop_index("name"), &["table 't' was truncated: open it again"]),
            refused(tree.put(b"long", [7; 9000]), &["tree 'tree' was truncated: open it again"]),
            refused(db.truncate_table("tree"), &["'tree' is a tree, and no table: use `truncate_tree`"]),
            refused(db.truncate_tree("t"), &["'t' is a table, and no tree: use `truncate_table`"]),
            refused(db.truncate_tree("no"), &["no tree 'no' to truncate"]),
            refused(db.truncate_table("no"), &["no table 'no' to truncate"]),
        ] {
            assert!(matches!(error, Error::TreeNotFound(_) | Error::WrongKind(_)), "{error:?}");
        }
        let (table, tree) = (db.open_table("t").expect("there"), db.open_tree("tree").expect("there"));
        assert_eq!((table.scan(..).count(), tree.scan(..).count()), (0, 0));
        assert_eq!(table.indexes().collect::<Vec<_>>(), ["text", "name"]);
        table.insert(b"1", b"12345").expect("inserted");
        refused(table.insert(b"2", b"1234.."), &["index 'name' of table 't' is unique"]);
        tree.put(b"long", [7; 9000]).expect("put");
        settle(&db);
        assert_eq!(db.stats().trees_dropping, 0);
        drop((table, tree));
        db.close().expect("closed");
    });
    let report = sound(&disk);
    assert_eq!((report.index_entries, report.orphan_spaces), (2, 0));
    assert!(report.pages < 30, "the pages of before are given back: {report:?}");
}
