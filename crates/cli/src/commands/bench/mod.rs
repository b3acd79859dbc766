//! `millpond bench`: sysbench's OLTP load on a database of its own.

mod args;
mod measure;

use std::sync::atomic::AtomicBool;

use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::engine::TableNo;
use workload::prepare::{self, LoadPlan};

pub(crate) use args::BenchArgs;

use crate::database_files::{self, Left};
use crate::exit::{Answer, Failure};
use crate::output::talk;
use crate::progress::Progress;
use crate::signals;
use args::Action;

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<Answer, Failure> {
    args.table_set()?;
    let stop = signals::stop_flag()?;
    let was_vacant = database_files::is_vacant(&args.load.dir)?;
    if was_vacant && !args.prepares() {
        return Err(Failure::message(format!(
            "there is no database in '{}'; make one with the action 'prepare'",
            args.load.dir.display()
        )));
    }
    let engine = Millpond::open(&args.load.dir, args.engine_options())?;
    // Asked before anything is changed.
    if args.output.remove && !was_vacant && !engine.is_only_load()? {
        return Err(Failure::message(format!(
            "'{}' is not a database that bench made for itself, so it will not be removed; leave --remove out",
            args.load.dir.display()
        )));
    }
    let ended = act(args, &engine, &stop);
    let closed = engine.close();
    match ended {
        // Kept, so that what went wrong can be looked at.
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

/// Does what the action word says.
fn act(args: &BenchArgs, engine: &Millpond, stop: &AtomicBool) -> Result<Answer, Failure> {
    if args.action == Some(Action::Cleanup) {
        let dropped = prepare::drop_tables(engine, args.table_set()?)?;
        talk(&format!("dropped {}", listed(&dropped)));
        return Ok(Answer::Yes);
    }
    if args.prepares() {
        match load(args, engine, stop) {
            Err(Error::Interrupted) => {
                talk("interrupted: the tables are half loaded; drop them with the action 'cleanup'");
                return Ok(Answer::Interrupted);
            }
            loaded => loaded?,
        }
    }
    if args.runs() { measure::measure(args, engine, stop) } else { Ok(Answer::Yes) }
}

/// Loads the tables that are not there.
fn load(args: &BenchArgs, engine: &Millpond, stop: &AtomicBool) -> Result<(), Error> {
    let set = args.table_set()?;
    let tables = prepare::missing(engine, set)?;
    if tables.is_empty() {
        if args.action == Some(Action::Prepare) {
            talk("all tables are loaded already");
        }
        return Ok(());
    }
    let rows = tables.len() as u64 * set.table_size();
    let plan = LoadPlan {
        set,
        rand_type: args.load.rand_type,
        seed: args.load.rand_seed,
        threads: args.load.threads as usize,
    };
    let progress = Progress::start("loading", rows);
    let loaded = prepare::load(engine, &plan, &tables, stop, &|rows| progress.advance(rows));
    let took = progress.finish();
    loaded?;
    talk(&format!("loaded {} with {rows} rows in {:.1} s", listed(&tables), took.as_secs_f64()));
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
fn listed(tables: &[TableNo]) -> String {
    match tables {
        [] => "no table".to_owned(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}
