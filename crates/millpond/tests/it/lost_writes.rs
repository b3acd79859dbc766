//! A device that lies: a write that it acknowledges never happened, or went to another place of the file. The test does
//! so to each write of a run in turn. The fault is found, or the write is not needed. The result is never wrong rows.
//!
//! Two cases cannot be found. If pages are written in place, and nothing keeps a tag of their images, a page whose last
//! write was lost is whole, in its earlier version. And the last flush of the log before a crash: nothing behind it
//! proves that it existed.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::inspect::{CheckOptions, check_on};
use millpond::simulation::{History, Image, SimulatedDisk, Unsynced, run};
use millpond::{Db, PageStoreKind};

use crate::crash_matrix::stride;
use crate::rebuild_loss::older_and_next;
use crate::support::{Contents, IN_PLACE, SMALL, Shape, contents, disk_of, open};

/// The result of a lost or misdirected write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// An error, or a problem in the report.
    Found,
    /// No problem, and every row right.
    Right,
    /// No problem, and other rows.
    Wrong,
}

/// A run, and the database's required rows after it.
struct Churned {
    history: History,
    rows: Contents,
    /// The last write of the log begins behind this boundary: nothing proves that it existed.
    last_flush: usize,
}

/// Two trees with pages that are written again and again, with checkpoints between. Closed, or left with a log to redo.
fn churn(shape: Shape, is_closed: bool) -> Churned {
    let disk = SimulatedDisk::new();
    run(31, || {
        let db = open(&disk, shape.options());
        let trees = ["a", "b"].map(|name| db.create_tree(name).expect("created"));
        let put = |key: u16, version: u8| {
            trees[usize::from(key % 2)].put(key.to_be_bytes(), [version; 300]).expect("written");
        };
        (0..240).for_each(|key| put(key * 37 % 240, 1));
        db.checkpoint().expect("done");
        // The last images of the leaves are of different rounds.
        for round in 0..8 {
            (round * 20..240).step_by(3).for_each(|key| put(key, 2));
            db.checkpoint().expect("done");
        }
        (0..60).for_each(|key| put(key * 4, 3));
        let last_flush = disk.boundaries();
        put(0, 4);
        let rows = contents(&db).expect("read");
        if is_closed {
            db.close().expect("closed");
            return Churned { history: disk.history(), rows, last_flush: usize::MAX };
        }
        let history = disk.history();
        db.close().expect("closed");
        Churned { history, rows, last_flush }
    })
    .0
}

/// Whether every row is in its final or an earlier version: as on a page whose last write was lost.
fn is_older(image: &Image, shape: Shape, rows: &Contents) -> bool {
    let read = || contents(&Db::open_on(Arc::new(disk_of(image.clone())), shape.reopen_options())?);
    let Ok(found) = run(1, read).0 else { return false };
    let is_older = |(key, value): (&Vec<u8>, &Vec<u8>), found: &BTreeMap<Vec<u8>, Vec<u8>>| {
        found.get(key).is_some_and(|other| other.len() == value.len() && (1..=value[0]).contains(&other[0]))
    };
    rows.iter().all(|(name, tree)| tree.iter().all(|row| is_older(row, &found[name])))
}

/// Opens and reads, and checks. Either may find the fault, but rows that are read are right.
fn outcome(image: &Image, shape: Shape, rows: &Contents) -> Outcome {
    let read = || {
        let db = Db::open_on(Arc::new(disk_of(image.clone())), shape.reopen_options())?;
        contents(&db)
    };
    match run(1, read).0 {
        Err(_) => return Outcome::Found,
        Ok(found) if found != *rows => return Outcome::Wrong,
        Ok(_) => {}
    }
    match run(1, || check_on(Arc::new(disk_of(image.clone())), &CheckOptions::default())).0 {
        Ok(report) if report.problems.is_empty() => Outcome::Right,
        _ => Outcome::Found,
    }
}

#[test]
fn every_lost_or_misdirected_write_is_found_or_not_needed() {
    for (shape, is_closed) in [(SMALL, true), (SMALL, false), (IN_PLACE, true), (IN_PLACE, false)] {
        let Churned { history, rows, last_flush } = churn(shape, is_closed);
        let of = format!("{:?}, closed: {is_closed}", shape.store);
        let mut ends: BTreeMap<(&str, bool, Outcome), usize> = BTreeMap::new();
        for name in history.crash_image(history.boundaries(), Unsynced::All).into_keys() {
            let step = match name.as_str() {
                "map.mpd" => 1,
                name if name.starts_with("redo") => stride(7),
                _ => stride(3),
            };
            let kind = name.split(['.', '-']).next().expect("a name").to_owned();
            let kind = ["data", "map", "directory", "redo"].into_iter().find(|known| *known == kind).expect("known");
            for (nth, (position, offset, len)) in history.writes(&name).into_iter().enumerate().step_by(step) {
                // One page further, or one back: over the neighbour.
                let beside = if offset >= 4096 && position % 2 == 0 { offset - 4096 } else { offset + 4096 };
                for to in [None, Some(beside)] {
                    let image = history.image_with_fault(position, to);
                    let end = outcome(&image, shape, &rows);
                    // In place: the slot of a page, not a superblock. In the log: its end, which a crash may have cut
                    // off.
                    let is_page = shape.store == PageStoreKind::InPlace && kind == "data" && offset > 64 << 10;
                    let excused =
                        (is_page && is_older(&image, shape, &rows)) || (kind == "redo" && position >= last_flush);
                    assert!(
                        end != Outcome::Wrong || excused,
                        "{of}: write {nth} to '{name}' ({len} bytes at {offset}) went to {to:?}"
                    );
                    *ends.entry((kind, to.is_none(), end)).or_default() += 1;
                }
            }
        }
        for (kind, is_lost) in [("data", false), ("data", true), ("map", true), ("map", false), ("redo", true)] {
            let count = |end| ends.get(&(kind, is_lost, end)).copied().unwrap_or(0);
            // A closed log is not needed. With pages in place, a lost last write cannot be told.
            let is_needed = match kind {
                "redo" => !is_closed,
                "data" => shape.store == PageStoreKind::CopyOnWrite || !is_lost,
                _ => is_closed,
            };
            let tried = count(Outcome::Found) + count(Outcome::Right) + count(Outcome::Wrong);
            assert!(tried > 0 && (!is_needed || count(Outcome::Found) >= 1), "{of}, {kind}, lost: {is_lost}: {ends:?}");
        }
    }
}

/// A lost write in a slot that had an earlier image of the same page: its tag in the map tells the two apart.
#[test]
fn older_image_of_a_page_is_never_taken_for_its_newest() {
    let Churned { history, rows, .. } = churn(SMALL, true);
    let image = history.crash_image(history.boundaries(), Unsynced::All);
    let mut found = 0;
    for (older, next) in older_and_next(&image) {
        let mut damaged = image.clone();
        damaged.get_mut("data.mpd").expect("there").copy_within(older..older + 4096, next);
        let end = outcome(&damaged, SMALL, &rows);
        assert!(end != Outcome::Wrong, "the image at {older} in the place of that at {next}");
        found += usize::from(end == Outcome::Found);
    }
    assert!(found >= 5, "{found} found");
}
