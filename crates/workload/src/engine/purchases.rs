//! What a storage engine must offer besides for the insert benchmark: tables of purchases, with three indexes each.

use super::{IdRange, Instruments, Outcome, TableNo};
use crate::Error;
use crate::generators::insert_benchmark::Purchase;

/// An index of a table of purchases, none of them unique.
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

    /// Its name, as the insert benchmark has it.
    pub const fn name(self) -> &'static str {
        match self {
            PurchaseIndex::Market => "marketsegment",
            PurchaseIndex::Register => "registersegment",
            PurchaseIndex::PriceDate => "pdc",
        }
    }
}

/// What a table of purchases was loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurchaseLoad {
    /// Its rows. As many are deleted later as are inserted.
    pub rows: u64,
    /// Bytes of the column `data` of each.
    pub data_len: u32,
}

/// What is known of a table of purchases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurchaseState {
    /// It is not there.
    Missing,
    /// It is there, but its load did not come to its end.
    HalfLoaded,
    /// It was loaded.
    Loaded(PurchaseLoad),
}

/// What was found in a table of purchases whose indexes agree with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows.
    pub rows: u64,
    /// Entries of its indexes.
    pub entries: u64,
}

/// A storage engine with an open database that may have tables of purchases.
pub trait PurchaseEngine: Instruments {
    /// One thread's access to a table.
    type Purchases<'e>: PurchaseSession + Send
    where
        Self: 'e;

    /// Says whether a table is there, and what it was loaded with.
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
    /// [`Error::NoPurchases`]: the table is not there. [`Error::Engine`]: the engine could not answer.
    fn missing_indexes(&self, table: TableNo) -> Result<Vec<PurchaseIndex>, Error>;

    /// Drops a table, its indexes and the note on it; `false` if there was none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn drop_purchases(&self, table: TableNo) -> Result<bool, Error>;

    /// Opens a session on a table.
    ///
    /// # Errors
    /// [`Error::NoPurchases`]: it is not there. [`Error::Engine`]: the engine could not.
    fn purchases(&self, table: TableNo) -> Result<Self::Purchases<'_>, Error>;

    /// Reads a table and the indexes that it has, while nobody changes them: whether each row has its entries and each
    /// entry its row.
    ///
    /// # Errors
    /// [`Error::IndexDisagrees`]: one has not. [`Error::Engine`]: the engine could not.
    fn verify_purchases(&self, table: TableNo) -> Result<Verified, Error>;
}

/// One thread's access to a table of purchases.
pub trait PurchaseSession {
    /// The smallest and the largest id; `None` if the table is empty.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn ids(&mut self) -> Result<Option<IdRange>, Error>;

    /// Inserts rows in ascending order of id, in one transaction that need not be durable at once.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not, or a row exists.
    fn load(&mut self, rows: &[Purchase]) -> Result<(), Error>;

    /// Makes an index of the rows that are there.
    ///
    /// # Errors
    /// [`Error::Engine`]: the table has it, or the engine could not.
    fn create_index(&mut self, index: PurchaseIndex) -> Result<(), Error>;

    /// Inserts rows and deletes those of `oldest`, in one transaction, durable as the engine was opened to make it.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not, or a row to insert exists.
    fn turn_over(&mut self, rows: &[Purchase], oldest: IdRange) -> Result<(), Error>;

    /// Reads a row by its id: [`Outcome::Done`] or [`Outcome::NoRow`].
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not.
    fn select_purchase(&mut self, id: u64) -> Result<Outcome, Error>;

    /// Reads `rows` entries of an index, or as many as there are, from the first whose first column is `from` or more;
    /// returns how many there were.
    ///
    /// # Errors
    /// [`Error::NoPurchaseIndex`]: there was none when the session was opened. [`Error::Engine`]: the engine could not.
    fn scan_entries(&mut self, index: PurchaseIndex, from: u32, rows: usize) -> Result<usize, Error>;
}
