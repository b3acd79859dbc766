//! Whether a run was calm: a pure function of what was recorded.
//!
//! | figure | limit |
//! |---|---|
//! | median rate, without an offered one | above 0 |
//! | brownout: seconds under half of the offered rate, or of the median | 0 s |
//! | longest gap | max(100 ms, 3 × the device's own) |
//! | slowest transaction, queued ones included | max(250 ms, 5 × the device's own) |
//! | stalls of max(the stall threshold, 3 × the device's own) and longer | 0 |
//!
//! The device's own is the longest pair of the device's canary that is its own and no stop. Each figure is told raw,
//! and attributed: without the time in which device or CPU stood still by themselves.
//!
//! VER-1  A run is calm if no raw figure breaks its limit, not calm if an attributed one does, inconclusive otherwise:
//!        the machine stood still, and without that time nothing is wrong.
//! VER-2  Time that no canary calls a stop counts against the engine.

mod attributed;

use serde::Serialize;

use crate::calm::Calm;
use crate::canary::log::MachineLog;
use crate::spans::{Slow, Span};

/// The longest gap may be so long on any device, in ns.
const GAP_LIMIT_NS: u64 = 100_000_000;

/// Or so many times as long as the device's own.
const GAP_FACTOR: u64 = 3;

/// The slowest transaction may take so long on any device, in ns.
const SLOWEST_LIMIT_NS: u64 = 250_000_000;

/// Or so many times as long as the device's own.
const SLOWEST_FACTOR: u64 = 5;

/// What is said of a run.
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

/// What was recorded of a run.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Completions in each whole second.
    pub seconds: &'a [u64],
    /// When the first of these began, in ns since the start of the run.
    pub counts_from_ns: u64,
    /// Arrivals a second; `None` in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Times without a completion: the longest of each thread, and all of 50 ms and longer, with those at begin and
    /// end.
    pub gaps: &'a [Span],
    /// Slow transactions, with the one that waited longest when the run ended.
    pub slow: &'a [Slow],
    /// The longest latency of all, in ns.
    pub slowest_ns: u64,
    /// Operations of the engine that took the threshold or longer.
    pub stalls: u64,
    /// The last of these.
    pub stall_spans: &'a [Span],
    /// From how long on an operation is a stall, in ns.
    pub stall_threshold_ns: u64,
    /// What the canaries saw; `None`: the machine was not watched.
    pub machine: Option<&'a MachineLog>,
    /// The longest pair of the probe, which counts where no canary watched, in ns.
    pub probe_worst_ns: u64,
}

/// The figures that have a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// The median is 0 and nothing else measures the run.
    is_dead: bool,
    brownout_s: usize,
    gap_ns: u64,
    slowest_ns: u64,
    /// Operations of the stall threshold and longer.
    stalls: u64,
    /// Those that are too long for this device.
    stalls_over: u64,
}

/// What is said of a run, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// What is said.
    pub verdict: Verdict,
    /// Which limits were broken, in words, raw; for an engine that is not calm, attributed.
    pub verdict_reasons: Vec<String>,
    /// Seconds under half of what measures the run in which the machine ran.
    pub brownout_attributed_s: usize,
    /// Seconds from the begin of the run, without the warm-up, to that of the longest gap.
    pub blackout_at_s: f64,
    /// How long of the longest gap the device stood still by itself.
    pub blackout_device_ms: f64,
    /// How long of it the device stood still with much of the engine's outstanding.
    pub blackout_shared_ms: f64,
    /// How long of it the CPU stood still.
    pub blackout_cpu_ms: f64,
    /// The longest gap without the machine's stops; it may be another one.
    pub blackout_attributed_ms: f64,
    /// What the longest gap may be.
    pub blackout_limit_ms: f64,
    /// The slowest transaction, those included that were queued when the run ended.
    pub slowest_ms: f64,
    /// The slowest without the machine's stops; it may be another one.
    pub slowest_attributed_ms: f64,
    /// What the slowest may take.
    pub slowest_limit_ms: f64,
    /// Stalls without those that the machine's stops explain.
    pub stalls_attributed: u64,
    /// How long the device stood still by itself in the whole run.
    pub device_stopped_ms: f64,
    /// How long it did with much of the engine's outstanding.
    pub device_shared_ms: f64,
    /// How long the CPU stood still.
    pub cpu_stopped_ms: f64,
}

/// What the longest gap and the slowest transaction may take, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    gap_ns: u64,
    slowest_ns: u64,
    /// From how long on a stall counts.
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
    let all = |spans: &[Span]| ms(spans.iter().map(|span| span.len_ns()).sum());
    Judgement {
        verdict,
        verdict_reasons,
        brownout_attributed_s: attributed.brownout_s,
        blackout_at_s: longest.from_ns.saturating_sub(history.counts_from_ns) as f64 / 1e9,
        blackout_device_ms: ms(longest.within_ns(&stops.device)),
        blackout_shared_ms: ms(longest.within_ns(&stops.shared)),
        blackout_cpu_ms: ms(longest.within_ns(&stops.cpu)),
        blackout_attributed_ms: ms(attributed.gap_ns),
        blackout_limit_ms: ms(limits.gap_ns),
        slowest_ms: ms(raw.slowest_ns),
        slowest_attributed_ms: ms(attributed.slowest_ns),
        slowest_limit_ms: ms(limits.slowest_ns),
        stalls_attributed: attributed.stalls,
        device_stopped_ms: all(&stops.device),
        device_shared_ms: all(&stops.shared),
        cpu_stopped_ms: all(&stops.cpu),
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

/// How many stalls are too long: `all` of those that count where the limit is the threshold, else the remembered ones
/// of which so much is left.
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
    /// The sentence that ends a run: how long of its longest gap the machine stood still.
    pub fn sentence(&self, blackout_ms: f64, is_watched: bool) -> String {
        let mut text = format!("the longest gap was {blackout_ms:.1} ms; ");
        let parts = [
            ("the device itself stood still", self.blackout_device_ms),
            ("the device stood still under the engine's own writes", self.blackout_shared_ms),
            ("the CPU stood still", self.blackout_cpu_ms),
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

    /// The verdict in words, with what led to it.
    pub fn verdict_text(&self) -> String {
        let reasons = self.verdict_reasons.join("; ");
        match self.verdict {
            Verdict::Calm => "calm".to_owned(),
            Verdict::NotCalm => format!("NOT CALM: {reasons}"),
            Verdict::Inconclusive if self.has_stops() => format!("inconclusive: the machine stood still; {reasons}"),
            Verdict::Inconclusive => format!("inconclusive: {reasons}"),
        }
    }

    fn has_stops(&self) -> bool {
        self.device_stopped_ms + self.cpu_stopped_ms > 0.0
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests;
