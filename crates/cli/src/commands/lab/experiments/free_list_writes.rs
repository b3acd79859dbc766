//! Many writers whose dirty pages reach the tail of the list: who finds no free frame has to have one written.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::Tables;
use crate::commands::lab::laboratory::{Arm, tables};
use crate::commands::lab::outcome::Outcome;
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "free-list-writes",
    title: "many writers, and a tail of the list that is dirty: single-page flushes",
    source: "text 000, \"Reducing and Avoiding Stalls\"; text 004",
    run,
};

/// Some 256 MiB, eight times the pool.
const TABLES: Tables = Tables { count: 4, rows: 300_000 };

const THREADS: usize = 32;
const PHASE: &str = "updates";

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let common = ["buffer_pool_size=32MiB", "redo_capacity=64MiB", "durability=background(1s)", "stall_threshold=20ms"];
    let with = |words: &[&'static str]| [&common[..], words].concat();
    let arms = [
        Arm::classic("legacy", &with(&["profile=mysql-5.6", "page_cleaners=1", "lru_scan_depth=100"])),
        Arm::classic("legacy, depth 1024", &with(&["profile=mysql-5.6"])),
        Arm::classic("backoff", &with(&["profile=percona-5.7"])),
        Arm::classic("backoff, target 128", &with(&["profile=percona-5.7", "free_list_target=128"])),
        Arm::default(&common),
    ];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=64MiB"]);
    let phases = [updates(PHASE, TABLES, THREADS, lab.seconds(5, 20))];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{THREADS} threads update rows at random of data eight times the pool of 32 MiB, on the device as it is, \
         durable within a second; 20 ms are a stall. With legacy who finds no clean page writes one himself, with a \
         sync, all others behind him."
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings);
    Ok(findings)
}

/// How many users wait for a frame at any time, or for their turn to write a page for one; and how long an update does.
fn judge_convoy(findings: &mut Findings) {
    let waited_ms = |name: &str, each: fn(&Outcome) -> f64| {
        findings.setting(name).median(PHASE, |run| run.waited_ms("free_frame") / each(run).max(1.0))
    };
    let users = ["legacy", "backoff", "default"].map(|name| waited_ms(name, |run| run.seconds.len() as f64 * 1e3));
    let updates = ["default", "legacy"].map(|name| waited_ms(name, |run| run.seconds.iter().sum::<u64>() as f64));
    findings.judge(
        "text 004: \"all (or most) user sessions\"",
        format!("with legacy most of the {THREADS} users are stuck at single-page flushes at any time"),
        users[0] > THREADS as f64 / 2.0,
        format!(
            "on average {:.1} wait for a frame, {:.1} with backoff, {:.1} with the default",
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
    // How often somebody waited for a frame, for 1,000 updates, and for how long each time, in ms.
    let waits = |findings: &Findings, name: &str| {
        let setting = findings.setting(name);
        let of = |run: &Outcome| run.waits.get("free_frame").copied().unwrap_or_default();
        let updates = |run: &Outcome| (run.seconds.iter().sum::<u64>() as f64 / 1e3).max(1e-3);
        let often = setting.median(PHASE, |run| of(run).0 as f64 / updates(run));
        let long = setting.median(PHASE, |run| of(run).1 as f64 / 1e3 / (of(run).0 as f64).max(1.0));
        (often, long)
    };
    let (few, many) = (waits(findings, "backoff, target 128"), waits(findings, "backoff"));
    // By a tenth at least: two runs differ by some per cent.
    let is_fewer = many.0 <= few.0 * 0.9 && many.1 >= few.1;
    let target = |name: &str| findings.setting(name).median(PHASE, |run| run.number("buffer_pool_free_target"));
    let targets = (target("backoff"), target("backoff, target 128"));
    findings.judge(
        "text 000, \"Increasing innodb_lru_scan_depth\"",
        "with the same lru_scan_depth, the more frames are kept free the fewer waits are there, by a tenth, each as long \
         or longer",
        is_fewer,
        format!(
            "for 1,000 updates {:.0} of {:.1} ms with a target of {:.0} frames, {:.0} of {:.1} ms with one of {:.0}",
            many.0, many.1, targets.0, few.0, few.1, targets.1
        ),
    );
    if !is_fewer {
        findings.notes.push(
            "Where the list of free frames is empty all the time, as with backoff here, how fast it is filled counts, \
             and not how many it would hold."
                .to_owned(),
        );
    }
    findings.judge_explained("legacy", PHASE, "free_frame");
    findings.judge_explained("backoff", PHASE, "free_frame");
    findings.judge_free_of(PHASE, "free_frame");
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "legacy");
    findings.judge_slowest(PHASE, "backoff");
    let text = findings.default().slow_text(PHASE, 80);
    findings.notes.push(format!("The default's slowest operations spent their time so: {text}."));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Places of the claims that do not hold when one setting came to something else.
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
            setting("legacy, depth 1024", 100.0, "free_frame", 1, 1),
            setting("backoff", 1_000.0, "free_frame", 100, 200_000),
            setting("backoff, target 128", 1_000.0, "free_frame", 200, 200_000),
            setting("default", 10.0, "page_read", 0, 0),
        ];
        let mut findings = findings_of(settings);
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 10);
        failing(&findings)
    }

    fn waits(of: &mut Outcome, waits: (u64, u64)) {
        of.waits = [("free_frame".to_owned(), waits)].into();
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        let unexplained = |of: &mut Outcome| of.stalled.parts.clear();
        assert_eq!(failing_with("", |_| {}), [0; 0]);
        assert_eq!(failing_with("legacy", |of| of.numbers.clear()), [0]);
        assert_eq!(failing_with("legacy", |of| waits(of, (1_000, 4 * 16_000_000))), [1], "half of them");
        assert_eq!(failing_with("default", |of| waits(of, (1_000, 4 * 1_700_001))), [2], "over a tenth");
        let slower = |of: &mut Outcome| {
            of.seconds = vec![500; 4];
            waits(of, (1_000, 4_000_000));
        };
        assert_eq!(failing_with("default", slower), [2], "under a tenth in all, and over it for each of fewer updates");
        assert_eq!(failing_with("backoff", |of| waits(of, (181, 400_000))), [3], "no fewer, by a tenth");
        assert_eq!(failing_with("backoff", |of| waits(of, (100, 99_000))), [3], "shorter");
        assert_eq!(failing_with("legacy", unexplained), [4]);
        assert_eq!(failing_with("backoff", unexplained), [5]);
        assert_eq!(failing_with("default", |of| of.stalled.mostly.extend([("free_frame".to_owned(), 1)])), [6]);
        assert_eq!(failing_with("default", |of| of.figures.per_s = 499.0), [7]);
        assert_eq!(failing_with("default", |of| of.figures.slowest_ms = 10.1), [8]);
        assert_eq!(failing_with("default", |of| of.figures.slowest_ms = 100.1), [8, 9]);
    }
}
