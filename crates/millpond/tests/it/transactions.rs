//! Transactions of many statements: own reads, savepoints, rollback, locks, deadlocks, the end of the database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond::metrics::WaitClass;
use millpond::simulation::{SimulatedDisk, run, sleep_ns, spawn};
use millpond::{
    Cursor, Db, Durability, Error, Field, Isolation, Modify, OnConflict, Read, ReadMode, Savepoint, Table,
    TableDefinition, Transaction, Tree, TxnOptions, WriteBatch,
};
use rand::{RngExt, SeedableRng};

use crate::support::{SLOW, contents, open, recover, reopen_options, settle, small_options, sound};

type Rng = rand_xoshiro::Xoshiro256PlusPlus;

const MS: u64 = 1_000_000;

fn begin(db: &Db) -> Transaction {
    db.begin(TxnOptions::new()).expect("begun")
}

/// Runs `work` on a new database with an empty tree, closes the database and checks it.
fn with_tree(seed: u64, work: impl FnOnce(&Db, &Tree)) {
    let disk = SimulatedDisk::new();
    run(seed, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        work(&db, &tree);
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// Rows that begin with a group of two bytes and a unique tag of four.
fn table_of(db: &Db, name: &str) -> Table {
    let definition = TableDefinition::new().index("group", [Field::value(0..2)]).unique("tag", [Field::value(2..6)]);
    db.create_table(name, definition).expect("created")
}

#[test]
fn others_see_nothing_before_the_commit_and_all_afterwards() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options());
        let (tree, table) = (db.create_tree("t").expect("created"), table_of(&db, "u"));
        let (group, tag) = (table.index("group").expect("there"), table.index("tag").expect("there"));
        tree.put("a", "old").expect("written");
        table.insert("1", b"ggaaaa").expect("written");
        let before = contents(&db).expect("read");
        let change = |txn: &mut Transaction| -> Result<(), Error> {
            txn.update(&tree, "a", "new")?;
            txn.insert(&tree, "b", "x")?;
            txn.put(&tree, "b", "y")?;
            txn.update(&table, "1", b"hhbbbb")?;
            txn.insert(&table, "2", b"hhaaaa")?;
            assert!(txn.delete(&table, "1")?);
            assert!(!txn.delete(&table, "1")?);
            txn.insert(&table, "3", b"hhbbbb")?;
            Ok(())
        };
        for commits in [false, true] {
            let mut txn = begin(&db);
            change(&mut txn).expect("written");
            assert_eq!(txn.get(&tree, "b").expect("read").as_deref(), Some(&b"y"[..]));
            assert_eq!(txn.get(&table, "1").expect("read"), None);
            let keys = |rows: Vec<(Vec<u8>, Vec<u8>)>| rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
            let of_group = txn.rows(&group, "hh"..="hh").expect("here").collect::<Result<_, _>>().expect("read");
            assert_eq!(keys(of_group), [b"2", b"3"]);
            let tags: Vec<_> = txn.entries(&tag, ..).expect("here").rev().collect::<Result<_, _>>().expect("read");
            assert_eq!(tags, [(b"bbbb".to_vec(), b"3".to_vec()), (b"aaaa".to_vec(), b"2".to_vec())]);
            let all: Vec<_> = txn.scan(&table, ..).expect("here").collect::<Result<_, _>>().expect("read");
            assert_eq!(keys(all), [b"2", b"3"]);
            assert_eq!(txn.first(&tree).expect("read").map(|row| row.0), Some(b"a".to_vec()));
            assert_eq!(txn.last(&tree).expect("read").map(|row| row.0), Some(b"b".to_vec()));
            assert_eq!(contents(&db).expect("read"), before, "another reader");
            assert_eq!(tag.get("aaaa").expect("read").map(|row| row.0), Some(b"1".to_vec()));
            if commits {
                let at = txn.commit().expect("committed");
                assert!(db.snapshot().expect("open").commit_ts() >= at);
            } else {
                txn.rollback().expect("rolled back");
                assert_eq!(contents(&db).expect("read"), before);
            }
        }
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"new"[..]));
        assert_eq!(tag.get("bbbb").expect("read").map(|row| row.0), Some(b"3".to_vec()));
        let after = contents(&db).expect("read");
        let mut dropped = begin(&db);
        dropped.put(&tree, "a", "never").expect("written");
        drop(dropped);
        assert_eq!(contents(&db).expect("read"), after, "a dropped one is rolled back");
        settle(&db);
        drop((tree, table, group, tag));
        db.close().expect("closed");
        assert_eq!(recover(&disk).expect("recovered"), after);
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

#[test]
fn a_statement_that_fails_changes_nothing() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options());
        let table = table_of(&db, "t");
        let mut txn = begin(&db);
        txn.insert(&table, "1", b"ggaaaa").expect("written");
        let error = txn.insert(&table, "2", b"ggaaaa").expect_err("the tag is taken");
        assert_eq!(
            (error.row().and_then(|row| row.index()), error.row().map(|row| row.key())),
            (Some("tag"), Some(&b"aaaa"[..]))
        );
        assert!(matches!(txn.insert(&table, "1", b"ggbbbb"), Err(Error::KeyExists(_))));
        assert!(matches!(txn.update(&table, "3", b"ggbbbb"), Err(Error::KeyNotFound(_))));
        // So many rows that they take several groups of the log; the last one is there already.
        let mut batch = WriteBatch::new();
        for number in 10..900u32 {
            batch.insert(&table, number.to_be_bytes(), [&b"hh"[..], &number.to_be_bytes(), &[7; 300]].concat());
        }
        batch.insert(&table, "\u{7f}", b"iiaaaa");
        assert!(matches!(txn.write(batch), Err(Error::KeyExists(_))));
        txn.insert(&table, "2", b"ggbbbb").expect("the transaction goes on");
        let mut batch = WriteBatch::new();
        batch.put(&table, "1", b"ggbbbb").put(&table, "2", b"ggaaaa");
        txn.write(batch).expect("rows exchange unique values");
        assert_eq!(txn.scan(&table, ..).expect("here").count(), 2);
        txn.commit().expect("committed");
        let found = contents(&db).expect("read");
        let rows = BTreeMap::from([(b"1".to_vec(), b"ggbbbb".to_vec()), (b"2".to_vec(), b"ggaaaa".to_vec())]);
        assert_eq!(found["t"], rows);
        settle(&db);
        drop(table);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// Random statements and savepoints over a tree and a table, with long values, against maps.
#[test]
fn savepoints_lead_back_as_in_a_model() {
    type Model = [BTreeMap<Vec<u8>, Vec<u8>>; 2];
    for seed in 0..12 {
        let disk = SimulatedDisk::new();
        let (committed, _) = run(seed, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let (tree, table) = (db.create_tree("t").expect("created"), table_of(&db, "u"));
            let mut rng = Rng::seed_from_u64(seed);
            let mut committed = Model::default();
            for _ in 0..12 {
                let (mut txn, mut now) = (begin(&db), committed.clone());
                let mut places: Vec<(Savepoint, Model)> = Vec::new();
                for _ in 0..rng.random_range(1..60) {
                    let key = rng.random_range(0..40u32).to_be_bytes();
                    let len = if rng.random_range(0..8) == 0 {
                        rng.random_range(1200..9000)
                    } else {
                        rng.random_range(6..400)
                    };
                    match rng.random_range(0..12) {
                        0 => places.push((txn.savepoint(), now.clone())),
                        1 if !places.is_empty() => {
                            places.truncate(rng.random_range(0..places.len()) + 1);
                            let (place, model) = places.last().expect("not empty");
                            txn.rollback_to(*place).expect("undone");
                            now.clone_from(model);
                        }
                        2..5 => {
                            txn.delete(&tree, key).expect("written");
                            now[0].remove(&key[..]);
                        }
                        5..8 => {
                            let value = vec![rng.random::<u8>(); len];
                            txn.put(&tree, key, &value).expect("written");
                            now[0].insert(key.to_vec(), value);
                        }
                        8 => {
                            txn.delete(&table, key).expect("written");
                            now[1].remove(&key[..]);
                        }
                        _ => {
                            // The tag is the key, or that of the next row.
                            let tag =
                                (u32::from_be_bytes(key) ^ u32::from(rng.random_range(0..4u8) == 0)).to_be_bytes();
                            let row =
                                [&[rng.random_range(0..3u8), 0][..], &tag, &vec![rng.random::<u8>(); len]].concat();
                            let is_free = now[1].iter().all(|(other, row)| other == &key || row[2..6] != tag);
                            match txn.put(&table, key, &row) {
                                Ok(()) => {
                                    assert!(is_free);
                                    now[1].insert(key.to_vec(), row);
                                }
                                Err(Error::KeyExists(_)) => assert!(!is_free),
                                Err(error) => unreachable!("{error}"),
                            }
                        }
                    }
                }
                let trees: Vec<_> = txn.scan(&tree, ..).expect("here").collect::<Result<_, _>>().expect("read");
                assert!(trees.into_iter().eq(now[0].clone()), "seed {seed}");
                let rows: Vec<_> = txn.scan(&table, ..).expect("here").rev().collect::<Result<_, _>>().expect("read");
                assert!(rows.into_iter().rev().eq(now[1].clone()), "seed {seed}");
                match rng.random_range(0..3) {
                    0 => txn.rollback().expect("rolled back"),
                    _ => {
                        txn.commit().expect("committed");
                        committed = now;
                    }
                }
                let all = contents(&db).expect("read");
                assert!(all["t"] == committed[0] && all["u"] == committed[1], "seed {seed}");
            }
            settle(&db);
            drop((tree, table));
            db.close().expect("closed");
            committed
        });
        let all = recover(&disk).expect("recovered");
        assert!(all["t"] == committed[0] && all["u"] == committed[1], "seed {seed}");
        assert_eq!(sound(&disk).deleted_rows, 0, "seed {seed}");
    }
}

#[test]
fn a_transaction_may_be_larger_than_pool_and_log_buffer() {
    const ROWS: u32 = 1200;
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let table = table_of(&db, "t");
        let row = |number: u32, fill: u8| [&[fill, 0][..], &number.to_be_bytes(), &[fill; 300]].concat();
        for commits in [false, true] {
            let mut txn = begin(&db);
            for number in 0..ROWS {
                txn.insert(&table, number.to_be_bytes(), row(number, 1)).expect("written");
            }
            let half = txn.savepoint();
            for number in 0..ROWS {
                txn.put(&table, number.to_be_bytes(), row(number, 2)).expect("written");
            }
            txn.rollback_to(half).expect("undone");
            for number in (0..ROWS).step_by(3) {
                txn.delete(&table, number.to_be_bytes()).expect("written");
            }
            assert_eq!(table.scan(..).count(), 0);
            let ended = if commits { txn.commit().map(drop) } else { txn.rollback() };
            ended.expect("ended");
        }
        let rows: Vec<_> = table.scan(..).collect::<Result<_, _>>().expect("read");
        let wanted =
            (0..ROWS).filter(|number| number % 3 != 0).map(|number| (number.to_be_bytes().to_vec(), row(number, 1)));
        assert!(rows.into_iter().eq(wanted));
        settle(&db);
        drop(table);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

#[test]
fn a_scan_sees_what_its_transaction_changes_meanwhile() {
    with_tree(1, |db, tree| {
        (0..90u8).for_each(|key| tree.put([key], [key; 300]).expect("written"));
        let mut txn = begin(db);
        let (mut scan, mut seen) = (txn.scan(tree, ..).expect("here"), Vec::new());
        while let Some((key, _)) = scan.next_row().expect("read") {
            let key = key[0];
            seen.push(key);
            // Others write what it does not see; it removes each third row ahead, and adds one behind each tenth.
            tree.put([key, 9], "other").expect("written");
            if key % 3 == 0 {
                txn.delete(tree, [key + 1]).expect("written");
            }
            if key % 10 == 0 {
                txn.put(tree, [key, 1], "own").expect("written");
            }
        }
        let mut wanted: Vec<u8> = Vec::new();
        for key in (0..90u8).filter(|key| key % 3 != 1) {
            wanted.extend(std::iter::repeat_n(key, if key % 10 == 0 { 2 } else { 1 }));
        }
        assert_eq!(seen, wanted);
        assert_eq!(scan.next_row().expect("still at its end"), None);
        let mut scan = txn.scan(tree, ..).expect("here").rev();
        assert_eq!(scan.next().expect("a row").expect("read").0, [89]);
        txn.delete(tree, [88]).expect("written");
        txn.put(tree, [87, 1], "own").expect("written");
        let behind: Vec<_> = scan.by_ref().take(2).map(|row| row.expect("read").0).collect();
        assert_eq!(behind, [vec![87, 1], vec![87]]);
        txn.commit().expect("committed");
        let rest: Vec<_> = scan.collect();
        assert!(matches!(rest.last(), Some(Err(Error::TransactionOver(_)))), "{:?}", rest.last());
    });
}

/// Every call on a transaction whose end the engine has decided says so.
#[test]
fn calls_after_the_end_say_why() {
    with_tree(1, |db, tree| {
        tree.put("a", "1").expect("written");
        let (mut one, mut two) = (begin(db), begin(db));
        one.put(tree, "a", "2").expect("written");
        two.put(tree, "b", "2").expect("written");
        let waiter = {
            let tree = tree.clone();
            spawn("two", move || {
                let error = two.put(&tree, "a", "3").and_then(|()| two.put(&tree, "c", "3"));
                (two, error)
            })
            .expect("a thread")
        };
        sleep_ns(10 * MS);
        // A circle: this one has written more.
        one.put(tree, "c", "2").expect("written");
        one.put(tree, "b", "3").expect("the other gives way");
        let (mut two, error) = waiter.join().expect("no panic");
        assert!(matches!(error, Err(Error::Deadlock(_))), "{error:?}");
        for error in [
            two.get(tree, "a").map(drop).expect_err("over"),
            two.put(tree, "a", "4").expect_err("over"),
            two.scan(tree, ..).map(drop).expect_err("over"),
            two.rollback_to(two.savepoint()).expect_err("over"),
            two.get_for_update(tree, "a").map(drop).expect_err("over"),
            two.commit().map(drop).expect_err("over"),
        ] {
            assert!(matches!(error, Error::TransactionOver(_)), "{error:?}");
        }
        one.commit().expect("committed");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"2"[..]));
        assert_eq!(tree.get("b").expect("read").as_deref(), Some(&b"3"[..]));
    });
}

fn row_lock_waits(db: &Db) -> (u64, u64) {
    let of = db.waits().into_iter().find(|wait| wait.class == WaitClass::RowLock).expect("a class");
    (of.count, of.waiting)
}

/// Waiters for one row get it in the order in which they came, and see what the one before has written.
#[test]
fn a_hot_row_goes_from_one_waiter_to_the_next_in_order() {
    with_tree(3, |db, tree| {
        tree.put("hot", [0]).expect("written");
        let mut first = begin(db);
        first.put(tree, "hot", [1]).expect("written");
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..8u8)
            .map(|id| {
                let (db, tree, order) = (db.clone(), tree.clone(), Arc::clone(&order));
                let waiter = spawn("waiter", move || {
                    if id % 3 == 2 {
                        // A batch of one group waits in the same line.
                        tree.put("hot", [id + 2]).expect("written");
                    } else {
                        let options = TxnOptions::new().isolation(Isolation::ReadCommitted);
                        let mut txn = db.begin(options).expect("begun");
                        let seen = txn.get_for_update(&tree, "hot").expect("locked").expect("there");
                        assert_eq!(seen, [id + 1], "what the one before has written");
                        txn.put(&tree, "hot", [id + 2]).expect("written");
                        sleep_ns(MS);
                        txn.commit().expect("committed");
                    }
                    order.lock().expect("no panic").push(id);
                })
                .expect("a thread");
                sleep_ns(10 * MS);
                waiter
            })
            .collect();
        assert_eq!(row_lock_waits(db).1, 8);
        first.commit().expect("committed");
        waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
        assert_eq!(*order.lock().expect("no panic"), (0..8).collect::<Vec<u8>>());
        assert_eq!((tree.get("hot").expect("read"), row_lock_waits(db)), (Some(vec![9]), (8, 0)));
    });
}

/// So many threads want one row that each waits for all others in turn, while the log is so short that writers are
/// throttled. No update is lost, and in the time of one call each other thread has two turns at most.
#[test]
fn a_hot_row_under_throttle_passes_over_no_thread() {
    const THREADS: u32 = 64;
    // Enough that the log fills in any order of the threads. With 12, six of ten seeds throttled no writer.
    const TURNS: u32 = 48;
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    run(5, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        tree.put("hot", 0u32.to_be_bytes()).expect("written");
        let turns = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = (0..THREADS)
            .map(|id| {
                let (db, tree, turns) = (db.clone(), tree.clone(), Arc::clone(&turns));
                let work = move || {
                    let mut most = 0;
                    for turn in 0..TURNS {
                        let options = TxnOptions::new().on_conflict(OnConflict::Latest);
                        let mut txn = db.begin(options).expect("begun");
                        txn.put(&tree, [id.to_be_bytes(), turn.to_be_bytes()].concat(), [7; 1000]).expect("written");
                        let before = turns.lock().expect("no panic").len();
                        let row = txn.get_for_update(&tree, "hot").expect("locked").expect("there");
                        let count = u32::from_be_bytes(row.try_into().expect("four bytes"));
                        txn.put(&tree, "hot", (count + 1).to_be_bytes()).expect("written");
                        let others = {
                            let mut turns = turns.lock().expect("no panic");
                            turns.push(id);
                            turns[before..].to_vec()
                        };
                        txn.commit().expect("committed");
                        let of = |id: u32| others.iter().filter(|other| **other == id).count();
                        most = most.max((0..THREADS).map(of).max().unwrap_or(0));
                    }
                    most
                };
                spawn("writer", work).expect("a thread")
            })
            .collect();
        let most = threads.into_iter().map(|thread| thread.join().expect("no panic")).max();
        assert!(most <= Some(2), "{most:?} turns of one thread while another waited");
        assert_eq!(tree.get("hot").expect("read"), Some((THREADS * TURNS).to_be_bytes().to_vec()));
        let throttled = db.waits().into_iter().find(|wait| wait.class == WaitClass::Throttle).expect("a class");
        assert!(throttled.count > 0, "no writer was throttled");
        assert!(row_lock_waits(&db).0 > u64::from(THREADS) && row_lock_waits(&db).1 == 0);
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// Shared locks go together; an exclusive one waits for them, and those that come behind it wait for it.
#[test]
fn shared_locks_are_held_together() {
    with_tree(1, |db, tree| {
        tree.put("a", "1").expect("written");
        let (mut one, mut two) = (begin(db), begin(db));
        for key in ["a", "absent"] {
            one.get_for_share(tree, key).expect("locked");
            two.get_for_share(tree, key).expect("locked");
        }
        let none = TxnOptions::new().lock_timeout(Duration::ZERO);
        let mut hasty = db.begin(none).expect("begun");
        for key in ["a", "absent"] {
            assert!(matches!(hasty.put(tree, key, "x"), Err(Error::LockTimeout(_))));
            assert!(matches!(hasty.get_for_update(tree, key), Err(Error::LockTimeout(_))));
            hasty.get_for_share(tree, key).expect("locked");
        }
        hasty.rollback().expect("rolled back");
        let writer = {
            let tree = tree.clone();
            spawn("writer", move || tree.put("a", "2")).expect("a thread")
        };
        sleep_ns(10 * MS);
        let mut behind = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO)).expect("begun");
        assert!(matches!(behind.get_for_share(tree, "a"), Err(Error::LockTimeout(_))), "the writer came first");
        one.get_for_share(tree, "a").expect("it has the lock already");
        one.commit().expect("committed");
        sleep_ns(10 * MS);
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"1"[..]));
        two.put(tree, "absent", "2").expect("the last holder of a shared lock gets the exclusive one");
        two.commit().expect("committed");
        writer.join().expect("no panic").expect("written");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"2"[..]));
    });
}

/// Circles of 2, 3 and 5 transactions, through rows, absent keys and entries of a unique index: one gives way, which
/// has changed least, and all others get what they want.
#[test]
fn a_circle_of_waiters_ends_with_one_that_gives_way() {
    for (parties, what) in [(2, 0), (3, 0), (5, 0), (2, 1), (3, 1), (2, 2), (5, 2)] {
        let disk = SimulatedDisk::new();
        run(7, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let (tree, table) = (db.create_tree("t").expect("created"), table_of(&db, "u"));
            (0..9u8).for_each(|key| tree.put([key], "0").expect("written"));
            let ended = Arc::new(Mutex::new(Vec::new()));
            let threads: Vec<_> = (0..parties)
                .map(|id: u8| {
                    let (db, tree, table, ended) = (db.clone(), tree.clone(), table.clone(), Arc::clone(&ended));
                    spawn("party", move || {
                        let take = |txn: &mut Transaction, key: u8| match what {
                            0 => txn.put(&tree, [key], [id]),
                            1 => txn.get_for_update(&tree, [key, key]).map(drop),
                            _ => txn.insert(&table, [id, key], [0, 0, key, 0, 0, 0]),
                        };
                        let mut txn = db.begin(TxnOptions::new().on_conflict(OnConflict::Latest)).expect("begun");
                        // The second party changes least.
                        for more in 0..if id == 1 { 0 } else { 3 } {
                            txn.put(&tree, [100 + id, more], "x").expect("written");
                        }
                        take(&mut txn, id).expect("free");
                        sleep_ns(u64::from(id + 5) * MS);
                        let second = take(&mut txn, (id + 1) % parties);
                        let outcome = match second {
                            Ok(()) => txn.commit().map(|_| "got it"),
                            Err(Error::KeyExists(_)) => txn.commit().map(|_| "taken"),
                            Err(Error::Deadlock(_)) => Ok("gave way"),
                            Err(error) => Err(error),
                        };
                        ended.lock().expect("no panic").push((id, outcome.expect("no other error")));
                    })
                    .expect("a thread")
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            let ended = ended.lock().expect("no panic");
            let gave_way: Vec<u8> = ended.iter().filter(|(_, how)| *how == "gave way").map(|(id, _)| *id).collect();
            assert_eq!(gave_way, [1], "{parties} parties, {what}: {ended:?}");
            assert_eq!(ended.len(), usize::from(parties));
            assert_eq!(row_lock_waits(&db).1, 0);
            drop((tree, table));
            db.close().expect("closed");
        });
        sound(&disk);
    }
}

#[test]
fn two_holders_of_a_shared_lock_that_want_more_are_a_circle() {
    with_tree(1, |db, tree| {
        tree.put("a", "1").expect("written");
        let (mut one, mut two) = (begin(db), begin(db));
        one.get_for_share(tree, "a").expect("locked");
        two.get_for_share(tree, "a").expect("locked");
        let other = {
            let tree = tree.clone();
            spawn("one", move || one.put(&tree, "a", "2").and_then(|()| one.commit().map(drop))).expect("a thread")
        };
        sleep_ns(10 * MS);
        assert!(matches!(two.put(tree, "a", "3"), Err(Error::Deadlock(_))), "the last to wait gives way");
        other.join().expect("no panic").expect("committed");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"2"[..]));
    });
}

/// The priority decides before the number of changes does.
#[test]
fn a_circle_spares_the_transaction_of_higher_priority() {
    for priority in [0, 1] {
        with_tree(1, |db, tree| {
            let mut small = db.begin(TxnOptions::new().deadlock_priority(priority)).expect("begun");
            let mut large = begin(db);
            small.put(tree, "a", "small").expect("written");
            (0..9u8).for_each(|key| large.put(tree, [key], "large").expect("written"));
            let small = {
                let tree = tree.clone();
                spawn("small", move || small.put(&tree, [0], "small").and_then(|()| small.commit()).map(drop))
                    .expect("a thread")
            };
            sleep_ns(10 * MS);
            let large = large.put(tree, "a", "large").and_then(|()| large.commit()).map(drop);
            let small = small.join().expect("no panic");
            let is_victim = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Deadlock(_)));
            assert_eq!((is_victim(small), is_victim(large)), (priority == 0, priority > 0));
        });
    }
}

/// A waiter that gives up, or is told to, leaves nothing behind: not in the line, and not in the row.
#[test]
fn a_waiter_that_gives_up_leaves_nothing() {
    with_tree(1, |db, tree| {
        tree.put("a", "1").expect("written");
        let mut holder = begin(db);
        holder.put(tree, "a", "2").expect("written");
        let mut late = db.begin(TxnOptions::new().lock_timeout(Duration::from_millis(30))).expect("begun");
        late.put(tree, "b", "late").expect("written");
        let began = millpond::simulation::now_ns();
        assert!(matches!(late.put(tree, "a", "3"), Err(Error::LockTimeout(_))));
        let waited = millpond::simulation::now_ns() - began;
        assert!((30 * MS..40 * MS).contains(&waited), "{waited}");
        let mut told = begin(db);
        let canceller = told.canceller();
        let waiter = {
            let tree = tree.clone();
            spawn("told", move || {
                let error = told.put(&tree, "a", "4").expect_err("cancelled");
                told.put(&tree, "c", "told").expect("it goes on");
                (told, error)
            })
            .expect("a thread")
        };
        sleep_ns(10 * MS);
        assert_eq!(row_lock_waits(db).1, 1);
        canceller.cancel();
        let (told, error) = waiter.join().expect("no panic");
        assert!(matches!(error, Error::Cancelled(_)), "{error}");
        assert_eq!(row_lock_waits(db).1, 0);
        holder.commit().expect("committed");
        tree.put("a", "5").expect("nobody is in the way");
        late.commit().expect("committed");
        told.commit().expect("committed");
        assert_eq!(tree.get("b").expect("read").as_deref(), Some(&b"late"[..]));
        assert_eq!(tree.get("c").expect("read").as_deref(), Some(&b"told"[..]));
    });
}

/// A database that is closed beside open transactions: waiters for their rows are told, and the next open undoes them.
#[test]
fn open_transactions_do_not_survive_the_close() {
    let disk = SimulatedDisk::with_image(BTreeMap::new(), SLOW);
    run(5, || {
        let db = open(&disk, small_options());
        let tree = db.create_tree("t").expect("created");
        tree.put("a", "1").expect("written");
        let (mut writer, mut locker, reader) = (begin(&db), begin(&db), begin(&db));
        writer.put(&tree, "a", "2").expect("written");
        writer.put(&tree, "b", "2").expect("written");
        locker.get_for_update(&tree, "c").expect("locked");
        reader.get(&tree, "a").expect("read");
        let waiters: Vec<_> = ["a", "b", "c"]
            .map(|key| {
                let tree = tree.clone();
                spawn("waiter", move || tree.put(key, "3")).expect("a thread")
            })
            .into();
        sleep_ns(50 * MS);
        db.close().expect("closed");
        for waiter in waiters {
            let error = waiter.join().expect("no panic").expect_err("closed");
            assert!(matches!(error, Error::Closed(_)), "{error}");
        }
        assert!(matches!(writer.put(&tree, "d", "2"), Err(Error::Closed(_))));
        assert!(matches!(writer.commit(), Err(Error::Closed(_))));
        assert!(matches!(locker.rollback(), Err(Error::Closed(_))));
        assert!(matches!(reader.get(&tree, "a"), Err(Error::Closed(_))));
        drop((reader, tree));
        let db = open(&disk, reopen_options());
        let tree = db.open_tree("t").expect("there");
        assert_eq!(tree.scan(..).collect::<Result<Vec<_>, _>>().expect("read"), [(b"a".to_vec(), b"1".to_vec())]);
        tree.put("a", "4").expect("unlocked once it is undone");
        settle(&db);
        drop(tree);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// A close comes while a statement holds rows, and statements, small batches and one of several groups wait in line for
/// them and for one another. All waiters are told, and the next open has nothing of what did not end.
#[test]
fn a_close_ends_lines_of_statements_and_batches() {
    for seed in 0..8 {
        let disk = SimulatedDisk::new();
        run(seed, || {
            let db = open(&disk, small_options().durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            (0..60u8).for_each(|key| tree.put([key], [0; 300]).expect("written"));
            let mut holder = begin(&db);
            holder.put(&tree, [50], "held").expect("written");
            let mut waiters = Vec::new();
            for id in 0..9u8 {
                let (db, tree) = (db.clone(), tree.clone());
                let work = move || match id % 3 {
                    0 => tree.put([50], "waited"),
                    1 => {
                        let mut batch = WriteBatch::new();
                        (0..60u8).for_each(|key| _ = batch.put(&tree, [key], [id; 900]));
                        db.write(batch).map(drop)
                    }
                    _ => {
                        let mut txn = begin(&db);
                        // The large batch has this row, or waits before it.
                        txn.put(&tree, [100 + id], "own").and_then(|()| txn.put(&tree, [10], [id]))?;
                        txn.put(&tree, [50], [id])?;
                        txn.commit().map(drop)
                    }
                };
                waiters.push(spawn("waiter", work).expect("a thread"));
                sleep_ns(MS * (seed % 4));
            }
            sleep_ns(20 * MS);
            assert_eq!(row_lock_waits(&db).1, 9);
            drop(tree);
            db.close().expect("closed");
            for waiter in waiters {
                let error = waiter.join().expect("no panic").expect_err("nothing of it was written");
                assert!(matches!(error, Error::Closed(_)), "{error}");
            }
            assert!(matches!(holder.commit(), Err(Error::Closed(_))));
        });
        let rows: BTreeMap<Vec<u8>, Vec<u8>> = (0..60u8).map(|key| (vec![key], vec![0; 300])).collect();
        assert_eq!(recover(&disk).expect("recovered")["t"], rows, "seed {seed}");
        sound(&disk);
    }
}

/// Two threads move value between rows, each in a transaction that is retried; the sum stays.
#[test]
fn retried_transfers_keep_the_sum() {
    with_tree(2, |db, tree| {
        (0..6u8).for_each(|key| tree.put([key], 100u64.to_be_bytes()).expect("written"));
        let threads: Vec<_> = (0..4u64)
            .map(|id| {
                let (db, tree) = (db.clone(), tree.clone());
                spawn("transfers", move || {
                    let mut rng = Rng::seed_from_u64(id);
                    let mut tries = 0;
                    for _ in 0..40 {
                        let (from, to) = (rng.random_range(0..6u8), rng.random_range(0..6u8));
                        db.retry(&TxnOptions::new(), |txn| {
                            tries += 1;
                            let of = |value: Option<Vec<u8>>| {
                                u64::from_be_bytes(value.expect("there").try_into().expect("8 bytes"))
                            };
                            let value = of(txn.get(&tree, [from])?);
                            txn.put(&tree, [from], (value - 1).to_be_bytes())?;
                            let value = of(txn.get(&tree, [to])?);
                            txn.put(&tree, [to], (value + 1).to_be_bytes())
                        })
                        .expect("at last");
                    }
                    tries
                })
                .expect("a thread")
            })
            .collect();
        let tries: u32 = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert!(tries > 160, "some were tried again: {tries}");
        let rows: Vec<_> = tree.scan(..).map(|row| row.expect("read").1).collect();
        let sum: u64 = rows.into_iter().map(|row| u64::from_be_bytes(row.try_into().expect("8 bytes"))).sum();
        assert_eq!(sum, 600);
    });
}

/// Every way to read, beside a transaction that has changed one row and locked another.
#[test]
fn each_way_to_read_meets_locks_of_others_in_its_own_way() {
    with_tree(1, |db, tree| {
        for key in ["a", "b", "c"] {
            tree.put(key, "1").expect("written");
        }
        let mut other = begin(db);
        other.put(tree, "a", "2").expect("written");
        other.get_for_update(tree, "b").expect("locked");
        let options = TxnOptions::new().isolation(Isolation::ReadCommitted).lock_timeout(Duration::from_millis(20));
        let mut txn = db.begin(options).expect("begun");
        let value = |read: Read| (read.value.map(|value| value[0]), read.ticket.is_some(), read.is_locked_by_other);
        for key in ["a", "b"] {
            for mode in [ReadMode::snapshot(), ReadMode::newest().no_wait()] {
                assert_eq!(value(txn.read(tree, key, mode).expect("read")), (Some(b'1'), false, false));
            }
            for lock in [ReadMode::shared(), ReadMode::exclusive()] {
                assert_eq!(value(txn.read(tree, key, lock.skip_locked()).expect("read")), (None, false, true));
                let committed = txn.read(tree, key, lock.semi_consistent()).expect("read");
                assert_eq!(value(committed), (Some(b'1'), false, true));
                for (mode, ms) in [(lock.no_wait(), 0), (lock, 20), (lock.timeout(Duration::from_millis(70)), 70)] {
                    let began = millpond::simulation::now_ns();
                    assert!(matches!(txn.read(tree, key, mode), Err(Error::LockTimeout(_))));
                    let waited = millpond::simulation::now_ns() - began;
                    assert!((ms * MS..(ms + 5) * MS).contains(&waited), "{waited}");
                }
            }
        }
        // A lock that a read has taken goes with its ticket, and no other one does.
        let shared = txn.read(tree, "c", ReadMode::shared()).expect("read").ticket.expect("taken");
        assert!(txn.read(tree, "c", ReadMode::shared()).expect("read").ticket.is_none(), "it has it already");
        let exclusive = txn.read(tree, "c", ReadMode::exclusive()).expect("read").ticket.expect("more than before");
        let is_free = |lock: ReadMode| {
            let mut third = db.begin(TxnOptions::new().lock_timeout(Duration::ZERO)).expect("begun");
            !third.read(tree, "c", lock.skip_locked()).expect("read").is_locked_by_other
        };
        assert_eq!((is_free(ReadMode::shared()), is_free(ReadMode::exclusive())), (false, false));
        txn.unlock(exclusive).expect("given up");
        assert_eq!((is_free(ReadMode::shared()), is_free(ReadMode::exclusive())), (true, false));
        txn.unlock(shared).expect("given up");
        assert_eq!((is_free(ReadMode::shared()), is_free(ReadMode::exclusive())), (true, true));
        let ticket = txn.read(tree, "c", ReadMode::exclusive()).expect("read").ticket.expect("taken");
        txn.put(tree, "c", "3").expect("written");
        txn.unlock(ticket).expect("no effect on the change");
        assert!(!is_free(ReadMode::shared()));
        let foreign = other.read(tree, "d", ReadMode::exclusive()).expect("read").ticket.expect("taken");
        assert!(matches!(txn.unlock(foreign), Err(Error::WrongKind(_))));
        assert!(matches!(txn.rollback_to(other.savepoint()), Err(Error::WrongKind(_))));
        other.commit().expect("committed");
        txn.commit().expect("committed");
        assert_eq!(tree.get("c").expect("read").as_deref(), Some(&b"3"[..]));
    });
}

/// Locks of rows that were only read take a bounded amount of memory, and give all of it back.
#[test]
fn locks_beyond_the_memory_for_them_are_an_error() {
    with_tree(1, |db, tree| {
        let mut counts = Vec::new();
        for round in 0..3 {
            let (mut one, mut two) = (begin(db), begin(db));
            let mut locked = 0u32;
            let error = loop {
                let (txn, mode) = match locked % 3 {
                    0 => (&mut two, ReadMode::shared()),
                    _ => (&mut one, ReadMode::exclusive()),
                };
                match txn.read(tree, locked.to_be_bytes(), mode) {
                    Ok(read) => drop(read.ticket),
                    Err(error) => break error,
                }
                locked += 1;
            };
            assert!(matches!(error, Error::TooManyLocks(_)), "{error}");
            assert!(error.to_string().contains("1.0 MiB"), "{error}");
            counts.push(locked);
            // Neither transaction can lock more rows; both can do all else, and so can batches.
            for (id, txn) in [(1, &mut one), (2, &mut two)] {
                assert!(matches!(txn.get_for_update(tree, "another"), Err(Error::TooManyLocks(_))));
                txn.put(tree, format!("{id} {round}"), "changed").expect("a stamp is the lock");
                txn.delete(tree, format!("{id} {round}")).expect("changed");
            }
            one.get_for_update(tree, 1u32.to_be_bytes()).expect("it has that lock");
            tree.put("batch", "1").expect("written");
            let mut cursor = Cursor::new(tree, "batch"..="batch");
            for _ in 0..2 {
                let missed = cursor.next(&mut one, ReadMode::exclusive()).map(|row| row.is_some());
                assert!(matches!(missed, Err(Error::TooManyLocks(_))), "the same row again: {missed:?}");
            }
            if round == 1 {
                one.rollback().expect("undone");
            } else {
                one.commit().expect("committed");
            }
            two.get_for_update(tree, "another").expect("there is room again");
            two.commit().expect("committed");
        }
        assert!((3_000..5_000).contains(&counts[0]) && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    });
}

/// What writes lock is bounded by their number only: a batch and a statement over more rows of a table than reads may
/// lock, which lock each row before they read it, and one that deletes as many absent keys.
#[test]
fn writes_of_many_rows_lock_as_many_as_they_need() {
    const ROWS: u32 = 9_000;
    with_tree(1, |db, tree| {
        let table = table_of(db, "u");
        let row = |number: u32, group: u8| [&[group, 0][..], &number.to_be_bytes()].concat();
        for group in 0..3 {
            let mut batch = WriteBatch::new();
            (0..ROWS).for_each(|number| _ = batch.put(&table, number.to_be_bytes(), row(number, group)));
            if group == 2 {
                let mut txn = begin(db);
                txn.write(batch).expect("written");
                txn.commit().expect("committed");
            } else {
                db.write(batch).expect("written");
            }
        }
        assert_eq!(table.index("group").expect("there").scan([2]..[3]).count(), ROWS as usize);
        let mut absent = WriteBatch::new();
        (0..ROWS).for_each(|number| _ = absent.delete(tree, number.to_be_bytes()));
        absent.put(tree, [255; 5], "last");
        db.write(absent).expect("written");
        assert_eq!(tree.scan(..).count(), 1);
    });
}

/// What a transaction has handed out is of no use to a later one, wherever that lies in memory.
#[test]
fn savepoints_and_locks_of_ended_transactions_are_refused() {
    with_tree(1, |db, tree| {
        tree.put("a", "1").expect("written");
        for _ in 0..20 {
            let mut ended = begin(db);
            let ticket = ended.read(tree, "a", ReadMode::exclusive()).expect("read").ticket.expect("taken");
            let place = ended.savepoint();
            ended.commit().expect("committed");
            let mut later = begin(db);
            later.put(tree, "a", "2").expect("written");
            assert!(matches!(later.rollback_to(place), Err(Error::WrongKind(_))));
            assert!(matches!(later.unlock(ticket), Err(Error::WrongKind(_))));
            assert_eq!(later.get(tree, "a").expect("read").as_deref(), Some(&b"2"[..]));
        }
    });
}

/// A ticket of a read that had to wait is as good as any. Once its row is changed, it gives nobody the row.
#[test]
fn a_lock_that_came_late_can_be_given_up() {
    with_tree(1, |db, tree| {
        tree.put("a", "1").expect("written");
        let mut first = begin(db);
        first.put(tree, "a", "2").expect("written");
        let waiting = {
            let (db, tree) = (db.clone(), tree.clone());
            spawn("late", move || {
                let mut late = begin(&db);
                let ticket = late.read(&tree, "a", ReadMode::exclusive()).expect("read").ticket.expect("taken");
                late.unlock(ticket).expect("given up");
                sleep_ns(20 * MS);
                let ticket = late.read(&tree, "a", ReadMode::exclusive()).expect("read").ticket.expect("taken");
                (late, ticket)
            })
            .expect("a thread")
        };
        sleep_ns(10 * MS);
        first.commit().expect("committed");
        sleep_ns(10 * MS);
        tree.put("a", "3").expect("it was given up");
        let (mut late, ticket) = waiting.join().expect("no panic");
        late.put(tree, "a", "4").expect("written");
        let other = {
            let tree = tree.clone();
            spawn("other", move || tree.put("a", "5")).expect("a thread")
        };
        sleep_ns(10 * MS);
        late.unlock(ticket).expect("without effect");
        sleep_ns(10 * MS);
        late.put(tree, "a", "6").expect("it is still its row");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"3"[..]));
        late.commit().expect("committed");
        other.join().expect("no panic").expect("written");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"5"[..]));
    });
}

/// A batch of the thread that has the row in a transaction of its own, or behind a forgotten one.
#[test]
fn a_batch_does_not_wait_for_a_transaction_for_ever() {
    with_tree(1, |db, tree| {
        let mut txn = begin(db);
        txn.put(tree, "a", "1").expect("written");
        let began = millpond::simulation::now_ns();
        assert!(matches!(tree.put("a", "2"), Err(Error::LockTimeout(_))));
        assert!((50_000 * MS..50_100 * MS).contains(&(millpond::simulation::now_ns() - began)));
        txn.commit().expect("committed");
        tree.put("a", "3").expect("free");
    });
}

/// Workers take jobs from a queue, each the first one that no other has locked; every job is done once.
#[test]
fn workers_take_different_jobs_with_skip_locked() {
    const JOBS: u8 = 60;
    with_tree(4, |db, tree| {
        (0..JOBS).for_each(|job| tree.put([job], "to do").expect("written"));
        let done = Arc::new(Mutex::new(Vec::new()));
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (db, tree, done) = (db.clone(), tree.clone(), Arc::clone(&done));
                spawn("worker", move || {
                    loop {
                        let mut txn = db.begin(TxnOptions::new().isolation(Isolation::ReadCommitted)).expect("begun");
                        let mut jobs = Cursor::new(&tree, ..);
                        let mode = ReadMode::exclusive().skip_locked();
                        let Some((job, _)) = jobs.next(&mut txn, mode).expect("read") else { break };
                        let job = job[0];
                        sleep_ns(MS);
                        txn.delete(&tree, [job]).expect("written");
                        txn.commit().expect("committed");
                        done.lock().expect("no panic").push(job);
                    }
                })
                .expect("a thread")
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        let mut done = done.lock().expect("no panic").clone();
        done.sort_unstable();
        assert_eq!(done, (0..JOBS).collect::<Vec<u8>>());
        assert_eq!(row_lock_waits(db), (0, 0));
    });
}

/// A cursor goes on behind its last row in whatever transaction the caller names, though the row is gone meanwhile.
#[test]
fn a_cursor_goes_on_in_another_transaction() {
    with_tree(1, |db, tree| {
        (0..20u8).for_each(|key| tree.put([key], [key]).expect("written"));
        let (mut up, mut down) = (Cursor::new(tree, [3]..), Cursor::new(tree, ..[17]).reversed());
        let (mut one, mut two) = (begin(db), begin(db));
        let step = |cursor: &mut Cursor, txn: &mut Transaction, mode| {
            cursor.next(txn, mode).expect("read").map(|(key, value)| (key[0], value[0]))
        };
        let modes = [ReadMode::snapshot(), ReadMode::newest(), ReadMode::exclusive(), ReadMode::shared()];
        for (turn, mode) in (0..4u8).zip(modes) {
            assert_eq!(step(&mut up, &mut one, mode), Some((3 + turn, 3 + turn)));
            one.delete(tree, [3 + turn]).expect("written");
            assert_eq!(step(&mut down, &mut two, mode), Some((16 - turn, 16 - turn)));
        }
        one.rollback().expect("undone");
        tree.put([7], "x").expect("written");
        assert_eq!(step(&mut up, &mut two, ReadMode::newest()), Some((7, b'x')));
        assert_eq!(step(&mut up, &mut two, ReadMode::snapshot()), Some((8, 8)));
        let mut third = begin(db);
        // The second transaction has row 14.
        let free = ReadMode::shared().skip_locked();
        let rest = std::iter::from_fn(|| step(&mut up, &mut third, free)).count();
        assert_eq!((rest, step(&mut up, &mut third, free)), (10, None));
        let hasty = ReadMode::exclusive().no_wait();
        for _ in 0..2 {
            let mut fourth = begin(db);
            let error = down.next(&mut fourth, hasty).map(drop).expect_err("locked by the third");
            assert!(matches!(error, Error::LockTimeout(_)), "{error}");
        }
        third.commit().expect("committed");
        assert_eq!(step(&mut down, &mut two, hasty), Some((12, 12)));
        two.commit().expect("committed");
    });
}

/// A change that is computed from the row, beside others: none is lost, and no snapshot is in the way.
#[test]
fn rows_that_are_modified_in_place_lose_no_update() {
    let disk = SimulatedDisk::new();
    run(6, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let table = table_of(&db, "t");
        table.insert("hot", [0; 6]).expect("written");
        let threads: Vec<_> = (0..4)
            .map(|id| {
                let (db, table) = (db.clone(), table.clone());
                spawn("adder", move || {
                    for turn in 0..20 {
                        let add = |row: Option<&[u8]>| {
                            let mut row = row.expect("there").to_vec();
                            row[5] += 1;
                            Modify::Put(row)
                        };
                        if (id + turn) % 3 == 0 {
                            assert!(table.modify("hot", add).expect("written"));
                            continue;
                        }
                        let mut txn = begin(&db);
                        assert!(!txn.modify(&table, [id, turn], |_| Modify::Keep).expect("read"));
                        assert!(txn.modify(&table, "hot", add).expect("written"));
                        sleep_ns(MS);
                        txn.commit().expect("committed");
                    }
                })
                .expect("a thread")
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(table.get("hot").expect("read").expect("there")[5], 80);
        drop(table);
        settle(&db);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// A transaction whose user has gone away is rolled back, and only such a one. Until then it is listed.
#[test]
fn a_forgotten_transaction_is_rolled_back_after_its_time() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let options = small_options().durability(Durability::None);
        let db = open(&disk, options.idle_transaction_timeout(Some(Duration::from_secs(5))));
        let tree = db.create_tree("t").expect("created");
        tree.put("a", "1").expect("written");
        let (mut forgotten, mut locker, mut busy, reader) = (begin(&db), begin(&db), begin(&db), begin(&db));
        forgotten.put(&tree, "a", "2").expect("written");
        let mut scan = forgotten.scan(&tree, ..).expect("here");
        sleep_ns(1000 * MS);
        locker.get_for_update(&tree, "b").expect("locked");
        busy.put(&tree, "c", "2").expect("written");
        reader.get(&tree, "a").expect("read");
        let open = db.open_transactions();
        assert_eq!(open.iter().map(|open| open.age.as_secs()).collect::<Vec<_>>(), [1, 0, 0]);
        let waiter = {
            let tree = tree.clone();
            spawn("waiter", move || tree.put("a", "3")).expect("a thread")
        };
        let mut reads_on = begin(&db);
        reads_on.put(&tree, "d", "2").expect("written");
        for _ in 0..8 {
            sleep_ns(1000 * MS);
            busy.put(&tree, "c", "3").expect("it is in use");
            reads_on.get(&tree, "a").expect("it is in use, too");
        }
        reads_on.rollback().expect("undone");
        waiter.join().expect("no panic").expect("written");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"3"[..]));
        assert_eq!(db.open_transactions().len(), 1);
        for error in [
            forgotten.put(&tree, "a", "4").expect_err("over"),
            forgotten.get(&tree, "a").map(drop).expect_err("over"),
            scan.next_row().map(drop).expect_err("over"),
            locker.get_for_update(&tree, "b").map(drop).expect_err("over"),
            forgotten.commit().map(drop).expect_err("over"),
        ] {
            assert!(matches!(error, Error::TransactionOver(_)), "{error}");
        }
        let error = locker.commit().expect_err("over");
        assert!(error.to_string().contains("idle_transaction_timeout"), "{error}");
        assert_eq!(reader.get(&tree, "a").expect("it keeps nobody from anything").as_deref(), Some(&b"1"[..]));
        db.set_option("idle_transaction_timeout", "none").expect("set");
        sleep_ns(20_000 * MS);
        busy.commit().expect("nothing ends it now");
        drop((tree, reader));
        settle(&db);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// Beside an idle writer purge and the reuse of undo pages go on: only stamps stay.
#[test]
fn an_idle_writer_holds_up_neither_purge_nor_undo_pages() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let (tree, table) = (db.create_tree("t").expect("created"), table_of(&db, "u"));
        let mut idle = begin(&db);
        idle.put(&tree, "mine", "1").expect("written");
        let mut most = 0;
        for turn in 0..40u32 {
            for key in 0..30u32 {
                let row = [&[0, 0][..], &(key + turn * 30).to_be_bytes(), &[7; 200]].concat();
                table.put(key.to_be_bytes(), row).expect("written");
                tree.put(key.to_be_bytes(), turn.to_be_bytes()).expect("written");
                tree.delete((key + 1).to_be_bytes()).expect("written");
            }
            sleep_ns(200 * MS);
            most = most.max(db.stats().undo_pages);
        }
        let stats = db.stats();
        assert!(most < 24, "{most} undo pages");
        assert!(stats.purged_rows > 1000, "{} rows purged", stats.purged_rows);
        idle.commit().expect("committed");
        settle(&db);
        drop((tree, table));
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// The story of a deadlock, for people.
#[test]
fn the_last_deadlocks_are_told() {
    with_tree(1, |db, tree| {
        assert!(db.deadlocks().is_empty());
        let (mut one, mut two) = (begin(db), begin(db));
        one.put(tree, "a", "1").expect("written");
        two.put(tree, "b", "1").expect("written");
        two.put(tree, "c", "1").expect("written");
        let other = {
            let tree = tree.clone();
            spawn("two", move || two.put(&tree, "a", "2").and_then(|()| two.commit().map(drop))).expect("a thread")
        };
        sleep_ns(10 * MS);
        assert!(matches!(one.get_for_share(tree, "b"), Err(Error::Deadlock(_))));
        other.join().expect("no panic").expect("committed");
        sleep_ns(3000 * MS);
        let told = db.deadlocks();
        assert_eq!((told.len(), told[0].ago.as_secs(), db.stats().deadlocks), (1, 3, 1));
        let (a, b) = (told[0].parties[0].id, told[0].parties[1].id);
        let story = format!(
            "transaction {a}, with 1 change, waited for key 'b' of tree 't', shared, which {b} had; it gave way\n\
             transaction {b}, with 2 changes, waited for key 'a' of tree 't', exclusive, which {a} had"
        );
        assert_eq!(told[0].to_string(), story);
        assert!(db.status_text().contains("it gave way"), "{}", db.status_text());
    });
}
