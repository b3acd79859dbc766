//! The options of `bench`: sysbench's where it has them, with its defaults, and the engine's.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use workload::Error;
use workload::engine::{IdColumn, Index, Layout};
use workload::generators::oltp::{Mix, TableSet, Workload};
use workload::keys::RandType;

use crate::engine_args::EngineArgs;
use crate::values::{self, Format, Rate};

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_long_help = "\
Without an action the tables are loaded if they are not there, then the workload runs.
Transactions of several statements are run statement by statement, each its own commit: the
engine has no others yet. So 'other' counts no BEGIN and COMMIT, only statements to write that
found no row, as sysbench counts them.
Exit code: 0 it ran, 2 it could not, 130 interrupted (after the summary so far).

Examples:
  millpond bench --tables=4 --table-size=250000 --threads=16 --time=60 oltp_update_index
  millpond bench --threads=16 --rate=80% --buffer-pool-size=64MiB oltp_update_index
  millpond bench --threads=16 --warmup-time=10 --range-size=50 --histogram oltp_read_write
  millpond bench --threads=16 --rate=80% --report=run.html --format=json oltp_update_index
  millpond bench oltp_update_index cleanup")]
pub(crate) struct BenchArgs {
    /// What each transaction does: one of sysbench's OLTP workloads, which --help lists
    ///
    ///   oltp_point_select       one row by id
    ///   oltp_read_only          rows by id, then ranges of ids: rows, sum, sorted, distinct
    ///   oltp_read_write         those of oltp_read_only, then those of oltp_write_only
    ///   oltp_write_only         updates of k and of c, a row deleted and inserted again
    ///   oltp_update_index       updates of k, which is indexed
    ///   oltp_update_non_index   updates of c, which is not
    ///   oltp_insert             one row, above all others; with --auto-inc=off anywhere
    ///   oltp_delete             one row deleted by id, if it is still there
    ///   select_random_points    the rows of some values of k, by its index; one table
    ///   select_random_ranges    how many rows are in some ranges of k; one table
    ///   bulk_insert             many rows in one statement, each thread into its own table
    ///                           'sbtestN.bulk'; an event is a row, which waits until 512 KiB
    ///                           of SQL have come together
    #[arg(value_name = "WORKLOAD", value_parser = values::workload())]
    #[arg(hide_possible_values = true, verbatim_doc_comment)]
    pub(crate) workload: Workload,

    /// prepare, run or cleanup [default: prepare if needed, then run]
    #[arg(value_name = "ACTION", hide_possible_values = true)]
    pub(crate) action: Option<Action>,

    #[command(flatten)]
    pub(crate) load: LoadArgs,

    #[command(flatten)]
    pub(crate) mix: MixArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// The load: sysbench's options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct LoadArgs {
    /// Directory of the database
    #[arg(long, value_name = "DIR", default_value = "millpond-bench-data")]
    pub(crate) dir: PathBuf,

    /// Worker threads; with --rate the cap on concurrency
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) threads: u32,

    /// Seconds to run, 0 for no limit
    #[arg(long, value_name = "S", default_value = "10", value_parser = values::seconds)]
    pub(crate) time: u64,

    /// Stop after so many events at the latest, 0 for no limit
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count::<u64>)]
    pub(crate) events: u64,

    /// Seconds before those of --time, in which events are run and not counted
    #[arg(long, value_name = "S", default_value = "0", value_parser = values::seconds)]
    pub(crate) warmup_time: u64,

    /// Transactions per second, or a share of the maximum, as 80%; 0: no limit
    ///
    /// Under a rate, latency counts from the scheduled arrival, so a stall is seen by
    /// everything that arrives in it. A share is taken of the rate that a closed loop
    /// makes first, once it is steady (15 to 45 s).
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = values::rate, verbatim_doc_comment)]
    pub(crate) rate: Rate,

    /// Tables
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) tables: u32,

    /// Rows in each table; k and M stand for thousand and million
    #[arg(long, value_name = "ROWS", default_value = "10000", value_parser = values::rows)]
    pub(crate) table_size: u64,

    /// Whether tables are loaded with an index on k
    ///
    /// A run takes the tables as they are.
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    pub(crate) create_secondary: bool,

    /// Whether tables are loaded with id as a column with an index, in place of the primary key
    ///
    /// Then the primary key is a number that nobody is shown, as in InnoDB, and several rows may
    /// have one id. A run takes the tables as they are.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch, verbatim_doc_comment)]
    pub(crate) secondary: bool,

    /// Whether oltp_insert takes the id above all others; if not, it draws one of its own
    ///
    /// Ids that are drawn lie anywhere above those that were loaded, and are new in each run.
    /// (In sysbench they may be those of loaded rows; so it loads none for oltp_insert then.)
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch, verbatim_doc_comment)]
    pub(crate) auto_inc: bool,

    /// Choice of rows: uniform, special, pareto, zipfian or gaussian
    #[arg(long, value_name = "TYPE", default_value_t = RandType::default(), value_parser = values::rand_type())]
    #[arg(hide_possible_values = true)]
    pub(crate) rand_type: RandType,

    /// Seed of all random numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) rand_seed: u64,
}

/// What a transaction is made of: sysbench's options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Statements")]
pub(crate) struct MixArgs {
    /// Rows selected by id in a transaction; always 1 in oltp_point_select
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u32>)]
    point_selects: u32,

    /// Ranges of ids in a transaction, of which c is selected
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    simple_ranges: u32,

    /// Ranges of ids in a transaction, of which k is summed up
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    sum_ranges: u32,

    /// Ranges of ids in a transaction, of which c is sorted
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    order_ranges: u32,

    /// Ranges of ids in a transaction, of which each different c is sorted
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    distinct_ranges: u32,

    /// Ids in each of these ranges
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count::<u32>)]
    range_size: u32,

    /// Whether there are such ranges at all
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    range_selects: bool,

    /// Updates of k, which is indexed, in a transaction
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    index_updates: u32,

    /// Updates of c, which is not indexed, in a transaction
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    non_index_updates: u32,

    /// Rows deleted and inserted again in a transaction: two statements each
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    delete_inserts: u32,

    /// Ask for no BEGIN and COMMIT; there are none in either case
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    skip_trx: bool,

    /// Values of k in a statement of select_random_points
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u32>)]
    random_points: u32,

    /// Ranges of k in a statement of select_random_ranges
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u32>)]
    number_of_ranges: u32,

    /// How far each of these ranges goes: from a value to that value and so much
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::count::<u32>)]
    delta: u32,
}

/// What is shown, and what is left.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Seconds between reports, 0 for none
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub(crate) report_interval: u64,

    /// Percentile of the latencies that is shown, 0 for none
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) percentile: u32,

    /// Print a histogram of the latencies after the run
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    pub(crate) histogram: bool,

    /// text, or json: one object a line, and nothing else on standard output
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(crate) format: Format,

    /// Write a page with charts of the run to this file, which is replaced
    ///
    /// One HTML file that needs no network. Whether it can be written is tried before the run.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) report: Option<PathBuf>,

    /// Remove the database when done; refused if it was not made by bench
    #[arg(long)]
    pub(crate) remove: bool,
}

/// What to do with the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    /// Load the tables
    Prepare,
    /// Run the workload over loaded tables
    Run,
    /// Drop the tables
    Cleanup,
}

impl BenchArgs {
    /// The tables asked for.
    pub(crate) fn table_set(&self) -> Result<TableSet, Error> {
        let set = TableSet::new(self.load.tables, self.load.table_size)?;
        set.check(self.workload)?;
        Ok(set)
    }

    /// What tables are to be made with.
    pub(crate) fn layout(&self) -> Layout {
        Layout {
            id: if self.load.secondary { IdColumn::Indexed } else { IdColumn::PrimaryKey },
            k: if self.load.create_secondary { Index::OnK } else { Index::Absent },
        }
    }

    /// The statements asked for.
    pub(crate) fn mix(&self) -> Result<Mix, Error> {
        let args = &self.mix;
        let mix = Mix {
            point_selects: args.point_selects,
            simple_ranges: args.simple_ranges,
            sum_ranges: args.sum_ranges,
            order_ranges: args.order_ranges,
            distinct_ranges: args.distinct_ranges,
            range_size: args.range_size,
            index_updates: args.index_updates,
            non_index_updates: args.non_index_updates,
            delete_inserts: args.delete_inserts,
            range_selects: args.range_selects,
            auto_inc: self.load.auto_inc,
            skip_trx: args.skip_trx,
            random_points: args.random_points,
            number_of_ranges: args.number_of_ranges,
            delta: args.delta,
        };
        mix.check(self.workload)?;
        Ok(mix)
    }

    /// How long events are counted, in seconds.
    pub(crate) fn time_s(&self) -> u64 {
        if self.load.time == 0 { values::SECONDS_MAX } else { self.load.time }
    }

    /// Whether transactions are asked for that the engine does not have: their statements are run one by one.
    pub(crate) fn runs_statement_by_statement(&self) -> bool {
        self.workload.is_transactional() && !self.mix.skip_trx
    }

    /// Whether the tables are to be loaded if they are not there.
    pub(crate) fn prepares(&self) -> bool {
        matches!(self.action, None | Some(Action::Prepare))
    }

    /// Whether the workload is to run.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.action, None | Some(Action::Run))
    }
}
