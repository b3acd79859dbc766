//! Ends of a database after a failure below it, or the panic of a thread. Nothing acknowledged is lost that the log's
//! files accept, and nothing is written once another process may have the files.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use millpond::classic::EmptyFreeListAlgorithm;
use millpond::simulation::{Image, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Durability, Error, Field, Options, TableDefinition, Tree, WriteBatch};

use crate::support::{IN_PLACE, SLOW, SMALL, Shape, THREADED, disk_of, recover_shaped};

/// Most rows that are written, of 900 bytes: more than the pool has frames for.
const ROWS: u32 = 2_000;

fn put(db: &Db, tree: &Tree, row: u32, durability: Durability) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    batch.put(tree, row.to_be_bytes(), [7; 900]).durability(durability);
    db.write(batch).map(drop)
}

/// Writes rows while writes of `file` are refused, until the engine has stopped; then closes. Returns the number of
/// acknowledged rows, and the error of the close.
fn write_until_stopped(disk: &SimulatedDisk, shape: Shape, file: &str, how: Durability) -> (u32, Error) {
    let db = Db::open_on(Arc::new(disk.clone()), shape.options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    (0..50).for_each(|row| put(&db, &tree, row, Durability::Commit).expect("written"));
    disk.refuse_writes(file, true);
    let acknowledged = (50..ROWS).take_while(|row| put(&db, &tree, *row, how).is_ok()).count();
    // Reads go on.
    assert!(tree.get(0u32.to_be_bytes()).is_ok());
    let closed = db.close().expect_err("the engine had stopped");
    disk.refuse_writes(file, false);
    (50 + u32::try_from(acknowledged).expect("few"), closed)
}

/// REDO-11: the data file refuses writes, the log does not.
#[test]
fn failing_page_writes_lose_no_commit_that_waits_in_the_log() {
    let legacy = Shape { empty: EmptyFreeListAlgorithm::Legacy, ..SMALL };
    for shape in [SMALL, THREADED, IN_PLACE, legacy] {
        for how in [Durability::Background(5_000), Durability::None, Durability::Written] {
            let disk = SimulatedDisk::new();
            let (acknowledged, closed) = run(5, || write_until_stopped(&disk, shape, "data.mpd", how)).0;
            assert!(acknowledged < ROWS && acknowledged > 60, "{shape:?} {how:?}: {acknowledged}");
            assert!(matches!(closed, Error::ReadOnly(_)), "{shape:?} {how:?}: {closed}");
            // The process ends; only synced bytes remain.
            let image = disk.crash_now(millpond::simulation::Unsynced::None);
            let found = run(6, || recover_shaped(&disk_of(image), shape)).0.expect("recovered");
            let missing = (0..acknowledged).filter(|row| !found["t"].contains_key(&row.to_be_bytes()[..])).count();
            assert_eq!(missing, 0, "{shape:?} {how:?}: of {acknowledged} rows");
        }
    }
}

/// The log itself refuses writes. Then the close says how much of it is not durable, and the next open has the rest.
#[test]
fn failing_log_is_told_by_close_with_what_it_lacks() {
    for shape in [SMALL, THREADED] {
        let disk = SimulatedDisk::new();
        let (acknowledged, closed) = run(5, || {
            let files = {
                let db = Db::open_on(Arc::new(disk.clone()), shape.options()).expect("opened");
                db.close().expect("closed");
                disk.image().into_keys().filter(|name| name.starts_with("redo")).collect::<Vec<_>>()
            };
            let db = Db::open_on(Arc::new(disk.clone()), shape.reopen_options()).expect("opened");
            let tree = db.create_tree("t").expect("created");
            put(&db, &tree, 0, Durability::Commit).expect("written");
            files.iter().for_each(|name| disk.refuse_writes(name, true));
            let acknowledged = (1..ROWS).take_while(|row| put(&db, &tree, *row, Durability::None).is_ok()).count();
            let closed = db.close().expect_err("the log has failed").to_string();
            files.iter().for_each(|name| disk.refuse_writes(name, false));
            (acknowledged, closed)
        })
        .0;
        assert!(acknowledged > 0, "{shape:?}");
        assert!(closed.contains("bytes of the log") && closed.contains("may be lost"), "{shape:?}: {closed}");
        let found = run(6, || recover_shaped(&disk_of(disk.image()), shape)).0.expect("recovered");
        assert!(found["t"].contains_key(&0u32.to_be_bytes()[..]), "{shape:?}: the durable rows");
    }
}

/// LEASE-1: an unwinding thread drops the last handle, while another thread's bulk load writes pages.
#[test]
fn database_dropped_in_a_panic_writes_nothing_afterwards() {
    for shape in [SMALL, Shape { empty: EmptyFreeListAlgorithm::Legacy, ..SMALL }] {
        let disk = SimulatedDisk::with_image(millpond::simulation::Image::new(), SLOW);
        run(9, || {
            let db = Db::open_on(Arc::new(disk.clone()), shape.options()).expect("opened");
            let tree = db.create_tree("t").expect("created");
            let mut load = db.begin_bulk_load("loaded").expect("begun");
            let loader = spawn("loader", move || {
                let failed = (0..4_000u32).find_map(|row| load.push(row.to_be_bytes(), [1; 900]).err());
                assert!(failed.is_some() || load.finish().is_err(), "the database is gone");
            })
            .expect("a thread");
            let writer = spawn("writer", move || {
                let written = (0..4_000u32).take_while(|row| tree.put(row.to_be_bytes(), [1; 900]).is_ok());
                assert!(written.count() < 4_000, "the database is gone");
            })
            .expect("a thread");
            disk.slow_down("data.mpd", 40_000_000);
            sleep_ns(300_000_000);
            let unwinds = std::panic::catch_unwind(AssertUnwindSafe(|| {
                let _db = db;
                panic!("as planned");
            }));
            assert!(unwinds.is_err());
            let boundaries = disk.boundaries();
            sleep_ns(5_000_000_000);
            assert_eq!(disk.boundaries(), boundaries, "{shape:?}: another process may have the files");
            loader.join().expect("no panic");
            writer.join().expect("no panic");
            assert_eq!(disk.boundaries(), boundaries, "{shape:?}");
        });
        let found = run(10, || recover_shaped(&disk_of(disk.image()), shape)).0.expect("recovered");
        assert!(!found.contains_key("loaded"), "{shape:?}: a load that was cut short");
    }
}

/// A load that sorts its rows has files. They do not keep other processes from the directory once the database is
/// closed.
#[test]
fn closed_database_is_free_though_a_load_is_held() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || Options::new().cached(true).buffer_pool_size(ByteSize::mib(1)).redo_capacity(ByteSize::mib(8));
    let db = Db::open(dir.path(), options()).expect("opened");
    let definition = TableDefinition::new().index("by_end", [Field::value(0..8)]);
    let mut load = db.begin_bulk_load_table("rows", definition).expect("begun");
    // Enough rows that entries go to files.
    for row in 0..60_000u32 {
        let entry = row.wrapping_mul(2_654_435_761).to_be_bytes().repeat(2);
        load.push(row.to_be_bytes(), &entry).expect("pushed");
    }
    let sort_files = || {
        let names = std::fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("listed").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("sort-")).count()
    };
    assert!(sort_files() > 0, "the load has sorted to files");
    db.close().expect("closed");
    assert_eq!(sort_files(), 0, "closing leaves none");
    assert!(matches!(load.push(u32::MAX.to_be_bytes(), [0; 8]), Err(Error::Closed(_))));
    let db = Db::open(dir.path(), options()).expect("the directory is free");
    assert!(matches!(load.push(u32::MAX.to_be_bytes(), [0; 8]), Err(Error::Closed(_))));
    assert!(matches!(load.finish(), Err(Error::Closed(_))));
    assert!(db.tables().expect("read").is_empty());
    db.close().expect("closed");
}

/// The LSN up to which the newest superblock says that the log is durable, and the superblock's offset.
fn newest_superblock(image: &Image) -> (u64, usize) {
    let data = &image["data.mpd"];
    let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"));
    let at = [0, 64 << 10].into_iter().max_by_key(|at| word(at + 40)).expect("there are two");
    (word(at + 64), at)
}

/// A database that was closed with rows in it, and its options.
fn closed_database() -> (Image, Options) {
    let disk = SimulatedDisk::new();
    let options = || Options::new().buffer_pool_size(ByteSize::mib(4)).redo_capacity(ByteSize::mib(64));
    run(3, || {
        let db = Db::open_on(Arc::new(disk.clone()), options()).expect("opened");
        let tree = db.create_tree("t").expect("created");
        (0..20).for_each(|row| put(&db, &tree, row, Durability::Commit).expect("written"));
        db.close().expect("closed");
    });
    (disk.image(), options())
}

#[test]
fn the_log_of_a_closed_database_is_not_searched_for_more() {
    let (image, options) = closed_database();
    let (_, mark_at) = newest_superblock(&image);
    let calls_of_an_open = |unmarked: bool| {
        let disk = disk_of(image.clone());
        let mark = u64::try_from(mark_at).expect("small") + 256;
        assert!(!unmarked || disk.flip_bit("data.mpd", mark, 0));
        let (calls, _) = run(4, || {
            let db = Db::open_on(Arc::new(disk.clone()), options.clone()).expect("opened");
            let calls = disk.calls();
            let rows = db.open_tree("t").expect("there").scan(..).count();
            assert_eq!(rows, 20);
            calls
        });
        calls
    };
    // 13 MiB in pieces of one.
    let (marked, unmarked) = (calls_of_an_open(false), calls_of_an_open(true));
    assert!(marked + 12 <= unmarked, "{marked} and {unmarked} calls");
}

#[test]
fn an_open_ends_what_a_close_said_of_the_log() {
    let (image, options) = closed_database();
    let disk = disk_of(image);
    let (crashed, _) = run(5, || {
        let db = Db::open_on(Arc::new(disk.clone()), options.clone()).expect("opened");
        let tree = db.open_tree("t").expect("there");
        (20..30).for_each(|row| put(&db, &tree, row, Durability::Commit).expect("written"));
        disk.crash_now(millpond::simulation::Unsynced::All)
    });
    let (durable, _) = newest_superblock(&crashed);
    let disk = disk_of(crashed);
    // The first group that this superblock does not call durable: more follow, and the log must not end before it.
    assert!(disk.flip_bit("redo-0-0.mpd", 4096 + durable + 20, 0), "in the first file");
    let (opened, _) = run(6, || Db::open_on(Arc::new(disk.clone()), options.clone()).map(drop));
    assert!(matches!(&opened, Err(Error::Corruption(why)) if why.contains("more was durable")), "{opened:?}");
}
