//! The model's pool: frames, a store, and a thread that evicts.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::sync::atomic::Ordering;

use super::frame::{Frame, PageBuf};
use super::frame_ticket::FrameTicket;
use super::free_frames::{FreeFrames, Taken};
use super::pin::Pin;
use super::residence::Evicted;
use super::table::{Entry, Table};
use crate::base::bell::Bell;
use crate::base::error::Error;
use crate::base::ids::{FrameId, Lsn, PageId};
use crate::base::sync::Mutex;
use crate::base::waits::{WaitClass, Waits};

/// The source of pages.
pub(crate) trait Reads: Send + Sync {
    /// Reads the page. Other threads may run in between.
    fn read(&self, id: PageId) -> Result<(), Error>;
}

pub(super) struct Store(Box<dyn Reads>);

impl Store {
    pub(super) fn read(&self, id: PageId, page: &mut PageBuf) -> Result<(), Error> {
        self.0.read(id)?;
        *page = id.0;
        Ok(())
    }
}

/// No page of the model is ever dirty.
pub(super) struct Clean;

impl Clean {
    pub(super) fn since(&self, _frame: FrameId) -> Option<Lsn> {
        None
    }

    pub(super) fn forget(&self, _frame: FrameId) {}
}

/// Evicts the oldest page.
#[derive(Default)]
pub(super) struct Replacement(VecDeque<FrameId>);

impl Replacement {
    pub(super) fn admit(&mut self, frame: FrameId, _page: PageId) {
        assert!(!self.0.contains(&frame), "POOL-1: a frame is in one place");
        self.0.push_back(frame);
    }
}

pub(crate) struct Pool {
    frames: Vec<Frame>,
    pub(super) table: Table,
    pub(super) replacement: Mutex<Replacement>,
    free: FreeFrames,
    pub(super) dirty: Clean,
    pub(super) store: Store,
    bell: Bell,
    pub(super) waits: Waits,
}

impl Pool {
    pub(crate) fn new(frames: u32, store: Box<dyn Reads>) -> Arc<Pool> {
        let free = FreeFrames::new();
        (0..frames).map(FrameId).for_each(|frame| free.give(frame));
        Arc::new(Pool {
            frames: (0..frames).map(|_| Frame::new()).collect(),
            table: Table::new(),
            replacement: Mutex::default(),
            free,
            dirty: Clean,
            store: Store(store),
            bell: Bell::default(),
            waits: Waits,
        })
    }

    pub(super) fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    pub(super) fn pin(&self, frame: FrameId) -> Pin<'_> {
        let pins = self.frame(frame).pins.fetch_add(1, Ordering::Relaxed);
        assert!(pins < 100, "POOL-3: pinned while it left");
        self.pinned(frame)
    }

    pub(super) fn pinned(&self, frame: FrameId) -> Pin<'_> {
        Pin { pool: self, frame }
    }

    pub(super) fn give(&self, frame: FrameId) {
        self.free.give(frame);
    }

    pub(super) fn unpinned(&self) {
        if self.free.awaited() {
            self.bell.ring();
        }
    }

    pub(super) fn clear_route(&self, _frame: FrameId) {}

    pub(super) fn queue(&self, frame: FrameId, id: PageId) {
        self.replacement.lock().admit(frame, id);
    }

    /// Candidates are out of the queue, and belong to the thread that took them.
    pub(super) fn leaves(&self, _frame: FrameId) -> bool {
        true
    }

    pub(super) fn without_page(&self, _frame: FrameId) -> Evicted {
        Evicted::Free(None)
    }

    pub(super) fn discarded(&self, _frame: FrameId) {}

    pub(super) fn take_frame_for(&self, _id: PageId) -> Result<FrameTicket<'_>, Error> {
        self.take_frame()
    }

    pub(super) fn take_frame_holding(&self, _id: PageId) -> Result<Option<FrameTicket<'_>>, Error> {
        Ok(self.free.take(1).map(|frames| FrameTicket::new(self, frames[0])))
    }

    pub(super) fn take_frame(&self) -> Result<FrameTicket<'_>, Error> {
        let frame = match self.free.take_or_wait(1, None) {
            Taken::Frames(frames) => frames[0],
            Taken::Wait(ticket) => {
                self.bell.ring();
                ticket.handoff.take_wait(WaitClass::FreeFrame, &self.waits)[0]
            }
            Taken::Stopped => unreachable!("the model's pool never stops"),
        };
        Ok(FrameTicket::new(self, frame))
    }

    /// Evicts all it can whenever the bell rings, until `ended`.
    pub(crate) fn keep(&self, ended: &shuttle::sync::atomic::AtomicBool) {
        while !ended.load(Ordering::SeqCst) {
            self.bell.wait_until(u64::MAX);
            self.evict_all();
        }
    }

    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    fn evict_all(&self) {
        let candidates = std::mem::take(&mut self.replacement.lock().0);
        for frame in candidates {
            match self.evict(frame) {
                Evicted::Free(_) => self.free.give(frame),
                Evicted::InUse | Evicted::Dirty => self.replacement.lock().0.push_back(frame),
            }
        }
    }

    /// Discards the page if it is there: its space was dropped. Its frame stays in the queue.
    pub(crate) fn drop_page(&self, id: PageId) {
        (0..self.frames.len()).for_each(|frame| self.discard(FrameId(u32::try_from(frame).expect("few")), id));
    }

    /// Installs a new page under an id that another thread may be reading, since it was given back before. `written`
    /// puts it on the device: until then the page does not leave.
    pub(crate) fn install(&self, id: PageId, written: impl FnOnce()) -> Result<(), Error> {
        let mut ticket = self.take_frame()?;
        ticket.kept = true;
        let mut page = self.frame(ticket.frame).page.write();
        *page = id.0;
        let pin = self.settle(id, ticket.frame);
        self.replacement.lock().admit(ticket.frame, id);
        drop(page);
        written();
        assert_eq!(pin.read(), id, "another page");
        Ok(())
    }

    /// At rest: each frame is free or has a page, the table agrees, and no read is under way.
    pub(crate) fn assert_at_rest(&self, pages: impl IntoIterator<Item = PageId>) {
        let resident = |id| match self.table.shard(id).get(&id) {
            Some(Entry::Resident(frame)) => {
                let meta = self.frame(*frame);
                assert_eq!((meta.holds(), *meta.page.read()), (Some(id), id.0));
                assert_eq!(meta.pins.load(Ordering::SeqCst), 0);
                true
            }
            Some(Entry::Reading(..)) => unreachable!("page {id} is still being read"),
            None => false,
        };
        for frame in 0..self.frames.len() {
            let frame = FrameId(u32::try_from(frame).expect("few"));
            let Some(id) = self.frame(frame).holds() else { continue };
            let named = matches!(self.table.shard(id).get(&id), Some(Entry::Resident(other)) if *other == frame);
            assert!(named, "POOL-1: page {id} is not in the table");
        }
        let resident = pages.into_iter().filter(|id| resident(*id)).count();
        let queued = self.replacement.lock().0.len();
        assert!(resident <= queued, "POOL-1: a page is not in the queue");
        assert_eq!(self.free.len() + queued, self.frames.len(), "POOL-1: a frame is lost, or there twice");
    }
}
