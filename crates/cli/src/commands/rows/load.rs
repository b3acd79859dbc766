//! `millpond load DIR [NAME]`: rows from standard input or a file.

use std::path::PathBuf;

use clap::Args;
use millpond::{Db, Field, TableDefinition};

use super::Creating;
use super::batches::{Batches, Refused, after_lines_before};
use super::form::Form;
use super::input::Input;
use super::new_load::NewLoad;
use super::place::{self, Place};
use super::restored;
use super::write::closing;
use crate::engine_args::SomeOptions;
use crate::exit::{Answer, Failure};
use crate::output::talk;
use crate::progress::Progress;
use crate::signals;

/// Arguments of `load`.
#[derive(Debug, Args)]
#[command(next_line_help = true)]
#[command(after_long_help = "With NAME the lines are rows, in the form of --format. Without NAME they are an export of
`millpond export`, which names its trees and tables. None of them may exist.

A new tree or table is loaded in bulk, past the log. After a mistake in a line, or an interrupt, nothing of it exists.
Rows come in any order, each key once; they are sorted in a quarter of the buffer pool's memory (64 MiB at most), and
beyond that in temporary files as large as the rows. Rows that are sorted need neither: --sorted.

If NAME exists, each line inserts its row or replaces it, in batches of 1000 rows or 1 MiB. All rows are durable when
the command ends. After a mistake in a line, the lines before it are loaded.

An export that was cut short fails at its end. Then the tree that was being loaded is not there; those before it are.

Examples:
  millpond load shop people --input=people.tsv --format=tsv --index='by_city=value[0..2]' --unique='by_name=value[2..]'
  millpond scan shop stock | millpond load copy stock --sorted
  millpond export shop | millpond load --page-size=4KiB moved")]
pub(crate) struct LoadArgs {
    /// The database's directory; a database is made if there is none
    dir: PathBuf,

    /// The tree or table; a tree is made if there is none, or a table with --index or --unique
    name: Option<String>,

    /// Form: text (key, tab, value, with escapes); hex; jsonl; tsv (text with a heading) [default: text]
    #[arg(long, value_name = "FORM", hide_possible_values = true, requires = "name")]
    format: Option<Form>,

    /// Read this file instead of standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// The keys ascend byte by byte: load a new tree without sorting
    #[arg(long, requires = "name")]
    sorted: bool,

    /// An index of a new table, as by_city=value[0..2],key[0..4]; may be given several times
    #[arg(long, value_name = "NAME=FIELDS", value_parser = index, requires = "name")]
    index: Vec<IndexArg>,

    /// A unique index of a new table, in the same form
    #[arg(long, value_name = "NAME=FIELDS", value_parser = index, requires = "name")]
    unique: Vec<IndexArg>,

    #[command(flatten)]
    options: SomeOptions<Creating>,
}

/// An index on the command line.
#[derive(Clone, Debug, PartialEq)]
struct IndexArg {
    name: String,
    fields: Vec<Field>,
}

/// Reads an index: its name, and its fields with commas between them.
fn index(text: &str) -> Result<IndexArg, String> {
    // No field has the sign; a name may have it.
    let (name, fields) =
        text.rsplit_once('=').ok_or("no index: write, for example, by_city=value[0..2],key[0..4]".to_owned())?;
    let fields = fields.split(',').map(str::parse).collect::<millpond::Result<_>>();
    Ok(IndexArg { name: name.to_owned(), fields: fields.map_err(|why| why.to_string())? })
}

impl LoadArgs {
    fn form(&self) -> Form {
        self.format.unwrap_or(Form::Text)
    }

    /// The definition of a new table; `None`: a tree is wanted.
    fn definition(&self) -> Option<TableDefinition> {
        if self.index.is_empty() && self.unique.is_empty() {
            return None;
        }
        let of = |args: &[IndexArg]| args.to_vec();
        let with_index = |definition: TableDefinition, IndexArg { name, fields }| definition.index(&name, fields);
        let with_unique = |definition: TableDefinition, IndexArg { name, fields }| definition.unique(&name, fields);
        let definition = of(&self.index).into_iter().fold(TableDefinition::new(), with_index);
        Some(of(&self.unique).into_iter().fold(definition, with_unique))
    }
}

/// Loads rows, or an export.
pub(crate) fn run(args: &LoadArgs) -> Result<Answer, Failure> {
    let mut input = Input::open(args.input.as_deref())?;
    // Before a database is made.
    let names = if args.name.is_none() { restored::names(&mut input)? } else { Vec::new() };
    let db = place::open(&args.dir, args.options.0.clone().create(true))?;
    input.watch(signals::stop_flag()?);
    let progress = Progress::working("loading");
    closing(db, |db| match &args.name {
        Some(name) => load_rows(db, name, args, &mut input, &progress),
        None => restored::load(db, &args.dir, &names, &mut input, &progress),
    })?;
    Ok(Answer::Yes)
}

fn load_rows(db: &Db, name: &str, args: &LoadArgs, input: &mut Input, progress: &Progress) -> Result<(), Failure> {
    let definition = args.definition();
    match Place::find(db, name)? {
        None => load_new(NewLoad::begin(db, name, definition)?, args, input, progress),
        Some(place) if definition.is_some() => Err(Failure::message(format!(
            "{place} exists already, and --index and --unique are for a new table: leave them out, or name another"
        ))),
        Some(place) => load_into(db, &place, args.form(), input, progress),
    }
}

fn load_new(mut load: NewLoad, args: &LoadArgs, input: &mut Input, progress: &Progress) -> Result<(), Failure> {
    let mut rows = std::iter::from_fn(|| input.row(args.form()).transpose());
    let pushed = if args.sorted {
        rows.try_for_each(|row| row.and_then(|(key, value)| Ok(load.push(&key, &value)?)))
    } else {
        load.push_unsorted(rows)
    };
    pushed.and_then(|()| Ok(load.finish(progress)?)).map_err(|failure| input.with_line(failure))
}

fn load_into(db: &Db, place: &Place, form: Form, input: &mut Input, progress: &Progress) -> Result<(), Failure> {
    let mut batches = Batches::new(db, place);
    let refused = |input: &Input, refused: Refused| {
        after_lines_before(place, format!("{}: {}", input.place(refused.line), refused.why))
    };
    let ended = loop {
        match input.row(form) {
            Ok(Some(row)) => batches.put(input.number(), row)?.map_err(|why| refused(input, why))?,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
    };
    // Also after a mistake: all lines before it are durable.
    batches.finish()?.map_err(|why| refused(input, why))?;
    match ended {
        Ok(()) => {
            progress.aside(|| talk(&format!("loaded {} rows into {place}", batches.written())));
            Ok(())
        }
        Err(Failure::Error(error)) => Err(after_lines_before(place, error)),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_a_name_and_fields() {
        let wanted = IndexArg { name: "a=b".to_owned(), fields: vec![Field::value(0..2), Field::key(4..)] };
        assert_eq!(index("a=b=value[0..2],key[4..]"), Ok(wanted));
        for (wrong, why) in [
            ("by_city", "no index: write, for example, by_city=value[0..2]"),
            ("by_city=", "'' is no field"),
            ("by_city=value[0..2],", "'' is no field"),
            ("by_city=name", "'name' is no field: write, for example, value[4..8]"),
        ] {
            assert!(index(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }
}
