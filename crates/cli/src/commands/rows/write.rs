//! `millpond put` and `delete`: changes of single rows of a closed database.

use std::path::{Path, PathBuf};

use clap::Args;
use millpond::Db;

use super::Opening;
use super::place::{self, Place};
use super::text::{Word, word};
use crate::engine_args::SomeOptions;
use crate::exit::{Answer, Failure};
use crate::output::print;

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(after_long_help = "Inserts the row, or replaces its value. The row is durable when the command ends. Key and
value are text with the escapes \\t, \\n, \\r, \\\\ and \\xNN, or have a prefix: hex:00ff, u32:7, u64:7, text:u32:7.

Examples:
  millpond put --create shop stock nails 7
  millpond put shop stock u32:12 hex:00ff")]
pub(crate) struct PutArgs {
    /// The database's directory
    dir: PathBuf,

    /// The tree or table
    name: String,

    /// The key: text, or hex:00ff, u32:7, u64:7
    #[arg(value_parser = word)]
    key: Word,

    /// The value, in the same forms
    #[arg(value_parser = word)]
    value: Word,

    /// Make a tree of this name if there is none, and a database if there is none
    #[arg(long)]
    create: bool,

    #[command(flatten)]
    options: SomeOptions<Opening>,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
#[command(after_long_help = "Prints how many of the keys were there. Each row is removed by itself, durably. Keys are
written as for `millpond get`.

Exit code: 0 at least one of the keys was there, 1 none was.

Examples:
  millpond delete shop stock nails
  millpond put shop stock screws 9
  millpond delete shop stock nails screws")]
pub(crate) struct DeleteArgs {
    /// The database's directory
    dir: PathBuf,

    /// The tree or table
    name: String,

    /// The keys: text, or hex:00ff, u32:7, u64:7
    #[arg(value_name = "KEY", value_parser = word, required = true)]
    keys: Vec<Word>,

    #[command(flatten)]
    options: SomeOptions<Opening>,
}

/// Sets a row.
pub(crate) fn put(args: &PutArgs) -> Result<Answer, Failure> {
    let db = place::open(&args.dir, args.options.0.clone().create(args.create))?;
    closing(db, |db| {
        let place = match Place::find(db, &args.name)? {
            Some(place) => place,
            None if args.create => Place::Tree(db.create_tree(&args.name)?),
            None => {
                let missing = Place::missing(db, &args.dir, &args.name)?;
                return Err(Failure::message(format!("{missing}; with --create a tree is made")));
            }
        };
        Ok(place.put(&args.key.0, &args.value.0)?)
    })?;
    Ok(Answer::Yes)
}

/// Removes rows, and prints how many there were.
pub(crate) fn delete(args: &DeleteArgs) -> Result<Answer, Failure> {
    let db = place::open(&args.dir, args.options.0.clone().create(false))?;
    let removed = closing(db, |db| removed(db, &args.dir, args))?;
    print(&format!("{removed}\n"))?;
    Ok(if removed > 0 { Answer::Yes } else { Answer::No })
}

fn removed(db: &Db, dir: &Path, args: &DeleteArgs) -> Result<u64, Failure> {
    let place = Place::existing(db, dir, &args.name)?;
    let mut removed = 0;
    for key in &args.keys {
        removed += u64::from(place.delete(&key.0)?);
    }
    Ok(removed)
}

/// Does the work on a database, then closes it. The error of the work comes first.
pub(super) fn closing<T>(db: Db, work: impl FnOnce(&Db) -> Result<T, Failure>) -> Result<T, Failure> {
    let done = work(&db);
    let closed = db.close();
    let done = done?;
    closed?;
    Ok(done)
}
