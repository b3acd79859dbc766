//! A device whose writes stand still for half a second, again and again: under a load for which the free frames last
//! through a stop, and under one for which they do not.

use super::{BYTES_PER_S, Experiment, Findings, Lab, TABLES, filling, offered, servers};
use crate::commands::lab::arm::{SlowDevice, SlowTime};
use crate::commands::lab::laboratory::tables;
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hiccup",
    title: "a device whose writes stand still for 500 ms",
    source: "what users report; text 003, comments",
    run,
};

const LIGHT: &str = "600 updates a second, stops of 500 ms";
const CONTROL: &str = "1,300 updates a second";
const PHASE: &str = "the same, stops of 500 ms";

/// Writes a second of the device.
const WRITES_PER_S: f64 = 3_000.0;

/// Updates a second: while the servers' lists are filled again; few enough for a list of 1,024 frames to last for two
/// seconds; and too many for that. Once a server's users queue for single-page flushes, they wait even without a stop.
const SETTLING_PER_S: f64 = 200.0;
const LIGHT_PER_S: f64 = 600.0;
const PER_S: f64 = 1_300.0;

/// A setting bears a load if it answers within this time from arrival, in ms. With gaps shorter than this, some clients
/// are always served.
const BORNE_MS: f64 = 100.0;

/// Length of a stop in ms; begin of the first stop in a phase, and period of the stops, in s.
const STOP_MS: f64 = 500.0;
const FIRST_S: f64 = 3.0;
const EVERY_S: f64 = 4.0;

/// The stops of a phase that begins `begin_s` seconds after the database was opened.
fn stops(begin_s: u64, time_s: u64) -> Vec<SlowTime> {
    let stop = |at: u32| {
        let from_s = begin_s as f64 + FIRST_S + f64::from(at) * EVERY_S;
        SlowTime { from_s, for_s: STOP_MS / 1e3, every_s: 0.0, factor: 0.0 }
    };
    (0..(time_s as f64 / EVERY_S) as u32).map(stop).collect()
}

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let (light_s, control_s, seconds) = (lab.seconds(6, 24), lab.seconds(5, 20), lab.seconds(10, 32));
    let phases = [
        filling(lab),
        offered("until the lists are filled again", SETTLING_PER_S, 3),
        offered(LIGHT, LIGHT_PER_S, light_s),
        offered(CONTROL, PER_S, control_s),
        offered(PHASE, PER_S, seconds),
    ];
    let begins_s = |phase: usize| phases[..phase].iter().map(|phase| phase.time_s).sum();
    let slower = [stops(begins_s(2), light_s), stops(begins_s(4), seconds)].concat();
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower };
    let words = ["buffer_pool_size=64MiB", "redo_capacity=256MiB", "durability=background(1s)"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=256MiB"]);
    let arms = servers(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let how = format!(
        "Updates at a rate, data twice the pool, which is full, on an imitated device of {} whose writes stand still \
         for {STOP_MS:.0} ms every {EVERY_S:.0} s: {LIGHT_PER_S:.0} a second, then {PER_S:.0}, first without stops. \
         The device's reads go on: if they stood still too, an operation that misses a page would wait as long with \
         any engine. Durable within a second. Times are from arrival. A server fills its list of free frames once a \
         second, and cannot fill it while the device does not write: if users take more frames than the list holds, it \
         runs out.",
        device.text()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[LIGHT, CONTROL, PHASE]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    for name in ["mysql-5.6", "mysql-8.0"] {
        let of = |phase| findings.setting(name).figures(phase);
        let (light, before, of) = (of(LIGHT), of(CONTROL), of(PHASE));
        findings.judge(
            "ours",
            format!("{LIGHT}: the list of {name} lasts, and the stops are borne without a stall"),
            light.stalls == 0.0 && light.slowest_ms < BORNE_MS,
            format!("slowest {:.1} ms, {:.0} stalls", light.slowest_ms, light.stalls),
        );
        findings.judge(
            "what users report",
            format!("under {PER_S:.0} a second {name} always serves some clients, and with stops all clients wait"),
            before.blackout_ms < BORNE_MS && of.stalls > 0.0 && of.blackout_ms >= STOP_MS * 0.9,
            format!(
                "longest gap {:.0} ms, slowest {:.0} ms, {:.0} stalls; with stops {:.0} ms, {:.0} ms, {:.0} stalls",
                before.blackout_ms, before.slowest_ms, before.stalls, of.blackout_ms, of.slowest_ms, of.stalls
            ),
        );
        findings.judge_explained(name, PHASE, "free_frame");
    }
    let most = |of: fn(&Outcome) -> f64| {
        [LIGHT, PHASE].iter().map(|phase| findings.default().most(phase, of)).fold(0.0, f64::max)
    };
    let (slowest_ms, brownout_s) = (most(|run| run.figures.slowest_ms), most(|run| run.figures.brownout_s));
    let own = findings.default().figures(PHASE);
    findings.judge(
        "ours",
        "with the default, users do not notice a stop of the device's writes, if commits are durable within a second: \
         a commit that is durable at once waits for the end of the stop, with any engine",
        slowest_ms < BORNE_MS && brownout_s == 0.0,
        format!("slowest {slowest_ms:.1} ms, worst second {:.0} of {:.0}", own.worst_per_s, own.median_per_s),
    );
    findings.judge_offered(PHASE, PER_S);
    // The server's slowest operation is no measure: some are as slow without stops. Only stops leave all clients
    // waiting.
    let own_ms = findings.default().most(PHASE, |run| run.figures.slowest_ms);
    for name in ["mysql-5.6", "mysql-8.0"] {
        let gap_ms = findings.setting(name).figures(PHASE).blackout_ms;
        findings.judge(
            "ours",
            format!(
                "{PHASE}: the slowest operation takes at most a tenth of the time in which {name} serves no client"
            ),
            own_ms * 10.0 <= gap_ms,
            format!("{own_ms:.1} ms and {gap_ms:.0} ms: 1 to {:.1}", gap_ms / own_ms.max(1e-3)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Indexes of the failing claims after `change` to a phase of one setting.
    fn failing_with(name: &str, phase: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of, slowest_ms| {
            let mut with_stops = outcome(PHASE, PER_S, slowest_ms, "free_frame");
            (with_stops.figures.stalls, with_stops.figures.blackout_ms) = (9.0, STOP_MS);
            let before = [outcome(LIGHT, LIGHT_PER_S, 5.0, "page_read"), outcome(CONTROL, PER_S, 5.0, "page_read")];
            let mut phases = [&before[..], &[with_stops]].concat();
            phases.iter_mut().filter(|run| of == name && run.phase == phase).for_each(change);
            (of, phases)
        };
        let settings = vec![setting("mysql-5.6", 800.0), setting("mysql-8.0", 500.0), setting("default", 50.0)];
        let mut findings = findings_of(settings);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 10);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let unexplained = |of: &mut Outcome| of.stalled.mostly.clear();
        assert_eq!(failing_with("", PHASE, |_| {}), [0; 0]);
        assert_eq!(failing_with("mysql-5.6", LIGHT, |of| of.figures.stalls = 1.0), [0], "it is too much for it");
        assert_eq!(failing_with("mysql-5.6", LIGHT, |of| of.figures.slowest_ms = 100.0), [0], "it is late");
        assert_eq!(failing_with("mysql-5.6", CONTROL, |of| of.figures.blackout_ms = 100.0), [1], "all wait anyway");
        assert_eq!(failing_with("mysql-5.6", PHASE, |of| of.figures.stalls = 0.0), [1]);
        assert_eq!(failing_with("mysql-5.6", PHASE, unexplained), [2]);
        assert_eq!(failing_with("mysql-8.0", LIGHT, |of| of.figures.stalls = 1.0), [3]);
        assert_eq!(failing_with("mysql-8.0", PHASE, |of| of.figures.blackout_ms = 449.0), [4, 9], "some went on");
        assert_eq!(failing_with("mysql-8.0", PHASE, unexplained), [5]);
        for phase in [LIGHT, PHASE] {
            assert_eq!(failing_with("default", phase, |of| of.figures.brownout_s = 1.0), [6]);
        }
        assert_eq!(failing_with("default", LIGHT, |of| of.figures.slowest_ms = 100.0), [6]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.per_s = 1_260.0), [7]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.slowest_ms = 50.1), [8, 9]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.slowest_ms = 100.0), [6, 8, 9]);
        assert_eq!(failing_with("mysql-8.0", PHASE, |of| of.figures.blackout_ms = 460.0), [9]);
    }

    #[test]
    fn stops_are_within_their_phase_and_end_with_it() {
        let times = |begin_s, time_s| stops(begin_s, time_s).iter().map(|stop| stop.from_s).collect::<Vec<_>>();
        assert_eq!((times(6, 8), times(20, 12)), (vec![9.0, 13.0], vec![23.0, 27.0, 31.0]));
        assert!(stops(6, 8).iter().all(|stop| stop.every_s == 0.0 && stop.for_s == 0.5));
    }
}
