//! The findings of an experiment, as text of 120 columns.

use std::fmt::Write as _;

use super::experiments::Experiment;
use super::findings::{Findings, Held, Setting, Verdict, counted};
use super::guide;
use super::laboratory::Lab;

const COLUMNS: usize = 120;

/// An experiment in a list.
pub(super) fn listed(experiment: &Experiment) -> String {
    let mut text = format!("{:<18}{}\n{:18}{}\n", experiment.name, experiment.title, "", experiment.source);
    if let Some((quick, long)) = guide::of(experiment.name).map(|guide| guide.minutes) {
        let _ = writeln!(text, "{:18}some {quick} min with --quick, {long} without", "");
    }
    text
}

/// The findings.
pub(super) fn findings(findings: &Findings, lab: &Lab) -> String {
    let mut text = format!("\n{}: {}\n", findings.name, findings.title);
    text.push_str(&wrapped(&findings.how, ""));
    if let Some(ms) = guide::stall_ms(findings) {
        let _ = writeln!(text, "An operation of {ms} ms or more is a stall.");
    }
    let rounds = if lab.rounds == 1 { "one round".to_owned() } else { format!("medians of {} rounds", lab.rounds) };
    for phase in &findings.phases {
        let _ = writeln!(text, "\n{phase} ({rounds})");
        text.push_str(&table(findings, phase));
    }
    text.push('\n');
    for note in &findings.notes {
        text.push_str(&wrapped(note, ""));
    }
    for verdict in &findings.verdicts {
        text.push_str(&wrapped(&verdict_line(verdict), "       "));
    }
    text.push_str(&counted(findings.verdicts.iter()));
    text.push('\n');
    text
}

/// A claim, and whether it holds.
fn verdict_line(verdict: &Verdict) -> String {
    let word = match verdict.held() {
        Held::Yes => "HOLDS",
        Held::No => "NOT  ",
        Held::Unknown => "OPEN ",
    };
    let open = verdict.inconclusive.map_or(String::new(), |why| format!("; {}", why.text()));
    format!("{word}  {} ({}): {}{open}", verdict.claim, verdict.source, verdict.seen)
}

/// All settings in one phase.
fn table(findings: &Findings, phase: &str) -> String {
    let loops = findings.loops.map_or("", |(_, name)| name);
    let mut text = format!(
        "{:<22}{:>9}{:>9}{:>9}{:>7}{:>9}{:>9}{:>9}{:>9}{:>8}{:>11}\n",
        "setting", "/s", "median", "worst s", "brown", "gap ms", "p99 ms", "p99.9", "slowest", "stalls", loops,
    );
    for setting in &findings.settings {
        text.push_str(&row(setting, phase, findings.loops));
    }
    text
}

fn row(setting: &Setting, phase: &str, loops: Option<(&str, &str)>) -> String {
    if setting.phase(phase).is_empty() {
        return String::new();
    }
    let of = setting.figures(phase);
    let loops =
        loops.map_or(String::new(), |(counter, _)| format!("{:.0}", setting.median(phase, |run| run.number(counter))));
    let mut lines = format!(
        "{:<22}{:>9.0}{:>9.0}{:>9.0}{:>7.0}{:>9.1}{:>9.2}{:>9.2}{:>9.1}{:>8.0}{:>11}\n",
        setting.name,
        of.per_s,
        of.median_per_s,
        of.worst_per_s,
        of.brownout_s,
        of.blackout_ms,
        of.p99_ms,
        of.p999_ms,
        of.slowest_ms,
        of.stalls,
        loops,
    );
    // On a line of its own: beside the figures there is room for only one class.
    let waited = format!("{:4}slow ones: ", "");
    let _ = writeln!(lines, "{waited}{}", setting.slow_text(phase, COLUMNS - waited.len()));
    if let Some(machine) = setting.machine(phase) {
        let _ = writeln!(
            lines,
            "{:4}beside it: device's own pair {:.1} ms, stood still {:.0} ms; CPU {:.1} ms late, stood still {:.0} ms",
            "", machine.pair_ms, machine.device_stopped_ms, machine.wake_ms, machine.cpu_stopped_ms
        );
    }
    lines
}

/// Words in lines of [`COLUMNS`]; all but the first begin with `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push_str(&line);
            lines.push('\n');
            line = indent.to_owned();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push_str(&line);
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_wide_as_a_terminal_and_keep_every_word() {
        let words: Vec<String> = (0..200).map(|word| format!("word{word}")).collect();
        let text = wrapped(&words.join(" "), "    ");
        assert!(text.lines().all(|line| line.len() <= COLUMNS) && text.lines().count() > 10);
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), words);
        assert!(text.lines().skip(1).all(|line| line.starts_with("    word")));
    }
}
