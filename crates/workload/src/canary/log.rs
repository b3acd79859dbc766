//! The canaries' log of a run, and the times at which the machine stood still according to it.
//!
//! A beat is one pair of write and sync, or one wake. A stop is a beat that took at least [`STOP_MIN_NS`], and at least
//! five times the median beat. The factor is for rotating disks, where a pair of 10 ms is usual.

use hdrhistogram::Histogram;

use super::taken::Taken;
use super::{CPU_PERIOD, DEVICE_PERIOD, OUTSTANDING_MAX};
use crate::recorder::latency_histogram;
use crate::spans::{Span, union};

/// A shorter beat is no stop.
pub const STOP_MIN_NS: u64 = 20_000_000;

/// A stop takes at least this many times the median beat.
const STOP_FACTOR: u64 = 5;

/// The most long beats that are kept; beyond that, the longest stay.
const LONG_MAX: usize = 4_096;

/// A beat that took [`STOP_MIN_NS`] or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongBeat {
    /// From the begin of the pair, or the time at which the wake was due, to the end.
    pub span: Span,
    /// Bytes that the engine had outstanding when the beat began.
    pub outstanding_bytes: u64,
    /// End of the beat before, in ns: the machine was alive then. 0 if there was none.
    pub alive_ns: u64,
}

impl LongBeat {
    /// Whether the machine alone took the time, not the engine's outstanding I/O.
    pub fn is_own(&self) -> bool {
        self.outstanding_bytes < OUTSTANDING_MAX
    }
}

/// The beats of one canary.
#[derive(Clone, Debug)]
pub struct Beats {
    lengths: Histogram<u64>,
    /// The longest beat of the machine's own, and the longest one shared with the engine, in ns.
    own_worst_ns: u64,
    shared_worst_ns: u64,
    long: Vec<LongBeat>,
    last_ended_ns: u64,
}

impl Default for Beats {
    fn default() -> Beats {
        Beats { lengths: latency_histogram(), own_worst_ns: 0, shared_worst_ns: 0, long: Vec::new(), last_ended_ns: 0 }
    }
}

impl Beats {
    /// Adds the next beat.
    pub fn add(&mut self, from_ns: u64, to_ns: u64, outstanding_bytes: u64) {
        let span = Span::new(from_ns, to_ns);
        let beat = LongBeat { span, outstanding_bytes, alive_ns: self.last_ended_ns };
        self.last_ended_ns = span.to_ns;
        self.lengths.saturating_record(span.len_ns());
        let worst_ns = if beat.is_own() { &mut self.own_worst_ns } else { &mut self.shared_worst_ns };
        *worst_ns = (*worst_ns).max(span.len_ns());
        if span.len_ns() < STOP_MIN_NS {
            return;
        }
        self.long.push(beat);
        if self.long.len() >= 2 * LONG_MAX {
            self.long.sort_unstable_by_key(|beat| std::cmp::Reverse(beat.span.len_ns()));
            self.long.truncate(LONG_MAX);
        }
    }

    /// The number of beats.
    pub fn count(&self) -> u64 {
        self.lengths.len()
    }

    /// The length of the median beat, in ns.
    pub fn median_ns(&self) -> u64 {
        self.lengths.value_at_quantile(0.5)
    }

    /// The longest beat of the machine's own, in ns.
    pub fn own_worst_ns(&self) -> u64 {
        self.own_worst_ns
    }

    /// The longest beat that began while the engine had much outstanding, in ns.
    pub fn shared_worst_ns(&self) -> u64 {
        self.shared_worst_ns
    }

    /// The beats that are stops.
    pub fn stops(&self) -> impl Iterator<Item = &LongBeat> {
        let least_ns = STOP_MIN_NS.max(STOP_FACTOR * self.median_ns());
        self.long.iter().filter(move |beat| beat.span.len_ns() >= least_ns)
    }

    /// The longest beat of the machine's own, capped at the least length of a stop, in ns.
    fn usual_worst_ns(&self) -> u64 {
        self.own_worst_ns.min(STOP_MIN_NS.max(STOP_FACTOR * self.median_ns()))
    }
}

/// The beats of both canaries in a run.
#[derive(Clone, Debug, Default)]
pub struct MachineLog {
    /// Pairs of a write and its sync on the device.
    pub device: Beats,
    /// Wakes: how late they were.
    pub cpu: Beats,
    /// CPU time that others took.
    pub taken: Taken,
    /// Why a canary did not watch to the end; `None` if both did.
    pub failure: Option<String>,
}

/// The times at which the machine stood still, as sorted, disjoint spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stops {
    /// Stops of the device by itself, as the canary saw them.
    pub device: Vec<Span>,
    /// Stops of the device while the engine had much outstanding.
    pub shared: Vec<Span>,
    /// Stops of the CPU.
    pub cpu: Vec<Span>,
    /// CPU time that others took while threads of this process waited for a CPU.
    pub taken: Vec<Span>,
    /// Stops of device or CPU by themselves, each from its earliest possible begin, and the taken time. All this does
    /// not count against the engine.
    pub excused: Vec<Span>,
    /// The device's longest pair of its own, capped at the least length of a stop, in ns.
    pub device_usual_worst_ns: u64,
}

impl MachineLog {
    /// Computes the times at which the machine stood still.
    pub fn stops(&self) -> Stops {
        let spans = |beats: &Beats, is_own: bool| {
            union(beats.stops().filter(|beat| beat.is_own() == is_own).map(|beat| beat.span).collect())
        };
        let period = |period: std::time::Duration| u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let own = |beats: &Beats, period_ns| {
            let own = beats.stops().filter(|beat| beat.is_own());
            own.map(|beat| reached_back(beat, period_ns)).collect::<Vec<_>>()
        };
        let taken = self.taken.spans();
        let stopped = [own(&self.device, period(DEVICE_PERIOD)), own(&self.cpu, period(CPU_PERIOD))].concat();
        Stops {
            device: spans(&self.device, true),
            shared: spans(&self.device, false),
            cpu: spans(&self.cpu, true),
            excused: union([stopped, taken.clone()].concat()),
            taken,
            device_usual_worst_ns: self.device.usual_worst_ns(),
        }
    }
}

/// Extends a stop back to its earliest possible begin: after the beat before, at most one period back, and at most by
/// the length that was seen, so that a short stop excuses little.
fn reached_back(beat: &LongBeat, period_ns: u64) -> Span {
    let back_ns = period_ns.min(beat.span.len_ns());
    let from_ns = beat.span.from_ns.saturating_sub(back_ns).max(beat.alive_ns).min(beat.span.from_ns);
    Span::new(from_ns, beat.span.to_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Beats of `usual_ms`, one every 100 ms, and one of `long_ms` at 1,000 ms with `outstanding_bytes`.
    fn beats(usual_ms: u64, long_ms: u64, outstanding_bytes: u64) -> Beats {
        let mut beats = Beats::default();
        for at in (0..10).map(|number| number * 100 * MS) {
            beats.add(at, at + usual_ms * MS, 0);
        }
        beats.add(1_000 * MS, (1_000 + long_ms) * MS, outstanding_bytes);
        beats
    }

    fn span_ms(from: u64, to: u64) -> Span {
        Span::new(from * MS, to * MS)
    }

    #[test]
    fn stop_with_little_outstanding_reaches_back_to_the_last_beat() {
        let log = MachineLog { device: beats(1, 1_050, OUTSTANDING_MAX - 1), ..MachineLog::default() };
        let stops = log.stops();
        assert_eq!(stops.device, [span_ms(1_000, 2_050)]);
        assert_eq!(stops.excused, [span_ms(901, 2_050)], "it was alive when the beat before ended");
        assert_eq!((stops.shared, stops.cpu), (Vec::new(), Vec::new()));
        assert_eq!(log.device.own_worst_ns(), 1_050 * MS);
        assert!(stops.device_usual_worst_ns <= STOP_MIN_NS);
    }

    #[test]
    fn stop_with_a_mebibyte_outstanding_excuses_nothing() {
        let log = MachineLog { device: beats(1, 1_050, OUTSTANDING_MAX), ..MachineLog::default() };
        let stops = log.stops();
        assert_eq!(stops.shared, [span_ms(1_000, 2_050)]);
        assert_eq!((stops.device, stops.excused), (Vec::new(), Vec::new()));
        assert_eq!((log.device.own_worst_ns(), log.device.shared_worst_ns()), (MS, 1_050 * MS));
    }

    #[test]
    fn short_stop_reaches_back_no_further_than_it_lasted() {
        let log = MachineLog { device: beats(1, 25, 0), ..MachineLog::default() };
        assert_eq!(log.stops().excused, [span_ms(975, 1_025)]);
    }

    #[test]
    fn pair_that_is_usual_on_a_slow_device_is_no_stop() {
        assert_eq!(beats(12, 55, 0).stops().count(), 0, "under five times the median");
        assert_eq!(beats(12, 65, 0).stops().count(), 1);
        assert_eq!(beats(1, 19, 0).stops().count(), 0, "under 20 ms");
    }

    #[test]
    fn stops_of_device_and_cpu_at_once_excuse_once() {
        let log = MachineLog { device: beats(1, 500, 0), cpu: beats(0, 900, 0), ..MachineLog::default() };
        assert_eq!(log.stops().excused, [span_ms(901, 1_900)]);
    }
}
