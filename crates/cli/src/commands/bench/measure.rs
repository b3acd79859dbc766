//! The run itself: probe of the device, first phase if the rate is a share of the maximum, run, summary.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::canary::Canary;
use workload::driver::maximum::{self, Maximum};
use workload::driver::{self, Finished, Interval, Observer, Pace, Plan};
use workload::engine::Verified;
use workload::figures::{IntervalFigures, Labels, RunFigures};
use workload::generators::Client;
use workload::generators::oltp::Workload;
use workload::histogram_text::{histogram_block, histogram_buckets};
use workload::probe::{self, SyncPairs};
use workload::where_text::where_block;
use workload::{report_json, report_text};

use super::facts::{Before, Circumstances, Facts};
use super::report::page;
use super::{BenchArgs, Job, checked, held, held_line, tell_unwatched};
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::progress::Progress;
use crate::values::{Benchmark, Format, Rate};

/// Length of a probe of the device: a tenth of the run's time, at most a second. A run of a number of events may be
/// short.
pub(super) fn probe_time(args: &BenchArgs) -> Duration {
    let shortest = Duration::from_millis(100);
    let tenth = Duration::from_secs(args.time_s().min(10)) / 10;
    if args.load.events > 0 { shortest } else { tenth.max(shortest) }
}

/// Measures a workload over loaded tables, with a thread for each of `clients`. Prints sysbench's report and the calm
/// figures, or all of it as JSON. `verify` checks the tables afterwards, if the workload has such a check.
pub(super) fn measure<C: Client>(
    job: &Job<'_>,
    engine: &Millpond,
    clients: impl Fn() -> Result<Vec<C>, Error>,
    verify: impl FnOnce() -> Result<Option<Verified>, Error>,
) -> Result<Answer, Failure> {
    let (args, stop) = (job.args, job.stop);
    let mut of_run = clients()?;
    let device = probe::sync_pairs(&args.load.dir, job.access(), probe_time(args))?;
    let canary = Arc::new(Canary::new(&args.load.dir, job.access())?);
    let mut talk_of_run = Talk { job, device, canary, failure: None };
    talk_of_run.say(&talk_of_run.heading())?;
    let mut plan = Plan {
        threads: args.load.threads as usize,
        time_s: args.time_s(),
        warmup_s: args.load.warmup_time,
        events: args.load.events,
        report_interval_s: args.output.report_interval,
        pace: Pace::ClosedLoop,
        seed: args.load.rand_seed,
    };
    let mut before = Before { began: SystemTime::now(), offered_per_s: None, maximum: None };
    match args.load.rate {
        Rate::Unlimited => {}
        Rate::PerSecond(per_s) => before.offered_per_s = Some(per_s),
        Rate::Share(share) => {
            let maximum = match find_maximum(engine, of_run, &plan, stop) {
                Err(Error::Interrupted) => return Ok(Answer::Interrupted),
                measured => measured?,
            };
            of_run = clients()?;
            before.offered_per_s = Some(maximum.per_s * share);
            before.maximum = Some(maximum);
            talk_of_run.say(&talk_of_run.first_phase(&maximum, share))?;
        }
    }
    if let Some(per_s) = before.offered_per_s {
        plan.pace = Pace::OpenLoop { per_s };
    }
    talk_of_run.say(&talk_of_run.mode(&plan))?;
    before.began = SystemTime::now();
    let held = held(args, engine)?;
    let finished = driver::run_clients(engine, of_run, &plan, stop, &mut talk_of_run)?;
    if let Some(failure) = talk_of_run.failure.take() {
        return Err(failure);
    }
    if let Some(held) = held {
        talk_of_run.say(&held_line(&held, engine))?;
    }
    if !finished.was_stopped {
        talk_of_run.probe_again()?;
    }
    tell_unwatched(&finished);
    // The figures are shown even if the tables are not as they must be.
    let verified = verify();
    let facts = talk_of_run.facts(engine, &before, &finished, verified.as_ref().ok().copied().flatten());
    let printed = print(&talk_of_run.summary(&facts, &finished));
    // Written even if no program reads the summary any more.
    if let Some(report) = job.report {
        report.write(&page::of_run(&facts, &finished))?;
    }
    printed?;
    verified?;
    Ok(if finished.was_stopped { Answer::Interrupted } else { checked(args, facts.figures.judged.verdict) })
}

/// The first phase: finds the maximum rate, of which the run takes a share.
fn find_maximum<C: Client>(
    engine: &Millpond,
    clients: Vec<C>,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<Maximum, Error> {
    talk(&format!("finding the maximum rate: {} to {} s, until it is steady", maximum::SHORTEST_S, maximum::LONGEST_S));
    let progress = Progress::working("finding the maximum rate");
    let found = maximum::measure(engine, clients, plan, stop);
    progress.finish();
    found
}

/// The observer of a run: prints its text or JSON.
struct Talk<'a> {
    job: &'a Job<'a>,
    /// The faster of the probes so far.
    device: SyncPairs,
    /// Watches the machine beside the run.
    canary: Arc<Canary>,
    /// Why an interval could not be printed.
    failure: Option<Failure>,
}

impl Talk<'_> {
    fn labels(&self) -> Labels {
        self.job.labels()
    }

    /// Prints text that only people read: nothing with `--format=json`.
    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.format() == Format::Text { print(text) } else { Ok(()) }
    }

    fn format(&self) -> Format {
        self.job.args.output.format
    }

    /// Probes the device once more: if other load disturbed the first probe, its result would flatter the engine.
    fn probe_again(&mut self) -> Result<(), Error> {
        let again = probe::sync_pairs(&self.job.args.load.dir, self.job.access(), probe_time(self.job.args))?;
        if again.contradicts(self.device) {
            talk(&format!(
                "the device made {:.0} write+sync pairs/s before the run and {:.0} after it; the higher counts",
                self.device.per_s, again.per_s
            ));
        }
        self.device = self.device.faster(again);
        Ok(())
    }

    /// The heading: workload, database, device.
    fn heading(&self) -> String {
        let args = self.job.args;
        let tables = if args.workload.uses_tables() {
            format!("{} x {} rows", args.load.tables, args.load.table_size)
        } else {
            format!("a table for each of {} threads", args.load.threads)
        };
        format!(
            "millpond {}: {} on '{}', {tables}, rand-type {}, rand-seed {}\n{}{}",
            env!("CARGO_PKG_VERSION"),
            args.workload.name(),
            args.load.dir.display(),
            args.load.rand_type,
            args.load.rand_seed,
            self.statement_by_statement(),
            report_text::device_line(&self.device),
        )
    }

    /// The line that says that transactions run statement by statement, if they do.
    fn statement_by_statement(&self) -> &'static str {
        if self.job.args.runs_statement_by_statement() { report_text::STATEMENT_BY_STATEMENT } else { "" }
    }

    /// The result of the first phase, as text.
    fn first_phase(&self, maximum: &Maximum, share: f64) -> String {
        let mut text = format!(
            "maximum: {:.2} tps (closed loop, {} threads, median of the last {} of {} s{})\n",
            maximum.per_s,
            self.job.args.load.threads,
            Maximum::COUNTED_S,
            maximum.phase_s,
            if maximum.has_settled { "" } else { ", not yet steady" },
        );
        let per_sync = self.commits_per_sync(maximum.writes_per_log_sync, maximum.writes_per_transaction);
        if let Some(per_sync) = per_sync.filter(|_| self.compares_commits(maximum.writes_per_transaction)) {
            text.push_str("at the maximum, ");
            text.push_str(&report_text::commits_per_sync_line(per_sync));
        }
        let _ = writeln!(text, "offered: {:.2} tps ({:.0}%)", maximum.per_s * share, share * 100.0);
        text
    }

    /// sysbench's lines about the options of the run.
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

    /// All facts of the run.
    fn facts(&self, engine: &Millpond, before: &Before, finished: &Finished, verified: Option<Verified>) -> Facts {
        let figures = RunFigures::of(finished, &self.device, self.labels());
        let writes = finished.writes_per_transaction();
        let commits_per_s = figures.usual_per_s() * self.commits(writes);
        let compares = self.compares_commits(writes);
        let per_pair = compares.then(|| commits_per_s / self.device.per_s);
        let per_sync = self.commits_per_sync(finished.writes_per_log_sync(), writes).filter(|_| compares);
        let on = Circumstances::of(self.job, engine, before.began, &self.device);
        Facts {
            on,
            is_statement_by_statement: self.job.args.runs_statement_by_statement(),
            offered_per_s: before.offered_per_s,
            maximum_per_s: before.maximum.map(|maximum| maximum.per_s),
            maximum_is_steady: before.maximum.map(|maximum| maximum.has_settled),
            figures,
            commits_per_pair: per_pair,
            commits_per_log_sync: per_sync,
            rows_verified: verified.map(|verified| verified.rows),
            entries_verified: verified.map(|verified| verified.entries),
            latency_histogram: self.job.args.output.histogram.then(|| histogram_buckets(&finished.record.latencies)),
        }
    }

    fn summary(&self, facts: &Facts, finished: &Finished) -> String {
        if self.format() == Format::Json {
            return report_json::line("summary", facts);
        }
        let mut text = String::new();
        if self.job.args.output.histogram {
            text.push_str(&histogram_block(&finished.record.latencies));
        }
        text.push_str(&report_text::summary(&facts.figures));
        text.push_str(&report_text::calm_block(&facts.figures));
        text.push_str(&where_block(&facts.figures));
        if let (Some(rows), Some(entries)) = (facts.rows_verified, facts.entries_verified) {
            text.push_str(&report_text::verified_line(rows, entries));
        }
        text.push_str(self.statement_by_statement());
        text.push_str(&report_text::device_line(&self.device));
        if let Some(per_sync) = facts.commits_per_log_sync {
            text.push_str(&report_text::commits_per_sync_line(per_sync));
        }
        text.push_str(&report_text::verdict_lines(&facts.figures));
        text
    }

    /// Commits of a transaction: one if its statements run together, otherwise one for each that writes.
    fn commits(&self, writes_per_transaction: f64) -> f64 {
        if self.job.args.commits_once() { writes_per_transaction.min(1.0) } else { writes_per_transaction }
    }

    /// Commits for each sync of the log, from the statements that wrote for each sync.
    fn commits_per_sync(&self, writes_per_sync: Option<f64>, writes_per_transaction: f64) -> Option<f64> {
        writes_per_sync.map(|per_sync| per_sync * self.commits(writes_per_transaction) / writes_per_transaction)
    }

    /// Whether commits are comparable with sync pairs: there are some, all durable, none as large as a `bulk_insert`
    /// packet or a batch.
    fn compares_commits(&self, writes_per_transaction: f64) -> bool {
        let is_durable = self.job.engine_settings.value("durability") == "commit";
        let workload = self.job.args.workload;
        let is_small = workload.uses_tables() && workload != Benchmark::Oltp(Workload::RandomBatches);
        is_durable && is_small && writes_per_transaction > 0.0
    }
}

impl Observer for Talk<'_> {
    fn canary(&self) -> Option<Arc<Canary>> {
        Some(Arc::clone(&self.canary))
    }

    fn started(&mut self) {
        self.failure = self.say("Threads started!\n\n").err();
    }

    fn interval(&mut self, interval: &Interval) -> ControlFlow<()> {
        let figures = IntervalFigures::of(interval, self.labels());
        let text = match self.format() {
            Format::Text => report_text::interval_lines(&figures),
            Format::Json => report_json::line("interval", &figures),
        };
        if self.failure.is_none() {
            self.failure = print(&text).err();
        }
        if self.failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
