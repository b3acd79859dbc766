//! Reads of several pages together: ahead of need, or for one thread that needs them all.

use std::collections::hash_map;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame_ticket::FrameTicket;
use super::pin::Pin;
use super::residence::Reading;
use super::table::Entry;
use crate::base::aligned::to_u64;
use crate::base::ids::{FrameId, PageId};
use crate::base::waits::WaitClass;

/// Most pages that one thread reads together for its own use.
const TOGETHER: usize = 32;

impl Pool {
    /// Reads those of `ids` that are not in memory, all together, as far as frames are free at once. A thread that
    /// misses one of them meanwhile waits for this read. A page that cannot be read has no entry afterwards: the next
    /// thread that loads it gets the error.
    pub(crate) fn load_many(&self, ids: &[PageId]) {
        let mut readings = Vec::with_capacity(ids.len());
        for &id in ids {
            if self.table.shard(id).contains_key(&id) {
                continue;
            }
            // The last free frames are for threads that cannot go on without one.
            if self.free_frames() <= self.low() {
                self.ask_keeper();
                break;
            }
            let Some(ticket) = self.take_free(1).and_then(|mut tickets| tickets.pop()) else { break };
            readings.extend(self.begin_reading(id, ticket));
        }
        self.counters.read_ahead.fetch_add(to_u64(readings.len()), Ordering::Relaxed);
        self.read_all(readings, 0);
    }

    /// Pins the pages `ids`. The pages not in memory are read together, up to 32 at a time, as far as frames are free:
    /// half of the free frames are left to other threads. A page that cannot be read is left out: the next thread that
    /// loads it gets the error. May wait on `page_read`, and with the classic policies on `free_frame`. Callers hold no
    /// latch and are [admitted](Self::admit_batch) for as many pins.
    pub(super) fn load_together(&self, ids: &[PageId]) -> Vec<Pin<'_>> {
        let mut pins = Vec::with_capacity(ids.len());
        let mut missing = Vec::new();
        for &id in ids {
            match self.fetch(id) {
                Some(pin) => pins.push(pin),
                None => missing.push(id),
            }
        }
        let mut left = missing.as_slice();
        while !left.is_empty() {
            let most = (self.len() / 64).clamp(1, TOGETHER).min(left.len());
            let tickets = match self.take_free((self.free_frames() / 2).clamp(1, most)) {
                Some(tickets) => tickets,
                None if self.is_handoff() => break,
                // No thread frees frames ahead of need: take them one by one, as a single miss does. With `backoff`
                // this thread may sleep while it holds pins: no more than it was admitted for.
                None if pins.is_empty() || self.is_managed() => match self.take_frame_for(left[0]) {
                    Ok(ticket) => vec![ticket],
                    Err(_) => break,
                },
                None => match self.take_frame_holding(left[0]) {
                    Ok(Some(ticket)) => vec![ticket],
                    Ok(None) | Err(_) => break,
                },
            };
            let (now, later) = left.split_at(tickets.len());
            left = later;
            let begun = now.iter().zip(tickets).filter_map(|(id, ticket)| self.begin_reading(*id, ticket));
            pins.extend(self.read_all(begun.collect(), 1).into_iter().map(|frame| self.pinned(frame)));
        }
        pins
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

    /// Carries out reads that have begun. Returns the frames of the pages that were read, each with `pins` pins.
    fn read_all(&self, readings: Vec<(Reading<'_>, FrameTicket<'_>)>, pins: u32) -> Vec<FrameId> {
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
        let mut there = Vec::with_capacity(readings.len());
        for ((mut reading, mut ticket), result) in readings.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    let meta = self.frame(ticket.frame);
                    meta.reset_heat();
                    if pins > 0 {
                        // The caller is about to change the page: to evict it soon would cost a write beside the read.
                        self.touch(ticket.frame, meta);
                    }
                    if reading.end(&Ok(()), pins) {
                        ticket.kept = true;
                        self.queue(ticket.frame, reading.id);
                        there.push(ticket.frame);
                    }
                }
                Err(error) => {
                    let _ = reading.end(&Err(Arc::new(error)), 0);
                }
            }
        }
        there
    }
}
