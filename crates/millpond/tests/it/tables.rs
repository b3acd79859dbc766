//! Tables: rows and their indexes against a model, from one thread and from many, at the limits, and on refusals.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use millpond::inspect::{CheckOptions, check_on};
use millpond::simulation::{SimulatedDisk, run, spawn};
use millpond::{ByteSize, Db, Durability, Error, Field, Modify, Options, Table, TableDefinition, Tree, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::support::open;

/// Enough frames for the leaves of two rows and of six entries that move, with pages of this many KiB.
pub(crate) fn options(page_kib: u64) -> Options {
    Options::new()
        .page_size(ByteSize::kib(page_kib))
        .buffer_pool_size(ByteSize::kib(page_kib * 232))
        .redo_capacity(ByteSize::kib(page_kib * 512))
}

/// A unique index of 2 bytes, one of 1 byte, one of all following bytes.
fn three_indexes() -> TableDefinition {
    TableDefinition::new()
        .unique("name", [Field::value(0..2)])
        .index("kind", [Field::value(2..3)])
        .index("text", [Field::value(2..3), Field::value(3..)])
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Fields and primary key of each entry, in the order of the index.
type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The required entries of an index of [`three_indexes`].
fn entries(rows: &Rows, index: &str) -> Entries {
    let fields = |row: &[u8]| match index {
        "name" => row[0..2].to_vec(),
        "kind" => row[2..3].to_vec(),
        _ => row[2..].to_vec(),
    };
    let mut entries: Entries = rows.iter().map(|(key, row)| (fields(row), key.clone())).collect();
    entries.sort();
    entries
}

fn collect(entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>) -> Entries {
    entries.collect::<Result<_, _>>().expect("scanned")
}

/// Closes the database, checks it, and returns the number of its index entries.
fn close_and_check(db: Db, disk: &SimulatedDisk) -> u64 {
    db.close().expect("closed");
    let report = check_on(Arc::new(disk.clone()), &CheckOptions::default()).expect("checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    report.index_entries
}

/// Compares every kind of query on the table with the model's answers.
fn compare(table: &Table, rows: &Rows, rng: &mut SmallRng) {
    assert_eq!(collect(table.scan(..)), rows.clone().into_iter().collect::<Vec<_>>());
    for name in ["name", "kind", "text"] {
        let (index, wanted) = (table.index(name).expect("there"), entries(rows, name));
        assert_eq!(collect(index.scan(..)), wanted, "index {name}");
        let mut back = collect(index.scan(..).rev());
        back.reverse();
        assert_eq!(back, wanted, "index {name} backwards");
        let (low, high) = (bytes(rng, 0, 3), bytes(rng, 0, 3));
        let range = (Bound::Excluded(low.as_slice()), Bound::Included(high.as_slice()));
        let inside = |(fields, _): &&(Vec<u8>, Vec<u8>)| low < *fields && *fields <= high;
        let some: Entries = wanted.iter().filter(inside).map(|(_, key)| (key.clone(), rows[key].clone())).collect();
        if low < high {
            assert_eq!(collect(index.rows(range)), some, "index {name} from {low:?} to {high:?}");
            let mut back = collect(index.rows(range).rev());
            back.reverse();
            assert_eq!(back, some, "index {name} backwards from {low:?} to {high:?}");
        }
    }
    let name = bytes(rng, 2, 2);
    let wanted = rows.iter().find(|(_, row)| row[0..2] == name).map(|(key, row)| (key.clone(), row.clone()));
    assert_eq!(table.index("name").expect("there").get(&name).expect("read"), wanted);
}

/// Few different bytes, so that rows are alike, and bytes with a meaning in keys.
fn bytes(rng: &mut SmallRng, least: usize, most: usize) -> Vec<u8> {
    (0..rng.random_range(least..=most)).map(|_| [0, 1, b'a', 0xFE, 0xFF][rng.random_range(0..5)]).collect()
}

fn key_of(rng: &mut SmallRng) -> Vec<u8> {
    format!("{:02}", rng.random_range(0..60)).into_bytes()
}

fn row_of(rng: &mut SmallRng) -> Vec<u8> {
    let mut row = bytes(rng, 3, 5);
    row.resize(row.len() + rng.random_range(0..3) * 100, b'.');
    row
}

/// The required refusal of a write of `row`, besides refusals for the key itself.
fn refusal(rows: &Rows, key: &[u8], row: &[u8]) -> Option<&'static str> {
    rows.iter().any(|(other, there)| other != key && there[0..2] == row[0..2]).then_some("is unique")
}

fn expect_refusal(done: Result<(), Error>, refusal: Option<&str>) -> bool {
    match (done, refusal) {
        (Ok(()), None) => true,
        (Err(error), Some(part)) => {
            assert!(error.to_string().contains(part), "no {part:?} in: {error}");
            false
        }
        (done, refusal) => unreachable!("{done:?}, and wanted was {refusal:?}"),
    }
}

fn step(db: &Db, table: &Table, rows: &mut Rows, rng: &mut SmallRng) {
    let (key, row) = (key_of(rng), row_of(rng));
    let is_there = rows.contains_key(&key);
    let taken = refusal(rows, &key, &row);
    match rng.random_range(0..10) {
        0..=2 => {
            let refused = if is_there { Some("has key") } else { taken };
            if expect_refusal(table.insert(&key, &row), refused) {
                rows.insert(key, row);
            }
        }
        3 | 4 => {
            if expect_refusal(table.put(&key, &row), taken) {
                rows.insert(key, row);
            }
        }
        5 => {
            let refused = if is_there { taken } else { Some("has no key") };
            if expect_refusal(table.update(&key, &row), refused) {
                rows.insert(key, row);
            }
        }
        6 => assert_eq!(table.delete(&key).expect("deleted"), rows.remove(&key).is_some()),
        7 => {
            // Another text; short rows are deleted.
            let longer = |old: &[u8]| [&old[..3], b"\0", &old[3..]].concat();
            let was_there = table.modify(&key, |old| match old {
                Some(old) if old.len() > 6 => Modify::Put(longer(old)),
                Some(_) => Modify::Delete,
                None => Modify::Keep,
            });
            assert_eq!(was_there.expect("modified"), is_there);
            match rows.get(&key).cloned() {
                Some(old) if old.len() > 6 => drop(rows.insert(key, longer(&old))),
                _ => drop(rows.remove(&key)),
            }
        }
        _ => batch_step(db, table, rows, rng),
    }
}

/// Several rows in one batch: uniqueness is checked at its end.
fn batch_step(db: &Db, table: &Table, rows: &mut Rows, rng: &mut SmallRng) {
    let (mut batch, mut after) = (WriteBatch::new(), rows.clone());
    for _ in 0..rng.random_range(1..3) {
        let (key, row) = (key_of(rng), row_of(rng));
        match rng.random_range(0..4) {
            0 => {
                batch.delete(table, &key);
                after.remove(&key);
            }
            1 if !after.contains_key(&key) => {
                batch.expect(table, &key, None).insert(table, &key, &row);
                after.insert(key, row);
            }
            _ => {
                batch.put(table, &key, &row);
                after.insert(key, row);
            }
        }
    }
    let names: std::collections::BTreeSet<_> = after.values().map(|row| &row[0..2]).collect();
    let taken = (names.len() < after.len()).then_some("is unique");
    if expect_refusal(db.write(batch).map(drop), taken) {
        *rows = after;
    }
}

#[test]
fn a_table_agrees_with_a_model_through_any_operations() {
    for seed in 0..6 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = SimulatedDisk::new();
        let mut db = open(&disk, options(4).durability(Durability::None));
        let mut table = db.create_table("t", three_indexes()).expect("created");
        let mut rows = Rows::new();
        for turn in 0..1500 {
            step(&db, &table, &mut rows, &mut rng);
            if turn % 50 == 49 {
                compare(&table, &rows, &mut rng);
            }
            if turn % 500 == 499 {
                drop(table);
                assert_eq!(close_and_check(db, &disk), 3 * u64::try_from(rows.len()).expect("few"));
                db = open(&disk, options(4).durability(Durability::None));
                table = db.open_table("t").expect("there");
            }
        }
        assert!(rows.len() > 10, "seed {seed}: {} rows", rows.len());
        compare(&table, &rows, &mut rng);
    }
}

/// Rows with counters, which only [`client`] counts up.
const COUNTERS: u64 = 6;

/// A counter's row: a unique name, a kind that follows from the count, the count as text.
fn counter_row(counter: u64, count: u64) -> Vec<u8> {
    let kind = u8::try_from(count % 5).expect("small");
    [&[b'#', u8::try_from(counter).expect("few"), kind][..], count.to_string().as_bytes()].concat()
}

fn count_of(row: &[u8]) -> u64 {
    std::str::from_utf8(&row[3..]).ok().and_then(|text| text.parse().ok()).expect("a count")
}

/// One thread's work on rows that other threads work on, too. Returns how often it counted up.
fn client(db: &Db, seed: u64, turns: u32) -> u64 {
    let (mut rng, mut counted) = (SmallRng::seed_from_u64(seed), 0);
    let table = db.open_table("t").expect("there");
    let allowed = |done: Result<(), Error>| match done {
        Ok(()) | Err(Error::KeyExists(_) | Error::KeyNotFound(_)) => {}
        Err(other) => unreachable!("seed {seed}: {other}"),
    };
    for _ in 0..turns {
        let (key, row) = (key_of(&mut rng), row_of(&mut rng));
        let counter = rng.random_range(0..COUNTERS);
        match rng.random_range(0..12) {
            0..=2 => {
                let up = |old: Option<&[u8]>| Modify::Put(counter_row(counter, count_of(old.expect("there")) + 1));
                assert!(table.modify([b'c', u8::try_from(counter).expect("few")], up).expect("counted"));
                counted += 1;
            }
            3 => allowed(table.insert(&key, &row)),
            4 | 5 => allowed(table.put(&key, &row)),
            6 => allowed(table.update(&key, &row)),
            7 => allowed(table.delete(&key).map(drop)),
            8 => {
                // Two rows exchange their values, and with them the unique names.
                let other = key_of(&mut rng);
                let (one, two) = (table.get(&key).expect("read"), table.get(&other).expect("read"));
                if let (Some(one), Some(two)) = (one, two) {
                    let mut batch = WriteBatch::new();
                    batch.expect(&table, &key, Some(&one)).expect(&table, &other, Some(&two));
                    batch.put(&table, &key, &two).put(&table, &other, &one);
                    match db.write(batch) {
                        Err(Error::Conflict(_)) => {}
                        done => allowed(done.map(drop)),
                    }
                }
            }
            9 => {
                let mut batch = WriteBatch::new();
                batch.put(&table, &key, &row).delete(&table, key_of(&mut rng));
                allowed(db.write(batch).map(drop));
            }
            10 => {
                let name = if rng.random() { vec![b'#', 1] } else { bytes(&mut rng, 2, 2) };
                if let Some((_, row)) = table.index("name").expect("there").get(&name).expect("read") {
                    assert_eq!(row[..2], name[..], "seed {seed}");
                }
            }
            _ => {
                let kind = [0, 1, b'a', 0xFE, 0xFF][rng.random_range(0..5)];
                for row in table.index("kind").expect("there").rows(&[kind][..]..=&[kind][..]) {
                    assert_eq!(row.expect("read").1[2], kind, "seed {seed}");
                }
            }
        }
    }
    counted
}

fn create_with_counters(db: &Db) {
    let table = db.create_table("t", three_indexes()).expect("created");
    for counter in 0..COUNTERS {
        let key = [b'c', u8::try_from(counter).expect("few")];
        table.insert(key, counter_row(counter, 0)).expect("inserted");
    }
}

/// Nothing was counted twice or left out, and the indexes agree with the rows.
fn compare_at_the_end(db: Db, disk: &SimulatedDisk, counted: u64, seed: u64) {
    let table = db.open_table("t").expect("there");
    let rows: Rows = table.scan(..).collect::<Result<_, _>>().expect("read");
    let counts = rows.iter().filter(|(key, _)| key[0] == b'c').map(|(_, row)| count_of(row));
    assert_eq!(counts.sum::<u64>(), counted, "seed {seed}");
    compare(&table, &rows, &mut SmallRng::seed_from_u64(seed));
    drop(table);
    assert_eq!(close_and_check(db, disk), 3 * u64::try_from(rows.len()).expect("few"), "seed {seed}");
}

#[test]
fn many_threads_under_any_schedule_leave_indexes_that_agree() {
    for seed in 0..12 {
        run(seed, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, options(4).durability(Durability::None));
            create_with_counters(&db);
            let threads: Vec<_> = (0..5)
                .map(|id| {
                    let db = db.clone();
                    spawn("client", move || client(&db, seed * 100 + id, 60)).expect("a thread")
                })
                .collect();
            let counted = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>();
            compare_at_the_end(db, &disk, counted, seed);
        });
    }
}

#[test]
fn many_real_threads_leave_indexes_that_agree() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4).durability(Durability::None));
    create_with_counters(&db);
    let counted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|id| {
                scope.spawn({
                    let db = &db;
                    move || client(db, id, 3000)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>()
    });
    compare_at_the_end(db, &disk, counted, 0);
}

#[test]
fn entries_may_be_as_long_as_keys_and_no_longer() {
    for page_kib in [4, 16] {
        let longest = usize::try_from(page_kib * 192).expect("small").min(3072);
        let disk = SimulatedDisk::new();
        let db = open(&disk, options(page_kib));
        let definition = TableDefinition::new()
            .index("fixed", [Field::value(0..8)])
            .unique("key", [Field::key(0..4)])
            .index("open", [Field::value(..)]);
        let table = db.create_table("t", definition).expect("created");
        let mut keys = Vec::new();
        for number in 0..40u32 {
            // An entry of 'open' is the row, two bytes that end it, and the key; an entry of 'fixed' is eight bytes and
            // the key.
            let key_len = [4, longest / 2, longest - 10][usize::try_from(number % 3).expect("small")];
            let mut key = number.to_be_bytes().to_vec();
            key.resize(key_len, b'k');
            let row = vec![b'v'; longest - 2 - key_len];
            table.insert(&key, &row).unwrap_or_else(|error| unreachable!("row {number}: {error}"));
            let longer = [&row[..], b"v"].concat();
            let error = table.put(&key, &longer).expect_err("too long");
            assert!(matches!(error, Error::KeyTooLong(_)), "{error}");
            let shown = format!("of index 'open' of table 't' has {} bytes: at most {longest} fit", longest + 1);
            assert!(error.to_string().contains(&shown), "{error}");
            assert_eq!(table.get(&key).expect("read"), Some(row), "nothing was changed");
            keys.push(key);
        }
        // A byte 0x00 takes two bytes in the entry of 'open'.
        let row = [vec![0], vec![b'v'; longest - 7]].concat();
        assert!(matches!(table.insert(b"zero", &row), Err(Error::KeyTooLong(_))));
        table.insert(b"zero", &row[..row.len() - 1]).expect("inserted");
        keys.push(b"zero".to_vec());
        let long_key = vec![b'K'; longest - 7];
        let error = table.insert(&long_key, b"12345678").expect_err("too long").to_string();
        assert!(error.contains(&format!("index 'fixed' of table 't' has {} bytes", longest + 1)), "{error}");
        for key in &keys {
            let found = table.index("key").expect("there").get(&key[..4]).expect("read");
            assert_eq!(found.expect("there").0, *key);
        }
        assert_eq!(collect(table.index("open").expect("there").rows(..)).len(), keys.len());
        assert_eq!(close_and_check(db, &disk), 3 * u64::try_from(keys.len()).expect("few"));
        // Half of the rows are deleted, and the rest is still there.
        let db = open(&disk, options(page_kib));
        let table = db.open_table("t").expect("there");
        for key in keys.iter().step_by(2) {
            assert!(table.delete(key).expect("deleted"));
        }
        assert_eq!(collect(table.index("fixed").expect("there").rows(..)).len(), keys.len() / 2);
        assert_eq!(close_and_check(db, &disk), 3 * u64::try_from(keys.len() / 2).expect("few"));
    }
}

pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Error>, parts: &[&str]) -> Error {
    let error = result.expect_err("an error");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
    error
}

#[test]
fn trees_and_tables_are_not_taken_for_each_other() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4));
    db.create_tree("tree").expect("created");
    let table = db.create_table("table", three_indexes()).expect("created");
    let is_wrong = |error: Error| assert!(matches!(error, Error::WrongKind(_)), "{error:?}");
    is_wrong(refused(db.open_tree("table"), &["'table' is a table, and no tree: use `open_table`"]));
    is_wrong(refused(db.drop_tree("table"), &["'table' is a table, and no tree: use `drop_table`"]));
    is_wrong(refused(db.open_table("tree"), &["'tree' is a tree, and no table: use `open_tree`"]));
    is_wrong(refused(db.drop_table("tree"), &["'tree' is a tree, and no table: use `drop_tree`"]));
    is_wrong(refused(table.index("kind").expect("there").get(b"k"), &["index 'kind' of table 'table'", "use `rows`"]));
    let exists = |error: Error| assert!(matches!(error, Error::TreeExists(_)), "{error:?}");
    exists(refused(db.create_table("tree", TableDefinition::new()), &["tree 'tree' exists already"]));
    exists(refused(db.create_tree("table"), &["table 'table' exists already"]));
    exists(refused(db.create_table("table", TableDefinition::new()), &["table 'table' exists already"]));
    let missing = |error: Error| assert!(matches!(error, Error::TreeNotFound(_)), "{error:?}");
    missing(refused(db.open_table("no"), &["no table 'no'", "see `tables`"]));
    missing(refused(db.drop_table("no"), &["no table 'no' to drop"]));
    missing(refused(table.index("no"), &["table 'table' has no index 'no': it has 'name', 'kind', 'text'"]));
    assert_eq!((db.trees().expect("read"), db.tables().expect("read")), (vec!["tree".into()], vec!["table".into()]));
    assert_eq!(table.indexes().collect::<Vec<_>>(), ["name", "kind", "text"]);
}

#[test]
fn rows_that_an_index_has_no_place_for_are_refused_by_name() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4));
    let definition = three_indexes().index("year", [Field::key(1..3)]);
    let table = db.create_table("t", definition).expect("created");
    let short = |error: Error| assert!(matches!(error, Error::RowTooShort(_)), "{error:?}");
    let wants =
        "the value of row 'key' of table 't' has 2 bytes: index 'kind' wants at least 3 (its field value[2..3])";
    short(refused(table.insert(b"key", b"ab"), &[wants]));
    short(refused(table.put(b"key", b"ab"), &[wants]));
    short(refused(table.modify(b"key", |_| Modify::Put(b"ab".to_vec())), &[wants]));
    let mut batch = WriteBatch::new();
    batch.insert(&table, b"okay", b"abc").insert(&table, b"key", b"ab");
    short(refused(db.write(batch), &[wants]));
    short(refused(
        table.insert(b"ke", b"abc"),
        &["the primary key of row 'ke' of table 't' has 2 bytes: index 'year'"],
    ));
    table.insert(b"key", b"abc").expect("inserted");
    short(refused(table.update(b"key", b""), &["index 'name' wants at least 2"]));
    let taken = "index 'name' of table 't' is unique, and another row has 'ab' there";
    let exists = |error: Error| assert!(matches!(error, Error::KeyExists(_)), "{error:?}");
    exists(refused(table.insert(b"other", b"abd"), &[taken, "change that row first"]));
    exists(refused(table.insert(b"key", b"xyz"), &["table 't' has key 'key' already"]));
    let error = refused(table.update(b"none", b"abc"), &["table 't' has no key 'none'"]);
    assert!(matches!(error, Error::KeyNotFound(_)));
    let long = vec![b'v'; 2000];
    let too_long = &["of index 'text' of table 't' has 2003 bytes: at most 768 fit"];
    assert!(matches!(refused(table.put(b"key", &long), too_long), Error::KeyTooLong(_)));
    assert_eq!(collect(table.scan(..)), [(b"key".to_vec(), b"abc".to_vec())]);
    assert_eq!(close_and_check(db, &disk), 4);
}

#[test]
fn definitions_that_cannot_be_are_refused_and_leave_nothing() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4));
    let invalid = |error: Error| assert!(matches!(error, Error::InvalidOptions(_)), "{error:?}");
    let twice = TableDefinition::new().index("a", []).index("a", [Field::value(..), Field::key(..)]);
    let parts = ["table 't': index 'a' has no fields", "the field value[0..] has no end", "'a' is defined twice"];
    invalid(refused(db.create_table("t", twice), &parts));
    let long = TableDefinition::new().unique("a", [Field::value(0..769)]);
    invalid(refused(db.create_table("t", long), &["the fields of index 'a' have 769 bytes: at most 768 fit"]));
    invalid(refused(db.create_table("", TableDefinition::new()), &["the table name has 0 bytes"]));
    invalid(refused(db.create_table(&"n".repeat(256), TableDefinition::new()), &["the table name has 256 bytes"]));
    // The table takes 11 bytes, with its possible chunks; each index takes 14 and its name.
    let indexes = |count: usize| {
        (0..count).fold(TableDefinition::new(), |all, index| all.index(&format!("{index:02}"), [Field::value(0..1)]))
    };
    invalid(refused(db.create_table("t", indexes(68)), &["takes 1099 bytes in the catalog: at most 1024 fit"]));
    let name = "n".repeat(255);
    let many = db.create_table(&name, indexes(63)).expect("created");
    assert_eq!(many.indexes().count(), 63);
    // The catalog has pages of 4 KiB for the longest definitions.
    for number in 0..20 {
        let name = format!("{number:03}{}", "n".repeat(252));
        db.create_table(&name, indexes(63)).expect("created");
    }
    assert_eq!(db.tables().expect("read").len(), 21);
    close_and_check(db, &disk);
    let db = open(&disk, options(4));
    assert_eq!(db.open_table(&name).expect("there").indexes().count(), 63);
    db.drop_table(&name).expect("dropped");
    refused(many.get(b"k"), &["closed"]);
    close_and_check(db, &disk);
}

#[test]
fn dropped_table_refuses_every_handle() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4));
    let table = db.create_table("t", three_indexes()).expect("created");
    table.insert(b"k", b"abc").expect("inserted");
    let index = table.index("kind").expect("there");
    let mut scan = index.scan(..);
    db.drop_table("t").expect("dropped");
    let dropped = |error: Error| assert!(matches!(error, Error::TreeNotFound(_)), "{error:?}");
    dropped(refused(table.get(b"k"), &["table 't' was dropped"]));
    dropped(refused(table.insert(b"l", b"bcd"), &["table 't' was dropped"]));
    dropped(refused(table.modify(b"k", |_| Modify::Delete), &["table 't' was dropped"]));
    dropped(refused(scan.next_entry().map(|_| ()), &["index 'kind' of table 't' was dropped"]));
    assert!(scan.next().is_none(), "a scan ends with its first error");
    let mut batch = WriteBatch::new();
    batch.insert(&table, b"l", b"bcd");
    dropped(refused(db.write(batch), &["table 't' was dropped"]));
    let table = db.create_table("t", TableDefinition::new()).expect("created anew");
    table.insert(b"k", b"").expect("a table without indexes takes any row");
    let other = open(&SimulatedDisk::new(), options(4));
    let mut batch = WriteBatch::new();
    batch.insert(&table, b"l", b"");
    dropped(refused(other.write(batch), &["table 't' in the batch is of another database"]));
    assert_eq!(close_and_check(db, &disk), 0);
}

#[test]
fn a_batch_changes_tables_and_trees_together_or_not_at_all() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, options(4).buffer_pool_size(ByteSize::mib(4)).redo_capacity(ByteSize::mib(8)));
    let table = db.create_table("t", three_indexes()).expect("created");
    let tree = db.create_tree("tree").expect("created");
    let mut batch = WriteBatch::new();
    batch.insert(&table, b"1", b"aax").insert(&table, b"2", b"bby").put(&tree, b"k", b"v");
    db.write(batch).expect("written");
    // Unique values may be exchanged among the rows of a batch.
    let mut batch = WriteBatch::new();
    batch.update(&table, b"1", b"bbx").update(&table, b"2", b"ccy").insert(&table, b"3", b"aaz");
    db.write(batch).expect("written");
    let names = collect(table.index("name").expect("there").scan(..));
    let pair = |name: &str, key: &str| (name.as_bytes().to_vec(), key.as_bytes().to_vec());
    assert_eq!(names, [pair("aa", "3"), pair("bb", "1"), pair("cc", "2")]);
    // Several changes of one row are one: its last value counts.
    let mut batch = WriteBatch::new();
    batch.delete(&table, b"1").insert(&table, b"1", b"ddx").update(&table, b"1", b"eex").put(&tree, b"k", b"w");
    db.write(batch).expect("written");
    assert_eq!(table.index("name").expect("there").get(b"ee").expect("read"), Some(pair("1", "eex")));
    type Fill = fn(&mut WriteBatch, &Table, &Tree);
    let fills: [Fill; 7] = [
        |batch, table, _| _ = batch.insert(table, b"4", b"ccq"),
        |batch, table, _| _ = batch.insert(table, b"4", b"ffq").insert(table, b"5", b"ffq"),
        |batch, table, _| _ = batch.update(table, b"4", b"ffq"),
        |batch, table, _| _ = batch.insert(table, b"4", b"ff"),
        |batch, table, _| _ = batch.expect(table, b"1", Some(b"eey")).put(table, b"1", b"ffq"),
        |batch, table, _| _ = batch.put(table, b"1", b"ffq").expect(table, b"2", None),
        |batch, table, tree| _ = batch.put(table, b"1", b"ffq").expect(tree, b"k", Some(b"v")),
    ];
    for fill in fills {
        let mut batch = WriteBatch::new();
        batch.put(&tree, b"k", b"x").put(&table, b"3", b"ggz");
        fill(&mut batch, &table, &tree);
        refused(db.write(batch), &[]);
        assert_eq!(tree.get(b"k").expect("read"), Some(b"w".to_vec()));
        assert_eq!(table.get(b"3").expect("read"), Some(b"aaz".to_vec()));
    }
    // A thousand inserts in one batch.
    let mut batch = WriteBatch::new();
    for number in 0..1000u16 {
        batch.insert(&table, (1000 + number).to_be_bytes(), [&number.to_be_bytes()[..], b"k"].concat());
    }
    db.write(batch).expect("written");
    assert_eq!(close_and_check(db, &disk), 3 * 1003);
}
