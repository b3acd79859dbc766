//! The log begins small and grows beside the load, where that is worth it and room is there.

use std::sync::Arc;

use millpond::simulation::{ServiceTime, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Options, WorkOptions, restore_on};

use crate::crash_matrix::stride;
use crate::support::{SLOW, SMALL, disk_of, open, recover};

/// The log at the begin, and at most.
const FIRST: ByteSize = ByteSize::kib(512);

const MOST: ByteSize = ByteSize::mib(4);

/// A pool of 2 MiB, so that there are as many dirty pages.
fn options() -> Options {
    let options = SMALL.options().buffer_pool_size(ByteSize::mib(2));
    options.redo_capacity_min(FIRST).redo_capacity(MOST)
}

/// The capacity of the log's files, without the reserve.
fn is_about(db: &Db, capacity: ByteSize) -> bool {
    let has = db.stats().log_capacity;
    has < capacity.as_u64() && has > capacity.as_u64() / 2
}

/// Writes row after row until the log has that capacity. Returns the number of rows.
fn load_until(db: &Db, capacity: ByteSize, from: u32) -> u32 {
    let tree = db.open_or_create_tree("t").expect("there");
    let mut rows = from;
    while !is_about(db, capacity) {
        // Each to another leaf than the one before.
        tree.put(rows.reverse_bits().to_be_bytes(), [7; 600]).expect("written");
        rows += 1;
        assert!(rows < from + 20_000, "it has {} bytes", db.stats().log_capacity);
    }
    rows
}

/// The row of the status text about other files for the log.
fn told(db: &Db) -> Option<String> {
    let text = db.status_text();
    text.lines().find(|line| line.trim_start().starts_with("other files")).map(str::to_owned)
}

#[test]
fn log_grows_beside_a_load_up_to_its_capacity() {
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    let (rows, _) = run(1, || {
        let db = open(&disk, options());
        assert!(is_about(&db, FIRST));
        let rows = load_until(&db, ByteSize::mib(2), 0);
        let rows = load_until(&db, MOST, rows);
        let tree = db.open_tree("t").expect("there");
        (0..3000u32).for_each(|row| tree.put(row.to_be_bytes(), [8; 600]).expect("written"));
        sleep_ns(1_000_000_000);
        assert!(is_about(&db, MOST) && told(&db).is_none(), "{:?}", told(&db));
        assert_eq!(db.stats().log_wall_waits, 0);
        db.close().expect("closed");
        rows
    });
    let files = disk.image();
    let rings: Vec<&String> = files.keys().filter(|name| name.starts_with("redo-")).collect();
    assert_eq!(rings, ["redo-2-0.mpd", "redo-2-1.mpd", "redo-2-2.mpd", "redo-2-3.mpd"]);
    assert!(recover(&disk).expect("sound")["t"].len() >= rows as usize);
    // It stays so without the option, and becomes smaller if that is asked for.
    run(1, || {
        let db = open(&disk, options().create(false));
        assert!(is_about(&db, MOST));
        db.close().expect("closed");
        let db = open(&disk, options().create(false).redo_capacity(ByteSize::mib(1)));
        assert!(is_about(&db, ByteSize::mib(1)));
    });
}

/// However often its few rows change.
#[test]
fn log_of_a_small_database_stays_small() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        for turn in 0..20_000u32 {
            tree.put((turn % 100).to_be_bytes(), [turn.to_le_bytes()[0]; 100]).expect("written");
        }
        assert!(db.stats().log_lsn_current > 4 * MOST.as_u64() / 4 && is_about(&db, FIRST));
        db.close().expect("closed");
    });
}

#[test]
fn log_that_finds_no_room_to_grow_stays_and_work_goes_on() {
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    let (rows, _) = run(1, || {
        let db = open(&disk, options());
        // Room for the rows, and not for twice the log of 2 MiB.
        let used: usize = disk.image().values().map(Vec::len).sum();
        disk.limit_space(Some(used as u64 + (7 << 19)));
        let tree = db.create_tree("t").expect("created");
        let mut rows = 0u32;
        while told(&db).is_none_or(|told| !told.contains("could not be made")) {
            tree.put(rows.reverse_bits().to_be_bytes(), [7; 600]).expect("written");
            rows += 1;
            assert!(rows < 5000, "{:?}", told(&db));
        }
        assert!(told(&db).is_some_and(|told| told.contains("4.0 MiB are to be free first")), "{:?}", told(&db));
        (0..rows).for_each(|row| tree.put(row.reverse_bits().to_be_bytes(), [8; 600]).expect("written"));
        assert!(is_about(&db, FIRST));
        disk.limit_space(None);
        let rows = load_until(&db, ByteSize::mib(2), rows);
        assert!(told(&db).is_none_or(|told| !told.contains("could not")));
        db.close().expect("closed");
        rows
    });
    assert_eq!(recover(&disk).expect("sound")["t"].len(), rows as usize);
}

/// Power is lost at moments of the growth: while the files are made, and while the log goes over to them.
#[test]
fn crash_while_the_log_grows_loses_nothing() {
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    let ((history, acknowledged), _) = run(1, || {
        let db = open(&disk, options());
        let tree = db.create_tree("t").expect("created");
        let mut acknowledged = Vec::new();
        while !is_about(&db, ByteSize::mib(2)) {
            let row = u32::try_from(acknowledged.len()).expect("few");
            tree.put(row.reverse_bits().to_be_bytes(), [7; 600]).expect("written");
            acknowledged.push(disk.boundaries());
        }
        for row in 0..50u32 {
            tree.put([9, row.to_le_bytes()[0]], [7; 60]).expect("written");
            acknowledged.push(disk.boundaries());
        }
        (disk.history(), acknowledged)
    });
    // From the first file of the new ring on.
    let first = history.writes("redo-1-0.mpd").first().expect("made").0.saturating_sub(4);
    let mut crashes = 0;
    for (turn, at) in (first..history.boundaries()).step_by(stride(7)).enumerate() {
        let unsynced = if turn % 2 == 0 { Unsynced::None } else { Unsynced::All };
        let disk = disk_of(history.crash_image(at, unsynced));
        run(1, || {
            let options = options().create(false);
            Db::open_on(Arc::new(disk.clone()), options).expect("opened").close().expect("closed");
        });
        let found = recover(&disk).unwrap_or_else(|problem| unreachable!("boundary {at}: {problem}"));
        let wanted = acknowledged.iter().filter(|end| **end <= at).count();
        assert!(found["t"].len() >= wanted, "boundary {at}: {} rows, {wanted} acknowledged", found["t"].len());
        crashes += 1;
    }
    assert!(crashes > 10, "{crashes}");
}

/// While a load has the log grow, a user asks for another capacity: that one stays.
#[test]
fn capacity_that_a_user_sets_beside_growth_stays() {
    for (seed, wanted) in (0..).zip([ByteSize::mib(1), ByteSize::mib(3), ByteSize::mib(8)]) {
        let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
        run(seed, || {
            let db = open(&disk, options());
            let tree = db.create_tree("t").expect("created");
            let writer = spawn("writer", move || {
                (0..3000u32).for_each(|row| tree.put(row.reverse_bits().to_be_bytes(), [7; 600]).expect("written"));
            });
            while told(&db).is_none() {
                sleep_ns(10_000_000);
            }
            db.set_redo_capacity(wanted).expect("set");
            assert!(is_about(&db, wanted), "{wanted}: {}", db.stats().log_capacity);
            writer.expect("a thread").join().expect("no panic");
            sleep_ns(2_000_000_000);
            assert!(is_about(&db, wanted), "{wanted}: {}", db.stats().log_capacity);
            db.close().expect("closed");
        });
        assert_eq!(recover(&disk).expect("sound")["t"].len(), 3000);
    }
}

/// A backup beside a load that fills the small log: the log grows for it, and the backup has all that came before it.
#[test]
fn backup_beside_a_load_has_the_log_grow() {
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    let slower = ServiceTime { write_ns: 10 * SLOW.write_ns, ..SLOW };
    let to = SimulatedDisk::with_image(SimulatedDisk::new().image(), slower);
    let (rows, _) = run(3, || {
        let db = open(&disk, options());
        let tree = db.create_tree("t").expect("created");
        let writers: Vec<_> = (0..3u32)
            .map(|writer| {
                let tree = tree.clone();
                let write = move || {
                    for row in 0..1500u32 {
                        tree.put((3 * row + writer).reverse_bits().to_be_bytes(), [7; 600]).expect("written");
                    }
                };
                spawn("writer", write).expect("a thread")
            })
            .collect();
        sleep_ns(300_000_000);
        let before = tree.scan(..).count();
        db.backup_on(&to, WorkOptions::new()).expect("backed up");
        assert!(!is_about(&db, FIRST), "{}", db.stats().log_capacity);
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        db.close().expect("closed");
        before
    });
    let restored = SimulatedDisk::new();
    restore_on(&to, &restored).expect("restored");
    let found = recover(&restored).expect("sound")["t"].len();
    assert!(rows > 0 && (rows..4500).contains(&found), "{rows} before, {found} in the backup");
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 4500);
}

/// On real files, with all defaults.
#[test]
fn new_database_takes_at_most_24_mib() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path(), Options::new()).expect("created");
    let tree = db.create_tree("t").expect("created");
    (0..300u32).for_each(|row| tree.put(row.to_be_bytes(), [1; 100]).expect("written"));
    db.close().expect("closed");
    let files = std::fs::read_dir(dir.path()).expect("a directory");
    let bytes: u64 = files.map(|file| file.and_then(|file| file.metadata()).expect("there").len()).sum();
    assert!(bytes <= 24 << 20, "{bytes}");
}
