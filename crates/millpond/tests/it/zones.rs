//! Zones that are emptied: only if writes are the cost, without loss, and without hiding damage.

use millpond::inspect::{CheckOptions, check_on};
use millpond::lab::{SlowFiles, Speed};
use millpond::metrics::Stats;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, run, sleep_ns};
use millpond::{ByteSize, Db, Durability, Options, Tree, WriteBatch};
use rand::{RngExt, SeedableRng};
use std::sync::Arc;

use crate::crash_matrix::{Oracle, Recorded, check_images, stride};
use crate::support::{SMALL, Shape, disk_of, open};

/// A device on which every write costs the same, whatever its length. Twelve frames of a hundred have a page.
const BOUND_BY_WRITES: ServiceTime = ServiceTime { read_ns: 200_000, write_ns: 3_000_000, sync_ns: 4_000_000 };

const SHAPE: Shape = Shape { frames: 120, ..SMALL };

/// Rows of `loose`, four to a page: zones are some 60 % full.
const ROWS: u32 = 5000;

/// For every so many rows of `loose` there is one of `quiet`, so that their pages are in the same zones.
const QUIET: u32 = 20;

fn options() -> Options {
    SHAPE.options().redo_capacity(ByteSize::mib(2))
}

fn put(db: &Db, tree: &Tree, row: u32, value: u8, durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(tree, row.to_be_bytes(), [value; 900]).durability(durability);
    db.write(batch).expect("written");
}

/// A closed database with pages written in the order of their rows, with rows of `quiet` or without.
fn start(with_quiet: bool) -> Image {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options());
        let trees = ["loose", "quiet", "a"].map(|name| db.create_tree(name).expect("created"));
        for row in 0..ROWS {
            put(&db, &trees[0], row, 1, Durability::None);
            if with_quiet && row % QUIET == 0 {
                put(&db, &trees[1], row, 7, Durability::None);
            }
        }
        db.close().expect("closed");
    });
    disk.image()
}

/// Updates random rows, each on another page, and now and then a row of `a` with a durable commit.
fn update(disk: &SimulatedDisk, db: &Db, oracle: &Oracle, updates: u32) -> Stats {
    let (loose, a) = (db.open_tree("loose").expect("there"), db.open_tree("a").expect("there"));
    let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
    for turn in 0..updates {
        put(db, &loose, rng.random_range(0..ROWS), 2, Durability::None);
        if turn % 16 == 0 {
            let row = rng.random_range(0..40_u32);
            let value = turn.to_le_bytes()[0];
            let effects = vec![(("a", row.to_be_bytes().to_vec()), Some(vec![value; 900]))];
            oracle.note(disk, 0, effects, || {
                put(db, &a, row, value, Durability::Commit);
                Ok(())
            });
        }
        if turn % 256 == 0 {
            sleep_ns(300_000_000);
        }
    }
    db.stats()
}

/// The same on a device that is bound by writes.
fn update_bound_by_writes(disk: &SimulatedDisk, oracle: &Oracle, updates: u32) -> Stats {
    let db = open(disk, SHAPE.reopen_options());
    let stats = update(disk, &db, oracle, updates);
    db.close().expect("closed");
    stats
}

#[test]
fn zones_are_emptied_where_writes_cost_and_crashes_lose_nothing() {
    let disk = SimulatedDisk::with_image(start(false), BOUND_BY_WRITES);
    let oracle = Oracle::default();
    let (stats, trace) = run(2, || update_bound_by_writes(&disk, &oracle, 4000));
    assert!(stats.data_zones_emptied > 10 && stats.data_pages_moved > 500, "{stats:?}");
    assert!(stats.pace_write_cost_ns > 50 * stats.pace_page_cost_ns, "{stats:?}");
    let recorded = Recorded { shape: SHAPE, history: disk.history(), oracle, trace };
    let boundaries = recorded.history.boundaries();
    let images = check_images(&recorded, boundaries / 2, stride(boundaries / 40), |found, boundary| {
        // Every row has its old value, or the only other value ever written.
        let loose = found.get("loose").ok_or("no tree 'loose'")?;
        let is_one_of_two = |value: &Vec<u8>| *value == [1; 900] || *value == [2; 900];
        if loose.len() != ROWS as usize || !loose.values().all(is_one_of_two) {
            return Err(format!("{} rows of 'loose', or other values than were written", loose.len()));
        }
        recorded.oracle.compare(found, boundary)
    });
    assert!(images > 100, "{images} of {boundaries}");
}

/// Hardly a page is dirty when a zone is emptied: all its pages are moved unchanged.
#[test]
fn clean_zones_are_emptied_and_not_filled_again() {
    let disk = SimulatedDisk::with_image(start(false), BOUND_BY_WRITES);
    let (stats, _) = run(2, || {
        let db = open(&disk, SHAPE.reopen_options());
        let loose = db.open_tree("loose").expect("there");
        let mut rng = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(3);
        for turn in 0..3000_u32 {
            put(&db, &loose, rng.random_range(0..ROWS), turn.to_le_bytes()[0], Durability::None);
            if turn % 32 == 0 {
                db.checkpoint().expect("everything clean");
                sleep_ns(100_000_000);
            }
        }
        let stats = db.stats();
        db.close().expect("closed");
        stats
    });
    assert!(stats.data_pages_moved > 500, "{stats:?}");
    // The file is 54 % full: the emptiest zone has at most 139 pages of 256.
    assert!(stats.data_pages_moved <= stats.data_zones_emptied * 139, "moved, and not done with: {stats:?}");
}

#[test]
fn zones_are_hardly_emptied_where_bytes_are_what_costs() {
    let disk = SimulatedDisk::with_image(start(false), ServiceTime { read_ns: 20_000, write_ns: 0, sync_ns: 100_000 });
    let (stats, _) = run(2, || {
        let speed = Speed { writes_per_s: 1e6, bytes_per_s: 2000.0 * 4096.0, slower: Vec::new() };
        let files = SlowFiles::new(Arc::new(disk.clone()), speed).only("data.mpd");
        let db = Db::open_on(Arc::new(files), SHAPE.reopen_options()).expect("opened");
        let stats = update(&disk, &db, &Oracle::default(), 4000);
        db.close().expect("closed");
        stats
    });
    assert!(stats.data_page_writes > 2000 && stats.pace_page_cost_ns > 400_000, "{stats:?}");
    assert!(stats.data_pages_moved < stats.data_page_writes / 5, "now and then, to measure the cost: {stats:?}");
}

/// A damaged page in a zone to be emptied stays damaged, and is reported: it gets no new checksum.
#[test]
fn a_damaged_page_is_not_made_whole_by_being_moved() {
    let mut image = start(true);
    let data = image.get_mut("data.mpd").expect("there");
    // Somewhere in values of `quiet`, which the test never reads.
    let mut flipped = 0;
    for page in data.chunks_mut(4096).skip(8) {
        let is_quiet = page.windows(800).step_by(100).any(|bytes| bytes.iter().all(|byte| *byte == 7));
        if is_quiet {
            let at = page.iter().position(|byte| *byte == 7).expect("there");
            page[at + 100] ^= 4;
            flipped += 1;
        }
    }
    let damaged = |disk: &SimulatedDisk| {
        let report = check_on(Arc::new(disk.clone()), &CheckOptions::default()).expect("checked");
        report.problems.iter().filter(|problem| problem.contains("checksum")).count()
    };
    let before = damaged(&disk_of(image.clone()));
    assert!(flipped > 20 && before > 20, "{before} of {flipped}");
    let disk = SimulatedDisk::with_image(image, BOUND_BY_WRITES);
    let (stats, _) = run(2, || update_bound_by_writes(&disk, &Oracle::default(), 3000));
    assert!(stats.data_zones_emptied > 3 && stats.data_pages_moved > 20, "{stats:?}");
    assert_eq!(damaged(&disk_of(disk.image())), before);
}
