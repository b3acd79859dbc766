//! Purge beside writers, with data much larger than the pool: the undo that waits for purge is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::metrics::WaitClass;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};

use crate::support::{SMALL, Shape, open, settle, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

/// A pool of 2 MiB.
const POOL: Shape = Shape { frames: 512, ..SMALL };

/// Rows of 200 bytes: eight times the pool.
const ROWS: u32 = 80_000;

const WRITERS: u32 = 8;

fn key(place: u32, row: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&place.to_be_bytes());
    key[4..].copy_from_slice(&row.to_be_bytes());
    key
}

/// The first place of row `row`.
fn first_place(row: u32) -> u32 {
    row.wrapping_mul(2_654_435_761)
}

/// A closed database with all rows in tree `t`.
fn loaded() -> Image {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, POOL.options().redo_capacity(ByteSize::mib(64)));
        let mut rows: Vec<_> = (0..ROWS).map(|row| (key(first_place(row), row), [0; 200])).collect();
        rows.sort_unstable();
        drop(db.bulk_load("t", rows).expect("loaded"));
        db.close().expect("closed");
    });
    disk.image()
}

/// Moves rows of `writer`, one after the other, to random places, each after `updates` updates of a row in the pool.
fn move_rows(db: &Db, tree: &Tree, writer: u32, moves: u32, updates: u32) {
    let mut rng = Rng::seed_from_u64(u64::from(writer));
    for row in (0..moves).map(|turn| turn * WRITERS + writer) {
        for update in 0..updates {
            let mut batch = WriteBatch::new();
            batch.put(tree, writer.to_be_bytes(), [update.to_le_bytes()[0]; 200]).durability(Durability::None);
            db.write(batch).expect("written");
        }
        let mut batch = WriteBatch::new();
        batch.delete(tree, key(first_place(row), row)).insert(tree, key(rng.random(), row), [1; 200]);
        batch.durability(Durability::None);
        db.write(batch).expect("written");
    }
}

/// Waits on `metadata` so far.
fn waited_for_metadata(db: &Db) -> u64 {
    db.waits().into_iter().find(|wait| wait.class == WaitClass::Metadata).expect("a class").count
}

#[test]
fn rows_for_purge_are_bounded_with_data_eight_times_the_pool() {
    what_waits_is_bounded(2_000, 0);
}

/// Most records have no work for purge: skipping these does not count as purging.
#[test]
fn what_waits_for_purge_is_bounded_beside_updates() {
    what_waits_is_bounded(1_000, 9);
}

/// The rows, and a large batch over those that no writer moves, which a crash cuts short: the purge thread undoes it
/// leaf by leaf, and purges nothing meanwhile.
fn loaded_beside_a_loser(time: ServiceTime) -> Image {
    let disk = SimulatedDisk::with_image(loaded(), time);
    run(1, || {
        let db = open(&disk, POOL.reopen_options());
        let tree = db.open_tree("t").expect("there");
        let (mut batch, mut value) = (WriteBatch::new(), [0; 200]);
        value[0] = 9;
        for row in (ROWS / 2..ROWS).step_by(60) {
            batch.put(&tree, key(first_place(row), row), value);
        }
        let writer = {
            let db = db.clone();
            spawn("writer", move || db.write(batch)).expect("a thread")
        };
        while db.stats().data_page_reads < u64::from(ROWS / 2 / 60) * 3 / 4 {
            sleep_ns(1_000_000);
        }
        assert_eq!(db.stats().batches_in_flight, 1);
        let image = disk.image();
        writer.join().expect("no panic").expect("written");
        drop(tree);
        db.close().expect("closed");
        image
    })
    .0
}

/// Eight writers. Each delete of theirs leaves a row in a leaf that soon leaves the pool.
fn what_waits_is_bounded(moves: u32, updates: u32) {
    let slow_reads = ServiceTime { read_ns: 1_000_000, write_ns: 100_000, sync_ns: 1_000_000 };
    let disk = SimulatedDisk::with_image(loaded_beside_a_loser(slow_reads), slow_reads);
    run(1, || {
        let db = open(&disk, POOL.reopen_options());
        let tree = db.open_tree("t").expect("there");
        let waited = waited_for_metadata(&db);
        assert_eq!(db.stats().batches_in_flight, 1);
        let ended = Arc::new(AtomicU32::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, tree, ended) = (db.clone(), tree.clone(), Arc::clone(&ended));
                let work = move || {
                    move_rows(&db, &tree, writer, moves, updates);
                    ended.fetch_add(1, Ordering::SeqCst);
                };
                spawn("writer", work).expect("a thread")
            })
            .collect();
        let mut most = 0;
        while ended.load(Ordering::SeqCst) < WRITERS {
            sleep_ns(10_000_000);
            most = most.max(db.stats().purge_pages);
        }
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        // PURGE-1: up to 32 pages, and at most one that each writer has just begun; below 16 no writer takes part.
        assert!((16..=32 + u64::from(WRITERS)).contains(&most), "{most} undo pages waited for purge");
        // Writers that take part wait neither for each other, nor for threads that create or drop trees.
        assert_eq!(waited_for_metadata(&db), waited);
        settle(&db);
        drop(tree);
        db.close().expect("closed");
    });
    let report = sound(&disk);
    let updated = if updates > 0 { u64::from(WRITERS) } else { 0 };
    assert_eq!((report.entries, report.deleted_rows), (1 + u64::from(ROWS) + updated, 0));
}
