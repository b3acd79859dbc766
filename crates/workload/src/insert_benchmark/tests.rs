//! The steps on a real database: rows, entries, rates.

use std::path::Path;

use ::millpond::{Db, Options};

use super::*;
use crate::adapters::millpond::Millpond;
use crate::engine::IdRange;

const CLIENTS: u32 = 2;

const SIZES: Sizes = Sizes {
    clients: CLIENTS,
    load: PurchaseLoad { rows: 1_050, data_len: 7 },
    load_rows_per_commit: 100,
    rows_per_commit: 50,
    small_rows_per_commit: 5,
    rows_per_query: 10,
};

const PLAN: Plan =
    Plan { threads: 0, time_s: 1, warmup_s: 0, events: 0, report_interval_s: 0, pace: Pace::ClosedLoop, seed: 3 };

/// Uses the page cache: these tests are about tables, and run on any file system.
fn options() -> Options {
    Options::new().cached(true)
}

fn loaded(dir: &Path) -> Millpond {
    let engine = Millpond::open(dir, options()).unwrap();
    let tables = missing(&engine, &SIZES).unwrap();
    assert_eq!(tables.len(), CLIENTS as usize);
    let done = load(&engine, &SIZES, &tables, &PLAN, &AtomicBool::new(false), &mut Unobserved).unwrap();
    assert_eq!(done.finished.transactions(), 2 * 11);
    assert_eq!(figures(Step::Load, &done).rows_inserted, 2_100);
    engine
}

fn indexed(dir: &Path) -> Millpond {
    let engine = loaded(dir);
    let done = create_indexes(&engine, &SIZES, &PLAN, &AtomicBool::new(false), &mut Unobserved).unwrap();
    assert_eq!((done.finished.transactions(), figures(Step::CreateIndexes, &done).entries_made), (6, 6 * 1_050));
    assert_eq!(verify(&engine, CLIENTS).unwrap(), ALL);
    engine
}

/// Rows and entries of both tables together.
const ALL: Verified = Verified { rows: 2_100, entries: 6_300 };

/// The ids in each table.
fn ids(engine: &Millpond) -> Vec<IdRange> {
    SIZES.tables().map(|table| engine.purchases(table).unwrap().ids().unwrap().unwrap()).collect()
}

fn figures(step: Step, done: &Done) -> StepFigures {
    let device = SyncPairs { per_s: 1.0, worst_ms: 1.0, access: crate::probe::Access::Cached };
    StepFigures::of(step, &SIZES, done, &device, Labels { percentile: 95, stall_threshold_ms: 100 })
}

fn run_step(engine: &Millpond, name: &str) -> StepFigures {
    let step = name.parse().unwrap();
    let done = run(engine, &SIZES, step, &PLAN, &AtomicBool::new(false), &mut Unobserved).unwrap();
    figures(step, &done)
}

#[test]
fn second_run_finds_its_load_and_refuses_one_of_other_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path());
    assert_eq!(verify(&engine, CLIENTS).unwrap(), Verified { entries: 0, ..ALL });
    assert_eq!(ids(&engine), [IdRange { first: 1, last: 1_050 }; 2]);
    assert!(missing(&engine, &SIZES).unwrap().is_empty());
    assert_eq!(missing(&engine, &Sizes { clients: 3, ..SIZES }).unwrap(), [TableNo::from_index(2)]);
    for load in [PurchaseLoad { rows: 9, ..SIZES.load }, PurchaseLoad { data_len: 9, ..SIZES.load }] {
        let error = missing(&engine, &Sizes { load, ..SIZES }).unwrap_err().to_string();
        for part in ["'purchases1'", "--table-size=1050", "--data-length=7", "cleanup"] {
            assert!(error.contains(part), "{error}");
        }
    }
    assert!(engine.is_only_load().unwrap());
    assert_eq!(drop_tables(&engine, 5).unwrap().len(), 2);
    let gone = run(&engine, &SIZES, Step::ManyInserts, &PLAN, &AtomicBool::new(false), &mut Unobserved);
    assert!(matches!(gone, Err(Error::NoPurchases(table)) if table == "purchases1"));
}

#[test]
fn inserts_and_deletes_leave_as_many_rows_above_the_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let engine = indexed(dir.path());
    let mut inserted = 0;
    for (name, rows_per_commit) in [("l.i1", 50), ("l.i2", 5)] {
        let figures = run_step(&engine, name);
        assert!(figures.rows_inserted > 0 && figures.rows_inserted.is_multiple_of(rows_per_commit), "{figures:?}");
        assert_eq!(figures.rows_inserted, figures.figures.transactions * rows_per_commit);
        assert_eq!(figures.figures.waits_of, WaitsOf::Clients);
        assert_eq!(
            (figures.rows_deleted, figures.figures.writes),
            (figures.rows_inserted, figures.figures.transactions * 2)
        );
        inserted += figures.rows_inserted;
        assert_eq!(verify(&engine, CLIENTS).unwrap(), ALL);
    }
    let ids = ids(&engine);
    assert!(ids.iter().all(|ids| ids.last - ids.first + 1 == 1_050), "{ids:?}");
    assert_eq!(ids.iter().map(|ids| ids.first - 1).sum::<u64>(), inserted);
}

#[test]
fn queries_read_beside_a_rate_that_is_kept_or_said_not_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let engine = indexed(dir.path());
    for name in ["qr100", "qp20"] {
        let figures = run_step(&engine, name);
        assert!(figures.figures.reads > 0 && figures.figures.writes == 0, "{figures:?}");
        assert_eq!(figures.figures.waits_of, WaitsOf::ClientsAndWriters, "readers commit nothing: {figures:?}");
        assert!(figures.figures.waits.iter().any(|wait| wait.class == "log_flush"), "{figures:?}");
        let wanted = if name == "qr100" { 200.0 } else { 40.0 };
        assert_eq!(figures.rows_wanted_per_s, Some(wanted));
        // Arrivals have even gaps, so there are at most as many as in one second.
        assert!(figures.rows_inserted > 0 && figures.rows_inserted as f64 <= wanted, "{figures:?}");
        assert_eq!(verify(&engine, CLIENTS).unwrap(), ALL);
    }
    // No machine inserts a million rows a second, one by one.
    let too_many = run_step(&engine, "qp1000000");
    assert_eq!(too_many.is_rate_kept, Some(false), "{too_many:?}");
}

#[test]
fn missing_indexes_are_made_and_their_ranges_refused_before() {
    let dir = tempfile::tempdir().unwrap();
    let engine = loaded(dir.path());
    let refused = run(&engine, &SIZES, "qr9".parse().unwrap(), &PLAN, &AtomicBool::new(false), &mut Unobserved);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("'purchases1'") && error.contains("'marketsegment'") && error.contains("l.x"), "{error}");
    run_step(&engine, "qp9");
    run_step(&engine, "l.i1");
    // The state that an interrupted run leaves.
    let second = TableNo::from_index(1);
    engine.purchases(second).unwrap().create_index(PurchaseIndex::Register).unwrap();
    assert_eq!(verify(&engine, CLIENTS).unwrap().entries, 1_050);
    let missing = missing_indexes(&engine, CLIENTS).unwrap();
    assert_eq!(missing.iter().map(|(_, indexes)| indexes.len()).collect::<Vec<_>>(), [3, 2]);
    let done = create_indexes(&engine, &SIZES, &PLAN, &AtomicBool::new(false), &mut Unobserved).unwrap();
    assert_eq!(done.finished.transactions(), 5);
    assert!(missing_indexes(&engine, CLIENTS).unwrap().is_empty());
    assert_eq!(verify(&engine, CLIENTS).unwrap(), ALL);
}

#[test]
fn stop_ends_the_queries_and_the_writers_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let engine = indexed(dir.path());
    let plan = Plan { time_s: 600, ..PLAN };
    let done = run(&engine, &SIZES, "qr100".parse().unwrap(), &plan, &AtomicBool::new(true), &mut Unobserved).unwrap();
    assert!(done.finished.was_stopped && done.beside.is_some_and(|beside| beside.was_stopped));
    drop_tables(&engine, CLIENTS).unwrap();
    let tables = missing(&engine, &SIZES).unwrap();
    let stopped = load(&engine, &SIZES, &tables, &plan, &AtomicBool::new(true), &mut Unobserved);
    assert!(matches!(stopped, Err(Error::Interrupted)));
    assert!(matches!(missing(&engine, &SIZES), Err(Error::HalfLoaded(_))));
}

#[test]
fn rows_that_are_gone_are_found_out() {
    let dir = tempfile::tempdir().unwrap();
    loaded(dir.path()).close().unwrap();
    let db = Db::open(dir.path(), options()).unwrap();
    let rows = db.open_table("purchases1").unwrap();
    for id in 2..=1_049_u64 {
        assert!(rows.delete(id.to_be_bytes()).unwrap());
    }
    db.close().unwrap();
    let engine = Millpond::open(dir.path(), options()).unwrap();
    let lost = run(&engine, &SIZES, "qp1".parse().unwrap(), &PLAN, &AtomicBool::new(false), &mut Unobserved);
    assert!(matches!(lost, Err(Error::RowMissing { .. })), "{lost:?}");
}

#[test]
fn sizes_out_of_range_are_refused_by_option_value_and_range() {
    let load = |rows, data_len| Sizes { load: PurchaseLoad { rows, data_len }, ..SIZES };
    for (sizes, parts) in [
        (load(0, 7), ["--table-size", "not 0", "1 to 4294967295"]),
        (load(49, 7), ["--rows-per-commit", "not 50", "1 to 49, the rows of a table"]),
        (load(1_050, 4_001), ["--data-length", "not 4001", "0 to 4000"]),
        (Sizes { small_rows_per_commit: 0, ..SIZES }, ["--small-rows-per-commit", "not 0", "1 to "]),
        (Sizes { load_rows_per_commit: 100_001, ..SIZES }, ["--load-rows-per-commit", "not 100001", "1 to 100000"]),
        (Sizes { rows_per_query: 0, ..SIZES }, ["--rows-per-query", "not 0", "1 to 100000"]),
    ] {
        let error = sizes.check().unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert!(SIZES.check().is_ok());
}
