//! How pages come into frames, and leave them.
//!
//! A page that is not in memory is read once, however many want it: who has a frame for it first makes its entry
//! READING, the others wait for that read, and all learn how it ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame::Pin;
use super::frame_ticket::FrameTicket;
use super::table::{Entry, Shard};
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{FrameId, PageId};
use crate::base::waits::WaitClass;

/// What became of a candidate.
pub(super) enum Evicted {
    /// The frame is free; it held this page.
    Free(Option<PageId>),
    InUse,
    Dirty,
}

/// A read under way, whose READING entry is ours.
pub(super) struct Reading<'p> {
    pool: &'p Pool,
    pub(super) id: PageId,
    ended: bool,
}

impl<'p> Reading<'p> {
    /// The entry was just made READING.
    pub(super) fn new(pool: &'p Pool, id: PageId) -> Self {
        Reading { pool, id, ended: false }
    }

    /// Ends the read: the entry says where the page is, or goes; those who waited are told without the mutex.
    pub(super) fn end(&mut self, resident: Option<FrameId>, answer: &Result<(), Arc<Error>>) {
        self.ended = true;
        let mut shard = self.pool.table.shard(self.id);
        let entry = match resident {
            Some(frame) => {
                self.pool.frame(frame).set_holds(Some(self.id));
                shard.insert(self.id, Entry::Resident(frame))
            }
            None => shard.remove(&self.id),
        };
        drop(shard);
        let tells_nobody = cfg!(planted = "failed_read_tells_nobody") && resident.is_none();
        if let Some(Entry::Reading(waiters)) = entry
            && !tells_nobody
        {
            waiters.iter().for_each(|waiter| waiter.give(answer.clone()));
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Only when the device panicked: nobody may wait for a thread that is gone.
        if !self.ended {
            let why = Error::Bug(format!("the thread that read page {} panicked", self.id).into());
            self.end(None, &Err(Arc::new(why)));
        }
    }
}

impl Pool {
    /// The page, read from the device if need be. May wait on `free_frame` and `page_read`; callers hold no latch.
    pub(crate) fn load(&self, id: PageId) -> Result<Pin<'_>, Error> {
        loop {
            let reading = match self.table.shard(id).get_mut(&id) {
                Some(Entry::Resident(frame)) => return Ok(self.pin(*frame)),
                Some(Entry::Reading(waiters)) => {
                    let handoff = Handoff::new();
                    waiters.push(Arc::clone(&handoff));
                    Some(handoff)
                }
                None => None,
            };
            if let Some(handoff) = reading {
                handoff.take_wait(WaitClass::PageRead, &self.waits).map_err(|error| error.once_more())?;
                continue;
            }
            let ticket = self.take_frame()?;
            let ours = {
                let mut shard = self.table.shard(id);
                let free = cfg!(planted = "two_read_one_page") || !shard.contains_key(&id);
                if free {
                    shard.insert(id, Entry::Reading(Vec::new()));
                }
                free
            };
            if ours {
                return self.read_into(id, ticket);
            }
        }
    }

    /// Reads the page into the frame in hand.
    fn read_into<'p>(&'p self, id: PageId, mut ticket: FrameTicket<'p>) -> Result<Pin<'p>, Error> {
        let mut reading = Reading::new(self, id);
        let meta = self.frame(ticket.frame);
        // Nobody waits for this latch: the frame has no page, and who comes by an old hint only tries.
        let read = self.waits.timed(WaitClass::PageRead, || self.store.read(id, &mut meta.page.write()));
        if let Err(error) = read {
            reading.end(None, &Err(Arc::new(error.once_more())));
            return Err(error);
        }
        ticket.kept = true;
        // Ours already: it cannot leave before we have seen it. Its first use is noted when we come for it again.
        meta.pins.fetch_add(1, Ordering::Relaxed);
        meta.reset_heat();
        reading.end(Some(ticket.frame), &Ok(()));
        self.replacement.lock().admit(ticket.frame, id);
        Ok(self.pinned(ticket.frame))
    }

    /// Takes the page out of the table if nobody uses it and it is clean. The frame is out of the queues, and the
    /// caller's afterwards.
    pub(super) fn evict(&self, frame: FrameId) -> Evicted {
        let meta = self.frame(frame);
        let Some(id) = meta.holds() else { return Evicted::Free(None) };
        self.evict_from(&mut self.table.shard(id), frame, id)
    }

    /// Throws page `id` of a dropped space out of `frame`, if it is there: it is clean from now on, and leaves unless
    /// somebody is just looking at it.
    pub(super) fn discard(&self, frame: FrameId, id: PageId) {
        let mut shard = self.table.shard(id);
        // Under the shard's mutex no page comes into the frame and none leaves it.
        if self.frame(frame).holds() == Some(id) {
            self.dirty.forget(frame);
            let _ = self.evict_from(&mut shard, frame, id);
        }
    }

    fn evict_from(&self, shard: &mut Shard, frame: FrameId, id: PageId) -> Evicted {
        let meta = self.frame(frame);
        if meta.holds() != Some(id) {
            // Discarded meanwhile.
            return Evicted::Free(None);
        }
        // Acquire: pairs with the Release of the last unpin.
        if meta.pins.load(Ordering::Acquire) > 0 {
            return Evicted::InUse;
        }
        if self.dirty.since(frame).is_some() {
            return Evicted::Dirty;
        }
        // Who came by a hint has the latch and no pin.
        let Some(guard) = meta.page.try_write() else { return Evicted::InUse };
        // Between the look and the latch it may have been dirtied, or pinned: by one who had the latch and no pin.
        if self.dirty.since(frame).is_some() {
            return Evicted::Dirty;
        }
        if meta.pins.load(Ordering::Acquire) > 0 {
            return Evicted::InUse;
        }
        shard.remove(&id);
        meta.set_holds(None);
        self.clear_route(frame);
        drop(guard);
        Evicted::Free(Some(id))
    }
}
