//! The move of the open log to another ring of files.

use std::sync::Arc;

use super::credits::LogCredit;
use super::files::Ring;
use super::group::{GROUP_FRAME_LEN, GroupKind};
use super::log::Log;
use crate::base::aligned::{round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;

/// Room for log until a superblock names the new ring: this part of the remaining room, and at most this many bytes.
/// Writers that need no more do not wait for that superblock. Without writers, padding fills it.
const LEFT_PART: u64 = 4;
const LEFT_MAX: u64 = 4 << 20;

impl Log {
    /// Adds a second ring. It begins behind all granted space plus a part of the remaining room. Until
    /// [`open_ring`](Self::open_ring) the log may grow up to the ring, but not into it.
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

    /// Lets the log grow into the second ring: a superblock names it.
    pub(crate) fn open_ring(&self) {
        let mut state = self.state.lock();
        state.closed_from = None;
        self.grant_space(&mut state);
    }

    /// Appends padding until the log's end is at or behind `at`. Stops early if the log is too full.
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
                // Waiters for space go first; their groups advance the log, too.
                let waited_for = !state.space_waiters.is_empty();
                if waited_for || !self.buffer_fits(&state, bytes) || !self.files_fit(&state, bytes) {
                    return Ok(());
                }
                state.credits += bytes;
                LogCredit { log: self, bytes }
            };
            self.append(credit, GroupKind::Pages, &vec![0; to_usize(payload)], |_| ())?;
        }
    }

    /// Drops the first ring, which no superblock names any more.
    pub(crate) fn forget_first_ring(&self) {
        let mut state = self.state.lock();
        state.files = Arc::new(state.files.second_alone());
        self.counts.coarsen_for(state.files.capacity());
        // The counters may have other buckets now.
        state.noted = u64::MAX;
        self.grant_space(&mut state);
    }
}
