//! A process dies, the next one opens the database, and then the power fails. What the first one wrote and did not sync
//! is there for the second one to read, and may be gone after that: the second one must not rely on it unsynced.

use std::sync::Arc;

use millpond::Db;
use millpond::simulation::{Image, ServiceTime, SimulatedDisk, Unsynced, run};

use crate::crash_matrix::stride;
use crate::support::{disk_of, recover, small_options};

/// Rows that the first process writes.
const ROWS: u8 = 4;

/// What happened up to the loss of power, as positions in the disk's history.
struct Past {
    /// The first process came to the call at which it was to die.
    died: bool,
    acknowledged: u8,
    opened: usize,
    written: usize,
}

fn live_twice(disk: &SimulatedDisk, dies_at: u64) -> Past {
    let open = || {
        let db = Db::open_on(Arc::new(disk.clone()), small_options())?;
        let tree = db.open_tree("t").or_else(|_| db.create_tree("t"))?;
        Ok::<_, millpond::Error>((db, tree))
    };
    let mut acknowledged = 0;
    disk.halt_at(dies_at);
    if let Ok((db, tree)) = open() {
        while acknowledged < ROWS && tree.put(&[acknowledged], &[1; 300]).is_ok() {
            acknowledged += 1;
        }
        let _ = db.checkpoint();
    }
    let died = disk.calls() > dies_at;
    disk.go_on();
    let opened = disk.boundaries();
    let (db, tree) = open().expect("opened again");
    tree.put(b"second", b"1").expect("written");
    let written = disk.boundaries();
    db.checkpoint().expect("done");
    db.close().expect("closed");
    Past { died, acknowledged, opened, written }
}

/// The first process dies at each call that it makes. The second one changes a row, and takes a checkpoint. Then the
/// power fails at any moment, and takes all that is not synced.
fn check(start: &Image) {
    for dies_at in 0.. {
        let disk = SimulatedDisk::with_image(start.clone(), ServiceTime::default());
        let (past, _) = run(dies_at, || live_twice(&disk, dies_at));
        let history = disk.history();
        let sampled = stride(3);
        let first = past.opened + usize::try_from(dies_at).expect("small") % sampled;
        for boundary in (first..=history.boundaries()).step_by(sampled) {
            if past.acknowledged == 0 && boundary < past.written {
                continue;
            }
            let found = recover(&disk_of(history.crash_image(boundary, Unsynced::None)));
            let at = format!("killed at call {dies_at}, opened at {}, power lost at {boundary}", past.opened);
            let tree = &found.unwrap_or_else(|problem| unreachable!("{at}: {problem}"))["t"];
            let all = (0..past.acknowledged).all(|row| tree.contains_key(&[row][..]));
            assert!(all && (boundary < past.written || tree.contains_key(&b"second"[..])), "{at}");
        }
        if !past.died {
            assert!(dies_at > 30, "it made {dies_at} calls only");
            return;
        }
    }
}

#[test]
fn a_loss_of_power_after_a_process_that_died_loses_nothing() {
    let disk = SimulatedDisk::new();
    let db = Db::open_on(Arc::new(disk.clone()), small_options()).expect("opened");
    db.create_tree("t").expect("created");
    db.close().expect("closed");
    check(&disk.image());
}

#[test]
fn a_loss_of_power_after_a_process_that_died_while_it_created_the_database_loses_nothing() {
    check(&Image::new());
}
