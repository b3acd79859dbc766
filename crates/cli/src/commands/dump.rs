//! `millpond dump WHAT DIR`: the files in words.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use millpond::inspect::Inspector;

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::values;

/// The most lines that are printed with one write.
const TOGETHER: usize = 1 << 16;

/// Arguments of `dump`.
#[derive(Debug, Args)]
#[command(after_long_help = "The files are read as they are: nothing is recovered, nothing is written, and damage is
shown as far as it can be.

Examples:
  millpond dump superblock millpond-bench-data
  millpond dump map millpond-bench-data --space 1
  millpond dump page millpond-bench-data 1:0
  millpond dump page millpond-bench-data --slot 17
  millpond dump log millpond-bench-data --limit 100")]
pub(crate) struct DumpArgs {
    #[command(subcommand)]
    what: What,
}

/// What to dump.
#[derive(Debug, Subcommand)]
enum What {
    /// Both superblocks, field by field.
    Superblock(Database),
    /// The directory, map pages, and the slot of each page in them; of one --space or of all.
    Map {
        #[command(flatten)]
        database: Database,
        /// Only this space (1, 2, ... in the order of creation; 0 is the catalog)
        #[arg(long, value_name = "SPACE", value_parser = values::count::<u32>)]
        space: Option<u32>,
    },
    /// The image of one page, by SPACE:NUMBER or --slot: header, fences, entries.
    #[command(override_usage = "millpond dump page [OPTIONS] <DIR> <SPACE:NUMBER>\n       \
                                millpond dump page [OPTIONS] <DIR> --slot <SLOT>")]
    #[command(after_help = "Examples:\n  millpond dump page millpond-bench-data 1:0\n  \
                            millpond dump page millpond-bench-data --slot 17")]
    Page {
        #[command(flatten)]
        database: Database,
        /// The page, as 1:0: its space (see 'millpond info DIR') and its number in the space, from 0
        #[arg(value_name = "SPACE:NUMBER", value_parser = page_id, required_unless_present = "slot")]
        page: Option<(u32, u32)>,
        /// The content of this slot of the data file, from 0, instead of a page
        #[arg(long, value_name = "SLOT", conflicts_with = "page", value_parser = values::count::<u64>)]
        slot: Option<u64>,
    },
    /// The log's groups and records, and where and why it ends; --from an LSN, --limit of groups.
    Log {
        #[command(flatten)]
        database: Database,
        /// Begin with the group that holds this LSN, instead of the checkpoint
        #[arg(long, value_name = "LSN", value_parser = values::count::<u64>)]
        from: Option<u64>,
        /// At most N groups
        #[arg(long, value_name = "N", value_parser = values::count::<u64>)]
        limit: Option<u64>,
    },
}

/// The database to dump.
#[derive(Debug, Args)]
struct Database {
    /// The database's directory
    dir: PathBuf,

    #[command(flatten)]
    cached: CachedArg,
}

impl Database {
    fn open(&self) -> Result<Inspector, Failure> {
        Ok(Inspector::open(&self.dir, self.cached.0)?)
    }
}

fn page_id(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once(':').and_then(|(space, number)| Some((space.parse().ok()?, number.parse().ok()?)));
    parsed.ok_or_else(|| "not a page: write, for example, 1:0".to_owned())
}

/// Dumps a part of a database.
pub(crate) fn run(args: &DumpArgs) -> Result<Answer, Failure> {
    let mut text = String::new();
    let mut printed = Ok(());
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
        if text.len() >= TOGETHER {
            printed = print(&text);
            text.clear();
        }
        printed.is_ok()
    };
    let dumped = match &args.what {
        What::Superblock(database) => database.open()?.superblocks(&mut line),
        What::Map { database, space } => database.open()?.map(*space, &mut line),
        What::Page { database, slot: Some(slot), .. } => database.open()?.slot(*slot, &mut line),
        What::Page { database, page, .. } => {
            let (space, number) = page.unwrap_or_default();
            database.open()?.page(space, number, &mut line)
        }
        What::Log { database, from, limit } => database.open()?.log(*from, *limit, &mut line),
    };
    printed?;
    print(&text)?;
    dumped?;
    Ok(Answer::Yes)
}
