//! Runs a load with many threads and watches it second by second.
//!
//! DRV-1  All threads begin together, when every one of them has been started.
//! DRV-2  A transaction that has begun is finished, and counted, though the time be up; none begins after that.
//! DRV-3  Nobody waits by looking: workers sleep until their arrival, the collector until its next second.
//! DRV-4  Those that begin in the warm-up are run and not counted, and are none of the events of `Plan::events`; of the
//!        others exactly so many are begun, if the time allows it and nothing stops the run.
//!
//! The calling thread is the collector: once a second it takes what the workers recorded, and at the end of each report
//! interval it gives the observer its figures.

mod arrivals;
mod closed_loop;
mod collector;
mod gate;
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

/// Longest sleep of the collector and of a worker without a look at the caller's stop flag.
const NAP: Duration = Duration::from_millis(100);

/// Nanoseconds in a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How transactions follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each thread begins the next when its last is done.
    ClosedLoop,
    /// They arrive at this mean rate, whatever the engine does; latency counts from the arrival.
    OpenLoop {
        /// Arrivals in a second.
        per_s: f64,
    },
    /// The same, at even distances.
    FixedRate {
        /// Arrivals in a second.
        per_s: f64,
    },
}

/// How a run is to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Worker threads; in an open loop the cap on concurrency.
    pub threads: usize,
    /// How long transactions are begun that count, in whole seconds.
    pub time_s: u64,
    /// Seconds before that, in which transactions are run and not counted.
    pub warmup_s: u64,
    /// How many transactions count at most; 0 for no limit.
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
    /// Its latencies and conflicts.
    pub record: Record,
    /// Arrivals and running transactions, in an open loop.
    pub queue: Option<Queue>,
    /// The engine's state at its end.
    pub gauges: Gauges,
    /// Microseconds for which operations were slowed down in it.
    pub throttled_us: u64,
    /// What the canaries saw in it; `None`: the machine is not watched.
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

    /// What watches the machine beside the run, if anything does.
    fn canary(&self) -> Option<Arc<Canary>> {
        None
    }

    /// An interval has ended. [`ControlFlow::Break`] ends the run.
    fn interval(&mut self, interval: &Interval) -> ControlFlow<()>;
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn interval(&mut self, _: &Interval) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// Each thread's totals.
    pub threads: Vec<Totals>,
    /// All latencies and conflicts.
    pub record: Record,
    /// Seconds from the beginning, or the end of the warm-up, to the last completion's thread end.
    pub elapsed_s: f64,
    /// Completions in each whole second.
    pub seconds: Vec<u64>,
    /// Arrivals a second; `None` in a closed loop.
    pub offered_per_s: Option<f64>,
    /// When the counting began, in ns since the start of the run: all spans count from the start.
    pub counts_from_ns: u64,
    /// Transactions that had arrived and were not begun when the time was up; 0 in a closed loop.
    pub unserved: u64,
    /// The one of these that had waited longest, as if it had ended when the time was up.
    pub longest_unserved: Option<Slow>,
    /// From the last completion to the end of the run, if one was waited for.
    pub last_gap: Option<Span>,
    /// What the canaries saw; `None`: the machine was not watched.
    pub machine: Option<MachineLog>,
    /// When operations of the engine stalled: the last of them.
    pub stalls: Vec<Span>,
    /// What the engine counted meanwhile, without the warm-up.
    pub counters: Counters,
    /// What was seen second by second.
    pub timeline: Timeline,
    /// The last of the operations that were slow meanwhile, as many as the engine remembers.
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
        // A run that is stopped in its warm-up lasts for no time at all.
        if self.elapsed_s > 0.0 { count as f64 / self.elapsed_s } else { 0.0 }
    }

    /// Statements of a transaction that changed something, on average: each is a commit.
    pub fn writes_per_transaction(&self) -> f64 {
        self.record.queries.write as f64 / self.transactions().max(1) as f64
    }

    /// Commits for each sync of the log: each statement that changed something is one. `None`: there was no sync.
    pub fn commits_per_log_sync(&self) -> Option<f64> {
        let syncs = self.counters.log_syncs;
        (syncs > 0).then(|| self.record.queries.write as f64 / syncs as f64)
    }

    /// Times without a completion while a transaction waited: all that are long, and the longest.
    pub fn gaps(&self) -> Vec<Span> {
        let of_threads = self.threads.iter().flat_map(|thread| thread.gaps.kept().iter().chain([&thread.blackout]));
        of_threads.copied().chain(self.last_gap).collect()
    }

    /// The longest of these times.
    pub fn blackout(&self) -> Span {
        self.gaps().into_iter().max_by_key(|gap| gap.len_ns()).unwrap_or_default()
    }

    /// Its length, in ms.
    pub fn blackout_ms(&self) -> f64 {
        self.blackout().len_ns() as f64 / 1e6
    }

    /// Slow transactions, with the one that had waited longest when the time was up.
    pub fn slow(&self) -> Vec<Slow> {
        let of_threads = self.threads.iter().flat_map(|thread| thread.slow.kept());
        of_threads.copied().chain(self.longest_unserved).collect()
    }

    /// The longest latency, also of a transaction that was still queued at the end, in ns.
    pub fn slowest_ns(&self) -> u64 {
        self.longest_unserved.map_or(0, |slow| slow.latency_ns()).max(self.record.max_ns)
    }
}

/// Runs `load` on `engine` as planned, until the time is up, all events have been run, `stop` becomes true, or the
/// observer breaks off.
///
/// # Errors
/// What the engine returned to any worker, other than a conflict; [`Error::ThreadStart`], [`Error::ThreadPanicked`].
pub fn run<E: Engine>(
    engine: &E,
    load: &Load,
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Finished, Error> {
    let clients = (0..plan.threads)
        .map(|number| oltp::Client::new(load, engine, number, plan.threads))
        .collect::<Result<Vec<_>, Error>>()?;
    run_clients(engine, clients, plan, stop, observer)
}

/// Runs a thread for each of `clients`, which are as many as the plan has threads, as [`run`] does; one that has no more
/// transactions ends.
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
        // However this ends, the canaries end with it.
        let _ending = watch.as_ref().map(Ending);
        let workers = start_workers(scope, clients, plan, &shared, schedule.as_ref())?;
        observer.started();
        // While nobody is at work yet.
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

/// Ends the canaries when it is dropped.
struct Ending<'w, 'c>(&'w Watch<'c>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A worker's thread.
type Started<'scope> = thread::ScopedJoinHandle<'scope, Result<Totals, Error>>;

/// Starts a thread for each client; they wait at the gate.
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
                shared.gate.call_off();
                return Err(Error::ThreadStart { number: number + 1, threads: plan.threads, source });
            }
        }
    }
    Ok(workers)
}

/// Starts the canaries' threads. A run goes on without one that cannot be started, and the log says so.
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
    if let Some(cause) = device.err().or(cpu.err()) {
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
