//! The threads of the classic methods of flushing: `page_cleaners` of them share the instances of the buffer pool. One
//! decides once a tick how many pages are written, by the method's arithmetic
//! ([`classic_flushing`](crate::pace::classic_flushing)); each instance is a slot, which a cleaner takes; and a pass
//! ends when all its slots are done: one slow instance holds up the others.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::background::{End, Threads};
use super::engine::Engine;
use super::page_writer::Why;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::sync::{Condvar, Mutex, Rank, Turn};
use crate::base::waits::WaitClass;
use crate::pace::adaptive::Adaptive;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, Flushing, Seen, Settings};
use crate::pace::keep_average::KeepAverage;
use crate::pace::sync_only::SyncOnly;
use crate::pool::neighbors::FlushNeighbors;
use crate::store::page_store::LOT_PAGES;

/// Times that a cleaner tries to write a lot, with a sync of the others' images in between.
const TRIES: usize = 8;

const NS_PER_MS: u64 = 1_000_000;

/// A classic method of flushing, and what its threads share.
pub(crate) struct ClassicFlushing {
    pub(super) method: AdaptiveFlushingMethod,
    pub(super) settings: Settings,
    pub(super) cleaners: usize,
    /// What leaves with a page that is due.
    pub(super) neighbors: FlushNeighbors,
    /// Who finds the log three quarters full has this turn while he flushes.
    pub(super) sync_flush: Turn<()>,
    /// Entries of flush lists that searches which begin anew after each page have looked at.
    pub(super) rescanned: AtomicU64,
    /// Lots with pages that left because they were beside others, and these.
    pub(super) beside: CountedCalls,
    pass: Mutex<Pass>,
    news: Condvar,
}

/// What the cleaners are at.
#[derive(Default)]
struct Pass {
    /// Slots, those that somebody has taken, and those that are done.
    slots: usize,
    taken: usize,
    done: usize,
    /// What is to be done in each slot.
    task: Task,
    /// There are no more.
    ended: bool,
}

/// So many pages of an instance, and why.
#[derive(Clone, Copy)]
struct Task {
    pages: usize,
    why: Why,
}

impl Default for Task {
    fn default() -> Self {
        Task { pages: 0, why: Why::Pace }
    }
}

impl ClassicFlushing {
    pub(crate) fn new(
        method: AdaptiveFlushingMethod,
        settings: Settings,
        cleaners: usize,
        neighbors: FlushNeighbors,
    ) -> ClassicFlushing {
        ClassicFlushing {
            method,
            settings,
            cleaners,
            neighbors,
            sync_flush: Turn::new(Rank::SyncFlush, ()),
            rescanned: AtomicU64::new(0),
            beside: CountedCalls::default(),
            pass: Mutex::new(Rank::PageCleaners, Pass::default()),
            news: Condvar::new(),
        }
    }

    fn flushing(&self) -> Box<dyn Flushing> {
        match self.method {
            AdaptiveFlushingMethod::SyncOnly => Box::new(SyncOnly::default()),
            AdaptiveFlushingMethod::KeepAverage => Box::new(KeepAverage::default()),
            AdaptiveFlushingMethod::Adaptive | AdaptiveFlushingMethod::Envelope => Box::new(Adaptive::default()),
        }
    }

    /// A slot of the pass, if there is one left, and what is to be done in it.
    fn take_slot(&self) -> Option<(Slot<'_>, Task)> {
        let mut pass = self.pass.lock();
        if pass.taken == pass.slots {
            return None;
        }
        pass.taken += 1;
        Some((Slot { of: self, at: pass.taken - 1 }, pass.task))
    }

    fn begin_pass(&self, slots: usize, task: Task) {
        *self.pass.lock() = Pass { slots, task, ..Pass::default() };
        self.news.notify_all();
    }

    /// Waits for the other cleaners, each of which ends its slot's writes, or fails.
    fn end_pass(&self) {
        let mut pass = self.pass.lock();
        while pass.done < pass.slots {
            pass = self.news.wait(pass, "the other page cleaners");
        }
    }

    /// Waits for a pass. False: there is none any more.
    fn wait_for_pass(&self) -> bool {
        let mut pass = self.pass.lock();
        while pass.taken == pass.slots && !pass.ended {
            pass = self.news.wait(pass, "the next pass of the page cleaners");
        }
        !pass.ended
    }
}

/// An instance that a cleaner is at; done when dropped.
struct Slot<'c> {
    of: &'c ClassicFlushing,
    at: usize,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.of.pass.lock().done += 1;
        self.of.news.notify_all();
    }
}

/// Ends the passes when dropped: the other cleaners end, too.
struct Passes<'c>(&'c ClassicFlushing);

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        self.0.pass.lock().ended = true;
        self.0.news.notify_all();
    }
}

/// Starts them: none with an envelope.
pub(super) fn start(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    threads.start("mp-clean", engine, coordinate)?;
    (1..classic.cleaners).try_for_each(|_| threads.start("mp-clean", engine, |engine, _| work(engine)))
}

/// The first cleaner, which decides and works with the others.
fn coordinate(engine: &Engine, end: &End) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    let _passes = Passes(classic);
    let mut flushing = classic.flushing();
    let instances = engine.core.pool.instance_count();
    let mut next_ns = clock::now_ns();
    let mut last_lsn = None;
    loop {
        // A pass that took longer is followed by the next at once.
        next_ns = (next_ns + flushing.interval_ms() * NS_PER_MS).max(clock::now_ns());
        if end.wait_until(next_ns) {
            return Ok(());
        }
        let dirtied_before = |lsn| engine.core.pool.dirtied_before(Lsn(lsn), 2 * classic.settings.io_capacity_max);
        let seen = engine.seen();
        let pages = flushing.pages(&seen, &classic.settings, &dirtied_before).div_ceil(instances);
        // Where nothing was logged since its last turn, each method writes because the server is idle.
        let is_idle = last_lsn.replace(seen.lsn) == Some(seen.lsn);
        classic.begin_pass(instances, Task { pages, why: if is_idle { Why::Background } else { Why::Pace } });
        while let Some((slot, task)) = classic.take_slot() {
            engine.clean_slot(slot.at, task)?;
        }
        classic.end_pass();
    }
}

/// Each of the others.
fn work(engine: &Engine) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    while classic.wait_for_pass() {
        while let Some((slot, task)) = classic.take_slot() {
            engine.clean_slot(slot.at, task)?;
        }
    }
    Ok(())
}

impl Engine {
    fn seen(&self) -> Seen {
        let pool = &self.core.pool;
        let lsn = self.core.log.positions().next.0;
        Seen {
            now_ns: clock::now_ns(),
            lsn,
            oldest: pool.oldest_change().map_or(lsn, |oldest| oldest.0),
            log_bytes: self.log_length(),
            dirty: pool.counts().1,
            frames: to_u64(pool.len()),
            written: self.page_writes.all(),
        }
    }

    /// Refills an instance's free frames, where cleaners do that, and writes so many of its oldest dirty pages.
    fn clean_slot(&self, at: usize, Task { pages, why }: Task) -> Result<(), Error> {
        let pool = &self.core.pool;
        if pool.cleaners_refill() {
            self.refill(at)?;
        }
        let frames = pool.oldest_dirty(at, Lsn(u64::MAX), pages);
        for lot in frames.chunks(LOT_PAGES) {
            let write = || match pool.pin_dirty(lot) {
                pages if pages.is_empty() => Ok(true),
                pages => self.flush_lot(why, pages).map(|written| written > 0),
            };
            // If not, there are too many images without a sync, others' too, or all of these have one in flight.
            for _ in 0..TRIES {
                if write()? {
                    break;
                }
                if !self.name_images(WaitClass::LogSpace)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
