//! One thread's transactions: draws them, runs them statement by statement, and counts the statements.

use super::bulk::Packet;
use super::load::{Load, Segment};
use super::{Queries, Statement, Transaction, Workload};
use crate::Error;
use crate::engine::{Engine, IdRange, Outcome, Session, TableNo};
use crate::generators;
use crate::keys::Random;

/// Counts of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Statements, each counted once, however often it was retried.
    pub queries: Queries,
    /// Conflicts, each followed by a retry.
    pub conflicts: u64,
}

/// How a run of a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ran {
    /// All its statements are done.
    ToItsEnd,
    /// It was given up after a conflict.
    GivenUp,
}

/// Whether a statement is done, or a whole transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    Done,
    Conflict,
}

/// Tries a transaction, from begin to commit, again and again until it is done, or given up after a conflict. `attempt`
/// counts its statements; those of the last attempt count.
pub(crate) fn until_done(
    tally: &mut Tally,
    gives_up: impl Fn() -> bool,
    mut attempt: impl FnMut(&mut Queries) -> Result<Step, Error>,
) -> Result<Ran, Error> {
    loop {
        // As in sysbench, begin and commit are queries, too.
        let mut queries = Queries { other: 2, ..Queries::default() };
        if attempt(&mut queries)? == Step::Done {
            tally.queries += queries;
            return Ok(Ran::ToItsEnd);
        }
        tally.conflicts += 1;
        if gives_up() {
            return Ok(Ran::GivenUp);
        }
    }
}

/// One thread of a load, with its session.
pub struct Client<'l, S> {
    load: &'l Load,
    session: S,
    segment: Segment,
    packet: Option<Packet>,
    transaction: Transaction,
}

impl<'l, S: Session> Client<'l, S> {
    /// Makes all of `threads` threads.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn all<'e, E>(load: &'l Load, engine: &'e E, threads: usize) -> Result<Vec<Client<'l, S>>, Error>
    where
        E: Engine<Session<'e> = S>,
    {
        (0..threads).map(|number| Client::new(load, engine, number, threads)).collect()
    }

    /// Makes thread `number`, from 0, of `threads`.
    ///
    /// # Errors
    /// [`Error::NotLoaded`], [`Error::NoBulkTable`]: a table is missing. [`Error::Engine`]: the engine failed.
    pub fn new<'e, E>(load: &'l Load, engine: &'e E, number: usize, threads: usize) -> Result<Client<'l, S>, Error>
    where
        E: Engine<Session<'e> = S>,
    {
        let (session, packet) = if load.workload() == Workload::BulkInsert {
            let table = TableNo::from_index(u32::try_from(number).unwrap_or(u32::MAX - 1));
            let last_id = engine.bulk_last_id(table)?.ok_or(Error::NoBulkTable(table))?;
            (engine.bulk_session(table)?, Some(Packet::new(table, last_id)))
        } else {
            (engine.session(load.set().tables())?, None)
        };
        Ok(Client {
            load,
            session,
            segment: load.segment(number, threads)?,
            packet,
            transaction: Transaction::default(),
        })
    }

    /// Runs one statement once; counts it if it succeeds.
    fn step(&mut self, number: usize, queries: &mut Queries) -> Result<Step, Error> {
        let session = &mut self.session;
        let guard = Guard(self.load);
        match self.transaction.statements[number] {
            Statement::SelectRow { table, id } => {
                if session.select_row(table, id)? == Outcome::NoRow {
                    guard.no_row(table, id)?;
                }
            }
            Statement::SelectRange { table, ids, select } => {
                let found = session.select_range(table, ids, select)?;
                guard.rows(table, ids, found)?;
            }
            Statement::SelectPoints { table } => drop(session.select_points(table, &self.transaction.points)?),
            Statement::CountRanges { table } => drop(session.count_ranges(table, &self.transaction.ranges)?),
            Statement::IncrementK { table, id } => {
                return guard.wrote(session.increment_k(table, id)?, table, id, queries);
            }
            Statement::ReplaceC { table, id, text } => {
                return guard.wrote(session.replace_c(table, id, &self.transaction.texts[text])?, table, id, queries);
            }
            Statement::DeleteRow { table, id } => {
                return guard.wrote(session.delete_row(table, id)?, table, id, queries);
            }
            Statement::InsertRow { table, row } => {
                let row = &self.transaction.rows[row];
                return guard.wrote(session.insert_row(table, row)?, table, row.id, queries);
            }
            Statement::InsertRows { table } => {
                let rows = &self.transaction.rows;
                let first = rows.first().map_or(0, |row| row.id);
                let mut inserted = Queries::default();
                let step = guard.wrote(session.insert_rows(table, rows)?, table, first, &mut inserted)?;
                // Each row counts, so that batches of any size compare.
                queries.write += inserted.write * rows.len() as u64;
                return Ok(step);
            }
            Statement::DeleteInsert { table, row } => return self.delete_insert(table, row, queries),
            Statement::BulkRow => {
                if let Some(ids) = self.packet.as_mut().and_then(Packet::add) {
                    self.insert_packet(ids, queries)?;
                }
                return Ok(Step::Done);
            }
        }
        queries.read += 1;
        Ok(Step::Done)
    }

    /// Runs a delete and an insert once; counts them if both succeed.
    fn delete_insert(&mut self, table: TableNo, row: usize, queries: &mut Queries) -> Result<Step, Error> {
        let (session, guard, row) = (&mut self.session, Guard(self.load), &self.transaction.rows[row]);
        let mut both = Queries::default();
        if guard.wrote(session.delete_row(table, row.id)?, table, row.id, &mut both)? == Step::Conflict {
            return Ok(Step::Conflict);
        }
        // Where the two statements are separate transactions, another thread may insert the same id in between. Then
        // the pair is retried, so that each pair leaves the row in the table.
        let inserted = match session.insert_row(table, row)? {
            Outcome::Exists => Outcome::Conflict,
            inserted => inserted,
        };
        let step = guard.wrote(inserted, table, row.id, &mut both)?;
        if step == Step::Done {
            *queries += both;
        }
        Ok(step)
    }

    /// Runs all statements as one transaction, with begin and commit; after a conflict all of them again.
    fn run_together(&mut self, tally: &mut Tally, gives_up: impl Fn() -> bool) -> Result<Ran, Error> {
        until_done(tally, gives_up, |queries| {
            self.session.begin()?;
            let step = self.step_by_step(queries);
            if let Ok(Step::Done) = step
                && self.session.commit()? == Outcome::Done
            {
                return Ok(Step::Done);
            }
            self.session.rollback()?;
            step.and(Ok(Step::Conflict))
        })
    }

    /// Runs the statements up to the first conflict.
    fn step_by_step(&mut self, queries: &mut Queries) -> Result<Step, Error> {
        for number in 0..self.transaction.statements.len() {
            if self.step(number, queries)? == Step::Conflict {
                return Ok(Step::Conflict);
            }
        }
        Ok(Step::Done)
    }

    fn insert_packet(&mut self, ids: IdRange, queries: &mut Queries) -> Result<(), Error> {
        self.session.insert_bulk(ids)?;
        queries.write += 1;
        Ok(())
    }
}

impl<S: Session + Send> generators::Client for Client<'_, S> {
    fn draw(&mut self, random: &mut Random) -> bool {
        self.load.draw(random, &self.segment, &mut self.transaction);
        true
    }

    /// # Errors
    /// [`Error::RowMissing`], [`Error::RowsMissing`]: rows are gone that no statement deleted.
    /// [`Error::RowExists`]: a new id is taken. Otherwise errors of [`Session`]'s methods.
    fn run(&mut self, tally: &mut Tally, gives_up: impl Fn() -> bool) -> Result<Ran, Error> {
        if self.load.is_transactional() {
            return self.run_together(tally, gives_up);
        }
        for number in 0..self.transaction.statements.len() {
            // Bounded: each conflict means that another thread's statement succeeded, and a stop ends the loop.
            while self.step(number, &mut tally.queries)? == Step::Conflict {
                tally.conflicts += 1;
                if gives_up() {
                    return Ok(Ran::GivenUp);
                }
            }
        }
        Ok(Ran::ToItsEnd)
    }

    /// Inserts the rows left in a packet, as sysbench does when a thread ends.
    ///
    /// # Errors
    /// Errors of [`Session::insert_bulk`].
    fn finish(&mut self) -> Result<Queries, Error> {
        let mut queries = Queries::default();
        if let Some(ids) = self.packet.as_mut().and_then(Packet::take) {
            self.insert_packet(ids, &mut queries)?;
        }
        Ok(queries)
    }
}

/// Distinguishes rows that may have been deleted from rows that the engine lost.
struct Guard<'l>(&'l Load);

impl Guard<'_> {
    /// Checks a row that was not found.
    fn no_row(&self, table: TableNo, id: u64) -> Result<(), Error> {
        if self.0.rows_may_miss() { Ok(()) } else { Err(Error::RowMissing { table: table.to_string(), id }) }
    }

    /// Checks the number of rows that a range had.
    fn rows(&self, table: TableNo, ids: IdRange, found: u64) -> Result<(), Error> {
        let wanted = self.0.rows_loaded(ids);
        if found < wanted && !self.0.rows_may_miss() {
            return Err(Error::RowsMissing { table, first: ids.first, last: ids.last, found, wanted });
        }
        Ok(())
    }

    /// Counts a statement that writes, by its outcome. sysbench counts a statement that found no row as `other`.
    fn wrote(&self, outcome: Outcome, table: TableNo, id: u64, queries: &mut Queries) -> Result<Step, Error> {
        match outcome {
            Outcome::Done => queries.write += 1,
            Outcome::NoRow => {
                self.no_row(table, id)?;
                queries.other += 1;
            }
            Outcome::Exists => return Err(Error::RowExists { table: table.to_string(), id }),
            Outcome::Conflict => return Ok(Step::Conflict),
        }
        Ok(Step::Done)
    }
}
