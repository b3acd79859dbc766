//! `millpond compact DIR|SOCKET`: the data file gives its free end back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use millpond::{ByteSize, Db, Error, Options, WorkOptions};
use millpond_server::{Facts, Request};

use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::progress::bar_of_bytes;
use crate::running::{ask_watched, is_socket};
use crate::signals;

/// Arguments of `compact`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Moves the pages at the end of the data file to free room before them, and cuts the file. About an
eighth of the pages' room stays free. A running engine does so while its writers go on, on the socket that it was given
(bench --status-socket=PATH, or Options::status_socket). The command opens the database in a directory, which no other
process may have open, itself. An interrupt leaves a sound database, and a file that may be shorter.

Examples:
  millpond compact millpond-bench-data
  millpond compact millpond-bench-data --rate=20MiB"
)]
pub(crate) struct CompactArgs {
    /// The status socket of a running engine, or the directory of a closed database
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    /// Most bytes moved a second, such as 200MiB [default: half of the device's rate]
    #[arg(long, value_name = "BYTES")]
    rate: Option<ByteSize>,
}

/// Makes a data file short.
pub(crate) fn run(args: &CompactArgs) -> Result<Answer, Failure> {
    let (stop, started) = (signals::stop_flag()?, Instant::now());
    let facts = if is_socket(&args.target) {
        let request = Request::Compact { rate: args.rate.map(|rate| rate.as_u64()) };
        ask_watched("compacting", &args.target, &request, &stop)?
    } else {
        of_closed(args, &stop)?
    };
    let Some(facts) = facts else { return Ok(Answer::Interrupted) };
    print(&text(&args.target, facts, started.elapsed()))?;
    Ok(Answer::Yes)
}

/// Opens a database that no other process has open, and makes its data file short. `None`: interrupted.
fn of_closed(args: &CompactArgs, stop: &Arc<AtomicBool>) -> Result<Option<Facts>, Failure> {
    let db = open(&args.target)?;
    let options = args.rate.map_or_else(WorkOptions::new, |rate| WorkOptions::new().rate(rate));
    let mut bar = bar_of_bytes("compacting", stop);
    let done = db.compact(options.progress(move |progress| bar(progress.done, progress.total)));
    let closed = db.close();
    let report = match done {
        Err(Error::Cancelled(_)) => return Ok(None),
        done => done?,
    };
    closed?;
    let facts = [("bytes before", report.bytes_before), ("bytes after", report.bytes_after)];
    Ok(Some(facts.map(|(name, bytes)| (name.to_owned(), bytes.to_string())).into()))
}

/// Opens a database that no other process has open.
fn open(dir: &Path) -> Result<Db, Failure> {
    Db::open(dir, Options::new().create(false)).map_err(|error| match error {
        Error::InUse(_) => Failure::message(format!(
            "'{}' is open, in another process or in this one: name its engine's status socket \
             (--status-socket=PATH, Options::status_socket), or call Db::compact in its program",
            dir.display()
        )),
        other => other.into(),
    })
}

/// The lengths of the data file, as aligned text.
fn text(of: &Path, facts: Facts, took: Duration) -> String {
    let facts = facts.into_iter().map(|(name, value)| (format!("{name}:"), value));
    let took = ("took:".to_owned(), format!("{:.1} s", took.as_secs_f64()));
    let rows = [("compacted:".to_owned(), of.display().to_string())].into_iter().chain(facts).chain([took]);
    rows.map(|(name, value)| format!("{name:<14}{value}\n")).collect()
}
