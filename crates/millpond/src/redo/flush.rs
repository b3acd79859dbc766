//! How the log becomes durable: a leader writes and syncs for all, followers wait, and the leader calls the next.
//!
//! Who wants it written only (`flush_log_at_commit=2`) leads a round without a sync, unless somebody waits for one.
//!
//! Commits need no thread and no timer: who finds no leader at work becomes it. Who is called may be late, for he has
//! to wake up first: until he is there, whoever comes leads, and writes what the called one waits for, too. So the
//! device is not idle for a wake-up's time, and nobody has to sleep behind one who does.
//!
//! REDO-7  While somebody waits, a leader is at work, or one of those who waited was called and has yet to look.
//! REDO-10 Where no threads write the log, `durable <= written <= next`. A round writes from `written` on, and syncs,
//!         if it does, all from `durable` on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::files::{Lap, LogFiles};
use super::log::{Log, LogState};
use super::pipeline::{SYNC_EVERY_NS, Stage};
use crate::base::aligned::{round_down, round_up, to_u64, to_usize};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::Lsn;
use crate::base::sync::MutexGuard;
use crate::base::waits::WaitClass;

/// What ends a wait for the log.
pub(super) enum FlushSignal {
    Reached,
    /// The log has failed, or nobody leads.
    LookAgain,
}

/// Who waits until the log has come to `lsn`.
pub(super) struct FlushWaiter {
    pub(super) lsn: Lsn,
    pub(super) stage: Stage,
    pub(super) handoff: Arc<Handoff<FlushSignal>>,
}

/// What a leader has to write, and to sync.
struct Round {
    files: Arc<LogFiles>,
    laps: Vec<Lap>,
    from: Lsn,
    written: Lsn,
    upto: Lsn,
    /// From where on it is synced, too.
    sync_from: Option<Lsn>,
}

/// What the thread that writes the log for others has to do.
enum ForOthers {
    Flush,
    /// To have room in the buffer.
    Write,
    Wait {
        until_ns: u64,
    },
}

/// Whom the end of a leader's round wakes.
struct RoundEnd {
    called: Option<Arc<Handoff<FlushSignal>>>,
    covered: Vec<Arc<Handoff<FlushSignal>>>,
    /// The leader goes on himself.
    another_round: bool,
}

/// A leader's term of office.
struct Leadership<'a> {
    log: &'a Log,
    ended: bool,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.log.state.lock();
        if state.failed.is_none() {
            self.log.fail(&mut state, &Error::Bug("the thread that wrote the log panicked".into()));
        }
        state.leader_at_work = false;
        Log::tell_idle(&mut state);
    }
}

impl Log {
    /// Waits until the log is durable up to `lsn`, as leader or follower. Callers hold no latch.
    pub(crate) fn flush_wait(&self, lsn: Lsn) -> Result<(), Error> {
        self.reach(lsn, Stage::Flushed)
    }

    /// Waits until the log is in the hands of the device up to `lsn`: what is, survives the process, and a loss of
    /// power a second later. Callers hold no latch.
    pub(crate) fn write_wait(&self, lsn: Lsn) -> Result<(), Error> {
        self.reach(lsn, Stage::Written)?;
        // Threads that write the log see to it themselves.
        if self.pipeline.is_none() {
            self.flush_within(SYNC_EVERY_NS);
        }
        Ok(())
    }

    fn reach(&self, lsn: Lsn, stage: Stage) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if state.reached(stage) >= lsn {
                return Ok(());
            }
            Self::check_files(&state)?;
            if lsn > state.next {
                // Nobody could ever end this wait.
                let message =
                    format!("LSN {lsn} is ahead of the log, which ends at {}: a page is not of this log", state.next);
                return Err(Error::Corruption(message.into()));
            }
            if let Some(pipeline) = &self.pipeline {
                drop(state);
                return pipeline.wait(self, lsn, stage);
            }
            if !state.leader_at_work {
                state.leader_at_work = true;
                let led = self.lead(state, stage);
                state = self.state.lock();
                // Covered in the first of several rounds, perhaps.
                if state.reached(stage) < lsn {
                    led?;
                }
                continue;
            }
            let handoff = Handoff::new();
            state.flush_waiters.push(FlushWaiter { lsn, stage, handoff: Arc::clone(&handoff) });
            drop(state);
            match handoff.take_wait(stage.waits_on(), &self.waits) {
                FlushSignal::Reached => return Ok(()),
                FlushSignal::LookAgain => state = self.state.lock(),
            }
        }
    }

    /// Writes what is pending, and syncs it if that is the caller's `stage`, or anybody else's who waits. The caller is
    /// the leader, and is not when this returns.
    pub(super) fn lead<'a>(&'a self, state: MutexGuard<'a, LogState>, stage: Stage) -> Result<(), Error> {
        // Ends leadership however this ends, a panic of the device included: nobody may wait for a leader who is gone.
        let mut leadership = Leadership { log: self, ended: false };
        // Declared after it, so that a panic releases the mutex before the term of office ends.
        let mut state = state;
        loop {
            if let Err(error) = Self::check_files(&state) {
                drop(state);
                return Err(error);
            }
            let (from, upto) = (state.pending_start, state.next);
            let Some(mut buf) = state.spare.take() else {
                drop(state);
                return Err(Error::Bug("REDO-3: two leaders write the log".into()));
            };
            // The next write begins with the block that this one ends in.
            let tail = Lsn(round_down(upto.0));
            let tail_at = to_usize(tail.since(from));
            let tail_len = to_usize(upto.since(tail));
            buf[..tail_len].copy_from_slice(&state.pending[tail_at..tail_at + tail_len]);
            std::mem::swap(&mut state.pending, &mut buf);
            state.pending_start = tail;
            let is_synced =
                stage == Stage::Flushed || state.flush_waiters.iter().any(|waiter| waiter.stage == Stage::Flushed);
            if is_synced {
                state.flush_by.begin(upto);
            }
            let round = Round {
                files: Arc::clone(&state.files),
                laps: std::mem::take(&mut state.laps),
                from,
                written: state.written,
                upto,
                sync_from: is_synced.then(|| Lsn(round_down(state.durable.0))),
            };
            self.grant_space(&mut state);
            drop(state);
            let used = to_usize(upto.since(from));
            // What is written already, and not synced, is not written again.
            let len = if round.upto > round.written { to_usize(round_up(to_u64(used))) } else { 0 };
            buf[used..len.max(used)].fill(0);
            let class = if is_synced { WaitClass::LogFlush } else { WaitClass::LogWrite };
            let written = self.waits.timed(class, || self.write_and_sync(&round, &buf[..len]));
            state = self.state.lock();
            state.spare = Some(buf);
            if let Err(error) = written {
                self.fail(&mut state, &error);
                drop(state);
                return Err(error);
            }
            let ended = self.end_round(&mut state, &round);
            leadership.ended = !ended.another_round;
            drop(state);
            // Woken without the mutex, which is the first thing that he takes.
            if let Some(waiter) = ended.called
                && !planted!("next_leader_forgotten")
            {
                waiter.give(FlushSignal::LookAgain);
            }
            for waiter in ended.covered {
                waiter.give(FlushSignal::Reached);
            }
            if !ended.another_round {
                return Ok(());
            }
            state = self.state.lock();
        }
    }

    fn write_and_sync(&self, round: &Round, buf: &[u8]) -> Result<(), Error> {
        for lap in &round.laps {
            round.files.write_lap(lap)?;
        }
        if !buf.is_empty() {
            self.counters.pending_writes.during(1, || round.files.write(buf, round.from))?;
        }
        self.counters.bytes_written.fetch_add(to_u64(buf.len()), Ordering::Relaxed);
        if planted!("ack_before_sync") {
            let covered = Self::take_covered(&mut self.state.lock(), round.upto, true);
            covered.iter().for_each(|waiter| waiter.give(FlushSignal::Reached));
        }
        if let Some(from) = round.sync_from {
            let len = to_usize(round_up(round.upto.0) - from.0);
            self.counters.pending_syncs.during(1, || round.files.sync(from, len))?;
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes those out whose wait is over: the log is written up to `upto`, and durable, if it is synced.
    fn take_covered(state: &mut LogState, upto: Lsn, is_synced: bool) -> Vec<Arc<Handoff<FlushSignal>>> {
        state.written = state.written.max(upto);
        if is_synced || planted!("written_taken_for_flushed") {
            state.durable = state.durable.max(upto);
        }
        let (written, durable) = (state.written, state.durable);
        let is_over =
            |waiter: &FlushWaiter| waiter.lsn <= if waiter.stage == Stage::Written { written } else { durable };
        let (covered, waiting) = std::mem::take(&mut state.flush_waiters).into_iter().partition(is_over);
        state.flush_waiters = waiting;
        let covered: Vec<FlushWaiter> = covered;
        covered.into_iter().map(|waiter| waiter.handoff).collect()
    }

    /// Ends a leader's round, and leadership too, unless nobody else will lead and somebody waits for the buffer.
    fn end_round(&self, state: &mut LogState, round: &Round) -> RoundEnd {
        let covered = Self::take_covered(state, round.upto, round.sync_from.is_some());
        let called = (!state.flush_waiters.is_empty()).then(|| state.flush_waiters.remove(0).handoff);
        self.grant_space(state);
        let buffer_short = state.space_waiters.front().is_some_and(|front| !self.buffer_fits(state, front.bytes));
        let another_round = called.is_none() && buffer_short && state.next > state.written;
        state.leader_at_work = another_round;
        if !state.leader_at_work {
            Self::tell_idle(state);
            // Whoever found it half full meanwhile has left it to the leader.
            if called.is_none() && self.is_half_full(state) {
                self.flusher_bell.ring();
            }
        }
        RoundEnd { called, covered, another_round }
    }

    /// The work of a thread, until `is_ending`, which it learns of by its bell: it writes the log for who does not wait
    /// for that, when he wants it durable, and before anybody who wants room in the buffer has to.
    pub(crate) fn flush_for_others(&self, is_ending: impl Fn() -> bool) -> Result<(), Error> {
        while !is_ending() {
            match self.next_for_others(clock::now_ns()) {
                ForOthers::Flush => self.flush_all().map(|_| ())?,
                ForOthers::Write => self.write_all()?,
                ForOthers::Wait { until_ns } => self.flusher_bell.wait_until(until_ns),
            }
        }
        Ok(())
    }

    fn next_for_others(&self, now_ns: u64) -> ForOthers {
        let state = self.state.lock();
        let by_ns = state.flush_by.at_ns();
        let is_to_be_written = || match &self.pipeline {
            Some(pipeline) => pipeline.lacks(Stage::Written, state.next),
            None => state.next > state.durable,
        };
        let is_short = || state.space_waiters.front().is_some_and(|front| self.is_short(&state, front.bytes));
        if by_ns.is_some_and(|by_ns| by_ns <= now_ns) || (!state.leader_at_work && self.is_half_full(&state)) {
            ForOthers::Flush
        } else if is_short() && is_to_be_written() {
            ForOthers::Write
        } else {
            ForOthers::Wait { until_ns: by_ns.unwrap_or(u64::MAX) }
        }
    }

    /// Has room in the buffer: everything appended so far is written, and synced where that is who writes it does both.
    /// Callers hold no latch.
    fn write_all(&self) -> Result<(), Error> {
        let next = self.positions().next;
        if self.pipeline.is_some() { self.write_wait(next) } else { self.flush_wait(next) }
    }

    /// Flushes everything appended so far.
    pub(crate) fn flush_all(&self) -> Result<Lsn, Error> {
        let next = self.positions().next;
        self.flush_wait(next)?;
        Ok(next)
    }
}
