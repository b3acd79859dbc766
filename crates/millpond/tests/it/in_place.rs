//! A store that writes in place: the evidence that its images give about the log.

use std::io;
use std::sync::{Arc, Mutex};

use millpond::classic::Doublewrite;
use millpond::lab::{Device, Files};
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Durability, Error, WriteBatch};

use crate::crash_matrix::stride;
use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{IN_PLACE, SLOW, Shape, TWICE, disk_of, open, recover_shaped};

/// The first rows of both trees, or the error of reading them.
fn first_rows(image: Image) -> Result<[u8; 2], Error> {
    run(1, || {
        let db = Db::open_on(Arc::new(disk_of(image)), IN_PLACE.reopen_options())?;
        let first = |name: &str| Ok::<_, Error>(db.open_tree(name)?.get([0])?.map_or(0, |value| value[0]));
        Ok([first("a")?, first("b")?])
    })
    .0
}

/// The last group of the log is damaged, and no later group shows that it existed. Images with its changes show it.
/// Half of the group is never accepted.
#[test]
fn images_ahead_of_a_damaged_log_are_reported() {
    let disk = SimulatedDisk::new();
    let (start, _) = run(1, || {
        let db = open(&disk, IN_PLACE.options());
        for (name, rows) in [("a", 5u8), ("m", 100), ("b", 5)] {
            let tree = db.create_tree(name).expect("created");
            (0..rows).for_each(|row| tree.put([row], [1; 100]).expect("written"));
        }
        db.close().expect("closed");
        disk.image()
    });
    let disk = SimulatedDisk::with_image(start, SLOW);
    let ((lsn, written), _) = run(2, || {
        let db = open(&disk, IN_PLACE.reopen_options());
        let [a, b] = ["a", "b"].map(|name| db.open_tree(name).expect("there"));
        db.checkpoint().expect("done");
        let lsn = db.stats().log_lsn_current;
        let mut batch = WriteBatch::new();
        batch.put(&a, [0], [2; 100]).put(&b, [0], [2; 100]).durability(Durability::Commit);
        db.write(batch).expect("written");
        let written = disk.boundaries();
        db.checkpoint().expect("done");
        (lsn, written)
    });
    let history = disk.history();
    let (mut told, mut earlier, mut later) = (0, 0, 0);
    for boundary in written..=history.boundaries() {
        for seed in 0..6 {
            let mut image = history.crash_image(boundary, Unsynced::Subset(seed));
            // The log has four files of 512 KiB in all.
            let payload = 128 << 10;
            let log = image.get_mut(&format!("redo-0-{}.mpd", lsn / payload % 4)).expect("there");
            log[usize::try_from(4096 + lsn % payload + 20).expect("small")] ^= 4;
            match first_rows(image) {
                Err(Error::Corruption(_)) => told += 1,
                Ok([1, 1]) => earlier += 1,
                Ok([2, 2]) => later += 1,
                other => unreachable!("crash at {boundary}, seed {seed}: {other:?}"),
            }
        }
    }
    assert!(told > 10 && earlier > 0 && later > 0, "{told} told, {earlier} and {later} as before and behind it");
}

/// Counts the results of crashes in the middle of page writes, for a kind of doublewrite: opened, with pages restored;
/// opened, with an unreadable page; not opened.
fn torn(doublewrite: Doublewrite) -> [usize; 3] {
    let shape = Shape { doublewrite, ..IN_PLACE };
    let disk = SimulatedDisk::new();
    let (start, _) = run(3, || {
        let db = open(&disk, shape.options());
        let tree = db.create_tree("t").expect("created");
        (0..600).for_each(|row| put_loosely(&db, &tree, &scattered(row), &[1; 300]));
        db.close().expect("closed");
        disk.image()
    });
    let disk = SimulatedDisk::with_image(start, SLOW);
    let (pages, _) = run(4, || {
        let db = open(&disk, shape.reopen_options());
        let tree = db.open_tree("t").expect("there");
        (0..600).for_each(|row| put_loosely(&db, &tree, &scattered(row), &[2; 300]));
        db.checkpoint().expect("done");
        db.stats().dblwr_pages_written
    });
    assert_eq!(pages > 100, doublewrite != Doublewrite::Off, "{pages} copies");
    let history = disk.history();
    let mut came_to = [0; 3];
    for boundary in (0..history.boundaries()).step_by(crate::crash_matrix::stride(31)) {
        let image = history.crash_image(boundary, Unsynced::Torn(7));
        let opened = run(5, || {
            let db = Db::open_on(Arc::new(disk_of(image.clone())), shape.reopen_options())?;
            Ok::<_, Error>(db.stats().dblwr_pages_put_back)
        })
        .0;
        match (opened, run(6, || recover_shaped(&disk_of(image), shape)).0) {
            (Ok(0), Ok(_)) => {}
            (Ok(_), Ok(_)) => came_to[0] += 1,
            (Ok(0), Err(why)) if why.contains("checksum mismatch") => came_to[1] += 1,
            (Err(Error::Corruption(why)), Err(_)) if why.contains("no copy of it") => came_to[2] += 1,
            (Err(Error::Corruption(why)), Err(_)) if why.contains("checksum mismatch") => came_to[1] += 1,
            other => unreachable!("a crash at {boundary}: {other:?}"),
        }
    }
    came_to
}

#[test]
fn what_a_crash_tears_is_put_back_or_found_as_doublewrite_says() {
    let [put_back, lost, refused] = torn(Doublewrite::On);
    assert!(put_back > 5 && lost + refused == 0, "on: {put_back} put back, {lost} lost, {refused} refused");
    let [put_back, lost, refused] = torn(Doublewrite::Off);
    assert!(lost > 5 && put_back + refused == 0, "off: {put_back} put back, {lost} lost, {refused} refused");
    let [put_back, lost, refused] = torn(Doublewrite::DetectOnly);
    assert!(refused > 5 && put_back + lost == 0, "detect_only: {put_back} put back, {lost} lost, {refused} refused");
}

#[test]
fn doublewrite_is_refused_where_nothing_is_overwritten() {
    run(1, || {
        let disk = SimulatedDisk::new();
        let options = crate::support::small_options().classic(|of| of.doublewrite(Doublewrite::On));
        let refused = Db::open_on(Arc::new(disk.clone()), options.clone()).expect_err("nothing to copy");
        assert!(matches!(&refused, Error::InvalidOptions(why) if why.contains("leave the option out")), "{refused}");
        assert!(disk.image().is_empty(), "nothing was made");
        drop(open(&disk, crate::support::small_options()));
        let refused = Db::open_on(Arc::new(disk), options).expect_err("nothing to copy");
        assert!(matches!(refused, Error::InvalidOptions(_)), "{refused}");
    });
}

/// A failed page write leaves half of the page: the old page is restored, whenever the power fails after that.
#[test]
fn what_a_failed_write_leaves_over_an_image_is_put_back() {
    // Pages of several lots, each of which overwrites the copies of the lot before. Few of the pages are neighbours.
    let several = Shape { frames: 400, ..TWICE };
    let start = scattered_rows(1_200, several.options().redo_capacity(ByteSize::mib(4)));
    let mut stopped = 0;
    for call in 0..30 {
        let disk = SimulatedDisk::with_image(start.clone(), ServiceTime::default());
        let (begun, _) = run(call, || {
            let db = open(&disk, several.reopen_options());
            let tree = db.open_tree("t").expect("there");
            let write = |value: u8| {
                (0..200).try_for_each(|row| {
                    let mut batch = WriteBatch::new();
                    batch.put(&tree, scattered(row), [value; 900]).durability(Durability::None);
                    db.write(batch).map(drop)
                })
            };
            write(1).expect("written");
            tree.put(b"durable", b"1").expect("written");
            let begun = disk.boundaries();
            disk.fail_at(disk.calls() + call, std::io::ErrorKind::Other);
            // The second checkpoint overwrites the copies.
            let done = db.checkpoint().and_then(|()| write(2)).and_then(|()| db.checkpoint());
            stopped += usize::from(done.is_err());
            begun
        });
        let history = disk.history();
        for boundary in (begun..=history.boundaries()).step_by(stride(14)).take(30) {
            for unsynced in [Unsynced::None, Unsynced::All] {
                let found = recover_shaped(&disk_of(history.crash_image(boundary, unsynced)), several);
                let found = found.unwrap_or_else(|problem| unreachable!("call {call}, {boundary}: {problem}"));
                assert!(found["t"].len() == 1_201 && found["t"].contains_key(&b"durable"[..]));
            }
        }
    }
    assert!(stopped > 5, "{stopped} calls stopped it");
}

/// Records the writes and syncs that a database does to its files, in order.
#[derive(Clone)]
struct Noted {
    disk: SimulatedDisk,
    done: Arc<Mutex<Vec<Done>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Done {
    /// File, and number of bytes.
    Write(String, usize),
    Sync(String),
}

struct NotedFile {
    file: Arc<dyn Device>,
    done: Arc<Mutex<Vec<Done>>>,
}

impl Noted {
    fn file(&self, file: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(NotedFile { file, done: Arc::clone(&self.done) })
    }
}

impl Files for Noted {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        Files::open(&self.disk, name).map(|file| self.file(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.disk.create(name).map(|file| self.file(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

impl NotedFile {
    fn note(&self, done: Done) {
        self.done.lock().expect("not poisoned").push(done);
    }
}

impl Device for NotedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)?;
        self.note(Done::Write(self.name().to_owned(), buf.len()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()?;
        self.note(Done::Sync(self.name().to_owned()));
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.file.grow(len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}

/// The writes and syncs of a checkpoint of some pages, the number of these pages, and the counts of copies: calls, and
/// pages.
fn done_for_a_lot(doublewrite: Doublewrite) -> (Vec<Done>, usize, [u64; 2]) {
    let shape = Shape { doublewrite, ..IN_PLACE };
    let disk = disk_of(scattered_rows(40, shape.options()));
    run(8, || {
        let files = Noted { disk: disk.clone(), done: Arc::default() };
        let db = Db::open_on(Arc::new(files.clone()), shape.reopen_options()).expect("opened");
        let tree = db.open_tree("t").expect("there");
        (0..20).for_each(|row| put_loosely(&db, &tree, &scattered(row), &[2; 900]));
        tree.put(scattered(20), [2; 900]).expect("durable, with all before it");
        let before = db.stats();
        files.done.lock().expect("not poisoned").clear();
        db.checkpoint().expect("done");
        let done = files.done.lock().expect("not poisoned").clone();
        let after = db.stats();
        let copies = [after.dblwr_writes - before.dblwr_writes, after.dblwr_pages_written - before.dblwr_pages_written];
        let pages = usize::try_from(after.data_page_writes - before.data_page_writes).expect("few");
        db.close().expect("closed");
        (done, pages, copies)
    })
    .0
}

#[test]
fn each_page_is_written_twice_with_a_sync_between_or_once() {
    const PAGE: usize = 4096;
    let copies = "doublewrite.mpd".to_owned();
    let [(off, ..), on, detect_only] =
        [Doublewrite::Off, Doublewrite::On, Doublewrite::DetectOnly].map(|doublewrite| {
            let (done, pages, counted) = done_for_a_lot(doublewrite);
            // Two pages of undo are new, and overwrite none.
            assert_eq!((pages, counted), (15, if doublewrite == Doublewrite::Off { [0, 0] } else { [1, 13] }));
            let images: Vec<usize> = done
                .iter()
                .skip_while(|done| !matches!(done, Done::Write(file, _) if file == "data.mpd"))
                .map_while(|done| if let Done::Write(_, bytes) = done { Some(*bytes) } else { None })
                .collect();
            assert_eq!(images.iter().sum::<usize>(), pages * PAGE, "{done:?}");
            (done, images.len())
        });
    // The steps after the images are the same: their sync, then the map's group and the checkpoint.
    let is_of = |done: &Done, name: &str| matches!(done, Done::Write(file, _) | Done::Sync(file) if file == name);
    assert!(!off.iter().any(|done| is_of(done, &copies)), "{off:?}");
    assert_eq!(off[on.1], Done::Sync("data.mpd".to_owned()), "{off:?}");
    for ((done, _), bytes) in [(on, PAGE + 13 * PAGE), (detect_only, PAGE)] {
        let first = [Done::Write(copies.clone(), bytes), Done::Sync(copies.clone())];
        assert_eq!(done, [&first[..], &off[..]].concat());
    }
}
