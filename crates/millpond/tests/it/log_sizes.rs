//! The log's capacity beside the pool's size, batches, and another change of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::simulation::{Image, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{ByteSize, Db, Device, Files, Options, WriteBatch};

use crate::support::{disk_of, open, recover, reopen_options, small_options};

/// A pool that the log on the device is too small for, and the log that it needs.
fn larger_both() -> Options {
    reopen_options().buffer_pool_size(ByteSize::mib(80)).redo_capacity(ByteSize::mib(8))
}

#[test]
fn a_larger_pool_is_had_with_the_larger_log_that_it_needs() {
    let disk = SimulatedDisk::new();
    let (image, _) = run(1, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        (0..40u8).for_each(|row| tree.put(&[row], &[1; 900]).expect("written"));
        // A crash leaves a space without a name.
        let _load = db.begin_bulk_load("l").expect("begun");
        disk.crash_now(Unsynced::None)
    });
    for (at, image) in [image, closed()].into_iter().enumerate() {
        let disk = disk_of(image);
        run(1, || {
            let db = open(&disk, larger_both());
            // The keeper looks at the log meanwhile.
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

/// A database with an empty tree.
fn closed() -> Image {
    let disk = SimulatedDisk::new();
    let db = open(&disk, small_options());
    db.create_tree("t").expect("created");
    db.close().expect("closed");
    disk.image()
}

/// What is expected changes no page: it needs no room in the log for one. The log's buffer is small, the pool is large.
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
            (0..rows).for_each(|key| _ = batch.expect(&tree, &key.to_be_bytes(), None));
            batch.put(&tree, b"row", b"1");
            db.write(batch).expect("true");
        }
    });
}

/// Who removes a file waits until the first one of generation 2 is there.
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

/// One thread asks for a checkpoint, with which the log leaves its first ring for good; another asks for one more
/// capacity meanwhile.
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
