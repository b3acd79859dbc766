//! Verdicts, text and page of synthetic findings, since real ones take too long; and one real child.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::arm::{Phase, Tables, Work};
use super::disturbance::{Beside, Disturbance};
use super::findings::{About, Findings, Held, Setting, counted};
use super::laboratory::{Arm, Lab, options};
use super::outcome::{ClientSeconds, Figures, Outcome, Slow, Stalled};
use super::{page, text};

/// The outcome of a phase whose four slowest operations spent nearly all their time in one class of waits.
pub(super) fn outcome(phase: &str, per_s: f64, slowest_ms: f64, class: &str) -> Outcome {
    let elapsed_us = (slowest_ms * 1e3) as u64;
    let waited_us = elapsed_us / 10 * 9;
    let slow =
        Slow { operation: "get".to_owned(), elapsed_us, parts: vec![(class.to_owned(), waited_us)], latch: None };
    let stalled = Stalled {
        operations: 1,
        elapsed_us,
        parts: [(class.to_owned(), waited_us)].into(),
        mostly: [(class.to_owned(), 1)].into(),
    };
    Outcome {
        phase: phase.to_owned(),
        figures: Figures { per_s, median_per_s: per_s, worst_per_s: per_s, slowest_ms, ..Figures::default() },
        slow: vec![slow; 4],
        stalled,
        ..Outcome::default()
    }
}

/// Findings of one round, by names of settings; `default` is the default.
pub(super) fn findings_of(settings: Vec<(&str, Vec<Outcome>)>) -> Findings {
    let setting = |(name, phases): (&str, Vec<Outcome>)| Setting {
        name: name.to_owned(),
        is_default: name == "default",
        options: Vec::new(),
        rounds: vec![phases],
    };
    Findings {
        name: "synthetic",
        title: "made up",
        how: String::new(),
        settings: settings.into_iter().map(setting).collect(),
        phases: Vec::new(),
        loops: None,
        verdicts: Vec::new(),
        notes: Vec::new(),
    }
}

/// Findings of the two servers and the default, for a phase alone and one with an activity beside it; `change` applies
/// to the default's outcome of the latter.
pub(super) fn beside_servers(alone: &str, phase: &str, change: fn(&mut Outcome)) -> Findings {
    let mut own = outcome(phase, 200.0, 10.0, "page_read");
    own.figures.beside_ms = 500.0;
    // No operation of the default is over the threshold.
    own.stalled = Stalled::default();
    change(&mut own);
    let alone = || Outcome { stalled: Stalled::default(), ..outcome(alone, 200.0, 10.0, "page_read") };
    let classic = || vec![alone(), outcome(phase, 200.0, 100.0, "free_frame")];
    let bears = Outcome { stalled: Stalled::default(), ..outcome(phase, 200.0, 10.0, "page_read") };
    findings_of(vec![("percona-5.7", classic()), ("mysql-8.0", vec![alone(), bears]), ("default", vec![alone(), own])])
}

/// Indexes of the claims that do not hold.
pub(super) fn failing(findings: &Findings) -> Vec<usize> {
    let verdicts = findings.verdicts.iter().enumerate();
    verdicts.filter(|(_, verdict)| !verdict.holds).map(|(at, _)| at).collect()
}

/// A setting whose slowest operation waits for frames nearly all the time.
fn setting(name: &str, is_default: bool, per_s: f64, slowest_ms: f64) -> Setting {
    let elapsed_us = (slowest_ms * 1e3) as u64;
    let waited_us = elapsed_us / 10 * 9;
    let outcome = Outcome {
        phase: "reads".to_owned(),
        figures: Figures { per_s, median_per_s: per_s, worst_per_s: per_s / 3.0, slowest_ms, ..Figures::default() },
        seconds: vec![per_s as u64, per_s as u64, per_s as u64, per_s as u64 / 3],
        worst_ms: vec![1.0, 1.0, 1.0, slowest_ms],
        clients: Vec::new(),
        age_percent: vec![10.0, 20.0],
        bars: vec![(0.1, 0.2, 5), (0.2, 0.4, 1)],
        waits: BTreeMap::from([("free_frame".to_owned(), (3, waited_us))]),
        slow: vec![Slow {
            operation: "get".to_owned(),
            elapsed_us,
            parts: vec![("free_frame".to_owned(), waited_us), ("cpu".to_owned(), elapsed_us - waited_us)],
            latch: None,
        }],
        stalled: Stalled {
            operations: 1,
            elapsed_us,
            parts: [("free_frame".to_owned(), waited_us)].into(),
            mostly: [("free_frame".to_owned(), u64::from(waited_us * 2 >= elapsed_us))].into(),
        },
        mostly: BTreeMap::new(),
        numbers: BTreeMap::from([("loops".to_owned(), 12_345)]),
        writers: None,
        machine: Some(Beside { pair_ms: 3.1, wake_ms: 2.2, ..Beside::default() }),
        marks: Vec::new(),
        quiet_s: 0.0,
    };
    Setting { name: name.to_owned(), is_default, options: options(&["cached=true"]), rounds: vec![vec![outcome]] }
}

fn findings(default_per_s: f64, default_ms: f64) -> Findings {
    Findings {
        name: "free-list",
        title: "reads that wait",
        how: "A <table> & a pool.".to_owned(),
        settings: vec![
            setting("legacy", false, 1_000.0, 30.0),
            setting("backoff", false, 800.0, 400.0),
            setting("default", true, default_per_s, default_ms),
        ],
        phases: vec!["reads".to_owned()],
        loops: Some(("loops", "loops")),
        verdicts: Vec::new(),
        notes: vec!["Something was seen.".to_owned()],
    }
}

/// Whether each claim holds.
fn holding(findings: &Findings) -> Vec<bool> {
    findings.verdicts.iter().map(|verdict| verdict.holds).collect()
}

pub(super) fn lab() -> (tempfile::TempDir, Lab) {
    lab_that(false)
}

fn lab_that(is_stopped: bool) -> (tempfile::TempDir, Lab) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let Ok(lab) = Lab::new(&dir.path().join("lab"), true, 1, Arc::new(AtomicBool::new(is_stopped))) else {
        unreachable!("the build's own directory can be written to")
    };
    (dir, lab)
}

#[test]
fn default_is_compared_with_the_best_rate_and_one_slowest() {
    let judged = |per_s, slowest_ms| {
        let mut findings = findings(per_s, slowest_ms);
        findings.judge_throughput("reads");
        findings.judge_slowest("reads", "backoff");
        findings.judge_slowest("reads", "legacy");
        holding(&findings)
    };
    assert_eq!(judged(1_000.0, 3.0), [true, true, true]);
    assert_eq!(judged(999.0, 3.0), [false, true, true], "faster than backoff, and not than legacy");
    assert_eq!(judged(1_000.0, 40.0), [true, true, false], "a tenth of backoff's 400 ms, and not of legacy's 30");
    assert_eq!(judged(1_000.0, 40.1), [true, false, false]);
}

#[test]
fn a_stall_is_explained_by_the_class_that_has_most_of_its_time() {
    let mut findings = findings(1_000.0, 1.0);
    findings.judge_explained("backoff", "reads", "free_frame");
    findings.judge_explained("backoff", "reads", "log_space");
    assert_eq!(holding(&findings), [true, false]);
    assert_eq!(findings.answer(), Held::No);
    // Each line counts once, however long it is.
    for (mostly, holds) in [(9, true), (8, false)] {
        let stalled = &mut findings.settings[1].rounds[0][0].stalled;
        (stalled.operations, stalled.mostly) = (10, [("free_frame".to_owned(), mostly)].into());
        findings.judge_explained("backoff", "reads", "free_frame");
        assert_eq!(findings.verdicts.pop().map(|verdict| verdict.holds), Some(holds), "{mostly} of 10");
    }
    // Nine of ten stalls, but the tenth takes longer than all of them.
    let stalled = &mut findings.settings[1].rounds[0][0].stalled;
    stalled.mostly = [("free_frame".to_owned(), 9)].into();
    stalled.parts = [("free_frame".to_owned(), stalled.elapsed_us / 2 - 1)].into();
    findings.judge_explained("backoff", "reads", "free_frame");
    assert_eq!(findings.verdicts.pop().map(|verdict| verdict.holds), Some(false));
    // The slowest operations alone explain nothing: the stall log must not be empty.
    findings.settings[1].rounds[0][0].stalled = Stalled::default();
    findings.judge_explained("backoff", "reads", "free_frame");
    assert_eq!(holding(&findings), [true, false, false]);
}

/// Findings with a machine that stood still beside the setting `name`.
fn disturbed(name: &str, machine: Beside) -> Findings {
    let mut findings = findings(900.0, 50.0);
    let setting = findings.settings.iter_mut().find(|setting| setting.name == name).unwrap();
    setting.rounds[0][0].machine = Some(machine);
    findings
}

#[test]
fn failed_claim_is_inconclusive_if_the_machine_stood_still() {
    let device = Beside { device_stop_ms: 300.0, device_stopped_ms: 300.0, ..Beside::default() };
    let cpu = Beside { cpu_stop_ms: 300.0, cpu_stopped_ms: 300.0, ..Beside::default() };
    for (machine, why) in [(device, Disturbance::Device), (cpu, Disturbance::Cpu)] {
        let mut findings = disturbed("default", machine);
        findings.judge_slowest("reads", "backoff");
        assert_eq!(findings.verdicts[0].inconclusive, Some(why));
        assert_eq!(findings.answer(), Held::Unknown);
        let (_dir, lab) = lab();
        let text = text::findings(&findings, &lab);
        assert!(text.contains("OPEN   the slowest") && text.contains(why.text()), "{text}");
        assert!(page::of(&[findings], &[], &lab).contains(why.text()));
    }
    // A claim that holds still holds.
    let mut findings = disturbed("default", device);
    findings.settings[2].rounds[0][0].figures.slowest_ms = 1.0;
    findings.judge_slowest("reads", "backoff");
    assert_eq!(findings.answer(), Held::Yes);
}

#[test]
fn stop_beside_another_setting_does_not_excuse_a_claim() {
    let device = Beside { device_stop_ms: 300.0, device_stopped_ms: 300.0, ..Beside::default() };
    let mut findings = disturbed("legacy", device);
    findings.judge_slowest("reads", "backoff");
    assert_eq!(findings.answer(), Held::No);
}

#[test]
fn claims_about_classic_settings_are_counted_apart() {
    let mut findings = findings(900.0, 1.0);
    findings.judge_explained("backoff", "reads", "free_frame");
    findings.judge_explained("backoff", "reads", "log_space");
    findings.judge_throughput("reads");
    findings.judge_slowest("reads", "backoff");
    findings.judge("ours", "a reader does not stall writers", true, "0 stalls");
    let about: Vec<About> = findings.verdicts.iter().map(|verdict| verdict.about).collect();
    assert_eq!(about, [About::Classic, About::Classic, About::Millpond, About::Millpond, About::Millpond]);
    let text = counted(findings.verdicts.iter());
    assert_eq!(text, "classic settings: 1 of 2 claims hold; Millpond: 2 of 3 claims hold");
}

#[test]
fn server_claim_needs_a_stall_beside_and_none_without() {
    let failing_with = |phase: &str, change: fn(&mut Outcome)| {
        let mut findings = beside_servers("alone", "beside", |_| ());
        findings.settings[0].rounds[0].iter_mut().filter(|run| run.phase == phase).for_each(change);
        findings.judge_beside("percona-5.7", "alone", "beside");
        failing(&findings)
    };
    assert_eq!(failing_with("beside", |_| ()), [0; 0]);
    assert_eq!(failing_with("alone", |of| of.stalled.operations = 1), [0], "it is too much for it");
    assert_eq!(failing_with("beside", |of| of.stalled.operations = 0), [0, 1]);
    assert_eq!(failing_with("beside", |of| of.stalled.mostly.clear()), [1]);
}

#[test]
fn what_never_happens_does_not_happen_in_any_of_the_rounds() {
    let round = |stalls| {
        let mut outcome = outcome("reads", 1_000.0, 5.0, "page_read");
        outcome.figures.stalls = stalls;
        vec![outcome]
    };
    let mut setting = setting("default", true, 1.0, 1.0);
    setting.rounds = vec![round(0.0), round(7.0), round(0.0)];
    let stalls = |run: &Outcome| run.figures.stalls;
    assert_eq!(setting.figures("reads").stalls, 0.0, "the median");
    assert_eq!((setting.most("reads", stalls), setting.least("reads", stalls)), (7.0, 0.0));
    assert_eq!((setting.most("none", stalls), setting.least("none", stalls)), (0.0, 0.0));
}

#[test]
fn text_has_every_setting_and_verdict_in_120_columns() {
    let mut findings = findings(2_000.0, 10.0);
    findings.judge_throughput("reads");
    findings.judge_slowest("reads", "backoff");
    let (_dir, lab) = lab();
    let text = text::findings(&findings, &lab);
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    for part in
        ["legacy", "backoff", "default", "12345", "free_frame 90 %", "HOLDS  the default is no slower", "Something"]
    {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
    assert!(!text.contains("NOT "), "{text}");
    assert!(text.contains("    beside it: device's own pair 3.1 ms, stood still 0 ms; CPU 2.2 ms late, "), "{text}");
    assert!(text.ends_with("classic settings: 0 of 0 claims hold; Millpond: 2 of 2 claims hold\n"), "{text}");
}

#[test]
fn page_is_well_formed_and_has_all_charts_of_each_setting() {
    let mut findings = findings(2_000.0, 100.0);
    let client =
        |each| ClientSeconds { transactions: 4 * each, seconds: vec![each; 4], worst_ms: vec![7.0, 1.0, 1.0, 1.0] };
    findings.settings[0].rounds[0][0].clients = [13, 47, 20].map(client).to_vec();
    findings.judge_throughput("reads");
    findings.judge_slowest("reads", "backoff");
    let (_dir, lab) = lab();
    let page = page::of(&[findings], &["burst: no <disk>".to_owned()], &lab);
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    let text: String = document.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
    for part in ["A <table> & a pool.", "does not hold", "no <disk>", "12,345", "free_frame"] {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
    assert!(text.contains("second 4: 13 to 47"), "the least and the most of the clients");
    assert_eq!(document.descendants().filter(|node| node.tag_name().name() == "svg").count(), 11);
}

#[test]
fn short_phase_has_no_curves_and_an_interrupted_run_says_so() {
    let mut findings = findings(2_000.0, 100.0);
    findings.settings.iter_mut().for_each(|setting| setting.rounds[0][0].seconds.truncate(2));
    let (_dir, lab) = lab();
    let whole = page::of(&[findings], &[], &lab);
    assert_eq!((whole.matches("<svg").count(), whole.contains("Interrupted")), (3, false), "{whole}");
    let (_dir, lab) = lab_that(true);
    assert!(page::of(&[], &[], &lab).contains("Interrupted: what came after this was not run."));
}

#[test]
fn the_last_column_of_text_has_as_many_parts_as_fit_whole() {
    let setting = setting("legacy", false, 1.0, 100.0);
    for (columns, text) in
        [(120, "free_frame 90 %, cpu 10 %"), (24, "free_frame 90 %"), (15, "free_frame 90 %"), (14, "-")]
    {
        assert_eq!(setting.slow_text("reads", columns), text, "{columns}");
    }
}

#[test]
fn a_lab_leaves_nothing_behind() {
    let (dir, lab) = lab();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    drop(lab);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn settings_in_place_are_told_from_others() {
    let is_in_place = |words: &[&str]| Arm::classic("a", words).is_in_place();
    assert!(is_in_place(&["profile=mysql-5.6"]) && is_in_place(&["page_store=in_place"]));
    assert!(!is_in_place(&["profile=millpond"]) && !is_in_place(&["cached=true"]));
}

#[test]
fn plans_travel_as_json() {
    let work =
        Work::Oltp { workload: "oltp_insert".into(), tables: Tables { count: 1, rows: 9 }, threads: 2, per_s: None };
    let phase = Phase { name: "x".into(), quiet_s: 0.5, work, time_s: 1, beside: None };
    let text = serde_json::to_string(&phase).unwrap();
    let back: Phase = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}
