//! Crashes beside live snapshots: what they keep is no row after the crash, and nothing acknowledged is lost.

use std::collections::BTreeMap;

use millpond::Snapshot;
use millpond::simulation::{sleep_ns, spawn};

use crate::crash_matrix::{check_matrix, client, record, stride, two_trees};
use crate::support::{SMALL, open, settle};

const CLIENTS: usize = 2;

/// Keys and lengths of values at the snapshot, by tree.
fn rows(snapshot: &Snapshot, db: &millpond::Db) -> BTreeMap<&'static str, Vec<(Vec<u8>, usize)>> {
    let of = |name: &'static str| {
        let tree = db.open_tree(name).expect("there");
        let rows = snapshot.scan(&tree, ..).expect("here").map(|row| row.expect("read"));
        (name, rows.map(|(key, value)| (key, value.len())).collect())
    };
    ["a", "b"].map(of).into()
}

/// One snapshot lives from the begin, others come and go beside the clients. The last live into the crash, or until the
/// database is closed.
#[test]
fn a_crash_beside_live_snapshots_loses_nothing() {
    let (start, oracle) = two_trees(CLIENTS);
    let recorded = record(61, start, oracle, |disk, oracle| {
        let db = open(disk, SMALL.reopen_options());
        let old = db.snapshot().expect("open");
        let before = rows(&old, &db);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let (disk, oracle, db) = (disk.clone(), oracle.clone(), db.clone());
                spawn("client", move || client(&disk, &oracle, &db, id, 7 + id as u64, 60, 700)).expect("a thread")
            })
            .collect();
        let mut held = Vec::new();
        for turn in 0..12 {
            sleep_ns(3_000_000);
            held.push(db.snapshot().map(|snapshot| (rows(&snapshot, &db), snapshot)).expect("open"));
            if turn % 3 == 2 {
                let (seen, snapshot) = held.swap_remove(turn / 3 % held.len());
                assert_eq!(rows(&snapshot, &db), seen);
            }
        }
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        settle(&db);
        assert!(db.stats().undo_bytes_retained > 0, "nothing was kept");
        assert_eq!(rows(&old, &db), before);
        drop(old);
        settle(&db);
        held.iter().for_each(|(seen, snapshot)| assert_eq!(&rows(snapshot, &db), seen));
        db.close().expect("closed");
    });
    let images = check_matrix(&recorded, 0, stride(29));
    assert!(images > 50, "{images} images");
}
