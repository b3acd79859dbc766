//! Disturbances by the machine beside a phase, which can make a claim inconclusive.
//!
//! The canaries of [`workload::canary`] watch the real device and the CPU, even if a run is on an imitated slow device.

use serde::{Deserialize, Serialize};
use workload::canary::log::MachineLog;
use workload::spans::{Span, union};

use super::findings::Setting;

/// A single stop of the machine of this length disturbs a phase, in ms: the usual stall threshold.
const AT_ONCE_MS: f64 = 100.0;

/// Stops that add up to more than this share of a phase disturb it, too.
const SHARE: f64 = 0.05;

/// Figures of the canaries beside a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Beside {
    /// The device's slowest own pair of write and sync.
    pub(super) pair_ms: f64,
    /// The largest delay of the CPU canary's wakes.
    pub(super) wake_ms: f64,
    /// The longest stop of the device by itself, and the sum of all its stops.
    pub(super) device_stop_ms: f64,
    pub(super) device_stopped_ms: f64,
    /// The same for the CPU, the time that others took being part of the sum; 0 under a quota, which stops the CPU on
    /// purpose.
    pub(super) cpu_stop_ms: f64,
    pub(super) cpu_stopped_ms: f64,
}

/// Why a claim is inconclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Disturbance {
    Device,
    Cpu,
}

impl Disturbance {
    /// The disturbance in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Disturbance::Device => "inconclusive: the device stood still",
            Disturbance::Cpu => "inconclusive: CPU contended",
        }
    }

    /// The first disturbance in any phase of any round of these settings.
    pub(super) fn of<'s>(settings: impl Iterator<Item = &'s Setting>) -> Option<Disturbance> {
        let phases = settings.flat_map(|setting| setting.rounds.iter().flatten());
        let found: Vec<Disturbance> =
            phases.filter_map(|phase| phase.machine?.disturbs(phase.seconds.len() as f64 * 1e3)).collect();
        found.iter().copied().find(|of| *of == Disturbance::Device).or(found.first().copied())
    }
}

impl Beside {
    /// The figures of a log.
    pub(super) fn of(log: &MachineLog) -> Beside {
        let stops = log.stops();
        let ms = |ns: u64| ns as f64 / 1e6;
        let longest = |spans: &[Span]| ms(spans.iter().map(|span| span.len_ns()).max().unwrap_or(0));
        let all = |spans: &[Span]| ms(spans.iter().map(|span| span.len_ns()).sum());
        Beside {
            pair_ms: ms(log.device.own_worst_ns()),
            wake_ms: ms(log.cpu.own_worst_ns()),
            device_stop_ms: longest(&stops.device),
            device_stopped_ms: all(&stops.device),
            cpu_stop_ms: longest(&stops.cpu),
            cpu_stopped_ms: all(&union([stops.cpu.clone(), stops.taken.clone()].concat())),
        }
    }

    /// The same under a quota: there, stops of the CPU are part of the experiment.
    pub(super) fn under_quota(self) -> Beside {
        Beside { cpu_stop_ms: 0.0, cpu_stopped_ms: 0.0, ..self }
    }

    /// The disturbance of a phase of this length, if any.
    fn disturbs(self, phase_ms: f64) -> Option<Disturbance> {
        let is_much = |stop_ms: f64, stopped_ms: f64| stop_ms >= AT_ONCE_MS || stopped_ms > SHARE * phase_ms;
        if is_much(self.device_stop_ms, self.device_stopped_ms) {
            return Some(Disturbance::Device);
        }
        is_much(self.cpu_stop_ms, self.cpu_stopped_ms).then_some(Disturbance::Cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_or_many_stops_disturb_a_phase_and_a_quota_does_not() {
        let device = |stop, all| Beside { device_stop_ms: stop, device_stopped_ms: all, ..Beside::default() };
        assert_eq!(device(99.0, 400.0).disturbs(8_000.0), None);
        assert_eq!(device(100.0, 100.0).disturbs(8_000.0), Some(Disturbance::Device));
        assert_eq!(device(30.0, 401.0).disturbs(8_000.0), Some(Disturbance::Device));
        let cpu = Beside { cpu_stop_ms: 120.0, cpu_stopped_ms: 120.0, ..Beside::default() };
        assert_eq!(cpu.disturbs(8_000.0), Some(Disturbance::Cpu));
        assert_eq!(cpu.under_quota().disturbs(8_000.0), None);
        // Stops shorter than a stall are reported, but excuse nothing.
        assert_eq!(Beside { pair_ms: 90.0, wake_ms: 90.0, ..Beside::default() }.disturbs(8_000.0), None);
    }
}
