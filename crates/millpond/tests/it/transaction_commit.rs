//! Commits in steps: order, what is visible when, what the steps wait for; and notices that a commit is durable.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond::metrics::WaitClass;
use millpond::simulation::{Image, SimulatedDisk, Unsynced, now_ns, run, sleep_ns, spawn};
use millpond::{
    CommitTs, Db, Durability, Error, Options, OrderedTransaction, ReadMode, ReadyTransaction, Transaction, Tree,
    TxnOptions,
};

use crate::support::{SLOW, SMALL, Shape, THREADED, disk_of, open, recover, recover_shaped, settle, sound};

const MS: u64 = 1_000_000;

/// A pool so large that some transactions may keep a frame between the steps of their commit.
fn options(shape: Shape) -> Options {
    Shape { frames: 96, ..shape }.options()
}

fn begin(db: &Db) -> Transaction {
    db.begin(TxnOptions::new().durability(Durability::None)).expect("begun")
}

/// A transaction that has put `key`, and is about to be committed.
fn ready(db: &Db, tree: &Tree, key: &str) -> ReadyTransaction {
    let mut txn = begin(db);
    txn.put(tree, key, key).expect("written");
    txn.begin_commit().expect("ready")
}

#[test]
fn transactions_are_committed_in_the_order_of_the_caller() {
    for shape in [SMALL, THREADED] {
        commit_in_reverse(shape);
    }
}

fn commit_in_reverse(shape: Shape) {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(shape));
        let tree = db.create_tree("t").expect("created");
        let all: Vec<_> = ["a", "b", "c", "d"].map(|key| ready(&db, &tree, key)).into_iter().collect();
        assert_eq!(tree.scan(..).count(), 0, "none is visible before it has its place");
        let before = db.snapshot().expect("taken");
        let mut ordered: Vec<OrderedTransaction> = Vec::new();
        let mut snapshots = Vec::new();
        for txn in all.into_iter().rev() {
            ordered.push(txn.order().expect("ordered"));
            snapshots.push(db.snapshot().expect("taken"));
        }
        assert!(ordered.is_sorted_by(|one, next| one.commit_ts() < next.commit_ts()));
        for (count, snapshot) in snapshots.iter().enumerate() {
            assert_eq!(snapshot.scan(&tree, ..).expect("here").count(), count + 1);
            assert_eq!(snapshot.commit_ts(), ordered[count].commit_ts());
        }
        assert_eq!(before.scan(&tree, ..).expect("here").count(), 0);
        let wanted: Vec<CommitTs> = ordered.iter().map(OrderedTransaction::commit_ts).collect();
        let finished: Vec<CommitTs> = ordered.into_iter().map(|txn| txn.finish().expect("finished")).collect();
        assert_eq!(finished, wanted);
        drop((before, snapshots, tree));
        db.close().expect("closed");
    });
    sound(&disk);
}

/// The second step needs neither the device nor room in the log, though other threads wait for that.
#[test]
fn the_order_step_waits_for_nothing() {
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    run(1, || {
        let db = open(&disk, options(SMALL).durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let mut waited = false;
        for round in 0..4u8 {
            let txns: Vec<_> = ["a", "b"].into_iter().map(|key| ready(&db, &tree, key)).collect();
            let writers: Vec<_> = (0..6u8)
                .map(|writer| {
                    let (db, tree) = (db.clone(), tree.clone());
                    spawn("writer", move || {
                        for key in 0..60u8 {
                            let mut txn = begin(&db);
                            txn.put(&tree, [round, writer, key], vec![key; 900]).expect("written");
                            txn.commit().expect("committed");
                            // A page that has left the pool.
                            tree.get([round.saturating_sub(1), writer, 59 - key]).expect("read");
                        }
                    })
                    .expect("a thread")
                })
                .collect();
            // By now the log's buffer is full, and its pages have pushed each other out of the pool.
            sleep_ns(40 * MS);
            waited |= db.waits().iter().any(|wait| wait.class == WaitClass::LogSpace && wait.waiting > 0);
            let mut ordered = Vec::new();
            for txn in txns {
                let began = now_ns();
                ordered.push(txn.order().expect("ordered"));
                assert_eq!(now_ns(), began, "round {round}");
            }
            drop(ordered);
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        }
        assert!(waited, "if no other thread waits for room in the log, the test says nothing");
        let page_reads = db.waits().into_iter().find(|wait| wait.class == WaitClass::PageRead).expect("a class");
        assert!(page_reads.count > 0, "nor if all pages fit the pool");
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

#[test]
fn a_transaction_keeps_its_locks_from_order_to_finish() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(SMALL));
        let tree = db.create_tree("t").expect("created");
        tree.put("read", "1").expect("written");
        for finishes in [true, false] {
            let mut txn = begin(&db);
            txn.get_for_update(&tree, "read").expect("locked");
            txn.put(&tree, "written", "1").expect("written");
            txn.get_for_update(&tree, "both").expect("locked");
            txn.put(&tree, "both", "1").expect("written");
            let ordered = txn.begin_commit().expect("ready").order().expect("ordered");
            assert_eq!(tree.get("written").expect("read").as_deref(), Some(&b"1"[..]));
            let is_locked = || {
                let mut other = begin(&db);
                let mut skipped =
                    |key| other.read(&tree, key, ReadMode::exclusive().skip_locked()).expect("read").is_locked_by_other;
                (skipped("read"), skipped("written"), skipped("both"))
            };
            assert_eq!(is_locked(), (true, false, true));
            assert_eq!(db.open_transactions().len(), 1);
            if finishes {
                ordered.finish().expect("finished");
            } else {
                drop(ordered);
            }
            assert_eq!((is_locked(), db.open_transactions().len()), ((false, false, false), 0));
            tree.delete("written").expect("deleted");
        }
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// More transactions are ready than may keep room and pages; some are dropped, and give back what they had.
#[test]
fn ready_transactions_that_are_dropped_are_rolled_back() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(SMALL).durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        for round in 0..50u8 {
            let all: Vec<_> = (0..12u8).map(|key| (key, ready(&db, &tree, &format!("{key:02}")))).collect();
            for (key, txn) in all {
                if (key + round) % 3 == 0 {
                    txn.order().expect("ordered").finish().expect("finished");
                } else {
                    drop(txn);
                }
            }
            let left: Vec<_> = tree.scan(..).map(|row| row.expect("read").0).collect();
            let wanted = (0..12u8).filter(|key| (key + round) % 3 == 0).map(|key| format!("{key:02}").into_bytes());
            assert_eq!(left, wanted.collect::<Vec<_>>());
            left.iter().for_each(|key| assert!(tree.delete(key).expect("deleted")));
        }
        let nothing = begin(&db).begin_commit().expect("ready").order().expect("ordered");
        assert_eq!(nothing.commit_ts(), nothing.finish().expect("finished"));
        settle(&db);
        drop(tree);
        db.close().expect("closed");
    });
    assert_eq!(sound(&disk).deleted_rows, 0);
}

/// A close comes between the steps. Before its place the transaction is undone by the next open; afterwards it stays.
#[test]
fn a_close_between_the_steps_decides_by_the_place() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(SMALL));
        let tree = db.create_tree("t").expect("created");
        let lost = ready(&db, &tree, "lost");
        let mut txn = db.begin(TxnOptions::new().durability(Durability::Commit)).expect("begun");
        txn.put(&tree, "kept", "kept").expect("written");
        let kept = txn.begin_commit().expect("ready").order().expect("ordered");
        let at = kept.commit_ts();
        db.close().expect("closed");
        assert!(matches!(lost.order(), Err(Error::Closed(_))));
        assert_eq!(kept.finish().expect("the close has made it durable"), at);
    });
    let all = recover(&disk).expect("recovered");
    assert_eq!(all["t"].keys().collect::<Vec<_>>(), [&b"kept".to_vec()]);
    sound(&disk);
}

/// The idle timeout of transactions ends none between two steps of its commit.
#[test]
fn a_ready_transaction_is_not_idle() {
    let disk = SimulatedDisk::new();
    run(1, || {
        let db = open(&disk, options(SMALL).idle_transaction_timeout(Some(Duration::from_secs(1))));
        let tree = db.create_tree("t").expect("created");
        let txn = ready(&db, &tree, "a");
        sleep_ns(5_000 * MS);
        txn.order().expect("ordered").finish().expect("finished");
        assert_eq!(tree.get("a").expect("read").as_deref(), Some(&b"a"[..]));
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
}

/// Each notice comes once, in order, and after it a loss of power takes nothing of its commit.
#[test]
fn a_notice_comes_once_the_commit_is_durable() {
    for shape in [SMALL, THREADED] {
        ask_for_notices(shape);
    }
}

fn ask_for_notices(shape: Shape) {
    let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
    let told: Arc<Mutex<Vec<u8>>> = Arc::default();
    let images: Arc<Mutex<Vec<(u8, Image)>>> = Arc::default();
    run(2, || {
        let db = open(&disk, options(shape).durability(Durability::None));
        let tree = db.create_tree("t").expect("created");
        let mut last = None;
        for key in 0..40u8 {
            let mut txn = begin(&db);
            txn.put(&tree, [key], [key]).expect("written");
            let at = txn.commit().expect("committed");
            let (told, images, disk) = (Arc::clone(&told), Arc::clone(&images), disk.clone());
            let tell = move |outcome: Result<(), Error>| {
                outcome.expect("durable");
                if key % 8 == 0 {
                    images.lock().expect("no panic").push((key, disk.crash_now(Unsynced::None)));
                }
                told.lock().expect("no panic").push(key);
            };
            db.notify_durable(at, |_| unreachable!("a caller's mistake")).expect("noted");
            db.notify_durable(at, tell).expect("noted");
            last = Some(at);
            if key % 5 == 0 {
                sleep_ns(7 * MS);
            }
        }
        sleep_ns(100 * MS);
        let told = told.lock().expect("no panic").clone();
        assert!(told.iter().copied().eq(0..40), "{told:?}");
        let syncs = db.stats().log_syncs;
        assert!(syncs < 30, "one sync serves many notices: {syncs}");
        // One that is durable is told at once, and one of the future never.
        let at_once = Arc::new(Mutex::new(false));
        let tell = Arc::clone(&at_once);
        let last = last.expect("some");
        db.notify_durable(last, move |outcome| *tell.lock().expect("no panic") = outcome.is_ok()).expect("noted");
        assert!(*at_once.lock().expect("no panic"));
        let future = CommitTs::from(u64::from(last) + 1_000_000);
        assert!(matches!(db.notify_durable(future, |_| unreachable!("never")), Err(Error::InvalidOptions(_))));
        drop(tree);
        db.close().expect("closed");
    });
    sound(&disk);
    let images = std::mem::take(&mut *images.lock().expect("no panic"));
    assert_eq!(images.len(), 5);
    for (key, image) in images {
        let rest = recover_shaped(&disk_of(image), shape).expect("recovered");
        assert!((0..=key).all(|key| rest["t"].contains_key(&vec![key])), "{key}");
    }
}

/// A close makes the calls that are left; a log that fails tells each of them.
#[test]
fn notices_are_given_at_the_end_of_the_log_whatever_that_is() {
    for fails in [false, true] {
        let disk = SimulatedDisk::with_image(SimulatedDisk::new().image(), SLOW);
        run(3, || {
            let db = open(&disk, options(SMALL).durability(Durability::None));
            let tree = db.create_tree("t").expect("created");
            let told: Arc<Mutex<Vec<bool>>> = Arc::default();
            if fails {
                disk.halt_at(disk.calls() + 1);
            }
            for key in 0..8u8 {
                let mut txn = begin(&db);
                txn.put(&tree, [key], [key]).expect("written");
                let (told, at) = (Arc::clone(&told), txn.commit().expect("committed"));
                let tell = move |outcome: Result<(), Error>| told.lock().expect("no panic").push(outcome.is_ok());
                db.notify_durable(at, tell).expect("noted");
            }
            if fails {
                sleep_ns(200 * MS);
            } else {
                db.close().expect("closed");
            }
            assert_eq!(*told.lock().expect("no panic"), vec![!fails; 8]);
        });
    }
}
