//! Batches of several groups in hard cases: a full disk, damage, readers of undo pages beside them, rebuilds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::inspect::{CheckOptions, check_on};
use millpond::simulation::{Image, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Tree, WriteBatch};

use crate::crash_matrix::seeds;
use crate::support::{SLOW, contents, disk_of, open, reopen_options, small_options};

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn rows(tree: &Tree, count: u32, fill: u8, len: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    (0..count).for_each(|number| {
        batch.put(tree, key(16 * number), vec![fill; len]);
    });
    batch
}

/// A key that is put and deleted within a batch, with an expectation in between.
#[test]
fn what_a_large_batch_deletes_in_the_end_is_not_there() {
    for large in [false, true] {
        let disk = SimulatedDisk::new();
        run(1, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            let mut batch = if large { rows(&tree, 600, 1, 700) } else { WriteBatch::new() };
            batch.put(&tree, b"gone", b"x").expect(&tree, b"gone", Some(b"x")).delete(&tree, b"gone");
            db.write(batch).expect("written");
            assert_eq!(tree.get(b"gone").expect("read"), None, "large: {large}");
        });
    }
}

/// A batch takes the last room for undo records, and fails for want of more: it must be undone.
#[test]
fn a_batch_that_has_taken_the_last_undo_page_is_undone() {
    const ROWS: u32 = 1200;
    let disk = SimulatedDisk::new();
    run(4, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let fill = db.create_tree("fill").expect("created");
        db.write(rows(&tree, ROWS, 1, 750)).expect("written");
        sleep_ns(5_000_000_000);
        disk.limit_space(Some(disk.image().values().map(|file| file.len() as u64).sum()));
        let mut number = 0;
        while fill.put(key(number), [7; 900]).is_ok() {
            number += 1;
        }
        sleep_ns(5_000_000_000);
        let before = contents(&db).expect("read");
        let mut batch = WriteBatch::new();
        for number in 0..ROWS {
            batch.put(&tree, key(16 * number), b"short");
            batch.insert(&tree, key(16 * number + 8), [2; 600]);
        }
        let error = db.write(batch).expect_err("no undo page is left");
        assert!(matches!(error, Error::OutOfSpace(_)), "{error}");
        for _ in 0..60 {
            sleep_ns(1_000_000_000);
        }
        assert!(contents(&db).expect("read") == before, "readers see the rows from before");
        drop((tree, fill));
        db.close().expect("closed");
        let db = open(&disk, reopen_options());
        for _ in 0..60 {
            sleep_ns(1_000_000_000);
        }
        let stats = db.stats();
        assert_eq!(stats.batches_in_flight, 0, "opened again, a minute later: writers of these rows wait for ever");
    });
}

/// An unreadable undo page, in a database that was closed with nothing in flight.
#[test]
fn damaged_undo_page_leaves_the_rows_readable() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        for number in 0..100 {
            tree.put(key(number), [1; 300]).expect("written");
        }
        for number in 0..100 {
            tree.put(key(number), [2; 300]).expect("written");
        }
        drop(tree);
        db.close().expect("closed");
    });
    let mut image = disk.image();
    let data = image.get_mut("data.mpd").expect("there");
    let mut hit = 0;
    for page in data[1 << 20..].chunks_mut(4096) {
        let id = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
        if page[4] == 1 && id >> 32 == 1 {
            page[3000] ^= 1;
            hit += 1;
        }
    }
    assert!(hit > 0);
    let disk = disk_of(image);
    run(1, || {
        let db = open(&disk, reopen_options());
        let tree = db.open_tree("t").expect("there");
        assert!(tree.scan(..).all(|row| row.expect("read").1 == [2; 300]));
        tree.put(key(1), [3; 300]).expect("written");
        drop((tree, db));
        let report = check_on(Arc::new(disk.clone()), &CheckOptions::default()).expect("checked");
        assert!(report.problems.iter().any(|problem| problem.contains("page 1:")), "{:?}", report.problems);
    });
}

/// A rebuild without the map: committed batches stay.
#[test]
fn a_rebuild_undoes_no_batch_that_was_committed() {
    let mut lost = Vec::new();
    for seed in 4..8u64 {
        let disk = SimulatedDisk::with_image(Image::new(), SLOW);
        let (expected, _) = run(seed, || {
            let db = open(&disk, small_options());
            let tree = db.create_tree("t").expect("created");
            db.write(rows(&tree, 300, 1, 700)).expect("written");
            sleep_ns(3_000_000_000);
            db.write(rows(&tree, 300, 2, 700)).expect("written");
            // Undo pages are freed; the log goes on for some laps.
            sleep_ns(3_000_000_000);
            let few = db.create_tree("few").expect("created");
            for turn in 0..3000u32 {
                few.put(key(turn % 4), [u8::try_from(turn % 251).expect("small"); 600]).expect("written");
            }
            let expected = contents(&db).expect("read");
            drop((tree, few));
            db.close().expect("closed");
            expected
        });
        for (what, lose) in crate::rebuild::LOSSES {
            let mut image = disk.image();
            lose(&mut image);
            let again = disk_of(image);
            let (found, _) = run(1, || {
                let report = crate::rebuild::rebuild(&again).expect("rebuilt");
                let db = open(&again, reopen_options());
                let in_flight = db.stats().batches_in_flight;
                let at_once = contents(&db);
                sleep_ns(5_000_000_000);
                let later = contents(&db);
                let rollbacks = db.stats().rollbacks;
                drop(db);
                let is_right =
                    |found: Result<_, Error>| found.map_err(|e| e.to_string()).map(|found| found == expected);
                (report.lost, in_flight, rollbacks, is_right(at_once), is_right(later))
            });
            if found.3 != Ok(true) || found.4 != Ok(true) {
                lost.push(format!("seed {seed}, {what} lost: (report.lost, in flight, undone, right) {found:?}"));
            }
        }
    }
    assert!(lost.is_empty(), "committed batches were undone:\n{}", lost.join("\n"));
}

/// Readers need an undo page that is being reused.
#[test]
fn readers_and_undo_pages_that_are_used_again() {
    const ROWS: u32 = 200;
    for seed in 0..seeds(1, 6) {
        let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
        run(seed, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            db.write(rows(&tree, ROWS, 1, 700)).expect("written");
            let over = Arc::new(AtomicBool::new(false));
            let readers: Vec<_> = (0..8u32)
                .map(|id| {
                    let (tree, over) = (tree.clone(), Arc::clone(&over));
                    spawn("reader", move || {
                        let mut turn = id;
                        while !over.load(Ordering::Relaxed) {
                            turn = (turn * 7 + 13) % ROWS;
                            sleep_ns(100_000);
                            let row = tree.get(key(16 * turn)).expect("read").expect("there");
                            assert_eq!(row.len(), 700);
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            let writers: Vec<_> = (0..3u8)
                .map(|id| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("writer", move || {
                        for turn in 0..4u8 {
                            db.write(rows(&tree, ROWS, 10 * id + turn, 700)).expect("written");
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            over.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
            drop(tree);
            db.close().expect("closed");
        });
    }
}

/// The damaged leaf of a batch that was in flight when the process ended: the check reports the damage.
#[test]
fn a_check_of_a_crashed_database_with_damage_reports() {
    let disk = SimulatedDisk::with_image(Image::new(), SLOW);
    let (image, _) = run(3, || {
        let db = open(&disk, small_options().buffer_pool_size(ByteSize::kib(160)));
        let tree = db.create_tree("t").expect("created");
        db.write(rows(&tree, 300, 1, 700)).expect("written");
        db.checkpoint().expect("done");
        let client = {
            let (db, tree) = (db.clone(), tree.clone());
            spawn("client", move || db.write(rows(&tree, 300, 2, 700)).expect("written")).expect("a thread")
        };
        while db.stats().batches_in_flight == 0 {
            sleep_ns(1_000_000);
        }
        let before = db.stats().data_page_writes;
        while db.stats().data_page_writes < before + 60 && db.stats().batches_in_flight > 0 {
            sleep_ns(1_000_000);
        }
        let image = disk.crash_now(millpond::simulation::Unsynced::All);
        client.join().expect("no panic");
        image
    });
    // Damages one leaf at a time.
    let slots = (image["data.mpd"].len() - (1 << 20)) / 4096;
    let (mut refused, mut first) = (0, None);
    for slot in 0..slots {
        let mut image = image.clone();
        let data = image.get_mut("data.mpd").expect("there");
        let page = &mut data[(1 << 20) + slot * 4096..][..4096];
        let id = u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"));
        if page[4] != 1 || page[5] != 0 || id >> 32 != 2 {
            continue;
        }
        page[3000] ^= 1;
        let disk = disk_of(image);
        let (opens, _) = run(1, || Db::open_on(Arc::new(disk.clone()), reopen_options()).is_ok());
        let (report, _) = run(1, || check_on(Arc::new(disk.clone()), &CheckOptions::default()));
        if opens && report.is_err() {
            refused += 1;
            first = first.or(Some((slot, report)));
        }
    }
    assert_eq!(refused, 0, "the database opens, and check gives up at its first damaged leaf: {first:?}");
}
