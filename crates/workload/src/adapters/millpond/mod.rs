//! Millpond under load.
//!
//! | tree or table | key | value |
//! |---|---|---|
//! | table `sbtestN` | id, 8 bytes big-endian | k, 4 bytes big-endian; c, 120 bytes; pad, 60 bytes |
//! | the same, with `id` as a column | a hidden number, 8 bytes big-endian | k, c, pad; id, 8 bytes big-endian |
//! | `sbtestN.bulk` | id, 8 bytes big-endian | k, 4 bytes big-endian |
//! | table `purchasesN` | id, 8 bytes big-endian | the other columns; see `purchases.rs` |
//! | table `ordersN` | a function of the order's number, 16 bytes | all columns; see `orders.rs` |
//! | `sbtest.meta` | a table's name | number of rows loaded, 8 bytes big-endian; written last |
//! | `sbtest.meta` | a purchase table's name | number of rows loaded, 8 bytes, and length of `data`, 4 bytes, big-endian |
//! | `sbtest.meta` | a table's name and ` deletes` | empty; present once a run may have deleted rows |
//! | `sbtest.meta` | a table's name and ` runs` | number of runs that drew new ids for it, 4 bytes big-endian |
//! | `sbtest.meta` | `made by` | [`MADE_BY`] |
//!
//! A table has an index `k` on k, unless it was created without one. If `id` is a column, the table has an index `xid`
//! on it. Bulk tables and the notes are trees.

mod orders;
mod purchases;
mod rows;
mod session;
mod verified;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use ::millpond::{Db, Error as MillpondError, OptionInfo, Options, Table, Tree};
use parking_lot::Mutex;

pub use session::MillpondSession;

use crate::Error;
use crate::engine::{
    Counters, Engine, Gauges, Index, Instruments, Latch, Layout, SlowOperation, StallTime, TableNo, TableState, Wait,
};
use crate::generators::oltp::bulk_name;
use rows::{K_INDEX, Rows};

/// The tree that holds the notes on the tables.
const META: &str = "sbtest.meta";

/// The key in [`META`] that marks a database as made for load.
const MADE_BY_KEY: &[u8] = b"made by";

/// The value of that key.
pub const MADE_BY: &[u8] = b"millpond bench";

/// An open millpond database.
#[derive(Clone)]
pub struct Millpond {
    db: Db,
    page_len: u64,
    /// For each table with a hidden primary key, the key of the next row; shared by all sessions.
    next_keys: Arc<Mutex<BTreeMap<TableNo, Arc<AtomicU64>>>>,
}

impl Millpond {
    /// Opens the database in `dir`; if `options` allow it, a missing one is created.
    ///
    /// Writes no row into an existing database, because that may not be made for load.
    ///
    /// # Errors
    /// [`Error::Engine`]: errors of [`Db::open`] and [`Db::set_redo_capacity`].
    pub fn open(dir: &Path, options: Options) -> Result<Millpond, Error> {
        Db::open(dir, options.clone()).map_err(Error::engine).and_then(|db| Self::ready(db, &options))
    }

    /// Wraps a database that was just opened with `options`, after its log has the capacity of `options`. So no
    /// measured load runs while log files are created.
    ///
    /// # Errors
    /// [`Error::Engine`]: errors of [`Db::set_redo_capacity`].
    pub fn ready(db: Db, options: &Options) -> Result<Millpond, Error> {
        const NAME: &str = "redo_capacity";
        let engine = Millpond::of(db);
        let db = &engine.db;
        let wanted = OptionInfo::find(NAME).and_then(|info| info.get(options));
        wanted.map_or(Ok(()), |size| db.set_option(NAME, &size)).map_err(Error::engine)?;
        Ok(engine)
    }

    /// Wraps an open database.
    fn of(db: Db) -> Millpond {
        Millpond { page_len: page_len(&db.options()), db, next_keys: Arc::default() }
    }

    /// The database itself, for figures that are shown beside the load.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Whether the database was made for load and holds nothing but this module's trees.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    pub fn is_only_load(&self) -> Result<bool, Error> {
        let Some(meta) = self.meta()? else { return Ok(false) };
        let made_here = meta.get(MADE_BY_KEY).map_err(Error::engine)?.is_some_and(|by| by == MADE_BY);
        let trees = self.db.trees().map_err(Error::engine)?.iter().all(|name| is_load_tree(name));
        let is_load_table =
            |name: &String| table_number(name).is_some() || purchases::is_purchases(name) || orders::is_orders(name);
        let tables = self.db.tables().map_err(Error::engine)?.iter().all(is_load_table);
        Ok(made_here && trees && tables)
    }

    /// The I/O engine that keeps several page reads or writes in flight: `io_uring` or `threads`.
    pub fn io_engine(&self) -> &'static str {
        self.db.io_engine()
    }

    /// The options in force.
    pub fn options(&self) -> Options {
        self.db.options()
    }

    /// Closes the database with a final checkpoint.
    ///
    /// # Errors
    /// [`Error::Engine`]: errors of [`Db::close`].
    pub fn close(self) -> Result<(), Error> {
        self.db.close().map_err(Error::engine)
    }

    /// The tree of the notes, if there is one.
    fn meta(&self) -> Result<Option<Tree>, Error> {
        match self.db.open_tree(META) {
            Ok(meta) => Ok(Some(meta)),
            Err(MillpondError::TreeNotFound(..)) => Ok(None),
            Err(other) => Err(Error::engine(other)),
        }
    }

    /// The tree of the notes; creates it if it is missing. Only an empty database gets the mark of one made for load.
    fn make_meta(&self) -> Result<Tree, Error> {
        if let Some(meta) = self.meta()? {
            return Ok(meta);
        }
        let is_empty = |names: Result<Vec<String>, MillpondError>| names.map(|names| names.is_empty());
        let was_empty =
            is_empty(self.db.trees()).map_err(Error::engine)? && is_empty(self.db.tables()).map_err(Error::engine)?;
        let meta = self.db.create_tree(META).map_err(Error::engine)?;
        if was_empty {
            meta.put(MADE_BY_KEY, MADE_BY).map_err(Error::engine)?;
        }
        Ok(meta)
    }

    fn open_table(&self, table: TableNo) -> Result<Table, Error> {
        self.open_named(table.to_string())
    }

    fn open_named(&self, name: String) -> Result<Table, Error> {
        self.db.open_table(&name).map_err(|error| match error {
            MillpondError::TreeNotFound(..) => Error::NotLoaded(name),
            other => Error::engine(other),
        })
    }

    /// The state of a table whose note is the number of rows loaded.
    fn state_of(&self, name: &str) -> Result<TableState, Error> {
        let note = match self.meta()? {
            Some(meta) => meta.get(name.as_bytes()).map_err(Error::engine)?,
            None => None,
        };
        if let Some(rows) = note.and_then(|note| note.try_into().ok()) {
            return Ok(TableState::Loaded(u64::from_be_bytes(rows)));
        }
        let is_there = self.db.tables().map_err(Error::engine)?.iter().any(|table| table == name);
        Ok(if is_there { TableState::HalfLoaded } else { TableState::Missing })
    }

    /// Drops a table and the note that it is loaded; `false` if there was no table.
    fn drop_named(&self, name: &str) -> Result<bool, Error> {
        // The note first: a crash in between leaves a table that counts as half loaded.
        if let Some(meta) = self.meta()? {
            meta.delete(name.as_bytes()).map_err(Error::engine)?;
        }
        was_there(self.db.drop_table(name))
    }
}

/// Whether there was something to drop.
fn was_there(dropped: Result<(), MillpondError>) -> Result<bool, Error> {
    match dropped {
        Ok(()) => Ok(true),
        Err(MillpondError::TreeNotFound(..)) => Ok(false),
        Err(other) => Err(Error::engine(other)),
    }
}

impl Engine for Millpond {
    type Session<'e> = MillpondSession;

    fn table(&self, table: TableNo) -> Result<TableState, Error> {
        self.state_of(&table.to_string())
    }

    fn create_table(&self, table: TableNo, layout: Layout) -> Result<(), Error> {
        self.make_meta()?;
        self.db.create_table(&table.to_string(), rows::definition(layout)).map(drop).map_err(Error::engine)
    }

    fn index(&self, table: TableNo) -> Result<Index, Error> {
        match self.open_table(table) {
            Ok(table) if table.indexes().all(|index| index != K_INDEX) => Ok(Index::Absent),
            Ok(_) | Err(Error::NotLoaded(_)) => Ok(Index::OnK),
            Err(other) => Err(other),
        }
    }

    fn finish_table(&self, table: TableNo, rows: u64) -> Result<(), Error> {
        self.make_meta()?.put(table.to_string().as_bytes(), rows.to_be_bytes()).map_err(Error::engine)
    }

    fn finish_load(&self) -> Result<(), Error> {
        self.db.checkpoint().map_err(Error::engine)
    }

    fn drop_table(&self, table: TableNo) -> Result<bool, Error> {
        let was_there = self.drop_named(&table.to_string())?;
        self.next_keys.lock().remove(&table);
        // Removed last: as long as the table exists, rows of it may be missing.
        if let Some(meta) = self.meta()? {
            for note in [deletes_key(table), runs_key(table)] {
                meta.delete(note.as_bytes()).map_err(Error::engine)?;
            }
        }
        Ok(was_there)
    }

    fn last_id(&self, table: TableNo) -> Result<u64, Error> {
        rows::last_id(&self.open_table(table)?)
    }

    fn begin_run(&self, table: TableNo) -> Result<u32, Error> {
        let (meta, key) = (self.make_meta()?, runs_key(table));
        let note = meta.get(key.as_bytes()).map_err(Error::engine)?;
        let runs = note.and_then(|note| note.try_into().ok()).map_or(0, u32::from_be_bytes);
        meta.put(key.as_bytes(), runs.wrapping_add(1).to_be_bytes()).map_err(Error::engine)?;
        Ok(runs)
    }

    fn note_deletes(&self, table: TableNo) -> Result<(), Error> {
        self.make_meta()?.put(deletes_key(table).as_bytes(), []).map_err(Error::engine)
    }

    fn may_miss_rows(&self, table: TableNo) -> Result<bool, Error> {
        match self.meta()? {
            Some(meta) => Ok(meta.get(deletes_key(table).as_bytes()).map_err(Error::engine)?.is_some()),
            None => Ok(false),
        }
    }

    fn create_bulk_table(&self, table: TableNo) -> Result<(), Error> {
        self.make_meta()?;
        self.db.create_tree(&bulk_name(table)).map(drop).map_err(Error::engine)
    }

    fn drop_bulk_table(&self, table: TableNo) -> Result<bool, Error> {
        was_there(self.db.drop_tree(&bulk_name(table)))
    }

    fn bulk_last_id(&self, table: TableNo) -> Result<Option<u64>, Error> {
        match self.db.open_tree(&bulk_name(table)) {
            Ok(rows) => first_number(rows.scan(..).rev()).map(Some),
            Err(MillpondError::TreeNotFound(..)) => Ok(None),
            Err(other) => Err(Error::engine(other)),
        }
    }

    fn bulk_session(&self, table: TableNo) -> Result<MillpondSession, Error> {
        match self.db.open_tree(&bulk_name(table)) {
            Ok(rows) => Ok(MillpondSession::of_bulk_table(self.db.clone(), rows)),
            Err(MillpondError::TreeNotFound(..)) => Err(Error::NoBulkTable(table)),
            Err(other) => Err(Error::engine(other)),
        }
    }

    fn session(&self, tables: u32) -> Result<MillpondSession, Error> {
        let rows_of = |number: TableNo| {
            let next_key = Arc::clone(self.next_keys.lock().entry(number).or_default());
            Rows::new(number, self.open_table(number)?, &next_key)
        };
        let tables = TableNo::first(tables).map(rows_of).collect::<Result<_, Error>>()?;
        Ok(MillpondSession::of_tables(self.db.clone(), tables))
    }
}

impl Instruments for Millpond {
    fn gauges(&self) -> Gauges {
        let stats = self.db.stats();
        Gauges {
            age_percent: percent(stats.log_checkpoint_age, stats.log_capacity_effective),
            dirty_percent: percent(stats.buffer_pool_pages_dirty, stats.buffer_pool_pages_total),
            free_frames: stats.buffer_pool_pages_free,
            throttled_us: throttled_us(&self.db),
            capacity_pages_per_s: stats.pace_write_capacity as f64,
            needed_pages_per_s: stats.pace_flush_rate as f64,
            log_bytes_per_s: stats.pace_redo_rate as f64,
            log_limit_per_s: (stats.pace_redo_limit > 0).then_some(stats.pace_redo_limit as f64),
        }
    }

    fn counters(&self) -> Counters {
        let stats = self.db.stats();
        Counters {
            waits: self.db.waits().iter().map(wait).collect(),
            stalls: stats.stalls,
            log_syncs: stats.log_syncs,
            log_bytes: stats.log_lsn_current,
            data_syncs: stats.data_syncs,
            page_write_calls: stats.data_write_calls,
            page_write_bytes: stats.data_written,
            checkpoints: stats.checkpoints,
            law_violations: stats.law_violations,
        }
    }

    fn take_slow_operations(&self) -> Vec<SlowOperation> {
        self.db.take_slowest().iter().map(slow_operation).collect()
    }

    fn stall_times(&self) -> Vec<StallTime> {
        let (now, since_open) = (Instant::now(), self.db.since_open());
        let time = |stall: &millpond::metrics::Stall| {
            let ago = since_open.saturating_sub(stall.ended);
            Some(StallTime { ended: now.checked_sub(ago)?, elapsed: stall.elapsed })
        };
        self.db.stalls().iter().filter_map(time).collect()
    }

    fn outstanding_bytes(&self) -> u64 {
        let stats = self.db.stats();
        // Log that is generated and not yet durable is an upper bound of the bytes in flight at the device.
        let has_log = stats.log_pending_writes + stats.log_pending_syncs > 0;
        let log_bytes = stats.log_lsn_current.saturating_sub(stats.log_lsn_last_flush);
        let pages = stats.buffer_pool_pending_lru
            + stats.buffer_pool_pending_flush_list
            + stats.buffer_pool_pending_single_page
            + stats.data_images_unsynced
            + stats.data_pending_reads;
        pages * self.page_len + if has_log { log_bytes } else { 0 }
    }
}

/// Bytes of a page; the default size if the options do not name one.
fn page_len(options: &Options) -> u64 {
    const DEFAULT: u64 = 16 << 10;
    let told = OptionInfo::find("page_size").and_then(|info| info.get(options));
    told.and_then(|size| size.parse::<millpond::ByteSize>().ok()).map_or(DEFAULT, |size| size.as_u64())
}

fn slow_operation(stall: &millpond::metrics::Stall) -> SlowOperation {
    SlowOperation {
        operation: stall.operation,
        elapsed_us: us(stall.elapsed),
        waits: stall
            .waits
            .iter()
            .map(|(class, time)| Wait { class: class.name(), count: 1, total_us: us(*time), stalls: 0 })
            .collect(),
        cpu_us: stall.cpu.map(|(cpu, _)| us(cpu)),
        runnable_us: stall.cpu.map(|(_, runnable)| us(runnable)),
        latch: stall.latch.as_ref().map(|latch| Latch { page: latch.to_string(), waited_us: us(latch.time) }),
    }
}

fn wait(wait: &millpond::metrics::WaitSummary) -> Wait {
    Wait { class: wait.class.name(), count: wait.count, total_us: us(wait.total), stalls: wait.stalls }
}

fn throttled_us(db: &Db) -> u64 {
    db.waits().iter().find(|wait| wait.class == millpond::metrics::WaitClass::Throttle).map_or(0, |wait| us(wait.total))
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The key of the first row or entry, as a number of 8 bytes; 0 if there is none.
fn first_number(mut rows: impl Iterator<Item = Result<millpond::OwnedRow, MillpondError>>) -> Result<u64, Error> {
    let first = rows.next().transpose().map_err(Error::engine)?;
    Ok(first.and_then(|(key, _)| key.try_into().ok()).map_or(0, u64::from_be_bytes))
}

/// The key in [`META`] of the note that rows of a table may be deleted.
fn deletes_key(table: TableNo) -> String {
    format!("{table} deletes")
}

/// The key in [`META`] of the number of runs that drew new ids for a table.
fn runs_key(table: TableNo) -> String {
    format!("{table} runs")
}

/// The number in a table's name.
fn table_number(name: &str) -> Option<u32> {
    name.strip_prefix("sbtest")?.parse().ok()
}

fn is_load_tree(name: &str) -> bool {
    name == META || name.strip_suffix(".bulk").and_then(table_number).is_some()
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests;
