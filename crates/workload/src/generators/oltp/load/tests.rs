//! Compares the drawn statements with sysbench's: how many of each kind, over which tables and rows.

use std::collections::BTreeMap;

use super::*;
use crate::keys::random;

const ROWS: u64 = 1_000;

fn load(workload: Workload, tables: u32, mix: Mix) -> Load {
    let set = TableSet::new(tables, ROWS).unwrap();
    Load {
        workload,
        set,
        mix: mix.of(workload),
        rand_type: RandType::Uniform,
        keys: Keys::new(RandType::Uniform, ROWS).unwrap(),
        new_ids: set.numbers().map(|_| if mix.auto_inc { NewIds::above(ROWS) } else { NewIds::spread(0) }).collect(),
        rows_may_miss: load_deletes(workload, mix.of(workload)),
    }
}

/// Draws `count` transactions of one thread.
fn draws(load: &Load, count: usize) -> Vec<Transaction> {
    let segment = load.segment(0, 1).unwrap();
    let mut random = random(11, 2);
    let mut transaction = Transaction::default();
    let mut draw = || {
        load.draw(&mut random, &segment, &mut transaction);
        transaction.clone()
    };
    (0..count).map(|_| draw()).collect()
}

fn name_and_table(statement: &Statement) -> (&'static str, Option<TableNo>) {
    match statement {
        Statement::SelectRow { table, .. } => ("point", Some(*table)),
        Statement::SelectRange { table, select, .. } => {
            let name = match select {
                RangeSelect::Rows => "simple",
                RangeSelect::SumOfK => "sum",
                RangeSelect::Sorted => "order",
                RangeSelect::SortedDistinct => "distinct",
            };
            (name, Some(*table))
        }
        Statement::IncrementK { table, .. } => ("k", Some(*table)),
        Statement::ReplaceC { table, .. } => ("c", Some(*table)),
        Statement::DeleteRow { table, .. } => ("delete", Some(*table)),
        Statement::DeleteInsert { table, .. } => ("delete+insert", Some(*table)),
        Statement::InsertRow { table, .. } => ("insert", Some(*table)),
        Statement::SelectPoints { table } => ("points", Some(*table)),
        Statement::CountRanges { table } => ("ranges", Some(*table)),
        Statement::InsertRows { table } => ("rows", Some(*table)),
        Statement::BulkRow => ("row", None),
    }
}

/// The statements of a transaction by name, each with its number of repetitions.
fn shape(transaction: &Transaction) -> Vec<(&'static str, usize)> {
    let names: Vec<&str> = transaction.statements.iter().map(|statement| name_and_table(statement).0).collect();
    names.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect()
}

#[test]
fn every_transaction_has_sysbenchs_statements_in_its_order() {
    let reads = [("point", 10), ("simple", 1), ("sum", 1), ("order", 1), ("distinct", 1)];
    let writes = [("k", 1), ("c", 1), ("delete+insert", 1)];
    for (workload, wanted) in [
        (Workload::PointSelect, vec![("point", 1)]),
        (Workload::ReadOnly, reads.to_vec()),
        (Workload::ReadWrite, [&reads[..], &writes[..]].concat()),
        (Workload::WriteOnly, writes.to_vec()),
        (Workload::UpdateIndex, vec![("k", 1)]),
        (Workload::UpdateNonIndex, vec![("c", 1)]),
        (Workload::Insert, vec![("insert", 1)]),
        (Workload::Delete, vec![("delete", 1)]),
        (Workload::RandomPoints, vec![("points", 1)]),
        (Workload::RandomRanges, vec![("ranges", 1)]),
        (Workload::BulkInsert, vec![("row", 1)]),
        (Workload::RandomBatches, vec![("rows", 1)]),
    ] {
        let load = load(workload, 1, Mix::default());
        assert!(draws(&load, 50).iter().all(|transaction| shape(transaction) == wanted), "{workload}");
    }
}

#[test]
fn options_set_how_many_statements_there_are() {
    let mix = Mix {
        point_selects: 2,
        simple_ranges: 0,
        sum_ranges: 3,
        order_ranges: 0,
        distinct_ranges: 2,
        range_size: 7,
        index_updates: 4,
        non_index_updates: 0,
        delete_inserts: 3,
        ..Mix::default()
    };
    let wanted = vec![("point", 2), ("sum", 3), ("distinct", 2), ("k", 4), ("delete+insert", 3)];
    for transaction in draws(&load(Workload::ReadWrite, 3, mix), 50) {
        assert_eq!(shape(&transaction), wanted);
        for statement in &transaction.statements {
            if let Statement::SelectRange { ids, .. } = statement {
                assert_eq!(ids.last - ids.first, 6);
                assert!((1..=ROWS).contains(&ids.first));
            }
        }
    }
    let points = load(Workload::RandomPoints, 1, Mix { random_points: 40, ..mix });
    assert!(draws(&points, 50).iter().all(|transaction| (30..=40).contains(&transaction.points.len())));
}

#[test]
fn statements_of_a_kind_go_to_one_table_and_tables_are_alike() {
    let load = load(Workload::ReadWrite, 4, Mix { delete_inserts: 3, ..Mix::default() });
    let mut tables: BTreeMap<(&str, TableNo), u32> = BTreeMap::new();
    for transaction in draws(&load, 8_000) {
        for run in transaction.statements.chunk_by(|a, b| name_and_table(a).0 == name_and_table(b).0) {
            assert!(run.iter().all(|statement| name_and_table(statement) == name_and_table(&run[0])));
            let (name, table) = name_and_table(&run[0]);
            *tables.entry((name, table.unwrap())).or_default() += 1;
        }
    }
    assert_eq!(tables.len(), 8 * 4, "eight kinds, four tables");
    // 2000 each, give or take five standard deviations of 39.
    assert!(tables.values().all(|count| (1_800..2_200).contains(count)), "{tables:?}");
}

#[test]
fn rows_are_drawn_all_alike_under_uniform() {
    let mut quarters = [0_u32; 4];
    for transaction in draws(&load(Workload::ReadOnly, 1, Mix::default()), 2_000) {
        for statement in &transaction.statements {
            if let Statement::SelectRow { id, .. } = statement {
                assert!((1..=ROWS).contains(id));
                quarters[((id - 1) * 4 / ROWS) as usize] += 1;
            }
        }
    }
    // 20,000 draws, 5000 a quarter, give or take five standard deviations of 61.
    assert!(quarters.iter().all(|count| (4_690..5_310).contains(count)), "{quarters:?}");
}

#[test]
fn deleted_rows_return_under_their_id_and_inserts_are_new() {
    for transaction in draws(&load(Workload::WriteOnly, 1, Mix { delete_inserts: 2, ..Mix::default() }), 100) {
        assert_eq!((transaction.rows.len(), transaction.texts.len()), (2, 1));
        assert!(transaction.rows.iter().all(|row| (1..=ROWS).contains(&row.id)));
        for (place, pair) in transaction.statements[2..].iter().enumerate() {
            assert!(matches!(pair, Statement::DeleteInsert { row, .. } if *row == place), "{pair:?}");
        }
    }
    let transactions = draws(&load(Workload::Insert, 1, Mix::default()), 100);
    let ids: Vec<u64> = transactions.iter().map(|transaction| transaction.rows[0].id).collect();
    assert_eq!(ids, (ROWS + 1..=ROWS + 100).collect::<Vec<u64>>());
    let transactions = draws(&load(Workload::Insert, 1, Mix { auto_inc: false, ..Mix::default() }), 100);
    assert!(!transactions.is_sorted_by_key(|transaction| transaction.rows[0].id));
}

#[test]
fn each_thread_draws_points_and_ranges_from_its_part() {
    let mix = Mix { delta: 9, ..Mix::default() };
    for threads in [1, 3, 7] {
        for number in 0..threads {
            let load = load(Workload::RandomRanges, 1, mix);
            let segment = load.segment(number, threads).unwrap();
            let mut random = random(3, number as u64);
            let (first, last) = (ROWS as usize * number / threads, ROWS as usize * (number + 1) / threads);
            let mut transaction = Transaction::default();
            for _ in 0..200 {
                load.draw(&mut random, &segment, &mut transaction);
                assert!((1..=10).contains(&transaction.ranges.len()));
                for range in &transaction.ranges {
                    assert!(range.first as usize >= first && range.last as usize <= last + 9, "{range:?}");
                    assert!(range.last - range.first >= 9, "one, or several that overlapped");
                }
            }
        }
    }
}

#[test]
fn ranges_over_the_last_row_count_what_was_loaded() {
    let load = load(Workload::ReadOnly, 1, Mix::default());
    for (first, last, wanted) in [(1, 100, 100), (901, 1_000, 100), (902, 1_001, 99), (1_000, 1_099, 1)] {
        assert_eq!(load.rows_loaded(IdRange { first, last }), wanted);
    }
}

#[test]
fn table_sets_out_of_range_are_refused() {
    assert!(TableSet::new(0, 10).is_err());
    assert!(TableSet::new(TABLES_MAX + 1, 10).is_err());
    assert!(TableSet::new(1, 0).is_err());
    assert!(TableSet::new(1, u64::from(u32::MAX) + 1).is_err());
    let set = TableSet::new(3, 10).unwrap();
    let names: Vec<String> = set.numbers().map(|t| t.to_string()).collect();
    assert_eq!(names, ["sbtest1", "sbtest2", "sbtest3"]);
    let error = set.check(Workload::RandomPoints).unwrap_err().to_string();
    assert!(error.contains("--tables=1") && error.contains("not 3"), "{error}");
    assert!(set.check(Workload::ReadOnly).is_ok());
}
