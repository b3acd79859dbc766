//! The steps after page writes: data syncs, map groups, checkpoints.
//!
//! The keeper's second thread waits for syncs. The keeper does what a sync allows when it takes the result: in its next
//! step, or at once in a duty that cannot go on without it.

use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::background::keeper::syncer::Syncer;
use crate::background::keeper::{CHECKPOINT_TICK_NS, FlushReason, Keeper, SYNC_TICK_NS};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::{FrameId, Lsn};
use crate::redo::files::{Switch, remove_ring};
use crate::redo::group::GroupKind;
use crate::store::checkpoint::CheckpointFacts;
use crate::store::page_store::MapRecord;

/// A result of the second thread.
pub(crate) enum Synced {
    /// The images of all turns up to this one are durable.
    Images(u64),
    /// A superblock with this checkpoint LSN is durable, and so are the images of turns up to `covered`. With a switch,
    /// the log's first ring is not needed any more.
    Superblock { checkpoint_lsn: Lsn, switched: Option<Switch>, covered: u64 },
}

/// The second thread.
pub(crate) type SyncThread = Syncer<Synced>;

impl Keeper {
    /// Takes a result of the second thread, if there is one. With `wait`, waits for the job under way. Returns whether
    /// there was a result.
    pub(super) fn take_synced(&mut self, wait: bool) -> Result<bool, Error> {
        let Some(synced) = self.syncer.result(wait).transpose()? else { return Ok(false) };
        match synced {
            Synced::Images(covered) => self.name_images(covered)?,
            Synced::Superblock { checkpoint_lsn, switched, covered } => {
                self.end_checkpoint(checkpoint_lsn, switched)?;
                // A duty that waits for a superblock may be about to open a ring of the log: nothing is logged before.
                if !wait {
                    self.name_images(covered)?;
                }
            }
        }
        Ok(true)
    }

    /// Begins a data sync, which covers the images written by now, unless another job is under way.
    pub(super) fn begin_publishing(&mut self) {
        if self.syncer.busy() {
            return;
        }
        self.next_sync_ns = clock::now_ns() + SYNC_TICK_NS;
        self.sync_wanted = false;
        let engine = Arc::clone(&self.engine);
        if engine.core.store.unsynced() + engine.core.store.loaded() > 0 {
            self.syncer.begin(Box::new(move || engine.core.store.sync().map(Synced::Images)));
        }
    }

    /// Has all images written by now durable and named: they hold the checkpoint back no more.
    pub(super) fn publish_images(&mut self) -> Result<(), Error> {
        self.take_synced(true)?;
        self.begin_publishing();
        self.take_synced(true).map(|_| ())
    }

    /// Logs map groups for all images that a sync has covered.
    fn name_images(&mut self, covered: u64) -> Result<(), Error> {
        let engine = Arc::clone(&self.engine);
        let core = &engine.core;
        if planted!("map_after_submission") {
            // These images are not covered by the sync, and are named all the same.
            let dirty = core.pool.dirty_before(Lsn(u64::MAX));
            let frames: Vec<FrameId> = dirty.into_iter().map(|(_, frame)| frame).take(8).collect();
            if core.store.unsynced() + frames.len() <= engine.unsynced_max() {
                self.write_lot(FlushReason::Pace, core.pool.pin_dirty(&frames))?;
            }
        }
        let records = core.store.map_records(covered);
        for group in records.chunks(core.log.map_payload_max() / size_of::<MapRecord>()) {
            let payload = group.as_bytes();
            let credit = core.log.reserve_for_cleaning(payload.len())?;
            let counts = &core.log.counts;
            let mut begin = Lsn::ZERO;
            let end = core.log.append(credit, GroupKind::Map, payload, |start| {
                counts.add(start);
                begin = start;
            })?;
            core.store.apply_records(group, begin, end);
            counts.remove(begin);
        }
        Ok(())
    }

    pub(super) fn checkpoint_if_due(&mut self, now: u64) -> Result<(), Error> {
        let (log, store) = (&self.engine.core.log, &self.engine.core.store);
        let positions = log.positions();
        let reachable = log.counts.oldest().unwrap_or(positions.next);
        let gain = reachable.since(positions.checkpoint);
        let wants_slots = store.wants_slots();
        if gain > self.engine.log_length() / 16 || (now >= self.next_checkpoint_ns && gain > 0) {
            // A checkpoint under way may be enough.
            if !self.syncer.busy() {
                self.begin_checkpoint();
            }
        } else if now >= self.next_checkpoint_ns {
            self.next_checkpoint_ns = now + CHECKPOINT_TICK_NS;
        }
        if wants_slots {
            // Replaced slots are free when the log is durable past the map groups. After a checkpoint's sync the keeper
            // logs map groups, too.
            self.begin_publishing();
            let durable = self.engine.core.log.flush_all()?;
            self.engine.core.store.release_slots(durable);
        }
        Ok(())
    }

    /// Takes a checkpoint, durable on return.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        self.take_synced(true)?;
        self.begin_checkpoint();
        self.take_synced(true).map(|_| ())
    }

    /// Begins a checkpoint: all changes before its LSN are in images that map pages on the device name. No job is under
    /// way.
    pub(super) fn begin_checkpoint(&mut self) {
        self.next_checkpoint_ns = clock::now_ns() + CHECKPOINT_TICK_NS;
        self.checkpoints_begun += 1;
        let engine = Arc::clone(&self.engine);
        let core = &engine.core;
        // First the log's end, under its mutex: all groups before it are counted (COUNT-1).
        let positions = core.log.positions();
        let oldest = core.log.counts.oldest().unwrap_or(positions.next);
        let reached = if planted!("checkpoint_skips_dirty") { positions.next } else { oldest };
        // Counters are coarse: they may give an LSN before the last checkpoint.
        let reached = reached.min(positions.next).min(core.log.closed_upto());
        let checkpoint_lsn = reached.max(positions.checkpoint);
        let snapshot = core.store.snapshot();
        let (redo, switch) = core.log.geometry();
        let switched = switch.filter(|switch| checkpoint_lsn >= switch.at);
        let facts = CheckpointFacts {
            checkpoint_lsn,
            durable_lsn: positions.next,
            nonce: core.log.nonce_at(checkpoint_lsn),
            redo: switched.map_or(redo, |switch| switch.to),
            switch: switch.filter(|_| switched.is_none()),
            write_capacity: engine.write_capacity(),
            apply_rate: engine.recovery_time.applied_per_s(),
        };
        self.syncer.begin(Box::new(move || {
            let core = &engine.core;
            let durable_lsn =
                if planted!("superblock_before_log") { core.log.positions().next } else { core.log.flush_all()? };
            let covered = core.store.publish(snapshot, CheckpointFacts { durable_lsn, ..facts })?;
            Ok(Synced::Superblock { checkpoint_lsn, switched, covered })
        }));
    }

    fn end_checkpoint(&mut self, checkpoint_lsn: Lsn, switched: Option<Switch>) -> Result<(), Error> {
        self.checkpoints_ended = self.checkpoints_begun;
        let engine = &self.engine;
        engine.core.log.set_checkpoint(checkpoint_lsn);
        // The checkpoint has flushed the log, so that replaced slots are free.
        engine.core.store.release_slots(engine.core.log.positions().durable);
        if switched.is_some() {
            let left = engine.core.log.geometry().0.generation;
            engine.core.log.forget_first_ring();
            // Only these files: another thread may be making the next ring. The next open removes files that cannot be
            // removed now.
            let files = engine.files.lock().clone();
            if let Some(files) = files {
                let _ = remove_ring(&*files, left);
            }
        }
        Ok(())
    }
}
