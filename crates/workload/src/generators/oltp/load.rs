//! A workload over loaded tables, and the transactions that a thread draws from it.

use std::fmt;

use rand::RngExt;

use super::new_ids::NewIds;
use super::{Mix, Statement, Transaction, Workload};
use crate::Error;
use crate::engine::{Engine, IdRange, Index, KRange, RangeSelect, TableNo, TableState};
use crate::generators::row::{Row, random_c};
use crate::keys::{Keys, RandType, Random};

/// The most tables of a run; a higher number is a typing error.
const TABLES_MAX: u32 = 10_000;

/// The number of tables, and the rows of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSet {
    tables: u32,
    table_size: u64,
}

impl TableSet {
    /// Makes a set of `tables` tables with `table_size` rows each.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no table or too many, no row, or more rows than the column `k` can count (4 294 967 295).
    pub fn new(tables: u32, table_size: u64) -> Result<TableSet, Error> {
        if !(1..=TABLES_MAX).contains(&tables) {
            return Err(Error::Invalid(format!("--tables must be 1 to {TABLES_MAX}, not {tables}")));
        }
        if !(1..=u64::from(u32::MAX)).contains(&table_size) {
            return Err(Error::Invalid(format!("--table-size must be 1 to {}, not {table_size}", u32::MAX)));
        }
        Ok(TableSet { tables, table_size })
    }

    /// Checks that `workload` can run over so many tables.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it runs over one table only.
    pub fn check(self, workload: Workload) -> Result<(), Error> {
        if workload.wants_one_table() && self.tables > 1 {
            return Err(Error::Invalid(format!(
                "{workload} runs over one table, not {}; ask for --tables=1",
                self.tables
            )));
        }
        Ok(())
    }

    /// Whether a table with this name and state is still to be loaded.
    ///
    /// # Errors
    /// [`Error::TableSize`]: it was loaded with another size. [`Error::HalfLoaded`]: its load did not finish.
    pub(crate) fn misses(self, state: TableState, name: impl fmt::Display) -> Result<bool, Error> {
        match state {
            TableState::Missing => Ok(true),
            TableState::HalfLoaded => Err(Error::HalfLoaded(name.to_string())),
            TableState::Loaded(found) if found != self.table_size => {
                Err(Error::TableSize { table: name.to_string(), found, wanted: self.table_size })
            }
            TableState::Loaded(_) => Ok(false),
        }
    }

    /// The number of tables.
    pub fn tables(self) -> u32 {
        self.tables
    }

    /// Rows that each table is loaded with.
    pub fn table_size(self) -> u64 {
        self.table_size
    }

    /// The tables' numbers.
    pub fn numbers(self) -> impl ExactSizeIterator<Item = TableNo> {
        TableNo::first(self.tables)
    }
}

/// A workload over a set of loaded tables; all threads of a run share it.
#[derive(Debug)]
pub struct Load {
    workload: Workload,
    set: TableSet,
    /// The options' counts that apply to the workload; the others are 0.
    mix: Mix,
    rand_type: RandType,
    keys: Keys,
    /// The ids to insert, for each table.
    new_ids: Vec<NewIds>,
    /// Whether this run or an earlier one may have deleted rows.
    rows_may_miss: bool,
}

impl Load {
    /// Makes the load after a check of the tables. If the workload deletes rows, notes that with the tables.
    ///
    /// # Errors
    /// [`Error::NotLoaded`], [`Error::HalfLoaded`], [`Error::TableSize`]: the tables are not as `set` says.
    /// [`Error::NoIndex`]: the workload reads an index that is missing. [`Error::Invalid`]: `mix` or `set` do not fit
    /// this workload. [`Error::Engine`]: the engine could not answer.
    pub fn new<E: Engine>(
        engine: &E,
        workload: Workload,
        set: TableSet,
        rand_type: RandType,
        mix: &Mix,
    ) -> Result<Load, Error> {
        mix.check(workload)?;
        set.check(workload)?;
        let mix = mix.of(workload);
        let keys = Keys::new(rand_type, set.table_size)?;
        let mut load = Load {
            workload,
            set,
            mix,
            rand_type,
            keys,
            new_ids: Vec::new(),
            rows_may_miss: load_deletes(workload, mix),
        };
        if !workload.uses_tables() {
            return Ok(load);
        }
        let deletes = load.rows_may_miss;
        for table in set.numbers() {
            if set.misses(engine.table(table)?, table)? {
                return Err(Error::NotLoaded(table.to_string()));
            }
            if workload.reads_index() && engine.index(table)? == Index::Absent {
                return Err(Error::NoIndex(table));
            }
            load.new_ids.push(match workload {
                Workload::RandomBatches => NewIds::spread(engine.begin_run(table)?),
                Workload::Insert if !mix.auto_inc => NewIds::spread(engine.begin_run(table)?),
                _ => NewIds::above(engine.last_id(table)?.max(set.table_size)),
            });
            load.rows_may_miss |= engine.may_miss_rows(table)?;
            if deletes {
                engine.note_deletes(table)?;
            }
        }
        Ok(load)
    }

    /// The workload.
    pub fn workload(&self) -> Workload {
        self.workload
    }

    /// The tables.
    pub fn set(&self) -> TableSet {
        self.set
    }

    /// Whether its transactions have begin and commit.
    pub fn is_transactional(&self) -> bool {
        self.workload.is_transactional() && !self.mix.skip_trx
    }

    /// Whether a missing row is no error.
    pub fn rows_may_miss(&self) -> bool {
        self.rows_may_miss
    }

    /// The part of the values of `k` from which thread `number`, from 0, of `threads` draws points and ranges.
    pub(super) fn segment(&self, number: usize, threads: usize) -> Result<Segment, Error> {
        // As in sysbench: the length of a part may be fractional, and both ends are included.
        let length = self.set.table_size as f64 / threads as f64;
        let start = number as f64 * length;
        let (first, last) = (start as u64, (start + length) as u64);
        Ok(Segment { first, keys: Keys::new(self.rand_type, last - first + 1)? })
    }

    /// Draws the next transaction of a thread into `transaction`; `segment` is the thread's.
    pub(super) fn draw(&self, random: &mut Random, segment: &Segment, transaction: &mut Transaction) {
        transaction.clear();
        match self.workload {
            Workload::Insert => {
                let table = self.draw_table(random);
                let id = self.new_ids[table.index()].draw();
                let row = transaction.keep_row(Row::random(id, &self.keys, random));
                transaction.statements.push(Statement::InsertRow { table, row });
            }
            Workload::Delete => {
                let table = self.draw_table(random);
                transaction.statements.push(Statement::DeleteRow { table, id: self.keys.draw(random) });
            }
            Workload::RandomPoints => {
                transaction.points.extend((0..self.mix.random_points).map(|_| segment.draw(random)));
                transaction.tidy();
                transaction.statements.push(Statement::SelectPoints { table: TableNo::from_index(0) });
            }
            Workload::RandomRanges => {
                transaction.ranges.extend((0..self.mix.number_of_ranges).map(|_| {
                    let first = segment.draw(random);
                    KRange { first, last: first.saturating_add(self.mix.delta) }
                }));
                transaction.tidy();
                transaction.statements.push(Statement::CountRanges { table: TableNo::from_index(0) });
            }
            Workload::BulkInsert => transaction.statements.push(Statement::BulkRow),
            Workload::RandomBatches => {
                let table = self.draw_table(random);
                let row = |_| Row::random(self.new_ids[table.index()].draw(), &self.keys, random);
                transaction.rows.extend((0..self.mix.batch_size).map(row));
                transaction.statements.push(Statement::InsertRows { table });
            }
            Workload::PointSelect
            | Workload::ReadOnly
            | Workload::ReadWrite
            | Workload::WriteOnly
            | Workload::UpdateIndex
            | Workload::UpdateNonIndex => self.draw_mix(random, transaction),
        }
    }

    /// Draws the statements of the mix, in sysbench's order; all of one kind go to one table.
    fn draw_mix(&self, random: &mut Random, transaction: &mut Transaction) {
        let mix = self.mix;
        self.of_one_table(mix.point_selects, random, transaction, |table, random, _| Statement::SelectRow {
            table,
            id: self.keys.draw(random),
        });
        for (count, select) in [
            (mix.simple_ranges, RangeSelect::Rows),
            (mix.sum_ranges, RangeSelect::SumOfK),
            (mix.order_ranges, RangeSelect::Sorted),
            (mix.distinct_ranges, RangeSelect::SortedDistinct),
        ] {
            self.of_one_table(count, random, transaction, |table, random, _| {
                let first = self.keys.draw(random);
                let ids = IdRange { first, last: first + u64::from(mix.range_size) - 1 };
                Statement::SelectRange { table, ids, select }
            });
        }
        self.of_one_table(mix.index_updates, random, transaction, |table, random, _| Statement::IncrementK {
            table,
            id: self.keys.draw(random),
        });
        self.of_one_table(mix.non_index_updates, random, transaction, |table, random, transaction| {
            let text = transaction.keep_text(random_c(random));
            Statement::ReplaceC { table, id: self.keys.draw(random), text }
        });
        self.of_one_table(mix.delete_inserts, random, transaction, |table, random, transaction| {
            let id = self.keys.draw(random);
            let row = transaction.keep_row(Row::random(id, &self.keys, random));
            Statement::DeleteInsert { table, row }
        });
    }

    /// Draws `count` statements of one kind.
    fn of_one_table(
        &self,
        count: u32,
        random: &mut Random,
        transaction: &mut Transaction,
        make: impl Fn(TableNo, &mut Random, &mut Transaction) -> Statement,
    ) {
        if count == 0 {
            return;
        }
        let table = self.draw_table(random);
        for _ in 0..count {
            let statement = make(table, random, transaction);
            transaction.statements.push(statement);
        }
    }

    fn draw_table(&self, random: &mut Random) -> TableNo {
        match self.set.tables {
            1 => TableNo::from_index(0),
            tables => TableNo::from_index(random.random_range(0..tables)),
        }
    }

    /// Rows that a range of ids must have if none was ever deleted.
    pub(super) fn rows_loaded(&self, ids: IdRange) -> u64 {
        (ids.last.min(self.set.table_size) + 1).saturating_sub(ids.first)
    }
}

/// Whether the workload deletes rows, even if only for a moment.
fn load_deletes(workload: Workload, mix: Mix) -> bool {
    workload == Workload::Delete || mix.delete_inserts > 0
}

/// A part of the values of `k`.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    first: u64,
    keys: Keys,
}

impl Segment {
    fn draw(&self, random: &mut Random) -> u32 {
        // Tables hold at most u32::MAX rows (`TableSet::new`), and no segment goes beyond.
        u32::try_from(self.first + self.keys.draw(random) - 1).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
