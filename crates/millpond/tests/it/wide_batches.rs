//! Batches over many leaves: they go on a few leaves at a time, whatever the pool is, and are all there or not at all.

use std::collections::BTreeMap;

use millpond::simulation::{Image, ServiceTime, SimulatedDisk, run, spawn};
use millpond::{ByteSize, Db, Durability, Error, Field, TableDefinition, Tree, WriteBatch};

use crate::crash_matrix::{Effects, Note, Oracle, check_matrix, record, stride};
use crate::support::{SMALL, contents, open, reopen_options, settle, small_options, sound};

/// Rows of a leaf: with one more it is full.
const A_LEAF: u32 = 4;

/// Most pages that one group may keep at once.
const PINS_MAX: u64 = 40;

fn key(leaf: u32, row: u32) -> [u8; 5] {
    let [a, b, c, d] = leaf.to_be_bytes();
    [a, b, c, d, u8::try_from(row).expect("few")]
}

/// The rows of `leaves` leaves, in the order of a load.
fn loaded(leaves: u32) -> impl Iterator<Item = ([u8; 5], Vec<u8>)> {
    (0..leaves).flat_map(|leaf| (0..A_LEAF).map(move |row| (key(leaf, 2 * row), vec![b'0'; 900])))
}

fn load(db: &Db, leaves: u32) -> Tree {
    let tree = db.create_tree("t").expect("created");
    for (key, value) in loaded(leaves) {
        let mut batch = WriteBatch::new();
        batch.put(&tree, key, value).durability(Durability::None);
        db.write(batch).expect("written");
    }
    tree
}

/// Changes of every leaf: a row changes, and a long one comes between the others, so that each leaf is split.
fn over_all(tree: &Tree, leaves: u32, generation: u8) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for leaf in 0..leaves {
        batch.put(tree, key(leaf, 0), [generation; 900]).put(tree, key(leaf, 3), [generation; 880]);
    }
    batch
}

#[test]
fn a_batch_over_2000_leaves_pins_few_pages_in_a_tiny_pool() {
    const LEAVES: u32 = 2000;
    // 64 frames more than the least.
    let pool = ByteSize::kib(4 * (32 + 64));
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options().buffer_pool_size(pool));
        let tree = load(&db, LEAVES);
        db.write(over_all(&tree, LEAVES, 1)).expect("written");
        // Deletes, too, and in no order.
        let mut batch = over_all(&tree, LEAVES, 2);
        (0..LEAVES).for_each(|leaf| _ = batch.delete(&tree, key(leaf * 7 % LEAVES, 6)));
        db.write(batch).expect("written");
        let stats = db.stats();
        assert!((2..=PINS_MAX).contains(&stats.group_pages_max), "{} pages of one group", stats.group_pages_max);
        for leaf in 0..LEAVES {
            let rows: Vec<_> = tree.scan(key(leaf, 0)..key(leaf + 1, 0)).map(|row| row.expect("read")).collect();
            let lens: Vec<usize> = rows.iter().map(|(_, value)| value.len()).collect();
            assert_eq!(lens, [900, 900, 880, 900], "leaf {leaf}");
            assert_eq!((rows[0].1[0], rows[2].1[0]), (2, 2), "leaf {leaf}");
        }
        settle(&db);
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// A batch fits one group up to some number of leaves, and is written in parts beyond: no seam is to be seen.
#[test]
fn batches_of_any_number_of_leaves_are_written() {
    let disk = SimulatedDisk::new();
    run(2, || {
        let db = open(&disk, small_options().buffer_pool_size(ByteSize::mib(2)));
        let tree = load(&db, 40);
        let mut whole = 0;
        for leaves in 1..=40 {
            let generation = u8::try_from(leaves).expect("few");
            let wide = db.stats().wide_batches;
            let mut batch = WriteBatch::new();
            (0..leaves).for_each(|leaf| _ = batch.put(&tree, key(leaf, 0), [generation; 900]));
            db.write(batch).expect("written");
            whole += u32::from(db.stats().wide_batches == wide);
            let count = tree.scan(..).filter(|row| row.as_ref().expect("read").1[0] == generation).count();
            assert_eq!(u32::try_from(count).expect("few"), leaves);
        }
        assert!((4..40).contains(&whole), "{whole} batches were one group");
        assert!(db.stats().group_pages_max <= PINS_MAX);
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// The last row of a batch over many leaves is a duplicate, in the tree or in a unique index: nothing of it stays, and
/// the rows are free when the error is returned.
#[test]
fn a_wide_batch_with_a_duplicate_at_its_end_leaves_nothing() {
    const LEAVES: u32 = 60;
    let disk = SimulatedDisk::new();
    run(3, || {
        let db = open(&disk, small_options().buffer_pool_size(ByteSize::mib(1)));
        let tree = load(&db, LEAVES);
        let definition = TableDefinition::new().unique("u", [Field::value(0..4)]);
        let table = db.create_table("rows", definition).expect("created");
        let row = |number: u32, u: u32| {
            (number.wrapping_mul(0x9E37_79B9).to_be_bytes(), [&u.to_be_bytes()[..], &[7; 700]].concat())
        };
        for number in 0..200 {
            let (key, value) = row(number, number * 2);
            table.insert(key, value).expect("inserted");
        }
        let before = contents(&db).expect("read");
        for round in 0..3 {
            let mut batch = over_all(&tree, LEAVES, 9);
            batch.insert(&tree, key(LEAVES - 1, 6), b"there already");
            let error = db.write(batch).expect_err("refused");
            assert!(matches!(error, Error::KeyExists(_)), "{error}");
            let mut batch = WriteBatch::new();
            for number in 200..400 {
                // Entries that are taken come last in the index.
                let (key, value) = row(number, if number == 399 { 398 } else { number * 2 + 1 - 400 });
                batch.insert(&table, key, value);
            }
            let error = db.write(batch).expect_err("refused");
            assert!(matches!(error, Error::KeyExists(_)), "{error}");
            let stats = db.stats();
            assert_eq!((stats.batches_in_flight, stats.rollbacks), (0, 2 * (round + 1)));
            assert!(contents(&db).expect("read") == before, "round {round}");
        }
        tree.put(key(1, 0), [1; 900]).expect("no lock is left");
        settle(&db);
        drop((tree, table));
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// Batches over the same rows, added in other orders, by several threads: none waits for ever, and the last has all.
#[test]
fn wide_batches_in_other_orders_do_not_wait_in_circles() {
    const LEAVES: u32 = 50;
    for seed in 0..6 {
        let disk = SimulatedDisk::new();
        run(seed, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = load(&db, LEAVES);
            let writers: Vec<_> = (0..4u32)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    let write = move || {
                        for turn in 0..6u32 {
                            let generation = u8::try_from(1 + id * 6 + turn).expect("few");
                            let mut batch = WriteBatch::new();
                            for number in 0..LEAVES {
                                let leaf = (number * [1, LEAVES - 1, 7, 13][id as usize] + turn) % LEAVES;
                                batch.put(&tree, key(leaf, 2), [generation; 900]);
                            }
                            db.write(batch).expect("written");
                        }
                    };
                    spawn("writer", write).expect("a thread")
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            let last: Vec<u8> =
                (0..LEAVES).map(|leaf| tree.get(key(leaf, 2)).expect("read").expect("there")[0]).collect();
            assert!(last.iter().all(|generation| *generation == last[0]), "seed {seed}: {last:?}");
            assert_eq!(db.deadlocks().len(), 0);
            drop(tree);
            db.close().expect("closed");
        });
        sound(&disk);
    }
}

/// A database of so many leaves, at rest.
fn at_rest(leaves: u32) -> (Image, Oracle) {
    let disk = SimulatedDisk::new();
    let oracle = Oracle::default();
    run(0, || {
        let db = open(&disk, small_options());
        load(&db, leaves);
        db.close().expect("closed");
    });
    let effects: Effects = loaded(leaves).map(|(key, value)| (("t", key.to_vec()), Some(value))).collect();
    oracle.notes.lock().expect("no panic").push(Note { client: 0, began: 0, acknowledged: Some(0), effects });
    (disk.image(), oracle)
}

/// A crash at any I/O of batches over 2, 20 and 2,000 leaves that are split in the middle: all of a batch, or nothing.
#[test]
fn a_crash_in_a_batch_of_any_width_leaves_all_or_nothing() {
    for (leaves, rounds, images) in [(2, 4, usize::MAX), (20, 3, 60), (2000, 1, 12)] {
        let (image, oracle) = at_rest(leaves);
        let recorded = record(u64::from(leaves), image, oracle, |disk, oracle| {
            let db = open(disk, reopen_options());
            let tree = db.open_tree("t").expect("there");
            for generation in 1..=rounds {
                let batch = over_all(&tree, leaves, generation);
                let rows = |leaf| [(key(leaf, 0), 900), (key(leaf, 3), 880)];
                let effects: BTreeMap<_, _> = (0..leaves).flat_map(rows).collect();
                let effects = effects.into_iter().map(|(key, len)| (("t", key.to_vec()), Some(vec![generation; len])));
                oracle.note(disk, 0, effects.collect(), || db.write(batch).map(drop));
            }
            drop(tree);
            db.close().expect("closed");
        });
        let step = (recorded.history.boundaries() / images).max(1);
        let images = check_matrix(&recorded, 0, if stride(2) == 1 { step.div_ceil(8) } else { step });
        assert!(images > 60, "{images} images of {leaves} leaves");
    }
}

/// Eight clients beside each other in a pool that has room for few of their leaves: all come to their end.
#[test]
fn wide_batches_of_many_clients_share_a_small_pool() {
    const LEAVES: u32 = 1500;
    let pool = ByteSize::mib(1);
    let disk = SimulatedDisk::new();
    run(5, || {
        let db = open(&disk, small_options().buffer_pool_size(pool).redo_capacity(ByteSize::mib(16)));
        load(&db, LEAVES);
        db.close().expect("closed");
    });
    let time = ServiceTime { read_ns: 100_000, write_ns: 100_000, sync_ns: 1_000_000 };
    let disk = SimulatedDisk::with_image(disk.image(), time);
    run(6, || {
        let db = open(&disk, SMALL.reopen_options().buffer_pool_size(pool));
        let tree = db.open_tree("t").expect("there");
        let clients: Vec<_> = (0..8u32)
            .map(|id| {
                let (db, tree) = (db.clone(), tree.clone());
                let write = move || {
                    for turn in 0..5u32 {
                        let mut batch = WriteBatch::new();
                        for number in 0..180 {
                            let leaf = (id * 187 + turn * 331 + number * 8) % LEAVES;
                            batch.put(&tree, key(leaf, 4), [u8::try_from(turn).expect("few"); 900]);
                        }
                        db.write(batch).expect("written");
                    }
                };
                spawn("client", write).expect("a thread")
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let stats = db.stats();
        assert!(stats.group_pages_max <= PINS_MAX, "{} pages of one group", stats.group_pages_max);
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}
