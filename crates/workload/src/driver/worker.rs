//! One thread of a run: its session, its random numbers, its totals.

use std::sync::atomic::{AtomicBool, Ordering};

use super::SECOND_NS;
use super::gate::Gate;
use crate::Error;
use crate::engine::{Outcome, Session};
use crate::generators::oltp::{Event, Load};
use crate::keys::{Random, random};
use crate::recorder::{Recorder, RunClock, Totals};

/// Stream of the first worker's random numbers in the run's seed; stream 1 is the arrivals'.
const FIRST_STREAM: u64 = 2;

/// What the threads of a run share.
pub(super) struct Shared<'a> {
    pub(super) load: &'a Load,
    pub(super) recorder: Recorder,
    pub(super) gate: Gate,
    /// When no transaction begins any more, in ns since the start.
    pub(super) end_ns: u64,
    /// The caller's wish to stop.
    pub(super) stop: &'a AtomicBool,
    /// The run's own: a worker has failed, or the observer has seen enough.
    pub(super) halted: AtomicBool,
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
    }

    /// Whether no transaction may begin at `now_ns`.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns || self.is_stopped()
    }
}

/// One worker thread.
pub(super) struct Worker<'a, S> {
    number: usize,
    session: S,
    random: Random,
    totals: Totals,
    pub(super) shared: &'a Shared<'a>,
}

impl<'a, S: Session> Worker<'a, S> {
    /// Makes worker `number`, from 0.
    pub(super) fn new(number: usize, session: S, shared: &'a Shared<'a>, seed: u64) -> Worker<'a, S> {
        let mut totals = Totals::default();
        // The last transactions end after the time is up, so one second more.
        totals.per_second.reserve((shared.end_ns / SECOND_NS) as usize + 1);
        Worker { number, session, random: random(seed, FIRST_STREAM + number as u64), totals, shared }
    }

    /// Waits until all workers have been started; `None` if the run was called off.
    pub(super) fn wait_for_start(&self) -> Option<RunClock> {
        self.shared.gate.wait()
    }

    /// Draws the next transaction.
    pub(super) fn draw(&mut self) -> Event {
        self.shared.load.draw(&mut self.random)
    }

    /// Runs a transaction that has been waiting since `since_ns`, again after each conflict, and records it.
    pub(super) fn execute(&mut self, clock: RunClock, event: &Event, since_ns: u64) -> Result<(), Error> {
        let recorder = &self.shared.recorder;
        recorder.begin(self.number, since_ns);
        let mut conflicts = 0;
        // Bounded: each conflict means that another transaction got through, and a stop ends it.
        while event.run(&mut self.session)? == Outcome::Conflict {
            conflicts += 1;
            if self.shared.is_stopped() {
                recorder.give_up(self.number);
                return Ok(());
            }
        }
        recorder.complete(self.number, &mut self.totals, since_ns, clock.now_ns(), conflicts);
        Ok(())
    }

    /// Ends the thread.
    pub(super) fn finish(self) -> Totals {
        self.totals
    }
}
