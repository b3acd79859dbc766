//! What the keeper is asked for explicitly: checkpoints, another ring for the log, another size of the pool.
//!
//! To have all clean that was dirty at a moment may take as long as the device takes to write the pool. That is done a
//! lot at a time, mostly behind what frames and log need: who wants a frame, or room in the log, waits for one lot at
//! most because somebody asked for a checkpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::{FlushReason, GIVE_BACK_STEPS, Keeper, STEP_NS};
use crate::base::aligned::to_usize;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{FrameId, Lsn};
use crate::engine::CheckpointGoal;
use crate::store::page_store::LOT_PAGES;

/// Looks at all dirty pages that find one which should be clean, although all that was found before was written.
const PASSES_MAX: u32 = 100_000;

/// Rounds in which a change of the log's capacity, or a close, should have come to its end.
const ROUNDS_MAX: u32 = 100;

/// While pages are written for frames or for the log, there are so many of these between two lots.
const OTHERS_FIRST: u64 = 8 * LOT_PAGES as u64;

/// Everything before a cut is being cleaned.
#[derive(Default)]
pub(crate) struct Cleaning {
    cut: Lsn,
    /// Pages that were found dirty, in the order of their ids, the last one first.
    frames: Vec<FrameId>,
    /// Pages that had been written, for whatever reason, when the last lot had been.
    written: u64,
    passes: u32,
    /// What was found is written: its images are of this turn of writing, or an earlier one.
    pass_turn: Option<u64>,
    /// Nothing more was found: all of it is clean when the images of this turn are named...
    turn: Option<u64>,
    /// ...and done with when a checkpoint after so many has ended.
    checkpoints_before: Option<u64>,
    rounds: u32,
}

impl Keeper {
    /// Begins what is asked for, and does some of what takes long; `others_write`: pages were written for frames or for
    /// the log in this step.
    pub(crate) fn serve_requests(&mut self, others_write: bool) -> Result<(), Error> {
        let requests = std::mem::take(&mut self.engine.requests.lock().asked);
        // On failure, `refuse_requests` answers.
        self.asked.extend(requests.iter().map(|request| Arc::clone(&request.handoff)));
        for request in requests {
            let takes_long = matches!(request.wish, CheckpointGoal::All | CheckpointGoal::Ring(_));
            match request.wish {
                CheckpointGoal::All => {}
                CheckpointGoal::Superblock => self.checkpoint()?,
                CheckpointGoal::Slots => self.free_slots(true)?,
                CheckpointGoal::Pool(frames) => {
                    self.engine.core.pool.resize(to_usize(frames))?;
                    self.retire_frames()?;
                }
                CheckpointGoal::Ring(ring) => {
                    // What is becoming durable is named now, for the keeper logs nothing between the next two steps;
                    // and a checkpoint that ends later knows nothing of the ring.
                    if !planted!("ring_added_beside_sync") {
                        self.take_synced(true)?;
                    }
                    // First a superblock that names the ring, then the first byte in it.
                    self.engine.core.log.add_ring(ring)?;
                    self.checkpoint()?;
                    self.engine.core.log.open_ring();
                }
            }
            self.asked.retain(|handoff| !Arc::ptr_eq(handoff, &request.handoff));
            if takes_long {
                self.wants_clean.push(request.handoff);
            } else {
                request.handoff.give(Ok(()));
            }
        }
        self.clean_as_asked(others_write)
    }

    /// Tells everybody who has asked for something that there will be nothing any more.
    pub(crate) fn refuse_requests(&mut self) {
        self.engine.core.pool.stop();
        let why = self.engine.requests.lock().failed.clone().unwrap_or_else(|| "unknown".into());
        self.refuse_all(&why);
    }

    /// The same, and why.
    pub(crate) fn refuse_all(&mut self, why: &Arc<str>) {
        let (asked, naming) = {
            let mut requests = self.engine.requests.lock();
            (std::mem::take(&mut requests.asked), std::mem::take(&mut requests.naming))
        };
        let under_way = self.asked.drain(..).chain(self.wants_clean.drain(..)).chain(self.cleans_for.drain(..));
        let late = asked.into_iter().map(|request| request.handoff).chain(naming.into_iter().map(|of| of.handoff));
        under_way.chain(late).for_each(|handoff| handoff.give(Err(Arc::clone(why))));
    }

    /// Goes on with what everybody waits for who wants everything clean.
    fn clean_as_asked(&mut self, others_write: bool) -> Result<(), Error> {
        if self.cleans_for.is_empty() {
            if self.wants_clean.is_empty() {
                return Ok(());
            }
            // Those who come while it goes on wait for the next one: else, asked often, it had no end.
            self.cleans_for.append(&mut self.wants_clean);
            self.cleaning = Cleaning { cut: self.all_so_far(), ..Cleaning::default() };
        }
        let mut cleaning = std::mem::take(&mut self.cleaning);
        let has_ended = self.clean_some(&mut cleaning, others_write)?;
        self.cleaning = cleaning;
        if has_ended {
            self.cleans_for.drain(..).for_each(|handoff| handoff.give(Ok(())));
            if !self.wants_clean.is_empty() {
                self.engine.bell.ring();
            }
        }
        Ok(())
    }

    /// The log's end, when all pages of the groups before it are marked dirty.
    fn all_so_far(&self) -> Lsn {
        let next = self.engine.core.log.positions().next;
        self.engine.core.log.wait_marked(next);
        next
    }

    /// True: there is a checkpoint of everything before the cut.
    fn clean_some(&mut self, cleaning: &mut Cleaning, others_write: bool) -> Result<bool, Error> {
        let engine = Arc::clone(&self.engine);
        let (core, until_ns) = (&engine.core, clock::now_ns() + STEP_NS);
        if self.give_back(GIVE_BACK_STEPS) {
            return Ok(false);
        }
        while cleaning.turn.is_none() {
            if cleaning.frames.is_empty() {
                if cleaning.passes > 0 && !self.is_named(&mut cleaning.pass_turn) {
                    return Ok(false);
                }
                let dirty = {
                    // Nobody has a page in hand that is not dirty any more and not yet written (WRITER-1).
                    let _nobody_writes = engine.writers.none();
                    core.pool.dirty_before(cleaning.cut)
                };
                if dirty.is_empty() {
                    cleaning.turn = Some(core.store.turns().0);
                    break;
                }
                (cleaning.pass_turn, cleaning.passes) = (None, cleaning.passes + 1);
                if cleaning.passes > PASSES_MAX {
                    return Err(Error::Bug("STORE-3: pages stay dirty, however often they are written".into()));
                }
                cleaning.frames = dirty.into_iter().map(|(_, frame)| frame).collect();
                core.pool.sort_by_page(&mut cleaning.frames);
                cleaning.frames.reverse();
            }
            if core.store.unsynced() + LOT_PAGES > engine.unsynced_max() && self.wait_for_sync() {
                return Ok(false);
            }
            if (others_write && engine.page_writes.all() < cleaning.written + OTHERS_FIRST)
                || clock::now_ns() >= until_ns
            {
                engine.bell.ring();
                return Ok(false);
            }
            let rest = cleaning.frames.len().saturating_sub(LOT_PAGES);
            let lot = cleaning.frames.split_off(rest);
            let pins = lot.into_iter().rev().filter_map(|frame| core.pool.pin_dirty_before(frame, cleaning.cut));
            if self.write_lot(FlushReason::AtOnce, pins.collect())? > 0 {
                cleaning.written = engine.page_writes.all();
                if core.pool.frames_short() > 0 || core.log.is_full_for_some() {
                    engine.bell.ring();
                    return Ok(false);
                }
            }
        }
        if !self.is_named(&mut cleaning.turn) {
            return Ok(false);
        }
        let begun = self.checkpoints_begun;
        let before = match cleaning.checkpoints_before {
            Some(before) => before,
            None => {
                core.store.write_map_pages(Lsn(u64::MAX))?;
                *cleaning.checkpoints_before.insert(begun)
            }
        };
        if self.checkpoints_ended <= before {
            if !self.syncer.busy() {
                self.begin_checkpoint();
            } else if begun == before {
                // Its end rings, and a checkpoint is next.
                self.next_checkpoint_ns = 0;
            }
            return Ok(false);
        }
        // The log's first ring is left, also when nobody writes. When others keep the log full, that comes later by
        // itself.
        let is_enough = cleaning.rounds >= ROUNDS_MAX;
        let switch = core.log.geometry().1.filter(|_| !is_enough);
        if let Some(switch) = switch {
            // Who holds something of the groups before it, a counter's groups later, is not told apart.
            core.log.pad_to(core.log.counts.bucket_end(switch.at))?;
        }
        // Nor does the keeper leave what it has changed itself to the next open.
        let is_last = engine.closed.load(Ordering::Relaxed) && !is_enough;
        if switch.is_none() && (!is_last || core.log.counts.oldest().is_none()) {
            return Ok(true);
        }
        *cleaning = Cleaning { cut: self.all_so_far(), rounds: cleaning.rounds + 1, ..Cleaning::default() };
        engine.bell.ring();
        Ok(false)
    }

    /// Whether the images of a turn, or of this one, are durable and named; has them become so.
    fn is_named(&mut self, turn: &mut Option<u64>) -> bool {
        let (last, named) = self.engine.core.store.turns();
        named >= *turn.get_or_insert(last) || !self.wait_for_sync()
    }

    /// Has images become durable that are written. True: that is under way, and its end rings.
    fn wait_for_sync(&mut self) -> bool {
        self.begin_publishing();
        self.syncer.busy()
    }
}
