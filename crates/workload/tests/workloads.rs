//! Every workload on a real database: checks the counted statements, and that tables and indexes agree.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use millpond::{Db, Options};
use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::driver::{self, Finished, Pace, Plan, Unobserved};
use workload::engine::{Engine, IdColumn, Index, Layout, TableNo};
use workload::generators::oltp::{Load, Mix, Queries, TableSet, Workload};
use workload::keys::RandType;
use workload::prepare::{self, LoadPlan};

/// Few rows for many threads, so that they conflict.
const ROWS: u64 = 300;
const THREADS: usize = 4;
const EVENTS: u64 = 400;

/// Uses the page cache: these tests are about tables, and run on any file system.
fn options() -> Options {
    Options::new().cached(true)
}

fn loaded(dir: &Path, tables: u32) -> Millpond {
    loaded_with(dir, tables, WITH_PRIMARY_KEY)
}

const WITH_PRIMARY_KEY: Layout = Layout { id: IdColumn::PrimaryKey, k: Index::OnK };

fn loaded_with(dir: &Path, tables: u32, layout: Layout) -> Millpond {
    let engine = Millpond::open(dir, options()).expect("it opens");
    let set = TableSet::new(tables, ROWS).expect("in range");
    let plan = LoadPlan { set, rand_type: RandType::Uniform, seed: 3, threads: 2, layout };
    let missing = prepare::missing(&engine, set).expect("it answers");
    prepare::load(&engine, &plan, &missing, &AtomicBool::new(false), &|_| {}).expect("it loads");
    engine
}

fn run(engine: &Millpond, workload: Workload, tables: u32, events: u64) -> Result<Finished, Error> {
    run_with(engine, workload, tables, events, THREADS)
}

fn run_with(
    engine: &Millpond,
    workload: Workload,
    tables: u32,
    events: u64,
    threads: usize,
) -> Result<Finished, Error> {
    run_mix(engine, workload, tables, events, threads, &Mix::default())
}

fn run_mix(
    engine: &Millpond,
    workload: Workload,
    tables: u32,
    events: u64,
    threads: usize,
    mix: &Mix,
) -> Result<Finished, Error> {
    let set = TableSet::new(tables, ROWS)?;
    let load = Load::new(engine, workload, set, RandType::Special, mix)?;
    let plan =
        Plan { threads, time_s: 600, warmup_s: 0, events, report_interval_s: 0, pace: Pace::ClosedLoop, seed: 9 };
    driver::run(engine, &load, &plan, &AtomicBool::new(false), &mut Unobserved)
}

/// The ids of each table, ascending, after a check that every row has its index entries and every entry its row.
fn consistent_ids(dir: &Path, tables: u32) -> Vec<Vec<u64>> {
    let db = Db::open(dir, options()).expect("it opens");
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
    let ids = (1..=tables)
        .map(|table| {
            let table = db.open_table(&format!("sbtest{table}")).expect("the table");
            let rows: Vec<(Vec<u8>, Vec<u8>)> = table.scan(..).map(|row| row.expect("a row")).collect();
            let is_column = table.indexes().any(|index| index == "xid");
            assert!(rows.iter().all(|(key, value)| (key.len(), value.len()) == (8, 184 + 8 * usize::from(is_column))));
            for index in table.indexes() {
                let column = if index == "k" { 0..4 } else { 184..192 };
                let mut by_row: Vec<_> = rows.iter().map(|(key, row)| (&row[column.clone()], key)).collect();
                by_row.sort();
                let entries: Vec<_> = table.index(&index).expect("it is there").scan(..).collect();
                let by_entry: Vec<_> = entries.iter().map(|entry| entry.as_ref().expect("an entry")).collect();
                let by_entry: Vec<_> = by_entry.iter().map(|(fields, key)| (fields.as_slice(), key)).collect();
                assert_eq!(by_row, by_entry, "index '{index}' of {table:?}");
            }
            let mut ids: Vec<u64> =
                rows.iter().map(|(key, row)| if is_column { number(&row[184..]) } else { number(key) }).collect();
            ids.sort_unstable();
            ids
        })
        .collect();
    db.close().expect("it closes");
    ids
}

/// Reading and writing statements of a transaction, for any tables.
const STATEMENTS: [(Workload, u64, u64); 7] = [
    (Workload::PointSelect, 1, 0),
    (Workload::ReadOnly, 14, 0),
    (Workload::ReadWrite, 14, 4),
    (Workload::WriteOnly, 0, 4),
    (Workload::UpdateIndex, 0, 1),
    (Workload::UpdateNonIndex, 0, 1),
    (Workload::Insert, 0, 1),
];

fn begins_and_commits(workload: Workload) -> u64 {
    2 * u64::from(workload.is_transactional())
}

#[test]
fn every_workload_over_tables_leaves_rows_and_entries_in_pairs() {
    let tables = 2;
    for (workload, read, write) in STATEMENTS {
        let dir = tempfile::tempdir().unwrap();
        let engine = loaded(dir.path(), tables);
        let finished = run(&engine, workload, tables, EVENTS).unwrap();
        engine.close().unwrap();
        let queries = finished.record.queries;
        assert_eq!(finished.transactions(), EVENTS, "{workload}");
        assert_eq!(queries.read, read * EVENTS, "{workload}");
        // A row that a transaction deletes and inserts again is never missing for others.
        let written = (queries.write, queries.other);
        assert_eq!(written, (write * EVENTS, begins_and_commits(workload) * EVENTS), "{workload}");
        let engine = Millpond::open(dir.path(), options()).unwrap();
        let alone = run_with(&engine, workload, tables, 20, 1).unwrap().record.queries;
        engine.close().unwrap();
        assert_eq!((alone.write, alone.other), (write * 20, begins_and_commits(workload) * 20), "{workload}");
        let ids = consistent_ids(dir.path(), tables);
        let inserted = if workload == Workload::Insert { EVENTS + 20 } else { 0 };
        assert_eq!(ids.iter().map(Vec::len).sum::<usize>() as u64, 2 * ROWS + inserted, "{workload}");
        assert!(ids.iter().all(|ids| (1..=ROWS).all(|id| ids.contains(&id))), "{workload}");
    }
}

#[test]
fn tables_with_id_as_a_column_bear_every_workload() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded_with(dir.path(), 1, Layout { id: IdColumn::Indexed, k: Index::OnK });
    // One thread: two threads that delete and insert the same id may leave two rows with it, as in sysbench.
    let alone = |workload| run_with(&engine, workload, 1, EVENTS, 1).unwrap().record.queries;
    let by_k = [(Workload::RandomPoints, 1, 0), (Workload::RandomRanges, 1, 0)];
    for (workload, read, write) in by_k.into_iter().chain(STATEMENTS) {
        let counted = alone(workload);
        let other = begins_and_commits(workload) * EVENTS;
        assert_eq!(counted, Queries { read: read * EVENTS, write: write * EVENTS, other }, "{workload}");
    }
    engine.close().unwrap();
    assert_eq!(consistent_ids(dir.path(), 1), [(1..=ROWS + EVENTS).collect::<Vec<_>>()]);
    // After a reopen, with several threads on the same ids: entries must stay with their rows.
    let engine = Millpond::open(dir.path(), options()).unwrap();
    for workload in [Workload::Insert, Workload::ReadWrite, Workload::WriteOnly, Workload::UpdateIndex] {
        assert_eq!(run(&engine, workload, 1, EVENTS).unwrap().transactions(), EVENTS, "{workload}");
    }
    let queries = run(&engine, Workload::Delete, 1, EVENTS).unwrap().record.queries;
    assert_eq!(queries.write + queries.other, EVENTS);
    assert!(queries.write > 0 && queries.other > 0, "{queries:?}");
    engine.close().unwrap();
    assert!(consistent_ids(dir.path(), 1)[0].len() < (ROWS + 2 * EVENTS) as usize);
}

#[test]
fn drawn_ids_are_new_in_each_run_of_both_kinds_of_tables() {
    let drawn = Mix { auto_inc: false, ..Mix::default() };
    for id in [IdColumn::PrimaryKey, IdColumn::Indexed] {
        let dir = tempfile::tempdir().unwrap();
        for runs in 1..=2 {
            let engine = loaded_with(dir.path(), 2, Layout { id, k: Index::OnK });
            let finished = run_mix(&engine, Workload::Insert, 2, EVENTS, THREADS, &drawn).unwrap();
            assert_eq!(finished.record.queries, Queries { read: 0, write: EVENTS, other: 0 });
            // Every other workload runs over such tables, too. (One thread: see above.)
            run_mix(&engine, Workload::ReadWrite, 2, 50, 1, &drawn).unwrap();
            engine.close().unwrap();
            let ids = consistent_ids(dir.path(), 2);
            assert_eq!(ids.iter().map(Vec::len).sum::<usize>() as u64, 2 * ROWS + runs * EVENTS);
            assert!(ids.iter().all(|ids| ids[ROWS as usize..].iter().all(|id| *id > u64::from(u32::MAX))));
        }
        // Ascending ids continue above the spread ones.
        let engine = Millpond::open(dir.path(), options()).unwrap();
        let last = engine.last_id(TableNo::from_index(0)).unwrap();
        run(&engine, Workload::Insert, 2, EVENTS).unwrap();
        engine.close().unwrap();
        assert!(consistent_ids(dir.path(), 2)[0].last() > Some(&last));
    }
}

#[test]
fn tables_without_an_index_bear_every_workload_that_needs_none() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded_with(dir.path(), 1, Layout { k: Index::Absent, ..WITH_PRIMARY_KEY });
    for workload in [Workload::ReadWrite, Workload::UpdateIndex, Workload::Insert, Workload::Delete] {
        let finished = run(&engine, workload, 1, EVENTS).unwrap();
        assert_eq!(finished.transactions(), EVENTS, "{workload}");
    }
    for workload in [Workload::RandomPoints, Workload::RandomRanges] {
        let refused = run(&engine, workload, 1, EVENTS).unwrap_err().to_string();
        assert!(refused.contains("'sbtest1'") && refused.contains("--create-secondary=on"), "{refused}");
    }
    // A table that is created again keeps no note of the one before.
    let set = TableSet::new(1, ROWS).unwrap();
    assert_eq!(prepare::drop_tables(&engine, set).unwrap().len(), 1);
    assert_eq!(engine.index(TableNo::from_index(0)).unwrap(), Index::OnK);
    engine.close().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    assert_eq!(db.trees().unwrap(), ["sbtest.meta"]);
}

#[test]
fn selects_by_k_are_one_query_over_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), 1);
    for workload in [Workload::RandomPoints, Workload::RandomRanges] {
        let finished = run(&engine, workload, 1, EVENTS).unwrap();
        assert_eq!(finished.record.queries, Queries { read: EVENTS, write: 0, other: 0 }, "{workload}");
        let refused = run(&engine, workload, 2, EVENTS).unwrap_err().to_string();
        assert!(refused.contains("--tables=1"), "{refused}");
    }
    engine.close().unwrap();
    assert_eq!(consistent_ids(dir.path(), 1)[0].len() as u64, ROWS);
}

#[test]
fn deleted_rows_count_once_and_are_no_error_for_later_runs() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path(), 1);
    let finished = run(&engine, Workload::Delete, 1, 3 * EVENTS).unwrap();
    let queries = finished.record.queries;
    assert_eq!(queries.write + queries.other, 3 * EVENTS);
    assert!(queries.other > 0, "{queries:?}");
    // These workloads run, whichever rows are gone now.
    let selects = run(&engine, Workload::ReadOnly, 1, EVENTS).unwrap();
    assert_eq!(selects.record.queries.read, 14 * EVENTS);
    let updates = run(&engine, Workload::UpdateNonIndex, 1, EVENTS).unwrap();
    assert!(updates.record.queries.other > 0, "{:?}", updates.record.queries);
    engine.close().unwrap();
    assert_eq!(consistent_ids(dir.path(), 1)[0].len() as u64, ROWS - queries.write);
}

#[test]
fn row_that_is_lost_is_told_from_one_that_was_deleted() {
    let dir = tempfile::tempdir().unwrap();
    loaded(dir.path(), 1).close().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    let rows = db.open_table("sbtest1").unwrap();
    for id in 1..=ROWS {
        assert!(rows.delete(id.to_be_bytes()).unwrap());
    }
    db.close().unwrap();
    let engine = Millpond::open(dir.path(), options()).unwrap();
    for workload in [Workload::PointSelect, Workload::UpdateIndex, Workload::UpdateNonIndex] {
        assert!(matches!(run(&engine, workload, 1, 1), Err(Error::RowMissing { .. })), "{workload}");
    }
    let set = TableSet::new(1, ROWS).unwrap();
    let ranges = Mix { point_selects: 0, ..Mix::default() };
    let load = Load::new(&engine, Workload::ReadOnly, set, RandType::Uniform, &ranges).unwrap();
    let plan =
        Plan { threads: 1, time_s: 600, warmup_s: 0, events: 1, report_interval_s: 0, pace: Pace::ClosedLoop, seed: 9 };
    let lost = driver::run(&engine, &load, &plan, &AtomicBool::new(false), &mut Unobserved);
    assert!(matches!(lost, Err(Error::RowsMissing { found: 0, .. })), "{lost:?}");
    engine.note_deletes(TableNo::from_index(0)).unwrap();
    assert!(run(&engine, Workload::ReadOnly, 1, 5).is_ok());
    engine.close().unwrap();
}

#[test]
fn bulk_insert_fills_a_table_a_thread_and_goes_on_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Millpond::open(dir.path(), options()).unwrap();
    assert!(matches!(run(&engine, Workload::BulkInsert, 1, 1), Err(Error::NoBulkTable(_))));
    let threads = u32::try_from(THREADS).unwrap();
    prepare::make_bulk(&engine, &prepare::missing_bulk(&engine, threads).unwrap()).unwrap();
    let events = 50_000;
    let mut packets = 0;
    for _ in 0..2 {
        let finished = run(&engine, Workload::BulkInsert, 1, events).unwrap();
        assert_eq!(finished.transactions(), events);
        let queries = finished.record.queries;
        assert_eq!((queries.read, queries.other), (0, 0));
        packets += queries.write;
    }
    assert!((2..=12).contains(&packets), "{packets}");
    engine.close().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    let mut rows = 0;
    for table in 1..=threads {
        let mut scan = db.open_tree(&format!("sbtest{table}.bulk")).unwrap().scan(..);
        let mut last = 0;
        while let Some((key, value)) = scan.next_row().unwrap() {
            let id = u64::from_be_bytes(key.try_into().unwrap());
            assert!(id > last, "ids ascend");
            assert_eq!(u64::from(u32::from_be_bytes(value.try_into().unwrap())), id);
            last = id;
            rows += 1;
        }
    }
    assert_eq!(rows, 2 * events);
    db.close().unwrap();
}
