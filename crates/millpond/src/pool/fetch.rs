//! Pages in memory: how a thread finds and pins them, and how a new page gets its frame. Other pages are
//! [read](super::residence).

use std::sync::atomic::Ordering;

use crossbeam_epoch::Guard;

use super::buffer_pool::Pool;
use super::frame_ticket::FrameTicket;
use super::pin::{HeldBy, PageRead, PageWrite, Pin};
use super::route::{FrameHint, Route};
use super::table::Entry;
use crate::base::ids::{FrameId, PageId};

impl Pool {
    /// A [`Pin`] for the page in `frame`, whose pin count has it already.
    pub(super) fn pinned(&self, frame: FrameId) -> Pin<'_> {
        Pin { pool: self, frame, held_by: HeldBy::Count }
    }

    /// Pins the page in `frame`, as its shard's entry says; the shard's mutex is held.
    pub(super) fn pin(&self, frame: FrameId) -> Pin<'_> {
        let meta = self.frame(frame);
        // Relaxed: eviction checks the pins under the shard's mutex.
        meta.pins.fetch_add(1, Ordering::Relaxed);
        self.touch(frame, meta);
        self.pinned(frame)
    }

    /// Pins the page for a page writer, if it is in memory; not counted as a use.
    pub(super) fn fetch_cold(&self, id: PageId) -> Option<Pin<'_>> {
        match self.table.shard(id).get(&id) {
            Some(Entry::Resident(frame)) => {
                self.frame(*frame).pins.fetch_add(1, Ordering::Relaxed);
                Some(Pin { pool: self, frame: *frame, held_by: HeldBy::Writer })
            }
            _ => None,
        }
    }

    /// Pins the page in `frame`, which has a pin already, once more for a page writer; not counted as a use.
    pub(crate) fn pin_again(&self, frame: FrameId) -> Pin<'_> {
        // Relaxed: the pin that is there keeps the page.
        let pins = self.frame(frame).pins.fetch_add(1, Ordering::Relaxed);
        debug_assert!(pins > 0, "POOL-3: a page without a pin may leave");
        Pin { pool: self, frame, held_by: HeldBy::Writer }
    }

    /// Pins the page, if it is in memory.
    pub(crate) fn fetch(&self, id: PageId) -> Option<Pin<'_>> {
        match self.table.shard(id).get(&id) {
            Some(Entry::Resident(frame)) => Some(self.pin(*frame)),
            _ => None,
        }
    }

    /// The copy of inner page `id`, if there is one. `hint` says where the page may be, and is corrected.
    pub(crate) fn route<'g>(&'g self, id: PageId, hint: &FrameHint, guard: &'g Guard) -> Option<&'g Route> {
        let at = |frame: FrameId| {
            let meta = self.frame(frame);
            let route = meta.route(guard).filter(|route| route.view().header().page_id.get() == id.0)?;
            self.touch(frame, meta);
            Some(route)
        };
        hint.get().and_then(at).or_else(|| {
            let frame = match self.table.shard(id).get(&id) {
                Some(Entry::Resident(frame)) => *frame,
                _ => return None,
            };
            hint.set(frame);
            at(frame)
        })
    }

    /// Latches the page shared, if it is where `hint` says and the latch is free. The latch alone keeps it in its
    /// frame.
    pub(crate) fn read_at(&self, id: PageId, hint: &FrameHint) -> Option<PageRead<'_>> {
        let frame = hint.get()?;
        let meta = self.frame(frame);
        // Checked before as well: another page may be on its way into the frame, and its latch is not for this thread
        // to wait for.
        if meta.holds() != Some(id) {
            return None;
        }
        let guard = meta.page.try_read()?;
        if meta.holds() != Some(id) {
            return None;
        }
        self.touch(frame, meta);
        Some(PageRead::new(guard, Pin { pool: self, frame, held_by: HeldBy::Latch }))
    }

    /// The same, with an exclusive latch.
    pub(crate) fn write_at(&self, id: PageId, hint: &FrameHint) -> Option<PageWrite<'_>> {
        let frame = hint.get()?;
        let meta = self.frame(frame);
        if meta.holds() != Some(id) {
            return None;
        }
        let guard = meta.page.try_write()?;
        if meta.holds() != Some(id) {
            return None;
        }
        self.touch(frame, meta);
        Some(PageWrite::new(guard, Pin { pool: self, frame, held_by: HeldBy::Latch }))
    }

    /// Puts a page that has no image yet into `ticket`'s frame, zeroed and latched exclusively.
    pub(crate) fn install<'p>(&'p self, id: PageId, mut ticket: FrameTicket<'p>) -> PageWrite<'p> {
        ticket.kept = true;
        let frame = ticket.frame;
        let meta = self.frame(frame);
        // No thread holds this latch for long: a thread with an outdated hint only tries, and goes.
        let mut guard = meta.page.write();
        guard.fill(0);
        meta.reset_heat();
        let pin = self.settle(id, frame);
        self.queue(frame, id);
        PageWrite::new(guard, pin)
    }
}
