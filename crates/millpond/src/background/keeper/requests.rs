//! Explicit requests to the keeper: checkpoints, another ring for the log, another size of the pool.
//!
//! To clean all pages that are dirty at one moment may take as long as the device needs to write the pool. The keeper
//! does so a lot at a time, mostly behind writes for frames and for the log. So a thread that needs a frame or log
//! space waits for at most one lot that is written for a requested checkpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::keeper::{FlushReason, GIVE_BACK_STEPS, Keeper, STEP_NS};
use crate::base::aligned::to_usize;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{FrameId, Lsn};
use crate::engine::{CheckpointGoal, Freeze, LogHold};
use crate::store::lot::LOT_PAGES;

/// Most passes over the dirty pages in one cleaning: each pass writes all pages that it finds.
const PASSES_MAX: u32 = 100_000;

/// Rounds within which a change of the log's capacity, or a close, should end.
const ROUNDS_MAX: u32 = 100;

/// Pages written for frames or for the log between two lots of a cleaning, while there are such pages.
const OTHERS_FIRST: u64 = 8 * LOT_PAGES as u64;

/// The progress of cleaning all changes before `cut`.
#[derive(Default)]
pub(crate) struct Cleaning {
    cut: Lsn,
    /// Frames of the dirty pages found, by descending page id: the keeper takes from the end.
    frames: Vec<FrameId>,
    /// Total of page writes, for any reason, after the last lot.
    written: u64,
    passes: u32,
    /// All pages found are written: their images are of this turn of writing, or of an earlier one.
    pass_turn: Option<u64>,
    /// No more dirty pages were found: all changes are clean when the images of this turn are named...
    turn: Option<u64>,
    /// ...and the cleaning ends with a checkpoint whose number is higher than this.
    checkpoints_before: Option<u64>,
    rounds: u32,
}

impl Keeper {
    /// Serves the requests, and does one step of a long one. `others_write`: pages were written for frames or for the
    /// log in this step.
    pub(super) fn serve_requests(&mut self, others_write: bool) -> Result<(), Error> {
        self.break_log_hold();
        let requests = std::mem::take(&mut self.engine.requests.lock().asked);
        // On failure, `refuse_requests` answers.
        self.asked.extend(requests.iter().map(|request| Arc::clone(&request.handoff)));
        for request in requests {
            let takes_long = matches!(request.goal, CheckpointGoal::All | CheckpointGoal::Ring(_));
            match request.goal {
                CheckpointGoal::All => {}
                CheckpointGoal::Superblock => self.checkpoint()?,
                CheckpointGoal::Slots => self.free_slots(true)?,
                CheckpointGoal::Freeze(into) => {
                    // No checkpoint is under way then: the log from the newest superblock's on is still there.
                    self.take_synced(true)?;
                    *into.lock() = Some(self.freeze());
                }
                CheckpointGoal::Pool(frames) => {
                    self.engine.core.pool.resize(to_usize(frames))?;
                    self.retire_frames()?;
                }
                CheckpointGoal::Ring(ring) => {
                    // First the job under way: its images are named now, for the keeper logs nothing between the next
                    // two steps. And its checkpoint knows nothing of the ring.
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

    /// Freezes the map for a backup, and holds the log from the last checkpoint on.
    fn freeze(&self) -> Freeze {
        let engine = &self.engine;
        let (core, log) = (&engine.core, &engine.core.log);
        if log.geometry().1.is_some() {
            return Freeze::Moving;
        }
        let Some(frozen) = core.store.freeze() else { return Freeze::Busy };
        // BACKUP-3
        let from = frozen.superblock.checkpoint_lsn;
        log.counts.note_group(from);
        log.counts.add(from);
        // BACKUP-2: after the map.
        let end = log.positions().next;
        let end = if planted!("backup_ends_at_its_checkpoint") { frozen.superblock.durable_lsn } else { end };
        let capacity = log.capacity();
        // So much of the log is as usual (`WINDOW` in `pace::tick` is more); and where more is, a sixteenth more.
        let upto = from.plus(capacity / 8 * 5).max(end.plus(capacity / 16));
        *engine.log_hold.lock() = Some(LogHold { from, upto });
        Freeze::Frozen(Box::new(frozen), end)
    }

    /// Breaks a backup's hold on the log before writers feel it.
    pub(super) fn break_log_hold(&self) {
        let Some(hold) = *self.engine.log_hold.lock() else { return };
        let log = &self.engine.core.log;
        if log.positions().next > hold.upto || log.is_full_for_some() {
            self.engine.end_log_hold();
        }
    }

    /// Refuses all requests with the reason why the keeper has given up.
    pub(super) fn refuse_requests(&mut self) {
        self.engine.core.pool.stop();
        let why = self.engine.requests.lock().failed.clone().unwrap_or_else(|| "unknown".into());
        self.refuse_all(&why);
    }

    /// Refuses all requests with the reason `why`.
    pub(super) fn refuse_all(&mut self, why: &Arc<str>) {
        let (asked, naming) = {
            let mut requests = self.engine.requests.lock();
            (std::mem::take(&mut requests.asked), std::mem::take(&mut requests.naming))
        };
        let under_way = self.asked.drain(..).chain(self.wants_clean.drain(..)).chain(self.cleans_for.drain(..));
        let late = asked.into_iter().map(|request| request.handoff).chain(naming.into_iter().map(|of| of.handoff));
        under_way.chain(late).for_each(|handoff| handoff.give(Err(Arc::clone(why))));
    }

    /// Does one step of the cleaning that requests for a checkpoint of all changes wait for.
    fn clean_as_asked(&mut self, others_write: bool) -> Result<(), Error> {
        if self.cleans_for.is_empty() {
            if self.wants_clean.is_empty() {
                return Ok(());
            }
            // Requests that come during a cleaning wait for the next one: else frequent requests would prolong it
            // without end.
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

    /// Returns the log's end, after all pages of the groups before it are marked dirty.
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
                    // No thread is writing a page, so none is marked clean but not yet written (WRITER-1).
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
                // The job's end rings the bell, and a checkpoint is next.
                self.next_checkpoint_ns = 0;
            }
            return Ok(false);
        }
        // The log leaves its first ring even if no thread writes. If writers keep the log full, that happens later by
        // itself.
        let is_enough = cleaning.rounds >= ROUNDS_MAX;
        let switch = core.log.geometry().1.filter(|_| !is_enough);
        if let Some(switch) = switch {
            // A bucket does not tell changes before the switch from those after it: pad to the bucket's end.
            core.log.pad_to(core.log.counts.bucket_end(switch.at))?;
        }
        // At a close the keeper also cleans its own changes: it leaves none to the next open.
        let is_last = engine.closed.load(Ordering::Relaxed) && !is_enough;
        if switch.is_none() && (!is_last || core.log.counts.oldest().is_none()) {
            return Ok(true);
        }
        *cleaning = Cleaning { cut: self.all_so_far(), rounds: cleaning.rounds + 1, ..Cleaning::default() };
        engine.bell.ring();
        Ok(false)
    }

    /// Whether the images of `turn` are durable and named; if not, begins a sync. `None` becomes the current turn.
    fn is_named(&mut self, turn: &mut Option<u64>) -> bool {
        let (last, named) = self.engine.core.store.turns();
        named >= *turn.get_or_insert(last) || !self.wait_for_sync()
    }

    /// Begins a sync of the written images. True: a job is under way, and its end rings the bell.
    fn wait_for_sync(&mut self) -> bool {
        self.begin_publishing();
        self.syncer.busy()
    }
}
