//! Rows, undo records and purge: deleted rows go, also after a crash, and undo takes no more room than it needs.

use std::collections::BTreeMap;

use millpond::simulation::{SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{Db, Durability, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::stride;
use crate::support::{SLOW, contents, disk_of, open, reopen_options, settle, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// A row's index entry: the key of `value` and `number` in the index.
fn index_key(value: u32, number: u32) -> Vec<u8> {
    [value.to_be_bytes(), number.to_be_bytes()].concat()
}

/// One statement: the row gets another value, and its index entry another place.
fn move_row(db: &Db, trees: &[Tree; 2], number: u32, from: u32, to: u32) {
    let row = |value: u32| [&value.to_le_bytes()[..], &[7; 60]].concat();
    let mut batch = WriteBatch::new();
    batch.expect(&trees[0], number.to_be_bytes(), Some(&row(from)));
    batch.update(&trees[0], number.to_be_bytes(), row(to));
    batch.delete(&trees[1], index_key(from, number)).insert(&trees[1], index_key(to, number), b"");
    batch.durability(Durability::Background(10));
    db.write(batch).expect("written");
}

#[test]
fn ten_minutes_of_updates_leave_undo_and_index_small() {
    const ROWS: u32 = 400;
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    let (sizes, _) = run(1, || {
        let db = open(&disk, small_options());
        let trees = ["rows", "index"].map(|name| db.create_tree(name).expect("created"));
        let mut values = vec![0u32; 400];
        for number in 0..ROWS {
            let row = [&0u32.to_le_bytes()[..], &[7; 60]].concat();
            trees[0].insert(number.to_be_bytes(), &row).expect("written");
            trees[1].insert(index_key(0, number), b"").expect("written");
        }
        let mut rng = Rng::seed_from_u64(5);
        let mut sizes = Vec::new();
        for _minute in 0..10 {
            let (mut undo, mut slots) = (0, 0);
            for _ in 0..1500 {
                let number = rng.random_range(0..ROWS);
                let value = &mut values[usize::try_from(number).expect("small")];
                let to = rng.random_range(0..1000u32);
                move_row(&db, &trees, number, *value, to);
                *value = to;
                sleep_ns(40_000_000);
                let stats = db.stats();
                undo = undo.max(stats.undo_pages);
                slots = slots.max(stats.data_slots_total - stats.data_slots_free);
            }
            sizes.push((undo, slots));
        }
        settle(&db);
        assert!(db.stats().purged_rows > 14_000, "{:?}", db.stats());
        db.close().expect("closed");
        sizes
    });
    assert!(sizes.iter().all(|(undo, _)| *undo < 40), "undo pages and slots, minute by minute: {sizes:?}");
    let first = sizes[1].1;
    assert!(sizes.iter().all(|(_, slots)| *slots < first * 5 / 4), "undo pages and slots, minute by minute: {sizes:?}");
    let report = sound(&disk);
    // The two entries of the catalog, too.
    assert_eq!((report.entries, report.deleted_rows), (2 + u64::from(ROWS) * 2, 0));
}

/// Threads insert, delete and insert again; the power fails at many moments. After the crash deleted rows are purged,
/// rows inserted again stay, and no undo records are left.
#[test]
fn what_was_deleted_before_a_crash_is_purged_behind_it() {
    let (mut deleted_at_crash, mut purged) = (0, 0);
    for seed in 0..4u64 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        let (first, _) = run(seed, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            let first = disk.boundaries();
            let threads: Vec<_> = (0..3u32)
                .map(|client| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("client", move || {
                        let mut rng = Rng::seed_from_u64(seed * 10 + u64::from(client));
                        for turn in 0..60u32 {
                            let mut batch = WriteBatch::new();
                            for _ in 0..rng.random_range(1..5) {
                                let key = (rng.random_range(0..40u32) * 3 + client).to_be_bytes();
                                if rng.random_range(0..2) == 0 {
                                    batch.delete(&tree, key);
                                } else {
                                    batch.put(&tree, key, [turn.to_le_bytes()[0]; 150]);
                                }
                            }
                            db.write(batch).expect("written");
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            drop(tree);
            db.close().expect("closed");
            first
        });
        let history = disk.history();
        for boundary in (first..history.boundaries()).step_by(stride(13)) {
            let image = history.crash_image(boundary, Unsynced::Subset(u64::try_from(boundary).expect("small")));
            let crashed = disk_of(image);
            deleted_at_crash += sound(&crashed).deleted_rows;
            let (removed, _) = run(seed, || {
                let db = open(&crashed, reopen_options());
                let before = contents(&db).expect("read");
                settle(&db);
                assert_eq!(contents(&db).expect("read"), before, "seed {seed}, boundary {boundary}");
                let removed = db.stats().purged_rows;
                assert!(db.stats().undo_pages <= 32, "{:?}", db.stats());
                db.close().expect("closed");
                removed
            });
            purged += removed;
            let report = sound(&crashed);
            assert_eq!(report.deleted_rows, 0, "seed {seed}, boundary {boundary}");
        }
    }
    assert!(deleted_at_crash > 50 && purged >= deleted_at_crash, "{deleted_at_crash} {purged}");
}

/// Trees are dropped while their rows are to be purged, and other trees get the next space numbers.
#[test]
fn trees_are_dropped_while_their_rows_are_purged() {
    for seed in 0..6u64 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options().durability(Durability::None));
            for round in 0..12u8 {
                let tree = db.create_tree("t").expect("created");
                (0..60u8).for_each(|key| tree.insert([key], [round; 200]).expect("written"));
                (0..60u8).for_each(|key| assert!(tree.delete([key]).expect("written")));
                (30..60u8).for_each(|key| tree.insert([key], [round; 20]).expect("written"));
                sleep_ns(u64::from(round) * 10_000_000);
                assert_eq!(tree.scan(..).count(), 30);
                db.drop_tree("t").expect("dropped");
            }
            settle(&db);
            db.close().expect("closed");
        });
        let report = sound(&disk);
        assert_eq!((report.entries, report.deleted_rows), (0, 0));
    }
}

/// A batch of rows with undo records that fill several pages.
#[test]
fn a_batch_may_need_many_undo_pages() {
    let disk = SimulatedDisk::new();
    run(3, || {
        let options = small_options().buffer_pool_size(millpond::ByteSize::mib(4));
        let db = open(&disk, options.redo_capacity(millpond::ByteSize::mib(4)));
        let tree = db.create_tree("t").expect("created");
        let mut batch = WriteBatch::new();
        for key in 0..60u8 {
            batch.insert(&tree, [key], [1; 700]);
        }
        db.write(batch).expect("written");
        let before = db.stats();
        for round in 2..6u8 {
            let mut batch = WriteBatch::new();
            (0..60u8).for_each(|key| {
                if key % 7 == round {
                    batch.delete(&tree, [key]);
                } else {
                    batch.put(&tree, [key], [round; 700]);
                }
            });
            db.write(batch).expect("written");
        }
        assert!(db.stats().undo_pages >= before.undo_pages + 10, "{:?}", db.stats());
        let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read")).collect();
        assert!(rows.iter().all(|(_, value)| *value == [5; 700]));
        assert_eq!(rows.len(), 60 - (0..60).filter(|key| key % 7 == 5).count());
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// Leaves at their densest, of small and cold rows, on a full disk. Each deleted row gets a stamp, and there is no page
/// to split a leaf for it.
#[test]
fn rows_of_dense_leaves_are_deleted_on_a_full_disk() {
    let disk = SimulatedDisk::new();
    run(5, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        disk.limit_space(Some(disk.image().values().map(|file| file.len() as u64).sum()));
        let mut rows = 0u32;
        while tree.insert(rows.to_be_bytes(), b"x").is_ok() {
            rows += 1;
        }
        assert!(rows > 10_000, "{rows}");
        (0..rows).for_each(|row| assert!(tree.delete(row.to_be_bytes()).expect("deleted")));
        assert_eq!(tree.scan(..).count(), 0);
        settle(&db);
        drop(tree);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// Rows with keys that take more room in undo records than in leaves, and a pool that cannot hold all the undo pages.
#[test]
fn batch_with_more_undo_pages_than_the_pool_is_cut_into_parts() {
    let disk = SimulatedDisk::new();
    run(6, || {
        let db = open(&disk, small_options().redo_capacity(millpond::ByteSize::mib(32)).durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let key = |row: u16| [&[b'k'; 760][..], &row.to_be_bytes()].concat();
        (0..12u16).for_each(|row| tree.insert(key(row * 1000), [1; 8]).expect("written"));
        // Between existing rows: the leaf stores their common prefix once.
        let dense = 5001..5061u16;
        dense.clone().for_each(|row| tree.insert(key(row), [1; 8]).expect("written"));
        let mut batch = WriteBatch::new();
        for row in dense.clone() {
            batch.put(&tree, key(row), [2; 8]);
        }
        db.write(batch).expect("written");
        assert!(tree.scan(&key(5001)[..]..&key(5061)[..]).all(|row| row.expect("read").1 == [2; 8]));
        let before = db.stats().undo_pages;
        dense.for_each(|row| tree.put(key(row), [3; 8]).expect("written"));
        assert!(db.stats().undo_pages <= before + 40, "{:?}", db.stats());
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}
