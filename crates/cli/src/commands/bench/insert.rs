//! The insert benchmark: loads missing tables, runs the steps, shows each step and then all of them.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use workload::Error;
use workload::adapters::millpond::Millpond;
use workload::canary::Canary;
use workload::driver::{Interval, Observer, Pace, Plan};
use workload::engine::TableNo;
use workload::figures::{IntervalFigures, Labels};
use workload::generators::insert_benchmark::{Step, purchases_name};
use workload::histogram_text::{Bucket, histogram_block, histogram_buckets};
use workload::insert_benchmark::{self, Done, Sizes, StepFigures};
use workload::probe::{self, SyncPairs};
use workload::verdict::Verdict;
use workload::where_text::where_block;
use workload::{report_json, report_text};

use super::args::Action;
use super::facts::Circumstances;
use super::measure::probe_time;
use super::report::steps_page;
use super::{Job, checked, held, held_line, interrupted_load, listed, room, tell_unwatched};
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::progress::Progress;
use crate::values::Format;

/// Results of all steps.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    #[serde(flatten)]
    pub(super) on: Circumstances,
    /// Bytes of data in each row.
    pub(super) data_length: u32,
    /// Whether a step was stopped before its time; later steps did not run.
    pub(super) interrupted: bool,
    /// Names of the steps that ran.
    pub(super) steps: Vec<String>,
    /// Rows at the end, and index entries that agree with them; `None` after an interrupt.
    pub(super) rows_verified: Option<u64>,
    pub(super) entries_verified: Option<u64>,
    pub(super) device_pairs_per_s: f64,
    pub(super) device_worst_pair_ms: f64,
}

/// A finished step.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) step: Step,
    pub(super) figures: StepFigures,
    pub(super) done: Done,
}

/// Performs the action.
pub(super) fn act(job: &Job<'_>, engine: &Millpond) -> Result<Answer, Failure> {
    let (args, sizes) = (job.args, job.args.sizes());
    if args.action == Some(Action::Cleanup) {
        let dropped = insert_benchmark::drop_tables(engine, sizes.clients)?;
        talk(&format!("dropped {}", listed(&dropped, |table| purchases_name(*table))));
        return Ok(Answer::Yes);
    }
    let began = SystemTime::now();
    let missing = insert_benchmark::missing(engine, &sizes)?;
    let steps = steps(job, engine, &missing)?;
    if steps.contains(&Step::Load) {
        room::check_more(args, u32::try_from(missing.len()).unwrap_or(u32::MAX))?;
    }
    let device = probe::sync_pairs(&args.load.dir, job.access(), probe_time(args))?;
    let canary = Arc::new(Canary::new(&args.load.dir, job.access())?);
    say(job, &heading(job, &sizes, &device))?;
    let mut ran = Vec::new();
    let held = held(args, engine)?;
    for step in steps {
        let Some(done) = run_step(job, engine, &sizes, step, &missing, &canary)? else {
            return Ok(if step == Step::Load { interrupted_load() } else { interrupted_indexes() });
        };
        tell_unwatched(&done.finished);
        let figures = StepFigures::of(step, &sizes, &done, &device, job.labels());
        print(&step_report(job, step, &figures, &done))?;
        let is_stopped = done.finished.was_stopped;
        ran.push(Ran { step, figures, done });
        if is_stopped {
            break;
        }
    }
    if let Some(held) = held {
        say(job, &held_line(&held, engine))?;
    }
    finish(job, engine, began, device, &ran)
}

/// The steps to run; `missing` are the missing tables.
fn steps(job: &Job<'_>, engine: &Millpond, missing: &[TableNo]) -> Result<Vec<Step>, Failure> {
    let args = job.args;
    let mut steps = args.insert.steps.0.clone();
    steps.retain(|step| if step.prepares() { args.prepares() } else { args.runs() });
    let all: Vec<TableNo> = TableNo::first(args.load.threads).collect();
    let mut leave_out = |step, why: &str| {
        if steps.contains(&step) {
            let tables = listed(&all, |table| purchases_name(*table));
            talk(&format!("{step} is left out: {tables} {why}; drop them with the action 'cleanup' to begin anew"));
            steps.retain(|other| *other != step);
        }
    };
    if missing.is_empty() {
        leave_out(Step::Load, "are loaded already");
        if insert_benchmark::missing_indexes(engine, args.load.threads)?.is_empty() {
            leave_out(Step::CreateIndexes, "have their indexes already");
        }
    }
    match missing.first() {
        Some(table) if steps.first().is_some_and(|first| *first != Step::Load) => {
            Err(Error::NoPurchases(purchases_name(*table)).into())
        }
        _ => Ok(steps),
    }
}

/// Reports that an interrupt left indexes missing.
fn interrupted_indexes() -> Answer {
    talk("interrupted: some indexes are not there; the step l.x makes them");
    Answer::Interrupted
}

/// Runs a step; `None` if the load or the index creation was interrupted.
fn run_step(
    job: &Job<'_>,
    engine: &Millpond,
    sizes: &Sizes,
    step: Step,
    missing: &[TableNo],
    canary: &Arc<Canary>,
) -> Result<Option<Done>, Failure> {
    let args = job.args;
    say(job, &step_heading(job, sizes, step))?;
    let plan = Plan {
        threads: 0,
        time_s: args.load.time,
        warmup_s: args.load.warmup_time,
        events: 0,
        report_interval_s: args.output.report_interval,
        pace: Pace::ClosedLoop,
        seed: args.load.rand_seed,
    };
    let mut talk_of_step = Talk {
        step: step.to_string(),
        labels: job.labels(),
        format: args.output.format,
        canary: Arc::clone(canary),
        failure: None,
    };
    let done = match step {
        Step::Load => insert_benchmark::load(engine, sizes, missing, &plan, job.stop, &mut talk_of_step),
        Step::CreateIndexes => insert_benchmark::create_indexes(engine, sizes, &plan, job.stop, &mut talk_of_step),
        _ => insert_benchmark::run(engine, sizes, step, &plan, job.stop, &mut talk_of_step),
    };
    match (talk_of_step.failure, done) {
        (Some(failure), _) => Err(failure),
        (None, Err(Error::Interrupted)) => Ok(None),
        (None, done) => Ok(Some(done?)),
    }
}

/// Verifies rows and indexes, probes the device once more, and shows all steps together.
fn finish(
    job: &Job<'_>,
    engine: &Millpond,
    began: SystemTime,
    device: SyncPairs,
    ran: &[Ran],
) -> Result<Answer, Failure> {
    let args = job.args;
    let interrupted = ran.iter().any(|ran| ran.done.finished.was_stopped);
    let (mut verified, mut device) = (None, device);
    if !interrupted {
        let progress = Progress::working("looking for every row's index entries");
        let found = insert_benchmark::verify(engine, args.load.threads);
        progress.finish();
        verified = Some(found?);
        device = device.faster(probe::sync_pairs(&args.load.dir, job.access(), probe_time(args))?);
    }
    let facts = Facts {
        on: Circumstances::of(job, engine, began, &device),
        data_length: job.args.sizes().load.data_len,
        interrupted,
        steps: ran.iter().map(|ran| ran.figures.step.clone()).collect(),
        rows_verified: verified.map(|verified| verified.rows),
        entries_verified: verified.map(|verified| verified.entries),
        device_pairs_per_s: device.per_s,
        device_worst_pair_ms: device.worst_ms,
    };
    let printed = print(&match args.output.format {
        Format::Json => report_json::line("summary", &facts),
        Format::Text => summary(ran, &facts, &device),
    });
    // Written even if no program reads the summary any more.
    if let Some(report) = job.report {
        report.write(&steps_page::of_steps(&facts, ran))?;
    }
    printed?;
    Ok(if facts.interrupted { Answer::Interrupted } else { checked(args, worst_verdict(ran)) })
}

/// Whether a step is timed and judged. Loads and index builds last until they are done.
pub(super) fn is_judged(step: Step) -> bool {
    !step.prepares()
}

/// The worst verdict of the steps that are judged.
fn worst_verdict(ran: &[Ran]) -> Verdict {
    let verdicts = ran.iter().filter(|ran| is_judged(ran.step)).map(|ran| ran.figures.figures.judged.verdict);
    let badness = |verdict: &Verdict| match verdict {
        Verdict::Calm => 0,
        Verdict::Inconclusive => 1,
        Verdict::NotCalm => 2,
    };
    verdicts.max_by_key(badness).unwrap_or(Verdict::Calm)
}

/// Prints text that only people read: nothing with `--format=json`.
fn say(job: &Job<'_>, text: &str) -> Result<(), Failure> {
    if job.args.output.format == Format::Text { print(text) } else { Ok(()) }
}

/// The heading: benchmark, database, device.
fn heading(job: &Job<'_>, sizes: &Sizes, device: &SyncPairs) -> String {
    let args = job.args;
    format!(
        "millpond {}: insert_benchmark on '{}', {} x {} rows, {} bytes of data, rand-seed {}\n{}",
        env!("CARGO_PKG_VERSION"),
        args.load.dir.display(),
        sizes.clients,
        sizes.load.rows,
        sizes.load.data_len,
        args.load.rand_seed,
        report_text::device_line(device),
    )
}

/// The heading of a step.
fn step_heading(job: &Job<'_>, sizes: &Sizes, step: Step) -> String {
    let rows = sizes.rows_per_commit(step);
    let clients = if sizes.clients == 1 { "1 client".to_owned() } else { format!("{} clients", sizes.clients) };
    let how = match step {
        Step::Load => format!("{rows} rows a transaction"),
        Step::CreateIndexes => "one after the other".to_owned(),
        Step::ManyInserts | Step::FewInserts => format!("{rows} rows a transaction, {} s", job.args.load.time),
        Step::Queries { rows_per_s, .. } => format!(
            "{} rows a query; beside each {rows_per_s} rows/s by {rows}; {} s",
            sizes.rows_per_query, job.args.load.time
        ),
    };
    format!("\n{step}: {}; {clients}, {how}\n", step.what())
}

/// A step's figures, in the form of a run's.
fn step_report(job: &Job<'_>, step: Step, figures: &StepFigures, done: &Done) -> String {
    let (latencies, has_histogram) = (&done.finished.record.latencies, job.args.output.histogram);
    if job.args.output.format == Format::Json {
        let latency_histogram = has_histogram.then(|| histogram_buckets(latencies));
        return report_json::line("step", &StepLine { figures, latency_histogram });
    }
    let mut text = String::new();
    if has_histogram {
        text.push_str(&histogram_block(latencies));
    }
    text.push_str(&report_text::summary(&figures.figures));
    text.push_str(&report_text::calm_block(&figures.figures));
    text.push_str(&where_block(&figures.figures));
    text.push_str(&rows_block(figures));
    if is_judged(step) {
        text.push_str(&report_text::verdict_lines(&figures.figures));
    }
    text
}

/// The rows of a step, and the rate beside the queries.
fn rows_block(figures: &StepFigures) -> String {
    if figures.entries_made > 0 {
        let (entries, per_s) = (figures.entries_made, figures.entries_made_per_s);
        return format!("Index entries:\n    made:                                {entries} ({per_s:.2} per sec.)\n");
    }
    let mut text = format!(
        "Rows:\n    inserted:                            {} ({:.2} per sec.)\n    \
         deleted:                             {}\n",
        figures.rows_inserted, figures.rows_inserted_per_s, figures.rows_deleted
    );
    if let (Some(wanted), Some(percentile_ms), Some(max_ms)) =
        (figures.rows_wanted_per_s, figures.beside_latency_percentile_ms, figures.beside_latency_max_ms)
    {
        let kept = kept(figures);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    rate beside the queries:             {kept} ({wanted:.0} per sec. wanted)\n    \
             its transactions (ms, from arrival): {}th percentile {percentile_ms:.2}, max {max_ms:.2}",
            figures.figures.latency_percentile,
        );
    }
    text
}

/// Whether the rate beside queries was kept.
pub(super) fn kept(figures: &StepFigures) -> &'static str {
    match figures.is_rate_kept {
        None => "-",
        Some(true) => "kept",
        Some(false) => "NOT kept",
    }
}

/// All steps in one table.
fn summary(ran: &[Ran], facts: &Facts, device: &SyncPairs) -> String {
    let percentile = ran.first().map_or(0, |ran| ran.figures.figures.latency_percentile);
    let mut text = format!(
        "\nInsert benchmark:\n    {:<8}{:>9}{:>12}{:>12}{:>12}{:>12}{:>10}{:>10}  {}\n",
        "step",
        "seconds",
        "rows/s",
        "queries/s",
        "median tps",
        "worst tps",
        format!("p{percentile} ms"),
        "max ms",
        "rate",
    );
    for of_step in ran.iter().map(|ran| &ran.figures) {
        let StepFigures { step, figures, .. } = of_step;
        let (median, worst) = figures.calm.map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |calm| (format!("{:.0}", calm.median_per_s), calm.worst_per_s.to_string()),
        );
        let _ = writeln!(
            text,
            "    {step:<8}{:>9.1}{:>12.0}{:>12.0}{median:>12}{worst:>12}{:>10.2}{:>10.2}  {}",
            figures.elapsed_s,
            // At least one of the two is 0.
            of_step.rows_inserted_per_s + of_step.entries_made_per_s,
            figures.queries_per_s,
            figures.latency_percentile_ms,
            figures.latency_max_ms,
            kept(of_step),
        );
    }
    if let (Some(rows), Some(entries)) = (facts.rows_verified, facts.entries_verified) {
        text.push_str(&report_text::verified_line(rows, entries));
    }
    text.push_str(&report_text::device_line(device));
    text
}

/// The observer of a step: prints its interval lines.
struct Talk {
    step: String,
    labels: Labels,
    format: Format,
    /// Watches the machine beside the step.
    canary: Arc<Canary>,
    /// Why an interval could not be printed.
    failure: Option<Failure>,
}

/// A step as a line of JSON.
#[derive(Serialize)]
struct StepLine<'a> {
    #[serde(flatten)]
    figures: &'a StepFigures,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_histogram: Option<Vec<Bucket>>,
}

/// An interval of a step as a line of JSON.
#[derive(Serialize)]
struct StepInterval<'a> {
    step: &'a str,
    #[serde(flatten)]
    figures: IntervalFigures,
}

impl Observer for Talk {
    fn canary(&self) -> Option<Arc<Canary>> {
        Some(Arc::clone(&self.canary))
    }

    fn interval(&mut self, interval: &Interval) -> ControlFlow<()> {
        let figures = IntervalFigures::of(interval, self.labels);
        let text = match self.format {
            Format::Text => report_text::interval_lines(&figures),
            Format::Json => report_json::line("interval", &StepInterval { step: &self.step, figures }),
        };
        self.failure = print(&text).err();
        if self.failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
