//! `millpond crashtest`: does every acknowledged change survive a kill?
//!
//! Each round starts a [victim] that works on the database with many threads. The victim reports to the parent, outside
//! the database, each operation that it begins and each acknowledgement ([protocol]). The parent kills it with SIGKILL
//! at a random moment, then reopens the database (sometimes it kills the recovery first, too) and compares all content
//! with the [oracle]. Database and oracle go on from round to round. Pool and log are small, so that pages are evicted
//! and the log wraps around all the time.
//!
//! A kill of the process tests the data that the engine hands to the operating system before it acknowledges. Tests
//! with simulated devices cover data that the device loses on a power failure.

mod backups;
mod operations;
mod oracle;
mod protocol;
mod round;
mod transactions;
mod values;
pub(crate) mod victim;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use millpond::{ByteSize, OptionInfo, Options};

use crate::database_files;
use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::progress::Progress;
use crate::signals;
use crate::values as option_values;
use oracle::Oracle;
use round::Verdict;

/// Page size, such that the small pool holds all pages of a batch of two rows with its index changes.
const PAGE_SIZE: ByteSize = ByteSize::kib(8);

/// Size of the buffer pool: less than the data.
const BUFFER_POOL_SIZE: ByteSize = ByteSize::kib(1280);

/// Capacities of the log, which wraps around several times in a round. The size changes every few rounds, so that an
/// open has to make the log anew, or the log grows.
const REDO_CAPACITIES: [ByteSize; 2] = [ByteSize::mib(2), ByteSize::mib(3)];

/// Where the log begins: it grows in the first rounds.
const REDO_CAPACITY_MIN: ByteSize = ByteSize::mib(1);

/// Rounds with one size of the log.
const REDO_ROUNDS: u64 = 3;

/// The most differences that are printed.
const DIFFERENCES_MAX: usize = 20;

/// Arguments of `crashtest`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Exit code: 0 nothing was lost, 1 something was (the directory is kept), 2 the test could not be run, 130 interrupted,
143 terminated.

Examples:
  millpond crashtest --rounds 10
  millpond crashtest --rounds 100 --seed 42 --dir /mnt/disk/crashtest
  millpond crashtest --rounds 10 --transactions --backups
  millpond crashtest --profile mysql-8.0")]
pub(crate) struct CrashtestArgs {
    /// How often to kill
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = option_values::whole(1..=u32::MAX))]
    rounds: u32,

    /// Kill again and again for so many seconds, 1 to 86400, instead of so many rounds
    #[arg(long, value_name = "N", conflicts_with = "rounds", value_parser = option_values::whole(1..=86_400_u32))]
    seconds: Option<u32>,

    /// Every second operation is a transaction of several statements, with savepoints and rollbacks
    #[arg(long)]
    transactions: bool,

    /// Backups are made beside the load, to DIR-backups, then restored and compared
    #[arg(long)]
    backups: bool,

    /// Seed of the operations and of the moments of the kills
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = option_values::count::<u64>)]
    seed: u64,

    /// New or empty directory, removed if all passes
    #[arg(long, value_name = "DIR", default_value = "millpond-crashtest-data")]
    dir: PathBuf,

    /// Threads of the process that is killed, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = option_values::whole(1..=64_u8))]
    threads: u8,

    /// Policies as a server had them by default; names: millpond options
    #[arg(long, value_name = "NAME", default_value = "millpond", value_parser = profile)]
    profile: String,

    #[command(flatten)]
    cached: CachedArg,
}

impl CrashtestArgs {
    /// The directory of the backups: beside that of the database.
    fn backups_dir(&self) -> PathBuf {
        let mut name = self.dir.clone().into_os_string();
        name.push("-backups");
        name.into()
    }
}

/// Reads the value of `--profile`.
fn profile(name: &str) -> Result<String, String> {
    with_profile(name).map(|_| name.to_owned())
}

/// The policies of a profile.
fn with_profile(name: &str) -> Result<Options, String> {
    OptionInfo::find("profile").map_or_else(|| Ok(Options::new()), |info| info.set(Options::new(), name))
}

/// Runs the command.
pub(crate) fn run(args: &CrashtestArgs) -> Result<Answer, Failure> {
    database_files::make_vacant(&args.dir)?;
    if args.backups {
        database_files::make_vacant(&args.backups_dir())?;
    }
    let stop = signals::stop_flag()?;
    let mut oracle = Oracle::default();
    let mut passed = 0;
    let mut failed = 0;
    let (dir, rounds, seed, profile) = (args.dir.display(), args.rounds, args.seed, &args.profile);
    let length = args.seconds.map_or_else(|| format!("{rounds} rounds"), |seconds| format!("{seconds} s"));
    let operations = if args.transactions { ", with transactions" } else { "" };
    let backups = if args.backups { ", with backups" } else { "" };
    print(&format!("crashtest in '{dir}': {length}{operations}{backups}, seed {seed}, profile {profile}\n"))?;
    let progress = match args.seconds {
        None => Progress::start("crashtest", "rounds", u64::from(args.rounds)),
        Some(seconds) => Progress::start("crashtest", "seconds", u64::from(seconds)),
    };
    let (began, mut reported) = (Instant::now(), 0);
    for number in 1.. {
        let passed_s = began.elapsed().as_secs();
        let is_over = match args.seconds {
            None => number > args.rounds,
            Some(seconds) => passed_s >= u64::from(seconds),
        };
        if is_over {
            break;
        }
        match round::run(args, u64::from(number), &mut oracle, &stop)? {
            Verdict::Passed(line) => {
                passed += 1;
                progress.aside(|| print(&format!("round {number}: {line}\n")))?;
            }
            Verdict::Failed(wrong) => {
                failed += 1;
                progress.aside(|| print(&failure_text(number, &wrong)))?;
                break;
            }
            Verdict::Interrupted => break,
        }
        let done = if args.seconds.is_none() { u64::from(number) } else { began.elapsed().as_secs() };
        progress.advance(done - reported);
        reported = done;
    }
    progress.finish();
    print(&format!("{passed} passed, {failed} failed\n"))?;
    if failed > 0 {
        talk(&format!("the database is kept in '{}'; seed {} repeats the kills' plan", args.dir.display(), args.seed));
        return Ok(Answer::No);
    }
    database_files::remove(&args.dir)?;
    if args.backups {
        round::remove_backups(args)?;
    }
    // Relaxed: an independent flag.
    Ok(if stop.load(Ordering::Relaxed) { Answer::Interrupted } else { Answer::Yes })
}

/// The failures, one line each, and the number of those left out.
fn failure_text(number: u32, wrong: &[String]) -> String {
    let mut text = format!("round {number}: FAILED\n");
    for line in wrong.iter().take(DIFFERENCES_MAX) {
        text.push_str(&format!("  {line}\n"));
    }
    if let Some(more) = wrong.len().checked_sub(DIFFERENCES_MAX).filter(|&more| more > 0) {
        text.push_str(&format!("  and {more} more\n"));
    }
    text
}

/// The options with which victim and parent open the database in a round.
fn options(profile: &str, cached: bool, round: u64) -> Result<Options, String> {
    let redo_capacity = REDO_CAPACITIES[usize::from(round / REDO_ROUNDS % 2 == 1)];
    let options = with_profile(profile)?.redo_capacity(redo_capacity).redo_capacity_min(REDO_CAPACITY_MIN);
    Ok(options.page_size(PAGE_SIZE).buffer_pool_size(BUFFER_POOL_SIZE).cached(cached))
}
