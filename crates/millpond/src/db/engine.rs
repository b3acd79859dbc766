//! What all handles of a database share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::online::InForce;
use super::options::{Limits, unsynced_max};
use super::pacing::Pacing;
use super::page_cleaners::ClassicFlushing;
use super::page_writer::{PageWrites, Why, Writers};
use super::recovery_time::RecoveryTime;
use super::redo_change::RedoChange;
use super::row_changes::TableState;
use super::stats::Stats;
use super::status::LastLook;
use super::tree::TreeState;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{PageId, SpaceId};
use crate::base::laws;
use crate::base::operations::OperationKind;
use crate::base::process::Home;
use crate::base::stall::Stall;
use crate::base::sync::{Mutex, ReadGuard, RwLock, Turn, TurnGuard, WriteGuard};
use crate::base::waits::{WaitClass, Waits};
use crate::btree::descent::Restarts;
use crate::io::device::Files;
use crate::mtr::Core;
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pace::sync_only;
use crate::redo::ending;
use crate::redo::files::Ring;
use crate::redo::pipeline::PipelineCounters;
use crate::txn::slots::Transactions;

/// A database at work.
pub(crate) struct Engine {
    pub(crate) core: Arc<Core>,
    /// The process that opened the database.
    pub(crate) home: Arc<Home>,
    /// The files, whose lock keeps other processes out; let go when the database is closed.
    pub(crate) files: Mutex<Option<Arc<dyn Files>>>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) waits: Arc<Waits>,
    /// What was told when somebody asked for the status as text.
    pub(super) last_look: LastLook,
    pub(crate) limits: Limits,
    pub(crate) in_force: InForce,
    /// Frames that the buffer pool may be given.
    pub(crate) frames_max: u64,
    /// Dropped spaces whose pages are still in frames, and from which frame on.
    pub(crate) drops: Mutex<VecDeque<(SpaceId, usize)>>,
    /// Pages that may be too empty, for the keeper to merge.
    pub(crate) merge_wishes: Mutex<VecDeque<MergeWish>>,
    /// Those of them that wait for a page to be read.
    pub(crate) merges_parked: Mutex<VecDeque<(PageId, MergeWish)>>,
    /// Transactions, and their undo pages.
    pub(crate) txns: Transactions,
    /// Serialises creation and dropping of trees and tables.
    pub(super) ddl: Turn<()>,
    /// A gate: exclusively who takes a space out of the map, shared who works in one without having entered its tree.
    /// Behind `ddl` and the other gates; who has it waits for pages, frames and the log only.
    pub(super) spaces: RwLock<()>,
    /// Trees that are being loaded, which have no names yet.
    pub(super) loads: Mutex<BTreeMap<SpaceId, Arc<TreeState>>>,
    /// Who has it writes pages that are loaded (LOAD-3).
    pub(super) load_writer: Turn<()>,
    /// Trees that have handles, those of tables among them.
    pub(crate) open_trees: Mutex<BTreeMap<SpaceId, Arc<TreeState>>>,
    /// Tables that have handles, by the spaces of their rows.
    pub(super) open_tables: Mutex<BTreeMap<SpaceId, Arc<TableState>>>,
    pub(crate) requests: Mutex<Requests>,
    pub(super) writers: Writers,
    pub(super) page_writes: Arc<PageWrites>,
    pub(super) pacing: Pacing,
    /// Who cleans pages instead of the keeper, with a classic method.
    pub(super) classic_flushing: Option<ClassicFlushing>,
    /// Recovery is applying the log: pages are cleaned for their frames only.
    pub(crate) redoing: AtomicBool,
    /// It was opened to be read only, and is open. Written once, by the open.
    pub(crate) read_only: AtomicBool,
    pub(crate) opening: Opening,
    pub(super) recovery_time: RecoveryTime,
    pub(super) redo_change: RedoChange,
    pub(crate) closed: AtomicBool,
}

/// Wishes for merges that are kept: more are forgotten.
const MERGE_WISHES_MAX: usize = 1024;

/// Somebody deleted from a page, which may be worth a merge now.
pub(crate) struct MergeWish {
    pub(crate) tree: Arc<TreeState>,
    /// One that the page covers.
    pub(crate) key: Vec<u8>,
    pub(crate) level: u8,
    /// How often it was put off.
    pub(crate) tries: u8,
}

/// What opening cost.
#[derive(Default)]
pub(crate) struct Opening {
    pub(crate) us: AtomicU64,
    pub(crate) redo_bytes: u64,
    pub(crate) redo_pages: u64,
    /// Pages torn by a crash that were put back.
    pub(crate) put_back: u64,
}

/// The answer to a request for a checkpoint; the error is the sentence why not.
pub(crate) type CheckpointAnswer = Result<(), Arc<str>>;

/// A checkpoint that somebody waits for.
pub(crate) struct Request {
    pub(crate) handoff: Arc<Handoff<CheckpointAnswer>>,
    pub(crate) wish: Wish,
}

/// What a checkpoint that was asked for has to do.
pub(crate) enum Wish {
    /// A superblock of where things stand.
    Superblock,
    /// Everything changed up to now is in durable images.
    All,
    /// The same, and the log goes over to this ring.
    Ring(Ring),
    /// The buffer pool has so many frames from now on.
    Pool(u64),
    /// Slots that are free but for a sync, or for a step of giving back, are free.
    Slots,
}

/// A bulk load that waits for its images to be named.
pub(crate) struct Naming {
    /// Those of all turns of writing up to this one.
    pub(crate) turn: u64,
    pub(crate) handoff: Arc<Handoff<CheckpointAnswer>>,
}

/// What the keeper is asked for explicitly.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) asked: Vec<Request>,
    pub(crate) naming: Vec<Naming>,
    pub(crate) stop: bool,
    /// Why the keeper gave up.
    pub(crate) failed: Option<Arc<str>>,
}

impl Engine {
    /// Images that may wait for their data sync, with the pool as large as it is now.
    pub(crate) fn unsynced_max(&self) -> usize {
        to_usize(unsynced_max(to_u64(self.core.pool.len())))
    }

    /// Slow operations with the names of the trees whose latches they waited for, of those that are open.
    pub(crate) fn with_trees(&self, mut stalls: Vec<Stall>) -> Vec<Stall> {
        // One by one: nobody who opens a tree waits while names are written.
        let open_tree = |space| self.open_trees.lock().get(&space).cloned();
        for latch in stalls.iter_mut().filter_map(|stall| stall.latch.as_mut()) {
            latch.tree = match SpaceId(latch.space) {
                SpaceId::CATALOG => Some("the catalog".to_owned()),
                space => open_tree(space).map(|tree| tree.to_string()),
            };
        }
        stalls
    }

    /// Asks the keeper for a checkpoint, and waits for it on `checkpoint`.
    pub(crate) fn checkpoint_wait(&self, wish: Wish) -> Result<(), Error> {
        let handoff = Handoff::new();
        let request = Request { handoff: Arc::clone(&handoff), wish };
        self.ask_keeper(|requests| requests.asked.push(request))?;
        handoff.take_wait(WaitClass::Checkpoint, &self.waits).map_err(|why| stopped(&why))
    }

    /// The checkpoint before the end. Of a database that is only read it would copy what was redone, to no end.
    pub(super) fn last_checkpoint_wait(&self) -> Result<(), Error> {
        if self.read_only.load(Ordering::Relaxed) { Ok(()) } else { self.checkpoint_wait(Wish::All) }
    }

    /// Asks the keeper for map groups that name all images written up to now; the answer comes when there are.
    pub(crate) fn ask_naming(&self) -> Result<Arc<Handoff<CheckpointAnswer>>, Error> {
        let handoff = Handoff::new();
        let naming = Naming { turn: self.core.store.turns().0, handoff: Arc::clone(&handoff) };
        self.ask_keeper(|requests| requests.naming.push(naming))?;
        Ok(handoff)
    }

    /// Waits until the keeper has synced and named all images written up to now. False: it has given up, or is about to
    /// end.
    pub(super) fn name_images(&self, class: WaitClass) -> Result<bool, Error> {
        Ok(self.ask_naming()?.take_wait(class, &self.waits).is_ok())
    }

    fn ask_keeper(&self, ask: impl FnOnce(&mut Requests)) -> Result<(), Error> {
        {
            let mut requests = self.requests.lock();
            if requests.stop {
                return Err(closed());
            }
            if let Some(why) = &requests.failed {
                return Err(stopped(why));
            }
            ask(&mut requests);
        }
        self.bell.ring();
        Ok(())
    }

    /// Leaves a wish to the keeper; nobody waits for it.
    pub(crate) fn wish_merge(&self, wish: MergeWish) {
        let first = {
            let mut wishes = self.merge_wishes.lock();
            if wishes.len() < MERGE_WISHES_MAX {
                wishes.push_back(wish);
            }
            wishes.len() == 1
        };
        if first {
            self.bell.ring();
        }
    }

    /// Whether so many wishes wait that background work should: others may be forgotten soon.
    pub(crate) fn has_many_wishes(&self) -> bool {
        self.wish_count() > MERGE_WISHES_MAX / 2
    }

    /// Wishes for merges, those that wait for a page included. One mutex after the other: not at one moment.
    fn wish_count(&self) -> usize {
        let waiting = self.merge_wishes.lock().len();
        waiting + self.merges_parked.lock().len()
    }

    /// A page is in memory, or cannot be read: those who wait for it come first now.
    pub(crate) fn unpark_merges(&self, id: PageId) {
        let mut parked = self.merges_parked.lock();
        let (ready, waiting) = std::mem::take(&mut *parked).into_iter().partition(|(page, _)| *page == id);
        *parked = waiting;
        drop(parked);
        let ready: VecDeque<(PageId, MergeWish)> = ready;
        let mut wishes = self.merge_wishes.lock();
        ready.into_iter().rev().for_each(|(_, wish)| wishes.push_front(wish));
    }

    /// Keeps creation and dropping of trees to this thread.
    pub(crate) fn ddl(&self) -> TurnGuard<'_, ()> {
        self.waits.timed(WaitClass::Metadata, || self.ddl.lock())
    }

    /// Has all spaces for itself, to take some out of the map. Waits on `metadata` for those who work in one.
    pub(crate) fn all_spaces(&self) -> WriteGuard<'_, ()> {
        self.waits.timed(WaitClass::Metadata, || self.spaces.write())
    }

    /// Keeps all spaces where they are, for an operation that may have leave to miss pages, or the lane. If it must
    /// wait, it gives these up first: those for whom it waits may wait for them.
    pub(crate) fn keep_spaces(&self, restarts: &mut Restarts<'_>) -> ReadGuard<'_, ()> {
        self.spaces.try_read().unwrap_or_else(|| {
            restarts.begin_wait();
            self.waits.timed(WaitClass::Metadata, || self.spaces.read())
        })
    }

    /// Leaves that a batch may change: so few that it finds frames for them whatever others do.
    pub(crate) fn batch_leaves(&self) -> usize {
        (self.core.pool.len() / 16).max(4)
    }

    /// Undo pages that a batch may need, likewise.
    pub(crate) fn batch_undo_pages(&self) -> usize {
        (self.core.pool.len() / 8).max(5)
    }

    /// Undo pages that may wait for purge; from half as many on writers take part in it. So few that most of them are
    /// in memory still.
    pub(crate) fn purge_pages_max(&self) -> usize {
        (self.core.pool.len() / 16).max(32)
    }

    /// Leaves that purge has read together: so few that batches find places beside it.
    pub(crate) fn purge_leaves(&self) -> usize {
        (self.batch_leaves() / 2).min(64)
    }

    /// An error once the database was closed, and in a fork of the process that opened it.
    pub(super) fn check_usable(&self) -> Result<(), Error> {
        self.home.check()?;
        self.check_open()
    }

    /// An error once the database was closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        // Relaxed: who closes has no promise to keep to calls that run at the same time.
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        Ok(())
    }

    /// Refuses what would change the database where it is closed, or was opened to be read only.
    pub(crate) fn check_changeable(&self) -> Result<(), Error> {
        self.check_open()?;
        // Relaxed: written before any caller has a handle.
        if self.read_only.load(Ordering::Relaxed) {
            let message = "the database was opened with read_only: open it without, to write";
            return Err(Error::ReadOnly(message.into()));
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> Stats {
        let (log, store, pool) = (&self.core.log, &self.core.store, &self.core.pool);
        let positions = log.positions();
        let (free, dirty) = pool.counts();
        let trees_dropping = to_u64(self.drops.lock().len());
        let (slots_total, slots_free) = store.slot_counts();
        let (copies, searches) = (store.copies(), pool.searches());
        // What counts there is the oldest change in a frame, which images without a sync are not.
        let (modified_age, max_modified_age_sync) = match &self.classic_flushing {
            None => (0, 0),
            Some(_) => {
                let oldest = pool.oldest_change();
                (
                    oldest.map_or(0, |oldest| positions.next.0.saturating_sub(oldest.0)),
                    sync_only::limit(self.log_length()),
                )
            }
        };
        let (pace, is_paced) = (self.pacing.rates(), !self.pacing.only_looks());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rates are not negative, and finite"
        )]
        let whole = |rate: f64| rate as u64;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let of_pipeline = |counter: fn(&PipelineCounters) -> &AtomicU64| {
            log.pipeline.as_ref().map_or(0, |pipeline| count(counter(&pipeline.counters)))
        };
        let written = |why| self.page_writes.written(why);
        let (for_frames, adaptive) = (written(Why::Frames), written(Why::Pace));
        let (background, at_once) = (written(Why::Background), written(Why::AtOnce));
        let classic = self.classic_flushing.as_ref();
        let (spin_cpu, spin_cpus) = log.pipeline.as_ref().map_or((0, 0), |pipeline| pipeline.cpu.believed());
        Stats {
            buffer_pool_pages_total: to_u64(pool.len()),
            buffer_pool_pages_leaving: to_u64(pool.leaving()),
            buffer_pool_pages_free: free,
            buffer_pool_pages_dirty: dirty,
            buffer_pool_pages_data: to_u64(pool.len()).saturating_sub(free),
            buffer_pool_pages_misc: 0,
            buffer_pool_free_target: to_u64(pool.target()),
            buffer_pool_wait_free: count(&pool.counters.wait_free),
            buffer_pool_wait_free_us: count(&pool.counters.wait_free_us),
            buffer_pool_wait_free_behind_us: count(&pool.counters.wait_free_behind_us),
            buffer_pool_wait_free_loops: searches.wait_loops,
            buffer_lru_search_num_scan: searches.searches,
            buffer_lru_search_scanned: searches.searched,
            buffer_lru_single_flush_num_scan: searches.flush_searches,
            buffer_lru_single_flush_scanned: searches.flush_searched,
            buffer_pool_read_ahead: count(&pool.counters.read_ahead),
            buffer_pool_single_page_flushes: pool.single_flushes(),
            buffer_lru_single_flush_scanned_per_call: searches.last_flush_searched,
            buffer_lru_batch_num_scan: pool.counters.batch_scans.calls(),
            buffer_lru_batch_scanned: pool.counters.batch_scans.total(),
            buffer_lru_batch_scanned_per_call: pool.counters.batch_scans.last(),
            buffer_lru_batches_evict: pool.counters.batch_evictions.calls(),
            buffer_lru_batch_evict_total_pages: pool.counters.batch_evictions.total(),
            buffer_lru_batch_evict_pages: pool.counters.batch_evictions.last(),
            buffer_lru_batches_flush: for_frames.calls(),
            buffer_lru_batch_flush_total_pages: for_frames.total(),
            buffer_lru_batch_flush_pages: for_frames.last(),
            buffer_lru_batch_flush_avg_time_slot: count(&pool.counters.refill_ns) / 1_000_000,
            buffer_pool_pages_lru_flushed: for_frames.total(),
            buffer_flush_adaptive_total_pages: adaptive.total(),
            buffer_flush_adaptive: adaptive.calls(),
            buffer_flush_adaptive_pages: adaptive.last(),
            buffer_flush_background_total_pages: background.total(),
            buffer_flush_background: background.calls(),
            buffer_flush_background_pages: background.last(),
            buffer_flush_sync_total_pages: at_once.total(),
            buffer_flush_sync: at_once.calls(),
            buffer_flush_sync_pages: at_once.last(),
            buffer_flush_sync_waits: classic.map_or(0, |classic| count(&classic.sync_waits)),
            buffer_flush_sync_scanned: classic.map_or(0, |classic| count(&classic.rescanned)),
            buffer_flush_neighbor_total_pages: classic.map_or(0, |classic| classic.beside.total()),
            buffer_flush_neighbor: classic.map_or(0, |classic| classic.beside.calls()),
            buffer_flush_neighbor_pages: classic.map_or(0, |classic| classic.beside.last()),
            buffer_pool_pending_lru: self.page_writes.pending(Why::Frames),
            buffer_pool_pending_flush_list: [Why::Pace, Why::Background, Why::AtOnce]
                .map(|why| self.page_writes.pending(why))
                .iter()
                .sum(),
            buffer_pool_pending_single_page: self.page_writes.pending(Why::SinglePage),
            log_checkpoint_age: positions.next.since(positions.checkpoint),
            log_modified_age: modified_age,
            log_max_modified_age_sync: max_modified_age_sync,
            log_max_modified_age_async: classic
                .filter(|classic| classic.method.get() != AdaptiveFlushingMethod::SyncOnly)
                .map_or(0, |_| sync_only::early(self.log_length())),
            log_capacity: log.capacity(),
            log_capacity_effective: self.log_wanted(),
            log_apply_rate: self.recovery_time.applied_per_s(),
            log_recovery_us: self.recovery_time.of_us(positions.next.since(positions.checkpoint)),
            log_lsn_current: positions.next.0,
            log_lsn_last_flush: positions.durable.0,
            log_lsn_last_checkpoint: positions.checkpoint.0,
            log_space_waits: count(&log.counters.space_waits),
            log_space_wait_us: count(&log.counters.space_wait_us),
            log_wall_waits: count(&log.counters.wall_waits),
            log_syncs: count(&log.counters.syncs),
            log_pending_writes: log.counters.pending_writes.now(),
            log_pending_syncs: log.counters.pending_syncs.now(),
            log_bytes_written: count(&log.counters.bytes_written),
            pace_write_capacity: whole(pace.capacity_pages_per_s),
            pace_flush_rate: if is_paced { whole(pace.flush_pages_per_s) } else { 0 },
            pace_flush_owed: to_u64(self.pacing.owed()),
            pace_redo_rate: whole(pace.redo_per_s),
            pace_redo_limit: if is_paced && pace.redo_limit.is_finite() { whole(pace.redo_limit) } else { 0 },
            pace_limited_us: self.pacing.limited_us(),
            pace_tick_us: self.pacing.tick_us(),
            pace_write_cost_ns: self.pacing.costs_ns().0,
            pace_page_cost_ns: self.pacing.costs_ns().1,
            log_on_recent_closed_wait_loops: log.recent_closed.as_ref().map_or(0, |window| count(&window.wait_loops)),
            log_on_flush_waits: of_pipeline(|counters| &counters.waits),
            log_on_flush_wait_loops: of_pipeline(|counters| &counters.wait_loops),
            log_spins: of_pipeline(|counters| &counters.spins),
            log_spin_us: of_pipeline(|counters| &counters.spin_us),
            log_spins_in_time: of_pipeline(|counters| &counters.spins_in_time),
            log_spin_cpu_abs: spin_cpu,
            log_spin_cpus: spin_cpus,
            log_spin_cpu_pct: (spin_cpu * 100).checked_div(spin_cpus).unwrap_or(0),
            data_page_reads: count(&store.counters.page_reads),
            data_pending_reads: store.counters.pending_reads.now(),
            data_pending_syncs: store.counters.pending_syncs.now(),
            data_page_writes: count(&store.counters.page_writes),
            data_write_calls: count(&store.counters.write_calls),
            data_written: count(&store.counters.page_writes) * to_u64(store.page_size()),
            data_write_failures: count(&store.counters.write_failures),
            data_syncs: count(&store.counters.data_syncs),
            dblwr_pages_written: copies.map_or(0, |copies| count(&copies.pages)),
            dblwr_writes: copies.map_or(0, |copies| count(&copies.writes)),
            dblwr_pages_put_back: self.opening.put_back,
            data_images_unsynced: to_u64(store.unsynced() + store.loaded()),
            map_groups: count(&store.counters.map_groups),
            map_records: count(&store.counters.map_records),
            map_page_writes: count(&store.counters.map_page_writes),
            data_zones_emptied: count(&store.counters.zones_emptied),
            data_pages_moved: count(&store.counters.pages_moved),
            checkpoints: count(&store.counters.checkpoints),
            tree_pages_freed: count(&store.counters.pages_freed),
            undo_pages: store.used_count(SpaceId::UNDO),
            purge_pages: to_u64(self.txns.purge_pages()),
            purged_rows: count(&self.txns.purged_rows),
            batches_in_flight: to_u64(self.txns.locks.in_flight()),
            rollbacks: count(&self.txns.rollbacks),
            tree_merge_wishes: to_u64(self.wish_count()),
            trees_dropping,
            stopped: u64::from(log.health().is_err()),
            operation_gets: self.waits.operations(OperationKind::Get),
            operation_scans: self.waits.operations(OperationKind::Scan),
            operation_writes: self.waits.operations(OperationKind::Write),
            operation_misses: self.waits.missed(),
            operation_others: [OperationKind::BulkLoad, OperationKind::IndexBuild]
                .map(|kind| self.waits.operations(kind))
                .iter()
                .sum(),
            stalls: self.waits.stalls().0,
            law_violations: laws::violations(),
            memory_budget: self.memory_budget(),
            open_us: count(&self.opening.us),
            open_redo_bytes: self.opening.redo_bytes,
            open_redo_pages: self.opening.redo_pages,
            data_slots_total: slots_total,
            data_slots_free: slots_free,
        }
    }
}

/// Why there is nothing any more.
pub(super) const CLOSED: &str = "the database was closed";

/// The answer of a database that was closed.
pub(crate) fn closed() -> Error {
    Error::Closed(format!("{CLOSED}: open it again").into())
}

/// The answer of one that has stopped.
pub(super) fn stopped(why: &str) -> Error {
    if why == CLOSED { closed() } else { ending::stopped(why) }
}
