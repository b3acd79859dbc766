//! Events around a load, for its charts: times of a slow device, and of a scan or DDL beside the load.

use serde::{Deserialize, Serialize};

use super::arm::{Phase, SlowDevice, SlowTime};
use super::beside::Beside;
use super::outcome::Outcome;

/// A marked span of a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Begin and end, in seconds of the phase.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// The event, in words.
    pub(super) what: String,
}

/// The marks of a phase that began `began_s` seconds after the database was opened, and had `outcome`. An activity that
/// lasts for the whole phase gets no mark: the phase is named after it.
pub(super) fn of(device: Option<&SlowDevice>, phase: &Phase, began_s: f64, outcome: &Outcome) -> Vec<Mark> {
    let end_s = outcome.seconds.len() as f64;
    let slower = device.into_iter().flat_map(|device| &device.slower);
    let mut marks: Vec<Mark> = slower.flat_map(|slow| slow_times(slow, began_s, end_s)).collect();
    let beside = match phase.beside {
        Some(Beside::Scan { .. }) => Some("a scan beside it"),
        Some(Beside::Ddl { .. }) => Some("DDL beside it"),
        Some(Beside::LongReader) | None => None,
    };
    marks.extend(beside.map(|what| {
        let from_s = outcome.figures.beside_from_s;
        let to_s = from_s + outcome.figures.beside_ms / 1e3;
        Mark { from_s, to_s: to_s.min(end_s), what: what.to_owned() }
    }));
    marks
}

/// Times of a slower device in a phase that began at `began_s` and lasted for `end_s`.
fn slow_times(slow: &SlowTime, began_s: f64, end_s: f64) -> Vec<Mark> {
    let what = if slow.factor > 0.0 {
        format!("the device at {:.0} % of its speed", slow.factor * 100.0)
    } else {
        "the device's writes stand still".to_owned()
    };
    let times = if slow.every_s > 0.0 { ((began_s + end_s) / slow.every_s) as u32 + 1 } else { 1 };
    let mark = |time: u32| {
        let from_s = slow.from_s + f64::from(time) * slow.every_s - began_s;
        Mark { from_s: from_s.max(0.0), to_s: (from_s + slow.for_s).min(end_s), what: what.clone() }
    };
    (0..times).map(mark).filter(|mark| mark.from_s < mark.to_s).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::arm::{Tables, Work};

    #[test]
    fn slow_times_are_those_of_the_phase() {
        let stop = SlowTime { from_s: 9.0, for_s: 0.5, every_s: 4.0, factor: 0.0 };
        let spans = |slow: &SlowTime, began_s, end_s| {
            slow_times(slow, began_s, end_s).iter().map(|mark| (mark.from_s, mark.to_s)).collect::<Vec<_>>()
        };
        assert_eq!(spans(&stop, 0.0, 6.0), []);
        assert_eq!(spans(&stop, 6.0, 12.0), [(3.0, 3.5), (7.0, 7.5), (11.0, 11.5)]);
        assert_eq!(spans(&stop, 9.25, 4.0), [(0.0, 0.25), (3.75, 4.0)], "what is left of it, and what is still in it");
        let slow = SlowTime { from_s: 8.0, for_s: 3.0, every_s: 0.0, factor: 0.3 };
        assert_eq!(spans(&slow, 0.5, 20.0), [(7.5, 10.5)]);
        assert_eq!(slow_times(&slow, 0.0, 20.0)[0].what, "the device at 30 % of its speed");
    }

    #[test]
    fn what_is_beside_a_load_is_marked_for_as_long_as_it_took() {
        let tables = Tables { count: 1, rows: 9 };
        let work = Work::Oltp { workload: "oltp_insert".into(), tables, threads: 2, per_s: None };
        let phase = |beside| Phase { name: "x".into(), quiet_s: 0.0, work: work.clone(), time_s: 4, beside };
        let mut outcome = Outcome { seconds: vec![1; 4], ..Outcome::default() };
        (outcome.figures.beside_from_s, outcome.figures.beside_ms) = (1.25, 1_500.0);
        let marks = |phase: &Phase, outcome: &Outcome| of(None, phase, 7.0, outcome);
        let scan = phase(Some(Beside::Scan { after_s: 1.0 }));
        let mark = Mark { from_s: 1.25, to_s: 2.75, what: "a scan beside it".into() };
        assert_eq!(marks(&scan, &outcome), [mark]);
        outcome.figures.beside_ms = 9_000.0;
        let ddl = phase(Some(Beside::Ddl { after_s: 2.0, table: 5 }));
        assert_eq!(marks(&ddl, &outcome)[0].to_s, 4.0, "it outlasts the load");
        assert_eq!(marks(&phase(Some(Beside::LongReader)), &outcome), []);
    }
}
