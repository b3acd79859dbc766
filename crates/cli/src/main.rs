//! The `millpond` command: `bench`, `options`, `crashtest`, `check`, `info`, `dump`, `rebuild`, `backup`, `restore`,
//! `get`, `scan`, `count`, `put`, `delete`, `load`, `export`, `probe`, `status`, `top`, `lab`, `verify`.
//!
//! Standard output is data, standard error is talk. Exit codes: see [`exit`].

mod commands;
mod database_files;
mod engine_args;
mod exit;
mod machine;
mod output;
mod progress;
mod report;
mod running;
mod settings;
mod signals;
mod sysbench_words;
mod values;

use std::ffi::OsString;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use exit::{Answer, Failure};
use settings::Setting;
use sysbench_words::Words;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "millpond",
    version,
    about = "A transactional storage engine without stalls: load it, crash it, check it"
)]
struct Cli {
    /// Print only errors on standard error
    #[arg(short, long, global = true)]
    quiet: bool,

    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Runs sysbench's load, the insert benchmark or an order queue, and shows the figures second by second.
    Bench(Box<commands::bench::BenchArgs>),
    /// Lists the engine's options, with the values that a run would use.
    Options(commands::options::OptionsArgs),
    /// Kills a child under load again and again, and compares the database with the acknowledged changes.
    Crashtest(commands::crashtest::CrashtestArgs),
    /// Checks every page and every index entry of a database and reports all damage. Writes nothing.
    Check(commands::check::CheckArgs),
    /// Shows the facts of a closed database: identity, log, files, tables, trees. Writes nothing.
    Info(commands::info::InfoArgs),
    /// Shows superblocks, map, pages or log of a closed database in words. Writes nothing.
    Dump(commands::dump::DumpArgs),
    /// Rebuilds lost map and superblocks from page images and log.
    Rebuild(commands::rebuild::RebuildArgs),
    /// Backs a closed database up: its pages, map and log at one moment, each page verified.
    Backup(commands::backup::BackupArgs),
    /// Makes a database of a backup, each page verified.
    Restore(commands::backup::RestoreArgs),
    /// Makes the data file short: its free end goes back to the file system.
    Compact(commands::compact::CompactArgs),
    /// Prints the value of a key. Writes nothing.
    Get(commands::rows::read::GetArgs),
    /// Prints rows in the order of their keys or of an index. Writes nothing.
    Scan(commands::rows::read::ScanArgs),
    /// Counts the rows of a range. Writes nothing.
    Count(commands::rows::read::CountArgs),
    /// Inserts a row, or replaces its value.
    Put(commands::rows::write::PutArgs),
    /// Removes rows by their keys.
    Delete(commands::rows::write::DeleteArgs),
    /// Loads rows from standard input into a tree or table, or a whole export.
    Load(Box<commands::rows::load::LoadArgs>),
    /// Prints trees and tables as JSON lines, for `load`. Writes nothing.
    Export(commands::rows::export::ExportArgs),
    /// Shows the state of a running engine, or of a closed database. Writes nothing.
    Status(commands::status::StatusArgs),
    /// Shows what a running engine is doing, live: rates, debts, waits, the slowest operations. Writes nothing.
    Top(commands::top::TopArgs),
    /// Reproduces stalls known from InnoDB beside a default that avoids them, and checks the claims about them.
    Lab(commands::lab::LabArgs),
    /// Compares what the engine returns under load with what it has to return.
    Verify(commands::verify::VerifyArgs),
    /// Measures the device under a directory by itself.
    Probe(commands::probe::ProbeArgs),
    /// The child of `crashtest`.
    #[command(hide = true)]
    CrashtestVictim(commands::crashtest::victim::VictimArgs),
    /// A run of `lab`.
    #[command(hide = true)]
    LabArm(commands::lab::arm::ArmArgs),
}

fn main() -> std::process::ExitCode {
    let words = Words::of(std::env::args_os());
    let (cli, matches) = match parse(&words.all) {
        Ok(parsed) => parsed,
        Err(usage) => {
            // The message repeats words, which may hold control characters for the terminal.
            let shown: Vec<OsString> = words.all.iter().map(|word| exit::shown_word(word)).collect();
            let usage = if shown == words.all { usage } else { parse(&shown).err().unwrap_or(usage) };
            return exit::usage(&usage);
        }
    };
    if cli.quiet {
        output::be_quiet();
    }
    words.ignored.iter().for_each(|line| output::talk(line));
    exit::code(run(cli.command, &matches))
}

/// Reads a command line.
fn parse(words: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

fn run(command: Command, matches: &ArgMatches) -> Result<Answer, Failure> {
    // These two commands report it together with all other mistakes.
    if !matches!(command, Command::Bench(_) | Command::Options(_)) {
        engine_args::refuse(&engine_args::misspelt_variables())?;
    }
    match command {
        Command::Bench(args) if args.asks_for_help() => help_of("bench"),
        Command::Bench(args) => commands::bench::run(&args, &given(matches)),
        Command::Options(args) => commands::options::run(&args),
        Command::Crashtest(args) => commands::crashtest::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Info(args) => commands::info::run(&args),
        Command::Dump(args) => commands::dump::run(&args),
        Command::Rebuild(args) => commands::rebuild::run(&args),
        Command::Backup(args) => commands::backup::run(&args),
        Command::Restore(args) => commands::backup::restore(&args),
        Command::Compact(args) => commands::compact::run(&args),
        Command::Get(args) => commands::rows::read::get(&args),
        Command::Scan(args) => commands::rows::read::scan(&args),
        Command::Count(args) => commands::rows::read::count(&args),
        Command::Put(args) => commands::rows::write::put(&args),
        Command::Delete(args) => commands::rows::write::delete(&args),
        Command::Load(args) => commands::rows::load::run(&args),
        Command::Export(args) => commands::rows::export::run(&args),
        Command::Status(args) => commands::status::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Probe(args) => commands::probe::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::LabArm(args) => commands::lab::arm::run(&args),
        Command::CrashtestVictim(args) => commands::crashtest::victim::run(&args),
    }
}

/// Prints the help of a command.
fn help_of(name: &str) -> Result<Answer, Failure> {
    let mut command = Cli::command();
    command.build();
    if let Some(command) = command.find_subcommand_mut(name) {
        output::print(&command.render_long_help().to_string())?;
    }
    Ok(Answer::Yes)
}

/// The options that were given to the subcommand.
fn given(matches: &ArgMatches) -> Vec<Setting> {
    let command = Cli::command();
    let of_subcommand = matches.subcommand().and_then(|(name, given)| Some((command.find_subcommand(name)?, given)));
    of_subcommand.map_or_else(Vec::new, |(command, given)| settings::of(command, given))
}

#[cfg(test)]
mod help_tests;
