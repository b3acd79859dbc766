//! A run as text: sysbench 1.0's lines, field by field, and the calm figures after them.
//!
//! ```text
//! [ 1s ] thds: 16 tps: 9120.31 qps: 9120.31 (r/w/o: 0.00/9120.31/0.00) lat (ms,95%): 1.93 err/s: 0.00 reconn/s: 0.00
//! [ 1s ] queue length: 0, concurrency: 9 p99.9: 4.10 max: 6.02 age: 31% dirty: 22% free: 1804 throttle: 20%
//! ```
//!
//! The first two fields of the second line are shown only with `--rate`, as in sysbench.

use std::fmt::Write as _;

use crate::engine::Wait;
use crate::figures::{IntervalFigures, RunFigures, SeenFigures, WaitsOf};
use crate::probe::{Access, SyncPairs};

/// The note for a run whose transactions run statement by statement.
pub const STATEMENT_BY_STATEMENT: &str = "transactions: statement by statement, each its own commit (--skip-trx)\n";

/// The two lines of an interval, each with a line end.
pub fn interval_lines(figures: &IntervalFigures) -> String {
    let mut text = format!(
        "[ {at:.0}s ] thds: {threads} tps: {tps:.2} qps: {qps:.2} (r/w/o: {read:.2}/{write:.2}/{other:.2}) \
         lat (ms,{percentile}%): {latency:.2} err/s: {errors:.2} reconn/s: 0.00\n[ {at:.0}s ]",
        at = figures.at_s,
        threads = figures.threads,
        tps = figures.transactions_per_s,
        qps = figures.queries_per_s,
        read = figures.reads_per_s,
        write = figures.writes_per_s,
        other = figures.others_per_s,
        percentile = figures.latency_percentile,
        latency = figures.latency_percentile_ms,
        errors = figures.conflicts_per_s,
    );
    if let (Some(length), Some(concurrency)) = (figures.queue_length, figures.concurrency) {
        add(&mut text, format_args!(" queue length: {length}, concurrency: {concurrency}"));
    }
    add(
        &mut text,
        format_args!(
            " p99.9: {:.2} max: {:.2} age: {:.0}% dirty: {:.0}% free: {} throttle: {:.0}%",
            figures.latency_p999_ms,
            figures.latency_max_ms,
            figures.checkpoint_age_percent,
            figures.dirty_frames_percent,
            figures.free_frames,
            figures.throttle_percent,
        ),
    );
    if let Some(machine) = figures.machine {
        let SeenFigures { canary_pair_max_ms, canary_wake_max_ms } = machine;
        add(&mut text, format_args!(" device: {canary_pair_max_ms:.1} cpu: {canary_wake_max_ms:.1}"));
    }
    text.push('\n');
    text
}

/// sysbench's summary of a run.
pub fn summary(figures: &RunFigures) -> String {
    let mut text = String::new();
    add_sql_statistics(&mut text, figures);
    add(
        &mut text,
        format_args!(
            "\nGeneral statistics:\n    total time:                          {:.4}s\n    \
             total number of events:              {}\n\n",
            figures.elapsed_s, figures.transactions,
        ),
    );
    add_latency(&mut text, figures);
    add_fairness(&mut text, figures);
    text
}

/// The `Calm:` block.
pub fn calm_block(figures: &RunFigures) -> String {
    let mut text = String::from("Calm:\n");
    match figures.calm {
        None => text.push_str("    no figures: the run has no whole second\n"),
        Some(calm) => {
            let median = format!("{:.2} tps", calm.median_per_s);
            let brownout = format!("{} s", calm.brownout_s);
            add(
                &mut text,
                format_args!(
                    "    median rate:                         {median:<19}worst second:     {:.2} tps (second {})\n",
                    calm.worst_per_s as f64, calm.worst_second,
                ),
            );
            let blackout = format!("{:.1} ms (device: {:.1} ms)", figures.blackout_ms, figures.device_own_ms());
            let half_of = if figures.is_offered {
                "brownout (under half of the offer):"
            } else {
                "brownout (under half the median):"
            };
            add(&mut text, format_args!("    {half_of:<37}{brownout:<19}blackout (longest gap): {blackout}\n"));
        }
    }
    let stalls = format!("stalls (slower than {} ms):", figures.stall_threshold_ms);
    let waited_for = match figures.waits_of {
        WaitsOf::Clients => "waited for:",
        WaitsOf::ClientsAndWriters => "waited for (writers beside, too):",
    };
    add(
        &mut text,
        format_args!(
            "    {waited_for:<37}{}\n    \
             {stalls:<37}{}\n    \
             syncs:                               log {}, data {}; checkpoints: {}\n    \
             page writes:                         {}, of {:.1} KiB on average\n    \
             law violations:                      {}\n",
            waits_text(&figures.waits),
            figures.stalls,
            figures.log_syncs,
            figures.data_syncs,
            figures.checkpoints,
            figures.page_write_calls,
            figures.page_write_mean_bytes as f64 / 1024.0,
            figures.law_violations,
        ),
    );
    if figures.unserved > 0 {
        add(&mut text, format_args!("    arrived and not begun at the end:    {}\n", figures.unserved));
    }
    add_machine(&mut text, figures);
    text
}

/// Adds the machine's stops beside the run, and the figures with and without them.
fn add_machine(text: &mut String, figures: &RunFigures) {
    let judged = &figures.judged;
    if let Some(machine) = figures.machine {
        add(
            text,
            format_args!(
                "    device beside the run (canary):      pair {:.1} ms, slowest {:.1}; \
                 under the engine's writes {:.1}; stood still {:.0} ms\n    \
                 CPU beside the run (canary):         wake {:.1} ms late, latest {:.1}; stood still {:.0} ms; others took \
                 {:.0} ms\n",
                machine.canary_median_pair_ms,
                machine.canary_worst_pair_ms,
                machine.canary_worst_shared_pair_ms,
                judged.device_stopped_ms,
                machine.canary_median_wake_ms,
                machine.canary_worst_wake_ms,
                judged.cpu_stopped_ms,
                judged.cpu_taken_ms,
            ),
        );
    }
    let brownout_s = figures.calm.map_or(0, |calm| calm.brownout_s);
    let slowest = if figures.is_offered { "slowest from arrival" } else { "slowest" };
    add(
        text,
        format_args!(
            "    measured:                            brownout {brownout_s} s, gap {:.1} ms, \
             {slowest} {:.1} ms, stalls {}\n    \
             without the machine's stops:         brownout {} s, gap {:.1} ms, {slowest} {:.1} ms, stalls {}\n",
            figures.blackout_ms,
            judged.slowest_ms,
            figures.stalls,
            judged.brownout_attributed_s,
            judged.blackout_attributed_ms,
            judged.slowest_attributed_ms,
            judged.stalls_attributed,
        ),
    );
}

/// The last lines of a run: its longest gap, and the verdict.
pub fn verdict_lines(figures: &RunFigures) -> String {
    format!("{}verdict: {}\n", wrapped(&figures.sentence()), figures.judged.verdict_text())
}

/// A line's parts, which end with a comma or a semicolon, in lines of at most 120 columns.
fn wrapped(line: &str) -> String {
    let (mut text, mut columns) = (String::new(), 0);
    for part in line.split_inclusive(&[',', ';']) {
        let len = part.chars().count();
        if columns > 0 && columns + len > COLUMNS {
            text.push_str("\n   ");
            columns = 3;
        }
        text.push_str(part);
        columns += len;
    }
    text.push('\n');
    text
}

/// Columns of a line of text.
const COLUMNS: usize = 120;

/// The waits as text.
fn waits_text(waits: &[Wait]) -> String {
    let text = |wait: &Wait| {
        let ms = wait.total_us as f64 / 1e3;
        format!("{} {} x {:.2} ms", wait.class, wait.count, ms / wait.count as f64)
    };
    if waits.is_empty() { "nothing".to_owned() } else { waits.iter().map(text).collect::<Vec<_>>().join(", ") }
}

/// The probe's line: the sync pairs of one thread on the device.
pub fn device_line(device: &SyncPairs) -> String {
    let how = match device.access {
        Access::Direct => "one thread",
        Access::Cached => "one thread, through the page cache",
    };
    format!("device: {:.0} write+sync pairs/s ({how})\n", device.per_s)
}

/// The line that says that tables and indexes agree.
pub fn verified_line(rows: u64, entries: u64) -> String {
    format!("verified: {rows} rows, {entries} index entries\n")
}

/// The line of the average number of commits that shared a sync of the log.
pub fn commits_per_sync_line(commits_per_log_sync: f64) -> String {
    format!("commits per log sync: {commits_per_log_sync:.1}\n")
}

fn add_sql_statistics(text: &mut String, figures: &RunFigures) {
    add(
        text,
        format_args!(
            "SQL statistics:\n    queries performed:\n        \
             read:                            {}\n        \
             write:                           {}\n        \
             other:                           {}\n        \
             total:                           {}\n",
            figures.reads, figures.writes, figures.others, figures.queries,
        ),
    );
    for (name, count, per_s) in [
        ("transactions:", figures.transactions, figures.transactions_per_s),
        ("queries:", figures.queries, figures.queries_per_s),
        ("ignored errors:", figures.conflicts, figures.conflicts_per_s),
        ("reconnects:", 0, 0.0),
    ] {
        add(text, format_args!("    {name:<37}{count:<6} ({per_s:.2} per sec.)\n"));
    }
}

fn add_latency(text: &mut String, figures: &RunFigures) {
    text.push_str("Latency (ms):\n");
    let mut line = |name: &str, ms: f64| add(text, format_args!("        {name:<33}{ms:>10.2}\n"));
    line(" min:", figures.latency_min_ms);
    line(" avg:", figures.latency_mean_ms);
    line(" max:", figures.latency_max_ms);
    if figures.latency_percentile > 0 {
        line(&format!("{:>3}th percentile:", figures.latency_percentile), figures.latency_percentile_ms);
    } else {
        text.push_str("         percentile stats:               disabled\n");
    }
    add(text, format_args!("        {:<33}{:>10.2}\n", " sum:", figures.latency_sum_ms));
}

fn add_fairness(text: &mut String, figures: &RunFigures) {
    add(
        text,
        format_args!(
            "\nThreads fairness:\n    \
             events (avg/stddev):           {:.4}/{:.2}\n    \
             execution time (avg/stddev):   {:.4}/{:.2}\n\n",
            figures.thread_transactions_mean,
            figures.thread_transactions_deviation,
            figures.thread_time_mean_s,
            figures.thread_time_deviation_s,
        ),
    );
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::Seen;
    use crate::canary::log::MachineLog;
    use crate::driver::{Finished, Interval, Queue};
    use crate::engine::{Counters, Gauges};
    use crate::figures::Labels;
    use crate::recorder::{Record, Totals};
    use crate::spans::Span;

    const LABELS: Labels = Labels { percentile: 95, stall_threshold_ms: 100 };
    const DEVICE: SyncPairs = SyncPairs { per_s: 9_782.4, worst_ms: 6.84, access: Access::Direct };

    fn record(latencies_us: &[u64]) -> Record {
        let mut record = Record::new();
        for us in latencies_us {
            record.latencies.saturating_record(us * 1_000);
            record.max_ns = record.max_ns.max(us * 1_000);
            record.queries.write += 1;
        }
        record
    }

    fn interval(queue: Option<Queue>) -> Interval {
        Interval {
            at_s: 1.002,
            length_s: 0.5,
            threads: 16,
            record: Record { conflicts: 1, ..record(&[1_000, 2_000, 6_020]) },
            queue,
            gauges: Gauges { age_percent: 31.4, dirty_percent: 21.6, free_frames: 1804, ..Gauges::default() },
            // A fifth of the 9.02 ms that the transactions took.
            throttled_us: 1804,
            machine: None,
        }
    }

    fn finished() -> Finished {
        let thread = |transactions, latency_ms: u64, blackout_ns| Totals {
            transactions,
            latency_ns: latency_ms * 1_000_000,
            min_ns: Some(500_000),
            blackout: Span::new(0, blackout_ns),
            ..Totals::default()
        };
        Finished {
            threads: vec![thread(2, 3, 7_200_000), thread(4, 9, 1)],
            record: Record { conflicts: 3, ..record(&[500, 500, 1_000, 2_000, 2_000, 6_000]) },
            elapsed_s: 2.0,
            seconds: vec![9_118, 9_000, 9_300, 4_000],
            counters: Counters {
                waits: vec![
                    Wait { class: "log_space", count: 0, total_us: 0, stalls: 0 },
                    Wait { class: "free_frame", count: 2, total_us: 1_500, stalls: 0 },
                    Wait { class: "log_flush", count: 6, total_us: 3_000, stalls: 0 },
                ],
                log_syncs: 3,
                page_write_calls: 2,
                page_write_bytes: 12_288,
                checkpoints: 1,
                ..Counters::default()
            },
            ..Finished::default()
        }
    }

    fn figures(finished: &Finished) -> RunFigures {
        RunFigures::of(finished, &DEVICE, LABELS)
    }

    #[test]
    fn interval_of_a_closed_loop_is_sysbenchs_line_and_ours() {
        assert_eq!(
            interval_lines(&IntervalFigures::of(&interval(None), LABELS)),
            "[ 1s ] thds: 16 tps: 6.00 qps: 6.00 (r/w/o: 0.00/6.00/0.00) \
             lat (ms,95%): 6.02 err/s: 2.00 reconn/s: 0.00\n\
             [ 1s ] p99.9: 6.02 max: 6.02 age: 31% dirty: 22% free: 1804 throttle: 20%\n"
        );
    }

    #[test]
    fn interval_of_an_open_loop_has_sysbenchs_queue_first() {
        let text = interval_lines(&IntervalFigures::of(&interval(Some(Queue { length: 4, concurrency: 9 })), LABELS));
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with("[ 1s ] queue length: 4, concurrency: 9 p99.9: "), "{second}");
    }

    #[test]
    fn interval_without_transactions_shows_zeros() {
        let empty = Interval { record: Record::new(), ..interval(None) };
        let text = interval_lines(&IntervalFigures::of(&empty, LABELS));
        assert!(text.contains("tps: 0.00 "), "{text}");
        assert!(text.contains("lat (ms,95%): 0.00 "), "{text}");
    }

    #[test]
    fn summary_is_sysbenchs() {
        assert_eq!(
            summary(&figures(&finished())),
            "SQL statistics:
    queries performed:
        read:                            0
        write:                           6
        other:                           0
        total:                           6
    transactions:                        6      (3.00 per sec.)
    queries:                             6      (3.00 per sec.)
    ignored errors:                      3      (1.50 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          2.0000s
    total number of events:              6

Latency (ms):
         min:                                  0.50
         avg:                                  2.00
         max:                                  6.00
         95th percentile:                      6.00
         sum:                                 12.00

Threads fairness:
    events (avg/stddev):           3.0000/1.00
    execution time (avg/stddev):   0.0060/0.00

"
        );
    }

    #[test]
    fn no_percentile_is_said_as_sysbench_says_it() {
        let none = RunFigures::of(&finished(), &DEVICE, Labels { percentile: 0, ..LABELS });
        let text = summary(&none);
        assert!(text.contains("6.00\n         percentile stats:               disabled\n         sum:  "), "{text}");
        let line = interval_lines(&IntervalFigures::of(&interval(None), Labels { percentile: 0, ..LABELS }));
        assert!(line.contains(" lat (ms,0%): 0.00 err/s: "), "{line}");
    }

    #[test]
    fn calm_block_shows_median_worst_brownout_and_blackout() {
        assert_eq!(
            calm_block(&figures(&finished())),
            "Calm:
    median rate:                         9059.00 tps        worst second:     4000.00 tps (second 4)
    brownout (under half the median):    1 s                blackout (longest gap): 7.2 ms (device: 6.8 ms)
    waited for:                          log_flush 6 x 0.50 ms, free_frame 2 x 0.75 ms
    stalls (slower than 100 ms):         0
    syncs:                               log 3, data 0; checkpoints: 1
    page writes:                         2, of 6.0 KiB on average
    law violations:                      0
    measured:                            brownout 1 s, gap 7.2 ms, slowest 6.0 ms, stalls 0
    without the machine's stops:         brownout 1 s, gap 7.2 ms, slowest 6.0 ms, stalls 0
"
        );
    }

    #[test]
    fn calm_block_tells_unmeasured_waits_and_law_violations() {
        let counters = Counters { law_violations: 2, ..finished().counters };
        let mut beside = figures(&Finished { counters, ..finished() });
        beside.waits_of = WaitsOf::ClientsAndWriters;
        let text = calm_block(&beside);
        assert!(text.contains("\n    waited for (writers beside, too):    log_flush 6 x 0.50 ms, "), "{text}");
        assert!(text.contains("\n    law violations:                      2\n"), "{text}");
    }

    #[test]
    fn sentences_of_a_disturbed_run_are_wrapped() {
        let short = "verdict: calm";
        assert_eq!(wrapped(short), format!("{short}\n"));
        let part = "others took the CPU for 62.0 ms of it";
        let long = format!("the longest gap was 62.0 ms; {part}, {part}, {part}, {part}");
        let text = wrapped(&long);
        assert_eq!(text, format!("the longest gap was 62.0 ms; {part}, {part},\n    {part}, {part}\n"));
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS));
    }

    #[test]
    fn machine_is_shown_beside_the_run_and_in_the_last_lines() {
        const MS: u64 = 1_000_000;
        let mut machine = MachineLog::default();
        (0..30).for_each(|number| machine.device.add(number * 100 * MS, (number * 100 + 2) * MS, 0));
        machine.device.add(3_000 * MS, 4_050 * MS, 0);
        machine.cpu.add(0, 8 * MS, 0);
        let gap = Span::new(2_995 * MS, 4_055 * MS);
        let run = figures(&Finished { machine: Some(machine), last_gap: Some(gap), ..finished() });
        let text = calm_block(&run);
        for line in [
            "blackout (longest gap): 1060.0 ms (device: 1050.0 ms)\n",
            "    device beside the run (canary):      pair 2.0 ms, slowest 1050.0; under the engine's writes 0.0; \
             stood still 1050 ms\n",
            "    CPU beside the run (canary):         wake 8.0 ms late, latest 8.0; stood still 0 ms; others took 0 ms\n",
            "    measured:                            brownout 1 s, gap 1060.0 ms, slowest 6.0 ms, stalls 0\n",
            "    without the machine's stops:         brownout 0 s, gap 7.2 ms, slowest 6.0 ms, stalls 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(
            verdict_lines(&run),
            "the longest gap was 1060.0 ms; the device itself stood still for 1050.0 ms of it\n\
             verdict: inconclusive: the machine stood still; 1 s under half of the median, limit 0 s; \
             longest gap 1060.0 ms, limit 100 ms\n"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
    }

    #[test]
    fn interval_shows_the_canaries_where_there_are_some() {
        let seen = Seen { device_ns: 1_200_000, cpu_late_ns: 50_000 };
        let watched = Interval { machine: Some(seen), ..interval(None) };
        let text = interval_lines(&IntervalFigures::of(&watched, LABELS));
        assert!(text.ends_with(" throttle: 20% device: 1.2 cpu: 0.1\n"), "{text}");
    }

    #[test]
    fn overload_and_a_run_without_a_whole_second_are_said() {
        let short = Finished { seconds: Vec::new(), unserved: 12, ..finished() };
        let text = calm_block(&figures(&short));
        assert!(text.contains("no whole second"), "{text}");
        assert!(text.contains("not begun at the end:    12\n"), "{text}");
    }

    #[test]
    fn device_and_commits_have_a_line_each() {
        assert_eq!(device_line(&DEVICE), "device: 9782 write+sync pairs/s (one thread)\n");
        assert_eq!(
            finished().writes_per_log_sync().map(commits_per_sync_line).as_deref(),
            Some("commits per log sync: 2.0\n")
        );
        let cached = SyncPairs { access: Access::Cached, ..DEVICE };
        assert!(device_line(&cached).contains("through the page cache"));
    }
}
