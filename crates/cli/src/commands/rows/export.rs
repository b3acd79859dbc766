//! `millpond export DIR [NAME]...`: trees and tables as lines of JSON.

use std::ops::Bound;
use std::path::PathBuf;

use clap::Args;

use super::Opening;
use super::export_line::Line;
use super::form::Form;
use super::output::Output;
use super::place::Place;
use super::source::{Local, Range, Rows, Wanted};
use crate::engine_args::SomeOptions;
use crate::exit::{Answer, Failure};
use crate::output::talk;

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(after_long_help = "All trees and tables with their rows and the definitions of their indexes, as they are at
one moment. `millpond load` makes them again, in any database: with other pages, say. The last line tells a whole
export from one that was cut short. Nothing is written to the database.

Examples:
  millpond export shop > shop.jsonl
  millpond export shop stock people | millpond load copied")]
pub(crate) struct ExportArgs {
    /// The database's directory
    dir: PathBuf,

    /// Only these trees and tables
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    #[command(flatten)]
    options: SomeOptions<Opening>,
}

/// Prints trees and tables.
pub(crate) fn run(args: &ExportArgs) -> Result<Answer, Failure> {
    let local = Local::open(&args.dir, args.options.0.clone())?;
    let names = names(&local, &args.names)?;
    // All before the first line: a name that does not exist prints nothing.
    let places = names.iter().map(|name| local.place(name)).collect::<Result<Vec<_>, _>>()?;
    let (mut output, mut rows) = (Output::new(), 0);
    output.json(&Line::head(names.clone()))?;
    for (name, place) in names.into_iter().zip(&places) {
        output.json(&match place {
            Place::Tree(_) => Line::tree(name.clone()),
            Place::Table(table) => Line::table(name.clone(), &table.definition()),
        })?;
        let range = Range { name, index: None, lower: Bound::Unbounded, upper: Bound::Unbounded };
        local.scan(&range, Wanted { is_reverse: false, limit: u64::MAX }, &mut |key, value| {
            rows += 1;
            output.line(|line| Form::Jsonl.append_row(key, value, line))
        })?;
    }
    output.json(&Line::end(rows))?;
    output.finish()?;
    talk(&format!("exported {rows} rows; trees and tables: {}", places.len()));
    Ok(Answer::Yes)
}

/// The names to export: those that are asked for, or all.
fn names(local: &Local, asked: &[String]) -> Result<Vec<String>, Failure> {
    if asked.is_empty() {
        return Ok([local.db.trees()?, local.db.tables()?].concat());
    }
    for (at, name) in asked.iter().enumerate() {
        if asked[..at].contains(name) {
            return Err(Failure::message(format!("'{name}' is named twice: name it once")));
        }
    }
    Ok(asked.to_vec())
}
