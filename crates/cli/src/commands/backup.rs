//! `millpond backup DIR TO` and `millpond restore FROM DIR`: a copy of a database at one moment, and a database of it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use millpond::{BackupOptions, BackupReport, ByteSize, Db, Error, Options};

use crate::exit::{Answer, Failure};
use crate::output::print;
use crate::progress::Progress;
use crate::signals;

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_long_help = "Opens the database, which no other process may have open, and copies it as it is at that
moment. A program backs its open database up while it writes: Db::backup. Every page is verified. An interrupt, or an
error, leaves nothing that passes for a backup.

Examples:
  millpond backup millpond-bench-data backup-monday
  millpond check backup-monday
  millpond restore backup-monday restored")]
pub(crate) struct BackupArgs {
    /// The database's directory
    dir: PathBuf,

    /// The backup's directory, new or empty
    to: PathBuf,

    /// Most bytes of the data file a second, such as 200MiB [default: half of what the device can write]
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
    let db = Db::open(&args.dir, Options::new().create(false))?;
    let options = args.rate.map_or_else(BackupOptions::new, |rate| BackupOptions::new().rate(rate));
    let (report, took) = watched("backing up", options, &stop, |options| db.backup(&args.to, options))?;
    let closed = db.close();
    let Some(report) = report else { return Ok(Answer::Interrupted) };
    closed?;
    print(&text(("backup:", &args.to), ("of:", &args.dir), &report, took))?;
    Ok(Answer::Yes)
}

/// Restores a backup.
pub(crate) fn restore(args: &RestoreArgs) -> Result<Answer, Failure> {
    let stop = signals::stop_flag()?;
    let restore = |options| millpond::restore(&args.from, &args.dir, options);
    let (report, took) = watched("restoring", BackupOptions::new(), &stop, restore)?;
    let Some(report) = report else { return Ok(Answer::Interrupted) };
    print(&text(("database:", &args.dir), ("restored:", &args.from), &report, took))?;
    Ok(Answer::Yes)
}

/// Does the work with a bar, until it ends or is interrupted, which is `None`.
fn watched(
    what: &'static str,
    options: BackupOptions,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(BackupOptions) -> Result<BackupReport, Error>,
) -> Result<(Option<BackupReport>, Duration), Failure> {
    let (stop, started) = (Arc::clone(stop), std::time::Instant::now());
    let (mut bar, mut before): (Option<Progress>, _) = (None, 0);
    let done = work(options.progress(move |progress| {
        let bar = bar.get_or_insert_with(|| Progress::start(what, "MiB", progress.total / MIB));
        bar.advance((progress.done - before) / MIB);
        before = progress.done;
        // Relaxed: an independent flag.
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }));
    match done {
        Ok(report) => Ok((Some(report), started.elapsed())),
        Err(Error::Cancelled(_)) => Ok((None, started.elapsed())),
        Err(error) => Err(error.into()),
    }
}

/// The report as aligned text.
fn text((what, dir): (&str, &Path), (of, other): (&str, &Path), report: &BackupReport, took: Duration) -> String {
    let rows = [
        (what, dir.display().to_string()),
        (of, other.display().to_string()),
        ("LSN:", report.lsn.to_string()),
        ("pages:", report.pages.to_string()),
        ("log bytes:", report.log_bytes.to_string()),
        ("took:", format!("{:.1} s", took.as_secs_f64())),
    ];
    rows.map(|(name, value)| format!("{name:<14}{value}\n")).concat()
}
