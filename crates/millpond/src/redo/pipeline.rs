//! The log written by threads of its own, as in MySQL 8.0: one writes, one syncs, and one each tells those who wait for
//! the one or the other. Default is that those who commit do it themselves ([`flush`](super::flush)).
//!
//! Who appends a group gets its place under the log's mutex, copies it into the [buffer](super::log_buffer) without,
//! and leaves a link in `recent_written`. The writer writes what has no gap; who waits spins for a while, if the use of
//! CPU allows it ([`log_spin`](super::log_spin)), then sleeps at an [event](super::log_events).
//!
//! PIPE-1  `flushed <= written <=` the tail of `recent_written`. Each of them is moved by who has the turn for it,
//!         after what it says is so.
//! PIPE-2  Without its threads (while a database is opened or closed) it stands still by itself: who waits does the
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

/// How long one who has to wait for another's copy sleeps, where there are no threads.
const COPY_NAP_NS: u64 = 20_000;

/// How long the log may stay without a sync where commits do not wait for one: InnoDB's `flush_log_at_timeout`.
pub(super) const SYNC_EVERY_NS: u64 = 1_000_000_000;

/// How the pipeline works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PipelineSettings {
    /// Commits wait for a sync: each write is followed by one.
    pub(crate) sync_each_write: bool,
    pub(crate) spin: SpinSettings,
}

/// What it counts.
#[derive(Default)]
pub(crate) struct PipelineCounters {
    /// Those who had to wait, and how often they slept for it.
    pub(crate) waits: AtomicU64,
    pub(crate) wait_loops: AtomicU64,
    /// Those who spun first, for how long together, and those whose wait was over then.
    pub(crate) spins: AtomicU64,
    pub(crate) spin_us: AtomicU64,
    pub(crate) spins_in_time: AtomicU64,
}

/// The writing of the log by threads.
pub(crate) struct Pipeline {
    /// Each write is followed by a sync.
    sync_each_write: AtomicBool,
    buffer: LogBuffer,
    recent_written: LinkBuffer,
    /// The log is in the hands of the device up to the one, and durable up to the other.
    written: AtomicU64,
    flushed: AtomicU64,
    /// Up to where somebody wants the log written, and durable.
    ///
    /// `SeqCst`, for stores and looks cross: who wants something stores it here, rings, and sleeps; who has done
    /// something (left a link, written) stores that first, then looks here whether to ring for the next step. With
    /// less, both may look before the other's store is seen, and each believes that the other will see his own: nobody
    /// rings, and one who waits sleeps until a timer ends it. With a fence between the store and the look, or the ring,
    /// of each, one of them sees the other's.
    wanted: [AtomicU64; 2],
    /// Who has the turn writes, from what he copies to here.
    writer: Turn<AlignedBuf>,
    /// Who has the turn syncs; when that was done last.
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

/// A step of the log's way that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is in the hands of the device.
    Written,
    /// It is durable.
    Flushed,
}

impl Stage {
    /// The class of a wait for it.
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
            // Nobody is further ahead of the tail than the buffer is long: there is always room.
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

    /// Works like that from now on. Who waits for a sync has said so (`wanted`): he gets it, whether each write has one
    /// or not.
    pub(super) fn set(&self, settings: PipelineSettings) {
        // Relaxed: it decides when the flusher syncs unasked, and that may be one write earlier or later.
        self.sync_each_write.store(settings.sync_each_write, Ordering::Relaxed);
        self.cpu.set(settings.spin);
    }

    fn is_each_write_synced(&self) -> bool {
        self.sync_each_write.load(Ordering::Relaxed)
    }

    /// Bytes of memory that one with a buffer of so many bytes takes, its writer's included.
    pub(super) fn memory_for(bytes: u64) -> u64 {
        LogBuffer::memory_for(bytes) + LinkBuffer::memory_for(bytes + to_u64(BLOCK)) + bytes + to_u64(BLOCK)
    }

    /// Puts a group into the buffer at its place.
    pub(super) fn copy(&self, group: &[u8], start: Lsn) {
        self.buffer.write(group, start);
        self.recent_written.add(start, start.plus(to_u64(group.len())));
        // SeqCst: see `wanted`.
        fence(Ordering::SeqCst);
        if self.is_wanted(Stage::Written, start) && !planted!("copy_rings_nobody") {
            // The writer came to this gap, perhaps, and found nothing more to do.
            self.to_write.ring();
        }
    }

    /// Says that somebody waits until the log has come to `lsn`. He rings afterwards.
    fn want(&self, stage: Stage, lsn: Lsn) {
        self.wanted[0].fetch_max(lsn.0, Ordering::SeqCst);
        if stage == Stage::Flushed {
            self.wanted[1].fetch_max(lsn.0, Ordering::SeqCst);
        }
        // SeqCst: see `wanted`.
        fence(Ordering::SeqCst);
    }

    /// Whether somebody waits for what is behind `lsn`.
    fn is_wanted(&self, stage: Stage, lsn: Lsn) -> bool {
        self.wanted[stage as usize].load(Ordering::SeqCst) > lsn.0
    }

    /// The last block that is not whole when the log is resumed.
    pub(super) fn begin_with(&self, block: &[u8], at: Lsn) {
        self.buffer.write(block, at);
    }

    /// Has its threads look whether they are to end.
    pub(crate) fn ring_all(&self) {
        self.to_notify.iter().chain([&self.to_write, &self.to_flush]).for_each(Bell::ring);
    }

    fn reached(&self, stage: Stage) -> Lsn {
        let is_written = stage == Stage::Written || planted!("written_taken_for_flushed");
        let of = if is_written { &self.written } else { &self.flushed };
        // Acquire: what was done for it is seen.
        Lsn(of.load(Ordering::Acquire))
    }

    fn events(&self, stage: Stage) -> &LogEvents {
        if stage == Stage::Written { &self.write_events } else { &self.flush_events }
    }

    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::SeqCst)
    }

    /// Its threads are there.
    pub(crate) fn begin(&self) {
        self.is_running.store(true, Ordering::SeqCst);
    }

    /// They go, or did not come: who waits does their work himself from now on.
    pub(crate) fn end(&self) {
        self.is_running.store(false, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn fail(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Waits until nobody writes or syncs. The log has failed: nobody begins to.
    pub(super) fn wait_until_idle(&self) {
        drop(self.writer.lock());
        drop(self.flusher.lock());
    }

    fn wake_all(&self) {
        self.write_events.set_all();
        self.flush_events.set_all();
    }

    /// Whether something before `lsn` is still to be written, or synced.
    pub(super) fn lacks(&self, stage: Stage, lsn: Lsn) -> bool {
        self.reached(stage) < lsn
    }

    /// Asks for what is in the buffer before `lsn` to be written, and synced if that is the `stage`.
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

    /// PIPE-2
    fn step_by_hand(&self, log: &Log, stage: Stage) -> Result<(), Error> {
        let written = self.write(log)?;
        let flushed = stage == Stage::Flushed && self.flush(log)?;
        if !written && !flushed {
            // Somebody is copying his group, or has just done the work.
            sync::nap(COPY_NAP_NS);
        }
        Ok(())
    }

    /// Looks for a while whether the log has come to `lsn`, if that is worth it; whether it has.
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

    /// Writes what has no gap. False: there was nothing.
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

    /// Syncs what is written. False: there was nothing.
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

    /// Whether somebody waits for a sync, or it is time for one.
    fn is_flush_due(&self) -> bool {
        self.is_each_write_synced()
            || self.is_wanted(Stage::Flushed, self.reached(Stage::Flushed))
            || clock::now_ns() >= self.flusher.lock().saturating_add(SYNC_EVERY_NS)
    }

    /// The writer's work, until there is no need for it any more.
    pub(crate) fn write_all(&self, log: &Log, is_ending: &dyn Fn() -> bool) -> Result<(), Error> {
        self.work(log, &self.to_write, is_ending, || self.write(log))
    }

    /// The flusher's.
    pub(crate) fn flush_all(&self, log: &Log, is_ending: &dyn Fn() -> bool) -> Result<(), Error> {
        self.work(log, &self.to_flush, is_ending, || if self.is_flush_due() { self.flush(log) } else { Ok(false) })
    }

    /// That of the thread that tells those who wait for `stage`.
    pub(crate) fn notify_all(&self, log: &Log, stage: Stage, is_ending: &dyn Fn() -> bool) -> Result<(), Error> {
        // Nobody yet: who waited before the thread was there is told, too.
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

    /// Does `step` over and over; sleeps when there was nothing to do, the longer the longer there was not.
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

/// However a thread ends, nobody waits for it any more.
struct Ends<'p> {
    pipeline: &'p Pipeline,
    log: &'p Log,
    is_orderly: bool,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if !self.is_orderly && !planted!("panic_told_too_late") {
            // First: those who wait would do the work of a thread of which nobody knows how far it came.
            self.log.fail_for(&Error::Bug("a thread that writes the log panicked: reopen the database".into()));
        }
        self.pipeline.end();
    }
}

/// Takes out the laps that begin with groups before `upto`.
fn laps_before(state: &mut LogState, upto: Lsn) -> Vec<Lap> {
    let later = state.laps.iter().position(|lap| lap.first_group > upto).unwrap_or(state.laps.len());
    state.laps.drain(..later).collect()
}
