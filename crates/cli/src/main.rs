//! The `millpond` command: `bench`, `crashtest`, `check`, `info`, `dump`, `rebuild`, `probe`.
//!
//! Standard output is data, standard error is talk. Exit codes: see [`exit`].

mod commands;
mod database_files;
mod exit;
mod output;
mod progress;
mod signals;
mod values;

use clap::{Parser, Subcommand};

use exit::{Answer, Failure};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "millpond",
    version,
    about = "A transactional storage engine without stalls: load it, crash it, check it"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Puts a database under sysbench's load and shows, second by second, how it bears it.
    Bench(commands::bench::BenchArgs),
    /// Kills a child under load again and again, and compares what is found with what was acknowledged.
    Crashtest(commands::crashtest::CrashtestArgs),
    /// Looks at every page of a closed database and says what is wrong with it. Writes nothing.
    Check(commands::check::CheckArgs),
    /// Says what a closed database is: identity, log, files, trees. Writes nothing.
    Info(commands::info::InfoArgs),
    /// Shows superblocks, map, pages or log of a closed database in words. Writes nothing.
    Dump(commands::dump::DumpArgs),
    /// Makes map and superblocks anew, from page images and log, when they are lost.
    Rebuild(commands::rebuild::RebuildArgs),
    /// Says what the device under a directory can do by itself.
    Probe(commands::probe::ProbeArgs),
    /// The child of `crashtest`.
    #[command(hide = true)]
    CrashtestVictim(commands::crashtest::victim::VictimArgs),
}

fn main() -> std::process::ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return exit::usage(&usage),
    };
    exit::code(run(cli.command))
}

fn run(command: Command) -> Result<Answer, Failure> {
    match command {
        Command::Bench(args) => commands::bench::run(&args),
        Command::Crashtest(args) => commands::crashtest::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Info(args) => commands::info::run(&args),
        Command::Dump(args) => commands::dump::run(&args),
        Command::Rebuild(args) => commands::rebuild::run(&args),
        Command::Probe(args) => commands::probe::run(&args),
        Command::CrashtestVictim(args) => commands::crashtest::victim::run(&args),
    }
}
