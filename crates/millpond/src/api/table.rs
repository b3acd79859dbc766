//! Handles of tables: rows by primary key, and indexes that always agree with the rows.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::api::tree::Tree;
use crate::base::error::Error;
use crate::btree::scan::OwnedRow;
use crate::engine::Engine;
use crate::engine::durable::wait_durable;
use crate::engine::table_state::TableState;
use crate::read::scan::Scan;
use crate::schema::definition::TableDefinition;
use crate::schema::key_range::KeyRange;
use crate::txn::view::View;
use crate::write::batch::{BatchTarget, Place};
use crate::write::chunks::ensure_chunk_trees;
use crate::write::entry_changes::EntryChanges;
use crate::write::op::{Change, Op};
use crate::write::outcome::{Extent, Size};
use crate::write::{apply_with, try_apply};

/// The change that [`Table::modify`] makes to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modify {
    /// None: the row stays as it is.
    Keep,
    /// The row gets this value, whether it existed or not.
    Put(Vec<u8>),
    /// The row is removed.
    Delete,
}

/// A named ordered map of rows, with indexes over parts of them. Handles are cheap to clone and may be used by many
/// threads.
///
/// Every call and every batch changes a row and its index entries together or not at all, also across a crash. Scans
/// without a [`Snapshot`](crate::Snapshot) are not of one moment: a row may change between the moments at which a
/// reader sees its index entry and the row.
///
/// An index entry consists of the bytes of the index's [`Field`](crate::Field)s and of the primary key. Together they
/// may be at most as long as a key.
///
/// ```
/// use millpond::{Field, Modify, TableDefinition};
///
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let db = millpond::Db::open(dir.path(), millpond::Options::new())?;
/// // A city of two letters, and a name.
/// let by_city = TableDefinition::new().index("by_city", [Field::value(0..2)]).unique("by_name", [Field::value(2..)]);
/// let people = db.create_table("people", by_city)?;
/// people.insert(b"1", b"nyada")?;
/// people.insert(b"2", b"labob")?;
/// people.modify(b"2", |row| row.map_or(Modify::Keep, |row| Modify::Put([b"ny", &row[2..]].concat())))?;
///
/// let rows = people.index("by_city")?.rows("ny"..="ny");
/// let names: Vec<Vec<u8>> = rows.map(|row| row.map(|(_, value)| value[2..].to_vec())).collect::<Result<_, _>>()?;
/// assert_eq!(names, [b"ada", b"bob"]);
/// assert!(people.insert(b"3", b"laada").is_err(), "there is an ada already");
/// # Ok::<(), millpond::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    pub(crate) engine: Arc<Engine>,
    pub(crate) state: Arc<TableState>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Table {
    /// The table's name.
    pub fn name(&self) -> &str {
        &self.state.rows.name
    }

    /// The names of the table's indexes, in the order of their definition. Waits on `metadata` while another thread
    /// adds or drops an index of the table. Empty in a forked child.
    pub fn indexes(&self) -> impl Iterator<Item = String> {
        let all = self.engine.home.check().map_or_else(|_| Vec::new(), |()| self.state.indexes(&self.engine.waits));
        all.into_iter().map(|index| index.definition.name.clone())
    }

    /// The definition of the table with its present indexes. Waits on `metadata` while another thread adds or drops an
    /// index of the table. Without indexes in a forked child.
    pub fn definition(&self) -> TableDefinition {
        let all = self.engine.home.check().map_or_else(|_| Vec::new(), |()| self.state.indexes(&self.engine.waits));
        TableDefinition { indexes: all.iter().map(|index| index.definition.clone()).collect() }
    }

    /// Reads the newest committed version of row `key`, which may not be durable yet. May wait on `admission`,
    /// `free_frame` and `page_read`.
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.state.rows.get(&self.engine, key.as_ref(), View::NEWEST)
    }

    /// Whether the row `key` exists. Costs as much as [`get`](Self::get).
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.rows().contains_key(key)
    }

    /// The row with the lowest primary key; `None`: the table is empty. Otherwise like [`Tree::first`].
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn first(&self) -> Result<Option<OwnedRow>, Error> {
        self.rows().first()
    }

    /// The row with the highest primary key; `None`: the table is empty. Otherwise like [`Tree::first`].
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn last(&self) -> Result<Option<OwnedRow>, Error> {
        self.rows().last()
    }

    /// Adds the row `key`, which must not exist yet. The cheapest write: it does not read the row first.
    ///
    /// # Errors
    /// * [`Error::KeyExists`]: the row exists, or another row has the same fields in a unique index.
    /// * [`Error::RowTooShort`]: the row lacks bytes that an index covers.
    /// * [`Error::KeyTooLong`]: the key is too long, or an index entry's fields and key together are.
    /// * Those of [`Db::write`](crate::Db::write).
    pub fn insert(&self, key: impl AsRef<[u8]>, row: impl AsRef<[u8]>) -> Result<(), Error> {
        self.engine.home.check()?;
        self.write_row([Op::new(&self.state.rows, key.as_ref(), Change::Insert(row.as_ref()))], None)
    }

    /// Sets the row `key`, whether it exists or not. Reads the row first, and retries if another writer changes it
    /// before the write.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert), but [`Error::KeyExists`] only for another row's fields in a unique index.
    pub fn put(&self, key: impl AsRef<[u8]>, row: impl AsRef<[u8]>) -> Result<(), Error> {
        let row = row.as_ref();
        self.change(key.as_ref(), |_| Ok(Change::Put(row))).map(drop)
    }

    /// Sets the row `key`, which must exist. Reads the row first, and retries if another writer changes it before the
    /// write.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`], and those of [`put`](Self::put).
    pub fn update(&self, key: impl AsRef<[u8]>, row: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, row) = (key.as_ref(), row.as_ref());
        let update = |old: Option<&[u8]>| match old {
            Some(_) => Ok(Change::Update(row)),
            None => Err(self.state.rows.has_no(key)),
        };
        self.change(key, update).map(drop)
    }

    /// Removes the row `key`. True: it existed. Reads the row first, and retries if another writer changes it before
    /// the write.
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.change(key.as_ref(), |_| Ok(Change::Delete))
    }

    /// Reads the row `key`, calls `decide` with it (`None`: no such row), and makes the change that `decide` returns.
    /// True: the row existed.
    ///
    /// Read and write are atomic: if another writer changes the row in between, `modify` reads the row and calls
    /// `decide` again. So side effects of `decide` may happen more than once. [`Modify::Keep`] writes nothing, and does
    /// not wait for durability.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn modify(
        &self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&[u8]>) -> Modify,
    ) -> Result<bool, Error> {
        let key = key.as_ref();
        self.engine.check_changeable()?;
        loop {
            let old = self.get(key)?;
            let decision = decide(old.as_deref());
            let change = match &decision {
                Modify::Keep => return Ok(old.is_some()),
                Modify::Put(row) => Change::Put(row.as_slice()),
                Modify::Delete => Change::Delete,
            };
            match self.try_change(key, old.as_deref(), change) {
                Err(Error::Conflict(_)) => {}
                done => return done.map(|()| old.is_some()),
            }
        }
    }

    /// The rows with keys in `range`, ascending; [`rev`](Iterator::rev) makes it descending. The scan sees each
    /// leaf as it is on arrival there; for rows of one moment see [`Snapshot::scan`](crate::Snapshot::scan).
    pub fn scan(&self, range: impl KeyRange) -> Scan {
        self.rows().scan(range)
    }

    /// The rows whose keys begin with `prefix`: a [`scan`](Self::scan) of [`Prefix`](crate::Prefix).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.rows().prefix(prefix)
    }

    /// The tree of the rows. A caller that changes it directly makes the indexes disagree with the rows.
    pub(crate) fn rows(&self) -> Tree {
        Tree { engine: Arc::clone(&self.engine), state: Arc::clone(&self.state.rows) }
    }

    /// Reads the row, and makes the change that `change` returns for it; retries on a conflict. True: the row existed.
    fn change<'r>(
        &self,
        key: &[u8],
        change: impl Fn(Option<&[u8]>) -> Result<Change<&'r [u8]>, Error>,
    ) -> Result<bool, Error> {
        self.engine.check_changeable()?;
        loop {
            let old = self.get(key)?;
            match self.try_change(key, old.as_deref(), change(old.as_deref())?) {
                Err(Error::Conflict(_)) => {}
                done => return done.map(|()| old.is_some()),
            }
        }
    }

    /// Makes `change` if the row is still `old`, else returns `Conflict`.
    fn try_change(&self, key: &[u8], old: Option<&[u8]>, change: Change<&[u8]>) -> Result<(), Error> {
        let tree = &self.state.rows;
        if planted!("row_not_expected") {
            return self.write_row([Op::new(tree, key, change)], old);
        }
        self.write_row([Op::new(tree, key, Change::Expect(old)), Op::new(tree, key, change)], old)
    }

    /// Writes the operations `row` on one row, whose value so far is `old`, with the changes of index entries that
    /// follow. The last operation is the row's change.
    fn write_row<const N: usize>(&self, row: [Op<'_>; N], old: Option<&[u8]>) -> Result<(), Error> {
        let (engine, state) = (&self.engine, &self.state);
        engine.check_changeable()?;
        let _paying = engine.begin_write();
        // It may wait on `metadata`, so it comes before the table's gate.
        ensure_chunk_trees(engine, &row)?;
        let done = apply_with(engine, |slot| {
            let indexes = state.enter(&engine.waits);
            let mut entries = EntryChanges::default();
            if let Some(Op { key, change, .. }) = row.last() {
                entries.add(state, &indexes, key, old, change.value())?;
            }
            let mut ops: SmallVec<[Op<'_>; 8]> = row.into_iter().chain(entries.ops()).collect();
            try_apply(engine, &mut ops, Extent::Batch, Size::Any, slot)
        })?;
        let done = done.ok_or_else(|| Error::Bug("a row is too large for a batch of any size".into()))?;
        wait_durable(engine, done.end, engine.in_force.durability())
    }
}

impl From<&Table> for BatchTarget {
    fn from(table: &Table) -> BatchTarget {
        BatchTarget(Place::Table(Arc::clone(&table.state)))
    }
}

impl From<&&Table> for BatchTarget {
    fn from(table: &&Table) -> BatchTarget {
        BatchTarget::from(*table)
    }
}
