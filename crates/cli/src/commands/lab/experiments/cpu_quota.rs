//! The log's threads and their waiters who spin, under a quota of CPU that affinity knows nothing of.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::Tables;
use crate::commands::lab::laboratory::{Arm, Base, options, tables};
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cpu-quota",
    title: "waiters for the log that spin a quota of CPU away",
    source: "text 001",
    run,
};

const TABLES: Tables = Tables { count: 10, rows: 30_000 };
const THREADS: usize = 64;
const PHASE: &str = "updates under a quota";

/// Per cent of one CPU.
const QUOTA: u64 = 90;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let common = ["cached=true", "buffer_pool_size=256MiB", "log_writer_threads=true"];
    let spinning = |how: &'static str| [&common[..], &[how]].concat();
    let mut arms = [
        Arm::classic("affinity", &spinning("log_spin=affinity")),
        Arm::classic("quota", &spinning("log_spin=quota")),
        Arm::classic("never", &spinning("log_spin=never")),
        Arm::default(&common[..2]),
    ];
    for arm in &mut arms {
        arm.quota = Some(QUOTA);
    }
    let (cpus, has_groups) = (millpond::Cpus::read().affinity, Lab::has_quotas());
    if !has_groups {
        // The text's own way around it: the mark of all CPUs, lower by as much as there are fewer.
        let mark = format!("log_spin_cpu_pct_hwm={:.0}", 50.0 * QUOTA as f64 / 100.0 / cpus);
        arms[1].options.retain(|(name, _)| name != "log_spin");
        arms[1].options.extend(options(&["log_spin=affinity", &mark]));
    }
    let base = Base { in_memory: true, ..tables(TABLES.count, TABLES.rows, &["cached=true"]) };
    let phases = [updates(PHASE, TABLES, THREADS, lab.seconds(8, 30))];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{THREADS} threads of oltp_update_index, {}, durable at once, {QUOTA} % of one CPU of {cpus:.0}{}.",
        lab.where_in_memory(),
        if has_groups {
            " by a control group"
        } else {
            ": no control group can be written here, so the process is stopped for the rest of each 100 ms, and the \
             setting that knows the quota is the text's workaround, a lower log_spin_cpu_pct_hwm"
        }
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE]);
    findings.loops = Some(("log_spins", "spins"));
    judge(&mut findings, has_groups);
    Ok(findings)
}

/// Periods in which a run stood still.
fn throttled(run: &Outcome) -> f64 {
    run.number("cpu_throttled_periods")
}

fn judge(findings: &mut Findings, has_groups: bool) {
    let per_s = |findings: &Findings, name: &str| findings.setting(name).figures(PHASE).per_s;
    let (affinity, quota) = (per_s(findings, "affinity"), per_s(findings, "quota"));
    for name in ["affinity", "quota"] {
        let setting = findings.setting(name);
        let of = |number: &str| setting.median(PHASE, |run| run.number(number)) / 100.0;
        let (abs, cpus) = (of("log_spin_cpu_abs"), of("log_spin_cpus"));
        let spun = setting.median(PHASE, |run| run.number("log_spin_us")) / 1e3;
        let per_cent = abs / cpus.max(0.01);
        findings.notes.push(format!(
            "{name}: believes to use {abs:.0} % of one CPU and to have {cpus:.2} of them, {per_cent:.0} %; waiters \
             spun for {spun:.0} ms by the clock, all together."
        ));
    }
    let each = |of: fn(&Outcome) -> f64, unit: &str| {
        let settings = findings.settings.iter().map(|setting| (setting, setting.median(PHASE, of)));
        settings.map(|(setting, median)| format!("{} {median:.0}{unit}", setting.name)).collect::<Vec<_>>().join(", ")
    };
    // By the clock: what is used while the phase begins and ends is in it, too.
    let used = each(|run| run.number("cpu_used_us") / 1e4 / (run.seconds.len().max(1) as f64), " %");
    let periods = each(throttled, "");
    findings.notes.push(format!("CPU used, of one CPU by the clock: {used}."));
    if has_groups {
        let in_force = findings.settings.iter().all(|setting| setting.median(PHASE, throttled) > 0.0);
        findings.judge("ours", "the quota was in force", in_force, format!("periods throttled: {periods}"));
    }
    let spins = |findings: &Findings, name: &str| findings.setting(name).median(PHASE, |run| run.number("log_spins"));
    let (with_affinity, with_quota) = (spins(findings, "affinity"), spins(findings, "quota"));
    findings.judge(
        "text 001",
        format!(
            "counting the CPUs of the affinity mask, waiters spin though the quota is used up; {} they do not",
            if has_groups { "counting the quota" } else { "with a lower mark" }
        ),
        with_affinity > 100.0 * with_quota.max(1.0),
        format!("{with_affinity:.0} waits spun, and {with_quota:.0}"),
    );
    findings.judge(
        "text 001: 3,462 and 4,677 a second",
        if has_groups { "knowing the quota makes more" } else { "a lower mark makes more" },
        quota > affinity,
        format!("{affinity:.0}/s and {quota:.0}/s: {:.2} times", quota / affinity.max(1.0)),
    );
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "affinity");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Places of the claims that do not hold when one setting came to something else.
    fn failing_with(name: &str, has_groups: bool, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of, per_s, slowest_ms, spins| {
            let mut outcome = outcome(PHASE, per_s, slowest_ms, "log_flush");
            outcome.numbers =
                [("log_spins".to_owned(), spins), ("cpu_throttled_periods".to_owned(), 80)].into_iter().collect();
            if of == name {
                change(&mut outcome);
            }
            (of, vec![outcome])
        };
        let settings = vec![
            setting("affinity", 1_000.0, 500.0, 20_000),
            setting("quota", 1_300.0, 70.0, 10),
            setting("never", 1_300.0, 70.0, 0),
            setting("default", 2_000.0, 50.0, 0),
        ];
        let mut findings = findings_of(settings);
        judge(&mut findings, has_groups);
        assert_eq!(findings.verdicts.len(), if has_groups { 5 } else { 4 });
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let unthrottled = |of: &mut Outcome| of.numbers.retain(|name, _| name != "cpu_throttled_periods");
        assert_eq!(failing_with("", true, |_| {}), [0; 0]);
        assert_eq!(failing_with("never", true, unthrottled), [0]);
        assert_eq!(failing_with("never", false, unthrottled), [0; 0]);
        assert_eq!(failing_with("affinity", true, |of| of.numbers.extend([("log_spins".to_owned(), 1_000)])), [1]);
        assert_eq!(failing_with("quota", true, |of| of.figures.per_s = 1_000.0), [2]);
        assert_eq!(failing_with("default", true, |of| of.figures.per_s = 1_299.0), [3]);
        assert_eq!(failing_with("default", true, |of| of.figures.slowest_ms = 50.1), [4]);
    }
}
