//! Crash images at every I/O of workloads over tables: rows are as acknowledged (see `crash_matrix`), and `check` finds
//! every index right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond::simulation::{Image, SimulatedDisk, run, sleep_ns, spawn};
use millpond::{Db, Error, Field, Modify, Table, TableDefinition, WriteBatch};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::{
    Effects, Note, Oracle, Recorded, check_images, check_matrix, key_of, record, spawn_clients, stride, two_trees,
};
use crate::support::{SMALL, Shape, open};

/// Enough frames for the leaves of two operations, each with a row and three entries that move.
pub(crate) const SHAPE: Shape = Shape { frames: 232, ..SMALL };

/// Rows that every client finds.
pub(crate) const ROWS: usize = 200;

fn three_indexes() -> TableDefinition {
    TableDefinition::new()
        .unique("name", [Field::value(0..7)])
        .index("kind", [Field::value(7..8)])
        .index("text", [Field::value(8..12), Field::value(12..)])
}

/// A row with the key in its unique name, any kind, a text of any length.
pub(crate) fn row_of(key: &[u8], rng: &mut SmallRng) -> Vec<u8> {
    let mut row = [key, &[b'0' + rng.random_range(0..3), 0]].concat();
    row.truncate(7);
    row.resize(7, b'.');
    row.push(b'a' + rng.random_range(0..5));
    let len = if rng.random_bool(0.4) { 330 } else { 60 };
    row.resize(12 + rng.random_range(0..len), rng.random_range(0..3));
    row
}

pub(crate) fn make_table() -> (Image, Oracle) {
    let disk = SimulatedDisk::new();
    let oracle = Oracle::default();
    let db = open(&disk, SHAPE.options());
    let table = db.create_table("rows", three_indexes()).expect("created");
    let mut rng = SmallRng::seed_from_u64(1);
    for client in 0..3 {
        for number in (0..ROWS).step_by(3) {
            let key = key_of(client, number);
            let row = row_of(&key, &mut rng);
            table.insert(&key, &row).expect("inserted");
            let effects = vec![(("rows", key), Some(row))];
            let note = Note { client, began: 0, acknowledged: Some(0), effects };
            oracle.notes.lock().expect("not poisoned").push(note);
        }
    }
    db.close().expect("closed");
    (disk.image(), oracle)
}

/// One client's random operations on rows of its own.
fn client(disk: &SimulatedDisk, oracle: &Oracle, db: &Db, id: usize, seed: u64, ops: usize) {
    let table = db.open_table("rows").expect("there");
    let mut rng = SmallRng::seed_from_u64(seed);
    for _ in 0..ops {
        let key = key_of(id, rng.random_range(0..ROWS));
        let row = row_of(&key, &mut rng);
        let at = |key: &[u8]| ("rows", key.to_vec());
        match rng.random_range(0..8) {
            0 | 1 => oracle.note(disk, id, vec![(at(&key), None)], || table.delete(&key).map(drop)),
            2 => {
                let decide = |_: Option<&[u8]>| Modify::Put(row.clone());
                oracle.note(disk, id, vec![(at(&key), Some(row.clone()))], || table.modify(&key, decide).map(drop));
            }
            3 | 4 => {
                let other = key_of(id, rng.random_range(0..ROWS));
                batch(disk, oracle, db, &table, id, &[(&key, Some(&row)), (&other, None)]);
            }
            _ => oracle.note(disk, id, vec![(at(&key), Some(row.clone()))], || table.put(&key, &row)),
        }
    }
}

fn batch(
    disk: &SimulatedDisk,
    oracle: &Oracle,
    db: &Db,
    table: &Table,
    id: usize,
    rows: &[(&Vec<u8>, Option<&Vec<u8>>)],
) {
    let mut effects: Effects = Vec::new();
    for (key, row) in rows {
        effects.retain(|((_, earlier), _)| earlier != *key);
        effects.push((("rows", key.to_vec()), row.cloned()));
    }
    let write = || -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for (key, row) in rows {
            match row {
                Some(row) => batch.put(table, key, row),
                None => batch.delete(table, key),
            };
        }
        db.write(batch).map(drop)
    };
    oracle.note(disk, id, effects, write);
}

#[test]
fn a_crash_at_any_io_over_a_table_leaves_rows_and_indexes_right() {
    for seed in [21, 22] {
        let (start, oracle) = run(0, make_table).0;
        let recorded = record(seed, start, oracle, |disk, oracle| {
            let db = open(disk, SHAPE.reopen_options());
            let threads = spawn_clients(3, seed, (disk, oracle, &db), |disk, oracle, db, id, seed| {
                client(disk, oracle, db, id, seed, 60);
            });
            for thread in threads {
                thread.join().expect("no panic");
            }
            db.close().expect("closed");
        });
        check_matrix(&Recorded { shape: SHAPE, ..recorded }, 0, stride(7));
    }
}

/// Batches of several groups each: at a crash some of them are in flight together. One batch in four ends with a demand
/// that fails, and is undone while the others go on.
#[test]
fn a_crash_while_large_batches_fly_leaves_all_of_each_or_none() {
    let (start, oracle) = run(0, make_table).0;
    let recorded = record(24, start, oracle, |disk, oracle| {
        let db = open(disk, SHAPE.reopen_options());
        let ended = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|id| {
                let (disk, oracle, db, ended) = (disk.clone(), oracle.clone(), db.clone(), Arc::clone(&ended));
                let client = move || {
                    let table = db.open_table("rows").expect("there");
                    let mut rng = SmallRng::seed_from_u64(24 + u64::try_from(id).expect("small"));
                    for round in 0..4 {
                        let rows: Vec<_> = (0..ROWS)
                            .map(|number| {
                                let key = key_of(id, number);
                                let row = row_of(&key, &mut rng);
                                (key, rng.random_bool(0.8).then_some(row))
                            })
                            .collect();
                        if round == 2 {
                            let mut undone = WriteBatch::new();
                            for (key, _) in &rows {
                                undone.delete(&table, key);
                            }
                            undone.update(&table, b"\xFFmissing", row_of(b"missing", &mut rng));
                            assert!(matches!(db.write(undone), Err(Error::KeyNotFound(_))));
                        }
                        let rows: Vec<_> = rows.iter().map(|(key, row)| (key, row.as_ref())).collect();
                        batch(&disk, &oracle, &db, &table, id, &rows);
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                };
                spawn("client", client).expect("a thread")
            })
            .collect();
        let mut most = 0;
        while ended.load(Ordering::SeqCst) < threads.len() {
            most = most.max(db.stats().batches_in_flight);
            sleep_ns(1_000_000);
        }
        // A batch that is being undone counts, too, and its client has gone on.
        assert!((3..=6).contains(&most), "all at once, not {most}");
        for thread in threads {
            thread.join().expect("no panic");
        }
        db.close().expect("closed");
    });
    check_matrix(&Recorded { shape: SHAPE, ..recorded }, 0, stride(12));
}

#[test]
fn a_crash_during_creation_or_drop_leaves_tables_whole_or_gone() {
    let (start, oracle) = two_trees(1);
    let recorded = record(23, start, oracle, |disk, oracle| {
        let db = open(disk, SHAPE.reopen_options());
        let mut rng = SmallRng::seed_from_u64(23);
        for round in 0..3u8 {
            let fresh = db.create_table("fresh", three_indexes()).expect("created");
            for number in 0..12 {
                let key = key_of(0, number);
                let row = row_of(&key, &mut rng);
                let effects = vec![(("fresh", key.clone()), Some(row.clone()))];
                oracle.note(disk, 0, effects, || fresh.insert(&key, &row));
            }
            if round == 1 {
                db.checkpoint().expect("done");
            }
            let effects = (0..12).map(|number| (("fresh", key_of(0, number)), None)).collect();
            oracle.note(disk, 0, effects, || db.drop_table("fresh"));
            let a = db.open_tree("a").expect("there");
            oracle.note(disk, 0, vec![(("a", vec![round]), Some(vec![7; 1000]))], || a.put([round], [7; 1000]));
        }
        db.close().expect("closed");
    });
    check_matrix(&Recorded { shape: SHAPE, ..recorded }, 0, stride(2));
}

/// Indexes come and go beside two clients: each is whole or absent.
#[test]
fn a_crash_while_indexes_come_and_go_leaves_each_whole_or_gone() {
    let (start, oracle) = run(0, make_table).0;
    let recorded = record(24, start, oracle, |disk, oracle| {
        let db = open(disk, SHAPE.reopen_options());
        let threads = spawn_clients(2, 24, (disk, oracle, &db), |disk, oracle, db, id, seed| {
            client(disk, oracle, db, id, seed, 60);
        });
        let table = db.open_table("rows").expect("there");
        for round in 0..2 {
            table.create_unique_index("whole", [Field::value(0..7), Field::key(..)]).expect("made");
            table.create_index("end", [Field::value(8..)]).expect("made");
            if round == 0 {
                table.drop_index("whole").expect("dropped");
                table.drop_index("end").expect("dropped");
            }
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        drop(table);
        db.close().expect("closed");
    });
    check_matrix(&Recorded { shape: SHAPE, ..recorded }, 0, stride(6));
}

/// All rows are there or none, and the table or the tree exists at any moment.
#[test]
fn a_crash_while_truncating_leaves_all_rows_or_none() {
    let (start, oracle) = two_trees(1);
    let recorded = record(25, start, oracle.clone(), |disk, oracle| {
        let db = open(disk, SHAPE.reopen_options());
        let mut rng = SmallRng::seed_from_u64(25);
        let rows = db.create_table("rows", three_indexes()).expect("created");
        let mut fill = |table: &Table| {
            for number in 0..12 {
                let key = key_of(0, number);
                let row = row_of(&key, &mut rng);
                oracle.note(disk, 0, vec![(("rows", key.clone()), Some(row.clone()))], || table.insert(&key, &row));
            }
        };
        fill(&rows);
        let gone = |name: &'static str, count: usize| -> Effects {
            (0..count).map(|number| ((name, key_of(0, number)), None)).collect()
        };
        oracle.note(disk, 0, gone("rows", 12), || db.truncate_table("rows"));
        fill(&db.open_table("rows").expect("there"));
        oracle.note(disk, 0, gone("a", 240), || db.truncate_tree("a"));
        let a = db.open_tree("a").expect("there");
        oracle.note(disk, 0, vec![(("a", vec![1]), Some(vec![7; 1000]))], || a.put([1], [7; 1000]));
        db.close().expect("closed");
    });
    check_images(&Recorded { shape: SHAPE, ..recorded }, 0, stride(2), |found, boundary| {
        if !found.contains_key("a") {
            return Err("tree a is gone".to_owned());
        }
        oracle.compare(found, boundary)
    });
}
