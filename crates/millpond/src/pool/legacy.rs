//! InnoDB's policy for a pool without a free frame, kept for comparison with the hand-off. A thread that needs a frame
//! looks for a clean page among the hundred at the list's tail, then in the whole list. Failing that it writes one
//! page, with a sync of its own. Meanwhile all threads that need a frame of the same instance wait behind it.
//! (`buf_LRU_get_free_block` and `buf_flush_single_page_from_LRU` of MySQL 5.6.)
//!
//! LEGACY-1  A thread that finds no page to write either waits in the line for frames, as with the hand-off.
//!
//! The wait for the turn ends with the thread that has it: after one write and two syncs at most.

use std::sync::atomic::Ordering;

use super::buffer_pool::Pool;
use super::classic::{Legacy, SinglePageFlush};
use super::replacement::Wanted;
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::FrameId;

/// Number of pages at the list's tail that the first search looks at.
const TAIL: usize = 100;

/// The result of a search for a page to write.
enum Found {
    Frame(FrameId),
    /// The search freed a frame, or the written page was used again: retry.
    Again,
    Nothing,
}

impl Pool {
    /// Sets how a single page is written. Called once; only `legacy` uses it.
    pub(crate) fn set_single_page_flush(&self, flush: Box<dyn SinglePageFlush>) {
        if let Some(classic) = self.classic() {
            let _ = classic.legacy.flush.set(flush);
        }
    }

    /// Pages that a thread wrote because it needed a frame.
    pub(crate) fn single_flushes(&self) -> u64 {
        self.classic().map_or(0, |classic| classic.legacy.single_flushes.load(Ordering::Relaxed))
    }

    /// Takes `count` frames of an instance by the caller's own work. `None`: there is none to be had that way. Sets
    /// `waited` if the caller waits for its turn or writes a page, but not if it finds a clean page.
    pub(super) fn take_legacy(
        &self,
        legacy: &Legacy,
        at: usize,
        count: usize,
        waited: &mut bool,
    ) -> Result<Option<Vec<FrameId>>, Error> {
        let free = &self.instances[at].free;
        let mut looks = TAIL;
        // Kept in hand: a thread that needs a single frame would take one out of the ring.
        let mut hand = Vec::new();
        let taken = loop {
            let (_lru, in_line) = legacy.lru[at].lock_and_tell();
            *waited |= in_line;
            if hand.len() == count {
                break Ok(Some(std::mem::take(&mut hand)));
            }
            if let Some(mut frames) = free.take(count - hand.len()) {
                frames.append(&mut hand);
                break Ok(Some(frames));
            }
            let found = self.steal(at, looks);
            if found.is_none() && looks == TAIL {
                looks = 4 * self.frames.made();
                continue;
            }
            let by_a_write = || {
                *waited = true;
                self.flush_single(legacy, at)
            };
            match found.map_or_else(by_a_write, |frame| Ok(Found::Frame(frame))) {
                Ok(Found::Frame(frame)) if frame.index() < self.len() => hand.push(frame),
                Ok(Found::Frame(beyond)) => self.give(beyond),
                Ok(Found::Again) if !self.line().stopped() => {}
                Ok(_) => break Ok(None),
                Err(error) => break Err(error),
            }
        };
        hand.into_iter().for_each(|frame| self.give(frame));
        taken
    }

    /// Writes the dirty page that is next to leave, and takes its frame unless the page was used again.
    fn flush_single(&self, legacy: &Legacy, at: usize) -> Result<Found, Error> {
        let stopped = self.line().stopped();
        let Some(flush) = legacy.flush.get().filter(|_| !stopped) else { return Ok(Found::Nothing) };
        let mut scan = self.long_scan();
        scan.wanted = Wanted::Dirty;
        let steps = scan.steps;
        let (freed, mut dirty) = self.sweep_in(at, 1, 1, &mut scan);
        legacy.flush_searches.add(to_u64(steps - scan.steps));
        let Some(page) = dirty.pop() else { return Ok(if freed > 0 { Found::Again } else { Found::Nothing }) };
        let frame = page.frame_id();
        let flushed = flush.flush(frame);
        // A pinned page does not leave.
        drop(page);
        let left = self.evict_cleaned(frame);
        if matches!(flushed, Ok(true)) {
            legacy.single_flushes.fetch_add(1, Ordering::Relaxed);
        }
        match flushed {
            Ok(_) if left => Ok(Found::Frame(frame)),
            Ok(true) => Ok(Found::Again),
            Ok(false) => Ok(Found::Nothing),
            Err(error) => {
                if left {
                    self.give(frame);
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use super::*;
    use crate::base::clock;
    use crate::base::ids::{Lsn, PageId, SpaceId};
    use crate::base::waits::Waits;
    use crate::io::simulated::SimulatedDisk;
    use crate::pool::options::{DirtyTracking, EmptyFreeListAlgorithm, Freeing, PageReplacement, PoolOptions};
    use crate::redo::dirty_counts::DirtyCounts;
    use crate::simulation::{run, sleep_ns, spawn};
    use crate::store::page_store::PageStore;
    use crate::store::superblock::Superblock;

    /// A page writer that takes `ns` nanoseconds, or cannot write.
    struct Writes {
        ns: u64,
        can: bool,
    }

    /// The same for one pool.
    struct WritesTo {
        pool: Weak<Pool>,
        writes: Writes,
    }

    impl SinglePageFlush for WritesTo {
        fn flush(&self, frame: FrameId) -> Result<bool, Error> {
            sleep_ns(self.writes.ns);
            if self.writes.can {
                self.pool.upgrade().expect("its caller has it").dirty.forget(frame);
            }
            Ok(self.writes.can)
        }
    }

    fn page(number: u32) -> PageId {
        PageId::new(SpaceId(1), number)
    }

    /// A pool whose frames all have a page, installed in the order of their numbers; the first `dirty` of them are
    /// dirty. (So short a list has no old part.)
    fn full(frames: u32, instances: usize, dirty: u32, writes: Writes) -> Arc<Pool> {
        let disk = SimulatedDisk::new();
        PageStore::create(&disk, Superblock::of_tests()).expect("created");
        let counts = Arc::new(DirtyCounts::default());
        let (store, _) = PageStore::open(&disk, Arc::clone(&counts)).expect("opened");
        let options = PoolOptions {
            frames,
            frames_max: FrameId(frames).index(),
            tracking: DirtyTracking::FlushList,
            replacement: PageReplacement::MidpointLru,
            instances,
            freeing: Freeing {
                empty: EmptyFreeListAlgorithm::Legacy,
                lru_scan_depth: 1_024,
                free_list_target: None,
                old_blocks_ns: 0,
            },
        };
        let waits = Arc::new(Waits::new(Duration::from_secs(1)));
        let pool = Arc::new(Pool::new(&options, Arc::new(store), counts, Arc::default(), waits).expect("made"));
        for number in 0..frames {
            let page = pool.install(page(number), pool.take_frame().expect("free"));
            if number < dirty {
                pool.dirty.mark(page.frame_id(), Lsn(u64::from(number) + 1));
            }
        }
        pool.set_single_page_flush(Box::new(WritesTo { pool: Arc::downgrade(&pool), writes }));
        pool
    }

    /// How many frames of an instance `legacy` gets, and whether that was a wait.
    fn take(pool: &Pool, at: usize, count: usize) -> (Option<usize>, bool) {
        let mut waited = false;
        let legacy = &pool.classic().expect("a classic pool").legacy;
        let taken = pool.take_legacy(legacy, at, count, &mut waited).expect("nothing fails");
        (taken.map(|frames| frames.len()), waited)
    }

    /// The pages that are no longer in the pool.
    fn gone(pool: &Pool, frames: u32) -> Vec<u32> {
        (0..frames).filter(|number| !pool.is_known(page(*number))).collect()
    }

    #[test]
    fn clean_page_is_sought_in_100_at_the_tail_and_then_in_all() {
        for (dirty, searches, searched) in [(0, 1, 1), (99, 1, 100), (100, 2, 100 + 101), (299, 2, 100 + 300)] {
            let pool = full(300, 1, dirty, Writes { ns: 0, can: true });
            assert_eq!((take(&pool, 0, 1), gone(&pool, 300)), ((Some(1), false), vec![dirty]));
            let found = pool.searches();
            assert_eq!((found.searches, found.searched), (searches, searched), "behind {dirty} dirty ones");
            assert_eq!((found.flush_searches, pool.single_flushes()), (0, 0), "nothing is written");
        }
    }

    #[test]
    fn without_clean_pages_one_is_written_for_each_needed_frame() {
        let pool = full(300, 1, 300, Writes { ns: 0, can: true });
        let _used = [0, 1].map(|number| pool.fetch_cold(page(number)).expect("there"));
        assert_eq!((take(&pool, 0, 1), gone(&pool, 300)), ((Some(1), true), vec![2]));
        let found = pool.searches();
        assert_eq!((found.searches, found.searched), (2, 100 + 300), "for a clean one");
        assert_eq!((found.flush_searches, found.flush_searched, pool.single_flushes()), (1, 3, 1));
        // Once the search of a hundred has failed, each further search covers the whole list, which is shorter each
        // time.
        assert_eq!((take(&pool, 0, 2), gone(&pool, 300)), ((Some(2), true), vec![2, 3, 4]));
        let found = pool.searches();
        assert_eq!((found.searches, found.searched), (2 + 3, 400 + 100 + 299 + 298));
        assert_eq!((found.flush_searches, found.flush_searched, found.last_flush_searched), (3, 9, 3));
        assert_eq!(pool.single_flushes(), 3);
    }

    #[test]
    fn thread_that_can_write_no_page_waits_until_a_frame_is_given() {
        let pool = full(20, 1, 20, Writes { ns: 0, can: false });
        assert_eq!((take(&pool, 0, 1), gone(&pool, 20)), ((None, true), vec![]));
        assert_eq!((pool.searches().flush_searches, pool.single_flushes()), (1, 0), "LEGACY-1");
        run(2, || {
            let waiter = {
                let pool = Arc::clone(&pool);
                spawn("waiter", move || pool.take_frames(1).map(|frames| frames.len())).expect("a thread")
            };
            sleep_ns(1_000_000);
            assert_eq!(pool.line().wanted(), 1);
            let frame = pool.fetch_cold(page(7)).expect("there").frame;
            pool.dirty.forget(frame);
            assert_eq!(pool.steal(0, 20), Some(frame), "a page that was looked at keeps its place");
            pool.give(frame);
            assert_eq!(waiter.join().expect("no panic").expect("a frame"), 1);
        });
        assert_eq!((gone(&pool, 20), pool.counters.wait_free.load(Ordering::Relaxed)), (vec![7], 1));
    }

    #[test]
    fn page_writer_holds_up_others_of_its_own_instance_only() {
        const MS: u64 = 1_000_000;
        let pool = full(40, 2, 40, Writes { ns: MS, can: true });
        run(3, || {
            let takers = [0, 0, 0, 1].map(|at| {
                let pool = Arc::clone(&pool);
                let work = move || (at, clock::now_ns() / MS, take(&pool, at, 1), clock::now_ns() / MS);
                spawn("taker", work).expect("a thread")
            });
            let mut took = takers.map(|taker| taker.join().expect("no panic"));
            took.sort_unstable();
            let after = |at, ms| (at, 0, (Some(1), true), ms);
            assert_eq!(took, [after(0, 1), after(0, 2), after(0, 3), after(1, 1)]);
        });
        assert_eq!((gone(&pool, 40), pool.single_flushes()), (vec![0, 1, 2, 4], 4));
    }
}
