//! The order queue: loads missing tables, runs the transactions, checks rows and indexes.

use workload::adapters::millpond::Millpond;
use workload::generators::orders::orders_name;
use workload::orders::{self, LoadPlan, Queue};

use super::args::Action;
use super::{Advance, Job, listed, load_missing, measure};
use crate::exit::{Answer, Failure};
use crate::output::talk;
use crate::progress::Progress;

/// Performs the action.
pub(super) fn act(job: &Job<'_>, engine: &Millpond) -> Result<Answer, Failure> {
    let (args, set) = (job.args, job.args.table_set()?);
    let (name, threads) = (|table: &_| orders_name(*table), args.load.threads as usize);
    if args.action == Some(Action::Cleanup) {
        talk(&format!("dropped {}", listed(&orders::drop_tables(engine, set)?, name)));
        return Ok(Answer::Yes);
    }
    if args.prepares() {
        let plan = LoadPlan { set, seed: args.load.rand_seed, threads };
        let missing = orders::missing(engine, set)?;
        let load = |progress: &Advance<'_>| orders::load(engine, &plan, &missing, job.stop, progress);
        if load_missing(args, &missing, name, load)? == Answer::Interrupted {
            return Ok(Answer::Interrupted);
        }
    }
    if !args.runs() {
        return Ok(Answer::Yes);
    }
    let queue = Queue::new(engine, set, args.load.rand_type)?;
    let verify = || {
        let progress = Progress::working("looking for every row's index entries");
        let verified = orders::verify(engine, set);
        progress.finish();
        verified.map(Some)
    };
    measure::measure(job, engine, || queue.clients(engine, threads), verify)
}
