//! Records each transaction, cheaply.
//!
//! REC-1  A completion is in exactly one interval, and in exactly one thread's totals.
//! REC-2  The blackout is never shorter than the true longest gap between completions while a transaction waited. In a
//!        closed loop a transaction always waits: a gap lasts from one completion to the next, whatever the load does.
//!
//! Each worker has a [`Slot`], in which it stores since when its transaction has been waiting. The slot also holds the
//! interval's histogram under a mutex. Only the collector contends for the mutex: once a second it swaps in an empty
//! histogram. Figures for the end of the run ([`Totals`]) stay with the worker and are not shared.
//! The gap between completions concerns all threads: one shared time stamp (`Pulse`), one atomic maximum a transaction.
//! A draw, two readings of the clock and the recording take 0.1 us a transaction in one thread and 0.2 us in 16 threads
//! on two CPUs (measured 2026-11, 11 million a second on an engine that does nothing).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::generators::oltp::{Queries, Tally};
use crate::spans::{KEPT_FROM_NS, Longest, Slow, Span};

/// The histogram's upper bound: an hour, in ns; longer latencies count as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Value of a slot while no transaction waits.
const IDLE: u64 = u64::MAX;

/// Time since the run began, in ns.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    started: Instant,
}

impl RunClock {
    /// A clock that starts now.
    pub fn start() -> RunClock {
        RunClock { started: Instant::now() }
    }

    /// Nanoseconds since the start; wraps after 584 years.
    pub fn now_ns(self) -> u64 {
        let elapsed = self.started.elapsed();
        elapsed.as_secs() * SECOND_NS + u64::from(elapsed.subsec_nanos())
    }

    /// The span of `length` that ended at `ended`; `None` if it ended before the start.
    pub fn span_of(self, ended: Instant, length: Duration) -> Option<Span> {
        let to_ns = u64::try_from(ended.checked_duration_since(self.started)?.as_nanos()).ok()?;
        Some(Span::new(to_ns.saturating_sub(u64::try_from(length.as_nanos()).ok()?), to_ns))
    }
}

/// An empty histogram of latencies in ns.
pub fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("1 ns to an hour with 3 digits are valid bounds")
}

/// A worker's record, which the collector takes each second.
#[derive(Clone, Debug)]
pub struct Record {
    /// Latencies in ns.
    pub latencies: Histogram<u64>,
    /// The longest latency, exact, in ns.
    pub max_ns: u64,
    /// Conflicts, each followed by a retry.
    pub conflicts: u64,
    /// Statements.
    pub queries: Queries,
}

impl Record {
    /// An empty record.
    pub fn new() -> Record {
        Record { latencies: latency_histogram(), max_ns: 0, conflicts: 0, queries: Queries::default() }
    }

    /// Empties the record, but keeps its memory.
    pub fn clear(&mut self) {
        self.latencies.reset();
        self.max_ns = 0;
        self.conflicts = 0;
        self.queries = Queries::default();
    }

    /// Transactions in it.
    pub fn transactions(&self) -> u64 {
        self.latencies.len()
    }

    /// Adds another record's content.
    pub fn add(&mut self, other: &Record) {
        self.latencies.add(&other.latencies).expect("all histograms here have the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
        self.conflicts += other.conflicts;
        self.queries += other.queries;
    }

    /// The latency that a share of the transactions did not exceed, in ns; 0 if there were none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        // The histogram answers with the upper end of a bucket, which may lie above the exact maximum.
        self.latencies.value_at_quantile(share).min(self.max_ns)
    }
}

impl Default for Record {
    fn default() -> Record {
        Record::new()
    }
}

/// A worker's totals for the end of the run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Transactions completed.
    pub transactions: u64,
    /// Sum of their latencies, in ns.
    pub latency_ns: u64,
    /// The shortest latency, in ns.
    pub min_ns: Option<u64>,
    /// Completions in each second since the counting began.
    pub per_second: Vec<u64>,
    /// The longest latency of each second, in ns.
    pub worst_ns: Vec<u64>,
    /// The longest time without a completion of any thread that a completion of this worker ended.
    pub blackout: Span,
    /// All such times of at least [`KEPT_FROM_NS`].
    pub gaps: Longest<Span>,
    /// Transactions with a latency of at least [`KEPT_FROM_NS`].
    pub slow: Longest<Slow>,
    /// Time from arrival to begin of all transactions, in ns; 0 in a closed loop.
    pub queued_ns: u64,
    /// The arrival that this worker took but did not begin before the time was up, in ns since the start of the run.
    pub left_ns: Option<u64>,
}

/// The times of a transaction, in ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Begin of the wait: the arrival; in a closed loop, the begin of the transaction.
    pub since_ns: u64,
    /// Begin of the transaction.
    pub at_ns: u64,
}

impl Begun {
    /// The times in a closed loop: the transaction waits from its begin on.
    pub fn at(at_ns: u64) -> Begun {
        Begun { since_ns: at_ns, at_ns }
    }
}

impl Totals {
    /// Counts the completion at `now_ns` of a transaction; the counting began at `from_ns`.
    fn complete(&mut self, begun: Begun, now_ns: u64, from_ns: u64) {
        let latency_ns = now_ns.saturating_sub(begun.since_ns);
        self.transactions += 1;
        self.latency_ns += latency_ns;
        self.queued_ns += begun.at_ns.saturating_sub(begun.since_ns);
        if latency_ns >= KEPT_FROM_NS {
            self.slow.add(Slow { arrived_ns: begun.since_ns, began_ns: begun.at_ns, ended_ns: now_ns });
        }
        self.min_ns = Some(self.min_ns.map_or(latency_ns, |min| min.min(latency_ns)));
        let second = (now_ns.saturating_sub(from_ns) / SECOND_NS) as usize;
        if second >= self.per_second.len() {
            self.per_second.resize(second + 1, 0);
            self.worst_ns.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
        self.worst_ns[second] = self.worst_ns[second].max(latency_ns);
    }

    /// Counts a time without a completion.
    fn end_gap(&mut self, gap: Span) {
        if gap.len_ns() > self.blackout.len_ns() {
            self.blackout = gap;
        }
        if gap.len_ns() >= KEPT_FROM_NS {
            self.gaps.add(gap);
        }
    }
}

/// One worker's place in the [`Recorder`].
#[derive(Debug)]
pub struct Slot {
    /// Begin of the wait of the worker's transaction, in ns since the start, or [`IDLE`]. Written by the worker, read
    /// by all.
    waiting_since: AtomicU64,
    record: Mutex<Record>,
}

impl Slot {
    fn waiting_since_ns(&self) -> u64 {
        self.waiting_since.load(Ordering::Relaxed) // Relaxed: a figure
    }
}

/// The time of the latest completion, over all threads.
#[derive(Debug, Default)]
struct Pulse {
    last_ns: AtomicU64,
}

/// From when on a transaction waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Always: each thread begins the next transaction as soon as the last is done.
    Always,
    /// From its arrival on.
    Arrivals,
}

/// The recorder of a run, shared by its threads.
#[derive(Debug)]
pub struct Recorder {
    demand: Demand,
    /// End of the warm-up, in ns since the start.
    counts_from_ns: u64,
    slots: Vec<CachePadded<Slot>>,
    pulse: CachePadded<Pulse>,
}

impl Recorder {
    /// Makes a recorder for `threads` workers; counting begins `counts_from_ns` after the start.
    pub fn new(threads: usize, counts_from_ns: u64, demand: Demand) -> Recorder {
        let slot = || Slot { waiting_since: AtomicU64::new(IDLE), record: Mutex::new(Record::new()) };
        Recorder {
            demand,
            counts_from_ns,
            slots: (0..threads).map(|_| CachePadded::new(slot())).collect(),
            pulse: CachePadded::new(Pulse::default()),
        }
    }

    /// Notes that `worker` has begun a transaction that has been waiting since `since_ns`.
    pub fn begin(&self, worker: usize, since_ns: u64) {
        // Relaxed: read only for figures; the completion that follows publishes it through `pulse`.
        self.slots[worker].waiting_since.store(since_ns, Ordering::Relaxed);
    }

    /// Notes that the transaction of `worker` was given up.
    pub fn give_up(&self, worker: usize) {
        self.slots[worker].waiting_since.store(IDLE, Ordering::Relaxed); // Relaxed: as in `begin`
    }

    /// Notes that `worker` completed a transaction at `now_ns` that does not count. The completion still ends a gap.
    pub fn complete_uncounted(&self, worker: usize, now_ns: u64) {
        self.pulse.last_ns.fetch_max(now_ns, Ordering::Relaxed); // Relaxed: as in `complete`
        self.give_up(worker);
    }

    /// Counts statements of `worker` that belong to no transaction of their own.
    pub fn add_queries(&self, worker: usize, queries: Queries) {
        self.slots[worker].record.lock().queries += queries;
    }

    /// Records a transaction of `worker` that completed at `now_ns`, with its times and counts.
    pub fn complete(&self, worker: usize, totals: &mut Totals, begun: Begun, now_ns: u64, tally: &Tally) {
        let latency_ns = now_ns.saturating_sub(begun.since_ns);
        // Relaxed: the time stamp publishes no other data.
        let previous_ns = self.pulse.last_ns.fetch_max(now_ns, Ordering::Relaxed);
        let most_ns = now_ns.saturating_sub(previous_ns);
        if most_ns > totals.blackout.len_ns() || most_ns >= KEPT_FROM_NS {
            let from_ns = match self.demand {
                Demand::Always => previous_ns,
                Demand::Arrivals => previous_ns.max(self.oldest_waiting_ns()),
            };
            totals.end_gap(Span::new(from_ns.min(now_ns), now_ns));
        }
        totals.complete(begun, now_ns, self.counts_from_ns);
        let slot = &self.slots[worker];
        {
            let mut record = slot.record.lock();
            record.latencies.saturating_record(latency_ns);
            record.max_ns = record.max_ns.max(latency_ns);
            record.conflicts += tally.conflicts;
            record.queries += tally.queries;
        }
        slot.waiting_since.store(IDLE, Ordering::Relaxed); // Relaxed: as in `begin`
    }

    /// Moves the record of `worker` since the last call into `taken`, which must be empty.
    pub fn take(&self, worker: usize, taken: &mut Record) {
        debug_assert_eq!(taken.transactions(), 0, "REC-1: a record is emptied before it is swapped in");
        std::mem::swap(&mut *self.slots[worker].record.lock(), taken);
    }

    /// Time of the latest completion, in ns since the start.
    pub fn last_completion_ns(&self) -> u64 {
        self.pulse.last_ns.load(Ordering::Relaxed) // Relaxed: a figure
    }

    /// Age of the wait of the oldest running transaction at `now_ns`, in ns; 0 if none is running.
    pub fn longest_wait_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.oldest_waiting_ns())
    }

    /// Transactions that are running now.
    pub fn concurrency(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.waiting_since_ns() != IDLE).count() as u64
    }

    /// Begin of the wait of the oldest running transaction.
    fn oldest_waiting_ns(&self) -> u64 {
        self.slots.iter().map(|slot| slot.waiting_since_ns()).min().unwrap_or(IDLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A transaction of one write, after `conflicts` conflicts.
    fn tally(conflicts: u64) -> Tally {
        Tally { queries: Queries { write: 1, ..Queries::default() }, conflicts }
    }

    #[test]
    fn completion_lands_in_its_second_and_its_interval_once() {
        let recorder = Recorder::new(2, 0, Demand::Arrivals);
        let mut totals = Totals::default();
        recorder.begin(1, 900 * MS);
        recorder.complete(1, &mut totals, Begun::at(900 * MS), 1_100 * MS, &tally(2));
        assert_eq!(totals.per_second, [0, 1]);
        assert_eq!(totals.worst_ns, [0, 200 * MS]);
        assert_eq!(totals.transactions, 1);
        assert_eq!(totals.min_ns, Some(200 * MS));
        assert_eq!(totals.latency_ns, 200 * MS);

        let mut taken = Record::new();
        recorder.take(1, &mut taken);
        assert_eq!((taken.transactions(), taken.conflicts, taken.max_ns), (1, 2, 200 * MS));
        assert_eq!(taken.queries, tally(0).queries);
        taken.clear();
        recorder.take(1, &mut taken);
        assert_eq!((taken.transactions(), taken.conflicts, taken.max_ns), (0, 0, 0));
    }

    #[test]
    fn blackout_is_the_longest_gap_over_all_threads() {
        let recorder = Recorder::new(2, 0, Demand::Arrivals);
        let mut totals = [Totals::default(), Totals::default()];
        for (worker, from, to) in [(0, 0, 10), (1, 0, 12), (0, 10, 50), (1, 12, 51), (0, 50, 60)] {
            recorder.begin(worker, from * MS);
            recorder.complete(worker, &mut totals[worker], Begun::at(from * MS), to * MS, &tally(0));
        }
        let blackout = totals.iter().map(|t| t.blackout.len_ns()).max();
        assert_eq!(blackout, Some(38 * MS));
    }

    #[test]
    fn time_in_which_nothing_waited_is_no_blackout() {
        let recorder = Recorder::new(1, 0, Demand::Arrivals);
        let mut totals = Totals::default();
        for (from, to) in [(0, 2), (500, 503)] {
            recorder.begin(0, from * MS);
            recorder.complete(0, &mut totals, Begun::at(from * MS), to * MS, &tally(0));
        }
        assert_eq!(totals.blackout.len_ns(), 3 * MS);
    }

    #[test]
    fn closed_loop_has_its_gap_also_where_no_transaction_was_begun() {
        // The process stood still between two transactions, and before the first one.
        let recorder = Recorder::new(1, 0, Demand::Always);
        let mut totals = Totals::default();
        for (from, to) in [(90, 92), (92, 93), (10_093, 10_095)] {
            recorder.begin(0, from * MS);
            recorder.complete(0, &mut totals, Begun::at(from * MS), to * MS, &tally(0));
        }
        assert_eq!(totals.blackout, Span::new(93 * MS, 10_095 * MS));
        assert_eq!(totals.gaps.kept(), [Span::new(0, 92 * MS), totals.blackout]);
    }

    #[test]
    fn time_in_the_queue_and_slow_transactions_are_kept() {
        let recorder = Recorder::new(1, 0, Demand::Arrivals);
        let mut totals = Totals::default();
        for (since, at, to) in [(10, 10, 12), (15, 75, 80)] {
            let begun = Begun { since_ns: since * MS, at_ns: at * MS };
            recorder.complete(0, &mut totals, begun, to * MS, &tally(0));
        }
        assert_eq!(totals.queued_ns, 60 * MS);
        assert_eq!(totals.slow.kept(), [Slow { arrived_ns: 15 * MS, began_ns: 75 * MS, ended_ns: 80 * MS }]);
    }

    #[test]
    fn seconds_count_from_the_warm_ups_end_and_a_gap_ends_in_it() {
        let recorder = Recorder::new(2, 2_000 * MS, Demand::Arrivals);
        let mut totals = Totals::default();
        recorder.begin(0, 1_000 * MS);
        recorder.begin(1, 1_990 * MS);
        recorder.complete_uncounted(1, 1_995 * MS);
        recorder.begin(1, 2_000 * MS);
        recorder.complete(1, &mut totals, Begun::at(2_000 * MS), 2_010 * MS, &tally(0));
        recorder.add_queries(1, Queries { write: 5, ..Queries::default() });
        assert_eq!(totals.per_second, [1]);
        assert_eq!(totals.blackout.len_ns(), 15 * MS, "since the uncounted one, though another waits for longer");
        let mut taken = Record::new();
        recorder.take(1, &mut taken);
        assert_eq!((taken.transactions(), taken.queries.write), (1, 6));
    }

    #[test]
    fn gap_counts_from_the_oldest_waiting_transaction() {
        let recorder = Recorder::new(2, 0, Demand::Arrivals);
        let mut totals = [Totals::default(), Totals::default()];
        recorder.begin(0, 100 * MS);
        recorder.begin(1, 390 * MS);
        recorder.complete(1, &mut totals[1], Begun::at(390 * MS), 400 * MS, &tally(0));
        assert_eq!(totals[1].blackout.len_ns(), 300 * MS);
    }

    #[test]
    fn concurrency_counts_the_running() {
        let recorder = Recorder::new(3, 0, Demand::Arrivals);
        recorder.begin(0, 5);
        recorder.begin(2, 6);
        assert_eq!(recorder.concurrency(), 2);
        recorder.complete(2, &mut Totals::default(), Begun::at(6), 7, &tally(0));
        assert_eq!(recorder.concurrency(), 1);
        recorder.give_up(0);
        assert_eq!(recorder.concurrency(), 0);
    }

    #[test]
    fn quantiles_are_within_1_in_1000_and_never_above_the_maximum() {
        let recorder = Recorder::new(1, 0, Demand::Arrivals);
        let mut totals = Totals::default();
        for us in 1..=1000_u64 {
            recorder.complete(0, &mut totals, Begun::at(0), us * 1_000, &tally(0));
        }
        let mut record = Record::new();
        recorder.take(0, &mut record);
        let p95 = record.quantile_ns(0.95) as f64;
        assert!((p95 / 950_000.0 - 1.0).abs() < 0.002, "{p95}");
        assert_eq!(record.quantile_ns(1.0), 1_000_000);
        assert_eq!(Record::new().quantile_ns(0.95), 0);
    }
}
