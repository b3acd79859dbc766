//! A group gets its place in the log.

use std::cell::Cell;

use super::credits::LogCredit;
use super::ending::Publishing;
use super::files::Lap;
use super::group::{GROUP_FRAME_LEN, GroupKind, Place, epoch_payload, payload_crc, write_group};
use super::log::{EPOCH_LEN, Log};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;

thread_local! {
    /// Bytes that this thread has appended since the last `take_appended`.
    static APPENDED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the bytes of log that this thread has appended since the last call, and resets the count.
pub(crate) fn take_appended() -> u64 {
    APPENDED.replace(0)
}

/// Sets the count of this thread's appended bytes.
pub(crate) fn set_appended(bytes: u64) {
    APPENDED.set(bytes);
}

impl Log {
    /// Appends a group, using up `credit`. `mark` runs with the group's begin, before any later group gets a place.
    /// With the classic window it runs later, but before the checkpoint may pass the group.
    pub(crate) fn append(
        &self,
        credit: LogCredit<'_>,
        kind: GroupKind,
        payload: &[u8],
        mark: impl FnOnce(Lsn),
    ) -> Result<Lsn, Error> {
        self.append_latched(credit, kind, payload, |_| {}, mark, |_| {})
    }

    /// As [`append`](Self::append), with page latches held. `order` runs with the group's end, in every log mode before
    /// any later group gets a place. `in_window` receives the microseconds of each further nap that the window has
    /// imposed on the caller.
    pub(crate) fn append_latched(
        &self,
        mut credit: LogCredit<'_>,
        kind: GroupKind,
        payload: &[u8],
        order: impl FnOnce(Lsn),
        mark: impl FnOnce(Lsn),
        in_window: impl Fn(u32),
    ) -> Result<Lsn, Error> {
        let len = to_u64(payload.len() + GROUP_FRAME_LEN);
        assert!(len <= credit.bytes, "REDO-2: a group of {len} bytes had a credit of {} only", credit.bytes);
        let crc = payload_crc(payload);
        // Ends with the group's place taken, or the log failed. Declared before the guard of the mutex, since its drop
        // locks it.
        let mut publishing = Publishing { log: self, has_gap: false, is_over: false };
        let mut state = self.state.lock();
        if let Err(error) = Self::check(&state) {
            publishing.is_over = true;
            return Err(error);
        }
        let (start, durable) = (state.next, state.durable);
        let was_half_full = self.is_half_full(&state);
        let end = start.plus(len);
        if planted!("publish_before_copy") {
            state.next = end;
            drop(state);
            state = self.state.lock();
        }
        let place = Place { nonce: state.nonce(), at: start };
        let write = |group: &mut [u8]| write_group(group, place, durable, kind, payload, crc);
        // REDO-12: the group is whole before `next` shows it.
        let group = match &self.pipeline {
            Some(_) => {
                let mut group = vec![0; to_usize(len)];
                write(&mut group);
                group
            }
            None => {
                let from = to_usize(start.since(state.pending_start));
                write(&mut state.pending[from..from + to_usize(len)]);
                Vec::new()
            }
        };
        if self.counts.bucket(start) != state.noted {
            state.noted = self.counts.bucket(start);
            self.counts.note_group(start);
        }
        publishing.has_gap = self.pipeline.is_some();
        state.next = end;
        let mut order = Some(order);
        if !planted!("ordered_after_the_mutex") {
            order.take().into_iter().for_each(|order| order(end));
        }
        let mut mark = Some(mark);
        match &self.recent_closed {
            None => mark.take().into_iter().for_each(|mark| mark(start)),
            // CLOSED-2
            Some(_) if planted!("window_not_counted") => {}
            Some(_) => self.counts.add(start),
        }
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
        let is_to_be_written = !state.leader_at_work && !was_half_full && self.is_half_full(&state);
        drop(state);
        if is_to_be_written {
            self.flusher_bell.ring();
        }
        if let Some(pipeline) = &self.pipeline {
            pipeline.copy(&group, start);
            publishing.has_gap = false;
        }
        if let Some(window) = &self.recent_closed {
            window.enter(start, &self.waits, in_window);
            mark.take().into_iter().for_each(|mark| mark(start));
            window.leave(start, end);
            if !planted!("window_not_counted") {
                self.counts.remove(start);
            }
        }
        order.take().into_iter().for_each(|order| order(end));
        publishing.is_over = true;
        Ok(end)
    }

    /// Begins a new epoch: from here on groups are sealed with `nonce`. Durable on return. No other thread uses the log
    /// yet.
    pub(crate) fn begin_epoch(&self, nonce: u64) -> Result<(), Error> {
        let payload = epoch_payload(nonce);
        debug_assert_eq!(to_u64(payload.len() + GROUP_FRAME_LEN), EPOCH_LEN);
        let credit = self.reserve_behind_writers(payload.len(), 0)?;
        let end = self.append(credit, GroupKind::Epoch, &payload, |_| ())?;
        {
            let mut state = self.state.lock();
            state.epochs.push((end, nonce));
            state.laps.iter_mut().for_each(|lap| lap.nonce = nonce);
            if planted!("epoch_not_synced") {
                (state.written, state.durable) = (end, end);
                return Ok(());
            }
        }
        self.flush_wait(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_thread_are_counted_until_they_are_taken() {
        set_appended(7);
        assert_eq!((take_appended(), take_appended()), (7, 0));
    }
}
