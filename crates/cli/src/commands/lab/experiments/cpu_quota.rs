//! Threads of the log, and waiters that spin for it, under a CPU quota that the affinity mask does not show.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::{Phase, Tables, Work};
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

/// The quota, in percent of one CPU.
const QUOTA: u64 = 90;

/// A light load, with a quota and without one: waiters that count the quota spin only without one.
const LIGHT: &str = "8,000 updates a second";
const FREE: &str = "quota, none set";
const HELD: &str = "quota, set";

/// The text's workaround.
const LOWER: &str = "affinity, lower mark";

fn light(time_s: u64) -> Phase {
    let per_s = Some(8_000.0);
    let work = Work::Oltp { workload: "oltp_update_index".into(), tables: TABLES, threads: 16, per_s };
    Phase { name: LIGHT.into(), quiet_s: 0.0, work, time_s, beside: None }
}

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let common = ["cached=true", "buffer_pool_size=256MiB", "stall_threshold=20ms", "log_writer_threads=true"];
    let spinning = |how: &[&'static str]| [&common[..], how].concat();
    let (cpus, has_groups) = (millpond::metrics::Cpus::read().affinity, Lab::has_quotas());
    // The text's workaround: the mark for all CPUs, scaled by the share of CPUs that the quota grants.
    let mark = format!("log_spin_cpu_pct_hwm={:.0}", 50.0 * QUOTA as f64 / 100.0 / cpus);
    let mut lower = Arm::classic(LOWER, &spinning(&["log_spin=affinity"]));
    lower.options.extend(options(&[&mark]));
    let mut arms = vec![
        Arm::classic("affinity", &spinning(&["log_spin=affinity"])),
        lower,
        Arm::classic("quota", &spinning(&["log_spin=quota"])),
        Arm::classic("never", &spinning(&["log_spin=never"])),
        Arm::default(&common[..3]),
    ];
    if !has_groups {
        // An engine cannot count an imitated quota.
        arms.retain(|arm| arm.name != "quota");
    }
    for arm in &mut arms {
        arm.quota = Some(QUOTA);
    }
    let base = Base { in_memory: true, ..tables(TABLES.count, TABLES.rows, &["cached=true"]) };
    let phases = [updates(PHASE, TABLES, THREADS, lab.seconds(5, 30))];
    let mut settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    if has_groups {
        // Spins from a tenth of a CPU on, so that a light load is enough on any machine.
        let arm = |name| Arm::classic(name, &spinning(&["log_spin=quota", "log_spin_cpu_abs_lwm=10"]));
        let arms = [Arm { quota: Some(QUOTA), ..arm(HELD) }, arm(FREE)];
        settings.extend(lab.in_turn(EXPERIMENT.name, &base, &arms, &[light(lab.seconds(3, 10))])?);
    }
    let how = format!(
        "{THREADS} threads of oltp_update_index, {}, durable at once, {QUOTA} % of one CPU of {cpus:.0}{}. 20 ms \
         are a stall.",
        lab.where_in_memory(),
        if has_groups {
            " by a control group"
        } else {
            ": no control group can be written here, so the process is stopped for the rest of each 100 ms, and no \
             setting knows of it"
        }
    );
    let shown: &[&str] = if has_groups { &[PHASE, LIGHT] } else { &[PHASE] };
    let mut findings = EXPERIMENT.findings(how, settings, shown);
    findings.loops = Some(("log_spins", "spins"));
    judge(&mut findings, has_groups);
    Ok(findings)
}

/// Periods of the quota in which the run was throttled.
fn throttled(run: &Outcome) -> f64 {
    run.number("cpu_throttled_periods")
}

fn judge(findings: &mut Findings, has_groups: bool) {
    let per_s = |findings: &Findings, name: &str| findings.setting(name).figures(PHASE).per_s;
    // The settings that avoid spinning: one counts the quota, if there is a real one; the other has a lower mark.
    let better: &[&str] = if has_groups { &["quota", LOWER] } else { &[LOWER] };
    for name in ["affinity"].iter().chain(better) {
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
        let with_quota = findings.settings.iter().filter(|setting| setting.has(PHASE));
        let settings = with_quota.map(|setting| (setting, setting.median(PHASE, of)));
        settings.map(|(setting, median)| format!("{} {median:.0}{unit}", setting.name)).collect::<Vec<_>>().join(", ")
    };
    // By the clock: CPU used around the begin and end of the phase is included.
    let used = each(|run| run.number("cpu_used_us") / 1e4 / (run.seconds.len().max(1) as f64), " %");
    let periods = each(throttled, "");
    findings.notes.push(format!("CPU used, of one CPU by the clock: {used}."));
    if has_groups {
        let mut with_quota = findings.settings.iter().filter(|setting| setting.has(PHASE));
        let in_force = with_quota.all(|setting| setting.least(PHASE, throttled) > 0.0);
        findings.judge("ours", "the quota was in force", in_force, format!("periods throttled: {periods}"));
    }
    let spins = |run: &Outcome| run.number("log_spins");
    let with_affinity = findings.setting("affinity").least(PHASE, spins);
    for name in better {
        let of = findings.setting(name).most(PHASE, spins);
        findings.judge(
            "text 001",
            format!(
                "counting the CPUs of the mask, waiters spin though the quota is used up; hardly any do with {name}"
            ),
            with_affinity > 100.0 * of.max(1.0),
            format!("{with_affinity:.0} waits spun, and {of:.0}"),
        );
        let (affinity, of) = (per_s(findings, "affinity"), per_s(findings, name));
        findings.judge(
            "text 001: 3,462 and 4,677 a second",
            format!("{name} makes more than affinity, by as large a part as there"),
            of >= affinity * 4_677.0 / 3_462.0,
            format!("{affinity:.0}/s and {of:.0}/s: {:.2} times", of / affinity.max(1.0)),
        );
    }
    if has_groups {
        let (held, free) = (findings.setting(HELD).most(LIGHT, spins), findings.setting(FREE).least(LIGHT, spins));
        findings.judge(
            "text 001",
            "it is the quota that keeps them from it: at the same light load without one they spin, ten times as often",
            free > 1_000.0 && free >= held * 10.0,
            format!("{free:.0} waits spun, with the quota {held:.0}"),
        );
    }
    findings.judge_explained("affinity", PHASE, "log_flush");
    findings.judge_free_of(PHASE, "log_flush");
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "affinity");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Indexes of the failing claims after `change` to the outcomes of one setting.
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
        let mut settings = vec![
            setting("affinity", 1_000.0, 500.0, 20_000),
            setting(LOWER, 1_351.0, 70.0, 20),
            setting("quota", 1_400.0, 70.0, 10),
            setting("never", 1_400.0, 70.0, 0),
            setting("default", 2_000.0, 50.0, 0),
        ];
        if has_groups {
            for (of, spins) in [(HELD, 100), (FREE, 1_001)] {
                let mut light = outcome(LIGHT, 8_000.0, 1.0, "log_flush");
                light.numbers = [("log_spins".to_owned(), spins)].into();
                if of == name {
                    change(&mut light);
                }
                settings.push((of, vec![light]));
            }
        }
        let mut findings = findings_of(settings);
        judge(&mut findings, has_groups);
        assert_eq!(findings.verdicts.len(), if has_groups { 10 } else { 6 });
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let unthrottled = |of: &mut Outcome| of.numbers.retain(|name, _| name != "cpu_throttled_periods");
        assert_eq!(failing_with("", true, |_| {}), [0; 0]);
        assert_eq!(failing_with("never", true, unthrottled), [0]);
        assert_eq!(failing_with("never", false, unthrottled), [0; 0]);
        assert_eq!(failing_with("affinity", true, |of| of.numbers.extend([("log_spins".to_owned(), 1_000)])), [1, 3]);
        assert_eq!(failing_with("quota", true, |of| of.numbers.extend([("log_spins".to_owned(), 200)])), [1]);
        assert_eq!(failing_with("quota", true, |of| of.figures.per_s = 1_350.0), [2]);
        assert_eq!(failing_with(LOWER, true, |of| of.numbers.extend([("log_spins".to_owned(), 200)])), [3]);
        assert_eq!(failing_with(LOWER, true, |of| of.figures.per_s = 1_350.0), [4]);
        assert_eq!(failing_with(LOWER, false, |of| of.figures.per_s = 1_000.0), [1]);
        assert_eq!(failing_with(FREE, true, |of| of.numbers.clear()), [5]);
        assert_eq!(failing_with("affinity", true, |of| of.stalled.mostly.clear()), [6]);
        assert_eq!(failing_with(HELD, true, |of| of.numbers.extend([("log_spins".to_owned(), 101)])), [5]);
        let of_its_kind = |of: &mut Outcome| of.mostly.extend([("log_flush".to_owned(), 1)]);
        assert_eq!(failing_with("default", true, of_its_kind), [7]);
        assert_eq!(failing_with("default", true, |of| of.figures.per_s = 1_399.0), [8]);
        assert_eq!(failing_with("default", true, |of| of.figures.slowest_ms = 50.1), [9]);
    }
}
