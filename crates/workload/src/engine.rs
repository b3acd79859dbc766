//! What a storage engine must offer to be put under load: the tables of sysbench, and no more. Those of the insert
//! benchmark are in [`purchases`].
//!
//! An [`Engine`] is shared by all threads. Each thread has a [`Session`] of its own, taken before the run, which holds
//! table handles and buffers: a transaction costs no look-up by name and no allocation on this side of the engine.
//! Everything is a generic parameter, so that a transaction is a direct call.

pub mod purchases;

use std::fmt;
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
        // An inclusive range of u32 has no exact size; the shifted one has.
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

/// What an engine tells of itself while it is under load.
pub trait Instruments: Sync {
    /// The engine's state now, for the interval lines.
    fn gauges(&self) -> Gauges;

    /// What the engine has counted since it was opened.
    fn counters(&self) -> Counters;

    /// The slowest operations since the last call, the slowest first, which are forgotten; an engine may remember few, or
    /// none.
    fn take_slow_operations(&self) -> Vec<SlowOperation> {
        Vec::new()
    }

    /// When operations took the stall threshold or longer: the last of them, as many as the engine remembers.
    fn stall_times(&self) -> Vec<StallTime> {
        Vec::new()
    }

    /// Bytes that the engine has handed to the device, and that are not durable yet or not read yet: rather too many
    /// than too few.
    fn outstanding_bytes(&self) -> u64 {
        0
    }
}

/// When an operation stalled.
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

    /// Says whether a table is there and with how many rows it was loaded.
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
    /// [`Error::Engine`]: the engine could not.
    fn finish_load(&self) -> Result<(), Error>;

    /// Drops a table, its index and the note on it; `false` if there was none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn drop_table(&self, table: TableNo) -> Result<bool, Error>;

    /// The largest id in a table, 0 if it is empty.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn last_id(&self, table: TableNo) -> Result<u64, Error>;

    /// Notes that a run begins that draws new ids for a table by itself; returns how many did before, since it was
    /// created.
    ///
    /// # Errors
    /// [`Error::Engine`]: the note could not be written.
    fn begin_run(&self, table: TableNo) -> Result<u32, Error>;

    /// Notes that rows of a table will be deleted, so that one that is missing tells nothing any more.
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
    /// [`Error::Engine`]: the engine could not.
    fn drop_bulk_table(&self, table: TableNo) -> Result<bool, Error>;

    /// The largest id in a table of `bulk_insert`, 0 if it is empty; `None` if it is not there.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn bulk_last_id(&self, table: TableNo) -> Result<Option<u64>, Error>;

    /// Opens a session on one table of `bulk_insert` alone.
    ///
    /// # Errors
    /// [`Error::NoBulkTable`]: it is not there. [`Error::Engine`]: the engine could not.
    fn bulk_session(&self, table: TableNo) -> Result<Self::Session<'_>, Error>;

    /// Opens a session on the tables 1 to `tables`.
    ///
    /// # Errors
    /// [`Error::NotLoaded`]: one of them is not there. [`Error::Engine`]: the engine could not.
    fn session(&self, tables: u32) -> Result<Self::Session<'_>, Error>;
}

/// One thread's access to an engine. Each method is one transaction, durable as the engine was opened to make it.
pub trait Session {
    /// `SELECT c FROM sbtestN WHERE id = ?`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn select_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error>;

    /// `SELECT ... FROM sbtestN WHERE id BETWEEN ? AND ?`; returns how many rows the range had.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn select_range(&mut self, table: TableNo, ids: IdRange, select: RangeSelect) -> Result<u64, Error>;

    /// `SELECT id, k, c, pad FROM sbtestN WHERE k IN (?, ...)`, by the index on `k`; returns how many rows there were.
    /// `ks` ascend, each is there once.
    ///
    /// # Errors
    /// [`Error::NoIndex`]: the table has none. [`Error::Engine`]: the engine could not.
    fn select_points(&mut self, table: TableNo, ks: &[u32]) -> Result<u64, Error>;

    /// `SELECT count(k) FROM sbtestN WHERE k BETWEEN ? AND ? OR ...`, by the index on `k`. The ranges ascend, none
    /// overlaps another.
    ///
    /// # Errors
    /// [`Error::NoIndex`]: the table has none. [`Error::Engine`]: the engine could not.
    fn count_ranges(&mut self, table: TableNo, ranges: &[KRange]) -> Result<u64, Error>;

    /// `UPDATE sbtestN SET k = k + 1 WHERE id = ?`, with the index on `k` if there is one.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn increment_k(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error>;

    /// `UPDATE sbtestN SET c = ? WHERE id = ?`.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn replace_c(&mut self, table: TableNo, id: u64, c: &[u8; C_LEN]) -> Result<Outcome, Error>;

    /// `DELETE FROM sbtestN WHERE id = ?`, with the index on `k` if there is one.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn delete_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error>;

    /// `INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?)`, with the index on `k` if there is one.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn insert_row(&mut self, table: TableNo, row: &Row) -> Result<Outcome, Error>;

    /// `INSERT INTO sbtestN VALUES (?, ?), ...` with these ids, each with itself as `k`, into the table of a session
    /// from [`Engine::bulk_session`]. An engine that cannot take so many rows at once takes them in parts.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not, or a row exists. [`Error::Invalid`]: the session is of another kind.
    fn insert_bulk(&mut self, ids: IdRange) -> Result<(), Error>;

    /// Inserts rows in ascending order of id, in one transaction that need not be durable at once.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not, or a row exists.
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
    /// The row to insert is there already; nothing was changed.
    Exists,
    /// Another transaction was in its way; nothing was changed, and it may be run again.
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

/// What is selected of a range of ids.
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

/// What a table is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What `id` is.
    pub id: IdColumn,
    /// Whether there is an index on `k`.
    pub k: Index,
}

/// What `id` is in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdColumn {
    /// The primary key.
    PrimaryKey,
    /// A column with an index that is not unique. The primary key is a number that the engine gives to each row, in the
    /// order in which they come, and shows to nobody.
    Indexed,
}

/// Whether a table has an index on `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// It has: whatever changes `k` changes the index in the same batch.
    OnK,
    /// It has none.
    Absent,
}

/// What is known of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// It is not there.
    Missing,
    /// It is there, but its load did not come to its end.
    HalfLoaded,
    /// It was loaded with this many rows.
    Loaded(u64),
}

/// An engine's state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Checkpoint age of effective log capacity, in percent.
    pub age_percent: f64,
    /// Dirty frames of all frames, in percent.
    pub dirty_percent: f64,
    /// Frames free to take.
    pub free_frames: u64,
    /// Microseconds for which operations were slowed down on purpose, since the engine was opened.
    pub throttled_us: u64,
    /// Pages a second that the device was found to write.
    pub capacity_pages_per_s: f64,
    /// Pages a second that have to be written for the log.
    pub needed_pages_per_s: f64,
    /// Bytes a second by which the log grows.
    pub log_bytes_per_s: f64,
    /// By which it may grow; `None`: nobody is slowed down.
    pub log_limit_per_s: Option<f64>,
}

/// An operation that was slow, and where its time went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlowOperation {
    /// Which.
    pub operation: &'static str,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
    /// What it waited for, and how long.
    pub waits: Vec<Wait>,
    /// For how long its thread ran beside these waits, in microseconds; `None` where the system does not tell.
    pub cpu_us: Option<u64>,
    /// For how long it could have run and had no CPU, likewise.
    pub runnable_us: Option<u64>,
    /// The page latch for which it waited longest; `None` where it waited for none.
    pub latch: Option<Latch>,
}

/// A page latch that was waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latch {
    /// What page it is, in words.
    pub page: String,
    /// For how long, in microseconds.
    pub waited_us: u64,
}

/// Waits of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The name of the class, such as `free_frame`.
    pub class: &'static str,
    /// How many there were.
    pub count: u64,
    /// Their time together, in microseconds.
    pub total_us: u64,
    /// Stalls of whose time they had at least half.
    pub stalls: u64,
}

impl Wait {
    /// What came after `earlier`.
    fn since(self, earlier: &[Wait]) -> Wait {
        let before = earlier.iter().find(|wait| wait.class == self.class);
        let since = |of: fn(&Wait) -> u64| of(&self).saturating_sub(before.map_or(0, of));
        let (count, total_us) = (since(|wait| wait.count), since(|wait| wait.total_us));
        Wait { count, total_us, stalls: since(|wait| wait.stalls), ..self }
    }
}

/// What an engine counts; none ever decreases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// What operations waited for.
    pub waits: Vec<Wait>,
    /// Operations that took longer than the engine's stall threshold.
    pub stalls: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Bytes of log made.
    pub log_bytes: u64,
    /// Syncs of the data.
    pub data_syncs: u64,
    /// Writes of pages to the data file, each of one page or of several that lie behind each other.
    pub page_write_calls: u64,
    /// Their bytes.
    pub page_write_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// How often the engine did what it forbids itself: each is a bug.
    pub law_violations: u64,
}

impl Counters {
    /// What was counted since `earlier`.
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
