//! Several pages read together: ahead of who needs them, or for one who needs them all.

use std::collections::hash_map;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::Pin;
use super::frame_ticket::FrameTicket;
use super::residence::Reading;
use super::table::Entry;
use crate::base::aligned::to_u64;
use crate::base::ids::{FrameId, PageId};
use crate::base::waits::WaitClass;

/// Pages that are read together at most for one who needs them all.
const TOGETHER: usize = 32;

impl Pool {
    /// Reads those of `ids` that are not in memory, all together, as far as frames are free at once. Who misses one
    /// meanwhile waits for it here. A page that cannot be read is not there afterwards: who loads it learns why.
    pub(crate) fn load_many(&self, ids: &[PageId]) {
        let mut readings = Vec::with_capacity(ids.len());
        for &id in ids {
            if self.table.shard(id).contains_key(&id) {
                continue;
            }
            // The last free frames are for those who cannot go on without one.
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

    /// Frames for those of `ids` that are not in memory, where so many are not free: as many as are read together at
    /// first. Who took them one by one, as they come free, would wait as often. None: then they are free, or with the
    /// classic policies others' to free. May wait on `free_frame`; callers hold no latch and no pin, and have leave to
    /// [pin](Self::admit_batch) so many.
    pub(crate) fn frames_for(&self, ids: &[PageId]) -> Vec<FrameTicket<'_>> {
        let missing = ids.iter().filter(|id| !self.is_known(**id)).count();
        let count = self.most_together().min(missing);
        if !self.is_handoff() || count < 2 || self.free_frames() / 2 >= count {
            return Vec::new();
        }
        // An error: the pool became too small for that, or the engine has failed, and who loads a page comes to it.
        self.take_frames(count).unwrap_or_default()
    }

    /// Frames that anybody waits for at once at most: what is read together, or the two of a split. All behind who
    /// waited for more than can come free would wait for ever.
    pub(super) fn most_awaited(&self) -> usize {
        self.most_together().max(2)
    }

    /// Pages that are read together at most.
    fn most_together(&self) -> usize {
        (self.len() / 64).clamp(1, TOGETHER)
    }

    /// Pins the pages `ids`. Those that are not in memory are read together, a few dozen at a time, the first into
    /// `tickets`, the others as far as frames are free: half of these are left to others. A page that cannot be read is
    /// left out: who loads it learns why. May wait on `page_read`, and with the classic policies on `free_frame`;
    /// callers hold no latch, and have leave to [pin](Self::admit_batch) so many.
    pub(crate) fn load_together<'p>(&'p self, ids: &[PageId], mut tickets: Vec<FrameTicket<'p>>) -> Vec<Pin<'p>> {
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
            let tickets = match std::mem::take(&mut tickets) {
                given if !given.is_empty() => given,
                _ => match self.next_frames(left, pins.is_empty()) {
                    Some(taken) => taken,
                    None => break,
                },
            };
            // More were asked for than are missing by now: these are given back.
            let (now, later) = left.split_at(tickets.len().min(left.len()));
            left = later;
            let begun = now.iter().zip(tickets).filter_map(|(id, ticket)| self.begin_reading(*id, ticket));
            pins.extend(self.read_all(begun.collect(), 1).into_iter().map(|frame| self.pinned(frame)));
        }
        pins
    }

    /// Frames for some of the pages `left`, which are missing; `None`: somebody else would have to free one.
    fn next_frames(&self, left: &[PageId], holds_nothing: bool) -> Option<Vec<FrameTicket<'_>>> {
        let most = self.most_together().min(left.len());
        let free = self.take_free((self.free_frames() / 2).clamp(1, most));
        if free.is_some() || self.is_handoff() {
            return free;
        }
        // Nobody makes frames free ahead of need: one by one, then, as who misses one page takes it. Asleep with
        // `backoff` they hold no more than their places.
        if holds_nothing || self.is_managed() {
            return self.take_frame_for(left[0]).ok().map(|ticket| vec![ticket]);
        }
        self.take_frame_holding(left[0]).ok().flatten().map(|ticket| vec![ticket])
    }

    /// Makes the page's entry READING, unless it has one.
    fn begin_reading<'p>(&'p self, id: PageId, ticket: FrameTicket<'p>) -> Option<(Reading<'p>, FrameTicket<'p>)> {
        if let hash_map::Entry::Vacant(place) = self.table.shard(id).entry(id) {
            place.insert(Entry::Reading(ticket.frame, Vec::new()));
        } else {
            return None;
        }
        Some((Reading::new(self, id, ticket.frame), ticket))
    }

    /// Carries out reads that have begun. Returns the frames of the pages that are there, each with so many pins.
    fn read_all(&self, readings: Vec<(Reading<'_>, FrameTicket<'_>)>, pins: u32) -> Vec<FrameId> {
        let results = {
            // As in `read_into`, nobody waits for these latches.
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
                        // It is about to be changed: that it leaves soon would cost a write beside the read.
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
