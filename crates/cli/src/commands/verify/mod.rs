//! `millpond verify`: are the engine's promises kept under load? Each answer is compared with what it has to be.

mod cycles;
mod history;
mod isolation;
mod lists;
mod read;
mod rows;
mod snapshot;
mod write;

use clap::{Args, Subcommand};

use crate::exit::{Answer, Failure};

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
