//! Pages of synthetic runs, which would take too long as real ones.

use workload::canary::Seen;
use workload::canary::log::MachineLog;
use workload::driver::Finished;
use workload::engine::{Counters, Gauges, Latch, SlowOperation, Wait};
use workload::figures::{Labels, RunFigures};
use workload::probe::{Access, SyncPairs};
use workload::recorder::{Record, Totals};
use workload::timeline::{Point, Timeline};

use super::page;
use crate::commands::bench::facts::{Circumstances, Facts};
use crate::database_files::Bytes;
use crate::engine_args::Origin;
use crate::machine::Machine;
use crate::settings::Setting;

const DEVICE: SyncPairs = SyncPairs { per_s: 9_782.4, worst_ms: 6.84, access: Access::Direct };

/// A run of `seconds` seconds with one bad second, the 1,000th if there are so many.
fn finished(seconds: u64) -> Finished {
    let mut timeline = Timeline::default();
    let mut record = Record::new();
    let mut counts = Vec::new();
    for second in 0..seconds {
        let is_bad = second == 999;
        let wave = (second % 60) as f64;
        let max_ns = if is_bad { 730_000_000 } else { 4_000_000 + second % 7 * 900_000 };
        let gauges = Gauges {
            age_percent: 20.0 + wave / 2.0,
            dirty_percent: 60.0 + wave / 3.0,
            free_frames: 120,
            capacity_pages_per_s: 2_000.0,
            needed_pages_per_s: 1_500.0 + wave,
            log_bytes_per_s: 3e6,
            log_limit_per_s: (wave > 30.0).then_some(2.5e6),
            ..Gauges::default()
        };
        let machine = Seen { device_ns: 3_000_000 + second % 5 * 100_000, cpu_late_ns: 60_000 };
        let queued = second % 3;
        timeline.add_second(Point { max_ns, gauges, throttle_percent: wave / 6.0, waiting_ns: 0, queued, machine });
        counts.push(if is_bad { 9_000 } else { 34_000 + second % 11 * 90 });
        record.latencies.saturating_record_n(300_000 + second * 1_000, 30_000);
        record.latencies.saturating_record(max_ns);
        record.max_ns = record.max_ns.max(max_ns);
    }
    let transactions = counts.iter().sum();
    Finished {
        threads: vec![Totals { transactions, latency_ns: transactions * 400_000, ..Totals::default() }],
        record,
        elapsed_s: seconds as f64,
        seconds: counts,
        offered_per_s: Some(34_500.0),
        machine: Some(canaries(seconds)),
        counters: Counters {
            waits: vec![Wait { class: "log_flush", count: 7, total_us: 7_000_000, stalls: 0 }],
            stalls: 1,
            ..Counters::default()
        },
        timeline,
        slow_operations: vec![SlowOperation {
            operation: "write",
            elapsed_us: 730_000,
            waits: vec![Wait { class: "log_space", count: 1, total_us: 511_000, stalls: 0 }],
            cpu_us: Some(73_000),
            runnable_us: None,
            latch: Some(Latch { page: "leaf 7:3 of tree '<t>'".to_owned(), waited_us: 200_000 }),
        }],
        ..Finished::default()
    }
}

/// A log of the canaries: the device stood still for 700 ms in the bad second.
fn canaries(seconds: u64) -> MachineLog {
    const MS: u64 = 1_000_000;
    let mut log = MachineLog::default();
    for second in 0..seconds {
        let length_ms = if second == 999 { 700 } else { 3 };
        log.device.add(second * 1_000 * MS, (second * 1_000 + length_ms) * MS, 0);
        log.cpu.add(second * 1_000 * MS, second * 1_000 * MS + 60_000, 0);
    }
    log
}

/// The place of the histogram among the charts of a run with an offered rate.
const HISTOGRAM: usize = 3;

/// The page of a run, in a directory of this name.
fn page_of(finished: &Finished, dir: &str) -> String {
    let labels = Labels { percentile: 95, stall_threshold_ms: 100 };
    let facts = Facts {
        on: circumstances(dir),
        is_statement_by_statement: false,
        offered_per_s: Some(34_500.0),
        maximum_per_s: None,
        maximum_is_steady: None,
        figures: RunFigures::of(finished, &DEVICE, labels),
        commits_per_pair: Some(3.5),
        commits_per_log_sync: Some(7.5),
        rows_verified: None,
        entries_verified: None,
        latency_histogram: None,
    };
    page::of_run(&facts, finished)
}

fn circumstances(dir: &str) -> Circumstances {
    Circumstances {
        version: "1.2.3",
        began: "2026-01-02T03:04:05Z".to_owned(),
        workload: "oltp_update_index",
        dir: dir.to_owned(),
        tables: 4,
        table_size: 250_000,
        device_access: "direct",
        io_engine: "threads",
        machine: Machine {
            kernel: "Linux 6.1".to_owned(),
            cpus: 1.5,
            file_system: None,
            device: None,
            device_kind: None,
        },
        bytes: Bytes::default(),
        settings: vec![Setting {
            group: "Workload".to_owned(),
            name: "--dir".to_owned(),
            value: dir.to_owned(),
            origin: Origin::Flag,
        }],
    }
}

/// The page's text, and the number of points of each chart.
fn read(page: &str) -> (String, Vec<usize>) {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(page, options).expect("the page is well formed");
    let text = document.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
    let charts = document.descendants().filter(|node| node.tag_name().name() == "svg");
    let points = |chart: roxmltree::Node<'_, '_>| {
        chart.descendants().filter(|node| node.attribute("class") == Some("field")).count()
    };
    (text, charts.map(points).collect())
}

#[test]
fn hour_is_shown_in_few_points_with_its_worst_second() {
    let (text, points) = read(&page_of(&finished(3_600), "db"));
    assert_eq!(points.len(), 11);
    assert!(points.iter().enumerate().all(|(chart, points)| chart == HISTOGRAM || *points == 300), "{points:?}");
    assert!(text.contains("mean of 12 seconds"), "{text}");
    assert!(text.contains("minutes since the run began"), "{text}");
    assert!(text.contains("seconds 997 to 1008: 32,"), "{text}");
    assert!(text.contains(" tps, from 9,000 to "), "{text}");
    assert!(text.contains("seconds 997 to 1008: 730.00 ms; under way 730.00 ms"), "{text}");
    assert!(text.contains("Verdict: NOT CALM: ") && text.contains("stood still for 700.00 ms by itself"), "{text}");
    assert!(text.contains("under half of the offered rate; without the machine's stops 0 s"), "{text}");
    assert!(text.contains("second 1000; "), "{text}");
}

#[test]
fn a_minute_is_shown_second_by_second() {
    let (text, points) = read(&page_of(&finished(60), "db"));
    assert!(points.iter().enumerate().all(|(chart, points)| chart == HISTOGRAM || *points == 60), "{points:?}");
    assert!(text.contains("offered: 34,500") && text.contains("second 17: 1 queued at the end"), "{text}");
    assert!(
        text.contains("second 17: slowest pair 3.10 ms") && text.contains("second 17: latest wake 0.06 ms"),
        "{text}"
    );
    assert!(text.contains("Verdict: NOT CALM: stalls of 100 ms and longer 1, limit 0."), "{text}");
    assert!(text.contains("commits per log sync7.5"), "{text}");
    assert!(text.contains("second 17: 34,"), "{text}");
    assert!(text.contains("seconds since the run began"), "{text}");
    assert!(!text.contains("mean of"), "{text}");
    assert!(text.contains("log_space") && text.contains("70.0 %"), "511 of 730 ms: {text}");
    assert!(text.contains("longest: leaf 7:3 of tree '<t>' (200.0 ms)."), "{text}");
}

#[test]
fn hanging_second_shows_the_wait_and_no_limit_draws_none() {
    let mut run = finished(20);
    let mut timeline = Timeline::default();
    for (second, point) in run.timeline.points().iter().enumerate() {
        let gauges = Gauges { log_limit_per_s: None, ..point.gauges };
        // One transaction hangs from second 6 to second 9; another one hangs at the end of the run.
        let (max_ns, waiting_ns) = match second {
            5..8 => (0, 0),
            8 => (3_400_000_000, 0),
            19 => (0, 900_000_000),
            _ => (point.max_ns, 0),
        };
        timeline.add_second(Point { max_ns, waiting_ns, gauges, ..*point });
    }
    run.timeline = timeline;
    let (text, _) = read(&page_of(&run, "db"));
    for said in [
        "second 6: 0.00 ms; under way 3400.00 ms",
        "second 7: 0.00 ms; under way 3400.00 ms",
        "second 20: 0.00 ms; under way 900.00 ms",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert!(!text.contains("its limit, where there is one"), "{text}");
    assert!(read(&page_of(&finished(60), "db")).0.contains("its limit, where there is one"));
}

#[test]
fn whatever_a_name_has_in_it_is_shown_and_not_obeyed() {
    let name = "</title></style><script>alert(1)</script>'\"&amp;]]><!--";
    let page = page_of(&finished(3), name);
    assert!(!page.contains("<script"));
    assert!(read(&page).0.contains(name));
}
