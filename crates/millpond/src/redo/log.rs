//! The running log: credits, append, and commit by leader and followers.
//!
//! One mutex stands where a lock-free ring may come. Under it: the copy of a group into the buffer, and the callback
//! that marks the group's pages dirty, so that whoever reads `next` under the mutex finds all pages of earlier
//! groups marked.
//!
//! Who ends which wait: `log_flush`: the flush leader, who hands leadership to the oldest waiter he did not cover.
//! `log_space`: the leader (buffer), the checkpoint (files), or who gives a credit back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::files::LogFiles;
use super::group::{GROUP_FRAME_LEN, payload_crc, write_group};
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, MutexGuard, WaitClass};

/// Bytes of each of the two log buffers, at most; a small log has smaller ones.
const BUFFER_MAX: u64 = 4 << 20;

enum FlushSignal {
    Durable,
    Lead,
    Failed,
}

struct FlushWaiter {
    lsn: Lsn,
    handoff: Arc<Handoff<FlushSignal>>,
}

/// Whom the end of a leader's round wakes.
struct RoundEnd {
    next_leader: Option<Arc<Handoff<FlushSignal>>>,
    covered: Vec<Arc<Handoff<FlushSignal>>>,
    /// The leader goes on himself.
    another_round: bool,
}

struct SpaceWaiter {
    bytes: u64,
    handoff: Arc<Handoff<bool>>,
}

struct LogState {
    /// Log bytes from `pending_start`, which is block-aligned, to `next`.
    pending: AlignedBuf,
    pending_start: Lsn,
    /// The other buffer, unless a leader is writing from it.
    spare: Option<AlignedBuf>,
    next: Lsn,
    durable: Lsn,
    checkpoint: Lsn,
    /// Bytes promised and not yet appended.
    credits: u64,
    leader_at_work: bool,
    /// Who waits until no leader is at work.
    idle_waiters: Vec<Arc<Handoff<()>>>,
    flush_waiters: Vec<FlushWaiter>,
    space_waiters: VecDeque<SpaceWaiter>,
    flush_by_ns: Option<u64>,
    nonce: u64,
    failed: Option<Arc<str>>,
}

/// Counters of the log.
#[derive(Default)]
pub(crate) struct LogCounters {
    pub(crate) syncs: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) space_waits: AtomicU64,
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
    files: LogFiles,
    limit: u64,
    buffer_bytes: u64,
    state: Mutex<LogState>,
    bell: Arc<Bell>,
    pub(crate) counters: LogCounters,
}

/// Room in the log for one mini-transaction, had before the first latch (law 1). What is not used goes back on drop.
#[must_use]
pub(crate) struct LogCredit<'a> {
    log: &'a Log,
    bytes: u64,
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
    /// A log that goes on at `start`, which is block-aligned; everything before it is durable and checkpointed.
    pub(crate) fn new(files: LogFiles, nonce: u64, start: Lsn, bell: Arc<Bell>) -> Log {
        let buffer_bytes = round_down((files.capacity() / 8).min(BUFFER_MAX)).max(4 * BLOCK_U64);
        let state = LogState {
            pending: aligned(to_usize(buffer_bytes)),
            pending_start: start,
            spare: Some(aligned(to_usize(buffer_bytes))),
            next: start,
            durable: start,
            checkpoint: start,
            credits: 0,
            leader_at_work: false,
            idle_waiters: Vec::new(),
            flush_waiters: Vec::new(),
            space_waiters: VecDeque::new(),
            flush_by_ns: None,
            nonce,
            failed: None,
        };
        // The block that holds `checkpoint` and the one that holds `next` must never be the same place of the ring.
        let limit = files.capacity() - 2 * BLOCK_U64;
        Log { files, limit, buffer_bytes, state: Mutex::new(state), bell, counters: LogCounters::default() }
    }

    /// The longest payload that a group may have, for a log of `capacity` bytes.
    pub(crate) fn group_payload_max(capacity: u64) -> usize {
        to_usize(round_down((capacity / 8).min(BUFFER_MAX)).max(4 * BLOCK_U64) / 4)
    }

    /// Bytes that the log may hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.limit
    }

    /// Payload bytes of each file.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.files.payload_bytes()
    }

    fn buffer_fits(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.pending_start) + state.credits + bytes <= self.buffer_bytes
    }

    fn files_fit(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.checkpoint) + state.credits + bytes <= self.limit
    }

    /// Room for a group of `payload` bytes. May wait on `log_space`; callers hold no latch.
    pub(crate) fn reserve(&self, payload: usize) -> Result<LogCredit<'_>, Error> {
        let bytes = to_u64(payload + GROUP_FRAME_LEN);
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
            state.space_waiters.push_back(SpaceWaiter { bytes, handoff: Arc::clone(&handoff) });
            drop(state);
            self.bell.ring();
            let began = clock::now_ns();
            let granted = handoff.take_wait(WaitClass::LogSpace);
            self.counters.space_waits.fetch_add(1, Ordering::Relaxed);
            self.counters.space_wait_us.fetch_add((clock::now_ns() - began) / 1000, Ordering::Relaxed);
            if granted {
                return Ok(LogCredit { log: self, bytes });
            }
            state = self.state.lock();
        }
    }

    /// Grants room to those who wait for it, oldest first.
    fn grant_space(&self, state: &mut LogState) {
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
        payload: &[u8],
        mark: impl FnOnce(Lsn, Lsn),
    ) -> Result<Lsn, Error> {
        let len = to_u64(payload.len() + GROUP_FRAME_LEN);
        assert!(len <= credit.bytes, "REDO-2: a group of {len} bytes had a credit of {} only", credit.bytes);
        let crc = payload_crc(payload);
        let mut state = self.state.lock();
        Self::check(&state)?;
        let start = state.next;
        let end = start.plus(len);
        let from = to_usize(start.since(state.pending_start));
        let nonce = state.nonce;
        write_group(&mut state.pending[from..from + to_usize(len)], nonce, start, payload, crc);
        state.next = end;
        mark(start, end);
        state.credits -= credit.bytes;
        credit.bytes = 0;
        if !state.space_waiters.is_empty() {
            self.grant_space(&mut state);
        }
        Ok(end)
    }

    /// Waits until the log is durable up to `lsn`, as leader or follower. Callers hold no latch.
    pub(crate) fn flush_wait(&self, lsn: Lsn) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            if state.durable >= lsn {
                return Ok(());
            }
            Self::check(&state)?;
            if lsn > state.next {
                // Nobody could ever end this wait.
                let message =
                    format!("LSN {lsn} is ahead of the log, which ends at {}: a page is not of this log", state.next);
                return Err(Error::Corruption(message.into()));
            }
            if !state.leader_at_work {
                state.leader_at_work = true;
                let led = self.lead(state);
                state = self.state.lock();
                // Covered in the first of several rounds, perhaps.
                if state.durable < lsn {
                    led?;
                }
                continue;
            }
            let handoff = Handoff::new();
            state.flush_waiters.push(FlushWaiter { lsn, handoff: Arc::clone(&handoff) });
            drop(state);
            match handoff.take_wait(WaitClass::LogFlush) {
                FlushSignal::Durable => return Ok(()),
                FlushSignal::Lead => {
                    let led = self.lead(self.state.lock());
                    state = self.state.lock();
                    if state.durable < lsn {
                        led?;
                    }
                }
                FlushSignal::Failed => state = self.state.lock(),
            }
        }
    }

    /// Writes and syncs what is pending. The caller is the leader, and hands over before this returns.
    fn lead<'a>(&'a self, state: MutexGuard<'a, LogState>) -> Result<(), Error> {
        // Ends leadership however this ends, a panic of the device included: nobody may wait for a leader who is gone.
        let mut leadership = Leadership { log: self, ended: false };
        // Declared after it, so that a panic releases the mutex before the term of office ends.
        let mut state = state;
        loop {
            if let Err(error) = Self::check(&state) {
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
            state.flush_by_ns = None;
            self.grant_space(&mut state);
            drop(state);
            let used = to_usize(upto.since(from));
            let len = to_usize(round_up(to_u64(used)));
            buf[used..len].fill(0);
            let written = self.write_and_sync(&buf[..len], from, upto);
            state = self.state.lock();
            state.spare = Some(buf);
            if let Err(error) = written {
                self.fail(&mut state, &error);
                drop(state);
                return Err(error);
            }
            let ended = self.end_round(&mut state, upto);
            leadership.ended = !ended.another_round;
            drop(state);
            // Woken without the mutex, which is the first thing that a new leader takes.
            if let Some(leader) = ended.next_leader {
                leader.give(FlushSignal::Lead);
            }
            for waiter in ended.covered {
                waiter.give(FlushSignal::Durable);
            }
            if !ended.another_round {
                return Ok(());
            }
            state = self.state.lock();
        }
    }

    fn write_and_sync(&self, buf: &[u8], from: Lsn, upto: Lsn) -> Result<(), Error> {
        self.files.write(buf, from)?;
        self.counters.bytes_written.fetch_add(to_u64(buf.len()), Ordering::Relaxed);
        if cfg!(planted = "ack_before_sync") {
            let covered = Self::take_covered(&mut self.state.lock(), upto);
            covered.iter().for_each(|waiter| waiter.give(FlushSignal::Durable));
        }
        self.files.sync(from, buf.len())?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes those out whose wait is over: the log is durable up to `upto`.
    fn take_covered(state: &mut LogState, upto: Lsn) -> Vec<Arc<Handoff<FlushSignal>>> {
        state.durable = state.durable.max(upto);
        let durable = state.durable;
        let (covered, waiting) = std::mem::take(&mut state.flush_waiters).into_iter().partition(|w| w.lsn <= durable);
        state.flush_waiters = waiting;
        let covered: Vec<FlushWaiter> = covered;
        covered.into_iter().map(|waiter| waiter.handoff).collect()
    }

    /// Ends a leader's round, and leadership too, unless nobody else can lead and somebody waits for the buffer.
    fn end_round(&self, state: &mut LogState, upto: Lsn) -> RoundEnd {
        let covered = Self::take_covered(state, upto);
        let next_leader = (!state.flush_waiters.is_empty()).then(|| state.flush_waiters.remove(0).handoff);
        self.grant_space(state);
        let buffer_short = state.space_waiters.front().is_some_and(|front| !self.buffer_fits(state, front.bytes));
        let another_round = next_leader.is_none() && buffer_short && state.next > state.durable;
        state.leader_at_work = next_leader.is_some() || another_round;
        if !state.leader_at_work {
            Self::tell_idle(state);
        }
        RoundEnd { next_leader, covered, another_round }
    }

    fn check(state: &LogState) -> Result<(), Error> {
        match &state.failed {
            None => Ok(()),
            Some(why) => Err(Error::ReadOnly(
                format!("the database takes no more writes after an earlier failure ({why}); reopen it: everything acknowledged is safe").into(),
            )),
        }
    }

    fn fail(&self, state: &mut LogState, error: &Error) {
        state.failed = Some(error.to_string().into());
        for waiter in state.flush_waiters.drain(..) {
            waiter.handoff.give(FlushSignal::Failed);
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
        handoff.take_wait(WaitClass::LogFlush);
    }

    fn tell_idle(state: &mut LogState) {
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

    /// Flushes everything appended so far.
    pub(crate) fn flush_all(&self) -> Result<Lsn, Error> {
        let next = self.positions().next;
        self.flush_wait(next)?;
        Ok(next)
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
        self.grant_space(&mut state);
    }
}

const _: () = assert!(BLOCK_U64 == 4096 && BLOCK == 4096);
