//! Opens an existing database: analysis, a new epoch of the log, redo, the catalog, undo. [`cases`](super::cases) has
//! the states that an open can find.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::Keeper;
use crate::background::log_resize::change_at_open;
use crate::background::threads::Threads;
use crate::background::{log_threads, lru_managers, page_cleaners};
use crate::base::clock;
use crate::base::error::{Error, closed};
use crate::base::ids::SpaceId;
use crate::base::process::Home;
use crate::base::random::random_u64;
use crate::base::sync::{self, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;
use crate::ddl::{catalog, create_root};
use crate::engine::{CheckpointGoal, Engine};
use crate::io::device::Files;
use crate::load::sorter;
use crate::observe::status::{About, LastLook};
use crate::open::assemble::assemble;
use crate::open::endpoints::Endpoints;
use crate::open::on_disk::{Analysed, OnDisk, Sizes};
use crate::open::running::{Opened, Running};
use crate::options::Options;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::recovery;
use crate::redo::files::{LogFiles, remove_others};
use crate::store::superblock::Found;
use crate::undo::purge;
use crate::undo::rollback::{find_losers, roll_back};

/// Opens an existing database. All that it may find is in the table of [`cases`](super::cases).
pub(super) fn open_existing(
    files: Arc<dyn Files>,
    home: Arc<Home>,
    options: &Options,
    endpoints: Endpoints,
) -> Result<Running, Error> {
    let began_ns = clock::now_ns();
    let mut found = OnDisk::read(&*files, options)?;
    let sizes = Sizes::of(options, &found)?;
    let analysed = found.analyse(&*files, options, &sizes)?;
    found.make_log_durable(options, &analysed.analysis)?;
    let (superblocks, log_files) = (found.superblocks, found.log_files.clone());
    let engine = assemble(&files, home, options, found, &analysed, sizes)?;
    engine.core.log.begin_epoch(random_u64())?;
    let mut running = run(engine, &*files, options, began_ns, opened(superblocks, &analysed))?;
    // The status servers start here, so that users can watch a long recovery.
    let done = endpoints.serve(&running.engine, &running.about).and_then(|servers| {
        *running.status.lock() = servers;
        recover(&mut running, &*files, options, &log_files, analysed)
    });
    if let Err(error) = done {
        running.abandon("the database could not be opened");
        return Err(error);
    }
    running.engine.read_only.store(options.read_only, Ordering::Relaxed);
    running.engine.may_shorten.store(!options.read_only && !options.at_rest, Ordering::Relaxed);
    running.engine.opening.us.store((clock::now_ns() - began_ns) / 1000, Ordering::Relaxed);
    Ok(running)
}

/// The findings up to now; recovery adds the others.
fn opened(superblocks: [Found; 2], analysed: &Analysed) -> Opened {
    Opened {
        superblocks,
        redo_groups: analysed.analysis.groups,
        redo_bytes: analysed.redo_bytes,
        orphan_spaces: Vec::new(),
        catalog_damage: None,
        not_undone: Vec::new(),
    }
}

/// The engine at work, with its keeper: recovery needs it for frames.
fn run(
    engine: Arc<Engine>,
    files: &dyn Files,
    options: &Options,
    opened_ns: u64,
    opened: Opened,
) -> Result<Running, Error> {
    let keeper = start_keeper(&engine)?;
    let about = About {
        place: files.place(),
        io_engine: files.io_engine(),
        page_cache: files.page_cache(),
        opened_ns,
        options: Arc::new(Mutex::new(Rank::Options, options.clone())),
        last_look: Arc::new(LastLook::default()),
    };
    Ok(Running {
        engine,
        about,
        keeper: Mutex::new(Rank::Threads, Some(keeper)),
        purge: Mutex::new(Rank::Threads, None),
        threads: Mutex::new(Rank::Threads, None),
        status: Mutex::new(Rank::Threads, Vec::new()),
        opened,
    })
}

fn start_keeper(engine: &Arc<Engine>) -> Result<JoinHandle<()>, Error> {
    let keeper = Keeper::new(Arc::clone(engine))?;
    let started = sync::spawn("mp-keeper", move || {
        enter_background();
        keeper.run();
    });
    started.map_err(|e| Error::thread("mp-keeper", e))
}

/// Brings the pages to the state of the log's end, undoes unfinished batches, and starts the other threads.
fn recover(
    running: &mut Running,
    files: &dyn Files,
    options: &Options,
    log_files: &LogFiles,
    analysed: Analysed,
) -> Result<(), Error> {
    let engine = Arc::clone(&running.engine);
    // Recovery takes frames, too: LRU managers start before it.
    let mut threads = Threads::new();
    log_threads::start(&mut threads, &engine)?;
    if engine.core.pool.is_managed() {
        lru_managers::start(&mut threads, &engine, AdaptiveSleep::default())?;
    }
    remove_left_over(files, log_files)?;
    let applied_us = redo(&engine, log_files, analysed)?;
    // Only now: while the log is redone pages are cleaned for their frames only (RECOVER-4).
    page_cleaners::start(&mut threads, &engine)?;
    *running.threads.lock() = Some(threads);
    // From here on the end of the old epoch cannot be taken for the end of the log.
    engine.checkpoint_wait(CheckpointGoal::Superblock)?;
    open_catalog(running, options)?;
    undo(running, options)?;
    let beside_us = ((clock::now_ns() - running.about.opened_ns) / 1000).saturating_sub(applied_us);
    engine.recovery_time.applied(engine.opening.redo_bytes, applied_us, beside_us);
    if options.read_only || options.at_rest {
        return Ok(());
    }
    // The call may wait for the thread that it starts, so no mutex is held.
    let mut threads = running.threads.lock().take().ok_or_else(closed)?;
    let changed = change_at_open(&engine, &mut threads, options);
    *running.threads.lock() = Some(threads);
    changed
}

/// Removes log files that the superblock does not name, and files of a sort that was cut short.
fn remove_left_over(files: &dyn Files, log_files: &LogFiles) -> Result<(), Error> {
    let (now, switch) = (log_files.geometry(), log_files.switch());
    let generations: Vec<u32> = switch.map(|switch| switch.to.generation).into_iter().chain([now.generation]).collect();
    let removed = remove_others(files, &generations);
    removed.map_err(|e| Error::io(&format!("remove old log files in '{}'", files.place()), e))?;
    let removed = sorter::remove_left_over(files);
    removed.map_err(|e| Error::io(&format!("remove files of an interrupted sort in '{}'", files.place()), e))
}

/// Redoes the log. Returns the microseconds that reading and applying it took.
fn redo(engine: &Engine, log_files: &LogFiles, analysed: Analysed) -> Result<u64, Error> {
    let began_ns = clock::now_ns();
    recovery::redo(&engine.core, log_files, analysed.analysis)?;
    let applied_us = (analysed.took_ns + clock::now_ns() - began_ns) / 1000;
    engine.redoing.store(false, Ordering::Relaxed);
    engine.txns.open(&engine.core.store, engine.core.log.positions().next);
    engine.first_new_space.store(engine.core.store.space_to_come().0, Ordering::Release);
    engine.core.pool.keep_pages_together();
    Ok(applied_us)
}

/// Makes the catalog of a new database, and drops spaces that no name leads to.
fn open_catalog(running: &mut Running, options: &Options) -> Result<(), Error> {
    let engine = &running.engine;
    if !engine.core.store.has_space(SpaceId::CATALOG) {
        create_root(&engine.core, SpaceId::CATALOG)?;
    }
    match catalog::drop_orphans(engine) {
        Ok(orphans) => running.opened.orphan_spaces = orphans,
        // A space without a readable name may still have a name.
        Err(Error::Corruption(damage)) if options.at_rest && !options.read_only => {
            running.opened.catalog_damage = Some(damage.into());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Undoes unfinished batches: at once if the database is to be at rest, else in the thread that purges.
fn undo(running: &mut Running, options: &Options) -> Result<(), Error> {
    let engine = &running.engine;
    let (losers, others) = find_losers(&engine.core)?;
    engine.txns.adopt_losers(losers);
    if !options.at_rest {
        engine.txns.adopt(others);
        *running.purge.lock() = Some(purge::start(engine)?);
        return Ok(());
    }
    while let Some(loser) = engine.txns.take_loser() {
        match roll_back(engine, &loser) {
            Ok(()) => engine.txns.undone(loser),
            Err(error) if options.read_only => return Err(error),
            Err(error) => running.opened.not_undone.push(format!("batch {} is not undone: {error}", loser.txn)),
        }
    }
    Ok(())
}
