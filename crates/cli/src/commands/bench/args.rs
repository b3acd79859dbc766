//! The options of `bench`: sysbench's options with their defaults, some of its own, and the engine's.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use workload::Error;
use workload::engine::purchases::PurchaseLoad;
use workload::engine::{IdColumn, Index, Layout};
use workload::generators::insert_benchmark::Step;
use workload::generators::oltp::{Mix, TableSet, Workload};
use workload::insert_benchmark::Sizes;
use workload::keys::RandType;

use crate::engine_args::{EngineArgs, Origin};
use crate::settings::Setting;
use crate::values::{self, Benchmark, Format, Rate, Steps};

/// The help heading of the options for a transaction's statements.
const MIX_HEADING: &str = "Statements";

/// The help heading of the insert benchmark's options.
const INSERT_HEADING: &str = "Insert benchmark";

/// Options outside of the group `Statements` that neither the insert benchmark nor the order queue has.
const OLTP_ONLY: [&str; 3] = ["--create-secondary", "--secondary", "--auto-inc"];

/// The ways out of an option that is not for the workload.
const NOT_INSERT: &str = "leave it out, or run insert_benchmark";
const NOT_SYSBENCH: &str = "leave it out, or run one of sysbench's workloads";

/// Whether only sysbench's workloads have an option.
fn is_of_sysbench(setting: &Setting) -> bool {
    setting.group == MIX_HEADING || OLTP_ONLY.contains(&setting.name.as_str())
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_long_help = "\
Without an action, missing tables are loaded, then the workload runs.
Scripts for sysbench run with 'millpond bench' in the place of 'sysbench', or with a link of that
name to this command. Options may have underscores; options for a server are ignored, with a line.
Transactions of several statements are one transaction of the engine each, at repeatable read as
InnoDB has it; after a deadlock one begins again, and is counted under 'ignored errors'. 'other'
counts BEGIN and COMMIT, and statements that should write and found no row, as in sysbench.
Exit code: 0 it ran, 2 it could not, 130 interrupted, 143 terminated (both after the summary so
far). With --check: 0 calm, 1 not calm, 3 inconclusive (the machine stood still, or no second was
whole). Beside a run two canaries watch the machine: a write of 4 KiB and its sync every 100 ms,
and a thread that asks to sleep for 10 ms. Time in which they stood still is told apart, unless
the engine itself had 1 MiB or more outstanding to the device then. So is the CPU time that others
took while threads of the run waited for a CPU.

Examples:
  millpond bench --tables=4 --table-size=250000 --threads=16 --time=60 oltp_update_index
  millpond bench --threads=16 --rate=80% --buffer-pool-size=64MiB oltp_update_index
  millpond bench --threads=16 --warmup-time=10 --range-size=50 --histogram oltp_read_write
  millpond bench --threads=16 --rate=80% --report=run.html --format=json oltp_update_index
  millpond bench --threads=16 --rate=80% --time=60 --check oltp_update_index
  millpond bench --threads=4 --time=30 insert_benchmark
  millpond bench --threads=4 --steps=l.i0,l.x,l.i1,qr200 --table-size=2M insert_benchmark
  millpond bench --threads=8 --tables=2 --table-size=100k --snapshot-held orders
  millpond bench oltp_update_index cleanup
  millpond bench oltp_read_write --table_size=100000 --mysql-host=localhost prepare")]
pub(crate) struct BenchArgs {
    /// Workload: one of sysbench's OLTP workloads, insert_benchmark or orders; --help lists them
    ///
    ///   oltp_point_select       one row by id
    ///   oltp_read_only          rows by id, then ranges of ids: rows, sum, sorted, distinct
    ///   oltp_read_write         oltp_read_only, then oltp_write_only
    ///   oltp_write_only         updates of k and of c, a row deleted and inserted again
    ///   oltp_update_index       updates of k, which is indexed
    ///   oltp_update_non_index   updates of c, which is not indexed
    ///   oltp_insert             one row, above all others; anywhere with --auto-inc=off
    ///   oltp_delete             one row deleted by id, if it is still there
    ///   select_random_points    the rows of some values of k, by its index; one table
    ///   select_random_ranges    the number of rows in some ranges of k; one table
    ///   bulk_insert             many rows in one statement, each thread into its own table
    ///                           'sbtestN.bulk'; an event is a row, and rows are inserted in
    ///                           packets of up to 512 KiB of SQL
    ///   random_batches          --batch-size new rows with ids anywhere, inserted together (not
    ///                           one of sysbench's); each row counts as a query
    ///
    /// or the insert benchmark, Tokutek's with the steps of iibench:
    ///
    ///   insert_benchmark        inserts in key order, then inserts and deletes, then queries
    ///                           beside inserts and deletes at a fixed rate: see --steps. Each
    ///                           of --threads clients has a table 'purchasesN' of its own
    ///
    /// or a queue of orders:
    ///
    ///   orders                  in one transaction 1 order read, 2 changed, 1 inserted, and the
    ///                           oldest deleted that is not locked. Tables 'ordersN' with 3
    ///                           indexes, rows of 200 bytes with random keys; recent orders are
    ///                           hot. At the end bench checks that each table has as many rows
    ///                           as before, and every row its index entries
    #[arg(value_name = "WORKLOAD", value_parser = values::benchmark())]
    #[arg(hide_possible_values = true, verbatim_doc_comment)]
    pub(crate) workload: Benchmark,

    /// prepare, run, cleanup or help [default: prepare if needed, then run]
    #[arg(value_name = "ACTION", hide_possible_values = true)]
    pub(crate) action: Option<Action>,

    #[command(flatten)]
    pub(crate) load: LoadArgs,

    #[command(flatten)]
    pub(crate) mix: MixArgs,

    #[command(flatten)]
    pub(crate) insert: InsertArgs,

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

    /// Worker threads, 1 to 4096; with --rate the cap on concurrency
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(1..=4096_u32), alias = "num-threads")]
    pub(crate) threads: u32,

    /// Seconds to run, 0 for no limit; in insert_benchmark per timed step
    ///
    /// The steps l.i0 and l.x last until all is done; the others need a limit.
    #[arg(long, value_name = "S", default_value = "10", value_parser = values::seconds, alias = "max-time")]
    pub(crate) time: u64,

    /// Stop after N events at the latest, 0 for no limit
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::count::<u64>, alias = "max-requests")]
    pub(crate) events: u64,

    /// Seconds before --time in which events are run but not counted
    #[arg(long, value_name = "S", default_value = "0", value_parser = values::seconds)]
    pub(crate) warmup_time: u64,

    /// Transactions per second, or a share of the maximum, as 80%; 0: no limit
    ///
    /// Under a rate, latency counts from the scheduled arrival, so a stall delays all
    /// transactions that arrive in it. For a share, a closed loop first finds the
    /// maximum rate, until that is steady (15 to 45 s).
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = values::rate, verbatim_doc_comment)]
    #[arg(alias = "tx-rate")]
    pub(crate) rate: Rate,

    /// Tables, 1 to 10000
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    pub(crate) tables: u32,

    /// Rows in each table, 1 to 4294967295 [default: 10000; insert_benchmark: 500k]
    ///
    /// k and M stand for thousand and million.
    #[arg(long, value_name = "ROWS", default_value = "10000", value_parser = values::rows, hide_default_value = true)]
    #[arg(default_value_if("workload", Benchmark::INSERT, "500k"))]
    pub(crate) table_size: u64,

    /// Whether tables are loaded with an index on k
    ///
    /// A run uses the tables as they are.
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    pub(crate) create_secondary: bool,

    /// Whether id is loaded as an indexed column, not as the primary key
    ///
    /// Then the primary key is a hidden number, as in InnoDB, and several rows may have the
    /// same id. A run uses the tables as they are.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch, verbatim_doc_comment)]
    pub(crate) secondary: bool,

    /// Whether oltp_insert takes ids above all others; else it draws them
    ///
    /// Drawn ids lie anywhere above the loaded ids, and are new in each run. (In sysbench they
    /// may equal ids of loaded rows, so it loads none for oltp_insert then.)
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch, verbatim_doc_comment)]
    pub(crate) auto_inc: bool,

    /// uniform, special, pareto, zipfian or gaussian [default: special; orders: zipfian]
    ///
    /// The choice of rows; in orders of ranks, from the newest order down.
    #[arg(long, value_name = "TYPE", default_value_t = RandType::default(), value_parser = values::rand_type())]
    #[arg(default_value_if("workload", Benchmark::ORDERS, RandType::Zipfian.name()))]
    #[arg(hide_possible_values = true, hide_default_value = true)]
    pub(crate) rand_type: RandType,

    /// Hold one snapshot from the run's first second to its end
    ///
    /// The versions that it sees stay; the report says how much that is.
    #[arg(long)]
    pub(crate) snapshot_held: bool,

    /// Seed of all random numbers
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = values::count::<u64>)]
    pub(crate) rand_seed: u64,
}

/// The statements of a transaction: sysbench's options.
#[derive(Debug, Args)]
#[command(next_help_heading = MIX_HEADING)]
pub(crate) struct MixArgs {
    /// Rows read by id in a transaction, 0 to 10000; 1 in oltp_point_select
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u32>)]
    point_selects: u32,

    /// Ranges of ids in a transaction, 0 to 10000, whose c is selected
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    simple_ranges: u32,

    /// Ranges of ids in a transaction, 0 to 10000, whose k is summed up
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    sum_ranges: u32,

    /// Ranges of ids in a transaction, 0 to 10000, whose c is sorted
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    order_ranges: u32,

    /// Ranges of ids in a transaction, 0 to 10000, whose distinct c are sorted
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    distinct_ranges: u32,

    /// Ids in each of these ranges, 1 to 10000000
    #[arg(long, value_name = "N", default_value = "100", value_parser = values::count::<u32>)]
    range_size: u32,

    /// Whether there are such ranges at all
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    range_selects: bool,

    /// Updates of k, which is indexed, in a transaction, 0 to 10000
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    index_updates: u32,

    /// Updates of c, which is not indexed, in a transaction, 0 to 10000
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    non_index_updates: u32,

    /// Rows deleted, then inserted again, in a transaction, 0 to 10000
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::count::<u32>)]
    delete_inserts: u32,

    /// Rows in a batch of random_batches, 1 to 1000000
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::count::<u32>)]
    batch_size: u32,

    /// Run statements without BEGIN and COMMIT; each commits by itself
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1)]
    #[arg(require_equals = true, action = ArgAction::Set, value_parser = values::switch)]
    skip_trx: bool,

    /// Values of k in a statement of select_random_points, 1 to 10000
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u32>)]
    random_points: u32,

    /// Ranges of k in a statement of select_random_ranges, 1 to 10000
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u32>)]
    number_of_ranges: u32,

    /// Length of each of these ranges: from a value to that value plus N
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::count::<u32>)]
    delta: u32,
}

/// The insert benchmark: iibench's options, and some of its own.
#[derive(Debug, Args)]
#[command(next_help_heading = INSERT_HEADING)]
pub(crate) struct InsertArgs {
    /// Steps, in this order; --help describes each
    ///
    ///   l.i0   inserts --table-size rows into each table, in the order of the primary key
    ///   l.x    creates the three indexes of each table
    ///   l.i1   inserts rows and deletes as many of the oldest, in one transaction
    ///   l.i2   the same with fewer rows in a transaction
    ///   qrN    reads a few entries of an index from a random place on, while N rows a second
    ///          and client are inserted, and as many deleted
    ///   qpN    reads a few rows by their primary keys, beside the same inserts and deletes
    ///
    /// Each step is shown by itself, and all of them in a table at the end. If the tables or
    /// indexes exist already, l.i0 or l.x is left out, with a message. The action 'prepare'
    /// runs l.i0 and l.x alone, 'run' all others. At the end bench checks that every row has
    /// its index entries.
    ///
    /// [default: l.i0,l.x,l.i1,l.i2,qr100,qp100,qr500,qp500,qr1000,qp1000]
    #[arg(long, value_name = "LIST", default_value = Step::DEFAULT, value_parser = values::steps, verbatim_doc_comment)]
    #[arg(hide_default_value = true)]
    pub(crate) steps: Steps,

    /// Rows in a transaction of l.i0, 1 to 100000
    #[arg(long, value_name = "N", default_value = "1000", value_parser = values::count::<u64>)]
    load_rows_per_commit: u64,

    /// Rows that a transaction of l.i1, qrN and qpN inserts, and deletes
    ///
    /// At most 100000, and no more than a table has; in qrN and qpN at most N.
    #[arg(long, value_name = "N", default_value = "50", value_parser = values::count::<u64>)]
    rows_per_commit: u64,

    /// Rows that a transaction of l.i2 inserts, and deletes
    ///
    /// At most 100000, and no more than a table has.
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::count::<u64>)]
    small_rows_per_commit: u64,

    /// Entries or rows that a query reads, 1 to 100000
    #[arg(long, value_name = "N", default_value = "10", value_parser = values::count::<u64>)]
    rows_per_query: u64,

    /// Bytes of the column data, 0 to 4000, half of them random
    #[arg(long, value_name = "BYTES", default_value = "10", value_parser = values::count::<u32>)]
    data_length: u32,
}

/// Options for the output, and for the database afterwards.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Seconds between reports, 0 for none
    #[arg(long, value_name = "S", default_value = "1", value_parser = values::seconds)]
    pub(crate) report_interval: u64,

    /// Percentile of the latencies that is shown, 0 to 100; 0 for none
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = values::whole(0..=100_u32))]
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
    /// One HTML file that needs no network. Before the run bench tests that it can be written.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    pub(crate) report: Option<PathBuf>,

    /// Answer by the exit code whether the run was calm: 0 it was, 1 it was not, 3 inconclusive
    ///
    /// Calm: no second under half of the offered rate (without --rate: of the median, which is
    /// above 0); longest gap at most max(100 ms, 3 x the device's own); slowest transaction, queued
    /// ones included, at most max(250 ms, 5 x the device's own); no stall of max(--stall-threshold,
    /// 3 x the device's own). The device's own is the slowest pair of the canary that is no stop.
    /// Inconclusive: a limit is broken, but holds when the time in which device or CPU stood still,
    /// or others took the CPU, is left out. In insert_benchmark the worst timed step decides.
    #[arg(long, verbatim_doc_comment)]
    pub(crate) check: bool,

    /// Remove the database when done; refused if it was not made by bench
    #[arg(long)]
    pub(crate) remove: bool,
}

/// The action on the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    /// Load the tables
    Prepare,
    /// Run the workload over loaded tables
    Run,
    /// Drop the tables
    Cleanup,
    /// Print this help
    Help,
}

impl BenchArgs {
    /// Checks that every number is in its range, and that the workload has every option that was given. `given` holds
    /// the options of the command line.
    pub(crate) fn check(&self, given: &[Setting]) -> Result<(), Error> {
        let refuse = |is_foreign: fn(&Setting) -> bool, way_out: &str| match given
            .iter()
            .find(|setting| setting.origin == Origin::Flag && is_foreign(setting))
        {
            None => Ok(()),
            Some(Setting { name, .. }) => {
                Err(Error::Invalid(format!("{name} is not for {}: {way_out}", self.workload.name())))
            }
        };
        if self.output.check && !self.runs() {
            return Err(Error::Invalid("--check tells of a run: leave it out, or the action word".to_owned()));
        }
        match self.workload {
            Benchmark::Oltp(workload) => {
                refuse(|setting| setting.group == INSERT_HEADING, NOT_INSERT)?;
                self.table_set()?;
                self.mix(workload).map(drop)
            }
            Benchmark::Orders => {
                refuse(|setting| setting.group == INSERT_HEADING, NOT_INSERT)?;
                refuse(is_of_sysbench, NOT_SYSBENCH)?;
                self.table_set().map(drop)
            }
            Benchmark::Insert => {
                refuse(|setting| setting.name == "--tables", "each client has a table, so ask for --threads")?;
                refuse(|setting| setting.name == "--rate", "ask for --steps=qr200 or the like")?;
                refuse(|setting| matches!(setting.name.as_str(), "--events" | "--rand-type"), NOT_SYSBENCH)?;
                refuse(is_of_sysbench, NOT_SYSBENCH)?;
                if self.load.time == 0 {
                    return Err(Error::Invalid(
                        "--time=0 ends no step of insert_benchmark: ask for --time=10".to_owned(),
                    ));
                }
                self.sizes().check()
            }
        }
    }

    /// The sizes of the insert benchmark.
    pub(crate) fn sizes(&self) -> Sizes {
        let args = &self.insert;
        Sizes {
            clients: self.load.threads,
            load: PurchaseLoad { rows: self.load.table_size, data_len: args.data_length },
            load_rows_per_commit: args.load_rows_per_commit,
            rows_per_commit: args.rows_per_commit,
            small_rows_per_commit: args.small_rows_per_commit,
            rows_per_query: args.rows_per_query,
        }
    }

    /// The number of tables with rows that a load creates in an empty database.
    pub(crate) fn tables_to_load(&self) -> u32 {
        match self.workload {
            _ if !self.prepares() => 0,
            workload if workload.uses_tables() => self.load.tables,
            Benchmark::Insert if self.insert.steps.0.contains(&Step::Load) => self.load.threads,
            _ => 0,
        }
    }

    /// The tables asked for.
    pub(crate) fn table_set(&self) -> Result<TableSet, Error> {
        let set = TableSet::new(self.load.tables, self.load.table_size)?;
        if let Benchmark::Oltp(workload) = self.workload {
            set.check(workload)?;
        }
        Ok(set)
    }

    /// The layout of new tables.
    pub(crate) fn layout(&self) -> Layout {
        Layout {
            id: if self.load.secondary { IdColumn::Indexed } else { IdColumn::PrimaryKey },
            k: if self.load.create_secondary { Index::OnK } else { Index::Absent },
        }
    }

    /// The statements asked for.
    pub(crate) fn mix(&self, workload: Workload) -> Result<Mix, Error> {
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
            batch_size: args.batch_size,
            skip_trx: args.skip_trx,
            random_points: args.random_points,
            number_of_ranges: args.number_of_ranges,
            delta: args.delta,
        };
        mix.check(workload)?;
        Ok(mix)
    }

    /// Time in which events are counted, in seconds.
    pub(crate) fn time_s(&self) -> u64 {
        if self.load.time == 0 { values::SECONDS_MAX } else { self.load.time }
    }

    /// Whether the workload has transactions of several statements that are to run statement by statement.
    pub(crate) fn runs_statement_by_statement(&self) -> bool {
        matches!(self.workload, Benchmark::Oltp(workload) if workload.is_transactional() && self.mix.skip_trx)
    }

    /// Whether a transaction is one commit, however much it writes: a batch, or statements between begin and commit.
    pub(crate) fn commits_once(&self) -> bool {
        match self.workload {
            Benchmark::Oltp(Workload::RandomBatches) => true,
            Benchmark::Oltp(workload) => workload.is_transactional() && !self.mix.skip_trx,
            Benchmark::Insert => false,
            Benchmark::Orders => true,
        }
    }

    /// Whether the action is only to print help.
    pub(crate) fn asks_for_help(&self) -> bool {
        self.action == Some(Action::Help)
    }

    /// Whether missing tables are to be loaded.
    pub(crate) fn prepares(&self) -> bool {
        matches!(self.action, None | Some(Action::Prepare))
    }

    /// Whether the workload is to run.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.action, None | Some(Action::Run))
    }
}
