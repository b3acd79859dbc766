//! `millpond info DIR`: what is this database?

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use millpond::inspect::Inspector;

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_long_help = "Changes in the log after the last checkpoint are replayed in memory; nothing is written.

Example:
  millpond info millpond-bench-data")]
pub(crate) struct InfoArgs {
    /// The database's directory
    dir: PathBuf,

    #[command(flatten)]
    cached: CachedArg,
}

/// Prints the facts of a database.
pub(crate) fn run(args: &InfoArgs) -> Result<Answer, Failure> {
    let rows = Inspector::open(&args.dir, args.cached.0)?.info()?;
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (name, value) in [("database".to_owned(), args.dir.display().to_string())].into_iter().chain(rows) {
        let _ = writeln!(text, "{:<width$}{value}", format!("{name}:"));
    }
    print(&text)?;
    Ok(Answer::Yes)
}
