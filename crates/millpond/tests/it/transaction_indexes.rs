//! Reads of transactions through indexes, with locks, beside others that change the rows.

use std::time::Duration;

use millpond::simulation::{SimulatedDisk, run, sleep_ns, spawn};
use millpond::{
    Cursor, Db, Durability, Error, Field, Index, Isolation, OnConflict, Read, ReadMode, Table, TableDefinition,
    Transaction, TxnOptions,
};

use crate::support::{open, small_options, sound};

const MS: u64 = 1_000_000;

const ALL_MODES: [ReadMode; 4] = [ReadMode::snapshot(), ReadMode::newest(), ReadMode::shared(), ReadMode::exclusive()];

/// Runs `work` with a table whose rows have a group of one byte and a unique tag of any length, closes the database and
/// checks it.
fn with_table(seed: u64, work: impl FnOnce(&Db, &Table, &Index, &Index)) {
    let disk = SimulatedDisk::new();
    run(seed, || {
        let db = open(&disk, small_options().durability(Durability::None));
        let definition = TableDefinition::new().index("group", [Field::value(0..1)]).unique("tag", [Field::value(1..)]);
        let table = db.create_table("t", definition).expect("created");
        let (group, tag) = (table.index("group").expect("there"), table.index("tag").expect("there"));
        work(&db, &table, &group, &tag);
        drop((table, group, tag));
        db.close().expect("closed");
    });
    sound(&disk);
}

fn begin(db: &Db, isolation: Isolation) -> Transaction {
    let options = TxnOptions::new().isolation(isolation).on_conflict(OnConflict::Latest);
    db.begin(options.lock_timeout(Duration::from_millis(20))).expect("begun")
}

fn step(cursor: &mut Cursor, txn: &mut Transaction, mode: ReadMode) -> Option<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    cursor.next(txn, mode).expect("read").map(|(key, value)| (text(key), text(value)))
}

fn some(key: &str, value: &str) -> Option<(String, String)> {
    Some((key.to_owned(), value.to_owned()))
}

#[test]
fn a_cursor_goes_through_an_index_in_each_mode_and_both_ways() {
    with_table(1, |db, table, group, tag| {
        for (key, row) in [("1", "bq"), ("2", "ar"), ("3", "cs"), ("4", "bt"), ("5", "au"), ("6", "dv")] {
            table.insert(key, row).expect("written");
        }
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            for mode in ALL_MODES {
                let mut txn = begin(db, isolation);
                let mut up = Cursor::through(group, "a"..="c");
                let mut down = Cursor::through(group, "a"..="c").reversed();
                let keys = |cursor: &mut Cursor, txn: &mut Transaction| -> String {
                    std::iter::from_fn(|| step(cursor, txn, mode)).map(|(key, _)| key).collect()
                };
                assert_eq!((keys(&mut up, &mut txn), keys(&mut down, &mut txn)), ("25143".into(), "34152".into()));
                let mut by_tag = Cursor::through(tag, "r"..);
                assert_eq!(step(&mut by_tag, &mut txn, mode), some("2", "ar"));
                // The rest in another transaction and another mode, from where it is.
                let mut other = begin(db, isolation);
                assert_eq!(step(&mut by_tag, &mut other, ReadMode::newest()), some("3", "cs"));
                assert_eq!(keys(&mut by_tag, &mut txn), "456");
                let mut none = Cursor::through(group, "x".."b");
                assert_eq!(step(&mut none, &mut txn, mode), None);
            }
        }
    });
}

/// A row is in the range when the cursor comes to its entry, and another transaction takes it out, or deletes it,
/// before it can be locked. Another one comes in behind.
#[test]
fn a_locking_cursor_passes_over_rows_that_left_the_range() {
    for ends in ["commit", "rollback"] {
        with_table(2, |db, table, group, _| {
            for (key, row) in [("1", "ap"), ("2", "aq"), ("3", "ar"), ("4", "as"), ("5", "bt")] {
                table.insert(key, row).expect("written");
            }
            let mut writer = db.begin(TxnOptions::new()).expect("begun");
            writer.update(table, "2", "zq").expect("written");
            writer.delete(table, "3").expect("written");
            writer.update(table, "5", "at").expect("written");
            writer.update(table, "4", "aS").expect("written");
            let reader = {
                let (db, group) = (db.clone(), group.clone());
                spawn("reader", move || {
                    let mut txn = db.begin(TxnOptions::new()).expect("begun");
                    let mut cursor = Cursor::through(&group, "a"..="a");
                    let rows: Vec<_> =
                        std::iter::from_fn(|| step(&mut cursor, &mut txn, ReadMode::exclusive())).collect();
                    (rows, txn)
                })
                .expect("a thread")
            };
            sleep_ns(10 * MS);
            if ends == "commit" {
                writer.commit().map(drop).expect("committed");
            } else {
                writer.rollback().expect("undone");
            }
            let (rows, txn) = reader.join().expect("no panic");
            let wanted: &[_] = match ends {
                // The fifth row came in after the cursor had read the leaf.
                "commit" => &[("1", "ap"), ("4", "aS")],
                _ => &[("1", "ap"), ("2", "aq"), ("3", "ar"), ("4", "as")],
            };
            let wanted: Vec<_> = wanted.iter().map(|(key, row)| ((*key).to_owned(), (*row).to_owned())).collect();
            assert_eq!(rows, wanted, "{ends}");
            // The row that left the range is free again, and those in it are not.
            let mut third = begin(db, Isolation::ReadCommitted);
            for (key, is_locked) in [("1", true), ("2", ends == "rollback"), ("4", true), ("5", false)] {
                let read = third.read(table, key, ReadMode::exclusive().skip_locked()).expect("read");
                assert_eq!(read.is_locked_by_other, is_locked, "{ends} {key}");
            }
            third.rollback().expect("undone");
            txn.commit().expect("committed");
        });
    }
}

/// Workers take jobs in the order of an index, and none takes a job that another has.
#[test]
fn skip_locked_through_an_index_gives_each_worker_its_own_rows() {
    with_table(3, |db, table, group, _| {
        const JOBS: u8 = 40;
        for job in 0..JOBS {
            table.insert([job], [b"n"[..].to_vec(), vec![job]].concat()).expect("written");
        }
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let (db, table, group) = (db.clone(), table.clone(), group.clone());
                spawn("worker", move || {
                    let mut done = Vec::new();
                    loop {
                        let mut txn = db.begin(TxnOptions::new()).expect("begun");
                        let mut jobs = Cursor::through(&group, "n"..="n");
                        let mode = ReadMode::exclusive().skip_locked();
                        let Some((key, row)) = jobs.next(&mut txn, mode).expect("read") else { return done };
                        let (job, row) = (key[0], [b"d", &row[1..]].concat());
                        drop(jobs);
                        sleep_ns(MS);
                        txn.update(&table, [job], row).expect("written");
                        txn.commit().expect("committed");
                        done.push(job);
                    }
                })
                .expect("a thread")
            })
            .collect();
        let done: Vec<Vec<u8>> = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
        assert!(done.iter().all(|jobs| !jobs.is_empty()), "a worker that never had a job proves nothing");
        let mut all = done.concat();
        all.sort_unstable();
        assert_eq!(all, (0..JOBS).collect::<Vec<u8>>());
    });
}

#[test]
fn a_read_by_unique_fields_locks_the_row_or_the_fields() {
    with_table(4, |db, table, group, tag| {
        table.insert("1", "ax").expect("written");
        table.insert("2", "ay").expect("written");
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            for mode in ALL_MODES {
                let locks = mode == ReadMode::shared() || mode == ReadMode::exclusive();
                let (mut txn, mut other) = (begin(db, isolation), begin(db, isolation));
                assert!(matches!(txn.read_by(group, "a", mode), Err(Error::WrongKind(_))));
                let (key, read) = txn.read_by(tag, "x", mode).expect("read");
                assert_eq!((key, read.value), (Some(b"1".to_vec()), Some(b"ax".to_vec())));
                let (key, none) = txn.read_by(tag, "new", mode).expect("read");
                assert_eq!((key, none.value, none.ticket.is_some()), (None, None, locks));
                // Neither that row nor such a row can be written meanwhile; other rows can.
                let has_timed_out = |result: Result<(), Error>| match result {
                    Ok(()) => false,
                    Err(Error::LockTimeout(_)) => true,
                    Err(error) => unreachable!("{error}"),
                };
                assert_eq!(has_timed_out(other.update(table, "1", "bx")), locks);
                assert_eq!(has_timed_out(other.insert(table, "3", "anew")), locks);
                assert!(!has_timed_out(other.update(table, "2", "az")));
                other.rollback().expect("undone");
                // What was taken can be given back, by its ticket.
                let (_, again) = txn.read_by(tag, "x", mode).expect("read");
                assert!(again.ticket.is_none(), "it has that lock already");
                if let (Some(row), Some(fields)) = (read.ticket, none.ticket) {
                    txn.unlock(row).expect("given up");
                    txn.unlock(fields).expect("given up");
                }
                let mut other = begin(db, isolation);
                other.update(table, "1", "bx").expect("free");
                other.insert(table, "3", "anew").expect("free");
                // Through an index, too: the fields are those that another one has locked.
                let skipped = txn.read_by(tag, "x", ReadMode::shared().skip_locked()).expect("read");
                assert!(matches!(skipped, (Some(_), Read { value: None, is_locked_by_other: true, .. })));
                let skipped = txn.read_by(tag, "new", ReadMode::shared().skip_locked()).expect("read");
                assert!(matches!(skipped, (None, Read { value: None, is_locked_by_other: true, .. })));
                let (key, committed) = txn.read_by(tag, "x", ReadMode::shared().semi_consistent()).expect("read");
                assert_eq!((key, committed.value), (Some(b"1".to_vec()), Some(b"ax".to_vec())));
                assert!(matches!(txn.read_by(tag, "new", ReadMode::shared()), Err(Error::LockTimeout(_))));
                other.rollback().expect("undone");
                txn.rollback().expect("undone");
            }
        }
    });
}

/// The fields go from one row to another, and back, while a reader waits for them.
#[test]
fn a_read_by_unique_fields_finds_the_row_that_has_them_now() {
    for ends in ["commit", "rollback"] {
        for mode in [ReadMode::shared(), ReadMode::exclusive()] {
            with_table(5, |db, table, _, tag| {
                table.insert("1", "ax").expect("written");
                table.insert("2", "ay").expect("written");
                let mut writer = db.begin(TxnOptions::new()).expect("begun");
                writer.update(table, "1", "az").expect("written");
                writer.update(table, "2", "ax").expect("written");
                writer.insert(table, "3", "anew").expect("written");
                let readers: Vec<_> = ["x", "new", "z"]
                    .into_iter()
                    .map(|fields| {
                        let (db, tag) = (db.clone(), tag.clone());
                        spawn("reader", move || {
                            let mut txn = db.begin(TxnOptions::new()).expect("begun");
                            txn.read_by(&tag, fields, mode).expect("read").0.map(|key| key[0])
                        })
                        .expect("a thread")
                    })
                    .collect();
                sleep_ns(10 * MS);
                let wanted = if ends == "commit" {
                    writer.commit().map(drop).expect("committed");
                    [Some(b'2'), Some(b'3'), Some(b'1')]
                } else {
                    writer.rollback().expect("undone");
                    [Some(b'1'), None, None]
                };
                let found: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
                assert_eq!(found, wanted, "{ends}");
            });
        }
    }
}

/// At first updater wins, a read that locks is a conflict as a write is.
#[test]
fn locking_reads_through_an_index_keep_to_the_snapshot() {
    with_table(6, |db, table, group, tag| {
        table.insert("1", "ax").expect("written");
        table.insert("2", "by").expect("written");
        let mut txn = db.begin(TxnOptions::new()).expect("begun");
        assert_eq!(txn.get(table, "1").expect("read").as_deref(), Some(&b"ax"[..]));
        table.update("1", "az").expect("written");
        table.update("2", "bx").expect("written");
        assert!(matches!(txn.read_by(tag, "x", ReadMode::exclusive()), Err(Error::Conflict(_))));
        let mut cursor = Cursor::through(group, ..);
        assert!(matches!(cursor.next(&mut txn, ReadMode::shared()), Err(Error::Conflict(_))));
        let (key, read) = txn.read_by(tag, "x", ReadMode::snapshot()).expect("read");
        assert_eq!((key, read.value), (Some(b"1".to_vec()), Some(b"ax".to_vec())));
        let (key, read) = txn.read_by(tag, "x", ReadMode::newest()).expect("read");
        assert_eq!((key, read.value), (Some(b"2".to_vec()), Some(b"bx".to_vec())));
        txn.rollback().expect("undone");
    });
}
