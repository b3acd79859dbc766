//! The order queue: its tables, its run, its check afterwards.

use std::sync::atomic::AtomicBool;

use crate::Error;
use crate::engine::orders::{OrderEngine, OrderSession};
use crate::engine::{IdRange, TableNo, Verified};
use crate::generators::oltp::TableSet;
use crate::generators::orders::{Client, Numbers, Order, orders_name};
use crate::keys::{Keys, RandType, Random};
use crate::prepare::{self, Loading};

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// The tables.
    pub set: TableSet,
    /// Seed of the rows. It has no effect on their primary keys.
    pub seed: u64,
    /// Threads that load.
    pub threads: usize,
}

/// The tables of `set` that are still to be loaded.
///
/// # Errors
/// [`Error::TableSize`]: a table exists with another size. [`Error::HalfLoaded`]: a table's load did not finish.
/// [`Error::Engine`]: the engine could not answer.
pub fn missing<E: OrderEngine>(engine: &E, set: TableSet) -> Result<Vec<TableNo>, Error> {
    prepare::those_of(set.numbers(), |table| set.misses(engine.order_table(table)?, orders_name(table)))
}

/// Loads `tables`, which must be missing. Several threads call `progress` with the number of rows of each batch.
///
/// # Errors
/// As [`prepare::load`].
pub fn load<E: OrderEngine>(
    engine: &E,
    plan: &LoadPlan,
    tables: &[TableNo],
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    prepare::load_tables(&Orders { engine, plan }, tables, plan.threads, stop, progress)
}

/// Drops the tables of `set` that exist; returns their numbers.
///
/// # Errors
/// [`Error::Engine`]: the engine failed.
pub fn drop_tables<E: OrderEngine>(engine: &E, set: TableSet) -> Result<Vec<TableNo>, Error> {
    prepare::those_of(set.numbers(), |table| engine.drop_orders(table))
}

/// Tables of orders to be loaded.
struct Orders<'a, E> {
    engine: &'a E,
    plan: &'a LoadPlan,
}

impl<E: OrderEngine> Loading for Orders<'_, E> {
    fn table_size(&self) -> u64 {
        self.plan.set.table_size()
    }

    fn seed(&self) -> u64 {
        self.plan.seed
    }

    fn create(&self, table: TableNo) -> Result<(), Error> {
        self.engine.create_orders(table)
    }

    fn loader(&self) -> Result<impl FnMut(TableNo, IdRange, &mut Random) -> Result<(), Error> + Send, Error> {
        let mut session = self.engine.orders(self.plan.set.tables())?;
        Ok(move |table, ids: IdRange, random: &mut Random| {
            let orders: Vec<Order> = (ids.first..=ids.last).map(|number| Order::random(number, random)).collect();
            session.load(table, &orders)
        })
    }

    fn finish(&self, table: TableNo) -> Result<(), Error> {
        self.engine.finish_orders(table, self.table_size())
    }

    fn drop(&self, table: TableNo) -> Result<bool, Error> {
        self.engine.drop_orders(table)
    }
}

/// The order queue over a set of loaded tables; all threads of a run share it.
#[derive(Debug)]
pub struct Queue {
    set: TableSet,
    /// Distribution of the ranks of orders, from the newest one down.
    ranks: Keys,
    /// Of each table.
    numbers: Vec<Numbers>,
}

impl Queue {
    /// Makes the queue after a check of the tables. New orders go on above the numbers of those that are there.
    ///
    /// # Errors
    /// [`Error::NotLoaded`], [`Error::HalfLoaded`], [`Error::TableSize`]: the tables are not as `set` says.
    /// [`Error::RowCount`]: a table is empty. [`Error::Engine`]: the engine could not answer.
    pub fn new<E: OrderEngine>(engine: &E, set: TableSet, rand_type: RandType) -> Result<Queue, Error> {
        if let Some(table) = missing(engine, set)?.first() {
            return Err(Error::NotLoaded(orders_name(*table)));
        }
        let mut session = engine.orders(set.tables())?;
        let numbers = set.numbers().map(|table| {
            let IdRange { last, .. } = session.numbers(table)?.ok_or_else(|| row_count(table, 0, set))?;
            Ok(Numbers::above(last))
        });
        Ok(Queue {
            set,
            ranks: Keys::new(rand_type, set.table_size())?,
            numbers: numbers.collect::<Result<_, Error>>()?,
        })
    }

    /// Makes a client for each of `threads` threads.
    ///
    /// # Errors
    /// [`Error::NotLoaded`]: a table is missing. [`Error::Engine`]: the engine failed.
    pub fn clients<'q, 'e, E: OrderEngine>(
        &'q self,
        engine: &'e E,
        threads: usize,
    ) -> Result<Vec<Client<'q, E::Orders<'e>>>, Error> {
        let client = |_| Ok(Client::new(engine.orders(self.set.tables())?, &self.numbers, &self.ranks));
        (0..threads).map(client).collect()
    }
}

/// Reads all tables and their indexes. Each transaction has inserted a row and deleted one, so each table has the rows
/// that it was loaded with.
///
/// # Errors
/// [`Error::RowCount`]: a table has more rows or fewer. [`Error::IndexDisagrees`]: a row lacks an entry, or an entry
/// lacks its row. [`Error::Engine`]: the engine failed.
pub fn verify<E: OrderEngine>(engine: &E, set: TableSet) -> Result<Verified, Error> {
    let mut all = Verified::default();
    for table in set.numbers() {
        let verified = engine.verify_orders(table)?;
        if verified.rows != set.table_size() {
            return Err(row_count(table, verified.rows, set));
        }
        all += verified;
    }
    Ok(all)
}

fn row_count(table: TableNo, found: u64, set: TableSet) -> Error {
    Error::RowCount { table: orders_name(table), found, wanted: set.table_size() }
}

#[cfg(test)]
mod tests;
