//! The table of metrics: the fields of [`Stats`], and each other counter, gauge and histogram.
//!
//! `docs/metrics.md`, [`Db::metrics`], its Prometheus text and the status as JSON are made from the table. The numbers
//! come from [`Stats`] and the waits by class: the engine counts nothing a second time for the table.

use crate::base::cpus::{self, Cpus};
use crate::base::operations::Slowest;
use crate::base::waits::{WaitClass, WaitTimes};
use crate::engine::Engine;
pub use crate::observe::stats::MetricKind;
use crate::observe::stats::{STATS, Stats, StatsRow};
use crate::pool::instance::InstancePages;

/// The description of a metric.
#[derive(Clone, Copy, Debug)]
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

#[derive(Clone, Copy, Debug)]
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

/// All metrics of the engine: the fields of [`Stats`], then the others.
pub static METRICS: [Metric; STATS.len() + OTHERS.len()] = {
    let mut all = [OTHERS[0]; STATS.len() + OTHERS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < STATS.len() { of_stats(&STATS[at]) } else { OTHERS[at - STATS.len()] };
        at += 1;
    }
    all
};

const fn of_stats(row: &StatsRow) -> Metric {
    let &StatsRow { name, kind, unit, help, read } = row;
    Metric { name, kind, unit, help, label: "", source: Source::Stats(read) }
}

/// The metrics that are no fields of [`Stats`].
const OTHERS: &[Metric] = &[
    instance("buffer_pool_instance_pages_total", "Frames of each instance of the pool.", |of| of.total),
    instance("buffer_pool_instance_pages_free", "Free frames of each instance.", |of| of.free),
    instance("buffer_pool_instance_pages_data", "Frames of each instance that are not free.", InstancePages::data),
    instance("buffer_pool_instance_pages_dirty", "Frames of each instance with a changed page.", |of| of.dirty),
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
