//! A commit without a wait drops a tree, and a crash takes the drop back: the tree's pages must still be there.

use std::sync::Arc;

use millpond::simulation::{History, SimulatedDisk, Unsynced, run, sleep_ns};
use millpond::{Db, Durability, WriteBatch};

use crate::crash_matrix::stride;
use crate::support::{SLOW, SMALL, disk_of, recover_shaped};

/// Rows of 900 bytes, four to a leaf.
const DROPPED: u32 = 160;
const DIRTY: u32 = 40;
const READ: u32 = 400;

fn fill(db: &Db, name: &str, rows: u32) -> millpond::Tree {
    let tree = db.create_tree(name).expect("created");
    (0..rows).for_each(|row| tree.put(row.to_be_bytes(), [7; 900]).expect("written"));
    tree
}

/// The history of a disk, and the position in it where the drop began.
fn dropped_without_waiting() -> (History, usize) {
    let disk = SimulatedDisk::with_image(millpond::simulation::Image::new(), SLOW);
    let begun = run(7, || {
        let db = Db::open_on(Arc::new(disk.clone()), SMALL.options()).expect("opened");
        let (dropped, read) = (fill(&db, "dropped", DROPPED), fill(&db, "read", READ));
        db.checkpoint().expect("both are clean");
        let dirty = fill(&db, "dirty", DIRTY);
        let begun = disk.boundaries();
        db.set_option("durability", "none").expect("online");
        db.drop_tree("dropped").expect("dropped");
        // The dirty pages' changes were durable before the drop: eviction needs no log flush beyond that.
        for _ in 0..3 {
            assert_eq!(read.scan(..).filter(|row| row.is_ok()).count(), usize::try_from(READ).expect("few"));
            sleep_ns(100_000_000);
        }
        let mut batch = WriteBatch::new();
        batch.put(&dirty, b"the last", b"1").durability(Durability::Commit);
        db.write(batch).expect("written");
        drop((dropped, read, dirty));
        db.close().expect("closed");
        begun
    })
    .0;
    (disk.history(), begun)
}

#[test]
fn tree_whose_drop_a_crash_takes_back_is_whole() {
    let (history, begun) = dropped_without_waiting();
    let (mut with, mut without) = (0, 0);
    for boundary in (begun..=history.boundaries()).step_by(stride(3)) {
        for unsynced in [Unsynced::None, Unsynced::All] {
            let image = history.crash_image(boundary, unsynced);
            let found = run(1, || recover_shaped(&disk_of(image), SMALL)).0;
            let found = found.unwrap_or_else(|why| panic!("boundary {boundary}, {unsynced:?}: {why}"));
            let rows = |name: &str| found.get(name).map_or(0, std::collections::BTreeMap::len);
            assert!(rows("dirty") >= 40 && rows("read") == 400, "boundary {boundary}, {unsynced:?}");
            match rows("dropped") {
                0 => without += 1,
                160 => with += 1,
                rows => panic!("boundary {boundary}, {unsynced:?}: {rows} rows of the dropped tree"),
            }
        }
    }
    assert!(with > 0 && without > 0, "{with} crashes before the drop was durable, {without} behind it");
}
