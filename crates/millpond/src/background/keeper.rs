//! The keeper, the background thread that frees frames, cleans pages and takes checkpoints. It writes dirty pages
//! before the log needs their space, and makes their images durable and named. It grows the files ahead of need, and
//! empties zones of the data file. It frees frames and slots of dropped trees, and merges pages that are too empty.
//!
//! KEEPER-1  The keeper writes all map groups and checkpoints, one after the other. With the default settings it also
//!           writes all pages that are in frames ([`page_writer`](crate::engine::page_writer)). A second thread waits
//!           for syncs, and for the superblock's write between two syncs ([`syncer`]).
//! KEEPER-2  The keeper never waits for a thread that waits for the keeper. It takes no frame and no page id, and of
//!           the log's space only what is free at once. A thread that has the writers' turn, or a page's latch, does
//!           not wait for the keeper.
//! KEEPER-3  Only the keeper has trees give pages back, while no thread writes a page (`Writers::none`). So the map
//!           learns of that and of map groups in the order of the log, and no thread has an image of the page to write.
//!
//! The keeper sleeps until its bell is rung or its next deadline has come.

mod loads;
mod memory;
mod merging;
mod publish;
mod requests;
mod shorten;
mod syncer;
mod undo_pages;
mod zones;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::publish::SyncThread;
use self::requests::Cleaning;
use self::shorten::Shortening;
use self::syncer::Syncer;
pub(crate) use self::zones::ZONES_TOGETHER;
use self::zones::Zones;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::error::{CLOSED, Error};
use crate::base::handoff::Handoff;
use crate::base::ids::{FrameId, Lsn, PageId};
use crate::engine::flush_reason::FlushReason;
use crate::engine::pacing::Next;
use crate::engine::page_writer::{Lot, Moved};
use crate::engine::{CheckpointAnswer, Engine};
use crate::pace::free_frames::FrameNeed;
use crate::pace::shares::For;
use crate::pool::pin::Pin;
use crate::store::lot::LOT_PAGES;

/// Interval of the duties that no thread rings the bell for.
const DUTIES_TICK_NS: u64 = 50_000_000;

/// Most time that an image waits for the data sync that makes it durable, if nothing asks for one earlier.
const SYNC_TICK_NS: u64 = 250_000_000;

/// Most time that a change waits for a checkpoint, if nothing asks for one earlier.
const CHECKPOINT_TICK_NS: u64 = 1_000_000_000;

/// Lots written before the keeper turns to its other duties, and the time after which it begins no further lot.
const LOTS_A_STEP: usize = 4;
const STEP_NS: u64 = 10_000_000;

/// The keeper searches the next victims for dirty pages each tick, and when this part of them (a divisor) has left.
const CLEAN_LOOKS: usize = 8;

/// A few dirty pages among the next victims wait this long for more before they are written.
const FEW_WAIT_NS: u64 = 100_000_000;

/// Seconds: the keeper collects the pages that it will write for the log in this time at once, and writes them in the
/// order of their ids.
const DUE_S: f64 = 0.25;

/// Steps of freeing the frames and slots of dropped trees, before the keeper turns to its other duties.
const GIVE_BACK_STEPS: usize = 8;

/// Steps of taking frames from a pool that was made smaller, at each tick.
const RETIRE_STEPS: usize = 8;

/// The keeper's memory between steps.
pub(crate) struct Keeper {
    engine: Arc<Engine>,
    syncer: SyncThread,
    /// The thread that touches the pool's memory.
    toucher: Syncer<()>,
    next_duties_ns: u64,
    next_sync_ns: u64,
    next_checkpoint_ns: u64,
    checkpoints_begun: u64,
    /// `checkpoints_begun` at the end of the last checkpoint.
    checkpoints_ended: u64,
    last_duties_ns: u64,
    /// Since when (ns) a few dirty pages among the next victims wait for more. `None`: none wait.
    few_since_ns: Option<u64>,
    /// The next victims were clean: no new search before this many frames were taken in all, or this time (ns).
    clean_until_taken: u64,
    next_clean_ns: u64,
    /// Frames of the pages to write next for the log, by descending page id: the keeper pops the last.
    due: Vec<FrameId>,
    /// The pages in `due` were dirtied before this LSN.
    due_cut: Lsn,
    frame_need: FrameNeed,
    zones: Zones,
    shortening: Shortening,
    last_taken: u64,
    /// A page could not be written because an image of it is in flight.
    sync_wanted: bool,
    /// Pages given back whose ids are not free for reuse yet.
    freed: Vec<PageId>,
    /// Requests that are being served: answered even if the keeper panics.
    asked: Vec<Arc<Handoff<CheckpointAnswer>>>,
    /// Requests for a checkpoint of all changes that wait for the next cleaning.
    wants_clean: Vec<Arc<Handoff<CheckpointAnswer>>>,
    /// Requests that the cleaning under way serves, and its progress.
    cleans_for: Vec<Arc<Handoff<CheckpointAnswer>>>,
    cleaning: Cleaning,
    failed: bool,
}

impl Keeper {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Keeper, Error> {
        let now = clock::now_ns();
        let syncer = SyncThread::start("mp-sync", Arc::clone(&engine.bell))?;
        // It starts here, not with the first need: so an open needs the same number of threads each time.
        let toucher = Syncer::start("mp-memory", Arc::clone(&engine.bell))?;
        Ok(Keeper {
            engine,
            syncer,
            toucher,
            next_duties_ns: now + DUTIES_TICK_NS,
            next_sync_ns: now + SYNC_TICK_NS,
            next_checkpoint_ns: now + CHECKPOINT_TICK_NS,
            checkpoints_begun: 0,
            checkpoints_ended: 0,
            last_duties_ns: now,
            few_since_ns: None,
            clean_until_taken: 0,
            next_clean_ns: 0,
            due: Vec::new(),
            due_cut: Lsn::ZERO,
            frame_need: FrameNeed::default(),
            zones: Zones::default(),
            shortening: Shortening::default(),
            last_taken: 0,
            sync_wanted: false,
            freed: Vec::new(),
            asked: Vec::new(),
            wants_clean: Vec::new(),
            cleans_for: Vec::new(),
            cleaning: Cleaning::default(),
            failed: false,
        })
    }

    /// The thread's body: works until it is asked to stop.
    pub(crate) fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        let mut panicked = None;
        while !engine.requests.lock().stop {
            let step = catch_unwind(AssertUnwindSafe(|| self.step(clock::now_ns())));
            let deadline = step.unwrap_or_else(|panic| {
                // The keeper stays and refuses requests, so that no thread waits for ever. Its join reports the panic.
                panicked = Some(panic);
                self.give_up(&Error::Bug("the keeper panicked: reopen the database".into()));
                0
            });
            engine.bell.wait_until(deadline);
        }
        // Refuses the requests that came too late.
        self.refuse_all(&CLOSED.into());
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Does what is due. Returns when (ns) to look again if no thread rings the bell.
    pub(super) fn step(&mut self, now: u64) -> u64 {
        self.engine.core.pool.keeper_is_busy(now);
        if !self.failed
            && let Err(error) = self.work(now)
        {
            self.give_up(&error);
        }
        self.engine.core.pool.keeper_rests();
        if self.failed {
            self.refuse_requests();
            return now + CHECKPOINT_TICK_NS;
        }
        self.next_duties_ns.min(self.engine.pacing.next_tick_ns())
    }

    fn work(&mut self, now: u64) -> Result<(), Error> {
        self.engine.core.log.health()?;
        let synced = self.take_synced(false)?;
        self.empty_full_log()?;
        if now >= self.engine.pacing.next_tick_ns() {
            self.engine.tick_pace();
        }
        if synced {
            // The checkpoint that a sync allows comes before the next lots and before the next sync.
            self.checkpoint_if_due(now)?;
        }
        self.touch_ahead();
        let written_before = self.engine.page_writes.all();
        self.write_pages()?;
        self.clean_ahead()?;
        self.empty_zones()?;
        let others_write = self.engine.page_writes.all() > written_before;
        self.give_back(GIVE_BACK_STEPS);
        self.merge_pages()?;
        self.give_undo_back()?;
        // While the log is redone the checkpoint cannot move. A page cleaned in the middle of its history would become
        // dirty again, and each cleaning would take a map record's space from the reserve.
        let redoing = self.engine.redoing.load(Ordering::Relaxed);
        let tick = now >= self.next_duties_ns;
        if tick {
            self.next_duties_ns = now + DUTIES_TICK_NS;
            let elapsed_s = seconds(now - self.last_duties_ns);
            self.last_duties_ns = now;
            self.look_at_frame_need(elapsed_s);
            self.engine.end_idle_transactions();
            self.engine.txns.wake_purge();
            self.look_at_length(now);
            self.retire_frames()?;
        }
        if tick || synced {
            if tick {
                self.checkpoint_if_due(now)?;
            }
            if now >= self.next_sync_ns || (!redoing && self.images_hold_log_back()) {
                if !redoing {
                    self.engine.core.store.write_map_pages(Lsn(self.engine.map_pages_cut()))?;
                }
                self.begin_publishing();
            }
        }
        self.serve_requests(others_write)?;
        self.give_space_back(now)?;
        self.serve_loads();
        Ok(())
    }

    /// Whether changes that only wait for a data sync hold the checkpoint back by a fourth of the log.
    fn images_hold_log_back(&self) -> bool {
        let next = self.engine.core.log.positions().next;
        let cut = Lsn(next.0.saturating_sub(self.engine.log_length() / 4));
        self.engine.core.store.holds_before(cut)
    }

    /// Gives up after a failure: from here on nothing is written, and all waiters get the error.
    fn give_up(&mut self, error: &Error) {
        self.failed = true;
        self.engine.core.log.stop(error);
        self.engine.pacing.end_payments();
        self.engine.core.pool.stop();
        self.engine.txns.locks.stop(&error.to_string());
        self.engine.requests.lock().failed = Some(error.to_string().into());
    }

    /// If a writer waits for room in the log's files: cleans the pages dirtied in the oldest quarter of the log, up to
    /// the end of a bucket of [`DirtyCounts`](crate::redo::dirty_counts::DirtyCounts), and takes a checkpoint.
    fn empty_full_log(&mut self) -> Result<(), Error> {
        let log = &self.engine.core.log;
        if log.is_full_for_some() {
            let cut = log.counts.bucket_end(log.positions().checkpoint.plus(log.capacity() / 4));
            self.clean_before(cut)?;
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Writes dirty pages: for frames, which the keeper frees ahead of need, and for the log, at the smallest rate that
    /// has all pages clean in time.
    fn write_pages(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let until_ns = clock::now_ns() + STEP_NS;
        for _ in 0..LOTS_A_STEP {
            if clock::now_ns() >= until_ns {
                break;
            }
            let short = engine.core.pool.frames_short();
            let redoing = engine.redoing.load(Ordering::Relaxed);
            match engine.pacing.next(short > 0, clock::now_ns()) {
                Next::Frames(owed) => match self.free_some(short)? {
                    true => {}
                    false if owed > 0 && !redoing && self.write_due(owed, false)? => {}
                    false => return Ok(()),
                },
                Next::Log(owed) if !redoing && self.write_due(owed, short > 0)? => {}
                Next::Log(_) if short > 0 && self.free_some(short)? => {}
                Next::Log(_) | Next::Nothing => return Ok(()),
            }
            self.empty_zones()?;
        }
        // More pages may be due: look again at once.
        engine.bell.ring();
        Ok(())
    }

    /// Frees frames until none is short.
    fn free_frames(&mut self) -> Result<(), Error> {
        for _ in 0..LOTS_A_STEP {
            let short = self.engine.core.pool.frames_short();
            if short == 0 || !self.free_some(short)? {
                return Ok(());
            }
        }
        self.engine.bell.ring();
        Ok(())
    }

    /// Frees `short` frames, and writes at most a lot of pages for that. False: there is nothing to do now.
    fn free_some(&mut self, short: usize) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let (freed, dirty) = engine.core.pool.sweep(short, LOT_PAGES);
        if dirty.is_empty() && engine.pacing.owed() == 0 {
            engine.pacing.nothing_to_write();
        }
        if dirty.is_empty() && freed == 0 {
            return Ok(false);
        }
        let frames: Vec<FrameId> = dirty.iter().map(Pin::frame_id).collect();
        let written = self.write_lot(FlushReason::Frames, dirty);
        engine.core.pool.free_cleaned(&frames);
        let written = written?;
        if self.sync_wanted {
            // A page could not be written, because an image of it is in flight.
            self.begin_publishing();
            if freed + written == 0 && self.syncer.busy() {
                // The sync's end rings the bell.
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes a lot of the oldest dirty pages, at most `owed`. False: there are none, or they wait for a sync.
    fn write_due(&mut self, owed: usize, frames_are_short: bool) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let pool = &engine.core.pool;
        let wanted = owed.min(LOT_PAGES);
        let unsynced = engine.core.store.unsynced();
        let is_in_the_way = self.frame_need.is_taken_from() && !engine.pacing.is_urgent();
        if is_in_the_way && unsynced > 0 && unsynced + wanted > engine.unsynced_max() / 2 {
            // A thread that needs a frame must not wait for a sync because of these pages.
            self.begin_publishing();
            return Ok(false);
        }
        let mut pins = Vec::with_capacity(wanted);
        let mut looked = false;
        while pins.len() < wanted {
            let Some(frame) = self.due.pop() else {
                // Another search would find the pinned pages again.
                if looked || !pins.is_empty() {
                    break;
                }
                looked = true;
                self.due_cut = Lsn(engine.due_cut(DUE_S, wanted));
                self.due = pool.dirty_before(self.due_cut).into_iter().map(|(_, frame)| frame).collect();
                pool.sort_by_page(&mut self.due);
                self.due.reverse();
                continue;
            };
            pins.extend(pool.pin_dirty_before(frame, self.due_cut));
        }
        // With no page found, all that is owed counts as paid.
        let nothing = if pins.is_empty() { owed } else { 0 };
        let written = self.write_lot(engine.pacing.why(), pins)?;
        engine.pacing.written(For::Log, written + nothing, frames_are_short, clock::now_ns());
        if self.sync_wanted {
            self.begin_publishing();
        }
        if written == 0 {
            engine.pacing.nothing_to_write();
        }
        Ok(written > 0)
    }

    /// Adapts the number of frames that are kept free.
    fn look_at_frame_need(&mut self, elapsed_s: f64) {
        let pool = &self.engine.core.pool;
        let taken = pool.counters.taken.load(Ordering::Relaxed);
        self.frame_need.tick(taken - self.last_taken, elapsed_s);
        self.last_taken = taken;
        if pool.is_handoff() {
            pool.keep_free(self.frame_need.target(pool.len()), self.frame_need.low(pool.len()));
        }
    }

    /// Cleans the next victims, a lot at a time, before frames are short again: then they leave at once.
    fn clean_ahead(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let pool = &engine.core.pool;
        // With the classic policies other threads do this, or none. While the log is redone each page is written once
        // (RECOVER-4).
        if !self.frame_need.is_taken_from() || !pool.is_handoff() || engine.redoing.load(Ordering::Relaxed) {
            return Ok(());
        }
        if engine.core.store.unsynced() + LOT_PAGES > engine.unsynced_max() {
            // This is not worth a wait for a sync.
            self.begin_publishing();
            return Ok(());
        }
        let ahead = self.frame_need.clean_ahead(pool.len());
        let now = clock::now_ns();
        let (free, all_dirty) = pool.counts();
        // With so many free frames no page leaves soon: the pool is not full yet.
        if all_dirty == 0 || free >= to_u64(ahead + pool.target()) {
            return Ok(());
        }
        // At the last search the next victims were clean, and few of them have left since.
        let taken = pool.counters.taken.load(Ordering::Relaxed);
        if taken < self.clean_until_taken && now < self.next_clean_ns {
            return Ok(());
        }
        let dirty = pool.dirty_victims(ahead, LOT_PAGES);
        (self.clean_until_taken, self.next_clean_ns) = match dirty.len() {
            LOT_PAGES => (0, 0),
            _ => (taken + to_u64(ahead / CLEAN_LOOKS), now + DUTIES_TICK_NS),
        };
        // A few dirty pages are not worth a write of their own: more follow, or `FEW_WAIT_NS` passes.
        let enough = dirty.len() >= LOT_PAGES.min(pool.target() / 2);
        let since = if dirty.is_empty() { now } else { self.few_since_ns.unwrap_or(now) };
        self.few_since_ns = Some(since).filter(|_| !dirty.is_empty() && !enough);
        if (enough || now - since >= FEW_WAIT_NS) && self.write_lot(FlushReason::Frames, dirty)? > 0 {
            self.few_since_ns = None;
            engine.bell.ring();
        }
        Ok(())
    }

    /// Has all changes before `cut` in durable images that map records or written map pages name, except for pages that
    /// change meanwhile.
    fn clean_before(&mut self, cut: Lsn) -> Result<(), Error> {
        let dirty = self.engine.core.pool.dirty_before(cut);
        self.flush_frames(FlushReason::AtOnce, dirty.into_iter().map(|(_, frame)| frame).collect())?;
        self.publish_images()?;
        self.engine.core.store.write_map_pages(cut)?;
        Ok(())
    }

    fn flush_frames(&mut self, why: FlushReason, mut frames: Vec<FrameId>) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        engine.core.pool.sort_by_page(&mut frames);
        for lot in frames.chunks(LOT_PAGES) {
            let pins = engine.core.pool.pin_dirty(lot);
            self.write_lot(why, pins)?;
            // Threads that need a frame do not wait for the end of a long flush.
            if engine.core.pool.frames_short() > 0 {
                self.free_frames()?;
            }
        }
        Ok(())
    }

    /// Writes dirty pages. Returns the number written: pages with an image in flight stay dirty.
    fn write_lot(&mut self, why: FlushReason, pins: Vec<Pin<'_>>) -> Result<usize, Error> {
        let written = self.write_with(why, pins, Moved::default())?;
        written.ok_or_else(|| Error::Bug("STORE-3: pages find no slots, although each is charged one".into()))
    }

    /// Writes pages, and images that are to be moved. Returns the number of pages. `None`: there are no slots, and all
    /// stays as it was, except for pages already written.
    fn write_with(&mut self, why: FlushReason, pins: Vec<Pin<'_>>, moved: Moved<'_>) -> Result<Option<usize>, Error> {
        let engine = Arc::clone(&self.engine);
        let pool = &engine.core.pool;
        if pool.instance_count() == 1 {
            return self.write_in(0, why, pins, moved);
        }
        let mut by_instance: Vec<Vec<Pin<'_>>> = (0..pool.instance_count()).map(|_| Vec::new()).collect();
        for pin in pins {
            by_instance[pool.number_of_instance(pin.frame_id())].push(pin);
        }
        let mut written = 0;
        for (instance, mut pins) in by_instance.into_iter().enumerate() {
            // A zone may have more pages than the buffer of one instance.
            while !pins.is_empty() {
                let others = pins.split_off(pins.len().min(LOT_PAGES));
                let Some(more) = self.write_in(instance, why, pins, Moved::default())? else { return Ok(None) };
                (written, pins) = (written + more, others);
            }
        }
        if !moved.images.is_empty() && self.write_in(0, why, Vec::new(), moved)?.is_none() && written == 0 {
            return Ok(None);
        }
        Ok(Some(written))
    }

    /// As `write_with`, for pages of one instance. Only the first instance's turn has a buffer for moved images.
    fn write_in(
        &mut self,
        instance: usize,
        why: FlushReason,
        pins: Vec<Pin<'_>>,
        moved: Moved<'_>,
    ) -> Result<Option<usize>, Error> {
        let engine = Arc::clone(&self.engine);
        let store = &engine.core.store;
        if !pins.is_empty() {
            engine.pacing.is_writing();
        }
        // WRITER-3
        let in_hand = engine.writers.take(pins.len(), engine.unsynced_max(), || store.unsynced());
        let in_hand = match in_hand {
            Some(in_hand) => {
                if store.unsynced() + pins.len() > engine.unsynced_max() / 2 {
                    self.begin_publishing();
                }
                in_hand
            }
            None => {
                self.publish_images()?;
                engine.writers.take_now(pins.len())
            }
        };
        // STORE-3: slots of replaced images and of dropped trees come free.
        let is_needed = moved.images.is_empty();
        let make_room = |asked: u32| {
            if is_needed {
                self.free_slots(asked == 1)?;
            }
            Ok(is_needed && asked < 2)
        };
        let mut writing = if is_needed { engine.writers.lock(instance) } else { engine.writers.lock_all() };
        let began = clock::now_ns();
        engine.core.pool.keeper_is_busy(began);
        let lot = writing.write(&engine.core, why, pins, moved, make_room)?;
        drop((writing, in_hand));
        let ended = clock::now_ns();
        engine.core.pool.keeper_is_busy(ended);
        self.frame_need.written(seconds(ended - began));
        match lot {
            Lot::Written { pages, moved, writes, took_ns, skipped } => {
                self.zones.lot(writes, pages + moved, took_ns);
                engine.core.store.counters.pages_moved.fetch_add(to_u64(moved), Ordering::Relaxed);
                if matches!(why, FlushReason::Frames) {
                    let log_waits = engine.pacing.owed() > 0;
                    engine.pacing.written(For::Frames, pages, log_waits, clock::now_ns());
                }
                self.sync_wanted |= skipped;
                Ok(Some(pages).filter(|pages| *pages > 0 || is_needed || !planted!("moved_not_counted")))
            }
            Lot::NoSlots => Ok(None),
        }
    }

    /// Frees the slots that only wait for a sync and, with `dropped`, the slots of dropped trees.
    fn free_slots(&mut self, dropped: bool) -> Result<(), Error> {
        while dropped && self.give_back(GIVE_BACK_STEPS) {}
        self.publish_images()?;
        self.engine.core.log.flush_all()?;
        Ok(())
    }

    /// Frees some frames of dropped trees, or, when these are done, some slots. False: there is nothing to free.
    fn give_back(&mut self, steps: usize) -> bool {
        let core = &self.engine.core;
        for _ in 0..steps {
            let front = self.engine.drops.lock().front().copied();
            if let Some((space, from)) = front {
                let next = core.pool.discard_step(space, from);
                let mut drops = self.engine.drops.lock();
                match (next, drops.front_mut()) {
                    (Some(next), Some(front)) => front.1 = next,
                    _ => drop(drops.pop_front()),
                }
            } else if !core.store.give_back_step() {
                return false;
            }
        }
        self.engine.bell.ring();
        true
    }

    /// Evicts the pages beyond the end of a pool that was made smaller, except pages in use.
    fn retire_frames(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        for _ in 0..RETIRE_STEPS {
            let leaving = engine.core.pool.leaving();
            if leaving > 0 {
                let dirty = engine.core.pool.dirty_beyond();
                self.flush_frames(FlushReason::Frames, dirty)?;
                engine.core.pool.retire_step();
            }
            // Pages in use are tried again at the next tick.
            if leaving == engine.core.pool.leaving() {
                break;
            }
        }
        Ok(())
    }
}

fn seconds(ns: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a duration needs no exact nanosecond")]
    let ns = ns as f64;
    ns / 1e9
}
