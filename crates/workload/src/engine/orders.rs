//! The additional interface of a storage engine for the order queue: tables of orders, with three indexes each.

use super::{IdRange, Instruments, Outcome, TableNo, TableState, Verified};
use crate::Error;
use crate::generators::orders::Order;
use crate::generators::row::C_LEN;

/// A storage engine with an open database that may have tables of orders.
pub trait OrderEngine: Instruments {
    /// One thread's access to the tables.
    type Orders<'e>: OrderSession + Send
    where
        Self: 'e;

    /// Returns whether a table exists, and how many rows were loaded into it.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine could not answer.
    fn order_table(&self, table: TableNo) -> Result<TableState, Error>;

    /// Creates a table, empty, with its indexes. Until [`OrderEngine::finish_orders`] it is
    /// [`TableState::HalfLoaded`].
    ///
    /// # Errors
    /// [`Error::Engine`]: the table exists, or the engine could not create it.
    fn create_orders(&self, table: TableNo) -> Result<(), Error>;

    /// Makes what was loaded durable, and notes that a table is loaded, with `rows` rows.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn finish_orders(&self, table: TableNo, rows: u64) -> Result<(), Error>;

    /// Drops a table, its indexes and the note on it; `false` if there was none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn drop_orders(&self, table: TableNo) -> Result<bool, Error>;

    /// Opens a session on the tables 1 to `tables`.
    ///
    /// # Errors
    /// [`Error::NotLoaded`]: one of them is missing. [`Error::Engine`]: the engine failed.
    fn orders(&self, tables: u32) -> Result<Self::Orders<'_>, Error>;

    /// Reads a table and its indexes, and checks that each row has its entries and each entry its row. No thread may
    /// change the table meanwhile.
    ///
    /// # Errors
    /// [`Error::IndexDisagrees`]: a row or an entry has no counterpart. [`Error::Engine`]: the engine failed.
    fn verify_orders(&self, table: TableNo) -> Result<Verified, Error>;
}

/// One thread's access to tables of orders.
pub trait OrderSession {
    /// A transaction. It is rolled back if it is dropped before its commit.
    type Transaction<'s>: OrderTransaction
    where
        Self: 's;

    /// The lowest and the highest number of an order, by the index on it; `None` if the table is empty.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn numbers(&mut self, table: TableNo) -> Result<Option<IdRange>, Error>;

    /// Inserts orders, in one transaction that may become durable later.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed, or an order exists.
    fn load(&mut self, table: TableNo, orders: &[Order]) -> Result<(), Error>;

    /// Begins a transaction, with the durability that the engine was opened with.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn begin(&mut self) -> Result<Self::Transaction<'_>, Error>;
}

/// A transaction over tables of orders. After [`Outcome::Conflict`] of a statement it must be dropped.
pub trait OrderTransaction {
    /// Reads an order by its primary key: [`Outcome::Done`] or [`Outcome::NoRow`].
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn select_order(&mut self, table: TableNo, number: u64) -> Result<Outcome, Error>;

    /// Changes an order by its primary key: gives it the next status, adds a cent to the amount, replaces the note.
    ///
    /// # Errors
    /// [`Error::RowMalformed`]: the row is not one of an order. [`Error::Engine`]: the engine failed.
    fn change_order(&mut self, table: TableNo, number: u64, note: &[u8; C_LEN]) -> Result<Outcome, Error>;

    /// Inserts an order.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn insert_order(&mut self, table: TableNo, order: &Order) -> Result<Outcome, Error>;

    /// The lowest number, from `from` on, of the orders that are committed or the transaction's own, whether another
    /// transaction has locked the order or not. Takes no lock and waits for none. `None`: there is no such order.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn first_order(&mut self, table: TableNo, from: u64) -> Result<Option<u64>, Error>;

    /// Deletes the order with the lowest number, from `from` on, that no other transaction has locked.
    /// [`Outcome::NoRow`]: there is none.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn delete_first(&mut self, table: TableNo, from: u64) -> Result<Outcome, Error>;

    /// Commits the transaction.
    ///
    /// # Errors
    /// [`Error::Engine`]: the engine failed.
    fn commit(self) -> Result<(), Error>;
}
