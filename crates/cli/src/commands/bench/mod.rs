//! `millpond bench`: sysbench's OLTP load, the insert benchmark or the order queue, on a database of its own.

mod args;
mod facts;
mod insert;
mod measure;
mod orders;
mod report;
mod room;

use std::sync::atomic::AtomicBool;

use millpond::{ByteSize, Snapshot};
use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::driver::Finished;
use workload::engine::TableNo;
use workload::figures::Labels;
use workload::generators::oltp::{Client, Load, Workload, bulk_name};
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
    match job.args.workload {
        Benchmark::Oltp(workload) => act_as_sysbench(job, workload, engine),
        Benchmark::Insert => insert::act(job, engine),
        Benchmark::Orders => orders::act(job, engine),
    }
}

/// Performs the action of one of sysbench's workloads.
fn act_as_sysbench(job: &Job<'_>, workload: Workload, engine: &Millpond) -> Result<Answer, Failure> {
    let args = job.args;
    if args.action == Some(Action::Cleanup) {
        if workload.uses_tables() {
            let dropped = prepare::drop_tables(engine, args.table_set()?)?;
            talk(&format!("dropped {}", listed(&dropped, TableNo::to_string)));
        } else {
            let dropped = prepare::drop_bulk(engine, args.load.threads)?;
            talk(&format!("dropped {}", listed(&dropped, |table| bulk_name(*table))));
        }
        return Ok(Answer::Yes);
    }
    if args.prepares() {
        if workload.uses_tables() {
            let set = args.table_set()?;
            let plan = LoadPlan {
                set,
                rand_type: args.load.rand_type,
                seed: args.load.rand_seed,
                threads: args.load.threads as usize,
                layout: args.layout(),
            };
            let missing = prepare::missing(engine, set)?;
            let load = |progress: &Advance<'_>| prepare::load(engine, &plan, &missing, job.stop, progress);
            if load_missing(args, &missing, TableNo::to_string, load)? == Answer::Interrupted {
                return Ok(Answer::Interrupted);
            }
        } else {
            make_bulk(args, engine)?;
        }
    }
    if !args.runs() {
        return Ok(Answer::Yes);
    }
    let load = Load::new(engine, workload, args.table_set()?, args.load.rand_type, &args.mix(workload)?)?;
    measure::measure(job, engine, || Client::all(&load, engine, args.load.threads as usize), || Ok(None))
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

/// Notes that so many rows more are loaded.
type Advance<'a> = dyn Fn(u64) + Sync + 'a;

/// Loads `missing` tables with `load`, after a check that they can fit on the disk. [`Answer::Interrupted`]: they are
/// half loaded.
fn load_missing(
    args: &BenchArgs,
    missing: &[TableNo],
    name: impl Fn(&TableNo) -> String,
    load: impl FnOnce(&Advance<'_>) -> Result<(), Error>,
) -> Result<Answer, Failure> {
    room::check_more(args, u32::try_from(missing.len()).unwrap_or(u32::MAX))?;
    if missing.is_empty() {
        if args.action == Some(Action::Prepare) {
            talk("all tables are loaded already");
        }
        return Ok(Answer::Yes);
    }
    let rows = missing.len() as u64 * args.load.table_size;
    let progress = Progress::start("loading", "rows", rows);
    let loaded = load(&|rows| progress.advance(rows));
    let took = progress.finish();
    match loaded {
        Err(Error::Interrupted) => return Ok(interrupted_load()),
        loaded => loaded?,
    }
    talk(&format!("loaded {} with {rows} rows in {:.1} s", listed(missing, name), took.as_secs_f64()));
    Ok(Answer::Yes)
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
