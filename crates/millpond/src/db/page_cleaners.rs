//! The threads of the classic methods of flushing: `page_cleaners` of them share the instances of the buffer pool. One
//! decides once a tick how many pages are written, by the method's arithmetic
//! ([`classic_flushing`](crate::pace::classic_flushing)); each instance is a slot, which a cleaner takes; and a pass
//! ends when all its slots are done: one slow instance holds up the others.
//!
//! With the methods of before there is one cleaner: others that are there, since the method was `adaptive`, wait. What
//! changes while the database is open counts from the next pass on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::background::{End, Threads};
use super::engine::Engine;
use super::page_writer::Why;
use crate::base::aligned::to_u64;
use crate::base::choice::Choice;
use crate::base::clock;
use crate::base::counted_calls::CountedCalls;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::sync::{Condvar, Mutex, Rank, Turn};
use crate::base::waits::WaitClass;
use crate::pace::adaptive::Adaptive;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, CleanerLsnAgeFactor, Flushing, Seen, Settings};
use crate::pace::keep_average::KeepAverage;
use crate::pace::sync_only::SyncOnly;
use crate::pool::neighbors::FlushNeighbors;
use crate::store::page_store::LOT_PAGES;

/// Times that a cleaner tries to write a lot, with a sync of the others' images in between.
const TRIES: usize = 8;

const NS_PER_MS: u64 = 1_000_000;

const NAME: &str = "mp-clean";

/// Those that there are cleaners for.
const METHODS: &[AdaptiveFlushingMethod] =
    &[AdaptiveFlushingMethod::Adaptive, AdaptiveFlushingMethod::KeepAverage, AdaptiveFlushingMethod::SyncOnly];

const AGE_FACTORS: &[CleanerLsnAgeFactor] = &[CleanerLsnAgeFactor::Legacy, CleanerLsnAgeFactor::HighCheckpoint];

/// A classic method of flushing, and what its threads share.
pub(crate) struct ClassicFlushing {
    pub(super) method: Choice<AdaptiveFlushingMethod>,
    io_capacity: AtomicUsize,
    io_capacity_max: AtomicUsize,
    max_dirty_pages_pct: AtomicUsize,
    max_dirty_pages_pct_lwm: AtomicUsize,
    cleaner_lsn_age_factor: Choice<CleanerLsnAgeFactor>,
    /// With the method that has several.
    cleaners: usize,
    /// What leaves with a page that is due.
    pub(super) neighbors: Choice<FlushNeighbors>,
    /// Who finds the log three quarters full has this turn while he flushes.
    pub(super) sync_flush: Turn<()>,
    /// Entries of flush lists that searches which begin anew after each page have looked at.
    pub(super) rescanned: AtomicU64,
    /// Waits of writers because the log was three quarters full of changes that were in frames only.
    pub(super) sync_waits: AtomicU64,
    /// Lots with pages that left because they were beside others, and these.
    pub(super) beside: CountedCalls,
    pass: Mutex<Pass>,
    news: Condvar,
}

/// Who takes a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cleaner {
    /// Who decides.
    First,
    Another,
}

/// What the cleaners are at.
#[derive(Default)]
struct Pass {
    /// Slots, those that somebody has taken, and those that are done.
    slots: usize,
    taken: usize,
    done: usize,
    /// The first cleaner is not alone.
    is_shared: bool,
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

    /// What it goes by.
    pub(super) fn settings(&self) -> Settings {
        // Relaxed: they are numbers that one pass reads. One that reads some before and some after a change is between
        // the two.
        Settings {
            io_capacity: self.io_capacity.load(Ordering::Relaxed),
            io_capacity_max: self.io_capacity_max.load(Ordering::Relaxed),
            max_dirty_pages_pct: self.max_dirty_pages_pct.load(Ordering::Relaxed),
            max_dirty_pages_pct_lwm: self.max_dirty_pages_pct_lwm.load(Ordering::Relaxed),
            cleaner_lsn_age_factor: self.cleaner_lsn_age_factor.get(),
        }
    }

    /// Goes by these from the next pass on.
    pub(super) fn set(&self, method: AdaptiveFlushingMethod, settings: Settings, neighbors: FlushNeighbors) {
        self.method.set(method);
        self.neighbors.set(neighbors);
        self.io_capacity.store(settings.io_capacity, Ordering::Relaxed);
        self.io_capacity_max.store(settings.io_capacity_max, Ordering::Relaxed);
        self.max_dirty_pages_pct.store(settings.max_dirty_pages_pct, Ordering::Relaxed);
        self.max_dirty_pages_pct_lwm.store(settings.max_dirty_pages_pct_lwm, Ordering::Relaxed);
        self.cleaner_lsn_age_factor.set(settings.cleaner_lsn_age_factor);
    }

    /// A slot of the pass, if there is one left, and what is to be done in it.
    fn take_slot(&self, cleaner: Cleaner) -> Option<(Slot<'_>, Task)> {
        let mut pass = self.pass.lock();
        if pass.taken == pass.slots || (cleaner == Cleaner::Another && !pass.is_shared) {
            return None;
        }
        pass.taken += 1;
        Some((Slot { of: self, at: pass.taken - 1 }, pass.task))
    }

    fn begin_pass(&self, slots: usize, task: Task, is_shared: bool) {
        *self.pass.lock() = Pass { slots, task, is_shared, ..Pass::default() };
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
        while (pass.taken == pass.slots || !pass.is_shared) && !pass.ended {
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

/// The arithmetic of a method.
fn flushing_of(method: AdaptiveFlushingMethod) -> Box<dyn Flushing> {
    match method {
        AdaptiveFlushingMethod::SyncOnly => Box::new(SyncOnly::default()),
        AdaptiveFlushingMethod::KeepAverage => Box::new(KeepAverage::default()),
        AdaptiveFlushingMethod::Adaptive | AdaptiveFlushingMethod::Envelope => Box::new(Adaptive::default()),
    }
}

/// Starts them: none with an envelope.
pub(super) fn start(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    threads.start(NAME, engine, coordinate)?;
    if classic.method.get() == AdaptiveFlushingMethod::Adaptive { start_others(threads, engine) } else { Ok(()) }
}

/// Starts those of the others that are not there yet, for a method that has several.
pub(super) fn start_others(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
    let cleaners = engine.classic_flushing.as_ref().map_or(0, |classic| classic.cleaners);
    (threads.count(NAME)..cleaners).try_for_each(|_| threads.start(NAME, engine, |engine, _| work(engine)))
}

/// The first cleaner, which decides and works with the others.
fn coordinate(engine: &Engine, end: &End) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    let _passes = Passes(classic);
    let mut method = classic.method.get();
    let mut flushing = flushing_of(method);
    let instances = engine.core.pool.instance_count();
    let mut next_ns = clock::now_ns();
    let mut last_lsn = None;
    loop {
        // A pass that took longer is followed by the next at once.
        next_ns = (next_ns + flushing.interval_ms() * NS_PER_MS).max(clock::now_ns());
        if end.wait_until(next_ns) {
            return Ok(());
        }
        let wanted = classic.method.get();
        if wanted != method {
            // What the other one remembers is no measure for this one.
            (method, flushing) = (wanted, flushing_of(wanted));
        }
        let settings = classic.settings();
        let dirtied_before = |lsn| engine.core.pool.dirtied_before(Lsn(lsn), 2 * settings.io_capacity_max);
        let seen = engine.seen();
        let pages = flushing.pages(&seen, &settings, &dirtied_before).div_ceil(instances);
        // Where nothing was logged since its last turn, each method writes because the server is idle.
        let is_idle = last_lsn.replace(seen.lsn) == Some(seen.lsn);
        let is_shared = method == AdaptiveFlushingMethod::Adaptive;
        let why = if is_idle { Why::Background } else { Why::Pace };
        classic.begin_pass(instances, Task { pages, why }, is_shared);
        while let Some((slot, task)) = classic.take_slot(Cleaner::First) {
            engine.clean_slot(slot.at, task)?;
        }
        classic.end_pass();
    }
}

/// Each of the others.
fn work(engine: &Engine) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    while classic.wait_for_pass() {
        while let Some((slot, task)) = classic.take_slot(Cleaner::Another) {
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

#[cfg(test)]
pub(super) mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::db::database::Db;
    use crate::db::options::Options;
    use crate::io::simulated::SimulatedDisk;
    use crate::pool::dirty::DirtyTracking;
    use crate::pool::legacy::EmptyFreeListAlgorithm;
    use crate::simulation::{run, sleep_ns, spawn};

    const MS: u64 = NS_PER_MS;

    /// Threads that clean pages with these options; `None`: nobody does, for each instance.
    pub(in crate::db) fn cleaners_of(options: &Options) -> Option<usize> {
        let classic = options.classic_flushing()?;
        (classic.method.get() == AdaptiveFlushingMethod::Adaptive).then_some(classic.cleaners)
    }

    fn classic() -> ClassicFlushing {
        let settings = Settings::INNODB;
        ClassicFlushing::new(AdaptiveFlushingMethod::Adaptive, settings, 2, FlushNeighbors::None)
    }

    fn task(pages: usize) -> Task {
        Task { pages, why: Why::Pace }
    }

    #[test]
    fn each_slot_is_taken_once_and_by_the_first_cleaner_alone_where_it_shares_none() {
        let classic = classic();
        let take = |cleaner| classic.take_slot(cleaner).map(|(slot, task)| (slot.at, task.pages));
        assert_eq!(take(Cleaner::First), None, "there is no pass yet");
        classic.begin_pass(3, task(7), true);
        assert_eq!([Cleaner::Another, Cleaner::First, Cleaner::Another].map(take), [0, 1, 2].map(|at| Some((at, 7))));
        assert_eq!([Cleaner::Another, Cleaner::First].map(take), [None; 2]);
        classic.begin_pass(2, task(9), false);
        assert_eq!([Cleaner::Another, Cleaner::First].map(take), [None, Some((0, 9))]);
        assert_eq!([Cleaner::Another, Cleaner::First].map(take), [None, Some((1, 9))]);
        assert_eq!(take(Cleaner::First), None);
    }

    #[test]
    fn a_pass_ends_when_the_slowest_slot_is_done() {
        run(1, || {
            let classic = Arc::new(classic());
            classic.begin_pass(3, task(1), true);
            let others = [5, 3].map(|ms| {
                let classic = Arc::clone(&classic);
                let work = move || {
                    let _slot = classic.take_slot(Cleaner::Another).expect("one is left");
                    sleep_ns(ms * MS);
                };
                spawn("another", work).expect("a thread")
            });
            sleep_ns(MS);
            drop(classic.take_slot(Cleaner::First).expect("one is left"));
            assert!(classic.take_slot(Cleaner::First).is_none());
            classic.end_pass();
            assert_eq!(clock::now_ns(), 5 * MS);
            others.into_iter().for_each(|other| other.join().expect("no panic"));
        });
    }

    #[test]
    fn others_wait_for_a_pass_that_is_shared_and_has_a_slot_left_or_for_the_end_of_all() {
        run(2, || {
            let classic = Arc::new(classic());
            let other = {
                let classic = Arc::clone(&classic);
                let work = move || {
                    let mut began = Vec::new();
                    while classic.wait_for_pass() {
                        began.push(clock::now_ns() / MS);
                        assert!(began.len() < 10, "there is one that he may take part in");
                        while let Some(taken) = classic.take_slot(Cleaner::Another) {
                            drop(taken);
                        }
                    }
                    (began, clock::now_ns() / MS)
                };
                spawn("another", work).expect("a thread")
            };
            let passes = Passes(&classic);
            sleep_ns(MS);
            classic.begin_pass(1, task(1), false);
            sleep_ns(MS);
            while classic.take_slot(Cleaner::First).is_some() {}
            classic.end_pass();
            classic.begin_pass(2, task(1), true);
            classic.end_pass();
            sleep_ns(MS);
            classic.begin_pass(1, task(1), false);
            sleep_ns(MS);
            drop(passes);
            // At 2 ms a pass was shared, at 4 ms was the end, though a pass was under way that was not.
            assert_eq!(other.join().expect("no panic"), (vec![2], 4));
            assert!(!classic.wait_for_pass(), "nor is there any later");
        });
    }

    #[test]
    fn an_instance_has_its_part_of_the_pages_rounded_up_and_idle_passes_are_told_apart() {
        run(3, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(4 * 121));
            let options = options.redo_capacity(ByteSize::mib(2)).dirty_tracking(DirtyTracking::FlushList);
            let options = options.empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy).buffer_pool_instances(3);
            let options = options.adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive).page_cleaners(2);
            let db = Db::open_on(Arc::new(SimulatedDisk::new()), options.io_capacity(200)).expect("opened");
            let tree = db.create_tree("t").expect("created");
            sleep_ns(10_500 * MS);
            let pass = tree.engine.classic_flushing.as_ref().expect("a classic method").pass.lock();
            assert_eq!((pass.slots, pass.taken, pass.done, pass.is_shared), (3, 3, 3, true));
            // 200 of three instances, and nothing was logged.
            assert!(pass.task.pages == 67 && matches!(pass.task.why, Why::Background), "{}", pass.task.pages);
            drop(pass);
            db.close().expect("closed");
        });
    }
}
