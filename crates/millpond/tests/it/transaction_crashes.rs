//! Crash images at every I/O of transactions with savepoints, partial rollbacks and rollbacks: a transaction is there
//! as a whole or not at all, a committed one is there, and indexes agree with their rows (see `crash_matrix`).

use std::collections::BTreeMap;

use millpond::simulation::{SimulatedDisk, run, sleep_ns, spawn};
use millpond::{Db, Error, TxnOptions};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::crash_matrix::{Effects, Oracle, Recorded, check_matrix, key_of, record, spawn_clients, stride};
use crate::crash_tables::{ROWS, SHAPE, make_table, row_of};
use crate::support::open;

type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Random transactions of one client over rows of its own.
fn client(disk: &SimulatedDisk, oracle: &Oracle, db: &Db, id: usize, seed: u64, transactions: usize) {
    let table = db.open_table("rows").expect("there");
    let mut rng = SmallRng::seed_from_u64(seed);
    for _ in 0..transactions {
        let mut txn = db.begin(TxnOptions::new()).expect("begun");
        let mut changes = Changes::new();
        let mut places = vec![(txn.savepoint(), changes.clone())];
        for _ in 0..rng.random_range(1..9) {
            let key = key_of(id, rng.random_range(0..ROWS));
            match rng.random_range(0..10) {
                0 => places.push((txn.savepoint(), changes.clone())),
                1 => {
                    places.truncate(rng.random_range(0..places.len()) + 1);
                    let (place, before) = places.last().expect("the first one stays");
                    txn.rollback_to(*place).expect("undone");
                    changes.clone_from(before);
                }
                2 | 3 => {
                    txn.delete(&table, &key).expect("written");
                    changes.insert(key, None);
                }
                _ => {
                    let row = row_of(&key, &mut rng);
                    txn.put(&table, &key, &row).expect("written");
                    changes.insert(key, Some(row));
                }
            }
            // Others come in between.
            sleep_ns(rng.random_range(0..2_000_000));
        }
        match rng.random_range(0..6) {
            0 => txn.rollback().expect("undone"),
            1 => drop(txn),
            _ => {
                let effects: Effects = changes.into_iter().map(|(key, row)| (("rows", key), row)).collect();
                let in_steps = rng.random_range(0..3) == 0;
                let commit = || match in_steps {
                    true => txn.begin_commit()?.order()?.finish(),
                    false => txn.commit(),
                };
                oracle.note(disk, id, effects, || commit().map(drop));
            }
        }
    }
}

#[test]
fn a_crash_at_any_io_leaves_all_of_a_transaction_or_nothing() {
    for seed in [31, 32] {
        let (start, oracle) = run(0, make_table).0;
        let recorded = record(seed, start, oracle, |disk, oracle| {
            let db = open(disk, SHAPE.reopen_options());
            let threads = spawn_clients(3, seed, (disk, oracle, &db), |disk, oracle, db, id, seed| {
                client(disk, oracle, db, id, seed, 24);
            });
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert!(db.stats().rollbacks > 6, "{} were undone", db.stats().rollbacks);
            db.close().expect("closed");
        });
        let images = check_matrix(&Recorded { shape: SHAPE, ..recorded }, 0, stride(17));
        assert!(images > 50, "{images} images");
    }
}

/// Two clients change the same rows in opposite orders, and are retried: what a crash leaves has all of the last
/// transaction that was acknowledged, or of a later one.
#[test]
fn a_crash_beside_conflicts_leaves_whole_transactions() {
    const KEYS: u8 = 5;
    let disk = SimulatedDisk::with_image(BTreeMap::new(), crate::support::SLOW);
    let (acknowledged, _) = run(3, || {
        let db = open(&disk, SHAPE.options());
        let tree = db.create_tree("t").expect("created");
        let clients: Vec<_> = (0..3u8)
            .map(|id| {
                let (disk, db, tree) = (disk.clone(), db.clone(), tree.clone());
                spawn("client", move || {
                    let mut acknowledged = Vec::new();
                    for turn in 0..14u8 {
                        let mut keys: Vec<u8> = (0..KEYS).collect();
                        keys.rotate_left(usize::from((id + turn) % KEYS));
                        let at = db.retry(&TxnOptions::new(), |txn| {
                            let next = txn.get(&tree, [0])?.map_or(1, |row| row[0] + 1);
                            keys.iter().try_for_each(|key| txn.put(&tree, [*key], [next]))
                        });
                        let gave_up = matches!(at, Err(Error::Conflict(_) | Error::Deadlock(_)));
                        assert!(at.is_ok() || gave_up, "{at:?}");
                        acknowledged.push(disk.boundaries());
                    }
                    acknowledged
                })
                .expect("a thread")
            })
            .collect();
        let mut acknowledged: Vec<usize> =
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
        acknowledged.sort_unstable();
        drop(tree);
        db.close().expect("closed");
        acknowledged
    });
    let history = disk.history();
    let first = acknowledged[0];
    for boundary in (first..=history.boundaries()).step_by(stride(23)) {
        for mode in crate::crash_matrix::modes(boundary) {
            let image = crate::support::disk_of(history.crash_image(boundary, mode));
            let found = run(1, || crate::support::recover_shaped(&image, SHAPE)).0.expect("recovered");
            let values: std::collections::BTreeSet<&[u8]> = found["t"].values().map(Vec::as_slice).collect();
            assert!(values.len() == 1 && found["t"].len() == usize::from(KEYS), "{boundary} {mode:?}: {found:?}");
            let count = found["t"][&[0][..]][0];
            let certain = acknowledged.iter().filter(|at| **at <= boundary).count();
            assert!(usize::from(count) >= certain, "{boundary} {mode:?}: {count}, acknowledged {certain}");
        }
    }
}
