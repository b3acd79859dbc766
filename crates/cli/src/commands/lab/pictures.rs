//! The charts of an experiment: small charts of each setting in each phase on the same axes, with the default's curve
//! behind the others' curves; and a chart of waits over the quiet time before them.

use maud::{Markup, html};

use super::findings::{Findings, Setting};
use super::guide;
use super::outcome::Outcome;
use super::page::whole;
use crate::report::charts::{HALF, HistogramChart, grouped, number};
use crate::report::multiples::{QuietChart, Scale, SmallChart, Values, under_way};

/// The least seconds of a chart; a shorter phase is only in the table.
const CHART_S: usize = 4;

/// Rates smaller than the highest of the phase by this factor get a scale of their own.
const OWN_SCALE: f64 = 8.0;

/// A shown round: its number, from 1, and the number of rounds.
struct Shown<'a> {
    setting: &'a Setting,
    round: usize,
    rounds: usize,
    outcome: &'a Outcome,
}

impl<'a> Shown<'a> {
    /// The round with the median rate; for an even number of rounds the lower one of the two in the middle.
    fn of(setting: &'a Setting, phase: &str) -> Option<Shown<'a>> {
        let mut rounds: Vec<(usize, &Outcome)> = (1..).zip(setting.phase(phase)).collect();
        rounds.sort_by(|a, b| a.1.figures.per_s.total_cmp(&b.1.figures.per_s));
        let (round, outcome) = *rounds.get(rounds.len().checked_sub(1)? / 2)?;
        Some(Shown { setting, round, rounds: rounds.len(), outcome })
    }

    fn has_chart(&self) -> bool {
        self.outcome.seconds.len() >= CHART_S
    }

    fn rates(&self) -> Vec<f64> {
        self.outcome.seconds.iter().map(|count| *count as f64).collect()
    }

    /// The longest operation under way in each second, in ms.
    fn under_way(&self) -> Vec<f64> {
        under_way(&self.outcome.worst_ms)
    }
}

/// Scales and curves that the charts of a phase share.
struct Common {
    top_rate: f64,
    waits: Scale,
    threshold: Option<f64>,
    rates: Option<Vec<f64>>,
    under_way: Option<Vec<f64>>,
}

/// The charts of a phase, and all response times.
pub(super) fn of_phase(findings: &Findings, phase: &str) -> Markup {
    let shown: Vec<Shown> = findings.settings.iter().filter_map(|setting| Shown::of(setting, phase)).collect();
    let charted: Vec<&Shown> = shown.iter().filter(|of| of.has_chart()).collect();
    html! {
        @if !charted.is_empty() {
            (key(&charted, findings))
            div.cards { @for of in &charted { (card(of, &common(&charted, findings), phase)) } }
        }
        @if shown.iter().any(|of| !of.outcome.bars.is_empty()) {
            details {
                summary.note { "all response times" }
                div.pairs {
                    @for of in shown.iter().filter(|of| !of.outcome.bars.is_empty()) {
                        div {
                            h3 { (of.setting.name.trim()) }
                            (HistogramChart { bars: of.outcome.bars.clone() }.of_size(HALF))
                        }
                    }
                }
            }
        }
    }
}

fn common(charted: &[&Shown], findings: &Findings) -> Common {
    let waits = || charted.iter().flat_map(|of| of.outcome.worst_ms.iter().copied()).filter(|ms| *ms > 0.0);
    let threshold = guide::stall_ms(findings);
    let most = waits().chain(threshold).fold(0.0, f64::max);
    let default = charted.iter().find(|of| of.setting.is_default);
    Common {
        top_rate: charted.iter().map(|of| highest(&of.rates())).fold(1.0, f64::max) * 1.08,
        waits: Scale::log_ms(waits().fold(most, f64::min), most),
        threshold,
        rates: default.map(|of| of.rates()),
        under_way: default.map(|of| of.under_way()),
    }
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The key of the charts, in one line.
fn key(charted: &[&Shown], findings: &Findings) -> Markup {
    let mut around: Vec<&str> =
        charted.iter().flat_map(|of| &of.outcome.marks).map(|mark| mark.what.as_str()).collect();
    around.sort_unstable();
    around.dedup();
    html! {
        p.note.keys {
            span { span.key.block.first {} "longest wait that ended in the second, by powers of ten" }
            @if let Some(ms) = guide::stall_ms(findings) {
                span { span.key.block.bad {} "the same, over " span.key.bad {} (number(ms)) " ms, the stall threshold" }
            }
            span { span.key.block.waited {} "waited for, and ends later; in the upper chart: nothing ended" }
            @if charted.iter().any(|of| of.setting.is_default) && charted.len() > 1 {
                span { span.key.ghost {} "the default" }
            }
            @if !around.is_empty() { span { span.key.block.around {} (around.join("; ")) } }
        }
    }
}

fn card(of: &Shown, common: &Common, phase: &str) -> Markup {
    let median = of.setting.figures(phase);
    let ghost = |curve: &Option<Vec<f64>>| curve.clone().filter(|_| !of.setting.is_default);
    let highest = highest(&of.rates());
    let is_own = highest > 0.0 && highest * OWN_SCALE < common.top_rate;
    let top = if is_own { highest * 1.08 } else { common.top_rate };
    let small = |scale, values, ghost, upward: String| small(of, scale, values, ghost, upward);
    let rates = small(
        Scale::Linear { top },
        Values::Line(of.rates()),
        ghost(&common.rates).filter(|_| !is_own),
        format!("transactions in each second{}", if is_own { ", a scale of its own" } else { "" }),
    );
    let waits = Values::Waits { ended: of.outcome.worst_ms.clone(), under_way: of.under_way() };
    let waits = small(common.waits, waits, ghost(&common.under_way), "longest wait of each second".to_owned());
    html! {
        div.card {
            h3 { (of.setting.name.trim()) @if of.rounds > 1 { span.note { " round " (of.round) " of " (of.rounds) } } }
            p.note {
                (whole(median.per_s)) "/s, slowest "
                span class=(if guide::is_slow(&median, common.threshold) { "bad" } else { "good" }) {
                    (whole(median.slowest_ms)) " ms, " (whole(median.stalls)) " stalls"
                }
            }
            (rates)
            (SmallChart { threshold: common.threshold, silent: Vec::new(), ..waits })
            (clients(of, common))
        }
    }
}

fn small(of: &Shown, scale: Scale, values: Values, ghost: Option<Vec<f64>>, upward: String) -> SmallChart {
    let outcome = of.outcome;
    let silent = (0..outcome.seconds.len()).filter(|second| outcome.seconds[*second] == 0);
    let (counts, ended, longest) = (outcome.seconds.clone(), outcome.worst_ms.clone(), of.under_way());
    let title = move |second: usize| {
        let at = |values: &[f64]| values.get(second).copied().unwrap_or(0.0);
        let later = at(&longest) > at(&ended);
        format!(
            "second {}: {} ended, the longest {} ms{}",
            second + 1,
            grouped(counts.get(second).copied().unwrap_or(0)),
            number(at(&ended)),
            if later { format!("; {} ms under way, ends later", number(at(&longest))) } else { String::new() },
        )
    };
    SmallChart {
        seconds: outcome.seconds.len(),
        scale,
        values,
        ghost,
        around: outcome.marks.iter().map(|mark| (mark.from_s, mark.to_s)).collect(),
        silent: silent.collect(),
        threshold: None,
        upward,
        title: Box::new(title),
    }
}

/// Charts with a line for each client, if the experiment looks at each client.
fn clients(of: &Shown, common: &Common) -> Markup {
    let clients = &of.outcome.clients;
    if clients.is_empty() {
        return html! {};
    }
    let rates: Vec<Vec<f64>> =
        clients.iter().map(|of| of.seconds.iter().map(|count| *count as f64).collect()).collect();
    let top = rates.iter().map(|rates| highest(rates)).fold(1.0, f64::max) * 1.08;
    let title = |values: Vec<Vec<f64>>, unit: &'static str| {
        move |second: usize| {
            let of_second = || values.iter().filter_map(|values| values.get(second).copied());
            let (least, most) = (of_second().fold(f64::INFINITY, f64::min), of_second().fold(0.0, f64::max));
            format!("second {}: {} to {}{unit}", second + 1, number(least), number(most))
        }
    };
    let waits: Vec<Vec<f64>> = clients.iter().map(|of| of.worst_ms.clone()).collect();
    let chart = |scale, lines: Vec<Vec<f64>>, upward: &str, unit| SmallChart {
        title: Box::new(title(lines.clone(), unit)),
        silent: Vec::new(),
        ..small(of, scale, Values::Lines(lines), None, upward.to_owned())
    };
    html! {
        details {
            summary.note { (clients.len()) " clients, a line for each" }
            (chart(Scale::Linear { top }, rates, "transactions in each second, a scale of their own", ""))
            (SmallChart {
                threshold: common.threshold,
                ..chart(common.waits, waits, "longest wait that ended in each second", " ms")
            })
        }
    }
}

/// For phases that differ only in the quiet time before them: the slowest operation over that time for each setting.
/// The predicted curve is the sleep of a thread that sleeps 1 ms longer each time.
pub(super) fn over_quiet(findings: &Findings) -> Markup {
    let is_bare = |outcome: &Outcome| outcome.marks.is_empty() && outcome.clients.is_empty();
    let line = |setting: &Setting| -> Vec<(f64, f64)> {
        let runs = findings.phases.iter().filter_map(|phase| Some((phase, *setting.phase(phase).first()?)));
        let point = |(phase, run): (&String, &Outcome)| (run.quiet_s, setting.figures(phase).slowest_ms);
        runs.filter(|(_, run)| is_bare(run)).map(point).collect()
    };
    let mut settings: Vec<&Setting> = findings.settings.iter().collect();
    // The default first, then the others, the longest waits first.
    let slowest = |setting: &Setting| line(setting).iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
    settings.sort_by(|a, b| b.is_default.cmp(&a.is_default).then(slowest(b).total_cmp(&slowest(a))));
    let lines: Vec<Vec<(f64, f64)>> = settings.iter().map(|setting| line(setting)).collect();
    let quiets = |line: &Vec<(f64, f64)>| line.iter().filter(|(quiet_s, _)| *quiet_s > 0.0).count();
    if lines.iter().map(quiets).max().unwrap_or_default() < 2 {
        return html! {};
    }
    html! {
        h2 { "the slowest read over the quiet before it" }
        p.note.keys {
            @for (at, setting) in settings.iter().enumerate() {
                span { span class=(format!("key {}", QuietChart::key(at))) {} (setting.name.trim()) }
            }
            span { span.key.ghost {} "sqrt(2t): what a thread sleeps after t ms that sleeps 1 ms longer each time" }
        }
        (QuietChart {
            lines,
            told: |quiet_s| (2.0 * quiet_s * 1e3).sqrt(),
            upward: "slowest read, ms",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::tests::{findings_of, outcome};

    #[test]
    fn the_round_that_is_shown_is_the_one_whose_rate_is_the_median() {
        let mut findings = findings_of(vec![("default", Vec::new())]);
        let shown = |findings: &mut Findings, rates: &[f64]| {
            findings.settings[0].rounds = rates.iter().map(|per_s| vec![outcome("x", *per_s, 1.0, "cpu")]).collect();
            Shown::of(&findings.settings[0], "x").map(|of| (of.round, of.rounds, of.outcome.figures.per_s))
        };
        assert_eq!(shown(&mut findings, &[300.0, 100.0, 200.0]), Some((3, 3, 200.0)));
        assert_eq!(shown(&mut findings, &[300.0, 100.0]), Some((2, 2, 100.0)));
        assert_eq!(shown(&mut findings, &[300.0]), Some((1, 1, 300.0)));
        assert_eq!(shown(&mut findings, &[]), None);
    }

    #[test]
    fn waits_over_quiet_are_drawn_for_otherwise_equal_phases() {
        let quiet = |quiet_s: f64, ms| Outcome { quiet_s, ..outcome(&format!("{quiet_s}"), 9.0, ms, "cpu") };
        let phases = |ms: f64| vec![quiet(0.0, 1.0), quiet(5.0, ms), quiet(60.0, 3.0 * ms)];
        let mut findings =
            findings_of(vec![("legacy", phases(2.0)), ("backoff", phases(110.0)), ("default", phases(1.0))]);
        findings.phases = ["0", "5", "60"].map(String::from).to_vec();
        let drawn = over_quiet(&findings).into_string();
        assert!(drawn.contains("after 60 s: 330 ms; told 346 ms"), "{drawn}");
        let [default, backoff, legacy] =
            ["default", "backoff", "legacy"].map(|name| drawn.find(&format!("</span>{name}")));
        assert!(default < backoff && backoff < legacy && default.is_some(), "the longest waits next to the default");
        findings.phases.truncate(2);
        assert_eq!(over_quiet(&findings).into_string(), "", "one quiet time, also of several settings, is no curve");
    }

    #[test]
    fn a_slow_setting_has_a_scale_of_its_own_and_says_so() {
        let of = |per_s: u64| Outcome {
            seconds: vec![per_s; 4],
            worst_ms: vec![1.0; 4],
            ..outcome("x", per_s as f64, 1.0, "cpu")
        };
        let findings =
            findings_of(vec![("slow", vec![of(100)]), ("fast", vec![of(500)]), ("default", vec![of(1_000)])]);
        let drawn = of_phase(&findings, "x").into_string();
        assert_eq!(drawn.matches("a scale of its own").count(), 1, "that of the first");
    }
}
