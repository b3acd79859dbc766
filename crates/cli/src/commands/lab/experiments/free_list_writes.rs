//! Many writers whose dirty pages reach the tail of the list: who finds no free frame has to have one written.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::Tables;
use crate::commands::lab::laboratory::{Arm, tables};
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
    let common = ["buffer_pool_size=32MiB", "redo_capacity=64MiB", "durability=background(1s)"];
    let with = |words: &[&'static str]| [&common[..], words].concat();
    let arms = [
        Arm::classic("legacy", &with(&["profile=mysql-5.6", "page_cleaners=1", "lru_scan_depth=100"])),
        Arm::classic("legacy, depth 1024", &with(&["profile=mysql-5.6"])),
        Arm::classic("backoff", &with(&["profile=percona-5.7"])),
        Arm::classic("backoff, target 128", &with(&["profile=percona-5.7", "free_list_target=128"])),
        Arm::default(&common),
    ];
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=64MiB"]);
    let phases = [updates(PHASE, TABLES, THREADS, lab.seconds(7, 20))];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{THREADS} threads update rows at random of data eight times the pool of 32 MiB, on the device as it is, \
         durable within a second. With legacy who finds no clean page writes one himself, with a sync, all others \
         behind him."
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE]);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    let single = findings.setting("legacy").median(PHASE, |run| run.number("buffer_pool_single_page_flushes"));
    findings.judge(
        "text 004",
        "with legacy users write single pages",
        single > 100.0,
        format!("{single:.0} pages written by users"),
    );
    // For each update: users who do nothing else wait as long with either, all together.
    let waited = |findings: &Findings, name: &str| {
        let setting = findings.setting(name);
        setting.median(PHASE, |run| run.waited_ms("free_frame") / (run.seconds.iter().sum::<u64>() as f64).max(1.0))
    };
    let (small, large) = (waited(findings, "backoff, target 128"), waited(findings, "backoff"));
    let is_less = large <= small * 0.9;
    findings.judge(
        "text 000, row 2",
        "with the same lru_scan_depth users wait less for frames, by a tenth and more, if more are kept free",
        is_less,
        format!("for each update with a target of 1,024: {large:.1} ms, of 128: {small:.1} ms"),
    );
    if !is_less {
        let busy = |name: &str| findings.setting(name).figures(PHASE).per_s / THREADS as f64;
        let share = ["backoff", "backoff, target 128"].map(|name| waited(findings, name) * busy(name) / 10.0);
        findings.notes.push(format!(
            "With a target of 1,024 users wait for frames {:.0} % of their time, with one of 128 {:.0} %: where the list \
             is empty all the time, how fast it is filled counts, and not how many frames it would have.",
            share[0], share[1]
        ));
    }
    findings.judge_explained("legacy", PHASE, &["free_frame", "lane"]);
    findings.judge_explained("backoff", PHASE, &["free_frame"]);
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "legacy");
    findings.judge_slowest(PHASE, "backoff");
    let text = findings.default().slow_text(PHASE, 80);
    findings.notes.push(format!("The default's slowest operations spent their time so: {text}."));
}
