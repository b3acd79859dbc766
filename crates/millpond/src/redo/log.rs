//! The running log: its state and its positions. Appends ([`append`](super::append)), credits
//! ([`credits`](super::credits)) and group commit ([`group_commit`](super::group_commit)) work on it.
//!
//! One mutex stands where a lock-free ring may come. It covers the copy of a group into the buffer, and the callback
//! that marks the group's pages dirty. So a thread that reads `next` under the mutex finds all pages of earlier groups
//! marked.
//!
//! Ends of waits: `log_write` and `log_flush` end by the flush leader, which also wakes the oldest waiter that it did
//! not cover. `log_space` ends by the leader (buffer), by the checkpoint (files), or by a thread that returns a credit.
//!
//! Writers may fill the log up to its wall less the **reserve**. The reserve belongs to cleaning: each dirty page and
//! each write under way may need one map record, and only these records let the checkpoint move. Without it the log
//! could be so full that nothing can empty it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dirty_counts::DirtyCounts;
use super::files::{Geometry, Lap, LogFiles, Switch};
use super::flush_by::FlushBy;
use super::group::{BUFFER_MAX, GROUP_FRAME_LEN};
use super::pipeline::{Pipeline, PipelineSettings};
use super::recent_closed::{LogRecentClosed, RecentClosed};
use super::waiters::{FlushWaiter, Notices, SpaceWaiter, Stage};
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, round_down, to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::Lsn;
use crate::base::pending::Pending;
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::Waits;

pub(super) struct LogState {
    pub(super) files: Arc<LogFiles>,
    /// Set while no superblock names the second ring yet: nothing may be written from this LSN on.
    pub(super) closed_from: Option<Lsn>,
    /// Laps that begin in the pending bytes.
    pub(super) laps: Vec<Lap>,
    /// Nonces in force, each from an LSN on. The first begins at or before `checkpoint`.
    pub(super) epochs: Vec<(Lsn, u64)>,
    /// The number of the `counts` bucket in which the last group began.
    pub(super) noted: u64,
    /// Log bytes from `pending_start`, which is block-aligned, to `next`.
    pub(super) pending: AlignedBuf,
    pub(super) pending_start: Lsn,
    /// The other buffer; `None` while a leader writes from it.
    pub(super) spare: Option<AlignedBuf>,
    pub(super) next: Lsn,
    /// End of the log that the device has. With a pipeline, [`Pipeline`] knows it instead.
    pub(super) written: Lsn,
    pub(super) durable: Lsn,
    pub(super) checkpoint: Lsn,
    /// Bytes granted and not yet appended.
    pub(super) credits: u64,
    pub(super) leader_at_work: bool,
    /// Threads that wait until no leader is at work.
    pub(super) idle_waiters: Vec<Arc<Handoff<()>>>,
    pub(super) flush_waiters: Vec<FlushWaiter>,
    pub(super) space_waiters: VecDeque<SpaceWaiter>,
    pub(super) flush_by: FlushBy,
    /// Why no group gets a place any more (REDO-11). Set once; read before each append and each grant of space.
    pub(super) stopped: Option<Arc<str>>,
    /// Why the log's files are not written any more. Implies `stopped`.
    pub(super) failed: Option<Arc<str>>,
}

/// Log bytes that cleaning may need for each page that is dirty or being written: at worst a map group of its own.
pub(crate) const MAP_RECORD_MAX: u64 = 48;

/// Bytes of an epoch group.
pub(super) const EPOCH_LEN: u64 = 8 + GROUP_FRAME_LEN as u64;

/// Limits that are fixed while a log is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// Bytes of capacity that writers leave to cleaning.
    pub(crate) reserve: u64,
    /// Part of `reserve` that only epoch groups may use, in bytes.
    pub(crate) epochs: u64,
    /// The smallest capacity that the log has, or is about to get, in bytes: it bounds groups and buffers.
    pub(crate) smallest: u64,
    /// Bytes that writers may append ahead of the durable log (REDO-13), at most
    /// [`BEHIND_MAX`](super::group::BEHIND_MAX).
    pub(crate) behind: u64,
}

/// The log's classic policies. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogPolicies {
    /// The window within which pages are marked dirty out of order, and its length in bytes of log.
    pub(crate) recent_closed: Option<(LogRecentClosed, u64)>,
    /// Threads of their own write the log.
    pub(crate) pipeline: Option<PipelineSettings>,
}

/// Where and how the log resumes after it was read.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    /// The last checkpoint.
    pub(crate) checkpoint: Lsn,
    /// Nonces in force from the checkpoint to the end.
    pub(crate) epochs: Vec<(Lsn, u64)>,
    /// Where the log ends. Everything before is synced.
    pub(crate) end: Lsn,
}

/// Counters of the log.
#[derive(Default)]
pub(crate) struct LogCounters {
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_ns: AtomicU64,
    pub(crate) pending_syncs: Pending,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) pending_writes: Pending,
    pub(crate) space_waits: AtomicU64,
    /// Part of `space_waits` for space in the files.
    pub(crate) wall_waits: AtomicU64,
    pub(crate) space_wait_us: AtomicU64,
}

impl LogCounters {
    /// Notes a sync that began at `began_ns` and has ended.
    pub(super) fn synced(&self, began_ns: u64) {
        // Relaxed: sums of their own.
        self.sync_ns.fetch_add(clock::now_ns().saturating_sub(began_ns), Ordering::Relaxed);
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }
}

/// A snapshot of the log's positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPositions {
    pub(crate) next: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) checkpoint: Lsn,
}

/// The log.
pub(crate) struct Log {
    pub(super) buffer_bytes: u64,
    /// Bytes before the wall that writers leave to cleaning.
    pub(super) reserve: u64,
    /// Part of `reserve` that only epoch groups may use, in bytes.
    pub(super) epochs: u64,
    /// Bytes that writers may append ahead of the durable log (REDO-13).
    pub(super) behind: u64,
    pub(super) state: Mutex<LogState>,
    pub(super) notices: Mutex<Notices>,
    pub(super) bell: Arc<Bell>,
    /// The bell of `mp-log`, which flushes the log for other threads ([`Log::flush_for_others`]).
    pub(crate) flusher_bell: Arc<Bell>,
    /// The window of a classic policy.
    pub(crate) recent_closed: Option<RecentClosed>,
    /// The threads of a classic policy.
    pub(crate) pipeline: Option<Pipeline>,
    pub(crate) counts: Arc<DirtyCounts>,
    pub(super) waits: Arc<Waits>,
    pub(crate) counters: LogCounters,
}

impl Log {
    /// A log that resumes at its end.
    pub(crate) fn resume(
        files: LogFiles,
        resume: Resume,
        limits: LogLimits,
        policies: LogPolicies,
        counts: Arc<DirtyCounts>,
        bell: Arc<Bell>,
        waits: Arc<Waits>,
    ) -> Result<Log, Error> {
        let LogLimits { reserve, epochs, smallest, behind } = limits;
        let buffer_bytes = Self::buffer_for(smallest);
        let (end, tail) = (resume.end, Lsn(round_down(resume.end.0)));
        let recent_closed = policies.recent_closed.map(|(how, bytes)| RecentClosed::new(how, bytes, end));
        let pipeline = policies.pipeline.map(|settings| Pipeline::new(settings, buffer_bytes, end));
        // The pipeline has a buffer of its own.
        let buffer = || aligned(if pipeline.is_some() { BLOCK } else { to_usize(buffer_bytes) });
        let mut pending = buffer();
        if end > tail {
            files.read(&mut pending[..BLOCK], tail)?;
            pending[to_usize(end.since(tail))..BLOCK].fill(0);
            if let Some(pipeline) = &pipeline {
                pipeline.begin_with(&pending[..BLOCK], tail);
            }
        }
        let state = LogState {
            files: Arc::new(files),
            closed_from: None,
            laps: Vec::new(),
            epochs: resume.epochs,
            noted: 0,
            pending,
            pending_start: tail,
            spare: Some(buffer()),
            next: end,
            written: end,
            durable: end,
            checkpoint: resume.checkpoint,
            credits: 0,
            leader_at_work: false,
            idle_waiters: Vec::new(),
            flush_waiters: Vec::new(),
            space_waiters: VecDeque::new(),
            flush_by: FlushBy::default(),
            stopped: None,
            failed: None,
        };
        Ok(Log {
            buffer_bytes,
            reserve,
            epochs,
            behind,
            state: Mutex::new(Rank::Log, state),
            notices: Mutex::new(Rank::LogNotices, Notices::default()),
            bell,
            flusher_bell: Arc::default(),
            recent_closed,
            pipeline,
            counts,
            waits,
            counters: LogCounters::default(),
        })
    }

    /// Applies policies to the running log, as far as the parts that they need exist since the open.
    pub(crate) fn set_policies(&self, policies: LogPolicies) {
        if let (Some(window), Some((how, _))) = (&self.recent_closed, policies.recent_closed) {
            window.set_how(how);
        }
        if let (Some(pipeline), Some(settings)) = (&self.pipeline, policies.pipeline) {
            pipeline.set(settings);
        }
    }

    fn buffer_for(capacity: u64) -> u64 {
        round_down((capacity / 8).min(BUFFER_MAX)).max(4 * BLOCK_U64)
    }

    /// Whether the unwritten log fills half of the buffer. Always false with a pipeline, whose threads write at once.
    pub(super) fn is_half_full(&self, state: &LogState) -> bool {
        self.pipeline.is_none() && state.next.since(state.pending_start) > self.buffer_bytes / 2
    }

    /// The longest payload that a group may have, frame included.
    pub(crate) fn group_max(&self) -> usize {
        to_usize(self.buffer_bytes / 4)
    }

    /// The smallest capacity that the log may be given while it is open.
    pub(crate) fn smallest_capacity(&self) -> u64 {
        4 * self.buffer_bytes.max(self.reserve)
    }

    /// The longest payload of a map group: fits the band of the buffer that writers leave to cleaning.
    pub(crate) fn map_payload_max(&self) -> usize {
        to_usize(self.clean_band()) - GROUP_FRAME_LEN
    }

    /// Most bytes of memory that the log holds: two buffers, the counters of its buckets, and the classic policies'
    /// parts.
    pub(crate) fn memory_budget(&self) -> u64 {
        let buffers = match &self.pipeline {
            None => 2 * self.buffer_bytes,
            Some(_) => Pipeline::memory_for(self.buffer_bytes),
        };
        let window = self.recent_closed.as_ref().map_or(0, RecentClosed::memory);
        buffers + window + DirtyCounts::memory_for(self.capacity())
    }

    pub(super) fn clean_band(&self) -> u64 {
        (self.buffer_bytes / 8).min(16 << 10)
    }

    /// Log bytes that writers may fill.
    pub(crate) fn capacity(&self) -> u64 {
        let state = self.state.lock();
        state.files.capacity() - 2 * BLOCK_U64 - self.reserve
    }

    /// The rings of files.
    pub(crate) fn geometry(&self) -> (Geometry, Option<Switch>) {
        let state = self.state.lock();
        (state.files.geometry(), state.files.switch())
    }

    /// The files.
    pub(crate) fn files(&self) -> LogFiles {
        (*self.state.lock().files).clone()
    }

    /// The nonce of the group that begins at `lsn`, which is not before the checkpoint.
    pub(crate) fn nonce_at(&self, lsn: Lsn) -> u64 {
        let state = self.state.lock();
        state.epochs.iter().rev().find(|(from, _)| *from <= lsn).map_or(0, |(_, nonce)| *nonce)
    }

    /// Asks for everything appended so far to be durable, at the latest `within_ns` from now.
    pub(crate) fn flush_within(&self, within_ns: u64) {
        let now_ns = clock::now_ns();
        let mut state = self.state.lock();
        let next = state.next;
        if state.flush_by.ask(next, now_ns, within_ns) {
            drop(state);
            self.flusher_bell.ring();
        }
    }

    /// Waits until all pages of groups before `lsn` are marked dirty: with a window, a group's pages are marked some
    /// time after the group has its place. Does not wait for a failed log.
    pub(crate) fn wait_marked(&self, lsn: Lsn) {
        if let Some(window) = &self.recent_closed {
            window.wait_closed(lsn, || self.health().is_err());
        }
    }

    /// An upper bound for the checkpoint, besides the holders in [`DirtyCounts`].
    pub(crate) fn closed_upto(&self) -> Lsn {
        self.recent_closed.as_ref().map_or(Lsn(u64::MAX), RecentClosed::tail)
    }

    /// The log's current positions.
    pub(crate) fn positions(&self) -> LogPositions {
        let state = self.state.lock();
        LogPositions { next: state.next, durable: state.durable, checkpoint: state.checkpoint }
    }

    /// Whether the oldest waiter for space lacks room in the files.
    pub(crate) fn is_full_for_some(&self) -> bool {
        let state = self.state.lock();
        state.space_waiters.front().is_some_and(|front| !self.files_fit(&state, front.bytes))
    }

    /// Moves the checkpoint to `lsn`: a superblock that says so is durable, and nothing before `lsn` is needed.
    pub(crate) fn set_checkpoint(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        debug_assert!(state.checkpoint <= lsn, "REDO-2: a checkpoint never goes back");
        debug_assert!(lsn <= state.next, "REDO-2: a checkpoint is not ahead of the log");
        state.checkpoint = lsn;
        while state.epochs.len() > 1 && state.epochs[1].0 <= lsn {
            state.epochs.remove(0);
        }
        self.grant_space(&mut state);
    }
}

impl LogState {
    /// How far the log has come, without a pipeline.
    pub(super) fn reached(&self, stage: Stage) -> Lsn {
        if stage == Stage::Written { self.written } else { self.durable }
    }

    /// Bytes of epoch groups in the log since the checkpoint.
    pub(super) fn epoch_bytes(&self) -> u64 {
        to_u64(self.epochs.len() - 1) * EPOCH_LEN
    }

    /// The nonce of later groups.
    pub(super) fn nonce(&self) -> u64 {
        self.epochs.last().map_or(0, |(_, nonce)| *nonce)
    }
}

const _: () = assert!(BLOCK_U64 == 4096 && BLOCK == 4096);
