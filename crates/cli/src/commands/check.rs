//! `millpond check DIR`: is the database sound?

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use millpond::inspect::{CheckOptions, CheckReport};

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure, describe};
use crate::output::{complain, print};
use crate::progress::Progress;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_long_help = "Exit code: 0 the database is sound, 1 it is damaged, 2 it could not be looked at.

Example:
  millpond check millpond-bench-data")]
pub(crate) struct CheckArgs {
    /// The database's directory
    dir: PathBuf,

    #[command(flatten)]
    cached: CachedArg,
}

/// Checks a database.
pub(crate) fn run(args: &CheckArgs) -> Result<Answer, Failure> {
    let mut options = CheckOptions::default();
    options.cached = args.cached.0;
    let progress = Progress::working("checking");
    let checked = millpond::inspect::check(&args.dir, options);
    progress.finish();
    match checked {
        Ok(report) => {
            print(&text(&args.dir.display().to_string(), &report))?;
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
