//! One thread of a run: its client, its random numbers, its totals.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

use super::SECOND_NS;
use super::gate::Gate;
use crate::Error;
use crate::generators::Client;
use crate::generators::oltp::{Ran, Tally};
use crate::keys::{Random, random};
use crate::recorder::{Begun, Recorder, RunClock, Totals};

/// Random stream of the first worker, of the run's seed; stream 1 is for arrivals.
const FIRST_STREAM: u64 = 2;

/// The most seconds for which a worker allocates totals in advance; a longer run grows them later.
const SECONDS_AHEAD_MAX: u64 = 3_600;

/// State that the threads of a run share.
pub(super) struct Shared<'a> {
    pub(super) recorder: Recorder,
    pub(super) gate: Gate,
    /// Transactions that begin from this time on count; in ns since the start.
    pub(super) counts_from_ns: u64,
    /// From this time on no transaction begins; in ns since the start.
    pub(super) end_ns: u64,
    /// The most transactions that count; 0 for no limit.
    pub(super) events_max: u64,
    /// Transactions that have asked to begin and count; may exceed `events_max`. Written by workers.
    pub(super) events: AtomicU64,
    /// The caller's request to stop the run.
    pub(super) stop: &'a AtomicBool,
    /// The run's own stop: a worker has failed, or the observer broke off.
    pub(super) halted: AtomicBool,
    /// The collector's thread; the worker that begins the last event wakes it.
    pub(super) collector: Thread,
}

/// Whether a transaction may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Yes, and it counts.
    Counted,
    /// Yes, to warm up.
    Uncounted,
    /// No: the time is up, all events have begun, or the run is to stop.
    Over,
}

impl Shared<'_> {
    /// Whether the run is to stop before its time.
    pub(super) fn is_stopped(&self) -> bool {
        // Relaxed: each flag is independent, and a thread that misses a change sees it at its next check.
        self.stop.load(Ordering::Relaxed) || self.halted.load(Ordering::Relaxed)
    }

    /// Stops the run.
    pub(super) fn halt(&self) {
        self.halted.store(true, Ordering::Relaxed); // Relaxed: as in `is_stopped`
        self.collector.unpark();
    }

    /// Whether no transaction may begin at `now_ns`.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns || self.is_stopped() || self.has_all_events()
    }

    /// Whether all events have begun.
    pub(super) fn has_all_events(&self) -> bool {
        // Relaxed: no other data depends on the number.
        self.events_max > 0 && self.events.load(Ordering::Relaxed) >= self.events_max
    }

    /// Asks for leave to begin a transaction at `now_ns`.
    pub(super) fn take_leave(&self, now_ns: u64) -> Leave {
        if self.is_over(now_ns) {
            return Leave::Over;
        }
        if now_ns < self.counts_from_ns {
            return Leave::Uncounted;
        }
        if self.events_max == 0 {
            return Leave::Counted;
        }
        // Relaxed: as in `has_all_events`. The worker that takes the last event wakes the collector.
        let taken = self.events.fetch_add(1, Ordering::Relaxed) + 1;
        if taken >= self.events_max {
            self.collector.unpark();
        }
        if taken <= self.events_max { Leave::Counted } else { Leave::Over }
    }
}

/// One worker thread.
pub(super) struct Worker<'a, C> {
    number: usize,
    client: C,
    random: Random,
    totals: Totals,
    pub(super) shared: &'a Shared<'a>,
}

impl<'a, C: Client> Worker<'a, C> {
    /// Makes worker `number`, from 0.
    pub(super) fn new(number: usize, client: C, shared: &'a Shared<'a>, seed: u64) -> Worker<'a, C> {
        let mut totals = Totals::default();
        let seconds = (shared.end_ns - shared.counts_from_ns) / SECOND_NS;
        // One more second: the last transactions end after the time is up.
        let ahead = seconds.min(SECONDS_AHEAD_MAX) as usize + 1;
        totals.per_second.reserve(ahead);
        totals.worst_ns.reserve(ahead);
        Worker { number, client, random: random(seed, FIRST_STREAM + number as u64), totals, shared }
    }

    /// Waits until all workers have been started; `None` if the run was called off.
    pub(super) fn wait_for_start(&self) -> Option<RunClock> {
        self.shared.gate.wait()
    }

    /// Draws the next transaction; returns `false` if none is left.
    pub(super) fn draw(&mut self) -> bool {
        self.client.draw(&mut self.random)
    }

    /// Notes that the transaction of the last arrival will not begin.
    pub(super) fn leave(&mut self, arrival_ns: u64) {
        self.totals.left_ns = Some(arrival_ns);
    }

    /// Runs and records the transaction drawn last, which may begin.
    pub(super) fn execute(&mut self, clock: RunClock, leave: Leave, begun: Begun) -> Result<(), Error> {
        let (shared, recorder) = (self.shared, &self.shared.recorder);
        recorder.begin(self.number, begun.since_ns);
        let mut tally = Tally::default();
        match (self.client.run(&mut tally, || shared.is_stopped())?, leave) {
            (Ran::GivenUp, _) => recorder.give_up(self.number),
            (Ran::ToItsEnd, Leave::Counted) => {
                recorder.complete(self.number, &mut self.totals, begun, clock.now_ns(), &tally);
            }
            (Ran::ToItsEnd, _) => recorder.complete_uncounted(self.number, clock.now_ns()),
        }
        Ok(())
    }

    /// Ends the thread.
    pub(super) fn finish(mut self) -> Result<Totals, Error> {
        self.shared.recorder.add_queries(self.number, self.client.finish()?);
        Ok(self.totals)
    }
}
