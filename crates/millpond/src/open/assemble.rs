//! Puts the engine of an open together: pool, log, and all else that its handles and threads share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crate::background::flush::SinglePage;
use crate::base::aligned::to_usize;
use crate::base::bell::Bell;
use crate::base::error::Error;
use crate::base::process::Home;
use crate::base::sync::{Mutex, Rank, RwLock, Turn};
use crate::base::waits::Waits;
use crate::core::Core;
use crate::engine::classic_flushing::ClassicFlushing;
use crate::engine::open_txns::OpenTxns;
use crate::engine::pacing::Pacing;
use crate::engine::page_writer::{PageWrites, Writers};
use crate::engine::recovery_time::RecoveryTime;
use crate::engine::redo_change::RedoChange;
use crate::engine::tree_state::Gate;
use crate::engine::{Engine, Opening, Requests};
use crate::io::device::Files;
use crate::open::on_disk::{Analysed, OnDisk, Sizes};
use crate::options::in_force::InForce;
use crate::options::{Limits, Options, epochs_reserve, redo_reserve};
use crate::pool::buffer_pool::Pool;
use crate::redo::files::Geometry;
use crate::redo::group::BEHIND_MAX;
use crate::redo::log::{Log, LogLimits};
use crate::txn::transactions::Transactions;

/// The engine of the database that was found. No thread of it runs yet, and nothing is redone.
pub(super) fn assemble(
    files: &Arc<dyn Files>,
    home: Arc<Home>,
    options: &Options,
    found: OnDisk,
    analysed: &Analysed,
    sizes: Sizes,
) -> Result<Arc<Engine>, Error> {
    let (bell, waits) = (Arc::new(Bell::default()), Arc::new(Waits::new(options.stall_threshold)));
    let (superblock, page_size) = (found.superblock, found.page_size());
    let core = core_of(options, found, analysed, sizes, (&bell, &waits))?;
    let page_writes = Arc::new(PageWrites::default());
    let classic_flushing = ClassicFlushing::of(options);
    let engine = Arc::new(Engine {
        home,
        limits: Limits::new(core.store.page_size(), &core.log),
        writers: Writers::new(options.instances(), core.store.page_size(), &page_writes),
        core: Arc::new(core),
        files: Mutex::new(Rank::Files, Some(Arc::clone(files))),
        bell,
        waits,
        in_force: InForce::new(options),
        frames_max: sizes.frames_max,
        drops: Mutex::new(Rank::Drops, VecDeque::new()),
        merge_wishes: Mutex::new(Rank::MergeWishes, VecDeque::new()),
        merges_parked: Mutex::new(Rank::MergesParked, VecDeque::new()),
        txns: Transactions::new(options.max_snapshot_age),
        first_new_space: AtomicU32::new(u32::MAX),
        ddl: Turn::new(Rank::Ddl, ()),
        spaces: RwLock::new(()),
        loads: Mutex::new(Rank::Loads, BTreeMap::new()),
        statements: RwLock::new(Gate::Open),
        open_txns: OpenTxns::new(options.idle_transaction_timeout),
        load_writer: Turn::new(Rank::LoadWriter, ()),
        log_hold: Mutex::new(Rank::LogHold, None),
        open_trees: Mutex::new(Rank::OpenTrees, BTreeMap::new()),
        open_tables: Mutex::new(Rank::OpenTables, BTreeMap::new()),
        requests: Mutex::new(Rank::Requests, Requests::default()),
        page_writes,
        pacing: Pacing::new(superblock.write_capacity / page_size, classic_flushing.is_some()),
        classic_flushing,
        recovery_time: RecoveryTime::new(options.recovery_time_target, superblock.apply_rate),
        redo_change: RedoChange::default(),
        redoing: AtomicBool::new(true),
        read_only: AtomicBool::new(false),
        may_shorten: AtomicBool::new(false),
        is_compacted: AtomicBool::new(false),
        compaction: Mutex::new(Rank::Compaction, None),
        opening: Opening {
            redo_bytes: analysed.redo_bytes,
            redo_pages: analysed.analysis.pages_to_redo(),
            put_back: analysed.put_back,
            ..Opening::default()
        },
        closed: AtomicBool::new(false),
    });
    engine.core.pool.set_single_page_flush(Box::new(SinglePage(Arc::downgrade(&engine))));
    Ok(engine)
}

/// Store, pool and log. The log resumes at its end.
fn core_of(
    options: &Options,
    found: OnDisk,
    analysed: &Analysed,
    sizes: Sizes,
    (bell, waits): (&Arc<Bell>, &Arc<Waits>),
) -> Result<Core, Error> {
    let OnDisk { store, superblock, counts, log_files, .. } = found;
    let wanted = sizes.redo_capacity;
    let smallest = Geometry::of(0, wanted).capacity().min(log_files.capacity()).min(superblock.redo.capacity());
    let limits = LogLimits {
        reserve: redo_reserve(sizes.frames_max, wanted),
        epochs: epochs_reserve(wanted),
        smallest,
        behind: BEHIND_MAX,
    };
    let log = Log::resume(
        log_files,
        analysed.analysis.resume(),
        limits,
        options.log_policies(),
        Arc::clone(&counts),
        Arc::clone(bell),
        Arc::clone(waits),
    )?;
    let store = Arc::new(store);
    let frames = u32::try_from(sizes.frames).map_err(|_| Error::Bug("a pool size was not checked".into()))?;
    let options = options.pool(frames, to_usize(sizes.frames_max));
    let pool = Pool::new(&options, Arc::clone(&store), counts, Arc::clone(bell), Arc::clone(waits))?;
    Ok(Core { store, pool, log })
}
