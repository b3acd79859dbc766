//! Values longer than a quarter of a page: in chunks, which come, change and go with their rows.

use std::collections::BTreeMap;

use millpond::inspect::CheckOptions;
use millpond::simulation::{SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Field, Options, TableDefinition, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::stride;
use crate::support::{SLOW, Shape, contents, disk_of, open, recover, reopen_options, settle, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// A value whose bytes all depend on its seed and place.
fn value(seed: u32, len: usize) -> Vec<u8> {
    let mut rng = Rng::seed_from_u64(u64::from(seed));
    let block: [u8; 97] = rng.random();
    let mut value: Vec<u8> = block.iter().copied().cycle().take(len).collect();
    value.iter_mut().step_by(1000).zip(0u32..).for_each(|(byte, at)| *byte ^= at.to_le_bytes()[0]);
    value
}

#[test]
fn values_of_all_lengths_come_back() {
    for page_kib in [4, 16] {
        let shape = Shape { page_kib, ..crate::support::SMALL };
        let disk = SimulatedDisk::new();
        run(1, || {
            let db = open(&disk, shape.options());
            let tree = db.create_tree("t").expect("created");
            let page = usize::try_from(page_kib).expect("small") << 10;
            let around = |quarters: usize| [0, 59, 60, 61, 120].map(|more| quarters * page / 4 - 60 + more);
            let mut lengths: Vec<usize> = (1..=9).flat_map(around).collect();
            lengths.extend([50 * page, 3_000_000]);
            let mut model = BTreeMap::new();
            for (number, &len) in lengths.iter().enumerate() {
                let (key, value) = (number.to_be_bytes(), value(u32::try_from(len).expect("short"), len));
                tree.insert(key, &value).expect("written");
                assert!(matches!(tree.insert(key, &value), Err(Error::KeyExists(_))));
                model.insert(key.to_vec(), value);
            }
            let compare = |tree: &Tree, model: &BTreeMap<Vec<u8>, Vec<u8>>| {
                for (key, value) in model {
                    assert!(tree.get(key).expect("read").as_ref() == Some(value), "{} bytes", value.len());
                }
                let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read")).collect();
                assert!(rows.iter().map(|(k, v)| (k, v)).eq(model.iter()));
                let back: Vec<_> = tree.scan(..).rev().map(|row| row.expect("read")).collect();
                assert!(back.iter().rev().eq(rows.iter()));
            };
            compare(&tree, &model);
            drop(tree);
            db.close().expect("closed");
            let db = open(&disk, shape.reopen_options());
            let tree = db.open_tree("t").expect("there");
            compare(&tree, &model);
            // Long values become short, short values long, and rows are deleted.
            for (number, (key, value)) in model.iter_mut().enumerate() {
                value.reverse();
                value.truncate(if number % 2 == 0 { 10 } else { value.len() / 2 });
                value.extend_from_slice(&vec![7; if number % 3 == 0 { 3 * page } else { 0 }]);
                tree.update(key, value).expect("written");
            }
            compare(&tree, &model);
            model.retain(|key, _| {
                let stays = key[7] % 4 == 0;
                assert!(stays || tree.delete(key).expect("written"));
                stays
            });
            compare(&tree, &model);
            settle(&db);
            drop(tree);
            db.close().expect("closed");
        });
        assert_eq!(sound(&disk).deleted_rows, 0);
    }
}

/// The model of a tree's contents, for one thread, and batches with several operations on one key.
#[test]
fn batches_with_long_values_are_all_or_nothing() {
    let disk = SimulatedDisk::new();
    run(2, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut rng = Rng::seed_from_u64(3);
        for turn in 0..300u32 {
            let mut after = model.clone();
            let mut batch = WriteBatch::new();
            let mut holds = true;
            for _ in 0..rng.random_range(1..7) {
                let key = [rng.random_range(0..20u8)];
                let new = value(turn, [3, 900, 1100, 5000, 40_000][rng.random_range(0..5)]);
                let there = after.get(&key[..]).cloned();
                match rng.random_range(0..5) {
                    0 => {
                        batch.delete(&tree, key);
                        after.remove(&key[..]);
                    }
                    1 => {
                        batch.expect(&tree, key, there.as_deref());
                    }
                    2 if rng.random_bool(0.2) => {
                        batch.expect(&tree, key, Some(&new));
                        holds &= there == Some(new);
                    }
                    3 => {
                        batch.insert(&tree, key, &new);
                        holds &= there.is_none();
                        after.insert(key.to_vec(), new);
                    }
                    _ => {
                        batch.put(&tree, key, &new);
                        after.insert(key.to_vec(), new);
                    }
                }
            }
            let written = db.write(batch);
            assert_eq!(written.is_ok(), holds, "turn {turn}: {written:?}");
            if holds {
                model = after;
            }
            if turn % 20 == 0 {
                let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read")).collect();
                assert!(rows.iter().map(|(k, v)| (k, v)).eq(model.iter()), "turn {turn}");
            }
        }
        settle(&db);
        drop(tree);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// Long values that are replaced again and again take no more room than the first ones.
#[test]
fn replaced_values_give_their_room_back() {
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    let used = |db: &Db| db.stats().data_slots_total - db.stats().data_slots_free;
    run(4, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let round = |seed: u32| {
            for key in 0..10u8 {
                tree.put([key], value(seed + u32::from(key), 60_000)).expect("written");
            }
            settle(&db);
        };
        round(0);
        let first = used(&db);
        (1..8).for_each(|turn| round(turn * 100));
        let last = used(&db);
        assert!(last < first * 3 / 2, "{first} slots at first, {last} at last: {:?}", db.stats());
        (0..10u8).for_each(|key| assert!(tree.delete([key]).expect("written")));
        settle(&db);
        assert!(used(&db) < first / 2, "{first} slots at first, {} of an empty tree: {:?}", used(&db), db.stats());
        drop(tree);
        db.drop_tree("t").expect("dropped");
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).entries, 0);
}

/// Readers beside writers that replace, delete and insert: each value is whole, and one that was written.
#[test]
fn readers_see_whole_values() {
    for seed in 0..4u64 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options().durability(Durability::Background(20)));
            let tree = db.create_tree("t").expect("created");
            let is_whole = |bytes: &[u8]| {
                let seed = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                bytes[4..] == value(seed, bytes.len() - 4)
            };
            let made = |turn: u32, len: usize| [&turn.to_le_bytes()[..], &value(turn, len)].concat();
            (0..4u8).for_each(|key| tree.insert([key], made(u32::from(key), 9000)).expect("written"));
            let writers: Vec<_> = (0..2u32)
                .map(|id| {
                    let tree = tree.clone();
                    spawn("writer", move || {
                        let mut rng = Rng::seed_from_u64(seed * 10 + u64::from(id));
                        for turn in 0..60 {
                            let key = [rng.random_range(0..4u8)];
                            if rng.random_bool(0.3) {
                                tree.delete(key).expect("written");
                            } else {
                                let turn = id * 1000 + turn;
                                tree.put(key, made(turn, 100 + rng.random_range(0..30_000))).expect("written");
                            }
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            let mut found = 0;
            for turn in 0..400u64 {
                sleep_ns(2_000_000);
                if turn % 3 == 0 {
                    for (_, bytes) in tree.scan(..).map(|row| row.expect("read")) {
                        assert!(is_whole(&bytes));
                    }
                }
                if let Some(bytes) = tree.get([u8::try_from(turn % 4).expect("small")]).expect("read") {
                    assert!(is_whole(&bytes));
                    found += 1;
                }
            }
            assert!(found > 100, "{found}");
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            settle(&db);
            drop(tree);
            db.close().expect("closed");
        });
        assert_eq!(sound(&disk).deleted_rows, 0);
    }
}

#[test]
fn a_crash_at_any_io_leaves_long_values_whole_or_away() {
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    let (notes, _) = run(5, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        // Positions in the disk's history where each batch began and was acknowledged, and the contents after it.
        let mut states = vec![(0, 0, BTreeMap::new())];
        let mut rng = Rng::seed_from_u64(9);
        for turn in 0..24u32 {
            let mut after: BTreeMap<Vec<u8>, Vec<u8>> = states[states.len() - 1].2.clone();
            let mut batch = WriteBatch::new();
            for _ in 0..2 {
                let key = [rng.random_range(0..5u8)];
                if rng.random_bool(0.25) {
                    batch.delete(&tree, key);
                    after.remove(&key[..]);
                } else {
                    let new = value(turn, [20, 3000, 9000, 70_000][rng.random_range(0..4)]);
                    batch.put(&tree, key, &new);
                    after.insert(key.to_vec(), new);
                }
            }
            let began = disk.boundaries();
            db.write(batch).expect("written");
            states.push((began, disk.boundaries(), after));
        }
        drop(tree);
        db.close().expect("closed");
        states
    });
    let history = disk.history();
    for boundary in (notes[1].0..=history.boundaries()).step_by(stride(7)) {
        let seed = u64::try_from(boundary).expect("small");
        for mode in [Unsynced::None, Unsynced::All, Unsynced::Subset(seed), Unsynced::Torn(seed)] {
            let crashed = disk_of(history.crash_image(boundary, mode));
            let (found, _) = run(1, || recover(&crashed));
            let found = found.unwrap_or_else(|problem| unreachable!("crash at {boundary} with {mode:?}: {problem}"));
            let empty = BTreeMap::new();
            let rows = found.get("t").unwrap_or(&empty);
            let possible = notes.iter().rposition(|(_, end, _)| *end <= boundary).expect("the first");
            let may_be = &notes[possible..(possible + 2).min(notes.len())];
            assert!(may_be.iter().any(|(_, _, state)| state == rows), "crash at {boundary} with {mode:?}");
        }
    }
}

/// Rows of a table may be long, too, and its indexes may use any part of them.
#[test]
fn tables_have_long_rows() {
    let disk = SimulatedDisk::new();
    run(6, || {
        let db = open(&disk, small_options());
        let definition = TableDefinition::new().index("by", [Field::value(20_000..20_004)]);
        let table = db.create_table("t", definition).expect("created");
        for number in 0..12u32 {
            table.insert(number.to_be_bytes(), value(number % 3, 30_000)).expect("written");
        }
        let wanted = value(1, 30_000)[20_000..20_004].to_vec();
        let by = table.index("by").expect("there");
        let found: Vec<_> = by.rows(&wanted[..]..=&wanted[..]).map(|row| row.expect("read")).collect();
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|(_, row)| *row == value(1, 30_000)));
        for number in 0..6u32 {
            table.modify(number.to_be_bytes(), |_| millpond::Modify::Put(value(2, 25_000))).expect("written");
        }
        assert!(table.delete(7u32.to_be_bytes()).expect("written"));
        let wanted = value(2, 30_000)[20_000..20_004].to_vec();
        assert_eq!(by.rows(&wanted[..]..=&wanted[..]).count(), 8);
        settle(&db);
        drop((by, table));
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
    run(6, || {
        let db = open(&disk, reopen_options());
        assert_eq!(db.open_table("t").expect("there").scan(..).count(), 11);
        db.drop_table("t").expect("dropped");
        assert!(contents(&db).expect("read").is_empty());
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).entries, 0);
}

#[test]
fn a_value_of_four_gibibytes_is_refused_with_the_limit() {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let tree = db.create_tree("t").expect("created");
    // Its memory is never touched, so the value takes none.
    let error = tree.put(b"k", vec![0; 1 << 32]).expect_err("refused");
    assert!(
        matches!(error, Error::ValueTooLong(_)) && error.to_string().contains("4294967296 bytes: at most 4294967295")
    );
    assert_eq!(tree.get(b"k").expect("read"), None);
    drop(tree);
    db.close().expect("closed");
}

/// On real files and threads, values much larger than the pool.
#[test]
fn a_value_may_be_larger_than_the_pool() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = Options::new().cached(true).buffer_pool_size(ByteSize::mib(2)).page_size(ByteSize::kib(4));
    let db = Db::open(directory.path(), options.redo_capacity(ByteSize::mib(4))).expect("opened");
    let tree = db.create_tree("t").expect("created");
    let long = value(1, 24 << 20);
    tree.put(b"long", &long).expect("written");
    assert!(tree.get(b"long").expect("read").is_some_and(|read| read == long));
    tree.put(b"long", b"short").expect("written");
    assert_eq!(tree.get(b"long").expect("read"), Some(b"short".to_vec()));
    drop(tree);
    db.close().expect("closed");
    let report = millpond::inspect::check(directory.path(), CheckOptions::default()).expect("checked");
    assert_eq!(report.problems, Vec::<String>::new());
}
