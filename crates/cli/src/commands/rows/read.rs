//! `millpond get`, `scan`, `count`: reads of a closed database or of a running engine, from one snapshot.

use std::ops::Bound;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Opening;
use super::form::Form;
use super::output::Output;
use super::running_source::Running;
use super::source::{Local, Range, Rows, Wanted};
use super::text::{Word, word};
use crate::engine_args::SomeOptions;
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::running::is_socket;
use crate::values;

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_long_help = "A key is text with the escapes \\t, \\n, \\r, \\\\ and \\xNN. Other keys have a prefix:
hex:00ff, or u32:7 and u64:7 for numbers with their highest byte first; text:u32:7 is that text. Nothing is written to
the database.

Exit code: 0 the key is there, 1 it is not, and then nothing is printed.

Examples:
  millpond get shop stock nails
  millpond get --format=hex shop stock u32:12")]
pub(crate) struct GetArgs {
    /// The directory of a closed database, or the status socket of a running engine
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    /// The tree or table
    name: String,

    /// The key: text, or hex:00ff, u32:7, u64:7
    #[arg(value_parser = word)]
    key: Word,

    /// Form: text or hex, of the value alone; jsonl or tsv, of the row
    #[arg(long, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    format: Form,

    #[command(flatten)]
    options: SomeOptions<Opening>,
}

/// Arguments of `scan`.
#[derive(Debug, Args)]
#[command(after_long_help = "The rows are of one moment, in the byte order of their keys. With --index they come in
the order of the index, and --from, --before and --prefix bound the bytes of its fields. Keys are written as for
`millpond get`. Nothing is written to the database.

Examples:
  millpond scan shop stock --prefix=n --limit=10
  millpond scan shop stock --from=u32:1 --before=u32:100 --format=hex
  millpond scan shop people --index=by_city --from=ny --reverse --format=jsonl")]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    range: RangeArgs,

    /// From the last row to the first
    #[arg(long)]
    reverse: bool,

    /// At most N rows
    #[arg(long, value_name = "N", value_parser = values::count::<u64>)]
    limit: Option<u64>,

    /// Form: text (key, tab, value, with escapes); hex; jsonl; tsv (text with a heading)
    #[arg(long, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    format: Form,
}

/// Arguments of `count`.
#[derive(Debug, Args)]
#[command(after_long_help = "Reads all rows of the range, or all entries of the index. Keys are written as for
`millpond get`. Nothing is written to the database.

Examples:
  millpond count shop stock
  millpond count shop people --index=by_city --prefix=ny")]
pub(crate) struct CountArgs {
    #[command(flatten)]
    range: RangeArgs,
}

/// A range of rows on the command line.
#[derive(Debug, Args)]
struct RangeArgs {
    /// The directory of a closed database, or the status socket of a running engine
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    /// The tree or table
    name: String,

    /// Only keys from this one on
    #[arg(long, value_name = "KEY", value_parser = word)]
    from: Option<Word>,

    /// Only keys before this one
    #[arg(long, value_name = "KEY", value_parser = word)]
    before: Option<Word>,

    /// Only keys that begin so
    #[arg(long, value_name = "KEY", value_parser = word)]
    prefix: Option<Word>,

    /// By this index of a table
    #[arg(long, value_name = "INDEX")]
    index: Option<String>,

    #[command(flatten)]
    options: SomeOptions<Opening>,
}

impl RangeArgs {
    fn range(&self) -> Range {
        let bytes = |word: &Option<Word>| word.as_ref().map(|word| word.0.clone());
        let (from, before, prefix) = (bytes(&self.from), bytes(&self.before), bytes(&self.prefix));
        let behind = prefix.clone().and_then(behind);
        let lower = from.into_iter().chain(prefix).max();
        let upper = before.into_iter().chain(behind).min();
        Range {
            name: self.name.clone(),
            index: self.index.clone(),
            lower: lower.map_or(Bound::Unbounded, Bound::Included),
            upper: upper.map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    fn open(&self) -> Result<Box<dyn Rows>, Failure> {
        open(&self.target, &self.options)
    }
}

/// Opens what answers for a target.
fn open(target: &Path, options: &SomeOptions<Opening>) -> Result<Box<dyn Rows>, Failure> {
    match is_socket(target) {
        true => Ok(Box::new(Running::at(target)?)),
        false => Ok(Box::new(Local::open(target, options.0.clone())?)),
    }
}

/// The first key behind all that begin with `prefix`; `None`: there is none.
fn behind(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// Prints the value of a key.
pub(crate) fn get(args: &GetArgs) -> Result<Answer, Failure> {
    let rows = open(&args.target, &args.options)?;
    let Some(value) = rows.get(&args.name, &args.key.0)? else { return Ok(Answer::No) };
    let mut output = Output::new();
    output.heading(args.format)?;
    output.line(|line| args.format.append_found(&args.key.0, &value, line))?;
    output.finish()?;
    Ok(Answer::Yes)
}

/// Prints the rows of a range.
pub(crate) fn scan(args: &ScanArgs) -> Result<Answer, Failure> {
    let rows = args.range.open()?;
    let wanted = Wanted { is_reverse: args.reverse, limit: args.limit.unwrap_or(u64::MAX) };
    let (mut output, mut is_first) = (Output::new(), true);
    rows.scan(&args.range.range(), wanted, &mut |key, value| {
        // With the first row: a range that cannot be read gets no heading.
        if std::mem::take(&mut is_first) {
            output.heading(args.format)?;
        }
        output.line(|line| args.format.append_row(key, value, line))
    })?;
    if is_first {
        output.heading(args.format)?;
    }
    output.finish()?;
    Ok(Answer::Yes)
}

/// Prints the number of rows in a range.
pub(crate) fn count(args: &CountArgs) -> Result<Answer, Failure> {
    let count = args.range.open()?.count(&args.range.range())?;
    print(&format!("{count}\n"))?;
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        range: RangeArgs,
    }

    /// The bounds of a range, as text.
    fn bounds(words: &[&str]) -> (Bound<String>, Bound<String>) {
        let args = Line::parse_from([&["count", "db", "t"], words].concat()).range;
        let Range { lower, upper, .. } = args.range();
        let text = |bytes: Vec<u8>| bytes.escape_ascii().to_string();
        (lower.map(text), upper.map(text))
    }

    #[test]
    fn bounds_of_a_range_are_those_that_all_options_allow() {
        let (at, below) = (|key: &str| Bound::Included(key.to_owned()), |key: &str| Bound::Excluded(key.to_owned()));
        for (words, lower, upper) in [
            (&[][..], Bound::Unbounded, Bound::Unbounded),
            (&["--from=b", "--before=d"], at("b"), below("d")),
            (&["--prefix=b"], at("b"), below("c")),
            (&["--prefix=b", "--from=bc", "--before=bx"], at("bc"), below("bx")),
            (&["--prefix=b", "--from=a", "--before=x"], at("b"), below("c")),
            (&["--prefix=hex:61ffff"], at(r"a\xff\xff"), below("b")),
            (&["--prefix=hex:ff"], at(r"\xff"), Bound::Unbounded),
            (&["--prefix="], at(""), Bound::Unbounded),
        ] {
            assert_eq!(bounds(words), (lower, upper), "{words:?}");
        }
    }
}
