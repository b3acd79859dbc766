//! `millpond rebuild DIR`: map and superblocks anew.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use millpond::inspect::{RebuildOptions, RebuildReport};

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::progress::Progress;

/// Arguments of `rebuild`.
#[derive(Debug, Args)]
#[command(after_long_help = "For a database that does not open because both superblocks, or parts of the map, are
damaged. It takes the newest image of each page from the data file; the next open then recovers from the log. Copy the
files first, if you can. After an interrupt, run it again. The old superblocks and map are kept in files 'old-<n>-*':
remove them when all is well.

A page is lost if the log, or a readable part of the old maps, shows that a newer image existed. It is unproven if
neither knows the page: then an older image would not be noticed.

With --force it also runs if log files are missing. A closed database does not need them; another database may lose its
last writes. Move a damaged log file away first.

Exit code: 0 nothing is known to be lost, 1 something is (the output lists it), 2 it could not be done.

Example:
  millpond rebuild millpond-bench-data")]
pub(crate) struct RebuildArgs {
    /// The database's directory
    dir: PathBuf,

    #[command(flatten)]
    cached: CachedArg,

    /// Also if the database opens, and if newer data may be missing from the images found
    #[arg(long)]
    force: bool,
}

/// Rebuilds a database.
pub(crate) fn run(args: &RebuildArgs) -> Result<Answer, Failure> {
    let mut options = RebuildOptions::default();
    options.cached = args.cached.0;
    options.force = args.force;
    let progress = Progress::working("rebuilding");
    let report = millpond::inspect::rebuild(&args.dir, &options);
    progress.finish();
    let report = report?;
    print(&text(&args.dir.display().to_string(), &report))?;
    Ok(if report.lost.is_empty() { Answer::Yes } else { Answer::No })
}

/// The report as aligned text.
fn text(dir: &str, report: &RebuildReport) -> String {
    let by = if report.checkpoint_known { "a superblock" } else { "the log files" };
    let mut text = String::new();
    for (name, value) in [
        ("database:", dir.to_owned()),
        ("pages:", format!("{}, {} of them unproven", report.pages, report.unproven_pages)),
        ("spaces:", report.spaces.to_string()),
        ("slots:", format!("{}, {} of them damaged or torn", report.slots, report.damaged_slots)),
        ("log:", format!("{} groups, found by {by}", report.log_groups)),
        ("redo from:", format!("LSN {} to {}", report.log_from, report.log_end)),
        ("lost:", report.lost.len().to_string()),
    ] {
        let _ = writeln!(text, "{name:<14}{value}");
    }
    for lost in &report.lost {
        let _ = writeln!(text, "lost: {lost}");
    }
    text
}
