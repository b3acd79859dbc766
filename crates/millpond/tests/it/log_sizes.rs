//! The log's capacity together with the pool's size, with batches, and with another change of the capacity.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::lab::{Device, Files};
use millpond::simulation::{Image, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Error, OptionInfo, Options, WriteBatch};

use crate::support::{disk_of, open, recover, reopen_options, small_options};

/// A pool too large for the log on the device, and the log that it needs.
fn larger_both() -> Options {
    reopen_options().buffer_pool_size(ByteSize::mib(80)).redo_capacity(ByteSize::mib(8))
}

#[test]
fn a_larger_pool_is_had_with_the_larger_log_that_it_needs() {
    let disk = SimulatedDisk::new();
    let (image, _) = run(1, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        (0..40u8).for_each(|row| tree.put([row], [1; 900]).expect("written"));
        // A crash leaves a space without a name.
        let _load = db.begin_bulk_load("l").expect("begun");
        disk.crash_now(Unsynced::None)
    });
    for (at, image) in [image, closed()].into_iter().enumerate() {
        let disk = disk_of(image);
        run(1, || {
            let db = open(&disk, larger_both());
            // Meanwhile the keeper checks the log.
            sleep_ns(200_000_000);
            let stats = db.stats();
            assert_eq!((stats.buffer_pool_pages_total, stats.log_capacity > 4 << 20), (20_480, true));
            db.create_tree("u").expect("created").put(b"k", b"v").expect("written");
            db.close().expect("closed");
        });
        let found = recover(&disk).expect("sound");
        assert_eq!((found["t"].len(), found["u"].len()), ([40, 0][at], 1));
    }
}

/// The options ask for no larger log, but the pool needs one.
#[test]
fn a_larger_pool_has_the_log_made_as_large_as_it_needs() {
    let disk = disk_of(closed());
    let large = || reopen_options().buffer_pool_size(ByteSize::mib(80));
    for round in 0..2 {
        run(1, || {
            let db = open(&disk, large());
            let stats = db.stats();
            assert_eq!((stats.buffer_pool_pages_total, stats.log_capacity > 3 << 20), (20_480, true), "{round}");
            db.open_tree("t").expect("there").put([round], b"v").expect("written");
            db.close().expect("closed");
        });
    }
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 2);
    // An explicit capacity is kept, and refused together with the other mistakes.
    let (refused, _) = run(1, || {
        let options = large().redo_capacity(ByteSize::mib(1)).page_size(ByteSize::kib(64)).read_ahead_pages(65);
        Db::open_on(Arc::new(disk.clone()), options).expect_err("three mistakes").to_string()
    });
    for part in ["page_size is 64KiB", "read_ahead_pages is 65"] {
        assert!(refused.contains(part), "{part} in: {refused}");
    }
    let options = large().redo_capacity(ByteSize::mib(1));
    let (refused, _) = run(1, || Db::open_on(Arc::new(disk.clone()), options).expect_err("too small").to_string());
    assert!(refused.contains("redo_capacity is 1MiB") && refused.contains("leave redo_capacity out"), "{refused}");
}

/// A database with an empty tree.
fn closed() -> Image {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    db.create_tree("t").expect("created");
    db.close().expect("closed");
    disk.image()
}

/// Expectations change no page, and so need no log space for pages. The log's buffer is small, the pool is large.
#[test]
fn a_batch_of_many_expectations_ends() {
    let disk = disk_of(closed());
    run(1, || {
        let db = open(&disk, reopen_options().redo_capacity(ByteSize::mib(8)));
        db.close().expect("closed");
        let db = open(&disk, larger_both());
        let tree = db.open_tree("t").expect("there");
        for rows in [1000, 5000u32] {
            let mut batch = WriteBatch::new();
            (0..rows).for_each(|key| _ = batch.expect(&tree, key.to_be_bytes(), None));
            batch.put(&tree, b"row", b"1");
            db.write(batch).expect("true");
        }
    });
}

/// Removals of files wait until the first file of generation 2 exists.
#[derive(Clone)]
struct Slow {
    disk: SimulatedDisk,
    armed: Arc<AtomicBool>,
    entered: Arc<AtomicBool>,
}

impl Slow {
    fn wait(&self) {
        if self.armed.swap(false, Ordering::Relaxed) {
            self.entered.store(true, Ordering::Relaxed);
            while !self.disk.image().contains_key("redo-2-0.mpd") {
                sleep_ns(1_000_000);
            }
        }
    }
}

impl Files for Slow {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        Files::open(&self.disk, name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.wait();
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.wait();
        self.disk.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

/// One thread asks for a checkpoint, with which the log leaves its first ring for good. Another thread asks for a
/// further capacity meanwhile.
#[test]
fn files_of_a_new_log_are_not_taken_for_old_ones() {
    let disk = disk_of(closed());
    let (images, _) = run(1, || {
        let db = open(&disk, reopen_options());
        let from = disk.boundaries();
        db.set_redo_capacity(ByteSize::mib(1)).expect("changed");
        let history = disk.history();
        (from..history.boundaries()).map(|at| history.crash_image(at, Unsynced::All)).collect::<Vec<_>>()
    });
    let mut between = 0;
    for image in images {
        let disk = disk_of(image);
        let files = Slow { disk: disk.clone(), armed: Arc::default(), entered: Arc::default() };
        run(1, || {
            let db = Db::open_on(Arc::new(files.clone()), reopen_options()).expect("opened");
            let tree = db.open_tree("t").expect("there");
            let log_files = disk.image().keys().filter(|name| name.starts_with("redo-")).count();
            if log_files < 8 {
                return;
            }
            files.armed.store(true, Ordering::Relaxed);
            let (other, done) = (db.clone(), Arc::new(AtomicBool::new(false)));
            let is_done = Arc::clone(&done);
            let checkpoint = spawn("checkpoint", move || {
                let outcome = other.checkpoint();
                is_done.store(true, Ordering::Relaxed);
                outcome
            });
            while !files.entered.load(Ordering::Relaxed) && !done.load(Ordering::Relaxed) {
                sleep_ns(1_000_000);
            }
            if files.entered.load(Ordering::Relaxed) {
                between += 1;
                db.set_redo_capacity(ByteSize::mib(2)).expect("changed");
            }
            checkpoint.expect("a thread").join().expect("no panic").expect("a checkpoint");
            tree.put(b"after", b"acknowledged").expect("written");
            drop(tree);
            db.close().expect("closed");
        });
        let found = recover(&disk).expect("sound");
        assert!(files.entered.load(Ordering::Relaxed) <= found["t"].contains_key(&b"after"[..]));
    }
    assert!(between > 0, "no image has two rings");
}

/// More than an open makes before it returns.
const LARGE: ByteSize = ByteSize::mib(260);

/// The row of the status text about other files for the log.
fn other_files(db: &Db) -> Option<String> {
    let text = db.status_text();
    text.lines().find(|line| line.trim_start().starts_with("other files")).map(str::to_owned)
}

/// The capacity of the log's files.
fn capacity(db: &Db) -> String {
    OptionInfo::find("redo_capacity").and_then(|info| info.get(&db.options())).expect("there")
}

fn log_files(disk: &SimulatedDisk, generation: u32) -> usize {
    let of_ring = format!("redo-{generation}-");
    disk.image().keys().filter(|name| name.starts_with(&of_ring)).count()
}

/// A database with a large log, on a device on which each piece of a new log takes a fifth of a second.
fn open_large(disk: &SimulatedDisk) -> Db {
    (0..4).for_each(|index| disk.slow_down(&format!("redo-1-{index}.mpd"), 200_000_000));
    open(disk, reopen_options().redo_capacity(LARGE))
}

#[test]
fn a_large_log_is_made_beside_the_load() {
    let disk = disk_of(closed());
    run(1, || {
        let db = open_large(&disk);
        let small = capacity(&db);
        assert_ne!(small, "260MiB");
        let told = other_files(&db).expect("told");
        assert!(told.contains("260.0 MiB are being made"), "{told}");
        // No thread is held up: neither a writer, nor a thread that creates or drops a tree.
        let created = db.create_tree("u").expect("created");
        created.put(b"k", b"v").expect("written");
        drop(created);
        db.drop_tree("t").expect("dropped");
        sleep_ns(1_200_000_000);
        assert_eq!((capacity(&db), log_files(&disk, 0), log_files(&disk, 1)), (small, 4, 4));
        // Half of the device's time is left to other threads: one piece each 400 ms.
        let pieces = || disk.history().writes("redo-1-0.mpd").len();
        let before = pieces();
        sleep_ns(4_000_000_000);
        let made = pieces() - before;
        assert!((8..=11).contains(&made), "{made}");
        // A second request for the same log waits for it.
        db.set_redo_capacity(LARGE).expect("made");
        assert_eq!((capacity(&db), other_files(&db)), ("260MiB".to_owned(), None));
        // If the second request made a ring of its own, there would be one of generation 2.
        assert_eq!((log_files(&disk, 0), log_files(&disk, 1), log_files(&disk, 2)), (0, 4, 0));
        db.close().expect("closed");
    });
    assert_eq!(recover(&disk).expect("sound")["u"].len(), 1);
}

#[test]
fn a_database_is_closed_while_a_large_log_is_made() {
    let disk = disk_of(closed());
    run(1, || {
        let db = open_large(&disk);
        let small = capacity(&db);
        db.open_tree("t").expect("there").put(b"k", b"v").expect("written");
        sleep_ns(3_000_000_000);
        // Another thread that asks for this log waits meanwhile, and gets an error.
        let other = db.clone();
        let waits = spawn("other", move || other.set_redo_capacity(LARGE)).expect("a thread");
        sleep_ns(1_000_000);
        db.close().expect("closed");
        assert!(matches!(waits.join().expect("no panic"), Err(Error::Closed(_))));
        assert_eq!((log_files(&disk, 0), log_files(&disk, 1)), (4, 0));
        let db = open(&disk, reopen_options());
        assert_eq!((capacity(&db), other_files(&db)), (small, None));
    });
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 1);
}

/// A stopped engine makes no more files, and an unwinding thread waits for none.
#[test]
fn an_engine_stops_while_a_large_log_is_made() {
    let disk = disk_of(closed());
    run(1, || {
        let db = open_large(&disk);
        disk.refuse_writes("redo-0-0.mpd", true);
        let tree = db.open_tree("t").expect("there");
        assert!(tree.put(b"k", b"v").is_err());
        disk.refuse_writes("redo-0-0.mpd", false);
        assert!(matches!(db.set_redo_capacity(LARGE), Err(Error::ReadOnly(_) | Error::DeviceFailed(_))));
        let told = other_files(&db).expect("told");
        assert!(told.contains("260.0 MiB could not be made: "), "{told}");
        assert_eq!(log_files(&disk, 1), 0);
        drop(tree);
        assert!(db.close().is_err());

        let db = open_large(&disk);
        let unwinds = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let _db = db;
            panic!("as planned");
        }));
        assert!(unwinds.is_err());
        assert_eq!(log_files(&disk, 1), 0);
    });
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 0);
}

#[test]
fn a_crash_while_a_large_log_is_made() {
    let disk = disk_of(closed());
    let (images, _) = run(1, || {
        let db = open_large(&disk);
        let tree = db.open_tree("t").expect("there");
        let images = [1u8, 2].map(|key| {
            tree.put([key], b"v").expect("written");
            sleep_ns(2_000_000_000);
            disk.crash_now([Unsynced::All, Unsynced::None][usize::from(key) - 1])
        });
        db.close().expect("closed");
        images
    });
    for (rows, image) in (1..).zip(images) {
        let disk = disk_of(image);
        run(1, || {
            // Without the option the log is as before, and the unfinished files are gone.
            let db = open(&disk, reopen_options());
            assert_eq!((other_files(&db), log_files(&disk, 1)), (None, 0));
            db.close().expect("closed");
        });
        assert_eq!(recover(&disk).expect("sound")["t"].len(), rows);
    }
}

#[test]
fn large_log_that_cannot_be_made_is_told_and_work_goes_on() {
    let disk = disk_of(closed());
    run(1, || {
        // Too little room.
        let used = disk.image().values().map(Vec::len).sum::<usize>();
        disk.limit_space(Some(u64::try_from(used).expect("small") + (100 << 20)));
        let db = open(&disk, reopen_options().redo_capacity(LARGE));
        db.open_tree("t").expect("there").put(b"i", b"v").expect("written");
        sleep_ns(100_000_000);
        let told = other_files(&db).expect("told");
        assert!(told.contains("260.0 MiB could not be made: no space"), "{told}");
        assert_eq!(log_files(&disk, 1), 0);
        db.close().expect("closed");
        disk.limit_space(None);

        // The device fails later.
        let db = open_large(&disk);
        sleep_ns(1_000_000_000);
        disk.refuse_writes("redo-1-1.mpd", true);
        let failed = db.set_redo_capacity(LARGE);
        assert!(failed.is_err(), "made");
        let told = other_files(&db).expect("told");
        assert!(told.contains("260.0 MiB could not be made: ") && told.contains("redo-1-1.mpd"), "{told}");
        assert_eq!(log_files(&disk, 1), 0);
        db.open_tree("t").expect("there").put(b"k", b"v").expect("written");
        disk.refuse_writes("redo-1-1.mpd", false);
        db.set_redo_capacity(LARGE).expect("made");
        assert_eq!((capacity(&db), other_files(&db)), ("260MiB".to_owned(), None));
        db.close().expect("closed");
    });
    assert_eq!(recover(&disk).expect("sound")["t"].len(), 2);
}

/// On real files: a new database is asked for a larger log at once.
#[test]
fn a_new_database_with_a_large_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::new().cached(true).buffer_pool_size(ByteSize::mib(8)).redo_capacity(LARGE);
    let db = Db::open(dir.path(), options.clone().create(true)).expect("created");
    db.create_tree("t").expect("created").put(b"k", b"v").expect("written");
    db.set_redo_capacity(LARGE).expect("made");
    assert_eq!(capacity(&db), "260MiB");
    db.close().expect("closed");
    let is_of = |ring: &str| {
        let names = std::fs::read_dir(dir.path()).expect("a directory");
        names.filter(|name| name.as_ref().expect("a name").file_name().to_string_lossy().starts_with(ring)).count()
    };
    assert_eq!((is_of("redo-0-"), is_of("redo-1-")), (0, 4));
    let db = Db::open(dir.path(), options).expect("opened");
    assert_eq!(db.open_tree("t").expect("there").get(b"k").expect("read").as_deref(), Some(&b"v"[..]));
}
