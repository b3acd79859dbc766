//! The findings as a page: for each experiment its explanation, verdicts, tables, and charts of all settings beside the
//! default.

use maud::{Markup, html};

use super::findings::{About, Findings, Held, Setting, Verdict};
use super::guide::{self, COLUMNS, PARTS, TEXTS};
use super::laboratory::Lab;
use super::outcome::where_slow;
use super::pictures;
use crate::report::charts::{grouped, number};
use crate::report::page;

/// The page.
pub(super) fn of(all: &[Findings], failures: &[String], lab: &Lab) -> String {
    so_far(all, failures, lab, &[])
}

/// The page while some experiments are still to come.
pub(super) fn so_far(all: &[Findings], failures: &[String], lab: &Lab, to_come: &[&str]) -> String {
    let body = html! {
        h1 { "The stall lab" }
        p {
            "Stalls known from InnoDB, on demand: classic settings and the default on the same data, in turn, "
            "or side by side where an experiment says so. "
            @if lab.rounds == 1 { "One round of each." } @else {
                "Figures are medians of " (lab.rounds) " rounds; charts are of the round whose rate is the median."
            }
        }
        (machine(lab))
        (contents(all))
        @for failure in failures { p.bad { "Not run: " (failure) } }
        @if !to_come.is_empty() { p.bad { "Written while the run went on; to come: " (to_come.join(", ")) "." } }
        @for findings in all { (experiment(findings)) }
        @if lab.is_stopped() { p.bad { "Interrupted: what came after this was not run." } }
        (glossary())
        (texts())
    };
    page("lab", &body)
}

fn machine(lab: &Lab) -> Markup {
    let machine = &lab.machine;
    let kind = machine.device_kind.map(|kind| format!("{kind} by what the kernel says"));
    let device = [machine.file_system.as_deref(), machine.device.as_deref(), kind.as_deref()];
    let device: Vec<&str> = device.into_iter().flatten().collect();
    html! {
        p.note {
            "millpond " (env!("CARGO_PKG_VERSION")) ", " (machine.kernel) ", " (number(machine.cpus)) " CPUs, "
            (device.join(", "))
        }
    }
}

/// Table of contents, with the number of claims that hold for each experiment.
fn contents(all: &[Findings]) -> Markup {
    html! {
        div.wide {
            table {
                tr {
                    th { "experiment" }
                    th { "what is seen" }
                    th.number { "of classic settings hold" }
                    th.number { "of Millpond hold" }
                    th.number { "inconclusive" }
                }
                @for findings in all {
                    @let open = findings.verdicts.iter().filter(|of| of.held() == Held::Unknown).count();
                    tr {
                        td { a href=(format!("#{}", findings.name)) { (findings.name) } }
                        td { (findings.title) }
                        td.number { (holding(findings, About::Classic)) }
                        td.number { (holding(findings, About::Millpond)) }
                        td.number { span class=(if open > 0 { "doubtful" } else { "" }) { (open) } }
                    }
                }
            }
        }
        p.note { a href="#words" { "What the words mean" } ", " a href="#texts" { "the texts that are cited" } }
    }
}

/// The number of claims about `about` that hold.
fn holding(findings: &Findings, about: About) -> Markup {
    let of = || findings.verdicts.iter().filter(move |verdict| verdict.about == about);
    let [yes, no] = [Held::Yes, Held::No].map(|held| of().filter(|verdict| verdict.held() == held).count());
    html! { span class=(if no > 0 { "bad" } else { "good" }) { (yes) " of " (of().count()) } }
}

fn experiment(findings: &Findings) -> Markup {
    html! {
        h1 id=(findings.name) { (findings.name) ": " (findings.title) }
        (explained(findings))
        p {
            b { "Here: " } (findings.how)
            @if let Some(ms) = guide::stall_ms(findings) { " An operation of " (number(ms)) " ms or more is a stall." }
        }
        @for note in &findings.notes { p.note { (note) } }
        @for verdict in &findings.verdicts { (verdict_of(verdict)) }
        (pictures::over_quiet(findings))
        @for phase in &findings.phases { (phase_of(findings, phase)) }
        (settings(findings))
    }
}

/// The guide for a user with such a stall.
fn explained(findings: &Findings) -> Markup {
    let Some(guide) = guide::of(findings.name) else { return html! {} };
    let lines = [
        ("What you see", guide.seen),
        ("Why", guide.why),
        ("On your server", guide.on_a_server),
        ("Millpond", guide.here),
    ];
    html! {
        dl { @for (head, text) in lines { dt { (head) } dd { (guide::marked_up(text)) } } }
    }
}

fn verdict_of(verdict: &Verdict) -> Markup {
    html! {
        p.verdict {
            @match verdict.inconclusive {
                Some(why) => { b.doubtful { (why.text()) } }
                None if verdict.holds => { b.good { "holds" } }
                None => { b.bad { "does not hold" } }
            }
            " " (verdict.claim) " " span.note { "(" (cited(verdict.source)) ")" } ": " (verdict.seen)
        }
    }
}

/// A source, with a link if it names a text.
fn cited(source: &str) -> Markup {
    let Some((at, text)) = TEXTS.iter().find_map(|text| Some((source.find(text.number)?, text))) else {
        return html! { (source) };
    };
    let (before, after) = (&source[..at], &source[at + text.number.len()..]);
    html! { (before) a href="#texts" title=(text.title) { (text.number) } (cited(after)) }
}

fn phase_of(findings: &Findings, phase: &str) -> Markup {
    html! {
        h2 { (phase) }
        (table(findings, phase))
        (pictures::of_phase(findings, phase))
    }
}

fn table(findings: &Findings, phase: &str) -> Markup {
    let heads = ["mean", "median", "worst", "brownout", "longest gap", "p99", "p99.9", "slowest", "stalls"];
    html! {
        div.wide {
            table {
                tr {
                    th {}
                    th.number colspan="3" { "transactions a second" }
                    th.number colspan="2" { "calm" }
                    th.number colspan="3" { "response time" }
                    th {}
                    @if findings.loops.is_some() { th {} }
                    th.number colspan="2" { "the machine beside it" }
                    th {}
                }
                tr {
                    th { "setting" }
                    @for head in heads { th.number { (head) } }
                    @if let Some((_, what)) = findings.loops { th.number { (what) } }
                    th.number { "device" }
                    th.number { "CPU" }
                    th { "the slowest waited for" }
                }
                @for setting in findings.settings.iter().filter(|setting| !setting.phase(phase).is_empty()) {
                    (row(findings, setting, phase))
                }
            }
        }
    }
}

fn row(findings: &Findings, setting: &Setting, phase: &str) -> Markup {
    let of = setting.figures(phase);
    html! {
        tr {
            td.name { @if setting.is_default { b { (setting.name) } } @else { (setting.name) } }
            td.number { (whole(of.per_s)) }
            td.number { (whole(of.median_per_s)) }
            td.number { (whole(of.worst_per_s)) }
            td.number { span class=(if of.brownout_s > 0.0 { "bad" } else { "" }) { (of.brownout_s) " s" } }
            td.number { (milli(of.blackout_ms)) }
            td.number { (milli(of.p99_ms)) }
            td.number { (milli(of.p999_ms)) }
            td.number {
                @let is_slow = guide::is_slow(&of, guide::stall_ms(findings));
                span class=(if is_slow { "bad" } else { "" }) { (milli(of.slowest_ms)) }
            }
            td.number { (whole(of.stalls)) }
            @if let Some((counter, _)) = findings.loops {
                td.number { (whole(setting.median(phase, |run| run.number(counter)))) }
            }
            @match setting.machine(phase) {
                Some(machine) => { td.number { (milli(machine.pair_ms)) } td.number { (milli(machine.wake_ms)) } }
                None => { td {} td {} }
            }
            td { (slow(setting, phase)) }
        }
    }
}

/// A figure without its fraction, rounded as in the text and in the verdicts.
pub(super) fn whole(value: f64) -> String {
    grouped(value.round_ties_even() as u64)
}

fn milli(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{} ms", whole(ms)) }
}

fn slow(setting: &Setting, phase: &str) -> Markup {
    let shares = where_slow(&setting.phase(phase));
    let meaning = |name: &str| PARTS.iter().find(|(part, _)| *part == name).map_or("", |(_, meaning)| meaning);
    html! {
        @for (name, share) in shares.iter().take(3).filter(|(_, share)| *share >= 0.5) {
            code title=(meaning(name)) { (name) } (format!("\u{a0}{share:.0}\u{a0}% "))
        }
    }
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

/// The glossary of the page.
fn glossary() -> Markup {
    let rows = |words: &[(&str, &str)], is_code: bool| {
        html! {
            @for (word, meaning) in words {
                tr { td { @if is_code { code { (word) } } @else { (word) } } td { (guide::marked_up(meaning)) } }
            }
        }
    };
    html! {
        h1 id="words" { "What the words mean" }
        h2 { "columns" }
        table.words { (rows(&COLUMNS, false)) }
        h2 { "what the slowest waited for" }
        p.note { "Each wait of an operation is timed under one of these; what is left is its own work, or not told." }
        table.words { (rows(&PARTS, true)) }
    }
}

/// The texts that verdicts cite.
fn texts() -> Markup {
    html! {
        h1 id="texts" { "The texts" }
        p { "Facts and figures are theirs; what is \"ours\" is in none of them." }
        table.words {
            @for text in &TEXTS {
                tr {
                    td { (text.number) }
                    td { (text.author) ": " a href=(text.address) { (text.title) } ", " (text.published) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::marks::Mark;
    use crate::commands::lab::outcome::Outcome;
    use crate::commands::lab::tests::{findings_of, lab, outcome};

    #[test]
    fn only_a_page_written_on_the_way_says_what_is_to_come() {
        let (_dir, lab) = lab();
        let said = "Written while the run went on; to come: hiccup, burst.";
        assert!(so_far(&[], &[], &lab, &["hiccup", "burst"]).contains(said));
        assert!(!of(&[], &[], &lab).contains("to come"));
    }

    #[test]
    fn figures_are_rounded_as_the_text_rounds_them() {
        for value in [0.4, 2.5, 3.5, 21.7, 999.6] {
            assert_eq!(whole(value).replace(',', ""), format!("{value:.0}"));
        }
        assert_eq!(whole(999.6), "1,000");
    }

    #[test]
    fn sources_link_to_the_texts_that_they_name() {
        let shown = cited("text 000, annex 3; text 004").into_string();
        assert_eq!(shown.matches("<a href=\"#texts\"").count(), 2, "{shown}");
        assert!(shown.contains("</a>, annex 3; <a "), "{shown}");
        assert_eq!(cited("ours").into_string(), "ours");
    }

    #[test]
    fn charts_mark_silence_and_events_and_explain_the_experiment() {
        let stalls = Outcome {
            seconds: vec![100, 0, 0, 100],
            worst_ms: vec![1.0, 0.0, 0.0, 2_800.0],
            marks: vec![Mark { from_s: 1.0, to_s: 1.5, what: "the device's writes stand still".into() }],
            ..outcome("stops", 2_049.6, 2_800.0, "free_frame")
        };
        let calm = Outcome { seconds: vec![100; 4], worst_ms: vec![1.0; 4], ..outcome("stops", 100.0, 1.0, "cpu") };
        let mut findings = findings_of(vec![("mysql-8.0", vec![stalls]), ("default", vec![calm])]);
        findings.name = "hiccup";
        findings.phases = vec!["stops".to_owned()];
        let (_dir, lab) = lab();
        let page = of(&[findings], &[], &lab);
        for part in [
            "the device's writes stand still",
            "second 2: 0 ended, the longest 0 ms; 2,800 ms under way, ends later",
            "seconds of this phase",
            "<td class=\"number\">2,050</td>",
            "2,050/s, slowest ",
            "An operation of 100 ms or more is a stall.",
            "On your server",
            "a free frame of the buffer pool",
            "bug.php?id=95390",
        ] {
            assert!(page.contains(part), "no '{part}' in:\n{page}");
        }
        // Two seconds without an end in the upper chart, in the lower one two bars of what was waited for.
        assert_eq!(page.matches("fill=\"#F1C4BF\"").count(), 1 + 4, "and one in the style");
        assert_eq!(page.matches("fill=\"#F0E8CF\"").count(), 1 + 4, "a span in each of the two, and its strip");
    }
}
