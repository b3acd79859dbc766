//! The outcome of a phase, which a child passes to the command, and medians over several rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millpond::metrics::Stall;
use serde::{Deserialize, Serialize};
use workload::calm::Calm;
use workload::driver::Finished;
use workload::engine::SlowOperation;
use workload::recorder::Totals;

use super::beside;
use super::disturbance::Beside;
use super::marks::Mark;
use crate::report::bins;

/// The outcome of a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) phase: String,
    pub(super) figures: Figures,
    /// Completions in each whole second, and the longest response in it, in ms.
    pub(super) seconds: Vec<u64>,
    pub(super) worst_ms: Vec<f64>,
    /// The same by client, if the experiment looks at each client.
    pub(super) clients: Vec<ClientSeconds>,
    /// Checkpoint age at the end of each second, in percent of the effective log capacity.
    pub(super) age_percent: Vec<f64>,
    /// Histogram of response times: ends of a bar in ms, and count.
    pub(super) bars: Vec<(f64, f64, u64)>,
    /// Waits of operations by class: count, and sum in us.
    pub(super) waits: BTreeMap<String, (u64, u64)>,
    /// The slowest operations of the engine, the slowest first.
    pub(super) slow: Vec<Slow>,
    /// Sums over the stall log.
    pub(super) stalled: Stalled,
    /// For each class of waits, the number of stalls in which it had at least half of the time.
    pub(super) mostly: BTreeMap<String, u64>,
    /// The increase of each counter, and the final value of each other number.
    pub(super) numbers: BTreeMap<String, u64>,
    /// Results of the writers beside queries, at a rate.
    pub(super) writers: Option<Writers>,
    /// Figures of the canaries; `None` if the machine was not watched.
    pub(super) machine: Option<Beside>,
    /// Events around the load, and the idle seconds before it.
    pub(super) marks: Vec<Mark>,
    pub(super) quiet_s: f64,
}

/// Results of inserts at a fixed rate beside queries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Writers {
    /// Rows inserted a second by all writers, and the target rate.
    pub(super) rows_per_s: f64,
    pub(super) wanted_per_s: f64,
    /// Whether the target rate was kept, by the rule of `bench`.
    pub(super) is_kept: bool,
    /// The longest latency from arrival.
    pub(super) slowest_ms: f64,
}

/// Results of one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ClientSeconds {
    pub(super) transactions: u64,
    /// Completions in each whole second, and the longest response in it, in ms.
    pub(super) seconds: Vec<u64>,
    pub(super) worst_ms: Vec<f64>,
}

/// The figures of a table row: of one phase, or medians over several rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Completions a second, on average.
    pub(super) per_s: f64,
    /// Completions in the median second, and in the worst.
    pub(super) median_per_s: f64,
    pub(super) worst_per_s: f64,
    /// Seconds under half of the median, and seconds without any completion.
    pub(super) brownout_s: f64,
    pub(super) silent_s: f64,
    /// The longest time without a completion while an operation waited.
    pub(super) blackout_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) slowest_ms: f64,
    /// Operations over the stall threshold.
    pub(super) stalls: f64,
    /// Begin, in seconds of the phase, and duration of the activity beside the load; 0 without one.
    pub(super) beside_from_s: f64,
    pub(super) beside_ms: f64,
}

/// Sums over the operations of the phase in the stall log at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stalled {
    pub(super) operations: u64,
    pub(super) elapsed_us: u64,
    /// Time by class of waits, `cpu` and `runnable`, in us.
    pub(super) parts: BTreeMap<String, u64>,
    /// For each of these, the number of operations in which it has at least half of the time.
    pub(super) mostly: BTreeMap<String, u64>,
}

impl Stalled {
    fn of(stalls: &[Slow]) -> Stalled {
        let mut of = Stalled::default();
        for stall in stalls {
            of.operations += 1;
            of.elapsed_us += stall.elapsed_us;
            for (name, us) in &stall.parts {
                *of.parts.entry(name.clone()).or_default() += us;
                *of.mostly.entry(name.clone()).or_default() += u64::from(us * 2 >= stall.elapsed_us);
            }
        }
        of
    }

    /// A class's share of the operations' time, in percent.
    pub(super) fn percent(&self, class: &str) -> f64 {
        self.parts.get(class).map_or(0.0, |us| *us as f64 * 100.0 / (self.elapsed_us as f64).max(1.0))
    }

    /// Operations in which a class has at least half of the time, in percent.
    pub(super) fn mostly_percent(&self, class: &str) -> f64 {
        self.mostly.get(class).map_or(0.0, |of| *of as f64 * 100.0 / (self.operations as f64).max(1.0))
    }
}

/// A slow operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slow {
    pub(super) operation: String,
    pub(super) elapsed_us: u64,
    /// Classes of waits, `cpu` and `runnable`, with their time in us, the largest first.
    pub(super) parts: Vec<(String, u64)>,
    /// The latch with the longest wait, in words.
    pub(super) latch: Option<String>,
}

fn latch_text(page: &str, waited_us: u64) -> String {
    format!("{page}, {:.1} ms", waited_us as f64 / 1e3)
}

impl Slow {
    fn of(operation: &SlowOperation) -> Slow {
        let waits = operation.waits.iter().map(|wait| (wait.class.to_owned(), wait.total_us));
        let own = [("cpu", operation.cpu_us), ("runnable", operation.runnable_us)];
        let own = own.into_iter().filter_map(|(name, us)| Some((name.to_owned(), us?)));
        let latch = operation.latch.as_ref().map(|latch| latch_text(&latch.page, latch.waited_us));
        Slow::new(operation.operation, operation.elapsed_us, waits.chain(own).collect(), latch)
    }

    pub(super) fn of_stall(stall: &Stall) -> Slow {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let waits = stall.waits.iter().map(|(class, time)| (class.name().to_owned(), us(*time)));
        let own = stall.cpu.map(|(cpu, runnable)| [("cpu".to_owned(), us(cpu)), ("runnable".to_owned(), us(runnable))]);
        let latch = stall.latch.as_ref().map(|latch| latch_text(&latch.to_string(), us(latch.time)));
        Slow::new(stall.operation, us(stall.elapsed), waits.chain(own.into_iter().flatten()).collect(), latch)
    }

    fn new(operation: &str, elapsed_us: u64, mut parts: Vec<(String, u64)>, latch: Option<String>) -> Slow {
        parts.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
        Slow { operation: operation.to_owned(), elapsed_us, parts, latch }
    }
}

impl Outcome {
    /// The outcome of a phase; `finished` is `None` if the phase measured nothing.
    pub(super) fn of(
        phase: &str,
        finished: Option<&Finished>,
        numbers: BTreeMap<String, u64>,
        beside: Option<beside::Done>,
    ) -> Outcome {
        let phase = phase.to_owned();
        let Some(finished) = finished else { return Outcome { phase, numbers, ..Outcome::default() } };
        let calm = Calm::of(&finished.seconds, finished.offered_per_s);
        let quantile_ms = |share: f64| finished.record.quantile_ns(share) as f64 / 1e6;
        let points = finished.timeline.points();
        Outcome {
            phase,
            figures: Figures {
                per_s: finished.mean_per_s(),
                median_per_s: calm.map_or_else(|| finished.mean_per_s(), |calm| calm.median_per_s),
                // Without a whole second, the mean stands for the worst.
                worst_per_s: calm.map_or_else(|| finished.mean_per_s(), |calm| calm.worst_per_s as f64),
                brownout_s: calm.map_or(0.0, |calm| calm.brownout_s as f64),
                silent_s: finished.seconds.iter().filter(|&&count| count == 0).count() as f64,
                blackout_ms: finished.blackout_ms(),
                p99_ms: quantile_ms(0.99),
                p999_ms: quantile_ms(0.999),
                slowest_ms: finished.slowest_ns() as f64 / 1e6,
                stalls: finished.counters.stalls as f64,
                beside_from_s: beside.map_or(0.0, |done| done.from_s),
                beside_ms: beside.map_or(0.0, |done| done.ms),
            },
            seconds: finished.seconds.clone(),
            worst_ms: points.iter().map(|point| point.max_ns as f64 / 1e6).collect(),
            clients: Vec::new(),
            age_percent: points.iter().map(|point| point.gauges.age_percent).collect(),
            bars: bins::latency_bars(&finished.record),
            waits: finished
                .counters
                .waits
                .iter()
                .filter(|wait| wait.count > 0)
                .map(|wait| (wait.class.to_owned(), (wait.count, wait.total_us)))
                .collect(),
            mostly: finished.counters.waits.iter().map(|wait| (wait.class.to_owned(), wait.stalls)).collect(),
            slow: finished.slow_operations.iter().map(Slow::of).collect(),
            stalled: Stalled::default(),
            numbers,
            writers: None,
            machine: finished.machine.as_ref().map(Beside::of),
            marks: Vec::new(),
            quiet_s: 0.0,
        }
    }

    /// The same with the results of each client.
    pub(super) fn with_clients(mut self, finished: &Finished) -> Outcome {
        let whole = finished.seconds.len();
        let client = |thread: &Totals| ClientSeconds {
            transactions: thread.transactions,
            seconds: (0..whole).map(|second| thread.per_second.get(second).copied().unwrap_or(0)).collect(),
            worst_ms: (0..whole).map(|second| thread.worst_ns.get(second).map_or(0.0, |ns| *ns as f64 / 1e6)).collect(),
        };
        self.clients = finished.threads.iter().map(client).collect();
        self
    }

    /// The same with the stall log, as read after the phase.
    pub(super) fn with_stalls(mut self, log: &[Slow]) -> Outcome {
        self.stalled = Stalled::of(self.of_phase(log));
        self
    }

    /// The entries of the phase that the log still has.
    fn of_phase<'l>(&self, log: &'l [Slow]) -> &'l [Slow] {
        &log[log.len() - (self.figures.stalls as usize).min(log.len())..]
    }

    /// The same with slow operations of the clients alone, without the `operations` of the activity beside the load.
    /// `log` is the stall log, as read after the phase.
    pub(super) fn without(mut self, operations: &[&str], log: &[Slow]) -> Outcome {
        let stalls = self.of_phase(log);
        let is_of_clients = |slow: &Slow| !operations.contains(&slow.operation.as_str());
        let of_clients: Vec<Slow> = stalls.iter().filter(|slow| is_of_clients(slow)).cloned().collect();
        self.stalled = Stalled::of(&of_clients);
        // The slowest operations are few, and may all belong to the activity beside the load. The log has only the last
        // stalls. An operation in both lists is counted once.
        let is_the_same = |a: &Slow, b: &Slow| (a.elapsed_us, &a.operation) == (b.elapsed_us, &b.operation);
        self.slow.retain(|slow| is_of_clients(slow) && !of_clients.iter().any(|stall| is_the_same(stall, slow)));
        self.slow.extend(of_clients);
        self.slow.sort_by_key(|slow| std::cmp::Reverse(slow.elapsed_us));
        self
    }

    /// A number of the engine; 0 if there is none of this name.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).map_or(0.0, |number| *number as f64)
    }

    /// Sum of the operations' waits of a class, in ms.
    pub(super) fn waited_ms(&self, class: &str) -> f64 {
        self.waits.get(class).map_or(0.0, |(_, us)| *us as f64 / 1e3)
    }
}

/// The median; 0 without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        even if even % 2 == 0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

impl Figures {
    /// The median of each figure.
    pub(super) fn median(of: &[Figures]) -> Figures {
        let median_of = |figure: fn(&Figures) -> f64| median(of.iter().map(figure));
        Figures {
            per_s: median_of(|of| of.per_s),
            median_per_s: median_of(|of| of.median_per_s),
            worst_per_s: median_of(|of| of.worst_per_s),
            brownout_s: median_of(|of| of.brownout_s),
            silent_s: median_of(|of| of.silent_s),
            blackout_ms: median_of(|of| of.blackout_ms),
            p99_ms: median_of(|of| of.p99_ms),
            p999_ms: median_of(|of| of.p999_ms),
            slowest_ms: median_of(|of| of.slowest_ms),
            stalls: median_of(|of| of.stalls),
            beside_from_s: median_of(|of| of.beside_from_s),
            beside_ms: median_of(|of| of.beside_ms),
        }
    }
}

/// Where the slowest operations spent their time, by share: over the operations that took at least a tenth of the
/// round's slowest, the median of the rounds that have some.
pub(super) fn where_slow(outcomes: &[&Outcome]) -> Vec<(String, f64)> {
    let rounds: Vec<BTreeMap<&str, f64>> =
        outcomes.iter().filter(|outcome| !outcome.slow.is_empty()).map(|outcome| shares(&outcome.slow)).collect();
    let names: BTreeSet<&str> = rounds.iter().flat_map(|round| round.keys().copied()).collect();
    let share = |name: &str| median(rounds.iter().map(|round| round.get(name).copied().unwrap_or_default()));
    let mut shares: Vec<(String, f64)> = names.into_iter().map(|name| (name.to_owned(), share(name))).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// Shares by class of the time of operations over a tenth of the slowest, in percent.
fn shares(slow: &[Slow]) -> BTreeMap<&str, f64> {
    let slowest = slow.iter().map(|slow| slow.elapsed_us).max().unwrap_or(0);
    let slow = || slow.iter().filter(|slow| slow.elapsed_us * 10 >= slowest);
    let all = slow().map(|slow| slow.elapsed_us).sum::<u64>().max(1);
    let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, us) in slow().flat_map(|slow| &slow.parts) {
        *shares.entry(name).or_default() += *us as f64 * 100.0 / all as f64;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_each_figure_by_itself() {
        let of = |slowest_ms, stalls| Figures { slowest_ms, stalls, ..Figures::default() };
        let median = Figures::median(&[of(10.0, 3.0), of(30.0, 1.0), of(20.0, 2.0)]);
        assert_eq!((median.slowest_ms, median.stalls), (20.0, 2.0));
        assert_eq!(Figures::median(&[of(10.0, 3.0), of(30.0, 1.0)]).slowest_ms, 20.0);
        assert_eq!(Figures::median(&[]), Figures::default());
    }

    #[test]
    fn stall_log_tells_slow_client_operations_from_those_beside() {
        let slow = |operation: &str, ms: u64| Slow::new(operation, ms * 1_000, Vec::new(), None);
        let mut outcome =
            Outcome { slow: vec![slow("scan", 90), slow("scan", 80), slow("get", 5)], ..Outcome::default() };
        outcome.figures.stalls = 4.0;
        let log = [slow("get", 500), slow("scan", 90), slow("index build", 95), slow("get", 30), slow("scan", 80)];
        let outcome = outcome.without(&["scan", "index build"], &log);
        let times: Vec<(&str, u64)> = outcome.slow.iter().map(|of| (of.operation.as_str(), of.elapsed_us)).collect();
        assert_eq!(times, [("get", 30_000), ("get", 5_000)], "the first stall was before the phase");
        assert_eq!(
            (outcome.stalled.operations, outcome.stalled.elapsed_us),
            (1, 30_000),
            "operations of others are left out"
        );
        let mut many =
            Outcome { slow: vec![slow("get", 900), slow("scan", 90), slow("get", 30)], ..Outcome::default() };
        many.figures.stalls = 300.0;
        let slow_now = many.without(&["scan"], &log[1..]).slow;
        let times: Vec<u64> = slow_now.iter().map(|of| of.elapsed_us / 1_000).collect();
        assert_eq!(times, [900, 95, 30], "the slowest, which the log has forgotten, and each once");
    }

    #[test]
    fn the_stall_log_is_summed_up_for_the_stalls_of_the_phase() {
        let slow = |ms: u64, class: &str, part: u64| {
            Slow::new("put", ms * 1_000, vec![(class.to_owned(), part * 1_000)], None)
        };
        let mut outcome = Outcome::default();
        outcome.figures.stalls = 2.0;
        let log = [slow(900, "log_space", 900), slow(60, "free_frame", 30), slow(40, "lane", 40)];
        let stalled = outcome.clone().with_stalls(&log).stalled;
        assert_eq!((stalled.operations, stalled.elapsed_us), (2, 100_000), "the first was before the phase");
        let percent = ["free_frame", "lane", "log_space"].map(|class| stalled.percent(class).round());
        assert_eq!(percent, [30.0, 40.0, 0.0]);
        let mostly = ["free_frame", "lane", "log_space"].map(|class| stalled.mostly_percent(class));
        assert_eq!(mostly, [50.0, 50.0, 0.0]);
        outcome.figures.stalls = 500.0;
        assert_eq!(outcome.with_stalls(&log).stalled.operations, 3, "those that the log still has");
        assert!(Stalled::default().percent("lane") == 0.0);
    }

    #[test]
    fn slow_operations_are_split_by_class_and_fast_ones_left_out() {
        let slow = |elapsed_us, class: &str, us| Slow {
            operation: "get".to_owned(),
            elapsed_us,
            parts: vec![(class.to_owned(), us), ("cpu".to_owned(), elapsed_us - us)],
            latch: None,
        };
        let outcome = Outcome {
            slow: vec![slow(1_000, "free_frame", 900), slow(1_000, "free_frame", 700), slow(50, "page_read", 50)],
            ..Outcome::default()
        };
        assert_eq!(where_slow(&[&outcome]), [("free_frame".to_owned(), 80.0), ("cpu".to_owned(), 20.0)]);
        // One bad round is one of three, and one without any is none.
        let bad = Outcome { slow: vec![slow(90_000, "log_space", 90_000)], ..Outcome::default() };
        let shares = where_slow(&[&outcome, &bad, &outcome, &Outcome::default()]);
        assert_eq!(shares[..2], [("free_frame".to_owned(), 80.0), ("cpu".to_owned(), 20.0)]);
        assert!(shares[2] == ("log_space".to_owned(), 0.0), "{shares:?}");
        assert_eq!(where_slow(&[]), []);
    }
}
