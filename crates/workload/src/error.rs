//! Errors outside of a transaction's own outcome.

use std::io;
use std::path::PathBuf;

use crate::engine::TableNo;
use crate::engine::purchases::PurchaseLoad;

/// Why tables could not be loaded, or a run could not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed. The message is the engine's own.
    #[error(transparent)]
    Engine(Box<dyn std::error::Error + Send + Sync>),

    /// A table exists with another number of rows than asked for.
    #[error(
        "table '{table}' was loaded with {found} rows, not {wanted}; \
         run with --table-size={found}, or drop the tables with the action 'cleanup' first"
    )]
    TableSize {
        /// The table.
        table: String,
        /// Rows it was loaded with.
        found: u64,
        /// Rows asked for.
        wanted: u64,
    },

    /// A load of this table was interrupted.
    #[error("table '{0}' was not loaded to its end; drop the tables with the action 'cleanup', then load them again")]
    HalfLoaded(String),

    /// A run needs a table that does not exist.
    #[error("table '{0}' does not exist; load it with the action 'prepare', or ask for fewer --tables")]
    NotLoaded(String),

    /// A run needs an index that the table was loaded without.
    #[error(
        "table '{0}' has no index on k, which this workload reads; drop the tables with the action 'cleanup', \
         then load them with --create-secondary=on"
    )]
    NoIndex(TableNo),

    /// A run of `bulk_insert` needs a table that does not exist.
    #[error("table '{0}.bulk' does not exist; make it with the action 'prepare', or ask for fewer --threads")]
    NoBulkTable(TableNo),

    /// A step of the insert benchmark needs a table that does not exist.
    #[error(
        "table '{0}' does not exist; load it with the action 'prepare' or the step l.i0, or ask for fewer --threads"
    )]
    NoPurchases(String),

    /// A step of the insert benchmark reads an index that does not exist.
    #[error(
        "table '{table}' has no index '{index}', which is read here; make it with the action 'prepare' or the step l.x"
    )]
    NoPurchaseIndex {
        /// The table.
        table: String,
        /// The index.
        index: &'static str,
    },

    /// A table of the insert benchmark was loaded with another size than asked for.
    #[error(
        "table '{table}' was loaded with {} rows of {} bytes of data; run with --table-size={} --data-length={}, \
         or drop the tables with the action 'cleanup' first",
        found.rows, found.data_len, found.rows, found.data_len
    )]
    OtherPurchases {
        /// The table.
        table: String,
        /// The size with which the table was loaded.
        found: PurchaseLoad,
    },

    /// A table and one of its indexes disagree.
    #[error("index '{index}' of table '{table}' disagrees with its rows: {how}; run 'millpond check' on the database")]
    IndexDisagrees {
        /// The table.
        table: String,
        /// The index.
        index: &'static str,
        /// How they disagree.
        how: String,
    },

    /// A row is missing, though no transaction deleted it: the engine lost it.
    #[error("row {id} of table '{table}' is missing, though nothing deleted it; run 'millpond check' on the database")]
    RowMissing {
        /// The table.
        table: String,
        /// The row's id.
        id: u64,
    },

    /// A range of a loaded table lacks rows: the engine lost them.
    #[error(
        "rows {first} to {last} of table '{table}' are {found}, though {wanted} were loaded and nothing deleted any; \
         run 'millpond check' on the database"
    )]
    RowsMissing {
        /// The table.
        table: TableNo,
        /// The smallest id asked for.
        first: u64,
        /// The largest id asked for.
        last: u64,
        /// Rows found.
        found: u64,
        /// Rows loaded.
        wanted: u64,
    },

    /// A table of orders has another number of rows than it was loaded with.
    #[error(
        "table '{table}' has {found} rows, not {wanted}, though each transaction inserts a row and deletes one; \
         run 'millpond check' on the database"
    )]
    RowCount {
        /// The table.
        table: String,
        /// Rows found.
        found: u64,
        /// Rows loaded.
        wanted: u64,
    },

    /// A new row exists before it was inserted.
    #[error("row {id} of table '{table}' exists, though it is only now inserted; run 'millpond check' on the database")]
    RowExists {
        /// The table.
        table: String,
        /// The row's id.
        id: u64,
    },

    /// A row has another length than the generator wrote.
    #[error(
        "row {id} of table '{table}' has {length} bytes where {wanted} belong; run 'millpond check' on the database"
    )]
    RowMalformed {
        /// The table.
        table: String,
        /// The row's id.
        id: u64,
        /// Bytes found.
        length: usize,
        /// Bytes that the generator wrote.
        wanted: usize,
    },

    /// The request makes no sense, such as to draw rows from an empty range.
    #[error("{0}")]
    Invalid(String),

    /// A thread of the load could not be started.
    #[error(
        "cannot start load thread {number} of {threads}: the limit of threads is reached; raise it (ulimit -u, or \
         pids.max of the control group), or run with fewer --threads"
    )]
    ThreadStart {
        /// Number of the thread, from 1.
        number: usize,
        /// Number of threads asked for.
        threads: usize,
        /// The system's error.
        source: io::Error,
    },

    /// A thread of the load panicked: a defect in the engine or in this crate.
    #[error("load thread {0} panicked; its message is above; please report it")]
    ThreadPanicked(usize),

    /// A file of the probe could not be created, written or synced.
    #[error(
        "cannot {deed} '{path}', a file to measure the device with: free space there, or give this user access to it"
    )]
    File {
        /// The attempted action.
        deed: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },

    /// The caller asked to stop before the work was done.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an engine's own error.
    pub fn engine(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Engine(Box::new(error))
    }
}
