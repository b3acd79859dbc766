//! How the log goes over to another ring of files while it is open.

use std::sync::Arc;

use super::credits::LogCredit;
use super::files::Ring;
use super::group::{GROUP_FRAME_LEN, GroupKind};
use super::log::Log;
use crate::base::aligned::{round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;

/// What may be logged until a superblock names the new ring, as a part of the room that is left, and at most: who logs
/// no more does not wait for that superblock. When nobody writes it is filled with padding.
const LEFT_PART: u64 = 4;
const LEFT_MAX: u64 = 4 << 20;

impl Log {
    /// Adds a second ring, which begins a part of the room that is left behind the promises given: so much may be
    /// logged before [`open_ring`](Self::open_ring), and nothing into the ring.
    pub(crate) fn add_ring(&self, ring: Ring) -> Result<(), Error> {
        let mut state = self.state.lock();
        Self::check(&state)?;
        if state.files.switch().is_some() {
            return Err(Error::Bug("REDO: the log goes over to another ring already".into()));
        }
        let promised = state.next.0 + state.credits;
        let room = state.files.wall(state.checkpoint).0.saturating_sub(promised + self.reserve);
        let at = Lsn(round_up(promised + (room / LEFT_PART).min(LEFT_MAX)));
        state.files = Arc::new(state.files.with_second(at, ring));
        state.closed_from = Some(at);
        Ok(())
    }

    /// A superblock names the second ring: it may be written.
    pub(crate) fn open_ring(&self) {
        let mut state = self.state.lock();
        state.closed_from = None;
        self.grant_space(&mut state);
    }

    /// Appends padding until the log's end is at `at` or behind it; stops early when the log is too full.
    pub(crate) fn pad_to(&self, at: Lsn) -> Result<(), Error> {
        let longest = to_u64(self.group_max()) - to_u64(GROUP_FRAME_LEN);
        loop {
            let next = self.flush_all()?;
            if next >= at {
                return Ok(());
            }
            let payload = at.since(next).min(longest);
            let credit = {
                let mut state = self.state.lock();
                let bytes = payload + to_u64(GROUP_FRAME_LEN);
                // Who waits for room goes first; and brings the log on, too.
                let waited_for = !state.space_waiters.is_empty();
                if waited_for || !self.buffer_fits(&state, bytes) || !self.files_fit(&state, bytes) {
                    return Ok(());
                }
                state.credits += bytes;
                LogCredit { log: self, bytes }
            };
            self.append(credit, GroupKind::Pages, &vec![0; to_usize(payload)], |_, _| ())?;
        }
    }

    /// No superblock names the first ring any more.
    pub(crate) fn forget_first_ring(&self) {
        let mut state = self.state.lock();
        state.files = Arc::new(state.files.second_alone());
        self.counts.coarsen_for(state.files.capacity());
        // Of other counters, maybe.
        state.noted = u64::MAX;
        self.grant_space(&mut state);
    }
}
