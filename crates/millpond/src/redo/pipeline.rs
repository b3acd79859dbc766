//! The log pipeline, as in MySQL 8.0: one thread writes, one syncs, and one for each of the two wakes its waiters. By
//! default the committing threads write and sync themselves ([`group_commit`](super::group_commit)). Here is what the
//! threads share; [`pipeline_threads`](super::pipeline_threads) has their work.
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

use super::link_buffer::LinkBuffer;
use super::log_buffer::LogBuffer;
use super::log_events::LogEvents;
use super::log_spin::{CpuUse, SpinSettings};
use super::waiters::Stage;
use crate::base::aligned::{AlignedBuf, BLOCK, aligned, to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::ids::Lsn;
use crate::base::sync::{Rank, Turn};

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
    pub(super) buffer: LogBuffer,
    pub(super) recent_written: LinkBuffer,
    /// The device has the log up to `written`; it is durable up to `flushed`.
    pub(super) written: AtomicU64,
    pub(super) flushed: AtomicU64,
    /// Highest LSN that a thread wants written, and highest that a thread wants durable.
    ///
    /// `SeqCst`, since stores and loads cross. A waiter stores its wish here, rings, and sleeps. A thread that has
    /// finished a step (left a link, written) stores that first, then reads `wanted` to decide whether to ring for the
    /// next step. With a weaker order, both may read before they see the other's store, and each relies on the other:
    /// then no thread rings, and the waiter sleeps until a timer. A fence between store and load (or ring) on both
    /// sides makes one of them see the other's store.
    wanted: [AtomicU64; 2],
    /// The holder of the turn writes, from its copy in here.
    pub(super) writer: Turn<AlignedBuf>,
    /// The holder of the turn syncs. The value is the time of the last sync, in ns.
    pub(super) flusher: Turn<u64>,
    write_events: LogEvents,
    flush_events: LogEvents,
    pub(super) to_write: Bell,
    pub(super) to_flush: Bell,
    pub(super) to_notify: [Bell; 2],
    is_running: AtomicBool,
    pub(super) has_failed: AtomicBool,
    pub(crate) cpu: CpuUse,
    pub(crate) counters: PipelineCounters,
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

    pub(super) fn is_each_write_synced(&self) -> bool {
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
    pub(super) fn want(&self, stage: Stage, lsn: Lsn) {
        self.wanted[0].fetch_max(lsn.0, Ordering::SeqCst);
        if stage == Stage::Flushed {
            self.wanted[1].fetch_max(lsn.0, Ordering::SeqCst);
        }
        // SeqCst: see `wanted`.
        fence(Ordering::SeqCst);
    }

    /// Whether a thread waits for log behind `lsn`.
    pub(super) fn is_wanted(&self, stage: Stage, lsn: Lsn) -> bool {
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

    pub(super) fn reached(&self, stage: Stage) -> Lsn {
        let is_written = stage == Stage::Written || planted!("written_taken_for_flushed");
        let of = if is_written { &self.written } else { &self.flushed };
        // Acquire: the reader sees the work that was done up to there.
        Lsn(of.load(Ordering::Acquire))
    }

    pub(super) fn events(&self, stage: Stage) -> &LogEvents {
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
}
