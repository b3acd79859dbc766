//! The log pipeline, as in MySQL 8.0: one thread writes, one syncs, and one for each of the two wakes its waiters. By
//! default the committing threads write and sync themselves ([`flush`](super::flush)).
//!
//! An appender gets its group's place under the log's mutex, copies the group into the [buffer](super::log_buffer)
//! without it, and leaves a link in `recent_written`. The writer writes the log up to the first gap. A waiter spins for
//! a while, if the use of CPU allows it ([`log_spin`](super::log_spin)), then sleeps at an [event](super::log_events).
//!
//! PIPE-1  `flushed <= written <=` the tail of `recent_written`. Only the thread that holds its turn moves each of
//!         them, after the bytes are written or synced.
//! PIPE-2  Without its threads (while a database is opened or closed) nothing moves by itself: a waiter does the
//!         writing and syncing, in these turns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use super::files::Lap;
use super::link_buffer::LinkBuffer;
use super::log::{Log, LogState};
use super::log_buffer::LogBuffer;
use super::log_events::{LogEvents, NAP_MAX_NS, NAP_NS};
use super::log_spin::{CpuUse, SpinSettings};
use crate::base::aligned::{AlignedBuf, BLOCK, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::laws;
use crate::base::sync::{self, Rank, Turn};
use crate::base::waits::WaitClass;

/// How long a waiter sleeps for another thread's copy, where the pipeline has no threads.
const COPY_NAP_NS: u64 = 20_000;

/// Most time without a sync of the log if commits do not wait for one: InnoDB's `flush_log_at_timeout`.
pub(super) const SYNC_EVERY_NS: u64 = 1_000_000_000;

/// How the pipeline works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipelineSettings {
    /// Commits wait for a sync, so each write is followed by one.
    pub(crate) sync_each_write: bool,
    pub(crate) spin: SpinSettings,
}

/// Counters of the pipeline.
#[derive(Default)]
pub(crate) struct PipelineCounters {
    /// Waits, and sleeps in them.
    pub(crate) waits: AtomicU64,
    pub(crate) wait_loops: AtomicU64,
    /// Waits that began with spinning, the time spent so, and waits that ended by it.
    pub(crate) spins: AtomicU64,
    pub(crate) spin_us: AtomicU64,
    pub(crate) spins_in_time: AtomicU64,
}

/// The threads that write the log, and their shared state.
pub(crate) struct Pipeline {
    /// Each write is followed by a sync.
    sync_each_write: AtomicBool,
    buffer: LogBuffer,
    recent_written: LinkBuffer,
    /// The device has the log up to `written`; it is durable up to `flushed`.
    written: AtomicU64,
    flushed: AtomicU64,
    /// Highest LSN that a thread wants written, and highest that a thread wants durable.
    ///
    /// `SeqCst`, since stores and loads cross. A waiter stores its wish here, rings, and sleeps. A thread that has
    /// finished a step (left a link, written) stores that first, then reads `wanted` to decide whether to ring for the
    /// next step. With a weaker order, both may read before they see the other's store, and each relies on the other:
    /// then no thread rings, and the waiter sleeps until a timer. A fence between store and load (or ring) on both
    /// sides makes one of them see the other's store.
    wanted: [AtomicU64; 2],
    /// The holder of the turn writes, from its copy in here.
    writer: Turn<AlignedBuf>,
    /// The holder of the turn syncs. The value is the time of the last sync, in ns.
    flusher: Turn<u64>,
    write_events: LogEvents,
    flush_events: LogEvents,
    to_write: Bell,
    to_flush: Bell,
    to_notify: [Bell; 2],
    is_running: AtomicBool,
    has_failed: AtomicBool,
    pub(crate) cpu: CpuUse,
    pub(crate) counters: PipelineCounters,
}

/// A step of the log that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The device has it.
    Written,
    /// It is durable.
    Flushed,
}

impl Stage {
    /// The wait class of this stage.
    pub(super) fn waits_on(self) -> WaitClass {
        match self {
            Stage::Written => WaitClass::LogWrite,
            Stage::Flushed => WaitClass::LogFlush,
        }
    }
}

impl Pipeline {
    pub(super) fn new(settings: PipelineSettings, bytes: u64, end: Lsn) -> Pipeline {
        Pipeline {
            sync_each_write: AtomicBool::new(settings.sync_each_write),
            buffer: LogBuffer::new(bytes),
            // No appender is further ahead of the tail than the buffer is long: there is always room.
            recent_written: LinkBuffer::new(bytes + to_u64(BLOCK), end),
            written: AtomicU64::new(end.0),
            flushed: AtomicU64::new(end.0),
            wanted: [AtomicU64::new(end.0), AtomicU64::new(end.0)],
            writer: Turn::new(Rank::LogWriter, aligned(to_usize(bytes) + BLOCK)),
            flusher: Turn::new(Rank::LogFlusher, 0),
            write_events: LogEvents::new(),
            flush_events: LogEvents::new(),
            to_write: Bell::default(),
            to_flush: Bell::default(),
            to_notify: [Bell::default(), Bell::default()],
            is_running: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            cpu: CpuUse::new(settings.spin),
            counters: PipelineCounters::default(),
        }
    }

    /// Applies the settings from now on. A thread that waits for a sync has stored that in `wanted`, and gets it with
    /// either setting.
    pub(super) fn set(&self, settings: PipelineSettings) {
        // Relaxed: decides only whether the flusher syncs unasked, which may take effect one write early or late.
        self.sync_each_write.store(settings.sync_each_write, Ordering::Relaxed);
        self.cpu.set(settings.spin);
    }

    fn is_each_write_synced(&self) -> bool {
        self.sync_each_write.load(Ordering::Relaxed)
    }

    /// Memory of a pipeline with a buffer of `bytes` bytes, its writer's copy included.
    pub(super) fn memory_for(bytes: u64) -> u64 {
        LogBuffer::memory_for(bytes) + LinkBuffer::memory_for(bytes + to_u64(BLOCK)) + bytes + to_u64(BLOCK)
    }

    /// Copies a group into the buffer at its place.
    pub(super) fn copy(&self, group: &[u8], start: Lsn) {
        self.buffer.write(group, start);
        self.recent_written.add(start, start.plus(to_u64(group.len())));
        // SeqCst: see `wanted`.
        fence(Ordering::SeqCst);
        if self.is_wanted(Stage::Written, start) && !planted!("copy_rings_no_bell") {
            // The writer may have stopped at this gap, and found nothing more to do.
            self.to_write.ring();
        }
    }

    /// Notes that the caller waits until the log has come to `lsn`. The caller rings afterwards.
    fn want(&self, stage: Stage, lsn: Lsn) {
        self.wanted[0].fetch_max(lsn.0, Ordering::SeqCst);
        if stage == Stage::Flushed {
            self.wanted[1].fetch_max(lsn.0, Ordering::SeqCst);
        }
        // SeqCst: see `wanted`.
        fence(Ordering::SeqCst);
    }

    /// Whether a thread waits for log behind `lsn`.
    fn is_wanted(&self, stage: Stage, lsn: Lsn) -> bool {
        self.wanted[stage as usize].load(Ordering::SeqCst) > lsn.0
    }

    /// Restores the last, partial block when the log is resumed.
    pub(super) fn begin_with(&self, block: &[u8], at: Lsn) {
        self.buffer.write(block, at);
    }

    /// Rings all threads, so that they check whether they are to end.
    pub(crate) fn ring_all(&self) {
        self.to_notify.iter().chain([&self.to_write, &self.to_flush]).for_each(Bell::ring);
    }

    fn reached(&self, stage: Stage) -> Lsn {
        let is_written = stage == Stage::Written || planted!("written_taken_for_flushed");
        let of = if is_written { &self.written } else { &self.flushed };
        // Acquire: the reader sees the work that was done up to there.
        Lsn(of.load(Ordering::Acquire))
    }

    fn events(&self, stage: Stage) -> &LogEvents {
        if stage == Stage::Written { &self.write_events } else { &self.flush_events }
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// Notes that the pipeline's threads run.
    pub(crate) fn begin(&self) {
        self.is_running.store(true, Ordering::SeqCst);
    }

    /// Notes that the threads have ended, or could not start: from now on each waiter does their work itself.
    pub(crate) fn end(&self) {
        self.is_running.store(false, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Waits until no thread writes or syncs. The log has failed, so none begins to.
    pub(super) fn wait_until_idle(&self) {
        drop(self.writer.lock());
        drop(self.flusher.lock());
    }

    fn wake_all(&self) {
        self.write_events.set_all();
        self.flush_events.set_all();
    }

    /// Whether log before `lsn` is still to be written, or synced.
    pub(super) fn lacks(&self, stage: Stage, lsn: Lsn) -> bool {
        self.reached(stage) < lsn
    }

    /// Asks for the log before `lsn` to be written, and synced if `stage` is [`Stage::Flushed`].
    pub(super) fn ask(&self, stage: Stage, lsn: Lsn) {
        self.want(stage, lsn);
        self.to_write.ring();
        if stage == Stage::Flushed {
            self.to_flush.ring();
        }
    }

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
            (state.pending_start, std::sync::Arc::clone(&state.files), laps_before(&mut state, upto))
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
            std::sync::Arc::clone(&state.files)
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
        log.counters.syncs.fetch_add(1, Ordering::Relaxed);
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
