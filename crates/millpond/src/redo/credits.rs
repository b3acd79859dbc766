//! Space in the log's buffer and files, reserved before the first latch: request, wait, grant.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::group::GROUP_FRAME_LEN;
use super::log::{Log, LogState, MAP_RECORD_MAX};
use super::waiters::{SpaceWaiter, Stage};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::waits::WaitClass;

/// Log space for one mini-transaction, reserved before the first latch (law 1). Drop returns the unused bytes.
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

/// A credit without its log, for a caller that keeps it from call to call. It is to be made a [`LogCredit`] again.
#[must_use = "its bytes are lost to others until this is a `LogCredit` again"]
#[derive(Debug)]
pub(crate) struct KeptCredit(u64);

impl LogCredit<'_> {
    /// Keeps the credit from call to call. Its bytes count against the buffer meanwhile.
    pub(crate) fn keep(mut self) -> KeptCredit {
        KeptCredit(std::mem::take(&mut self.bytes))
    }
}

impl Log {
    /// The credit that was [kept](LogCredit::keep), of this log.
    pub(crate) fn kept(&self, KeptCredit(bytes): KeptCredit) -> LogCredit<'_> {
        LogCredit { log: self, bytes }
    }

    /// Number of credits for groups of `payload` bytes on one page that may be kept from call to call: they take a
    /// sixteenth of the buffer at most.
    pub(crate) fn credits_to_keep(&self, payload: usize) -> usize {
        to_usize(self.buffer_bytes / 16 / Self::bytes_for(payload, 1))
    }

    pub(super) fn buffer_fits(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.pending_start) + state.credits + bytes + self.clean_band() <= self.buffer_bytes
    }

    /// Whether `bytes` more stay within the bound on log that is not durable (REDO-13).
    fn sync_fits(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.durable) + state.credits + bytes <= self.behind || planted!("sync_not_bounded")
    }

    /// Whether a writer has to wait until the log is written, or synced.
    pub(super) fn is_short(&self, state: &LogState, bytes: u64) -> bool {
        !self.buffer_fits(state, bytes) || !self.sync_fits(state, bytes)
    }

    pub(super) fn files_fit(&self, state: &LogState, bytes: u64) -> bool {
        let end = state.next.plus(state.credits + bytes);
        let wall = state.files.wall(state.checkpoint);
        end.plus(self.reserve) <= wall && state.closed_from.is_none_or(|closed| end <= closed)
    }

    /// Reserves space for a group that cleaning needs: from the reserve, ahead of all waiters. `payload` is at most
    /// [`map_payload_max`](Self::map_payload_max). Waits for no checkpoint. If the buffer is short, it has the log
    /// flushed.
    ///
    /// Only one thread cleans: after one flush it finds free the band of the buffer that writers leave to it.
    pub(crate) fn reserve_for_cleaning(&self, payload: usize) -> Result<LogCredit<'_>, Error> {
        self.reserve_behind_writers(payload, self.epochs)
    }

    /// Reserves space ahead of all waiters, and leaves `band` bytes for epoch groups free before the wall. Bytes of
    /// epoch groups already in the log are deducted from the band: else they would count twice, at the expense of
    /// cleaning.
    pub(super) fn reserve_behind_writers(&self, payload: usize, band: u64) -> Result<LogCredit<'_>, Error> {
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
                    // Granted space ends before the new ring: this group might push the last granted groups into it.
                    return Err(Error::Bug("REDO: pages are cleaned while a ring of the log is not open".into()));
                }
                let end = state.next.plus(state.credits + bytes);
                let behind = state.next.since(state.durable) + state.credits + bytes;
                let fits = state.next.since(state.pending_start) + state.credits + bytes <= self.buffer_bytes;
                // The writers' bound leaves more of the 32 bits than the buffer holds (REDO-13).
                if fits && behind <= self.behind + self.buffer_bytes {
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

    /// As [`reserve`](Self::reserve), but `None` instead of a wait.
    pub(crate) fn try_reserve(&self, payload: usize, pages: usize) -> Result<Option<LogCredit<'_>>, Error> {
        let bytes = Self::bytes_for(payload, pages);
        let mut state = self.state.lock();
        Self::check(&state)?;
        let fits = state.space_waiters.is_empty() && !self.is_short(&state, bytes) && self.files_fit(&state, bytes);
        if fits {
            state.credits += bytes;
        }
        Ok(fits.then(|| LogCredit { log: self, bytes }))
    }

    fn bytes_for(payload: usize, pages: usize) -> u64 {
        to_u64(payload + GROUP_FRAME_LEN) + MAP_RECORD_MAX * to_u64(pages)
    }

    /// Whether an empty buffer has room for such a group. A larger group would wait for ever.
    pub(crate) fn takes(&self, payload: usize, pages: usize) -> bool {
        Self::bytes_for(payload, pages) + self.clean_band() <= self.buffer_bytes
    }

    /// Reserves space for a group of at most `payload` bytes that changes at most `pages` pages, and for their map
    /// records. A page that is cleaned while the credit is outstanding, and then changed under it, needs one record
    /// more than the reserve has. May wait on `log_space`; callers hold no latch.
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
            if state.space_waiters.is_empty() && !self.is_short(&state, bytes) && self.files_fit(&state, bytes) {
                state.credits += bytes;
                return Ok(LogCredit { log: self, bytes });
            }
            if let Some(pipeline) = self.pipeline.as_ref().filter(|_| self.is_short(&state, bytes)) {
                let next = state.next;
                let stage = if self.sync_fits(&state, bytes) { Stage::Written } else { Stage::Flushed };
                if pipeline.is_running() {
                    pipeline.ask(stage, next);
                } else if pipeline.lacks(stage, next) {
                    drop(state);
                    pipeline.wait(self, next, stage)?;
                    state = self.state.lock();
                    continue;
                }
            } else if self.is_short(&state, bytes) && !state.leader_at_work && state.next > state.durable {
                // The buffer is short and no thread is writing it: this thread leads a flush rather than wait.
                state.leader_at_work = true;
                self.lead(state, Stage::Flushed)?;
                state = self.state.lock();
                continue;
            }
            let handoff = Handoff::new();
            let (is_full, is_short) = (!self.files_fit(&state, bytes), self.is_short(&state, bytes));
            state.space_waiters.push_back(SpaceWaiter { bytes, handoff: Arc::clone(&handoff) });
            drop(state);
            self.ring_for_space(is_full, is_short);
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

    /// Grants space to the waiters, oldest first.
    pub(super) fn grant_space(&self, state: &mut LogState) {
        while let Some(front) = state.space_waiters.front() {
            let bytes = front.bytes;
            let (is_full, is_short) = (!self.files_fit(state, bytes), self.is_short(state, bytes));
            if is_full || is_short {
                self.ask_for_sync(state, bytes);
                self.ring_for_space(is_full, is_short);
                return;
            }
            state.credits += bytes;
            if let Some(waiter) = state.space_waiters.pop_front() {
                waiter.handoff.give(true);
            }
        }
    }

    /// Asks the flusher for a sync if `bytes` more need one (REDO-13). Without a pipeline, `mp-log` sees to it.
    fn ask_for_sync(&self, state: &LogState, bytes: u64) {
        if let Some(pipeline) = self.pipeline.as_ref().filter(|_| !self.sync_fits(state, bytes)) {
            pipeline.ask(Stage::Flushed, state.next);
        }
    }

    /// Wakes the threads that make space: the keeper if the files are full, `mp-log` if the buffer is short.
    fn ring_for_space(&self, is_full: bool, is_short: bool) {
        if is_full {
            self.bell.ring();
        }
        if is_short {
            self.flusher_bell.ring();
        }
    }
}
