//! Bulk loads: a tree is built of sorted rows beside all others, and is there when it is whole.
//!
//! Rows go to a space that nothing leads to ([`super::loading`]), long values to a second one
//! ([`super::load_rows`]). Both are named in one group: a crash leaves all of it or nothing.

use std::sync::Arc;

use super::catalog_entry::Entry;
use super::database::Db;
use super::ddl::{check_name, handle};
use super::engine::Engine;
use super::load_rows::{RowsLoad, check_untaken};
use super::tree::Tree;
use crate::base::error::Error;

impl Db {
    /// Creates a tree of the rows of `rows`, whose keys ascend strictly. It is there as a whole, and durable, when this
    /// returns; before, and after an error or a crash, nothing of it is.
    ///
    /// Rows are not logged, and pass no buffer pool: each page is written once, 15/16 full, 64 of them at a time, from
    /// some 70 pages of memory. Values of more than a quarter of a page go to pages of their own, which take as much
    /// memory once there is one. May wait on `log_space`, `file_growth`, `checkpoint` (for the keeper to make pages
    /// durable), `metadata` (for another load's lot, or who creates or drops trees), `log_flush` (with its begin and
    /// its end), and for pages of root and catalog on `free_frame` and `page_read`.
    ///
    /// # Errors
    /// Those of [`begin_bulk_load`](Self::begin_bulk_load), [`BulkLoad::push`] and [`BulkLoad::finish`].
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new().cached(true))?;
    /// let squares = db.bulk_load("squares", (0..1000u32).map(|n| (n.to_be_bytes(), (n * n).to_string())))?;
    /// assert_eq!(squares.get(&12u32.to_be_bytes())?, Some(b"144".to_vec()));
    /// # Ok::<(), millpond::Error>(())
    /// ```
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Tree, Error> {
        let mut load = self.begin_bulk_load(name)?;
        for (key, value) in rows {
            load.push(key.as_ref(), value.as_ref())?;
        }
        load.finish()
    }

    /// The same of rows in any order, of which no two have the same key: they are sorted first, a quarter of the buffer
    /// pool's size at a time (256 KiB to 64 MiB of rows, and some MiB more while they are written, beside
    /// [`Stats::memory_budget`](crate::Stats::memory_budget)). What is more goes to files beside the database that are
    /// removed again; values of more than a quarter of a page do not, they are in their places at once. In errors about
    /// the order of keys, rows are counted in that order.
    ///
    /// # Errors
    /// Those of [`bulk_load`](Self::bulk_load).
    pub fn bulk_load_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Tree, Error> {
        let mut load = self.begin_bulk_load(name)?;
        load.0.add(|into| into.push_unsorted(rows))?;
        load.finish()
    }

    /// Begins a load of a tree that does not exist, for a caller whose rows are no iterator, or may fail to come.
    /// Dropped before [`finish`](BulkLoad::finish), it leaves nothing behind.
    ///
    /// # Errors
    /// Those of [`create_tree`](Self::create_tree).
    pub fn begin_bulk_load(&self, name: &str) -> Result<BulkLoad, Error> {
        let engine = self.here()?;
        check_name("tree", name)?;
        check_may_begin(engine, "tree", name)?;
        Ok(BulkLoad(Load::new("tree", name, RowsLoad::of_tree(engine, name)?)))
    }
}

/// Refuses a load into something that exists, or of a database that was closed.
pub(super) fn check_may_begin(engine: &Engine, what: &str, name: &str) -> Result<(), Error> {
    let _ddl = engine.ddl();
    engine.check_changeable()?;
    check_untaken(engine, what, name)
}

/// A tree that is being loaded. See [`Db::begin_bulk_load`].
#[derive(Debug)]
#[must_use]
pub struct BulkLoad(Load);

impl BulkLoad {
    /// Rows that were added.
    pub fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Adds a row, whose key is above that of the row before. After an error the load is over, and has given everything
    /// back.
    ///
    /// # Errors
    /// * [`Error::NotAscending`]: the key is not above the one before. It says which row that is.
    /// * [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    /// * [`Error::OutOfSpace`]: the file system is full. [`Error::DeviceFailed`], [`Error::ReadOnly`].
    /// * [`Error::Closed`]: the database was closed. [`Error::TreeNotFound`]: an earlier error has ended the load.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.0.add(|into| into.push(key, value))
    }

    /// Has all rows durable, and then the tree's name.
    ///
    /// # Errors
    /// * [`Error::TreeExists`]: somebody else created a tree or a table of that name meanwhile.
    /// * Those of [`push`](Self::push); after [`Error::DeviceFailed`] the tree may be there: reopen, then look.
    pub fn finish(self) -> Result<Tree, Error> {
        let (name, mut into) = self.0.build()?;
        let engine = Arc::clone(into.engine());
        let (rows, chunks) = (into.rows(), into.chunks());
        let _ddl = engine.ddl();
        let end = into.name("tree", &name, &Entry::Tree { rows, chunks })?;
        let tree = handle(&engine, &name, rows, chunks);
        engine.core.log.flush_wait(end)?;
        Ok(tree)
    }
}

/// What is common to handles of loads.
pub(super) struct Load {
    /// A tree or a table.
    what: &'static str,
    name: Box<str>,
    pub(super) rows: u64,
    /// Gone after an error.
    into: Option<RowsLoad>,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(self.what).field("name", &self.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl Load {
    pub(super) fn new(what: &'static str, name: &str, into: RowsLoad) -> Load {
        Load { what, name: name.into(), rows: 0, into: Some(into) }
    }

    /// Adds rows; an error ends the load.
    pub(super) fn add(&mut self, push: impl FnOnce(&mut RowsLoad) -> Result<(), Error>) -> Result<(), Error> {
        let Some(into) = &mut self.into else { return Err(self.ended()) };
        into.engine().check_usable()?;
        let pushed = push(into);
        self.rows = into.count;
        if pushed.is_err() {
            self.into = None;
        }
        pushed
    }

    /// Makes all of it but the name, which it returns.
    pub(super) fn build(mut self) -> Result<(Box<str>, RowsLoad), Error> {
        let Some(mut into) = self.into.take() else { return Err(self.ended()) };
        into.engine().check_usable()?;
        into.build()?;
        Ok((self.name, into))
    }

    fn ended(&self) -> Error {
        let message = format!(
            "the bulk load of {} '{}' has ended with an earlier error: begin another one",
            self.what, self.name
        );
        Error::TreeNotFound(message.into())
    }
}
