//! An index dropped and made again, and a table dropped, beside updates of other tables.

use super::{Experiment, Findings, Lab, TABLES, THREADS, servers, updates};
use crate::commands::lab::arm::{Phase, Tables};
use crate::commands::lab::beside::Beside;
use crate::commands::lab::findings::Setting;
use crate::commands::lab::laboratory::tables;
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ddl-drop",
    title: "an index dropped and made again, and a table dropped, beside updates",
    source: "what users report",
    run,
};

const ALONE: &str = "updates";
const PHASE: &str = "updates beside DDL";
const DDL_AFTER_S: f64 = 2.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let words =
        ["buffer_pool_size=128MiB", "redo_capacity=128MiB", "durability=background(1s)", "stall_threshold=20ms"];
    let all = Tables { count: TABLES.count + 1, ..TABLES };
    let base = tables(all.count, all.rows, &["redo_capacity=128MiB"]);
    let beside = Some(Beside::Ddl { after_s: DDL_AFTER_S, table: all.count });
    let seconds = lab.seconds(8, 20);
    let alone = updates(ALONE, TABLES, THREADS, lab.seconds(5, 15));
    let phases = [alone, Phase { beside, ..updates(PHASE, TABLES, THREADS, seconds) }];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &servers(&words), &phases)?;
    lab.clear();
    let how = "16 threads update four tables, first alone; then beside them the index of a fifth is dropped and made \
               again, and that table is dropped, pages of it in the pool. Durable within a second; 20 ms are a stall. \
               How tables and indexes are dropped is the engine's own in all settings: what they differ in is how they \
               come by frames and room.";
    let mut findings = EXPERIMENT.findings(how, settings, &[ALONE, PHASE]);
    judge(&mut findings, seconds);
    Ok(findings)
}

fn judge(findings: &mut Findings, seconds: u64) {
    findings.judge_beside(ALONE, PHASE);
    let most = |of: fn(&Outcome) -> f64| findings.default().most(PHASE, of);
    let (stalls, brownout_s) = (most(|run| run.figures.stalls), most(|run| run.figures.brownout_s));
    let (slowest_ms, gap_ms) = (most(|run| run.figures.slowest_ms), most(|run| run.figures.blackout_ms));
    let least_ms = findings.default().least(PHASE, |run| run.figures.beside_ms);
    let left_ms = (seconds as f64 - DDL_AFTER_S) * 1e3;
    let is_within = findings.default().phase(PHASE).iter().all(|run| run.figures.beside_ms < left_ms);
    let each = |setting: &Setting| match setting.figures(PHASE).beside_ms {
        ms if ms < left_ms => format!("{} {ms:.0} ms", setting.name.trim()),
        _ => format!("{} not done within the {left_ms:.0} ms until the load ended", setting.name.trim()),
    };
    let took: Vec<String> = findings.settings.iter().map(each).collect();
    findings.notes.push(format!("All of the DDL takes: {}.", took.join(", ")));
    findings.judge(
        "ours",
        "nobody else waits for it with the default",
        stalls == 0.0 && brownout_s == 0.0 && least_ms > 0.0 && is_within,
        format!(
            "{stalls:.0} stalls, slowest {slowest_ms:.1} ms, longest gap {gap_ms:.1} ms{}",
            if is_within { "" } else { "; it went on when the load had ended" }
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
        judge(&mut findings, 8);
        assert_eq!(findings.verdicts.len(), 7);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with(|_| {}), [0; 0]);
        assert_eq!(failing_with(|of| of.figures.stalls = 1.0), [4]);
        assert_eq!(failing_with(|of| of.figures.brownout_s = 1.0), [4]);
        assert_eq!(failing_with(|of| of.figures.beside_ms = 0.0), [4], "nothing was dropped");
        assert_eq!(failing_with(|of| of.figures.beside_ms = 6_000.0), [4], "it was not done when the load ended");
        assert_eq!(failing_with(|of| of.figures.per_s = 999.0), [5]);
        assert_eq!(failing_with(|of| of.figures.slowest_ms = 10.1), [6]);
    }
}
