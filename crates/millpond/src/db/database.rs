//! Opening, the catalog, closing.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::background::Threads;
use super::batch::{Place, WriteBatch};
use super::catalog;
use super::create::{create, open_in};
use super::ddl::create_root;
use super::engine::{Engine, Opening, Requests, Wish, closed};
use super::existing::{check_fixed, check_redo_fits, enlarge_log_first};
use super::keeper::Keeper;
use super::log_threads;
use super::lru_managers;
use super::online::InForce;
use super::options::{Limits, Options, PageStoreKind, epochs_reserve, fitting_frames, redo_reserve, validate_reserve};
use super::pacing::Pacing;
use super::page_cleaners;
use super::page_writer::{PageWrites, SinglePage, Writers};
use super::purge;
use super::recovery_time::RecoveryTime;
use super::redo_change::{RedoChange, change_at_open};
use super::rollback::{find_losers, roll_back};
use super::sorter;
use super::stats::Stats;
use super::status::{About, LastLook};
use super::status_server::{Doors, StatusServer};
use super::tree::{Gate, TreeState};
use super::write::write;
use super::write_rows::write_rows;
use crate::base::aligned::to_usize;
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::base::process::Home;
use crate::base::random::random_u64;
use crate::base::stall::Stall;
use crate::base::sync::{self, JoinHandle, Mutex, Rank, RwLock, Turn};
use crate::base::waits::{WaitClass, WaitSummary, Waits, enter_background};
use crate::io::device::Files;
use crate::io::lease::LeasedFiles;
use crate::io::overlay::Overlay;
use crate::io::slow::SlowFiles;
use crate::io::speed::Speed;
use crate::mtr::Core;
use crate::pool::buffer_pool::Pool;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::recovery;
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::files::{Geometry, LogFiles, remove_others};
use crate::redo::group::BEHIND_MAX;
use crate::redo::log::{Log, LogLimits};
use crate::redo::pipeline::Pipeline;
use crate::store::doublewrite::{CopyFile, Doublewrite};
use crate::store::look::without_data_file;
use crate::store::open::DATA_FILE;
use crate::store::page_store::PageStore;
use crate::store::superblock::{FEATURE_IN_PLACE, Found, Superblock};
use crate::txn::slots::Transactions;

/// An open database. Clones are handles of the same one; the last to go closes it.
///
/// # Processes and threads
/// Any number of threads may use a database. It belongs to the process that opened it: after a `fork` each call in the
/// child is refused with [`Error::OtherProcess`], what only looks ([`stats`](Self::stats) and its like) finds nothing,
/// and dropping handles does nothing there. So a daemon opens its database behind its last `fork`. The check costs one
/// load an operation. While a child lives, it keeps the directory locked if the opener is killed, though not if the
/// opener closes the database. `exec` closes all files of the database.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<Engine>,
    keeper: Mutex<Option<JoinHandle<()>>>,
    purge: Mutex<Option<JoinHandle<()>>>,
    /// Those of the classic policies.
    threads: Mutex<Option<Threads>>,
    about: About,
    status: Mutex<Vec<StatusServer>>,
    opened: Opened,
}

/// What opening found.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) superblocks: [Found; 2],
    pub(crate) redo_groups: u64,
    pub(crate) redo_bytes: u64,
    pub(crate) orphan_spaces: Vec<SpaceId>,
    /// Of a database at rest: what is wrong with the catalog, if not all of it can be read.
    pub(crate) catalog_damage: Option<String>,
    /// Of a database at rest: the batches that cannot be undone, and why.
    pub(crate) not_undone: Vec<String>,
}

impl Drop for Db {
    fn drop(&mut self) {
        if !self.inner.engine.home.is_here() {
            // The threads, the sockets and the lock are the opener's, and mutexes may be held by threads that a forked
            // child does not have: `Inner` is never dropped there. Its memory goes with the child.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if sync::panicking() {
            // A checkpoint is no duty of a thread that is unwinding: the next open recovers.
            self.abandon("a thread that panicked dropped the database");
            return;
        }
        // Who wants to know how closing went calls `close`.
        let _ = self.shut_down();
    }
}

impl Inner {
    /// Once: lets nobody in any more, waits for those who are, takes a last checkpoint, ends the keeper, lets the files
    /// go.
    ///
    /// When the gates are closed nothing is appended to the log any more, and the checkpoint flushes all of it. Where
    /// there can be no checkpoint the log's tail is flushed by itself: what was acknowledged before it was durable is
    /// lost only if the log's files fail.
    fn shut_down(&self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.lock().take() else { return Ok(()) };
        {
            let _ddl = self.engine.ddl();
            self.engine.closed.store(true, Ordering::Relaxed);
            self.engine.pacing.end_payments();
            let open_trees: Vec<_> = self.engine.open_trees.lock().values().cloned().collect();
            let loads: Vec<_> = self.engine.loads.lock().values().cloned().collect();
            self.engine.waits.timed(WaitClass::Metadata, || {
                open_trees.iter().chain(&loads).for_each(|tree| *tree.gate.write() = Gate::Closed);
            });
        }
        self.stop_purge();
        self.engine.end_redo_change();
        let result = self.engine.last_checkpoint_wait();
        let stopped = self.stop_keeper(keeper);
        let flushed = self.engine.core.log.flush_tail();
        self.let_go();
        flushed.and(stopped).and(result)
    }

    /// Has the log end, and the files be another process's to open. No thread of the engine is left.
    fn let_go(&self) {
        self.engine.core.log.close_wait();
        self.stop_status();
        let files = self.engine.files.lock().take();
        if let Some(files) = files {
            // Loads that were cut short cannot remove theirs any more. What is left here the next open removes.
            let _ = sorter::remove_left_over(&*files);
            files.release();
        }
    }

    /// The keeper's end without a checkpoint: what is on the device stays as it is.
    fn abandon(&self, why: &str) {
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            // Trees outlive this handle, and nobody measures the device any more.
            self.engine.pacing.end_payments();
            self.stop_purge();
            let _ = self.stop_keeper(keeper);
            let log = &self.engine.core.log;
            log.stop(&Error::Closed(why.into()));
            // The next open recovers what has its place in the log.
            let _ = log.flush_tail();
            // Whoever has a tree still may read on, of what is clean: nobody supplies who waits for a frame.
            self.engine.core.pool.stop();
            self.engine.txns.locks.stop(why);
            self.let_go();
        }
    }

    /// The keeper is at work still: purge may be waiting for what it supplies, and the threads that go next.
    fn stop_purge(&self) {
        self.engine.txns.stop();
        let purge = self.purge.lock().take();
        if let Some(purge) = purge {
            // A panic of purge is no reason not to close.
            let _ = purge.join();
        }
        let threads = self.threads.lock().take();
        if let Some(threads) = &threads {
            threads.announce_end();
            self.engine.core.log.pipeline.iter().for_each(Pipeline::ring_all);
        }
        drop(threads);
    }

    fn stop_status(&self) {
        let servers = std::mem::take(&mut *self.status.lock());
        drop(servers);
    }

    fn stop_keeper(&self, keeper: JoinHandle<()>) -> Result<(), Error> {
        self.engine.requests.lock().stop = true;
        self.engine.bell.ring();
        keeper.join().map_err(|_| Error::Bug("the keeper panicked: reopen the database".into()))
    }
}

impl Db {
    /// Opens the database in directory `path`; creates it if there is none and the options allow it.
    ///
    /// After a crash this recovers everything acknowledged before it returns. Takes time for the log written since
    /// the last checkpoint; a database that was closed opens at once. A log larger than 256 MiB, and than
    /// the pool needs, is made beside the load ([`Options::redo_capacity`]).
    ///
    /// # Errors
    /// * [`Error::InvalidOptions`]: every option out of range, in one message.
    /// * [`Error::Format`]: not a database, or one of another format version.
    /// * [`Error::InUse`]: another process, or another `Db` of this one, has it open.
    /// * [`Error::Corruption`]: what was written is not there any more.
    /// * [`Error::OutOfSpace`], [`Error::Permission`], [`Error::LimitReached`], [`Error::DeviceFailed`]: of the system.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Db, Error> {
        open_in(path.as_ref(), options, |directory| directory)
    }

    /// Opens the database in directory `path` as [`open`](Self::open) does, as if all its files were on one device of
    /// this speed, whose time begins now: writes and syncs stand in one queue, reads do not. For experiments: what the
    /// database does on a device that is not there, or that is slow for a while.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_slowed(path: impl AsRef<Path>, options: Options, speed: Speed) -> Result<Db, Error> {
        open_in(path.as_ref(), options, |directory| Arc::new(SlowFiles::new(directory, speed)))
    }

    /// Opens the database on any implementation of [`Files`]: a simulated disk, above all. The caller sees to it
    /// that nobody else has it open.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(files: Arc<dyn Files>, options: Options) -> Result<Db, Error> {
        let options = options.settled().for_reading();
        let files: Arc<dyn Files> = if options.read_only { Arc::new(Overlay::releasing(files)) } else { files };
        let home = Arc::new(Home::new());
        let files: Arc<dyn Files> = Arc::new(LeasedFiles::new(files, Arc::clone(&home)));
        // Before anything is changed: a path that will not do leaves all as it is.
        let doors = Doors::open(&options)?;
        let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
        if !names.iter().any(|name| name == DATA_FILE) {
            if !options.create {
                return Err(without_data_file(&files.place(), &names));
            }
            create(&*files, &names, &options)?;
        }
        enlarge_log_first(&files, &home, &options)?;
        open_existing(files, home, &options, doors)
    }

    /// Writes a batch: all of it or nothing, durable as its or the database's [`Durability`](crate::Durability) says.
    ///
    /// May wait on `log_space`, `admission`, `free_frame`, `page_read`, `page_latch` and `lane`; on `file_growth` when
    /// it needs new pages; on `row_lock` for rows of a batch of several groups, and on `metadata` for who creates,
    /// drops or truncates a tree, a table or an index; and, with nothing held, on `log_flush`.
    ///
    /// # Errors
    /// * [`Error::Conflict`], [`Error::KeyExists`], [`Error::KeyNotFound`]: a precondition does not hold.
    /// * [`Error::KeyTooLong`], [`Error::ValueTooLong`]; of tables also
    ///   [`Error::RowTooShort`].
    /// * [`Error::TreeNotFound`]: a tree or a table was dropped. [`Error::Closed`]: the database was closed.
    /// * [`Error::InvalidOptions`]: the batch's durability is out of range.
    /// * [`Error::OutOfSpace`]: new pages are needed, and the file system is full.
    /// * [`Error::NotUndone`]: a row is locked by a batch that failed and cannot be undone as things are.
    /// * [`Error::Corruption`]: a page is not what was written there, or an index does not agree with its table.
    /// * [`Error::DeviceFailed`]: a page could not be read, or the log not written; then the batch may or may not
    ///   survive: reopen, then look.
    /// * [`Error::ReadOnly`]: the engine stopped writing earlier.
    /// * [`Error::OtherProcess`]: this process is a fork of the one that opened the database.
    ///
    /// In all cases but `DeviceFailed` and `ReadOnly` nothing was changed.
    pub fn write(&self, batch: WriteBatch) -> Result<(), Error> {
        let engine = self.here()?;
        let (mut ops, mut has_tables) = (Vec::with_capacity(batch.len()), false);
        for (place, op) in batch.ops() {
            if !self.owns(op.tree) {
                let message = format!("{} in the batch is of another database", op.tree);
                return Err(Error::TreeNotFound(message.into()));
            }
            has_tables |= matches!(place, Place::Table(_));
            ops.push(op);
        }
        let durability = batch.durability.unwrap_or_else(|| engine.in_force.durability());
        durability.validate().map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        if has_tables {
            return write_rows(engine, &batch, durability);
        }
        write(engine, &mut ops, durability).map(drop)
    }

    fn owns(&self, tree: &TreeState) -> bool {
        tree.database == Arc::as_ptr(&self.inner.engine).addr()
    }

    /// Has all pages written that are dirty now, and a checkpoint: a crash right after it recovers at once, but for
    /// what is written meanwhile. Waits on `checkpoint` as long as the device takes to write them, behind what frames
    /// and log need: under a load that the device can just bear, many times as long. Nobody else waits for it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] when the engine has stopped.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let engine = self.here()?;
        engine.check_changeable()?;
        engine.checkpoint_wait(Wish::All)
    }

    /// The engine's gauges and counters. In a forked child all are zero.
    pub fn stats(&self) -> Stats {
        self.here().map_or_else(|_| Stats::default(), |engine| engine.stats())
    }

    /// How transfers that are under way together are done: `io_uring`, `threads`, or, on other devices than real
    /// files, `one by one`.
    pub fn io_engine(&self) -> &'static str {
        self.inner.about.io_engine
    }

    /// What operations waited for so far, by class. What the engine's own threads wait for is not in it.
    pub fn waits(&self) -> Vec<WaitSummary> {
        self.here().map_or_else(|_| Vec::new(), |engine| engine.waits.summary())
    }

    /// The last 256 operations that took the [stall threshold](Options::stall_threshold) or longer, oldest first, and
    /// where their time went.
    pub fn stalls(&self) -> Vec<Stall> {
        self.here().map_or_else(|_| Vec::new(), |engine| engine.with_trees(engine.waits.stalls().1))
    }

    /// Closes the database: a last checkpoint, then its files. Other handles get [`Error::Closed`] from now on.
    ///
    /// The directory is free for another process when this returns, also where forked children of this one live on, and
    /// where handles of bulk loads or trees are still there: these get [`Error::Closed`].
    ///
    /// # Errors
    /// * [`Error::ReadOnly`]: the engine had stopped earlier. What was acknowledged is safe all the same: what was in
    ///   the log's buffer has been written and synced. Only where the log's own files have failed, the last commits
    ///   that were acknowledged before they were durable may be lost; then the error says so, and how much of the log
    ///   that is.
    /// * [`Error::OtherProcess`]: in a forked child; the opener's database stays open.
    pub fn close(self) -> Result<(), Error> {
        self.here()?;
        self.inner.shut_down()
    }

    /// The engine, for a call in the process that opened the database; an error in a fork of it.
    pub(super) fn here(&self) -> Result<&Arc<Engine>, Error> {
        self.inner.engine.home.check()?;
        Ok(&self.inner.engine)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// What it was opened with, and what was changed since.
    pub(super) fn kept_options(&self) -> &Mutex<Options> {
        &self.inner.about.options
    }

    /// Has the threads of the classic policies changed.
    pub(super) fn change_threads(&self, change: impl FnOnce(&mut Threads) -> Result<(), Error>) -> Result<(), Error> {
        self.inner.threads.lock().as_mut().map_or_else(|| Err(closed()), change)
    }

    pub(super) fn about(&self) -> About {
        self.inner.about.clone()
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.inner.opened
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db").finish_non_exhaustive()
    }
}

/// How the database's pages are written.
pub(super) fn page_store_of(superblock: &Superblock) -> PageStoreKind {
    if superblock.features & FEATURE_IN_PLACE != 0 { PageStoreKind::InPlace } else { PageStoreKind::CopyOnWrite }
}

/// Opens what is there: analysis, a new epoch of the log, redo, the catalog.
pub(super) fn open_existing(
    files: Arc<dyn Files>,
    home: Arc<Home>,
    options: &Options,
    doors: Doors,
) -> Result<Db, Error> {
    let began = clock::now_ns();
    let counts = Arc::new(DirtyCounts::default());
    let (mut store, superblocks) = PageStore::open(&*files, Arc::clone(&counts))?;
    let superblock = store.superblock();
    counts.make_for(superblock.redo.capacity());
    check_fixed(options, &superblock, &files.place())?;
    let log_files = LogFiles::open(&*files, superblock.owner(), superblock.redo, superblock.switch)?;
    let page_size = u64::from(superblock.page_size);
    let frames = options.buffer_pool_size.as_u64() / page_size;
    let frames_max = options.buffer_pool_size_max.map_or(frames, |size| size.as_u64() / page_size);
    let wanted = options.redo_capacity.map_or(log_files.capacity(), |size| size.as_u64());
    let frames_max = if options.fit_pool { fitting_frames(frames_max, wanted) } else { frames_max };
    let frames = frames.min(frames_max);
    validate_reserve(frames_max, wanted)?;
    let analysis_began = clock::now_ns();
    let watched = store.copied(&*files)?;
    let analysis = recovery::analyse(&log_files, &superblock, &store, &counts, (to_usize(frames), watched))?;
    if options.read_only {
        check_redo_fits(options, analysis.pages_to_redo(), page_size, &files.place())?;
    }
    let put_back = store.put_back_torn(&*files, superblock.checkpoint_lsn, |id| analysis.needs_image(id))?;
    let doublewrite = options.doublewrite_of(page_store_of(&superblock));
    if doublewrite != Doublewrite::Off {
        store.keep_copies_in(CopyFile::open(&*files, store.page_size(), doublewrite == Doublewrite::On)?);
    }
    let analysed_ns = clock::now_ns() - analysis_began;
    // What was read may be in the caches of kernel and device only (RECOVER-1).
    if !options.read_only && !planted!("log_not_written_again") {
        log_files.write_again(analysis.durable, analysis.end)?;
    }
    log_files.sync_all()?;
    let bell = Arc::new(Bell::default());
    let waits = Arc::new(Waits::new(options.stall_threshold));
    let store = Arc::new(store);
    let limits = LogLimits {
        reserve: redo_reserve(frames_max, wanted),
        epochs: epochs_reserve(wanted),
        smallest: Geometry::of(0, wanted).capacity().min(log_files.capacity()).min(superblock.redo.capacity()),
        behind: BEHIND_MAX,
    };
    let log = Log::resume(
        log_files.clone(),
        analysis.resume(),
        limits,
        options.log_policies(),
        Arc::clone(&counts),
        Arc::clone(&bell),
        Arc::clone(&waits),
    )?;
    let frame_count = u32::try_from(frames).map_err(|_| Error::Bug("a pool size was not checked".into()))?;
    let pool = Pool::new(
        &options.pool(frame_count, to_usize(frames_max)),
        Arc::clone(&store),
        counts,
        Arc::clone(&bell),
        Arc::clone(&waits),
    )?;
    let page_writes = Arc::new(PageWrites::default());
    let classic_flushing = options.classic_flushing();
    let writers = Writers::new(options.instances(), store.page_size(), &page_writes);
    let engine = Arc::new(Engine {
        home,
        limits: Limits::new(store.page_size(), &log),
        core: Arc::new(Core { store, pool, log }),
        files: Mutex::new(Rank::Files, Some(Arc::clone(&files))),
        bell,
        waits,
        last_look: LastLook::default(),
        in_force: InForce::new(options),
        frames_max,
        drops: Mutex::new(Rank::Drops, VecDeque::new()),
        merge_wishes: Mutex::new(Rank::MergeWishes, VecDeque::new()),
        merges_parked: Mutex::new(Rank::MergesParked, VecDeque::new()),
        txns: Transactions::default(),
        ddl: Turn::new(Rank::Ddl, ()),
        spaces: RwLock::new(()),
        loads: Mutex::new(Rank::Loads, BTreeMap::new()),
        load_writer: Turn::new(Rank::LoadWriter, ()),
        open_trees: Mutex::new(Rank::OpenTrees, BTreeMap::new()),
        open_tables: Mutex::new(Rank::OpenTables, BTreeMap::new()),
        requests: Mutex::new(Rank::Requests, Requests::default()),
        writers,
        page_writes,
        pacing: Pacing::new(superblock.write_capacity / page_size, classic_flushing.is_some()),
        classic_flushing,
        recovery_time: RecoveryTime::new(options.recovery_time_target, superblock.apply_rate),
        redo_change: RedoChange::default(),
        redoing: AtomicBool::new(true),
        read_only: AtomicBool::new(false),
        opening: Opening {
            redo_bytes: analysis.end.since(superblock.checkpoint_lsn),
            redo_pages: analysis.pages_to_redo(),
            put_back,
            ..Opening::default()
        },
        closed: AtomicBool::new(false),
    });
    engine.core.pool.set_single_page_flush(Box::new(SinglePage(Arc::downgrade(&engine))));
    engine.core.log.begin_epoch(random_u64())?;
    let keeper = {
        let keeper = Keeper::new(Arc::clone(&engine))?;
        sync::spawn("mp-keeper", move || {
            enter_background();
            keeper.run();
        })
        .map_err(|e| Error::thread("mp-keeper", e))?
    };
    let opened = Opened {
        superblocks,
        redo_groups: analysis.groups,
        redo_bytes: analysis.end.since(superblock.checkpoint_lsn),
        orphan_spaces: Vec::new(),
        catalog_damage: None,
        not_undone: Vec::new(),
    };
    let kept = Arc::new(Mutex::new(Rank::Options, options.clone()));
    let (place, io_engine) = (files.place(), files.io_engine());
    let about = About { place, io_engine, opened_ns: began, options: Arc::clone(&kept) };
    let (keeper, status_server) = (Mutex::new(Rank::Threads, Some(keeper)), Mutex::new(Rank::Threads, Vec::new()));
    let (purge, threads) = (Mutex::new(Rank::Threads, None), Mutex::new(Rank::Threads, None));
    let mut inner = Inner { engine, about, keeper, purge, threads, status: status_server, opened };
    // From here on, so that a recovery that takes long can be watched.
    let opened = doors.serve(&inner.engine, &inner.about).and_then(|servers| {
        *inner.status.lock() = servers;
        finish_open(&mut inner, &*files, options, log_files, (analysis, analysed_ns))
    });
    if let Err(error) = opened {
        inner.abandon("the database could not be opened");
        return Err(error);
    }
    inner.engine.read_only.store(options.read_only, Ordering::Relaxed);
    inner.engine.opening.us.store((clock::now_ns() - began) / 1000, Ordering::Relaxed);
    Ok(Db { inner: Arc::new(inner) })
}

fn finish_open(
    inner: &mut Inner,
    files: &dyn Files,
    options: &Options,
    log_files: LogFiles,
    (analysis, analysed_ns): (recovery::Analysis, u64),
) -> Result<(), Error> {
    let engine = Arc::clone(&inner.engine);
    // Recovery takes frames, too.
    let mut threads = Threads::new();
    log_threads::start(&mut threads, &engine)?;
    if engine.core.pool.is_managed() {
        lru_managers::start(&mut threads, &engine, AdaptiveSleep::default())?;
    }
    let (now, switch) = (log_files.geometry(), log_files.switch());
    let generations: Vec<u32> = switch.map(|switch| switch.to.generation).into_iter().chain([now.generation]).collect();
    let removed = remove_others(files, &generations);
    removed.map_err(|e| Error::io(&format!("remove old log files in '{}'", files.place()), e))?;
    let removed = sorter::remove_left_over(files);
    removed.map_err(|e| Error::io(&format!("remove files of an interrupted sort in '{}'", files.place()), e))?;
    let redo_began = clock::now_ns();
    recovery::redo(&engine.core, &log_files, analysis)?;
    let applied_us = (analysed_ns + clock::now_ns() - redo_began) / 1000;
    engine.redoing.store(false, Ordering::Relaxed);
    engine.core.pool.keep_pages_together();
    // While the log is redone pages are cleaned for their frames only (RECOVER-4).
    page_cleaners::start(&mut threads, &engine)?;
    *inner.threads.lock() = Some(threads);
    // From here on the end of the old epoch cannot be taken for the end of the log.
    engine.checkpoint_wait(Wish::Superblock)?;
    if !engine.core.store.has_space(SpaceId::CATALOG) {
        create_root(&engine.core, SpaceId::CATALOG)?;
    }
    match catalog::drop_orphans(&engine) {
        Ok(orphans) => inner.opened.orphan_spaces = orphans,
        // What has no name that can be read may have one.
        Err(Error::Corruption(damage)) if options.at_rest && !options.read_only => {
            inner.opened.catalog_damage = Some(damage.into())
        }
        Err(error) => return Err(error),
    }
    let (losers, others) = find_losers(&engine.core)?;
    engine.txns.adopt_losers(losers);
    if options.at_rest {
        while let Some(loser) = engine.txns.take_loser() {
            match roll_back(&engine, &loser) {
                Ok(()) => engine.txns.undone(loser),
                Err(error) if options.read_only => return Err(error),
                Err(error) => inner.opened.not_undone.push(format!("batch {} is not undone: {error}", loser.txn)),
            }
        }
    } else {
        engine.txns.adopt(others);
        *inner.purge.lock() = Some(purge::start(&engine)?);
    }
    let beside_us = ((clock::now_ns() - inner.about.opened_ns) / 1000).saturating_sub(applied_us);
    engine.recovery_time.applied(engine.opening.redo_bytes, applied_us, beside_us);
    let Some(capacity) = options.redo_capacity else { return Ok(()) };
    // It is waited for the one that is started, with no mutex held.
    let mut threads = inner.threads.lock().take().ok_or_else(closed)?;
    let changed = change_at_open(&engine, &mut threads, capacity.as_u64());
    *inner.threads.lock() = Some(threads);
    changed
}
