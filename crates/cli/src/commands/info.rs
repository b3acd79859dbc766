//! `millpond info DIR|SOCKET`: what is this database?

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use millpond::inspect::Inspector;
use millpond_server::Request;

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::running::{ask, is_socket};

/// Arguments of `info`.
#[derive(Debug, Args)]
#[command(after_long_help = "A running engine answers on the socket that it was given (bench --status-socket=PATH, or
Options::status_socket). Of a closed database, changes in the log after the last checkpoint are replayed in memory;
nothing is written.

Example:
  millpond info millpond-bench-data")]
pub(crate) struct InfoArgs {
    /// The status socket of a running engine, or the directory of a closed database
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    #[command(flatten)]
    cached: CachedArg,
}

/// Prints the facts of a database.
pub(crate) fn run(args: &InfoArgs) -> Result<Answer, Failure> {
    let rows = if is_socket(&args.target) {
        let facts = ask(&args.target, &Request::Info {}, |_| ControlFlow::Continue(()))?;
        facts.unwrap_or_default()
    } else {
        let database = ("database".to_owned(), args.target.display().to_string());
        [database].into_iter().chain(Inspector::open(&args.target, args.cached.0)?.info()?).collect()
    };
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{:<width$}{value}", format!("{name}:"));
    }
    print(&text)?;
    Ok(Answer::Yes)
}
