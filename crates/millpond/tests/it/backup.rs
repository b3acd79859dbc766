//! Backups: exactly the commits up to their LSN, whatever runs beside them, and nothing that passes for a backup where
//! one was cut short.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;

use millpond::classic::{EmptyFreeListAlgorithm, Profile};
use millpond::simulation::{ServiceTime, SimulatedDisk, Unsynced, run, sleep_ns, spawn};
use millpond::{
    BackupReport, ByteSize, CommitTs, Db, Durability, Error, Field, TableDefinition, TxnOptions, WorkOptions,
    WriteBatch, restore_on,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::stride;
use crate::support::{Contents, IN_PLACE, SLOW, SMALL, Shape, THREADED, TWICE, disk_of, open, recover_shaped, sound};

/// Rows of the tree and of the table before the backup.
const ROWS: u32 = 1500;

/// Rows of the tree `large` before the backup: some megabytes, which a backup copies in several steps.
const LARGE: u32 = 3000;

const CLIENTS: u32 = 3;

/// What a commit made of rows: name of the tree or table, key, and the new value if there is one.
type Change = (&'static str, Vec<u8>, Option<Vec<u8>>);

/// A commit's place, and its changes.
type Commit = (CommitTs, Vec<Change>);

fn row(number: u32, round: u32) -> Vec<u8> {
    // The table's index is on the first eight bytes.
    let mut value = [round.to_be_bytes(), number.to_be_bytes()].concat();
    value.resize(60 + (number as usize * 7 + round as usize) % 90, 1);
    value
}

/// A row of the tree `large`.
fn large(number: u32, round: u32) -> Vec<u8> {
    [row(number, round), vec![3; 900]].concat()
}

/// A database with two trees and a table, closed.
fn start(shape: Shape) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, shape.options());
        let rows = || (0..ROWS).map(|number| (number.to_be_bytes(), row(number, 0)));
        db.bulk_load("tree", rows()).expect("loaded");
        db.bulk_load("large", (0..LARGE).map(|number| (number.to_be_bytes(), large(number, 0)))).expect("loaded");
        let indexes = TableDefinition::new().unique("u", [Field::value(0..8)]);
        db.bulk_load_table("table", indexes, rows()).expect("loaded");
        db.close().expect("closed");
    });
    SimulatedDisk::with_image(disk.image(), SLOW)
}

/// Changes random rows of its own in batches and transactions, one of which is left open over a while. Returns its
/// commits.
fn client(db: &Db, id: u32, seed: u64, turns: u32) -> Vec<Commit> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let [tree, big] = ["tree", "large"].map(|name| db.open_tree(name).expect("there"));
    let table = db.open_table("table").expect("there");
    let mut commits = Vec::new();
    for turn in 1..=turns {
        let mut changes: BTreeMap<(&'static str, Vec<u8>), Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..rng.random_range(1..=if turn % 9 == 0 { 60 } else { 4 }) {
            let number = rng.random_range(0..2 * ROWS / CLIENTS) * CLIENTS + id;
            let name = if rng.random() { "tree" } else { "table" };
            let value = rng.random_bool(0.8).then(|| row(number, turn));
            changes.insert((name, number.to_be_bytes().to_vec()), value);
            let number = rng.random_range(0..LARGE / CLIENTS) * CLIENTS + id;
            changes.insert(("large", number.to_be_bytes().to_vec()), Some(large(number, turn)));
        }
        let changes: Vec<Change> = changes.into_iter().map(|((name, key), value)| (name, key, value)).collect();
        let end = if turn % 3 == 0 {
            let mut txn = db.begin(TxnOptions::new()).expect("begun");
            for (name, key, value) in &changes {
                match (*name, value) {
                    ("large", value) => {
                        txn.put(&big, key, value.as_ref().expect("none is deleted")).map(drop).expect("written");
                    }
                    ("tree", Some(value)) => txn.put(&tree, key, value).map(drop).expect("written"),
                    ("tree", None) => txn.delete(&tree, key).map(drop).expect("deleted"),
                    (_, Some(value)) => txn.put(&table, key, value).map(drop).expect("written"),
                    (_, None) => txn.delete(&table, key).map(drop).expect("deleted"),
                }
            }
            sleep_ns(5_000_000);
            if turn % 4 == 0 {
                txn.rollback().expect("rolled back");
                continue;
            }
            txn.commit().expect("committed")
        } else {
            let mut batch = WriteBatch::new();
            for (name, key, value) in &changes {
                match (*name, value) {
                    ("large", value) => batch.put(&big, key, value.as_ref().expect("none is deleted")),
                    ("tree", Some(value)) => batch.put(&tree, key, value),
                    ("tree", None) => batch.delete(&tree, key),
                    (_, Some(value)) => batch.put(&table, key, value),
                    (_, None) => batch.delete(&table, key),
                };
            }
            db.write(batch).expect("written")
        };
        commits.push((end, changes));
    }
    commits
}

/// The contents after the commits up to `upto`.
fn after(commits: &[Commit], upto: CommitTs) -> Contents {
    let rows = || (0..ROWS).map(|number| (number.to_be_bytes().to_vec(), row(number, 0))).collect();
    let mut all = Contents::from([("tree".to_owned(), rows()), ("table".to_owned(), rows())]);
    let big = (0..LARGE).map(|number| (number.to_be_bytes().to_vec(), large(number, 0)));
    all.insert("large".to_owned(), big.collect());
    let mut commits: Vec<_> = commits.iter().filter(|(end, _)| *end <= upto).collect();
    commits.sort_unstable_by_key(|(end, _)| *end);
    for (name, key, value) in commits.into_iter().flat_map(|(_, changes)| changes) {
        let rows = all.get_mut(*name).expect("there");
        match value {
            Some(value) => drop(rows.insert(key.clone(), value.clone())),
            None => drop(rows.remove(key)),
        }
    }
    all
}

/// Restores a backup, and reads what an open finds in it.
fn restored(backup: &SimulatedDisk, shape: Shape) -> (BackupReport, Contents) {
    let disk = SimulatedDisk::new();
    let report = restore_on(backup, &disk).expect("restored");
    let found = recover_shaped(&disk, shape).unwrap_or_else(|problem| unreachable!("{shape:?}: {problem}"));
    (report, found)
}

/// Clients, a backup beside them, and what they committed.
fn back_up_beside_clients(
    shape: Shape,
    seed: u64,
    turns: u32,
    to: &SimulatedDisk,
) -> (Result<BackupReport, Error>, Vec<Commit>) {
    let disk = start(shape);
    let to = to.clone();
    let (found, _) = run(seed, || {
        let db = open(&disk, shape.reopen_options());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|id| {
                let db = db.clone();
                spawn("client", move || client(&db, id, seed * 10 + u64::from(id), turns)).expect("a thread")
            })
            .collect();
        sleep_ns(40_000_000 * (1 + seed % 5));
        let report = db.backup_on(&to, WorkOptions::new().rate(ByteSize::mib(4)));
        let commits = clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
        db.close().expect("closed");
        (report, commits)
    });
    sound(&disk);
    found
}

/// Among them such whose pages are also written by threads beside the keeper.
fn shapes() -> [Shape; 7] {
    let legacy = Shape { empty: EmptyFreeListAlgorithm::Legacy, frames: 120, ..TWICE };
    let server = Shape { profile: Profile::Percona57, frames: 400, ..TWICE };
    [SMALL, IN_PLACE, TWICE, THREADED, legacy, server, Shape { page_kib: 16, ..SMALL }]
}

#[test]
fn a_backup_has_exactly_the_commits_up_to_its_lsn() {
    let (mut earlier, mut later) = (0, 0);
    for (seed, shape) in (0..).zip(shapes()) {
        let to = SimulatedDisk::new();
        let (report, commits) = back_up_beside_clients(shape, seed, 60, &to);
        let report = report.expect("backed up");
        earlier += commits.iter().filter(|(end, _)| *end <= report.commit_ts).count();
        later += commits.iter().filter(|(end, _)| *end > report.commit_ts).count();
        let (again, found) = restored(&to, shape);
        assert_eq!(again, report);
        assert!(found == after(&commits, report.commit_ts), "{shape:?}, seed {seed}");
        // The backup stays as it is: it opens for reading only.
        assert!(matches!(Db::open_on(Arc::new(to.clone()), shape.reopen_options()), Err(Error::Format(_))));
        sound(&to);
    }
    assert!(earlier > 50 && later > 50, "{earlier} commits before, {later} after");
}

/// Rows and entries of a snapshot agree, and so do images and their map, whatever changes meanwhile.
#[test]
fn a_check_beside_clients_finds_no_problem() {
    for (seed, shape) in (0..).zip([SMALL, TWICE, Shape { page_kib: 16, ..SMALL }]) {
        let disk = start(shape);
        let (report, _) = run(seed, || {
            let db = open(&disk, shape.reopen_options());
            let clients: Vec<_> = (0..CLIENTS)
                .map(|id| {
                    let db = db.clone();
                    spawn("client", move || client(&db, id, seed * 10 + u64::from(id), 60)).expect("a thread")
                })
                .collect();
            sleep_ns(20_000_000);
            let mut seen = (0, 0);
            let options = WorkOptions::new().rate(ByteSize::mib(4)).progress(move |progress| {
                assert!(seen.0 <= progress.done && progress.done <= progress.total, "{seen:?}, {progress:?}");
                seen = (progress.done, progress.total);
                ControlFlow::Continue(())
            });
            let report = db.check(options).expect("checked");
            clients.into_iter().for_each(|client| drop(client.join().expect("no panic")));
            db.close().expect("closed");
            report
        });
        assert_eq!(report.problems, Vec::<String>::new(), "{shape:?}");
        let rows = u64::from(ROWS);
        // Three trees of rows, and an index with an entry for each row of one of them.
        assert!(report.trees == 4 && report.pages > 800 / shape.page_kib, "{report:?}");
        assert!((rows / 2..3 * rows).contains(&report.index_entries), "{report:?}");
        assert!(report.entries > u64::from(LARGE) + 2 * report.index_entries, "{report:?}");
        sound(&disk);
    }
}

/// Without a client the backup is the database.
#[test]
fn a_backup_at_rest_has_everything_and_gives_all_slots_back() {
    for shape in [SMALL, TWICE] {
        let (disk, to) = (start(shape), SimulatedDisk::new());
        let (reports, _) = run(1, || {
            let db = open(&disk, shape.reopen_options());
            let tree = db.open_tree("tree").expect("there");
            tree.put(b"last", b"one").expect("written");
            let first = db.backup_on(&to, WorkOptions::new()).expect("backed up");
            // Another one, to a directory that has a backup already; and one after that.
            let message = db.backup_on(&to, WorkOptions::new()).expect_err("not empty").to_string();
            assert!(message.contains("not empty") && message.contains("new directory"), "{message}");
            let second = db.backup_on(&SimulatedDisk::new(), WorkOptions::new()).expect("backed up");
            let given_up = WorkOptions::new().progress(|progress| {
                assert!(progress.done <= progress.total && progress.total > 0);
                if progress.done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            let empty = SimulatedDisk::new();
            assert!(matches!(db.backup_on(&empty, given_up), Err(Error::Cancelled(_))));
            assert!(empty.image().is_empty(), "nothing is left");
            db.close().expect("closed");
            [first, second]
        });
        assert_eq!(reports[0].pages, reports[1].pages);
        let (_, found) = restored(&to, shape);
        assert_eq!(found["tree"].len(), ROWS as usize + 1);
        assert!(found["table"] == after(&[], reports[0].commit_ts)["table"]);
    }
}

/// A short file with many small trees: the copy is not longer, and neither is what is restored.
#[test]
fn a_backup_is_as_long_as_its_source() {
    let (disk, to, restored) = (start(SMALL), SimulatedDisk::new(), SimulatedDisk::new());
    run(1, || {
        let db = open(&disk, SMALL.reopen_options());
        for tree in 0..200 {
            db.create_tree(&tree.to_string()).expect("created").put(b"key", b"value").expect("written");
        }
        db.compact(WorkOptions::new()).expect("done");
        db.backup_on(&to, WorkOptions::new()).expect("backed up");
        db.close().expect("closed");
        restore_on(&to, &restored).expect("restored");
    });
    let lens = |disk: &SimulatedDisk| ["data.mpd", "directory-0.mpd"].map(|name| disk.image()[name].len());
    assert_eq!(lens(&to)[0], lens(&disk)[0]);
    assert_eq!(lens(&restored), lens(&to));
}

/// Each call to the target fails once: there is no backup then, and the source goes on.
#[test]
fn a_backup_cut_short_at_any_io_passes_for_none() {
    let disk = start(SMALL);
    let (mut failed, mut call) = (0, 0);
    loop {
        let (source, to) = (SimulatedDisk::with_image(disk.image(), ServiceTime::default()), SimulatedDisk::new());
        to.fail_at(call, ErrorKind::Other);
        let (made, _) = run(call, || {
            let db = open(&source, SMALL.reopen_options());
            let made = db.backup_on(&to, WorkOptions::new());
            db.open_tree("tree").expect("there").put(b"k", b"later").expect("the source goes on");
            db.close().expect("closed");
            made
        });
        to.fail_at(u64::MAX, ErrorKind::Other);
        let left = restore_on(&to, &SimulatedDisk::new());
        match made {
            Ok(_) if call > to.calls() => break,
            Ok(_) => drop(left.expect("the failed call was not needed")),
            Err(_) => {
                failed += 1;
                assert!(matches!(left, Err(Error::Format(_))), "call {call}: {left:?}");
            }
        }
        call += stride(3) as u64;
    }
    assert!(failed > 10, "{failed}");
}

/// The target loses power at any moment: what is there is a whole backup, or none.
#[test]
fn a_target_that_crashes_has_a_whole_backup_or_none() {
    let (source, to) = (start(SMALL), SimulatedDisk::new());
    let (acknowledged, _) = run(3, || {
        let db = open(&source, SMALL.reopen_options());
        db.backup_on(&to, WorkOptions::new()).expect("backed up");
        db.close().expect("closed");
        to.boundaries()
    });
    let history = to.history();
    let (mut whole, mut none) = (0, 0);
    for boundary in (0..=history.boundaries()).step_by(stride(3)) {
        for mode in [Unsynced::None, Unsynced::All, Unsynced::Subset(boundary as u64), Unsynced::Torn(5)] {
            let crashed = disk_of(history.crash_image(boundary, mode));
            let back = SimulatedDisk::new();
            match restore_on(&crashed, &back) {
                Ok(_) => {
                    whole += 1;
                    let found = recover_shaped(&back, SMALL).expect("whole");
                    assert!(found["tree"].len() == ROWS as usize && found["table"].len() == ROWS as usize);
                }
                Err(error) => {
                    none += 1;
                    assert!(boundary < acknowledged, "{boundary} of {acknowledged}: {error}");
                    assert!(matches!(error, Error::Format(_)), "{boundary}, {mode:?}: {error}");
                }
            }
        }
    }
    assert!(whole > 0 && none > 10, "{whole} whole, {none} none");
}

/// The same of a restoration: a whole database, or none that opens, and none that is a new one.
#[test]
fn a_restoration_that_crashes_leaves_a_whole_database_or_none() {
    let (source, to, back) = (start(SMALL), SimulatedDisk::new(), SimulatedDisk::new());
    run(3, || {
        let db = open(&source, SMALL.reopen_options());
        db.backup_on(&to, WorkOptions::new()).expect("backed up");
        db.close().expect("closed");
    });
    restore_on(&to, &back).expect("restored");
    let acknowledged = back.boundaries();
    let history = back.history();
    let (mut whole, mut none) = (0, 0);
    for boundary in (0..=history.boundaries()).step_by(stride(3)) {
        for mode in [Unsynced::None, Unsynced::All, Unsynced::Subset(boundary as u64), Unsynced::Torn(5)] {
            let crashed = disk_of(history.crash_image(boundary, mode));
            match recover_shaped(&crashed, SMALL) {
                Ok(found) => {
                    whole += 1;
                    assert!(found["tree"].len() == ROWS as usize && found["table"].len() == ROWS as usize);
                }
                Err(problem) => {
                    none += 1;
                    assert!(boundary < acknowledged, "{boundary} of {acknowledged}: {problem}");
                    let is_told = ["cut short: remove the directory", "is not a Millpond database"];
                    assert!(is_told.iter().any(|told| problem.contains(told)), "{boundary}, {mode:?}: {problem}");
                }
            }
        }
    }
    assert!(whole > 0 && none > 10, "{whole} whole, {none} none");
}

/// Trees, tables and indexes that come and go, and loads, beside backups at several moments.
#[test]
fn a_backup_beside_statements_and_loads_is_whole() {
    for (seed, shape) in (0..).zip([SMALL, IN_PLACE, Shape { page_kib: 16, ..SMALL }]) {
        let disk = start(shape);
        let (backups, _) = run(seed, || {
            let db = open(&disk, shape.reopen_options());
            let other = db.clone();
            let maker = spawn("maker", move || {
                let table = other.open_table("table").expect("there");
                for turn in 0..6u32 {
                    let rows = (0..400 * (turn + 1)).map(|number| (number.to_be_bytes(), row(number, turn)));
                    other.bulk_load(&format!("loaded {turn}"), rows).expect("loaded");
                    table.create_index(&format!("i{turn}"), [Field::value(4..8)]).expect("created");
                    if turn % 2 == 1 {
                        other.drop_tree(&format!("loaded {}", turn - 1)).expect("dropped");
                        table.drop_index(&format!("i{}", turn - 1)).expect("dropped");
                    }
                }
            });
            let maker = maker.expect("a thread");
            let mut backups = Vec::new();
            for _ in 0..4 {
                sleep_ns(90_000_000);
                let to = SimulatedDisk::new();
                db.backup_on(&to, WorkOptions::new().rate(ByteSize::mib(16))).expect("backed up");
                backups.push(to);
            }
            maker.join().expect("no panic");
            db.close().expect("closed");
            backups
        });
        let trees: Vec<usize> = backups.iter().map(|to| restored(to, shape).1.len()).collect();
        assert!(trees.iter().any(|count| *count != trees[0]), "{trees:?}: all at one moment");
    }
}

/// A slow backup beside writers on a disk with room: the file grows, no pin breaks, no writer waits for the backup.
#[test]
fn beside_a_slow_backup_the_data_file_grows() {
    let fast = ServiceTime { read_ns: 5_000, write_ns: 5_000, sync_ns: 20_000 };
    let disk = SimulatedDisk::with_image(start(SMALL).image(), fast);
    run(1, || {
        let db = open(&disk, SMALL.reopen_options());
        let tree = db.bulk_load("larger", (0..12 * ROWS).map(|row| (row.to_be_bytes(), [1; 900]))).expect("loaded");
        // The hold on the log does not give way.
        db.set_redo_capacity(ByteSize::mib(8)).expect("done");
        db.checkpoint().expect("done");
        let before = db.stats().data_slots_total;
        let other = db.clone();
        let backup =
            spawn("backup", move || other.backup_on(&SimulatedDisk::new(), WorkOptions::new().rate(ByteSize::mib(1))));
        for first in 0..30 {
            let mut batch = WriteBatch::new();
            (0..12 * ROWS).rev().skip(first).step_by(30).for_each(|number| {
                batch.put(&tree, number.to_be_bytes(), [2; 900]);
            });
            db.write(batch).expect("written");
            tree.put([&[9], &first.to_be_bytes()[..]].concat(), [1; 900]).expect("new pages, too");
        }
        let grown = db.stats().data_slots_total - before;
        backup.expect("a thread").join().expect("no panic").expect("backed up");
        assert!(grown > 1000, "grown by {grown} slots");
        db.close().expect("closed");
    });
    sound(&disk);
}

/// The target is slow, and writers fill the log: the hold on it gives way, and the writers go on.
#[test]
fn a_hold_on_the_log_gives_way_to_writers() {
    let fast = ServiceTime { read_ns: 5_000, write_ns: 5_000, sync_ns: 20_000 };
    let disk = SimulatedDisk::with_image(start(SMALL).image(), fast);
    let slow = ServiceTime { read_ns: 0, write_ns: 400_000_000, sync_ns: 400_000_000 };
    let to = SimulatedDisk::with_image(SimulatedDisk::new().image(), slow);
    run(1, || {
        let db = open(&disk, SMALL.reopen_options());
        let tree = db.open_tree("large").expect("there");
        let (other, target) = (db.clone(), to.clone());
        let backup = spawn("backup", move || other.backup_on(&target, WorkOptions::new()));
        for turn in 0..2000u32 {
            tree.put((turn % LARGE).to_be_bytes(), large(turn % LARGE, turn)).expect("written");
            sleep_ns(1_000_000);
        }
        let ended = backup.expect("a thread").join().expect("no panic");
        let message = ended.expect_err("the log was needed").to_string();
        assert!(message.contains("room of the log") && message.contains("redo_capacity"), "{message}");
        db.close().expect("closed");
    });
    assert!(to.image().is_empty(), "nothing is left");
    sound(&disk);
}

/// A database that is closed during a backup ends it.
#[test]
fn closing_the_database_ends_a_backup() {
    let mut ended = 0;
    for seed in 0..8 {
        let (disk, to) = (start(SMALL), SimulatedDisk::new());
        let (made, _) = run(seed, || {
            let db = open(&disk, SMALL.reopen_options());
            db.open_tree("tree").expect("there").put(b"k", b"v").expect("written");
            let (other, target) = (db.clone(), to.clone());
            let slow = WorkOptions::new().rate(ByteSize::mib(2));
            let backup = spawn("backup", move || other.backup_on(&target, slow)).expect("a thread");
            sleep_ns(250_000_000 * seed);
            db.close().expect("closed");
            backup.join().expect("no panic")
        });
        match made {
            Ok(_) => drop(restored(&to, SMALL)),
            Err(_) => {
                ended += 1;
                assert!(to.image().is_empty(), "nothing is left");
            }
        }
        sound(&disk);
    }
    assert!(ended > 2, "{ended}");
}

/// A map, a directory or a log that was changed or lost in the backup is found by its restoration.
#[test]
fn a_damaged_or_missing_file_of_a_backup_is_found() {
    let (disk, to) = (start(SMALL), SimulatedDisk::new());
    run(1, || {
        let db = open(&disk, SMALL.reopen_options());
        let tree = db.open_tree("tree").expect("there");
        (0..200u32).for_each(|number| tree.put(number.to_be_bytes(), row(number, 1)).expect("written"));
        db.backup_on(&to, WorkOptions::new()).expect("backed up");
        db.close().expect("closed");
    });
    let whole = to.image();
    restore_on(&disk_of(whole.clone()), &SimulatedDisk::new()).expect("whole");
    for name in whole.keys().filter(|name| *name != "lock.mpd") {
        let mut image = whole.clone();
        image.remove(name);
        let back = SimulatedDisk::new();
        assert!(restore_on(&disk_of(image), &back).is_err(), "without {name}");
        assert!(back.image().is_empty(), "nothing is left");
    }
    for (name, part) in [("map.mpd", 4096 + 200), ("redo-0-0.mpd", 4096 + 40_000)] {
        let mut image = whole.clone();
        let file = image.get_mut(name).expect("there");
        let at = (part..file.len()).find(|at| file[*at] != 0).expect("bytes in use");
        file[at] ^= 1;
        assert!(restore_on(&disk_of(image), &SimulatedDisk::new()).is_err(), "{name}, byte {at}");
    }
}

/// The source crashes at any moment of a backup beside a writer: nothing acknowledged is lost.
#[test]
fn a_source_that_crashes_during_a_backup_loses_nothing() {
    for shape in [SMALL, TWICE] {
        let disk = start(shape);
        let ((written, ended), _) = run(5, || {
            let db = open(&disk, shape.reopen_options());
            let (other, seen) = (db.clone(), disk.clone());
            let writer = spawn("writer", move || {
                let tree = other.open_tree("large").expect("there");
                let put = |turn: u32| {
                    let mut batch = WriteBatch::new();
                    let numbers: Vec<u32> = (0..8).map(|row| (turn * 8 + row) * 613 % LARGE).collect();
                    numbers.iter().for_each(|number| {
                        batch.put(&tree, number.to_be_bytes(), large(*number, 9));
                    });
                    batch.durability(Durability::Commit);
                    other.write(batch).expect("written");
                    (seen.boundaries(), numbers)
                };
                (0..90).map(put).collect::<Vec<_>>()
            });
            let to = SimulatedDisk::new();
            for _ in 0..2 {
                db.backup_on(&to, WorkOptions::new().rate(ByteSize::mib(8))).expect("backed up");
                to.image().keys().for_each(|name| drop(millpond::lab::Files::remove(&to, name)));
            }
            let written = writer.expect("a thread").join().expect("no panic");
            let ended = disk.boundaries();
            db.close().expect("closed");
            (written, ended)
        });
        let history = disk.history();
        for boundary in (0..=ended).step_by(stride(23)) {
            for mode in [Unsynced::None, Unsynced::Subset(boundary as u64)] {
                let crashed = disk_of(history.crash_image(boundary, mode));
                let found = recover_shaped(&crashed, shape)
                    .unwrap_or_else(|problem| unreachable!("{shape:?}: crash at {boundary}, {mode:?}: {problem}"));
                for number in written.iter().filter(|(at, _)| *at <= boundary).flat_map(|(_, numbers)| numbers) {
                    let value = &found["large"][&number.to_be_bytes()[..]];
                    assert!(*value == large(*number, 9), "crash at {boundary}: row {number}");
                }
            }
        }
    }
}

/// The source's file system has no room for images beside the pinned ones: the backup gives up, no writer does.
#[test]
fn on_a_full_disk_a_backup_gives_way_to_writers() {
    // Much faster than the backup.
    let fast = ServiceTime { read_ns: 5_000, write_ns: 5_000, sync_ns: 20_000 };
    let disk = SimulatedDisk::with_image(start(SMALL).image(), fast);
    run(1, || {
        let db = open(&disk, SMALL.reopen_options());
        let large = |number: u32| (number.to_be_bytes(), [1; 900]);
        let tree = db.bulk_load("larger", (0..12 * ROWS).map(large)).expect("loaded");
        db.checkpoint().expect("done");
        disk.limit_space(Some(disk.image().values().map(|file| file.len() as u64).sum()));
        let other = db.clone();
        let backup =
            spawn("backup", move || other.backup_on(&SimulatedDisk::new(), WorkOptions::new().rate(ByteSize::mib(1))));
        for first in 0..60 {
            let mut batch = WriteBatch::new();
            (0..12 * ROWS).rev().skip(first).step_by(60).for_each(|number| {
                batch.put(&tree, number.to_be_bytes(), [2; 900]);
            });
            db.write(batch).expect("no writer pays for the backup");
        }
        let ended = backup.expect("a thread").join().expect("no panic");
        assert!(matches!(ended, Err(Error::OutOfSpace(_))), "{ended:?}");
        db.close().expect("closed");
    });
    sound(&disk);
}

/// A flipped bit in the source, and one in the backup, are each found before anything passes for whole.
#[test]
fn damage_is_found_by_the_backup_and_by_its_restoration() {
    let disk = start(SMALL);
    let to = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, SMALL.reopen_options());
        db.backup_on(&to, WorkOptions::new()).expect("backed up");
        db.close().expect("closed");
    });
    let data = to.image()["data.mpd"].clone();
    let used = (1 << 20..data.len()).step_by(4096).find(|at| data[*at..at + 4096].iter().any(|byte| *byte != 0));
    let at = used.expect("an image") as u64 + 99;
    assert!(to.flip_bit("data.mpd", at, 2));
    let back = SimulatedDisk::new();
    let message = restore_on(&to, &back).expect_err("damaged").to_string();
    assert!(message.contains("is damaged") && message.contains("data.mpd"), "{message}");
    assert!(back.image().is_empty(), "nothing is left");
    assert!(to.flip_bit("data.mpd", at, 2));
    restore_on(&to, &back).expect("whole again");
    // The same image in the source.
    assert!(disk.flip_bit("data.mpd", at, 2));
    let (error, _) = run(2, || {
        let db = open(&disk, SMALL.reopen_options());
        let error = db.backup_on(&SimulatedDisk::new(), WorkOptions::new()).expect_err("damaged");
        db.close().expect("closed");
        error
    });
    assert!(matches!(error, Error::Corruption(_)) && error.to_string().contains("page "), "{error}");
}
