//! The text's annexes 3 and 5: a single reader after some quiet time, and light clients while a scan takes every free
//! frame. With `backoff` an operation without a free frame waits for a thread that sleeps by the clock.

use std::time::Duration;

use super::{Experiment, Findings, Lab};
use crate::commands::lab::arm::{Phase, Tables, Work};
use crate::commands::lab::beside::Beside;
use crate::commands::lab::findings::Setting;
use crate::commands::lab::laboratory::{Arm, tables};
use crate::commands::lab::outcome::{ClientSeconds, Outcome};
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "free-list",
    title: "reads that wait for a free frame, after some quiet and beside a scan",
    source: "text 000, annexes 3 and 5",
    run,
};

/// The table: 512 MiB, four times the pool.
const TABLES: Tables = Tables { count: 1, rows: 2_500_000 };

/// Clients of a light load, and the sum of their reads a second.
const CLIENTS: usize = 4;
const PER_S: f64 = 400.0;

/// Stall threshold in ms, as in the options.
const THRESHOLD_MS: f64 = 20.0;

/// A shorter wait, in ms, was not for a sleeping thread.
const RESTED_MS: f64 = 10.0;

/// Time between the begins of two settings.
const APART: Duration = Duration::from_secs(14);

/// Relative tolerance of a stall's predicted length.
const TOLERANCE: f64 = 1.0 / 3.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let quiets: &[f64] = if lab.is_quick { &[0.0, 5.0, 60.0] } else { &[0.0, 5.0, 60.0, 250.0] };
    let common = ["cached=true", "buffer_pool_size=128MiB", "lru_scan_depth=1024", "stall_threshold=20ms"];
    let with = |word: &'static str| [&common[..], &[word]].concat();
    let arms = [
        Arm::classic("legacy", &with("empty_free_list_algorithm=legacy")),
        Arm::classic("backoff", &with("empty_free_list_algorithm=backoff")),
        Arm::default(&[common[0], common[1], common[3]]),
    ];
    let base = tables(TABLES.count, TABLES.rows, &["cached=true"]);
    let mut phases = vec![reads("to begin with", 0.0, 3)];
    phases.extend(quiets.iter().map(|quiet_s| reads(&after(*quiet_s), *quiet_s, 2)));
    let before_scan_s = lab.seconds(18, 120) as f64;
    phases.push(Phase {
        beside: Some(Beside::Scan { after_s: 1.0 }),
        work: Work::Oltp { workload: "oltp_point_select".into(), tables: TABLES, threads: CLIENTS, per_s: Some(PER_S) },
        ..reads(SCAN, before_scan_s, 4)
    });
    // In all phases, each setting works while the others are quiet.
    let settings = lab.side_by_side(EXPERIMENT.name, &base, &arms, &phases, APART)?;
    let shown: Vec<String> = phases.iter().skip(1).map(|phase| phase.name.clone()).collect();
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let how = format!(
        "A table of 512 MiB in the page cache, a pool of 128 MiB. Backoff keeps 1,024 frames free; legacy none, since \
         no thread cleans ahead of need here; the default as many as the demand asks for. One client reads rows at \
         random for 2 s after some quiet; then, {before_scan_s} s later, four clients read 100 rows a second each \
         while a scan of the whole table takes every free frame, right after a pass of the thread that frees them. The \
         settings run side by side, {:.0} s apart, so that each works while the others are quiet.",
        APART.as_secs_f64()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &shown);
    findings.loops = Some(("buffer_pool_wait_free_loops", "loops"));
    judge(&mut findings, quiets, before_scan_s);
    Ok(findings)
}

/// The phase with the scan.
const SCAN: &str = "four clients beside a scan";

fn after(quiet_s: f64) -> String {
    format!("reads after {quiet_s:.0} s of quiet")
}

fn reads(name: &str, quiet_s: f64, time_s: u64) -> Phase {
    let work = Work::Oltp { workload: "oltp_point_select".into(), tables: TABLES, threads: 1, per_s: None };
    Phase { name: name.to_owned(), quiet_s, work, time_s, beside: None }
}

/// Sleep, after `quiet_s` of quiet, of a thread that sleeps 1 ms longer each time, in ms.
fn sleep_ms(quiet_s: f64) -> f64 {
    (2.0 * quiet_s * 1e3).sqrt()
}

/// The least of the clients' longest waits, in ms.
fn least_of_clients(run: &Outcome) -> f64 {
    let worst = |client: &ClientSeconds| client.worst_ms.iter().copied().fold(0.0, f64::max);
    let least = run.clients.iter().map(worst).fold(f64::INFINITY, f64::min);
    if run.clients.len() == CLIENTS { least } else { 0.0 }
}

fn judge(findings: &mut Findings, quiets: &[f64], before_scan_s: f64) {
    let rested = findings.setting("backoff").most(&after(0.0), |run| run.figures.slowest_ms);
    findings.judge(
        "text 000, annex 3: the runs behind the first are fast",
        "right behind other reads there is no stall with backoff: the thread that refills the list is awake",
        rested < RESTED_MS,
        format!("{rested:.1} ms"),
    );
    for quiet_s in quiets.iter().filter(|quiet_s| **quiet_s > 0.0) {
        let told_ms = sleep_ms(*quiet_s);
        let seen_ms = findings.setting("backoff").figures(&after(*quiet_s)).slowest_ms;
        findings.judge(
            "text 000, annexes 3 and 4",
            format!(
                "after {quiet_s:.0} s of quiet a read waits for sqrt(2t) = {told_ms:.0} ms with backoff, within a third"
            ),
            (seen_ms / told_ms - 1.0).abs() <= TOLERANCE,
            format!("{seen_ms:.0} ms"),
        );
    }
    let longest = after(quiets.last().copied().unwrap_or(0.0));
    let slowest = |run: &Outcome| run.figures.slowest_ms;
    let worst_ms = |setting: &Setting| quiets.iter().map(|s| setting.most(&after(*s), slowest)).fold(0.0, f64::max);
    let legacy_ms = worst_ms(findings.setting("legacy"));
    let own_ms = worst_ms(findings.default());
    findings.judge(
        "text 000, annex 3",
        "with a clean tail legacy has no such stall, however long it was quiet",
        legacy_ms < THRESHOLD_MS,
        format!("{legacy_ms:.1} ms"),
    );
    // The scan begins right after a pass of the thread that sleeps.
    let (told_ms, backoff) = (sleep_ms(before_scan_s), findings.setting("backoff"));
    let (slowest_ms, least_ms) = (backoff.figures(SCAN).slowest_ms, backoff.median(SCAN, least_of_clients));
    findings.judge(
        "text 000, annex 5: 300 to 550 ms, each of four clients",
        format!(
            "a scan that takes all free frames makes each of the {CLIENTS} light clients wait with backoff, for \
             sqrt(2t) = {told_ms:.0} ms, within a third"
        ),
        [least_ms, slowest_ms].iter().all(|ms| (ms / told_ms - 1.0).abs() <= TOLERANCE),
        format!("the longest waits of the clients: {least_ms:.0} to {slowest_ms:.0} ms"),
    );
    let (stalls, loops) = (
        findings.setting("backoff").figures(SCAN).stalls,
        findings.setting("backoff").median(SCAN, |run| run.number("buffer_pool_wait_free_loops")),
    );
    findings.judge(
        "text 000: 479 counts for 5 stalls",
        "loops say little: a stall is many of them",
        stalls > 0.0 && loops >= 3.0 * stalls,
        format!("{loops:.0} loops, {stalls:.0} stalls"),
    );
    findings.judge_explained("backoff", SCAN, "free_frame");
    // `stalled` leaves out the stalls of the scan itself, which are no client's.
    let stalled = findings.default().most(SCAN, |run| run.stalled.operations as f64);
    let beside_ms = findings.default().most(SCAN, slowest);
    findings.judge(
        "ours",
        "the default has none of this, for the clients beside the scan either",
        own_ms < THRESHOLD_MS && beside_ms < THRESHOLD_MS && stalled == 0.0,
        format!("{own_ms:.1} ms after whatever quiet, {beside_ms:.1} ms beside the scan, {stalled:.0} stalls"),
    );
    // In this phase the other settings are quiet.
    findings.judge_throughput(&longest);
    findings.judge_slowest(&longest, "backoff");
    findings.judge_slowest(SCAN, "backoff");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    const QUIETS: [f64; 2] = [0.0, 5.0];

    /// Indexes of the failing claims after `change` to a phase of one setting.
    fn failing_with(name: &str, phase: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of: &'static str, quiet_ms, scan_ms| {
            let mut phases = vec![
                outcome(&after(0.0), 1_000.0, 1.0, "page_read"),
                outcome(&after(5.0), 1_000.0, quiet_ms, "free_frame"),
                outcome(SCAN, 400.0, scan_ms, "free_frame"),
            ];
            phases[2].stalled.operations = u64::from(of == "backoff");
            phases[2].clients =
                vec![ClientSeconds { worst_ms: vec![1.0, scan_ms], ..ClientSeconds::default() }; CLIENTS];
            if of == "backoff" {
                phases[2].figures.stalls = 6.0;
                phases[2].numbers = [("buffer_pool_wait_free_loops".to_owned(), 18)].into();
            }
            phases.iter_mut().filter(|run| of == name && run.phase == phase).for_each(change);
            (of, phases)
        };
        let settings =
            vec![setting("legacy", 5.0, 5.0), setting("backoff", 100.0, 100.0), setting("default", 10.0, 10.0)];
        let mut findings = findings_of(settings);
        judge(&mut findings, &QUIETS, 5.0);
        assert_eq!(findings.verdicts.len(), 10);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let quiet = &after(5.0);
        assert_eq!(failing_with("", quiet, |_| {}), [0; 0]);
        assert_eq!(failing_with("backoff", &after(0.0), |of| of.figures.slowest_ms = 10.0), [0]);
        assert_eq!(failing_with("backoff", quiet, |of| of.figures.slowest_ms = 134.0), [1]);
        assert_eq!(failing_with("legacy", quiet, |of| of.figures.slowest_ms = 20.0), [2]);
        assert_eq!(failing_with("legacy", &after(0.0), |of| of.figures.slowest_ms = 20.0), [2]);
        assert_eq!(failing_with("backoff", SCAN, |of| of.clients[3].worst_ms[1] = 20.0), [3], "one did not wait");
        assert_eq!(failing_with("backoff", SCAN, |of| of.clients.truncate(3)), [3], "one is missing");
        assert_eq!(failing_with("backoff", SCAN, |of| of.figures.slowest_ms = 134.0), [3], "longer than a sleep");
        assert_eq!(failing_with("backoff", SCAN, |of| of.figures.slowest_ms = 66.0), [3, 9], "a part of a sleep");
        assert_eq!(failing_with("backoff", SCAN, |of| of.numbers.clear()), [4]);
        assert_eq!(failing_with("backoff", SCAN, |of| of.stalled.mostly.clear()), [5]);
        assert_eq!(failing_with("default", SCAN, |of| of.stalled.operations = 1), [6]);
        assert_eq!(failing_with("default", &after(0.0), |of| of.figures.slowest_ms = 20.0), [6], "in any phase");
        assert_eq!(failing_with("default", quiet, |of| of.figures.per_s = 999.0), [7]);
        assert_eq!(failing_with("default", quiet, |of| of.figures.slowest_ms = 10.1), [8]);
        assert_eq!(failing_with("default", SCAN, |of| of.figures.slowest_ms = 10.1), [9]);
    }
}
