//! Bulk loads of trees and tables.

use std::sync::Arc;

use crate::api::database::Db;
use crate::api::table::Table;
use crate::api::tree::Tree;
use crate::api::trees::{checked, handle, table_handle};
use crate::base::error::Error;
use crate::ddl::check_name;
use crate::load::bulk_load::{Load, check_may_begin};
use crate::load::load_rows::RowsLoad;
use crate::schema::catalog_entry::{Entry, TableEntry};
use crate::schema::definition::TableDefinition;

impl Db {
    /// Creates a tree from `rows`, whose keys must ascend strictly. On return the whole tree exists and is durable.
    /// Before that, and after an error or a crash, nothing of it exists.
    ///
    /// Rows bypass the log and the buffer pool: the load writes each page once, 15/16 full, 64 pages at a time, from
    /// some 70 pages of memory. Values longer than a quarter of a page go to pages of their own. With the first of them
    /// the load takes twice the memory.
    ///
    /// May wait on `log_space` and `file_growth`; on `checkpoint` until the keeper has made pages durable; on
    /// `metadata` while another load writes pages, or another thread creates or drops trees; on `log_flush` at its
    /// beginning and its end; and, for pages of root and catalog, on `free_frame` and `page_read`.
    ///
    /// # Errors
    /// Those of [`begin_bulk_load`](Self::begin_bulk_load), [`BulkLoad::push`] and [`BulkLoad::finish`].
    ///
    /// # Example
    /// ```
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new())?;
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
            load.push(key, value)?;
        }
        load.finish()
    }

    /// Creates a tree like [`bulk_load`](Self::bulk_load), from rows in any order. No two rows may have the same key.
    ///
    /// The load sorts the rows first. It does so in memory of a quarter of the buffer pool's size (256 KiB to 64 MiB of
    /// rows, and some MiB more while it writes), which [`Stats::memory_budget`](crate::metrics::Stats::memory_budget)
    /// does not include. Rows that exceed it go to temporary files in the database's directory. Values longer than a
    /// quarter of a page are not sorted: they go to their pages at once. Errors about the order of keys number rows as
    /// sorted.
    ///
    /// # Errors
    /// Those of [`bulk_load`](Self::bulk_load).
    pub fn bulk_load_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Tree, Error> {
        let mut load = self.begin_bulk_load(name)?;
        load.push_unsorted(rows.into_iter().map(Ok::<_, Error>))?;
        load.finish()
    }

    /// Begins a load of a new tree, for a caller whose rows come from no iterator, or from a source that may fail. A
    /// handle that is dropped before [`finish`](BulkLoad::finish) leaves nothing behind.
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

impl Db {
    /// Creates a table with all indexes of `definition` from `rows`, whose primary keys must ascend strictly. On return
    /// the whole table exists and is durable. Before that, and after an error or a crash, nothing of it exists.
    ///
    /// Rows are written as by [`bulk_load`](Self::bulk_load), then the entries of one index after the other. Until then
    /// the load sorts the entries, as [`bulk_load_unsorted`](Self::bulk_load_unsorted) sorts rows. The indexes share
    /// memory of a quarter of the buffer pool's size (256 KiB to 64 MiB of entries, or 128 KiB for each index if that
    /// is more, and some MiB while the load writes), which
    /// [`Stats::memory_budget`](crate::metrics::Stats::memory_budget) does not include. Entries that exceed it go to
    /// temporary files. May wait wherever `bulk_load` may.
    ///
    /// # Errors
    /// Those of [`begin_bulk_load_table`](Self::begin_bulk_load_table), [`TableBulkLoad::push`] and
    /// [`TableBulkLoad::finish`].
    ///
    /// # Example
    /// ```
    /// use millpond::{Field, TableDefinition};
    ///
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new())?;
    /// let by_city = TableDefinition::new().index("by_city", [Field::value(0..2)]);
    /// let people = db.bulk_load_table("people", by_city, [(b"1", b"nyada"), (b"2", b"labob"), (b"3", b"nyeve")])?;
    /// assert_eq!(people.index("by_city")?.rows("ny"..="ny").count(), 2);
    /// # Ok::<(), millpond::Error>(())
    /// ```
    pub fn bulk_load_table<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        definition: TableDefinition,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Table, Error> {
        let mut load = self.begin_bulk_load_table(name, definition)?;
        for (key, value) in rows {
            load.push(key, value)?;
        }
        load.finish()
    }

    /// Creates a table like [`bulk_load_table`](Self::bulk_load_table), from rows in any order. No two rows may have
    /// the same primary key. The load sorts them as [`bulk_load_unsorted`](Self::bulk_load_unsorted) does; rows and
    /// indexes share the memory for that.
    ///
    /// # Errors
    /// Those of [`bulk_load_table`](Self::bulk_load_table).
    pub fn bulk_load_table_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        definition: TableDefinition,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Table, Error> {
        let mut load = self.begin_bulk_load_table(name, definition)?;
        load.push_unsorted(rows.into_iter().map(Ok::<_, Error>))?;
        load.finish()
    }

    /// Begins a load of a new table, for a caller whose rows come from no iterator, or from a source that may fail. A
    /// handle that is dropped before [`finish`](TableBulkLoad::finish) leaves nothing behind.
    ///
    /// # Errors
    /// Those of [`create_table`](Self::create_table).
    pub fn begin_bulk_load_table(&self, name: &str, definition: TableDefinition) -> Result<TableBulkLoad, Error> {
        let engine = self.here()?;
        let entry = checked(engine, name, definition)?;
        check_may_begin(engine, "table", name)?;
        let into = RowsLoad::of_table(engine, name, &entry.definition.indexes)?;
        Ok(TableBulkLoad { load: Load::new("table", name, into), definition: entry.definition })
    }
}

/// A load of a tree under way. See [`Db::begin_bulk_load`].
#[derive(Debug)]
#[must_use]
pub struct BulkLoad(pub(crate) Load);

impl BulkLoad {
    /// Rows that were added.
    pub fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Adds a row, whose key must be greater than that of the row before. An error ends the load, which then gives back
    /// all its space.
    ///
    /// # Errors
    /// * [`Error::NotAscending`]: the key is not greater than the one before. The error names the row.
    /// * [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    /// * [`Error::OutOfSpace`]: the file system is full. [`Error::DeviceFailed`], [`Error::ReadOnly`].
    /// * [`Error::Closed`]: the database was closed. [`Error::TreeNotFound`]: an earlier error has ended the load.
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.0.add(|into| into.push(key.as_ref(), value.as_ref()))
    }

    /// Adds rows in any order, which are sorted as by [`Db::bulk_load_unsorted`]. Their keys must be greater than that
    /// of a row added before. An error of the source ends the load like one of its own.
    ///
    /// # Errors
    /// Those of the source, and of [`push`](Self::push).
    ///
    /// # Example
    /// ```
    /// use std::error::Error;
    ///
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new())?;
    /// let lines = ["b 2", "a 1"].map(|line| line.split_once(' ').ok_or("a line without a space"));
    /// let mut load = db.begin_bulk_load("letters")?;
    /// load.push_unsorted(lines.map(|row| row.map_err(Box::<dyn Error>::from)))?;
    /// assert_eq!(load.finish()?.first()?, Some((b"a".to_vec(), b"1".to_vec())));
    /// # Ok::<(), Box<dyn Error>>(())
    /// ```
    pub fn push_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &mut self,
        rows: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<(), E> {
        self.0.add(|into| into.push_unsorted(rows))
    }

    /// Makes all rows durable, then the tree's name.
    ///
    /// # Errors
    /// * [`Error::TreeExists`]: a tree or a table of that name was created meanwhile.
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

/// A load of a table under way. See [`Db::begin_bulk_load_table`].
#[derive(Debug)]
#[must_use]
pub struct TableBulkLoad {
    pub(crate) load: Load,
    definition: TableDefinition,
}

impl TableBulkLoad {
    /// Rows that were added.
    pub fn rows(&self) -> u64 {
        self.load.rows
    }

    /// Adds a row, whose primary key must be greater than that of the row before. An error ends the load, which then
    /// gives back all its space.
    ///
    /// # Errors
    /// * [`Error::NotAscending`]: the key is not greater than the one before. The error names the row.
    /// * [`Error::RowTooShort`]: the row lacks bytes that an index covers. The error names the row.
    /// * [`Error::KeyTooLong`]: the key is too long, or an index entry's fields and key together are.
    /// * [`Error::ValueTooLong`].
    /// * [`Error::OutOfSpace`]: the file system is full. [`Error::DeviceFailed`], [`Error::ReadOnly`].
    /// * [`Error::Closed`]: the database was closed. [`Error::TreeNotFound`]: an earlier error has ended the load.
    pub fn push(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.load.add(|into| into.push(key.as_ref(), value.as_ref()))
    }

    /// Adds rows in any order, like [`BulkLoad::push_unsorted`].
    ///
    /// # Errors
    /// Those of the source, and of [`push`](Self::push).
    pub fn push_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>, E: From<Error>>(
        &mut self,
        rows: impl IntoIterator<Item = Result<(K, V), E>>,
    ) -> Result<(), E> {
        self.load.add(|into| into.push_unsorted(rows))
    }

    /// Loads the indexes, makes the whole table durable, then its name.
    ///
    /// # Errors
    /// * [`Error::NotUnique`]: two rows have the same fields in a unique index. The error names both rows.
    /// * [`Error::TreeExists`]: a tree or a table of that name was created meanwhile.
    /// * Those of [`push`](Self::push); after [`Error::DeviceFailed`] the table may be there: reopen, then look.
    pub fn finish(self) -> Result<Table, Error> {
        let (name, mut into) = self.load.build()?;
        let engine = Arc::clone(into.engine());
        let (rows, chunks, indexes) = (into.rows(), into.chunks(), into.indexes());
        let entry = TableEntry { rows, chunks, definition: self.definition, indexes };
        let _ddl = engine.ddl();
        let end = into.name("table", &name, &Entry::Table(entry.clone()))?;
        let table = table_handle(&engine, &name, entry);
        engine.core.log.flush_wait(end)?;
        Ok(table)
    }
}
