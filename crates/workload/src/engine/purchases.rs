//! The additional interface of a storage engine for the insert benchmark: tables of purchases, with three indexes each.

use super::{IdRange, Instruments, Outcome, TableNo, Verified};
use crate::Error;
use crate::generators::insert_benchmark::Purchase;

/// An index of a table of purchases. None of the indexes is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurchaseIndex {
    /// Price, customer.
    Market,
    /// Cash register, price, customer.
    Register,
    /// Price, date and time, customer.
    PriceDate,
}

impl PurchaseIndex {
    /// All of them.
    pub const ALL: [PurchaseIndex; 3] = [PurchaseIndex::Market, PurchaseIndex::Register, PurchaseIndex::PriceDate];

    /// The name in the insert benchmark.
    pub const fn name(self) -> &'static str {
        match self {
            PurchaseIndex::Market => "marketsegment",
            PurchaseIndex::Register => "registersegment",
            PurchaseIndex::PriceDate => "pdc",
        }
    }
}

/// Size of a table of purchases when it was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurchaseLoad {
    /// Number of rows. Later transactions delete as many rows as they insert.
    pub rows: u64,
    /// Bytes of the column `data` in each row.
    pub data_len: u32,
}

/// State of a table of purchases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurchaseState {
    /// The table does not exist.
    Missing,
    /// The table exists, but its load did not finish.
    HalfLoaded,
    /// The table was loaded.
    Loaded(PurchaseLoad),
}

/// A storage engine with an open database that may have tables of purchases.
pub trait PurchaseEngine: Instruments {
    /// One thread's access to a table.
    type Purchases<'e>: PurchaseSession + Send
    where
        Self: 'e;

    /// Returns whether a table exists, and the size with which it was loaded.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn purchase_table(&self, table: TableNo) -> Result<PurchaseState, Error>;

    /// Creates a table, empty and without indexes. Until [`PurchaseEngine::finish_purchases`] it is
    /// [`PurchaseState::HalfLoaded`].
    ///
    /// # Errors
    /// [`Error::Engine`]: the table exists, or the engine could not create it.
    fn create_purchases(&self, table: TableNo) -> Result<(), Error>;

    /// Notes that a table is loaded.
    ///
    /// # Errors
    /// [`Error::Engine`]: the note could not be written.
    fn finish_purchases(&self, table: TableNo, load: PurchaseLoad) -> Result<(), Error>;

    /// The indexes that a table does not have.
    ///
    /// # Errors
    /// [`Error::NoPurchases`]: the table is missing. [`Error::Engine`]: the engine could not answer.
    fn missing_indexes(&self, table: TableNo) -> Result<Vec<PurchaseIndex>, Error>;

    /// Drops a table, its indexes and the note on it; `false` if there was none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn drop_purchases(&self, table: TableNo) -> Result<bool, Error>;

    /// Opens a session on a table.
    ///
    /// # Errors
    /// [`Error::NoPurchases`]: the table is missing. [`Error::Engine`]: the engine failed.
    fn purchases(&self, table: TableNo) -> Result<Self::Purchases<'_>, Error>;

    /// Reads a table and its indexes, and checks that each row has its entries and each entry its row. No thread may
    /// change the table meanwhile.
    ///
    /// # Errors
    /// [`Error::IndexDisagrees`]: a row or an entry has no counterpart. [`Error::Engine`]: the engine failed.
    fn verify_purchases(&self, table: TableNo) -> Result<Verified, Error>;
}

/// One thread's access to a table of purchases.
pub trait PurchaseSession {
    /// The smallest and the largest id; `None` if the table is empty.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn ids(&mut self) -> Result<Option<IdRange>, Error>;

    /// Inserts rows in ascending order of id, in one transaction that may become durable later.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed, or a row exists.
    fn load(&mut self, rows: &[Purchase]) -> Result<(), Error>;

    /// Creates an index on the rows of the table.
    ///
    /// # Errors
    /// [`Error::Engine`]: the table has the index already, or the engine failed.
    fn create_index(&mut self, index: PurchaseIndex) -> Result<(), Error>;

    /// Inserts `rows` and deletes the rows of `oldest`, in one transaction, with the durability that the engine was
    /// opened with.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed, or a row to insert exists.
    fn turn_over(&mut self, rows: &[Purchase], oldest: IdRange) -> Result<(), Error>;

    /// Reads a row by its id: [`Outcome::Done`] or [`Outcome::NoRow`].
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn select_purchase(&mut self, id: u64) -> Result<Outcome, Error>;

    /// Reads up to `rows` entries of an index, from the first whose first column is `from` or more; returns the number
    /// of entries read.
    ///
    /// # Errors
    /// [`Error::NoPurchaseIndex`]: the index was missing when the session was opened. [`Error::Engine`]: the engine
    /// failed.
    fn scan_entries(&mut self, index: PurchaseIndex, from: u32, rows: usize) -> Result<usize, Error>;
}
