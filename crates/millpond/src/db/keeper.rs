//! The keeper: the one background thread. It frees frames, writes dirty pages before the log needs them gone, grows the
//! files ahead of need, and takes checkpoints.
//!
//! KEEPER-1  All page writes and all checkpoints are its own, one after the other: when a checkpoint computes its
//!           LSN, no image is in flight.
//! KEEPER-2  It never waits for anything that waits for it: it takes no credit of the log, no frame, no page id.
//!
//! It sleeps until its bell is rung or its next deadline has come.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::{CheckpointAnswer, Engine, Recovery};
use crate::base::aligned::{AlignedBuf, aligned};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::PageId;
use crate::base::ids::{FrameId, Lsn};
use crate::base::page::layout::{header, page_lsn};
use crate::pace::envelope::{LogPace, pages_due};
use crate::pool::frame::Pin;
use crate::store::page_store::{CheckpointFacts, LOT_PAGES};

/// How often dirty pages are looked at for the log's sake.
const FLUSH_TICK_NS: u64 = 50_000_000;

/// How long a change may wait for a checkpoint when nothing presses.
const CHECKPOINT_TICK_NS: u64 = 1_000_000_000;

/// Lots written for free frames before the other duties are looked at.
const LOTS_A_STEP: usize = 4;

/// Passes over the dirty pages in which a checkpoint must have written all. Each frees or adds at least a lot of slots;
/// a full file system takes many.
const PASSES_MAX: u32 = 100_000;

/// The keeper's memory between steps.
pub(crate) struct Keeper {
    engine: Arc<Engine>,
    buf: AlignedBuf,
    next_flush_ns: u64,
    next_checkpoint_ns: u64,
    last_flush_ns: u64,
    last_lsn: Lsn,
    redo_bytes_per_s: f64,
    /// Requests for a checkpoint that is under way: answered even if it panics.
    asked: Vec<Arc<Handoff<CheckpointAnswer>>>,
    failed: bool,
}

impl Keeper {
    pub(crate) fn new(engine: Arc<Engine>) -> Keeper {
        let now = clock::now_ns();
        let buf = aligned(LOT_PAGES * engine.core.store.page_size());
        let last_lsn = engine.core.log.positions().next;
        Keeper {
            engine,
            buf,
            next_flush_ns: now + FLUSH_TICK_NS,
            next_checkpoint_ns: now + CHECKPOINT_TICK_NS,
            last_flush_ns: now,
            last_lsn,
            redo_bytes_per_s: 0.0,
            asked: Vec::new(),
            failed: false,
        }
    }

    /// The thread's body: works until it is asked to stop.
    pub(crate) fn run(mut self) {
        let engine = Arc::clone(&self.engine);
        let mut panicked = None;
        while !engine.requests.lock().stop {
            let step = catch_unwind(AssertUnwindSafe(|| self.step(clock::now_ns())));
            let deadline = step.unwrap_or_else(|panic| {
                // Nobody may wait for ever on a thread that is gone: it stays, refuses, and reports when it is joined.
                panicked = Some(panic);
                self.give_up(&Error::Bug("the keeper panicked: reopen the database".into()));
                0
            });
            engine.bell.wait_until(deadline);
        }
        // Who asked too late is told so.
        let asked = std::mem::take(&mut engine.requests.lock().checkpoints);
        for handoff in asked {
            handoff.give(Err("the database was closed".into()));
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Does what is due; returns when to look again if nobody rings.
    pub(crate) fn step(&mut self, now: u64) -> u64 {
        if !self.failed
            && let Err(error) = self.work(now)
        {
            self.give_up(&error);
        }
        if self.failed {
            self.refuse_requests();
            return now + CHECKPOINT_TICK_NS;
        }
        let deadline = self.next_flush_ns;
        self.engine.core.log.demand().flush_by_ns.map_or(deadline, |by| by.min(deadline))
    }

    fn work(&mut self, now: u64) -> Result<(), Error> {
        self.engine.core.log.health()?;
        self.serve_log(now)?;
        self.free_frames()?;
        if now >= self.next_flush_ns {
            self.next_flush_ns = now + FLUSH_TICK_NS;
            self.flush_for_log(now)?;
            self.grow_ahead();
            self.checkpoint_if_due(now)?;
        }
        self.serve_requests()
    }

    /// A failure below: from here on nothing is written, and everybody who waits is told.
    fn give_up(&mut self, error: &Error) {
        self.failed = true;
        self.engine.core.log.stop(error);
        self.engine.core.pool.stop();
        self.engine.requests.lock().failed = Some(error.to_string().into());
    }

    fn refuse_requests(&mut self) {
        self.engine.core.pool.stop();
        let why = {
            let mut requests = self.engine.requests.lock();
            self.asked.append(&mut requests.checkpoints);
            requests.failed.clone().unwrap_or_else(|| "unknown".into())
        };
        for handoff in self.asked.drain(..) {
            handoff.give(Err(Arc::clone(&why)));
        }
    }

    fn recovering(&self) -> bool {
        self.engine.requests.lock().recovery != Recovery::Done
    }

    /// Background commits, and those who wait for room in the log.
    fn serve_log(&mut self, now: u64) -> Result<(), Error> {
        let demand = self.engine.core.log.demand();
        if demand.buffer_short || demand.flush_by_ns.is_some_and(|by| by <= now) {
            self.engine.core.log.flush_all()?;
        }
        if demand.files_short && !self.recovering() {
            // The wall: the oldest quarter of the log goes first.
            let cut = self.engine.core.log.positions().checkpoint.plus(self.engine.core.log.capacity() / 4);
            self.flush_older_than(cut)?;
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Keeps frames free ahead of need.
    fn free_frames(&mut self) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        for _ in 0..LOTS_A_STEP {
            let short = engine.core.pool.frames_short();
            if short == 0 {
                return Ok(());
            }
            let (freed, dirty) = engine.core.pool.sweep(short, LOT_PAGES);
            if dirty.is_empty() && freed == 0 {
                return Ok(());
            }
            let frames: Vec<FrameId> = dirty.iter().map(Pin::frame_id).collect();
            self.write_lot(dirty)?;
            engine.core.pool.free_cleaned(&frames);
        }
        // More may be wanted: look again at once.
        engine.bell.ring();
        Ok(())
    }

    /// Writes dirty pages at the smallest rate that has all of them clean in time.
    fn flush_for_log(&mut self, now: u64) -> Result<(), Error> {
        let next = self.engine.core.log.positions().next;
        let elapsed_s = seconds(now - self.last_flush_ns);
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact byte count")]
        let rate = next.since(self.last_lsn) as f64 / elapsed_s.max(1e-3);
        // Up at once, down slowly: a lull is no reason to fall behind.
        self.redo_bytes_per_s = rate.max(self.redo_bytes_per_s * 0.95);
        self.last_flush_ns = now;
        self.last_lsn = next;
        if self.recovering() {
            return Ok(());
        }
        let mut dirty = self.engine.core.pool.dirty_frames();
        dirty.sort_unstable();
        let rec_lsns: Vec<u64> = dirty.iter().map(|(lsn, _)| lsn.0).collect();
        let pace = LogPace {
            next_lsn: next.0,
            bytes_per_s: self.redo_bytes_per_s,
            window_bytes: self.engine.core.log.capacity() / 2,
        };
        let due = pages_due(&rec_lsns, pace, seconds(FLUSH_TICK_NS));
        let frames: Vec<FrameId> = dirty[..due].iter().map(|(_, frame)| *frame).collect();
        self.flush_frames(&frames)
    }

    fn flush_older_than(&mut self, cut: Lsn) -> Result<(), Error> {
        let mut dirty = self.engine.core.pool.dirty_frames();
        dirty.retain(|(lsn, _)| *lsn < cut);
        let frames: Vec<FrameId> = dirty.iter().map(|(_, frame)| *frame).collect();
        self.flush_frames(&frames)
    }

    fn flush_frames(&mut self, frames: &[FrameId]) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        for lot in frames.chunks(LOT_PAGES) {
            let pins = engine.core.pool.pin_dirty(lot);
            self.write_lot(pins)?;
            // Long flushes do not let those wait who need a frame.
            if engine.core.pool.frames_short() > 0 {
                self.free_frames()?;
            }
        }
        Ok(())
    }

    /// Copies pages under their latches, has the log durable past them, writes them to free slots.
    fn write_lot(&mut self, pins: Vec<Pin<'_>>) -> Result<(), Error> {
        let core = &self.engine.core;
        let size = core.store.page_size();
        let mut copied = Copied { pages: Vec::with_capacity(pins.len()) };
        let mut newest = Lsn::ZERO;
        for pin in pins {
            let at = copied.pages.len() * size;
            let page = pin.read();
            self.buf[at..at + size].copy_from_slice(page.bytes());
            newest = newest.max(page_lsn(page.bytes()));
            let id = PageId(header(page.bytes()).page_id.get());
            // What was discarded meanwhile is clean, and goes nowhere.
            if let (pin, Some(rec_lsn)) = page.take_dirtiness() {
                copied.pages.push((id, pin, rec_lsn));
            }
        }
        if copied.pages.is_empty() {
            return Ok(());
        }
        if !cfg!(planted = "page_before_log") {
            core.log.flush_wait(newest)?;
        }
        let ids: Vec<PageId> = copied.pages.iter().map(|(id, _, _)| *id).collect();
        let bytes = ids.len() * size;
        if core.store.write(&ids, &mut self.buf[..bytes], core.log.positions().durable)? {
            copied.pages.clear();
            return Ok(());
        }
        // No free slots before the next checkpoint.
        drop(copied);
        if self.recovering() {
            // No checkpoint may free slots yet: recovery needs room beside the images of the last one.
            let (_, free_before) = core.store.slot_counts();
            core.store.grow()?;
            return if core.store.slot_counts().1 > free_before { Ok(()) } else { Err(no_room_to_recover()) };
        }
        self.checkpoint()
    }

    fn grow_ahead(&self) {
        if self.engine.core.store.wants_growth() {
            // A wish only: who needs the space and cannot have it gets the error.
            let _ = self.engine.core.store.grow();
        }
    }

    fn serve_requests(&mut self) -> Result<(), Error> {
        {
            let mut requests = self.engine.requests.lock();
            if requests.recovery == Recovery::Redoing {
                return Ok(());
            }
            self.asked.append(&mut requests.checkpoints);
        }
        if self.asked.is_empty() {
            return Ok(());
        }
        let next = self.engine.core.log.positions().next;
        // On failure, `refuse_requests` answers. A lot that found no slots is dirty again: then once more.
        let mut passes = 0;
        while self.engine.core.pool.oldest_rec_lsn().is_some_and(|oldest| oldest < next) {
            passes += 1;
            if passes > PASSES_MAX {
                return Err(Error::Bug("STORE-3: pages find no slots, however often they are written".into()));
            }
            self.flush_older_than(next)?;
        }
        self.engine.requests.lock().recovery = Recovery::Done;
        self.checkpoint()?;
        for handoff in self.asked.drain(..) {
            handoff.give(Ok(()));
        }
        Ok(())
    }

    fn checkpoint_if_due(&mut self, now: u64) -> Result<(), Error> {
        if self.recovering() {
            return Ok(());
        }
        let (log, store) = (&self.engine.core.log, &self.engine.core.store);
        let positions = log.positions();
        let reachable = self.engine.core.pool.oldest_rec_lsn().unwrap_or(positions.next);
        let gain = reachable.since(positions.checkpoint);
        let pressing = gain > log.capacity() / 16 || store.wants_checkpoint();
        if pressing || (now >= self.next_checkpoint_ns && gain > 0) {
            return self.checkpoint();
        }
        if now >= self.next_checkpoint_ns {
            self.next_checkpoint_ns = now + CHECKPOINT_TICK_NS;
        }
        Ok(())
    }

    /// Writes a checkpoint: everything before its LSN is in images that the new map names.
    fn checkpoint(&mut self) -> Result<(), Error> {
        self.next_checkpoint_ns = clock::now_ns() + CHECKPOINT_TICK_NS;
        let engine = &self.engine;
        let core = &engine.core;
        let (checkpoint_lsn, snapshot, next_space) = {
            let _both_or_neither = engine.drop_or_snapshot.lock();
            // First the log's end, under its mutex: all groups before it have marked their pages dirty.
            let next = core.log.positions().next;
            let oldest = core.pool.oldest_rec_lsn().unwrap_or(next);
            let lsn = if cfg!(planted = "checkpoint_skips_dirty") { next } else { oldest.min(next) };
            (lsn, core.store.snapshot(), engine.next_space.load(Ordering::Relaxed))
        };
        if checkpoint_lsn < core.log.positions().checkpoint {
            return Err(Error::Bug(format!("REDO-2: a checkpoint would go back to LSN {checkpoint_lsn}").into()));
        }
        let durable_lsn =
            if cfg!(planted = "superblock_before_log") { core.log.positions().next } else { core.log.flush_all()? };
        let facts = CheckpointFacts {
            checkpoint_lsn,
            durable_lsn,
            nonce: engine.nonce,
            next_space,
            redo_generation: engine.redo_generation,
            redo_payload_bytes: core.log.payload_bytes(),
        };
        core.store.publish(snapshot, facts)?;
        core.log.set_checkpoint(checkpoint_lsn);
        Ok(())
    }
}

/// Pages whose dirtiness was taken for a write: dirty again, from where they were, unless the write came to its end.
struct Copied<'p> {
    pages: Vec<(PageId, Pin<'p>, Lsn)>,
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        for (_, pin, rec_lsn) in &self.pages {
            pin.frame().dirty_again(*rec_lsn);
        }
    }
}

fn no_room_to_recover() -> Error {
    let doing = "grow the data file for recovery, which writes pages beside their last checkpoint's images";
    Error::io(doing, std::io::ErrorKind::StorageFull.into())
}

fn seconds(ns: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a duration needs no exact nanosecond")]
    let ns = ns as f64;
    ns / 1e9
}
