//! A pool larger than the data, a log much smaller than what is dirtied, a slow device: lazy flushing until three
//! quarters of the log are full, then everybody waits.

use super::{Experiment, Findings, Lab, updates};
use crate::commands::lab::arm::{SlowDevice, SlowTime, Tables};
use crate::commands::lab::laboratory::{Arm, tables};
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
    let device = SlowDevice { writes_per_s: WRITES_PER_S, slower: vec![slow] };
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
         {WRITES_PER_S:.0} writes and syncs a second, which from second {:.0} on has 30 % of its speed for {:.0} s. \
         durable within a second.",
        slow.from_s, slow.for_s
    );
    let mut findings = EXPERIMENT.findings(how, settings, &[PHASE]);
    findings.loops = Some(("buffer_flush_sync_total_pages", "synced"));
    judge(&mut findings);
    Ok(findings)
}

fn judge(findings: &mut Findings) {
    let figures = |findings: &Findings, name: &str| findings.setting(name).figures(PHASE);
    let lazy = figures(findings, "sync_only");
    let own = findings.default().figures(PHASE);
    findings.judge(
        "text 003",
        "flushing lazily until three quarters of the log are full, a server is silent in between",
        lazy.brownout_s > 0.0 && lazy.worst_per_s < lazy.median_per_s / 4.0,
        format!(
            "{:.0} s under half of the median, worst second {:.0} of {:.0}",
            lazy.brownout_s, lazy.worst_per_s, lazy.median_per_s
        ),
    );
    let stalled = |name: &str| {
        let of = figures(findings, name);
        format!("{} {:.0}/s, slowest {:.0} ms", name.trim(), of.per_s, of.slowest_ms)
    };
    let cures = ["  dirty pages 30 %", "  log 32 MiB", "  pool 64 MiB"].map(stalled).join("; ");
    let cured = ["  dirty pages 30 %", "  log 32 MiB", "  pool 64 MiB"].iter().any(|name| {
        let of = figures(findings, name);
        of.slowest_ms < own.slowest_ms * 2.0 && of.per_s >= own.per_s
    });
    findings.judge("text 003", "none of its three cures cures it", !cured, cures);
    let (small, large) = (figures(findings, "  log 32 MiB"), figures(findings, "  log 512 MiB"));
    findings.judge(
        "text 003, comments",
        "a larger log makes longer stalls",
        large.blackout_ms.max(large.slowest_ms) > small.blackout_ms.max(small.slowest_ms),
        format!("slowest {:.0} ms with 32 MiB, {:.0} with 512", small.slowest_ms, large.slowest_ms),
    );
    let best = ["adaptive, 200", "adaptive, 1000", "adaptive, 4000"].map(|name| figures(findings, name));
    findings.judge(
        "text 003, comments",
        "adaptive depends on io_capacity, which no one setting gets right while the device changes",
        best.iter().all(|of| of.slowest_ms > own.slowest_ms),
        best.iter()
            .map(|of| format!("{:.0}/s, slowest {:.0} ms", of.per_s, of.slowest_ms))
            .collect::<Vec<_>>()
            .join("; "),
    );
    findings.judge(
        "ours",
        "the default is not silent, also while the device is slow",
        own.silent_s == 0.0 && own.blackout_ms < 100.0,
        format!(
            "worst second {:.0} of {:.0}, longest gap {:.0} ms",
            own.worst_per_s, own.median_per_s, own.blackout_ms
        ),
    );
    findings.judge_explained("sync_only", PHASE, &["log_space"]);
    findings.judge_default(PHASE);
}
