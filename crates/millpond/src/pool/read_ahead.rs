//! Several pages read together, ahead of who needs them.

use std::collections::hash_map;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame_ticket::FrameTicket;
use super::residence::Reading;
use super::table::Entry;
use crate::base::aligned::to_u64;
use crate::base::ids::PageId;
use crate::base::waits::WaitClass;

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
            if self.free.len() <= self.low() {
                self.ask_keeper();
                break;
            }
            let Some(ticket) = self.free.take(1).and_then(|frames| self.tickets(frames).pop()) else { break };
            if let hash_map::Entry::Vacant(place) = self.table.shard(id).entry(id) {
                place.insert(Entry::Reading(ticket.frame, Vec::new()));
            } else {
                continue;
            }
            readings.push((Reading::new(self, id, ticket.frame), ticket));
        }
        self.counters.read_ahead.fetch_add(to_u64(readings.len()), Ordering::Relaxed);
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
        for ((mut reading, mut ticket), result) in readings.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    self.frame(ticket.frame).reset_heat();
                    if reading.end(&Ok(()), 0) {
                        ticket.kept = true;
                        self.replacement.lock().admit(ticket.frame, reading.id);
                    }
                }
                Err(error) => {
                    let _ = reading.end(&Err(Arc::new(error)), 0);
                }
            }
        }
    }
}
