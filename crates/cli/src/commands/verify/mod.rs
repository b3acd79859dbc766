//! `millpond verify`: are the engine's promises kept under load? Each answer is compared with what it has to be.

mod cycles;
mod history;
mod isolation;
mod lists;
mod read;
mod rows;
mod snapshot;
mod write;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::engine_args::CachedArg;
use crate::exit::{Answer, Failure};
use crate::values as option_values;

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  millpond verify snapshot --reads 100000 --threads 4
  millpond verify isolation --transactions=100000")]
pub(crate) struct VerifyArgs {
    #[command(subcommand)]
    promise: Promise,
}

/// How the load runs.
#[derive(Debug, Args)]
struct LoadArgs {
    /// Threads, 2 to 64
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = option_values::whole(2..=64_u8))]
    threads: u8,

    /// Seed of the load; which thread is faster is up to the machine
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = option_values::count::<u64>)]
    seed: u64,

    /// New or empty directory, removed if nothing is wrong
    #[arg(long, value_name = "DIR", default_value = "millpond-verify-data")]
    dir: PathBuf,

    #[command(flatten)]
    cached: CachedArg,
}

/// What is verified.
#[derive(Debug, Subcommand)]
enum Promise {
    /// All reads of a snapshot are of one moment, whatever writers and purge do meanwhile.
    Snapshot(snapshot::SnapshotArgs),
    /// Transactions see of one another what their level of isolation allows, and nothing else.
    Isolation(isolation::IsolationArgs),
}

/// Runs the command.
pub(crate) fn run(args: &VerifyArgs) -> Result<Answer, Failure> {
    match &args.promise {
        Promise::Snapshot(args) => snapshot::run(args),
        Promise::Isolation(args) => isolation::run(args),
    }
}
