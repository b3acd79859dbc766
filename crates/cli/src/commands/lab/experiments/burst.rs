//! Nearly twice the usual load for a while, with a log as full as the usual load keeps it.

use super::{BYTES_PER_S, Experiment, Findings, Lab, TABLES, offered, servers};
use crate::commands::lab::arm::SlowDevice;
use crate::commands::lab::laboratory::tables;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "burst",
    title: "1.8 times the usual load for a while",
    source: "what users report; text 003, comments",
    run,
};

const PHASES: [&str; 3] = ["usual", "burst", "usual again"];

/// Updates a second, and the factor of the burst.
const USUAL_PER_S: f64 = 1_500.0;
const TIMES: f64 = 1.8;

const WRITES_PER_S: f64 = 1_500.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower: Vec::new() };
    let words = ["buffer_pool_size=192MiB", "redo_capacity=8MiB", "durability=background(1s)"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=8MiB"]);
    let (warm_s, seconds) = (lab.seconds(12, 20), lab.seconds(5, 15));
    let phases = [
        offered("to begin with", USUAL_PER_S, warm_s),
        offered(PHASES[0], USUAL_PER_S, seconds),
        offered(PHASES[1], USUAL_PER_S * TIMES, seconds),
        offered(PHASES[2], USUAL_PER_S, seconds),
    ];
    let arms = servers(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let how = format!(
        "{USUAL_PER_S:.0} updates a second of data that fits in the pool, for {seconds} s {TIMES} times as many, then \
         as before; a log of 8 MiB, on an imitated device of {}, durable within a second. The usual load runs for \
         {warm_s} s first, until the log is as full as that load keeps it. Times are from arrival.",
        device.text()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &PHASES);
    findings.loops = Some(("buffer_flush_sync_total_pages", "synced"));
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    for name in ["mysql-5.6", "mysql-8.0"] {
        let (before, of) = (findings.setting(name).figures(PHASES[0]), findings.setting(name).figures(PHASES[1]));
        findings.judge(
            "what users report",
            format!("{name} bears the usual load without a stall, and stalls in the burst"),
            before.stalls == 0.0 && of.stalls > 0.0 && of.slowest_ms >= 2.0 * before.slowest_ms,
            format!(
                "slowest {:.1} ms, {:.0} stalls; in the burst {:.0} ms, {:.0} stalls",
                before.slowest_ms, before.stalls, of.slowest_ms, of.stalls
            ),
        );
        findings.judge_explained(name, PHASES[1], "log_space");
    }
    let own = findings.default();
    let slowest = [PHASES[1], PHASES[2]].map(|phase| own.most(phase, |run| run.figures.slowest_ms));
    let worst = own.least(PHASES[1], |run| run.figures.worst_per_s);
    findings.judge(
        "ours",
        format!("a burst of {TIMES} times is absorbed with the default"),
        slowest.iter().all(|ms| *ms < 100.0) && worst > USUAL_PER_S * TIMES * 0.85,
        format!("slowest {:.1} ms, and {:.1} after it; worst second {worst:.0}", slowest[0], slowest[1]),
    );
    findings.judge_offered(PHASES[1], USUAL_PER_S * TIMES);
    findings.judge_slowest(PHASES[1], "mysql-5.6");
    findings.judge_slowest(PHASES[1], "mysql-8.0");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::outcome::Outcome;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Indexes of the failing claims after `change` to a phase of one setting.
    fn failing_with(name: &str, phase: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of, burst_ms: f64| {
            let mut phases = vec![
                outcome(PHASES[0], USUAL_PER_S, 5.0, "log_space"),
                outcome(PHASES[1], USUAL_PER_S * TIMES, burst_ms, "log_space"),
                outcome(PHASES[2], USUAL_PER_S, 5.0, "log_space"),
            ];
            phases[1].figures.stalls = 9.0;
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
        let [usual, burst, again] = PHASES;
        let unexplained = |of: &mut Outcome| of.stalled.mostly.clear();
        assert_eq!(failing_with("", burst, |_| {}), [0; 0]);
        assert_eq!(failing_with("mysql-5.6", usual, |of| of.figures.slowest_ms = 401.0), [0], "as slow before");
        assert_eq!(failing_with("mysql-5.6", burst, |of| of.figures.stalls = 0.0), [0]);
        assert_eq!(failing_with("mysql-5.6", burst, unexplained), [1]);
        assert_eq!(failing_with("mysql-8.0", burst, |of| of.figures.stalls = 0.0), [2]);
        assert_eq!(failing_with("mysql-8.0", usual, |of| of.figures.stalls = 1.0), [2], "it does not bear that");
        assert_eq!(failing_with("mysql-5.6", usual, |of| of.figures.stalls = 1.0), [0]);
        assert_eq!(failing_with("mysql-8.0", burst, unexplained), [3]);
        assert_eq!(failing_with("default", burst, |of| of.figures.worst_per_s = USUAL_PER_S * TIMES * 0.85), [4]);
        assert_eq!(failing_with("default", again, |of| of.figures.slowest_ms = 100.0), [4]);
        assert_eq!(failing_with("default", burst, |of| of.figures.per_s = USUAL_PER_S * TIMES * 0.96), [5]);
        assert_eq!(failing_with("default", burst, |of| of.figures.slowest_ms = 50.1), [7]);
        assert_eq!(failing_with("default", burst, |of| of.figures.slowest_ms = 80.1), [6, 7]);
    }
}
