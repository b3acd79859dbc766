//! A scan that takes its time beside updates.

use super::{Experiment, Findings, Lab, TABLES, THREADS, servers, updates};
use crate::commands::lab::arm::Phase;
use crate::commands::lab::beside::Beside;
use crate::commands::lab::laboratory::tables;
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "long-reader",
    title: "a scan that takes its time beside updates",
    source: "what users report",
    run,
};

const ALONE: &str = "updates";
const PHASE: &str = "updates beside a long reader";

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let words = ["buffer_pool_size=64MiB", "redo_capacity=128MiB", "durability=background(1s)", "stall_threshold=20ms"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=128MiB"]);
    let alone = updates(ALONE, TABLES, THREADS, lab.seconds(5, 15));
    let beside = Some(Beside::LongReader);
    let phases = [alone, Phase { beside, ..updates(PHASE, TABLES, THREADS, lab.seconds(8, 30)) }];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &servers(&words), &phases)?;
    lab.clear();
    let how = "16 threads update data twice the pool, durable within a second, first alone; 20 ms are a stall. Then one \
               reader scans a table beside them, with a rest of 2 ms after each 200 rows. It sees each row as committed \
               when it comes to it: there are no snapshots yet, so old versions have nobody to wait for, with any \
               setting.";
    let mut findings = EXPERIMENT.findings(how, settings, &[ALONE, PHASE]);
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    findings.judge_beside(ALONE, PHASE);
    let own = findings.default().figures(PHASE);
    let most = |of: fn(&Outcome) -> f64| findings.default().most(PHASE, of);
    let (stalls, brownout_s) = (most(|run| run.figures.stalls), most(|run| run.figures.brownout_s));
    let slowest_ms = most(|run| run.figures.slowest_ms);
    let undo = findings.default().median(PHASE, |run| run.number("undo_pages"));
    findings.notes.push(format!("Undo pages at the end with the default: {undo:.0}."));
    findings.judge(
        "ours",
        "a reader that takes its time does not stall writers",
        stalls == 0.0 && brownout_s == 0.0,
        format!(
            "{stalls:.0} stalls, slowest {slowest_ms:.1} ms, worst second {:.0} of {:.0}",
            own.worst_per_s, own.median_per_s
        ),
    );
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "mysql-5.6");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{beside_servers, failing};

    /// Places of the claims that do not hold when the default came to something else.
    fn failing_with(change: fn(&mut Outcome)) -> Vec<usize> {
        let mut findings = beside_servers(ALONE, PHASE, change);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 7);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with(|_| {}), [0; 0]);
        assert_eq!(failing_with(|of| of.figures.stalls = 1.0), [4]);
        assert_eq!(failing_with(|of| of.figures.brownout_s = 1.0), [4]);
        assert_eq!(failing_with(|of| of.figures.per_s = 999.0), [5]);
        assert_eq!(failing_with(|of| of.figures.slowest_ms = 10.1), [6]);
    }
}
