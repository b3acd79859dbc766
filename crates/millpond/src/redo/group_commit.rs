//! Group commit: a leader writes and syncs for all, followers wait, and the leader wakes the next leader.
//!
//! A commit that only needs the log written (`flush_log_at_commit=2`) leads a round without a sync, unless a waiter
//! needs one.
//!
//! Commits need no thread and no timer: a thread that finds no leader at work becomes the leader. A designated leader
//! takes time to wake up. Until it does, any arriving thread may lead, and writes the designated leader's part, too. So
//! the device is not idle during a wake-up, and no thread sleeps behind a sleeping leader.
//!
//! REDO-7  While a thread waits, a leader is at work, or one of the waiters was designated and has yet to look.
//! REDO-10 Without a pipeline, `durable <= written <= next`. A round writes from `written` on. If the round syncs, it
//!         syncs everything from `durable` on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::files::{Lap, LogFiles};
use super::flush_by::SYNC_EVERY_NS;
use super::log::{Log, LogState};
use super::waiters::{FlushSignal, FlushWaiter, Stage};
use crate::base::aligned::{round_down, round_up, to_u64, to_usize};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::Lsn;
use crate::base::sync::MutexGuard;
use crate::base::waits::WaitClass;

/// The part of the log that a leader writes, and syncs.
struct Round {
    files: Arc<LogFiles>,
    laps: Vec<Lap>,
    from: Lsn,
    written: Lsn,
    upto: Lsn,
    /// Begin of the part to sync; `None`: no sync.
    sync_from: Option<Lsn>,
}

/// The next step of the thread that writes the log for others.
enum ForOthers {
    Flush,
    /// Makes room in the buffer.
    Write,
    Wait {
        until_ns: u64,
    },
}

/// The waiters to wake at the end of a leader's round.
struct RoundEnd {
    called: Option<Arc<Handoff<FlushSignal>>>,
    covered: Vec<Arc<Handoff<FlushSignal>>>,
    /// The leader leads another round itself.
    another_round: bool,
}

/// Ends the notices when dropped, if that is due.
struct EndsNotices<'a> {
    log: &'a Log,
    is_due: bool,
}

impl Drop for EndsNotices<'_> {
    fn drop(&mut self) {
        if self.is_due {
            self.log.end_notices();
        }
    }
}

/// A leader's term: dropped by a panic, it fails the log.
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

    /// Waits until the device has the log up to `lsn`: this part survives the end of the process, and a second later a
    /// loss of power. Callers hold no latch.
    pub(crate) fn write_wait(&self, lsn: Lsn) -> Result<(), Error> {
        self.reach(lsn, Stage::Written)?;
        // The pipeline's threads sync once a second by themselves.
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
                // No thread could ever end this wait.
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
                // The first of several rounds may have covered `lsn`.
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

    /// Writes the pending log, and syncs it if the caller's `stage` or any waiter's needs that. The caller is the
    /// leader until this returns.
    pub(super) fn lead<'a>(&'a self, state: MutexGuard<'a, LogState>, stage: Stage) -> Result<(), Error> {
        // Ends the term in all cases, a panic of the device included: no thread may wait for a leader that is gone.
        let mut leadership = Leadership { log: self, ended: false };
        // Declared after `leadership`, so that a panic releases the mutex before the term ends.
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
            // Log that is written already, but not synced, is not written again.
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
            // Woken without the mutex, since the woken thread takes it first.
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
            let began_ns = clock::now_ns();
            self.counters.pending_syncs.during(1, || round.files.sync(from, len))?;
            self.counters.synced(began_ns);
        }
        Ok(())
    }

    /// Notes that the log is written up to `upto`, and durable if `is_synced`. Takes out the waiters whose wait is
    /// over.
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

    /// Ends a leader's round. Leadership ends too, unless no thread was called to lead and a waiter needs buffer space.
    fn end_round(&self, state: &mut LogState, round: &Round) -> RoundEnd {
        let covered = Self::take_covered(state, round.upto, round.sync_from.is_some());
        let called = (!state.flush_waiters.is_empty()).then(|| state.flush_waiters.remove(0).handoff);
        self.grant_space(state);
        let buffer_short = state.space_waiters.front().is_some_and(|front| !self.buffer_fits(state, front.bytes));
        let another_round = called.is_none() && buffer_short && state.next > state.written;
        state.leader_at_work = another_round;
        if !state.leader_at_work {
            Self::tell_idle(state);
            // An appender that filled the buffer half meanwhile left the flush to the leader.
            if called.is_none() && self.is_half_full(state) {
                self.flusher_bell.ring();
            }
        }
        RoundEnd { called, covered, another_round }
    }

    /// The work of `mp-log` until `is_ending`, which its bell announces. It flushes the log by the deadline of commits
    /// that do not wait, for notices, and before the buffer is so full that a writer has to wait.
    pub(crate) fn flush_for_others(&self, is_ending: impl Fn() -> bool) -> Result<(), Error> {
        // However this thread ends before its time, it leaves no notice behind.
        let mut ends = EndsNotices { log: self, is_due: true };
        let ended = self.flush_until(is_ending);
        // Else the thread that closes the database gives those that are left.
        ends.is_due = ended.is_err();
        ended
    }

    fn flush_until(&self, is_ending: impl Fn() -> bool) -> Result<(), Error> {
        while !is_ending() {
            self.give_notices();
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

    /// Makes room in the buffer: writes everything appended so far, and syncs it if there is no pipeline. Callers hold
    /// no latch.
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
