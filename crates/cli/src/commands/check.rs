//! `millpond check DIR|SOCKET`: is the database sound?

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use millpond::ByteSize;
use millpond::inspect::{CheckOptions, CheckReport};
use millpond_server::Request;

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure, describe};
use crate::output::{complain, print};
use crate::progress::Progress;
use crate::running::{ask_watched, is_socket};
use crate::signals;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_long_help = "A running engine checks itself beside its load, on the socket that it was given (bench
--status-socket=PATH, or Options::status_socket): the image of every page, every row, and every index entry. Of a closed
database or a backup the command checks the log, the map and free slots, too.

Exit code: 0 the database is sound, 1 it is damaged, 2 it could not be looked at.

Example:
  millpond check millpond-bench-data")]
pub(crate) struct CheckArgs {
    /// The status socket of a running engine, or the directory of a closed database or a backup
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    /// Most bytes a second in a running engine, and fewer by need [default: half of the device's rate]
    #[arg(long, value_name = "BYTES")]
    rate: Option<ByteSize>,

    #[command(flatten)]
    cached: CachedArg,
}

/// Checks a database.
pub(crate) fn run(args: &CheckArgs) -> Result<Answer, Failure> {
    if is_socket(&args.target) {
        return running(args);
    }
    if let Some(rate) = args.rate {
        return Err(Failure::message(format!(
            "--rate={rate} is for a running engine, by its status socket, and '{}' is none: leave it out",
            args.target.display()
        )));
    }
    let mut options = CheckOptions::default();
    options.cached = args.cached.0;
    let progress = Progress::working("checking");
    let checked = millpond::inspect::check(&args.target, options);
    progress.finish();
    match checked {
        Ok(report) => {
            print(&text(&args.target.display().to_string(), &report))?;
            Ok(if report.problems.is_empty() { Answer::Yes } else { Answer::No })
        }
        // Damage too deep for a report: the answer is still "no", not "could not be done".
        Err(error @ millpond::Error::Corruption(..)) => {
            complain(&describe(&error));
            Ok(Answer::No)
        }
        Err(error) => Err(error.into()),
    }
}

/// Has a running engine check itself.
fn running(args: &CheckArgs) -> Result<Answer, Failure> {
    let (request, stop) = (Request::Check { rate: args.rate.map(|rate| rate.as_u64()) }, signals::stop_flag()?);
    let Some(facts) = ask_watched("checking", &args.target, &request, &stop)? else { return Ok(Answer::Interrupted) };
    let (problems, counts): (Vec<_>, Vec<_>) = facts.into_iter().partition(|(name, _)| name == "problem");
    let mut text = format!("{:<14}{}\n", "engine:", args.target.display());
    for (name, count) in counts {
        let _ = writeln!(text, "{:<14}{count}", format!("{name}:"));
    }
    let _ = writeln!(text, "{:<14}{}", "problems:", problems.len());
    for (_, problem) in &problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    print(&text)?;
    Ok(if problems.is_empty() { Answer::Yes } else { Answer::No })
}

/// The report as aligned text.
fn text(dir: &str, report: &CheckReport) -> String {
    let mut text = format!("database:     {dir}\n");
    for (name, value) in [
        ("superblocks:", u64::from(report.superblocks)),
        ("pages:", report.pages),
        ("trees:", report.trees),
        ("entries:", report.entries),
        ("in indexes:", report.index_entries),
        ("deleted rows:", report.deleted_rows),
        ("undo pages:", report.undo_pages),
        ("log groups:", report.log_groups),
        ("log bytes:", report.log_bytes),
        ("orphans:", report.orphan_spaces),
        ("free slots:", report.free_slots),
    ] {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    // After the number of free slots: their content.
    text.pop();
    let (never, older) = (report.never_written, report.older_images);
    let torn = report.free_slots - never - older;
    let torn = if torn > 0 { format!(", {torn} neither") } else { String::new() };
    let _ = writeln!(text, " ({never} never written, {older} hold older images{torn})");
    let _ = writeln!(text, "{:<14}{}", "problems:", report.problems.len());
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    text
}
