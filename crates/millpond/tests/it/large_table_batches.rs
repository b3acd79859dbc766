//! Large batches over rows of tables, beside other writers of the same rows: they end, and rows and entries agree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond::simulation::{SimulatedDisk, run, sleep_ns, spawn};
use millpond::{Db, Error, Field, Modify, Table, TableDefinition, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::support::{SLOW, open, settle, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A row whose first four bytes are unique in its table, and whose next four are not.
fn row(number: u32, shared: u32) -> Vec<u8> {
    [&key(number ^ 0xF0F0)[..], &key(shared), &[7; 400]].concat()
}

fn shared_of(row: &[u8]) -> u32 {
    u32::from_be_bytes([row[4], row[5], row[6], row[7]])
}

fn create(db: &Db, name: &str) -> Table {
    let definition = TableDefinition::new().unique("own", [Field::value(0..4)]).index("shared", [Field::value(4..8)]);
    db.create_table(name, definition).expect("created")
}

/// Until the batch has ended, single updates of its rows do not end either: it has all their locks, or waits only for
/// threads that make progress.
#[test]
fn a_large_batch_ends_beside_updates_that_do_not() {
    const ROWS: u32 = 600;
    for seed in 0..4 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options());
            let table = create(&db, "t");
            (0..ROWS).for_each(|number| table.insert(key(number), row(number, 0)).expect("inserted"));
            let is_over = Arc::new(AtomicBool::new(false));
            let updates = Arc::new(AtomicU32::new(0));
            let writers: Vec<_> = (0..2u64)
                .map(|id| {
                    let (table, is_over, updates) = (table.clone(), Arc::clone(&is_over), Arc::clone(&updates));
                    let work = move || {
                        let mut rng = Rng::seed_from_u64(seed * 10 + id);
                        while !is_over.load(Ordering::SeqCst) {
                            let number = rng.random_range(0..ROWS);
                            let increment = |row: Option<&[u8]>| {
                                let row = row.expect("no thread deletes one");
                                let shared = (shared_of(row) + 1).to_be_bytes();
                                Modify::Put([&row[..4], &shared, &row[8..]].concat())
                            };
                            table.modify(key(number), increment).expect("updated");
                            updates.fetch_add(1, Ordering::SeqCst);
                            sleep_ns(10_000_000);
                        }
                    };
                    spawn("writer", work).expect("a thread")
                })
                .collect();
            for round in 1..=3 {
                sleep_ns(500_000_000);
                let mut batch = WriteBatch::new();
                for number in 0..ROWS {
                    batch.put(&table, key(number), row(number, round * 1000));
                }
                db.write(batch).expect("written");
            }
            is_over.store(true, Ordering::SeqCst);
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            assert_eq!(db.stats().rollbacks, 0, "no batch was done twice");
            assert!(updates.load(Ordering::SeqCst) > 60, "beside {} updates", updates.load(Ordering::SeqCst));
            let rows: Vec<_> = table.scan(..).map(|row| row.expect("read").1).collect();
            assert!(rows.len() == 600 && rows.iter().all(|row| shared_of(row) >= 3000), "{} rows", rows.len());
            settle(&db);
            drop(table);
            db.close().expect("closed");
        });
        sound(&disk);
    }
}

/// Batches that read rows, batches that only insert, and batches of trees, over the same two tables and a tree between
/// them: there is no circular wait.
#[test]
fn large_batches_over_tables_and_trees_do_not_wait_in_a_circle() {
    const ROWS: u32 = 300;
    for seed in 0..6 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("a").expect("created");
            let first = create(&db, "b");
            let between = db.create_tree("c").expect("created");
            let second = create(&db, "d");
            for number in 0..ROWS {
                first.insert(key(number), row(number, 0)).expect("inserted");
                second.insert(key(number), row(number, 0)).expect("inserted");
            }
            let threads: Vec<_> = (0..4u32)
                .map(|id| {
                    let (db, tree, between) = (db.clone(), tree.clone(), between.clone());
                    let (first, second) = (first.clone(), second.clone());
                    let work = move || {
                        let mut rng = Rng::seed_from_u64(seed * 10 + u64::from(id));
                        let mut refused = 0;
                        for round in 0..3 {
                            let mut batch = WriteBatch::new();
                            // Some batches have only new rows, some of which all clients share.
                            let only_inserts = (id + round) % 3 == 0;
                            for _ in 0..160 {
                                let number = rng.random_range(0..ROWS);
                                let new = 1000 + rng.random_range(0..4000u32);
                                let table = if rng.random_bool(0.5) { &first } else { &second };
                                match rng.random_range(0..6u32) {
                                    0 | 1 => drop(batch.put(&tree, key(number), [1; 100])),
                                    2 => drop(batch.put(&between, key(number), [2; 100])),
                                    3 => drop(batch.insert(table, key(new), row(new, id))),
                                    _ if only_inserts => {}
                                    4 => drop(batch.delete(table, key(number))),
                                    _ => drop(batch.put(table, key(number), row(number, id))),
                                }
                            }
                            match db.write(batch) {
                                Ok(_) => {}
                                Err(Error::KeyExists(_)) => refused += 1,
                                Err(error) => unreachable!("{error}"),
                            }
                        }
                        refused
                    };
                    spawn("writer", work).expect("a thread")
                })
                .collect();
            let refused: u32 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
            assert!(refused < 12, "some are written");
            settle(&db);
            drop((tree, between, first, second));
            db.close().expect("closed");
        });
        sound(&disk);
    }
}

/// One batch reads rows, and gives one of them a unique value. Another batch, which only inserts, has the same value
/// for its own row, and a row of another table that the first has locked. One of them is refused, and neither waits for
/// ever.
#[test]
fn reading_and_inserting_batches_keep_one_order() {
    const ROWS: u32 = 300;
    let mut refused = [0, 0];
    for seed in 0..12 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options());
            let (first, between) = (create(&db, "a"), db.create_tree("b").expect("created"));
            let second = create(&db, "c");
            (0..ROWS).for_each(|number| second.insert(key(number), row(number, 0)).expect("inserted"));
            let mut reads = WriteBatch::new();
            for number in 0..ROWS {
                reads.put(&second, key(number), row(number, 1));
            }
            reads.put(&second, key(9000), row(9000, 1)).put(&first, key(1), row(77, 1));
            let mut inserts = WriteBatch::new();
            for number in 0..ROWS {
                inserts.put(&between, key(number), [3; 500]);
            }
            inserts.insert(&first, key(2), row(77, 2)).insert(&second, key(9000), row(9000, 2));
            let ended = Arc::new(AtomicU32::new(0));
            let writers = [(reads, 0), (inserts, 10_000_000 * seed)].map(|(batch, late_ns)| {
                let (db, ended) = (db.clone(), Arc::clone(&ended));
                let work = move || {
                    sleep_ns(late_ns);
                    let result = db.write(batch);
                    ended.fetch_add(1, Ordering::SeqCst);
                    result
                };
                spawn("writer", work).expect("a thread")
            });
            // Virtual seconds: a hundred times as long as both batches take.
            (0..600).take_while(|_| ended.load(Ordering::SeqCst) < 2).for_each(|_| sleep_ns(1_000_000_000));
            assert_eq!(ended.load(Ordering::SeqCst), 2, "seed {seed}: they wait for each other");
            let results = writers.map(|writer| writer.join().expect("no panic"));
            for (refused, result) in refused.iter_mut().zip(&results) {
                *refused += u32::from(matches!(result, Err(Error::KeyExists(_))));
            }
            assert!(results.iter().filter(|result| result.is_ok()).count() == 1, "{results:?}");
            settle(&db);
            drop((first, between, second));
            db.close().expect("closed");
        });
        sound(&disk);
    }
    assert_eq!(refused.iter().sum::<u32>(), 12);
}

/// A large batch checks its expectation of a row once the row is locked.
#[test]
fn expectations_of_a_large_batch_hold_or_nothing_is_changed() {
    const ROWS: u32 = 600;
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options());
        let table = create(&db, "t");
        (0..ROWS).for_each(|number| table.insert(key(number), row(number, 0)).expect("inserted"));
        let write = |expected: u32| {
            let mut batch = WriteBatch::new();
            for number in 0..ROWS {
                batch.expect(&table, key(number), Some(&row(number, if number == 599 { expected } else { 0 })));
                // The rows exchange their unique values.
                let other = [&row(ROWS - 1 - number, 0)[..4], &row(number, 5)[4..]].concat();
                batch.update(&table, key(number), &other);
            }
            db.write(batch)
        };
        assert!(matches!(write(1), Err(Error::Conflict(_))));
        settle(&db);
        assert!((0..ROWS).all(|number| table.get(key(number)).expect("read") == Some(row(number, 0))));
        write(0).expect("written");
        let own = table.index("own").expect("there");
        assert_eq!(own.get(&row(0, 0)[..4]).expect("read").map(|(key, _)| key), Some(key(ROWS - 1).to_vec()));
        drop((table, own));
        db.close().expect("closed");
    });
    sound(&disk);
}
