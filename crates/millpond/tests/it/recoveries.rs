//! Recoveries of more pages than the pool has frames for: the table of pages is bounded, and they are redone in parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond::simulation::{Image, SimulatedDisk, Unsynced, run};
use millpond::{ByteSize, Db, Options, WriteBatch};

use crate::support::{IN_PLACE, SMALL, Shape, TWICE, disk_of, recover_shaped};

/// Rows of 700 bytes: five to a leaf, in 600 leaves.
const ROWS: u32 = 3_000;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database with a pool large enough for all pages, killed while nearly all of them are dirty; and its rows.
fn killed(shape: Shape, seed: u64) -> (Image, Rows) {
    let disk = SimulatedDisk::new();
    let mut rows = Rows::new();
    run(seed, || {
        let options = Options::new().page_size(ByteSize::kib(4)).page_store(shape.store);
        let options = options.classic(|classic| classic.doublewrite(shape.doublewrite));
        let options = options.buffer_pool_size(ByteSize::mib(8)).redo_capacity(ByteSize::mib(16));
        let db = Db::open_on(Arc::new(disk.clone()), options).expect("opened");
        let tree = db.create_tree("t").expect("created");
        let mut put = |from: u32, step: usize, byte: u8| {
            for first in (from..ROWS).step_by(step).collect::<Vec<_>>().chunks(20) {
                let mut batch = WriteBatch::new();
                for row in first {
                    batch.put(&tree, row.to_be_bytes(), [byte; 700]);
                    rows.insert(row.to_be_bytes().to_vec(), vec![byte; 700]);
                }
                db.write(batch).expect("written");
            }
        };
        put(0, 1, 1);
        db.checkpoint().expect("all is clean");
        put(0, 3, 2);
        // Some rows leave the tree again.
        (0..400u32).for_each(|row| {
            tree.delete(row.to_be_bytes()).expect("deleted");
            rows.remove(&row.to_be_bytes()[..]);
        });
        disk.halt();
        drop((tree, db));
    });
    (disk.crash_now(Unsynced::Subset(seed)), rows)
}

/// RECOVER-7
#[test]
fn pages_beyond_the_pool_are_redone_in_parts() {
    for (shape, seed) in [(SMALL, 1), (IN_PLACE, 2), (TWICE, 3)] {
        let (image, rows) = killed(shape, seed);
        let found = run(seed, || recover_shaped(&disk_of(image), shape)).0.expect("recovered");
        assert!(found["t"] == rows, "{shape:?}: {} rows of {}", found["t"].len(), rows.len());
    }
}

/// The recovery is cut short, and so is the next one, both in a small pool.
#[test]
fn recovery_in_parts_that_is_cut_short_goes_on() {
    let (image, rows) = killed(SMALL, 4);
    let mut image = image;
    for cut in [40, 400, 1_500, 4_000] {
        let disk = disk_of(image);
        disk.halt_at(disk.calls() + cut);
        let _ = run(cut, || recover_shaped(&disk, SMALL));
        image = disk.crash_now(Unsynced::Subset(cut));
    }
    let found = run(5, || recover_shaped(&disk_of(image), SMALL)).0.expect("recovered");
    assert!(found["t"] == rows, "{} rows of {}", found["t"].len(), rows.len());
}
