//! Rows, and the transactions over them.

pub mod insert_benchmark;
pub mod oltp;
pub mod orders;
pub mod row;

use crate::Error;
use crate::keys::Random;
use oltp::{Queries, Ran, Tally};

/// The work of one thread of a run: it draws transactions and runs them.
pub trait Client: Send {
    /// Draws the next transaction; returns `false` if none is left.
    fn draw(&mut self, random: &mut Random) -> bool;

    /// Runs the transaction drawn last. Retries a statement after a conflict, unless `gives_up` returns true.
    ///
    /// # Errors
    /// Errors of the engine, and of rows that are not as they must be.
    fn run(&mut self, tally: &mut Tally, gives_up: impl Fn() -> bool) -> Result<Ran, Error>;

    /// Finishes the remaining work when the thread ends.
    ///
    /// # Errors
    /// As [`Client::run`].
    fn finish(&mut self) -> Result<Queries, Error> {
        Ok(Queries::default())
    }
}
