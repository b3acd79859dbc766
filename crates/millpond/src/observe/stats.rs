//! The engine's gauges and counters.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::aligned::to_u64;
use crate::base::ids::SpaceId;
use crate::base::laws;
use crate::base::operations::OperationKind;
use crate::engine::Engine;
use crate::engine::flush_reason::FlushReason;
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pace::sync_only;
use crate::redo::pipeline::PipelineCounters;

/// A snapshot of the engine's gauges and counters. Counters grow from open on, except `log_lsn_...`, which count from
/// the database's creation on, and `law_violations`, which counts for the whole process.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Frames of the buffer pool.
    pub buffer_pool_pages_total: u64,
    /// Frames beyond the end of a pool that was made smaller, whose pages were in use.
    pub buffer_pool_pages_leaving: u64,
    /// Free frames, now.
    pub buffer_pool_pages_free: u64,
    /// Frames with a dirty page, now.
    pub buffer_pool_pages_dirty: u64,
    /// Frames that are not free, now: with a page, or about to get one.
    pub buffer_pool_pages_data: u64,
    /// Frames for anything but pages, as InnoDB has some: always 0.
    pub buffer_pool_pages_misc: u64,
    /// Free frames that are kept ready, now.
    pub buffer_pool_free_target: u64,
    /// Waits for a free frame, or in a line behind threads that wait for one.
    pub buffer_pool_wait_free: u64,
    /// Time of these waits, in microseconds.
    pub buffer_pool_wait_free_us: u64,
    /// Part of that time spent in a line behind threads that wait for a frame.
    pub buffer_pool_wait_free_behind_us: u64,
    /// Sleeps of threads that wait for a free frame: only with
    /// [`EmptyFreeListAlgorithm::Backoff`](crate::classic::EmptyFreeListAlgorithm::Backoff), where one wait has many.
    pub buffer_pool_wait_free_loops: u64,
    /// Searches for a clean page to evict, by operations that needed a frame.
    pub buffer_lru_search_num_scan: u64,
    /// Pages that these searches looked at.
    pub buffer_lru_search_scanned: u64,
    /// Pages that scans had read together with others, most of them ahead of need.
    pub buffer_pool_read_ahead: u64,
    /// Pages that were written by operations that found no free frame: only with
    /// [`EmptyFreeListAlgorithm::Legacy`](crate::classic::EmptyFreeListAlgorithm::Legacy).
    pub buffer_pool_single_page_flushes: u64,
    /// Searches of these operations for a page to write: only with
    /// [`EmptyFreeListAlgorithm::Legacy`](crate::classic::EmptyFreeListAlgorithm::Legacy).
    pub buffer_lru_single_flush_num_scan: u64,
    /// Pages that these searches looked at.
    pub buffer_lru_single_flush_scanned: u64,
    /// Pages that the last of these searches looked at.
    pub buffer_lru_single_flush_scanned_per_call: u64,
    /// Passes over the pages that leave next, by threads that free frames ahead of need: the keeper, LRU managers, page
    /// cleaners.
    pub buffer_lru_batch_num_scan: u64,
    /// Pages that these passes looked at.
    pub buffer_lru_batch_scanned: u64,
    /// Pages that the last of these passes looked at.
    pub buffer_lru_batch_scanned_per_call: u64,
    /// Passes in which clean pages left.
    pub buffer_lru_batches_evict: u64,
    /// Clean pages that left in these passes.
    pub buffer_lru_batch_evict_total_pages: u64,
    /// Clean pages that left in the last of these passes.
    pub buffer_lru_batch_evict_pages: u64,
    /// Lots of pages written because their frames were wanted, now or soon.
    pub buffer_lru_batches_flush: u64,
    /// Pages of these lots: the same number as `buffer_pool_pages_lru_flushed`, under the name of InnoDB's monitor.
    pub buffer_lru_batch_flush_total_pages: u64,
    /// Pages of the last of these lots.
    pub buffer_lru_batch_flush_pages: u64,
    /// Milliseconds that refilling an instance's free frames took lately: only with LRU managers, or page cleaners that
    /// do their work.
    pub buffer_lru_batch_flush_avg_time_slot: u64,
    /// Pages written because their frames were wanted, now or soon.
    pub buffer_pool_pages_lru_flushed: u64,
    /// Pages written before the log needed them clean, at a rate that has them clean in time.
    pub buffer_flush_adaptive_total_pages: u64,
    /// Lots of such pages.
    pub buffer_flush_adaptive: u64,
    /// Pages of the last such lot.
    pub buffer_flush_adaptive_pages: u64,
    /// Pages written because there was nothing else to do: the log is quiet, and does not need these pages clean.
    pub buffer_flush_background_total_pages: u64,
    /// Lots of such pages.
    pub buffer_flush_background: u64,
    /// Pages of the last such lot.
    pub buffer_flush_background_pages: u64,
    /// Pages written because the log was full, or a checkpoint was asked for.
    pub buffer_flush_sync_total_pages: u64,
    /// Lots of such pages.
    pub buffer_flush_sync: u64,
    /// Pages of the last such lot.
    pub buffer_flush_sync_pages: u64,
    /// Waits of writers for pages to be written because the log was three quarters full of changes that were in frames
    /// only: only with the classic methods of flushing.
    pub buffer_flush_sync_waits: u64,
    /// Entries of flush lists that searches for pages to write at once looked at, anew after each page: only with
    /// [`AdaptiveFlushingMethod::SyncOnly`](crate::classic::AdaptiveFlushingMethod::SyncOnly).
    pub buffer_flush_sync_scanned: u64,
    /// Of all pages written, those written because they were beside a page that was due: with
    /// [`flush_neighbors`](crate::classic::ClassicOptions::flush_neighbors).
    pub buffer_flush_neighbor_total_pages: u64,
    /// Lots with such neighbours.
    pub buffer_flush_neighbor: u64,
    /// Neighbours in the last such lot.
    pub buffer_flush_neighbor_pages: u64,
    /// Pages that are being written because their frames are wanted, now.
    pub buffer_pool_pending_lru: u64,
    /// Pages that are being written for the log or a checkpoint, now.
    pub buffer_pool_pending_flush_list: u64,
    /// Pages that are being written by operations that found no free frame, now.
    pub buffer_pool_pending_single_page: u64,
    /// Looks of threads that wait for the window of
    /// [`log_recent_closed`](crate::classic::ClassicOptions::log_recent_closed).
    pub log_on_recent_closed_wait_loops: u64,
    /// Waits for the log's writer or flusher: with
    /// [`log_writer_threads`](crate::classic::ClassicOptions::log_writer_threads).
    pub log_on_flush_waits: u64,
    /// Sleeps in these waits.
    pub log_on_flush_wait_loops: u64,
    /// Of these waits, those that began with spinning.
    pub log_spins: u64,
    /// Microseconds spent spinning.
    pub log_spin_us: u64,
    /// Waits that ended while spinning.
    pub log_spins_in_time: u64,
    /// CPU that the log's spinning believes the process to use, in hundredths of a per cent of one CPU.
    pub log_spin_cpu_abs: u64,
    /// CPUs that the log's spinning believes to be there, in hundredths.
    pub log_spin_cpus: u64,
    /// CPU that the log's spinning believes the process to use, of all these CPUs, in hundredths of a per cent.
    pub log_spin_cpu_pct: u64,
    /// Reads of a key's value.
    pub operation_gets: u64,
    /// Steps of scans, each of which read the rows of a leaf.
    pub operation_scans: u64,
    /// Batches written, or refused; one change by itself is a batch, too.
    pub operation_writes: u64,
    /// Of all operations, those that waited for a page to be read: not all that they needed was in the pool.
    pub operation_misses: u64,
    /// Steps of bulk loads and index builds.
    pub operation_others: u64,
    /// Operations that took the stall threshold or longer.
    pub stalls: u64,
    /// Breaches of the engine's own laws in this process, such as a wait under a latch. Each is a bug.
    pub law_violations: u64,
    /// Bytes of log since the last checkpoint, now.
    pub log_checkpoint_age: u64,
    /// Bytes of log since the oldest change of a page that is in no image. Only with the classic methods of flushing,
    /// which go by it; else 0.
    pub log_modified_age: u64,
    /// `log_modified_age` from which on all writers wait until pages are written. Only with the classic methods of
    /// flushing; else 0: no writer waits so.
    pub log_max_modified_age_sync: u64,
    /// `log_modified_age` that the methods that write ahead of that limit take for a full log: only with
    /// [`AdaptiveFlushingMethod::Adaptive`](crate::classic::AdaptiveFlushingMethod::Adaptive) and
    /// [`KeepAverage`](crate::classic::AdaptiveFlushingMethod::KeepAverage), else 0.
    pub log_max_modified_age_async: u64,
    /// Bytes that the log may hold.
    pub log_capacity: u64,
    /// LSN of the log's end.
    pub log_lsn_current: u64,
    /// LSN up to which the log is durable.
    pub log_lsn_last_flush: u64,
    /// LSN where recovery would begin.
    pub log_lsn_last_checkpoint: u64,
    /// Waits for room in the log.
    pub log_space_waits: u64,
    /// Time of these waits, in microseconds.
    pub log_space_wait_us: u64,
    /// Of these waits, those because the log was full. With `envelope` each is a defect: writers should have been
    /// slowed down before.
    pub log_wall_waits: u64,
    /// Syncs of log files.
    pub log_syncs: u64,
    /// Writes of the log that the device has in hand, now.
    pub log_pending_writes: u64,
    /// Syncs of log files that the device has in hand, now.
    pub log_pending_syncs: u64,
    /// Bytes written to log files, blocks written twice counted twice.
    pub log_bytes_written: u64,
    /// Bytes of log that the controller goes by: the log's capacity, or as much as a recovery applies in
    /// [`recovery_time_target`](crate::Options::recovery_time_target).
    pub log_capacity_effective: u64,
    /// Bytes of log a second that a recovery applied; 0: none was measured yet.
    pub log_apply_rate: u64,
    /// Microseconds that the recovery from a crash now would take.
    pub log_recovery_us: u64,
    /// Pages a second that the device was found to write; 0: it was not seen yet.
    pub pace_write_capacity: u64,
    /// Pages a second that have to be written for the log: the deadline envelope.
    pub pace_flush_rate: u64,
    /// Pages that were to be written for the log and are not yet.
    pub pace_flush_owed: u64,
    /// Bytes a second by which the log grows.
    pub pace_redo_rate: u64,
    /// Bytes a second by which the log may grow; 0: no writer is slowed down.
    pub pace_redo_limit: u64,
    /// Microseconds with a limit in force.
    pub pace_limited_us: u64,
    /// Microseconds that the controller's ticks have taken.
    pub pace_tick_us: u64,
    /// Nanoseconds that a write of pages was found to cost the device, without its pages; 0: not known, or nothing.
    pub pace_write_cost_ns: u64,
    /// Nanoseconds that each page in a write costs. If that is little beside the cost of a write, the keeper empties
    /// zones.
    pub pace_page_cost_ns: u64,
    /// Page images read.
    pub data_page_reads: u64,
    /// Pages that are being read, now.
    pub data_pending_reads: u64,
    /// Page images written.
    pub data_page_writes: u64,
    /// Write calls for these images.
    pub data_write_calls: u64,
    /// Of these calls, those that failed; their pages went elsewhere.
    pub data_write_failures: u64,
    /// Bytes of pages written to the data file.
    pub data_written: u64,
    /// Syncs of the data file.
    pub data_syncs: u64,
    /// Syncs of the data file that the device has in hand, now.
    pub data_pending_syncs: u64,
    /// Copies of pages, or notes of them, written before the pages overwrote older images: only with
    /// [`doublewrite`](crate::classic::ClassicOptions::doublewrite).
    pub dblwr_pages_written: u64,
    /// Writes of these copies, each with a sync.
    pub dblwr_writes: u64,
    /// Pages torn by a crash that opening put back.
    pub dblwr_pages_put_back: u64,
    /// Images that wait for the data sync that makes them durable, now.
    pub data_images_unsynced: u64,
    /// Groups of map records in the log.
    pub map_groups: u64,
    /// Map records: images that became durable.
    pub map_records: u64,
    /// Images of map pages written.
    pub map_page_writes: u64,
    /// Zones of the data file that were emptied, so that lots leave in long writes.
    pub data_zones_emptied: u64,
    /// Images moved out of these zones, unchanged. They count as written, too.
    pub data_pages_moved: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Pages that trees gave back: each was merged into a neighbour or into the root.
    pub tree_pages_freed: u64,
    /// Undo pages: in use, waiting for purge, or kept for reuse, now.
    pub undo_pages: u64,
    /// Undo pages that purge still has to go through, now: after an open all, later those with delete marks. The page
    /// that purge is at does not count.
    pub purge_pages: u64,
    /// Rows that purge has removed.
    pub purged_rows: u64,
    /// Batches of several groups that are being written or undone, now: the rows that they changed are locked.
    pub batches_in_flight: u64,
    /// Batches that were undone, because they failed or a crash came before their commit.
    pub rollbacks: u64,
    /// Pages that may be too empty, waiting for the keeper to merge them, now.
    pub tree_merge_wishes: u64,
    /// Dropped trees whose pages are still in frames, now.
    pub trees_dropping: u64,
    /// 1 after a failure, when the engine takes no write any more.
    pub stopped: u64,
    /// Bytes of memory that the engine takes at most with the present settings and data: pool, tables of its pages,
    /// map, log buffers. On top come the memory of operations (keys and values of batches, rows of scans), stacks, and
    /// the allocator's reserves; 64 MiB are enough for some hundred threads.
    pub memory_budget: u64,
    /// Microseconds that opening took.
    pub open_us: u64,
    /// Log bytes that opening read.
    pub open_redo_bytes: u64,
    /// Pages that opening brought up to date.
    pub open_redo_pages: u64,
    /// Slots of the data file.
    pub data_slots_total: u64,
    /// Free slots, now.
    pub data_slots_free: u64,
}

impl Engine {
    /// Reads all counters, one after the other.
    pub(crate) fn stats(&self) -> Stats {
        let (log, store, pool) = (&self.core.log, &self.core.store, &self.core.pool);
        let positions = log.positions();
        let (free, dirty) = pool.counts();
        let trees_dropping = to_u64(self.drops.lock().len());
        let (slots_total, slots_free) = store.slot_counts();
        let (copies, searches) = (store.copies(), pool.searches());
        // The classic methods go by the oldest change in a frame. Changes in images without a sync do not count.
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
        let (for_frames, adaptive) = (written(FlushReason::Frames), written(FlushReason::Pace));
        let (background, at_once) = (written(FlushReason::Background), written(FlushReason::AtOnce));
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
            buffer_pool_pending_lru: self.page_writes.pending(FlushReason::Frames),
            buffer_pool_pending_flush_list: [FlushReason::Pace, FlushReason::Background, FlushReason::AtOnce]
                .map(|why| self.page_writes.pending(why))
                .iter()
                .sum(),
            buffer_pool_pending_single_page: self.page_writes.pending(FlushReason::SinglePage),
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
