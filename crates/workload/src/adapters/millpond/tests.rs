//! Tables, statements and notes on a real database.

use std::collections::BTreeSet;

use super::rows::K_LEN;
use super::*;
use crate::engine::{IdColumn, IdRange, KRange, Outcome, RangeSelect, Session};
use crate::generators::row::{Row, random_c};
use crate::keys::{Keys, RandType, random};

const TABLE: u32 = 0;

const LAYOUT: Layout = Layout { id: IdColumn::PrimaryKey, k: Index::OnK };

/// Uses the page cache: these tests are about tables, and run on any file system.
fn options() -> Options {
    Options::new().cached(true)
}

fn engine_with_rows(dir: &Path, rows: u64) -> Millpond {
    let engine = Millpond::open(dir, options()).unwrap();
    let table = TableNo::from_index(TABLE);
    engine.create_table(table, LAYOUT).unwrap();
    let keys = Keys::new(RandType::Uniform, rows).unwrap();
    let mut random = random(3, 0);
    let rows: Vec<Row> = (1..=rows).map(|id| Row::random(id, &keys, &mut random)).collect();
    engine.session(1).unwrap().load_rows(table, &rows).unwrap();
    engine.finish_table(table, rows.len() as u64).unwrap();
    engine
}

/// The (k, id) of every row.
type Pairs = BTreeSet<(u32, u64)>;

/// The pairs by the table's rows, and by the index's entries.
fn both_views(engine: &Millpond) -> (Pairs, Pairs) {
    let session = engine.session(1).unwrap();
    let table = session.table(TableNo::from_index(0));
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
    let by_row = table.scan(..).map(|entry| {
        let (key, value) = entry.unwrap();
        (number(&value[..K_LEN]) as u32, number(&key))
    });
    let by_index = table.index(K_INDEX).unwrap().scan(..).map(|entry| {
        let (k, key) = entry.unwrap();
        (number(&k) as u32, number(&key))
    });
    (by_row.collect(), by_index.collect())
}

#[test]
fn update_moves_the_row_and_its_index_entry_together() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 50);
    let (before, index_before) = both_views(&engine);
    assert_eq!(before, index_before);
    let mut session = engine.session(1).unwrap();
    for _ in 0..3 {
        assert_eq!(session.increment_k(TableNo::from_index(TABLE), 7).unwrap(), Outcome::Done);
    }
    let (after, index_after) = both_views(&engine);
    assert_eq!(after, index_after);
    let k_of_7 = |rows: &Pairs| rows.iter().find(|(_, id)| *id == 7).unwrap().0;
    assert_eq!(k_of_7(&after), k_of_7(&before) + 3);
    assert_eq!(after.len(), 50);
    engine.close().unwrap();
}

#[test]
fn update_racing_threads_lose_no_increment() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 4);
    let (before, _) = both_views(&engine);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut session = engine.session(1).unwrap();
                for _ in 0..50 {
                    assert_eq!(session.increment_k(TableNo::from_index(TABLE), 2).unwrap(), Outcome::Done);
                }
            });
        }
    });
    let (after, index) = both_views(&engine);
    assert_eq!(after, index);
    let sum = |rows: &Pairs| rows.iter().map(|(k, _)| u64::from(*k)).sum::<u64>();
    assert_eq!(sum(&after), sum(&before) + 200);
}

#[test]
fn statements_on_a_missing_row_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 5);
    let mut session = engine.session(1).unwrap();
    let table = TableNo::from_index(TABLE);
    assert_eq!(session.select_row(table, 5).unwrap(), Outcome::Done);
    assert_eq!(session.select_row(table, 6).unwrap(), Outcome::NoRow);
    assert_eq!(session.increment_k(table, 6).unwrap(), Outcome::NoRow);
    assert_eq!(session.replace_c(table, 6, &random_c(&mut random(1, 1))).unwrap(), Outcome::NoRow);
    assert_eq!(session.delete_row(table, 6).unwrap(), Outcome::NoRow);
}

#[test]
fn table_states_follow_the_load() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 5);
    let second = TableNo::from_index(1);
    assert_eq!(engine.table(TableNo::from_index(0)).unwrap(), TableState::Loaded(5));
    assert_eq!(engine.table(second).unwrap(), TableState::Missing);
    engine.create_table(second, LAYOUT).unwrap();
    assert_eq!(engine.table(second).unwrap(), TableState::HalfLoaded);
    assert_eq!(engine.last_id(second).unwrap(), 0);
    assert_eq!(engine.last_id(TableNo::from_index(0)).unwrap(), 5);
    assert!(engine.drop_table(second).unwrap());
    assert!(!engine.drop_table(second).unwrap());
    assert_eq!(engine.table(second).unwrap(), TableState::Missing);
    assert!(matches!(engine.session(2), Err(Error::NotLoaded(table)) if table == second.to_string()));
}

#[test]
fn database_with_other_trees_is_not_only_load() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 5);
    assert!(engine.is_only_load().unwrap());
    engine.db.create_tree("accounts").unwrap();
    assert!(!engine.is_only_load().unwrap());
    engine.close().unwrap();

    let foreign = tempfile::tempdir().unwrap();
    let db = Db::open(foreign.path(), options()).unwrap();
    db.create_tree("accounts").unwrap();
    db.close().unwrap();
    let engine = Millpond::open(foreign.path(), options()).unwrap();
    assert!(!engine.is_only_load().unwrap());
    assert_eq!(engine.db.trees().unwrap(), ["accounts"], "a look leaves nothing behind");
    engine.create_table(TableNo::from_index(0), LAYOUT).unwrap();
    engine.db.drop_tree("accounts").unwrap();
    assert!(!engine.is_only_load().unwrap(), "the mark must not be given to a database that held other trees");
}

#[test]
fn names_of_tables_are_recognised() {
    assert_eq!(table_number("sbtest12"), Some(12));
    assert_eq!(table_number("sbtest12.k"), None);
    assert_eq!(table_number("sbtest.meta"), None);
    assert_eq!(table_number("sbtest1x"), None);
    assert_eq!(table_number("sbtest1.bulk"), None, "no table of its own kind");
    assert!(is_load_tree("sbtest1.bulk"));
    assert!(is_load_tree(META));
    assert!(!is_load_tree("other"));
}

#[test]
fn delete_and_insert_take_the_index_entry_along() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 20);
    let table = TableNo::from_index(TABLE);
    let mut session = engine.session(1).unwrap();
    assert_eq!(session.delete_row(table, 9).unwrap(), Outcome::Done);
    assert_eq!(session.delete_row(table, 9).unwrap(), Outcome::NoRow);
    let (rows, index) = both_views(&engine);
    assert_eq!(rows, index);
    assert_eq!(rows.len(), 19);
    let row = Row::random(9, &Keys::new(RandType::Uniform, 20).unwrap(), &mut random(8, 8));
    assert_eq!(session.insert_row(table, &row).unwrap(), Outcome::Done);
    assert_eq!(session.insert_row(table, &row).unwrap(), Outcome::Exists);
    let (rows, index) = both_views(&engine);
    assert_eq!(rows, index);
    assert!(rows.contains(&(row.k, 9)));
}

#[test]
fn another_c_leaves_k_and_pad_alone() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 5);
    let table = TableNo::from_index(TABLE);
    let mut session = engine.session(1).unwrap();
    let key = 3_u64.to_be_bytes();
    let before = session.table(table).get(key).unwrap().unwrap();
    let c = random_c(&mut random(5, 5));
    assert_eq!(session.replace_c(table, 3, &c).unwrap(), Outcome::Done);
    let after = session.table(table).get(key).unwrap().unwrap();
    assert_eq!(after[..K_LEN], before[..K_LEN]);
    assert_eq!(after[K_LEN..K_LEN + c.len()], c);
    assert_eq!(after[K_LEN + c.len()..], before[K_LEN + c.len()..]);
    let (rows, index) = both_views(&engine);
    assert_eq!(rows, index);
}

#[test]
fn ranges_points_and_counts_find_what_a_model_finds() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 200);
    let table = TableNo::from_index(TABLE);
    let mut session = engine.session(1).unwrap();
    let (rows, _) = both_views(&engine);
    for (first, last, wanted) in [(1, 1, 1), (50, 149, 100), (150, 249, 51), (201, 300, 0)] {
        for select in [RangeSelect::Rows, RangeSelect::SumOfK, RangeSelect::Sorted, RangeSelect::SortedDistinct] {
            assert_eq!(session.select_range(table, IdRange { first, last }, select).unwrap(), wanted);
        }
    }
    let points = [3, 4, 90, 150, 5_000];
    let wanted = rows.iter().filter(|(k, _)| points.contains(k)).count() as u64;
    assert_eq!(session.select_points(table, &points).unwrap(), wanted);
    let ranges = [KRange { first: 0, last: 9 }, KRange { first: 40, last: 45 }, KRange { first: 190, last: u32::MAX }];
    let is_in = |k: u32| ranges.iter().any(|range| (range.first..=range.last).contains(&k));
    let wanted = rows.iter().filter(|(k, _)| is_in(*k)).count() as u64;
    assert_eq!(session.count_ranges(table, &ranges).unwrap(), wanted);
}

#[test]
fn bulk_tables_stand_beside_tables_and_split_large_packets() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 5);
    let table = TableNo::from_index(6);
    assert_eq!(engine.bulk_last_id(table).unwrap(), None);
    assert!(matches!(engine.bulk_session(table), Err(Error::NoBulkTable(_))));
    engine.create_bulk_table(table).unwrap();
    assert_eq!(engine.bulk_last_id(table).unwrap(), Some(0));
    let mut session = engine.bulk_session(table).unwrap();
    session.insert_bulk(IdRange { first: 1, last: 60_000 }).unwrap();
    session.insert_bulk(IdRange { first: 60_001, last: 60_001 }).unwrap();
    assert_eq!(engine.bulk_last_id(table).unwrap(), Some(60_001));
    assert_eq!(engine.db.open_tree("sbtest7.bulk").unwrap().scan(..).count(), 60_001);
    assert!(engine.is_only_load().unwrap());
    assert_eq!(engine.table(table).unwrap(), TableState::Missing, "it is no table of the others' kind");
    assert!(engine.drop_bulk_table(table).unwrap());
    assert!(!engine.drop_bulk_table(table).unwrap());
    assert!(engine.session(1).unwrap().insert_bulk(IdRange { first: 1, last: 1 }).is_err());
}

#[test]
fn note_of_deletes_lives_as_long_as_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine_with_rows(dir.path(), 5);
    let table = TableNo::from_index(TABLE);
    assert!(!engine.may_miss_rows(table).unwrap());
    engine.note_deletes(table).unwrap();
    assert!(engine.may_miss_rows(table).unwrap());
    assert_eq!(engine.table(table).unwrap(), TableState::Loaded(5));
    engine.drop_table(table).unwrap();
    engine.create_table(table, LAYOUT).unwrap();
    assert!(!engine.may_miss_rows(table).unwrap());
}
