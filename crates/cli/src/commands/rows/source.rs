//! Reads of rows: the questions that `get`, `scan` and `count` ask, and the directory that answers them.

use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::{Db, IndexRows, Options, RowRef, Scan, Snapshot, Table};

use super::place::{self, Place};
use crate::exit::Failure;
use crate::signals;

/// The rows of a name, or a range of them. Keys are those of the rows; with an index, the fields of its entries.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) name: String,
    pub(super) index: Option<String>,
    pub(super) lower: Bound<Vec<u8>>,
    pub(super) upper: Bound<Vec<u8>>,
}

/// The rows of a range that a scan wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// From the last row back.
    pub(super) is_reverse: bool,
    /// At most so many rows.
    pub(super) limit: u64,
}

/// Takes a row: its key and its value. An error ends the scan.
pub(super) type Each<'e> = dyn FnMut(&[u8], &[u8]) -> Result<(), Failure> + 'e;

/// Answers questions about the rows of a database. All answers are of one moment.
pub(super) trait Rows {
    /// The value of a key.
    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Gives the wanted rows of a range to `each`, in order.
    fn scan(&self, range: &Range, wanted: Wanted, each: &mut Each<'_>) -> Result<(), Failure>;

    /// The number of rows in a range.
    fn count(&self, range: &Range) -> Result<u64, Failure>;
}

/// A database that no process has open for writing, at the moment at which it was opened. Nothing is written to it.
pub(super) struct Local {
    dir: PathBuf,
    pub(super) db: Db,
    snapshot: Snapshot,
    stop: Arc<AtomicBool>,
}

impl Local {
    /// Opens the database in `dir` for reading. From then on an interrupt ends a scan with [`Failure::Interrupted`].
    pub(super) fn open(dir: &Path, options: Options) -> Result<Local, Failure> {
        let db = place::open(dir, options.create(false).read_only(true))?;
        let snapshot = db.snapshot()?;
        // Last: until now an interrupt may end the process where it stands.
        Ok(Local { dir: dir.to_owned(), db, snapshot, stop: signals::stop_flag()? })
    }

    pub(super) fn place(&self, name: &str) -> Result<Place, Failure> {
        Place::existing(&self.db, &self.dir, name)
    }

    /// Gives rows to `each`. `next` is the next row.
    fn drain<S>(
        &self,
        mut scan: S,
        next: impl Fn(&mut S) -> millpond::Result<Option<RowRef<'_>>>,
        limit: u64,
        each: &mut Each<'_>,
    ) -> Result<(), Failure> {
        for _ in 0..limit {
            check_uninterrupted(&self.stop)?;
            let Some((key, value)) = next(&mut scan)? else { break };
            each(key, value)?;
        }
        Ok(())
    }
}

impl Rows for Local {
    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.snapshot.get(&self.place(name)?, key)?)
    }

    fn scan(&self, range: &Range, Wanted { is_reverse, limit }: Wanted, each: &mut Each<'_>) -> Result<(), Failure> {
        let (place, bounds) = (self.place(&range.name)?, (range.lower.clone(), range.upper.clone()));
        match &range.index {
            None => {
                let next = if is_reverse { Scan::next_row_back } else { Scan::next_row };
                self.drain(self.snapshot.scan(&place, bounds)?, next, limit, each)
            }
            Some(index) => {
                let index = indexed(&place)?.index(index)?;
                let next = if is_reverse { IndexRows::next_row_back } else { IndexRows::next_row };
                self.drain(self.snapshot.rows(&index, bounds)?, next, limit, each)
            }
        }
    }

    fn count(&self, range: &Range) -> Result<u64, Failure> {
        let Some(index) = &range.index else {
            let (mut count, all) = (0, Wanted { is_reverse: false, limit: u64::MAX });
            self.scan(range, all, &mut |_, _| {
                count += 1;
                Ok(())
            })?;
            return Ok(count);
        };
        // The entries are enough, without the rows.
        let index = indexed(&self.place(&range.name)?)?.index(index)?;
        let mut entries = self.snapshot.entries(&index, (range.lower.clone(), range.upper.clone()))?;
        let mut count = 0;
        while entries.next_entry()?.is_some() {
            check_uninterrupted(&self.stop)?;
            count += 1;
        }
        Ok(count)
    }
}

/// The table that has the indexes.
fn indexed(place: &Place) -> Result<&Table, Failure> {
    match place {
        Place::Table(table) => Ok(table),
        Place::Tree(_) => Err(Failure::message(format!("{place} has no indexes, as only tables have: omit --index"))),
    }
}

/// An error if the user has interrupted the command.
pub(super) fn check_uninterrupted(stop: &AtomicBool) -> Result<(), Failure> {
    // Relaxed: an independent flag.
    if stop.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
}
