//! The threads of a client: loader, indexer, writer and reader of its table.

use std::sync::atomic::{AtomicU64, Ordering};

use rand::RngExt;

use super::{Domains, Purchase, Queries};
use crate::Error;
use crate::engine::purchases::{PurchaseIndex, PurchaseSession};
use crate::engine::{IdRange, Outcome, TableNo};
use crate::generators::Client;
use crate::generators::oltp::{self, Ran, Tally};
use crate::keys::Random;

/// Rows to insert, and the memory for them.
struct Rows {
    data_len: usize,
    rows: Vec<Purchase>,
}

impl Rows {
    fn new(data_len: u32) -> Rows {
        Rows { data_len: data_len as usize, rows: Vec::new() }
    }

    /// Draws `count` rows from the id `first` on.
    fn redraw(&mut self, first: u64, count: usize, random: &mut Random) {
        self.rows.resize_with(count, Purchase::default);
        for (id, row) in (first..).zip(&mut self.rows) {
            row.redraw(id, self.data_len, random);
        }
    }
}

/// The thread that loads a table.
pub struct Loader<S> {
    session: S,
    rows: Rows,
    /// The ids that are still to be loaded.
    left: IdRange,
    rows_per_commit: u64,
}

impl<S: PurchaseSession> Loader<S> {
    /// Makes a loader of the rows 1 to `rows`.
    pub fn new(session: S, rows: u64, data_len: u32, rows_per_commit: u64) -> Loader<S> {
        Loader { session, rows: Rows::new(data_len), left: IdRange { first: 1, last: rows }, rows_per_commit }
    }
}

impl<S: PurchaseSession + Send> Client for Loader<S> {
    fn draw(&mut self, random: &mut Random) -> bool {
        let count = (self.left.last + 1 - self.left.first).min(self.rows_per_commit);
        self.rows.redraw(self.left.first, count as usize, random);
        self.left.first += count;
        count > 0
    }

    fn run(&mut self, tally: &mut Tally, _: impl Fn() -> bool) -> Result<Ran, Error> {
        self.session.load(&self.rows.rows)?;
        tally.queries.write += 1;
        Ok(Ran::ToItsEnd)
    }
}

/// The thread that creates a table's indexes one after the other; each is a transaction.
pub struct Indexer<S> {
    session: S,
    /// The indexes that are still to be created, the next one last.
    left: Vec<PurchaseIndex>,
}

impl<S: PurchaseSession> Indexer<S> {
    /// Makes an indexer that creates `indexes` in order.
    pub fn new(session: S, mut indexes: Vec<PurchaseIndex>) -> Indexer<S> {
        indexes.reverse();
        Indexer { session, left: indexes }
    }
}

impl<S: PurchaseSession + Send> Client for Indexer<S> {
    fn draw(&mut self, _: &mut Random) -> bool {
        !self.left.is_empty()
    }

    fn run(&mut self, tally: &mut Tally, _: impl Fn() -> bool) -> Result<Ran, Error> {
        if let Some(index) = self.left.pop() {
            self.session.create_index(index)?;
            tally.queries.write += 1;
        }
        Ok(Ran::ToItsEnd)
    }
}

/// The ids in a client's table: the writer updates them, the reader reads them.
#[derive(Debug)]
pub struct Span {
    /// The smallest id. The writer raises it before it deletes the rows below.
    first: AtomicU64,
    /// The largest id plus 1. The writer raises it after the insert.
    end: AtomicU64,
}

impl Span {
    /// The ids of a table.
    pub fn new(ids: IdRange) -> Span {
        Span { first: AtomicU64::new(ids.first), end: AtomicU64::new(ids.last + 1) }
    }

    /// The ids in the table, while the table has rows.
    fn ids(&self) -> IdRange {
        // Read before `first`, which may rise in between: `min` keeps the range from becoming empty.
        let end = self.end.load(Ordering::Acquire);
        IdRange { first: self.first.load(Ordering::Acquire).min(end - 1), last: end - 1 }
    }
}

/// The thread that inserts rows at a table's end and deletes rows at its beginning.
pub struct Writer<'s, S> {
    session: S,
    span: &'s Span,
    rows: Rows,
    rows_per_commit: u64,
}

impl<'s, S: PurchaseSession> Writer<'s, S> {
    /// Makes a writer that inserts `rows_per_commit` rows in a transaction, and deletes as many.
    pub fn new(session: S, span: &'s Span, data_len: u32, rows_per_commit: u64) -> Writer<'s, S> {
        Writer { session, span, rows: Rows::new(data_len), rows_per_commit }
    }
}

impl<S: PurchaseSession + Send> Client for Writer<'_, S> {
    fn draw(&mut self, random: &mut Random) -> bool {
        // Relaxed: only this thread changes it.
        self.rows.redraw(self.span.end.load(Ordering::Relaxed), self.rows_per_commit as usize, random);
        true
    }

    fn run(&mut self, tally: &mut Tally, _: impl Fn() -> bool) -> Result<Ran, Error> {
        let first = self.span.first.fetch_add(self.rows_per_commit, Ordering::AcqRel);
        self.session.turn_over(&self.rows.rows, IdRange { first, last: first + self.rows_per_commit - 1 })?;
        self.span.end.fetch_add(self.rows_per_commit, Ordering::AcqRel);
        // An INSERT and a DELETE.
        tally.queries.write += 2;
        Ok(Ran::ToItsEnd)
    }
}

/// The thread that queries a table.
pub struct Reader<'s, S> {
    session: S,
    span: &'s Span,
    table: TableNo,
    queries: Queries,
    rows_per_query: usize,
    /// Of a range query: the index, and the least value of its first column.
    range: (PurchaseIndex, u32),
    /// Of a point query: the ids.
    ids: Vec<u64>,
}

impl<'s, S: PurchaseSession> Reader<'s, S> {
    /// Makes a reader of `rows_per_query` entries or rows of `table` in a query.
    pub fn new(session: S, span: &'s Span, table: TableNo, queries: Queries, rows_per_query: usize) -> Reader<'s, S> {
        Reader { session, span, table, queries, rows_per_query, range: (PurchaseIndex::Market, 0), ids: Vec::new() }
    }
}

impl<S: PurchaseSession + Send> Client for Reader<'_, S> {
    fn draw(&mut self, random: &mut Random) -> bool {
        match self.queries {
            Queries::Ranges => {
                let index = PurchaseIndex::ALL[random.random_range(0..PurchaseIndex::ALL.len())];
                let values = match index {
                    PurchaseIndex::Register => Domains::CASH_REGISTERS,
                    PurchaseIndex::Market | PurchaseIndex::PriceDate => Domains::PRICES,
                };
                self.range = (index, random.random_range(0..values));
            }
            Queries::Points => {
                let IdRange { first, last } = self.span.ids();
                self.ids.clear();
                self.ids.extend((0..self.rows_per_query).map(|_| random.random_range(first..=last)));
            }
        }
        true
    }

    fn run(&mut self, tally: &mut Tally, _: impl Fn() -> bool) -> Result<Ran, Error> {
        match self.queries {
            Queries::Ranges => {
                let (index, from) = self.range;
                self.session.scan_entries(index, from, self.rows_per_query)?;
            }
            Queries::Points => {
                for &id in &self.ids {
                    let is_there = self.session.select_purchase(id)? == Outcome::Done;
                    // The writer may have deleted the row meanwhile: then its id is below `first`.
                    if !is_there && id >= self.span.first.load(Ordering::Acquire) {
                        return Err(Error::RowMissing { table: super::purchases_name(self.table), id });
                    }
                }
            }
        }
        tally.queries += oltp::Queries { read: 1, ..oltp::Queries::default() };
        Ok(Ran::ToItsEnd)
    }
}
