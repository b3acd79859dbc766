//! Loads sysbench's tables, and drops them.
//!
//! Several threads share the work in batches. Each batch has its own random stream of the seed, so a table's content
//! depends on the seed alone. A table counts as loaded only when all its rows are in ([`Engine::finish_table`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::Error;
use crate::driver::gate::Gate;
use crate::engine::{Engine, Layout, Session, TableNo, TableState};
use crate::generators::oltp::TableSet;
use crate::generators::row::Row;
use crate::keys::{Keys, RandType, random};

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
    let mut missing = Vec::new();
    for table in set.numbers() {
        match engine.table(table)? {
            TableState::Missing => missing.push(table),
            TableState::HalfLoaded => return Err(Error::HalfLoaded(table)),
            TableState::Loaded(found) if found != set.table_size() => {
                return Err(Error::TableSize { table, found, wanted: set.table_size() });
            }
            TableState::Loaded(_) => {}
        }
    }
    Ok(missing)
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
    for &table in tables {
        engine.create_table(table, plan.layout)?;
    }
    let loaded = load_rows(engine, plan, tables, stop, progress);
    if matches!(loaded, Err(Error::ThreadStart { .. })) {
        for &table in tables {
            engine.drop_table(table)?;
        }
    }
    loaded?;
    for &table in tables {
        engine.finish_table(table, plan.set.table_size())?;
    }
    engine.finish_load()
}

/// Loads the rows of `tables`, which exist and are empty.
fn load_rows<E: Engine>(
    engine: &E,
    plan: &LoadPlan,
    tables: &[TableNo],
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), Error> {
    let sessions =
        (0..plan.threads.max(1)).map(|_| engine.session(plan.set.tables())).collect::<Result<Vec<_>, Error>>()?;
    let work = Work {
        keys: Keys::new(plan.rand_type, plan.set.table_size())?,
        plan,
        tables,
        next: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
        stop,
        progress,
    };
    let gate = Gate::new();
    thread::scope(|scope| {
        // No thread begins before all have started: a load without one of them leaves nothing.
        let (mut loaders, work, gate) = (Vec::new(), &work, &gate);
        for (number, session) in sessions.into_iter().enumerate() {
            let loader = thread::Builder::new().name(format!("load-{}", number + 1));
            match loader.spawn_scoped(scope, move || gate.wait().map_or(Ok(()), |_| work.run(session))) {
                Ok(loader) => loaders.push(loader),
                Err(source) => {
                    gate.call_off();
                    return Err(Error::ThreadStart { number: number + 1, threads: plan.threads, source });
                }
            }
        }
        gate.open();
        loaders
            .into_iter()
            .enumerate()
            .try_for_each(|(number, loader)| loader.join().map_err(|_| Error::ThreadPanicked(number + 1))?)
    })
}

/// Drops the tables of `set` that exist; returns their numbers.
///
/// # Errors
/// [`Error::Engine`]: the engine failed.
pub fn drop_tables<E: Engine>(engine: &E, set: TableSet) -> Result<Vec<TableNo>, Error> {
    let mut dropped = Vec::new();
    for table in set.numbers() {
        if engine.drop_table(table)? {
            dropped.push(table);
        }
    }
    Ok(dropped)
}

/// The missing tables of `bulk_insert` for `threads` threads.
///
/// # Errors
/// [`Error::Engine`]: the engine could not answer.
pub fn missing_bulk<E: Engine>(engine: &E, threads: u32) -> Result<Vec<TableNo>, Error> {
    let mut missing = Vec::new();
    for table in TableNo::first(threads) {
        if engine.bulk_last_id(table)?.is_none() {
            missing.push(table);
        }
    }
    Ok(missing)
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
    let mut dropped = Vec::new();
    for table in TableNo::first(threads) {
        if engine.drop_bulk_table(table)? {
            dropped.push(table);
        }
    }
    Ok(dropped)
}

/// The batches of a load, handed out in order.
struct Work<'a> {
    keys: Keys,
    plan: &'a LoadPlan,
    tables: &'a [TableNo],
    next: AtomicU64,
    has_failed: AtomicBool,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Work<'_> {
    /// Loads batches until none is left.
    fn run(&self, mut session: impl Session) -> Result<(), Error> {
        let done = self.load_all(&mut session);
        if done.is_err() {
            self.has_failed.store(true, Ordering::Relaxed); // Relaxed: an independent flag
        }
        done
    }

    fn load_all(&self, session: &mut impl Session) -> Result<(), Error> {
        let size = self.plan.set.table_size();
        let batches_per_table = size.div_ceil(BATCH_ROWS);
        let mut rows = Vec::new();
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
            let last = (first + BATCH_ROWS - 1).min(size);
            let stream = u64::from(table.get()) << 40 | first;
            let mut random = random(self.plan.seed, stream);
            rows.clear();
            rows.extend((first..=last).map(|id| Row::random(id, &self.keys, &mut random)));
            session.load_rows(table, &rows)?;
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
