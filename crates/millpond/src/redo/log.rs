//! The running log: credits, append, and commit by leader and followers.
//!
//! One mutex stands where a lock-free ring may come. Under it: the copy of a group into the buffer, and the callback
//! that marks the group's pages dirty, so that whoever reads `next` under the mutex finds all pages of earlier
//! groups marked.
//!
//! Who ends which wait: `log_flush`: the flush leader, who calls the oldest waiter he did not cover.
//! `log_space`: the leader (buffer), the checkpoint (files), or who gives a credit back.
//!
//! Writers may fill the log up to its wall less the **reserve**. The reserve belongs to cleaning: each dirty page and
//! each write under way may need one map record, and only these records let the checkpoint move. Without it the log
//! could be so full that nothing can empty it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dirty_counts::DirtyCounts;
use super::files::{Geometry, Lap, LogFiles, Switch};
use super::flush::{FlushSignal, FlushWaiter};
use super::group::{GROUP_FRAME_LEN, GroupKind, Place, epoch_payload, payload_crc, write_group};
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, round_down, to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::{WaitClass, Waits};

/// Bytes of each of the two log buffers, at most; a small log has smaller ones.
pub(crate) const BUFFER_MAX: u64 = 4 << 20;

thread_local! {
    /// Bytes that this thread has appended since it was asked.
    static APPENDED: Cell<u64> = const { Cell::new(0) };
}

/// Bytes of log that this thread has appended since it was asked last.
pub(crate) fn take_appended() -> u64 {
    APPENDED.replace(0)
}

/// So much was appended by the thread, and nothing since.
pub(crate) fn set_appended(bytes: u64) {
    APPENDED.set(bytes);
}

pub(super) struct SpaceWaiter {
    pub(super) bytes: u64,
    pub(super) handoff: Arc<Handoff<bool>>,
}

pub(super) struct LogState {
    pub(super) files: Arc<LogFiles>,
    /// Set while a second ring is not yet named by a superblock: nothing may be written from here on.
    pub(super) closed_from: Option<Lsn>,
    /// Laps that begin in what is pending.
    pub(super) laps: Vec<Lap>,
    /// Nonces in force, each from an LSN on; the first one at or before `checkpoint`.
    pub(super) epochs: Vec<(Lsn, u64)>,
    /// The number of the counters' bucket in which the last group began.
    pub(super) noted: u64,
    /// Log bytes from `pending_start`, which is block-aligned, to `next`.
    pub(super) pending: AlignedBuf,
    pub(super) pending_start: Lsn,
    /// The other buffer, unless a leader is writing from it.
    pub(super) spare: Option<AlignedBuf>,
    pub(super) next: Lsn,
    pub(super) durable: Lsn,
    pub(super) checkpoint: Lsn,
    /// Bytes promised and not yet appended.
    pub(super) credits: u64,
    pub(super) leader_at_work: bool,
    /// Who waits until no leader is at work.
    pub(super) idle_waiters: Vec<Arc<Handoff<()>>>,
    pub(super) flush_waiters: Vec<FlushWaiter>,
    pub(super) space_waiters: VecDeque<SpaceWaiter>,
    pub(super) flush_by_ns: Option<u64>,
    pub(super) failed: Option<Arc<str>>,
}

/// Log bytes that cleaning may need for each page that is dirty or being written: a map group of its own at worst.
pub(crate) const MAP_RECORD_MAX: u64 = 48;

/// Bytes of an epoch group.
const EPOCH_LEN: u64 = 8 + GROUP_FRAME_LEN as u64;

/// What is fixed while a log is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLimits {
    /// Bytes of its capacity that writers leave to cleaning.
    pub(crate) reserve: u64,
    /// Of these, bytes that only epochs may use.
    pub(crate) epochs: u64,
    /// The smallest capacity that it has, or is about to be given: groups and buffers are made for it.
    pub(crate) smallest: u64,
}

/// Where and how the log goes on after it was read.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    /// The last checkpoint.
    pub(crate) checkpoint: Lsn,
    /// Nonces in force from the checkpoint to the end.
    pub(crate) epochs: Vec<(Lsn, u64)>,
    /// Where the log ends; all before is synced.
    pub(crate) end: Lsn,
}

/// Counters of the log.
#[derive(Default)]
pub(crate) struct LogCounters {
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) space_waits: AtomicU64,
    /// Of these, for the files.
    pub(crate) wall_waits: AtomicU64,
    pub(crate) space_wait_us: AtomicU64,
}

/// A snapshot of the log's positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPositions {
    pub(crate) next: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) checkpoint: Lsn,
}

/// What the keeper should do for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogDemand {
    /// Somebody waits for room in the buffer.
    pub(crate) buffer_short: bool,
    /// Somebody waits for room in the files.
    pub(crate) files_short: bool,
    /// When a background commit wants to be durable.
    pub(crate) flush_by_ns: Option<u64>,
}

/// The log.
pub(crate) struct Log {
    buffer_bytes: u64,
    /// Bytes before the wall that writers leave to cleaning.
    pub(super) reserve: u64,
    /// Of these, bytes that only epochs may use.
    epochs: u64,
    pub(super) state: Mutex<LogState>,
    bell: Arc<Bell>,
    pub(crate) counts: Arc<DirtyCounts>,
    pub(super) waits: Arc<Waits>,
    pub(crate) counters: LogCounters,
}

/// Room in the log for one mini-transaction, had before the first latch (law 1). What is not used goes back on drop.
#[must_use]
pub(crate) struct LogCredit<'a> {
    pub(super) log: &'a Log,
    pub(super) bytes: u64,
}

impl Drop for LogCredit<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.log.state.lock();
            state.credits -= self.bytes;
            self.log.grant_space(&mut state);
        }
    }
}

impl Log {
    /// A log that goes on where it ended.
    pub(crate) fn resume(
        files: LogFiles,
        resume: Resume,
        limits: LogLimits,
        counts: Arc<DirtyCounts>,
        bell: Arc<Bell>,
        waits: Arc<Waits>,
    ) -> Result<Log, Error> {
        let LogLimits { reserve, epochs, smallest } = limits;
        let buffer_bytes = Self::buffer_for(smallest);
        let (end, tail) = (resume.end, Lsn(round_down(resume.end.0)));
        let mut pending = aligned(to_usize(buffer_bytes));
        if end > tail {
            files.read(&mut pending[..BLOCK], tail)?;
            pending[to_usize(end.since(tail))..BLOCK].fill(0);
        }
        let state = LogState {
            files: Arc::new(files),
            closed_from: None,
            laps: Vec::new(),
            epochs: resume.epochs,
            noted: 0,
            pending,
            pending_start: tail,
            spare: Some(aligned(to_usize(buffer_bytes))),
            next: end,
            durable: end,
            checkpoint: resume.checkpoint,
            credits: 0,
            leader_at_work: false,
            idle_waiters: Vec::new(),
            flush_waiters: Vec::new(),
            space_waiters: VecDeque::new(),
            flush_by_ns: None,
            failed: None,
        };
        Ok(Log {
            buffer_bytes,
            reserve,
            epochs,
            state: Mutex::new(Rank::Log, state),
            bell,
            counts,
            waits,
            counters: LogCounters::default(),
        })
    }

    fn buffer_for(capacity: u64) -> u64 {
        round_down((capacity / 8).min(BUFFER_MAX)).max(4 * BLOCK_U64)
    }

    /// The longest payload that a group may have, frame included.
    pub(crate) fn group_max(&self) -> usize {
        to_usize(self.buffer_bytes / 4)
    }

    /// The smallest capacity that the log may be given while it is open.
    pub(crate) fn smallest_capacity(&self) -> u64 {
        4 * self.buffer_bytes.max(self.reserve)
    }

    /// The longest payload of a map group: the part of the buffer that writers leave to cleaning.
    pub(crate) fn map_payload_max(&self) -> usize {
        to_usize(self.clean_band()) - GROUP_FRAME_LEN
    }

    /// Bytes that the log holds at most: two buffers, and the counters of its buckets.
    pub(crate) fn memory_budget(&self) -> u64 {
        2 * self.buffer_bytes + DirtyCounts::memory_for(self.capacity())
    }

    fn clean_band(&self) -> u64 {
        (self.buffer_bytes / 8).min(16 << 10)
    }

    /// Bytes that writers may have in the log.
    pub(crate) fn capacity(&self) -> u64 {
        let state = self.state.lock();
        state.files.capacity() - 2 * BLOCK_U64 - self.reserve
    }

    /// The rings of files.
    pub(crate) fn geometry(&self) -> (Geometry, Option<Switch>) {
        let state = self.state.lock();
        (state.files.geometry(), state.files.switch())
    }

    pub(super) fn buffer_fits(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.pending_start) + state.credits + bytes + self.clean_band() <= self.buffer_bytes
    }

    pub(super) fn files_fit(&self, state: &LogState, bytes: u64) -> bool {
        let end = state.next.plus(state.credits + bytes);
        let wall = state.files.wall(state.checkpoint);
        end.plus(self.reserve) <= wall && state.closed_from.is_none_or(|closed| end <= closed)
    }

    /// Room for a group that cleaning needs: from the reserve, and past all who wait. `payload` is at most
    /// [`map_payload_max`](Self::map_payload_max). Waits for no checkpoint; has the log written if the buffer is
    /// short.
    ///
    /// One thread cleans: it finds the band of the buffer that writers leave to it free after one flush.
    pub(crate) fn reserve_for_cleaning(&self, payload: usize) -> Result<LogCredit<'_>, Error> {
        self.reserve_behind_writers(payload, self.epochs)
    }

    /// Room past all who wait, with a band for epochs left before the wall: what is not used up by epochs that are in
    /// the log already, or these would take cleaning's room.
    fn reserve_behind_writers(&self, payload: usize, band: u64) -> Result<LogCredit<'_>, Error> {
        let bytes = to_u64(payload + GROUP_FRAME_LEN);
        debug_assert!(bytes <= self.clean_band(), "REDO-6: {bytes} bytes are more than cleaning's band");
        if planted!("no_reserve") {
            return self.reserve(payload, 0);
        }
        loop {
            let upto = {
                let mut state = self.state.lock();
                Self::check(&state)?;
                if state.closed_from.is_some() {
                    // Promised room ends before the ring: this group might push the last ones into it.
                    return Err(Error::Bug("REDO: pages are cleaned while a ring of the log is not open".into()));
                }
                let end = state.next.plus(state.credits + bytes);
                if state.next.since(state.pending_start) + state.credits + bytes <= self.buffer_bytes {
                    let left = band.saturating_sub(state.epoch_bytes());
                    if end.plus(left) > state.files.wall(state.checkpoint) {
                        return Err(Error::Bug("REDO-6: the log is too full to be emptied".into()));
                    }
                    state.credits += bytes;
                    return Ok(LogCredit { log: self, bytes });
                }
                state.next
            };
            self.flush_wait(upto)?;
        }
    }

    /// As [`reserve`](Self::reserve), if it is to be had without waiting.
    pub(crate) fn try_reserve(&self, payload: usize, pages: usize) -> Result<Option<LogCredit<'_>>, Error> {
        let bytes = Self::bytes_for(payload, pages);
        let mut state = self.state.lock();
        Self::check(&state)?;
        let fits = state.space_waiters.is_empty() && self.buffer_fits(&state, bytes) && self.files_fit(&state, bytes);
        if fits {
            state.credits += bytes;
        }
        Ok(fits.then(|| LogCredit { log: self, bytes }))
    }

    fn bytes_for(payload: usize, pages: usize) -> u64 {
        to_u64(payload + GROUP_FRAME_LEN) + MAP_RECORD_MAX * to_u64(pages)
    }

    /// Whether the buffer has room for such a group when it is empty: one for which it has not would wait for ever.
    pub(crate) fn takes(&self, payload: usize, pages: usize) -> bool {
        Self::bytes_for(payload, pages) + self.clean_band() <= self.buffer_bytes
    }

    /// Room for a group of `payload` bytes that changes `pages` pages at most, and for their map records: a page that
    /// is cleaned while the credit is outstanding, and then changed with it, needs one more than the reserve has. May
    /// wait on `log_space`; callers hold no latch.
    pub(crate) fn reserve(&self, payload: usize, pages: usize) -> Result<LogCredit<'_>, Error> {
        let bytes = Self::bytes_for(payload, pages);
        if !self.takes(payload, pages) {
            let message =
                format!("REDO-5: room for {bytes} bytes is asked for, and the buffer has {}", self.buffer_bytes);
            return Err(Error::Bug(message.into()));
        }
        let mut state = self.state.lock();
        loop {
            Self::check(&state)?;
            if state.space_waiters.is_empty() && self.buffer_fits(&state, bytes) && self.files_fit(&state, bytes) {
                state.credits += bytes;
                return Ok(LogCredit { log: self, bytes });
            }
            if !self.buffer_fits(&state, bytes) && !state.leader_at_work && state.next > state.durable {
                // The buffer is short and nobody is writing it: do it, rather than wait for somebody.
                state.leader_at_work = true;
                self.lead(state)?;
                state = self.state.lock();
                continue;
            }
            let handoff = Handoff::new();
            let is_full = !self.files_fit(&state, bytes);
            state.space_waiters.push_back(SpaceWaiter { bytes, handoff: Arc::clone(&handoff) });
            drop(state);
            self.bell.ring();
            let began = clock::now_ns();
            let granted = handoff.take_wait(WaitClass::LogSpace, &self.waits);
            self.counters.space_waits.fetch_add(1, Ordering::Relaxed);
            self.counters.wall_waits.fetch_add(u64::from(is_full), Ordering::Relaxed);
            self.counters.space_wait_us.fetch_add((clock::now_ns() - began) / 1000, Ordering::Relaxed);
            if granted {
                return Ok(LogCredit { log: self, bytes });
            }
            state = self.state.lock();
        }
    }

    /// Grants room to those who wait for it, oldest first.
    pub(super) fn grant_space(&self, state: &mut LogState) {
        while let Some(front) = state.space_waiters.front() {
            let bytes = front.bytes;
            let fits = self.buffer_fits(state, bytes) && self.files_fit(state, bytes);
            if !fits {
                self.bell.ring();
                return;
            }
            state.credits += bytes;
            if let Some(waiter) = state.space_waiters.pop_front() {
                waiter.handoff.give(true);
            }
        }
    }

    /// Appends a group, using up `credit`. `mark` runs with the group's begin and end before any later group gets a
    /// place.
    pub(crate) fn append(
        &self,
        mut credit: LogCredit<'_>,
        kind: GroupKind,
        payload: &[u8],
        mark: impl FnOnce(Lsn, Lsn),
    ) -> Result<Lsn, Error> {
        let len = to_u64(payload.len() + GROUP_FRAME_LEN);
        assert!(len <= credit.bytes, "REDO-2: a group of {len} bytes had a credit of {} only", credit.bytes);
        let crc = payload_crc(payload);
        let mut state = self.state.lock();
        Self::check(&state)?;
        let (start, durable) = (state.next, state.durable);
        let end = start.plus(len);
        if self.counts.bucket(start) != state.noted {
            state.noted = self.counts.bucket(start);
            self.counts.note_group(start);
        }
        state.next = end;
        if planted!("publish_before_copy") {
            drop(state);
            state = self.state.lock();
        }
        let place = Place { nonce: state.nonce(), at: start };
        let from = to_usize(start.since(state.pending_start));
        write_group(&mut state.pending[from..from + to_usize(len)], place, durable, kind, payload, crc);
        mark(start, end);
        let mut from = start;
        while let Some(boundary) = state.files.boundary(from, end) {
            state.laps.push(Lap { boundary, first_group: end, nonce: place.nonce });
            from = boundary;
        }
        state.credits -= credit.bytes;
        credit.bytes = 0;
        APPENDED.set(APPENDED.get() + len);
        if !state.space_waiters.is_empty() {
            self.grant_space(&mut state);
        }
        Ok(end)
    }

    /// Begins a new epoch: from here on groups are sealed with `nonce`. Durable on return. Nobody else uses the log
    /// yet.
    pub(crate) fn begin_epoch(&self, nonce: u64) -> Result<(), Error> {
        let payload = epoch_payload(nonce);
        debug_assert_eq!(to_u64(payload.len() + GROUP_FRAME_LEN), EPOCH_LEN);
        let credit = self.reserve_behind_writers(payload.len(), 0)?;
        let end = self.append(credit, GroupKind::Epoch, &payload, |_, _| ())?;
        {
            let mut state = self.state.lock();
            state.epochs.push((end, nonce));
            state.laps.iter_mut().for_each(|lap| lap.nonce = nonce);
            if planted!("epoch_not_synced") {
                state.durable = end;
                return Ok(());
            }
        }
        self.flush_wait(end)
    }

    /// The nonce of the group that begins at `lsn`, which is not before the checkpoint.
    pub(crate) fn nonce_at(&self, lsn: Lsn) -> u64 {
        let state = self.state.lock();
        state.epochs.iter().rev().find(|(from, _)| *from <= lsn).map_or(0, |(_, nonce)| *nonce)
    }

    pub(super) fn check(state: &LogState) -> Result<(), Error> {
        match &state.failed {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly(
                format!("the database takes no more writes after an earlier failure ({why}); reopen it: everything acknowledged is safe").into(),
            )),
        }
    }

    pub(super) fn fail(&self, state: &mut LogState, error: &Error) {
        state.failed = Some(error.to_string().into());
        if planted!("waiters_forgotten_on_failure") {
            return;
        }
        for waiter in state.flush_waiters.drain(..) {
            waiter.handoff.give(FlushSignal::LookAgain);
        }
        for waiter in state.space_waiters.drain(..) {
            waiter.handoff.give(false);
        }
    }

    /// Refuses all further writes: after a failure below that leaves the engine unable to go on.
    pub(crate) fn stop(&self, error: &Error) {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            self.fail(&mut state, error);
        }
    }

    /// Refuses all further writes, and waits until none is under way: the files may be another's after this.
    pub(crate) fn close_wait(&self) {
        let handoff = Handoff::new();
        {
            let mut state = self.state.lock();
            if state.failed.is_none() {
                self.fail(&mut state, &Error::Closed("it was closed".into()));
            }
            if !state.leader_at_work {
                return;
            }
            state.idle_waiters.push(Arc::clone(&handoff));
        }
        handoff.take_wait(WaitClass::LogFlush, &self.waits);
    }

    pub(super) fn tell_idle(state: &mut LogState) {
        for waiter in state.idle_waiters.drain(..) {
            waiter.give(());
        }
    }

    /// An error once the log has failed or was stopped.
    pub(crate) fn health(&self) -> Result<(), Error> {
        Self::check(&self.state.lock())
    }

    /// Asks the keeper to make everything appended so far durable by `at_ns`.
    pub(crate) fn flush_by(&self, at_ns: u64) {
        let mut state = self.state.lock();
        let sooner = state.flush_by_ns.is_none_or(|by| at_ns < by);
        if sooner && state.next > state.durable {
            state.flush_by_ns = Some(at_ns);
            drop(state);
            self.bell.ring();
        }
    }

    /// Where the log stands.
    pub(crate) fn positions(&self) -> LogPositions {
        let state = self.state.lock();
        LogPositions { next: state.next, durable: state.durable, checkpoint: state.checkpoint }
    }

    /// What the log wants from the keeper.
    pub(crate) fn demand(&self) -> LogDemand {
        let state = self.state.lock();
        let front = state.space_waiters.front().map(|waiter| waiter.bytes);
        LogDemand {
            buffer_short: front.is_some_and(|bytes| !self.buffer_fits(&state, bytes)),
            files_short: front.is_some_and(|bytes| !self.files_fit(&state, bytes)),
            flush_by_ns: state.flush_by_ns,
        }
    }

    /// Everything before `lsn` is no longer needed: a superblock that says so is durable.
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
    /// What epochs have taken of the log since the checkpoint.
    fn epoch_bytes(&self) -> u64 {
        to_u64(self.epochs.len() - 1) * EPOCH_LEN
    }

    /// The nonce of the groups to come.
    fn nonce(&self) -> u64 {
        self.epochs.last().map_or(0, |(_, nonce)| *nonce)
    }
}

const _: () = assert!(BLOCK_U64 == 4096 && BLOCK == 4096);
