//! Bulk loads of tables: rows, long values and all indexes are made beside everything else, and named in one group.

use std::sync::Arc;

use super::bulk_load::{Load, check_may_begin};
use super::catalog_entry::{Entry, TableEntry};
use super::database::Db;
use super::ddl::{check_definition, check_name, table_handle};
use super::definition::TableDefinition;
use super::load_rows::RowsLoad;
use super::table::Table;
use crate::base::error::Error;
use crate::base::ids::SpaceId;

impl Db {
    /// Creates a table of the rows of `rows`, whose primary keys ascend strictly, with all indexes of the definition.
    /// It is there as a whole, and durable, when this returns; before, and after an error or a crash, nothing of it is.
    ///
    /// Rows go to pages of their own as in [`bulk_load`](Self::bulk_load), and so do the entries of the indexes, one
    /// index after the other behind the rows. Until then entries are sorted, as rows are by
    /// [`bulk_load_unsorted`](Self::bulk_load_unsorted): the indexes share a quarter of the buffer pool's size (256 KiB
    /// to 64 MiB of entries, or 128 KiB for each if that is more, and some MiB while they are written), beside
    /// [`Stats::memory_budget`](crate::Stats::memory_budget), and what is more goes to files. May wait on what
    /// `bulk_load` waits on.
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
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new().cached(true))?;
    /// let by_city = TableDefinition::new().index("by_city", [Field::value(0..2)]);
    /// let people = db.bulk_load_table("people", by_city, [(b"1", b"nyada"), (b"2", b"labob"), (b"3", b"nyeve")])?;
    /// assert_eq!(people.index("by_city")?.rows(&b"ny"[..]..=&b"ny"[..]).count(), 2);
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
            load.push(key.as_ref(), value.as_ref())?;
        }
        load.finish()
    }

    /// The same of rows in any order, of which no two have the same primary key. They are sorted as by
    /// [`bulk_load_unsorted`](Self::bulk_load_unsorted), and share the memory for that with the indexes.
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
        load.load.add(|into| into.push_unsorted(rows))?;
        load.finish()
    }

    /// Begins a load of a table that does not exist, for a caller whose rows are no iterator, or may fail to come.
    /// Dropped before [`finish`](TableBulkLoad::finish), it leaves nothing behind. When the database is closed
    /// meanwhile, its directory stays in use until the handle is used or dropped.
    ///
    /// # Errors
    /// Those of [`create_table`](Self::create_table).
    pub fn begin_bulk_load_table(&self, name: &str, definition: TableDefinition) -> Result<TableBulkLoad, Error> {
        let engine = self.here()?;
        check_name("table", name)?;
        let indexes = vec![SpaceId::FIRST; definition.indexes.len()];
        let entry = TableEntry { rows: SpaceId::FIRST, chunks: None, definition, indexes };
        check_definition(engine, name, &entry)?;
        check_may_begin(engine, "table", name)?;
        let into = RowsLoad::of_table(engine, name, &entry.definition.indexes)?;
        Ok(TableBulkLoad { load: Load::new("table", name, into), definition: entry.definition })
    }
}

/// A table that is being loaded. See [`Db::begin_bulk_load_table`].
#[derive(Debug)]
#[must_use]
pub struct TableBulkLoad {
    load: Load,
    definition: TableDefinition,
}

impl TableBulkLoad {
    /// Rows that were added.
    pub fn rows(&self) -> u64 {
        self.load.rows
    }

    /// Adds a row, whose primary key is above that of the row before. After an error the load is over, and has given
    /// everything back.
    ///
    /// # Errors
    /// * [`Error::NotAscending`]: the key is not above the one before. It says which row that is.
    /// * [`Error::RowTooShort`]: the row lacks bytes that an index is made of. It says which row that is.
    /// * [`Error::KeyTooLong`]: the key, or an index entry's fields and key together. [`Error::ValueTooLong`].
    /// * [`Error::OutOfSpace`]: the file system is full. [`Error::DeviceFailed`], [`Error::ReadOnly`].
    /// * [`Error::Closed`]: the database was closed. [`Error::TreeNotFound`]: an earlier error has ended the load.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.load.add(|into| into.push(key, value))
    }

    /// Loads the indexes, has all of the table durable, and then its name.
    ///
    /// # Errors
    /// * [`Error::KeyExists`]: two rows have the same fields in a unique index. It names both.
    /// * [`Error::TreeExists`]: somebody else created a tree or a table of that name meanwhile.
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
