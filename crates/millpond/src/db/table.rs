//! Handles of tables: rows by their primary key, whose indexes never disagree with them.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::chunks::have_places;
use super::engine::Engine;
use super::index::Index;
use super::plan::shown;
use super::row_changes::{EntryChanges, IndexState, TableState};
use super::tree::{Scan, Tree};
use super::write::{apply, wait_durable};
use crate::base::error::Error;

/// What [`Table::modify`] makes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modify {
    /// It stays as it is.
    Keep,
    /// It has this value from now on, whether it was there before or not.
    Put(Vec<u8>),
    /// It is not there any more.
    Delete,
}

/// A named ordered map of rows, with indexes over parts of them. Handles are cheap to clone and may be used by many
/// threads.
///
/// A row and its index entries change together or not at all, by whatever call and whatever batch: no reader of
/// either ever sees one without the other for longer than it takes to come from the one to the other (scans are no
/// snapshots), and no crash tears them apart.
///
/// An index's entry has the bytes of its [`Field`](crate::Field)s and of the primary key, together at most as long as a
/// key may be.
///
/// ```
/// use millpond::{Field, Modify, TableDefinition};
///
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let db = millpond::Db::open(dir.path(), millpond::Options::new().cached(true))?;
/// // A city of two letters, and a name.
/// let by_city = TableDefinition::new().index("by_city", [Field::value(0..2)]).unique("by_name", [Field::value(2..)]);
/// let people = db.create_table("people", by_city)?;
/// people.insert(b"1", b"nyada")?;
/// people.insert(b"2", b"labob")?;
/// people.modify(b"2", |row| row.map_or(Modify::Keep, |row| Modify::Put([b"ny", &row[2..]].concat())))?;
///
/// let rows = people.index("by_city")?.rows(&b"ny"[..]..=&b"ny"[..]);
/// let names: Vec<Vec<u8>> = rows.map(|row| row.map(|(_, value)| value[2..].to_vec())).collect::<Result<_, _>>()?;
/// assert_eq!(names, [b"ada", b"bob"]);
/// assert!(people.insert(b"3", b"laada").is_err(), "there is an ada already");
/// # Ok::<(), millpond::Error>(())
/// ```
#[derive(Clone)]
pub struct Table {
    pub(super) engine: Arc<Engine>,
    pub(super) state: Arc<TableState>,
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

    /// The names of the table's indexes, in the order in which they were defined. While one comes or goes, waits on
    /// `metadata`. In a forked child none.
    pub fn indexes(&self) -> impl Iterator<Item = String> {
        let all = self.engine.home.check().map_or_else(|_| Vec::new(), |()| self.state.indexes(&self.engine));
        all.into_iter().map(|index| index.definition.name.clone())
    }

    /// The index `name`. While one comes or goes, waits on `metadata`.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`]: the table has no such index.
    pub fn index(&self, name: &str) -> Result<Index, Error> {
        self.engine.home.check()?;
        let all = self.state.indexes(&self.engine);
        match all.iter().find(|index| index.definition.name == name) {
            Some(index) => Ok(Index { table: self.clone(), state: Arc::clone(index) }),
            None => Err(self.no_index(name, &all)),
        }
    }

    /// The error for an index that is not among `all`.
    #[cold]
    pub(super) fn no_index(&self, name: &str, all: &[Arc<IndexState>]) -> Error {
        let all: Vec<&str> = all.iter().map(|index| index.definition.name.as_str()).collect();
        let has = if all.is_empty() { "none".to_owned() } else { format!("'{}'", all.join("', '")) };
        Error::TreeNotFound(format!("{} has no index '{name}': it has {has}", self.state.rows).into())
    }

    /// The row `key`: the newest committed one, which may be not yet durable. May wait on `admission`,
    /// `free_frame` and `page_read`.
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.state.rows.get(&self.engine, key)
    }

    /// Adds the row `key`, which must not be there. Nothing is read before: the cheapest of all writes.
    ///
    /// # Errors
    /// * [`Error::KeyExists`]: the row is there, or a unique index has its fields.
    /// * [`Error::RowTooShort`]: the row lacks bytes that an index is made of.
    /// * [`Error::KeyTooLong`]: the key, or an index entry's fields and key together.
    /// * Those of [`Db::write`](crate::Db::write).
    pub fn insert(&self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        self.engine.home.check()?;
        self.write_row([Op::new(&self.state.rows, key, Change::Insert(row))], None)
    }

    /// Sets the row `key`, whether it is there or not. Reads it, and goes round if another writer is faster.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert), where only another row's fields in a unique index are [`Error::KeyExists`].
    pub fn put(&self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        self.change(key, |_| Ok(Change::Put(row))).map(drop)
    }

    /// Sets the row `key`, which must be there. Reads it, and goes round if another writer is faster.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`], and those of [`put`](Self::put).
    pub fn update(&self, key: &[u8], row: &[u8]) -> Result<(), Error> {
        let update = |old: Option<&[u8]>| match old {
            Some(_) => Ok(Change::Update(row)),
            None => {
                let message = format!("{} has no key {}: insert or put it", self.state.rows, shown(key));
                Err(Error::KeyNotFound(message.into()))
            }
        };
        self.change(key, update).map(drop)
    }

    /// Removes the row `key`; true if it was there. Reads it, and goes round if another writer is faster.
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.change(key, |_| Ok(Change::Delete))
    }

    /// Makes of the row `key` what `decide` says, which is given the row, or `None` if there is none. True if it was
    /// there.
    ///
    /// Nobody changes the row between the two: if another writer is faster, the row is read and `decide` called again.
    /// So what else it does may happen more than once. With [`Modify::Keep`] nothing is written, nor waited for.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn modify(&self, key: &[u8], mut decide: impl FnMut(Option<&[u8]>) -> Modify) -> Result<bool, Error> {
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

    /// The rows with keys in `range`, ascending. Not a snapshot: each leaf is seen as it is when the scan comes to it.
    pub fn scan<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Scan {
        self.rows().scan(range)
    }

    /// The rows with keys in `range`, descending. Not a snapshot: each leaf is seen as it is when the scan comes to it.
    pub fn scan_back<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Scan {
        self.rows().scan_back(range)
    }

    /// The tree of the rows. Who changes it by itself has the indexes disagree with it.
    pub(super) fn rows(&self) -> Tree {
        Tree { engine: Arc::clone(&self.engine), state: Arc::clone(&self.state.rows) }
    }

    /// Changes the row as `change` says of what it is; true if it was there.
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

    /// Changes the row if it is still `old`; else `Conflict`.
    fn try_change(&self, key: &[u8], old: Option<&[u8]>, change: Change<&[u8]>) -> Result<(), Error> {
        let tree = &self.state.rows;
        if planted!("row_not_expected") {
            return self.write_row([Op::new(tree, key, change)], old);
        }
        self.write_row([Op::new(tree, key, Change::Expect(old)), Op::new(tree, key, change)], old)
    }

    /// Writes what happens to one row, which is `old` so far, the change last, and what follows for the indexes.
    fn write_row<const N: usize>(&self, row: [Op<'_>; N], old: Option<&[u8]>) -> Result<(), Error> {
        let (engine, state) = (&self.engine, &self.state);
        engine.check_changeable()?;
        let _paying = engine.begin_write();
        // While nothing is held.
        have_places(engine, &row)?;
        let done = {
            let indexes = state.enter(engine);
            let mut entries = EntryChanges::default();
            if let Some(Op { key, change, .. }) = row.last() {
                entries.add(state, &indexes, key, old, change.value())?;
            }
            let mut ops: SmallVec<[Op<'_>; 8]> = row.into_iter().chain(entries.ops()).collect();
            apply(engine, &mut ops)?
        };
        wait_durable(engine, done.end, engine.in_force.durability())
    }
}
