//! A pool larger than the data, a log much smaller than the dirty data, a slow device: lazy flushing until three
//! quarters of the log are full, then all writers wait.

use super::{BYTES_PER_S, Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::{SlowDevice, SlowTime, Tables};
use crate::commands::lab::findings::Setting;
use crate::commands::lab::laboratory::{Arm, tables};
use crate::commands::lab::outcome::{Figures, Outcome};
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sync-flush",
    title: "a log that is three quarters full: seconds of silence, their cures, and a device that slows down",
    source: "text 003 and its comments",
    run,
};

/// The tables: some 512 MiB. Three quarters of the smallest log dirty only a part of them.
const TABLES: Tables = Tables { count: 16, rows: 150_000 };
const THREADS: usize = 16;
const STEADY: &str = "updates on a slow device";
const SLOWING: &str = "updates while it slows down";

/// Writes a second of the device.
const WRITES_PER_S: f64 = 6_000.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let (steady_s, seconds) = (lab.seconds(10, 20), lab.seconds(6, 14));
    // In the middle of the second phase the device has 30 % of its speed.
    let (after_s, for_s) = (2.0, seconds as f64 / 2.0);
    let slow = SlowTime { from_s: steady_s as f64 + after_s, for_s, every_s: 0.0, factor: 0.3 };
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower: vec![slow] };
    let common = ["buffer_pool_size=768MiB", "redo_capacity=128MiB", "durability=background(1s)"];
    let with = |words: &[&'static str]| [&common[..], words].concat();
    let of_5_5 = |words: &[&'static str]| with(&[&["profile=mysql-5.5", "flush_neighbors=none"], words].concat());
    let of_5_6 = |words: &[&'static str]| with(&[&["profile=mysql-5.6", "flush_neighbors=none"], words].concat());
    let arms = [
        Arm::classic("sync_only", &of_5_5(&[])),
        Arm::classic("  dirty pages 30 %", &of_5_5(&["max_dirty_pages_pct=30"])),
        Arm::classic("  log 32 MiB", &of_5_5(&["redo_capacity=32MiB"])),
        Arm::classic("  log 12 MiB", &of_5_5(&["redo_capacity=12MiB"])),
        Arm::classic("  pool 256 MiB", &of_5_5(&["buffer_pool_size=256MiB"])),
        Arm::classic("adaptive, 200", &of_5_6(&[])),
        Arm::classic("adaptive, 1000", &of_5_6(&["io_capacity=1000", "io_capacity_max=2000"])),
        Arm::classic("adaptive, 4000", &of_5_6(&["io_capacity=4000", "io_capacity_max=8000"])),
        Arm::classic("keep_average", &of_5_5(&["adaptive_flushing_method=keep_average"])),
        Arm::default(&common),
    ]
    .map(|arm| arm.on(&device));
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=128MiB"]);
    let phases = [updates(STEADY, TABLES, THREADS, steady_s), updates(SLOWING, TABLES, THREADS, seconds)];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    let how = format!(
        "{THREADS} threads update rows at random of 512 MiB, all in a pool of 768 MiB, a log of 128 MiB, on an imitated \
         device of {}; then they go on, and {after_s:.0} s later it has 30 % of its speed for {for_s:.0} s. Durable \
         within a second.",
        device.text()
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[STEADY, SLOWING]);
    findings.loops = Some(("buffer_flush_sync_total_pages", "synced"));
    judge(&mut findings);
    Ok(findings)
}

/// The cures that the author of text 003 tried.
const CURES: [&str; 3] = ["  dirty pages 30 %", "  log 32 MiB", "  pool 256 MiB"];

/// The same policy with different values of `io_capacity`.
const ADAPTIVE: [&str; 3] = ["adaptive, 200", "adaptive, 1000", "adaptive, 4000"];

/// From this wait on users call a server stalled, in ms.
const STALL_MS: f64 = 500.0;

/// The longest wait of one operation, or of all.
fn longest_ms(of: &Figures) -> f64 {
    of.slowest_ms.max(of.blackout_ms)
}

/// The number of silences of whole seconds over all rounds, and their mean length in seconds.
fn silences(setting: &Setting, phase: &str) -> (usize, f64) {
    let (mut silences, mut seconds) = (0, 0);
    for run in setting.phase(phase) {
        let spans: Vec<_> = run.seconds.split(|count| *count > 0).filter(|span| !span.is_empty()).collect();
        silences += spans.len();
        seconds += spans.iter().map(|span| span.len()).sum::<usize>();
    }
    (silences, seconds as f64 / silences.max(1) as f64)
}

fn judge(findings: &mut Findings) {
    let figures = |findings: &Findings, name: &str| findings.setting(name).figures(STEADY);
    let lazy = figures(findings, "sync_only");
    let gap_ms = findings.setting("sync_only").least(STEADY, |run| run.figures.blackout_ms);
    let (count, length_s) = silences(findings.setting("sync_only"), STEADY);
    findings.judge(
        "text 003",
        "flushing lazily until three quarters of the log are full, a server is silent for a second and more, in each round",
        gap_ms >= 1_000.0,
        format!("longest gap {gap_ms:.0} ms in the best round; {count} silences of whole seconds, of {length_s:.1} s each"),
    );
    let spans = ["sync_only", "  log 32 MiB", "  log 12 MiB", "keep_average"].map(|name| {
        let (silences, seconds) = silences(findings.setting(name), STEADY);
        format!("{} {silences} of {seconds:.1} s", name.trim())
    });
    findings.notes.push(format!("Silences of whole seconds, in all rounds: {}.", spans.join(", ")));
    let fails = |name: &str| {
        let of = figures(findings, name);
        let (stalls, is_slow) = (longest_ms(&of) > longest_ms(&lazy) / 2.0, of.per_s < lazy.per_s / 2.0);
        let word = match (stalls, is_slow) {
            (true, true) => "stalls, and is slow",
            (true, false) => "stalls",
            (false, true) => "slow",
            (false, false) => "cured",
        };
        let seen = format!("{} {:.0}/s, slowest {:.0} ms: {word}", name.trim(), of.per_s, longest_ms(&of));
        (stalls || is_slow, seen)
    };
    let cures = CURES.map(fails);
    let of_lazy = format!("sync_only {:.0}/s, slowest {:.0} ms", lazy.per_s, longest_ms(&lazy));
    findings.judge(
        "ours",
        "each of the three cures of text 003 leaves over half of the longest wait, or under half of the throughput",
        cures.iter().all(|(fails, _)| *fails),
        [of_lazy].into_iter().chain(cures.map(|(_, seen)| seen)).collect::<Vec<_>>().join("; "),
    );
    let [small, middle] = ["  log 12 MiB", "  log 32 MiB"].map(|name| longest_ms(&figures(findings, name)));
    findings.judge(
        "text 003, comments",
        "the larger the log, the longer the stalls, each by a fifth at least",
        middle >= small * 1.2 && longest_ms(&lazy) >= middle * 1.2,
        format!("the longest {small:.0} ms with 12 MiB, {middle:.0} with 32, {:.0} with 128", longest_ms(&lazy)),
    );
    for (phase, when) in [(STEADY, ""), (SLOWING, ", on a device that slows down")] {
        let adaptive = ADAPTIVE.map(|name| (name, findings.setting(name).figures(phase)));
        let seen = adaptive.each_ref().map(|(name, of)| format!("{name}: {:.0}/s, {:.0} ms", of.per_s, longest_ms(of)));
        findings.judge(
            "ours",
            format!("adaptive stalls at every io_capacity, {STALL_MS:.0} ms and more{when}"),
            adaptive.iter().all(|(_, of)| longest_ms(of) >= STALL_MS),
            seen.join("; "),
        );
    }
    judge_default(findings);
    findings.judge_explained("sync_only", STEADY, "log_space");
    for phase in [STEADY, SLOWING] {
        findings.judge_throughput(phase);
        findings.judge_slowest(phase, "sync_only");
    }
    let average = figures(findings, "keep_average");
    findings.judge(
        "ours",
        format!("keep_average makes more than sync_only, and stalls as well, {STALL_MS:.0} ms and more"),
        average.per_s > lazy.per_s && longest_ms(&average) >= STALL_MS,
        format!("{:.0}/s and {:.0}/s, {:.0} ms", average.per_s, lazy.per_s, longest_ms(&average)),
    );
}

fn judge_default(findings: &mut Findings) {
    for phase in [STEADY, SLOWING] {
        let most = |of: fn(&Outcome) -> f64| findings.default().most(phase, of);
        let own = findings.default().figures(phase);
        let walls = most(|run| run.number("log_wall_waits"));
        let (silent_s, gap_ms) = (most(|run| run.figures.silent_s), most(|run| run.figures.blackout_ms));
        let (stalls, slowest_ms) = (most(|run| run.figures.stalls), most(|run| run.figures.slowest_ms));
        let brownout_s = most(|run| run.figures.brownout_s);
        findings.judge(
            "ours",
            format!("{phase}: the default is not silent, no writer finds the log full, no operation stalls"),
            silent_s == 0.0 && gap_ms < 100.0 && walls == 0.0 && stalls == 0.0,
            format!(
                "longest gap {gap_ms:.0} ms, {walls:.0} waits at the wall, {stalls:.0} stalls, slowest {slowest_ms:.0} \
                 ms; worst second {:.0} of {:.0}, {brownout_s:.0} s under half of the median",
                own.worst_per_s, own.median_per_s
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Indexes of the failing claims after `change` to the outcomes of one setting.
    fn failing_with(name: &str, in_phase: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let settings = [
            ("sync_only", 1_000.0, 4_000.0),
            ("  dirty pages 30 %", 1_200.0, 3_000.0),
            ("  log 32 MiB", 900.0, 2_100.0),
            ("  pool 256 MiB", 300.0, 100.0),
            ("  log 12 MiB", 900.0, 1_500.0),
            ("adaptive, 200", 1_000.0, 900.0),
            ("adaptive, 1000", 1_000.0, 700.0),
            ("adaptive, 4000", 1_000.0, 500.0),
            ("keep_average", 1_001.0, 500.0),
            ("default", 2_000.0, 400.0),
        ];
        let setting = |(of, per_s, slowest_ms)| {
            let phases = [STEADY, SLOWING].map(|phase| {
                let mut outcome = outcome(phase, per_s, slowest_ms, "log_space");
                if of == "sync_only" {
                    outcome.figures.blackout_ms = 3_000.0;
                    outcome.seconds = vec![5, 0, 0, 4, 0, 9];
                }
                if (of, phase) == (name, in_phase) {
                    change(&mut outcome);
                }
                outcome
            });
            (of, phases.to_vec())
        };
        let mut findings = findings_of(settings.map(setting).to_vec());
        judge(&mut findings);
        assert!(findings.notes[0].contains("sync_only 2 of 1.5 s, "), "{:?}", findings.notes);
        assert_eq!(findings.verdicts.len(), 13);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with("", STEADY, |_| {}), [0; 0]);
        let lazy = |change| failing_with("sync_only", STEADY, change);
        assert_eq!(lazy(|of| of.figures.blackout_ms = 999.0), [0]);
        assert_eq!(failing_with("  log 32 MiB", STEADY, |of| of.figures.slowest_ms = 2_000.0), [1], "a cure");
        assert_eq!(failing_with("  pool 256 MiB", STEADY, |of| of.figures.per_s = 500.0), [1], "neither");
        assert_eq!(failing_with("  log 12 MiB", STEADY, |of| of.figures.slowest_ms = 1_751.0), [2]);
        assert_eq!(failing_with("  log 32 MiB", STEADY, |of| of.figures.slowest_ms = 3_334.0), [2], "as long with 128");
        assert_eq!(failing_with("adaptive, 1000", STEADY, |of| of.figures.slowest_ms = 499.0), [3]);
        assert_eq!(failing_with("adaptive, 1000", SLOWING, |of| of.figures.slowest_ms = 499.0), [4]);
        for (phase, calm, rate) in [(STEADY, 5, 8), (SLOWING, 6, 10)] {
            let own = |change| failing_with("default", phase, change);
            assert_eq!(own(|of| of.figures.silent_s = 1.0), [calm]);
            assert_eq!(own(|of| of.figures.blackout_ms = 100.0), [calm]);
            assert_eq!(own(|of| of.numbers = [("log_wall_waits".to_owned(), 1)].into()), [calm]);
            assert_eq!(own(|of| of.figures.stalls = 1.0), [calm]);
            assert_eq!(own(|of| of.figures.per_s = 1_199.0), [rate]);
            assert_eq!(own(|of| of.figures.slowest_ms = 401.0), [rate + 1]);
        }
        assert_eq!(lazy(|of| of.stalled.mostly.clear()), [7]);
        assert_eq!(failing_with("keep_average", STEADY, |of| of.figures.per_s = 1_000.0), [12]);
        assert_eq!(failing_with("keep_average", STEADY, |of| of.figures.slowest_ms = 499.0), [12]);
    }
}
