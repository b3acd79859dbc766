//! The threads of `empty_free_list_algorithm = backoff`: an LRU manager for each instance of the buffer pool. It frees
//! frames from the tail of the instance's list, writes those pages that are dirty there, and sleeps as it has found fit
//! ([`lru_manager`](crate::pool::lru_manager)).

use std::sync::Arc;

use super::background::{End, Threads};
use super::engine::Engine;
use super::page_writer::Why;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::FrameId;
use crate::pool::frame::Pin;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::store::page_store::LOT_PAGES;

const NS_PER_MS: u64 = 1_000_000;

/// Starts a thread for each instance that has one: none, but with `backoff`.
pub(super) fn start(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
    let mut managed = 0..engine.core.pool.managed_instances();
    managed.try_for_each(|at| threads.start("mp-lru", engine, move |engine, end| run(engine, at, end)))
}

fn run(engine: &Engine, at: usize, end: &End) -> Result<(), Error> {
    let mut sleep = AdaptiveSleep::default();
    let mut made = 0;
    // One that has made none does not look again at once: nothing has changed since.
    while !end.wait_until(clock::now_ns() + sleep.ms.max(u64::from(made == 0)) * NS_PER_MS) {
        let (free, target) = engine.core.pool.free_in(at);
        sleep.adapt(free, target, made > 0);
        made = engine.refill(at)?;
    }
    Ok(())
}

impl Engine {
    /// Frees frames of an instance from the tail of its list. Returns how many.
    pub(super) fn refill(&self, at: usize) -> Result<usize, Error> {
        let began_ns = clock::now_ns();
        let made = self.refill_from_tail(at)?;
        self.core.pool.counters.refilled_in(clock::now_ns().saturating_sub(began_ns));
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
            let written = self.flush_lot(Why::Frames, dirty)?;
            if written == 0 {
                return Ok(made);
            }
            made += written;
            pool.free_cleaned(&frames);
        }
    }
}
