//! Loads sysbench's tables, and drops them. The order queue's tables are loaded in the same way.
//!
//! Several threads share the work in batches. Each batch has its own random stream of the seed, so a table's content
//! depends on the seed alone. A table counts as loaded only when all its rows are in ([`Engine::finish_table`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::Error;
use crate::driver::gate::Gate;
use crate::engine::{Engine, IdRange, Layout, Session, TableNo};
use crate::generators::oltp::TableSet;
use crate::generators::row::Row;
use crate::keys::{Keys, RandType, Random, random};

/// Rows in one batch: some 40 KB, so that the log sees no burst.
const BATCH_ROWS: u64 = 200;

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// The tables.
    pub set: TableSet,
    /// Distribution of `k`.
    pub rand_type: RandType,
    /// Seed of the rows.
    pub seed: u64,
    /// Threads that load.
    pub threads: usize,
    /// Layout of the tables.
    pub layout: Layout,
}

/// The tables of `set` that are still to be loaded.
///
/// # Errors
/// [`Error::TableSize`]: a table exists with another size. [`Error::HalfLoaded`]: a table's load did not finish.
/// [`Error::Engine`]: the engine could not answer.
pub fn missing<E: Engine>(engine: &E, set: TableSet) -> Result<Vec<TableNo>, Error> {
    those_of(set.numbers(), |table| set.misses(engine.table(table)?, table))
}

/// Those of `tables` for which `is_it` is true.
pub(crate) fn those_of(
    tables: impl Iterator<Item = TableNo>,
    is_it: impl Fn(TableNo) -> Result<bool, Error>,
) -> Result<Vec<TableNo>, Error> {
    tables.map(|table| Ok(is_it(table)?.then_some(table))).filter_map(Result::transpose).collect()
}

/// Loads `tables`, which must be missing. Several threads call `progress` with the number of rows of each batch.
///
/// # Errors
/// [`Error::Interrupted`]: `stop` became true; the tables are half loaded. [`Error::ThreadStart`]: a thread
/// cannot be started; the tables are dropped again. [`Error::Engine`]: the engine failed.
pub fn load<E: Engine>(
    engine: &E,
    plan: &LoadPlan,
    tables: &[TableNo],
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    let keys = Keys::new(plan.rand_type, plan.set.table_size())?;
    load_tables(&Sbtest { engine, plan, keys }, tables, plan.threads, stop, progress)?;
    engine.finish_load()
}

/// How tables of one kind are created and loaded.
pub(crate) trait Loading: Sync {
    /// Rows in each table.
    fn table_size(&self) -> u64;

    /// Seed of the rows.
    fn seed(&self) -> u64;

    /// Creates a table, empty. It counts as half loaded.
    fn create(&self, table: TableNo) -> Result<(), Error>;

    /// A thread's function that inserts the rows of a range of ids in one transaction. Each range has random numbers of
    /// its own.
    fn loader(&self) -> Result<impl FnMut(TableNo, IdRange, &mut Random) -> Result<(), Error> + Send, Error>;

    /// Notes that a table is loaded.
    fn finish(&self, table: TableNo) -> Result<(), Error>;

    /// Drops a table.
    fn drop(&self, table: TableNo) -> Result<bool, Error>;
}

/// Creates `tables`, which must be missing, and loads them with several threads.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_tables(
    loading: &impl Loading,
    tables: &[TableNo],
    threads: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    tables.iter().try_for_each(|&table| loading.create(table))?;
    let loaded = load_rows(loading, tables, threads.max(1), stop, progress);
    if matches!(loaded, Err(Error::ThreadStart { .. })) {
        for &table in tables {
            loading.drop(table)?;
        }
    }
    loaded?;
    tables.iter().try_for_each(|&table| loading.finish(table))
}

/// Loads the rows of `tables`, which exist and are empty.
fn load_rows(
    loading: &impl Loading,
    tables: &[TableNo],
    threads: usize,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    let loaders = (0..threads).map(|_| loading.loader()).collect::<Result<Vec<_>, Error>>()?;
    let work = Work {
        table_size: loading.table_size(),
        seed: loading.seed(),
        tables,
        next: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
        stop,
        progress,
    };
    let gate = Gate::new();
    thread::scope(|scope| {
        // No thread begins before all have started: a load without one of them leaves nothing.
        let (mut started, work, gate) = (Vec::new(), &work, &gate);
        for (number, loader) in loaders.into_iter().enumerate() {
            let thread = thread::Builder::new().name(format!("load-{}", number + 1));
            match thread.spawn_scoped(scope, move || gate.wait().map_or(Ok(()), |_| work.run(loader))) {
                Ok(loader) => started.push(loader),
                Err(source) => {
                    gate.call_off();
                    return Err(Error::ThreadStart { number: number + 1, threads, source });
                }
            }
        }
        gate.open();
        started
            .into_iter()
            .enumerate()
            .try_for_each(|(number, loader)| loader.join().map_err(|_| Error::ThreadPanicked(number + 1))?)
    })
}

/// sysbench's tables.
struct Sbtest<'a, E> {
    engine: &'a E,
    plan: &'a LoadPlan,
    keys: Keys,
}

impl<E: Engine> Loading for Sbtest<'_, E> {
    fn table_size(&self) -> u64 {
        self.plan.set.table_size()
    }

    fn seed(&self) -> u64 {
        self.plan.seed
    }

    fn create(&self, table: TableNo) -> Result<(), Error> {
        self.engine.create_table(table, self.plan.layout)
    }

    fn loader(&self) -> Result<impl FnMut(TableNo, IdRange, &mut Random) -> Result<(), Error> + Send, Error> {
        let (mut session, mut rows) = (self.engine.session(self.plan.set.tables())?, Vec::new());
        Ok(move |table, ids: IdRange, random: &mut Random| {
            rows.clear();
            rows.extend((ids.first..=ids.last).map(|id| Row::random(id, &self.keys, random)));
            session.load_rows(table, &rows)
        })
    }

    fn finish(&self, table: TableNo) -> Result<(), Error> {
        self.engine.finish_table(table, self.table_size())
    }

    fn drop(&self, table: TableNo) -> Result<bool, Error> {
        self.engine.drop_table(table)
    }
}

/// Drops the tables of `set` that exist; returns their numbers.
///
/// # Errors
/// [`Error::Engine`]: the engine failed.
pub fn drop_tables<E: Engine>(engine: &E, set: TableSet) -> Result<Vec<TableNo>, Error> {
    those_of(set.numbers(), |table| engine.drop_table(table))
}

/// The missing tables of `bulk_insert` for `threads` threads.
///
/// # Errors
/// [`Error::Engine`]: the engine could not answer.
pub fn missing_bulk<E: Engine>(engine: &E, threads: u32) -> Result<Vec<TableNo>, Error> {
    those_of(TableNo::first(threads), |table| Ok(engine.bulk_last_id(table)?.is_none()))
}

/// Creates empty tables of `bulk_insert`, which must be missing.
///
/// # Errors
/// [`Error::Engine`]: the engine failed.
pub fn make_bulk<E: Engine>(engine: &E, tables: &[TableNo]) -> Result<(), Error> {
    tables.iter().try_for_each(|&table| engine.create_bulk_table(table))
}

/// Drops the existing tables of `bulk_insert` for `threads` threads; returns their numbers.
///
/// # Errors
/// [`Error::Engine`]: the engine failed.
pub fn drop_bulk<E: Engine>(engine: &E, threads: u32) -> Result<Vec<TableNo>, Error> {
    those_of(TableNo::first(threads), |table| engine.drop_bulk_table(table))
}

/// The batches of a load, handed out in order.
struct Work<'a> {
    table_size: u64,
    seed: u64,
    tables: &'a [TableNo],
    next: AtomicU64,
    has_failed: AtomicBool,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Work<'_> {
    /// Loads batches until none is left.
    fn run(&self, load: impl FnMut(TableNo, IdRange, &mut Random) -> Result<(), Error>) -> Result<(), Error> {
        let done = self.load_all(load);
        if done.is_err() {
            self.has_failed.store(true, Ordering::Relaxed); // Relaxed: an independent flag
        }
        done
    }

    fn load_all(&self, mut load: impl FnMut(TableNo, IdRange, &mut Random) -> Result<(), Error>) -> Result<(), Error> {
        let batches_per_table = self.table_size.div_ceil(BATCH_ROWS);
        loop {
            // Relaxed: the number only has to be unique, and the flags are independent.
            let batch = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&table) = self.tables.get((batch / batches_per_table) as usize) else { return Ok(()) };
            if self.has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let first = batch % batches_per_table * BATCH_ROWS + 1;
            let last = (first + BATCH_ROWS - 1).min(self.table_size);
            let stream = u64::from(table.get()) << 40 | first;
            load(table, IdRange { first, last }, &mut random(self.seed, stream))?;
            (self.progress)(last - first + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use ::millpond::Options;

    use super::*;
    use crate::adapters::millpond::Millpond;
    use crate::engine::{IdColumn, Index, Outcome};

    /// Uses the page cache: these tests are about tables, and run on any file system.
    fn options() -> Options {
        Options::new().cached(true)
    }

    fn plan(tables: u32, table_size: u64) -> LoadPlan {
        let set = TableSet::new(tables, table_size).unwrap();
        let layout = Layout { id: IdColumn::PrimaryKey, k: Index::OnK };
        LoadPlan { set, rand_type: RandType::Special, seed: 4, threads: 3, layout }
    }

    fn open() -> (tempfile::TempDir, Millpond) {
        let dir = tempfile::tempdir().unwrap();
        let engine = Millpond::open(dir.path(), options()).unwrap();
        (dir, engine)
    }

    #[test]
    fn load_makes_all_rows_and_a_second_one_has_nothing_to_do() {
        let (_dir, engine) = open();
        let plan = plan(2, 450);
        let tables = missing(&engine, plan.set).unwrap();
        assert_eq!(tables.len(), 2);
        let rows = AtomicU64::new(0);
        let count = |n| {
            rows.fetch_add(n, Ordering::Relaxed);
        };
        load(&engine, &plan, &tables, &AtomicBool::new(false), &count).unwrap();
        assert_eq!(rows.load(Ordering::Relaxed), 900);
        assert!(missing(&engine, plan.set).unwrap().is_empty());
        for table in plan.set.numbers() {
            assert_eq!(engine.last_id(table).unwrap(), 450);
            let mut session = engine.session(2).unwrap();
            for id in 1..=450 {
                assert_eq!(session.select_row(table, id).unwrap(), Outcome::Done);
            }
        }
        assert_eq!(drop_tables(&engine, plan.set).unwrap(), tables);
        assert_eq!(missing(&engine, plan.set).unwrap(), tables);
    }

    #[test]
    fn bulk_tables_are_made_once_and_dropped() {
        let (_dir, engine) = open();
        let tables = missing_bulk(&engine, 3).unwrap();
        assert_eq!(tables.len(), 3);
        make_bulk(&engine, &tables[..2]).unwrap();
        assert_eq!(missing_bulk(&engine, 3).unwrap(), tables[2..]);
        assert_eq!(drop_bulk(&engine, 3).unwrap(), tables[..2]);
        assert!(engine.is_only_load().unwrap());
    }

    #[test]
    fn another_size_is_one_error_that_names_both_ways_out() {
        let (_dir, engine) = open();
        let small = plan(1, 10);
        load(&engine, &small, &missing(&engine, small.set).unwrap(), &AtomicBool::new(false), &|_| {}).unwrap();
        let error = missing(&engine, plan(1, 20).set).unwrap_err().to_string();
        assert!(error.contains("--table-size=10"), "{error}");
        assert!(error.contains("cleanup"), "{error}");
    }

    #[test]
    fn interrupted_load_leaves_tables_known_as_half_loaded() {
        let (_dir, engine) = open();
        let plan = plan(1, 1_000);
        let stop = AtomicBool::new(false);
        let tables = missing(&engine, plan.set).unwrap();
        let stopped = load(&engine, &plan, &tables, &stop, &|_| stop.store(true, Ordering::Relaxed));
        assert!(matches!(stopped, Err(Error::Interrupted)));
        assert!(matches!(missing(&engine, plan.set), Err(Error::HalfLoaded(_))));
        drop_tables(&engine, plan.set).unwrap();
        assert_eq!(missing(&engine, plan.set).unwrap(), tables);
    }

    #[test]
    fn content_depends_on_the_seed_and_not_on_the_threads() {
        let content = |threads, seed, id| {
            let dir = tempfile::tempdir().unwrap();
            let engine = Millpond::open(dir.path(), options()).unwrap();
            let plan = LoadPlan { threads, seed, layout: Layout { id, k: Index::OnK }, ..plan(1, 1_000) };
            load(&engine, &plan, &missing(&engine, plan.set).unwrap(), &AtomicBool::new(false), &|_| {}).unwrap();
            engine.close().unwrap();
            let db = ::millpond::Db::open(dir.path(), options()).unwrap();
            let table = db.open_table("sbtest1").unwrap();
            table.scan(..).map(|entry| entry.unwrap()).collect::<Vec<_>>()
        };
        for id in [IdColumn::PrimaryKey, IdColumn::Indexed] {
            let one = content(1, 4, id);
            assert_eq!(one.len(), 1_000);
            assert!(one == content(4, 4, id));
            assert!(one != content(1, 5, id));
        }
    }
}
