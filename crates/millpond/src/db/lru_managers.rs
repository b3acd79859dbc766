//! The threads of `empty_free_list_algorithm = backoff`: an LRU manager for each instance of the buffer pool. It frees
//! frames from the tail of the instance's list, writes those pages that are dirty there, and sleeps as it has found fit
//! ([`lru_manager`](crate::pool::lru_manager)). Nobody wakes it but who closes the database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::engine::Engine;
use super::page_writer::Why;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::FrameId;
use crate::base::sync::{self, Condvar, JoinHandle, Mutex, Rank};
use crate::base::waits::enter_background;
use crate::pool::frame::Pin;
use crate::pool::lru_manager::AdaptiveSleep;
use crate::store::page_store::LOT_PAGES;

const NS_PER_MS: u64 = 1_000_000;

/// The threads.
pub(crate) struct LruManagers {
    end: Arc<End>,
    threads: Vec<JoinHandle<()>>,
}

/// Whether the database is being closed.
struct End {
    is_near: Mutex<bool>,
    news: Condvar,
}

impl End {
    /// Sleeps until `deadline_ns`, or the end; whether it is near.
    fn wait_until(&self, deadline_ns: u64) -> bool {
        let mut is_near = self.is_near.lock();
        while !*is_near && clock::now_ns() < deadline_ns {
            (is_near, _) = self.news.wait_until(is_near, deadline_ns, "LRU manager");
        }
        *is_near
    }
}

impl LruManagers {
    /// Starts a thread for each instance that has one: none, but with `backoff`.
    pub(crate) fn start(engine: &Arc<Engine>) -> Result<LruManagers, Error> {
        let end = Arc::new(End { is_near: Mutex::new(Rank::LruManagers, false), news: Condvar::new() });
        let mut managers = LruManagers { end, threads: Vec::new() };
        for at in 0..engine.core.pool.managed_instances() {
            let (engine, end) = (Arc::clone(engine), Arc::clone(&managers.end));
            let work = move || {
                enter_background();
                let worked = catch_unwind(AssertUnwindSafe(|| run(&engine, at, &end)));
                let error = match worked {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => error,
                    Err(_) => Error::Bug("the LRU manager panicked: reopen the database".into()),
                };
                // As when the keeper's write fails: it tells all who wait.
                engine.core.log.stop(&error);
                engine.bell.ring();
            };
            match sync::spawn("mp-lru", work) {
                Ok(thread) => managers.threads.push(thread),
                Err(error) => {
                    managers.stop();
                    return Err(Error::io("start an LRU manager's thread", error));
                }
            }
        }
        Ok(managers)
    }

    /// Ends them, and waits until they have.
    pub(crate) fn stop(self) {
        *self.end.is_near.lock() = true;
        self.end.news.notify_all();
        for thread in self.threads {
            // Its panic was told to the log.
            let _ = thread.join();
        }
    }
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
    fn refill(&self, at: usize) -> Result<usize, Error> {
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
