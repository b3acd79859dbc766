//! Runs a load with many threads and watches it second by second.
//!
//! DRV-1  All threads begin together, after the last one has been started.
//! DRV-2  A transaction that has begun is finished and counted even after the time is up; none begins after that.
//! DRV-3  No thread polls: a worker sleeps until its arrival, the collector until its next second.
//! DRV-4  Transactions that begin in the warm-up are neither counted nor events of `Plan::events`. After the warm-up,
//!        exactly `Plan::events` transactions begin, if the time allows it and nothing stops the run.
//!
//! The calling thread is the collector: once a second it takes the workers' records, and at the end of each report
//! interval it passes the figures to the observer.

mod arrivals;
mod closed_loop;
mod collector;
pub(crate) mod gate;
pub mod maximum;
mod open_loop;
mod worker;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::canary::log::MachineLog;
use crate::canary::{Canary, Seen, Watch};
use crate::engine::{Counters, Engine, Gauges, Instruments, SlowOperation};
use crate::generators::Client;
use crate::generators::oltp::{self, Load};
use crate::recorder::{Demand, Record, Recorder, RunClock, Totals};
use crate::spans::{Slow, Span};
use crate::timeline::Timeline;
use arrivals::{Gaps, Schedule};
use collector::Collector;
use gate::Gate;
use worker::{Shared, Worker};

/// The collector and the workers check the caller's stop flag at least this often.
const NAP: Duration = Duration::from_millis(100);

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How transactions follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each thread begins the next when its last is done.
    ClosedLoop,
    /// Transactions arrive at this mean rate, as a Poisson process, whatever the engine does. Latency counts from the
    /// arrival.
    OpenLoop {
        /// Arrivals in a second.
        per_s: f64,
    },
    /// As `OpenLoop`, but with even gaps.
    FixedRate {
        /// Arrivals in a second.
        per_s: f64,
    },
}

/// How a run is to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Worker threads; in an open loop, the limit of concurrency.
    pub threads: usize,
    /// Seconds in which transactions that count may begin.
    pub time_s: u64,
    /// Seconds of warm-up before that; its transactions are not counted.
    pub warmup_s: u64,
    /// The most transactions that count; 0 for no limit.
    pub events: u64,
    /// Seconds between reports to the observer; 0 for none.
    pub report_interval_s: u64,
    /// How transactions follow each other.
    pub pace: Pace,
    /// Seed of the transactions and arrivals.
    pub seed: u64,
}

/// The figures of one report interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Seconds since the run began, without the warm-up.
    pub at_s: f64,
    /// Seconds that the interval lasted.
    pub length_s: f64,
    /// Worker threads.
    pub threads: usize,
    /// Latencies and conflicts of the interval.
    pub record: Record,
    /// Arrivals and running transactions, in an open loop.
    pub queue: Option<Queue>,
    /// The engine's state at the end of the interval.
    pub gauges: Gauges,
    /// Time for which the engine throttled operations in the interval, in us.
    pub throttled_us: u64,
    /// The canaries' worst beats in the interval; `None` if the machine is not watched.
    pub machine: Option<Seen>,
}

/// The state of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Transactions that have arrived and have not begun.
    pub length: u64,
    /// Transactions that are running.
    pub concurrency: u64,
}

/// Watches a run.
pub trait Observer {
    /// All threads have been started; the run begins.
    fn started(&mut self) {}

    /// The canary that watches the machine beside the run, if any.
    fn canary(&self) -> Option<Arc<Canary>> {
        None
    }

    /// An interval has ended. [`ControlFlow::Break`] ends the run.
    fn interval(&mut self, interval: &Interval) -> ControlFlow<()>;
}

/// An observer that ignores all intervals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn interval(&mut self, _: &Interval) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Results of a run.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// Each thread's totals.
    pub threads: Vec<Totals>,
    /// All latencies and conflicts.
    pub record: Record,
    /// Seconds from the end of the warm-up to the end of the last thread; with all events done in an open loop, to the
    /// last completion.
    pub elapsed_s: f64,
    /// Completions in each whole second.
    pub seconds: Vec<u64>,
    /// Arrivals a second; `None` in a closed loop.
    pub offered_per_s: Option<f64>,
    /// End of the warm-up, in ns since the start of the run; all spans count from the start.
    pub counts_from_ns: u64,
    /// Transactions that had arrived and were not begun when the time was up; 0 in a closed loop.
    pub unserved: u64,
    /// The unserved transaction that had waited longest, as if it had ended when the time was up.
    pub longest_unserved: Option<Slow>,
    /// From the last completion to the end of the run, if a transaction was waiting then.
    pub last_gap: Option<Span>,
    /// The canaries' log; `None` if the machine was not watched.
    pub machine: Option<MachineLog>,
    /// Times of the engine's last stalls, as many as the engine remembers.
    pub stalls: Vec<Span>,
    /// The engine's counters in the run, without the warm-up.
    pub counters: Counters,
    /// Figures second by second.
    pub timeline: Timeline,
    /// The slowest operations in the run, as many as the engine remembers.
    pub slow_operations: Vec<SlowOperation>,
    /// Whether the run was stopped before its time.
    pub was_stopped: bool,
}

impl Finished {
    /// Transactions completed.
    pub fn transactions(&self) -> u64 {
        self.threads.iter().map(|thread| thread.transactions).sum()
    }

    /// Transactions a second, on average.
    pub fn mean_per_s(&self) -> f64 {
        self.per_s(self.transactions())
    }

    /// `count` of the whole run, per second.
    pub fn per_s(&self, count: u64) -> f64 {
        // A run that is stopped in its warm-up has a length of 0.
        if self.elapsed_s > 0.0 { count as f64 / self.elapsed_s } else { 0.0 }
    }

    /// Statements that changed a row, per transaction on average.
    pub fn writes_per_transaction(&self) -> f64 {
        self.record.queries.write as f64 / self.transactions().max(1) as f64
    }

    /// Statements that changed a row, per sync of the log. `None`: there was no sync.
    pub fn writes_per_log_sync(&self) -> Option<f64> {
        let syncs = self.counters.log_syncs;
        (syncs > 0).then(|| self.record.queries.write as f64 / syncs as f64)
    }

    /// Times without a completion while a transaction waited: all long ones, and the longest of each thread.
    pub fn gaps(&self) -> Vec<Span> {
        let of_threads = self.threads.iter().flat_map(|thread| thread.gaps.kept().iter().chain([&thread.blackout]));
        of_threads.copied().chain(self.last_gap).collect()
    }

    /// The longest of these times.
    pub fn blackout(&self) -> Span {
        self.gaps().into_iter().max_by_key(|gap| gap.len_ns()).unwrap_or_default()
    }

    /// The length of the blackout, in ms.
    pub fn blackout_ms(&self) -> f64 {
        self.blackout().len_ns() as f64 / 1e6
    }

    /// Slow transactions, with the one that had waited longest when the time was up.
    pub fn slow(&self) -> Vec<Slow> {
        let of_threads = self.threads.iter().flat_map(|thread| thread.slow.kept());
        of_threads.copied().chain(self.longest_unserved).collect()
    }

    /// The longest latency, including transactions that were still queued at the end, in ns.
    pub fn slowest_ns(&self) -> u64 {
        self.longest_unserved.map_or(0, |slow| slow.latency_ns()).max(self.record.max_ns)
    }
}

/// Runs `load` on `engine` as planned, until the time is up, all events have been run, `stop` becomes true, or the
/// observer breaks off.
///
/// # Errors
/// Any error that the engine returned to a worker, other than a conflict; [`Error::ThreadStart`],
/// [`Error::ThreadPanicked`].
pub fn run<E: Engine>(
    engine: &E,
    load: &Load,
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Finished, Error> {
    run_clients(engine, oltp::Client::all(load, engine, plan.threads)?, plan, stop, observer)
}

/// Runs a thread for each of `clients`, as [`run`] does. There are as many clients as the plan has threads. A thread
/// whose client has no more transactions ends.
///
/// # Errors
/// As [`run`].
pub fn run_clients<C: Client>(
    engine: &impl Instruments,
    clients: Vec<C>,
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Finished, Error> {
    let schedule = match plan.pace {
        Pace::ClosedLoop => None,
        Pace::OpenLoop { per_s } => Some(Schedule::new(per_s, Gaps::Poisson, plan.seed)?),
        Pace::FixedRate { per_s } => Some(Schedule::new(per_s, Gaps::Even, plan.seed)?),
    };
    let counts_from_ns = plan.warmup_s * SECOND_NS;
    let demand = if schedule.is_some() { Demand::Arrivals } else { Demand::Always };
    let shared = Shared {
        recorder: Recorder::new(plan.threads, counts_from_ns, demand),
        gate: Gate::new(),
        counts_from_ns,
        end_ns: counts_from_ns + plan.time_s * SECOND_NS,
        events_max: plan.events,
        events: AtomicU64::new(0),
        stop,
        halted: AtomicBool::new(false),
        collector: thread::current(),
    };
    let canary = observer.canary();
    let watch = canary.as_deref().map(Watch::new);
    let (totals, collected) = thread::scope(|scope| {
        // The canaries end when this is dropped, also after an error.
        let _ending = watch.as_ref().map(Ending);
        // A panic before the start must not leave the workers at the gate.
        let _calling_off = CallingOff(&shared.gate);
        let workers = start_workers(scope, clients, plan, &shared, schedule.as_ref())?;
        observer.started();
        // Read here, because no worker has begun yet.
        let counters_before = engine.counters();
        drop(engine.take_slow_operations());
        let clock = shared.gate.open();
        start_canaries(scope, watch.as_ref(), engine, clock);
        let (plan, shared, schedule, watch) = (plan, &shared, schedule.as_ref(), watch.as_ref());
        let collector = Collector { engine, plan, shared, clock, schedule, watch };
        let collected = collector.run(counters_before, observer);
        let totals = workers
            .into_iter()
            .enumerate()
            .map(|(number, worker)| worker.join().map_err(|_| Error::ThreadPanicked(number + 1))?)
            .collect::<Result<Vec<Totals>, Error>>()?;
        let collected = collector.finish(collected, &totals);
        Ok::<_, Error>((totals, collected))
    })?;
    let counters = engine.counters().since(&collected.counters_before);
    let slow_operations = engine.take_slow_operations();
    let stall_times = engine.stall_times();
    let stalls = stall_times.iter().filter_map(|stall| collected.clock.span_of(stall.ended, stall.elapsed));
    Ok(Finished {
        seconds: whole_seconds(&totals, collected.elapsed_s, plan.time_s),
        threads: totals,
        record: collected.record,
        elapsed_s: collected.elapsed_s,
        offered_per_s: schedule.as_ref().map(Schedule::per_s),
        counts_from_ns,
        unserved: collected.unserved,
        longest_unserved: collected.longest_unserved,
        last_gap: collected.last_gap,
        machine: watch.map(Watch::into_log),
        stalls: stalls.filter(|stall| stall.to_ns >= counts_from_ns).collect(),
        counters,
        timeline: collected.timeline,
        slow_operations,
        was_stopped: collected.was_stopped,
    })
}

/// Calls the run off on drop if it has not begun.
struct CallingOff<'g>(&'g Gate);

impl Drop for CallingOff<'_> {
    fn drop(&mut self) {
        self.0.call_off();
    }
}

/// Ends the canaries on drop.
struct Ending<'w, 'c>(&'w Watch<'c>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A worker's thread.
type Started<'scope> = thread::ScopedJoinHandle<'scope, Result<Totals, Error>>;

/// Starts a thread for each client; the threads wait at the gate.
fn start_workers<'scope, 'env, C: Client + 'scope>(
    scope: &'scope thread::Scope<'scope, 'env>,
    clients: Vec<C>,
    plan: &Plan,
    shared: &'scope Shared<'env>,
    schedule: Option<&'scope Schedule>,
) -> Result<Vec<Started<'scope>>, Error> {
    let mut workers = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        let worker = Worker::new(number, client, shared, plan.seed);
        let started = thread::Builder::new().name(format!("load-{}", number + 1)).spawn_scoped(scope, move || {
            let totals = match schedule {
                None => closed_loop::run(worker),
                Some(schedule) => open_loop::run(worker, schedule),
            };
            if totals.is_err() {
                shared.halt();
            }
            totals
        });
        match started {
            Ok(worker) => workers.push(worker),
            Err(source) => {
                return Err(Error::ThreadStart { number: number + 1, threads: plan.threads, source });
            }
        }
    }
    Ok(workers)
}

/// Starts the canaries' threads. If one cannot be started, the run goes on without it, and the log says so.
fn start_canaries<'scope, E: Instruments>(
    scope: &'scope thread::Scope<'scope, '_>,
    watch: Option<&'scope Watch<'scope>>,
    engine: &'scope E,
    clock: RunClock,
) {
    let Some(watch) = watch else { return };
    let named = |name: &str| thread::Builder::new().name(name.to_owned());
    let device =
        named("canary-device").spawn_scoped(scope, move || watch.watch_device(clock, || engine.outstanding_bytes()));
    let cpu = named("canary-cpu").spawn_scoped(scope, move || watch.watch_cpu(clock));
    let taken = named("canary-taken").spawn_scoped(scope, move || watch.watch_taken(clock));
    if let Some(cause) = device.err().or(cpu.err()).or(taken.err()) {
        watch.fail(format!("a canary's thread cannot be started: {cause}"));
    }
}

/// The sum of the threads' completions in each second that lies wholly within the run.
fn whole_seconds(totals: &[Totals], elapsed_s: f64, time_s: u64) -> Vec<u64> {
    let whole = time_s.min(elapsed_s as u64) as usize;
    let of_second = |second: usize| totals.iter().filter_map(|thread| thread.per_second.get(second)).sum();
    (0..whole).map(of_second).collect()
}

#[cfg(test)]
mod tests;
