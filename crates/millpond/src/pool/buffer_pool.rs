//! The page table, free frames, and who leaves when none is free.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use foldhash::fast::FixedState;

use super::frame::{Frame, PageWrite, Pin};
use crate::base::aligned::{aligned, to_u64};
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{FrameId, Lsn, PageId, SpaceId};
use crate::base::sync::{Mutex, RwLock, WaitClass};
use crate::redo::dirty_counts::DirtyCounts;
use crate::store::page_store::PageStore;

/// Frames that a foreground thread looks at for a clean victim before it asks the keeper.
const FOREGROUND_STEPS: usize = 64;

/// Frames that the keeper looks at under one hold of the table's mutex.
const SWEEP_STEPS: usize = 256;

/// Frames that are looked at for a dropped space's pages at once.
const DISCARD_STEPS: usize = 4096;

type Waiter<T> = Arc<Handoff<T>>;

enum Entry {
    Resident(FrameId),
    /// Being read by the thread that missed first; the others wait for `true`: look again.
    Reading(Vec<Waiter<()>>),
}

/// Who waits for frames, and for how many at once: all or none, so that nobody holds one and waits for the next.
struct FrameWaiter {
    count: usize,
    handoff: Waiter<Option<Vec<FrameId>>>,
}

struct Table {
    // FixedState: the order of a map never decides anything, but equal runs must stay equal.
    entries: HashMap<PageId, Entry, FixedState>,
    /// For each frame the page in it.
    pages: Vec<Option<PageId>>,
    free: Vec<FrameId>,
    waiters: VecDeque<FrameWaiter>,
    hand: usize,
    stopped: bool,
}

/// Counters of the pool.
#[derive(Default)]
pub(crate) struct PoolCounters {
    pub(crate) wait_free: AtomicU64,
    pub(crate) wait_free_us: AtomicU64,
}

/// The buffer pool.
pub(crate) struct Pool {
    frames: Vec<Frame>,
    /// For each frame the begin of the oldest group whose change is in no image; 0: clean. Set under the log's mutex
    /// with the page latched exclusively, taken by the keeper with the page latched. Each is counted.
    rec_lsns: Vec<AtomicU64>,
    counts: Arc<DirtyCounts>,
    table: Mutex<Table>,
    store: Arc<PageStore>,
    bell: Arc<Bell>,
    waiting: AtomicU32,
    bell_wanted: AtomicBool,
    low: usize,
    /// The lane of one: an operation that was restarted too often goes on alone, and keeps its pages pinned.
    pub(crate) lane: Mutex<()>,
    pub(crate) counters: PoolCounters,
}

/// A frame in one thread's hand; it goes back when dropped.
#[must_use]
pub(crate) struct FrameTicket<'p> {
    pool: &'p Pool,
    frame: FrameId,
    kept: bool,
}

impl Drop for FrameTicket<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.release(self.frame);
        }
    }
}

/// A read under way.
struct Reading<'p> {
    pool: &'p Pool,
    id: PageId,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // After a read that succeeded the entry is RESIDENT, and this does nothing.
        let waiters = Pool::end_reading(&mut self.pool.table.lock(), self.id);
        for waiter in waiters {
            waiter.give(());
        }
    }
}

impl Pool {
    /// A pool of `count` frames.
    pub(crate) fn new(count: u32, store: Arc<PageStore>, counts: Arc<DirtyCounts>, bell: Arc<Bell>) -> Pool {
        let frames = (0..count)
            .map(|_| Frame { page: RwLock::new(aligned(0)), pins: AtomicU32::new(0), used: AtomicBool::new(false) })
            .collect();
        let kept = if cfg!(planted = "count_kept_on_redirty") { 2 } else { 1 };
        let rec_lsns = (0..count * kept).map(|_| AtomicU64::new(0)).collect();
        let table = Table {
            entries: HashMap::with_hasher(FixedState::default()),
            pages: vec![None; FrameId(count).index()],
            free: (0..count).rev().map(FrameId).collect(),
            waiters: VecDeque::new(),
            hand: 0,
            stopped: false,
        };
        Pool {
            frames,
            rec_lsns,
            counts,
            table: Mutex::new(table),
            store,
            bell,
            waiting: AtomicU32::new(0),
            bell_wanted: AtomicBool::new(false),
            low: (FrameId(count).index() / 32).clamp(2, 1024),
            lane: Mutex::new(()),
            counters: PoolCounters::default(),
        }
    }

    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.index()]
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// A pin was given back: if somebody waits for a frame, the keeper should look again.
    pub(super) fn unpinned(&self) {
        // Relaxed: a miss is repaired by the next unpin or the keeper's own deadline while somebody waits.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.bell.ring();
        }
    }

    fn pin<'p>(&'p self, frame: FrameId) -> Pin<'p> {
        let meta = self.frame(frame);
        // Relaxed: pins rise under the table's mutex, where eviction looks at them.
        meta.pins.fetch_add(1, Ordering::Relaxed);
        if !meta.used.load(Ordering::Relaxed) {
            meta.used.store(true, Ordering::Relaxed);
        }
        Pin { pool: self, frame }
    }

    /// The page, if it is in memory.
    pub(crate) fn fetch(&self, id: PageId) -> Option<Pin<'_>> {
        match self.table.lock().entries.get(&id) {
            Some(Entry::Resident(frame)) => Some(self.pin(*frame)),
            _ => None,
        }
    }

    /// The page, read from the device if need be. May wait on `free_frame` and `page_read`; callers hold no latch.
    pub(crate) fn load(&self, id: PageId) -> Result<Pin<'_>, Error> {
        loop {
            let reading = {
                let mut table = self.table.lock();
                match table.entries.get_mut(&id) {
                    Some(Entry::Resident(frame)) => return Ok(self.pin(*frame)),
                    Some(Entry::Reading(waiters)) => {
                        let handoff = Handoff::new();
                        waiters.push(Arc::clone(&handoff));
                        Some(handoff)
                    }
                    None => None,
                }
            };
            if let Some(handoff) = reading {
                handoff.take_wait(WaitClass::PageRead);
                continue;
            }
            let ticket = self.take_frame()?;
            {
                let mut table = self.table.lock();
                if table.entries.contains_key(&id) {
                    continue;
                }
                table.entries.insert(id, Entry::Reading(Vec::new()));
            }
            return self.read_into(id, ticket);
        }
    }

    /// Reads the page whose READING entry is ours, and ends the wait of those who came later.
    fn read_into<'p>(&'p self, id: PageId, mut ticket: FrameTicket<'p>) -> Result<Pin<'p>, Error> {
        // Takes the entry out again however the read ends, a panic of the device included.
        let reading = Reading { pool: self, id };
        let frame = ticket.frame;
        self.store.read(id, Frame::buffer(&mut self.frame(frame).page.write(), self.store.page_size()))?;
        let mut table = self.table.lock();
        let waiters = Self::end_reading(&mut table, id);
        ticket.kept = true;
        table.entries.insert(id, Entry::Resident(frame));
        table.pages[frame.index()] = Some(id);
        let pin = self.pin(frame);
        drop(table);
        drop(reading);
        for waiter in waiters {
            waiter.give(());
        }
        Ok(pin)
    }

    /// Takes a READING entry out; who waits for it is to be told without the mutex.
    fn end_reading(table: &mut Table, id: PageId) -> Vec<Waiter<()>> {
        match table.entries.get_mut(&id) {
            Some(Entry::Reading(waiters)) => {
                let waiters = std::mem::take(waiters);
                table.entries.remove(&id);
                waiters
            }
            _ => Vec::new(),
        }
    }

    /// Puts a page that has no image yet into `ticket`'s frame, latched exclusively. The page is of zeroes.
    pub(crate) fn install<'p>(&'p self, id: PageId, mut ticket: FrameTicket<'p>) -> PageWrite<'p> {
        ticket.kept = true;
        let frame = ticket.frame;
        let pin = {
            let mut table = self.table.lock();
            debug_assert!(!table.entries.contains_key(&id), "POOL-1: a new page {id} is not in the table");
            table.entries.insert(id, Entry::Resident(frame));
            table.pages[frame.index()] = Some(id);
            self.pin(frame)
        };
        let mut page = pin.write();
        page.buffer(self.store.page_size()).fill(0);
        page
    }

    /// A free frame. May wait on `free_frame`; callers hold no latch.
    pub(crate) fn take_frame(&self) -> Result<FrameTicket<'_>, Error> {
        let mut tickets = self.take_frames(1)?;
        tickets.pop().ok_or_else(|| Error::Bug("POOL-2: a waiter got no frame".into()))
    }

    /// `count` free frames, all or none. May wait on `free_frame`; callers hold no latch and no frame.
    pub(crate) fn take_frames(&self, count: usize) -> Result<Vec<FrameTicket<'_>>, Error> {
        let handoff = {
            let mut table = self.table.lock();
            if table.waiters.is_empty() {
                // When nothing is cleaned any more, the last clean page is worth looking for.
                let steps = if table.stopped { 2 * self.frames.len() } else { FOREGROUND_STEPS };
                while table.free.len() < count {
                    let Some(frame) = self.evict_clean(&mut table, steps) else { break };
                    table.free.push(frame);
                }
                if table.free.len() >= count {
                    let at = table.free.len() - count;
                    let frames = table.free.split_off(at);
                    let below = table.free.len() < self.low;
                    drop(table);
                    if below {
                        self.ask_keeper();
                    }
                    return Ok(self.tickets(frames));
                }
            }
            if table.stopped {
                return Err(self.no_frame());
            }
            let handoff = Handoff::new();
            table.waiters.push_back(FrameWaiter { count, handoff: Arc::clone(&handoff) });
            self.waiting.fetch_add(1, Ordering::Relaxed);
            handoff
        };
        self.bell.ring();
        let began = clock::now_ns();
        let frames = handoff.take_wait(WaitClass::FreeFrame);
        self.counters.wait_free.fetch_add(1, Ordering::Relaxed);
        self.counters.wait_free_us.fetch_add((clock::now_ns() - began) / 1000, Ordering::Relaxed);
        frames.map(|frames| self.tickets(frames)).ok_or_else(|| self.no_frame())
    }

    fn tickets(&self, frames: Vec<FrameId>) -> Vec<FrameTicket<'_>> {
        frames.into_iter().map(|frame| FrameTicket { pool: self, frame, kept: false }).collect()
    }

    fn no_frame(&self) -> Error {
        let message = "no frame of the buffer pool can be freed, because an earlier failure stopped all page writes; reopen the database";
        Error::ReadOnly(message.into())
    }

    fn ask_keeper(&self) {
        // Relaxed: only spares rings; the keeper clears it before it looks.
        if !self.bell_wanted.swap(true, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Gives a frame to the oldest waiter, or to the free list.
    fn release(&self, frame: FrameId) {
        let mut table = self.table.lock();
        self.release_locked(&mut table, frame);
    }

    fn release_locked(&self, table: &mut Table, frame: FrameId) {
        table.free.push(frame);
        while let Some(front) = table.waiters.front()
            && front.count <= table.free.len()
        {
            let at = table.free.len() - front.count;
            let frames = table.free.split_off(at);
            if let Some(waiter) = table.waiters.pop_front() {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                waiter.handoff.give(Some(frames));
            }
        }
    }

    fn may_leave(&self, frame: FrameId) -> bool {
        let meta = self.frame(frame);
        // Acquire: pairs with the Release of the last unpin.
        meta.pins.load(Ordering::Acquire) == 0
    }

    /// Turns the hand by one; the frame under it if it holds a page that nobody uses (second chance).
    fn turn(&self, table: &mut Table) -> Option<FrameId> {
        let hand = table.hand;
        table.hand = (hand + 1) % self.frames.len();
        let frame = FrameId(u32::try_from(hand).expect("IDS-2: a frame id has 32 bits"));
        table.pages[hand]?;
        if !self.may_leave(frame) || self.frame(frame).used.swap(false, Ordering::Relaxed) {
            return None;
        }
        Some(frame)
    }

    fn empty(&self, table: &mut Table, frame: FrameId) {
        debug_assert!(self.rec_lsn(frame).is_none(), "POOL-3: only clean pages leave");
        if let Some(page) = table.pages[frame.index()].take() {
            table.entries.remove(&page);
        }
    }

    fn evict_clean(&self, table: &mut Table, steps: usize) -> Option<FrameId> {
        for _ in 0..steps.min(2 * self.frames.len()) {
            if let Some(frame) = self.turn(table)
                && self.rec_lsn(frame).is_none()
            {
                self.empty(table, frame);
                return Some(frame);
            }
        }
        None
    }

    /// For the keeper: whether free frames are short of what it should keep ready, and by how many.
    pub(crate) fn frames_short(&self) -> usize {
        self.bell_wanted.store(false, Ordering::Relaxed);
        let table = self.table.lock();
        let high = 2 * self.low;
        if table.waiters.is_empty() && table.free.len() >= self.low {
            return 0;
        }
        let waited_for: usize = table.waiters.iter().map(|waiter| waiter.count).sum();
        (high + waited_for).saturating_sub(table.free.len())
    }

    /// For the keeper: frees clean victims until `wanted` are free, and collects dirty ones, pinned, that would have
    /// been next: at most `lot`. Returns how many it freed, and the dirty ones.
    pub(crate) fn sweep(&self, wanted: usize, lot: usize) -> (usize, Vec<Pin<'_>>) {
        let (mut freed, mut dirty) = (0, Vec::new());
        let mut left = 2 * self.frames.len();
        while freed + dirty.len() < wanted && dirty.len() < lot && left > 0 {
            let mut table = self.table.lock();
            for _ in 0..SWEEP_STEPS.min(left) {
                left -= 1;
                let Some(frame) = self.turn(&mut table) else { continue };
                if self.rec_lsn(frame).is_some() {
                    dirty.push(Pin { pool: self, frame });
                    self.frame(frame).pins.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.empty(&mut table, frame);
                    self.release_locked(&mut table, frame);
                    freed += 1;
                }
                if freed + dirty.len() >= wanted || dirty.len() >= lot {
                    break;
                }
            }
        }
        (freed, dirty)
    }

    /// For the keeper: frees the frames that it has just cleaned, but for those used or dirtied since.
    pub(crate) fn free_cleaned(&self, frames: &[FrameId]) {
        let mut table = self.table.lock();
        for &frame in frames {
            let used = self.frame(frame).used.load(Ordering::Relaxed);
            let stays = !self.may_leave(frame) || self.rec_lsn(frame).is_some() || used;
            if table.pages[frame.index()].is_some() && !stays {
                self.empty(&mut table, frame);
                self.release_locked(&mut table, frame);
            }
        }
    }

    /// For the keeper: pins the dirty frames among `frames` that hold a page.
    pub(crate) fn pin_dirty(&self, frames: &[FrameId]) -> Vec<Pin<'_>> {
        let table = self.table.lock();
        let mut pins = Vec::with_capacity(frames.len());
        for &frame in frames {
            if table.pages[frame.index()].is_some() && self.rec_lsn(frame).is_some() {
                self.frame(frame).pins.fetch_add(1, Ordering::Relaxed);
                pins.push(Pin { pool: self, frame });
            }
        }
        pins
    }

    /// The begin of the oldest change of the frame's page that is in no image; `None`: clean.
    pub(super) fn rec_lsn(&self, frame: FrameId) -> Option<Lsn> {
        match self.rec_lsns[frame.index()].load(Ordering::Relaxed) {
            0 => None,
            lsn => Some(Lsn(lsn)),
        }
    }

    /// Marks the frame's page dirty from the group at `start` on, unless it is dirty already.
    pub(super) fn mark_dirty(&self, frame: FrameId, start: Lsn) {
        // Relaxed: the log's mutex orders this with the checkpoint's look, the page latch with the cleaner's.
        let slot = &self.rec_lsns[frame.index()];
        let start = if cfg!(planted = "count_kept_on_redirty") { self.kept(frame).unwrap_or(start) } else { start };
        if slot.compare_exchange(0, start.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.counts.add(start);
        }
    }

    /// Takes the frame's dirtiness, and its count with it: a write has both from now on.
    pub(super) fn take_dirtiness(&self, frame: FrameId) -> Option<Lsn> {
        if cfg!(planted = "count_kept_on_redirty") {
            self.rec_lsns[self.frames.len() + frame.index()]
                .fetch_max(self.rec_lsn(frame).map_or(0, |lsn| lsn.0), Ordering::Relaxed);
        }
        match self.rec_lsns[frame.index()].swap(0, Ordering::Relaxed) {
            0 => None,
            lsn => Some(Lsn(lsn)),
        }
    }

    /// For a planted bug: a page that is dirtied again keeps its first count.
    fn kept(&self, frame: FrameId) -> Option<Lsn> {
        let kept = self.rec_lsns.get(self.frames.len() + frame.index())?.load(Ordering::Relaxed);
        (kept > 0).then_some(Lsn(kept))
    }

    /// Gives back the dirtiness, and its count, that a write took and could not end: the older of the two begins
    /// counts.
    pub(crate) fn dirty_again(&self, frame: FrameId, rec_lsn: Lsn) {
        let slot = &self.rec_lsns[frame.index()];
        let older = |now: u64| Some(if now == 0 { rec_lsn.0 } else { now.min(rec_lsn.0) });
        let now = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, older).unwrap_or(0);
        if now != 0 {
            self.counts.remove(Lsn(now.max(rec_lsn.0)));
        }
    }

    /// The dirty frames whose oldest change is before `cut`, and where that is.
    pub(crate) fn dirty_before(&self, cut: Lsn) -> Vec<(Lsn, FrameId)> {
        let frames = (0u32..).map(FrameId).take(self.frames.len());
        let dirty = frames.filter_map(|frame| Some((self.rec_lsn(frame)?, frame)));
        dirty.filter(|(lsn, _)| *lsn < cut).collect()
    }

    /// Orders frames by the ids of their pages.
    pub(crate) fn sort_by_page(&self, frames: &mut [FrameId]) {
        let table = self.table.lock();
        frames.sort_unstable_by_key(|frame| table.pages[frame.index()]);
    }

    /// Throws the pages of `space`, which was dropped, out of the frames from `from` on, a step of them. Nobody uses
    /// them any more but the keeper, whose pages stay until they leave by themselves: clean, since their images go
    /// nowhere. Returns where to go on; `None`: it was the last step.
    pub(crate) fn discard_step(&self, space: SpaceId, from: usize) -> Option<usize> {
        let upto = self.frames.len().min(from + DISCARD_STEPS);
        let mut table = self.table.lock();
        for index in from..upto {
            let frame = FrameId(u32::try_from(index).expect("IDS-2: a frame id has 32 bits"));
            if table.pages[index].is_some_and(|page| page.space() == space) {
                if let Some(lsn) = self.take_dirtiness(frame) {
                    self.counts.remove(lsn);
                }
                if self.may_leave(frame) {
                    self.empty(&mut table, frame);
                    self.release_locked(&mut table, frame);
                }
            }
        }
        (upto < self.frames.len()).then_some(upto)
    }

    /// Ends all waits with an error: no page can be written any more.
    pub(crate) fn stop(&self) {
        let mut table = self.table.lock();
        table.stopped = true;
        for waiter in std::mem::take(&mut table.waiters) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            waiter.handoff.give(None);
        }
    }

    /// Frames free now, and dirty ones.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let free = to_u64(self.table.lock().free.len());
        let lsns = self.rec_lsns.iter().take(self.frames.len());
        let dirty = to_u64(lsns.filter(|lsn| lsn.load(Ordering::Relaxed) != 0).count());
        (free, dirty)
    }
}

impl Pin<'_> {
    pub(crate) fn frame_id(&self) -> FrameId {
        self.frame
    }
}
