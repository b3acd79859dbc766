//! Trees of a few pages: the map directory holds their entries. They lose nothing where they outgrow that, in any
//! crash, and they take little of the files.

use millpond::simulation::{SimulatedDisk, run};

use crate::crash_matrix::{self, Oracle, Recorded, check_matrix, stride};
use crate::support::{IN_PLACE, SMALL, Shape, open};

fn key(row: u32) -> [u8; 4] {
    row.to_be_bytes()
}

/// Two trees: one grows from one page to some twenty, shrinks and grows again. Checkpoints come between.
fn record(shape: Shape) -> Recorded {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, shape.options());
        for name in ["grows", "stays"] {
            db.create_tree(name).expect("created");
        }
        db.close().expect("closed");
    });
    let recorded = crash_matrix::record(3, disk.image(), Oracle::default(), |disk, oracle| {
        let db = open(disk, shape.reopen_options());
        let note = |name: &'static str, row: u32, value: Option<&[u8]>| {
            let tree = db.open_tree(name).expect("there");
            let effects = vec![((name, key(row).to_vec()), value.map(<[u8]>::to_vec))];
            oracle.note(disk, 0, effects, || match value {
                Some(value) => tree.put(key(row), value),
                None => tree.delete(key(row)).map(drop),
            });
        };
        let checkpoint = || db.checkpoint().expect("written");
        for row in 0..80 {
            note("grows", row, Some(&[1; 900]));
            if row % 8 == 0 {
                note("stays", row, Some(&[2; 100]));
            }
            if row % 5 == 0 {
                checkpoint();
            }
        }
        for row in 4..80 {
            note("grows", row, None);
            if row % 20 == 0 {
                checkpoint();
            }
        }
        (0..40).for_each(|row| note("grows", row, Some(&[3; 900])));
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
        assert!(images > 300, "{images} crash images");
    }
}
