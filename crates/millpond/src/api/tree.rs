//! Handles of trees: point reads, writes of one row, scans.

use std::fmt;
use std::sync::Arc;

use crate::base::error::Error;
use crate::btree::scan::OwnedRow;
use crate::engine::Engine;
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::schema::key_range::{KeyRange, Prefix};
use crate::txn::view::View;
use crate::write::batch::{BatchTarget, Place};
use crate::write::op::{Change, Op};
use crate::write::write;

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

    /// Reads the newest committed value of `key`, which may not be durable yet.
    ///
    /// May wait on `admission`, `free_frame`, `page_read`, `page_latch` and `lane`; on `metadata` while another thread
    /// drops the tree or closes the database.
    ///
    /// # Errors
    /// [`Error::TreeNotFound`] when the tree was dropped, [`Error::Closed`] when the database was closed,
    /// [`Error::OtherProcess`] in a fork of the process that opened the database,
    /// [`Error::Corruption`] and [`Error::DeviceFailed`] when a page cannot be read, [`Error::ReadOnly`] when the
    /// engine has stopped and no frame is free for the page.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.state.get(&self.engine, key.as_ref(), View::NEWEST)
    }

    /// Whether `key` exists. Costs as much as [`get`](Self::get).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.get(key).map(|value| value.is_some())
    }

    /// The row with the lowest key; `None`: the tree is empty. Costs as much as a [`scan`](Self::scan) of one leaf,
    /// with all long values of its rows. If a leaf has no row, the next one follows.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self) -> Result<Option<OwnedRow>, Error> {
        self.scan(..).next().transpose()
    }

    /// The row with the highest key; otherwise like [`first`](Self::first).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self) -> Result<Option<OwnedRow>, Error> {
        self.scan(..).next_back().transpose()
    }

    fn write_one(&self, key: &[u8], change: Change<&[u8]>) -> Result<bool, Error> {
        self.engine.home.check()?;
        let done = write(&self.engine, &mut [Op::new(&self.state, key, change)], self.engine.in_force.durability())?;
        Ok(done.was_there)
    }

    /// Adds `key`, which must not exist yet.
    ///
    /// # Errors
    /// [`Error::KeyExists`], and those of [`Db::write`](crate::Db::write).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write_one(key.as_ref(), Change::Insert(value.as_ref())).map(drop)
    }

    /// Sets `key`, whether it exists or not (upsert).
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write_one(key.as_ref(), Change::Put(value.as_ref())).map(drop)
    }

    /// Sets `key`, which must exist.
    ///
    /// # Errors
    /// [`Error::KeyNotFound`], and those of [`Db::write`](crate::Db::write).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.write_one(key.as_ref(), Change::Update(value.as_ref())).map(drop)
    }

    /// Removes `key`. True: it existed.
    ///
    /// # Errors
    /// Those of [`Db::write`](crate::Db::write).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.write_one(key.as_ref(), Change::Delete)
    }

    /// The rows with keys in `range`, ascending; [`rev`](Iterator::rev) makes it descending. The scan sees each
    /// leaf as it is on arrival there; for rows of one moment see [`Snapshot::scan`](crate::Snapshot::scan).
    pub fn scan(&self, range: impl KeyRange) -> Scan {
        Scan::new(&self.engine, &self.state, Reader::newest(), Some(range.into_bounds()))
    }

    /// The rows whose keys begin with `prefix`: a [`scan`](Self::scan) of [`Prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Scan {
        self.scan(Prefix(prefix))
    }
}

impl From<&Tree> for BatchTarget {
    fn from(tree: &Tree) -> BatchTarget {
        BatchTarget(Place::Tree(Arc::clone(&tree.state)))
    }
}

impl From<&&Tree> for BatchTarget {
    fn from(tree: &&Tree) -> BatchTarget {
        BatchTarget::from(*tree)
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::api::database::Db;
    use crate::base::waits::WaitClass;
    use crate::btree::descent::{Restarts, Target, leaf_read};
    use crate::btree::split::{Pending, split_leaf};
    use crate::io::simulated::SimulatedDisk;
    use crate::options::Options;
    use crate::pool::buffer_pool::Pool;
    use crate::simulation::{run, sleep_ns, spawn};

    /// An operation that has restarted so often that it is in the lane.
    fn in_the_lane(pool: &Pool) -> Restarts<'_> {
        let mut restarts = Restarts::new(pool);
        while restarts.kept_in_lane().is_none() {
            restarts.start_again();
        }
        restarts
    }

    #[test]
    fn operation_keeps_the_lane_and_its_pages_over_a_split() {
        run(1, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(160));
            let options = options.redo_capacity(ByteSize::mib(2));
            let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
            let tree = db.create_tree("t").expect("created");
            (0..400u32).for_each(|key| tree.put(key.to_be_bytes(), [7; 900]).expect("written"));
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
            assert!(core.store.used_count(state.space) > pages, "the leaf was split");
            assert!(restarts.kept_in_lane() >= kept, "the operation still keeps its pages");
            sleep_ns(1_000_000);
            drop(restarts);
            second.join().expect("no panic");
            let lane = db.waits()[WaitClass::Lane as usize];
            assert!(lane.count == 2 && lane.total.as_millis() >= 1, "{lane:?}");
            db.close().expect("closed");
        });
    }
}
