//! The table of metrics: each counter, gauge and histogram with its name, kind, unit and meaning.
//!
//! `docs/metrics.md`, [`Db::metrics`], its Prometheus text and the status as JSON are made from the table. The numbers
//! come from [`Stats`] and the waits by class: the engine counts nothing a second time for the table.

use crate::base::cpus::{self, Cpus};
use crate::base::operations::Slowest;
use crate::base::waits::{WaitClass, WaitTimes};
use crate::engine::Engine;
use crate::observe::stats::Stats;
use crate::pool::instance::InstancePages;

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

/// The description of a metric.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// The name: of a field of [`Stats`]; or `wait_`, the [class](WaitClass::name), and `_us`; or one that begins with
    /// `cpu_` or `buffer_pool_instance_`; or `operation_second`, `operation_slowest_us`, `stalls_by_class`, `waiting`
    /// or `waiting_us`.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: MetricKind,
    /// The unit: `bytes`, `us` (microseconds), `pages` and so on.
    pub unit: &'static str,
    /// The meaning, in one line.
    pub help: &'static str,
    /// The label of each of several numbers: an `instance`, from 0 on; how many seconds `ago`; or a `class` of waits.
    /// Empty: there is one number.
    pub label: &'static str,
    source: Source,
}

const STALLS_BY_CLASS: &str = "Stalls in which waits of a class took at least half of the time.";

/// Picks one number of a class of waits: waiting threads, their microseconds so far, or stalls.
type OfClass = fn((u64, u64, u64)) -> u64;

#[derive(Clone, Debug)]
enum Source {
    Stats(fn(&Stats) -> u64),
    Cpus(fn(&Cpus) -> u64),
    Waits(WaitClass),
    Instances(fn(&InstancePages) -> u64),
    Slowest(fn(&Slowest) -> MetricValue),
    /// One number for each class of waits.
    ByClass(OfClass),
}

/// The value of a [`Metric`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricValue {
    /// Of a counter or a gauge.
    Number(u64),
    /// Of a histogram.
    Times(WaitTimes),
    /// Of a gauge of several things, from number 0 on: see [`Metric::label`].
    Numbers(Vec<u64>),
    /// Of a gauge of several things that have names.
    Named(Vec<(&'static str, u64)>),
}

/// One row: a field of [`Stats`].
macro_rules! stat {
    ($name:ident, $kind:ident, $unit:literal, $help:literal) => {
        Metric {
            name: stringify!($name),
            kind: MetricKind::$kind,
            unit: $unit,
            help: $help,
            label: "",
            source: Source::Stats(|stats| stats.$name),
        }
    };
}

/// One row: the CPUs of the process.
const fn cpu(
    name: &'static str,
    kind: MetricKind,
    unit: &'static str,
    help: &'static str,
    read: fn(&Cpus) -> u64,
) -> Metric {
    Metric { name, kind, unit, help, label: "", source: Source::Cpus(read) }
}

/// One row: pages of each instance of the buffer pool.
const fn instance(name: &'static str, help: &'static str, read: fn(&InstancePages) -> u64) -> Metric {
    Metric { name, kind: MetricKind::Gauge, unit: "pages", help, label: "instance", source: Source::Instances(read) }
}

/// One row: the slowest operations by second.
const fn slowest(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    label: &'static str,
    read: fn(&Slowest) -> MetricValue,
) -> Metric {
    Metric { name, kind: MetricKind::Gauge, unit, help, label, source: Source::Slowest(read) }
}

/// One row: the waits of a class.
const fn wait(name: &'static str, class: WaitClass, help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram, unit: "us", help, label: "", source: Source::Waits(class) }
}

/// One row: a gauge of each class of waits.
const fn by_class(name: &'static str, unit: &'static str, help: &'static str, read: OfClass) -> Metric {
    Metric { name, kind: MetricKind::Gauge, unit, help, label: "class", source: Source::ByClass(read) }
}

/// All metrics of the engine, area by area.
pub static METRICS: [Metric; 150] = [
    stat!(buffer_pool_pages_total, Gauge, "pages", "Frames of the buffer pool."),
    stat!(buffer_pool_pages_free, Gauge, "pages", "Free frames."),
    stat!(buffer_pool_pages_data, Gauge, "pages", "Frames that are not free: with a page, or about to get one."),
    stat!(buffer_pool_pages_dirty, Gauge, "pages", "Frames whose page was changed since its last image was begun."),
    stat!(buffer_pool_pages_misc, Gauge, "pages", "Frames for anything but pages: always 0."),
    stat!(buffer_pool_pages_leaving, Gauge, "pages", "Frames beyond the end of a pool made smaller, still in use."),
    instance("buffer_pool_instance_pages_total", "Frames of each instance of the pool.", |of| of.total),
    instance("buffer_pool_instance_pages_free", "Free frames of each instance.", |of| of.free),
    instance("buffer_pool_instance_pages_data", "Frames of each instance that are not free.", InstancePages::data),
    instance("buffer_pool_instance_pages_dirty", "Frames of each instance with a changed page.", |of| of.dirty),
    stat!(
        buffer_pool_free_target,
        Gauge,
        "pages",
        "Free frames that are kept ready; with the hand-off the number follows the demand."
    ),
    stat!(
        buffer_pool_wait_free,
        Counter,
        "waits",
        "Waits for a free frame, or in a line behind such waits, each counted once; the engine's own threads' too."
    ),
    stat!(buffer_pool_wait_free_us, Counter, "us", "Time of waits for a free frame, the engine's own threads' too."),
    stat!(
        buffer_pool_wait_free_behind_us,
        Counter,
        "us",
        "Part of buffer_pool_wait_free_us spent in a line behind threads that wait for a frame."
    ),
    stat!(
        buffer_pool_wait_free_loops,
        Counter,
        "sleeps",
        "Sleeps of threads that wait for a free frame: with empty_free_list_algorithm = backoff only."
    ),
    stat!(
        buffer_lru_search_num_scan,
        Counter,
        "searches",
        "Searches for a clean page by operations that need a frame."
    ),
    stat!(buffer_lru_search_scanned, Counter, "pages", "Pages that searches for a clean page by operations looked at."),
    stat!(
        buffer_lru_single_flush_num_scan,
        Counter,
        "searches",
        "Searches for a page to write by operations that need a frame: with empty_free_list_algorithm = legacy only."
    ),
    stat!(
        buffer_lru_single_flush_scanned,
        Counter,
        "pages",
        "Pages that searches for a page to write by operations looked at."
    ),
    stat!(
        buffer_lru_single_flush_scanned_per_call,
        Gauge,
        "pages",
        "Pages that the last search for a page to write by an operation looked at."
    ),
    stat!(
        buffer_lru_batch_num_scan,
        Counter,
        "passes",
        "Passes over the pages that leave next, by threads that free frames ahead of need."
    ),
    stat!(buffer_lru_batch_scanned, Counter, "pages", "Pages that passes over the pages that leave next looked at."),
    stat!(
        buffer_lru_batch_scanned_per_call,
        Gauge,
        "pages",
        "Pages that the last pass over the pages that leave next looked at."
    ),
    stat!(
        buffer_lru_batches_evict,
        Counter,
        "passes",
        "Passes over the pages that leave next in which clean pages left."
    ),
    stat!(
        buffer_lru_batch_evict_total_pages,
        Counter,
        "pages",
        "Clean pages that left in passes over the pages that leave next."
    ),
    stat!(
        buffer_lru_batch_evict_pages,
        Gauge,
        "pages",
        "Clean pages that left in the last such pass in which some did."
    ),
    stat!(buffer_lru_batches_flush, Counter, "lots", "Lots of pages written because frames were wanted, now or soon."),
    stat!(
        buffer_lru_batch_flush_total_pages,
        Counter,
        "pages",
        "Pages written because frames were wanted: buffer_pool_pages_lru_flushed under another of its names."
    ),
    stat!(buffer_lru_batch_flush_pages, Gauge, "pages", "Pages of the last lot written because frames were wanted."),
    stat!(
        buffer_lru_batch_flush_avg_time_slot,
        Gauge,
        "ms",
        "How long refilling an instance's free frames took lately: with LRU managers, or cleaners that do their work."
    ),
    stat!(buffer_pool_read_ahead, Counter, "pages", "Pages that scans had read together, most of them ahead of need."),
    stat!(
        buffer_pool_single_page_flushes,
        Counter,
        "pages",
        "Pages written by operations that found no free frame: with empty_free_list_algorithm = legacy only."
    ),
    stat!(buffer_pool_pages_lru_flushed, Counter, "pages", "Pages written because frames were wanted, now or soon."),
    stat!(
        buffer_flush_adaptive_total_pages,
        Counter,
        "pages",
        "Pages written for the log, at a rate that has them clean in time."
    ),
    stat!(buffer_flush_adaptive, Counter, "lots", "Lots of pages written for the log."),
    stat!(buffer_flush_adaptive_pages, Gauge, "pages", "Pages of the last lot written for the log."),
    stat!(
        buffer_flush_background_total_pages,
        Counter,
        "pages",
        "Pages written because there was nothing else to do: the log is quiet."
    ),
    stat!(buffer_flush_background, Counter, "lots", "Lots of pages written because there was nothing else to do."),
    stat!(
        buffer_flush_background_pages,
        Gauge,
        "pages",
        "Pages of the last lot written because there was nothing else to do."
    ),
    stat!(
        buffer_flush_sync_total_pages,
        Counter,
        "pages",
        "Pages written because the log was full, or a checkpoint was asked for."
    ),
    stat!(
        buffer_flush_sync,
        Counter,
        "lots",
        "Lots of pages written because the log was full, or a checkpoint was asked for."
    ),
    stat!(
        buffer_flush_sync_pages,
        Gauge,
        "pages",
        "Pages of the last lot written because the log was full, or a checkpoint was asked for."
    ),
    stat!(
        buffer_flush_sync_scanned,
        Counter,
        "pages",
        "Entries of flush lists that searches for pages to write at once looked at: with sync_only."
    ),
    stat!(
        buffer_flush_sync_waits,
        Counter,
        "waits",
        "Of log_space_waits, those for pages to be written at three quarters of the log: with classic flushing."
    ),
    stat!(
        buffer_flush_neighbor_total_pages,
        Counter,
        "pages",
        "Of all pages written, those that were beside a page that was due: with flush_neighbors."
    ),
    stat!(
        buffer_flush_neighbor,
        Counter,
        "lots",
        "Lots of pages with neighbours of a page that was due: with flush_neighbors."
    ),
    stat!(
        buffer_flush_neighbor_pages,
        Gauge,
        "pages",
        "Neighbours in the last lot that had some: with flush_neighbors."
    ),
    stat!(buffer_pool_pending_lru, Gauge, "pages", "Pages being written because frames are wanted."),
    stat!(buffer_pool_pending_flush_list, Gauge, "pages", "Pages being written for the log or a checkpoint."),
    stat!(
        buffer_pool_pending_single_page,
        Gauge,
        "pages",
        "Pages being written by operations that found no free frame."
    ),
    stat!(log_lsn_current, Counter, "bytes", "Where the log stands: bytes since the database was created."),
    stat!(log_lsn_last_flush, Counter, "bytes", "Up to where the log is durable."),
    stat!(log_lsn_last_checkpoint, Counter, "bytes", "Where recovery would begin."),
    stat!(log_checkpoint_age, Gauge, "bytes", "Log since the last checkpoint; near log_capacity writers wait."),
    stat!(
        log_modified_age,
        Gauge,
        "bytes",
        "Log since the oldest change of a page that is in no image: with the classic methods of flushing, else 0."
    ),
    stat!(
        log_max_modified_age_sync,
        Gauge,
        "bytes",
        "log_modified_age from which on all writers wait: with the classic methods of flushing, else 0."
    ),
    stat!(
        log_max_modified_age_async,
        Gauge,
        "bytes",
        "log_modified_age that adaptive and keep_average take for a full log: with these two, else 0."
    ),
    stat!(log_capacity, Gauge, "bytes", "Bytes that the log may hold."),
    stat!(log_space_waits, Counter, "waits", "Waits for room in the log: the device does not keep up."),
    stat!(log_space_wait_us, Counter, "us", "Time of waits for room in the log."),
    stat!(
        log_wall_waits,
        Counter,
        "waits",
        "Waits for room in the log because it was full: with envelope a defect, since writers should slow down before."
    ),
    stat!(log_syncs, Counter, "calls", "Syncs of log files; commits that came together share one."),
    stat!(log_pending_writes, Gauge, "calls", "Writes of the log that the device has in hand."),
    stat!(log_pending_syncs, Gauge, "calls", "Syncs of log files that the device has in hand."),
    stat!(log_bytes_written, Counter, "bytes", "Written to log files; blocks written twice count twice."),
    stat!(
        log_capacity_effective,
        Gauge,
        "bytes",
        "Log capacity that the controller goes by: less with a recovery time target."
    ),
    stat!(log_apply_rate, Gauge, "bytes/s", "Log that a recovery applied; 0: none was measured yet."),
    stat!(log_recovery_us, Gauge, "us", "Time that the recovery from a crash now would take."),
    stat!(pace_write_capacity, Gauge, "pages/s", "Pages that the device was found to write; 0: not seen yet."),
    stat!(pace_flush_rate, Gauge, "pages/s", "Pages that have to be written for the log: the deadline envelope."),
    stat!(pace_flush_owed, Gauge, "pages", "Pages that were to be written for the log and are not yet."),
    stat!(pace_redo_rate, Gauge, "bytes/s", "Rate at which the log grows."),
    stat!(pace_redo_limit, Gauge, "bytes/s", "Rate at which the log may grow; 0: no writer is slowed down."),
    stat!(pace_limited_us, Counter, "us", "Time with a limit in force."),
    stat!(pace_tick_us, Counter, "us", "Time that the controller itself has taken."),
    stat!(pace_write_cost_ns, Gauge, "ns", "Device time of a write of pages, without its pages; 0: not known."),
    stat!(pace_page_cost_ns, Gauge, "ns", "Device time of each page in a write to the data file."),
    stat!(data_page_reads, Counter, "pages", "Page images read."),
    stat!(data_pending_reads, Gauge, "pages", "Pages being read."),
    stat!(data_page_writes, Counter, "pages", "Page images written."),
    stat!(data_write_calls, Counter, "calls", "Write calls that wrote page images."),
    stat!(
        data_write_failures,
        Counter,
        "calls",
        "Write calls that failed, and whose pages went elsewhere: look at the device."
    ),
    stat!(data_written, Counter, "bytes", "Bytes of pages written to the data file."),
    stat!(data_syncs, Counter, "calls", "Syncs of the data file."),
    stat!(data_pending_syncs, Gauge, "calls", "Syncs of the data file that the device has in hand."),
    stat!(
        dblwr_pages_written,
        Counter,
        "pages",
        "Copies of pages written before the pages overwrote older images: with page_store = in_place only."
    ),
    stat!(dblwr_writes, Counter, "calls", "Writes, each with a sync, of copies of pages: with doublewrite."),
    stat!(dblwr_pages_put_back, Gauge, "pages", "Pages torn by a crash that opening put back from copies."),
    stat!(data_images_unsynced, Gauge, "pages", "Images that wait for the data sync that makes them durable."),
    stat!(data_slots_total, Gauge, "slots", "Slots of the data file, each for one page image."),
    stat!(data_slots_free, Gauge, "slots", "Free slots."),
    stat!(map_groups, Counter, "groups", "Groups of map records in the log."),
    stat!(map_records, Counter, "records", "Map records: images that became durable."),
    stat!(map_page_writes, Counter, "pages", "Images of map pages written."),
    stat!(data_zones_emptied, Counter, "zones", "Zones of the data file that were emptied for long writes."),
    stat!(data_pages_moved, Counter, "pages", "Images moved to empty zones of the data file, counted as written, too."),
    stat!(checkpoints, Counter, "checkpoints", "Checkpoints written."),
    stat!(tree_pages_freed, Counter, "pages", "Pages merged into a neighbour or into the root."),
    stat!(undo_pages, Gauge, "pages", "Undo pages: in use, waiting for purge, or kept for reuse."),
    stat!(
        purge_pages,
        Gauge,
        "pages",
        "Undo pages still to be purged: after an open all, later those with delete marks; without the current one."
    ),
    stat!(purged_rows, Counter, "rows", "Deleted rows that purge has removed."),
    stat!(
        batches_in_flight,
        Gauge,
        "batches",
        "Batches of several groups being written or undone; their rows are locked."
    ),
    stat!(rollbacks, Counter, "batches", "Batches that were undone: they failed, or a crash came before their commit."),
    stat!(tree_merge_wishes, Gauge, "pages", "Pages that may be too empty, waiting for the keeper to merge them."),
    stat!(trees_dropping, Gauge, "trees", "Dropped trees whose pages are still in frames."),
    stat!(
        log_on_recent_closed_wait_loops,
        Counter,
        "loops",
        "Looks of threads that wait for the window of log_recent_closed."
    ),
    stat!(
        log_on_flush_waits,
        Counter,
        "waits",
        "Waits for the log to be written or synced by its threads: with log_writer_threads."
    ),
    stat!(log_on_flush_wait_loops, Counter, "loops", "Sleeps in waits for threads that write the log."),
    stat!(log_spins, Counter, "waits", "Waits for threads that write the log that began with spinning."),
    stat!(log_spin_us, Counter, "us", "Time spent spinning for threads that write the log."),
    stat!(log_spins_in_time, Counter, "waits", "Waits for threads that write the log that ended while spinning."),
    stat!(log_spin_cpu_abs, Gauge, "0.01 %", "CPU that the log's spinning believes to be used, of one CPU."),
    stat!(log_spin_cpus, Gauge, "0.01 cpus", "CPUs that the log's spinning believes to be there."),
    stat!(log_spin_cpu_pct, Gauge, "0.01 %", "CPU that log_spin believes to be used, of all CPUs that it counts."),
    stat!(operation_gets, Counter, "operations", "Reads of a key's value."),
    stat!(operation_scans, Counter, "operations", "Steps of scans, each of which read the rows of a leaf."),
    stat!(operation_writes, Counter, "operations", "Batches written, or refused; one change by itself is one, too."),
    stat!(
        operation_misses,
        Counter,
        "operations",
        "Operations that waited for a page to be read: not all that they needed was in the pool."
    ),
    stat!(operation_others, Counter, "operations", "Steps of bulk loads and index builds."),
    slowest("operation_second", "s", "The second that is under way, by the engine's clock.", "", |slowest| {
        MetricValue::Number(slowest.second)
    }),
    slowest(
        "operation_slowest_us",
        "us",
        "The slowest operation that ended in a second, by seconds ago, to a few ms; 0: this second, still under way.",
        "ago",
        |slowest| MetricValue::Numbers(slowest.us.clone()),
    ),
    stat!(stalls, Counter, "operations", "Operations that took the stall threshold or longer."),
    stat!(
        law_violations,
        Counter,
        "events",
        "Breaches of the engine's own laws, such as a wait under a latch: each is a bug."
    ),
    stat!(stopped, Gauge, "boolean", "1 after a failure of a device: no write is taken any more; reopen the database."),
    stat!(memory_budget, Gauge, "bytes", "Memory that the engine takes at most with the present settings and data."),
    stat!(open_us, Gauge, "us", "Time that opening took."),
    stat!(open_redo_bytes, Gauge, "bytes", "Log that opening read."),
    stat!(open_redo_pages, Gauge, "pages", "Pages that opening brought up to date."),
    cpu("cpu_n", MetricKind::Gauge, "cpus", "CPUs that the process may run on.", Cpus::count),
    cpu(
        "cpu_granted_pct",
        MetricKind::Gauge,
        "per cent",
        "CPU granted to the process, in hundredths of one: the least of cpu_n and the quotas of its control groups.",
        Cpus::effective_pct,
    ),
    cpu("cpu_used_us", MetricKind::Counter, "us", "CPU time of the process since it began.", |_| cpus::used_us()),
    cpu(
        "cpu_quota_periods",
        MetricKind::Counter,
        "periods",
        "Periods of the smallest quota, since its control group began; 0 without one.",
        |cpus| cpus.periods,
    ),
    cpu(
        "cpu_throttled_periods",
        MetricKind::Counter,
        "periods",
        "Periods in which the process stood still, because the quota of a control group was used up.",
        |cpus| cpus.throttled,
    ),
    Metric {
        kind: MetricKind::Counter,
        ..by_class("stalls_by_class", "operations", STALLS_BY_CLASS, |(.., stalls)| stalls)
    },
    by_class("waiting", "threads", "Threads that wait now, by class of waits.", |(threads, ..)| threads),
    by_class(
        "waiting_us",
        "us",
        "Time that threads that wait now have waited so far, in total: no histogram has these waits yet.",
        |(_, us, _)| us,
    ),
    wait(
        "wait_free_frame_us",
        WaitClass::FreeFrame,
        "Waits for a free frame, or in a line behind threads that wait for one.",
    ),
    wait(
        "wait_admission_us",
        WaitClass::Admission,
        "Waits for leave to miss pages, when many operations miss at once.",
    ),
    wait("wait_log_space_us", WaitClass::LogSpace, "Waits for room in the log's buffer or files."),
    wait(
        "wait_log_write_us",
        WaitClass::LogWrite,
        "Waits for the log to be written, the thread's own write included: for threads that need no sync.",
    ),
    wait(
        "wait_log_flush_us",
        WaitClass::LogFlush,
        "Waits for the log to be durable, the thread's own write and sync included.",
    ),
    wait("wait_page_read_us", WaitClass::PageRead, "Reads of pages, the thread's own and those that it waits for."),
    wait("wait_page_latch_us", WaitClass::PageLatch, "Waits for a page's latch."),
    wait(
        "wait_checkpoint_us",
        WaitClass::Checkpoint,
        "Waits for a checkpoint that was asked for, a bulk load's pages being named, or another duty of the keeper.",
    ),
    wait(
        "wait_lane_us",
        WaitClass::Lane,
        "Waits for the lane, which an operation that was restarted often takes; it admits one at a time.",
    ),
    wait(
        "wait_metadata_us",
        WaitClass::Metadata,
        "Waits for a creation, drop or close of a tree, table or index, for purge's turn, or for a bulk load's lot.",
    ),
    wait(
        "wait_row_lock_us",
        WaitClass::RowLock,
        "Waits for a row that a batch of several groups has changed or looked at.",
    ),
    wait("wait_file_growth_us", WaitClass::FileGrowth, "Waits for room in the data files."),
    wait(
        "wait_throttle_us",
        WaitClass::Throttle,
        "Waits of writers that pay for their log, while the device cannot clean pages as fast as writers dirty them.",
    ),
    wait(
        "wait_recent_closed_us",
        WaitClass::RecentClosed,
        "Waits for the window of log_recent_closed, under page latches, and for latches of threads that wait so.",
    ),
];

pub(crate) fn values(engine: &Engine) -> Vec<(&'static Metric, MetricValue)> {
    let (stats, cpus, instances) = (engine.stats(), Cpus::read(), engine.core.pool.instance_pages());
    let (slowest, by_class) = (engine.waits.slowest_by_second(), engine.waits.by_class());
    let value = |metric: &'static Metric| match metric.source {
        Source::Stats(read) => (metric, MetricValue::Number(read(&stats))),
        Source::Cpus(read) => (metric, MetricValue::Number(read(&cpus))),
        Source::Waits(class) => (metric, MetricValue::Times(engine.waits.times(class))),
        Source::Slowest(read) => (metric, read(&slowest)),
        Source::ByClass(read) => {
            let named = WaitClass::ALL.into_iter().zip(by_class).map(|(class, of)| (class.name(), read(of)));
            (metric, MetricValue::Named(named.collect()))
        }
        Source::Instances(read) => (metric, MetricValue::Numbers(instances.iter().map(read).collect())),
    };
    METRICS.iter().map(value).collect()
}
