//! The figures of an interval and of a run. Text, JSON lines and page all show these, so they cannot disagree.
//!
//! The fields have the names of the JSON lines, which carry the unit; `docs/bench-output.md` lists them in tables.

use serde::Serialize;

use crate::calm::Calm;
use crate::canary::Seen;
use crate::canary::log::MachineLog;
use crate::driver::{Finished, Interval};
use crate::engine::{SlowOperation, Wait};
use crate::probe::SyncPairs;
use crate::recorder::Record;
use crate::verdict::{History, Judgement, judge};

/// Settings that the figures depend on besides the run.
#[derive(Clone, Copy, Debug)]
pub struct Labels {
    /// The percentile shown, 1 to 100; 0 for none.
    pub percentile: u32,
    /// From this duration on the engine counts an operation as a stall, in ms.
    pub stall_threshold_ms: u64,
}

impl Labels {
    fn share(self) -> f64 {
        f64::from(self.percentile) / 100.0
    }
}

/// The figures of a report interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntervalFigures {
    /// Seconds since the run began, without the warm-up.
    pub at_s: f64,
    /// Seconds that the interval lasted.
    pub length_s: f64,
    /// Worker threads.
    pub threads: usize,
    /// Transactions completed.
    pub transactions: u64,
    /// Transactions a second.
    pub transactions_per_s: f64,
    /// Statements a second.
    pub queries_per_s: f64,
    /// Statements that read, a second.
    pub reads_per_s: f64,
    /// Statements that changed a row, a second.
    pub writes_per_s: f64,
    /// Statements that should change a row and found none, a second.
    pub others_per_s: f64,
    /// Conflicts a second, each followed by a retry.
    pub conflicts_per_s: f64,
    /// The percentile that is shown, 0 for none.
    pub latency_percentile: u32,
    /// The latency that this share of the transactions did not exceed.
    pub latency_percentile_ms: f64,
    /// The latency that 999 of 1,000 transactions did not exceed.
    pub latency_p999_ms: f64,
    /// The longest latency.
    pub latency_max_ms: f64,
    /// In an open loop: transactions that have arrived and not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<u64>,
    /// In an open loop: transactions that are running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    /// Checkpoint age at the end of the interval, in percent of the effective log capacity.
    pub checkpoint_age_percent: f64,
    /// Dirty frames at the end of the interval, in percent of all frames.
    pub dirty_frames_percent: f64,
    /// Free frames at the end of the interval.
    pub free_frames: u64,
    /// Share of the transactions' time for which the engine throttled them, to keep checkpoint age and dirty pages in
    /// bounds.
    pub throttle_percent: f64,
    /// Figures of the canaries; `None` if the machine is not watched.
    #[serde(flatten)]
    pub machine: Option<SeenFigures>,
}

/// Figures of the canaries in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeenFigures {
    /// The device canary's longest pair of write and sync, ended or under way.
    pub canary_pair_max_ms: f64,
    /// The largest delay of the CPU canary's wakes, ended or overdue.
    pub canary_wake_max_ms: f64,
}

impl SeenFigures {
    fn of(seen: Seen) -> SeenFigures {
        SeenFigures { canary_pair_max_ms: ms(seen.device_ns), canary_wake_max_ms: ms(seen.cpu_late_ns) }
    }
}

impl IntervalFigures {
    /// The figures of `interval`.
    pub fn of(interval: &Interval, labels: Labels) -> IntervalFigures {
        let per_s = |count: u64| count as f64 / interval.length_s;
        let (record, gauges) = (&interval.record, interval.gauges);
        IntervalFigures {
            at_s: interval.at_s,
            length_s: interval.length_s,
            threads: interval.threads,
            transactions: record.transactions(),
            transactions_per_s: per_s(record.transactions()),
            queries_per_s: per_s(record.queries.total()),
            reads_per_s: per_s(record.queries.read),
            writes_per_s: per_s(record.queries.write),
            others_per_s: per_s(record.queries.other),
            conflicts_per_s: per_s(record.conflicts),
            latency_percentile: labels.percentile,
            latency_percentile_ms: percentile_ms(record, labels),
            latency_p999_ms: ms(record.quantile_ns(0.999)),
            latency_max_ms: ms(record.max_ns),
            queue_length: interval.queue.map(|queue| queue.length),
            concurrency: interval.queue.map(|queue| queue.concurrency),
            checkpoint_age_percent: gauges.age_percent,
            dirty_frames_percent: gauges.dirty_percent,
            free_frames: gauges.free_frames,
            throttle_percent: throttle_percent(interval),
            machine: interval.machine.map(SeenFigures::of),
        }
    }
}

/// The share of throttled time in the time of an interval's transactions, in percent.
fn throttle_percent(interval: &Interval) -> f64 {
    let latencies = &interval.record.latencies;
    let all_us = latencies.mean() * latencies.len() as f64 / 1e3;
    // Capped: a transaction that is still throttled at the interval's end is not among the latencies.
    (interval.throttled_us as f64 * 100.0 / all_us.max(1.0)).min(100.0)
}

/// The threads that the waits, slow operations, stalls and syncs of a run cover; the engine reports all its threads
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsOf {
    /// The measured threads: there were no others.
    Clients,
    /// The measured threads, and the threads that wrote beside them.
    ClientsAndWriters,
}

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunFigures {
    /// Whether the run was stopped before its time.
    pub interrupted: bool,
    /// Seconds that the run lasted, without the warm-up.
    pub elapsed_s: f64,
    /// Worker threads.
    pub threads: usize,
    /// Transactions completed.
    pub transactions: u64,
    /// Transactions a second.
    pub transactions_per_s: f64,
    /// Statements.
    pub queries: u64,
    /// Statements a second.
    pub queries_per_s: f64,
    /// Statements that read.
    pub reads: u64,
    /// Statements that changed a row.
    pub writes: u64,
    /// Statements that should change a row and found none.
    pub others: u64,
    /// Conflicts of statements, each followed by a retry.
    pub conflicts: u64,
    /// Conflicts a second, each followed by a retry.
    pub conflicts_per_s: f64,
    /// The shortest latency.
    pub latency_min_ms: f64,
    /// The mean latency.
    pub latency_mean_ms: f64,
    /// The longest latency.
    pub latency_max_ms: f64,
    /// The percentile that is shown, 0 for none.
    pub latency_percentile: u32,
    /// The latency that this share of the transactions did not exceed.
    pub latency_percentile_ms: f64,
    /// The latency that 999 of 1,000 transactions did not exceed.
    pub latency_p999_ms: f64,
    /// Sum of all latencies.
    pub latency_sum_ms: f64,
    /// Part of the sum from arrival to begin; 0 in a closed loop.
    pub queued_sum_ms: f64,
    /// Transactions per thread, on average.
    pub thread_transactions_mean: f64,
    /// Their standard deviation.
    pub thread_transactions_deviation: f64,
    /// Sum of a thread's latencies, on average.
    pub thread_time_mean_s: f64,
    /// Their standard deviation.
    pub thread_time_deviation_s: f64,
    /// Whether a rate was offered; then a brownout is measured against it.
    #[serde(skip)]
    pub is_offered: bool,
    /// Evenness over the whole seconds; `None` if there is none.
    #[serde(flatten)]
    pub calm: Option<Calm>,
    /// The longest time without a completion while a transaction waited, from the begin of the run to its end.
    pub blackout_ms: f64,
    /// In an open loop: transactions that had arrived and were not begun at the end.
    pub unserved: u64,
    /// From this duration on an operation counts as a stall.
    pub stall_threshold_ms: u64,
    /// Operations that took the threshold or longer.
    pub stalls: u64,
    /// Syncs of the log.
    pub log_syncs: u64,
    /// Syncs of the data.
    pub data_syncs: u64,
    /// Writes of pages to the data file.
    pub page_write_calls: u64,
    /// Bytes per write call, on average; 0 without a call.
    pub page_write_mean_bytes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// How often the engine broke one of its own rules; each time is a bug.
    pub law_violations: u64,
    /// The threads that waits and slow operations cover.
    pub waits_of: WaitsOf,
    /// Waits of operations, the class with the most time first.
    pub waits: Vec<Wait>,
    /// The engine's slowest operations, the slowest first.
    pub slow_operations: Vec<SlowOperation>,
    /// Pairs of a write and a sync that one thread makes on the device in a second.
    pub device_pairs_per_s: f64,
    /// The slowest of these pairs.
    pub device_worst_pair_ms: f64,
    /// Figures of the canaries; `None` if the machine was not watched.
    #[serde(flatten)]
    pub machine: Option<MachineFigures>,
    /// Whether the run was calm, and how long the machine stood still.
    #[serde(flatten)]
    pub judged: Judgement,
}

/// Figures of the canaries beside a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MachineFigures {
    /// Pairs of a write and its sync that the device's canary made.
    pub canary_pairs: u64,
    /// The median pair.
    pub canary_median_pair_ms: f64,
    /// The slowest pair of the device's own.
    pub canary_worst_pair_ms: f64,
    /// The slowest pair that began while the engine had much outstanding.
    pub canary_worst_shared_pair_ms: f64,
    /// Wakes of the CPU's canary.
    pub canary_wakes: u64,
    /// The median delay of a wake.
    pub canary_median_wake_ms: f64,
    /// The largest delay of a wake.
    pub canary_worst_wake_ms: f64,
}

impl MachineFigures {
    fn of(machine: &MachineLog) -> MachineFigures {
        MachineFigures {
            canary_pairs: machine.device.count(),
            canary_median_pair_ms: ms(machine.device.median_ns()),
            canary_worst_pair_ms: ms(machine.device.own_worst_ns()),
            canary_worst_shared_pair_ms: ms(machine.device.shared_worst_ns()),
            canary_wakes: machine.cpu.count(),
            canary_median_wake_ms: ms(machine.cpu.median_ns()),
            canary_worst_wake_ms: ms(machine.cpu.own_worst_ns()),
        }
    }
}

impl RunFigures {
    /// The figures of `finished`, with the probe's figures of the device.
    pub fn of(finished: &Finished, device: &SyncPairs, labels: Labels) -> RunFigures {
        let (record, counters) = (&finished.record, &finished.counters);
        let transactions = finished.transactions();
        let latency_sum_ns: u64 = finished.threads.iter().map(|thread| thread.latency_ns).sum();
        let latency_min_ns = finished.threads.iter().filter_map(|thread| thread.min_ns).min().unwrap_or(0);
        let events: Vec<f64> = finished.threads.iter().map(|thread| thread.transactions as f64).collect();
        let times_s: Vec<f64> = finished.threads.iter().map(|thread| thread.latency_ns as f64 / 1e9).collect();
        let (thread_transactions_mean, thread_transactions_deviation) = mean_and_deviation(&events);
        let (thread_time_mean_s, thread_time_deviation_s) = mean_and_deviation(&times_s);
        RunFigures {
            interrupted: finished.was_stopped,
            elapsed_s: finished.elapsed_s,
            threads: finished.threads.len(),
            transactions,
            transactions_per_s: finished.mean_per_s(),
            queries: record.queries.total(),
            queries_per_s: finished.per_s(record.queries.total()),
            reads: record.queries.read,
            writes: record.queries.write,
            others: record.queries.other,
            conflicts: record.conflicts,
            conflicts_per_s: finished.per_s(record.conflicts),
            latency_min_ms: ms(latency_min_ns),
            latency_mean_ms: ms(latency_sum_ns.checked_div(transactions).unwrap_or(0)),
            latency_max_ms: ms(record.max_ns),
            latency_percentile: labels.percentile,
            latency_percentile_ms: percentile_ms(record, labels),
            latency_p999_ms: ms(record.quantile_ns(0.999)),
            latency_sum_ms: ms(latency_sum_ns),
            thread_transactions_mean,
            thread_transactions_deviation,
            thread_time_mean_s,
            thread_time_deviation_s,
            queued_sum_ms: ms(finished.threads.iter().map(|thread| thread.queued_ns).sum()),
            is_offered: finished.offered_per_s.is_some(),
            calm: Calm::of(&finished.seconds, finished.offered_per_s),
            blackout_ms: finished.blackout_ms(),
            unserved: finished.unserved,
            stall_threshold_ms: labels.stall_threshold_ms,
            stalls: counters.stalls,
            log_syncs: counters.log_syncs,
            data_syncs: counters.data_syncs,
            page_write_calls: counters.page_write_calls,
            page_write_mean_bytes: counters.page_write_bytes.checked_div(counters.page_write_calls).unwrap_or(0),
            checkpoints: counters.checkpoints,
            law_violations: counters.law_violations,
            waits_of: WaitsOf::Clients,
            waits: most_first(&counters.waits),
            slow_operations: finished.slow_operations.clone(),
            device_pairs_per_s: device.per_s,
            device_worst_pair_ms: device.worst_ms,
            machine: finished.machine.as_ref().map(MachineFigures::of),
            judged: judged(finished, device, labels),
        }
    }

    /// The device's slowest pair of its own: of the canary, or of the probe if no canary watched.
    pub fn device_own_ms(&self) -> f64 {
        self.machine.map_or(self.device_worst_pair_ms, |machine| machine.canary_worst_pair_ms)
    }

    /// The sentence about the longest gap.
    pub fn sentence(&self) -> String {
        self.judged.sentence(self.blackout_ms, self.machine.is_some())
    }

    /// Transactions in the median second; the mean if the run has no whole second.
    pub fn usual_per_s(&self) -> f64 {
        self.calm.map_or(self.transactions_per_s, |calm| calm.median_per_s)
    }
}

/// The judgement on `finished`.
pub fn judged(finished: &Finished, device: &SyncPairs, labels: Labels) -> Judgement {
    judge(&History {
        seconds: &finished.seconds,
        counts_from_ns: finished.counts_from_ns,
        offered_per_s: finished.offered_per_s,
        gaps: &finished.gaps(),
        slow: &finished.slow(),
        slowest_ns: finished.slowest_ns(),
        stalls: finished.counters.stalls,
        stall_spans: &finished.stalls,
        stall_threshold_ns: labels.stall_threshold_ms.saturating_mul(1_000_000),
        machine: finished.machine.as_ref(),
        probe_worst_ns: (device.worst_ms * 1e6) as u64,
    })
}

/// The waits that occurred, the most time first.
fn most_first(waits: &[Wait]) -> Vec<Wait> {
    let mut waits: Vec<Wait> = waits.iter().filter(|wait| wait.count > 0).copied().collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_us));
    waits
}

/// The percentile that is shown, 0 if none is.
fn percentile_ms(record: &Record, labels: Labels) -> f64 {
    if labels.percentile == 0 { 0.0 } else { ms(record.quantile_ns(labels.share())) }
}

/// The mean and the standard deviation of the values, as sysbench computes them (population, not sample).
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
