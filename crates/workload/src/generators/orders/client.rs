//! One thread's transactions over tables of orders.

use rand::RngExt;

use super::{Numbers, Order, orders_name};
use crate::Error;
use crate::engine::orders::{OrderSession, OrderTransaction};
use crate::engine::{Outcome, TableNo};
use crate::generators;
use crate::generators::oltp::{Queries, Ran, Step, Tally, until_done};
use crate::generators::row::{C_LEN, random_c};
use crate::keys::{Keys, Random};

/// Updates in a transaction.
const UPDATES: usize = 2;

/// Ranks drawn for a transaction: those of the read and the updates, and as many more for orders that are gone. If all
/// of them are used up, the transaction has fewer statements.
const RANKS: usize = 2 * (1 + UPDATES);

/// One thread, with its session.
///
/// A client knows a bound for each table: no committed order has a lower number, and none will have one. Before each
/// delete the client looks for the first order from the bound on, without a lock, and moves the bound up to that.
///
/// * The look finds orders that other transactions have locked or are deleting. These may roll back, so the bound never
///   passes such an order. The delete passes over it, but begins there the next time.
/// * Inserts commit in another order than that of their numbers. So the bound never passes the lowest number that was
///   in flight before the look.
/// * With nothing at or above the bound, it was wrong. Then the client looks from the first number on.
pub struct Client<'o, S> {
    session: S,
    /// Of each table.
    numbers: &'o [Numbers],
    /// Distribution of the ranks.
    ranks: &'o Keys,
    /// Of each table.
    pub(crate) bounds: Vec<u64>,
    drawn: Drawn,
}

/// A transaction. The new order gets its number when the transaction runs.
struct Drawn {
    table: TableNo,
    ranks: [u64; RANKS],
    notes: [[u8; C_LEN]; UPDATES],
    new: Order,
}

impl Drawn {
    fn random(tables: u32, ranks: &Keys, random: &mut Random) -> Drawn {
        Drawn {
            table: TableNo::from_index(random.random_range(0..tables)),
            ranks: std::array::from_fn(|_| ranks.draw(random)),
            notes: std::array::from_fn(|_| random_c(random)),
            new: Order::random(0, random),
        }
    }
}

impl<'o, S: OrderSession> Client<'o, S> {
    /// Makes a client over the tables of `session`. The tables' numbers are shared by all clients; `ranks` is over the
    /// rows of a table.
    pub fn new(session: S, numbers: &'o [Numbers], ranks: &'o Keys) -> Client<'o, S> {
        // Overwritten before it runs.
        let drawn = Drawn::random(1, ranks, &mut crate::keys::random(0, 0));
        Client { session, numbers, ranks, bounds: vec![0; numbers.len()], drawn }
    }

    /// Runs the transaction once, from begin to commit.
    fn attempt(&mut self, queries: &mut Queries) -> Result<Step, Error> {
        let Drawn { table, ranks, notes, new } = &self.drawn;
        let table = *table;
        let lowest_in_flight = self.numbers[table.index()].lowest_in_flight();
        let base = self.numbers[table.index()].base_of_ranks();
        let mut numbers = ranks.iter().map(|rank| base.saturating_sub(*rank));
        let mut txn = self.session.begin()?;
        for note in std::iter::once(None).chain(notes.iter().map(Some)) {
            for number in numbers.by_ref() {
                let (outcome, count) = match note {
                    None => (txn.select_order(table, number)?, &mut queries.read),
                    Some(note) => (txn.change_order(table, number, note)?, &mut queries.write),
                };
                match outcome {
                    Outcome::Conflict => return Ok(Step::Conflict),
                    Outcome::NoRow => queries.other += 1,
                    Outcome::Done | Outcome::Exists => {
                        *count += 1;
                        break;
                    }
                }
            }
        }
        match txn.insert_order(table, new)? {
            Outcome::Conflict => return Ok(Step::Conflict),
            Outcome::Done => queries.write += 1,
            Outcome::Exists | Outcome::NoRow => {
                return Err(Error::RowExists { table: orders_name(table), id: new.number });
            }
        }
        let bound = &mut self.bounds[table.index()];
        let first = match txn.first_order(table, *bound)? {
            None => txn.first_order(table, 0)?,
            found => found,
        };
        // The transaction's own order is there in any case.
        let first = first.ok_or_else(|| Error::RowMissing { table: orders_name(table), id: new.number })?;
        *bound = first.min(lowest_in_flight);
        if txn.delete_first(table, first)? != Outcome::Done {
            return Ok(Step::Conflict);
        }
        queries.write += 1;
        txn.commit()?;
        Ok(Step::Done)
    }
}

impl<S: OrderSession + Send> generators::Client for Client<'_, S> {
    fn draw(&mut self, random: &mut Random) -> bool {
        // As many tables as there are numbers of a table: at most `TableSet` allows.
        self.drawn = Drawn::random(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX), self.ranks, random);
        true
    }

    /// # Errors
    /// [`Error::RowExists`]: a new order is there already. [`Error::RowMissing`]: a new order is not there.
    /// [`Error::RowMalformed`]: an order is not as it was written. [`Error::Engine`]: the engine failed.
    fn run(&mut self, tally: &mut Tally, gives_up: impl Fn() -> bool) -> Result<Ran, Error> {
        let numbers = &self.numbers[self.drawn.table.index()];
        self.drawn.new.number = numbers.take();
        let ran = until_done(tally, gives_up, |queries| self.attempt(queries));
        numbers.settle(self.drawn.new.number);
        ran
    }
}
