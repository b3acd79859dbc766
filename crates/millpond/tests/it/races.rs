//! Races: splits between two looks at a leaf, pools of a few frames, a close while other threads write.

use std::collections::{BTreeMap, BTreeSet};

use millpond::metrics::WaitClass;
use millpond::simulation::{ServiceTime, SimulatedDisk, now_ns, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Field, Options, Table, TableDefinition, WriteBatch};

use crate::support::{open, recover, small_options};

fn latch_waits(db: &Db) -> u64 {
    db.waits().iter().filter(|wait| wait.class == WaitClass::PageLatch).map(|wait| wait.count).sum()
}

fn number(value: u64) -> u32 {
    u32::try_from(value % 1_000_000_007).expect("below 2^32")
}

/// Regression: another thread split a full leaf between a batch's keys. The batch then split the left part with **all**
/// its keys, beyond the leaf's high fence, and hid the rows of the right part.
#[test]
fn batches_that_split_the_same_leaf_lose_no_rows() {
    for seed in 0..40u64 {
        let ((written, disk), _) = run(seed, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            for i in 0..60u32 {
                tree.put((i * 1000).to_be_bytes(), [1; 200]).expect("written");
            }
            let threads: Vec<_> = (0..3u32)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("writer", move || {
                        let mut written = Vec::new();
                        let mut x = number(seed * 77 + u64::from(id)).wrapping_mul(2_654_435_761);
                        for _ in 0..25 {
                            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            let base = (x >> 8) % 60_000;
                            let mut batch = WriteBatch::new();
                            let keys: Vec<_> = (0..6u32).map(|j| ((base + j * 170) * 4 + id).to_be_bytes()).collect();
                            for key in &keys {
                                batch.put(&tree, key, [9; 700]);
                            }
                            db.write(batch).expect("written");
                            written.extend(keys);
                        }
                        written
                    })
                    .expect("a thread")
                })
                .collect();
            let written: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
            db.close().expect("closed");
            (written, disk)
        });
        let found = recover(&disk).unwrap_or_else(|problem| unreachable!("seed {seed}: {problem}"));
        let missing = written.iter().filter(|key| !found["t"].contains_key(&key[..])).count();
        assert_eq!(missing, 0, "seed {seed}: rows are missing");
        assert!((0..60u32).all(|i| found["t"].contains_key(&(i * 1000).to_be_bytes()[..])), "seed {seed}");
    }
}

/// Regression: splits that each held one frame and waited for a second took all frames of a small pool. One thread also
/// entered the lane of a split twice.
#[test]
fn many_threads_in_the_smallest_pool_come_to_an_end() {
    let disk = SimulatedDisk::new();
    let options = Options::new()
        .page_size(ByteSize::kib(4))
        .buffer_pool_size(ByteSize::kib(128))
        .redo_capacity(ByteSize::mib(1))
        .durability(Durability::None);
    let db = open(&disk, options);
    std::thread::scope(|scope| {
        for id in 0..24u64 {
            let db = db.clone();
            scope.spawn(move || {
                let tree = db.create_tree(&format!("t{id:02}")).expect("created");
                let mut x = id;
                for _ in 0..250 {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    tree.put(x.to_be_bytes(), [1; 900]).expect("written");
                }
            });
        }
    });
    db.close().expect("closed");
    let found = recover(&disk).expect("sound");
    assert!(found.len() == 24 && found.values().all(|rows| rows.len() == 250));
}

/// Regression: an ascending insert left the left page so full that its new fence did not fit.
#[test]
fn ascending_keys_of_any_length_are_inserted() {
    for (prefix, value_len) in [(0, 50), (500, 100), (760, 0), (760, 1000), (100, 1024), (3, 1)] {
        let disk = SimulatedDisk::new();
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        for i in 0..400u64 {
            let key = [vec![b'p'; prefix], i.to_be_bytes().to_vec()].concat();
            tree.insert(&key, vec![1; value_len]).unwrap_or_else(|error| unreachable!("row {i}: {error}"));
        }
        for i in (0..400u64).rev() {
            let key = [vec![b'o'; prefix], i.to_be_bytes().to_vec()].concat();
            tree.put(&key, vec![1; value_len]).unwrap_or_else(|error| unreachable!("row -{i}: {error}"));
        }
        db.close().expect("closed");
        let rows = recover(&disk).expect("sound")["t"].len();
        assert_eq!(rows, if prefix == 0 { 400 } else { 800 });
    }
}

/// Regression: a put that changes nothing was acknowledged while the value that it found was not durable yet.
#[test]
fn a_write_that_changes_nothing_waits_for_what_it_found() {
    // Simulated, so that the keeper syncs nothing in between.
    run(1, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        let loose = |fill: &dyn Fn(&mut WriteBatch)| {
            let mut batch = WriteBatch::new();
            fill(&mut batch);
            batch.durability(Durability::None);
            db.write(batch).expect("written");
        };
        let now = || disk.crash_now(millpond::simulation::Unsynced::None);
        tree.put(b"gone", b"v").expect("written");
        loose(&|batch| {
            batch.put(&tree, b"k", b"v");
        });
        tree.put(b"k", b"v").expect("written");
        assert!(recover(&crate::support::disk_of(now())).expect("sound")["t"].contains_key(&b"k"[..]));
        loose(&|batch| {
            batch.delete(&tree, b"gone");
        });
        assert!(!tree.delete(b"gone").expect("deleted already"));
        assert!(!recover(&crate::support::disk_of(now())).expect("sound")["t"].contains_key(&b"gone"[..]));
    });
}

/// Regression: a leaf that a batch only read got the LSN of the batch's group, which has no record of it. Redo then
/// found a gap.
#[test]
fn a_leaf_that_a_batch_does_not_change_is_redone_after_it() {
    // Simulated, so that the keeper cleans no page in between.
    run(2, || {
        let disk = SimulatedDisk::new();
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        let key = |number: u32| number.to_be_bytes();
        (0..40).for_each(|number| tree.put(key(number), [1; 500]).expect("written"));
        db.checkpoint().expect("done");
        let mut batch = WriteBatch::new();
        batch.put(&tree, key(0), b"new").delete(&tree, key(99)).expect(&tree, key(30), Some(&[1; 500]));
        db.write(batch).expect("written");
        for number in [30, 39] {
            tree.put(key(number), b"newer").expect("written");
        }
        let rows = &recover(&crate::support::disk_of(disk.crash_now(millpond::simulation::Unsynced::None)))
            .expect("sound")["t"];
        let changed = [0, 30, 39].map(|number| rows[&key(number)[..]].as_slice());
        assert_eq!(changed, [&b"new"[..], b"newer", b"newer"]);
    });
}

/// Of two threads that delete a key, exactly one learns that it was there.
#[test]
fn a_key_is_deleted_once() {
    for seed in 0..20 {
        let (deleted, _) = run(seed, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            tree.put(b"k", b"v").expect("written");
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let tree = tree.clone();
                    spawn("deleter", move || tree.delete(b"k").expect("deleted")).expect("a thread")
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).filter(|there| *there).count()
        });
        assert_eq!(deleted, 1, "seed {seed}");
    }
}

/// A close while other threads write and ask for checkpoints: each gets an answer, and earlier acknowledged writes are
/// there.
#[test]
fn close_while_others_write_answers_all_of_them() {
    for seed in 0..30u64 {
        let ((acknowledged, disk), _) = run(seed, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            let threads: Vec<_> = (0..4u32)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("client", move || {
                        let mut acknowledged = BTreeMap::new();
                        for i in 0..100u32 {
                            let key = (i * 4 + id).to_be_bytes();
                            let done = if id == 0 { db.checkpoint() } else { tree.put(key, [2; 900]) };
                            match done {
                                Ok(()) if id > 0 => drop(acknowledged.insert(key, i)),
                                Ok(()) => {}
                                Err(error) => {
                                    assert!(matches!(error, Error::Closed(_)), "{error}");
                                    break;
                                }
                            }
                        }
                        acknowledged
                    })
                    .expect("a thread")
                })
                .collect();
            sleep_ns(seed % 40 * 100_000);
            db.close().expect("closed");
            let acknowledged: Vec<_> = threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect();
            (acknowledged, disk)
        });
        let found = recover(&disk).expect("sound");
        assert!(acknowledged.iter().all(|(key, _)| found["t"].contains_key(&key[..])), "seed {seed}");
    }
}

/// Batches change many leaves of two trees, from different places on. They queue up from left to right, and do not send
/// each other back. Before, latches further right were only tried, and each refusal cost a batch all its latches.
#[test]
fn batches_over_many_leaves_queue_up() {
    const CLIENTS: u32 = 5;
    const ROUNDS: u32 = 10;
    for seed in 0..10u64 {
        let (latch_waits, _) = run(seed, || {
            let options = small_options().buffer_pool_size(ByteSize::mib(2)).redo_capacity(ByteSize::mib(8));
            let db = open(&SimulatedDisk::new(), options.durability(Durability::None));
            let trees = ["a", "b"].map(|name| db.create_tree(name).expect("created"));
            for tree in &trees {
                for i in 0..60u32 {
                    tree.put(i.to_be_bytes(), [1; 800]).expect("written");
                }
            }
            let before = latch_waits(&db);
            let threads: Vec<_> = (0..CLIENTS)
                .map(|id| {
                    let (db, trees) = (db.clone(), trees.clone());
                    spawn("writer", move || {
                        for round in 0..ROUNDS {
                            let mut batch = WriteBatch::new();
                            // The rows of the leaves from the client's own place on, in descending order.
                            for key in (id * 10..60).rev() {
                                let value = [u8::try_from(id * ROUNDS + round).expect("small"); 800];
                                batch.put(&trees[(key % 2) as usize], key.to_be_bytes(), value);
                            }
                            db.write(batch).expect("written");
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            for thread in threads {
                thread.join().expect("no panic");
            }
            let waits = latch_waits(&db) - before;
            db.close().expect("closed");
            waits
        });
        assert!(latch_waits <= u64::from(CLIENTS * ROUNDS * 4), "seed {seed}: {latch_waits} waits for latches");
    }
}

/// Regression: batches over neighbouring leaves, while pages above these split between the looks at two routes of one
/// descent. The new route of such a page led a thread that needed its right part to its last child. That was a leaf
/// that the batch held already, or one further left, and the batch waited for ever. Long separators leave pages few
/// children: the tree is high, and its inner pages split often.
#[test]
fn batches_find_their_leaves_while_inner_pages_are_split() {
    const CLIENTS: u64 = 12;
    const ROUNDS: u64 = 15;
    for seed in 0..16u64 {
        let ((written, found), _) = run(seed, || {
            let options = small_options().buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(16));
            let db = open(&SimulatedDisk::new(), options.durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            let threads: Vec<_> = (0..CLIENTS)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("writer", move || {
                        let mut written = Vec::new();
                        let mut x = seed * 1000 + id + 1;
                        for _ in 0..ROUNDS {
                            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                            let group = number(x >> 33) % 100;
                            let mut batch = WriteBatch::new();
                            // Some three rows to a leaf, which differ in the last byte.
                            for last in 0..6u8 {
                                let key = [&group.to_be_bytes()[..], &[b'x'; 600], &[last]].concat();
                                batch.put(&tree, &key, [last; 300]);
                                written.push(key);
                            }
                            db.write(batch).expect("written");
                        }
                        written
                    })
                    .expect("a thread")
                })
                .collect();
            let written: BTreeSet<_> = threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect();
            let found: BTreeSet<_> = tree.scan(..).map(|row| row.expect("read").0).collect();
            db.close().expect("closed");
            (written, found)
        });
        assert_eq!(written, found, "seed {seed}");
    }
}

/// A disk with a table of some rows, on which a read takes half a second.
fn slow_table() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    let table = db.create_table("t", TableDefinition::new().index("i", [Field::value(0..4)])).expect("created");
    for row in 0..200u32 {
        table.insert(row.to_be_bytes(), [&row.to_be_bytes()[..], &[1; 300]].concat()).expect("inserted");
    }
    drop(table);
    db.close().expect("closed");
    let time = ServiceTime { read_ns: 500_000_000, ..ServiceTime::default() };
    SimulatedDisk::with_image(disk.image(), time)
}

/// An index is read for the first time. Meanwhile `gone` drops it, and waits for the reader with gates closed. Then
/// `late` comes and waits for `gone`. Returns how long `late` waited, and the time of all waits on `metadata`.
fn wait_behind_a_drop(gone: fn(&Db, &Table), late: fn(&Table)) -> (u64, u64) {
    let disk = slow_table();
    let (times, _) = run(1, || {
        let db = open(&disk, small_options().create(false));
        let table = db.open_table("t").expect("there");
        let index = table.index("i").expect("there");
        // The root is in memory, so that `late` waits for nothing else.
        assert!(table.get(b"").expect("read").is_none());
        let metadata = |db: &Db| -> u64 {
            let times = db.waits().into_iter().filter(|wait| wait.class == WaitClass::Metadata);
            times.map(|wait| u64::try_from(wait.total.as_nanos()).expect("short")).sum()
        };
        let began = metadata(&db);
        let reader = spawn("reader", move || drop(index.scan(..).next())).expect("a thread");
        sleep_ns(50_000_000);
        let dropper = {
            let (db, table) = (db.clone(), table.clone());
            spawn("dropper", move || gone(&db, &table)).expect("a thread")
        };
        sleep_ns(50_000_000);
        let from = now_ns();
        late(&table);
        let waited = now_ns() - from;
        reader.join().expect("no panic");
        dropper.join().expect("no panic");
        drop(table);
        let named = metadata(&db) - began;
        db.close().expect("closed");
        (waited, named)
    });
    times
}

/// Regression: a thread that came to a tree during its drop, or to the list of indexes during a change, waited without
/// a wait class.
#[test]
fn waiter_behind_a_drop_waits_on_metadata() {
    let drop_table: fn(&Db, &Table) = |db, _| db.drop_table("t").expect("dropped");
    let drop_index: fn(&Db, &Table) = |_, table| table.drop_index("i").expect("dropped");
    let get: fn(&Table) = |table| drop(table.get(b"k").expect_err("dropped"));
    let index: fn(&Table) = |table| drop(table.index("i").expect_err("dropped"));
    for (gone, late) in [(drop_table, get), (drop_index, index)] {
        let (waited, named) = wait_behind_a_drop(gone, late);
        assert!(waited > 300_000_000, "it waited for the reader: {waited}");
        // The wait of the dropping thread was longer.
        assert!(named > 2 * waited, "{waited} waited, {named} named");
    }
}

/// Takes all items, each from the end that `choice` says; returns the first or the second part of each.
fn from_both_ends(
    mut items: impl DoubleEndedIterator<Item = Result<(Vec<u8>, Vec<u8>), Error>>,
    mut choice: u64,
    is_second: bool,
) -> Vec<Vec<u8>> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let is_front = choice >> 63 == 0;
        let Some(item) = (if is_front { items.next() } else { items.next_back() }) else { break };
        let (first, second) = item.expect("read");
        let taken = if is_front { &mut front } else { &mut back };
        taken.push(if is_second { second } else { first });
    }
    front.extend(back.into_iter().rev());
    front
}

/// A writer splits and empties leaves around both places of each scan. Rows that it does not touch come once each, and
/// in order, from a table, from its index, and from the rows by the index.
#[test]
fn scans_from_both_ends_return_other_rows_once_beside_splits() {
    const STAYING: u32 = 240;
    let row = |key: u32| [&key.to_be_bytes()[..], &[1; 150]].concat();
    let stays = |key: &[u8]| u32::from_be_bytes(key.try_into().expect("4 bytes")).is_multiple_of(100);
    let expected: Vec<[u8; 4]> = (0..STAYING).map(|i| (i * 100).to_be_bytes()).collect();
    for seed in 0..6u64 {
        run(seed, || {
            let db = open(&SimulatedDisk::new(), small_options().durability(Durability::None));
            let definition = TableDefinition::new().index("i", [Field::value(0..4)]);
            let table = db.create_table("t", definition).expect("created");
            expected.iter().for_each(|key| table.insert(key, row(u32::from_be_bytes(*key))).expect("inserted"));
            let writer = {
                let table = table.clone();
                spawn("writer", move || {
                    for round in 0..12u32 {
                        let base = (number(seed) * 31 + round * 67) % (STAYING - 20) * 100;
                        let keys = (0..60).map(|i| base + i * 7 + 1).filter(|key| !key.is_multiple_of(100));
                        for key in keys.clone() {
                            table.insert(key.to_be_bytes(), row(key)).expect("inserted");
                        }
                        for key in keys {
                            assert!(table.delete(key.to_be_bytes()).expect("deleted"));
                        }
                    }
                })
                .expect("a thread")
            };
            let index = table.index("i").expect("there");
            for scan in 0..10 {
                let choice = seed * 1000 + scan;
                let staying = |keys: Vec<Vec<u8>>| keys.into_iter().filter(|key| stays(key)).collect::<Vec<_>>();
                let of_table = staying(from_both_ends(table.scan(..), choice, false));
                let by_index = staying(from_both_ends(index.rows(..), choice, false));
                let of_index = staying(from_both_ends(index.scan(..), choice, true));
                assert_eq!(of_table, expected, "seed {seed}: the table");
                assert_eq!(by_index, expected, "seed {seed}: rows by the index");
                assert_eq!(of_index, expected, "seed {seed}: the index");
            }
            writer.join().expect("no panic");
            db.close().expect("closed");
        });
    }
}
