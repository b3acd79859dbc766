//! The load of a tree into a space of its own, past the log and the buffer pool: the basis of bulk loads and index
//! builds.
//!
//! LOAD-1  Before the load writes its first page image, the log is durable up to the group that formats the space's
//!         root. So no other space gets the number. The end of this group is the page LSN of all pages but the root.
//!         Each of these pages is written once, and its id is not given out again.
//! LOAD-2  No pointer leads to a page before all pages are durable and named by map groups. The order in the log: these
//!         map groups, the group that makes the root lead to the pages, the group with the tree's name.
//! LOAD-3  One load at a time writes a lot of pages, after the log has had room for the lot's map records. At most
//!         [`LOADED_MAX`] images of loads may wait for their map records, for so many the log's reserve has room. A
//!         load that meets this bound has the keeper name the images of all loads: a load may fill several spaces in
//!         turns. The keeper empties zones in the same turn, within the same bound (`keeper/zones.rs`).
//!         The lots of one load are made and written one after the other, each aside ([`Aside`]): while one is written,
//!         another thread makes the pages of the next, and the load's own thread collects the contents of the third.
//! LOAD-4  A load that fails gives the space back, or leaves it to the next open when the database is closed: no name
//!         leads to the space.
//!
//! No page of the space is in a frame, and no other thread writes it. So the load takes no page writer's turn
//! (WRITER-1), and waits for no frame. Rows are copied twice: from the caller, and into the page image.
//!
//! A thread that closes the database waits for each operation that has entered the tree's gate. The load's thread
//! enters it for a page's id, the thread aside for a lot. Neither waits for the other one within the gate.

use std::fmt;
use std::sync::Arc;

use crate::base::aligned::{AlignedBuf, aligned};
use crate::base::error::{Error, closed};
use crate::base::handoff::Handoff;
use crate::base::ids::{Lsn, PageId, SpaceId};
use crate::base::operations::OperationKind;
use crate::base::page::layout::header_mut;
use crate::base::quoted::quoted;
use crate::base::sync::ReadGuard;
use crate::base::waits::WaitClass;
use crate::btree::bulk_build::{Builder, Contents, Pages, RootPage};
use crate::btree::descent::{LatchOrder, Restarts, leaf_write};
use crate::ddl::{catalog, close_trees, create_root};
use crate::engine::open_trees::tree_state;
use crate::engine::tree_state::{Gate, Role, TreeState};
use crate::engine::{CheckpointAnswer, CheckpointGoal, Engine, stopped};
use crate::load::aside::Aside;
use crate::load::sorter::{RunNumbers, Sorter, memory_for};
use crate::mtr::Mtr;
use crate::store::lot::{LOADED_MAX, LOT_PAGES, WriteOp};
use crate::store::space::Share;
use crate::write::chunks;

/// More levels than a tree has in practice.
const LEVELS: usize = 8;

/// Attempts to find slots for a lot; failure of all is a bug.
const TRIES: u32 = 1000;

/// Bytes of memory that the load of a space takes: the contents of two lots of pages, of which one takes rows while
/// pages are made of the other; the images of two lots, of which one is made while the other is written; and the
/// entries of the last page of each level.
pub(crate) fn memory(page_size: usize) -> usize {
    (4 * LOT_PAGES + LEVELS) * page_size
}

/// A load of a tree into a space. The caller sets `named` once a name leads to the space; otherwise dropping the load
/// gives the space back.
pub(crate) struct Loading {
    builder: Builder,
    lots: Lots,
    /// Counter for the names of sort files.
    runs: RunNumbers,
    pub(super) named: bool,
}

impl Loading {
    /// Begins a load into a new space. Messages call the tree by `name` and `role`. May wait on `metadata`,
    /// `log_space`, `free_frame`, `file_growth` and `log_flush`.
    pub(super) fn begin(engine: &Arc<Engine>, name: &str, role: Role) -> Result<Loading, Error> {
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
            let images = || Images { lsn, buf: aligned(LOT_PAGES * page_size), ops: Vec::with_capacity(LOT_PAGES) };
            let writer = LotWriter::new(engine, &state);
            let lots = Lots {
                engine: Arc::clone(engine),
                state,
                lot: Lot::default(),
                making: Some(Aside::ended(&engine.waits, (Lot::default(), images()))),
                writing: Some(Aside::ended(&engine.waits, (writer, images()))),
            };
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
    pub(crate) fn name(&self) -> &str {
        &self.lots.state.name
    }

    /// The tree that is loaded, for messages.
    pub(super) fn tree(&self) -> &TreeState {
        &self.lots.state
    }

    /// The space.
    pub(super) fn space(&self) -> SpaceId {
        self.lots.state.space
    }

    /// Enters the tree's gate: no thread can close the database while the guard lives. An error if it is closed.
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

    /// Adds row number `number`, counted from 0. `row` has two parts. Key and row are within the limits of leaves.
    pub(crate) fn push(&mut self, key: &[u8], row: [&[u8]; 2], number: u64) -> Result<(), Error> {
        self.check_ascends(key, number)?;
        self.append(key, row)
    }

    /// Adds a row whose key was [checked](Self::check_ascends).
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

    /// A sorter for rows to be loaded, or for entries made from them: one of `sharing` sorters that share memory.
    pub(super) fn sorter(&self, sharing: usize) -> Result<Sorter, Error> {
        let engine = &self.lots.engine;
        let files = engine.files.lock().clone().ok_or_else(closed)?;
        let pool = engine.core.pool.len() * engine.core.store.page_size();
        Ok(Sorter::new(files, self.space(), &self.runs, (memory_for(pool), sharing), &engine.waits))
    }

    #[cold]
    fn not_ascending(&self, key: &[u8], last: &[u8], number: u64) -> Error {
        let relation = if last == key { "the same as" } else { "below" };
        let message = format!(
            "{} has key {}, which is {relation} that of the row before, {}: sort the rows by their keys, byte by byte, and give each key once",
            self.row(number),
            quoted(key),
            quoted(last)
        );
        Error::NotAscending(message.into())
    }

    /// Builds the rest of the tree, waits until all pages are durable and named by map groups, then makes the root lead
    /// to them. After that the space is a tree as soon as a name for it is durable in the log (LOAD-2).
    pub(super) fn build(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.lots.engine);
        let _operation = engine.waits.operation(OperationKind::BulkLoad);
        let builder = std::mem::replace(&mut self.builder, Builder::new(engine.core.store.page_size()));
        let root = builder.finish(&mut self.lots)?;
        let mut writer = self.lots.end()?;
        let state = Arc::clone(&self.lots.state);
        let _gate = state.enter(&engine.waits)?;
        writer.name_all()?;
        let named = writer.is_named() || planted!("load_named_before_durable");
        debug_assert!(named, "LOAD-2: the root is about to lead to pages that no map group names");
        if root.is_empty() { Ok(()) } else { self.set_root(&root) }
    }

    fn set_root(&self, root: &RootPage) -> Result<(), Error> {
        let core = &self.lots.engine.core;
        let mut restarts = Restarts::new(&core.pool);
        loop {
            // The operation that formats the root is no longer than a page, as the root's keys have no prefix.
            let credit = restarts.reserve(&core.log, core.store.page_size() + 1024, 1)?;
            let stop = match leaf_write(core, &self.lots.state.root, b"", LatchOrder::First) {
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
            // The load belongs to the process that opened the database.
            return;
        }
        // No page is written once the space is given back.
        drop((self.lots.making.take(), self.lots.writing.take()));
        if !self.named && !planted!("load_not_given_back") {
            let _ddl = engine.ddl();
            // If this fails, the next open gives the space back (LOAD-4).
            if engine.check_open().is_ok() {
                // Purge and merges may have opened the space as a tree by now.
                let open = engine.open_trees.lock().get(&space).cloned();
                let tree = open.unwrap_or_else(|| Arc::clone(&self.lots.state));
                let _ = close_trees(engine, vec![tree], Gate::Dropped, |spaces| catalog::drop_unnamed(engine, spaces));
            }
        }
        engine.loads.lock().remove(&space);
    }
}

/// A row of a load, for messages.
pub(crate) struct RowOfLoad<'l> {
    number: u64,
    of: &'l TreeState,
}

impl fmt::Display for RowOfLoad<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} (the first is 0) of the bulk load of {}", self.number, self.of)
    }
}

/// The pages of a load on their way to the device, a lot at a time.
struct Lots {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    /// The lot that takes pages.
    lot: Lot,
    /// The lot before, which is empty once its images are made. `None`: that failed, or the load is at its end.
    making: Option<Aside<(Lot, Images)>>,
    /// The images of the lot before that one, as above.
    writing: Option<Aside<(LotWriter, Images)>>,
}

/// The contents of pages that are made and written together.
#[derive(Default)]
struct Lot {
    pages: Vec<(PageId, Contents)>,
    /// Bytes of their keys and values, whole keys: in pages these lack their common prefix.
    len: usize,
    /// Memory for more contents.
    spare: Vec<Contents>,
}

impl Pages for Lots {
    fn take(&mut self, page: Contents) -> Result<(PageId, Contents), Error> {
        let core = &self.engine.core;
        if self.lot.pages.len() == LOT_PAGES || self.lot.len >= LOT_PAGES * core.store.page_size() {
            self.make_aside()?;
        }
        // A thread that closes the database waits for this page; afterwards no page begins.
        let _gate = self.state.enter(&self.engine.waits)?;
        let core = &self.engine.core;
        let id = core.store.allocate(self.state.space, Share::Common, core.pool.waits())?;
        self.lot.len += page.len();
        self.lot.pages.push((id, page));
        Ok((id, self.lot.spare.pop().unwrap_or_default()))
    }
}

impl Lots {
    /// Has the pages of this lot made aside, and those of the lot before written.
    fn make_aside(&mut self) -> Result<(), Error> {
        let (empty, full) = end_wait(&mut self.making)?;
        let (writer, mut images) = end_wait(&mut self.writing)?;
        let mut lot = std::mem::replace(&mut self.lot, empty);
        let waits = &self.engine.waits;
        self.writing = Some(Aside::begin(waits, move || writer.written(full)));
        self.making = Some(Aside::begin(waits, move || {
            images.make(&mut lot)?;
            Ok((lot, images))
        }));
        Ok(())
    }

    /// Writes the rest. Gives the memory back now: the other spaces of the same load may take long.
    fn end(&mut self) -> Result<LotWriter, Error> {
        let (_, full) = end_wait(&mut self.making)?;
        let (writer, mut images) = end_wait(&mut self.writing)?;
        let (writer, _) = writer.written(full)?;
        images.make(&mut std::mem::take(&mut self.lot))?;
        Ok(writer.written(images)?.0)
    }
}

/// Waits for the end of a piece of work, and takes its result.
fn end_wait<T>(of: &mut Option<Aside<T>>) -> Result<T, Error> {
    of.take().map_or_else(|| Err(Error::Bug("LOAD-3: a load that failed goes on".into())), Aside::end_wait)
}

/// The images of a lot's pages.
struct Images {
    /// The page LSN of all pages (LOAD-1).
    lsn: Lsn,
    buf: AlignedBuf,
    ops: Vec<WriteOp>,
}

impl Images {
    /// Makes the lot's pages. The lot is empty then.
    fn make(&mut self, lot: &mut Lot) -> Result<(), Error> {
        let size = self.buf.len() / LOT_PAGES;
        for ((id, mut contents), page) in lot.pages.drain(..).zip(self.buf.chunks_exact_mut(size)) {
            header_mut(page).page_lsn = self.lsn.0.into();
            contents.make(id, page)?;
            self.ops.push(WriteOp { id, lsn: self.lsn, rec_lsn: None });
            contents.clear(size);
            lot.spare.push(contents);
        }
        lot.len = 0;
        Ok(())
    }
}

/// Writes the images of a load's lots, one lot after the other.
struct LotWriter {
    engine: Arc<Engine>,
    state: Arc<TreeState>,
    /// A pending request to the keeper, answered when all images written before it are named.
    asked: Option<Arc<Handoff<CheckpointAnswer>>>,
    /// Pages written since the last request.
    written: usize,
}

impl LotWriter {
    fn new(engine: &Arc<Engine>, state: &Arc<TreeState>) -> LotWriter {
        LotWriter { engine: Arc::clone(engine), state: Arc::clone(state), asked: None, written: 0 }
    }

    /// Writes the images, if there are any. They are forgotten then.
    fn written(mut self, mut images: Images) -> Result<(LotWriter, Images), Error> {
        if !images.ops.is_empty() {
            self.write(&mut images)?;
            images.ops.clear();
        }
        Ok((self, images))
    }

    fn write(&mut self, images: &mut Images) -> Result<(), Error> {
        let (engine, state, count) = (Arc::clone(&self.engine), Arc::clone(&self.state), images.ops.len());
        // A thread that closes the database waits for this lot; afterwards no lot is written.
        let _gate = state.enter(&engine.waits)?;
        let core = &engine.core;
        let _operation = engine.waits.operation(OperationKind::BulkLoad);
        let _turn = engine.waits.timed(WaitClass::Metadata, || engine.load_writer.lock());
        while core.store.loaded() + count > LOADED_MAX {
            self.named_wait()?;
        }
        // LOAD-3
        let credit = core.log.reserve(0, count)?;
        let buf = &mut images.buf[..count * core.store.page_size()];
        for asked in 0.. {
            if core.store.write(&images.ops, buf, core.log.positions().durable)?.is_some() {
                break;
            }
            if asked >= TRIES {
                return Err(Error::Bug("STORE-3: loaded pages find no slots, although each is charged one".into()));
            }
            // Other pages hold more slots than they are charged, until the keeper frees those that wait for a sync.
            engine.checkpoint_wait(CheckpointGoal::Slots)?;
        }
        drop(credit);
        debug_assert!(core.store.loaded() <= LOADED_MAX, "LOAD-3: too many images of loads are on their way");
        self.written += count;
        // Asks ahead of need: the sync runs while the next lot is made.
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

    /// Waits until the keeper has answered the pending request; makes one first if there is none. A load without
    /// unnamed pages of its own waits for those of other loads in this way.
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
