//! Many writers whose dirty pages reach the tail of the LRU list: with no free frame, a page has to be written first.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::{Phase, Tables, Work};
use crate::commands::lab::laboratory::{Arm, tables};
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "free-list-writes",
    title: "many writers, and a tail of the list that is dirty: single-page flushes",
    source: "text 000, \"Reducing and Avoiding Stalls\"; text 004",
    run,
};

/// The tables: some 256 MiB, eight times the pool.
const TABLES: Tables = Tables { count: 4, rows: 300_000 };

const THREADS: usize = 32;
const PHASE: &str = "updates";

/// Reads that take some 260 frames while the thread that fills the list sleeps, for sqrt(2t) = 100 ms after the quiet.
/// That is more than the smaller target, and less than the larger one.
const READS: &str = "3,000 reads a second after quiet";
const READS_PER_S: f64 = 3_000.0;
const QUIET_S: f64 = 5.0;
const LARGE: &str = "backoff, target 512";
const SMALL: &str = "backoff, target 128";
const SHALLOW: &str = "backoff, target 512, depth 100";

fn reads(name: &str, quiet_s: f64, per_s: Option<f64>, time_s: u64) -> Phase {
    let work = Work::Oltp { workload: "oltp_point_select".into(), tables: TABLES, threads: 4, per_s };
    Phase { name: name.into(), quiet_s, work, time_s, beside: None }
}

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let common = ["buffer_pool_size=32MiB", "redo_capacity=64MiB", "durability=background(1s)", "stall_threshold=20ms"];
    let with = |words: &[&'static str]| [&common[..], words].concat();
    let arms = [
        Arm::classic("legacy", &with(&["profile=mysql-5.6"])),
        // The least possible depth.
        Arm::classic("legacy, depth 100", &with(&["profile=mysql-5.6", "lru_scan_depth=100"])),
        Arm::classic("backoff", &with(&["profile=percona-5.7"])),
        Arm::default(&common),
    ];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=64MiB"]);
    let phases = [updates(PHASE, TABLES, THREADS, lab.seconds(5, 20))];
    let mut settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let arms = [
        Arm::classic(LARGE, &with(&["profile=percona-5.7", "free_list_target=512"])),
        Arm::classic(SMALL, &with(&["profile=percona-5.7", "free_list_target=128"])),
        Arm::classic(SHALLOW, &with(&["profile=percona-5.7", "free_list_target=512", "lru_scan_depth=100"])),
    ];
    // At full rate first: the list has its target length only once all frames have been taken.
    let phases = [reads("reads", 0.0, None, 2), reads(READS, QUIET_S, Some(READS_PER_S), 2)];
    settings.extend(lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?);
    let how = format!(
        "{THREADS} threads update rows at random of data eight times the pool of 32 MiB, on the device as it is, \
         durable within a second; 20 ms are a stall. With legacy, a user that finds no clean page writes one, with a \
         sync, and all others queue behind it. Then backoff with two targets for its list, the larger one also with \
         the least lru_scan_depth: 4 threads read, {QUIET_S:.0} s are quiet, and {READS_PER_S:.0} reads a second \
         arrive."
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE, READS]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings);
    Ok(findings)
}

/// Judges the mean number of users that wait for a frame, or for their turn to write a page for one, and the wait of an
/// update. Unlike a server, this engine admits a limited number of missing operations at a time. Waits for admission,
/// behind operations that wait for a frame, are counted apart.
fn judge_convoy(findings: &mut Findings) {
    let waited_ms = |name: &str, each: fn(&Outcome) -> f64| {
        findings.setting(name).median(PHASE, |run| run.waited_ms("free_frame") / each(run).max(1.0))
    };
    let time_ms = |run: &Outcome| run.seconds.len() as f64 * 1e3;
    let users = ["legacy", "backoff", "default"].map(|name| waited_ms(name, time_ms));
    let at_the_door = findings
        .setting("legacy")
        .median(PHASE, |run| run.number("buffer_pool_wait_free_behind_us") / 1e3 / time_ms(run).max(1.0));
    let updates = ["default", "legacy"].map(|name| waited_ms(name, |run| run.seconds.iter().sum::<u64>() as f64));
    findings.judge(
        "text 004: \"all (or most) user sessions\"",
        format!("with legacy most of the {THREADS} users are stuck at single-page flushes at any time"),
        users[0] > THREADS as f64 / 2.0,
        format!(
            "on average {:.1} wait for a frame, {at_the_door:.1} of them and of the engine's own threads for admission \
             behind such waits; {:.1} with backoff, {:.1} with the default",
            users[0], users[1], users[2]
        ),
    );
    findings.judge(
        "ours",
        "with the default an update waits for frames for at most a tenth of the time that it does with legacy",
        updates[0] * 10.0 <= updates[1],
        format!("{:.2} ms and {:.2} ms", updates[0], updates[1]),
    );
}

fn judge(findings: &mut Findings) {
    let single = findings.setting("legacy").median(PHASE, |run| run.number("buffer_pool_single_page_flushes"));
    findings.judge(
        "text 004",
        "with legacy users write single pages",
        single > 100.0,
        format!("{single:.0} pages written by users"),
    );
    judge_convoy(findings);
    judge_targets(findings);
    findings.judge_explained("legacy", PHASE, "free_frame");
    findings.judge_explained("backoff", PHASE, "free_frame");
    findings.judge_free_of(PHASE, "free_frame");
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "legacy");
    findings.judge_slowest(PHASE, "backoff");
    let text = findings.default().slow_text(PHASE, 80);
    findings.notes.push(format!("The default's slowest operations spent their time so: {text}."));
}

/// Judges two target lengths of the list with all else equal, and the larger one with another depth.
fn judge_targets(findings: &mut Findings) {
    let of = |name| {
        let setting = findings.setting(name);
        (
            setting.median(READS, |run| run.number("buffer_pool_free_target")),
            setting.median(READS, |run| run.waits.get("free_frame").map_or(0.0, |(count, _)| *count as f64)),
            setting.figures(READS).slowest_ms,
        )
    };
    let [(large, few, short_ms), (small, many, long_ms), (_, shallow, shallow_ms)] = [LARGE, SMALL, SHALLOW].map(of);
    findings.judge(
        "text 000, \"Increasing innodb_lru_scan_depth\"",
        "with the same lru_scan_depth, reads after quiet wait for frames at most a tenth as often where more are kept free",
        large > small && many > 0.0 && few * 10.0 <= many,
        format!(
            "{few:.0} waits, slowest {short_ms:.1} ms with a target of {large:.0} frames; {many:.0}, {long_ms:.1} ms with \
             {small:.0}"
        ),
    );
    findings.judge(
        "ours",
        "with the same target, and an lru_scan_depth of 100 for 1,024, they wait ten times as often: a pass finds too few",
        shallow > 0.0 && few * 10.0 <= shallow,
        format!("{shallow:.0} waits, slowest {shallow_ms:.1} ms"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Indexes of the failing claims after `change` to the outcomes of one setting.
    fn failing_with(name: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of, slowest_ms, class, waits, waited_us| {
            let mut outcome = outcome(PHASE, if of == "default" { 1_000.0 } else { 500.0 }, slowest_ms, class);
            outcome.seconds = vec![1_000; 4];
            outcome.numbers = [("buffer_pool_single_page_flushes".to_owned(), 101)].into();
            outcome.waits = [("free_frame".to_owned(), (waits, waited_us))].into();
            if of == name {
                change(&mut outcome);
            }
            (of, vec![outcome])
        };
        let settings = vec![
            setting("legacy", 100.0, "free_frame", 1_000, 4 * 17_000_000),
            setting("legacy, depth 100", 100.0, "free_frame", 1, 1),
            setting("backoff", 1_000.0, "free_frame", 100, 200_000),
            setting("default", 10.0, "page_read", 0, 0),
        ];
        let target = |of, frames, waits| {
            let mut outcome = outcome(READS, READS_PER_S, 9.0, "free_frame");
            outcome.numbers = [("buffer_pool_free_target".to_owned(), frames)].into();
            outcome.waits = [("free_frame".to_owned(), (waits, 200_000))].into();
            if of == name {
                change(&mut outcome);
            }
            (of, vec![outcome])
        };
        let settings =
            [settings, vec![target(LARGE, 512, 1), target(SMALL, 128, 10), target(SHALLOW, 512, 10)]].concat();
        let mut findings = findings_of(settings);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 11);
        failing(&findings)
    }

    fn waits(of: &mut Outcome, waits: (u64, u64)) {
        of.waits = [("free_frame".to_owned(), waits)].into();
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let unexplained = |of: &mut Outcome| of.stalled.mostly.clear();
        assert_eq!(failing_with("", |_| {}), [0; 0]);
        assert_eq!(failing_with("legacy", |of| of.numbers.clear()), [0]);
        assert_eq!(failing_with("legacy", |of| waits(of, (1_000, 4 * 16_000_000))), [1], "half of them");
        assert_eq!(failing_with("default", |of| waits(of, (1_000, 4 * 1_700_001))), [2], "over a tenth");
        let slower = |of: &mut Outcome| {
            of.seconds = vec![500; 4];
            waits(of, (1_000, 4_000_000));
        };
        assert_eq!(failing_with("default", slower), [2], "under a tenth in all, and over it for each of fewer updates");
        assert_eq!(failing_with(LARGE, |of| waits(of, (2, 1))), [3, 4], "more than a tenth");
        assert_eq!(failing_with(SMALL, |of| waits(of, (9, 1))), [3]);
        assert_eq!(failing_with(SMALL, |of| of.waits.clear()), [3], "no thread waits");
        assert_eq!(failing_with(SHALLOW, |of| waits(of, (9, 1))), [4]);
        assert_eq!(failing_with(SHALLOW, |of| of.waits.clear()), [4], "no thread waits");
        assert_eq!(failing_with(LARGE, |of| of.numbers.clear()), [3], "the same target");
        assert_eq!(failing_with("legacy", unexplained), [5]);
        assert_eq!(failing_with("backoff", unexplained), [6]);
        assert_eq!(failing_with("default", |of| of.mostly.extend([("free_frame".to_owned(), 1)])), [7]);
        assert_eq!(failing_with("default", |of| of.figures.per_s = 499.0), [8]);
        assert_eq!(failing_with("default", |of| of.figures.slowest_ms = 10.1), [9]);
        assert_eq!(failing_with("default", |of| of.figures.slowest_ms = 100.1), [9, 10]);
    }
}
