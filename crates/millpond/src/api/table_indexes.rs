//! Creating and dropping a table's indexes.

use std::sync::Arc;

use crate::api::index::Index;
use crate::api::table::Table;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::ddl::{catalog, claim, close_trees};
use crate::engine::durable::wait_durable;
use crate::engine::table_state::IndexState;
use crate::engine::tree_state::Gate;
use crate::load::index_build::{Build, catalog_entry};
use crate::schema::catalog_entry::Entry;
use crate::schema::definition::{Field, IndexDefinition};

impl Table {
    /// A handle of the index `name`. Waits on `metadata` while another thread adds or drops an index of the table.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]: the table has no such index.
    pub fn index(&self, name: &str) -> Result<Index, Error> {
        self.engine.home.check()?;
        let all = self.state.indexes(&self.engine.waits);
        match all.iter().find(|index| index.definition.name == name) {
            Some(index) => Ok(Index { table: self.clone(), state: Arc::clone(index) }),
            None => Err(self.no_index(name, &all)),
        }
    }

    /// The error for an index that is not among `all`.
    #[cold]
    fn no_index(&self, name: &str, all: &[Arc<IndexState>]) -> Error {
        let all: Vec<&str> = all.iter().map(|index| index.definition.name.as_str()).collect();
        let has = if all.is_empty() { "none".to_owned() } else { format!("'{}'", all.join("', '")) };
        Error::TreeNotFound(format!("{} has no index '{name}': it has {has}", self.state.rows).into())
    }

    /// Builds an index of the table's rows. Any number of rows may have the same bytes in `fields`. On return all
    /// handles of the table have the index. A crash leaves the whole index or nothing.
    ///
    /// Other threads may read and write rows during the build. Writers wait at its beginning and end until batches
    /// under way have ended, and transactions that have changed or locked rows of the table; at the end also until the
    /// build has applied their last few changes. If writers are faster than the build, they also wait now and then in
    /// between. During the build each change of a row writes up to two more rows, in each of which the fields and the
    /// primary key together must fit in a key.
    ///
    /// Entries are sorted as [`bulk_load_unsorted`](crate::Db::bulk_load_unsorted) sorts rows, and bypass the log and
    /// the buffer pool. May wait on `metadata` while another index of the table is built, and wherever a bulk load may.
    ///
    /// # Errors
    /// * [`Error::LockTimeout`]: a transaction that has changed or locked rows of the table has not ended within 50 s.
    /// * [`Error::TreeExists`]: the table has an index of this name. [`Error::InvalidOptions`] as of
    ///   [`create_table`](crate::Db::create_table).
    /// * [`Error::RowTooShort`]: a row lacks bytes that the index covers. [`Error::KeyTooLong`]: an entry is too long.
    /// * [`Error::TreeNotFound`]: the table was dropped or truncated. [`Error::Closed`]: the database was closed.
    /// * [`Error::OutOfSpace`], [`Error::DeviceFailed`], [`Error::ReadOnly`].
    ///
    /// After an error the index does not exist. Only after `DeviceFailed` and `ReadOnly` it may: reopen, then look.
    ///
    /// # Example
    /// ```
    /// use millpond::{Field, TableDefinition};
    ///
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let db = millpond::Db::open(dir.path(), millpond::Options::new())?;
    /// let people = db.create_table("people", TableDefinition::new())?;
    /// people.insert(b"1", b"nyada")?;
    /// people.insert(b"2", b"labob")?;
    /// let by_city = people.create_index("by_city", [Field::value(0..2)])?;
    /// assert_eq!(by_city.rows("la"..).count(), 2);
    /// # Ok::<(), millpond::Error>(())
    /// ```
    pub fn create_index(&self, name: &str, fields: impl IntoIterator<Item = Field>) -> Result<Index, Error> {
        self.build_index(name, fields.into_iter().collect(), false)
    }

    /// Builds a unique index of the table's rows: no two rows may have the same bytes in all `fields`. Otherwise like
    /// [`create_index`](Self::create_index).
    ///
    /// # Errors
    /// [`Error::NotUnique`]: two rows have the same fields, or had them during the build; the error names both rows.
    /// Those of `create_index`.
    pub fn create_unique_index(&self, name: &str, fields: impl IntoIterator<Item = Field>) -> Result<Index, Error> {
        self.build_index(name, fields.into_iter().collect(), true)
    }

    fn build_index(&self, name: &str, fields: Vec<Field>, is_unique: bool) -> Result<Index, Error> {
        self.engine.home.check()?;
        let _turn = self.state.build_turn(&self.engine.waits);
        let definition = IndexDefinition { name: name.to_owned(), is_unique, fields };
        let (index, end) = Build::run(&self.engine, &self.state, definition)?;
        wait_durable(&self.engine, end, self.engine.in_force.durability())?;
        Ok(Index { table: self.clone(), state: index })
    }

    /// Drops an index. Waits for operations on the index, changes of the table's rows that have begun, and transactions
    /// that have changed or locked rows of the table. The index's
    /// handles get [`Error::TreeNotFound`] from then on. A crash leaves the whole index or nothing.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]: the table has no such index, or the table itself was dropped. [`Error::LockTimeout`]:
    /// such a transaction has not ended within 50 s. Those of [`Db::write`](crate::Db::write).
    pub fn drop_index(&self, name: &str) -> Result<(), Error> {
        let engine = &self.engine;
        engine.home.check()?;
        engine.check_changeable()?;
        let _claim = claim(engine, self.state.rows.space)?;
        let _ddl = engine.ddl();
        let mut entry = catalog_entry(engine, &self.state)?;
        let mut indexes = self.state.close(&engine.waits);
        let Some(at) = indexes.all.iter().position(|index| index.definition.name == name) else {
            return Err(self.no_index(name, &indexes.all));
        };
        entry.definition.indexes.remove(at);
        entry.indexes.remove(at);
        let entry = Entry::Table(entry);
        let trees = vec![Arc::clone(&indexes.all[at].entries)];
        let replace = |spaces: &[SpaceId]| catalog::replace(engine, self.name(), &entry, spaces);
        let end = close_trees(engine, trees, Gate::Dropped, replace)?;
        indexes.all.remove(at);
        drop(indexes);
        wait_durable(engine, end, engine.in_force.durability())
    }
}
