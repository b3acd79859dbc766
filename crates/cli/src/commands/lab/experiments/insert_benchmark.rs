//! The insert benchmark, several clients with a table each: inserts and deletes beyond the pool, page cleaners over
//! instances, and reads beside fixed rates of inserts.

use super::{Experiment, Findings, Lab};
use crate::commands::lab::arm::{Phase, Work};
use crate::commands::lab::findings::Setting;
use crate::commands::lab::laboratory::{Arm, Base, options};
use crate::commands::lab::outcome::{ClientSeconds, Outcome, Writers, median};
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "insert-benchmark",
    title: "inserts and deletes with three indexes, more than the pool holds: page cleaners that are late",
    source: "text 004",
    run,
};

const CLIENTS: u32 = 8;

/// The setting with which the default's slowest operation is compared.
const CLASSIC: &str = "cleaners 4, inst. 8";

/// As many cleaners as instances.
const EIGHT: &str = "cleaners 8, inst. 8";
const FOUR: &str = "cleaners 4, inst. 4";

/// Four cleaners and four instances, with one more change.
const SHALLOW: &str = "4, 4, depth 100";
const ONCE: &str = "4, 4, no doublewrite";

const LOAD: &str = "l.i0: load";
const INDEXES: &str = "l.x: three indexes for each table";
const INSERTS: &str = "l.i1: inserts and deletes";

/// Queries beside inserts: the step, and the phase's name.
const QUERIES: [(&str, &str); 3] = [
    ("qr100", "qr100: queries beside 100 inserts a second and client"),
    ("qr500", "qr500: queries beside 500 inserts a second and client"),
    ("qr1000", "qr1000: queries beside 1,000 inserts a second and client"),
];

/// The steps. In quick runs all settings begin with a copy of the same load, and queries have one rate.
struct Steps {
    before: Vec<Work>,
    phases: Vec<Phase>,
}

impl Steps {
    fn of(lab: &Lab, rows: u64) -> Steps {
        let work = |step: &str| Work::Insert { step: step.into(), clients: CLIENTS, rows };
        let phase = |name: &str, work, time_s| Phase { name: name.into(), quiet_s: 0.0, work, time_s, beside: None };
        let begin = [("l.i0", LOAD), ("l.x", INDEXES)];
        let queries = QUERIES.iter().take(if lab.is_quick { 1 } else { QUERIES.len() });
        let mut steps = Steps { before: Vec::new(), phases: Vec::new() };
        if lab.is_quick {
            steps.before.extend(begin.map(|(step, _)| work(step)));
        } else {
            steps.phases.extend(begin.map(|(step, name)| phase(name, work(step), 0)));
        }
        steps.phases.push(phase(INSERTS, work("l.i1"), lab.seconds(8, 20)));
        steps.phases.extend(queries.map(|(step, name)| phase(name, work(step), lab.seconds(3, 8))));
        steps
    }
}

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let rows = if lab.is_quick { 100_000 } else { 250_000 };
    let common = ["cached=true", "buffer_pool_size=64MiB", "redo_capacity=128MiB", "durability=background(1s)"];
    // As MySQL 8.0, but without its log threads, which need CPU that a small machine does not have.
    let of_8_0 = |words: &[&'static str]| {
        [&common[..], &["profile=mysql-5.6", "flush_neighbors=none", "max_dirty_pages_pct=90"], words].concat()
    };
    let arms = [
        Arm::classic(CLASSIC, &of_8_0(&["page_cleaners=4", "buffer_pool_instances=8"])),
        Arm::classic(EIGHT, &of_8_0(&["page_cleaners=8", "buffer_pool_instances=8"])),
        Arm::classic(FOUR, &of_8_0(&["page_cleaners=4", "buffer_pool_instances=4"])),
        // The least possible depth, with as many free frames as before: at most 256 for instances of this size.
        Arm::classic(
            SHALLOW,
            &of_8_0(&["page_cleaners=4", "buffer_pool_instances=4", "free_list_target=256", "lru_scan_depth=100"]),
        ),
        Arm::classic(ONCE, &of_8_0(&["page_cleaners=4", "buffer_pool_instances=4", "doublewrite=off"])),
        Arm::default(&common),
    ];
    let steps = Steps::of(lab, rows);
    let base =
        Base { options: options(&["cached=true", "redo_capacity=128MiB"]), work: steps.before, in_memory: false };
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &steps.phases)?;
    let how = format!(
        "{CLIENTS} clients with a table of {rows} rows and three indexes each, files in the page cache, a pool of 64 \
         MiB: {}l.i1 inserts and deletes 50 rows in a transaction; then ranges of indexes are read while rows are \
         inserted and deleted at a rate. Durable within a second. The classic settings are those of mysql-5.6 with the \
         neighbours, dirty pages and cleaners of 8.0, whose log threads take CPU that a small machine does not have.",
        if lab.is_quick { "" } else { "l.i0 inserts all rows, 1,000 in a transaction, l.x makes the indexes; " }
    );
    let shown: Vec<&str> = steps.phases.iter().map(|phase| phase.name.as_str()).collect();
    let mut findings = EXPERIMENT.findings(how, settings, &shown);
    findings.loops = Some(("buffer_pool_single_page_flushes", "single"));
    findings.notes.push(by_client(&findings));
    let queries = QUERIES.iter().filter(|(_, name)| shown.contains(name));
    let notes: Vec<String> =
        queries.flat_map(|(step, name)| findings.settings.iter().filter_map(|of| writers(of, step, name))).collect();
    findings.notes.extend(notes);
    judge(&mut findings, lab.machine.cpus);
    Ok(findings)
}

/// Results of the writers beside the queries.
fn writers(setting: &Setting, step: &str, phase: &str) -> Option<String> {
    let of: Vec<&Writers> = setting.phase(phase).into_iter().filter_map(|run| run.writers.as_ref()).collect();
    let median_of = |figure: fn(&Writers) -> f64| median(of.iter().map(|writers| figure(writers)));
    let wanted = of.first()?.wanted_per_s;
    Some(format!(
        "{step}, {}: {:.0} of {wanted:.0} rows/s inserted beside queries, the slowest transaction {:.0} ms from arrival.",
        setting.name,
        median_of(|writers| writers.rows_per_s),
        median_of(|writers| writers.slowest_ms),
    ))
}

/// Evenness of the clients, in the last round.
fn by_client(findings: &Findings) -> String {
    let of = |setting: &Setting| {
        let clients = &setting.phase(INSERTS).last()?.clients;
        let slowest = |client: &ClientSeconds| client.worst_ms.iter().copied().fold(0.0, f64::max);
        let least = clients.iter().map(slowest).fold(f64::INFINITY, f64::min);
        let most = clients.iter().map(slowest).fold(0.0, f64::max);
        let (few, many) = (
            clients.iter().map(|client| client.transactions).min()?,
            clients.iter().map(|client| client.transactions).max()?,
        );
        Some(format!("{}: {few} to {many} transactions, the slowest {least:.0} to {most:.0} ms", setting.name))
    };
    let all: Vec<String> = findings.settings.iter().filter_map(of).collect();
    format!("By client, in l.i1 of the last round: {}.", all.join("; "))
}

/// Single-page flushes by users that needed a frame, in percent of all written pages.
fn single_percent(setting: &Setting) -> f64 {
    let of = |run: &Outcome| (run.number("buffer_pool_single_page_flushes"), run.number("data_page_writes"));
    setting.median(INSERTS, |run| of(run).0 * 100.0 / of(run).1.max(1.0))
}

fn judge(findings: &mut Findings, cpus: f64) {
    let single: Vec<(&str, f64)> = findings.classic().map(|of| (of.name.as_str(), single_percent(of))).collect();
    let is_most = single.iter().all(|(_, percent)| *percent >= 50.0);
    let seen: Vec<String> = single.iter().map(|(name, percent)| format!("{name}: {percent:.0} %")).collect();
    let claim = "page cleaners are late: most pages are written by users, one at a time, with each classic setting";
    findings.judge("ours", claim, is_most, seen.join("; "));
    let worst = |name: &str| findings.setting(name).median(INSERTS, |run| median(run.worst_ms.iter().copied()));
    let fewer_ms = worst(CLASSIC);
    let equal = [FOUR, EIGHT].map(|name| (name, worst(name)));
    for (name, ms) in equal {
        findings.judge(
            "text 004",
            format!("{name} is better than {CLASSIC} by a tenth: the worst response of a second, in the median"),
            ms <= fewer_ms * 0.9,
            format!("{ms:.0} ms and {fewer_ms:.0} ms"),
        );
    }
    let slot_ms =
        |name: &str| findings.setting(name).median(INSERTS, |run| run.number("buffer_lru_batch_flush_avg_time_slot"));
    let (deep_ms, shallow_ms) = (slot_ms(FOUR), slot_ms(SHALLOW));
    findings.judge(
        "text 004, buffer_LRU_batch_flush_avg_time_slot",
        "a larger lru_scan_depth makes a pass over an instance take longer, by a tenth",
        deep_ms >= shallow_ms * 1.1 && shallow_ms > 0.0,
        format!("{deep_ms:.0} ms with 1,024, {shallow_ms:.0} ms with 100"),
    );
    let per_s = |setting: &Setting| setting.figures(INSERTS).per_s;
    let twice = findings.classic().filter(|setting| setting.name != ONCE).map(per_s).fold(0.0, f64::max);
    let once = per_s(findings.setting(ONCE));
    findings.judge(
        "text 004",
        "of the classic settings the one without doublewrite makes the most, by a tenth",
        once >= twice * 1.1,
        format!("{once:.0}/s, the best of the others {twice:.0}/s"),
    );
    if equal.iter().any(|(_, ms)| *ms > fewer_ms * 0.9) {
        findings.notes.push(format!(
            "The text's machine had a CPU for each cleaner; this one has {cpus:.0}. Whether that is why was not measured."
        ));
    }
    findings.judge_explained(CLASSIC, INSERTS, "free_frame");
    for phase in [LOAD, INDEXES] {
        if findings.default().has(phase) {
            findings.judge_throughput(phase);
        }
    }
    findings.judge_free_of(INSERTS, "free_frame");
    findings.judge_throughput(INSERTS);
    findings.judge_slowest(INSERTS, CLASSIC);
    // Closed loop: each client always has one transaction under way.
    let times = |setting: &Setting| {
        let of = setting.figures(INSERTS);
        let mean_ms = f64::from(CLIENTS) * 1e3 / of.per_s.max(1e-3);
        format!("{mean_ms:.0} ms on average, the slowest {:.1} times that", of.slowest_ms / mean_ms)
    };
    let (own, classic) = (times(findings.default()), times(findings.setting(CLASSIC)));
    findings.notes.push(format!(
        "A transaction changes 100 rows with 300 entries, most of them on pages not in the pool: with the default \
         {own}; with {CLASSIC} {classic}."
    ));
    for (step, phase) in QUERIES {
        if !findings.default().has(phase) {
            continue;
        }
        findings.judge_throughput(phase);
        let runs = findings.default().phase(phase);
        let kept = runs.iter().filter(|run| run.writers.is_some_and(|writers| writers.is_kept)).count();
        let (is_kept, seen) = (kept == runs.len(), format!("in {kept} of {} rounds", runs.len()));
        findings.judge(
            "ours",
            format!("the rate of inserts beside the queries of {step} is kept with the default, to 5 %"),
            is_kept,
            seen,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Pages written by users, of a hundred, and the length of a refill.
    fn numbers(single: u64, slot_ms: u64) -> BTreeMap<String, u64> {
        let of = [
            ("buffer_pool_single_page_flushes", single),
            ("data_page_writes", 100),
            ("buffer_lru_batch_flush_avg_time_slot", slot_ms),
        ];
        of.map(|(name, number)| (name.to_owned(), number)).into()
    }

    /// Indexes of the failing claims after `change` to a phase of one setting.
    fn failing_with(name: &str, phase: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let setting = |of: &'static str, slowest_ms, median_ms| {
            let per_s = if of == "default" { 2_000.0 } else { 1_000.0 };
            let of_phase = |phase| outcome(phase, per_s, slowest_ms, "free_frame");
            let mut phases = vec![of_phase(LOAD), of_phase(INDEXES), of_phase(INSERTS)];
            phases[2].worst_ms = vec![1.0, median_ms, slowest_ms];
            let slot_ms = if of == SHALLOW { 5 } else { 9 };
            phases[2].numbers = numbers(50, slot_ms);
            if of == ONCE {
                phases[2].figures.per_s = 1_200.0;
            }
            for (_, query) in QUERIES {
                let writers = Writers { rows_per_s: 800.0, wanted_per_s: 800.0, is_kept: true, slowest_ms: 9.0 };
                phases.push(Outcome { writers: Some(writers), ..of_phase(query) });
            }
            phases.iter_mut().filter(|run| of == name && run.phase == phase).for_each(change);
            (of, phases)
        };
        let settings = vec![
            setting(CLASSIC, 500.0, 300.0),
            setting(EIGHT, 500.0, 270.0),
            setting(FOUR, 500.0, 260.0),
            setting(SHALLOW, 500.0, 260.0),
            setting(ONCE, 500.0, 260.0),
            setting("default", 50.0, 20.0),
        ];
        let mut findings = findings_of(settings);
        judge(&mut findings, 2.0);
        assert_eq!(findings.verdicts.len(), 17);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with("", INSERTS, |_| {}), [0; 0]);
        assert_eq!(failing_with(EIGHT, INSERTS, |of| of.numbers = numbers(49, 9)), [0]);
        assert_eq!(failing_with(FOUR, INSERTS, |of| of.worst_ms = vec![271.0]), [1]);
        assert_eq!(failing_with(EIGHT, INSERTS, |of| of.worst_ms = vec![271.0]), [2]);
        assert_eq!(failing_with(SHALLOW, INSERTS, |of| of.numbers = numbers(50, 9)), [3]);
        assert_eq!(failing_with(ONCE, INSERTS, |of| of.figures.per_s = 1_000.0), [4]);
        assert_eq!(failing_with(CLASSIC, INSERTS, |of| of.stalled.mostly.clear()), [5]);
        assert_eq!(failing_with("default", LOAD, |of| of.figures.per_s = 999.0), [6]);
        assert_eq!(failing_with("default", INDEXES, |of| of.figures.per_s = 999.0), [7]);
        assert_eq!(failing_with("default", INSERTS, |of| of.mostly.extend([("free_frame".to_owned(), 1)])), [8]);
        assert_eq!(failing_with("default", INSERTS, |of| of.figures.per_s = 1_199.0), [9]);
        assert_eq!(failing_with("default", INSERTS, |of| of.figures.slowest_ms = 50.1), [10]);
        for (at, (_, phase)) in QUERIES.iter().enumerate() {
            assert_eq!(failing_with("default", phase, |of| of.figures.per_s = 999.0), [11 + 2 * at]);
            let late = |of: &mut Outcome| of.writers.iter_mut().for_each(|writers| writers.is_kept = false);
            assert_eq!(failing_with("default", phase, late), [12 + 2 * at]);
            assert_eq!(failing_with("default", phase, |of| of.writers = None), [12 + 2 * at], "no client wrote");
        }
    }
}
