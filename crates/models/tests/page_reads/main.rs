//! Pages that several threads miss at once: `pool/residence.rs`, `pool/table.rs` and the queue for frames, under
//! shuttle.
//!
//! Shuttle, because a load is dozens of steps over mutexes, too many for loom to try all their orders. None of the
//! results here depends on memory order: the mutexes order everything except what the latch orders, and the latch has a
//! model of its own.
//!
//! | shown | by |
//! |---|---|
//! | of a herd that misses a page, one thread reads it | [`Disk`] counts reads, and refuses two of a page at once |
//! | all get the page, or all get the error; no thread sleeps for ever | shuttle reports threads that cannot go on |
//! | a waiter for a page never gets another, even if the page has left, or its frame has another page | [`come`] |
//! | an id is reused while its old page is read: the new page is found, no thread waits for the old | an installer |
//! | frames are not lost, whatever fails, a panic of the device included | [`Pool::assert_at_rest`] |
//!
//! Bugs that were planted, and found (`make planted`): `failed_read_tells_no_waiter`, `stale_read_installs_page`,
//! `two_read_one_page`.

#[path = "../../../millpond/src/planted.rs"]
#[macro_use]
mod planted;

#[path = "../stand_ins/base.rs"]
mod base;
#[path = "../stand_ins/explore.rs"]
mod explore;
mod pool;

use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base::error::Error;
use base::ids::PageId;
use explore::explore;
use pool::buffer_pool::{Pool, Reads};
use shuttle::sync::atomic::AtomicBool;
use shuttle::thread;

/// The result of a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Works,
    Fails,
    Panics,
}

/// The model's reads. Not a part of the model itself.
struct Disk {
    /// How the first reads end; all others work.
    first: &'static [Read],
    begun: AtomicUsize,
    under_way: Mutex<HashSet<PageId>>,
    /// Pages were given back: they have no image, and reads of a new page may meet reads of the old page with that id.
    given_back: bool,
    written: std::sync::atomic::AtomicBool,
}

impl Disk {
    fn new(first: &'static [Read]) -> Arc<Disk> {
        Arc::new(Disk {
            first,
            begun: AtomicUsize::new(0),
            under_way: Mutex::default(),
            given_back: false,
            written: false.into(),
        })
    }

    /// A disk on which no page has an image before it is written.
    fn of_pages_given_back() -> Arc<Disk> {
        let Ok(disk) = Arc::try_unwrap(Disk::new(&[])) else { unreachable!("it is new") };
        Arc::new(Disk { given_back: true, ..disk })
    }

    fn reads(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }
}

struct Head(Arc<Disk>);

impl Reads for Head {
    fn read(&self, id: PageId) -> Result<(), Error> {
        let disk = &self.0;
        let nth = disk.begun.fetch_add(1, Ordering::Relaxed);
        let first = disk.under_way.lock().expect("no thread panicked with it").insert(id);
        assert!(first || disk.given_back, "page {id} is read by two at once");
        thread::yield_now();
        if disk.given_back && !disk.written.load(Ordering::Relaxed) {
            return Err(Error::device(&format!("read {nth}"), io::Error::other("no image")));
        }
        thread::yield_now();
        disk.under_way.lock().expect("no thread panicked with it").remove(&id);
        match disk.first.get(nth).unwrap_or(&Read::Works) {
            Read::Works => Ok(()),
            Read::Fails => Err(Error::device(&format!("read {nth}"), io::Error::other("worn out"))),
            Read::Panics => std::panic::resume_unwind(Box::new("the device panicked")),
        }
    }
}

/// Loads the page. Returns whether that worked.
fn come(pool: &Pool, id: PageId) -> bool {
    match catch_unwind(AssertUnwindSafe(|| pool.load(id).map(|pin| assert_eq!(pin.read(), id, "another page")))) {
        Ok(loaded) => loaded.is_ok(),
        Err(panic) => {
            let from_device = panic.downcast_ref::<&str>() == Some(&"the device panicked");
            if !from_device {
                std::panic::resume_unwind(panic);
            }
            false
        }
    }
}

/// One thread for each of `visits`, which loads these pages in turn. Returns how many loads failed.
fn visit(frames: u32, disk: &Arc<Disk>, visits: &'static [&'static [u64]], dropped: Option<u64>) -> usize {
    let pool = Pool::new(frames, Box::new(Head(Arc::clone(disk))));
    let ended = Arc::new(AtomicBool::new(false));
    let keeper = {
        let (pool, ended) = (Arc::clone(&pool), Arc::clone(&ended));
        thread::spawn(move || pool.keep(&ended))
    };
    let visitor = |pages: &&'static [u64]| {
        let (pool, pages) = (Arc::clone(&pool), *pages);
        thread::spawn(move || pages.iter().filter(|page| !come(&pool, PageId(**page))).count())
    };
    let visitors: Vec<_> = visits.iter().map(visitor).collect();
    if let Some(page) = dropped {
        pool.drop_page(PageId(page));
    }
    let missed = visitors.into_iter().map(|visitor| visitor.join().expect("no panic")).sum();
    ended.store(true, Ordering::SeqCst);
    pool.ring();
    keeper.join().expect("no panic");
    pool.assert_at_rest(visits.concat().into_iter().collect::<HashSet<_>>().into_iter().map(PageId));
    missed
}

#[test]
fn a_herd_reads_once() {
    explore(10_000, || {
        let disk = Disk::new(&[]);
        // More frames than the threads take: no page leaves.
        let missed = visit(8, &disk, &[&[1], &[1], &[1], &[1]], None);
        assert_eq!((missed, disk.reads()), (0, 1));
    });
}

#[test]
fn a_herd_shares_the_error() {
    explore(10_000, || {
        let disk = Disk::new(&[Read::Fails]);
        let missed = visit(8, &disk, &[&[1], &[1], &[1]], None);
        assert!((1..=3).contains(&missed), "the first to read had an error");
    });
}

#[test]
fn a_herd_whose_reader_panics_is_told() {
    explore(10_000, || {
        let disk = Disk::new(&[Read::Panics, Read::Fails]);
        let missed = visit(8, &disk, &[&[1], &[1], &[1]], None);
        assert!((1..=3).contains(&missed));
    });
}

/// One frame and two pages: a page has often left when its waiter wakes.
#[test]
fn waiter_for_a_page_never_gets_another() {
    explore(10_000, || {
        let disk = Disk::new(&[]);
        assert_eq!(visit(1, &disk, &[&[1, 2], &[2, 1], &[1]], None), 0);
    });
}

#[test]
fn two_frames_and_three_pages_and_a_read_that_fails() {
    explore(10_000, || {
        let disk = Disk::new(&[Read::Works, Read::Fails]);
        assert!(visit(2, &disk, &[&[1, 2], &[2, 3], &[3, 1], &[1, 2]], None) <= 4);
    });
}

#[test]
fn a_page_that_is_thrown_out_meanwhile_comes_back() {
    explore(10_000, || {
        let disk = Disk::new(&[]);
        assert_eq!(visit(1, &disk, &[&[1], &[1, 2]], Some(1)), 0);
    });
}

/// Threads use old references to load a page that was given back; its id is given out again meanwhile. Later threads
/// find the new page, no thread sleeps for ever, and no frame is lost.
#[test]
fn an_id_is_given_out_again_while_its_page_is_read_in_vain() {
    explore(10_000, || {
        let disk = Disk::of_pages_given_back();
        let pool = Pool::new(3, Box::new(Head(Arc::clone(&disk))));
        let ended = Arc::new(AtomicBool::new(false));
        let keeper = {
            let (pool, ended) = (Arc::clone(&pool), Arc::clone(&ended));
            thread::spawn(move || pool.keep(&ended))
        };
        let visitors: Vec<_> = (0..3)
            .map(|_| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || [1, 2, 1].map(|page| come(&pool, PageId(page))))
            })
            .collect();
        pool.install(PageId(1), || disk.written.store(true, Ordering::Relaxed)).expect("a frame");
        assert!(come(&pool, PageId(1)), "the new page is there");
        for visitor in visitors {
            let [_, other, _] = visitor.join().expect("no panic");
            assert!(!other || disk.written.load(Ordering::Relaxed), "a page that has no image was read");
        }
        assert!(come(&pool, PageId(1)), "the new page is there still");
        // The page leaves, and no thread holds it.
        assert!(pool.discard_freed(PageId(1)));
        ended.store(true, Ordering::SeqCst);
        pool.ring();
        keeper.join().expect("no panic");
        pool.assert_at_rest([PageId(1), PageId(2)]);
    });
}
