//! The buffer pool: its parts, its policies, and how frames are given back.
//!
//! In other files threads take frames ([`frame_supply`](super::frame_supply)), find pages ([`fetch`](super::fetch)),
//! read pages into frames ([`residence`](super::residence)), and throw them out ([`evictor`](super::evictor)).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_epoch::Guard;

use super::admission::Admission;
use super::classic::Classic;
use super::dirty::DirtyPages;
use super::frame::Frame;
use super::free_frames::FreeFrames;
use super::instance::{Instance, InstancePages, Searches};
use super::lane::Lane;
use super::memory::Frames;
use super::midpoint_lru::MidpointLru;
use super::options::{EmptyFreeListAlgorithm, Freeing, PageReplacement, PoolOptions};
use super::replacement::Replacement;
use super::route::Route;
use super::s3_fifo::S3Fifo;
use super::table::Table;
use crate::base::aligned::to_u64;
use crate::base::bell::Bell;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::{FrameId, PageId};
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::Waits;
use crate::pace::free_frames::FrameNeed;
use crate::redo::dirty_counts::DirtyCounts;
use crate::store::page_store::PageStore;

/// Bytes in tables for each frame: its page's entry in the page table (40, in a map that is half full at worst), a
/// place in a queue that may be twice as long (8), a ghost in its queue and in its set (16 and 18).
const BESIDE_FRAME: usize = 2 * 40 + 8 + 16 + 18;

/// Copies of inner pages take at most this part of the pool, as a divisor.
const ROUTES_SHARE: usize = 64;

/// The number of [`Admission`] places in a pool of `frames` frames.
pub(super) fn places(frames: usize) -> usize {
    (frames / 16).max(1)
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
    /// Most pages that the writer of a group has kept in memory at once.
    pub(crate) group_pages_max: AtomicU64,
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
    /// Notes the pages that the writer of a group keeps in memory.
    pub(crate) fn group_pages(&self, pages: usize) {
        // A load first: most groups change nothing here.
        if to_u64(pages) > self.group_pages_max.load(Ordering::Relaxed) {
            self.group_pages_max.fetch_max(to_u64(pages), Ordering::Relaxed);
        }
    }

    /// Counts a pass that looked at `looked_at` pages and evicted `evicted` of them.
    pub(super) fn swept(&self, looked_at: usize, evicted: usize) {
        self.batch_scans.add(to_u64(looked_at));
        if evicted > 0 {
            self.batch_evictions.add(to_u64(evicted));
        }
    }

    /// Counts a wait for a frame of `ns` nanoseconds, or one behind an operation that waited for a frame.
    pub(super) fn waited(&self, ns: u64) {
        self.wait_free.fetch_add(1, Ordering::Relaxed);
        self.wait_free_us.fetch_add(ns / 1000, Ordering::Relaxed);
    }

    /// Counts a wait behind an operation that waited for a frame: it is one for a frame, too.
    pub(super) fn waited_behind(&self, ns: u64) {
        self.waited(ns);
        self.wait_free_behind_us.fetch_add(ns / 1000, Ordering::Relaxed);
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
    pub(super) bell: Arc<Bell>,
    pub(super) bell_wanted: AtomicBool,
    /// Time of the keeper's last progress in nanoseconds; 0: it waits for its bell. Written by the keeper, read by
    /// threads without a frame.
    pub(super) keeper_busy_since_ns: AtomicU64,
    route_bytes: AtomicUsize,
    /// Limits the pins of operations that miss pages one by one, so that most frames are left to others.
    pub(super) admission: Admission,
    pub(super) lane: Lane,
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
            admission: Admission::new(places(len)),
            lane: Lane::new(),
            waits,
            counters: PoolCounters::default(),
        };
        pool.set_freeing(freeing);
        Ok(pool)
    }

    /// Sets how frames come free. The hand-off ignores the free-frame target: it learns the need by itself.
    pub(crate) fn set_freeing(&self, freeing: Freeing) {
        self.lru_scan_depth.store(freeing.lru_scan_depth, Ordering::Relaxed);
        self.instances.iter().for_each(|instance| instance.replacement.set_old_blocks_time(freeing.old_blocks_ns));
        let Some(classic) = self.classic() else { return };
        // `legacy` alone keeps none free.
        let target = freeing.free_list_target.unwrap_or(0) * self.instances.len();
        self.target.store(target, Ordering::Relaxed);
        classic.put_in_force(freeing);
    }

    /// Whether free frames are handed to waiters, and freed ahead of need by the keeper.
    pub(crate) fn is_handoff(&self) -> bool {
        matches!(self.empty, Empty::Handoff)
    }

    /// The state of the classic policies; `None` with the hand-off.
    pub(super) fn classic(&self) -> Option<&Classic> {
        if let Empty::Classic(classic) = &self.empty { Some(classic) } else { None }
    }

    /// Whether LRU managers are to work now: `backoff` is in force.
    pub(crate) fn is_managed(&self) -> bool {
        self.classic().is_some_and(Classic::is_backoff)
    }

    /// Whether page cleaners refill free frames, as LRU managers do with `backoff`.
    pub(crate) fn cleaners_refill(&self) -> bool {
        self.classic().is_some_and(Classic::cleaners_refill)
    }

    pub(super) fn frame(&self, id: FrameId) -> &Frame {
        self.frames.get(id)
    }

    /// Number of frames in use.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The waits that operations report to.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Whether the page has an image.
    pub(crate) fn has_image(&self, id: PageId) -> bool {
        self.store.has_image(id)
    }

    /// Whether the page is in memory or being read.
    pub(crate) fn is_known(&self, id: PageId) -> bool {
        self.table.shard(id).contains_key(&id)
    }

    /// How many instances there are.
    pub(crate) fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// The number of the instance that `frame` belongs to.
    pub(crate) fn number_of_instance(&self, frame: FrameId) -> usize {
        // Called on each use of a page that is not hot: avoids the division where there is one instance.
        match self.instances.len() {
            1 => 0,
            several => frame.index() % several,
        }
    }

    /// The instance that `frame` belongs to.
    pub(super) fn instance_of(&self, frame: FrameId) -> &Instance {
        &self.instances[self.number_of_instance(frame)]
    }

    /// The line for all threads that find no frame in any instance: the first instance's.
    pub(super) fn line(&self) -> &FreeFrames {
        &self.instances[0].free
    }

    /// Number of free frames of all instances.
    pub(super) fn free_frames(&self) -> usize {
        self.instances.iter().map(|instance| instance.free.len()).sum()
    }

    /// Takes `count` free frames from any one instance.
    pub(super) fn take_anywhere(&self, count: usize) -> Option<Vec<FrameId>> {
        self.instances.iter().find_map(|instance| instance.free.take(count))
    }

    /// Notes a use of the page in `frame`.
    pub(super) fn touch(&self, frame: FrameId, meta: &Frame) {
        if !meta.is_hot() {
            self.instance_of(frame).replacement.hit(frame, meta);
        }
    }

    /// Enters `frame`, which page `id` was put into, into the replacement queues.
    pub(super) fn queue(&self, frame: FrameId, id: PageId) {
        self.instance_of(frame).replacement.admit(frame, id);
    }

    /// Takes `frame` out of replacement as its page leaves; its shard's mutex is held. False: the frame is not the
    /// caller's to take.
    pub(super) fn leaves(&self, frame: FrameId) -> bool {
        self.instance_of(frame).replacement.leaves(frame)
    }

    /// Takes a frame back: for a waiter or the ring, or for good when it is beyond the pool's end.
    pub(super) fn give(&self, frame: FrameId) {
        if frame.index() >= self.len() && self.retire(frame) {
            return;
        }
        self.ring_for(frame).give(frame);
    }

    /// The ring that a free frame goes to: the line's, if a thread waits for a frame of any instance, else its own
    /// instance's.
    pub(super) fn ring_for(&self, frame: FrameId) -> &FreeFrames {
        if self.line().awaited() { self.line() } else { &self.instance_of(frame).free }
    }

    fn retire(&self, frame: FrameId) -> bool {
        let mut leaving = self.leaving.lock();
        // Checked again: the pool may just have grown.
        if frame.index() < self.len() {
            return false;
        }
        self.frames.release_memory(frame);
        self.frame(frame).set_retired(true);
        *leaving = leaving.saturating_sub(1);
        true
    }

    /// Called after a pin is given back: if a thread waits for a frame, the keeper should look again.
    pub(super) fn unpinned(&self) {
        if self.line().awaited() {
            self.bell.ring();
        }
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

    /// Maps memory for `count` frames, before the pool is given that size.
    pub(crate) fn make_frames(&self, count: usize) -> Result<(), Error> {
        self.frames.make(count)
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

    /// Frames beyond the end whose pages have not left yet.
    pub(crate) fn leaving(&self) -> usize {
        *self.leaving.lock()
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

    /// Numbers of frames of each instance.
    pub(crate) fn instance_pages(&self) -> Vec<InstancePages> {
        let (frames, several) = (self.len(), self.instances.len());
        let pages = |at: usize| InstancePages {
            total: to_u64(frames.saturating_sub(at).div_ceil(several)),
            free: to_u64(self.instances[at].free.len()),
            dirty: to_u64(self.dirty.len_in(at)),
        };
        (0..several).map(pages).collect()
    }

    /// Counts of what threads did to get frames.
    pub(crate) fn searches(&self) -> Searches {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut found = Searches::default();
        for instance in &self.instances {
            found.searches += count(&instance.searches);
            found.searched += count(&instance.searched);
        }
        match &self.empty {
            Empty::Handoff => {}
            Empty::Classic(classic) => {
                found.flush_searches = classic.legacy.flush_searches.calls();
                found.flush_searched = classic.legacy.flush_searches.total();
                found.last_flush_searched = classic.legacy.flush_searches.last();
                found.wait_loops = count(&classic.backoff.loops);
            }
        }
        found
    }
}
