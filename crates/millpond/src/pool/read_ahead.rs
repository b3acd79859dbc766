//! Reads of several pages together, ahead of need.

use std::collections::hash_map;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::Frame;
use super::frame_ticket::FrameTicket;
use super::residence::Reading;
use super::table::Entry;
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::{FrameId, PageId};
use crate::base::waits::WaitClass;

/// Most pages that one thread reads together for its own use.
const TOGETHER: usize = 32;

impl Pool {
    /// Most pages that a thread is to [load](Self::load_to_change) together for its own use; no more than one: that
    /// does not pay.
    pub(crate) fn window(&self) -> usize {
        (self.len() / 64).min(TOGETHER)
    }

    /// Reads those of `ids` that are not in memory, all together, as far as frames are free at once. The last free
    /// frames are for threads that cannot go on without one. A thread that misses one of the pages meanwhile waits for
    /// this read. A page that cannot be read has no entry afterwards: the next thread that loads it gets the error.
    pub(crate) fn load_many(&self, ids: &[PageId]) {
        self.load_leaving(ids, self.low(), |_, _| ());
    }

    /// As [`load_many`](Self::load_many), of pages that the thread is about to change. It leaves fewer frames, and a
    /// page counts as used: to evict it soon would cost a write beside the read.
    pub(crate) fn load_to_change(&self, ids: &[PageId]) {
        self.load_leaving(ids, self.free_frames() / 2, |frame, meta| self.touch(frame, meta));
    }

    /// Most pages that a batch is to [load](Self::load_for_batch) together: as many as come free in a short time, since
    /// other threads may wait behind the batch for one frame.
    pub(crate) fn batch_window(&self) -> usize {
        if self.is_handoff() { (self.target() / 8).clamp(1, TOGETHER) } else { 1 }
    }

    /// Reads those of `ids` that are not in memory, all together, for a batch that is about to change them. `batch` is
    /// a number that is larger for a younger batch. Waits on `free_frame` for all frames at once: otherwise each would
    /// cost a wait.
    pub(crate) fn load_for_batch(&self, ids: &[PageId], batch: u64) -> Result<(), Error> {
        if !ids.is_empty() {
            let tickets = match self.take_frames_for_batch(ids.len(), batch) {
                // The pool was made smaller: one page after the other will do.
                Err(_) if !self.line().stopped() => return Ok(()),
                tickets => tickets?,
            };
            let readings = ids.iter().zip(tickets).filter_map(|(&id, ticket)| self.begin_reading(id, ticket));
            let readings: Vec<_> = readings.collect();
            self.counters.read_ahead.fetch_add(to_u64(readings.len()), Ordering::Relaxed);
            self.read_all(readings, |frame, meta| self.touch(frame, meta));
        }
        Ok(())
    }

    fn load_leaving(&self, ids: &[PageId], leaves: usize, read: impl Fn(FrameId, &Frame)) {
        let mut readings = Vec::with_capacity(ids.len());
        for &id in ids {
            if self.table.shard(id).contains_key(&id) {
                continue;
            }
            if self.free_frames() <= leaves {
                self.ask_keeper();
                break;
            }
            let Some(ticket) = self.take_free(1).and_then(|mut tickets| tickets.pop()) else { break };
            readings.extend(self.begin_reading(id, ticket));
        }
        self.counters.read_ahead.fetch_add(to_u64(readings.len()), Ordering::Relaxed);
        self.read_all(readings, read);
    }

    /// Makes the page's entry READING. `None`: it has an entry already.
    fn begin_reading<'p>(&'p self, id: PageId, ticket: FrameTicket<'p>) -> Option<(Reading<'p>, FrameTicket<'p>)> {
        if let hash_map::Entry::Vacant(place) = self.table.shard(id).entry(id) {
            place.insert(Entry::Reading(ticket.frame, Vec::new()));
        } else {
            return None;
        }
        Some((Reading::new(self, id, ticket.frame), ticket))
    }

    /// Carries out reads that have begun. Calls `read` with the frame of each page that was read.
    fn read_all(&self, readings: Vec<(Reading<'_>, FrameTicket<'_>)>, read: impl Fn(FrameId, &Frame)) {
        let results = {
            // As in `read_into`, no thread waits for these latches.
            let latch = |(reading, ticket): &(Reading<'_>, FrameTicket<'_>)| {
                (reading.id, self.frame(ticket.frame).page.write())
            };
            let mut latched: Vec<_> = readings.iter().map(latch).collect();
            let mut pages: Vec<(PageId, &mut [u8])> =
                latched.iter_mut().map(|(id, page)| (*id, &mut ***page)).collect();
            self.waits.timed(WaitClass::PageRead, || self.store.read_many(&mut pages))
        };
        for ((mut reading, mut ticket), result) in readings.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    let meta = self.frame(ticket.frame);
                    meta.reset_heat();
                    read(ticket.frame, meta);
                    if reading.end(&Ok(()), 0) {
                        ticket.kept = true;
                        self.queue(ticket.frame, reading.id);
                    }
                }
                Err(error) => {
                    let _ = reading.end(&Err(Arc::new(error)), 0);
                }
            }
        }
    }
}
