//! The page cleaners of the classic flushing methods: `page_cleaners` threads share the instances of the buffer pool.
//! The first decides once a tick how many pages to write, by the method's arithmetic
//! ([`classic_flushing`](crate::pace::classic_flushing)). Each instance is a slot, which a cleaner takes. A pass ends
//! when all its slots are done: one slow instance holds up the others.
//!
//! With the methods other than `adaptive` only the first cleaner works. Others, started while the method was
//! `adaptive`, wait. Settings that change while the database is open apply from the next pass on.

use std::sync::Arc;

use crate::background::threads::{End, Threads};
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::waits::WaitClass;
use crate::engine::Engine;
use crate::engine::classic_flushing::{Cleaner, Passes, Task};
use crate::engine::flush_reason::FlushReason;
use crate::pace::adaptive::Adaptive;
use crate::pace::classic_flushing::{AdaptiveFlushingMethod, Flushing, Seen};
use crate::pace::keep_average::KeepAverage;
use crate::pace::sync_only::SyncOnly;
use crate::store::lot::LOT_PAGES;

/// Most tries of a cleaner to write a lot, with a sync of all written images between two tries.
const TRIES: usize = 8;

const NS_PER_MS: u64 = 1_000_000;

const NAME: &str = "mp-clean";

/// The arithmetic of a method.
fn flushing_of(method: AdaptiveFlushingMethod) -> Box<dyn Flushing> {
    match method {
        AdaptiveFlushingMethod::SyncOnly => Box::new(SyncOnly::default()),
        AdaptiveFlushingMethod::KeepAverage => Box::new(KeepAverage::default()),
        AdaptiveFlushingMethod::Adaptive | AdaptiveFlushingMethod::Envelope => Box::new(Adaptive::default()),
    }
}

/// Starts the cleaners; none with `envelope`.
pub(crate) fn start(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
    let Some(classic) = &engine.classic_flushing else { return Ok(()) };
    threads.start(NAME, engine, coordinate)?;
    if classic.method.get() == AdaptiveFlushingMethod::Adaptive { start_others(threads, engine) } else { Ok(()) }
}

/// Starts the other cleaners that are still missing, for a method with several.
pub(crate) fn start_others(threads: &mut Threads, engine: &Arc<Engine>) -> Result<(), Error> {
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
            // The history of the old method is no measure for the new one.
            (method, flushing) = (wanted, flushing_of(wanted));
        }
        let settings = classic.settings();
        let dirtied_before = |lsn| engine.core.pool.dirtied_before(Lsn(lsn), 2 * settings.io_capacity_max);
        let seen = engine.seen();
        let pages = flushing.pages(&seen, &settings, &dirtied_before).div_ceil(instances);
        // If nothing was logged since the last pass, each method writes because the server is idle.
        let is_idle = last_lsn.replace(seen.lsn) == Some(seen.lsn);
        let is_shared = method == AdaptiveFlushingMethod::Adaptive;
        let why = if is_idle { FlushReason::Background } else { FlushReason::Pace };
        classic.begin_pass(instances, Task { pages, why }, is_shared);
        while let Some((slot, task)) = classic.take_slot(Cleaner::First) {
            engine.clean_slot(slot.at, task)?;
        }
        classic.end_pass();
    }
}

/// The work of each other cleaner.
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

    /// Refills an instance's free frames, if cleaners do that, and writes `pages` of its oldest dirty pages.
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
            // False: too many images (of all threads) wait for a sync, or all these pages have one in flight.
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
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::api::database::Db;
    use crate::engine::classic_flushing::ClassicFlushing;
    use crate::io::simulated::SimulatedDisk;
    use crate::options::Options;
    use crate::pace::classic_flushing::Settings;
    use crate::pool::neighbors::FlushNeighbors;
    use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm};
    use crate::simulation::{run, sleep_ns, spawn};

    const MS: u64 = NS_PER_MS;

    fn classic() -> ClassicFlushing {
        let settings = Settings::INNODB;
        ClassicFlushing::new(AdaptiveFlushingMethod::Adaptive, settings, 2, FlushNeighbors::None)
    }

    fn task(pages: usize) -> Task {
        Task { pages, why: FlushReason::Pace }
    }

    #[test]
    fn slots_are_taken_once_and_by_one_cleaner_if_not_shared() {
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
    fn cleaners_wait_for_a_shared_pass_with_slots_or_for_the_end() {
        run(2, || {
            let classic = Arc::new(classic());
            let other = {
                let classic = Arc::clone(&classic);
                let work = move || {
                    let mut began = Vec::new();
                    while classic.wait_for_pass() {
                        began.push(clock::now_ns() / MS);
                        assert!(began.len() < 10, "each wait ends with a pass to take part in");
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
            // At 2 ms a shared pass began. At 4 ms came the end, during a pass that was not shared.
            assert_eq!(other.join().expect("no panic"), (vec![2], 4));
            assert!(!classic.wait_for_pass(), "nor is there any later");
        });
    }

    #[test]
    fn instance_gets_its_part_rounded_up_and_idle_passes_differ() {
        run(3, || {
            let options = Options::new().page_size(ByteSize::kib(4)).buffer_pool_size(ByteSize::kib(4 * 121));
            let options = options.redo_capacity(ByteSize::mib(2)).classic(|classic| {
                classic
                    .dirty_tracking(DirtyTracking::FlushList)
                    .empty_free_list_algorithm(EmptyFreeListAlgorithm::Legacy)
                    .buffer_pool_instances(3)
                    .adaptive_flushing_method(AdaptiveFlushingMethod::Adaptive)
                    .page_cleaners(2)
                    .io_capacity(200)
            });
            let db = Db::open_on(Arc::new(SimulatedDisk::new()), options).expect("opened");
            let tree = db.create_tree("t").expect("created");
            sleep_ns(10_500 * MS);
            let pass = tree.engine.classic_flushing.as_ref().expect("a classic method").pass.lock();
            assert_eq!((pass.slots, pass.taken, pass.done, pass.is_shared), (3, 3, 3, true));
            // 200 pages of three instances, and nothing was logged.
            assert!(pass.task.pages == 67 && matches!(pass.task.why, FlushReason::Background), "{}", pass.task.pages);
            drop(pass);
            db.close().expect("closed");
        });
    }
}
