//! `millpond verify snapshot`: every read of a snapshot against the replay of all batches in the order of CommitTs.
//!
//! Writers and readers work at the same time, in rounds. After a round the batches are replayed by their CommitTs, and
//! each read is compared with the rows of its moment. Snapshots live across rounds; the pool is far smaller than the
//! data, so that leaves and undo pages are evicted all the time.

use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use millpond::inspect::{CheckOptions, check};
use millpond::{ByteSize, Db, Options, Snapshot};

use super::LoadArgs;
use super::history::{Batch, History, Looked, Question, Read};
use super::read::{Moments, Reader, ask};
use super::rows::{GROUPS, KEYS, Place, Rows, random};
use super::write::Writer;
use crate::database_files;
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::progress::Progress;
use crate::signals;
use crate::values as option_values;

/// Page size: small, so that chains of versions lead over many pages.
const PAGE_SIZE: ByteSize = ByteSize::kib(4);

/// Frames beyond the fewest that the engine takes (32), so that what is read is seldom in memory.
const FRAMES: u64 = 32 + 40;

const REDO_CAPACITY: ByteSize = ByteSize::mib(8);

/// Reads of a round.
const READS_PER_ROUND: u64 = 40_000;

/// The fewest rounds: snapshots live across them.
const ROUNDS_MIN: u64 = 10;

/// Reads for each batch.
const READS_PER_BATCH: u64 = 4;

/// The most mistakes that are printed.
const MISTAKES_MAX: usize = 20;

/// Arguments of `verify snapshot`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Half of the threads write random batches, the others take snapshots and read: rows, scans, index entries, rows by index,
of snapshots of all ages. Every read is compared with a replay of all batches by CommitTs. At the end the database is
checked as `millpond check` does.

Exit code: 0 all reads are right, 1 something is wrong (the directory is kept), 2 the test could not be run, 130
interrupted, 143 terminated.

Examples:
  millpond verify snapshot
  millpond verify snapshot --reads 10000000 --threads 16")]
pub(crate) struct SnapshotArgs {
    /// How many reads to compare at least
    #[arg(long, value_name = "N", default_value = "20000", value_parser = option_values::rows)]
    reads: u64,

    #[command(flatten)]
    load: LoadArgs,
}

/// What was compared.
#[derive(Default)]
struct Compared {
    reads: u64,
    rows: u64,
    batches: u64,
    looked: Looked,
}

/// Runs the command.
pub(super) fn run(args: &SnapshotArgs) -> Result<Answer, Failure> {
    if args.reads == 0 {
        return Err(Failure::message("--reads 0 compares nothing; ask for one at least"));
    }
    database_files::make_vacant(&args.load.dir)?;
    let stop = signals::stop_flag()?;
    let (dir, reads, threads, seed) = (args.load.dir.display(), args.reads, args.load.threads, args.load.seed);
    print(&format!("verify snapshot in '{dir}': {reads} reads, {threads} threads, seed {seed}\n"))?;
    let pool = ByteSize::b(PAGE_SIZE.as_u64() * FRAMES);
    let options = Options::new().page_size(PAGE_SIZE).buffer_pool_size(pool).redo_capacity(REDO_CAPACITY);
    let rows = Rows::create(Db::open(&args.load.dir, options.cached(args.load.cached.0))?)?;

    let progress = Progress::start("verify", "reads", args.reads);
    let mut compared = Compared::default();
    let mut mistakes = compare(args, &rows, &progress, &stop, &mut compared);
    progress.finish();

    let Rows { db, .. } = rows;
    let stats = db.stats();
    db.close()?;
    let mut options = CheckOptions::default();
    options.cached = args.load.cached.0;
    let report = check(&args.load.dir, options)?;
    mistakes.extend(report.problems.iter().map(|problem| format!("check: {problem}")));
    let Compared { reads, rows, batches, looked } = compared;
    let Looked { old_rows, most_newer } = looked;
    print(&format!(
        "{reads} reads of {rows} rows compared with the replay of {batches} batches; {old_rows} looks were at rows that \
         had newer versions, one of them {most_newer}\n"
    ))?;
    let (steps, most_steps) = (stats.snapshot_steps, stats.snapshot_steps_max);
    let kept = ByteSize::b(stats.undo_bytes_retained);
    print(&format!(
        "{steps} undo records led to them, at most {most_steps} to one; at the end snapshots kept {kept} of undo pages\n"
    ))?;
    // Relaxed: an independent flag.
    let was_stopped = stop.load(Ordering::Relaxed);
    for mistake in mistakes.iter().take(MISTAKES_MAX) {
        print(&format!("  WRONG: {mistake}\n"))?;
    }
    if !mistakes.is_empty() {
        print(&format!("{} wrong\n", mistakes.len()))?;
        talk(&format!("the database is kept in '{}'", args.load.dir.display()));
        return Ok(Answer::No);
    }
    database_files::remove(&args.load.dir)?;
    if was_stopped {
        print("interrupted: what was compared is right\n")?;
        return Ok(Answer::Interrupted);
    }
    if old_rows == 0 {
        return Err(Failure::message("no read was of an old version, so nothing is shown; ask for more with --reads"));
    }
    print("all right\n")?;
    Ok(Answer::Yes)
}

/// Writes, reads and compares, round by round. Returns what is wrong; the first round with a mistake is the last.
fn compare(
    args: &SnapshotArgs,
    rows: &Rows,
    progress: &Progress,
    stop: &AtomicBool,
    compared: &mut Compared,
) -> Vec<String> {
    let of_thread = |thread: u8| random(args.load.seed, u64::from(thread));
    let writers = args.load.threads / 2;
    let mut readers: Vec<Reader> = (writers..args.load.threads).map(|thread| Reader::new(of_thread(thread))).collect();
    let mut writers: Vec<Writer> = (0..writers).map(|thread| Writer::new(of_thread(thread), thread)).collect();
    let (mut history, moments) = (History::new(), Moments::default());
    let each = (args.reads / ROUNDS_MIN).clamp(1, READS_PER_ROUND).div_ceil(readers.len() as u64);
    let batches = (each * readers.len() as u64).div_ceil(READS_PER_BATCH * writers.len() as u64);
    // Relaxed: an independent flag.
    while compared.reads < args.reads && !stop.load(Ordering::Relaxed) {
        let mut mistakes = Vec::new();
        let (mut written, mut read): (Vec<Batch>, Vec<Read>) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let moments = &moments;
            let writing: Vec<_> =
                writers.iter_mut().map(|writer| scope.spawn(move || writer.write(rows, moments, batches))).collect();
            let reading: Vec<_> =
                readers.iter_mut().map(|reader| scope.spawn(move || reader.read(rows, moments, each))).collect();
            for thread in writing {
                take(thread.join(), &mut written, &mut mistakes);
            }
            for thread in reading {
                take(thread.join(), &mut read, &mut mistakes);
            }
        });
        let is_last = compared.reads + read.len() as u64 >= args.reads;
        if is_last && mistakes.is_empty() {
            read_all(rows, &moments, &mut read, &mut mistakes);
        }
        compared.batches += written.len() as u64;
        mistakes.extend(history.add(written).err());
        // Without all batches no read can be judged.
        if mistakes.is_empty() {
            for read in &read {
                match history.check(read) {
                    Ok(looked) => compared.looked.add(looked),
                    Err(mistake) => mistakes.push(mistake),
                }
                compared.reads += 1;
                compared.rows += read.answer.len() as u64;
            }
        }
        if !mistakes.is_empty() {
            return mistakes;
        }
        if let Some(oldest) = readers.iter().filter_map(Reader::oldest).map(Snapshot::commit_ts).min() {
            history.forget(oldest);
        }
        progress.advance(read.len() as u64);
    }
    Vec::new()
}

/// Takes what a thread returned.
fn take<T>(joined: std::thread::Result<Result<Vec<T>, String>>, all: &mut Vec<T>, mistakes: &mut Vec<String>) {
    match joined {
        Ok(Ok(done)) => all.extend(done),
        Ok(Err(mistake)) => mistakes.push(mistake),
        Err(_) => mistakes.push("a thread of the test panicked".to_owned()),
    }
}

/// Reads everything at a new snapshot, in every way.
fn read_all(rows: &Rows, moments: &Moments, read: &mut Vec<Read>, mistakes: &mut Vec<String>) {
    let snapshot = match rows.db.snapshot() {
        Ok(snapshot) => snapshot,
        Err(error) => return mistakes.push(format!("no snapshot: {error}")),
    };
    let scan = |place, is_back| Question::Scan { place, keys: 0..KEYS, is_back, limit: usize::MAX };
    let scans = Place::ALL.into_iter().flat_map(|place| [scan(place, false), scan(place, true)]);
    for question in scans.chain([Question::Entries(0..GROUPS), Question::ByIndex(0..GROUPS)]) {
        match ask(rows, &snapshot, question, moments) {
            Ok(answer) => read.push(answer),
            Err(mistake) => mistakes.push(mistake),
        }
    }
}
