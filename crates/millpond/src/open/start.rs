//! Opens an existing database: analysis, a new epoch of the log, redo, the catalog.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::background::flush::SinglePage;
use crate::background::keeper::Keeper;
use crate::background::log_resize::change_at_open;
use crate::background::threads::Threads;
use crate::background::{log_threads, lru_managers, page_cleaners};
use crate::base::aligned::to_usize;
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::{Error, closed};
use crate::base::ids::SpaceId;
use crate::base::process::Home;
use crate::base::random::random_u64;
use crate::base::sync::{self, Mutex, Rank, RwLock, Turn};
use crate::base::waits::{Waits, enter_background};
use crate::core::Core;
use crate::ddl::{catalog, create_root};
use crate::engine::classic_flushing::ClassicFlushing;
use crate::engine::pacing::Pacing;
use crate::engine::page_writer::{PageWrites, Writers};
use crate::engine::recovery_time::RecoveryTime;
use crate::engine::redo_change::RedoChange;
use crate::engine::{CheckpointGoal, Engine, Opening, Requests};
use crate::io::device::Files;
use crate::load::sorter;
use crate::observe::status::{About, LastLook};
use crate::open::endpoints::Endpoints;
use crate::open::existing::{check_fixed, check_redo_fits, page_store_of};
use crate::open::running::{Opened, Running};
use crate::options::in_force::InForce;
use crate::options::{Limits, Options, epochs_reserve, fitting_frames, redo_reserve, validate_reserve};
use crate::pool::buffer_pool::Pool;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::recovery;
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::files::{Geometry, LogFiles, remove_others};
use crate::redo::group::BEHIND_MAX;
use crate::redo::log::{Log, LogLimits};
use crate::store::doublewrite::{CopyFile, Doublewrite};
use crate::store::page_store::PageStore;
use crate::txn::slots::Transactions;
use crate::undo::purge;
use crate::undo::rollback::{find_losers, roll_back};

/// Opens an existing database: analysis, a new epoch of the log, redo, the catalog.
pub(crate) fn open_existing(
    files: Arc<dyn Files>,
    home: Arc<Home>,
    options: &Options,
    endpoints: Endpoints,
) -> Result<Running, Error> {
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
    // The log that was read may be in the caches of kernel and device only (RECOVER-1).
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
    let classic_flushing = ClassicFlushing::of(options);
    let writers = Writers::new(options.instances(), store.page_size(), &page_writes);
    let engine = Arc::new(Engine {
        home,
        limits: Limits::new(store.page_size(), &log),
        core: Arc::new(Core { store, pool, log }),
        files: Mutex::new(Rank::Files, Some(Arc::clone(&files))),
        bell,
        waits,
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
    let last_look = Arc::new(LastLook::default());
    let about = About { place, io_engine, opened_ns: began, options: Arc::clone(&kept), last_look };
    let (keeper, status_server) = (Mutex::new(Rank::Threads, Some(keeper)), Mutex::new(Rank::Threads, Vec::new()));
    let (purge, threads) = (Mutex::new(Rank::Threads, None), Mutex::new(Rank::Threads, None));
    let mut inner = Running { engine, about, keeper, purge, threads, status: status_server, opened };
    // The status servers start here, so that users can watch a long recovery.
    let opened = endpoints.serve(&inner.engine, &inner.about).and_then(|servers| {
        *inner.status.lock() = servers;
        finish_open(&mut inner, &*files, options, log_files, (analysis, analysed_ns))
    });
    if let Err(error) = opened {
        inner.abandon("the database could not be opened");
        return Err(error);
    }
    inner.engine.read_only.store(options.read_only, Ordering::Relaxed);
    inner.engine.opening.us.store((clock::now_ns() - began) / 1000, Ordering::Relaxed);
    Ok(inner)
}

pub(crate) fn finish_open(
    inner: &mut Running,
    files: &dyn Files,
    options: &Options,
    log_files: LogFiles,
    (analysis, analysed_ns): (recovery::Analysis, u64),
) -> Result<(), Error> {
    let engine = Arc::clone(&inner.engine);
    // Recovery takes frames, too: LRU managers start before it.
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
    // Only now: while the log is redone pages are cleaned for their frames only (RECOVER-4).
    page_cleaners::start(&mut threads, &engine)?;
    *inner.threads.lock() = Some(threads);
    // From here on the end of the old epoch cannot be taken for the end of the log.
    engine.checkpoint_wait(CheckpointGoal::Superblock)?;
    if !engine.core.store.has_space(SpaceId::CATALOG) {
        create_root(&engine.core, SpaceId::CATALOG)?;
    }
    match catalog::drop_orphans(&engine) {
        Ok(orphans) => inner.opened.orphan_spaces = orphans,
        // A space without a readable name may still have a name.
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
    // The call may wait for the thread that it starts, so no mutex is held.
    let mut threads = inner.threads.lock().take().ok_or_else(closed)?;
    let changed = change_at_open(&engine, &mut threads, capacity.as_u64());
    *inner.threads.lock() = Some(threads);
    changed
}
