//! Trees of a few pages: the map directory holds their entries. They lose nothing where they outgrow that, in any
//! crash, and they take little of the files.

use millpond::simulation::{SimulatedDisk, Unsynced, run};

use crate::crash_matrix::{self, LOOSE, Oracle, Recorded, check_matrix, stride};
use crate::pool::put_loosely;
use crate::support::{IN_PLACE, SMALL, Shape, disk_of, open, recover_shaped};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn key(row: u32) -> [u8; 4] {
    row.to_be_bytes()
}

/// Trees that grow from one page to some ten, at different rates, beside checkpoints that the keeper takes by itself.
/// Then they shrink, and grow again.
fn record(shape: Shape) -> Recorded {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, shape.options());
        NAMES.iter().for_each(|name| drop(db.create_tree(name).expect("created")));
        db.close().expect("closed");
    });
    let recorded = crash_matrix::record(3, disk.image(), Oracle::default(), |disk, oracle| {
        let db = open(disk, shape.reopen_options());
        let filler = db.create_tree(LOOSE).expect("created");
        let note = |name: &'static str, row: u32, value: Option<&[u8]>| {
            let tree = db.open_tree(name).expect("there");
            let effects = vec![((name, key(row).to_vec()), value.map(<[u8]>::to_vec))];
            oracle.note(disk, 0, effects, || match value {
                Some(value) => tree.put(key(row), value),
                None => tree.delete(key(row)).map(drop),
            });
        };
        for row in 0..48 {
            // So that the log comes round, and the keeper takes checkpoints.
            (0..20).for_each(|other| put_loosely(&db, &filler, &key(other), &[4; 900]));
            for (name, every) in NAMES.iter().zip(1..) {
                if row % every < 2 {
                    note(name, row, Some(&[1; 900]));
                }
            }
        }
        (4..48).for_each(|row| NAMES[..3].iter().for_each(|name| note(name, row, None)));
        (0..40).for_each(|row| note(NAMES[0], row, Some(&[3; 900])));
        db.close().expect("closed");
    });
    Recorded { shape, ..recorded }
}

#[test]
fn a_crash_loses_nothing_while_a_tree_outgrows_the_directory() {
    for shape in [SMALL, IN_PLACE] {
        let recorded = record(shape);
        let boundaries = recorded.history.boundaries();
        let images = check_matrix(&recorded, 0, stride(boundaries / 150));
        assert!(images > 1000, "{images} crash images of {boundaries} boundaries");
    }
}

/// The first checkpoint behind a recovery names map pages that have not been written yet.
#[test]
fn a_second_crash_right_behind_a_recovery_loses_nothing() {
    for shape in [SMALL, IN_PLACE] {
        let recorded = record(shape);
        let boundaries = recorded.history.boundaries();
        for boundary in (0..boundaries).step_by(stride(boundaries / 80)) {
            let disk = disk_of(recorded.history.crash_image(boundary, Unsynced::All));
            let (image, _) = run(1, || {
                let db = open(&disk, shape.reopen_options());
                let image = disk.crash_now(Unsynced::None);
                db.close().expect("closed");
                image
            });
            let found = recover_shaped(&disk_of(image), shape).expect("sound");
            recorded
                .oracle
                .compare(&found, boundary)
                .unwrap_or_else(|problem| unreachable!("at {boundary}: {problem}"));
        }
    }
}
