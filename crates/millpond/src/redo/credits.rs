//! Room in the log's buffer and files, promised before the first latch: who asks, who waits, who is granted it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::group::GROUP_FRAME_LEN;
use super::log::{Log, LogState, MAP_RECORD_MAX, SpaceWaiter};
use super::pipeline::Stage;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::waits::WaitClass;

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
    pub(super) fn buffer_fits(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.pending_start) + state.credits + bytes + self.clean_band() <= self.buffer_bytes
    }

    /// REDO-13
    pub(super) fn sync_fits(&self, state: &LogState, bytes: u64) -> bool {
        state.next.since(state.durable) + state.credits + bytes <= self.behind || planted!("sync_not_bounded")
    }

    /// Whether writers have to wait until the log is written, or synced.
    pub(super) fn is_short(&self, state: &LogState, bytes: u64) -> bool {
        !self.buffer_fits(state, bytes) || !self.sync_fits(state, bytes)
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
                    // Promised room ends before the ring: this group might push the last ones into it.
                    return Err(Error::Bug("REDO: pages are cleaned while a ring of the log is not open".into()));
                }
                let end = state.next.plus(state.credits + bytes);
                let behind = state.next.since(state.durable) + state.credits + bytes;
                let fits = state.next.since(state.pending_start) + state.credits + bytes <= self.buffer_bytes;
                // What writers leave of the 32 bits is more than the buffer has.
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

    /// As [`reserve`](Self::reserve), if it is to be had without waiting.
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
                // The buffer is short and no thread is writing it: do it, rather than wait for another.
                state.leader_at_work = true;
                self.lead(state, Stage::Flushed)?;
                state = self.state.lock();
                continue;
            }
            let handoff = Handoff::new();
            let (is_full, is_short) = (!self.files_fit(&state, bytes), self.is_short(&state, bytes));
            state.space_waiters.push_back(SpaceWaiter { bytes, handoff: Arc::clone(&handoff) });
            self.ask_for_sync(&state, bytes);
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

    /// Grants room to those who wait for it, oldest first.
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

    /// Has the thread that syncs the log do so, where the oldest waiter needs that (REDO-13). Without threads `mp-log`
    /// does.
    fn ask_for_sync(&self, state: &LogState, bytes: u64) {
        if let Some(pipeline) = self.pipeline.as_ref().filter(|_| !self.sync_fits(state, bytes)) {
            pipeline.ask(Stage::Flushed, state.next);
        }
    }

    /// Has those work who make room: in the files, where these are full, and in the buffer, where that is short.
    fn ring_for_space(&self, is_full: bool, is_short: bool) {
        if is_full {
            self.bell.ring();
        }
        if is_short {
            self.flusher_bell.ring();
        }
    }
}
