//! Snapshots: reads that all are of one moment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::database::Db;
use crate::api::index::{Index, IndexRows, IndexScan};
use crate::api::table::Table;
use crate::api::tree::Tree;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::CommitTs;
use crate::btree::scan::OwnedRow;
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::read::snapshot::LiveSnapshot;
use crate::schema::key_range::KeyRange;

/// All rows as they were at one moment: what was committed before it, and nothing that was committed later.
///
/// Clones are of the same moment. As long as one of them lives, or a scan of it, the database keeps the versions that
/// the snapshot sees: deleted rows and undo records take space until it is dropped, or older than
/// [`max_snapshot_age`](crate::Options::max_snapshot_age). Writers never wait for it.
#[derive(Clone)]
pub struct Snapshot {
    live: Arc<LiveSnapshot>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("commit_ts", &self.commit_ts()).finish_non_exhaustive()
    }
}

/// What a snapshot reads rows of: a [`Tree`] or a [`Table`].
#[derive(Clone, Copy)]
pub struct RowsOf<'t> {
    pub(super) engine: &'t Arc<Engine>,
    pub(super) state: &'t Arc<TreeState>,
}

impl fmt::Debug for RowsOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RowsOf").field(&self.state.name).finish()
    }
}

impl<'t> From<&'t Tree> for RowsOf<'t> {
    fn from(tree: &'t Tree) -> Self {
        RowsOf { engine: &tree.engine, state: &tree.state }
    }
}

impl<'t> From<&'t Table> for RowsOf<'t> {
    fn from(table: &'t Table) -> Self {
        RowsOf { engine: &table.engine, state: &table.state.rows }
    }
}

impl Db {
    /// Takes a snapshot of all that is committed and visible now. Reads nothing, and waits for no writer.
    ///
    /// # Errors
    /// [`Error::Closed`] when the database was closed, [`Error::OtherProcess`] in a fork of the process that opened the
    /// database.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let engine = self.here()?;
        engine.check_open()?;
        Ok(Snapshot { live: Arc::new(LiveSnapshot::take(engine)) })
    }
}

impl Snapshot {
    /// The snapshot's moment. It sees every commit up to this one, and no later one.
    pub fn commit_ts(&self) -> CommitTs {
        self.live.at().into()
    }

    /// How long ago the snapshot was taken.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(clock::now_ns().saturating_sub(self.live.began_ns()))
    }

    /// Reads the value of `key` at the snapshot's moment.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`]: the tree or table was created, loaded or truncated after the snapshot was taken, or
    /// the snapshot is older than [`max_snapshot_age`](crate::Options::max_snapshot_age). [`Error::TreeNotFound`]: the
    /// handle is from before a truncation. Otherwise those of [`Tree::get`].
    pub fn get<'t>(&self, of: impl Into<RowsOf<'t>>, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let state = self.state_of(of.into())?;
        self.live.unless_ended(state.get(&self.live.engine, key.as_ref(), self.live.view()))
    }

    /// The rows in `range` at the snapshot's moment, ascending; [`rev`](Iterator::rev) makes it descending.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] as of [`get`](Self::get); [`Error::TreeNotFound`]: the tree is of another database.
    /// Those of [`get`](Self::get) come from the scan.
    pub fn scan<'t>(&self, of: impl Into<RowsOf<'t>>, range: impl KeyRange) -> Result<Scan, Error> {
        let state = self.state_of(of.into())?;
        Ok(Scan::new(&self.live.engine, state, Reader::at(&self.live), Some(range.into_bounds())))
    }

    /// The row with the lowest key at the snapshot's moment. Costs as much as a [`scan`](Self::scan) of one leaf.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first<'t>(&self, of: impl Into<RowsOf<'t>>) -> Result<Option<OwnedRow>, Error> {
        self.scan(of, ..)?.next().transpose()
    }

    /// The row with the highest key; otherwise like [`first`](Self::first).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last<'t>(&self, of: impl Into<RowsOf<'t>>) -> Result<Option<OwnedRow>, Error> {
        self.scan(of, ..)?.next_back().transpose()
    }

    /// The entries of an index with fields in `range` at the snapshot's moment: fields and primary key of each.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`]: the index was built after the snapshot was taken. Otherwise those of
    /// [`scan`](Self::scan).
    pub fn entries(&self, of: &Index, range: impl KeyRange) -> Result<IndexScan, Error> {
        self.check_index(of)?;
        Ok(of.scan_at(Reader::at(&self.live), range))
    }

    /// The rows with fields in `range` at the snapshot's moment, in the order of the fields: primary key and row of
    /// each. Unlike [`Index::rows`] it returns each row exactly once.
    ///
    /// # Errors
    /// Those of [`entries`](Self::entries).
    pub fn rows(&self, of: &Index, range: impl KeyRange) -> Result<IndexRows, Error> {
        self.check_index(of)?;
        Ok(of.rows_at(Reader::at(&self.live), range))
    }

    fn check_index(&self, index: &Index) -> Result<(), Error> {
        self.state_of(RowsOf::from(&index.table))?;
        index.state.entries.check_snapshot(self.live.at())
    }

    fn state_of<'t>(&self, RowsOf { engine, state }: RowsOf<'t>) -> Result<&'t Arc<TreeState>, Error> {
        if !Arc::ptr_eq(engine, &self.live.engine) {
            let message = format!("{state} is of another database than the snapshot: use a handle from the same");
            return Err(Error::TreeNotFound(message.into()));
        }
        state.check_snapshot(self.live.at())?;
        Ok(state)
    }
}
