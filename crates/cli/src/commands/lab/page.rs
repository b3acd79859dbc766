//! What was found, as a page: for each experiment verdicts, tables, and charts of all settings side by side.

use maud::{Markup, html};

use super::findings::{Findings, Setting, Verdict};
use super::laboratory::Lab;
use super::outcome::{Outcome, where_slow};
use crate::report::charts::{Curve, HALF, HistogramChart, TimeChart, bin_name, grouped, number};
use crate::report::page;

/// The page.
pub(super) fn of(all: &[Findings], failures: &[String], lab: &Lab) -> String {
    let body = html! {
        h1 { "The stall lab" }
        p {
            "Stalls that users of InnoDB know, made on demand: classic settings and the default, in turn on the same data. "
            (if lab.rounds == 1 { "One round of each.".to_owned() } else { format!("Medians of {} rounds.", lab.rounds) })
        }
        (machine(lab))
        (contents(all))
        @for failure in failures { p.bad { "Not run: " (failure) } }
        @for findings in all { (experiment(findings)) }
        @if lab.is_stopped() { p.bad { "Interrupted: what came after this was not run." } }
    };
    page("lab", &body)
}

fn machine(lab: &Lab) -> Markup {
    let machine = &lab.machine;
    let device = [machine.file_system.as_deref(), machine.device.as_deref(), machine.device_kind];
    let device: Vec<&str> = device.into_iter().flatten().collect();
    html! {
        p.note { "millpond " (env!("CARGO_PKG_VERSION")) ", " (machine.kernel) ", " (number(machine.cpus)) " CPUs, " (device.join(", ")) }
    }
}

/// How many claims hold of each.
fn contents(all: &[Findings]) -> Markup {
    html! {
        table {
            tr { th { "experiment" } th { "what is seen" } th.number { "claims" } th.number { "hold" } }
            @for findings in all {
                @let holding = findings.verdicts.iter().filter(|verdict| verdict.holds).count();
                tr {
                    td { a href=(format!("#{}", findings.name)) { (findings.name) } }
                    td { (findings.title) }
                    td.number { (findings.verdicts.len()) }
                    td.number { span class=(if findings.holds() { "good" } else { "bad" }) { (holding) } }
                }
            }
        }
    }
}

fn experiment(findings: &Findings) -> Markup {
    html! {
        h1 id=(findings.name) { (findings.name) ": " (findings.title) }
        p { (findings.how) }
        @for note in &findings.notes { p.note { (note) } }
        @for verdict in &findings.verdicts { (verdict_of(verdict)) }
        @for phase in &findings.phases { (phase_of(findings, phase)) }
        (settings(findings))
    }
}

fn verdict_of(verdict: &Verdict) -> Markup {
    html! {
        p.verdict {
            @if verdict.holds { b.good { "holds" } } @else { b.bad { "does not hold" } }
            " " (verdict.claim) " " span.note { "(" (verdict.source) ")" } ": " (verdict.seen)
        }
    }
}

fn phase_of(findings: &Findings, phase: &str) -> Markup {
    html! {
        h2 { (phase) }
        (table(findings, phase))
        (charts(findings, phase))
    }
}

fn table(findings: &Findings, phase: &str) -> Markup {
    let heads = ["a second", "median", "worst second", "brownout", "longest gap", "p99", "p99.9", "slowest", "stalls"];
    html! {
        table {
            tr {
                th { "setting" }
                @for head in heads { th.number { (head) } }
                @if let Some((_, what)) = findings.loops { th.number { (what) } }
                th { "the slowest waited for" }
            }
            @for setting in findings.settings.iter().filter(|setting| !setting.phase(phase).is_empty()) {
                @let of = setting.figures(phase);
                tr {
                    td.name { @if setting.is_default { b { (setting.name) } } @else { (setting.name) } }
                    td.number { (grouped(of.per_s as u64)) }
                    td.number { (grouped(of.median_per_s as u64)) }
                    td.number { (grouped(of.worst_per_s as u64)) }
                    td.number { span class=(if of.brownout_s > 0.0 { "bad" } else { "" }) { (of.brownout_s) " s" } }
                    td.number { (milli(of.blackout_ms)) }
                    td.number { (milli(of.p99_ms)) }
                    td.number { (milli(of.p999_ms)) }
                    td.number { span class=(if of.stalls > 0.0 { "bad" } else { "" }) { (milli(of.slowest_ms)) } }
                    td.number { (of.stalls) }
                    @if let Some((counter, _)) = findings.loops {
                        td.number { (grouped(setting.median(phase, |run| run.number(counter)) as u64)) }
                    }
                    td { (slow(setting, phase)) }
                }
            }
        }
    }
}

fn milli(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{} ms", grouped(ms.round() as u64)) }
}

fn slow(setting: &Setting, phase: &str) -> Markup {
    let shares = where_slow(&setting.phase(phase));
    html! {
        @for (name, share) in shares.iter().take(3).filter(|(_, share)| *share >= 1.0) {
            code { (name) } " " (format!("{share:.0} % "))
        }
    }
}

/// Seconds that a chart shows at least: fewer are in the table.
const CHART_S: usize = 4;

/// Charts of each setting's last round, with the same axes; of a short one all response times alone.
fn charts(findings: &Findings, phase: &str) -> Markup {
    let last: Vec<(&Setting, &Outcome)> =
        findings.settings.iter().filter_map(|setting| Some((setting, *setting.phase(phase).last()?))).collect();
    let has_chart = |outcome: &Outcome| outcome.seconds.len() >= CHART_S;
    let most = |of: fn(&Outcome) -> f64| last.iter().map(|(_, outcome)| of(outcome)).fold(0.0, f64::max) * 1.08;
    let rate_top = most(|outcome| outcome.seconds.iter().copied().max().unwrap_or(0) as f64);
    let worst_top = most(|outcome| outcome.worst_ms.iter().copied().fold(0.0, f64::max));
    let client_top =
        most(|outcome| outcome.clients.iter().flat_map(|of| &of.seconds).copied().max().unwrap_or(0) as f64);
    let rates = |outcome: &Outcome| outcome.seconds.iter().map(|count| *count as f64).collect::<Vec<f64>>();
    html! {
        div.pairs {
            @for (setting, outcome) in last.iter().filter(|(_, of)| has_chart(of) || !of.bars.is_empty()) {
                div {
                    h3 { (setting.name) }
                    @if has_chart(outcome) {
                        (chart(rates(outcome), rate_top, "completions in each second", ""))
                        (chart(outcome.worst_ms.clone(), worst_top, "worst response of each second, ms", " ms"))
                        (clients(outcome, client_top, worst_top))
                    }
                    @if !outcome.bars.is_empty() {
                        details { summary.note { "all response times" } (HistogramChart { bars: outcome.bars.clone() }) }
                    }
                }
            }
        }
    }
}

/// The same charts with a curve for each client, where each has a table of its own.
fn clients(outcome: &Outcome, rate_top: f64, worst_top: f64) -> Markup {
    if outcome.clients.is_empty() {
        return html! {};
    }
    let rates = outcome.clients.iter().map(|of| of.seconds.iter().map(|count| *count as f64).collect()).collect();
    let worst = outcome.clients.iter().map(|of| of.worst_ms.clone()).collect();
    html! {
        (curves(rates, rate_top, "the same, a curve for each client: completions", ""))
        (curves(worst, worst_top, "worst response, ms", " ms"))
    }
}

fn chart(values: Vec<f64>, top: f64, upward: &'static str, unit: &'static str) -> Markup {
    curves(vec![values], top, upward, unit)
}

fn curves(all: Vec<Vec<f64>>, top: f64, upward: &'static str, unit: &'static str) -> Markup {
    let seconds = all.first().map_or(0, Vec::len) as u64;
    let shown = all.clone();
    let title = move |bin: usize| {
        let of_bin = || shown.iter().filter_map(|values| values.get(bin).copied());
        let (least, most) = (of_bin().fold(f64::INFINITY, f64::min), of_bin().fold(0.0, f64::max));
        let values = if shown.len() == 1 { number(most) } else { format!("{} to {}", number(least), number(most)) };
        format!("{}: {values}{unit}", bin_name(bin, 1, seconds))
    };
    let curves = all.into_iter().map(|values| Curve { values, band: None }).collect();
    html! { (TimeChart { seconds_each: 1, seconds, curves, top: Some(top), upward, size: HALF, title: Box::new(title) }) }
}

fn settings(findings: &Findings) -> Markup {
    html! {
        details {
            summary.note { "the settings" }
            table.facts {
                @for setting in &findings.settings {
                    tr {
                        td { (setting.name) }
                        td { @for (name, value) in &setting.options { code { (name) "=" (value) } " " } }
                    }
                }
            }
        }
    }
}
