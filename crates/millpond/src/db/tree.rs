//! Handles of trees, and scans.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, OnceLock};

use super::batch::{Change, Op};
use super::ddl::open_state;
use super::engine::{Engine, closed};
use super::index_key::KeyRange;
use super::plan::shown;
use super::write::write;
use crate::base::error::{Error, MEND_INDEX};
use crate::base::ids::SpaceId;
use crate::base::operations::OperationKind;
use crate::base::sync::{ReadGuard, RwLock};
use crate::base::waits::{WaitClass, Waits};
use crate::btree::descent::{Restarts, Root, Target, leaf_read};
use crate::btree::scan::{ReadAhead, RowRef, Rows, Seen, leaf_backward, leaf_forward, row};

/// What all handles of one tree share.
pub(crate) struct TreeState {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) space: SpaceId,
    pub(crate) root: Root,
    /// The tree with the chunks of long values, once there is one.
    pub(super) chunks: OnceLock<Arc<TreeState>>,
    /// Tells the trees of one open database from those of another.
    pub(crate) database: usize,
    /// Shared by operations under way, exclusive for who drops the tree or closes the database.
    pub(crate) gate: RwLock<Gate>,
}

/// What a tree is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A tree by itself.
    Tree,
    /// It has the rows of the table of its name.
    Rows,
    /// It has the chunks of long values of the tree or table of its name.
    Chunks,
    /// It is an index of this table.
    Index { table: String, is_unique: bool },
    /// It has the keys of entries that came or went while an index of this table is made.
    Notes { table: String },
}

/// Whether operations may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Dropped,
    /// Another tree has its name now, which was empty at first.
    Truncated,
    Closed,
}

impl TreeState {
    /// Lets an operation in, unless the tree is dropped or the database closed. May wait on `metadata` for who does
    /// that.
    pub(crate) fn enter(&self, waits: &Waits) -> Result<ReadGuard<'_, Gate>, Error> {
        let gate = self.gate.try_read().unwrap_or_else(|| waits.timed(WaitClass::Metadata, || self.gate.read()));
        match *gate {
            Gate::Open => Ok(gate),
            Gate::Dropped => Err(self.dropped()),
            Gate::Truncated => {
                Err(Error::TreeNotFound(format!("{self} was truncated: open it again by its name").into()))
            }
            Gate::Closed => Err(closed()),
        }
    }

    /// Why nobody finds it in the catalog.
    pub(super) fn gone(&self, waits: &Waits) -> Error {
        self.enter(waits).err().unwrap_or_else(|| self.dropped())
    }

    fn dropped(&self) -> Error {
        Error::TreeNotFound(format!("{self} was dropped").into())
    }

    /// The tree with the chunks of long values. Who has entered this one need not enter it: they are dropped together.
    pub(super) fn chunks(&self) -> Option<&Arc<TreeState>> {
        self.chunks.get()
    }

    /// This tree, and that with the chunks.
    pub(super) fn with_chunks(self: &Arc<Self>) -> impl Iterator<Item = &Arc<TreeState>> {
        std::iter::once(self).chain(self.chunks())
    }

    /// The chunks are in this space.
    pub(super) fn set_chunks(&self, engine: &Engine, space: Option<SpaceId>) {
        if let Some(space) = space {
            self.chunks.get_or_init(|| open_state(engine, &self.name, space, Role::Chunks));
        }
    }

    /// The error for an insert of a key that is there.
    #[cold]
    pub(crate) fn has_already(&self, key: &[u8]) -> Error {
        let key = shown(key);
        match self.role {
            Role::Tree | Role::Rows => {
                Error::KeyExists(format!("{self} has key {key} already: update or put it").into())
            }
            Role::Index { is_unique: true, .. } => {
                let way_out = "change that row first, or give this one another value";
                Error::KeyExists(format!("{self} is unique, and another row has {key} there: {way_out}").into())
            }
            Role::Index { is_unique: false, .. } | Role::Chunks | Role::Notes { .. } => {
                let way_out = MEND_INDEX;
                Error::Corruption(format!("{self} has the entry {key} of a row that has none: {way_out}").into())
            }
        }
    }

    /// The value of `key`: the newest committed one.
    pub(super) fn get(&self, engine: &Engine, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        engine.home.check()?;
        let _operation = engine.waits.operation(OperationKind::Get);
        let _gate = self.enter(&engine.waits)?;
        // Most reads find all in memory, and have none.
        let mut restarts: Option<Restarts<'_>> = None;
        loop {
            match leaf_read(&engine.core, &self.root, Target::Key(key)) {
                Ok(page) => {
                    let view = page.view();
                    let Ok(index) = view.search(key) else { return Ok(None) };
                    let (here, place) = match row(view, index, |txn| engine.txns.locks.is_in_flight(txn))? {
                        Seen::Row(payload) => return Ok(Some(payload.to_vec())),
                        Seen::Gone => return Ok(None),
                        Seen::Elsewhere(here, place) => (here.to_vec(), place),
                    };
                    drop(page);
                    restarts.iter_mut().for_each(Restarts::begin_wait);
                    if let Some(payload) = self.find_elsewhere(engine, (key, &here), place)? {
                        return Ok(payload);
                    }
                }
                Err(stop) => restarts.get_or_insert_with(|| Restarts::new(&engine.core.pool)).resolve(stop)?,
            }
        }
    }
}

/// As errors name it.
impl fmt::Display for TreeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_debug();
        match &self.role {
            Role::Tree => write!(f, "tree '{name}'"),
            Role::Rows => write!(f, "table '{name}'"),
            Role::Chunks => write!(f, "the chunks of '{name}'"),
            Role::Index { table, .. } => write!(f, "index '{name}' of table '{}'", table.escape_debug()),
            Role::Notes { table } => {
                write!(f, "what is noted while index '{name}' of table '{}' is made", table.escape_debug())
            }
        }
    }
}

/// A named ordered map of byte strings. Handles are cheap to clone and may be used by many threads.
#[derive(Clone)]
pub struct Tree {
    pub(crate) engine: Arc<Engine>,
    pub(crate) state: Arc<TreeState>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree").field("name", &self.state.name).finish_non_exhaustive()
    }
}

impl Tree {
    /// The tree's name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The value of `key`: the newest committed one, which may be not yet durable. May wait on `admission`,
    /// `free_frame`, `page_read`, `page_latch` and `lane`, and, while the tree is dropped or the database closed, on
    /// `metadata`.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`] when the tree was dropped, [`Error::Closed`] when the database was closed,
    /// [`Error::OtherProcess`] in a fork of the process that opened it,
    /// [`Error::Corruption`] and [`Error::DeviceFailed`] when a page cannot be read, [`Error::ReadOnly`] when the
    /// engine has stopped and no frame is left for the page.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.state.get(&self.engine, key)
    }

    fn write_one(&self, key: &[u8], change: Change<&[u8]>) -> Result<bool, Error> {
        self.engine.home.check()?;
        write(&self.engine, &mut [Op::new(&self.state, key, change)], self.engine.in_force.durability())
    }

    /// Adds `key`, which must not be there.
    ///
    /// # Errors
    /// [`Error::KeyExists`], and those of [`Db::write`](crate::Db::write).
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write_one(key, Change::Insert(value)).map(drop)
    }

    /// Sets `key`, whether it is there or not.
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write_one(key, Change::Put(value)).map(drop)
    }

    /// Sets `key`, which must be there.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`], and those of [`Db::write`](crate::Db::write).
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.write_one(key, Change::Update(value)).map(drop)
    }

    /// Removes `key`; true if it was there.
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        self.write_one(key, Change::Delete)
    }

    /// The rows with keys in `range`, ascending. Not a snapshot: each leaf is seen as it is when the scan comes to it.
    pub fn scan<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Scan {
        self.scan_towards(range, Direction::Forward)
    }

    /// The rows with keys in `range`, descending. Not a snapshot: each leaf is seen as it is when the scan comes to it.
    pub fn scan_back<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Scan {
        self.scan_towards(range, Direction::Backward)
    }

    fn scan_towards<'k>(&self, range: impl RangeBounds<&'k [u8]>, direction: Direction) -> Scan {
        let own = |bound: Bound<&&'k [u8]>| bound.map(|key| key.to_vec());
        self.scan_range(Some((own(range.start_bound()), own(range.end_bound()))), direction)
    }

    /// `None`: nothing.
    pub(super) fn scan_range(&self, range: Option<KeyRange>, direction: Direction) -> Scan {
        let done = range.is_none();
        let (lower, upper) = range.unwrap_or((Bound::Unbounded, Bound::Unbounded));
        let ahead = ReadAhead::new(self.engine.in_force.read_ahead_pages());
        Scan { tree: self.clone(), lower, upper, direction, ahead, rows: Rows::default(), done }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The rows of a range; ends after the first error. As an iterator it gives each row its own memory;
/// [`next_row`](Scan::next_row) only lends them.
#[must_use]
pub struct Scan {
    tree: Tree,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    direction: Direction,
    ahead: ReadAhead,
    rows: Rows,
    done: bool,
}

impl Scan {
    /// Fetches the next leaf's rows.
    fn advance(&mut self) -> Result<(), Error> {
        let Scan { tree, lower, upper, direction, ahead, rows, done } = self;
        tree.engine.home.check()?;
        let _operation = tree.engine.waits.operation(OperationKind::Scan);
        let _gate = tree.state.enter(&tree.engine.waits)?;
        let (core, root) = (&tree.engine.core, &tree.state.root);
        let is_in_flight = |txn| tree.engine.txns.locks.is_in_flight(txn);
        loop {
            let next = match direction {
                Direction::Forward => leaf_forward(core, root, &is_in_flight, lower, upper, ahead, rows)?,
                Direction::Backward => leaf_backward(core, root, &is_in_flight, lower, upper, ahead, rows)?,
            };
            if rows.resolve(|row, place| tree.state.find_elsewhere(&tree.engine, row, place))?.is_none() {
                continue;
            }
            match (*direction, next) {
                (Direction::Forward, Some(high)) => *lower = Bound::Included(high),
                (Direction::Backward, Some(low)) => *upper = Bound::Excluded(low),
                (_, None) => *done = true,
            }
            return Ok(());
        }
    }

    /// The next key and value, borrowed until the scan goes on; `None`: the range is exhausted, or an error came
    /// before. The same rows as those of the iterator, without an allocation for each.
    ///
    /// # Errors
    /// Those of [`Tree::get`].
    pub fn next_row(&mut self) -> Result<Option<RowRef<'_>>, Error> {
        while self.rows.is_empty() {
            if self.done {
                return Ok(None);
            }
            if let Err(error) = self.advance() {
                self.done = true;
                return Err(error);
            }
        }
        Ok(match self.direction {
            Direction::Forward => self.rows.take_first(),
            Direction::Backward => self.rows.take_last(),
        })
    }
}

impl Iterator for Scan {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec()))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::btree::split::{Pending, split_leaf};
    use crate::db::database::Db;
    use crate::db::options::Options;
    use crate::io::simulated::SimulatedDisk;
    use crate::pool::buffer_pool::Pool;
    use crate::simulation::{run, sleep_ns, spawn};

    /// An operation that has started again so often that it is in the lane.
    fn in_the_lane(pool: &Pool) -> Restarts<'_> {
        let mut restarts = Restarts::new(pool);
        while restarts.kept_in_lane().is_none() {
            restarts.start_again();
        }
        restarts
    }

    #[test]
    fn who_is_in_the_lane_keeps_it_and_its_pages_over_a_split_and_others_wait() {
        run(1, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
            let options = options.redo_capacity(ByteSize::mib(2));
            let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
            let tree = db.create_tree("t").expect("created");
            (0..400u32).for_each(|key| tree.put(&key.to_be_bytes(), &[7; 900]).expect("written"));
            let (core, state) = (&tree.engine.core, &tree.state);
            let mut restarts = in_the_lane(&core.pool);
            // Most leaves are not in memory by now.
            let key = 50u32.to_be_bytes();
            while let Err(stop) = leaf_read(core, &state.root, Target::Key(&key)) {
                restarts.resolve(stop).expect("loaded");
            }
            let kept = restarts.kept_in_lane();
            assert!(kept > Some(0), "the leaf was loaded, and is kept");
            let other = tree.clone();
            let second = spawn("second", move || drop(in_the_lane(&other.engine.core.pool))).expect("a thread");
            let pages = core.store.used_count(state.space);
            let more: Vec<_> = (0..4).map(|n| Pending { key: [&key[..], &[n]].concat(), value_len: 900 }).collect();
            split_leaf(core, &state.root, &more, &mut restarts).expect("split");
            assert!(core.store.used_count(state.space) > pages, "it was split");
            assert!(restarts.kept_in_lane() >= kept, "what it kept is kept");
            sleep_ns(1_000_000);
            drop(restarts);
            second.join().expect("no panic");
            let lane = db.waits()[WaitClass::Lane as usize];
            assert!(lane.count == 2 && lane.total.as_millis() >= 1, "{lane:?}");
            db.close().expect("closed");
        });
    }
}
