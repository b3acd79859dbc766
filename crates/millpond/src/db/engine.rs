//! What all handles of a database share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::options::{Durability, Limits};
use super::stats::Stats;
use super::tree::TreeState;
use crate::base::bell::Bell;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::sync::Mutex;
use crate::io::device::Files;
use crate::mtr::Core;

/// A database at work.
pub(crate) struct Engine {
    pub(crate) core: Core,
    /// The files, whose lock keeps other processes out; let go when the database is closed.
    pub(crate) files: Mutex<Option<Arc<dyn Files>>>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) limits: Limits,
    pub(crate) durability: Durability,
    pub(crate) nonce: u64,
    pub(crate) redo_generation: u32,
    pub(crate) next_space: AtomicU32,
    /// Held while a space is dropped from log and map together, and while a checkpoint computes its LSN and takes its
    /// snapshot: a checkpoint sees both or neither. Never over I/O.
    pub(crate) drop_or_snapshot: Mutex<()>,
    /// Serialises creation and dropping of trees.
    pub(crate) ddl: Mutex<()>,
    /// Trees that have handles.
    pub(crate) open_trees: Mutex<BTreeMap<String, Arc<TreeState>>>,
    pub(crate) requests: Mutex<Requests>,
    pub(crate) closed: AtomicBool,
}

/// The answer to a request for a checkpoint; the error is the sentence why not.
pub(crate) type CheckpointAnswer = Result<(), Arc<str>>;

/// How far recovery is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Redo is applied to pages: no checkpoint.
    #[default]
    Redoing,
    /// All pages must be written before the first checkpoint, which has the new nonce.
    Flushing,
    /// The log is the new one's.
    Done,
}

/// What the keeper is asked for explicitly.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) checkpoints: Vec<Arc<Handoff<CheckpointAnswer>>>,
    pub(crate) stop: bool,
    pub(crate) recovery: Recovery,
    /// Why the keeper gave up.
    pub(crate) failed: Option<Arc<str>>,
}

impl Engine {
    /// Asks the keeper for a checkpoint of everything up to now, and waits for it on `checkpoint`.
    pub(crate) fn checkpoint_wait(&self) -> Result<(), Error> {
        let handoff = Handoff::new();
        {
            let mut requests = self.requests.lock();
            if requests.stop {
                return Err(closed());
            }
            if let Some(why) = &requests.failed {
                return Err(stopped(why));
            }
            requests.checkpoints.push(Arc::clone(&handoff));
        }
        self.bell.ring();
        handoff.take_wait(crate::base::sync::WaitClass::Checkpoint).map_err(|why| stopped(&why))
    }

    /// An error once the database was closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        // Relaxed: who closes has no promise to keep to calls that run at the same time.
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> Stats {
        let (log, store, pool) = (&self.core.log, &self.core.store, &self.core.pool);
        let positions = log.positions();
        let (free, dirty) = pool.counts();
        let (slots_total, slots_free) = store.slot_counts();
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            buffer_pool_pages_total: crate::base::aligned::to_u64(pool.len()),
            buffer_pool_pages_free: free,
            buffer_pool_pages_dirty: dirty,
            buffer_pool_wait_free: count(&pool.counters.wait_free),
            buffer_pool_wait_free_us: count(&pool.counters.wait_free_us),
            log_checkpoint_age: positions.next.since(positions.checkpoint),
            log_capacity: log.capacity(),
            log_lsn_current: positions.next.0,
            log_lsn_last_flush: positions.durable.0,
            log_lsn_last_checkpoint: positions.checkpoint.0,
            log_space_waits: count(&log.counters.space_waits),
            log_space_wait_us: count(&log.counters.space_wait_us),
            log_syncs: count(&log.counters.syncs),
            log_bytes_written: count(&log.counters.bytes_written),
            data_page_reads: count(&store.counters.page_reads),
            data_page_writes: count(&store.counters.page_writes),
            data_write_calls: count(&store.counters.write_calls),
            data_syncs: count(&store.counters.data_syncs),
            checkpoints: count(&store.counters.checkpoints),
            data_slots_total: slots_total,
            data_slots_free: slots_free,
        }
    }
}

/// The answer of a database that was closed.
pub(crate) fn closed() -> Error {
    Error::Closed("the database was closed: open it again".into())
}

fn stopped(why: &str) -> Error {
    Error::ReadOnly(
        format!("the database takes no more writes after an earlier failure ({why}); reopen it: everything acknowledged is safe").into(),
    )
}
