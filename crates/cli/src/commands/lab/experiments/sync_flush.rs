//! A pool larger than the data, a log much smaller than what is dirtied, a slow device: lazy flushing until three
//! quarters of the log are full, then everybody waits.

use super::{BYTES_PER_S, Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::{SlowDevice, SlowTime, Tables};
use crate::commands::lab::laboratory::{Arm, tables};
use crate::commands::lab::outcome::{Figures, Outcome};
use crate::exit::Failure;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "sync-flush",
    title: "a log that is three quarters full: seconds of silence, their cures, and a device that slows down",
    source: "text 003 and its comments",
    run,
};

/// Some 128 MiB.
const TABLES: Tables = Tables { count: 4, rows: 150_000 };
const THREADS: usize = 16;
const PHASE: &str = "updates on a slow device";

/// Writes a second.
const WRITES_PER_S: f64 = 1_500.0;

fn run(lab: &Lab) -> Result<Findings, Failure> {
    let seconds = lab.seconds(16, 40);
    // In the middle it has 30 % of its speed.
    let slow = SlowTime { from_s: seconds as f64 / 2.0, for_s: seconds as f64 / 5.0, every_s: 0.0, factor: 0.3 };
    let device = SlowDevice { writes_per_s: WRITES_PER_S, bytes_per_s: BYTES_PER_S, slower: vec![slow] };
    let common = ["buffer_pool_size=192MiB", "redo_capacity=128MiB", "durability=background(1s)"];
    let with = |words: &[&'static str]| [&common[..], words].concat();
    let of_5_5 = |words: &[&'static str]| with(&[&["profile=mysql-5.5", "flush_neighbors=none"], words].concat());
    let of_5_6 = |words: &[&'static str]| with(&[&["profile=mysql-5.6", "flush_neighbors=none"], words].concat());
    let arms = [
        Arm::classic("sync_only", &of_5_5(&[])),
        Arm::classic("  dirty pages 30 %", &of_5_5(&["max_dirty_pages_pct=30"])),
        Arm::classic("  log 32 MiB", &of_5_5(&["redo_capacity=32MiB"])),
        Arm::classic("  pool 64 MiB", &of_5_5(&["buffer_pool_size=64MiB"])),
        Arm::classic("  log 512 MiB", &of_5_5(&["redo_capacity=512MiB"])),
        Arm::classic("adaptive, 200", &of_5_6(&[])),
        Arm::classic("adaptive, 1000", &of_5_6(&["io_capacity=1000", "io_capacity_max=2000"])),
        Arm::classic("adaptive, 4000", &of_5_6(&["io_capacity=4000", "io_capacity_max=8000"])),
        Arm::classic("keep_average", &of_5_5(&["adaptive_flushing_method=keep_average"])),
        Arm::default(&common),
    ]
    .map(|arm| arm.on(&device));
    let base = tables(TABLES.count, TABLES.rows, &["redo_capacity=128MiB"]);
    let phases = [updates(PHASE, TABLES, THREADS, seconds)];
    let settings = lab.in_turn(EXPERIMENT.name, &base, &arms, &phases)?;
    lab.clear();
    let how = format!(
        "{THREADS} threads update rows at random, all in a pool of 192 MiB, a log of 128 MiB, on an imitated device of \
         {}, which from second {:.0} on has 30 % of its speed for {:.0} s; durable within a second.",
        device.text(),
        slow.from_s,
        slow.for_s
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE]);
    findings.loops = Some(("buffer_flush_sync_total_pages", "synced"));
    judge(&mut findings);
    Ok(findings)
}

/// What the text's writer tried against the silence.
const CURES: [&str; 3] = ["  dirty pages 30 %", "  log 32 MiB", "  pool 64 MiB"];

/// The same policy, told differently what the disk can do.
const ADAPTIVE: [&str; 3] = ["adaptive, 200", "adaptive, 1000", "adaptive, 4000"];

/// A wait for which somebody calls a server stalled, in ms.
const STALL_MS: f64 = 500.0;

/// The longest time for which somebody waited, or everybody did.
fn longest_ms(of: &Figures) -> f64 {
    of.slowest_ms.max(of.blackout_ms)
}

fn judge(findings: &mut Findings) {
    let figures = |findings: &Findings, name: &str| findings.setting(name).figures(PHASE);
    let lazy = figures(findings, "sync_only");
    let own = findings.default().figures(PHASE);
    let most = |of: fn(&Outcome) -> f64| findings.default().most(PHASE, of);
    let walls = most(|run| run.number("log_wall_waits"));
    let (silent_s, gap_ms) = (most(|run| run.figures.silent_s), most(|run| run.figures.blackout_ms));
    let (stalls, slowest_ms) = (most(|run| run.figures.stalls), most(|run| run.figures.slowest_ms));
    findings.judge(
        "text 003",
        "flushing lazily until three quarters of the log are full, a server is silent for a second and more",
        lazy.silent_s > 0.0 || lazy.blackout_ms >= 1_000.0,
        format!("{:.0} silent seconds, longest gap {:.0} ms", lazy.silent_s, lazy.blackout_ms),
    );
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
        "text 003",
        "each of its three cures leaves over half of the longest wait, or under half of the throughput",
        cures.iter().all(|(fails, _)| *fails),
        [of_lazy].into_iter().chain(cures.map(|(_, seen)| seen)).collect::<Vec<_>>().join("; "),
    );
    let (small, large) = (figures(findings, "  log 32 MiB"), figures(findings, "  log 512 MiB"));
    findings.judge(
        "text 003, comments",
        "a larger log makes longer stalls, by a fifth at least",
        longest_ms(&large) >= longest_ms(&small) * 1.2,
        format!("the longest {:.0} ms with 32 MiB, {:.0} with 512", longest_ms(&small), longest_ms(&large)),
    );
    let adaptive = ADAPTIVE.map(|name| (name, figures(findings, name)));
    let text = |of: &dyn Fn(&Figures) -> String| {
        adaptive.iter().map(|(name, figures)| format!("{name}: {}", of(figures))).collect::<Vec<_>>().join("; ")
    };
    let seen = text(&|of| format!("{:.0} ms", longest_ms(of)));
    let note = text(&|of| format!("{:.0}/s, longest gap {:.0} ms", of.per_s, of.blackout_ms));
    findings.judge(
        "text 003, comments",
        format!("adaptive stalls at every io_capacity, {STALL_MS:.0} ms and more, on a device that slows down"),
        adaptive.iter().all(|(_, of)| longest_ms(of) >= STALL_MS),
        seen,
    );
    findings.notes.push(format!("By io_capacity: {note}."));
    findings.judge(
        "ours",
        "the default is not silent, and nobody finds the log full, also while the device is slow",
        silent_s == 0.0 && gap_ms < 100.0 && walls == 0.0,
        format!(
            "worst second {:.0} of {:.0}, longest gap {gap_ms:.0} ms, {walls:.0} waits at the wall",
            own.worst_per_s, own.median_per_s
        ),
    );
    findings.judge(
        "ours",
        "no operation stalls with the default",
        stalls == 0.0,
        format!("{stalls:.0} stalls, slowest {slowest_ms:.0} ms"),
    );
    findings.judge_explained("sync_only", PHASE, "log_space");
    findings.judge_throughput(PHASE);
    findings.judge_slowest(PHASE, "sync_only");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{failing, findings_of, outcome};

    /// Places of the claims that do not hold when one setting came to something else.
    fn failing_with(name: &str, change: fn(&mut Outcome)) -> Vec<usize> {
        let settings = [
            ("sync_only", 1_000.0, 4_000.0),
            ("  dirty pages 30 %", 1_200.0, 3_000.0),
            ("  log 32 MiB", 900.0, 2_100.0),
            ("  pool 64 MiB", 300.0, 100.0),
            ("  log 512 MiB", 1_000.0, 9_000.0),
            ("adaptive, 200", 1_000.0, 900.0),
            ("adaptive, 1000", 1_000.0, 700.0),
            ("adaptive, 4000", 1_000.0, 500.0),
            ("keep_average", 1_000.0, 500.0),
            ("default", 2_000.0, 400.0),
        ];
        let setting = |(of, per_s, slowest_ms)| {
            let mut outcome = outcome(PHASE, per_s, slowest_ms, "log_space");
            if of == "sync_only" {
                outcome.figures.blackout_ms = 3_000.0;
            }
            if of == name {
                change(&mut outcome);
            }
            (of, vec![outcome])
        };
        let mut findings = findings_of(settings.map(setting).to_vec());
        judge(&mut findings);
        assert_eq!(findings.verdicts.len(), 9);
        failing(&findings)
    }

    #[test]
    fn each_claim_fails_by_what_contradicts_it_and_by_nothing_else() {
        assert_eq!(failing_with("", |_| {}), [0; 0]);
        assert_eq!(failing_with("sync_only", |of| of.figures.blackout_ms = 999.0), [0]);
        assert_eq!(failing_with("sync_only", |of| (of.figures.blackout_ms, of.figures.silent_s) = (0.0, 1.0)), [0; 0]);
        assert_eq!(failing_with("  log 32 MiB", |of| of.figures.slowest_ms = 2_000.0), [1], "a cure");
        assert_eq!(failing_with("  pool 64 MiB", |of| of.figures.per_s = 500.0), [1], "neither stalls nor slow");
        assert_eq!(failing_with("  log 512 MiB", |of| of.figures.slowest_ms = 2_519.0), [2]);
        assert_eq!(failing_with("adaptive, 1000", |of| of.figures.slowest_ms = 499.0), [3]);
        assert_eq!(failing_with("adaptive, 1000", |of| of.figures.slowest_ms = 500.0), [0; 0]);
        assert_eq!(failing_with("default", |of| of.figures.silent_s = 1.0), [4]);
        assert_eq!(failing_with("default", |of| of.figures.blackout_ms = 100.0), [4]);
        assert_eq!(failing_with("sync_only", |of| of.stalled.parts.clear()), [6]);
        assert_eq!(failing_with("default", |of| of.numbers = [("log_wall_waits".to_owned(), 1)].into()), [4]);
        assert_eq!(failing_with("default", |of| of.figures.stalls = 1.0), [5]);
        assert_eq!(failing_with("default", |of| of.figures.per_s = 1_199.0), [7]);
        assert_eq!(failing_with("default", |of| of.figures.slowest_ms = 401.0), [8]);
    }
}
