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

/// Stream of the first worker's random numbers in the run's seed; stream 1 is the arrivals'.
const FIRST_STREAM: u64 = 2;

/// Seconds that room is made for ahead; a longer run makes more when it comes to it.
const SECONDS_AHEAD_MAX: u64 = 3_600;

/// What the threads of a run share.
pub(super) struct Shared<'a> {
    pub(super) recorder: Recorder,
    pub(super) gate: Gate,
    /// From when on transactions count that begin, in ns since the start.
    pub(super) counts_from_ns: u64,
    /// When no transaction begins any more, in ns since the start.
    pub(super) end_ns: u64,
    /// How many transactions count at most.
    pub(super) events_max: u64,
    /// How many were begun, or wanted to, that count.
    pub(super) events: AtomicU64,
    /// The caller's wish to stop.
    pub(super) stop: &'a AtomicBool,
    /// The run's own: a worker has failed, or the observer has seen enough.
    pub(super) halted: AtomicBool,
    /// The thread that collects, to be woken when the last event has been taken.
    pub(super) collector: Thread,
}

/// Whether a transaction may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Yes, and it counts.
    Counted,
    /// Yes, to warm up.
    Uncounted,
    /// No: the time is up, or all events were taken, or the run is to stop.
    Over,
}

impl Shared<'_> {
    /// Whether the run is to stop before its time.
    pub(super) fn is_stopped(&self) -> bool {
        // Relaxed: each flag stands for itself, and whoever misses it sees it at the next look.
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

    /// Whether as many transactions have begun as may.
    pub(super) fn has_all_events(&self) -> bool {
        // Relaxed: the number stands for itself.
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
        // Relaxed: as in `has_all_events`. Who takes the last one wakes the collector.
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
        // The last transactions end after the time is up, so one second more.
        let ahead = seconds.min(SECONDS_AHEAD_MAX) as usize + 1;
        totals.per_second.reserve(ahead);
        totals.worst_ns.reserve(ahead);
        Worker { number, client, random: random(seed, FIRST_STREAM + number as u64), totals, shared }
    }

    /// Waits until all workers have been started; `None` if the run was called off.
    pub(super) fn wait_for_start(&self) -> Option<RunClock> {
        self.shared.gate.wait()
    }

    /// Draws the next transaction; `false`: there is none any more.
    pub(super) fn draw(&mut self) -> bool {
        self.client.draw(&mut self.random)
    }

    /// Notes that the arrival taken last is not begun any more.
    pub(super) fn leave(&mut self, arrival_ns: u64) {
        self.totals.left_ns = Some(arrival_ns);
    }

    /// Runs the transaction drawn last, which has leave to begin, and records it.
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
