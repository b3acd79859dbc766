//! An open database, and its close.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::background::threads::Threads;
use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId};
use crate::base::sync::{JoinHandle, Mutex};
use crate::base::waits::WaitClass;
use crate::engine::Engine;
use crate::engine::tree_state::Gate;
use crate::load::sorter;
use crate::observe::status::About;
use crate::open::endpoints::Servers;
use crate::redo::pipeline::Pipeline;
use crate::store::superblock::Found;

/// A database that is open, and its threads.
pub(crate) struct Running {
    pub(crate) engine: Arc<Engine>,
    pub(super) keeper: Mutex<Option<JoinHandle<()>>>,
    pub(super) purge: Mutex<Option<JoinHandle<()>>>,
    /// The log's threads, those of the classic policies, and the one that makes files for a larger log.
    pub(crate) threads: Mutex<Option<Threads>>,
    pub(crate) about: About,
    pub(super) status: Mutex<Servers>,
    pub(crate) opened: Opened,
}

/// The findings of the open.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) superblocks: [Found; 2],
    pub(crate) redo_groups: u64,
    pub(crate) redo_bytes: u64,
    pub(crate) orphan_spaces: Vec<SpaceId>,
    /// Of a database at rest: the damage of the catalog, if not all of it can be read.
    pub(crate) catalog_damage: Option<String>,
    /// Of a database at rest: the batches that cannot be undone, and why.
    pub(crate) not_undone: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A checkpoint is no duty of a thread that is unwinding: the next open recovers.
            self.abandon("a thread that panicked dropped the database");
            return;
        }
        // A caller that wants the result of the close calls `close`.
        let _ = self.shut_down();
    }
}

impl Running {
    /// Closes the database, once: admits no more operations, waits for those under way, takes a last checkpoint, ends
    /// the keeper, and releases the files.
    ///
    /// With the gates closed no operation appends to the log, and the checkpoint flushes all of it. Without a
    /// checkpoint the log's tail is flushed by itself: commits acknowledged before they were durable are lost only if
    /// the log's files fail.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.lock().take() else { return Ok(()) };
        // Before the turn of `ddl`: a statement may wait for that. Waits for transactions end with an error.
        self.engine.txns.locks.close();
        self.engine.waits.timed(WaitClass::Metadata, || *self.engine.statements.write() = Gate::Closed);
        {
            let _ddl = self.engine.ddl();
            self.engine.closed.store(true, Ordering::Relaxed);
            self.engine.pacing.end_payments();
            let open_trees: Vec<_> = self.engine.open_trees.lock().values().cloned().collect();
            let loads: Vec<_> = self.engine.loads.lock().values().cloned().collect();
            self.engine.waits.timed(WaitClass::Metadata, || {
                open_trees.iter().chain(&loads).for_each(|tree| *tree.gate.write() = Gate::Closed);
            });
        }
        self.stop_purge();
        debug_assert!(self.has_ended_all_transactions(), "COMMIT-3");
        self.engine.end_redo_change();
        // A backup under way ends with an error.
        self.engine.end_log_hold();
        let result = self.engine.last_checkpoint_wait();
        let stopped = self.stop_keeper(keeper);
        let flushed = self.engine.core.log.flush_tail();
        let closed = flushed.and(stopped).and(result);
        self.let_go(closed.is_ok());
        closed
    }

    /// Whether all ids that were given out have ended. So it is once no operation is under way, but for losers that are
    /// not undone yet. Snapshots that live on see nothing any more: all gates are closed.
    fn has_ended_all_transactions(&self) -> bool {
        let (txns, core) = (&self.engine.txns, &self.engine.core);
        let has_excuse = txns.locks.in_flight() > 0 || txns.locks.has_statements() || core.log.health().is_err();
        has_excuse || txns.commits.floor(Lsn(u64::MAX)) == core.store.txn_to_come()
    }

    /// Ends the log, and releases the files: another process may open them. No thread of the engine is left. After a
    /// close that has written everything, the superblock says so.
    fn let_go(&self, is_whole: bool) {
        let core = &self.engine.core;
        core.log.end_notices();
        core.log.close_wait();
        if is_whole {
            // Without the mark nothing is lost: the next open reads more of the log.
            let _ = core.store.mark_closed(core.log.positions().next);
        }
        self.stop_status();
        let files = self.engine.files.lock().take();
        if let Some(files) = files {
            // Interrupted loads can no longer remove their files. The next open removes files that are left here.
            let _ = sorter::remove_left_over(&*files);
            files.release();
        }
    }

    /// Ends the keeper without a checkpoint: the files on the device stay as they are.
    pub(super) fn abandon(&self, why: &str) {
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            // Trees outlive this handle, and no thread measures the device any more.
            self.engine.pacing.end_payments();
            self.stop_purge();
            let _ = self.stop_keeper(keeper);
            let log = &self.engine.core.log;
            log.stop(&Error::Closed(why.into()));
            // The next open recovers all groups that have a place in the log.
            let _ = log.flush_tail();
            // Threads that still have a tree may read on, as far as clean pages give frames. Waits for a frame end with
            // an error.
            self.engine.core.pool.stop();
            self.engine.txns.locks.stop(why);
            self.let_go(false);
        }
    }

    /// Ends purge, then the background threads. The keeper is still at work: these threads may wait for its work.
    fn stop_purge(&self) {
        self.engine.txns.stop();
        let purge = self.purge.lock().take();
        if let Some(purge) = purge {
            // A panic of purge is no reason not to close.
            let _ = purge.join();
        }
        let threads = self.threads.lock().take();
        if let Some(threads) = &threads {
            threads.announce_end();
            self.engine.core.log.pipeline.iter().for_each(Pipeline::ring_all);
        }
        drop(threads);
    }

    fn stop_status(&self) {
        let servers = std::mem::take(&mut *self.status.lock());
        drop(servers);
    }

    fn stop_keeper(&self, keeper: JoinHandle<()>) -> Result<(), Error> {
        self.engine.requests.lock().stop = true;
        self.engine.bell.ring();
        keeper.join().map_err(|_| Error::Bug("the keeper panicked: reopen the database".into()))
    }
}
