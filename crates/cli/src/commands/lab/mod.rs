//! `millpond lab`: stalls known from InnoDB, on demand, beside a default that avoids them.
//!
//! An experiment runs some classic settings and the default in turn on the same data, each in a process of its own
//! ([`arm`]), round by round. It shows a table of each phase, and says for each claim whether it holds.

pub(crate) mod arm;
mod beside;
mod disturbance;
mod experiments;
mod findings;
mod guide;
mod laboratory;
mod limits;
mod marks;
mod outcome;
mod page;
mod pictures;
mod text;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use workload::report_json;

use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::report::ReportFile;
use crate::signals;
use crate::values::Format;
use experiments::{EXPERIMENTS, Experiment};
use laboratory::Lab;

/// Arguments of `lab`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  millpond lab list
  millpond lab run all --quick --report=lab.html")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: Action,
}

/// The subcommands of `lab`.
#[derive(Debug, Subcommand)]
enum Action {
    /// Lists the experiments.
    #[command(after_long_help = "Examples:\n  millpond lab list\n  millpond lab list --format=json")]
    List(ListArgs),
    /// Runs one experiment, or all, in a directory that is created for it and removed afterwards.
    Run(RunArgs),
}

/// Arguments of `lab list`.
#[derive(Debug, Args)]
struct ListArgs {
    /// text, or json: one object a line
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    format: Format,
}

/// Arguments of `lab run`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Each experiment runs classic settings and the default in turn on the same data. The exit code is 1 if a
claim does not hold, and 3 if some claims are inconclusive and all others hold: the device stood still
beside their runs, or the CPU was contended. With --quick each setting runs once, and shorter.

Costs: all experiments take some two hours, with --quick some 14 minutes; 'millpond lab list' shows the
time of each. They need up to 4 GiB of disk in --dir. 'cpu-quota' and 'log-closer' have their files in
/dev/shm, wherever --dir is, if 2 GiB are free there; 'cpu-quota' makes a control group for each of its
runs. All of this is removed again, also after Ctrl-C; the next run removes leftovers of a killed one.
The page is written after each experiment.

Examples:
  millpond lab run free-list --quick
  millpond lab run all --quick --report=lab.html
  millpond lab run free-list-writes --rounds=1 --dir=/mnt/other/lab")]
struct RunArgs {
    /// Name of an experiment, or all
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// Shorter, and one round of each setting
    #[arg(long)]
    quick: bool,
    /// Rounds of each setting, of which the medians are shown (default: 3, with --quick 1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Directory for temporary databases of up to 4 GiB
    #[arg(long, value_name = "DIR", default_value = "millpond-lab-data")]
    dir: PathBuf,
    /// Writes the findings to this file, as a page, after each experiment
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// text, or json: one object an experiment
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    format: Format,
}

/// Least similarity of a suggested name; 1 means equal.
const ALIKE: f64 = 0.75;

/// Reads an experiment's name.
fn name(text: &str) -> Result<String, String> {
    let names = EXPERIMENTS.iter().map(|experiment| experiment.name);
    let known: Vec<&str> = names.chain(["all"]).collect();
    if known.contains(&text) {
        return Ok(text.to_owned());
    }
    let near = known.iter().map(|name| (strsim::jaro(name, text), name)).max_by(|a, b| a.0.total_cmp(&b.0));
    let near = near.filter(|(alike, _)| *alike >= ALIKE);
    let near = near.map_or(String::new(), |(_, name)| format!("; did you mean '{name}'?"));
    Err(format!("no experiment of this name{near} (there are: {})", known.join(", ")))
}

/// Runs the command.
pub(crate) fn run(args: &LabArgs) -> Result<Answer, Failure> {
    match &args.action {
        Action::List(args) => list(args),
        Action::Run(args) => run_experiments(args),
    }
}

fn list(args: &ListArgs) -> Result<Answer, Failure> {
    print(&match args.format {
        Format::Text => EXPERIMENTS.iter().map(text::listed).collect::<String>(),
        Format::Json => EXPERIMENTS.iter().map(|experiment| report_json::line("experiment", experiment)).collect(),
    })?;
    Ok(Answer::Yes)
}

fn run_experiments(args: &RunArgs) -> Result<Answer, Failure> {
    let report = args.report.as_deref().map(ReportFile::check).transpose()?;
    let chosen: Vec<&Experiment> =
        EXPERIMENTS.iter().filter(|experiment| args.name == "all" || args.name == experiment.name).collect();
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 3 });
    let lab = Lab::new(&args.dir, args.quick, rounds, signals::stop_flag()?)?;
    let mut all = Vec::new();
    let mut failures = Vec::new();
    for (at, experiment) in chosen.iter().enumerate() {
        let began = Instant::now();
        let found = (experiment.run)(&lab);
        // Also after a failure: the next experiment needs the room.
        lab.clear();
        match found {
            Ok(findings) => {
                print(&match args.format {
                    Format::Text => text::findings(&findings, &lab),
                    Format::Json => report_json::line("findings", &findings),
                })?;
                talk(&format!("{} took {:.0} s", experiment.name, began.elapsed().as_secs_f64()));
                all.push(findings);
            }
            Err(_) if lab.is_stopped() => break,
            // An experiment that cannot run here does not stop the others.
            Err(Failure::Error(error)) if args.name == "all" => {
                talk(&format!("{} could not be run: {error}", experiment.name));
                failures.push(format!("{}: {error}", experiment.name));
            }
            Err(failure) => return Err(failure),
        }
        let to_come: Vec<&str> = chosen.iter().skip(at + 1).map(|experiment| experiment.name).collect();
        if let Some(report) = report.as_ref().filter(|_| !to_come.is_empty()) {
            // An error here must not end a run of hours; the last write reports it.
            let _ = report.save(&page::so_far(&all, &failures, &lab, &to_come));
        }
    }
    // After an interrupt the page is written only if there are findings.
    if let Some(report) = report.filter(|_| !lab.is_stopped() || !all.is_empty()) {
        report.write(&page::of(&all, &failures, &lab))?;
    }
    if lab.is_stopped() {
        return Ok(Answer::Interrupted);
    }
    if let [first, ..] = failures.as_slice() {
        return Err(Failure::message(format!("{} of the experiments could not be run; {first}", failures.len())));
    }
    print_totals(args, &all)?;
    Ok(match all.iter().map(findings::Findings::answer).max() {
        None | Some(findings::Held::Yes) => Answer::Yes,
        Some(findings::Held::Unknown) => Answer::Inconclusive,
        Some(findings::Held::No) => Answer::No,
    })
}

/// The claims of several experiments together.
fn print_totals(args: &RunArgs, all: &[findings::Findings]) -> Result<(), Failure> {
    if all.len() > 1 && args.format == Format::Text {
        print(&format!("\nall experiments: {}\n", findings::counted(all.iter().flat_map(|of| &of.verdicts))))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
