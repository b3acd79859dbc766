//! The state that the threads of a classic method of flushing share: its settings, its counters, and the pass of the
//! page cleaners.
//!
//! A pass is one tick's work. The first cleaner begins it with a slot for each instance of the buffer pool; cleaners
//! take slots until none is left. The threads are in [`page_cleaners`](crate::background::page_cleaners), the
//! arithmetic is in [`pace`](crate::pace::classic_flushing).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::choice::Choice;
use crate::base::counted_calls::CountedCalls;
use crate::base::sync::{Condvar, Mutex, Rank, Turn};
use crate::engine::flush_reason::FlushReason;
use crate::options::Options;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor, Settings};
use crate::pool::neighbors::FlushNeighbors;

/// The methods that are carried out by page cleaners.
const METHODS: &[AdaptiveFlushingMethod] =
    &[AdaptiveFlushingMethod::Adaptive, AdaptiveFlushingMethod::KeepAverage, AdaptiveFlushingMethod::SyncOnly];

pub(crate) const AGE_FACTORS: &[CleanerLsnAgeFactor] =
    &[CleanerLsnAgeFactor::Legacy, CleanerLsnAgeFactor::HighCheckpoint];

/// A classic method of flushing, and the state that its threads share.
pub(crate) struct ClassicFlushing {
    pub(crate) method: Choice<AdaptiveFlushingMethod>,
    io_capacity: AtomicUsize,
    io_capacity_max: AtomicUsize,
    max_dirty_pages_pct: AtomicUsize,
    max_dirty_pages_pct_lwm: AtomicUsize,
    cleaner_lsn_age_factor: Choice<CleanerLsnAgeFactor>,
    /// Number of page cleaners with the method that has several (`adaptive`).
    pub(crate) cleaners: usize,
    /// Which neighbours are written with a page that is due.
    pub(crate) neighbors: Choice<FlushNeighbors>,
    /// The turn of a writer that finds the log three quarters full and flushes pages itself.
    pub(crate) sync_flush: Turn<()>,
    /// Number of flush-list entries looked at by searches that start over after each page.
    pub(crate) rescanned: AtomicU64,
    /// Number of waits of writers because the log was three quarters full of changes that were in frames only.
    pub(crate) sync_waits: AtomicU64,
    /// Lots that contained neighbours, and the number of these neighbours.
    pub(crate) beside: CountedCalls,
    pub(crate) pass: Mutex<Pass>,
    news: Condvar,
}

/// The kind of a page cleaner that takes a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cleaner {
    /// The cleaner that decides how many pages are written.
    First,
    Another,
}

/// The pass that the cleaners are working on.
#[derive(Default)]
pub(crate) struct Pass {
    /// Number of slots; of these, the taken ones and the finished ones.
    pub(crate) slots: usize,
    pub(crate) taken: usize,
    pub(crate) done: usize,
    /// Other cleaners than the first may take slots.
    pub(crate) is_shared: bool,
    /// The work in each slot.
    pub(crate) task: Task,
    /// There will be no more passes.
    ended: bool,
}

/// How many pages of an instance are written, and why.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) pages: usize,
    pub(crate) why: FlushReason,
}

impl Default for Task {
    fn default() -> Self {
        Task { pages: 0, why: FlushReason::Pace }
    }
}

impl ClassicFlushing {
    /// The state for the method that the options name; `None`: the keeper cleans pages.
    pub(crate) fn of(options: &Options) -> Option<ClassicFlushing> {
        let method = options.classic.adaptive_flushing_method;
        let new =
            || ClassicFlushing::new(method, options.settings(), options.cleaners(), options.classic.flush_neighbors);
        (method != AdaptiveFlushingMethod::Envelope).then(new)
    }

    pub(crate) fn new(
        method: AdaptiveFlushingMethod,
        settings: Settings,
        cleaners: usize,
        neighbors: FlushNeighbors,
    ) -> ClassicFlushing {
        ClassicFlushing {
            method: Choice::new(METHODS, method),
            io_capacity: AtomicUsize::new(settings.io_capacity),
            io_capacity_max: AtomicUsize::new(settings.io_capacity_max),
            max_dirty_pages_pct: AtomicUsize::new(settings.max_dirty_pages_pct),
            max_dirty_pages_pct_lwm: AtomicUsize::new(settings.max_dirty_pages_pct_lwm),
            cleaner_lsn_age_factor: Choice::new(AGE_FACTORS, settings.cleaner_lsn_age_factor),
            cleaners,
            neighbors: Choice::new(&[FlushNeighbors::None, FlushNeighbors::Area, FlushNeighbors::Seq], neighbors),
            sync_flush: Turn::new(Rank::SyncFlush, ()),
            rescanned: AtomicU64::new(0),
            sync_waits: AtomicU64::new(0),
            beside: CountedCalls::default(),
            pass: Mutex::new(Rank::PageCleaners, Pass::default()),
            news: Condvar::new(),
        }
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Settings {
        // Relaxed: these are plain numbers, read once for a pass. A pass that reads some before a change and some after
        // it does something between the two, which is harmless.
        Settings {
            io_capacity: self.io_capacity.load(Ordering::Relaxed),
            io_capacity_max: self.io_capacity_max.load(Ordering::Relaxed),
            max_dirty_pages_pct: self.max_dirty_pages_pct.load(Ordering::Relaxed),
            max_dirty_pages_pct_lwm: self.max_dirty_pages_pct_lwm.load(Ordering::Relaxed),
            cleaner_lsn_age_factor: self.cleaner_lsn_age_factor.get(),
        }
    }

    /// Sets the method and its settings, in force from the next pass on.
    pub(crate) fn set(&self, method: AdaptiveFlushingMethod, settings: Settings, neighbors: FlushNeighbors) {
        self.method.set(method);
        self.neighbors.set(neighbors);
        self.io_capacity.store(settings.io_capacity, Ordering::Relaxed);
        self.io_capacity_max.store(settings.io_capacity_max, Ordering::Relaxed);
        self.max_dirty_pages_pct.store(settings.max_dirty_pages_pct, Ordering::Relaxed);
        self.max_dirty_pages_pct_lwm.store(settings.max_dirty_pages_pct_lwm, Ordering::Relaxed);
        self.cleaner_lsn_age_factor.set(settings.cleaner_lsn_age_factor);
    }

    /// Takes a slot of the pass and its task, if there is one left for this kind of cleaner.
    pub(crate) fn take_slot(&self, cleaner: Cleaner) -> Option<(Slot<'_>, Task)> {
        let mut pass = self.pass.lock();
        if pass.taken == pass.slots || (cleaner == Cleaner::Another && !pass.is_shared) {
            return None;
        }
        pass.taken += 1;
        Some((Slot { of: self, at: pass.taken - 1 }, pass.task))
    }

    /// Begins a pass and wakes the other cleaners.
    pub(crate) fn begin_pass(&self, slots: usize, task: Task, is_shared: bool) {
        *self.pass.lock() = Pass { slots, task, is_shared, ..Pass::default() };
        self.news.notify_all();
    }

    /// Waits until all slots are done: each cleaner ends its slot's writes, or fails.
    pub(crate) fn end_pass(&self) {
        let mut pass = self.pass.lock();
        while pass.done < pass.slots {
            pass = self.news.wait(pass, "the other page cleaners");
        }
    }

    /// Waits for a pass with slots left. False: there will be none.
    pub(crate) fn wait_for_pass(&self) -> bool {
        let mut pass = self.pass.lock();
        while (pass.taken == pass.slots || !pass.is_shared) && !pass.ended {
            pass = self.news.wait(pass, "the next pass of the page cleaners");
        }
        !pass.ended
    }
}

/// An instance of the pool that a cleaner works on; done when dropped.
pub(crate) struct Slot<'c> {
    of: &'c ClassicFlushing,
    pub(crate) at: usize,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.of.pass.lock().done += 1;
        self.of.news.notify_all();
    }
}

/// Ends the passes when dropped, so that the other cleaners end, too.
pub(crate) struct Passes<'c>(pub(crate) &'c ClassicFlushing);

impl Drop for Passes<'_> {
    fn drop(&mut self) {
        self.0.pass.lock().ended = true;
        self.0.news.notify_all();
    }
}
