//! `millpond status DIR|SOCKET`: how is it doing?

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use millpond::{Error, Figure, Inspector};
use serde_json::Value;

use super::top;
use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_long_help = "A running engine answers on the socket that it was given (bench --status-socket=PATH, or
Options::status_socket). Of a directory that nobody has open it says how it was left.
Nothing is written to the database.

Examples:
  millpond bench --status-socket=/tmp/millpond.sock --time=60 oltp_update_index
  millpond status /tmp/millpond.sock
  millpond status --format=prometheus /tmp/millpond.sock
  millpond status millpond-bench-data")]
pub(crate) struct StatusArgs {
    /// The status socket of a running engine, or the directory of a database that nobody has open
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    /// In which form: text; json; prometheus, for a socket only
    #[arg(long, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    format: Format,

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
    /// The word for it on the socket.
    fn request(self) -> &'static str {
        match self {
            Format::Text => "text\n",
            Format::Json => "json\n",
            Format::Prometheus => "prometheus\n",
        }
    }
}

/// Says how an engine is doing, or how a database was left.
pub(crate) fn run(args: &StatusArgs) -> Result<Answer, Failure> {
    let is_socket = std::fs::metadata(&args.target).is_ok_and(|meta| meta.file_type().is_socket());
    let text = if is_socket { ask(&args.target, args.format)? } else { left(args)? };
    print(&text)?;
    Ok(Answer::Yes)
}

/// What the engine behind a socket answers.
fn ask(socket: &Path, format: Format) -> Result<String, Failure> {
    top::ask(socket, format.request()).map_err(|why| {
        let who = format!("status socket '{}'", socket.display());
        let gone = if why.kind() == ErrorKind::ConnectionRefused { ": its engine has ended" } else { "" };
        top::out_of_patience(&who, &why)
            .unwrap_or_else(|| Failure::message(format!("no answer from {who}{gone} ({why})")))
    })
}

/// How the database in a directory was left.
fn left(args: &StatusArgs) -> Result<String, Failure> {
    if args.format == Format::Prometheus {
        return Err(Failure::message(format!(
            "--format=prometheus is for the status socket of a running engine, and '{}' is none; \
             use --format=text or json for a directory",
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
    if args.format == Format::Json {
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
        // `Unknown`, and what a later engine tells.
        _ => Value::Null,
    };
    let object: Value = figures.map(|(name, figure)| (name.to_owned(), value(figure))).collect();
    format!("{object}\n")
}
