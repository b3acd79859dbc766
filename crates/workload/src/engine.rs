//! The interface of a storage engine under load: sysbench's tables, and no more. The tables of the insert benchmark are
//! in [`purchases`], those of the order queue in [`orders`].
//!
//! All threads share an [`Engine`]. Each thread opens a [`Session`] of its own before the run. The session holds table
//! handles and buffers, so a transaction needs no look-up by name and no allocation outside the engine. Engine and
//! session are generic parameters, so a transaction is a direct call.

pub mod orders;
pub mod purchases;

use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Error;
use crate::generators::row::{C_LEN, Row};

/// A table's number, from 1; shown as `sbtest1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableNo(u32);

impl TableNo {
    /// The tables 1 to `count`.
    pub fn first(count: u32) -> impl ExactSizeIterator<Item = TableNo> {
        // An inclusive range of u32 has no exact size; a half-open one has.
        (0..count).map(TableNo::from_index)
    }

    /// The table at `index`, counted from 0.
    pub fn from_index(index: u32) -> TableNo {
        TableNo(index + 1)
    }

    /// The position, from 0, in a list of tables.
    pub fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// The number, from 1.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TableNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sbtest{}", self.0)
    }
}

/// Figures that an engine reports while it is under load.
pub trait Instruments: Sync {
    /// The engine's state now, for the interval lines.
    fn gauges(&self) -> Gauges;

    /// The engine's counters since it was opened.
    fn counters(&self) -> Counters;

    /// Returns the slowest operations since the last call, the slowest first, and forgets them. An engine may remember
    /// few or none.
    fn take_slow_operations(&self) -> Vec<SlowOperation> {
        Vec::new()
    }

    /// Times of the last operations that took the stall threshold or longer, as many as the engine remembers.
    fn stall_times(&self) -> Vec<StallTime> {
        Vec::new()
    }

    /// Bytes of I/O that the engine has in flight: writes that are not durable and reads that are not done. An upper
    /// bound.
    fn outstanding_bytes(&self) -> u64 {
        0
    }
}

/// The time of a stalled operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallTime {
    /// When it ended.
    pub ended: Instant,
    /// How long it took.
    pub elapsed: Duration,
}

/// A storage engine with an open database.
pub trait Engine: Instruments {
    /// One thread's access to it.
    type Session<'e>: Session + Send
    where
        Self: 'e;

    /// Returns whether a table exists, and how many rows were loaded into it.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn table(&self, table: TableNo) -> Result<TableState, Error>;

    /// Creates a table, empty. Until [`Engine::finish_table`] it is [`TableState::HalfLoaded`].
    ///
    /// # Errors
    /// [`Error::Engine`]: the table exists, or the engine could not create it.
    fn create_table(&self, table: TableNo, layout: Layout) -> Result<(), Error>;

    /// Whether a table was created with an index on `k`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn index(&self, table: TableNo) -> Result<Index, Error>;

    /// Notes that a table is loaded, with `rows` rows.
    ///
    /// # Errors
    /// [`Error::Engine`]: the note could not be written.
    fn finish_table(&self, table: TableNo, rows: u64) -> Result<(), Error>;

    /// Makes all that was loaded durable, so that a run starts with an empty log.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn finish_load(&self) -> Result<(), Error>;

    /// Drops a table, its index and the note on it; `false` if there was none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn drop_table(&self, table: TableNo) -> Result<bool, Error>;

    /// The largest id in a table, 0 if it is empty.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn last_id(&self, table: TableNo) -> Result<u64, Error>;

    /// Notes that a run begins that draws spread new ids for a table; returns how many such runs began before, since
    /// the table was created.
    ///
    /// # Errors
    /// [`Error::Engine`]: the note could not be written.
    fn begin_run(&self, table: TableNo) -> Result<u32, Error>;

    /// Notes that a run may delete rows of a table, so that a missing row is no error any more.
    ///
    /// # Errors
    /// [`Error::Engine`]: the note could not be written.
    fn note_deletes(&self, table: TableNo) -> Result<(), Error>;

    /// Whether [`Engine::note_deletes`] was ever called for a table, since it was created.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn may_miss_rows(&self, table: TableNo) -> Result<bool, Error>;

    /// Creates an empty table for one thread of `bulk_insert`: id and k, without an index on `k`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the table exists, or the engine could not create it.
    fn create_bulk_table(&self, table: TableNo) -> Result<(), Error>;

    /// Drops a table of `bulk_insert`; `false` if there was none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn drop_bulk_table(&self, table: TableNo) -> Result<bool, Error>;

    /// The largest id in a table of `bulk_insert`, 0 if the table is empty; `None` if the table is missing.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn bulk_last_id(&self, table: TableNo) -> Result<Option<u64>, Error>;

    /// Opens a session on one table of `bulk_insert` alone.
    ///
    /// # Errors
    /// [`Error::NoBulkTable`]: the table is missing. [`Error::Engine`]: the engine failed.
    fn bulk_session(&self, table: TableNo) -> Result<Self::Session<'_>, Error>;

    /// Opens a session on the tables 1 to `tables`.
    ///
    /// # Errors
    /// [`Error::NotLoaded`]: one of them is missing. [`Error::Engine`]: the engine failed.
    fn session(&self, tables: u32) -> Result<Self::Session<'_>, Error>;
}

/// One thread's access to an engine. Each statement is one transaction, with the durability that the engine was opened
/// with, unless it comes between [`begin`](Session::begin) and [`commit`](Session::commit).
pub trait Session {
    /// `BEGIN`: the statements that follow are one transaction. After [`Outcome::Conflict`] of one of them, the
    /// transaction must be rolled back.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn begin(&mut self) -> Result<(), Error>;

    /// `COMMIT`: [`Outcome::Done`], or [`Outcome::Conflict`] if the transaction was rolled back instead.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn commit(&mut self) -> Result<Outcome, Error>;

    /// `ROLLBACK`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn rollback(&mut self) -> Result<(), Error>;

    /// `SELECT c FROM sbtestN WHERE id = ?`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn select_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error>;

    /// `SELECT ... FROM sbtestN WHERE id BETWEEN ? AND ?`; returns how many rows the range had.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn select_range(&mut self, table: TableNo, ids: IdRange, select: RangeSelect) -> Result<u64, Error>;

    /// `SELECT id, k, c, pad FROM sbtestN WHERE k IN (?, ...)`, by the index on `k`; returns the number of rows.
    /// `ks` ascend without duplicates.
    ///
    /// # Errors
    /// [`Error::NoIndex`]: the table has none. [`Error::Engine`]: the engine failed.
    fn select_points(&mut self, table: TableNo, ks: &[u32]) -> Result<u64, Error>;

    /// `SELECT count(k) FROM sbtestN WHERE k BETWEEN ? AND ? OR ...`, by the index on `k`. The ranges ascend
    /// and do not overlap.
    ///
    /// # Errors
    /// [`Error::NoIndex`]: the table has none. [`Error::Engine`]: the engine failed.
    fn count_ranges(&mut self, table: TableNo, ranges: &[KRange]) -> Result<u64, Error>;

    /// `UPDATE sbtestN SET k = k + 1 WHERE id = ?`, with the index on `k` if there is one.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn increment_k(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error>;

    /// `UPDATE sbtestN SET c = ? WHERE id = ?`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn replace_c(&mut self, table: TableNo, id: u64, c: &[u8; C_LEN]) -> Result<Outcome, Error>;

    /// `DELETE FROM sbtestN WHERE id = ?`, with the index on `k` if there is one.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn delete_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error>;

    /// `INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?)`, with the index on `k` if there is one.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn insert_row(&mut self, table: TableNo, row: &Row) -> Result<Outcome, Error>;

    /// `INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?), ...`, with the index on `k` if there is one: all rows
    /// or none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn insert_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<Outcome, Error>;

    /// `INSERT INTO sbtestN VALUES (?, ?), ...` with these ids, each with `k` equal to the id, into the table of a
    /// session from [`Engine::bulk_session`]. An engine that cannot insert so many rows at once splits them.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed, or a row exists. [`Error::Invalid`]: the session is of another kind.
    fn insert_bulk(&mut self, ids: IdRange) -> Result<(), Error>;

    /// Inserts rows in ascending order of id, in one transaction that may become durable later.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed, or a row exists.
    fn load_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<(), Error>;
}

/// How a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It is done.
    Done,
    /// There is no such row; nothing was changed.
    NoRow,
    /// The row to insert exists already; nothing was changed.
    Exists,
    /// The statement met a conflict with another transaction. Nothing was changed, and the caller may retry.
    Conflict,
}

/// Ids, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// The smallest.
    pub first: u64,
    /// The largest.
    pub last: u64,
}

/// Values of `k`, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KRange {
    /// The smallest.
    pub first: u32,
    /// The largest.
    pub last: u32,
}

/// Columns or aggregate that a range query selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSelect {
    /// `c` of each row.
    Rows,
    /// `SUM(k)`.
    SumOfK,
    /// `c` of each row, `ORDER BY c`.
    Sorted,
    /// `DISTINCT c`, `ORDER BY c`.
    SortedDistinct,
}

/// Layout of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The role of `id`.
    pub id: IdColumn,
    /// Whether there is an index on `k`.
    pub k: Index,
}

/// The role of `id` in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdColumn {
    /// The primary key.
    PrimaryKey,
    /// A column with a non-unique index. The primary key is a hidden number that the engine assigns to each row, in the
    /// order of insertion.
    Indexed,
}

/// Whether a table has an index on `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// The table has it. A change of `k` changes the index in the same batch.
    OnK,
    /// The table has none.
    Absent,
}

/// State of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// The table does not exist.
    Missing,
    /// The table exists, but its load did not finish.
    HalfLoaded,
    /// The table was loaded with this many rows.
    Loaded(u64),
}

/// Counts of tables whose indexes agree with their rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows.
    pub rows: u64,
    /// Entries of the tables' indexes.
    pub entries: u64,
}

impl AddAssign for Verified {
    fn add_assign(&mut self, more: Verified) {
        self.rows += more.rows;
        self.entries += more.entries;
    }
}

/// An engine's state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Checkpoint age, in percent of the effective log capacity.
    pub age_percent: f64,
    /// Dirty frames, in percent of all frames.
    pub dirty_percent: f64,
    /// Frames free to take.
    pub free_frames: u64,
    /// Time for which the engine throttled operations, since it was opened, in us.
    pub throttled_us: u64,
    /// Measured write capacity of the device, in pages a second.
    pub capacity_pages_per_s: f64,
    /// Flush rate that the growth of the log requires, in pages a second.
    pub needed_pages_per_s: f64,
    /// Growth of the log, in bytes a second.
    pub log_bytes_per_s: f64,
    /// Limit of the log's growth, in bytes a second; `None` if the engine throttles no thread.
    pub log_limit_per_s: Option<f64>,
}

/// An operation that was slow, and where its time went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowOperation {
    /// Name of the operation.
    pub operation: &'static str,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
    /// Waits of the operation, by class.
    pub waits: Vec<Wait>,
    /// CPU time of its thread outside of these waits, in us; `None` if the system does not report it.
    pub cpu_us: Option<u64>,
    /// Time in which the thread was runnable without a CPU, in us; `None` likewise.
    pub runnable_us: Option<u64>,
    /// The page latch with the longest wait; `None` if the operation waited for none.
    pub latch: Option<Latch>,
}

/// A page latch for which an operation waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latch {
    /// Description of the page.
    pub page: String,
    /// Length of the wait, in us.
    pub waited_us: u64,
}

/// Waits of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The name of the class, such as `free_frame`.
    pub class: &'static str,
    /// Number of waits.
    pub count: u64,
    /// Sum of their times, in us.
    pub total_us: u64,
    /// Stalls in which this class took at least half of the time.
    pub stalls: u64,
}

impl Wait {
    /// The waits since `earlier`.
    fn since(self, earlier: &[Wait]) -> Wait {
        let before = earlier.iter().find(|wait| wait.class == self.class);
        let since = |of: fn(&Wait) -> u64| of(&self).saturating_sub(before.map_or(0, of));
        let (count, total_us) = (since(|wait| wait.count), since(|wait| wait.total_us));
        Wait { count, total_us, stalls: since(|wait| wait.stalls), ..self }
    }
}

/// Counters of an engine; none ever decreases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Waits of operations, by class.
    pub waits: Vec<Wait>,
    /// Operations that took longer than the engine's stall threshold.
    pub stalls: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Bytes of log generated.
    pub log_bytes: u64,
    /// Syncs of the data.
    pub data_syncs: u64,
    /// Write calls to the data file, each of one page or of several adjacent pages.
    pub page_write_calls: u64,
    /// Bytes of these writes.
    pub page_write_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// How often the engine broke one of its own rules; each time is a bug.
    pub law_violations: u64,
}

impl Counters {
    /// The counts since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            waits: self.waits.iter().map(|wait| wait.since(&earlier.waits)).collect(),
            stalls: self.stalls.saturating_sub(earlier.stalls),
            log_syncs: self.log_syncs.saturating_sub(earlier.log_syncs),
            log_bytes: self.log_bytes.saturating_sub(earlier.log_bytes),
            data_syncs: self.data_syncs.saturating_sub(earlier.data_syncs),
            page_write_calls: self.page_write_calls.saturating_sub(earlier.page_write_calls),
            page_write_bytes: self.page_write_bytes.saturating_sub(earlier.page_write_bytes),
            checkpoints: self.checkpoints.saturating_sub(earlier.checkpoints),
            law_violations: self.law_violations.saturating_sub(earlier.law_violations),
        }
    }
}
