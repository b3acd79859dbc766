//! `millpond bench`: sysbench's OLTP load, or the insert benchmark, on a database of its own.

mod args;
mod facts;
mod insert;
mod measure;
mod report;
mod room;

use std::sync::atomic::AtomicBool;

use millpond::{ByteSize, Snapshot};
use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::driver::Finished;
use workload::engine::TableNo;
use workload::figures::Labels;
use workload::generators::oltp::{Workload, bulk_name};
use workload::prepare::{self, LoadPlan};
use workload::probe::Access;
use workload::verdict::Verdict;

pub(crate) use args::BenchArgs;

use crate::database_files::{self, Left};
use crate::engine_args::EngineSettings;
use crate::exit::{Answer, Failure};
use crate::output::talk;
use crate::progress::Progress;
use crate::report::ReportFile;
use crate::settings::Setting;
use crate::signals;
use crate::values::Benchmark;
use args::Action;

/// Runs the command; `given` holds the options of the command line.
pub(crate) fn run(args: &BenchArgs, given: &[Setting]) -> Result<Answer, Failure> {
    let mistakes = args.check(given).err().map(|mistake| mistake.to_string());
    let engine_settings = args.engine.resolve(mistakes.into_iter().collect())?;
    let report = report_file(args)?;
    let stop = signals::stop_flag()?;
    let was_vacant = database_files::is_vacant(&args.load.dir)?;
    if was_vacant && !args.prepares() {
        return Err(Failure::message(format!(
            "there is no database in '{}'; make one with the action 'prepare'",
            args.load.dir.display()
        )));
    }
    if was_vacant {
        room::check_new(args, &engine_settings)?;
    }
    let options = engine_settings.options.clone().create(args.prepares());
    let engine = Millpond::open(&args.load.dir, options)?;
    // Checked before the command changes anything.
    if args.output.remove && !was_vacant && !engine.is_only_load()? {
        return Err(Failure::message(format!(
            "'{}' is not a database that bench made for itself, so it will not be removed; leave --remove out",
            args.load.dir.display()
        )));
    }
    let job = Job { args, engine_settings: &engine_settings, given, report: report.as_ref(), stop: &stop };
    let ended = act(&job, &engine);
    let closed = engine.close();
    match ended {
        // The database is kept, so that the user can investigate the failure.
        Err(Failure::Error(error)) => Err(Failure::Error(error)),
        ended => {
            closed?;
            if args.output.remove {
                remove(args)?;
            }
            ended
        }
    }
}

/// The command's work, with all its settings.
struct Job<'a> {
    args: &'a BenchArgs,
    engine_settings: &'a EngineSettings,
    given: &'a [Setting],
    report: Option<&'a ReportFile>,
    stop: &'a AtomicBool,
}

impl Job<'_> {
    /// Settings that the figures depend on besides the run.
    fn labels(&self) -> Labels {
        Labels {
            percentile: self.args.output.percentile,
            stall_threshold_ms: self.engine_settings.stall_threshold_ms(),
        }
    }

    /// The probe's access to files: the same as the engine's.
    fn access(&self) -> Access {
        if self.engine_settings.is_cached() { Access::Cached } else { Access::Direct }
    }
}

/// The answer to `--check`; `Yes` without that option.
fn checked(args: &BenchArgs, verdict: Verdict) -> Answer {
    match verdict {
        _ if !args.output.check => Answer::Yes,
        Verdict::Calm => Answer::Yes,
        Verdict::NotCalm => Answer::No,
        Verdict::Inconclusive => Answer::Inconclusive,
    }
}

/// If a canary failed during the run, reports why.
fn tell_unwatched(finished: &Finished) {
    if let Some(failure) = finished.machine.as_ref().and_then(|machine| machine.failure.as_ref()) {
        talk(&format!("{failure}; the machine was not watched from then on, and its stops count against the engine"));
    }
}

/// The file of the report, if one is asked for. Tests that it can be written before the command does any work.
fn report_file(args: &BenchArgs) -> Result<Option<ReportFile>, Failure> {
    let Some(path) = &args.output.report else { return Ok(None) };
    if !args.runs() {
        return Err(Failure::message("--report tells of a run: leave it out, or the action word"));
    }
    ReportFile::check(path).map(Some)
}

/// Performs the action.
fn act(job: &Job<'_>, engine: &Millpond) -> Result<Answer, Failure> {
    let (args, stop) = (job.args, job.stop);
    let workload = match args.workload {
        Benchmark::Oltp(workload) => workload,
        Benchmark::Insert => return insert::act(job, engine),
    };
    if args.action == Some(Action::Cleanup) {
        if workload.uses_tables() {
            let dropped = prepare::drop_tables(engine, args.table_set(workload)?)?;
            talk(&format!("dropped {}", listed(&dropped, TableNo::to_string)));
        } else {
            let dropped = prepare::drop_bulk(engine, args.load.threads)?;
            talk(&format!("dropped {}", listed(&dropped, |table| bulk_name(*table))));
        }
        return Ok(Answer::Yes);
    }
    if args.prepares() {
        if workload.uses_tables() {
            let tables = missing(args, workload, engine)?;
            match load(args, workload, engine, &tables, stop) {
                Err(Error::Interrupted) => return Ok(interrupted_load()),
                loaded => loaded?,
            }
        } else {
            make_bulk(args, engine)?;
        }
    }
    if args.runs() { measure::measure(job, workload, engine) } else { Ok(Answer::Yes) }
}

/// The snapshot of `--snapshot-held`.
fn held(args: &BenchArgs, engine: &Millpond) -> Result<Option<Snapshot>, Failure> {
    Ok(args.load.snapshot_held.then(|| engine.db().snapshot()).transpose()?)
}

/// What a held snapshot has kept until now.
fn held_line(held: &Snapshot, engine: &Millpond) -> String {
    let (age_s, kept) = (held.age().as_secs_f64(), ByteSize::b(engine.db().stats().undo_bytes_retained));
    format!("Snapshot held for {age_s:.1} s: {kept} of undo pages kept for it\n")
}

/// Reports that an interrupt left the tables half loaded.
fn interrupted_load() -> Answer {
    talk("interrupted: the tables are half loaded; drop them with the action 'cleanup'");
    Answer::Interrupted
}

/// The missing tables; refuses tables that cannot fit on the disk.
fn missing(args: &BenchArgs, workload: Workload, engine: &Millpond) -> Result<Vec<TableNo>, Failure> {
    let tables = prepare::missing(engine, args.table_set(workload)?)?;
    if tables.is_empty() && args.action == Some(Action::Prepare) {
        talk("all tables are loaded already");
    }
    room::check_more(args, u32::try_from(tables.len()).unwrap_or(u32::MAX))?;
    Ok(tables)
}

/// Loads `tables`, which are missing.
fn load(
    args: &BenchArgs,
    workload: Workload,
    engine: &Millpond,
    tables: &[TableNo],
    stop: &AtomicBool,
) -> Result<(), Error> {
    if tables.is_empty() {
        return Ok(());
    }
    let set = args.table_set(workload)?;
    let rows = tables.len() as u64 * set.table_size();
    let plan = LoadPlan {
        set,
        rand_type: args.load.rand_type,
        seed: args.load.rand_seed,
        threads: args.load.threads as usize,
        layout: args.layout(),
    };
    let progress = Progress::start("loading", "rows", rows);
    let loaded = prepare::load(engine, &plan, tables, stop, &|rows| progress.advance(rows));
    let took = progress.finish();
    loaded?;
    talk(&format!("loaded {} with {rows} rows in {:.1} s", listed(tables, TableNo::to_string), took.as_secs_f64()));
    Ok(())
}

/// Creates the missing tables of `bulk_insert`, empty.
fn make_bulk(args: &BenchArgs, engine: &Millpond) -> Result<(), Error> {
    let tables = prepare::missing_bulk(engine, args.load.threads)?;
    prepare::make_bulk(engine, &tables)?;
    if !tables.is_empty() {
        talk(&format!("made {}", listed(&tables, |table| bulk_name(*table))));
    } else if args.action == Some(Action::Prepare) {
        talk("all tables are there already");
    }
    Ok(())
}

fn remove(args: &BenchArgs) -> Result<(), Failure> {
    match database_files::remove(&args.load.dir)? {
        Left::Nothing => talk(&format!("removed '{}'", args.load.dir.display())),
        Left::OtherFiles => {
            talk(&format!("removed the database in '{}'; the other files there stay", args.load.dir.display()));
        }
    }
    Ok(())
}

/// The tables' names, or `no table`.
fn listed(tables: &[TableNo], name: impl Fn(&TableNo) -> String) -> String {
    match tables {
        [] => "no table".to_owned(),
        [one] => name(one),
        [first, .., last] => format!("{} to {}", name(first), name(last)),
    }
}
