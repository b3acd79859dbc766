//! A device whose writes stand still for half a second, again and again, under a load that is shown without that before.

use super::{BYTES_PER_S, Experiment, Findings, Lab, TABLES, offered, servers};
use crate::commands::lab::arm::{SlowDevice, SlowTime};
use crate::commands::lab::laboratory::tables;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hiccup",
    title: "a device whose writes stand still for 500 ms",
    source: "what users report; text 003, comments",
    run,
};

const CONTROL: &str = "updates at a fixed rate";
const PHASE: &str = "the same, stops of 500 ms";

/// Writes a second of the device.
const WRITES_PER_S: f64 = 3_000.0;

/// Updates a second: fewer than any of the settings makes on this device at full load.
const BORNE_PER_S: f64 = 1_000.0;

/// Who answers within so many ms from arrival bears a load.
const BORNE_MS: f64 = 100.0;

/// How long the device stands still, and each how many seconds.
const STOP_MS: f64 = 500.0;
const EVERY_S: f64 = 4.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let control_s = lab.seconds(6, 20);
    let stop = SlowTime { from_s: control_s as f64 + 3.0, for_s: STOP_MS / 1e3, every_s: EVERY_S, factor: 0.0 };
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower: vec![stop] };
    let words = ["buffer_pool_size=64MiB", "redo_capacity=256MiB", "durability=background(1s)"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=256MiB"]);
    let phases = [offered(CONTROL, BORNE_PER_S, control_s), offered(PHASE, BORNE_PER_S, lab.seconds(12, 40))];
    let arms = servers(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{BORNE_PER_S:.0} updates a second, data twice the pool, on an imitated device of {}; then its writes stand \
         still for {STOP_MS:.0} ms every {EVERY_S:.0} s. Its reads go on: where these stand still, too, who misses a page waits \
         as long with any engine. Durable within a second. Times are from arrival. Frames that were kept free run out \
         while nothing can be cleaned.",
        device.text()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[CONTROL, PHASE]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    for name in ["mysql-5.6", "mysql-8.0"] {
        let (before, of) = (findings.setting(name).figures(CONTROL), findings.setting(name).figures(PHASE));
        findings.judge(
            "what users report",
            format!("{name} bears the load without a stall, and everybody waits while the writes stand still"),
            before.stalls == 0.0 && before.slowest_ms < BORNE_MS && of.stalls > 0.0 && of.blackout_ms >= STOP_MS * 0.9,
            format!(
                "slowest {:.1} ms; with stops {:.0} ms, {:.0} stalls, longest gap {:.0} ms",
                before.slowest_ms, of.slowest_ms, of.stalls, of.blackout_ms
            ),
        );
        findings.judge_explained(name, PHASE, "free_frame");
    }
    let own = findings.default().figures(PHASE);
    let slowest_ms = findings.default().most(PHASE, |run| run.figures.slowest_ms);
    let brownout_s = findings.default().most(PHASE, |run| run.figures.brownout_s);
    findings.judge(
        "ours",
        "a stop of the device's writes is not felt with the default, where commits are durable within a second: one \
         that is durable at once waits as long as they stand still, with any engine",
        slowest_ms < BORNE_MS && brownout_s == 0.0,
        format!("slowest {slowest_ms:.1} ms, worst second {:.0} of {:.0}", own.worst_per_s, own.median_per_s),
    );
    findings.judge_offered(PHASE, BORNE_PER_S);
    findings.judge_slowest(PHASE, "mysql-5.6");
    findings.judge_slowest(PHASE, "mysql-8.0");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::outcome::Outcome;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Places of the claims that do not hold when one setting came to something else.
    fn failing_with(name: &str, phase: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of, slowest_ms| {
            let mut with_stops = outcome(PHASE, BORNE_PER_S, slowest_ms, "free_frame");
            (with_stops.figures.stalls, with_stops.figures.blackout_ms) = (9.0, STOP_MS);
            let mut phases = vec![outcome(CONTROL, BORNE_PER_S, 5.0, "page_read"), with_stops];
            phases.iter_mut().filter(|run| of == name && run.phase == phase).for_each(change);
            (of, phases)
        };
        let settings = vec![setting("mysql-5.6", 800.0), setting("mysql-8.0", 500.0), setting("default", 50.0)];
        let mut findings = findings_of(settings);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 8);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let unexplained = |of: &mut Outcome| of.stalled.parts.clear();
        assert_eq!(failing_with("", PHASE, |_| {}), [0; 0]);
        assert_eq!(failing_with("mysql-5.6", CONTROL, |of| of.figures.stalls = 1.0), [0], "it is too much for it");
        assert_eq!(failing_with("mysql-5.6", CONTROL, |of| of.figures.slowest_ms = 100.0), [0], "it is late");
        assert_eq!(failing_with("mysql-5.6", PHASE, |of| of.figures.stalls = 0.0), [0]);
        assert_eq!(failing_with("mysql-5.6", PHASE, unexplained), [1]);
        assert_eq!(failing_with("mysql-8.0", PHASE, |of| of.figures.blackout_ms = 449.0), [2], "some went on");
        assert_eq!(failing_with("mysql-8.0", PHASE, unexplained), [3]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.brownout_s = 1.0), [4]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.per_s = 980.0), [5]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.slowest_ms = 50.1), [7]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.slowest_ms = 80.1), [6, 7]);
        assert_eq!(failing_with("default", PHASE, |of| of.figures.slowest_ms = 100.0), [4, 6, 7]);
    }
}
