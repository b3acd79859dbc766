//! A scan that takes its time beside updates.

use super::{BYTES_PER_S, Experiment, Findings, Lab, PERCONA, TABLES, filling, offered, with_percona};
use crate::commands::lab::arm::{Phase, SlowDevice};
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

/// Writes a second of the device.
const WRITES_PER_S: f64 = 3_000.0;

/// Updates a second: fewer than any setting reaches on this device at full load. They are so few that the thread that
/// fills percona-5.7's free list already sleeps long when the reader takes frames.
const BORNE_PER_S: f64 = 200.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower: Vec::new() };
    let words = ["buffer_pool_size=64MiB", "redo_capacity=256MiB", "durability=background(1s)", "stall_threshold=50ms"];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=256MiB"]);
    let alone = offered(ALONE, BORNE_PER_S, lab.seconds(4, 15));
    let beside = Some(Beside::LongReader);
    let phases = [filling(lab), alone, Phase { beside, ..offered(PHASE, BORNE_PER_S, lab.seconds(6, 30)) }];
    let arms = with_percona(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let how = format!(
        "{BORNE_PER_S:.0} updates a second, data twice the pool, which is full, on an imitated device of {}, durable \
         within a second, first alone; 50 ms are a stall; times are from arrival. Then one reader scans a table beside \
         them, with a rest of 2 ms after each 1,000 rows. It reads the latest committed version of each row: there are \
         no snapshots yet, so no setting has to keep old versions for the reader.",
        device.text()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[ALONE, PHASE]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    findings.judge_beside(PERCONA, ALONE, PHASE);
    let own = findings.default().figures(PHASE);
    let most = |of: fn(&Outcome) -> f64| findings.default().most(PHASE, of);
    let (stalls, brownout_s) = (most(|run| run.stalled.operations as f64), most(|run| run.figures.brownout_s));
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
    findings.judge_offered(PHASE, BORNE_PER_S);
    findings.judge_slowest(PHASE, PERCONA);
    findings.judge_borne("mysql-8.0", ALONE, PHASE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{beside_servers, failing};

    /// Indexes of the failing claims after `change` to the default's outcome.
    fn failing_with(change: fn(&mut Outcome)) -> Vec<usize> {
        let mut findings = beside_servers(ALONE, PHASE, change);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 6);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with(|_| {}), [0; 0]);
        assert_eq!(failing_with(|of| of.stalled.operations = 1), [2]);
        assert_eq!(failing_with(|of| of.figures.stalls = 1.0), [0; 0], "the reader's own");
        assert_eq!(failing_with(|of| of.figures.brownout_s = 1.0), [2]);
        assert_eq!(failing_with(|of| of.figures.per_s = 193.0), [3]);
        assert_eq!(failing_with(|of| of.figures.slowest_ms = 10.1), [4]);
        let mut findings = beside_servers(ALONE, PHASE, |_| {});
        findings.settings[1].rounds[0][1].stalled.operations = 1;
        judge(&mut findings);
        assert_eq!(failing(&findings), [5], "mysql-8.0 stalls, too");
    }
}
