//! `millpond verify isolation`: random transactions on many threads, and a search for anything that their level of
//! isolation forbids.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::{Args, ValueEnum};
use millpond::inspect::{CheckOptions, check};
use millpond::{ByteSize, Db, Durability, Isolation, OnConflict, Options, TxnOptions};

use super::LoadArgs;
use super::cycles::{Oracle, Rules, Seen};
use super::lists::{Client, Lists};
use super::rows::random;
use crate::database_files;
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::progress::Progress;
use crate::signals;
use crate::values as option_values;

const PAGE_SIZE: ByteSize = ByteSize::kib(4);

/// Frames: the fewest that the engine takes, and some.
const FRAMES: u64 = 32 + 40;

const REDO_CAPACITY: ByteSize = ByteSize::mib(8);

/// Transactions of a round.
const ROUND: u64 = 2_000;

/// A level of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    ReadCommitted,
    /// Changes are of the latest rows.
    RepeatableReadLatest,
    /// The first updater of a row wins.
    RepeatableRead,
}

impl Level {
    const ALL: [Level; 3] = [Level::ReadCommitted, Level::RepeatableReadLatest, Level::RepeatableRead];

    fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read committed",
            Level::RepeatableReadLatest => "repeatable read, latest",
            Level::RepeatableRead => "repeatable read",
        }
    }

    fn options(self) -> TxnOptions {
        let options = TxnOptions::new().durability(Durability::None);
        match self {
            Level::ReadCommitted => options.isolation(Isolation::ReadCommitted),
            Level::RepeatableReadLatest => options.on_conflict(OnConflict::Latest),
            Level::RepeatableRead => options,
        }
    }

    fn rules(self) -> Rules {
        Rules { one_snapshot: self != Level::ReadCommitted, first_wins: self == Level::RepeatableRead }
    }

    /// What the level allows and was not seen: then the test is blind.
    fn unseen(self, seen: Seen) -> Vec<&'static str> {
        let lost = (seen.lost_updates, "a lost update");
        let allowed: &[(u64, &str)] = match self {
            Level::ReadCommitted => &[(seen.fuzzy_reads, "a fuzzy read"), lost],
            Level::RepeatableReadLatest => &[lost],
            Level::RepeatableRead => &[(seen.conflicts, "a conflict")],
        };
        let skew = (seen.write_skews, "write skew");
        let all = allowed.iter().copied().chain([skew, (seen.deadlocks, "a deadlock")]);
        all.filter(|(times, _)| *times == 0).map(|(_, what)| what).collect()
    }
}

/// Arguments of `verify isolation`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Each row is a list to which transactions add elements; they read lists by key, by a unique and by a non-unique index.
From what they returned alone, an oracle knows which versions each transaction has to see, and searches their
dependencies for circles. It also has to see what a level allows, such as write skew: else it would be blind. At the end
the database is checked as `millpond check` does.

Exit code: 0 nothing forbidden was seen, 1 something is wrong (the directory is kept), 2 the test could not be run, 130
interrupted, 143 terminated.

Examples:
  millpond verify isolation
  millpond verify isolation --level=repeatable-read --transactions=1000000 --threads=16")]
pub(crate) struct IsolationArgs {
    /// How many transactions to run at each level at least
    #[arg(long, value_name = "N", default_value = "6000", value_parser = option_values::rows)]
    transactions: u64,

    /// One level, not all
    ///
    /// Without it, the three levels run one after the other.
    #[arg(long, value_name = "LEVEL")]
    level: Option<Level>,

    #[command(flatten)]
    load: LoadArgs,
}

/// Runs the command.
pub(super) fn run(args: &IsolationArgs) -> Result<Answer, Failure> {
    if args.transactions == 0 {
        return Err(Failure::message("--transactions 0 shows nothing; ask for some thousands"));
    }
    let stop = signals::stop_flag()?;
    let levels = args.level.map_or_else(|| Level::ALL.to_vec(), |level| vec![level]);
    for level in levels {
        database_files::make_vacant(&args.load.dir)?;
        let (dir, count, threads, seed) =
            (args.load.dir.display(), args.transactions, args.load.threads, args.load.seed);
        let name = level.name();
        print(&format!("{name} in '{dir}': {count} transactions, {threads} threads, seed {seed}\n"))?;
        match verify(args, level, &stop)? {
            Answer::Yes => {}
            other => return Ok(other),
        }
    }
    print("all right\n")?;
    Ok(Answer::Yes)
}

/// Runs transactions at one level, and looks for what is wrong.
fn verify(args: &IsolationArgs, level: Level, stop: &AtomicBool) -> Result<Answer, Failure> {
    let pool = ByteSize::b(PAGE_SIZE.as_u64() * FRAMES);
    let options = Options::new().page_size(PAGE_SIZE).buffer_pool_size(pool).redo_capacity(REDO_CAPACITY);
    let lists = Lists::create(Db::open(&args.load.dir, options.cached(args.load.cached.0))?)?;
    let progress = Progress::start("verify", "transactions", args.transactions);
    let mut oracle = Oracle::new(level.rules());
    let mut mistake = rounds(args, level, &lists, &mut oracle, &progress, stop).err();
    progress.finish();
    lists.db.close()?;
    let mut options = CheckOptions::default();
    options.cached = args.load.cached.0;
    let report = check(&args.load.dir, options)?;
    mistake = mistake.or_else(|| report.problems.first().map(|problem| format!("check: {problem}")));
    let Seen { committed, conflicts, deadlocks, reads, fuzzy_reads, lost_updates, write_skews } = oracle.seen;
    print(&format!(
        "  {committed} committed, {conflicts} conflicts, {deadlocks} deadlocks; {reads} reads compared\n  seen: \
         {fuzzy_reads} fuzzy reads, {lost_updates} lost updates, {write_skews} write skews\n"
    ))?;
    if let Some(mistake) = mistake {
        print(&format!("  WRONG: {mistake}\n"))?;
        talk(&format!("the database is kept in '{}'", args.load.dir.display()));
        return Ok(Answer::No);
    }
    database_files::remove(&args.load.dir)?;
    // Relaxed: an independent flag.
    if stop.load(Ordering::Relaxed) {
        print("interrupted: nothing wrong was seen\n")?;
        return Ok(Answer::Interrupted);
    }
    let unseen = level.unseen(oracle.seen);
    if !unseen.is_empty() {
        let (unseen, level) = (unseen.join(" or "), level.name());
        return Err(Failure::message(format!(
            "{level} allows it, but {unseen} was never seen, so the test is blind; ask for more --transactions"
        )));
    }
    Ok(Answer::Yes)
}

/// Runs rounds of transactions. An error is the story of the first thing that is wrong.
fn rounds(
    args: &IsolationArgs,
    level: Level,
    lists: &Lists,
    oracle: &mut Oracle,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<(), String> {
    let of_thread = |thread: u8| Client::new(random(args.load.seed, u64::from(thread)), thread, level.options());
    let mut clients: Vec<Client> = (0..args.load.threads).map(of_thread).collect();
    let each = ROUND.min(args.transactions).div_ceil(u64::from(args.load.threads));
    let committed = AtomicU64::new(0);
    let mut done = 0;
    // Relaxed: an independent flag.
    while done < args.transactions && !stop.load(Ordering::Relaxed) {
        let mut txns = Vec::new();
        std::thread::scope(|scope| {
            let committed = &committed;
            let run = |client| scope.spawn(move || Client::run(client, lists, committed, each));
            let threads: Vec<_> = clients.iter_mut().map(run).collect();
            for thread in threads {
                txns.extend(thread.join().map_err(|_| "a thread of the test panicked".to_owned())??);
            }
            Ok::<(), String>(())
        })?;
        oracle.check(&txns)?;
        done += txns.len() as u64;
        progress.advance(txns.len() as u64);
    }
    Ok(())
}
