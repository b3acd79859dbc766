//! The buffer pool: fetching pages, and giving and taking frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_epoch::Guard;

use super::admission::{Admission, Admitted};
use super::classic::{Classic, Got};
use super::dirty::DirtyPages;
use super::frame::Frame;
use super::frame_ticket::FrameTicket;
use super::free_frames::Taken;
use super::instance::Instance;
use super::lane::{InLane, Lane};
use super::memory::Frames;
use super::midpoint_lru::MidpointLru;
use super::options::{EmptyFreeListAlgorithm, PageReplacement, PoolOptions};
use super::pin::{HeldBy, PageRead, PageWrite, Pin};
use super::replacement::Replacement;
use super::route::{FrameHint, Route};
use super::s3_fifo::S3Fifo;
use super::table::{Entry, Table};
use crate::base::aligned::to_u64;
use crate::base::bell::Bell;
use crate::base::clock;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::{FrameId, PageId};
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::{WaitClass, Waits};
use crate::pace::free_frames::FrameNeed;
use crate::redo::dirty_counts::DirtyCounts;
use crate::store::page_store::PageStore;

/// Frames that a foreground thread without a free frame scans for a clean page, which goes to the oldest waiter.
const STEAL_STEPS: usize = 16;

/// The same when the keeper has made no progress for `ALONE_AFTER_NS`, since it waits for the device. Until it is back
/// it frees no frames.
const STEAL_STEPS_ALONE: usize = 1024;
const ALONE_AFTER_NS: u64 = 20_000_000;

/// Bytes in tables for each frame: its page's entry in the page table (40, in a map that is half full at worst), a
/// place in a queue that may be twice as long (8), a ghost in its queue and in its set (16 and 18).
const BESIDE_FRAME: usize = 2 * 40 + 8 + 16 + 18;

/// Copies of inner pages take at most this part of the pool, as a divisor.
const ROUTES_SHARE: usize = 64;

/// Number of pages from the root of a large tree to a leaf.
const WAY: usize = 4;

/// The number of [`Admission`] places in a pool of `frames` frames: for operations that miss pages one by one, and for
/// batches that gather theirs.
pub(super) fn places(frames: usize) -> (usize, usize) {
    ((frames / 16).max(1), frames / 16 + 2)
}

/// The policy for a pool without a free frame: hand-off by the keeper, or a classic one.
pub(super) enum Empty {
    Handoff,
    Classic(Classic),
}

/// Counters of the pool.
#[derive(Default)]
pub(crate) struct PoolCounters {
    pub(crate) wait_free: AtomicU64,
    pub(crate) wait_free_us: AtomicU64,
    /// Part of `wait_free_us` spent behind an operation that itself waited for a frame.
    pub(crate) wait_free_behind_us: AtomicU64,
    /// Pages read ahead of need.
    pub(crate) read_ahead: AtomicU64,
    /// Frames taken.
    pub(crate) taken: AtomicU64,
    /// Passes over the next victims, by threads that free frames ahead of need, and pages that the passes looked at.
    pub(crate) batch_scans: CountedCalls,
    /// Passes that evicted pages, and how many left.
    pub(crate) batch_evictions: CountedCalls,
    /// Moving average of the time that refilling an instance takes, in nanoseconds.
    pub(crate) refill_ns: AtomicU64,
}

impl PoolCounters {
    /// Counts a pass that looked at `looked_at` pages and evicted `evicted` of them.
    pub(super) fn swept(&self, looked_at: usize, evicted: usize) {
        self.batch_scans.add(to_u64(looked_at));
        if evicted > 0 {
            self.batch_evictions.add(to_u64(evicted));
        }
    }

    /// Counts a refill of an instance that took `ns` nanoseconds.
    pub(crate) fn refilled_in(&self, ns: u64) {
        // Relaxed: of two threads that count at the same time one loses its sample.
        let before = self.refill_ns.load(Ordering::Relaxed);
        self.refill_ns.store(if before == 0 { ns } else { (before * 7 + ns) / 8 }, Ordering::Relaxed);
    }
}

/// The buffer pool.
pub(crate) struct Pool {
    pub(super) frames: Arc<Frames>,
    /// Number of frames in use: the frames with smaller ids.
    pub(super) count: AtomicUsize,
    /// Number of frames beyond `count` whose pages have not left yet.
    pub(super) leaving: Mutex<usize>,
    pub(super) table: Table,
    pub(super) instances: Box<[Instance]>,
    /// Whether pages are read into any instance, not their own. Written at open, read on each load.
    pub(super) spread: AtomicBool,
    /// Round-robin index of the next instance. Written by `any_instance`, relaxed.
    pub(super) turn: AtomicUsize,
    /// Number of free frames to keep, and the number at which the keeper is asked for more.
    pub(super) target: AtomicUsize,
    pub(super) low: AtomicUsize,
    pub(super) empty: Empty,
    /// For each instance: pages that a search for frames looks at.
    pub(super) lru_scan_depth: AtomicUsize,
    pub(super) dirty: DirtyPages,
    pub(super) store: Arc<PageStore>,
    bell: Arc<Bell>,
    pub(super) bell_wanted: AtomicBool,
    /// Time of the keeper's last progress in nanoseconds; 0: it waits for its bell. Written by the keeper, read by
    /// threads without a frame.
    keeper_busy_since_ns: AtomicU64,
    route_bytes: AtomicUsize,
    /// Limits the pins of operations that miss pages one by one, so that most frames are left to others.
    pub(super) admission: Admission,
    /// Limits the pins of batches, which ask for many together. They have a line of their own, since others would wait
    /// long behind them.
    pub(super) batches: Admission,
    lane: Lane,
    pub(super) waits: Arc<Waits>,
    pub(crate) counters: PoolCounters,
}

impl Pool {
    /// Makes a pool with all of its frames free.
    pub(crate) fn new(
        options: &PoolOptions,
        store: Arc<PageStore>,
        counts: Arc<DirtyCounts>,
        bell: Arc<Bell>,
        waits: Arc<Waits>,
    ) -> Result<Pool, Error> {
        let len = FrameId(options.frames).index();
        let frames = Arc::new(Frames::new(len, store.page_size())?);
        let replacement = |instance: usize| -> Box<dyn Replacement> {
            match options.replacement {
                PageReplacement::S3Fifo => Box::new(S3Fifo::new(len)),
                PageReplacement::MidpointLru => {
                    Box::new(MidpointLru::new(instance, options.instances, options.frames_max))
                }
            }
        };
        let instances: Box<[Instance]> =
            (0..options.instances).map(|instance| Instance::new(replacement(instance))).collect();
        for frame in (0..options.frames).map(FrameId) {
            frames.get(frame).set_retired(false);
            instances[frame.index() % instances.len()].free.give(frame);
        }
        let freeing = options.freeing;
        let pool = Pool {
            dirty: DirtyPages::new(Arc::clone(&frames), counts, options),
            frames,
            count: AtomicUsize::new(len),
            leaving: Mutex::new(Rank::Leaving, 0),
            table: Table::new(),
            spread: AtomicBool::new(true),
            turn: AtomicUsize::new(0),
            target: AtomicUsize::new(FrameNeed::default().target(len)),
            low: AtomicUsize::new(FrameNeed::default().low(len)),
            empty: match freeing.empty {
                EmptyFreeListAlgorithm::Handoff => Empty::Handoff,
                _ => Empty::Classic(Classic::new(options.instances)),
            },
            lru_scan_depth: AtomicUsize::new(freeing.lru_scan_depth),
            instances,
            store,
            bell,
            bell_wanted: AtomicBool::new(false),
            keeper_busy_since_ns: AtomicU64::new(0),
            route_bytes: AtomicUsize::new(0),
            admission: Admission::new(places(len).0),
            batches: Admission::new(places(len).1),
            lane: Lane::new(),
            waits,
            counters: PoolCounters::default(),
        };
        pool.set_freeing(freeing);
        Ok(pool)
    }

    pub(super) fn frame(&self, id: FrameId) -> &Frame {
        self.frames.get(id)
    }

    /// Number of frames in use.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Called after a pin is given back: if a thread waits for a frame, the keeper should look again.
    pub(super) fn unpinned(&self) {
        if self.line().awaited() {
            self.bell.ring();
        }
    }

    /// Maps memory for `count` frames, before the pool is given that size.
    pub(crate) fn make_frames(&self, count: usize) -> Result<(), Error> {
        self.frames.make(count)
    }

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

    /// Leaves a copy of the inner page in `frame`, which is latched shared, unless copies take too much memory already.
    pub(super) fn leave_route(&self, frame: FrameId, page: &[u8], guard: &Guard) {
        if self.frame(frame).has_route() {
            return;
        }
        let budget = self.len() * self.store.page_size() / ROUTES_SHARE;
        let len = Route::len_for(page);
        // The copies of the root and of small trees are worth more than the budget of a tiny pool.
        if self.route_bytes.load(Ordering::Relaxed) + len > budget.max(4 * self.store.page_size()) {
            return;
        }
        if self.frame(frame).set_route(Route::new(page), guard) {
            self.route_bytes.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// Drops the copy of the page in `frame`, which is latched exclusively.
    pub(super) fn clear_route(&self, frame: FrameId) {
        if let Some(len) = self.frame(frame).clear_route() {
            self.route_bytes.fetch_sub(len, Ordering::Relaxed);
        }
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

    /// Whether the page has an image.
    pub(crate) fn has_image(&self, id: PageId) -> bool {
        self.store.has_image(id)
    }

    /// The waits that operations report to.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Waits for the lane of one. Callers hold nothing.
    pub(super) fn enter_lane(&self) -> InLane<'_> {
        self.lane.enter(&self.waits, |ns| self.count_behind(ns))
    }

    /// Number of pages that an operation keeps pinned on its way down when it misses one after the other. With `legacy`
    /// the whole way: pages just read may be the only clean ones, and would be evicted for the next.
    pub(crate) fn way(&self) -> usize {
        if self.is_handoff() || self.is_managed() { 1 } else { WAY }
    }

    /// Admits an operation to miss pages and to pin a whole [way](Self::way). May wait on `admission`; callers hold
    /// nothing.
    pub(crate) fn admit(&self) -> Admitted<'_> {
        self.admission.enter(self.way(), &self.waits, |ns| self.count_behind(ns))
    }

    /// Admits an operation to miss pages and to pin `pins` of them. May wait on `admission`; callers hold nothing.
    pub(super) fn admit_batch(&self, pins: usize) -> Admitted<'_> {
        self.batches.enter(pins, &self.waits, |ns| self.count_behind(ns))
    }

    /// Whether the page is in memory or being read.
    pub(crate) fn is_known(&self, id: PageId) -> bool {
        self.table.shard(id).contains_key(&id)
    }

    /// Takes a free frame. May wait on `free_frame`; callers hold no latch.
    pub(crate) fn take_frame(&self) -> Result<FrameTicket<'_>, Error> {
        one(self.take_frames(1)?)
    }

    /// Takes a free frame to read page `id` into. May wait on `free_frame`; callers hold no latch.
    pub(super) fn take_frame_for(&self, id: PageId) -> Result<FrameTicket<'_>, Error> {
        one(self.take_from(self.instance_for(id), 1)?)
    }

    /// The same for a caller that keeps other pages pinned: a free frame, or with `legacy` one that the caller frees by
    /// its own work. `None`: another thread has to free one, and may be waiting for pages that the caller has.
    pub(super) fn take_frame_holding(&self, id: PageId) -> Result<Option<FrameTicket<'_>>, Error> {
        let at = self.instance_for(id);
        if let Some(tickets) = self.take_free_from(at, 1) {
            return one(tickets).map(Some);
        }
        let Some(legacy) = self.classic().filter(|classic| !classic.is_backoff()).map(|classic| &classic.legacy) else {
            return Ok(None);
        };
        let taken = self.timed_taking(|waited| self.take_legacy(legacy, at, 1, waited))?;
        taken.map(|frames| one(self.tickets(frames))).transpose()
    }

    /// Takes `count` free frames, all or none. May wait on `free_frame`; callers hold no latch and no frame.
    pub(crate) fn take_frames(&self, count: usize) -> Result<Vec<FrameTicket<'_>>, Error> {
        self.take_from(self.any_instance(), count)
    }

    fn take_from(&self, at: usize, count: usize) -> Result<Vec<FrameTicket<'_>>, Error> {
        if let Some(tickets) = self.take_free_from(at, count) {
            return Ok(tickets);
        }
        if self.line().stopped() {
            return self.take_last(count);
        }
        self.timed_taking(|waited| self.take_or_wait(at, count, waited))
    }

    /// Runs `take`, and counts it as one wait for a frame if it says that it waited.
    fn timed_taking<T>(&self, take: impl FnOnce(&mut bool) -> T) -> T {
        let began = clock::now_ns();
        let (waited, taken) = self.waits.timed_if(WaitClass::FreeFrame, || {
            let mut waited = false;
            let taken = take(&mut waited);
            (waited, (waited, taken))
        });
        if waited {
            self.count_wait(clock::now_ns() - began);
        }
        taken
    }

    /// Takes frames when none is free; says in `waited` whether there was a wait.
    fn take_or_wait(&self, at: usize, count: usize, waited: &mut bool) -> Result<Vec<FrameTicket<'_>>, Error> {
        match &self.empty {
            Empty::Handoff => self.steal_some(at, count),
            Empty::Classic(classic) => match self.take_classic(classic, at, count, waited)? {
                Got::Frames(frames) => return Ok(self.tickets(frames)),
                Got::PlaceInLine => {}
                Got::Stopped => return self.take_last(count),
            },
        }
        let ticket = match self.line().take_or_wait(count) {
            Taken::Frames(frames) => return Ok(self.tickets(frames)),
            Taken::Wait(ticket) => ticket,
            Taken::Stopped => return Err(self.no_frame()),
        };
        *waited = true;
        self.bell.ring();
        let frames = ticket.handoff.take_wait(WaitClass::FreeFrame, &self.waits);
        if frames.is_empty() { Err(self.no_frame()) } else { Ok(self.tickets(frames)) }
    }

    /// Evicts clean pages: `count`, with few looks each. If the keeper waits for a stalled device, evicts also for the
    /// waiters in the line, with many looks each. Otherwise these would wait as long as the keeper, although pages are
    /// clean.
    fn steal_some(&self, at: usize, count: usize) {
        // Relaxed: a guess.
        let busy_since_ns = self.keeper_busy_since_ns.load(Ordering::Relaxed);
        let is_alone = busy_since_ns > 0 && clock::now_ns() >= busy_since_ns + ALONE_AFTER_NS;
        let (count, steps) =
            if is_alone { (count + self.line().wanted(), STEAL_STEPS_ALONE) } else { (count, STEAL_STEPS) };
        for _ in 0..count {
            match self.steal(at, steps) {
                Some(frame) => self.give(frame),
                None if is_alone => return,
                None => {}
            }
        }
    }

    /// For the keeper: notes that it is busy and made progress at `now_ns`.
    pub(crate) fn keeper_is_busy(&self, now_ns: u64) {
        self.keeper_busy_since_ns.store(now_ns, Ordering::Relaxed);
    }

    /// For the keeper: notes that it waits for its bell.
    pub(crate) fn keeper_rests(&self) {
        self.keeper_busy_since_ns.store(0, Ordering::Relaxed);
    }

    /// Takes frames when no page is cleaned any more: the last clean page is worth a search.
    fn take_last(&self, count: usize) -> Result<Vec<FrameTicket<'_>>, Error> {
        let any = |_| {
            let free = self.take_anywhere(1).and_then(|mut frames| frames.pop());
            free.or_else(|| (0..self.instances.len()).find_map(|at| self.steal(at, 4 * self.len())))
        };
        let tickets = self.tickets((0..count).map_while(any).collect());
        if tickets.len() == count { Ok(tickets) } else { Err(self.no_frame()) }
    }

    /// Counts a wait behind an operation that waited for a frame: it is one for a frame, too.
    fn count_behind(&self, ns: u64) {
        self.count_wait(ns);
        self.counters.wait_free_behind_us.fetch_add(ns / 1000, Ordering::Relaxed);
    }

    /// Counts a wait for a frame, or one behind an operation that waited for a frame.
    fn count_wait(&self, ns: u64) {
        self.counters.wait_free.fetch_add(1, Ordering::Relaxed);
        self.counters.wait_free_us.fetch_add(ns / 1000, Ordering::Relaxed);
    }

    /// Takes `count` frames, if they are free and no thread waits.
    pub(super) fn take_free(&self, count: usize) -> Option<Vec<FrameTicket<'_>>> {
        self.take_free_from(self.any_instance(), count)
    }

    fn take_free_from(&self, at: usize, count: usize) -> Option<Vec<FrameTicket<'_>>> {
        let frames = self.instances[at].free.take(count)?;
        if self.free_frames() <= self.low() {
            self.ask_keeper();
        }
        Some(self.tickets(frames))
    }

    pub(super) fn tickets(&self, frames: Vec<FrameId>) -> Vec<FrameTicket<'_>> {
        self.counters.taken.fetch_add(to_u64(frames.len()), Ordering::Relaxed);
        // Each frame counts: no early exit, since `reach` notes how far the taken frames go.
        if frames.iter().filter(|frame| self.frames.reach(**frame, self.len())).count() > 0 {
            self.bell.ring();
        }
        frames.into_iter().map(|frame| FrameTicket::new(self, frame)).collect()
    }

    /// Whether memory is to be [touched](Self::touch_ahead) for frames that will be taken.
    pub(crate) fn is_to_touch(&self) -> bool {
        self.frames.is_to_touch()
    }

    /// Number of frames whose memory was touched.
    #[cfg(test)]
    pub(crate) fn touched(&self) -> usize {
        self.frames.touched()
    }

    /// Touches some memory of frames ahead of need. False: that is enough for now. One caller at a time. May take some
    /// milliseconds, for which no thread waits.
    pub(crate) fn touch_ahead(&self) -> bool {
        self.frames.touch_ahead(self.len())
    }

    fn no_frame(&self) -> Error {
        let message = "no frame of the buffer pool can be freed, because an earlier failure stopped all page writes; reopen the database";
        Error::ReadOnly(message.into())
    }

    /// Asks the keeper for more free frames. With the classic policies that is not the keeper's work.
    pub(super) fn ask_keeper(&self) {
        if !self.is_handoff() {
            return;
        }
        // Relaxed: the flag only saves rings of the bell; the keeper clears it before it looks.
        if !self.bell_wanted.swap(true, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Ends all waits with an error: no page can be written any more.
    pub(crate) fn stop(&self) {
        self.line().stop();
        self.admission.wake_all();
        self.batches.wake_all();
    }

    /// Maximum number of bytes that the pool holds: pages, the state of each frame, routes.
    pub(crate) fn memory_budget(&self) -> u64 {
        let page = self.store.page_size();
        let frames = self.len() + self.leaving();
        let kept = size_of::<Frame>() + size_of::<AtomicU64>() + BESIDE_FRAME;
        to_u64(frames * page + self.frames.made() * kept + self.len() * page / ROUTES_SHARE)
    }

    /// The number of free frames, and of dirty frames.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (to_u64(self.free_frames()), to_u64(self.dirty.len()))
    }
}

fn one<T>(mut of: Vec<T>) -> Result<T, Error> {
    of.pop().ok_or_else(|| Error::Bug("POOL-2: a waiter got no frame".into()))
}
