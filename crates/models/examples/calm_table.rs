//! Two tables in Markdown: the controller over hours of load, and the worth of each of its rules.
//!
//! `calm_table [NAME [RULE]]`: runs the scenarios whose names contain NAME. With RULE (`all`, or one of [`Off`]'s
//! names) it runs each also without that rule. Without arguments: all scenarios, then each rule where it is worth most.

use models::calm::{Off, Outcome, Phase, Scenario, run, scenarios};

/// Where switching a rule off is seen best.
const WORTH: [(&str, Off); 12] = [
    ("a cluster of pages", Off::Envelope),
    ("overload", Off::Throttle),
    ("first guess 1/1000", Off::Evidence),
    ("0 % for 3 s", Off::Floor),
    ("first guess 1/10, overload", Off::Measure),
    ("60 MB/s, guessed 590", Off::Brake),
    ("waves of 5 s", Off::SlowAverage),
    ("64 MiB, hot pages", Off::Shares),
    ("0 % for 3 s, overload", Off::OverdueTick),
    ("a large transaction, overload", Off::LargeQueue),
    ("the log made shorter", Off::LittleByLittle),
    ("smaller files of the log", Off::OtherRing),
];

fn head() {
    println!(
        "| scenario | median/s | worst second | brownout | variation | log full | largest age | longest gap | slowest |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
}

fn row(name: &str, outcome: &Outcome, phase: Option<Phase>, phases: &[Phase]) {
    let even = phase.map_or_else(|| outcome.evenness_outside(phases), |phase| outcome.evenness(phase));
    print!("| {name} | {} | {} | {} s | {:.3} |", even.median, even.worst, even.brownout_s, even.variation);
    if phase.is_some() {
        println!(" | | | |");
    } else {
        let Outcome { log_wall_waits, age_max, longest_gap_ms, slowest_ms, .. } = outcome;
        println!(" {log_wall_waits} | {age_max:.2} | {longest_gap_ms:.1} ms | {slowest_ms:.1} ms |");
    }
}

fn show(scenario: &Scenario, off: Off) {
    let outcome = run(scenario, off);
    let without = if off == Off::Nothing { String::new() } else { format!(", without {off:?}") };
    row(&format!("{}{without}", scenario.name), &outcome, None, &scenario.phases);
    for phase in scenario.phases.iter().filter(|phase| !phase.name.is_empty()) {
        row(&format!("... {}", phase.name), &outcome, Some(*phase), &[]);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (name, rule) = (arguments.next(), arguments.next());
    let named = |scenario: &Scenario| name.as_ref().is_none_or(|name| scenario.name.contains(name));
    let asked = |off: Off| rule.as_ref().is_some_and(|rule| rule == "all" || *rule == format!("{off:?}"));
    head();
    for scenario in scenarios().iter().filter(|scenario| named(scenario)) {
        Off::ALL.into_iter().filter(|off| *off == Off::Nothing || asked(*off)).for_each(|off| show(scenario, off));
    }
    if name.is_none() {
        println!();
        head();
        for (name, off) in WORTH {
            for scenario in scenarios().iter().filter(|scenario| scenario.name == name) {
                show(scenario, Off::Nothing);
                show(scenario, off);
            }
        }
    }
}
