//! Snapshots: all reads of one are of one moment, whatever writers and purge do meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond::simulation::{SimulatedDisk, run, sleep_ns, spawn};
use millpond::{Db, Durability, Error, Field, Snapshot, Table, TableDefinition, Tree, WriteBatch};

use crate::support::{open, reopen_options, settle, small_options};

const ROWS: u32 = 60;
const EACH: u64 = 1_000;

/// A sequence of numbers from a seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn value(amount: u64) -> Vec<u8> {
    // Of different lengths, so that leaves split and rows move.
    [&amount.to_be_bytes()[..], &vec![7; usize::try_from(amount % 250).expect("small")]].concat()
}

fn amount(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().expect("8 bytes"))
}

/// A key of the tree of accounts. An account without an amount has no row.
fn account(db: &Db) -> Tree {
    let tree = db.create_tree("accounts").expect("created");
    for row in 0..ROWS {
        tree.put(row.to_be_bytes(), value(EACH)).expect("written");
    }
    tree
}

/// Moves a part of one row's amount to another in one batch. A row of nothing goes; a row that comes is inserted.
fn transfer(db: &Db, tree: &Tree, numbers: &mut Numbers) {
    loop {
        let [from, to] =
            [0; 2].map(|_: u64| u32::try_from(numbers.below(u64::from(ROWS))).expect("small").to_be_bytes());
        let (Some(source), target) = (tree.get(from).expect("read"), tree.get(to).expect("read")) else { continue };
        let (had, gets) = (amount(&source), target.as_deref().map_or(0, amount));
        let moved = if numbers.below(4) == 0 { had } else { numbers.below(had + 1) };
        if from == to {
            continue;
        }
        let mut batch = WriteBatch::new();
        batch.expect(tree, from, Some(&source)).expect(tree, to, target.as_deref());
        match had - moved {
            0 => batch.delete(tree, from),
            left => batch.put(tree, from, value(left)),
        };
        batch.put(tree, to, value(gets + moved));
        match db.write(batch) {
            Ok(_) => return,
            Err(Error::Conflict(_)) => {}
            Err(error) => unreachable!("{error}"),
        }
    }
}

/// All rows at the snapshot, by a scan from the front or the back.
fn rows(snapshot: &Snapshot, tree: &Tree, is_back: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
    let scan = snapshot.scan(tree, ..).expect("of this database");
    let mut rows: Vec<_> = if is_back { scan.rev().collect::<Result<_, _>>() } else { scan.collect() }.expect("read");
    if is_back {
        rows.reverse();
    }
    rows
}

fn sum(rows: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    rows.iter().map(|(_, value)| amount(value)).sum()
}

#[test]
fn sums_at_snapshots_are_right_beside_writers() {
    for seed in 0..6u64 {
        run(seed, || {
            let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
            let tree = account(&db);
            let writers: Vec<_> = (0..4)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    let work = move || {
                        let mut numbers = Numbers(seed * 10 + id);
                        (0..60).for_each(|_| transfer(&db, &tree, &mut numbers));
                    };
                    spawn("writer", work).expect("a thread")
                })
                .collect();
            // Staggered: each snapshot is read again when two later ones have been taken.
            let (mut numbers, mut held) = (Numbers(seed), Vec::new());
            for _ in 0..20 {
                let snapshot = db.snapshot().expect("open");
                let seen = rows(&snapshot, &tree, numbers.below(2) == 0);
                assert_eq!(sum(&seen), u64::from(ROWS) * EACH, "seed {seed}");
                held.push((snapshot, seen));
                if held.len() > 2 {
                    let at = usize::try_from(numbers.below(3)).expect("small");
                    let (snapshot, seen) = held.swap_remove(at);
                    assert_eq!(rows(&snapshot, &tree, numbers.below(2) == 0), seen, "seed {seed}: it has changed");
                    let row = u32::try_from(numbers.below(u64::from(ROWS))).expect("small").to_be_bytes();
                    let found = seen.iter().find(|(key, _)| key == &row).map(|(_, value)| value.clone());
                    assert_eq!(snapshot.get(&tree, row).expect("read"), found, "seed {seed}: a point read");
                }
            }
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            for (snapshot, seen) in held {
                assert_eq!(rows(&snapshot, &tree, false), seen, "seed {seed}: at the end");
            }
            drop(tree);
            db.close().expect("closed");
        });
    }
}

#[test]
fn snapshot_sees_what_was_committed_before_and_nothing_after() {
    let db = open(&SimulatedDisk::new(), small_options());
    let tree = db.create_tree("t").expect("created");
    tree.put("a", "1").expect("written");
    tree.put("b", "1").expect("written");
    let first = db.snapshot().expect("open");
    tree.put("a", "2").expect("written");
    tree.delete("b").expect("deleted");
    tree.put("c", "2").expect("written");
    let second = db.snapshot().expect("open");
    tree.put("b", vec![9; 20_000]).expect("a long value");
    let third = db.snapshot().expect("open");
    tree.delete("b").expect("deleted");
    assert!(first.commit_ts() < second.commit_ts() && second.commit_ts() < third.commit_ts());
    let get = |snapshot: &Snapshot, key: &str| snapshot.get(&tree, key).expect("read").map(|value| value.len());
    let seen = |snapshot: &Snapshot| ["a", "b", "c"].map(|key| get(snapshot, key));
    assert_eq!(seen(&first), [Some(1), Some(1), None]);
    assert_eq!(first.get(&tree, "a").expect("read").as_deref(), Some(&b"1"[..]));
    assert_eq!(seen(&second), [Some(1), None, Some(1)]);
    assert_eq!(second.get(&tree, "a").expect("read").as_deref(), Some(&b"2"[..]));
    assert_eq!(seen(&third), [Some(1), Some(20_000), Some(1)]);
    assert_eq!(tree.get("b").expect("read"), None);
    assert_eq!(first.clone().scan(&tree, ..).expect("here").count(), 2);
}

#[test]
fn snapshot_reads_no_tree_that_came_later() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let old = db.create_tree("old").expect("created");
    old.put("a", "1").expect("written");
    drop(old);
    db.close().expect("closed");
    let db = open(&disk, reopen_options());
    let snapshot = db.snapshot().expect("open");
    // Opened after the snapshot was taken, but created before.
    let old = db.open_tree("old").expect("there");
    assert!(snapshot.get(&old, "a").expect("read").is_some());
    let created = db.create_tree("created").expect("created");
    let loaded = db.bulk_load("loaded", [("a", "1")]).expect("loaded");
    let later = db.snapshot().expect("open");
    for tree in [&created, &loaded] {
        let error = snapshot.get(tree, "a").expect_err("too old");
        assert!(matches!(error, Error::SnapshotTooOld(_)), "{error}");
        assert!(error.to_string().ends_with(": take a new one"), "{error}");
        assert!(later.get(tree, "a").is_ok());
    }
    assert!(later.get(&loaded, "a").expect("read").is_some());
    let other = open(&SimulatedDisk::new(), small_options());
    let tree = other.create_tree("t").expect("created");
    assert!(matches!(snapshot.get(&tree, "a"), Err(Error::TreeNotFound(_))));
}

/// A truncated tree or table is empty for a snapshot that was taken afterwards, whenever its first handle is opened. An
/// older one gets an error, from old handles and from new ones.
#[test]
fn snapshot_after_a_truncation_or_a_build_sees_what_came_of_it() {
    let db = open(&SimulatedDisk::new(), small_options());
    db.create_tree("t").expect("created").put("a", "1").expect("written");
    let table = db.create_table("u", TableDefinition::new()).expect("created");
    table.put("a", "1").expect("written");
    let (old, handle) = (db.snapshot().expect("open"), db.open_tree("t").expect("there"));
    let index = table.create_index("first", [Field::value(0..1)]).expect("built");
    let after = db.snapshot().expect("open");
    assert!(matches!(old.entries(&index, ..).map(drop), Err(Error::SnapshotTooOld(_))));
    assert_eq!(after.entries(&index, ..).expect("here").count(), 1);
    assert_eq!(old.get(&table, "a").expect("read").as_deref(), Some(&b"1"[..]), "the rows are older");
    drop(index);
    db.truncate_tree("t").expect("truncated");
    db.truncate_table("u").expect("truncated");
    let after = db.snapshot().expect("open");
    let (tree, table) = (db.open_tree("t").expect("there"), db.open_table("u").expect("there"));
    assert_eq!((after.get(&tree, "a").expect("read"), after.get(&table, "a").expect("read")), (None, None));
    assert_eq!(after.scan(&table, ..).expect("here").count(), 0);
    assert!(matches!(old.get(&tree, "a"), Err(Error::SnapshotTooOld(_))));
    assert!(matches!(old.get(&table, "a"), Err(Error::SnapshotTooOld(_))));
    assert!(matches!(old.get(&handle, "a"), Err(Error::TreeNotFound(_))));
}

/// A large batch fails again and again, and is undone, while scans at snapshots meet its rows. The pool is so small
/// that undo pages are read, and given back when the batch is undone.
#[test]
fn snapshots_beside_batches_that_are_undone_are_right() {
    for seed in 0..3u64 {
        run(seed, || {
            let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
            let tree = account(&db);
            let last = db.create_tree("last").expect("created");
            last.put("there", "1").expect("written");
            let writer = {
                let (db, tree) = (db.clone(), tree.clone());
                let work = move || {
                    for turn in 0..12u64 {
                        let mut batch = WriteBatch::new();
                        for row in 0..400u32 {
                            batch.put(&tree, row.to_be_bytes(), value(turn * 1_000 + u64::from(row) + 5_000));
                        }
                        batch.insert(&last, "there", "2");
                        assert!(matches!(db.write(batch), Err(Error::KeyExists(_))));
                        sleep_ns(40_000_000);
                    }
                };
                spawn("writer", work).expect("a thread")
            };
            let mut numbers = Numbers(seed);
            while db.stats().rollbacks < 12 {
                let snapshot = db.snapshot().expect("open");
                sleep_ns(numbers.below(30_000_000));
                assert_eq!(sum(&rows(&snapshot, &tree, numbers.below(2) == 0)), u64::from(ROWS) * EACH, "seed {seed}");
                let row = u32::try_from(numbers.below(400)).expect("small").to_be_bytes();
                let found = snapshot.get(&tree, row).expect("read");
                assert_eq!(found.is_some(), row < ROWS.to_be_bytes());
            }
            writer.join().expect("no panic");
            drop(tree);
            db.close().expect("closed");
        });
    }
}

/// Beside an old snapshot the commit table does not grow with the number of transactions.
#[test]
fn commit_table_stays_small_beside_an_old_snapshot() {
    run(1, || {
        let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        tree.put("a", "first").expect("written");
        let old = db.snapshot().expect("open");
        let mut middle = None;
        for turn in 0..30_000u32 {
            tree.put("a", turn.to_be_bytes()).expect("written");
            if turn == 15_000 {
                middle = Some(db.snapshot().expect("open"));
            }
        }
        settle(&db);
        // The chunks of the two snapshots, the one under way, and one ahead.
        let bytes = db.stats().commit_table_bytes;
        assert!(bytes <= 4 * 32 * 1024, "{bytes} bytes");
        assert_eq!(old.get(&tree, "a").expect("read").as_deref(), Some(&b"first"[..]));
        let middle = middle.expect("taken").get(&tree, "a").expect("read");
        assert_eq!(middle.as_deref(), Some(&15_000u32.to_be_bytes()[..]));
        let most = db.stats().snapshot_steps_max;
        assert!(most <= 4, "CHAIN-1: {most} steps");
        drop((old, tree));
        db.close().expect("closed");
    });
}

/// While a snapshot lives, purge leaves what it sees; when it goes, everything goes.
#[test]
fn deleted_rows_go_once_no_snapshot_sees_them() {
    run(1, || {
        let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let key = |row: u32| row.to_be_bytes();
        (0..500).for_each(|row| tree.put(key(row), [1; 100]).expect("written"));
        let snapshot = db.snapshot().expect("open");
        for row in 0..500 {
            assert!(tree.delete(key(row)).expect("deleted"));
        }
        settle(&db);
        assert_eq!(db.stats().purged_rows, 0);
        assert_eq!(tree.scan(..).count(), 0);
        assert_eq!(snapshot.scan(&tree, ..).expect("here").count(), 500);
        drop(snapshot);
        settle(&db);
        assert_eq!((db.stats().purged_rows, db.stats().purge_pages), (500, 0));
        db.close().expect("closed");
    });
}

/// One writer changes a table with two indexes at random: single rows, batches of several leaves, batches in parts, and
/// long values. After some changes it takes a snapshot and keeps it with what the table should have. A reader compares
/// old and new snapshots with that: rows, index entries, rows by index, point reads.
#[test]
fn snapshots_have_the_rows_and_entries_of_their_moment() {
    for seed in 0..6u64 {
        run(seed, || {
            let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
            let definition =
                TableDefinition::new().index("kind", [Field::value(0..2)]).index("tail", [Field::value(2..8)]);
            let table = db.create_table("t", definition).expect("created");
            let (mut numbers, mut model, mut moments) = (Numbers(seed), BTreeMap::new(), Vec::new());
            for _ in 0..160 {
                change(&db, &table, &mut numbers, &mut model);
                if numbers.below(6) == 0 {
                    moments.push((db.snapshot().expect("open"), model.clone()));
                }
                if moments.len() > 6 {
                    let at = usize::try_from(numbers.below(6)).expect("small");
                    let (snapshot, expected) = moments.swap_remove(at);
                    compare(&snapshot, &table, &expected, seed);
                }
            }
            settle(&db);
            for (snapshot, expected) in moments.drain(..) {
                compare(&snapshot, &table, &expected, seed);
            }
            drop(table);
            db.close().expect("closed");
        });
    }
}

fn row_key(numbers: &mut Numbers) -> Vec<u8> {
    u32::try_from(numbers.below(300)).expect("small").to_be_bytes().to_vec()
}

fn row_value(numbers: &mut Numbers) -> Vec<u8> {
    let len = match numbers.below(20) {
        0 => 5_000 + numbers.below(9_000),
        few => 8 + few * 9,
    };
    let first = u8::try_from(numbers.below(5)).expect("small");
    let mut value = vec![first; usize::try_from(len).expect("small")];
    value[2..8].copy_from_slice(&numbers.below(1 << 40).to_be_bytes()[2..]);
    value
}

fn change(db: &Db, table: &Table, numbers: &mut Numbers, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let count = match numbers.below(10) {
        0 => 250,
        1..4 => 12,
        _ => 1,
    };
    let mut batch = WriteBatch::new();
    for _ in 0..count {
        let key = row_key(numbers);
        if numbers.below(4) == 0 {
            batch.delete(table, &key);
            model.remove(&key);
        } else {
            let value = row_value(numbers);
            batch.put(table, &key, &value);
            model.insert(key, value);
        }
    }
    db.write(batch).expect("written");
}

fn compare(snapshot: &Snapshot, table: &Table, expected: &BTreeMap<Vec<u8>, Vec<u8>>, seed: u64) {
    let expected: Vec<_> = expected.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let rows: Vec<_> = snapshot.scan(table, ..).expect("here").collect::<Result<_, _>>().expect("read");
    assert_eq!(rows, expected, "seed {seed}");
    for (key, value) in expected.iter().step_by(7) {
        assert_eq!(snapshot.get(table, key).expect("read").as_ref(), Some(value), "seed {seed}");
    }
    for (name, fields) in [("kind", 0..2), ("tail", 2..8)] {
        let index = table.index(name).expect("there");
        let by_fields = |(key, value): &(Vec<u8>, Vec<u8>)| (value[fields.clone()].to_vec(), key.clone());
        let mut entries: Vec<_> = expected.iter().map(by_fields).collect();
        entries.sort();
        let seen: Vec<_> = snapshot.entries(&index, ..).expect("here").collect::<Result<_, _>>().expect("read");
        assert_eq!(seen, entries, "seed {seed}: entries of {name}");
        let keys: Vec<_> = snapshot.rows(&index, ..).expect("here").map(|row| row.expect("read").0).collect();
        assert_eq!(keys, entries.into_iter().map(|(_, key)| key).collect::<Vec<_>>(), "seed {seed}: rows by {name}");
    }
}

/// The same sums with threads of the system, in a pool that does not hold the tree.
#[test]
fn sums_at_snapshots_are_right_with_real_threads() {
    let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
    let tree = account(&db);
    let others = db.create_tree("others").expect("created");
    std::thread::scope(|scope| {
        for id in 0..4u64 {
            let (db, tree, others) = (&db, &tree, &others);
            scope.spawn(move || {
                let mut numbers = Numbers(id);
                for round in 0..400u64 {
                    transfer(db, tree, &mut numbers);
                    // Takes frames from the undo pages.
                    others.put((numbers.below(2_000) * 4 + id).to_be_bytes(), [1; 700]).expect("written");
                    if round % 40 == 0 {
                        assert!(others.scan(..).all(|row| row.is_ok()));
                    }
                }
            });
        }
        for id in 0..2u64 {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                let mut numbers = Numbers(100 + id);
                let old = db.snapshot().expect("open");
                let seen = rows(&old, tree, false);
                for _ in 0..150 {
                    let snapshot = db.snapshot().expect("open");
                    assert_eq!(sum(&rows(&snapshot, tree, numbers.below(2) == 0)), u64::from(ROWS) * EACH);
                }
                assert_eq!(rows(&old, tree, true), seen);
            });
        }
    });
    drop((tree, others));
    db.close().expect("closed");
}

/// A snapshot that is older than `max_snapshot_age` keeps nothing any more, and its reads say why they fail: none
/// returns a row of another moment.
#[test]
fn snapshot_that_is_too_old_ends_and_frees_what_it_kept() {
    run(3, || {
        let options = small_options().durability(Durability::None);
        let db = open(&SimulatedDisk::new(), options.max_snapshot_age(Some(Duration::from_secs(5))));
        let definition = TableDefinition::new().index("first", [Field::value(0..1)]);
        let table = db.create_table("t", definition).expect("created");
        let key = |row: u32| row.to_be_bytes();
        (0..300).for_each(|row| table.put(key(row), [1; 100]).expect("written"));
        let (old, index) = (db.snapshot().expect("open"), table.index("first").expect("there"));
        let (mut scan, mut by_index) = (old.scan(&table, ..).expect("here"), old.rows(&index, ..).expect("here"));
        assert!(scan.next().is_some_and(|row| row.is_ok()) && by_index.next().is_some_and(|row| row.is_ok()));
        (0..300).for_each(|row| assert!(table.delete(key(row)).expect("deleted")));
        settle(&db);
        let young = db.snapshot().expect("open");
        assert!(db.stats().purged_rows == 0 && db.stats().undo_bytes_retained > 0);
        assert_eq!(old.get(&table, key(7)).expect("young enough"), Some(vec![1; 100]));
        sleep_ns(4_000_000_000);
        let error = old.get(&table, key(7)).expect_err("too old");
        assert!(matches!(&error, Error::SnapshotTooOld(_)), "{error}");
        assert_eq!(error.to_string(), "a snapshot was older than max_snapshot_age, which is 5s: take a new one");
        assert!(matches!(old.scan(&table, ..).expect("begun").next(), Some(Err(Error::SnapshotTooOld(_)))));
        // What was fetched before is right; then the scans end with the error.
        for rest in [scan.collect::<Vec<_>>(), by_index.collect()] {
            let (last, before) = rest.split_last().expect("not at its end");
            assert!(before.iter().all(|row| row.as_ref().is_ok_and(|(_, value)| value == &[1; 100])));
            assert!(matches!(last, Err(Error::SnapshotTooOld(_))));
        }
        assert_eq!(young.scan(&table, ..).expect("here").count(), 0);
        db.set_option("max_snapshot_age", "none").expect("set");
        settle(&db);
        assert_eq!((db.stats().snapshots, db.stats().purged_rows), (1, 600), "rows and entries");
        sleep_ns(20_000_000_000);
        assert!(young.get(&table, key(7)).expect("it lives").is_none());
        drop((old, young));
        settle(&db);
        assert_eq!((db.stats().snapshots, db.stats().undo_bytes_retained), (0, 0));
        drop((table, index));
        db.close().expect("closed");
    });
}

#[test]
fn snapshot_that_outlives_its_database_says_closed() {
    let db = open(&SimulatedDisk::new(), small_options());
    let tree = db.create_tree("t").expect("created");
    tree.put("a", "1").expect("written");
    let snapshot = db.snapshot().expect("open");
    tree.put("a", "2").expect("written");
    db.close().expect("closed");
    assert!(matches!(snapshot.get(&tree, "a"), Err(Error::Closed(_))));
    assert!(matches!(snapshot.scan(&tree, ..).expect("begun").next(), Some(Err(Error::Closed(_)))));
    drop(snapshot);
}

/// Of one group, in parts, over a table: the snapshot of a batch's CommitTs or a later one sees it.
#[test]
fn write_returns_the_moment_from_which_a_snapshot_sees_it() {
    let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
    let tree = db.create_tree("t").expect("created");
    let table = db.create_table("u", TableDefinition::new().index("first", [Field::value(0..1)])).expect("created");
    let mut last = db.snapshot().expect("open").commit_ts();
    for (turn, rows) in [1u32, 400, 3].into_iter().enumerate() {
        let before = db.snapshot().expect("open");
        let mut batch = WriteBatch::new();
        for row in 0..rows {
            let value = [u8::try_from(turn).expect("small"); 300];
            batch.put(&tree, row.to_be_bytes(), value).put(&table, row.to_be_bytes(), value);
        }
        let commit = db.write(batch).expect("written");
        let after = db.snapshot().expect("open");
        assert!(before.commit_ts() < commit && commit <= after.commit_ts() && commit > last, "batch {turn}");
        assert_eq!(u64::from(commit), commit.to_string().parse::<u64>().expect("a number"));
        last = commit;
    }
}

/// Purge was the last to change the leaf, after the last commit. A batch that finds nothing to change there returns a
/// moment that the next snapshot has come to.
#[test]
fn write_that_changes_nothing_returns_a_moment_of_snapshots() {
    run(1, || {
        let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        tree.put("a", "1").expect("written");
        assert!(tree.delete("a").expect("deleted"));
        settle(&db);
        assert_eq!(db.stats().purged_rows, 1);
        let mut batch = WriteBatch::new();
        batch.delete(&tree, "a");
        let same = db.write(batch).expect("nothing changes");
        let now = db.snapshot().expect("open").commit_ts();
        assert!(same <= now, "{same}, and a snapshot afterwards is of {now}");
        drop(tree);
        db.close().expect("closed");
    });
}
