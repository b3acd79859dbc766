//! Rows, and the transactions over them.

pub mod insert_benchmark;
pub mod oltp;
pub mod row;

use crate::Error;
use crate::keys::Random;
use oltp::{Queries, Ran, Tally};

/// What one thread of a run does: transactions that it draws and runs.
pub trait Client: Send {
    /// Draws the next transaction; `false`: there is none any more.
    fn draw(&mut self, random: &mut Random) -> bool;

    /// Runs the transaction drawn last. A statement that meets a conflict is run again, unless `gives_up` says so.
    ///
    /// # Errors
    /// What the engine says, and that rows are not as they must be.
    fn run(&mut self, tally: &mut Tally, gives_up: impl Fn() -> bool) -> Result<Ran, Error>;

    /// Does what is left when the thread ends.
    ///
    /// # Errors
    /// As [`Client::run`].
    fn finish(&mut self) -> Result<Queries, Error> {
        Ok(Queries::default())
    }
}
