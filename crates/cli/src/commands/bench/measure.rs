//! The run itself: the device's probe, the first phase if a share of the maximum is asked for, the run, the summary.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond::Durability;
use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::calm::Calm;
use workload::driver::maximum::{self, Maximum};
use workload::driver::{self, Finished, Interval, Observer, Pace, Plan};
use workload::engine::TableNo;
use workload::generators::oltp::Load;
use workload::histogram_text::histogram_block;
use workload::prepare;
use workload::probe::{self, SyncPairs};
use workload::report_text::{self, Labels};

use super::BenchArgs;
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::values::Rate;

/// How long the device is probed.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// Measures a workload over loaded tables and prints what sysbench prints, and the calm figures.
pub(super) fn measure(args: &BenchArgs, engine: &Millpond, stop: &AtomicBool) -> Result<Answer, Failure> {
    let load = Load::new(engine, args.workload, args.table_set()?, args.load.rand_type, &args.mix()?)?;
    if let Some(table) = bulk_table_that_is_missing(args, engine)? {
        return Err(Error::NoBulkTable(table).into());
    }
    let device = probe::sync_pairs(&args.load.dir, args.access(), PROBE_TIME)?;
    let mut talk_of_run = Talk { args, device, failure: None };
    print(&talk_of_run.heading())?;
    let mut plan = Plan {
        threads: args.load.threads as usize,
        time_s: args.time_s(),
        warmup_s: args.load.warmup_time,
        events: args.load.events,
        report_interval_s: args.output.report_interval,
        pace: Pace::ClosedLoop,
        seed: args.load.rand_seed,
    };
    match args.load.rate {
        Rate::Unlimited => {}
        Rate::PerSecond(per_s) => plan.pace = Pace::OpenLoop { per_s },
        Rate::Share(share) => {
            talk(&format!(
                "finding the maximum rate: {} to {} s, until it is steady",
                maximum::SHORTEST_S,
                maximum::LONGEST_S
            ));
            let maximum = match maximum::measure(engine, &load, &plan, stop) {
                Err(Error::Interrupted) => return Ok(Answer::Interrupted),
                measured => measured?,
            };
            plan.pace = Pace::OpenLoop { per_s: maximum.per_s * share };
            print(&talk_of_run.first_phase(&maximum, share))?;
        }
    }
    print(&talk_of_run.mode(&plan))?;
    let finished = driver::run(engine, &load, &plan, stop, &mut talk_of_run)?;
    if let Some(failure) = talk_of_run.failure.take() {
        return Err(failure);
    }
    if !finished.was_stopped {
        talk_of_run.probe_again()?;
    }
    print(&talk_of_run.summary(&finished))?;
    Ok(if finished.was_stopped { Answer::Interrupted } else { Answer::Yes })
}

/// A table that `bulk_insert` cannot do without.
fn bulk_table_that_is_missing(args: &BenchArgs, engine: &Millpond) -> Result<Option<TableNo>, Error> {
    if args.workload.uses_tables() {
        return Ok(None);
    }
    Ok(prepare::missing_bulk(engine, args.load.threads)?.first().copied())
}

/// What is said of a run.
struct Talk<'a> {
    args: &'a BenchArgs,
    /// The faster of the probes so far.
    device: SyncPairs,
    /// Why an interval could not be printed.
    failure: Option<Failure>,
}

impl Talk<'_> {
    fn labels(&self) -> Labels {
        Labels { percentile: self.args.output.percentile }
    }

    /// Probes the device once more, so that what else was going on during the first probe does not flatter the engine.
    fn probe_again(&mut self) -> Result<(), Error> {
        let again = probe::sync_pairs(&self.args.load.dir, self.args.access(), PROBE_TIME)?;
        if again.contradicts(self.device) {
            talk(&format!(
                "the device made {:.0} write+sync pairs/s before the run and {:.0} after it; the higher counts",
                self.device.per_s, again.per_s
            ));
        }
        self.device = self.device.faster(again);
        Ok(())
    }

    /// What runs where.
    fn heading(&self) -> String {
        let args = self.args;
        let tables = if args.workload.uses_tables() {
            format!("{} x {} rows", args.load.tables, args.load.table_size)
        } else {
            format!("a table for each of {} threads", args.load.threads)
        };
        format!(
            "millpond {}: {} on '{}', {tables}, rand-type {}, rand-seed {}\n{}{}",
            env!("CARGO_PKG_VERSION"),
            args.workload,
            args.load.dir.display(),
            args.load.rand_type,
            args.load.rand_seed,
            self.statement_by_statement(),
            report_text::device_line(&self.device),
        )
    }

    /// The line about transactions that are none.
    fn statement_by_statement(&self) -> &'static str {
        if self.args.runs_statement_by_statement() { report_text::STATEMENT_BY_STATEMENT } else { "" }
    }

    /// What the first phase found.
    fn first_phase(&self, maximum: &Maximum, share: f64) -> String {
        let mut text = format!(
            "maximum: {:.2} tps (closed loop, {} threads, median of the last {} of {} s{})\n",
            maximum.per_s,
            self.args.load.threads,
            Maximum::COUNTED_S,
            maximum.phase_s,
            if maximum.has_settled { "" } else { ", not yet steady" },
        );
        if self.compares_commits(maximum.writes_per_transaction) {
            let commits_per_s = maximum.per_s * maximum.writes_per_transaction;
            text.push_str("at the maximum, ");
            text.push_str(&report_text::commits_per_pair_line(commits_per_s, &self.device));
        }
        let _ = writeln!(text, "offered: {:.2} tps ({:.0}%)", maximum.per_s * share, share * 100.0);
        text
    }

    /// sysbench's lines about how the run is made.
    fn mode(&self, plan: &Plan) -> String {
        let mut text = format!("\nRunning the test with following options:\nNumber of threads: {}\n", plan.threads);
        if plan.warmup_s > 0 {
            let _ = writeln!(text, "Warmup time: {}s", plan.warmup_s);
        }
        if let Pace::OpenLoop { per_s } = plan.pace {
            let _ = writeln!(text, "Target transaction rate: {per_s:.0}/sec");
        }
        if plan.events > 0 {
            let _ = writeln!(text, "Number of events: {}", plan.events);
        }
        if plan.report_interval_s > 0 {
            let _ = writeln!(text, "Report intermediate results every {} second(s)", plan.report_interval_s);
        }
        let _ = writeln!(text, "Initializing random number generator from seed ({}).\n", plan.seed);
        text.push_str("\nInitializing worker threads...\n\n");
        text
    }

    fn summary(&self, finished: &Finished) -> String {
        let mut text = String::new();
        if self.args.output.histogram {
            text.push_str(&histogram_block(&finished.record.latencies));
        }
        text.push_str(&report_text::summary(finished, self.labels()));
        text.push_str(&report_text::calm_block(finished, &self.device));
        text.push_str(self.statement_by_statement());
        text.push_str(&report_text::device_line(&self.device));
        if self.compares_commits(finished.writes_per_transaction()) {
            let per_s = Calm::of(&finished.seconds).map_or(finished.mean_per_s(), |calm| calm.median_per_s);
            let commits_per_s = per_s * finished.writes_per_transaction();
            text.push_str(&report_text::commits_per_pair_line(commits_per_s, &self.device));
        }
        text
    }

    /// Whether there are commits, each is durable, and none is as large as a packet of `bulk_insert`.
    fn compares_commits(&self, writes_per_transaction: f64) -> bool {
        let is_durable = self.args.engine.durability == Durability::Commit;
        is_durable && self.args.workload.uses_tables() && writes_per_transaction > 0.0
    }
}

impl Observer for Talk<'_> {
    fn started(&mut self) {
        self.failure = print("Threads started!\n\n").err();
    }

    fn interval(&mut self, interval: &Interval) -> ControlFlow<()> {
        if self.failure.is_none() {
            self.failure = print(&report_text::interval_lines(interval, self.labels())).err();
        }
        if self.failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
