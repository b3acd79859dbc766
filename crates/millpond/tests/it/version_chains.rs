//! Beside old snapshots chains of versions stay short, and what came and went between two snapshots goes (CHAIN-1,
//! CHAIN-2).

use std::collections::{BTreeMap, VecDeque};

use millpond::simulation::{SimulatedDisk, run, spawn};
use millpond::{ByteSize, Db, Durability, Snapshot, Tree, WriteBatch};

use crate::snapshots::Numbers;
use crate::support::{open, settle, small_options};

fn database() -> (Db, Tree) {
    let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
    let tree = db.create_tree("t").expect("created");
    (db, tree)
}

/// What a reader of the database needs at most for a row: a record for each live snapshot, and two for the newest
/// versions.
fn most_steps(snapshots: u64) -> u64 {
    snapshots + 2
}

/// Every write of one row finds its chain short, whatever snapshots there are.
#[test]
fn hot_row_beside_idle_snapshots_has_a_short_chain() {
    run(1, || {
        let (db, tree) = database();
        let mut held = Vec::new();
        for turn in 0..20_000u32 {
            if turn % 5_000 == 0 {
                held.push((db.snapshot().expect("open"), turn.checked_sub(1)));
            }
            tree.put("hot", turn.to_be_bytes()).expect("written");
        }
        for (snapshot, turn) in &held {
            let seen = snapshot.get(&tree, "hot").expect("read");
            assert_eq!(seen.as_deref(), turn.map(u32::to_be_bytes).as_ref().map(|bytes| &bytes[..]));
        }
        let most = db.stats().snapshot_steps_max;
        assert!(most <= most_steps(4), "{most} steps");
        drop((held, tree));
        db.close().expect("closed");
    });
}

/// Snapshots come and go beside one that stays: what each of them has kept in the chain goes, too.
#[test]
fn what_departed_snapshots_kept_leaves_the_chain() {
    run(2, || {
        let (db, tree) = database();
        tree.put("hot", "first").expect("written");
        let idle = db.snapshot().expect("open");
        let mut held = VecDeque::new();
        for turn in 0..30_000u32 {
            tree.put("hot", turn.to_be_bytes()).expect("written");
            if turn % 10 == 0 {
                held.push_back((db.snapshot().expect("open"), turn));
            }
            if held.len() > 5 {
                let (snapshot, turn) = held.pop_front().expect("five");
                assert_eq!(snapshot.get(&tree, "hot").expect("read").as_deref(), Some(&turn.to_be_bytes()[..]));
            }
            if turn % 500 == 0 {
                assert_eq!(idle.get(&tree, "hot").expect("read").as_deref(), Some(&b"first"[..]));
            }
        }
        // 2,995 snapshots have come and gone. One write in many looks far enough for what they have left.
        let most = db.stats().snapshot_steps_max;
        assert!(most <= 150, "{most} steps");
        drop((held, idle, tree));
        db.close().expect("closed");
    });
}

/// Undo pages whose changes no reader follows any more are free beside an old snapshot: neither they nor the files grow
/// with the number of updates.
#[test]
fn undo_pages_of_what_is_left_out_are_free() {
    run(3, || {
        // Writers follow records in memory only.
        let options = small_options().buffer_pool_size(ByteSize::mib(4)).durability(Durability::None);
        let db = open(&SimulatedDisk::new(), options);
        let tree = db.create_tree("t").expect("created");
        let (mut numbers, mut model) = (Numbers(3), BTreeMap::new());
        let mut write = |count: u32, model: &mut BTreeMap<Vec<u8>, Vec<u8>>| {
            for _ in 0..count {
                let key = numbers.below(300).to_be_bytes().to_vec();
                let value = vec![u8::try_from(numbers.below(250)).expect("small"); 40];
                tree.put(&key, &value).expect("written");
                model.insert(key, value);
            }
        };
        write(3_000, &mut model);
        let (snapshot, seen) = (db.snapshot().expect("open"), model.clone());
        write(10_000, &mut model);
        settle(&db);
        let bytes = db.stats().undo_bytes_retained;
        write(60_000, &mut model);
        settle(&db);
        let later = db.stats().undo_bytes_retained;
        // 300 rows, of which each has some three records of 100 bytes: 23 pages of 4 KiB, if they were full.
        assert!(bytes > 0 && later <= 150 * 4096, "{bytes} bytes, {later} later");
        let rows: BTreeMap<_, _> = snapshot.scan(&tree, ..).expect("here").collect::<Result<_, _>>().expect("read");
        assert_eq!(rows, seen);
        assert!(db.stats().snapshot_steps_max <= most_steps(1));
        drop(snapshot);
        settle(&db);
        assert_eq!(db.stats().undo_bytes_retained, 0);
        let rows: BTreeMap<_, _> = tree.scan(..).collect::<Result<_, _>>().expect("read");
        assert_eq!(rows, model);
        drop(tree);
        db.close().expect("closed");
    });
}

/// A queue: rows that came after the snapshot and went again are purged, though the snapshot lives.
#[test]
fn rows_that_no_snapshot_saw_are_purged_beside_an_old_one() {
    run(4, || {
        let (db, tree) = database();
        let key = |row: u32| row.to_be_bytes();
        (0..100).for_each(|row| tree.put(key(row), [1; 60]).expect("written"));
        let old = db.snapshot().expect("open");
        let mut between = None;
        for row in 100..6_100 {
            tree.put(key(row), [2; 60]).expect("written");
            assert!(tree.delete(key(row - 100)).expect("deleted"));
            if row == 3_000 {
                between = Some(db.snapshot().expect("open"));
            }
        }
        settle(&db);
        // 100 rows are of the old snapshot, and 100 of the later one.
        assert_eq!((db.stats().purged_rows, db.stats().purge_pages), (5_800, 0));
        let keys = |snapshot: &Snapshot| -> Vec<Vec<u8>> {
            snapshot.scan(&tree, ..).expect("here").map(|row| row.expect("read").0).collect()
        };
        let range = |rows: std::ops::Range<u32>| -> Vec<Vec<u8>> { rows.map(|row| key(row).to_vec()).collect() };
        assert_eq!(keys(&old), range(0..100));
        assert_eq!(between.as_ref().map(keys), Some(range(2_901..3_001)));
        drop(between);
        settle(&db);
        assert_eq!(db.stats().purged_rows, 5_900);
        assert_eq!(keys(&old), range(0..100));
        drop(old);
        settle(&db);
        assert_eq!((db.stats().purged_rows, db.stats().undo_bytes_retained), (6_000, 0));
        assert_eq!(tree.scan(..).count(), 100);
        drop(tree);
        db.close().expect("closed");
    });
}

/// Writers change a few rows in small batches and in batches of several groups, of which some are undone. Readers hold
/// snapshots of all ages, in a pool so small that undo pages are read. Each reads the same again and again.
#[test]
fn snapshots_read_the_same_while_chains_are_cut() {
    for seed in 0..6u64 {
        run(seed, || {
            let (db, tree) = database();
            let filler = db.create_tree("filler").expect("created");
            filler.put("there", [0; 100]).expect("written");
            (0..40u64).for_each(|row| tree.put(row.to_be_bytes(), [0; 100]).expect("written"));
            let writers: Vec<_> = (0..3)
                .map(|id| {
                    let (db, tree, filler) = (db.clone(), tree.clone(), filler.clone());
                    let work = move || {
                        let mut numbers = Numbers(seed * 10 + id);
                        for turn in 0..250u32 {
                            let count = if numbers.below(25) == 0 { 300 } else { 1 + numbers.below(5) };
                            let mut batch = WriteBatch::new();
                            for _ in 0..count {
                                let key = numbers.below(40).to_be_bytes();
                                match numbers.below(5) {
                                    0 => batch.delete(&tree, key),
                                    _ => batch.put(&tree, key, [u8::try_from(turn).expect("small"); 100]),
                                };
                                batch.put(&filler, numbers.below(4_000).to_be_bytes(), [3; 200]);
                            }
                            if numbers.below(4) == 0 {
                                batch.insert(&filler, "there", "again");
                                assert!(db.write(batch).is_err());
                            } else {
                                db.write(batch).expect("written");
                            }
                        }
                    };
                    spawn("writer", work).expect("a thread")
                })
                .collect();
            let rows = |snapshot: &Snapshot| -> Vec<(Vec<u8>, Vec<u8>)> {
                snapshot.scan(&tree, ..).expect("here").collect::<Result<_, _>>().expect("read")
            };
            let (mut numbers, mut held) = (Numbers(seed), VecDeque::new());
            for _ in 0..150 {
                let snapshot = db.snapshot().expect("open");
                let seen = rows(&snapshot);
                held.push_back((snapshot, seen));
                let (snapshot, seen) = &held[usize::try_from(numbers.below(held.len() as u64)).expect("small")];
                assert_eq!(&rows(snapshot), seen, "seed {seed}");
                if held.len() > 7 {
                    // The first one stays.
                    held.remove(1 + usize::try_from(numbers.below(6)).expect("small"));
                }
                assert!(filler.scan(..).take(500).all(|row| row.is_ok()));
            }
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            for (snapshot, seen) in &held {
                assert_eq!(&rows(snapshot), seen, "seed {seed}: at the end");
            }
            drop((held, tree, filler));
            db.close().expect("closed");
        });
    }
}
