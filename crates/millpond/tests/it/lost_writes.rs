//! A device that lies: a write that it says to have done never came, or went to another place of the file. Each write
//! of a run, one after the other: it is found, or nothing of it is needed. Wrong rows are never the answer.
//!
//! One thing cannot be found: where pages are written in place and nothing keeps a tag of their images, a page whose
//! last write was lost is whole, as it was before.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::simulation::{History, Image, SimulatedDisk, Unsynced, run};
use millpond::{CheckOptions, Db, PageStoreKind, check_on};

use crate::crash_matrix::stride;
use crate::rebuild_loss::older_and_next;
use crate::support::{Contents, IN_PLACE, SMALL, Shape, contents, disk_of, open};

/// What a lost or misdirected write led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// An error, or a problem in the report.
    Found,
    /// No problem, and every row right.
    Right,
    /// No problem, and other rows.
    Wrong,
}

/// Two trees whose pages are written again and again, with checkpoints between; closed.
fn churn(shape: Shape) -> (History, Contents) {
    let disk = SimulatedDisk::new();
    let (rows, _) = run(31, || {
        let db = open(&disk, shape.options());
        let trees = ["a", "b"].map(|name| db.create_tree(name).expect("created"));
        let put = |key: u16, version: u8| {
            trees[usize::from(key % 2)].put(&key.to_be_bytes(), &[version; 200]).expect("written");
        };
        (0..240).for_each(|key| put(key * 37 % 240, 1));
        db.checkpoint().expect("done");
        // Each leaf has its last image of another round.
        for round in 0..8 {
            (round * 20..240).step_by(3).for_each(|key| put(key, 2));
            db.checkpoint().expect("done");
        }
        let rows = contents(&db).expect("read");
        db.close().expect("closed");
        rows
    });
    (disk.history(), rows)
}

/// Opens and reads, and checks; either may find it, but what is read is right.
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
fn every_write_that_is_lost_or_misdirected_is_found_or_not_needed() {
    for shape in [SMALL, IN_PLACE] {
        let (history, rows) = churn(shape);
        let mut ends: BTreeMap<(String, bool, Outcome), usize> = BTreeMap::new();
        for name in history.crash_image(history.boundaries(), Unsynced::All).into_keys() {
            let step = if name.starts_with("redo") { stride(5) } else { 1 };
            for (nth, (position, offset, len)) in history.writes(&name).into_iter().enumerate().step_by(step) {
                // A page further, or one back: onto what lies beside it.
                let beside = if offset >= 4096 && nth % 2 == 0 { offset - 4096 } else { offset + 4096 };
                for to in [None, Some(beside)] {
                    let end = outcome(&history.image_with_fault(position, to), shape, &rows);
                    let excused = shape.store == PageStoreKind::InPlace && name == "data.mpd" && offset >= 4096;
                    assert!(
                        end != Outcome::Wrong || excused,
                        "{:?}: write {nth} to '{name}' ({len} bytes at {offset}) went to {to:?}",
                        shape.store
                    );
                    *ends.entry((name.clone(), to.is_none(), end)).or_default() += 1;
                }
            }
        }
        // With pages in place a lost write is what cannot be found.
        let kinds: &[bool] = if shape.store == PageStoreKind::InPlace { &[false] } else { &[true, false] };
        for lost in kinds {
            let found = ends.get(&("data.mpd".to_owned(), *lost, Outcome::Found)).copied().unwrap_or(0);
            assert!(found >= 5, "{:?}, lost: {lost}: {ends:?}", shape.store);
        }
    }
}

/// What a lost write leaves where a page comes into a slot that it had before: its tag in the map is what tells.
#[test]
fn an_older_image_of_the_same_page_is_never_taken_for_its_newest() {
    let (history, rows) = churn(SMALL);
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
