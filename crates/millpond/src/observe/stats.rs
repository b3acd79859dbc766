//! The engine's gauges and counters, as one table: each is declared here, once, with how it is read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::aligned::to_u64;
use crate::base::clock::nanos;
use crate::base::ids::SpaceId;
use crate::base::laws;
use crate::base::operations::OperationKind;
use crate::engine::Engine;
use crate::engine::flush_reason::FlushReason;
use crate::observe::transactions::open_transactions;
use crate::pace::classic_flushing::AdaptiveFlushingMethod;
use crate::pace::sync_only;
use crate::redo::pipeline::PipelineCounters;
use crate::store::zones::ZONE_BYTES;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// Grows, and never falls. Counts from open on, unless its help says otherwise.
    Counter,
    /// A value of now, or one that the open found.
    Gauge,
    /// The number of events by duration, from open on.
    Histogram,
}

impl MetricKind {
    /// Prometheus' name for the kind, such as `counter`.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A row of the table: the description of a field of [`Stats`].
pub(crate) struct StatsRow {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    pub(crate) unit: &'static str,
    pub(crate) help: &'static str,
    pub(crate) read: fn(&Stats) -> u64,
}

/// Makes [`Stats`], its rows, and [`Engine::stats`] from rows `name: kind, unit, help => expression`. The expression
/// reads the number from the engine, by the names that `let` statements before the rows define.
macro_rules! declare_stats {
    (
        |$engine:ident| { $($before:tt)* }
        $(
            $(#[doc = $doc:literal])*
            $name:ident: $kind:ident, $unit:literal, $help:literal => $read:expr;
        )*
    ) => {
        /// A snapshot of the engine's gauges and counters. Counters grow from open on, except `log_lsn_...`, which
        /// count from the database's creation on, and `law_violations`, which counts for the whole process.
        #[derive(Clone, Debug, Default)]
        #[non_exhaustive]
        pub struct Stats {
            $(
                #[doc = $help]
                $(#[doc = $doc])*
                #[doc = ""]
                #[doc = concat!(stringify!($kind), ". Unit: ", $unit, ".")]
                pub $name: u64,
            )*
        }

        /// The rows of the table.
        pub(crate) const STATS: &[StatsRow] = &[$(StatsRow {
            name: stringify!($name),
            kind: MetricKind::$kind,
            unit: $unit,
            help: $help,
            read: |stats| stats.$name,
        },)*];

        impl Engine {
            /// Reads all counters, one after the other.
            pub(crate) fn stats(&self) -> Stats {
                let $engine = self;
                $($before)*
                // Each in a statement of its own: the guard of a mutex that one reads ends there.
                $(let $name = $read;)*
                Stats { $($name,)* }
            }
        }
    };
}

declare_stats! {
    |engine| {
        let (log, store, pool) = (&engine.core.log, &engine.core.store, &engine.core.pool);
        let positions = log.positions();
        let (free, dirty) = pool.counts();
        let (slots_total, slots_free) = store.slot_counts();
        let (copies, searches, walks) = (store.copies(), pool.searches(), &engine.txns.snapshots.walks);
        let classic = engine.classic_flushing.as_ref();
        // The classic methods go by the oldest change in a frame. Changes in images without a sync do not count.
        let oldest_change = classic.and_then(|_| pool.oldest_change());
        let writes_early = classic.filter(|classic| classic.method.get() != AdaptiveFlushingMethod::SyncOnly);
        let (pace, is_paced) = (engine.pacing.rates(), !engine.pacing.only_looks());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rates are not negative, and finite"
        )]
        let whole = |rate: f64| rate as u64;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of_pipeline = |counter: fn(&PipelineCounters) -> &AtomicU64| {
            log.pipeline.as_ref().map_or(0, |pipeline| count(counter(&pipeline.counters)))
        };
        let (spin_cpu, spin_cpus) = log.pipeline.as_ref().map_or((0, 0), |pipeline| pipeline.cpu.believed());
        let written = |why| engine.page_writes.written(why);
        let (for_frames, adaptive) = (written(FlushReason::Frames), written(FlushReason::Pace));
        let (background, at_once) = (written(FlushReason::Background), written(FlushReason::AtOnce));
        let pending = |why| engine.page_writes.pending(why);
        let for_the_log = [FlushReason::Pace, FlushReason::Background, FlushReason::AtOnce].map(pending);
        let operations = |kind| engine.waits.operations(kind);
    }

    buffer_pool_pages_total: Gauge, "pages", "Frames of the buffer pool." => to_u64(pool.len());
    buffer_pool_pages_free: Gauge, "pages", "Free frames." => free;
    buffer_pool_pages_data: Gauge, "pages",
        "Frames that are not free: with a page, or about to get one." => to_u64(pool.len()).saturating_sub(free);
    buffer_pool_pages_dirty: Gauge, "pages", "Frames whose page was changed since its last image was begun." => dirty;
    buffer_pool_pages_misc: Gauge, "pages", "Frames for anything but pages: always 0." => 0;
    buffer_pool_pages_leaving: Gauge, "pages",
        "Frames beyond the end of a pool made smaller, still in use." => to_u64(pool.leaving());
    buffer_pool_free_target: Gauge, "pages",
        "Free frames that are kept ready; with the hand-off the number follows the demand." => to_u64(pool.target());
    buffer_pool_wait_free: Counter, "waits",
        "Waits for a free frame, or in a line behind such waits, each counted once; the engine's own threads' too."
        => count(&pool.counters.wait_free);
    buffer_pool_wait_free_us: Counter, "us",
        "Time of waits for a free frame, the engine's own threads' too." => count(&pool.counters.wait_free_us);
    buffer_pool_wait_free_behind_us: Counter, "us",
        "Part of buffer_pool_wait_free_us spent in a line behind threads that wait for a frame."
        => count(&pool.counters.wait_free_behind_us);
    /// One wait has many.
    buffer_pool_wait_free_loops: Counter, "sleeps",
        "Sleeps of threads that wait for a free frame: with empty_free_list_algorithm = backoff only."
        => searches.wait_loops;
    buffer_lru_search_num_scan: Counter, "searches",
        "Searches for a clean page by operations that need a frame." => searches.searches;
    buffer_lru_search_scanned: Counter, "pages",
        "Pages that searches for a clean page by operations looked at." => searches.searched;
    buffer_lru_single_flush_num_scan: Counter, "searches",
        "Searches for a page to write by operations that need a frame: with empty_free_list_algorithm = legacy only."
        => searches.flush_searches;
    buffer_lru_single_flush_scanned: Counter, "pages",
        "Pages that searches for a page to write by operations looked at." => searches.flush_searched;
    buffer_lru_single_flush_scanned_per_call: Gauge, "pages",
        "Pages that the last search for a page to write by an operation looked at." => searches.last_flush_searched;
    /// These threads are the keeper, LRU managers, page cleaners.
    buffer_lru_batch_num_scan: Counter, "passes",
        "Passes over the pages that leave next, by threads that free frames ahead of need."
        => pool.counters.batch_scans.calls();
    buffer_lru_batch_scanned: Counter, "pages",
        "Pages that passes over the pages that leave next looked at." => pool.counters.batch_scans.total();
    buffer_lru_batch_scanned_per_call: Gauge, "pages",
        "Pages that the last pass over the pages that leave next looked at." => pool.counters.batch_scans.last();
    buffer_lru_batches_evict: Counter, "passes",
        "Passes over the pages that leave next in which clean pages left." => pool.counters.batch_evictions.calls();
    buffer_lru_batch_evict_total_pages: Counter, "pages",
        "Clean pages that left in passes over the pages that leave next." => pool.counters.batch_evictions.total();
    buffer_lru_batch_evict_pages: Gauge, "pages",
        "Clean pages that left in the last such pass in which some did." => pool.counters.batch_evictions.last();
    buffer_lru_batches_flush: Counter, "lots",
        "Lots of pages written because frames were wanted, now or soon." => for_frames.calls();
    /// The name is that of InnoDB's monitor.
    buffer_lru_batch_flush_total_pages: Counter, "pages",
        "Pages written because frames were wanted: buffer_pool_pages_lru_flushed under another of its names."
        => for_frames.total();
    buffer_lru_batch_flush_pages: Gauge, "pages",
        "Pages of the last lot written because frames were wanted." => for_frames.last();
    buffer_lru_batch_flush_avg_time_slot: Gauge, "ms",
        "How long refilling an instance's free frames took lately: with LRU managers, or cleaners that do their work."
        => count(&pool.counters.refill_ns) / 1_000_000;
    buffer_pool_read_ahead: Counter, "pages",
        "Pages that scans had read together, most of them ahead of need." => count(&pool.counters.read_ahead);
    buffer_pool_single_page_flushes: Counter, "pages",
        "Pages written by operations that found no free frame: with empty_free_list_algorithm = legacy only."
        => pool.single_flushes();
    buffer_pool_pages_lru_flushed: Counter, "pages",
        "Pages written because frames were wanted, now or soon." => for_frames.total();
    buffer_flush_adaptive_total_pages: Counter, "pages",
        "Pages written for the log, at a rate that has them clean in time." => adaptive.total();
    buffer_flush_adaptive: Counter, "lots", "Lots of pages written for the log." => adaptive.calls();
    buffer_flush_adaptive_pages: Gauge, "pages", "Pages of the last lot written for the log." => adaptive.last();
    buffer_flush_background_total_pages: Counter, "pages",
        "Pages written because there was nothing else to do: the log is quiet." => background.total();
    buffer_flush_background: Counter, "lots",
        "Lots of pages written because there was nothing else to do." => background.calls();
    buffer_flush_background_pages: Gauge, "pages",
        "Pages of the last lot written because there was nothing else to do." => background.last();
    buffer_flush_sync_total_pages: Counter, "pages",
        "Pages written because the log was full, or a checkpoint was asked for." => at_once.total();
    buffer_flush_sync: Counter, "lots",
        "Lots of pages written because the log was full, or a checkpoint was asked for." => at_once.calls();
    buffer_flush_sync_pages: Gauge, "pages",
        "Pages of the last lot written because the log was full, or a checkpoint was asked for." => at_once.last();
    /// Each search begins anew after each page.
    buffer_flush_sync_scanned: Counter, "pages",
        "Entries of flush lists that searches for pages to write at once looked at: with sync_only."
        => classic.map_or(0, |classic| count(&classic.rescanned));
    buffer_flush_sync_waits: Counter, "waits",
        "Of log_space_waits, those for pages to be written at three quarters of the log: with classic flushing."
        => classic.map_or(0, |classic| count(&classic.sync_waits));
    buffer_flush_neighbor_total_pages: Counter, "pages",
        "Of all pages written, those that were beside a page that was due: with flush_neighbors."
        => classic.map_or(0, |classic| classic.beside.total());
    buffer_flush_neighbor: Counter, "lots",
        "Lots of pages with neighbours of a page that was due: with flush_neighbors."
        => classic.map_or(0, |classic| classic.beside.calls());
    buffer_flush_neighbor_pages: Gauge, "pages",
        "Neighbours in the last lot that had some: with flush_neighbors."
        => classic.map_or(0, |classic| classic.beside.last());
    buffer_pool_pending_lru: Gauge, "pages",
        "Pages being written because frames are wanted." => pending(FlushReason::Frames);
    buffer_pool_pending_flush_list: Gauge, "pages",
        "Pages being written for the log or a checkpoint." => for_the_log.iter().sum();
    buffer_pool_pending_single_page: Gauge, "pages",
        "Pages being written by operations that found no free frame." => pending(FlushReason::SinglePage);
    log_lsn_current: Counter, "bytes",
        "Where the log stands: bytes since the database was created." => positions.next.0;
    log_lsn_last_flush: Counter, "bytes", "Up to where the log is durable." => positions.durable.0;
    log_lsn_last_checkpoint: Counter, "bytes", "Where recovery would begin." => positions.checkpoint.0;
    log_checkpoint_age: Gauge, "bytes",
        "Log since the last checkpoint; near log_capacity writers wait." => positions.next.since(positions.checkpoint);
    log_modified_age: Gauge, "bytes",
        "Log since the oldest change of a page that is in no image: with the classic methods of flushing, else 0."
        => oldest_change.map_or(0, |oldest| positions.next.0.saturating_sub(oldest.0));
    log_max_modified_age_sync: Gauge, "bytes",
        "log_modified_age from which on all writers wait: with the classic methods of flushing, else 0."
        => classic.map_or(0, |_| sync_only::limit(engine.log_length()));
    log_max_modified_age_async: Gauge, "bytes",
        "log_modified_age that adaptive and keep_average take for a full log: with these two, else 0."
        => writes_early.map_or(0, |_| sync_only::early(engine.log_length()));
    log_capacity: Gauge, "bytes", "Bytes that the log may hold." => log.capacity();
    log_space_waits: Counter, "waits",
        "Waits for room in the log: the device does not keep up." => count(&log.counters.space_waits);
    log_space_wait_us: Counter, "us", "Time of waits for room in the log." => count(&log.counters.space_wait_us);
    log_wall_waits: Counter, "waits",
        "Waits for room in the log because it was full: with envelope a defect, since writers should slow down before."
        => count(&log.counters.wall_waits);
    log_syncs: Counter, "calls",
        "Syncs of log files; commits that came together share one." => count(&log.counters.syncs);
    log_pending_writes: Gauge, "calls",
        "Writes of the log that the device has in hand." => log.counters.pending_writes.now();
    log_pending_syncs: Gauge, "calls",
        "Syncs of log files that the device has in hand." => log.counters.pending_syncs.now();
    log_bytes_written: Counter, "bytes",
        "Written to log files; blocks written twice count twice." => count(&log.counters.bytes_written);
    /// The log's capacity, or as much as a recovery applies in
    /// [`recovery_time_target`](crate::Options::recovery_time_target).
    log_capacity_effective: Gauge, "bytes",
        "Log capacity that the controller goes by: less with a recovery time target." => engine.log_wanted();
    log_apply_rate: Gauge, "bytes/s",
        "Log that a recovery applied; 0: none was measured yet." => engine.recovery_time.applied_per_s();
    log_recovery_us: Gauge, "us",
        "Time that the recovery from a crash now would take."
        => engine.recovery_time.of_us(positions.next.since(positions.checkpoint));
    pace_write_capacity: Gauge, "pages/s",
        "Pages that the device was found to write; 0: not seen yet." => whole(pace.capacity_pages_per_s);
    pace_flush_rate: Gauge, "pages/s",
        "Pages that have to be written for the log: the deadline envelope."
        => if is_paced { whole(pace.flush_pages_per_s) } else { 0 };
    pace_flush_owed: Gauge, "pages",
        "Pages that were to be written for the log and are not yet." => to_u64(engine.pacing.owed());
    pace_redo_rate: Gauge, "bytes/s", "Rate at which the log grows." => whole(pace.redo_per_s);
    pace_redo_limit: Gauge, "bytes/s",
        "Rate at which the log may grow; 0: no writer is slowed down."
        => if is_paced && pace.redo_limit.is_finite() { whole(pace.redo_limit) } else { 0 };
    pace_limited_us: Counter, "us", "Time with a limit in force." => engine.pacing.limited_us();
    pace_tick_us: Counter, "us", "Time that the controller itself has taken." => engine.pacing.tick_us();
    pace_write_cost_ns: Gauge, "ns",
        "Device time of a write of pages, without its pages; 0: not known." => engine.pacing.costs_ns().0;
    /// If that is little beside the cost of a write, the keeper empties zones.
    pace_page_cost_ns: Gauge, "ns",
        "Device time of each page in a write to the data file." => engine.pacing.costs_ns().1;
    data_page_reads: Counter, "pages", "Page images read." => count(&store.counters.page_reads);
    data_pending_reads: Gauge, "pages", "Pages being read." => store.counters.pending_reads.now();
    data_page_writes: Counter, "pages", "Page images written." => count(&store.counters.page_writes);
    data_undo_page_writes: Counter, "pages",
        "Page images written that are of undo pages." => count(&store.counters.undo_page_writes);
    data_write_calls: Counter, "calls", "Write calls that wrote page images." => count(&store.counters.write_calls);
    data_write_failures: Counter, "calls",
        "Write calls that failed, and whose pages went elsewhere: look at the device."
        => count(&store.counters.write_failures);
    data_written: Counter, "bytes",
        "Bytes of pages written to the data file." => count(&store.counters.page_writes) * to_u64(store.page_size());
    data_syncs: Counter, "calls", "Syncs of the data file." => count(&store.counters.data_syncs);
    data_pending_syncs: Gauge, "calls",
        "Syncs of the data file that the device has in hand." => store.counters.pending_syncs.now();
    /// With [`Doublewrite::DetectOnly`](crate::classic::Doublewrite::DetectOnly), notes of them.
    dblwr_pages_written: Counter, "pages",
        "Copies of pages written before the pages overwrote older images: with page_store = in_place only."
        => copies.map_or(0, |copies| count(&copies.pages));
    dblwr_writes: Counter, "calls",
        "Writes, each with a sync, of copies of pages: with doublewrite."
        => copies.map_or(0, |copies| count(&copies.writes));
    dblwr_pages_put_back: Gauge, "pages",
        "Pages torn by a crash that opening put back from copies." => engine.opening.put_back;
    data_images_unsynced: Gauge, "pages",
        "Images that wait for the data sync that makes them durable." => to_u64(store.unsynced() + store.loaded());
    data_slots_total: Gauge, "slots", "Slots of the data file, each for one page image." => slots_total;
    data_slots_free: Gauge, "slots", "Free slots." => slots_free;
    map_groups: Counter, "groups", "Groups of map records in the log." => count(&store.counters.map_groups);
    map_records: Counter, "records", "Map records: images that became durable." => count(&store.counters.map_records);
    map_page_writes: Counter, "pages", "Images of map pages written." => count(&store.counters.map_page_writes);
    data_zones_emptied: Counter, "zones",
        "Zones of the data file that were emptied for long writes." => count(&store.counters.zones_emptied);
    data_pages_moved: Counter, "pages",
        "Images moved within the data file for long writes, or for a shorter file." => count(&store.counters.pages_moved);
    data_file_cuts: Counter, "cuts",
        "Times that free space at the data file's end went back to the file system." => count(&store.counters.cuts);
    data_bytes_cut: Counter, "bytes",
        "Bytes that the data file gave back." => count(&store.counters.zones_cut) * to_u64(ZONE_BYTES);
    data_file_end_wanted: Gauge, "bytes",
        "Length that the data file shall have: less than its length while zones at its end are emptied."
        => store.wanted_bytes();
    checkpoints: Counter, "checkpoints", "Checkpoints written." => count(&store.counters.checkpoints);
    tree_pages_freed: Counter, "pages",
        "Pages merged into a neighbour or into the root." => count(&store.counters.pages_freed);
    undo_pages: Gauge, "pages",
        "Undo pages: in use, waiting for purge, or kept for reuse." => store.used_count(SpaceId::UNDO);
    purge_pages: Gauge, "pages",
        "Undo pages to be purged: after an open all, later those with delete marks; without those snapshots keep."
        => to_u64(engine.txns.purge_pages());
    purged_rows: Counter, "rows", "Deleted rows that purge has removed." => count(&engine.txns.purged_rows);
    snapshots: Gauge, "snapshots", "Live snapshots; clones of one count once." => engine.txns.snapshots.figures().0;
    snapshot_age_us: Gauge, "us",
        "How long the oldest live snapshot has lived; 0: there is none." => engine.txns.snapshots.figures().1 / 1000;
    snapshot_old_rows: Counter, "rows",
        "Rows read at a snapshot that were changed since it was taken." => count(&walks.rows);
    snapshot_steps: Counter, "records",
        "Undo records that were followed back from these rows." => count(&walks.steps);
    snapshot_steps_max: Gauge, "records",
        "The most undo records that were followed back from one row since the open." => count(&walks.most);
    commit_table_bytes: Gauge, "bytes",
        "Memory of the commit table: 32 KiB for 4,096 transactions, until each snapshot sees all of them or none."
        => engine.txns.commits.bytes();
    undo_bytes_retained: Gauge, "bytes",
        "Undo pages that snapshots keep, for their readers or from purge."
        => to_u64(engine.txns.kept_pages() * store.page_size());
    transactions_open: Gauge, "transactions",
        "Transactions that have changed or locked something and have not ended."
        => to_u64(open_transactions(engine).len());
    transaction_age_us: Gauge, "us",
        "How long ago the oldest of them changed or locked something first; 0: there is none."
        => open_transactions(engine).first().map_or(0, |oldest| nanos(oldest.age) / 1000);
    deadlocks: Counter, "deadlocks", "Circles of transactions that waited for one another; one of each gave way."
        => engine.txns.locks.deadlocks();
    batches_in_flight: Gauge, "transactions",
        "Transactions of several groups of the log, and large batches, that are not committed or not undone yet."
        => to_u64(engine.txns.locks.in_flight());
    wide_batches: Counter, "batches",
        "Batches over more leaves, or with more redo, than one group of the log: written in parts."
        => count(&engine.txns.wide_batches);
    group_pages_max: Gauge, "pages",
        "Most pages that the writer of one group of a batch or statement has kept in memory at once, since the open."
        => count(&engine.core.pool.counters.group_pages_max);
    rollbacks: Counter, "transactions",
        "Transactions and large batches that were undone." => count(&engine.txns.rollbacks);
    tree_merge_wishes: Gauge, "pages",
        "Pages that may be too empty, waiting for the keeper to merge them." => to_u64(engine.wish_count());
    trees_dropping: Gauge, "trees", "Dropped trees whose pages are still in frames." => to_u64(engine.drops.lock().len());
    log_on_recent_closed_wait_loops: Counter, "loops",
        "Looks of threads that wait for the window of log_recent_closed."
        => log.recent_closed.as_ref().map_or(0, |window| count(&window.wait_loops));
    log_on_flush_waits: Counter, "waits",
        "Waits for the log to be written or synced by its threads: with log_writer_threads."
        => of_pipeline(|counters| &counters.waits);
    log_on_flush_wait_loops: Counter, "loops",
        "Sleeps in waits for threads that write the log." => of_pipeline(|counters| &counters.wait_loops);
    log_spins: Counter, "waits",
        "Waits for threads that write the log that began with spinning." => of_pipeline(|counters| &counters.spins);
    log_spin_us: Counter, "us",
        "Time spent spinning for threads that write the log." => of_pipeline(|counters| &counters.spin_us);
    log_spins_in_time: Counter, "waits",
        "Waits for threads that write the log that ended while spinning."
        => of_pipeline(|counters| &counters.spins_in_time);
    log_spin_cpu_abs: Gauge, "0.01 %", "CPU that the log's spinning believes to be used, of one CPU." => spin_cpu;
    log_spin_cpus: Gauge, "0.01 cpus", "CPUs that the log's spinning believes to be there." => spin_cpus;
    log_spin_cpu_pct: Gauge, "0.01 %",
        "CPU that log_spin believes to be used, of all CPUs that it counts."
        => (spin_cpu * 100).checked_div(spin_cpus).unwrap_or(0);
    operation_gets: Counter, "operations", "Reads of a key's value." => operations(OperationKind::Get);
    operation_scans: Counter, "operations",
        "Steps of scans, each of which read the rows of a leaf." => operations(OperationKind::Scan);
    operation_writes: Counter, "operations",
        "Batches written, or refused; one change by itself is one, too." => operations(OperationKind::Write);
    operation_misses: Counter, "operations",
        "Operations that waited for a page to be read: not all that they needed was in the pool."
        => engine.waits.missed();
    operation_others: Counter, "operations",
        "Steps of bulk loads and index builds."
        => operations(OperationKind::BulkLoad) + operations(OperationKind::IndexBuild);
    stalls: Counter, "operations", "Operations that took the stall threshold or longer." => engine.waits.stalls().0;
    /// Counts for the whole process.
    law_violations: Counter, "events",
        "Breaches of the engine's own laws, such as a wait under a latch: each is a bug." => laws::violations();
    stopped: Gauge, "boolean",
        "1 after a failure of a device: no write is taken any more; reopen the database."
        => u64::from(log.health().is_err());
    /// Pool, tables of its pages, map, log buffers. On top come the memory of operations (keys and values of batches,
    /// rows of scans), stacks, and the allocator's reserves; 64 MiB are enough for some hundred threads.
    memory_budget: Gauge, "bytes",
        "Memory that the engine takes at most with the present settings and data." => engine.memory_budget();
    open_us: Gauge, "us", "Time that opening took." => count(&engine.opening.us);
    open_redo_bytes: Gauge, "bytes", "Log that opening read." => engine.opening.redo_bytes;
    open_redo_pages: Gauge, "pages", "Pages that opening brought up to date." => engine.opening.redo_pages;
}
