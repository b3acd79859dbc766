//! Batches of several groups: all or nothing, for readers, for other writers, and in a crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millpond::metrics::WaitClass;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::stride;
use crate::support::{SLOW, contents, disk_of, open, recover, reopen_options, settle, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A value of generation `generation`, of a length that changes with it.
fn value(number: u32, generation: u32) -> Vec<u8> {
    let len = 500 + (number * 37 + generation * 211) % 400;
    generation.to_le_bytes().iter().copied().cycle().take(usize::try_from(len).expect("short")).collect()
}

fn generation_of(value: &[u8]) -> u32 {
    u32::from_le_bytes([value[0], value[1], value[2], value[3]])
}

/// All rows get this generation. Odd generations delete the rows with remainder 3.
fn all_rows(tree: &Tree, rows: u32, generation: u32) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for number in 0..rows {
        if generation % 2 == 1 && number % 4 == 3 {
            batch.delete(tree, key(number));
        } else {
            batch.put(tree, key(number), value(number, generation));
        }
    }
    batch
}

fn row_lock_waits(db: &Db) -> u64 {
    db.waits().iter().filter(|wait| wait.class == WaitClass::RowLock).map(|wait| wait.count).sum()
}

/// Puts `rows` rows, four to a page.
fn put_all(tree: &Tree, rows: u32, generation: u32) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for row in 0..rows {
        batch.put(tree, key(row), [&generation.to_be_bytes()[..], &[7; 900]].concat());
    }
    batch
}

#[test]
fn a_batch_may_be_larger_than_pool_and_log_buffer() {
    const ROWS: u32 = 2000;
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        for generation in 2..6 {
            db.write(all_rows(&tree, ROWS, generation)).expect("written");
            let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read")).collect();
            let expected = (0..ROWS).filter(|number| generation % 2 == 0 || number % 4 != 3);
            let expected: Vec<_> = expected.map(|number| (key(number).to_vec(), value(number, generation))).collect();
            assert!(rows == expected, "generation {generation}: {} rows, not {}", rows.len(), expected.len());
        }
        let mut batch = WriteBatch::new();
        (0..ROWS).for_each(|number| {
            batch.delete(&tree, key(number));
        });
        db.write(batch).expect("written");
        assert_eq!(tree.scan(..).count(), 0);
        settle(&db);
        let stats = db.stats();
        assert!(stats.undo_pages <= 40, "{stats:?}");
        assert_eq!(stats.rollbacks, 0);
        drop(tree);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// The last key of a batch does not meet the batch's demand. The changes of earlier groups are undone, earlier delete
/// marks are still purged, and the rows can be written again.
#[test]
fn a_batch_that_fails_late_has_changed_nothing() {
    const ROWS: u32 = 600;
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    run(2, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        db.write(all_rows(&tree, ROWS, 2)).expect("written");
        settle(&db);
        let mut generation = 3;
        for round in 0..6 {
            db.write(all_rows(&tree, ROWS, generation)).expect("written");
            let before = contents(&db).expect("read");
            // At once: rows just deleted return before purge has run.
            let mut batch = all_rows(&tree, ROWS, generation + 1);
            match round % 3 {
                0 => batch.insert(&tree, key(ROWS - 2), b"there already"),
                1 => batch.update(&tree, key(ROWS + 9), b"never there"),
                _ => batch.expect(&tree, key(ROWS - 2), Some(b"something else")),
            };
            let error = db.write(batch).expect_err("refused");
            let is_it = match round % 3 {
                0 => matches!(error, Error::KeyExists(_)),
                1 => matches!(error, Error::KeyNotFound(_)),
                _ => matches!(error, Error::Conflict(_)),
            };
            assert!(is_it, "{error}");
            assert!(contents(&db).expect("read") == before, "round {round}: seen while it is undone");
            // The batch is undone already: a writer does not wait.
            tree.put(key(1), value(1, generation)).expect("written");
            assert!(contents(&db).expect("read") == before, "round {round}: undone");
            generation += 2;
        }
        settle(&db);
        let stats = db.stats();
        assert_eq!((stats.rollbacks, row_lock_waits(&db)), (6, 0), "undone before the error was returned");
        drop(tree);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0, "deleted rows that came again for a while are purged");
}

/// So slow to read that a batch stays in flight for long.
const SLOW_READS: ServiceTime = ServiceTime { read_ns: 30_000_000, write_ns: 100_000, sync_ns: 1_000_000 };

/// A slow disk with a closed database of trees with so many rows of the first generation.
fn slow_disk_of<const TREES: usize>(trees: [(&str, u32); TREES]) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options());
        for (name, rows) in trees {
            let tree = db.create_tree(name).expect("created");
            db.write(put_all(&tree, rows, 1)).expect("written");
        }
        settle(&db);
        db.close().expect("closed");
    });
    SimulatedDisk::with_image(disk.image(), SLOW_READS)
}

/// A batch overwrites delete marks, purge comes for them meanwhile and finds none, and the batch is undone: the
/// restored marks go, too. One batch keeps purge away until the rows are overwritten, another keeps the batch in
/// flight.
#[test]
fn delete_marks_that_come_back_behind_purge_are_removed() {
    let rows = [60, 1200, 2400];
    let disk = slow_disk_of([("t", rows[0]), ("u", rows[1]), ("v", rows[2])]);
    run(2, || {
        let db = open(&disk, reopen_options());
        let [t, u, v] = ["t", "u", "v"].map(|name| db.open_tree(name).expect("there"));
        let write = |batch: WriteBatch| {
            let db = db.clone();
            let writer = spawn("writer", move || db.write(batch)).expect("a thread");
            sleep_ns(1_000_000_000);
            writer
        };
        let first = write(put_all(&u, rows[1], 2));
        let mut delete = WriteBatch::new();
        for row in 0..rows[0] {
            delete.delete(&t, key(row));
        }
        db.write(delete).expect("deleted");
        let second = write(put_all(&v, rows[2], 2));
        let mut undone = put_all(&t, rows[0], 3);
        undone.insert(&v, key(0), b"there already");
        let undone = write(undone);
        assert_eq!(db.stats().batches_in_flight, 3);
        first.join().expect("no panic").expect("written");
        sleep_ns(1_000_000_000);
        assert_eq!(db.stats().batches_in_flight, 2, "purge has time between the first and the second");
        second.join().expect("no panic").expect("written");
        assert!(matches!(undone.join().expect("no panic"), Err(Error::KeyExists(_))));
        settle(&db);
        drop((t, u, v));
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// Readers beside batches, some of which fail at the end. No reader sees a row of a batch before its acknowledgement,
/// or of a failed batch. A reader that looks after the acknowledgement sees the whole batch.
#[test]
fn readers_see_nothing_of_a_batch_before_its_commit() {
    const ROWS: u32 = 120;
    for seed in 0..6u64 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        let (in_flight, _) = run(seed, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            db.write(all_rows(&tree, ROWS, 2)).expect("written");
            // The last acknowledged generation, the generation under way, and whether the test is over.
            let state = Arc::new(Mutex::new((2u32, 2u32, false)));
            let readers: Vec<_> = (0..3u64)
                .map(|id| {
                    let (db, tree, state) = (db.clone(), tree.clone(), Arc::clone(&state));
                    spawn("reader", move || read_beside(&db, &tree, &state, ROWS, seed * 10 + id)).expect("a thread")
                })
                .collect();
            for generation in (4..16).step_by(2) {
                let fails = generation % 6 == 0;
                let mut batch = all_rows(&tree, ROWS, generation);
                if fails {
                    batch.update(&tree, key(ROWS + 1), b"never there");
                }
                if !fails {
                    state.lock().expect("no panic").1 = generation;
                }
                let written = db.write(batch);
                assert_eq!(written.is_err(), fails, "{written:?}");
                if !fails {
                    state.lock().expect("no panic").0 = generation;
                }
            }
            state.lock().expect("no panic").2 = true;
            let seen: u64 = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
            drop(tree);
            db.close().expect("closed");
            seen
        });
        assert!(in_flight > 20, "seed {seed}: {in_flight} looks at rows beside a batch in flight");
        sound(&disk);
    }
}

/// Reads until the test is over. Returns how often a batch was in flight meanwhile.
fn read_beside(db: &Db, tree: &Tree, state: &Mutex<(u32, u32, bool)>, rows: u32, seed: u64) -> u64 {
    let mut rng = Rng::seed_from_u64(seed);
    let mut in_flight = 0;
    loop {
        let (acknowledged, _, is_over) = *state.lock().expect("no panic");
        if is_over {
            return in_flight;
        }
        in_flight += db.stats().batches_in_flight.min(1);
        sleep_ns(500_000);
        let first = rng.random_range(0..rows);
        let found: Vec<_> = match rng.random_range(0..3) {
            0 => vec![tree.get(key(first)).expect("read").expect("there")],
            1 => tree.scan(&key(first)[..]..&key(first + 9)[..]).map(|row| row.expect("read").1).collect(),
            _ => tree.scan(&key(first)[..]..&key(first + 9)[..]).rev().map(|row| row.expect("read").1).collect(),
        };
        let under_way = state.lock().expect("no panic").1;
        assert!(!found.is_empty());
        for value in found {
            let seen = generation_of(&value);
            assert!(acknowledged <= seen && seen <= under_way, "{seen}, between {acknowledged} and {under_way}");
            assert_ne!(seen % 6, 0, "of a batch that fails");
        }
    }
}

/// Batches over the same rows, and single writers between them: the last batch has all rows, and no thread waits for
/// ever.
#[test]
fn batches_over_the_same_rows_come_one_after_the_other() {
    const ROWS: u32 = 90;
    for seed in 0..8u64 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            let other = db.create_tree("u").expect("created");
            let writers: Vec<_> = (0..4u32)
                .map(|id| {
                    let (db, tree, other) = (db.clone(), tree.clone(), other.clone());
                    spawn("writer", move || {
                        for turn in 0..3 {
                            let generation = 2 * (id * 3 + turn) + 2;
                            let mut batch = all_rows(&tree, ROWS, generation);
                            (0..ROWS).for_each(|number| {
                                batch.put(&other, key(number), value(number, generation));
                            });
                            if turn == 1 {
                                batch.insert(&other, key(ROWS / 2), b"there already");
                            }
                            assert_eq!(db.write(batch).is_err(), turn == 1);
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            let single = {
                let (db, tree, other) = (db.clone(), tree.clone(), other.clone());
                spawn("single", move || {
                    let mut rng = Rng::seed_from_u64(seed);
                    for turn in 0..40u32 {
                        // Rows of both trees at once, which no other thread writes.
                        let number = ROWS + rng.random_range(0..9);
                        let mut batch = WriteBatch::new();
                        batch.put(&tree, key(number), value(number, turn));
                        batch.put(&other, key(number), value(number, turn));
                        // A shared row, mostly locked. It is left as it is.
                        let busy = rng.random_range(0..ROWS);
                        let found = other.get(key(busy)).expect("read");
                        batch.expect(&other, key(busy), found.as_deref());
                        match db.write(batch) {
                            Ok(_) | Err(Error::Conflict(_)) => {}
                            Err(other) => unreachable!("{other}"),
                        }
                    }
                })
                .expect("a thread")
            };
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            single.join().expect("no panic");
            assert!(row_lock_waits(&db) > 0);
            for tree in [&tree, &other] {
                let rows = tree.scan(..&key(ROWS)[..]).map(|row| generation_of(&row.expect("read").1));
                let generations: std::collections::BTreeSet<u32> = rows.collect();
                assert_eq!(generations.len(), 1, "seed {seed}: {generations:?}");
            }
            let pairs = |tree: &Tree| tree.scan(&key(ROWS)[..]..).map(|row| row.expect("read")).collect::<Vec<_>>();
            assert!(pairs(&tree) == pairs(&other));
            settle(&db);
            assert_eq!(db.stats().rollbacks, 4);
            drop((tree, other));
            db.close().expect("closed");
        });
        sound(&disk);
    }
}

/// A row that a batch only checked, or tried to delete in vain, stays unchanged until the batch commits.
#[test]
fn what_a_batch_looked_at_stays_as_it_is() {
    const ROWS: u32 = 120;
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    run(3, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        db.write(all_rows(&tree, ROWS, 2)).expect("written");
        tree.put(b"\0", b"as it is").expect("written");
        settle(&db);
        let order = Arc::new(Mutex::new(Vec::new()));
        // In front of all other rows: one expected and kept, one expected to be absent, one deleted though it is
        // absent.
        let mut batch = all_rows(&tree, ROWS, 4);
        batch.expect(&tree, b"\0", Some(b"as it is")).expect(&tree, b"\0\0", None).delete(&tree, b"\0\0\0");
        let others: Vec<_> = [&b"\0"[..], b"\0\0", b"\0\0\0"]
            .into_iter()
            .map(|name| {
                let (db, tree, order) = (db.clone(), tree.clone(), Arc::clone(&order));
                spawn("other", move || {
                    while db.stats().batches_in_flight == 0 {
                        sleep_ns(1_000_000);
                    }
                    // The batch has written its first part by now.
                    sleep_ns(20_000_000);
                    assert_eq!(db.stats().batches_in_flight, 1, "the batch is too short for this test");
                    tree.put(name, b"new").expect("written");
                    order.lock().expect("no panic").push("other");
                })
                .expect("a thread")
            })
            .collect();
        db.write(batch).expect("written");
        order.lock().expect("no panic").insert(0, "batch");
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert_eq!(*order.lock().expect("no panic"), ["batch", "other", "other", "other"]);
        assert_eq!(row_lock_waits(&db), 3);
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// The disk fills up in the middle of a batch: it is undone, though leaves were filled up or split meanwhile.
#[test]
fn a_batch_that_finds_the_disk_full_is_undone() {
    const ROWS: u32 = 400;
    let disk = SimulatedDisk::new();
    run(4, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        db.write(all_rows(&tree, ROWS, 2)).expect("written");
        settle(&db);
        let before = contents(&db).expect("read");
        disk.limit_space(Some(disk.image().values().map(|file| file.len() as u64).sum()));
        let mut batch = WriteBatch::new();
        // First all rows become short. Then rows come that need more room than there is.
        (0..ROWS).for_each(|number| {
            batch.put(&tree, key(number), b"short");
        });
        (ROWS..20_000).for_each(|number| {
            batch.put(&tree, key(number), value(number, 3));
        });
        let error = db.write(batch).expect_err("the disk is full");
        assert!(matches!(error, Error::OutOfSpace(_)), "{error}");
        assert!(contents(&db).expect("read") == before, "while it is undone");
        settle(&db);
        assert!(contents(&db).expect("read") == before, "undone");
        tree.put(key(5), value(5, 2)).expect("rows are updated still");
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// The history of one client's batches over two trees; the batch of generation 4 is refused. Returns for each other
/// batch its begin and acknowledgement in the history, and its generation.
fn recorded(seed: u64, rows: u32) -> (millpond::simulation::History, Vec<(usize, usize, u32)>) {
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    let (notes, _) = run(seed, || {
        let db = open(&disk, small_options());
        let trees = ["a", "b"].map(|name| db.create_tree(name).expect("created"));
        let mut notes = Vec::new();
        for generation in 2..6u32 {
            let mut batch = all_rows(&trees[0], rows, generation);
            (0..rows).for_each(|number| {
                batch.put(&trees[1], key(number), value(number, generation));
            });
            let began = disk.boundaries();
            if generation == 4 {
                batch.update(&trees[1], key(rows + 1), b"never there");
                db.write(batch).expect_err("refused");
            } else {
                db.write(batch).expect("written");
                notes.push((began, disk.boundaries(), generation));
            }
        }
        drop(trees);
        db.close().expect("closed");
        notes
    });
    (disk.history(), notes)
}

/// The required contents after a crash at `boundary`: the newest acknowledged batch, or the batch under way.
fn compare(found: &crate::support::Contents, boundary: usize, notes: &[(usize, usize, u32)], rows: u32) {
    let certain = notes.iter().rfind(|(_, end, _)| *end <= boundary).map(|note| note.2);
    let under_way = notes.iter().find(|(began, end, _)| *began < boundary && boundary < *end).map(|note| note.2);
    let generations: std::collections::BTreeSet<u32> =
        found.values().flat_map(BTreeMap::values).map(|value| generation_of(value)).collect();
    assert!(generations.len() <= 1, "crash at {boundary}: rows of batches {generations:?}");
    let generation = generations.first().copied();
    assert!(generation == certain || generation == under_way, "{boundary}: {generation:?} {certain:?} {under_way:?}");
    if let Some(generation) = generation {
        let gone = if generation % 2 == 1 { rows.div_ceil(4) } else { 0 };
        let count = |tree: &str| u32::try_from(found[tree].len()).expect("few");
        assert_eq!((count("a"), count("b")), (rows - gone, rows), "crash at {boundary}, batch {generation}");
    }
}

fn crash_modes(boundary: usize) -> [Unsynced; 4] {
    let seed = u64::try_from(boundary).expect("small");
    [Unsynced::None, Unsynced::All, Unsynced::Subset(seed), Unsynced::Torn(seed)]
}

#[test]
fn a_crash_at_any_io_leaves_all_of_a_batch_or_nothing() {
    const ROWS: u32 = 60;
    let (history, notes) = recorded(5, ROWS);
    for boundary in (0..=history.boundaries()).step_by(stride(3)) {
        for mode in crash_modes(boundary) {
            let disk = disk_of(history.crash_image(boundary, mode));
            let (found, _) = run(1, || recover(&disk));
            match found {
                Ok(found) => compare(&found, boundary, &notes, ROWS),
                // Before the database existed.
                Err(problem) => assert!(boundary < notes[0].0, "crash at {boundary} with {mode:?}: {problem}"),
            }
        }
    }
}

/// The same, with another crash during each rollback.
#[test]
fn a_crash_while_a_batch_is_undone_changes_nothing() {
    const ROWS: u32 = 60;
    let (history, notes) = recorded(6, ROWS);
    let mut undone = 0;
    let step = history.boundaries() / 12;
    for boundary in (notes[0].0..history.boundaries()).step_by(step) {
        let image: Image = history.crash_image(boundary, Unsynced::All);
        let again = SimulatedDisk::with_image(image, SLOW);
        let (rollbacks, _) = run(1, || {
            let db = open(&again, reopen_options());
            let before = contents(&db).expect("read");
            compare(&before, boundary, &notes, ROWS);
            settle(&db);
            assert!(contents(&db).expect("read") == before, "crash at {boundary}");
            let rollbacks = db.stats().rollbacks;
            db.close().expect("closed");
            rollbacks
        });
        assert_eq!(sound(&again).deleted_rows, 0);
        undone += rollbacks;
        let second = again.history();
        for at in (0..second.boundaries()).step_by(stride(5)) {
            for mode in crash_modes(at) {
                let disk = disk_of(second.crash_image(at, mode));
                let (found, _) = run(1, || recover(&disk));
                compare(
                    &found.unwrap_or_else(|e| unreachable!("{boundary} {at} {mode:?}: {e}")),
                    boundary,
                    &notes,
                    ROWS,
                );
            }
        }
    }
    assert!(undone >= 3, "{undone} batches were undone");
}

/// Trees are dropped while their rows are locked, waited for, or undone. A close comes in the middle of that.
#[test]
fn trees_are_dropped_and_the_database_closed_beside_batches() {
    for seed in 0..10u64 {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options());
            let trees = ["t", "u"].map(|name| db.create_tree(name).expect("created"));
            for tree in &trees {
                db.write(all_rows(tree, 80, 2)).expect("written");
            }
            let clients: Vec<_> = (0..3u32)
                .map(|id| {
                    let (db, trees) = (db.clone(), trees.clone());
                    spawn("client", move || {
                        for turn in 0..4u32 {
                            let mut batch = all_rows(&trees[0], 80, 4 + turn * 2);
                            (0..80).for_each(|number| {
                                batch.put(&trees[1], key(number), value(number, 6));
                            });
                            if turn % 2 == 0 {
                                batch.insert(&trees[1], key(70), b"there already");
                            }
                            match db.write(batch) {
                                Ok(_) | Err(Error::KeyExists(_) | Error::TreeNotFound(_) | Error::Closed(_)) => {}
                                Err(other) => unreachable!("client {id}: {other}"),
                            }
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            sleep_ns(50_000_000 * seed);
            let name = if seed % 2 == 0 { "t" } else { "u" };
            db.drop_tree(name).expect("dropped");
            sleep_ns(100_000_000);
            drop(trees);
            db.close().expect("closed");
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
        });
        let (found, _) = run(seed, || recover(&disk));
        let found = found.unwrap_or_else(|problem| unreachable!("seed {seed}: {problem}"));
        assert_eq!(found.len(), 1);
        let generations: std::collections::BTreeSet<u32> =
            found.values().flat_map(BTreeMap::values).map(|value| generation_of(value)).collect();
        assert_eq!(generations.len(), 1, "seed {seed}: {generations:?}");
    }
}

/// On real threads: batches over all rows by several writers, single updates, and readers that scan.
#[test]
fn batches_and_readers_on_real_threads() {
    const ROWS: u32 = 300;
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options().buffer_pool_size(ByteSize::kib(512)).durability(Durability::None));
    let tree = db.create_tree("t").expect("created");
    db.write(all_rows(&tree, ROWS, 2)).expect("written");
    std::thread::scope(|scope| {
        for id in 0..3u32 {
            let (db, tree) = (&db, &tree);
            scope.spawn(move || {
                for turn in 0..8u32 {
                    let generation = 6 * (turn * 3 + id) + 2 + 2 * (turn % 2);
                    let mut batch = all_rows(tree, ROWS, generation);
                    if turn % 4 == 3 {
                        batch.update(tree, key(ROWS + 1), b"never there");
                    }
                    assert_eq!(db.write(batch).is_err(), turn % 4 == 3);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..60 {
                let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read")).collect();
                assert_eq!(rows.len(), 300);
            }
        });
    });
    let generations: std::collections::BTreeSet<u32> =
        tree.scan(..).map(|row| generation_of(&row.expect("read").1)).collect();
    assert_eq!(generations.len(), 1, "{generations:?}");
    drop(tree);
    db.close().expect("closed");
    let undo_pages = sound(&disk).undo_pages;
    // Some 60 for a batch. Those of a batch that failed wait for purge while the next is written.
    assert!(undo_pages < 4 * 65, "{undo_pages}");
}

/// The process ends while a batch is in flight. Another writer has committed rows since that batch began, so their
/// transactions have higher ids. While the next open still undoes the batch, readers see these rows as they were
/// committed, and writers need not wait for them.
#[test]
fn rows_committed_beside_an_unfinished_batch_survive_a_crash() {
    let rows = 1200;
    let disk = slow_disk_of([("t", rows), ("u", 20)]);
    let (image, _) = run(2, || {
        let db = open(&disk, reopen_options());
        let [t, u] = ["t", "u"].map(|name| db.open_tree(name).expect("there"));
        let batch = {
            let (db, t) = (db.clone(), t.clone());
            spawn("writer", move || db.write(put_all(&t, rows, 2))).expect("a thread")
        };
        sleep_ns(1_000_000_000);
        for (generation, row) in [2, 3].into_iter().flat_map(|generation| (0..20).map(move |row| (generation, row))) {
            u.put(key(row), value(row, generation)).expect("written");
        }
        assert_eq!(db.stats().batches_in_flight, 1);
        let image = disk.image();
        batch.join().expect("no panic").expect("written");
        drop((t, u));
        db.close().expect("closed");
        image
    });
    let disk = SimulatedDisk::with_image(image, SLOW_READS);
    run(3, || {
        let db = open(&disk, reopen_options());
        let [t, u] = ["t", "u"].map(|name| db.open_tree(name).expect("there"));
        for row in 0..20 {
            assert_eq!(u.get(key(row)).expect("read"), Some(value(row, 3)), "row {row}");
        }
        u.put(key(0), value(0, 4)).expect("written");
        assert_eq!(db.stats().batches_in_flight, 1, "all of this while the batch is undone");
        settle(&db);
        assert_eq!(u.get(key(0)).expect("read"), Some(value(0, 4)));
        assert!(t.scan(..).all(|row| row.expect("read").1.starts_with(&1u32.to_be_bytes())));
        drop((t, u));
        db.close().expect("closed");
    });
}

/// Batches in parts that delete keys that are not there, beside others over the same keys: an attempt that is given up
/// keeps no lock, or two batches would wait for each other (LOCK-3).
#[test]
fn batches_that_delete_absent_keys_do_not_wait_in_circles() {
    for seed in 0..8u64 {
        run(seed, || {
            let disk = SimulatedDisk::new();
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            let writers: Vec<_> = (0..4u64)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    let work = move || {
                        let mut random = Rng::seed_from_u64(seed * 10 + id);
                        for turn in 0..40u8 {
                            let mut batch = WriteBatch::new();
                            for _ in 0..40 {
                                let key = random.random_range(0..40u16).to_be_bytes();
                                if random.random_range(0..3) == 0 {
                                    batch.put(&tree, key, [turn; 300]);
                                } else {
                                    batch.delete(&tree, key);
                                }
                            }
                            // Too large for one group.
                            (100..180u16).for_each(|key| _ = batch.put(&tree, key.to_be_bytes(), [turn; 700]));
                            db.write(batch).expect("written");
                        }
                    };
                    spawn("writer", work).expect("a thread")
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            assert_eq!(db.deadlocks().len(), 0, "seed {seed}");
            drop(tree);
            db.close().expect("closed");
        });
    }
}
