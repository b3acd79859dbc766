//! Rows into a tree or table that exists: many rows a batch, one wait for the device at the end.
//!
//! Only the last batch waits until it is durable. Batches become durable in their order, so all are then.

use millpond::{Db, Durability, Error, OwnedRow, WriteBatch};

use super::place::{Place, is_about_a_row};
use super::text::shown;
use crate::exit::Failure;

/// Most rows of a batch.
const ROWS_MAX: usize = 1000;

/// From so many bytes of keys and values on a batch takes no more rows.
const BYTES_MAX: usize = 1 << 20;

/// A row, and the number of its line.
struct Row {
    line: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Rows on their way into a tree or table.
pub(super) struct Batches<'d> {
    db: &'d Db,
    place: &'d Place,
    rows: Vec<Row>,
    bytes: usize,
    /// Rows that were written.
    written: u64,
}

/// The engine refuses a row.
pub(super) struct Refused {
    pub(super) line: u64,
    pub(super) why: String,
}

/// The end of a write: the engine refuses a row, or does not work.
pub(super) type Written = Result<Result<(), Refused>, Error>;

impl<'d> Batches<'d> {
    pub(super) fn new(db: &'d Db, place: &'d Place) -> Batches<'d> {
        Batches { db, place, rows: Vec::new(), bytes: 0, written: 0 }
    }

    /// Rows that were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Adds a row. Writes those before it if they fill a batch.
    pub(super) fn put(&mut self, line: u64, (key, value): OwnedRow) -> Written {
        if self.rows.len() >= ROWS_MAX || self.bytes >= BYTES_MAX {
            let written = self.write(Durability::None)?;
            if written.is_err() {
                return Ok(written);
            }
        }
        self.bytes += key.len() + value.len();
        self.rows.push(Row { line, key, value });
        Ok(Ok(()))
    }

    /// Writes the rows that are left, and waits until all are durable.
    pub(super) fn finish(&mut self) -> Written {
        self.write(Durability::Commit)
    }

    fn write(&mut self, durability: Durability) -> Written {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        match self.write_together(&rows, durability) {
            // Nothing of the batch is written: the rows before the refused one follow, each by itself.
            Err(error) if is_about_a_row(&error) => self.write_one_by_one(&rows, durability),
            done => done.map(Ok),
        }
    }

    fn write_one_by_one(&mut self, rows: &[Row], durability: Durability) -> Written {
        for row in rows {
            match self.write_together(std::slice::from_ref(row), durability) {
                Err(error) if is_about_a_row(&error) => {
                    return Ok(Err(Refused { line: row.line, why: self.with_both_rows(&row.key, &error) }));
                }
                done => done?,
            }
        }
        Ok(Ok(()))
    }

    fn write_together(&mut self, rows: &[Row], durability: Durability) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.durability(durability);
        for row in rows {
            match self.place {
                Place::Tree(tree) => batch.put(tree, &row.key, &row.value),
                Place::Table(table) => batch.put(table, &row.key, &row.value),
            };
        }
        self.db.write(batch)?;
        self.written += u64::try_from(rows.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// The error's sentence. If another row has the same fields in a unique index, both rows are named.
    fn with_both_rows(&self, key: &[u8], error: &Error) -> String {
        let other = || {
            let (row, Place::Table(table)) = (error.row()?, self.place) else { return None };
            table.index(row.index()?).ok()?.get(row.key()).ok()?
        };
        match other() {
            Some((other, _)) => format!("row {}: {error} (that is row {})", shown(key), shown(&other)),
            None => error.to_string(),
        }
    }
}

/// The failure of a load into a tree that exists, which keeps the rows of the lines before.
pub(super) fn after_lines_before(place: &Place, why: impl std::fmt::Display) -> Failure {
    Failure::message(format!(
        "{why}; the lines before it are in {place}: mend the input, and load it again from there on"
    ))
}
