//! `millpond backup DIR|SOCKET TO` and `millpond restore FROM DIR`: a copy of a database at one moment, and a database of it.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Args;
use millpond::{BackupReport, ByteSize, Db, Error, Options, WorkOptions};
use millpond_server::{Bytes, Facts, Request};

use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::progress::bar_of_bytes;
use crate::running::{ask_watched, is_socket};
use crate::signals;

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "A running engine backs itself up, while its writers go on, on the socket that it was given
(bench --status-socket=PATH, or Options::status_socket). Its process makes the files. The command opens the database in
a directory, which no other process may have open, itself. The copy is of one moment. Every page is verified. An
interrupt, or an error, leaves nothing that passes for a backup.

Examples:
  millpond backup millpond-bench-data backup-monday
  millpond check backup-monday
  millpond restore backup-monday restored"
)]
pub(crate) struct BackupArgs {
    /// The status socket of a running engine, or the directory of a closed database
    #[arg(value_name = "DIR|SOCKET")]
    target: PathBuf,

    /// The backup's directory, new or empty
    to: PathBuf,

    /// Most bytes a second, such as 200MiB, and fewer by need [default: half of the device's rate]
    #[arg(long, value_name = "BYTES")]
    rate: Option<ByteSize>,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
#[command(after_long_help = "Copies a backup to a new directory, and verifies every page on the way. The next open of
that directory recovers the database as it was when it was backed up. The backup stays as it is.

Example:
  millpond restore backup-monday restored")]
pub(crate) struct RestoreArgs {
    /// The backup's directory
    from: PathBuf,

    /// The database's directory, new or empty
    dir: PathBuf,
}

/// Backs a database up.
pub(crate) fn run(args: &BackupArgs) -> Result<Answer, Failure> {
    let stop = signals::stop_flag()?;
    if is_socket(&args.target) {
        return of_running(args, &stop);
    }
    let db = open(&args.target)?;
    let options = args.rate.map_or_else(WorkOptions::new, |rate| WorkOptions::new().rate(rate));
    let (report, took) = watched("backing up", options, &stop, |options| db.backup(&args.to, options))?;
    let closed = db.close();
    let Some(report) = report else { return Ok(Answer::Interrupted) };
    closed?;
    print(&text(("backup:", &args.to), ("of:", &args.target), facts(&report), took))?;
    Ok(Answer::Yes)
}

/// Has a running engine back itself up.
fn of_running(args: &BackupArgs, stop: &Arc<AtomicBool>) -> Result<Answer, Failure> {
    let started = Instant::now();
    // The engine's process may have another working directory.
    let to = std::path::absolute(&args.to).map_err(|why| {
        Failure::message(format!("cannot tell where '{}' is: {why}; name all of the path", args.to.display()))
    })?;
    let request =
        Request::Backup { to: Bytes(to.into_os_string().into_vec()), rate: args.rate.map(|rate| rate.as_u64()) };
    let Some(facts) = ask_watched("backing up", &args.target, &request, stop)? else { return Ok(Answer::Interrupted) };
    print(&text(("backup:", &args.to), ("of:", &args.target), facts, started.elapsed()))?;
    Ok(Answer::Yes)
}

/// Opens a database that no other process has open.
fn open(dir: &Path) -> Result<Db, Failure> {
    Db::open(dir, Options::new().create(false)).map_err(|error| match error {
        Error::InUse(_) => Failure::message(format!(
            "'{}' is open, in another process or in this one: back it up by its engine's status socket \
             (--status-socket=PATH, Options::status_socket) with 'millpond backup PATH TO', or from its program with \
             Db::backup",
            dir.display()
        )),
        other => other.into(),
    })
}

/// Restores a backup.
pub(crate) fn restore(args: &RestoreArgs) -> Result<Answer, Failure> {
    let stop = signals::stop_flag()?;
    let restore = |options| millpond::restore(&args.from, &args.dir, options);
    let (report, took) = watched("restoring", WorkOptions::new(), &stop, restore)?;
    let Some(report) = report else { return Ok(Answer::Interrupted) };
    print(&text(("database:", &args.dir), ("restored:", &args.from), facts(&report), took))?;
    Ok(Answer::Yes)
}

/// Does the work with a bar, until it ends or is interrupted, which is `None`.
fn watched(
    what: &'static str,
    options: WorkOptions,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(WorkOptions) -> Result<BackupReport, Error>,
) -> Result<(Option<BackupReport>, Duration), Failure> {
    let (mut bar, started) = (bar_of_bytes(what, stop), Instant::now());
    let done = work(options.progress(move |progress| bar(progress.done, progress.total)));
    match done {
        Ok(report) => Ok((Some(report), started.elapsed())),
        Err(Error::Cancelled(_)) => Ok((None, started.elapsed())),
        Err(error) => Err(error.into()),
    }
}

fn facts(report: &BackupReport) -> Facts {
    let facts = [("LSN", report.lsn), ("pages", report.pages), ("log bytes", report.log_bytes)];
    facts.map(|(name, value)| (name.to_owned(), value.to_string())).into()
}

/// A backup, or what was restored, as aligned text.
fn text((what, dir): (&str, &Path), (of, other): (&str, &Path), facts: Facts, took: Duration) -> String {
    let paths = [(what, dir), (of, other)].map(|(name, path)| (name.to_owned(), path.display().to_string()));
    let facts = facts.into_iter().map(|(name, value)| (format!("{name}:"), value));
    let took = ("took:".to_owned(), format!("{:.1} s", took.as_secs_f64()));
    let rows = paths.into_iter().chain(facts).chain([took]);
    rows.map(|(name, value)| format!("{name:<14}{value}\n")).collect()
}
