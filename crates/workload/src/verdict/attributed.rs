//! The figures without the machine's own stops.
//!
//! A stop leaves a queue that delays later arrivals too, by the stop's length at most. So all stops since the begin of
//! a backlog excuse the queueing time of its transactions. The time from the begin of a transaction on is excused only
//! by the stops in that time.

use super::{Figures, History, Limits, over_limit};
use crate::calm::{brownout_below, median};
use crate::spans::{Slow, Span, union};

/// A second counts if the machine ran for at least this share of it.
const LIVE_MIN: f64 = 0.5;

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// The figures of `history` without `excused`, which is sorted and disjoint.
pub(super) fn figures(history: &History<'_>, excused: &[Span], limits: Limits) -> Figures {
    let left_ns = |span: Span| span.len_ns() - span.within_ns(excused);
    let (is_dead, brownout_s) = seconds(history, excused);
    let explained =
        history.stall_spans.iter().filter(|stall| left_ns(**stall) < history.stall_threshold_ns).count() as u64;
    let stalls = history.stalls.saturating_sub(explained);
    Figures {
        is_dead,
        brownout_s,
        gap_ns: history.gaps.iter().map(|gap| left_ns(*gap)).max().unwrap_or(0),
        slowest_ns: slowest_ns(history, excused),
        stalls,
        stalls_over: over_limit(history, limits, stalls, |stall| left_ns(*stall)),
    }
}

/// Of the seconds in which the machine ran: whether the median had no completion, and the number of brownouts.
fn seconds(history: &History<'_>, excused: &[Span]) -> (bool, usize) {
    let second = |(at, count): (u64, &u64)| {
        let from_ns = history.counts_from_ns + at * SECOND_NS;
        let stopped_ns = Span::new(from_ns, from_ns + SECOND_NS).within_ns(excused);
        (1.0 - stopped_ns as f64 / SECOND_NS as f64, *count)
    };
    let live: Vec<(f64, u64)> =
        (0..).zip(history.seconds).map(second).filter(|(share, _)| *share >= LIVE_MIN).collect();
    // The completions extrapolated to a second without stops.
    let whole: Vec<u64> = live.iter().map(|(share, count)| (*count as f64 / share) as u64).collect();
    let below = brownout_below(&whole, history.offered_per_s);
    let brownout_s = whole.iter().filter(|count| (**count as f64) < below).count();
    let is_dead = history.offered_per_s.is_none() && median(&whole) == Some(0.0);
    (is_dead, brownout_s)
}

fn slowest_ns(history: &History<'_>, excused: &[Span]) -> u64 {
    let backlogs = union(history.slow.iter().map(|slow| Span::new(slow.arrived_ns, slow.began_ns)).collect());
    let left_ns = |slow: &Slow| {
        let queued = Span::new(slow.arrived_ns, slow.began_ns);
        let backlog = backlogs.partition_point(|backlog| backlog.to_ns < queued.to_ns);
        let from_ns = backlogs.get(backlog).map_or(queued.from_ns, |backlog| backlog.from_ns.min(queued.from_ns));
        let delayed_ns = Span::new(from_ns, slow.began_ns).within_ns(excused);
        let ran = Span::new(slow.began_ns, slow.ended_ns);
        queued.len_ns().saturating_sub(delayed_ns) + (ran.len_ns() - ran.within_ns(excused))
    };
    let longest_kept_ns = history.slow.iter().map(|slow| slow.latency_ns()).max().unwrap_or(0);
    let kept_ns = history.slow.iter().map(left_ns).max().unwrap_or(0);
    // The slowest transaction was too fast to be kept, so no stop is subtracted.
    if history.slowest_ns > longest_kept_ns { history.slowest_ns } else { kept_ns }
}
