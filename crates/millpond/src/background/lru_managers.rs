//! The threads of `empty_free_list_algorithm = backoff`: an LRU manager for each instance of the buffer pool. It frees
//! frames from the tail of the instance's list, and writes the dirty pages that it finds there. Between passes it
//! sleeps for a time that it adapts ([`lru_manager`](crate::pool::lru_manager)). Once started, a manager stays: while
//! `legacy` is in force it waits.

use std::sync::Arc;

use crate::background::threads::{End, Threads};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::FrameId;
use crate::engine::Engine;
use crate::engine::flush_reason::FlushReason;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::pool::pin::Pin;
use crate::store::lot::LOT_PAGES;

const NS_PER_MS: u64 = 1_000_000;

const NAME: &str = "mp-lru";

/// Starts a thread for each instance that has none yet. `sleep` is its first sleep.
pub(crate) fn start(threads: &mut Threads, engine: &Arc<Engine>, sleep: AdaptiveSleep) -> Result<(), Error> {
    let mut without = threads.count(NAME)..engine.core.pool.instance_count();
    without.try_for_each(|at| threads.start(NAME, engine, move |engine, end| run(engine, at, end, sleep)))
}

fn run(engine: &Engine, at: usize, end: &End, mut sleep: AdaptiveSleep) -> Result<(), Error> {
    let mut made = 0;
    let pool = &engine.core.pool;
    loop {
        if !pool.is_managed() {
            if end.wait_for(|| pool.is_managed()) {
                return Ok(());
            }
            // Threads may already be waiting for frames.
            (sleep, made) = (AdaptiveSleep::awake(), 0);
        }
        // A pass that freed nothing is not repeated at once: nothing has changed since.
        if end.wait_until(clock::now_ns() + sleep.ms.max(u64::from(made == 0)) * NS_PER_MS) {
            return Ok(());
        }
        if pool.is_managed() {
            let (free, target) = pool.free_in(at);
            sleep.adapt(free, target, made > 0);
            made = engine.refill(at)?;
        }
    }
}

impl Engine {
    /// Frees frames of an instance from the tail of its list. Returns the number of frames.
    pub(super) fn refill(&self, at: usize) -> Result<usize, Error> {
        let began_ns = clock::now_ns();
        let made = self.refill_from_tail(at)?;
        // A pass without work takes hardly any time. Counting it would hide how long the others take.
        if made > 0 {
            self.core.pool.counters.refilled_in(clock::now_ns().saturating_sub(began_ns));
        }
        Ok(made)
    }

    fn refill_from_tail(&self, at: usize) -> Result<usize, Error> {
        let pool = &self.core.pool;
        let mut scan = pool.lru_scan();
        let mut made = 0;
        loop {
            let (freed, dirty) = pool.lru_pass(at, &mut scan, LOT_PAGES);
            made += freed;
            if dirty.is_empty() {
                return Ok(made);
            }
            let frames: Vec<FrameId> = dirty.iter().map(Pin::frame_id).collect();
            let written = self.flush_lot(FlushReason::Frames, dirty)?;
            if written == 0 {
                return Ok(made);
            }
            made += written;
            pool.free_cleaned(&frames);
        }
    }
}
