//! Shared parts of the bulk load tests: the requirements of every load.

use std::collections::BTreeMap;
use std::sync::Mutex;

use millpond::metrics::Stats;
use millpond::simulation::{History, Image, ServiceTime, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, PageStoreKind, WriteBatch};

use crate::rebuild::{LOSSES, rebuild};
use crate::support::{SMALL, Shape, disk_of, open, recover, recover_shaped, reopen_options, small_options};

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) const SLOW: ServiceTime = ServiceTime { read_ns: 100_000, write_ns: 3_000_000, sync_ns: 6_000_000 };

/// `count` rows that are not all alike. `round` tells the rows of two loads apart.
pub(crate) fn rows(count: u32, len: usize, round: u8) -> Rows {
    (0..count).map(|row| (row.to_be_bytes().to_vec(), vec![round; len / 2 + row as usize * 37 % len])).collect()
}

/// The rows in another order.
pub(crate) fn shuffled(rows: &Rows) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
    let all: Vec<_> = rows.iter().collect();
    (0..all.len()).map(move |turn| all[turn * 7919 % all.len()])
}

pub(crate) fn shapes() -> impl Iterator<Item = Shape> {
    [4, 16].into_iter().flat_map(|page_kib| {
        [PageStoreKind::CopyOnWrite, PageStoreKind::InPlace].map(|store| Shape { page_kib, store, ..SMALL })
    })
}

/// The rows of `old`: in more pages than the map directory holds entries.
fn old() -> Rows {
    rows(120, 300, 1)
}

/// A closed database with tree `old`.
pub(crate) fn start(shape: Shape) -> Image {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, shape.options());
        db.bulk_load("old", old()).expect("loaded");
        db.close().expect("closed");
    });
    disk.image()
}

/// Slots in use when no write is under way.
pub(crate) fn slots_in_use(db: &Db) -> u64 {
    // Twice: the second checkpoint makes the records of the first durable, and frees their slots.
    db.checkpoint().expect("done");
    db.checkpoint().expect("done");
    let Stats { data_slots_total, data_slots_free, .. } = db.stats();
    data_slots_total - data_slots_free
}

/// Whether files of a sort are left.
pub(crate) fn is_left(image: &Image) -> bool {
    image.keys().any(|name| name.starts_with("sort-"))
}

/// A load beside a client, from the begin to behind its end.
pub(crate) struct Recorded {
    pub(crate) history: History,
    /// Boundary at which the load was acknowledged.
    pub(crate) loaded: usize,
    /// When each row of the client was acknowledged: boundary, key.
    written: Vec<(usize, u32)>,
}

/// A run in which `load` makes `t`, and `behind` follows it.
pub(crate) fn record(shape: Shape, seed: u64, load: impl FnOnce(&Db), behind: impl FnOnce(&Db)) -> Recorded {
    let disk = SimulatedDisk::with_image(start(shape), SLOW);
    let ((loaded, written), _) = run(seed, || {
        let db = open(&disk, shape.reopen_options());
        let (other, seen) = (db.clone(), disk.clone());
        let client = spawn("client", move || {
            let tree = other.open_tree("old").expect("there");
            let mut written = Vec::new();
            for turn in 0..12u32 {
                tree.put((1000 + turn).to_be_bytes(), [4; 900]).expect("written");
                written.push((seen.boundaries(), 1000 + turn));
                sleep_ns(10_000_000);
            }
            written
        });
        load(&db);
        let loaded = disk.boundaries();
        let written = client.expect("a thread").join().expect("no panic");
        behind(&db);
        db.close().expect("closed");
        (loaded, written)
    });
    Recorded { history: disk.history(), loaded, written }
}

/// Recovers from a crash at every `step`th boundary: `t` has all the rows `wanted`, or does not exist.
pub(crate) fn check_all_or_nothing(shape: Shape, recorded: &Recorded, wanted: &Rows, step: usize) {
    let (all, seen) = (recorded.history.boundaries(), Mutex::new([0, 0]));
    let check = |boundary: usize| {
        for mode in [Unsynced::None, Unsynced::All, Unsynced::Subset(boundary as u64), Unsynced::Torn(7)] {
            let image = recorded.history.crash_image(boundary, mode);
            let found = match recover_shaped(&disk_of(image), shape) {
                Ok(found) => found,
                // A page of `old` that was written in place.
                Err(problem) if shape.store == PageStoreKind::InPlace && problem.contains("checksum mismatch") => {
                    assert!(matches!(mode, Unsynced::Torn(_)), "crash at {boundary} with {mode:?}: {problem}");
                    continue;
                }
                Err(problem) => unreachable!("{shape:?}: crash at {boundary} of {all} with {mode:?}: {problem}"),
            };
            let t = found.get("t").map(|t| wanted.iter().all(|(key, value)| t.get(key) == Some(value)));
            seen.lock().expect("not poisoned")[usize::from(t.is_some())] += 1;
            assert!(t != Some(false), "crash at {boundary} with {mode:?}: half a tree");
            assert!(t.is_some() || boundary < recorded.loaded, "crash at {boundary} with {mode:?}: no tree");
            assert!(!found.contains_key("u"));
            let rows = recorded.written.iter().filter(|(at, _)| *at <= boundary);
            assert!(rows.clone().all(|(_, key)| found["old"].contains_key(&key.to_be_bytes()[..])));
        }
    };
    std::thread::scope(|scope| {
        let check = &check;
        for half in 0..2 {
            scope.spawn(move || (0..=all).step_by(step).skip(half).step_by(2).for_each(check));
        }
    });
    let seen = seen.into_inner().expect("not poisoned");
    assert!(seen[0] > 25 && seen[1] > 25, "{shape:?}: {seen:?}");
}

/// Rebuilds after a crash at every `step`th boundary: `t` has all the rows `wanted`, or does not exist.
pub(crate) fn check_rebuilds(recorded: &Recorded, wanted: &Rows, step: usize) {
    let mut seen = [0, 0];
    for boundary in (0..=recorded.history.boundaries()).step_by(step) {
        for (what, lose) in LOSSES {
            let mut image = recorded.history.crash_image(boundary, Unsynced::Subset(boundary as u64));
            lose(&mut image);
            let disk = disk_of(image);
            let context = format!("crash at {boundary}, {what} lost");
            let report = rebuild(&disk).unwrap_or_else(|error| unreachable!("{context}: {error}"));
            assert_eq!(report.lost, Vec::<String>::new(), "{context}");
            let found = recover(&disk).unwrap_or_else(|problem| unreachable!("{context}: {problem}"));
            let t = found.get("t").map(|t| wanted.iter().all(|(key, value)| t.get(key) == Some(value)));
            seen[usize::from(t.is_some())] += 1;
            assert!(t != Some(false) && (t.is_some() || boundary < recorded.loaded), "{context}: {t:?}");
        }
    }
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
}

/// Loads `t`, with each call to the device failing once: `t` has the rows `wanted`, or does not exist. Returns the
/// numbers of acknowledged and of refused loads.
pub(crate) fn check_failing_calls(wanted: &Rows, load: impl Fn(&Db) -> Result<(), Error>) -> (u32, u32) {
    let image = start(SMALL);
    let (mut loaded, mut refused) = (0, 0);
    for call in 0.. {
        let disk = disk_of(image.clone());
        let (outcome, _) = run(call, || {
            let db = open(&disk, reopen_options());
            let first = disk.calls();
            disk.fail_at(first + call, std::io::ErrorKind::Other);
            let outcome = load(&db);
            let calls = disk.calls() - first;
            disk.fail_at(u64::MAX, std::io::ErrorKind::Other);
            let _ = db.close();
            (outcome, calls)
        });
        let found = recover(&disk).expect("sound");
        assert_eq!(found["old"], old());
        let is_whole = found.get("t").map(|t| t == wanted);
        match outcome {
            (Ok(()), calls) => {
                loaded += 1;
                assert_eq!(is_whole, Some(true), "call {call}");
                if calls <= call {
                    break;
                }
            }
            (Err(_), _) => {
                refused += 1;
                assert!(is_whole != Some(false), "call {call}");
            }
        }
    }
    (loaded, refused)
}

/// Loads `t` by `load`, which gets the seed, and closes the database meanwhile, `later_ns` later with each seed. `t`
/// has the rows `wanted`, or does not exist. Returns how many loads the close ended.
pub(crate) fn check_closing(
    seeds: u64,
    later_ns: u64,
    wanted: &Rows,
    load: impl Fn(&Db, u64) -> Result<(), Error> + Copy + Send + 'static,
) -> u32 {
    let mut ended = 0;
    for seed in 0..seeds {
        let disk = SimulatedDisk::with_image(start(SMALL), SLOW);
        let (end, _) = run(seed, || {
            let db = open(&disk, reopen_options());
            let other = db.clone();
            let loader = spawn("load", move || load(&other, seed)).expect("a thread");
            sleep_ns(later_ns * (seed + 1));
            db.close().expect("closed");
            loader.join().expect("no panic")
        });
        assert!(!is_left(&disk.image()));
        let found = recover(&disk).expect("sound");
        match end {
            Ok(()) => assert_eq!(&found["t"], wanted),
            Err(Error::Closed(_)) => {
                ended += 1;
                assert!(!found.contains_key("t"));
            }
            Err(other) => unreachable!("{other}"),
        }
    }
    ended
}

/// Three concurrent loads by `load`, and a writer, in a log with room for little more than the map records of the pages
/// in flight.
pub(crate) fn check_beside_each_other(
    load: impl Fn(&Db, &str, u8) -> Result<(), Error> + Copy + Send + 'static,
    wanted: impl Fn(u8) -> Rows,
) {
    let options = small_options().buffer_pool_size(ByteSize::kib(256)).redo_capacity(ByteSize::kib(512));
    for seed in 0..3 {
        let disk = SimulatedDisk::with_image(Image::new(), SLOW);
        run(seed, || {
            let db = open(&disk, options.clone());
            let old = db.create_tree("old").expect("created");
            let loaders: Vec<_> = (0..3u8)
                .map(|number| {
                    let db = db.clone();
                    spawn("load", move || load(&db, &format!("load {number}"), number)).expect("a thread")
                })
                .collect();
            for turn in 0..900u32 {
                let mut batch = WriteBatch::new();
                batch.put(&old, (turn * 7919 % 400).to_be_bytes(), [5; 800]).durability(Durability::None);
                db.write(batch).expect("written");
                sleep_ns(100_000);
            }
            for loader in loaders {
                loader.join().expect("no panic").expect("loaded");
            }
            drop(old);
            db.close().expect("closed");
        });
        let found = recover(&disk).expect("sound");
        assert!((0..3u8).all(|number| found[&format!("load {number}")] == wanted(number)));
    }
}
