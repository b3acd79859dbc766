//! Transactions beside the creation and dropping of trees, tables and indexes.

use std::sync::{Arc, Mutex};

use millpond::simulation::{SimulatedDisk, Thread, now_ns, run, sleep_ns, spawn};
use millpond::{Db, Durability, Error, Field, Table, TableDefinition, TxnOptions, WriteBatch};

use crate::support::{open, settle, small_options, sound};

const MS: u64 = 1_000_000;

fn with_db(seed: u64, work: impl FnOnce(&Db)) {
    let disk = SimulatedDisk::new();
    run(seed, || {
        let db = open(&disk, small_options().durability(Durability::None));
        work(&db);
        settle(&db);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

fn table_of(db: &Db, name: &str) -> Table {
    let table = db.create_table(name, TableDefinition::new().index("kind", [Field::value(0..1)])).expect("created");
    (0..40u8).for_each(|key| table.insert([key], [key % 5, key, 7]).expect("written"));
    table
}

/// Runs `call` in a thread of its own.
fn beside<T: Send + 'static>(db: &Db, call: impl FnOnce(&Db) -> T + Send + 'static) -> Thread<T> {
    let db = db.clone();
    let thread = spawn("beside", move || call(&db)).expect("a thread");
    sleep_ns(20 * MS);
    thread
}

#[test]
fn a_drop_waits_for_transactions_that_use_the_tree() {
    with_db(1, |db| {
        let (tree, table) = (db.create_tree("t").expect("created"), table_of(db, "u"));
        let (mut txn, mut reader) =
            (db.begin(TxnOptions::new()).expect("begun"), db.begin(TxnOptions::new()).expect("begun"));
        txn.put(&tree, "a", "1").expect("written");
        txn.get_for_update(&table, [1]).expect("locked");
        reader.get(&tree, "a").expect("read");
        let drops = [
            beside(db, |db| db.drop_tree("t")),
            beside(db, |db| db.truncate_table("u")),
            beside(db, |db| db.open_table("u").and_then(|table| table.drop_index("kind"))),
        ];
        txn.put(&tree, "b", "1").expect("it goes on");
        txn.put(&table, [2], [1, 2, 7]).expect("it goes on");
        assert_eq!(tree.get("a").expect("the drop waits"), None);
        let late = beside(db, move |db| {
            let mut late = db.begin(TxnOptions::new()).expect("begun");
            late.put(&tree, "c", "1")
        });
        txn.commit().expect("committed");
        for dropped in drops {
            let dropped = dropped.join().expect("no panic");
            assert!(matches!(dropped, Ok(()) | Err(Error::TreeNotFound(_))), "{dropped:?}");
        }
        assert!(matches!(late.join().expect("no panic"), Err(Error::TreeNotFound(_))), "it came behind the drop");
        assert!(matches!(db.open_tree("t"), Err(Error::TreeNotFound(_))));
        assert_eq!(db.open_table("u").expect("there").scan(..).count(), 0);
        reader.get_for_update(&db.open_table("u").expect("there"), [1]).expect("locked");
    });
}

/// A drop gives up after 50 s; a writer that came behind it goes on then.
#[test]
fn a_drop_does_not_wait_for_ever() {
    with_db(1, |db| {
        let tree = db.create_tree("t").expect("created");
        let mut txn = db.begin(TxnOptions::new()).expect("begun");
        txn.put(&tree, "a", "1").expect("written");
        let began = now_ns();
        let dropped = beside(db, |db| db.drop_tree("t"));
        let behind = {
            let tree = tree.clone();
            beside(db, move |db| {
                let mut behind = db.begin(TxnOptions::new()).expect("begun");
                behind.put(&tree, "b", "1").expect("the drop has given up");
                behind.commit().map(drop)
            })
        };
        tree.put("c", "1").expect("a batch of one group does not wait");
        assert!(matches!(dropped.join().expect("no panic"), Err(Error::LockTimeout(_))));
        assert!((50_000 * MS..51_000 * MS).contains(&(now_ns() - began)));
        behind.join().expect("no panic").expect("committed");
        txn.commit().expect("committed");
        assert_eq!(tree.scan(..).count(), 3);
    });
}

/// Transactions that have begun before an index is built, at its begin and at its end: the index has what they have
/// committed, and nothing of what they have undone. The close of the database checks it.
#[test]
fn an_index_built_beside_transactions_agrees_with_the_rows() {
    for seed in 0..6u64 {
        with_db(seed, |db| {
            let table = table_of(db, "t");
            let mut txns: Vec<_> = (0..4).map(|_| db.begin(TxnOptions::new()).expect("begun")).collect();
            for (number, txn) in (0..4u8).zip(&mut txns) {
                txn.put(&table, [number], [9, number, 1]).expect("written");
                txn.delete(&table, [10 + number]).expect("written");
            }
            let builds: Vec<_> = [("tag", true), ("last", false)]
                .map(|(name, is_unique)| {
                    beside(db, move |db| {
                        let table = db.open_table("t").expect("there");
                        match is_unique {
                            true => table.create_unique_index(name, [Field::value(1..2)]).map(drop),
                            false => table.create_index(name, [Field::value(2..3), Field::value(0..1)]).map(drop),
                        }
                    })
                })
                .into();
            // Batches of one group that wait for the transactions' rows, and then for the gate of the table.
            let batches: Vec<_> = (0..4u8)
                .map(|number| {
                    beside(db, move |db| {
                        let table = db.open_table("t").expect("there");
                        for turn in 0..6u8 {
                            let row = [turn % 5, if turn == 5 { number } else { 100 + number }, turn];
                            table.put([number], row).expect("written");
                            table.delete([10 + number]).expect("written");
                        }
                    })
                })
                .collect();
            let others = beside(db, move |db| {
                let table = db.open_table("t").expect("there");
                for turn in 0..30u8 {
                    let done = db.retry(&TxnOptions::new(), |txn| {
                        let place = txn.savepoint();
                        txn.put(&table, [20 + turn % 8], [turn % 5, 20 + turn % 8, turn])?;
                        txn.put(&table, [60 + turn], [turn % 5, 60 + turn, turn])?;
                        if turn % 3 == 0 {
                            txn.rollback_to(place)?;
                        }
                        txn.delete(&table, [60 + turn / 2]).map(drop)
                    });
                    done.expect("written");
                    sleep_ns(seed * MS);
                }
            });
            for (number, txn) in (0..4u8).zip(txns) {
                sleep_ns(10 * MS);
                match number % 2 {
                    0 => drop(txn.commit().expect("committed")),
                    _ => txn.rollback().expect("undone"),
                }
            }
            others.join().expect("no panic");
            batches.into_iter().for_each(|batch| batch.join().expect("no panic"));
            builds.into_iter().for_each(|build| build.join().expect("no panic").expect("built"));
            let tag = table.index("tag").expect("there");
            let rows: Vec<_> = table.scan(..).map(|row| row.expect("read")).collect();
            for (key, row) in &rows {
                assert_eq!(tag.get(&row[1..2]).expect("read"), Some((key.clone(), row.clone())));
            }
            assert_eq!(tag.scan(..).count(), rows.len());
            assert_eq!(table.index("last").expect("there").scan(..).count(), rows.len());
        });
    }
}

/// A circle through the lock of a whole tree: one transaction waits behind a drop, which waits for another transaction,
/// which waits for a row of the first.
#[test]
fn a_circle_through_a_drop_ends_with_one_that_gives_way() {
    with_db(1, |db| {
        let (one, two) = (db.create_tree("one").expect("created"), db.create_tree("two").expect("created"));
        let mut first = db.begin(TxnOptions::new()).expect("begun");
        first.put(&one, "a", "1").expect("written");
        let (second, outcome) = {
            let (one, two, outcome) = (one.clone(), two.clone(), Arc::new(Mutex::new(None)));
            let seen = Arc::clone(&outcome);
            let thread = beside(db, move |db| {
                let mut second = db.begin(TxnOptions::new()).expect("begun");
                second.put(&two, "b", "1").expect("written");
                second.put(&two, "c", "1").expect("written");
                *outcome.lock().expect("no panic") =
                    Some(second.put(&one, "a", "2").and_then(|()| second.commit()).is_ok());
            });
            (thread, seen)
        };
        let dropped = beside(db, |db| db.drop_tree("two"));
        let error = first.put(&two, "d", "1").expect_err("a circle");
        assert!(matches!(error, Error::Deadlock(_)), "{error}");
        second.join().expect("no panic");
        dropped.join().expect("no panic").expect("dropped");
        assert_eq!(*outcome.lock().expect("no panic"), Some(true));
        assert_eq!(one.get("a").expect("read").as_deref(), Some(&b"2"[..]));
    });
}

/// A batch over two tables waits for a row of a transaction; an index of the other table is dropped; the transaction
/// then writes there. Nothing waits in a circle: the batch waits with no gate entered.
#[test]
fn a_batch_that_waits_for_a_row_keeps_no_gate() {
    with_db(1, |db| {
        let (one, two) = (table_of(db, "one"), table_of(db, "two"));
        let mut txn = db.begin(TxnOptions::new()).expect("begun");
        txn.put(&one, [1], [1, 1, 1]).expect("written");
        let batches: Vec<_> = (0..3)
            .map(|kind| {
                let (one, two) = (one.clone(), two.clone());
                beside(db, move |db| {
                    let mut batch = WriteBatch::new();
                    match kind {
                        0 => batch.put(&one, [1], [2, 2, 2]).put(&two, [1], [2, 2, 2]),
                        1 => batch.insert(&one, [99], [2, 2, 2]).insert(&two, [99], [2, 2, 2]).delete(&one, [1]),
                        // So large that it is written in parts: it comes first or last, and keeps transactions out.
                        _ => {
                            (0..40u8).for_each(|key| _ = batch.put(&one, [key], [&[3; 3][..], &[3; 800]].concat()));
                            (0..40u8).for_each(|key| _ = batch.put(&two, [key], [&[3; 3][..], &[3; 800]].concat()));
                            &mut batch
                        }
                    };
                    db.write(batch).map(drop)
                })
            })
            .collect();
        let dropped = beside(db, |db| db.open_table("two").and_then(|table| table.drop_index("kind")));
        let written = txn.put(&two, [5], [1, 1, 1]);
        match written {
            Ok(()) => drop(txn.commit().expect("committed")),
            // In a circle with the large batch and the drop.
            Err(error) => assert!(matches!(error, Error::Deadlock(_)), "{error}"),
        }
        batches.into_iter().for_each(|batch| batch.join().expect("no panic").expect("written"));
        dropped.join().expect("no panic").expect("dropped");
        assert!(two.index("kind").is_err());
        let both = |key: u8| (one.get([key]).expect("read"), two.get([key]).expect("read"));
        assert!(both(7).0 == both(7).1);
    });
}
