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
mod gate;
pub mod maximum;
mod open_loop;
mod worker;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::engine::{Counters, Engine, Gauges, Instruments, SlowOperation};
use crate::generators::Client;
use crate::generators::oltp::{self, Load};
use crate::recorder::{Record, Recorder, RunClock, Totals};
use crate::timeline::{Point, Timeline};
use arrivals::{Gaps, Schedule};
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
#[derive(Clone, Debug)]
pub struct Finished {
    /// Each thread's totals.
    pub threads: Vec<Totals>,
    /// All latencies and conflicts.
    pub record: Record,
    /// Seconds from the beginning, or the end of the warm-up, to the last completion's thread end.
    pub elapsed_s: f64,
    /// Completions in each whole second.
    pub seconds: Vec<u64>,
    /// Transactions that had arrived and were not begun when the time was up; 0 in a closed loop.
    pub unserved: u64,
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

    /// The longest time without a completion while a transaction waited, in ms.
    pub fn blackout_ms(&self) -> f64 {
        self.threads.iter().map(|thread| thread.blackout_ns).max().unwrap_or(0) as f64 / 1e6
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
    let shared = Shared {
        recorder: Recorder::new(plan.threads, counts_from_ns),
        gate: Gate::new(),
        counts_from_ns,
        end_ns: counts_from_ns + plan.time_s * SECOND_NS,
        events_max: plan.events,
        events: AtomicU64::new(0),
        stop,
        halted: AtomicBool::new(false),
        collector: thread::current(),
    };
    let (totals, collected) = thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, client) in clients.into_iter().enumerate() {
            let worker = Worker::new(number, client, &shared, plan.seed);
            let (shared, schedule) = (&shared, schedule.as_ref());
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
        observer.started();
        // While nobody is at work yet.
        let counters_before = engine.counters();
        drop(engine.take_slow_operations());
        let clock = shared.gate.open();
        let collector = Collector { engine, plan, shared: &shared, clock, schedule: schedule.as_ref() };
        let collected = collector.run(counters_before, observer);
        let totals = workers
            .into_iter()
            .enumerate()
            .map(|(number, worker)| worker.join().map_err(|_| Error::ThreadPanicked(number + 1))?)
            .collect::<Result<Vec<Totals>, Error>>()?;
        Ok((totals, collector.finish(collected)))
    })?;
    let counters = engine.counters().since(&collected.counters_before);
    let slow_operations = engine.take_slow_operations();
    Ok(Finished {
        seconds: whole_seconds(&totals, collected.elapsed_s, plan.time_s),
        threads: totals,
        record: collected.record,
        elapsed_s: collected.elapsed_s,
        unserved: collected.unserved,
        counters,
        timeline: collected.timeline,
        slow_operations,
        was_stopped: collected.was_stopped,
    })
}

/// The sum of the threads' completions in each second that lies wholly within the run.
fn whole_seconds(totals: &[Totals], elapsed_s: f64, time_s: u64) -> Vec<u64> {
    let whole = time_s.min(elapsed_s as u64) as usize;
    let of_second = |second: usize| totals.iter().filter_map(|thread| thread.per_second.get(second)).sum();
    (0..whole).map(of_second).collect()
}

/// What the collector has gathered.
struct Collected {
    /// The engine's counters at the end of the warm-up.
    counters_before: Counters,
    record: Record,
    timeline: Timeline,
    elapsed_s: f64,
    unserved: u64,
    was_stopped: bool,
}

/// Takes the workers' records, second by second.
struct Collector<'a, E> {
    engine: &'a E,
    plan: &'a Plan,
    shared: &'a Shared<'a>,
    clock: RunClock,
    schedule: Option<&'a Schedule>,
}

impl<E: Instruments> Collector<'_, E> {
    /// Collects until the time is up or the run is stopped; then the workers end by themselves. `counters_before` are
    /// of before the run began.
    fn run(&self, counters_before: Counters, observer: &mut dyn Observer) -> Collected {
        let warm = self.shared.counts_from_ns;
        let mut is_broken_off = warm > 0 && self.sleep_until(warm) == Slept::UntilStopped;
        if warm > 0 {
            drop(self.engine.take_slow_operations());
        }
        let mut collected = Collected {
            counters_before: if warm > 0 { self.engine.counters() } else { counters_before },
            record: Record::new(),
            timeline: Timeline::default(),
            elapsed_s: 0.0,
            unserved: 0,
            was_stopped: false,
        };
        let mut interval = Record::new();
        let mut interval_began_ns = warm;
        // Throttled time at the end of the last interval, and of the last second.
        let mut throttled_before = self.engine.gauges().throttled_us;
        let mut throttled_last = throttled_before;
        for second in 1..=self.plan.time_s {
            if is_broken_off {
                break;
            }
            match self.sleep_until(warm + second * SECOND_NS) {
                Slept::ToTheEnd => {}
                Slept::UntilStopped => {
                    is_broken_off = true;
                    break;
                }
                Slept::UntilTheLastEvent => break,
            }
            let max_ns = self.take_all(&mut interval);
            let gauges = self.engine.gauges();
            let throttled_us = gauges.throttled_us.saturating_sub(throttled_last);
            throttled_last = gauges.throttled_us;
            let throttle_percent = throttled_us as f64 / self.plan.threads as f64 / 1e4;
            collected.timeline.add_second(Point { max_ns, gauges, throttle_percent });
            let interval_s = self.plan.report_interval_s;
            if interval_s == 0 || second % interval_s != 0 {
                continue;
            }
            let now_ns = self.clock.now_ns();
            let length_s = (now_ns - interval_began_ns) as f64 / 1e9;
            let throttled_us = throttled_last.saturating_sub(throttled_before);
            throttled_before = throttled_last;
            let report = self.report(now_ns, length_s, std::mem::take(&mut interval), throttled_us);
            interval_began_ns = now_ns;
            collected.record.add(&report.record);
            is_broken_off = observer.interval(&report).is_break();
        }
        collected.record.add(&interval);
        let stopped_ns = self.clock.now_ns().min(self.shared.end_ns);
        if !self.shared.has_all_events() {
            collected.unserved = self.schedule.map_or(0, |schedule| schedule.waiting(stopped_ns));
        }
        collected.was_stopped = is_broken_off;
        if is_broken_off {
            self.shared.halt();
        }
        collected
    }

    /// Adds what the workers recorded after the last second.
    fn finish(&self, mut collected: Collected) -> Collected {
        let ended_ns = match self.schedule {
            // Who sleeps until an arrival that is not needed any more keeps the run up for nothing.
            Some(_) if self.shared.has_all_events() => self.shared.recorder.last_completion_ns(),
            _ => self.clock.now_ns(),
        };
        collected.elapsed_s = self.counted_s(ended_ns);
        let late_ns = self.take_all(&mut collected.record);
        collected.timeline.add_late(late_ns);
        collected
    }

    /// Seconds since the counting began.
    fn counted_s(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.shared.counts_from_ns) as f64 / 1e9
    }

    fn report(&self, now_ns: u64, length_s: f64, record: Record, throttled_us: u64) -> Interval {
        let queue = self.schedule.map(|schedule| Queue {
            length: schedule.waiting(now_ns),
            concurrency: self.shared.recorder.concurrency(),
        });
        Interval {
            at_s: self.counted_s(now_ns),
            length_s,
            threads: self.plan.threads,
            record,
            queue,
            gauges: self.engine.gauges(),
            throttled_us,
        }
    }

    /// Adds what the workers recorded since the last call; returns the longest latency in it, in ns.
    fn take_all(&self, into: &mut Record) -> u64 {
        let mut spare = Record::new();
        let mut max_ns = 0;
        for worker in 0..self.plan.threads {
            self.shared.recorder.take(worker, &mut spare);
            max_ns = max_ns.max(spare.max_ns);
            into.add(&spare);
            spare.clear();
        }
        max_ns
    }

    /// Sleeps until `at_ns`, unless the run comes to its end before.
    fn sleep_until(&self, at_ns: u64) -> Slept {
        loop {
            if self.shared.is_stopped() {
                return Slept::UntilStopped;
            }
            if self.shared.has_all_events() {
                return Slept::UntilTheLastEvent;
            }
            let now_ns = self.clock.now_ns();
            if now_ns >= at_ns {
                return Slept::ToTheEnd;
            }
            thread::park_timeout(NAP.min(Duration::from_nanos(at_ns - now_ns)));
        }
    }
}

/// Why the collector sleeps no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// The time has come.
    ToTheEnd,
    /// The run is to stop.
    UntilStopped,
    /// All events have been taken; the last ones may still be running.
    UntilTheLastEvent,
}

#[cfg(test)]
mod tests;
