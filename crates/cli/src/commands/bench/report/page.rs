//! The page itself. Every text in it goes through the template, which escapes it.

use maud::{Markup, html};
use millpond::ByteSize;
use workload::calm::Calm;
use workload::driver::Finished;
use workload::engine::{Latch, Wait};
use workload::figures::{RunFigures, WaitsOf};
use workload::timeline::Point;
use workload::verdict::Verdict;

use super::machine::machine;
use crate::commands::bench::facts::{Circumstances, Facts};
use crate::engine_args::Origin;
use crate::report::charts::{Curve, HistogramChart, TimeChart, WIDE, bin_name, grouped, number};
use crate::report::multiples::under_way_in;
use crate::report::{bins, page};
use crate::settings::Setting;

/// The page of a run.
pub(in crate::commands::bench) fn of_run(facts: &Facts, finished: &Finished) -> String {
    page(
        &format!("bench: {}", facts.on.workload),
        &html! {
            (heading(facts))
            (run(&facts.figures, Judged::Yes, finished))
            (device(&facts.on, &facts.figures, facts.commits_per_log_sync))
            (settings(&facts.on.settings))
        },
    )
}

/// Whether the page shows a verdict on a run: not for a load or an index build, which last until they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Yes,
    No,
}

/// A run: verdict, charts, waits.
pub(super) fn run(figures: &RunFigures, judged: Judged, finished: &Finished) -> Markup {
    html! {
        @if judged == Judged::Yes { (verdict(figures)) }
        (unserved(figures, finished.offered_per_s))
        (key_figures(figures))
        (throughput(finished))
        (queue(finished))
        (response_times(figures, finished))
        (machine(figures, finished))
        (waits(figures))
        (slow_operations(figures))
        (debts(finished))
        (pace(finished))
    }
}

fn heading(facts: &Facts) -> Markup {
    let figures = &facts.figures;
    let tables = if facts.on.table_size > 0 {
        format!("{} × {} rows", facts.on.tables, grouped(facts.on.table_size))
    } else {
        format!("{} tables, one a thread", facts.on.tables)
    };
    let pace = match (facts.offered_per_s, facts.maximum_per_s) {
        (Some(offered), Some(maximum)) => format!(
            "open loop, {} tps offered ({:.0} % of a maximum of {}{})",
            number(offered),
            offered / maximum * 100.0,
            number(maximum),
            if facts.maximum_is_steady == Some(false) { ", which was not yet steady" } else { "" }
        ),
        (Some(offered), None) => format!("open loop, {} tps offered", number(offered)),
        (None, _) => "closed loop".to_owned(),
    };
    let threads = if figures.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", figures.threads) };
    html! {
        h1 { (facts.on.workload) ", " (threads) ", " (tables) }
        p { (pace) "; " (number(figures.elapsed_s)) " s" @if figures.interrupted { ", " span.bad { "interrupted" } } }
        (origin(&facts.on))
        @if facts.is_statement_by_statement {
            p.note { "Transactions were run statement by statement, each its own commit (--skip-trx)." }
        }
    }
}

/// Version, begin and directory of the run.
pub(super) fn origin(on: &Circumstances) -> Markup {
    html! { p.note { "millpond " (on.version) ", began " (on.began) ", on '" (on.dir) "'" } }
}

/// The verdict, and the part of the longest gap in which the machine stood still.
fn verdict(figures: &RunFigures) -> Markup {
    let judged = &figures.judged;
    let class = match judged.verdict {
        Verdict::Calm => "good",
        Verdict::NotCalm => "bad",
        Verdict::Inconclusive => "doubtful",
    };
    let mut sentence = figures.sentence();
    sentence[..1].make_ascii_uppercase();
    html! {
        p class=(class) { "Verdict: " (judged.verdict_text()) "." }
        p { (sentence) "." }
        @if figures.calm.is_none() {
            p.bad { "The run has no whole second, so nothing can be said about how even it was." }
        }
    }
}

/// Transactions that had arrived and were not begun at the end.
fn unserved(figures: &RunFigures, offered_per_s: Option<f64>) -> Markup {
    // A few are normal; more than the arrivals of a second mean a growing queue.
    let is_overloaded = offered_per_s.is_some_and(|offered| figures.unserved as f64 > offered);
    html! {
        @if figures.unserved > 0 {
            p class=(if is_overloaded { "bad" } else { "note" }) {
                (grouped(figures.unserved)) " transactions had arrived and were not begun when the time was up."
            }
        }
    }
}

/// The key figures, each raw and without the machine's stops.
fn key_figures(figures: &RunFigures) -> Markup {
    let judged = &figures.judged;
    let figure = |name: &str, value: Markup, note: String| {
        html! { div.figure { (name) b { (value) } span.note { (note) } } }
    };
    let half_of = if figures.is_offered { "under half of the offered rate" } else { "under half of the median" };
    html! {
        div.figures {
            @if let Some(Calm { median_per_s, worst_per_s, worst_second, brownout_s }) = figures.calm {
                (figure("median rate", html! { (rate(median_per_s)) " tps" }, format!("mean {} tps", rate(figures.transactions_per_s))))
                (figure(
                    "worst second",
                    html! { (rate(worst_per_s as f64)) " tps" },
                    format!("second {worst_second}; {:.1} % of the median", worst_per_s as f64 / median_per_s.max(1.0) * 100.0),
                ))
                (figure(
                    "brownout",
                    html! { span class=(if brownout_s > 0 { "bad" } else { "" }) { (brownout_s) " s" } },
                    format!("{half_of}; without the machine's stops {} s", judged.brownout_attributed_s),
                ))
            }
            (figure(
                "longest gap",
                html! { (ms(figures.blackout_ms)) " ms" },
                format!(
                    "without a completion; without the machine's stops {} ms, limit {:.0} ms; device: {} ms",
                    ms(judged.blackout_attributed_ms),
                    judged.blackout_limit_ms,
                    ms(figures.device_own_ms()),
                ),
            ))
            (figure(
                if figures.is_offered { "slowest, from arrival" } else { "slowest" },
                html! { (ms(judged.slowest_ms)) " ms" },
                format!(
                    "without the machine's stops {} ms, limit {:.0} ms; 99.9 % within {} ms",
                    ms(judged.slowest_attributed_ms),
                    judged.slowest_limit_ms,
                    ms(figures.latency_p999_ms),
                ),
            ))
            (figure(
                "stalls",
                html! { (figures.stalls) },
                format!(
                    "operations of {} ms and longer, from their begin; without the machine's stops {}",
                    figures.stall_threshold_ms, judged.stalls_attributed
                ),
            ))
        }
    }
}

fn throughput(finished: &Finished) -> Markup {
    let (seconds_each, rates) = bins::rates(&finished.seconds);
    let seconds = finished.seconds.len() as u64;
    let is_binned = seconds_each > 1;
    let band = is_binned.then(|| rates.iter().map(|bin| (bin.least as f64, bin.most as f64)).collect());
    let curve = Curve { values: rates.iter().map(|bin| bin.mean).collect(), band };
    let offered = finished.offered_per_s.map(|offered| Curve { values: vec![offered; rates.len()], band: None });
    let curves: Vec<Curve> = [Some(curve), offered].into_iter().flatten().collect();
    let title = move |bin: usize| {
        let (name, of) = (bin_name(bin, seconds_each, seconds), rates[bin]);
        if of.least == of.most {
            return format!("{name}: {} tps", grouped(of.most));
        }
        format!("{name}: {} tps, from {} to {}", number(of.mean), grouped(of.least), grouped(of.most))
    };
    let chart = time_chart(seconds_each, seconds, curves, None, "transactions per second", title);
    html! {
        h2 { "Throughput" }
        @if is_binned || finished.offered_per_s.is_some() {
            p.note {
                span.key.first {}
                @if is_binned { "mean of " (seconds_each) " seconds" } @else { "completed" }
                @if is_binned { span.key.band {} "from the worst to the best of them" }
                @if let Some(offered) = finished.offered_per_s { span.key.second {} "offered: " (number(offered)) }
            }
        }
        (chart)
    }
}

/// Queue of transactions that arrived and did not begin; nothing without an offered rate.
fn queue(finished: &Finished) -> Markup {
    if finished.offered_per_s.is_none() {
        return html! {};
    }
    let (seconds_each, points) = bins::worst(&finished.timeline);
    let seconds = finished.seconds.len() as u64;
    let curve = Curve { values: points.iter().map(|point| point.queued as f64).collect(), band: None };
    let title = move |bin: usize| {
        format!("{}: {} queued at the end", bin_name(bin, seconds_each, seconds), grouped(points[bin].queued))
    };
    html! {
        h2 { "Queue" }
        p.note { "Transactions that had arrived and were not begun at the end of each " (span_of(seconds_each)) "." }
        (time_chart(seconds_each, seconds, vec![curve], None, "transactions", title))
    }
}

fn response_times(figures: &RunFigures, finished: &Finished) -> Markup {
    let (seconds_each, points) = bins::worst(&finished.timeline);
    let seconds = finished.seconds.len() as u64;
    let ended: Vec<f64> = points.iter().map(|point| point.max_ns as f64 / 1e6).collect();
    // For an operation that ends later, two facts are known: its latest possible begin, and its age at a second's end.
    let drawn_back = under_way_in(&ended, seconds_each);
    let waiting = drawn_back.iter().zip(&points).map(|(ms, point)| ms.max(point.waiting_ns as f64 / 1e6));
    let under_way: Vec<f64> = waiting.collect();
    let band = ended.iter().copied().zip(under_way.iter().copied()).collect();
    let curve = Curve { values: ended.clone(), band: Some(band) };
    let title = move |bin: usize| {
        let name = bin_name(bin, seconds_each, seconds);
        format!("{name}: {} ms; under way {} ms", ms(ended[bin]), ms(under_way[bin]))
    };
    let chart = time_chart(seconds_each, seconds, vec![curve], None, "ms", title);
    html! {
        h2 { "Worst response time" }
        p.note {
            span.key.first {} "of all transactions that ended in each " (span_of(seconds_each))
            span.key.band {} "up to the longest that was under way then"
            @if figures.is_offered { "; from the arrival on" }
        }
        (chart)
        h2 { "Response times" }
        p.note {
            "shortest " (ms(figures.latency_min_ms)) " ms, mean " (ms(figures.latency_mean_ms)) " ms"
            @if figures.latency_percentile > 0 {
                ", " (figures.latency_percentile) " % within " (ms(figures.latency_percentile_ms)) " ms"
            }
            ", 99.9 % within " (ms(figures.latency_p999_ms)) " ms, slowest " (ms(figures.latency_max_ms)) " ms"
        }
        @let bars = bins::latency_bars(&finished.record);
        @if bars.is_empty() { p { "No transaction was completed." } } @else { (HistogramChart { bars }) }
    }
}

fn waits(figures: &RunFigures) -> Markup {
    let share = |us: u64| us as f64 / 1e3 / figures.latency_sum_ms.max(1e-9) * 100.0;
    let waited_us: u64 = figures.waits.iter().map(|wait| wait.total_us).sum();
    let per_transaction = |us: u64| us as f64 / 1e3 / figures.transactions.max(1) as f64;
    // The writers beside the queries have waits in the figures, but no latencies.
    let has_shares = figures.waits_of == WaitsOf::Clients;
    html! {
        h2 { "What was waited for" }
        p.note {
            @if has_shares {
                "Over the whole run, in the engine. The shares are of all response times together, which under a rate \
                 count from the arrival; the rest is work and waiting for a CPU."
            } @else {
                "Over the whole step, in the engine, by all threads: also by those that write beside the queries."
            }
        }
        table {
            tr {
                th { "class" }
                th.number { "waits" }
                th.number { "ms each" }
                @if has_shares { th.number { "ms a transaction" } th.number { "share" } th {} }
            }
            @for Wait { class, count, total_us, .. } in figures.waits.iter().copied() {
                tr {
                    td { code { (class) } }
                    td.number { (grouped(count)) }
                    td.number { (format!("{:.2}", total_us as f64 / 1e3 / count as f64)) }
                    @if has_shares {
                        td.number { (format!("{:.3}", per_transaction(total_us))) }
                        (share_cells(share(total_us)))
                    }
                }
            }
            @if has_shares {
                tr {
                    td { "all" }
                    td.number { (grouped(figures.waits.iter().map(|wait| wait.count).sum())) }
                    td {}
                    td.number { (format!("{:.3}", per_transaction(waited_us))) }
                    (share_cells(share(waited_us)))
                }
                @if figures.is_offered { (before_the_begin(figures)) }
            }
        }
        p.note {
            "syncs of the log: " (grouped(figures.log_syncs)) ", of the data: " (grouped(figures.data_syncs))
            "; checkpoints: " (grouped(figures.checkpoints)) "; writes of pages: " (grouped(figures.page_write_calls))
            ", of " (format!("{:.1}", figures.page_write_mean_bytes as f64 / 1024.0)) " KiB on average; law violations: " (grouped(figures.law_violations))
        }
    }
}

/// Time from arrival to begin, and the rest beside all waits.
fn before_the_begin(figures: &RunFigures) -> Markup {
    let waited_ms = figures.waits.iter().map(|wait| wait.total_us).sum::<u64>() as f64 / 1e3;
    let rest_ms = (figures.latency_sum_ms - figures.queued_sum_ms - waited_ms).max(0.0);
    html! {
        @for (name, ms) in [("queued: arrived and not begun", figures.queued_sum_ms), ("rest", rest_ms)] {
            tr {
                td { (name) }
                td {}
                td {}
                td.number { (format!("{:.3}", ms / figures.transactions.max(1) as f64)) }
                (share_cells(ms / figures.latency_sum_ms.max(1e-9) * 100.0))
            }
        }
    }
}

/// A share in percent, in digits and as a bar.
fn share_cells(percent: f64) -> Markup {
    html! {
        td.number { (format!("{percent:.1} %")) }
        td.bar { div style=(format!("width:{:.1}%", percent.clamp(0.0, 100.0))) {} }
    }
}

/// The most latches that are listed below the slowest operations.
const LATCHES_SHOWN: usize = 3;

fn slow_operations(figures: &RunFigures) -> Markup {
    let slow = &figures.slow_operations;
    let elapsed_us: u64 = slow.iter().map(|operation| operation.elapsed_us).sum();
    let mut parts: Vec<(&str, u64)> = Vec::new();
    for wait in slow.iter().flat_map(|operation| &operation.waits) {
        match parts.iter_mut().find(|(class, _)| *class == wait.class) {
            Some((_, total_us)) => *total_us += wait.total_us,
            None => parts.push((wait.class, wait.total_us)),
        }
    }
    parts.push(("cpu", slow.iter().filter_map(|operation| operation.cpu_us).sum()));
    parts.push(("runnable, without a CPU", slow.iter().filter_map(|operation| operation.runnable_us).sum()));
    parts.sort_by_key(|(_, us)| std::cmp::Reverse(*us));
    let latch = |of: &Latch| format!("{} ({:.1} ms)", of.page, of.waited_us as f64 / 1e3);
    let latches: Vec<String> = slow.iter().filter_map(|of| of.latch.as_ref().map(latch)).take(LATCHES_SHOWN).collect();
    html! {
        h2 { "The slowest operations" }
        @if slow.is_empty() {
            p { "The engine remembers none." }
        } @else {
            p.note {
                "Of the engine, the " (slow.len()) " slowest"
                @if figures.waits_of == WaitsOf::ClientsAndWriters { ", also of those that write beside" }
                ", each from its begin; "
                (figures.stalls) " took " (figures.stall_threshold_ms) " ms or longer. "
                "Where the time went (of CPU at most what is left beside the waits):"
            }
            table {
                tr { th { "where" } th.number { "ms an operation" } th.number { "share" } th {} }
                @for (class, us) in &parts {
                    tr {
                        td { code { (class) } }
                        td.number { (format!("{:.1}", *us as f64 / 1e3 / slow.len() as f64)) }
                        (share_cells(*us as f64 * 100.0 / elapsed_us.max(1) as f64))
                    }
                }
            }
            @if !latches.is_empty() {
                p.note { "The page latches for which they waited longest: " (latches.join("; ")) "." }
            }
        }
    }
}

fn debts(finished: &Finished) -> Markup {
    let (seconds_each, points) = bins::worst(&finished.timeline);
    let seconds = finished.seconds.len() as u64;
    let curve = |values: Vec<f64>| Curve { values, band: None };
    let ages: Vec<f64> = points.iter().map(|point| point.gauges.age_percent).collect();
    let dirty: Vec<f64> = points.iter().map(|point| point.gauges.dirty_percent).collect();
    let free: Vec<f64> = points.iter().map(|point| point.gauges.free_frames as f64).collect();
    let shares_title = {
        let (ages, dirty) = (ages.clone(), dirty.clone());
        move |bin: usize| {
            let name = bin_name(bin, seconds_each, seconds);
            format!("{name}: checkpoint age {:.1} %, dirty {:.1} %", ages[bin], dirty[bin])
        }
    };
    let free_title = {
        let points = points.clone();
        move |bin: usize| {
            let name = bin_name(bin, seconds_each, seconds);
            format!("{name}: {} free frames", grouped(points[bin].gauges.free_frames))
        }
    };
    let shares = vec![curve(ages), curve(dirty)];
    html! {
        h2 { "Debts" }
        p.note {
            span.key.first {} "checkpoint age, of what the log may hold"
            span.key.second {} "dirty frames, of all"
            @if seconds_each > 1 { "; the highest of " (seconds_each) " seconds" }
        }
        (time_chart(seconds_each, seconds, shares, Some(100.0), "percent", shares_title))
        p.note {
            span.key.first {} "free frames"
            @if seconds_each > 1 { "; the fewest of " (seconds_each) " seconds" }
        }
        (time_chart(seconds_each, seconds, vec![curve(free)], None, "frames", free_title))
    }
}

/// The controller's inputs and its reactions.
fn pace(finished: &Finished) -> Markup {
    let (seconds_each, points) = bins::worst(&finished.timeline);
    let seconds = finished.seconds.len() as u64;
    let of = |value: fn(&Point) -> f64| -> Vec<f64> { points.iter().map(value).collect() };
    let chart = |curves: Vec<Vec<f64>>, top, upward, title: Box<dyn Fn(usize) -> String>| {
        let curves = curves.into_iter().map(|values| Curve { values, band: None }).collect();
        time_chart(seconds_each, seconds, curves, top, upward, move |bin| {
            format!("{}: {}", bin_name(bin, seconds_each, seconds), title(bin))
        })
    };
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let (capacity, needed) = (of(|of| of.gauges.capacity_pages_per_s), of(|of| of.gauges.needed_pages_per_s));
    let grows: Vec<f64> = points.iter().map(|point| mib(point.gauges.log_bytes_per_s)).collect();
    // Without a limit the line has a gap.
    let limits: Vec<f64> = points.iter().map(|point| limit_of(point).map_or(f64::NAN, mib)).collect();
    let is_limited = limits.iter().any(|limit| !limit.is_nan());
    let throttled = of(|of| of.throttle_percent);
    let pages_title = {
        let (capacity, needed) = (capacity.clone(), needed.clone());
        Box::new(move |bin: usize| {
            format!("the device writes {:.0}, needed are {:.0} a second", capacity[bin], needed[bin])
        })
    };
    let log_title = {
        let (grows, points) = (grows.clone(), points.clone());
        Box::new(move |bin: usize| {
            let limit = limit_of(&points[bin]).map_or("none".to_owned(), |limit| format!("{:.1} MiB/s", mib(limit)));
            format!("the log grows by {:.1} MiB/s, limit: {limit}", grows[bin])
        })
    };
    let throttle_title = {
        let throttled = throttled.clone();
        Box::new(move |bin: usize| format!("slowed down for {:.1} % of the time", throttled[bin]))
    };
    html! {
        h2 { "Pace" }
        p.note {
            span.key.first {} "pages a second that the device was found to write"
            span.key.second {} "needed for the log"
        }
        (chart(vec![capacity, needed], None, "pages/s", pages_title))
        p.note {
            span.key.first {} "growth of the log, as it is made"
            @if is_limited { span.key.second {} "its limit, where there is one" }
        }
        (chart(vec![grows, limits], None, "MiB/s", log_title))
        p.note {
            span.key.first {} "time for which threads were slowed down, of all their time"
        }
        (chart(vec![throttled], Some(100.0), "percent", throttle_title))
    }
}

/// The limit of the log's growth; `None` if it is four times the actual growth or more.
fn limit_of(point: &Point) -> Option<f64> {
    point.gauges.log_limit_per_s.filter(|limit| *limit < 4.0 * point.gauges.log_bytes_per_s)
}

/// A chart, or a sentence if there is no second to show.
pub(super) fn time_chart(
    seconds_each: u64,
    seconds: u64,
    curves: Vec<Curve>,
    top: Option<f64>,
    upward: &'static str,
    title: impl Fn(usize) -> String + 'static,
) -> Markup {
    if seconds == 0 || curves.iter().any(|curve| curve.values.is_empty()) {
        return html! { p { "The run has no whole second." } };
    }
    html! { (TimeChart { seconds_each, seconds, curves, top, upward, size: WIDE, title: Box::new(title) }) }
}

/// Figures of device and machine; for one workload also the commits per sync.
pub(super) fn device(on: &Circumstances, figures: &RunFigures, per_log_sync: Option<f64>) -> Markup {
    let (machine, bytes) = (&on.machine, &on.bytes);
    let size = |bytes: u64| ByteSize::b(bytes).to_string();
    let unknown = || "not told by the system".to_owned();
    let rows = [
        (
            "device by itself",
            format!(
                "{} pairs of a 4 KiB write and its sync per second, one thread, {}; slowest {} ms",
                number(figures.device_pairs_per_s),
                if on.device_access == "direct" { "direct I/O" } else { "through the page cache" },
                ms(figures.device_worst_pair_ms)
            ),
        ),
        ("commits per log sync", per_log_sync.map_or("not comparable".to_owned(), |ratio| format!("{ratio:.1}"))),
        ("file system", machine.file_system.clone().unwrap_or_else(unknown)),
        ("device", machine.device.clone().unwrap_or_else(unknown)),
        ("its kind, as the kernel has it", machine.device_kind.map_or_else(unknown, str::to_owned)),
        ("transfers by", on.io_engine.to_owned()),
        ("kernel", machine.kernel.clone()),
        ("CPUs", number(machine.cpus)),
        ("data file", size(bytes.data_bytes)),
        ("log files", size(bytes.log_bytes)),
        ("other files", size(bytes.other_bytes)),
    ];
    html! {
        h2 { "Device and machine" }
        table.facts { @for (name, value) in rows { tr { td { (name) } td { (value) } } } }
    }
}

pub(super) fn settings(settings: &[Setting]) -> Markup {
    let mut groups: Vec<&str> = Vec::new();
    for setting in settings {
        if !groups.contains(&setting.group.as_str()) {
            groups.push(&setting.group);
        }
    }
    let origin = |origin| match origin {
        Origin::Flag => "given",
        Origin::Environment => "environment",
        Origin::File => "file",
        Origin::Profile => "the profile's",
        Origin::Database => "the database's",
        Origin::Default => "",
    };
    html! {
        h2 { "Settings" }
        p.note { "Every option of the command; without a word at the end: the default." }
        @for group in groups {
            h3 { (group) }
            table.facts {
                @for setting in settings.iter().filter(|setting| setting.group == group) {
                    tr {
                        td { code { (setting.name) } }
                        td { code { (setting.value) } }
                        td.note { (origin(setting.origin)) }
                    }
                }
            }
        }
    }
}

/// A rate, with the digits of the text report.
pub(super) fn rate(per_s: f64) -> String {
    let hundredths = (per_s * 100.0).round() as u64;
    format!("{}.{:02}", grouped(hundredths / 100), hundredths % 100)
}

pub(super) fn ms(ms: f64) -> String {
    format!("{ms:.2}")
}

pub(super) fn span_of(seconds_each: u64) -> String {
    if seconds_each == 1 { "second".to_owned() } else { format!("{seconds_each} seconds") }
}
