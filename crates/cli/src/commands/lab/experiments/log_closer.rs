//! A small window within which pages are marked dirty out of order, and a closer that no thread wakes.

use super::{Experiment, Findings, Lab};
use crate::commands::lab::arm::{Phase, Tables, Work};
use crate::commands::lab::laboratory::{Arm, Base, tables};
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "log-closer",
    title: "inserts that wait for the window recent_closed, whose closer no thread wakes",
    source: "text 002",
    run,
};

const TABLES: Tables = Tables { count: 8, rows: 50_000 };
const THREADS: usize = 64;
const PHASE: &str = "inserts";

fn run(lab: &Lab) -> Result<Findings, Failure> {
    // The stall threshold fits an insert of a third of a millisecond.
    let common = ["cached=true", "buffer_pool_size=512MiB", "durability=background(1s)", "stall_threshold=5ms"];
    // Common to all but the default, beside the window. Groups that leave the window enter flush lists, so the setting
    // without a window has flush lists, too.
    let log = ["log_writer_threads=true", "log_spin=never", "dirty_tracking=flush_list"];
    let with = |how: &'static str| [&common[..], &log[..], &["log_recent_closed_size=16KiB", how]].concat();
    let arms = [
        // Separates the cost of the log's threads from the cost of the window.
        Arm::classic(NONE, &[&common[..], &log[..], &["log_recent_closed=none"]].concat()),
        Arm::classic("poll", &with("log_recent_closed=poll")),
        Arm::classic("wake", &with("log_recent_closed=wake")),
        Arm::classic("wake_if_unset", &with("log_recent_closed=wake_if_unset")),
        Arm::default(&common),
    ];
    let base = Base { in_memory: true, ..tables(TABLES.count, TABLES.rows, &["cached=true"]) };
    let work = Work::Oltp { workload: "oltp_insert".into(), tables: TABLES, threads: THREADS, per_s: None };
    let phases = [Phase { name: PHASE.into(), quiet_s: 0.0, work, time_s: lab.seconds(5, 20), beside: None }];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let how = format!(
        "{THREADS} threads of oltp_insert, {}, durable within a second, a window of 16 KiB; 5 ms are a stall. An insert that finds \
         the window full keeps its pages latched and checks again every 20 us. '{NONE}' has the same log with its \
         threads, and no window. Judged by loops and by waiting time: on few CPUs throughput says little.",
        lab.where_in_memory()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE]);
    findings.loops = Some((LOOPS, "loops"));
    judge(&mut findings);
    Ok(findings)
}

/// The setting with no window, and with the same log as those that have one.
const NONE: &str = "none, same log";

const LOOPS: &str = "log_on_recent_closed_wait_loops";

/// The text's loops per insert without waking the closer, divided by those with it: 6.47 and 1.87 million in a minute,
/// at 25,400 and 48,500 inserts a second.
const TEXT_LOOPS: f64 = (6.47 / 25_400.0) / (1.87 / 48_500.0);

fn judge(findings: &mut Findings) {
    let per_insert = |findings: &Findings, name: &str, of: fn(&Outcome) -> f64| {
        let setting = findings.setting(name);
        setting.median(PHASE, |run| of(run) / (run.seconds.iter().sum::<u64>() as f64 / 1e3).max(1e-3))
    };
    let loops = |findings: &Findings, name: &str| per_insert(findings, name, |run| run.number(LOOPS));
    let waited = |findings: &Findings, name: &str| per_insert(findings, name, |run| run.waited_ms("recent_closed"));
    let (poll, wake, unset) = (loops(findings, "poll"), loops(findings, "wake"), loops(findings, "wake_if_unset"));
    findings.judge(
        "text 002: 6.47 M at 25,400 inserts a second, 1.87 M at 48,500",
        "waking the closer leaves at most as large a part of the loops for an insert as it did there",
        wake * TEXT_LOOPS <= poll && unset * TEXT_LOOPS <= poll,
        format!("loops for 1,000 inserts: poll {poll:.0}, wake {wake:.0}, wake_if_unset {unset:.0}"),
    );
    let (poll, wake, unset) = (waited(findings, "poll"), waited(findings, "wake"), waited(findings, "wake_if_unset"));
    findings.judge(
        "ours",
        "and less of the waiting, by a tenth",
        wake <= poll * 0.9 && unset <= poll * 0.9,
        format!("ms waited for 1,000 inserts: poll {poll:.1}, wake {wake:.1}, wake_if_unset {unset:.1}"),
    );
    let windows = ["poll", "wake", "wake_if_unset"].map(|name| findings.setting(name).figures(PHASE).per_s);
    let best = windows.into_iter().fold(0.0, f64::max);
    let without = findings.setting(NONE).figures(PHASE).per_s;
    findings.notes.push(format!(
        "With the same log and no window: {without:.0}/s; the best of the three with a window makes {best:.0}/s."
    ));
    findings.notes.push("The default has no window: there is nothing to wait for.".to_owned());
    findings.judge_explained("poll", PHASE, "recent_closed");
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "poll");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Indexes of the failing claims after `change` to the outcomes of one setting.
    fn failing_with(name: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of, per_s, slowest_ms, loops, waited_us| {
            let mut outcome = outcome(PHASE, per_s, slowest_ms, "recent_closed");
            outcome.seconds = vec![1_000; 4];
            outcome.numbers = [(LOOPS.to_owned(), loops)].into();
            outcome.waits = [("recent_closed".to_owned(), (loops, waited_us))].into();
            if of == name {
                change(&mut outcome);
            }
            (of, vec![outcome])
        };
        let settings = vec![
            setting(NONE, 2_000.0, 20.0, 0, 0),
            setting("poll", 500.0, 100.0, 4_000, 90_000),
            setting("wake", 1_000.0, 50.0, 605, 80_000),
            setting("wake_if_unset", 1_000.0, 50.0, 605, 80_000),
            setting("default", 2_000.0, 10.0, 0, 0),
        ];
        let mut findings = findings_of(settings);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 5);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with("", |_| {}), [0; 0]);
        assert_eq!(failing_with("wake", |of| of.numbers = [(LOOPS.to_owned(), 606)].into()), [0]);
        assert_eq!(failing_with("wake_if_unset", |of| of.seconds = vec![999; 4]), [0], "as many for fewer inserts");
        assert_eq!(failing_with("wake", |of| of.waits = [("recent_closed".to_owned(), (1, 81_001))].into()), [1]);
        assert_eq!(failing_with("poll", |of| of.stalled.mostly.clear()), [2]);
        assert_eq!(failing_with("default", |of| of.figures.per_s = 1_999.0), [3]);
        assert_eq!(failing_with("default", |of| of.figures.slowest_ms = 10.1), [4]);
    }
}
