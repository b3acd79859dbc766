//! A process dies, or its device fails, the next process opens the database, and then the power fails. The second
//! process can read the first one's unsynced writes, which may be gone after the loss of power. So it must sync them
//! before it relies on them. After a failed sync a sync of its own is not enough.

use std::io::ErrorKind;
use std::sync::Arc;

use millpond::Db;
use millpond::classic::Doublewrite;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run};

use crate::crash_matrix::stride;
use crate::support::{IN_PLACE, SMALL, Shape, THREADED, TWICE, disk_of, recover_shaped};

/// Rows that the first process writes.
const ROWS: u8 = 4;

/// Bytes of a row. The log record of a long row does not fit one block, and long rows split their leaf. Short rows
/// change their leaf without a split, so that its image is needed.
const LONG: usize = 900;
const SHORT: usize = 300;

/// Events up to the loss of power, as positions in the disk's history.
struct Past {
    /// The first process came to the call at which it was to end.
    ended: bool,
    acknowledged: u8,
    opened: usize,
    written: usize,
}

/// How the first process ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Killed,
    Failed,
}

fn live_twice(disk: &SimulatedDisk, (shape, len): (Shape, usize), end: End, at: u64) -> Past {
    let open = || {
        let db = Db::open_on(Arc::new(disk.clone()), shape.options())?;
        let tree = db.open_tree("t").or_else(|_| db.create_tree("t"))?;
        Ok::<_, millpond::Error>((db, tree))
    };
    let mut acknowledged = 0;
    match end {
        End::Killed => disk.halt_at(at),
        End::Failed => disk.fail_at(at, ErrorKind::Other),
    }
    if let Ok((db, tree)) = open() {
        while acknowledged < ROWS && tree.put([acknowledged], vec![1; len]).is_ok() {
            acknowledged += 1;
        }
        let _ = db.checkpoint();
    }
    let ended = disk.calls() > at;
    disk.go_on();
    disk.fail_at(u64::MAX, ErrorKind::Other);
    let opened = disk.boundaries();
    let (db, _) = open().expect("opened again");
    // In another page: a second write to the same bytes would repair them.
    let tree = db.open_tree("u").or_else(|_| db.create_tree("u")).expect("there");
    tree.put(b"second", b"1").expect("written");
    let written = disk.boundaries();
    db.checkpoint().expect("done");
    db.close().expect("closed");
    Past { ended, acknowledged, opened, written }
}

/// The first process ends at each of its calls. The second process changes a row, and takes a checkpoint. Then the
/// power fails at any moment, and takes everything unsynced.
fn check(start: &Image, (shape, len): (Shape, usize), end: End) {
    for call in (0..).step_by(stride(4)) {
        let disk = SimulatedDisk::with_image(start.clone(), ServiceTime::default());
        let (past, _) = run(call, || live_twice(&disk, (shape, len), end, call));
        let history = disk.history();
        let sampled = stride(5);
        let first = past.opened + usize::try_from(call).expect("small") % sampled;
        for boundary in (first..=history.boundaries()).step_by(sampled) {
            if past.acknowledged == 0 && boundary < past.written {
                continue;
            }
            // Pages with copies may be torn.
            let seed = u64::try_from(boundary).expect("small");
            let unsynced = if shape.doublewrite == Doublewrite::On { Unsynced::Torn(seed) } else { Unsynced::None };
            let found = recover_shaped(&disk_of(history.crash_image(boundary, unsynced)), shape);
            let at = format!(
                "{shape:?}, rows of {len} bytes, {end:?} at call {call}, opened at {}, power lost at {boundary}",
                past.opened
            );
            let found = found.unwrap_or_else(|problem| unreachable!("{at}: {problem}"));
            let all = (0..past.acknowledged).all(|row| found["t"].contains_key(&[row][..]));
            assert!(all && (boundary < past.written || found["u"].contains_key(&b"second"[..])), "{at}");
        }
        if !past.ended {
            assert!(call > 30, "it made {call} calls only");
            return;
        }
    }
}

fn closed((shape, len): (Shape, usize)) -> Image {
    let disk = SimulatedDisk::new();
    let db = Db::open_on(Arc::new(disk.clone()), shape.options()).expect("opened");
    let tree = db.create_tree("t").expect("created");
    // Existing rows are changed: in place, images are overwritten.
    (0..ROWS).for_each(|row| tree.put([row, row], vec![0; len]).expect("written"));
    drop(tree);
    db.close().expect("closed");
    disk.image()
}

/// As [`check`], with a closed database to begin with.
fn check_closed(of: (Shape, usize), end: End) {
    check(&closed(of), of, end);
}

#[test]
fn a_loss_of_power_after_a_process_that_died_loses_nothing() {
    check_closed((SMALL, LONG), End::Killed);
    check_closed((IN_PLACE, LONG), End::Killed);
    check_closed((TWICE, LONG), End::Killed);
    check_closed((THREADED, LONG), End::Killed);
}

#[test]
fn power_loss_after_a_death_during_creation_loses_nothing() {
    check(&Image::new(), (SMALL, LONG), End::Killed);
}

#[test]
fn power_loss_after_a_failed_device_loses_nothing() {
    check_closed((SMALL, LONG), End::Failed);
    check_closed((IN_PLACE, LONG), End::Failed);
    check_closed((IN_PLACE, SHORT), End::Failed);
    check_closed((TWICE, LONG), End::Failed);
    check_closed((TWICE, SHORT), End::Failed);
    check_closed((THREADED, LONG), End::Failed);
}

#[test]
fn power_loss_after_a_device_failed_in_creation_loses_nothing() {
    check(&Image::new(), (SMALL, LONG), End::Failed);
}
