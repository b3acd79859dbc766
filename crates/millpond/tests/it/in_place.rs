//! A store that writes in place: what its images tell of the log.

use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Doublewrite, Durability, Error, WriteBatch};

use crate::crash_matrix::stride;
use crate::pool::{put_loosely, scattered, scattered_rows};
use crate::support::{IN_PLACE, SLOW, Shape, TWICE, disk_of, open, recover_shaped};

/// What the trees' first rows are, or why they cannot be read.
fn first_rows(image: Image) -> Result<[u8; 2], Error> {
    run(1, || {
        let db = Db::open_on(std::sync::Arc::new(disk_of(image)), IN_PLACE.reopen_options())?;
        let first = |name: &str| Ok::<_, Error>(db.open_tree(name)?.get(&[0])?.map_or(0, |value| value[0]));
        Ok([first("a")?, first("b")?])
    })
    .0
}

/// The last group of the log is damaged, and no later one shows that it was there: images that it is in do. Half of it is
/// never taken for an answer.
#[test]
fn images_ahead_of_a_damaged_log_are_reported() {
    let disk = SimulatedDisk::new();
    let (start, _) = run(1, || {
        let db = open(&disk, IN_PLACE.options());
        for (name, rows) in [("a", 5u8), ("m", 100), ("b", 5)] {
            let tree = db.create_tree(name).expect("created");
            (0..rows).for_each(|row| tree.put(&[row], &[1; 100]).expect("written"));
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
        batch.put(&a, &[0], &[2; 100]).put(&b, &[0], &[2; 100]).durability(Durability::Commit);
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
            // Four files, 512 KiB in all.
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

/// What crashes in the middle of page writes come to, by what is kept of pages before they are written over: opened, with
/// pages put back; opened, and a page cannot be read; not opened.
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
    for boundary in (0..history.boundaries()).step_by(crate::crash_matrix::stride(19)) {
        let image = history.crash_image(boundary, Unsynced::Torn(7));
        let opened = run(5, || {
            let db = Db::open_on(std::sync::Arc::new(disk_of(image.clone())), shape.reopen_options())?;
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
        let options = crate::support::small_options().doublewrite(Doublewrite::On);
        let refused = Db::open_on(std::sync::Arc::new(disk.clone()), options.clone()).expect_err("nothing to copy");
        assert!(matches!(&refused, Error::InvalidOptions(why) if why.contains("leave the option out")), "{refused}");
        assert!(disk.image().is_empty(), "nothing was made");
        drop(open(&disk, crate::support::small_options()));
        let refused = Db::open_on(std::sync::Arc::new(disk), options).expect_err("nothing to copy");
        assert!(matches!(refused, Error::InvalidOptions(_)), "{refused}");
    });
}

/// A page write that fails leaves half of it: what was there is put back, whenever the power fails after that.
#[test]
fn what_a_failed_write_leaves_over_an_image_is_put_back() {
    // Pages of several lots, each of which writes over the copies of the one before; few of them are neighbours.
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
                    batch.put(&tree, &scattered(row), &[value; 900]).durability(Durability::None);
                    db.write(batch)
                })
            };
            write(1).expect("written");
            tree.put(b"durable", b"1").expect("written");
            let begun = disk.boundaries();
            disk.fail_at(disk.calls() + call, std::io::ErrorKind::Other);
            // The second one writes over the copies.
            let done = db.checkpoint().and_then(|()| write(2)).and_then(|()| db.checkpoint());
            stopped += usize::from(done.is_err());
            begun
        });
        let history = disk.history();
        for boundary in (begun..=history.boundaries()).step_by(stride(9)).take(30) {
            for unsynced in [Unsynced::None, Unsynced::All] {
                let found = recover_shaped(&disk_of(history.crash_image(boundary, unsynced)), several);
                let found = found.unwrap_or_else(|problem| unreachable!("call {call}, {boundary}: {problem}"));
                assert!(found["t"].len() == 1_201 && found["t"].contains_key(&b"durable"[..]));
            }
        }
    }
    assert!(stopped > 5, "{stopped} calls stopped it");
}
