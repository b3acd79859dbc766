//! The order queue on a real database: rows, entries, numbers, conflicts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use ::millpond::Options;

use super::*;
use crate::adapters::millpond::Millpond;
use crate::driver::{self, Finished, Pace, Plan, Unobserved};
use crate::engine::orders::OrderTransaction;
use crate::engine::{Outcome, TableState};
use crate::generators::Client as _;
use crate::generators::oltp::{Queries, Ran, Step, Tally, until_done};
use crate::generators::orders::key_of;
use crate::keys::random;

/// Few rows for many threads, so that they meet.
const ROWS: u64 = 300;
const THREADS: usize = 4;
const EVENTS: u64 = 400;

/// The first table.
fn first() -> TableNo {
    TableNo::from_index(0)
}

fn set(tables: u32, rows: u64) -> TableSet {
    TableSet::new(tables, rows).unwrap()
}

/// Uses the page cache: these tests are about tables, and run on any file system.
fn options() -> Options {
    Options::new().cached(true)
}

fn loaded(dir: &Path, set: TableSet) -> Millpond {
    let engine = Millpond::open(dir, options()).unwrap();
    load_missing(&engine, set);
    engine
}

fn load_missing(engine: &Millpond, set: TableSet) -> u64 {
    let plan = LoadPlan { set, seed: 3, threads: 3 };
    let rows = AtomicU64::new(0);
    let count = |more| {
        rows.fetch_add(more, Ordering::Relaxed);
    };
    load(engine, &plan, &missing(engine, set).unwrap(), &AtomicBool::new(false), &count).unwrap();
    rows.into_inner()
}

/// Runs `events` transactions.
fn run(engine: &Millpond, set: TableSet, threads: usize, events: u64) -> Result<Finished, Error> {
    let queue = Queue::new(engine, set, RandType::Zipfian)?;
    let plan =
        Plan { threads, time_s: 600, warmup_s: 0, events, report_interval_s: 0, pace: Pace::ClosedLoop, seed: 9 };
    driver::run_clients(engine, queue.clients(engine, threads)?, &plan, &AtomicBool::new(false), &mut Unobserved)
}

/// The numbers of a table's orders, by its rows.
fn numbers(engine: &Millpond, table: TableNo) -> BTreeSet<u64> {
    let rows = engine.db().open_table(&orders_name(table)).unwrap();
    rows.scan(..).map(|row| u64::from_be_bytes(*row.unwrap().1.first_chunk().unwrap())).collect()
}

fn newest(orders: &BTreeSet<u64>) -> u64 {
    *orders.last().unwrap()
}

#[test]
fn load_makes_rows_of_200_bytes_with_keys_of_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Millpond::open(dir.path(), options()).unwrap();
    let set = set(2, 450);
    assert_eq!(load_missing(&engine, set), 900);
    assert_eq!(load_missing(&engine, set), 0, "nothing is left to do");
    for table in set.numbers() {
        let rows = engine.db().open_table(&orders_name(table)).unwrap();
        let mut keys = BTreeSet::new();
        for row in rows.scan(..) {
            let (key, value) = row.unwrap();
            assert_eq!((key.len(), key.len() + value.len()), (16, 200));
            let number = u64::from_be_bytes(*value.first_chunk().unwrap());
            assert_eq!(key, key_of(table, number));
            keys.insert(key);
        }
        assert_eq!(keys.len(), 450);
        assert_eq!(numbers(&engine, table), (1..=450).collect());
        assert_eq!(rows.indexes().collect::<Vec<_>>(), ["created", "customer", "status"]);
    }
    assert_eq!(verify(&engine, set).unwrap(), Verified { rows: 900, entries: 2_700 });
    assert!(engine.is_only_load().unwrap());
    assert_eq!(drop_tables(&engine, set).unwrap().len(), 2);
    assert!(engine.db().tables().unwrap().is_empty());
}

#[test]
fn tables_that_do_not_fit_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 10));
    let refused = |set| Queue::new(&engine, set, RandType::Zipfian).unwrap_err().to_string();
    let other_size = refused(set(1, 20));
    assert!(other_size.contains("'orders1'") && other_size.contains("--table-size=10"), "{other_size}");
    let fewer = refused(set(2, 10));
    assert!(fewer.contains("'orders2' does not exist") && fewer.contains("--tables"), "{fewer}");
    let plan = LoadPlan { set: set(2, 10), seed: 3, threads: 2 };
    let second = missing(&engine, plan.set).unwrap();
    let stopped = load(&engine, &plan, &second, &AtomicBool::new(true), &|_| {});
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert_eq!(engine.order_table(second[0]).unwrap(), TableState::HalfLoaded);
    let half = refused(plan.set);
    assert!(half.contains("'orders2'") && half.contains("cleanup"), "{half}");
}

#[test]
fn transactions_of_many_threads_keep_rows_entries_and_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let tables = set(2, ROWS);
    let engine = loaded(dir.path(), tables);
    let finished = run(&engine, tables, THREADS, EVENTS).unwrap();
    assert_eq!(finished.transactions(), EVENTS);
    let queries = finished.record.queries;
    assert_eq!((queries.read, queries.write), (EVENTS, 4 * EVENTS));
    // Begin, commit, and statements that found no row: nearly all find one.
    assert!((2 * EVENTS..2 * EVENTS + EVENTS / 10).contains(&queries.other), "{queries:?}");
    assert_eq!(verify(&engine, tables).unwrap(), Verified { rows: 2 * ROWS, entries: 6 * ROWS });
    let mut inserted = 0;
    for table in tables.numbers() {
        let left = numbers(&engine, table);
        inserted += newest(&left) - ROWS;
        // Locked orders are passed over, so some that are a little older stay.
        let span = newest(&left) - left.first().unwrap() + 1;
        assert!((ROWS..ROWS + 50).contains(&span), "{span} numbers of {ROWS} orders");
    }
    assert_eq!(inserted, EVENTS, "each number is used, and none twice");
    engine.close().unwrap();
    // A later run goes on with the numbers. One client alone meets no lock: the newest orders are left.
    let engine = Millpond::open(dir.path(), options()).unwrap();
    let one = set(1, ROWS);
    let before = newest(&numbers(&engine, first()));
    assert_eq!(run(&engine, one, 1, EVENTS).unwrap().record.conflicts, 0);
    let last = before + EVENTS;
    assert_eq!(numbers(&engine, first()), (last - ROWS + 1..=last).collect());
    assert_eq!(verify(&engine, tables).unwrap(), Verified { rows: 2 * ROWS, entries: 6 * ROWS });
}

#[test]
fn updates_change_an_indexed_and_another_column_of_two_orders() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 50));
    let rows = engine.db().open_table("orders1").unwrap();
    let before: Vec<_> = rows.scan(..).map(|row| row.unwrap()).collect();
    run(&engine, set(1, 50), 1, 1).unwrap();
    let after: Vec<_> = rows.scan(..).map(|row| row.unwrap()).filter(|row| !before.contains(row)).collect();
    let changed = after.iter().filter_map(|(key, new)| Some((before.iter().find(|(old, _)| old == key)?, new)));
    let mut seen = 0;
    for ((_, old), new) in changed {
        seen += 1;
        assert_ne!((&old[16..20], &old[24..144]), (&new[16..20], &new[24..144]));
        assert_eq!((&old[..16], &old[144..]), (&new[..16], &new[144..]));
    }
    assert!((1..=2).contains(&seen), "{seen} changed, one of them perhaps twice");
}

#[test]
fn delete_passes_over_orders_that_others_have_locked() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 3));
    let (mut one, mut other) = (engine.orders(1).unwrap(), engine.orders(1).unwrap());
    let mut rolled_back = one.begin().unwrap();
    assert_eq!(rolled_back.delete_first(first(), 0).unwrap(), Outcome::Done);
    assert_eq!(rolled_back.first_order(first(), 0).unwrap(), Some(2));
    let mut committed = other.begin().unwrap();
    assert_eq!(committed.first_order(first(), 0).unwrap(), Some(1), "the other transaction may still roll back");
    assert_eq!(committed.delete_first(first(), 0).unwrap(), Outcome::Done);
    assert_eq!(committed.delete_first(first(), 3).unwrap(), Outcome::Done);
    assert_eq!(committed.delete_first(first(), 0).unwrap(), Outcome::NoRow);
    committed.commit().unwrap();
    drop(rolled_back);
    assert_eq!(numbers(&engine, first()), BTreeSet::from([1]));
}

#[test]
fn bound_stays_at_an_order_whose_delete_is_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 50));
    let queue = Queue::new(&engine, set(1, 50), RandType::Zipfian).unwrap();
    let mut clients = queue.clients(&engine, 1).unwrap();
    let mut run_one = || {
        assert!(clients[0].draw(&mut random(1, 1)));
        clients[0].run(&mut Tally::default(), || false).unwrap()
    };
    let mut other = engine.orders(1).unwrap();
    let mut txn = other.begin().unwrap();
    assert_eq!(txn.delete_first(first(), 0).unwrap(), Outcome::Done);
    for _ in 0..5 {
        let _ = run_one();
    }
    assert_eq!(numbers(&engine, first()), std::iter::once(1).chain(7..=55).collect(), "1 is locked");
    drop(txn);
    let _ = run_one();
    assert_eq!(numbers(&engine, first()), (7..=56).collect(), "1 has come back and is the oldest");
}

#[test]
fn client_whose_bound_is_too_high_starts_over() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 50));
    let queue = Queue::new(&engine, set(1, 50), RandType::Zipfian).unwrap();
    let mut clients = queue.clients(&engine, 1).unwrap();
    clients[0].bounds[0] = 1_000;
    let mut tally = Tally::default();
    assert!(clients[0].draw(&mut random(1, 1)));
    assert_eq!(clients[0].run(&mut tally, || false).unwrap(), Ran::ToItsEnd);
    assert_eq!(tally, Tally { queries: Queries { read: 1, write: 4, other: 2 }, conflicts: 0 });
    assert_eq!(numbers(&engine, first()), (2..=51).collect());
}

#[test]
fn deadlock_is_a_conflict_of_one_of_two_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 3));
    let both_have_one = Barrier::new(2);
    let cross = |own: u64, of_other: u64| {
        let mut session = engine.orders(1).unwrap();
        let mut txn = session.begin().unwrap();
        let note = [b'x'; 120];
        assert_eq!(txn.change_order(first(), own, &note).unwrap(), Outcome::Done);
        both_have_one.wait();
        txn.change_order(first(), of_other, &note).unwrap()
    };
    let ended = std::thread::scope(|scope| {
        let other = scope.spawn(|| cross(2, 1));
        [cross(1, 2), other.join().unwrap()]
    });
    assert!(ended.contains(&Outcome::Conflict) && ended.contains(&Outcome::Done), "{ended:?}");
}

#[test]
fn conflicts_are_counted_and_retried_until_given_up() {
    // Two attempts of three fail; only the statements of the last one count.
    let attempts = |fail: u64, gives_up: bool| {
        let (mut tally, mut attempts) = (Tally::default(), 0);
        let ran = until_done(
            &mut tally,
            || gives_up,
            |queries| {
                attempts += 1;
                queries.write += 1;
                Ok(if attempts <= fail { Step::Conflict } else { Step::Done })
            },
        );
        (ran.unwrap(), tally)
    };
    let done = Queries { write: 1, other: 2, read: 0 };
    assert_eq!(attempts(2, false), (Ran::ToItsEnd, Tally { queries: done, conflicts: 2 }));
    assert_eq!(attempts(0, true), (Ran::ToItsEnd, Tally { queries: done, conflicts: 0 }));
    assert_eq!(attempts(9, true), (Ran::GivenUp, Tally { queries: Queries::default(), conflicts: 1 }));
}

#[test]
fn rows_that_are_too_many_or_without_an_entry_are_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 50));
    let more = Order::random(51, &mut random(1, 1));
    engine.orders(1).unwrap().load(first(), &[more]).unwrap();
    let wrong = verify(&engine, set(1, 50)).unwrap_err();
    assert!(matches!(wrong, Error::RowCount { found: 51, wanted: 50, .. }), "{wrong}");
    assert!(wrong.to_string().contains("'orders1'"), "{wrong}");
}

#[test]
fn key_of_another_order_is_an_error_and_no_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), set(1, 5));
    let queue = Queue::new(&engine, set(1, 5), RandType::Zipfian).unwrap();
    let rows = engine.db().open_table("orders1").unwrap();
    let value = rows.scan(..).next().unwrap().unwrap().1;
    let mut taken = value.clone();
    taken[..8].copy_from_slice(&100_u64.to_be_bytes());
    rows.insert(key_of(first(), 6), taken).unwrap();
    let mut clients = queue.clients(&engine, 1).unwrap();
    assert!(clients[0].draw(&mut random(1, 1)));
    let wrong = clients[0].run(&mut Tally::default(), || false).unwrap_err();
    assert!(matches!(wrong, Error::RowExists { id: 6, .. }), "{wrong}");
}
