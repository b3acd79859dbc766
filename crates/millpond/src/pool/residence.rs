//! How pages enter frames and leave them.
//!
//! A page that is not in memory is read once, however many threads want it. The first thread with a frame for it makes
//! its entry READING. The other threads wait for that read, and all of them learn how it ended.
//!
//! POOL-6  A reader with an outdated link may still be reading a page that was given back when its id is allocated
//!         again. The new page replaces the entry, and the read's waiters look the page up again. A reader compares the
//!         entry's frame with its own. If they differ, it gives its frame back and looks the page up again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::frame_ticket::FrameTicket;
use super::pin::Pin;
use super::table::{Entry, Shard};
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{FrameId, PageId};
use crate::base::waits::WaitClass;

/// The outcome of an eviction.
pub(super) enum Evicted {
    /// The frame is free; it held this page.
    Free(Option<PageId>),
    InUse,
    Dirty,
}

/// A read under way that made a READING entry.
pub(super) struct Reading<'p> {
    pool: &'p Pool,
    pub(super) id: PageId,
    frame: FrameId,
    ended: bool,
}

impl<'p> Reading<'p> {
    /// For an entry that was just made READING, into `frame`.
    pub(super) fn new(pool: &'p Pool, id: PageId, frame: FrameId) -> Self {
        Reading { pool, id, frame, ended: false }
    }

    /// Ends the read. The entry says where the page is, with `pins` on it, or is removed. The waiters are told after
    /// the mutex is released. False: the entry is no longer this read's (POOL-6), and the page is not in its frame.
    pub(super) fn end(&mut self, answer: &Result<(), Arc<Error>>, pins: u32) -> bool {
        self.ended = true;
        let mut shard = self.pool.table.shard(self.id);
        let ours = matches!(shard.get(&self.id), Some(Entry::Reading(frame, _)) if *frame == self.frame);
        if !ours && !planted!("stale_read_installs_page") {
            return false;
        }
        let entry = if answer.is_ok() {
            let meta = self.pool.frame(self.frame);
            meta.set_holds(Some(self.id));
            // Under the mutex: the page cannot leave before its reader has used it.
            meta.pins.fetch_add(pins, Ordering::Relaxed);
            shard.insert(self.id, Entry::Resident(self.frame))
        } else {
            shard.remove(&self.id)
        };
        drop(shard);
        if !planted!("failed_read_tells_no_waiter") || answer.is_ok() {
            tell(entry, answer);
        }
        true
    }
}

/// Tells the waiters of an entry that was replaced.
fn tell(entry: Option<Entry>, answer: &Result<(), Arc<Error>>) {
    if let Some(Entry::Reading(_, waiters)) = entry {
        waiters.iter().for_each(|waiter| waiter.give(answer.clone()));
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Only when the device panicked: no thread may wait for a dead one.
        if !self.ended {
            let why = Error::Bug(format!("the thread that read page {} panicked", self.id).into());
            let _ = self.end(&Err(Arc::new(why)), 0);
        }
    }
}

impl Pool {
    /// Pins the page, reading it from the device if need be. May wait on `free_frame` and `page_read`; callers hold no
    /// latch.
    pub(crate) fn load(&self, id: PageId) -> Result<Pin<'_>, Error> {
        let pin = self.load_with(id, || self.take_frame_for(id).map(Some))?;
        pin.ok_or_else(|| Error::Bug("POOL-2: a waiter got no frame".into()))
    }

    /// The same for a caller that keeps other pages pinned. `None`: the caller would have to wait until another thread
    /// frees a frame, and is to unpin its pages first.
    pub(super) fn load_holding(&self, id: PageId) -> Result<Option<Pin<'_>>, Error> {
        self.load_with(id, || self.take_frame_holding(id))
    }

    /// Pins the page, reading it if need be into a frame from `take`. `None`: `take` has none.
    fn load_with<'p>(
        &'p self,
        id: PageId,
        take: impl Fn() -> Result<Option<FrameTicket<'p>>, Error>,
    ) -> Result<Option<Pin<'p>>, Error> {
        loop {
            let reading = match self.table.shard(id).get_mut(&id) {
                Some(Entry::Resident(frame)) => return Ok(Some(self.pin(*frame))),
                Some(Entry::Reading(_, waiters)) => {
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
            let Some(ticket) = take()? else { return Ok(None) };
            let ours = {
                let mut shard = self.table.shard(id);
                let free = planted!("two_read_one_page") || !shard.contains_key(&id);
                if free {
                    shard.insert(id, Entry::Reading(ticket.frame, Vec::new()));
                }
                free
            };
            if ours && let Some(pin) = self.read_into(id, ticket)? {
                return Ok(Some(pin));
            }
        }
    }

    /// Reads the page into the frame in hand. `None`: the id was allocated again meanwhile (POOL-6).
    fn read_into<'p>(&'p self, id: PageId, mut ticket: FrameTicket<'p>) -> Result<Option<Pin<'p>>, Error> {
        let mut reading = Reading::new(self, id, ticket.frame);
        let meta = self.frame(ticket.frame);
        // No thread waits for this latch: the frame has no page, and a thread with an outdated hint only tries.
        let read = self.waits.timed(WaitClass::PageRead, || self.store.read(id, &mut meta.page.write()));
        if let Err(error) = read {
            let ours = reading.end(&Err(Arc::new(error.once_more())), 0);
            return if ours { Err(error) } else { Ok(None) };
        }
        // The first use is noted when the operation comes to the page again.
        meta.reset_heat();
        if !reading.end(&Ok(()), 1) {
            return Ok(None);
        }
        ticket.kept = true;
        self.queue(ticket.frame, id);
        Ok(Some(self.pinned(ticket.frame)))
    }

    /// Enters the new page `id` into the table, in `frame`, which the caller has latched exclusively.
    pub(super) fn settle(&self, id: PageId, frame: FrameId) -> Pin<'_> {
        let mut shard = self.table.shard(id);
        let before = shard.insert(id, Entry::Resident(frame));
        let other = matches!(before, Some(Entry::Resident(_)));
        debug_assert!(!other, "POOL-1: a new page {id} is not in the table");
        self.frame(frame).set_holds(Some(id));
        let pin = self.pin(frame);
        drop(shard);
        // POOL-6
        tell(before, &Ok(()));
        pin
    }

    /// Throws page `id`, which was given back, out of its frame. False: a thread is just using it; try again later.
    pub(crate) fn discard_freed(&self, id: PageId) -> bool {
        let mut shard = self.table.shard(id);
        let Some(Entry::Resident(frame)) = shard.get(&id) else { return true };
        let frame = *frame;
        if !planted!("freed_page_written") {
            // PAGE-5
            self.dirty.forget(frame);
        }
        let is_out = matches!(self.evict_from(&mut shard, frame, id), Evicted::Free(_));
        drop(shard);
        if is_out {
            self.discarded(frame);
        }
        is_out
    }

    /// Evicts the page in `frame` if it is clean and unused. The frame is then out of the queues and the caller's. A
    /// frame whose page was [discarded](Self::discard) has none, and is found here, in its queue.
    pub(super) fn evict(&self, frame: FrameId) -> Evicted {
        let meta = self.frame(frame);
        let Some(id) = meta.holds() else { return self.without_page(frame) };
        self.evict_from(&mut self.table.shard(id), frame, id)
    }

    /// Discards page `id` of a dropped space from `frame`, if it is there: the page becomes clean, and leaves unless a
    /// thread is just using it.
    pub(super) fn discard(&self, frame: FrameId, id: PageId) {
        let mut shard = self.table.shard(id);
        // Under the shard's mutex no page enters or leaves the frame.
        if self.frame(frame).holds() == Some(id) {
            self.dirty.forget(frame);
            let evicted = self.evict_from(&mut shard, frame, id);
            drop(shard);
            if matches!(evicted, Evicted::Free(_)) {
                self.discarded(frame);
            }
        }
    }

    fn evict_from(&self, shard: &mut Shard, frame: FrameId, id: PageId) -> Evicted {
        let meta = self.frame(frame);
        if meta.holds() != Some(id) {
            // The page was discarded meanwhile.
            return self.without_page(frame);
        }
        // Acquire: pairs with the Release of the last unpin.
        if meta.pins.load(Ordering::Acquire) > 0 {
            return Evicted::InUse;
        }
        if self.dirty.since(frame).is_some() {
            return Evicted::Dirty;
        }
        // A thread that came by a hint has the latch and no pin.
        let Some(guard) = meta.page.try_write() else { return Evicted::InUse };
        // Before the latch was taken, a thread with the latch and no pin may have dirtied or pinned the page.
        if self.dirty.since(frame).is_some() {
            return Evicted::Dirty;
        }
        if meta.pins.load(Ordering::Acquire) > 0 {
            return Evicted::InUse;
        }
        if !self.leaves(frame) {
            return Evicted::InUse;
        }
        shard.remove(&id);
        meta.set_holds(None);
        self.clear_route(frame);
        drop(guard);
        Evicted::Free(Some(id))
    }
}
