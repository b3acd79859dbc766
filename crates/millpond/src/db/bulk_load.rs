//! Bulk loads: a tree is built of sorted rows beside all others, and is there when it is whole.
//!
//! LOAD-1  Before the first image of a page leaves, the log is durable up to a group that formats the space's root: no
//!         other space gets the number. The group's end is the page LSN of all pages but the root, each of which is
//!         written once, and has an id that is not given out again.
//! LOAD-2  Nothing leads to a page before all of them are durable and named by map groups: the group that makes the
//!         root lead to them is behind those in the log, and that with the tree's name is behind it.
//! LOAD-3  Loads write one lot at a time, after the log has had room for its map records, and while no more images of
//!         loads than [`LOADED_MAX`] wait for theirs: so many the log's reserve has room for.
//! LOAD-4  Who gives up, gives the space back, or leaves it to the next open when the database is closed: no name leads
//!         to it.
//!
//! No page of it is in a frame, and no other thread writes it: so it is none of the keeper's turn (WRITER-1), and
//! waits for no frame. Pages are copied once from the caller's rows, and once into the image.

use std::sync::Arc;

use super::catalog;
use super::catalog_entry::Entry;
use super::database::Db;
use super::ddl::{check_name, close_trees, create_root, handle, tree_state};
use super::engine::{CheckpointAnswer, Engine, Wish, closed, stopped};
use super::plan::shown;
use super::sorter::{Sorter, memory_for};
use super::tree::{Gate, Role, Tree, TreeState};
use crate::base::aligned::{AlignedBuf, aligned};
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::page::layout::header_mut;
use crate::base::waits::WaitClass;
use crate::btree::bulk_build::{Builder, Pages, RootPage};
use crate::btree::descent::{Manner, Restarts, leaf_write};
use crate::mtr::Mtr;
use crate::store::page_store::{LOADED_MAX, LOT_PAGES, WriteOp};
use crate::store::space::Share;

/// Levels that a tree has next to never.
const LEVELS: usize = 8;

/// How often a lot is written that finds no slots, before that is a bug.
const TRIES: u32 = 1000;

/// Bytes that a load holds: a lot of pages, and the entries of the last page of each level.
pub(super) fn memory(page_size: usize) -> usize {
    (LOT_PAGES + LEVELS) * page_size
}

impl Db {
    /// Creates a tree of the rows of `rows`, whose keys ascend strictly. It is there as a whole, and durable, when this
    /// returns; before, and after an error or a crash, nothing of it is.
    ///
    /// Rows are not logged, and pass no buffer pool: each page is written once, 15/16 full, 64 of them at a time, from
    /// some 70 pages of memory. May wait on `log_space`, `file_growth`, `checkpoint` (for the keeper to make pages
    /// durable), and `metadata` (for another load's lot).
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
    /// pool's size at a time (256 KiB to 64 MiB, beside [`Stats::memory_budget`](crate::Stats::memory_budget)). What is
    /// more goes to files beside the database that are removed again. In errors about keys, rows are counted in the
    /// order of these.
    ///
    /// # Errors
    /// Those of [`bulk_load`](Self::bulk_load).
    pub fn bulk_load_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        name: &str,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Tree, Error> {
        let mut load = self.begin_bulk_load(name)?;
        let Some(loading) = &load.loading else { return Err(load.ended()) };
        let mut sorter = loading.sorter()?;
        for (number, (key, value)) in (0..).zip(rows) {
            // Closed, it must not keep the directory from others until all rows have come.
            drop(loading.lots.state.enter()?);
            loading.check_len(key.as_ref(), value.as_ref(), number)?;
            sorter.push(key.as_ref(), value.as_ref())?;
        }
        let mut sorted = sorter.finish()?;
        while let Some((key, value)) = sorted.next()? {
            load.push(key, value)?;
        }
        load.finish()
    }

    /// Begins a load of a tree that does not exist, for a caller whose rows are no iterator, or may fail to come.
    /// Dropped before [`finish`](BulkLoad::finish), it leaves nothing behind.
    ///
    /// # Errors
    /// Those of [`create_tree`](Self::create_tree).
    pub fn begin_bulk_load(&self, name: &str) -> Result<BulkLoad, Error> {
        let engine = self.engine();
        check_name("tree", name)?;
        {
            let _ddl = engine.ddl();
            engine.check_open()?;
            if catalog::find(&engine.core, name)?.is_some() {
                return Err(taken(name));
            }
        }
        Ok(BulkLoad { name: name.into(), rows: 0, loading: Some(Loading::begin(engine, name)?) })
    }
}

fn taken(name: &str) -> Error {
    Error::TreeExists(format!("tree '{name}' exists already: load into one of another name, or drop it first").into())
}

/// A tree that is being loaded. See [`Db::begin_bulk_load`].
#[must_use]
pub struct BulkLoad {
    name: Box<str>,
    rows: u64,
    /// Gone after an error.
    loading: Option<Loading>,
}

impl std::fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoad").field("name", &self.name).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl BulkLoad {
    /// Rows that were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    fn ended(&self) -> Error {
        let message =
            format!("the bulk load of tree '{}' has ended with an earlier error: begin another one", self.name);
        Error::TreeNotFound(message.into())
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
        let Some(loading) = &mut self.loading else { return Err(self.ended()) };
        let pushed = loading.push(key, value, self.rows);
        match pushed {
            Ok(()) => self.rows += 1,
            Err(_) => self.loading = None,
        }
        pushed
    }

    /// Has all rows durable, and then the tree's name.
    ///
    /// # Errors
    /// * [`Error::TreeExists`]: somebody else created the tree meanwhile.
    /// * Those of [`push`](Self::push); after [`Error::DeviceFailed`] the tree may be there: reopen, then look.
    pub fn finish(mut self) -> Result<Tree, Error> {
        let Some(mut loading) = self.loading.take() else { return Err(self.ended()) };
        let engine = Arc::clone(&loading.lots.engine);
        loading.build()?;
        let _ddl = engine.ddl();
        engine.check_open()?;
        if catalog::find(&engine.core, &self.name)?.is_some() {
            return Err(taken(&self.name));
        }
        let end = catalog::insert(&engine, &self.name, &Entry::Tree { rows: loading.lots.state.space, chunks: None })?;
        loading.named = true;
        let tree = handle(&engine, &self.name, loading.lots.state.space, None);
        engine.core.log.flush_wait(end)?;
        Ok(tree)
    }
}

/// A space that is filled with a tree. Whoever has a name lead to it says so in `named`; else it is given back.
pub(crate) struct Loading {
    builder: Builder,
    lots: Lots,
    pub(crate) named: bool,
}

impl Loading {
    /// Gives out a space; `what` is the tree's name in messages. May wait on `metadata`, `log_space`, `free_frame`,
    /// `file_growth` and `log_flush`.
    pub(crate) fn begin(engine: &Arc<Engine>, what: &str) -> Result<Loading, Error> {
        let page_size = engine.core.store.page_size();
        let (lsn, loading) = {
            let _ddl = engine.ddl();
            engine.check_open()?;
            let space = engine.core.store.new_space();
            let lsn = create_root(&engine.core, space)?;
            let state = tree_state(engine, what, space, Role::Tree);
            engine.loads.lock().insert(space, Arc::clone(&state));
            let (ops, buf) = (Vec::with_capacity(LOT_PAGES), aligned(LOT_PAGES * page_size));
            let lots = Lots { engine: Arc::clone(engine), state, lsn, buf, ops, asked: None, written: 0 };
            (lsn, Loading { builder: Builder::new(page_size), lots, named: false })
        };
        // LOAD-1
        engine.core.log.flush_wait(lsn)?;
        Ok(loading)
    }

    /// Adds row number `row`, counted from 0.
    pub(crate) fn push(&mut self, key: &[u8], payload: &[u8], row: u64) -> Result<(), Error> {
        if self.builder.last_key().is_some_and(|last| last >= key) {
            return Err(self.not_ascending(key, row));
        }
        self.check_len(key, payload, row)?;
        self.builder.push(key, payload, &mut self.lots)
    }

    fn check_len(&self, key: &[u8], payload: &[u8], row: u64) -> Result<(), Error> {
        let limits = self.lots.engine.limits;
        if key.len() > limits.key || payload.len() > limits.value {
            return Err(self.too_long(key, payload, row));
        }
        Ok(())
    }

    /// The space.
    pub(crate) fn space(&self) -> SpaceId {
        self.lots.state.space
    }

    /// Puts rows in order that are to be pushed.
    pub(crate) fn sorter(&self) -> Result<Sorter, Error> {
        let (engine, space) = (&self.lots.engine, self.lots.state.space);
        let files = engine.files.lock().clone().ok_or_else(closed)?;
        Ok(Sorter::new(files, space, memory_for(engine.core.pool.len() * engine.core.store.page_size())))
    }

    fn not_ascending(&self, key: &[u8], row: u64) -> Error {
        let last = self.builder.last_key().unwrap_or_default();
        let relation = if last == key { "the same as" } else { "below" };
        let message = format!(
            "row {row} (the first is 0) of the bulk load of tree '{}' has key {}, which is {relation} that of the row before, {}: sort the rows by their keys, byte by byte, and give each key once",
            self.lots.state.name,
            shown(key),
            shown(last)
        );
        Error::NotAscending(message.into())
    }

    fn too_long(&self, key: &[u8], payload: &[u8], row: u64) -> Error {
        let limits = self.lots.engine.limits;
        let page_size = self.lots.engine.core.store.page_size();
        let what = format!("row {row} (the first is 0) of the bulk load of tree '{}'", self.lots.state.name);
        if key.len() > limits.key {
            let (shown, len, most) = (shown(key), key.len(), limits.key);
            let message =
                format!("{what}: key {shown} has {len} bytes: at most {most} fit with pages of {page_size} bytes");
            return Error::KeyTooLong(message.into());
        }
        let message = format!(
            "{what}: the value for key {} has {} bytes: at most {} (a quarter of a page) fit; store it in parts or use larger pages",
            shown(key),
            payload.len(),
            limits.value
        );
        Error::ValueTooLong(message.into())
    }

    /// Makes what is left of the tree, has all of it durable and named by map groups, and then the root lead to it.
    /// Whoever enters a name for the space from here on, and flushes the log, has a tree (LOAD-2).
    pub(crate) fn build(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.lots.engine);
        let _operation = engine.waits.operation("bulk load");
        let builder = std::mem::replace(&mut self.builder, Builder::new(self.lots.engine.core.store.page_size()));
        let root = builder.finish(&mut self.lots)?;
        let state = Arc::clone(&self.lots.state);
        let _gate = state.enter()?;
        self.lots.write()?;
        self.lots.name_all()?;
        if root.is_empty() { Ok(()) } else { self.set_root(&root) }
    }

    fn set_root(&self, root: &RootPage) -> Result<(), Error> {
        let core = &self.lots.engine.core;
        let named = self.lots.is_named() || cfg!(planted = "load_named_before_durable");
        debug_assert!(named, "LOAD-2: the root is about to lead to pages that no map group names");
        let mut restarts = Restarts::new(&core.pool);
        loop {
            // An operation that formats a page takes no more than the page, as keys have no prefix there.
            let credit = core.log.reserve(core.store.page_size() + 1024, 1)?;
            let stop = match leaf_write(core, &self.lots.state.root, b"", Manner::First) {
                Ok(page) => {
                    let id = page.id();
                    let mut mtr = Mtr::new(&core.log, [page]);
                    mtr.apply(0, id, &root.op())?;
                    mtr.commit(credit)?;
                    return Ok(());
                }
                Err(stop) => stop,
            };
            drop(credit);
            restarts.resolve(stop)?;
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        let (engine, space) = (&self.lots.engine, self.lots.state.space);
        if !self.named && !cfg!(planted = "load_not_given_back") {
            let _ddl = engine.ddl();
            // What cannot be given back now, the next open gives back (LOAD-4).
            if engine.check_open().is_ok() {
                // By now it may be a tree like others, for purge and merges.
                let open = engine.open_trees.lock().get(&space).cloned();
                let tree = open.unwrap_or_else(|| Arc::clone(&self.lots.state));
                let _ = close_trees(engine, vec![tree], Gate::Dropped, |spaces| catalog::drop_unnamed(engine, spaces));
            }
        }
        engine.loads.lock().remove(&space);
    }
}

/// The pages of a load on their way to the device.
struct Lots {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    /// The page LSN of all of them (LOAD-1).
    lsn: Lsn,
    buf: AlignedBuf,
    /// Those that are in `buf`.
    ops: Vec<WriteOp>,
    /// The keeper's answer when all is named that was written before it was asked.
    asked: Option<Arc<Handoff<CheckpointAnswer>>>,
    /// Pages written since.
    written: usize,
}

impl Pages for Lots {
    fn next(&mut self) -> Result<(PageId, &mut [u8]), Error> {
        // Who closes the database waits for this page, and lets no other begin.
        let state = Arc::clone(&self.state);
        let _gate = state.enter()?;
        if self.ops.len() == LOT_PAGES {
            self.write()?;
        }
        let core = &self.engine.core;
        let id = core.store.allocate(state.space, Share::Common, core.pool.waits())?;
        let size = core.store.page_size();
        let page = &mut self.buf[self.ops.len() * size..][..size];
        header_mut(page).page_lsn = self.lsn.0.into();
        self.ops.push(WriteOp { id, lsn: self.lsn, rec_lsn: None });
        Ok((id, page))
    }
}

impl Lots {
    /// Writes the lot. The gate is held.
    fn write(&mut self) -> Result<(), Error> {
        let (engine, count) = (Arc::clone(&self.engine), self.ops.len());
        if count == 0 {
            return Ok(());
        }
        let core = &engine.core;
        let _operation = engine.waits.operation("bulk load");
        let _turn = engine.waits.timed(WaitClass::Metadata, || engine.load_writer.lock());
        while core.store.loaded() + count > LOADED_MAX {
            self.named_wait()?;
        }
        // LOAD-3
        let credit = core.log.reserve(0, count)?;
        let buf = &mut self.buf[..count * core.store.page_size()];
        for asked in 0.. {
            if core.store.write(&self.ops, buf, core.log.positions().durable)? {
                break;
            }
            if asked >= TRIES {
                return Err(Error::Bug("STORE-3: loaded pages find no slots, although each is charged one".into()));
            }
            // Others have more than what is charged for them, until the keeper has looked.

            engine.checkpoint_wait(Wish::Slots)?;
        }
        drop(credit);
        debug_assert!(core.store.loaded() <= LOADED_MAX, "LOAD-3: too many images of loads are on their way");
        self.ops.clear();
        self.written += count;
        // Ahead of need: the sync is under way while the next lot is made.
        if self.asked.is_none() && self.written >= LOADED_MAX / 2 {
            self.ask()?;
        }
        Ok(())
    }

    fn ask(&mut self) -> Result<(), Error> {
        self.asked = Some(self.engine.ask_naming()?);
        self.written = 0;
        Ok(())
    }

    /// Waits until what the keeper was asked for is named; asks it first, if it was not. With no page of its own to
    /// wait for, waits for those of other loads.
    fn named_wait(&mut self) -> Result<(), Error> {
        if self.asked.is_none() {
            self.ask()?;
        }
        let Some(asked) = self.asked.take() else { return Ok(()) };
        asked.take_wait(WaitClass::Checkpoint, &self.engine.waits).map_err(|why| stopped(&why))
    }

    /// Waits until all pages are named.
    fn name_all(&mut self) -> Result<(), Error> {
        while !self.is_named() && !cfg!(planted = "load_named_before_durable") {
            self.named_wait()?;
        }
        Ok(())
    }

    fn is_named(&self) -> bool {
        self.asked.is_none() && self.written == 0
    }
}
