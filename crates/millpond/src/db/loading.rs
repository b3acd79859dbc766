//! A space that is filled with a tree, past log and pool: what bulk loads and index builds are made of.
//!
//! LOAD-1  Before the first image of a page leaves, the log is durable up to a group that formats the space's root: no
//!         other space gets the number. The group's end is the page LSN of all pages but the root, each of which is
//!         written once, and has an id that is not given out again.
//! LOAD-2  Nothing leads to a page before all of them are durable and named by map groups: the group that makes the
//!         root lead to them is behind those in the log, and that with the tree's name is behind it.
//! LOAD-3  Loads write one lot at a time, after the log has had room for its map records, and while no more images of
//!         loads than [`LOADED_MAX`] wait for theirs: so many the log's reserve has room for. Who waits for that has
//!         the keeper name all of them, whosesoever they are: a load may fill several spaces in turns. Zones are
//!         emptied in the same turn, within the same bound (`keeper/zones.rs`).
//! LOAD-4  Who gives up, gives the space back, or leaves it to the next open when the database is closed: no name leads
//!         to it.
//!
//! No page of it is in a frame, and no other thread writes it: so it is none of the keeper's turn (WRITER-1), and
//! waits for no frame. Pages are copied once from the caller's rows, and once into the image.

use std::fmt;
use std::sync::Arc;

use super::catalog;
use super::chunks;
use super::ddl::{close_trees, create_root, tree_state};
use super::engine::{CheckpointAnswer, Engine, Wish, closed, stopped};
use super::plan::shown;
use super::sorter::{RunNumbers, Sorter, memory_for};
use super::tree::{Gate, Role, TreeState};
use crate::base::aligned::{AlignedBuf, aligned};
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::operations::OperationKind;
use crate::base::page::layout::header_mut;
use crate::base::sync::ReadGuard;
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

/// Bytes that a space that is filled takes: a lot of pages, and the entries of the last page of each level.
pub(super) fn memory(page_size: usize) -> usize {
    (LOT_PAGES + LEVELS) * page_size
}

/// A space that is filled with a tree. Whoever has a name lead to it says so in `named`; else it is given back.
pub(crate) struct Loading {
    builder: Builder,
    lots: Lots,
    /// Of the files in which rows for it are sorted.
    runs: RunNumbers,
    pub(crate) named: bool,
}

impl Loading {
    /// Gives out a space; `name` and `role` are the tree's in messages. May wait on `metadata`, `log_space`,
    /// `free_frame`, `file_growth` and `log_flush`.
    pub(crate) fn begin(engine: &Arc<Engine>, name: &str, role: Role) -> Result<Loading, Error> {
        let page_size = engine.core.store.page_size();
        let builder = match role {
            Role::Chunks => Builder::filled_to(chunks::full_leaf(page_size)),
            _ => Builder::new(page_size),
        };
        let (lsn, loading) = {
            let _ddl = engine.ddl();
            engine.check_changeable()?;
            let space = engine.core.store.new_space()?;
            let lsn = create_root(&engine.core, space)?;
            let state = tree_state(engine, name, space, role);
            engine.loads.lock().insert(space, Arc::clone(&state));
            let (ops, buf) = (Vec::with_capacity(LOT_PAGES), aligned(LOT_PAGES * page_size));
            let lots = Lots { engine: Arc::clone(engine), state, lsn, buf, ops, asked: None, written: 0 };
            (lsn, Loading { builder, lots, runs: RunNumbers::default(), named: false })
        };
        // LOAD-1
        engine.core.log.flush_wait(lsn)?;
        Ok(loading)
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.lots.engine
    }

    /// The tree's name, or the index's.
    pub(super) fn name(&self) -> &str {
        &self.lots.state.name
    }

    /// What is loaded, for messages.
    pub(super) fn tree(&self) -> &TreeState {
        &self.lots.state
    }

    /// The space.
    pub(crate) fn space(&self) -> SpaceId {
        self.lots.state.space
    }

    /// Keeps the database from being closed; an error if it was. Held, it keeps others from closing it.
    pub(super) fn enter(&self) -> Result<ReadGuard<'_, Gate>, Error> {
        self.lots.state.enter(&self.lots.engine.waits)
    }

    /// Row number `number` in messages.
    pub(super) fn row(&self, number: u64) -> RowOfLoad<'_> {
        RowOfLoad { number, of: &self.lots.state }
    }

    /// The key of the last row.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.builder.last_key()
    }

    /// Adds row number `number`, counted from 0. Key and payload are within the limits of leaves; the row is of two
    /// parts.
    pub(crate) fn push(&mut self, key: &[u8], row: [&[u8]; 2], number: u64) -> Result<(), Error> {
        self.check_ascends(key, number)?;
        self.append(key, row)
    }

    /// The same of a row that was [checked](Self::check_ascends).
    pub(super) fn append(&mut self, key: &[u8], row: [&[u8]; 2]) -> Result<(), Error> {
        self.builder.push(key, row, &mut self.lots)
    }

    /// Refuses a key that is not above the last one.
    pub(super) fn check_ascends(&self, key: &[u8], number: u64) -> Result<(), Error> {
        match self.builder.last_key() {
            Some(last) if last >= key => Err(self.not_ascending(key, last, number)),
            _ => Ok(()),
        }
    }

    /// Puts rows in order that are to be pushed, or what is made of them: one of `sharing` sorters, who share memory.
    pub(crate) fn sorter(&self, sharing: usize) -> Result<Sorter, Error> {
        let engine = &self.lots.engine;
        let files = engine.files.lock().clone().ok_or_else(closed)?;
        let pool = engine.core.pool.len() * engine.core.store.page_size();
        Ok(Sorter::new(files, self.space(), &self.runs, memory_for(pool), sharing))
    }

    #[cold]
    fn not_ascending(&self, key: &[u8], last: &[u8], number: u64) -> Error {
        let relation = if last == key { "the same as" } else { "below" };
        let message = format!(
            "{} has key {}, which is {relation} that of the row before, {}: sort the rows by their keys, byte by byte, and give each key once",
            self.row(number),
            shown(key),
            shown(last)
        );
        Error::NotAscending(message.into())
    }

    /// Makes what is left of the tree, has all of it durable and named by map groups, and then the root lead to it.
    /// Whoever enters a name for the space from here on, and flushes the log, has a tree (LOAD-2).
    pub(crate) fn build(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.lots.engine);
        let _operation = engine.waits.operation(OperationKind::BulkLoad);
        let builder = std::mem::replace(&mut self.builder, Builder::new(engine.core.store.page_size()));
        let root = builder.finish(&mut self.lots)?;
        let state = Arc::clone(&self.lots.state);
        let _gate = state.enter(&engine.waits)?;
        self.lots.write()?;
        self.lots.name_all()?;
        // Other spaces may take long, before a name leads to all of them.
        self.lots.buf = aligned(0);
        if root.is_empty() { Ok(()) } else { self.set_root(&root) }
    }

    fn set_root(&self, root: &RootPage) -> Result<(), Error> {
        let core = &self.lots.engine.core;
        let named = self.lots.is_named() || planted!("load_named_before_durable");
        debug_assert!(named, "LOAD-2: the root is about to lead to pages that no map group names");
        let mut restarts = Restarts::new(&core.pool);
        loop {
            // An operation that formats a page takes no more than the page, as keys have no prefix there.
            let credit = restarts.reserve(&core.log, core.store.page_size() + 1024, 1)?;
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
        if !engine.home.is_here() {
            // The load is the opener's.
            return;
        }
        if !self.named && !planted!("load_not_given_back") {
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

/// A row of a load, for messages.
pub(super) struct RowOfLoad<'l> {
    number: u64,
    of: &'l TreeState,
}

impl fmt::Display for RowOfLoad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} (the first is 0) of the bulk load of {}", self.number, self.of)
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
        let _gate = state.enter(&self.engine.waits)?;
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
        let _operation = engine.waits.operation(OperationKind::BulkLoad);
        let _turn = engine.waits.timed(WaitClass::Metadata, || engine.load_writer.lock());
        while core.store.loaded() + count > LOADED_MAX {
            self.named_wait()?;
        }
        // LOAD-3
        let credit = core.log.reserve(0, count)?;
        let buf = &mut self.buf[..count * core.store.page_size()];
        for asked in 0.. {
            if core.store.write(&self.ops, buf, core.log.positions().durable)?.is_some() {
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
        while !self.is_named() && !planted!("load_named_before_durable") {
            self.named_wait()?;
        }
        Ok(())
    }

    fn is_named(&self) -> bool {
        self.asked.is_none() && self.written == 0
    }
}
