//! Whether a run was calm: a pure function of the run's recorded figures.
//!
//! | figure | limit |
//! |---|---|
//! | median rate, without an offered one | above 0 |
//! | brownout: seconds under half of the offered rate, or of the median | 0 s |
//! | longest gap | max(100 ms, 3 × the device's own) |
//! | slowest transaction, queued ones included | max(250 ms, 5 × the device's own) |
//! | stalls of max(the stall threshold, 3 × the device's own) and longer | 0 |
//!
//! "The device's own" is the longest pair of the device's canary that is the device's own, capped at the least length
//! of a stop. Each figure is reported raw, and attributed: without the stops of device or CPU by themselves, and
//! without the CPU time that others took.
//!
//! VER-1  A run is calm if no raw figure breaks its limit, not calm if an attributed one does, and inconclusive
//! otherwise:
//!        the machine stood still or was taken by others, and without that every limit holds.
//! VER-2  Time that no canary calls stopped or taken counts against the engine.

mod attributed;

use serde::Serialize;

use crate::calm::Calm;
use crate::canary::log::MachineLog;
use crate::spans::{Slow, Span, union};

/// Limit of the longest gap on any device, in ns.
const GAP_LIMIT_NS: u64 = 100_000_000;

/// Limit of the longest gap, as a multiple of the device's own.
const GAP_FACTOR: u64 = 3;

/// Limit of the slowest transaction on any device, in ns.
const SLOWEST_LIMIT_NS: u64 = 250_000_000;

/// Limit of the slowest transaction, as a multiple of the device's own.
const SLOWEST_FACTOR: u64 = 5;

/// The verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every figure keeps its limit.
    Calm,
    /// The engine broke a limit by itself.
    NotCalm,
    /// A limit was broken, and the machine stood still then; or the run has no whole second.
    Inconclusive,
}

/// The recorded figures of a run.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Completions in each whole second.
    pub seconds: &'a [u64],
    /// Begin of the first of these seconds, in ns since the start of the run.
    pub counts_from_ns: u64,
    /// Arrivals a second; `None` in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Times without a completion: the longest of each thread, and all of 50 ms and longer, at begin and end too.
    pub gaps: &'a [Span],
    /// Slow transactions, with the one that waited longest when the run ended.
    pub slow: &'a [Slow],
    /// The longest latency of all, in ns.
    pub slowest_ns: u64,
    /// Operations of the engine that took the stall threshold or longer.
    pub stalls: u64,
    /// Spans of the last stalls.
    pub stall_spans: &'a [Span],
    /// From this duration on an operation is a stall, in ns.
    pub stall_threshold_ns: u64,
    /// The canaries' log; `None` if the machine was not watched.
    pub machine: Option<&'a MachineLog>,
    /// The longest pair of the probe, in ns; used if no canary watched.
    pub probe_worst_ns: u64,
}

/// The figures that have a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// Whether the median is 0 and no rate was offered.
    is_dead: bool,
    brownout_s: usize,
    gap_ns: u64,
    slowest_ns: u64,
    /// Operations of the stall threshold and longer.
    stalls: u64,
    /// Stalls that are too long for this device.
    stalls_over: u64,
}

/// The verdict on a run, and its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The broken limits, in words: raw figures, or attributed ones for a run that is not calm.
    pub verdict_reasons: Vec<String>,
    /// Brownout seconds among those in which the machine ran.
    pub brownout_attributed_s: usize,
    /// Begin of the longest gap, in seconds since the end of the warm-up.
    pub blackout_at_s: f64,
    /// Part of the longest gap in which the device stood still by itself.
    pub blackout_device_ms: f64,
    /// Part of the longest gap in which the device stood still while the engine had much outstanding.
    pub blackout_shared_ms: f64,
    /// Part of the longest gap in which the CPU stood still.
    pub blackout_cpu_ms: f64,
    /// Part of the longest gap in which others took the CPU and it did not stand still.
    pub blackout_taken_ms: f64,
    /// The longest gap without the machine's stops; may be another gap.
    pub blackout_attributed_ms: f64,
    /// Limit of the longest gap.
    pub blackout_limit_ms: f64,
    /// The slowest transaction, including those that were queued when the run ended.
    pub slowest_ms: f64,
    /// The slowest transaction without the machine's stops; may be another transaction.
    pub slowest_attributed_ms: f64,
    /// Limit of the slowest transaction.
    pub slowest_limit_ms: f64,
    /// Stalls without those that the machine's stops explain.
    pub stalls_attributed: u64,
    /// Time in the whole run in which the device stood still by itself.
    pub device_stopped_ms: f64,
    /// Time in which the device stood still while the engine had much outstanding.
    pub device_shared_ms: f64,
    /// Time in which the CPU stood still.
    pub cpu_stopped_ms: f64,
    /// CPU time that others took while threads of this process waited for a CPU, of one CPU on average.
    pub cpu_taken_ms: f64,
}

/// Limits of longest gap, slowest transaction and stalls, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    gap_ns: u64,
    slowest_ns: u64,
    /// From this duration on a stall counts against the engine.
    stall_ns: u64,
}

impl Limits {
    fn of(device_own_ns: u64, stall_threshold_ns: u64) -> Limits {
        let in_gaps_ns = GAP_FACTOR.saturating_mul(device_own_ns);
        Limits {
            gap_ns: GAP_LIMIT_NS.max(in_gaps_ns),
            stall_ns: stall_threshold_ns.max(in_gaps_ns),
            slowest_ns: SLOWEST_LIMIT_NS.max(SLOWEST_FACTOR.saturating_mul(device_own_ns)),
        }
    }
}

/// Judges a run.
pub fn judge(history: &History<'_>) -> Judgement {
    let stops = history.machine.map(MachineLog::stops).unwrap_or_default();
    let device_own_ns = history.machine.map_or(history.probe_worst_ns, |_| stops.device_usual_worst_ns);
    let limits = Limits::of(device_own_ns, history.stall_threshold_ns);
    let longest = history.gaps.iter().copied().max_by_key(|gap| gap.len_ns()).unwrap_or_default();
    let raw = raw(history, longest, limits);
    let attributed = attributed::figures(history, &stops.excused, limits);
    let broken = raw.broken(limits, history.offered_per_s.is_some());
    let own = attributed.broken(limits, history.offered_per_s.is_some());
    let (verdict, verdict_reasons) = if !own.is_empty() {
        (Verdict::NotCalm, own)
    } else if !broken.is_empty() {
        (Verdict::Inconclusive, broken)
    } else if history.seconds.is_empty() {
        (Verdict::Inconclusive, vec!["the run has no whole second".to_owned()])
    } else {
        (Verdict::Calm, Vec::new())
    };
    let cpu_or_taken = union([stops.cpu.clone(), stops.taken.clone()].concat());
    let all = |spans: &[Span]| ms(spans.iter().map(|span| span.len_ns()).sum());
    Judgement {
        verdict,
        verdict_reasons,
        brownout_attributed_s: attributed.brownout_s,
        blackout_at_s: longest.from_ns.saturating_sub(history.counts_from_ns) as f64 / 1e9,
        blackout_device_ms: ms(longest.within_ns(&stops.device)),
        blackout_shared_ms: ms(longest.within_ns(&stops.shared)),
        blackout_cpu_ms: ms(longest.within_ns(&stops.cpu)),
        blackout_taken_ms: ms(longest.within_ns(&cpu_or_taken) - longest.within_ns(&stops.cpu)),
        blackout_attributed_ms: ms(attributed.gap_ns),
        blackout_limit_ms: ms(limits.gap_ns),
        slowest_ms: ms(raw.slowest_ns),
        slowest_attributed_ms: ms(attributed.slowest_ns),
        slowest_limit_ms: ms(limits.slowest_ns),
        stalls_attributed: attributed.stalls,
        device_stopped_ms: all(&stops.device),
        device_shared_ms: all(&stops.shared),
        cpu_stopped_ms: all(&stops.cpu),
        cpu_taken_ms: all(&stops.taken),
    }
}

/// The figures as they were measured.
fn raw(history: &History<'_>, longest: Span, limits: Limits) -> Figures {
    let calm = Calm::of(history.seconds, history.offered_per_s);
    Figures {
        is_dead: calm.is_some_and(|calm| calm.median_per_s == 0.0) && history.offered_per_s.is_none(),
        brownout_s: calm.map_or(0, |calm| calm.brownout_s),
        gap_ns: longest.len_ns(),
        slowest_ns: history.slow.iter().map(|slow| slow.latency_ns()).fold(history.slowest_ns, u64::max),
        stalls: history.stalls,
        stalls_over: over_limit(history, limits, history.stalls, |stall| stall.len_ns()),
    }
}

/// The number of stalls that are too long. If the limit is the threshold, that is `all`; otherwise the remembered
/// stalls for which `left_ns` reaches the limit.
fn over_limit(history: &History<'_>, limits: Limits, all: u64, left_ns: impl Fn(&Span) -> u64) -> u64 {
    if limits.stall_ns == history.stall_threshold_ns {
        return all;
    }
    history.stall_spans.iter().filter(|stall| left_ns(stall) >= limits.stall_ns).count() as u64
}

impl Figures {
    /// The limits that these figures break, in words.
    fn broken(&self, limits: Limits, is_offered: bool) -> Vec<String> {
        let of = if is_offered { "offered rate" } else { "median" };
        let over = |name: &str, ns: u64, limit_ns: u64| {
            (ns > limit_ns).then(|| format!("{name} {:.1} ms, limit {:.0} ms", ms(ns), ms(limit_ns)))
        };
        [
            self.is_dead.then(|| "no transaction in the median second".to_owned()),
            (self.brownout_s > 0).then(|| format!("{} s under half of the {of}, limit 0 s", self.brownout_s)),
            over("longest gap", self.gap_ns, limits.gap_ns),
            over("slowest", self.slowest_ns, limits.slowest_ns),
            (self.stalls_over > 0)
                .then(|| format!("stalls of {:.0} ms and longer {}, limit 0", ms(limits.stall_ns), self.stalls_over)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Judgement {
    /// The sentence at the end of a run: the part of its longest gap in which the machine stood still.
    pub fn sentence(&self, blackout_ms: f64, is_watched: bool) -> String {
        let mut text = format!("the longest gap was {blackout_ms:.1} ms; ");
        let parts = [
            ("the device itself stood still", self.blackout_device_ms),
            ("the device stood still under the engine's own writes", self.blackout_shared_ms),
            ("the CPU stood still", self.blackout_cpu_ms),
            ("others took the CPU", self.blackout_taken_ms),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(_, ms)| *ms > 0.0).map(|(what, ms)| format!("{what} for {ms:.1} ms of it")).collect();
        text.push_str(&match (parts.is_empty(), is_watched) {
            (_, false) => "the machine was not watched".to_owned(),
            (true, true) => "neither device nor CPU stood still in it".to_owned(),
            (false, true) => parts.join(", "),
        });
        text
    }

    /// The verdict in words, with its reasons.
    pub fn verdict_text(&self) -> String {
        let reasons = self.verdict_reasons.join("; ");
        match self.verdict {
            Verdict::Calm => "calm".to_owned(),
            Verdict::NotCalm => format!("NOT CALM: {reasons}"),
            Verdict::Inconclusive => format!("inconclusive: {}{reasons}", self.causes()),
        }
    }

    /// What disturbed the run.
    fn causes(&self) -> &'static str {
        match (self.device_stopped_ms + self.cpu_stopped_ms > 0.0, self.cpu_taken_ms > 0.0) {
            (true, _) => "the machine stood still; ",
            (false, true) => "others took the CPU; ",
            (false, false) => "",
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests;
