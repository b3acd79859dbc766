//! The work of the pipeline's threads, and of a thread that waits for them ([`pipeline`](super::pipeline)).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::files::Lap;
use super::flush_by::SYNC_EVERY_NS;
use super::log::{Log, LogState};
use super::log_events::{NAP_MAX_NS, NAP_NS};
use super::pipeline::Pipeline;
use super::waiters::Stage;
use crate::base::aligned::{round_down, round_up, to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::sync;
use crate::base::{clock, laws};

/// How long a waiter sleeps for another thread's copy, where the pipeline has no threads.
const COPY_NAP_NS: u64 = 20_000;

impl Pipeline {
    /// Waits until the log has come to `lsn`. Callers hold no latch.
    pub(super) fn wait(&self, log: &Log, lsn: Lsn, stage: Stage) -> Result<(), Error> {
        laws::check_park();
        if self.reached(stage) >= lsn {
            return Ok(());
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        self.want(stage, lsn);
        log.waits.timed(stage.waits_on(), || {
            loop {
                log.check_files_now()?;
                if !self.is_running() {
                    self.step_by_hand(log, stage)?;
                } else if !self.spin(lsn, stage) {
                    self.to_write.ring();
                    self.to_flush.ring();
                    let is_over =
                        || self.reached(stage) >= lsn || self.has_failed.load(Ordering::SeqCst) || !self.is_running();
                    let naps = self.events(stage).wait(lsn, is_over);
                    self.counters.wait_loops.fetch_add(naps, Ordering::Relaxed);
                }
                if self.reached(stage) >= lsn {
                    return Ok(());
                }
            }
        })
    }

    /// PIPE-2: does the pipeline's work in the waiter's own thread.
    fn step_by_hand(&self, log: &Log, stage: Stage) -> Result<(), Error> {
        let written = self.write(log)?;
        let flushed = stage == Stage::Flushed && self.flush(log)?;
        if !written && !flushed {
            // Another thread is copying its group, or has just done this work.
            sync::nap(COPY_NAP_NS);
        }
        Ok(())
    }

    /// Spins until the log has come to `lsn`, if that is worth it. Returns whether it has.
    fn spin(&self, lsn: Lsn, stage: Stage) -> bool {
        let rounds = self.cpu.rounds();
        if rounds == 0 {
            return false;
        }
        self.to_write.ring();
        let began_ns = clock::now_ns();
        let is_in_time = (0..rounds).any(|_| {
            std::hint::spin_loop();
            self.reached(stage) >= lsn
        });
        self.counters.spins.fetch_add(1, Ordering::Relaxed);
        self.counters.spins_in_time.fetch_add(u64::from(is_in_time), Ordering::Relaxed);
        self.counters.spin_us.fetch_add((clock::now_ns() - began_ns) / 1000, Ordering::Relaxed);
        is_in_time
    }

    /// Writes the log up to the first gap. False if there was nothing to write.
    fn write(&self, log: &Log) -> Result<bool, Error> {
        let mut buf = self.writer.lock();
        let upto = self.recent_written.follow();
        if upto <= self.reached(Stage::Written) {
            return Ok(false);
        }
        let (from, files, laps) = {
            let mut state = log.state.lock();
            Log::check_files(&state)?;
            (state.pending_start, Arc::clone(&state.files), laps_before(&mut state, upto))
        };
        let used = to_usize(upto.since(from));
        let len = to_usize(round_up(to_u64(used)));
        self.buffer.read(&mut buf[..used], from);
        buf[used..len].fill(0);
        let written = log.counters.pending_writes.during(1, || {
            laps.iter().try_for_each(|lap| files.write_lap(lap))?;
            files.write(&buf[..len], from)
        });
        let mut state = log.state.lock();
        if let Err(error) = written {
            log.fail(&mut state, &error);
            return Err(error);
        }
        log.counters.bytes_written.fetch_add(to_u64(len), Ordering::Relaxed);
        // The next write begins with the block that this one ends in.
        state.pending_start = Lsn(round_down(upto.0));
        log.grant_space(&mut state);
        drop(state);
        self.written.store(upto.0, Ordering::Release);
        // SeqCst: see `wanted`.
        fence(Ordering::SeqCst);
        self.to_notify[0].ring();
        if self.is_each_write_synced() || self.is_wanted(Stage::Flushed, self.reached(Stage::Flushed)) {
            self.to_flush.ring();
        }
        Ok(true)
    }

    /// Syncs the written log. False if there was nothing to sync.
    fn flush(&self, log: &Log) -> Result<bool, Error> {
        let mut synced_ns = self.flusher.lock();
        let (from, upto) = (self.reached(Stage::Flushed), self.reached(Stage::Written));
        if upto <= from {
            return Ok(false);
        }
        let files = {
            let mut state = log.state.lock();
            Log::check_files(&state)?;
            state.flush_by.begin(upto);
            Arc::clone(&state.files)
        };
        let began_ns = clock::now_ns();
        let begin = Lsn(round_down(from.0));
        let len = to_usize(round_up(upto.0) - begin.0);
        let synced = log.counters.pending_syncs.during(1, || files.sync(begin, len));
        let mut state = log.state.lock();
        if let Err(error) = synced {
            log.fail(&mut state, &error);
            return Err(error);
        }
        state.durable = state.durable.max(upto);
        // REDO-13
        log.grant_space(&mut state);
        drop(state);
        *synced_ns = clock::now_ns();
        self.cpu.synced_in(synced_ns.saturating_sub(began_ns));
        log.counters.synced(began_ns);
        self.flushed.store(upto.0, Ordering::Release);
        self.to_notify[1].ring();
        Ok(true)
    }

    /// Whether a thread waits for a sync, or it is time for one.
    fn is_flush_due(&self) -> bool {
        self.is_each_write_synced()
            || self.is_wanted(Stage::Flushed, self.reached(Stage::Flushed))
            || clock::now_ns() >= self.flusher.lock().saturating_add(SYNC_EVERY_NS)
    }

    /// The writer thread's loop, until `is_ending`.
    pub(crate) fn write_all(&self, log: &Log, is_ending: &dyn Fn() -> bool) -> Result<(), Error> {
        self.work(log, &self.to_write, is_ending, || self.write(log))
    }

    /// The flusher thread's loop, until `is_ending`.
    pub(crate) fn flush_all(&self, log: &Log, is_ending: &dyn Fn() -> bool) -> Result<(), Error> {
        self.work(log, &self.to_flush, is_ending, || if self.is_flush_due() { self.flush(log) } else { Ok(false) })
    }

    /// The loop of the thread that wakes the waiters for `stage`, until `is_ending`.
    pub(crate) fn notify_all(&self, log: &Log, stage: Stage, is_ending: &dyn Fn() -> bool) -> Result<(), Error> {
        // From 0: threads that waited before this one started must be woken, too.
        let mut told = if planted!("notified_from_now_on") { self.reached(stage) } else { Lsn(0) };
        self.work(log, &self.to_notify[stage as usize], is_ending, || {
            if stage == Stage::Flushed {
                self.cpu.look();
            }
            let reached = self.reached(stage);
            if reached > told {
                self.events(stage).set(told, reached);
            }
            Ok(std::mem::replace(&mut told, reached) < reached)
        })
    }

    /// Repeats `step`. After a step without work it naps, each time twice as long, up to a limit.
    fn work(
        &self,
        log: &Log,
        bell: &Bell,
        is_ending: &dyn Fn() -> bool,
        mut step: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut ends = Ends { pipeline: self, log, is_orderly: false };
        let mut nap_ns = NAP_NS;
        let mut worked = Ok(true);
        while !is_ending() {
            worked = step();
            match worked {
                Ok(true) => nap_ns = NAP_NS,
                Ok(false) => {
                    bell.wait_until(clock::now_ns() + nap_ns);
                    nap_ns = (nap_ns * 2).min(NAP_MAX_NS);
                }
                Err(_) => break,
            }
        }
        ends.is_orderly = true;
        worked.map(|_| ())
    }
}

/// A guard of a pipeline thread: in whatever way the thread ends, no waiter relies on it any more.
struct Ends<'p> {
    pipeline: &'p Pipeline,
    log: &'p Log,
    is_orderly: bool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if !self.is_orderly && !planted!("panic_told_too_late") {
            // First: else the waiters would redo the work of a thread whose progress is unknown.
            self.log.fail_for(&Error::Bug("a thread that writes the log panicked: reopen the database".into()));
        }
        self.pipeline.end();
    }
}

/// Takes out the laps whose groups begin at or before `upto`.
fn laps_before(state: &mut LogState, upto: Lsn) -> Vec<Lap> {
    let later = state.laps.iter().position(|lap| lap.first_group > upto).unwrap_or(state.laps.len());
    state.laps.drain(..later).collect()
}
