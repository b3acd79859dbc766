//! The steps of the insert benchmark, one after the other. Each client has a table and a thread; beside queries it has
//! a second thread that writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde::Serialize;

use crate::Error;
use crate::driver::{self, Finished, Observer, Pace, Plan, Unobserved};
use crate::engine::purchases::{PurchaseEngine, PurchaseIndex, PurchaseLoad, PurchaseSession, PurchaseState};
use crate::engine::{Counters, Gauges, Instruments, TableNo, Verified};
use crate::figures::{Labels, RunFigures, WaitsOf};
use crate::generators::insert_benchmark::{Indexer, Loader, Queries, Reader, Span, Step, Writer, purchases_name};
use crate::prepare;
use crate::probe::SyncPairs;

/// Most bytes of data in a row: as in iibench.
const DATA_LEN_MAX: u32 = 4_000;

/// The most rows in a transaction or a query; a higher number is a typing error.
const COUNT_MAX: u64 = 100_000;

/// The rate beside queries counts as kept if at least this share of the arrivals was written.
const KEPT_SHARE: f64 = 0.95;

/// Time limit of load and index creation: in effect none.
const LONGEST_S: u64 = 31_536_000;

/// The sizes of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Clients, each with a table.
    pub clients: u32,
    /// Rows in each table, and bytes of data in each row.
    pub load: PurchaseLoad,
    /// Rows in a transaction of `l.i0`.
    pub load_rows_per_commit: u64,
    /// Rows that a transaction inserts, and deletes, in `l.i1` and beside queries.
    pub rows_per_commit: u64,
    /// Rows that a transaction inserts, and deletes, in `l.i2`.
    pub small_rows_per_commit: u64,
    /// Rows or entries that a query reads.
    pub rows_per_query: u64,
}

/// Bytes of a row's columns beside its id and its data: a time and four numbers.
const COLUMNS_LEN: u64 = 24;

impl Sizes {
    /// The least bytes of a row, in any layout. The id is not counted, since a page may store a part of it only.
    pub fn row_len_min(&self) -> u64 {
        COLUMNS_LEN + u64::from(self.load.data_len)
    }

    /// Checks every number.
    ///
    /// # Errors
    /// [`Error::Invalid`]: one is out of its range, or a transaction would delete more rows than a table has.
    pub fn check(&self) -> Result<(), Error> {
        let PurchaseLoad { rows, data_len } = self.load;
        for (option, value, most) in [
            ("table-size", rows, u64::from(u32::MAX)),
            ("load-rows-per-commit", self.load_rows_per_commit, COUNT_MAX),
            ("rows-per-commit", self.rows_per_commit, COUNT_MAX.min(rows)),
            ("small-rows-per-commit", self.small_rows_per_commit, COUNT_MAX.min(rows)),
            ("rows-per-query", self.rows_per_query, COUNT_MAX),
        ] {
            if !(1..=most).contains(&value) {
                let why = if most == rows { ", the rows of a table" } else { "" };
                return Err(Error::Invalid(format!("--{option} must be 1 to {most}{why}, not {value}")));
            }
        }
        if data_len > DATA_LEN_MAX {
            return Err(Error::Invalid(format!("--data-length must be 0 to {DATA_LEN_MAX}, not {data_len}")));
        }
        Ok(())
    }

    /// Rows that a transaction of `step` inserts.
    pub fn rows_per_commit(&self, step: Step) -> u64 {
        match step {
            Step::Load => self.load_rows_per_commit,
            Step::CreateIndexes => 0,
            Step::FewInserts => self.small_rows_per_commit,
            Step::ManyInserts => self.rows_per_commit,
            // As in iibench: at least one transaction a second.
            Step::Queries { rows_per_s, .. } => self.rows_per_commit.min(u64::from(rows_per_s)),
        }
    }

    fn tables(&self) -> impl ExactSizeIterator<Item = TableNo> {
        TableNo::first(self.clients)
    }
}

/// Results of a step.
#[derive(Clone, Debug)]
pub struct Done {
    /// Results of the clients' threads.
    pub finished: Finished,
    /// Results of the threads that wrote beside queries.
    pub beside: Option<Finished>,
}

impl Done {
    /// Beside queries: whether at least 95 % of the arrivals were written by the end.
    pub fn is_rate_kept(&self) -> Option<bool> {
        let is_kept = |beside: &Finished| {
            let written = beside.transactions();
            written as f64 >= KEPT_SHARE * (written + beside.unserved) as f64
        };
        self.beside.as_ref().map(is_kept)
    }
}

/// The tables that are still to be loaded.
///
/// # Errors
/// [`Error::HalfLoaded`], [`Error::OtherPurchases`]: a table exists, but does not fit. [`Error::Engine`]: the
/// engine could not answer.
pub fn missing<E: PurchaseEngine>(engine: &E, sizes: &Sizes) -> Result<Vec<TableNo>, Error> {
    let mut missing = Vec::new();
    for table in sizes.tables() {
        match engine.purchase_table(table)? {
            PurchaseState::Missing => missing.push(table),
            PurchaseState::HalfLoaded => return Err(Error::HalfLoaded(purchases_name(table))),
            PurchaseState::Loaded(load) if load != sizes.load => {
                return Err(Error::OtherPurchases { table: purchases_name(table), found: load });
            }
            PurchaseState::Loaded(_) => {}
        }
    }
    Ok(missing)
}

/// Drops the tables that exist; returns their numbers.
///
/// # Errors
/// [`Error::Engine`]: the engine failed.
pub fn drop_tables<E: PurchaseEngine>(engine: &E, clients: u32) -> Result<Vec<TableNo>, Error> {
    prepare::those_of(TableNo::first(clients), |table| engine.drop_purchases(table))
}

/// Loads `tables`, which must be missing, with a thread for each. Ignores pace, threads, times and events of `plan`.
///
/// # Errors
/// [`Error::Interrupted`]: `stop` became true, or the observer broke off; the tables are half loaded. Otherwise as
/// [`driver::run`].
pub fn load<E: PurchaseEngine>(
    engine: &E,
    sizes: &Sizes,
    tables: &[TableNo],
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Done, Error> {
    let PurchaseLoad { rows, data_len } = sizes.load;
    let mut loaders = Vec::new();
    for &table in tables {
        engine.create_purchases(table)?;
        loaders.push(Loader::new(engine.purchases(table)?, rows, data_len, sizes.load_rows_per_commit));
    }
    let batches = rows.div_ceil(sizes.load_rows_per_commit) * loaders.len() as u64;
    let plan = to_the_end(plan, loaders.len(), batches);
    let finished = driver::run_clients(engine, loaders, &plan, stop, observer)?;
    if finished.was_stopped {
        return Err(Error::Interrupted);
    }
    tables.iter().try_for_each(|&table| engine.finish_purchases(table, sizes.load))?;
    Ok(Done { finished, beside: None })
}

/// The missing indexes, table by table; tables that have all indexes are left out.
///
/// # Errors
/// [`Error::NoPurchases`]: a table is missing. [`Error::Engine`]: the engine could not answer.
pub fn missing_indexes<E: PurchaseEngine>(
    engine: &E,
    clients: u32,
) -> Result<Vec<(TableNo, Vec<PurchaseIndex>)>, Error> {
    let mut missing = Vec::new();
    for table in TableNo::first(clients) {
        let indexes = engine.missing_indexes(table)?;
        if !indexes.is_empty() {
            missing.push((table, indexes));
        }
    }
    Ok(missing)
}

/// Creates the missing indexes, with a thread for each table. Ignores pace, threads, times and events of `plan`. On a
/// stop, each thread first finishes the index that it is creating.
///
/// # Errors
/// [`Error::Interrupted`]: `stop` became true, or the observer broke off; some indexes are there. Otherwise as
/// [`missing_indexes`] and [`driver::run`].
pub fn create_indexes<E: PurchaseEngine>(
    engine: &E,
    sizes: &Sizes,
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Done, Error> {
    let missing = missing_indexes(engine, sizes.clients)?;
    let events = missing.iter().map(|(_, indexes)| indexes.len() as u64).sum();
    let mut indexers = Vec::new();
    for (table, indexes) in missing {
        indexers.push(Indexer::new(engine.purchases(table)?, indexes));
    }
    let plan = to_the_end(plan, indexers.len(), events);
    let finished = driver::run_clients(engine, indexers, &plan, stop, observer)?;
    if finished.was_stopped {
        return Err(Error::Interrupted);
    }
    Ok(Done { finished, beside: None })
}

/// The plan of a step that lasts until all events are done.
fn to_the_end(plan: &Plan, threads: usize, events: u64) -> Plan {
    Plan { threads, time_s: LONGEST_S, warmup_s: 0, events, pace: Pace::ClosedLoop, ..*plan }
}

/// Runs a step over loaded tables. Ignores pace, threads and events of `plan`.
///
/// # Errors
/// [`Error::NoPurchases`]: a table is missing. [`Error::RowMissing`]: a query missed a row that no transaction
/// deleted. [`Error::NoPurchaseIndex`]: the step reads an index that is missing. [`Error::Invalid`]: the step is one of
/// [`load`] or [`create_indexes`]. Otherwise as [`driver::run`].
pub fn run<E: PurchaseEngine>(
    engine: &E,
    sizes: &Sizes,
    step: Step,
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Done, Error> {
    let mut spans = Vec::new();
    for table in sizes.tables() {
        let ids = engine.purchases(table)?.ids()?;
        spans.push(Span::new(ids.ok_or_else(|| Error::NoPurchases(purchases_name(table)))?));
    }
    let rows_per_commit = sizes.rows_per_commit(step);
    if let (Step::Queries { queries: Queries::Ranges, .. }, Some((table, indexes))) =
        (step, missing_indexes(engine, sizes.clients)?.first())
    {
        return Err(Error::NoPurchaseIndex { table: purchases_name(*table), index: indexes[0].name() });
    }
    let writers = sizes
        .tables()
        .zip(&spans)
        .map(|(table, span)| Ok(Writer::new(engine.purchases(table)?, span, sizes.load.data_len, rows_per_commit)));
    let writers = writers.collect::<Result<Vec<_>, Error>>()?;
    let plan = Plan { threads: spans.len(), events: 0, pace: Pace::ClosedLoop, ..*plan };
    let (queries, rows_per_s) = match step {
        Step::Load | Step::CreateIndexes => return Err(Error::Invalid(format!("{step} is no step over whole tables"))),
        Step::ManyInserts | Step::FewInserts => {
            let finished = driver::run_clients(engine, writers, &plan, stop, observer)?;
            return Ok(Done { finished, beside: None });
        }
        Step::Queries { queries, rows_per_s } => (queries, f64::from(rows_per_s)),
    };
    let rows_per_query = sizes.rows_per_query as usize;
    let readers = sizes
        .tables()
        .zip(&spans)
        .map(|(table, span)| Ok(Reader::new(engine.purchases(table)?, span, table, queries, rows_per_query)));
    let readers = readers.collect::<Result<Vec<_>, Error>>()?;
    let per_s = rows_per_s / rows_per_commit as f64 * spans.len() as f64;
    let beside_plan = Plan { pace: Pace::FixedRate { per_s }, report_interval_s: 0, seed: !plan.seed, ..plan };
    // If one group of threads fails or is stopped, it stops the other group.
    let ended = |ended: Result<Finished, Error>| {
        if ended.as_ref().map_or(true, |finished| finished.was_stopped) {
            stop.store(true, Ordering::Relaxed); // Relaxed: an independent flag
        }
        ended
    };
    thread::scope(|scope| {
        let write = || ended(driver::run_clients(&Unwatched, writers, &beside_plan, stop, &mut Unobserved));
        let beside = thread::Builder::new().name("beside".to_owned()).spawn_scoped(scope, write);
        let beside = beside.map_err(|source| Error::ThreadStart { number: 1, threads: 1, source })?;
        let read = ended(driver::run_clients(engine, readers, &plan, stop, observer));
        let beside = beside.join().map_err(|_| Error::ThreadPanicked(1))?;
        Ok(Done { beside: Some(beside?), finished: read? })
    })
}

/// Reads all tables and their indexes.
///
/// # Errors
/// [`Error::IndexDisagrees`]: a row lacks an entry, or an entry lacks its row. [`Error::Engine`]: the engine failed.
pub fn verify<E: PurchaseEngine>(engine: &E, clients: u32) -> Result<Verified, Error> {
    let mut all = Verified::default();
    for table in TableNo::first(clients) {
        all += engine.verify_purchases(table)?;
    }
    Ok(all)
}

/// Instruments without figures, for the writers beside queries: only the clients' run reports the engine's figures.
struct Unwatched;

impl Instruments for Unwatched {
    fn gauges(&self) -> Gauges {
        Gauges::default()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// The figures of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepFigures {
    /// Name of the step.
    pub step: String,
    /// Clients, each with a table.
    pub clients: usize,
    /// Rows that a transaction inserts.
    pub rows_per_commit: u64,
    /// Index entries made by `l.x`, 0 in other steps.
    pub entries_made: u64,
    /// Index entries made a second.
    pub entries_made_per_s: f64,
    /// Rows inserted in the step.
    pub rows_inserted: u64,
    /// Rows inserted a second.
    pub rows_inserted_per_s: f64,
    /// Rows deleted in the step.
    pub rows_deleted: u64,
    /// Beside queries: target rate of inserted rows a second, of all clients together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_wanted_per_s: Option<f64>,
    /// Beside queries: whether at least 95 % of the arrivals were written by the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_rate_kept: Option<bool>,
    /// Beside queries: the writers' latency from the arrival, at the percentile that is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_latency_percentile_ms: Option<f64>,
    /// Beside queries: the writers' longest latency from the arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside_latency_max_ms: Option<f64>,
    /// Figures of the clients' threads; the engine's own figures cover all threads.
    #[serde(flatten)]
    pub figures: RunFigures,
}

impl StepFigures {
    /// The figures of a step, with the probe's figures of the device.
    pub fn of(step: Step, sizes: &Sizes, done: &Done, device: &SyncPairs, labels: Labels) -> StepFigures {
        let rows_per_commit = sizes.rows_per_commit(step);
        let mut figures = RunFigures::of(&done.finished, device, labels);
        if done.beside.is_some() {
            figures.waits_of = WaitsOf::ClientsAndWriters;
        }
        let beside = done.beside.as_ref().map(|beside| RunFigures::of(beside, device, labels));
        let writers = beside.as_ref().unwrap_or(&figures);
        let clients = figures.threads;
        let (rows_inserted, rows_deleted, entries_made) = match step {
            Step::Load => (sizes.load.rows * clients as u64, 0, 0),
            Step::CreateIndexes => (0, 0, sizes.load.rows * writers.transactions),
            _ => (writers.transactions * rows_per_commit, writers.transactions * rows_per_commit, 0),
        };
        let per_s = |count: u64| if writers.elapsed_s > 0.0 { count as f64 / writers.elapsed_s } else { 0.0 };
        let rows_wanted_per_s = match step {
            Step::Queries { rows_per_s, .. } => Some(f64::from(rows_per_s) * clients as f64),
            _ => None,
        };
        StepFigures {
            step: step.to_string(),
            clients,
            rows_per_commit,
            entries_made,
            entries_made_per_s: per_s(entries_made),
            rows_inserted,
            rows_inserted_per_s: per_s(rows_inserted),
            rows_deleted,
            rows_wanted_per_s,
            is_rate_kept: done.is_rate_kept(),
            beside_latency_percentile_ms: beside.as_ref().map(|beside| beside.latency_percentile_ms),
            beside_latency_max_ms: beside.as_ref().map(|beside| beside.latency_max_ms),
            figures,
        }
    }
}

#[cfg(test)]
mod tests;
