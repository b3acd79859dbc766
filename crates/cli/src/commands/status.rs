//! `millpond status DIR|SOCKET|PORT`: how is it doing?

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use millpond::Error;
use millpond::inspect::{Figure, Inspector};
use serde_json::Value;

use super::top::Source;
use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_long_help = "A running engine answers on the socket that it was given (bench --status-socket=PATH, or
Options::status_socket), and in Prometheus' format on its port (--metrics-port=PORT, or Options::metrics_port). Of the
directory of a closed database it shows the state of the files. Nothing is written to the database.

Examples:
  millpond bench --status-socket=/tmp/millpond.sock --time=60 oltp_update_index
  millpond status /tmp/millpond.sock
  millpond status --format=prometheus /tmp/millpond.sock
  millpond status millpond-bench-data")]
pub(crate) struct StatusArgs {
    /// The status socket or port of a running engine, or the directory of a closed database
    #[arg(value_name = "DIR|SOCKET|PORT")]
    target: PathBuf,

    /// Form: text; json; prometheus, for an engine only, and always for a port
    #[arg(long, value_name = "FORM", hide_possible_values = true)]
    format: Option<Format>,

    #[command(flatten)]
    cached: CachedArg,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object
    Json,
    /// Prometheus' text format
    Prometheus,
}

impl Format {
    /// The request word on the socket.
    fn request(self) -> &'static str {
        match self {
            Format::Text => "text\n",
            Format::Json => "json\n",
            Format::Prometheus => "prometheus\n",
        }
    }
}

/// Prints the state of a running engine, or of a closed database.
pub(crate) fn run(args: &StatusArgs) -> Result<Answer, Failure> {
    let source = Source::parse(&args.target)?;
    let text = match &source {
        Source::Socket(path) if path.is_dir() => left(args)?,
        Source::Socket(_) => ask(&source, args.format.unwrap_or(Format::Text))?,
        Source::Port(_) if args.format.is_none_or(|format| format == Format::Prometheus) => {
            ask(&source, Format::Prometheus)?
        }
        Source::Port(port) => {
            return Err(Failure::message(format!(
                "port {port} answers with --format=prometheus alone; leave --format out, or name the status socket of \
                 its engine (--status-socket=PATH, Options::status_socket)"
            )));
        }
    };
    print(&text)?;
    Ok(Answer::Yes)
}

/// The answer of a running engine.
fn ask(source: &Source, format: Format) -> Result<String, Failure> {
    let awaited = source.ask(format.request())?;
    // The wait ends with the answer, or with an error when the answer is late.
    let answer = awaited.wait(Duration::MAX).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()));
    answer.map_err(|why| source.failure(&why, "the directory of a database, "))
}

/// The state of the closed database in a directory.
fn left(args: &StatusArgs) -> Result<String, Failure> {
    if args.format == Some(Format::Prometheus) {
        return Err(Failure::message(format!(
            "--format=prometheus is for a running engine, by its status socket or its port, and '{}' is a directory; \
             use --format=text or json",
            args.target.display()
        )));
    }
    let inspector = Inspector::open(&args.target, args.cached.0).map_err(|error| match error {
        Error::InUse(_) => Failure::message(format!(
            "'{}' is open, in another process or in this one; its engine tells how it is doing on a socket: \
             open it with --status-socket=PATH (Options::status_socket), then ask 'millpond status PATH'",
            args.target.display()
        )),
        other => other.into(),
    })?;
    let database = args.target.display().to_string();
    if args.format == Some(Format::Json) {
        let database = [("database", Figure::Text(database))];
        return Ok(json(database.into_iter().chain(inspector.status_figures()?)));
    }
    Ok(aligned([("database".to_owned(), database)].into_iter().chain(inspector.status()?)))
}

fn aligned(rows: impl Iterator<Item = (String, String)>) -> String {
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<24}{value}", format!("{name}:"));
    }
    text
}

fn json(figures: impl Iterator<Item = (&'static str, Figure)>) -> String {
    let value = |figure| match figure {
        Figure::Text(text) => Value::from(text),
        Figure::Number(number) => number.into(),
        Figure::Flag(flag) => flag.into(),
        Figure::Numbers(numbers) => numbers.into_iter().map(|(name, number)| (name, Value::from(number))).collect(),
        // `Unknown`, and values of a later engine.
        _ => Value::Null,
    };
    let object: Value = figures.map(|(name, figure)| (name.to_owned(), value(figure))).collect();
    format!("{object}\n")
}
