//! Drops of tables, and an index that is dropped and created again, beside updates of other tables.

use super::{BYTES_PER_S, Experiment, Findings, Lab, PERCONA, TABLES, filling, offered, with_percona};
use crate::commands::lab::arm::{Phase, SlowDevice, Tables};
use crate::commands::lab::beside::Beside;
use crate::commands::lab::findings::Setting;
use crate::commands::lab::laboratory::tables;
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ddl-drop",
    title: "tables dropped, and an index dropped and made again, beside updates",
    source: "what users report",
    run,
};

const ALONE: &str = "updates";
const PHASE: &str = "updates beside DDL";
const DDL_AFTER_S: f64 = 2.0;

/// Writes a second of the device.
const WRITES_PER_S: f64 = 3_000.0;

/// Updates a second: fewer than any setting reaches on this device at full load. They are so few that the thread that
/// fills percona-5.7's free list already sleeps long when the DDL takes frames.
const BORNE_PER_S: f64 = 200.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower: Vec::new() };
    let words = ["buffer_pool_size=64MiB", "redo_capacity=256MiB", "durability=background(1s)", "stall_threshold=50ms"];
    let all = Tables { count: TABLES.count + 2, ..TABLES };
    let base = tables(all.count, all.rows, &["redo_capacity=256MiB"]);
    let beside = Some(Beside::Ddl { after_s: DDL_AFTER_S, table: all.count - 1 });
    let seconds = lab.seconds(6, 20);
    let alone = offered(ALONE, BORNE_PER_S, lab.seconds(4, 15));
    let phases = [filling(lab), alone, Phase { beside, ..offered(PHASE, BORNE_PER_S, seconds) }];
    let arms = with_percona(&words).map(|arm| arm.on(&device));
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let how = format!(
        "{BORNE_PER_S:.0} updates a second of four tables, data twice the pool, which is full, on an imitated device \
         of {}, first alone. Then, beside them, a sixth table is dropped, the index of a fifth one is dropped and made \
         again, and the fifth table is dropped, with pages of it in the pool. Durable within a second; 50 ms are a \
         stall; times are from arrival. All settings drop tables and indexes in the engine's own way: no drop scans \
         the pool under its mutex, as InnoDB's did. The settings differ in how they get free frames and room.",
        device.text()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[ALONE, PHASE]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings, seconds);
    Ok(findings)
}

fn judge(findings: &mut Findings, seconds: u64) {
    findings.judge_beside(PERCONA, ALONE, PHASE);
    let most = |of: fn(&Outcome) -> f64| findings.default().most(PHASE, of);
    // The stalls of all operations, and of the clients' alone.
    let (all, stalls) = (most(|run| run.figures.stalls), most(|run| run.stalled.operations as f64));
    let brownout_s = most(|run| run.figures.brownout_s);
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
        "with the default no client stalls beside it, no second is under half of the median, and it ends before the load",
        stalls == 0.0 && brownout_s == 0.0 && least_ms > 0.0 && is_within,
        format!(
            "{stalls:.0} stalls, slowest {slowest_ms:.1} ms, longest gap {gap_ms:.1} ms; {all:.0} with the DDL's own{}",
            if is_within { "" } else { "; it went on when the load had ended" }
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
        judge(&mut findings, 8);
        assert_eq!(findings.verdicts.len(), 6);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with(|_| {}), [0; 0]);
        assert_eq!(failing_with(|of| of.stalled.operations = 1), [2]);
        assert_eq!(failing_with(|of| of.figures.stalls = 1.0), [0; 0], "the DDL itself is slow, no client is");
        assert_eq!(failing_with(|of| of.figures.brownout_s = 1.0), [2]);
        assert_eq!(failing_with(|of| of.figures.beside_ms = 0.0), [2], "nothing was dropped");
        assert_eq!(failing_with(|of| of.figures.beside_ms = 6_000.0), [2], "it was not done when the load ended");
        assert_eq!(failing_with(|of| of.figures.per_s = 193.0), [3]);
        assert_eq!(failing_with(|of| of.figures.slowest_ms = 10.1), [4]);
    }
}
