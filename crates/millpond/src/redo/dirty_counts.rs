//! Changes that hold the checkpoint back, counted by LSN.
//!
//! A holder is a frame, a write under way, a map page, or recovery. A holder of a change that is in no image named by
//! the durable map keeps a count at the begin of the group that made the change. Dirtiness moves between holders; its
//! count stays.
//!
//! COUNT-1  A count is added under the log's mutex, at the begin of the group that is getting its place. So a thread
//!          that has read the log's end finds all groups before that end counted.
//! COUNT-2  A holder that hands dirtiness on under another LSN adds the new count before it removes the old one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// Log bytes that share a counter, as a shift: 64 KiB, or more if the log would have more than [`MOST`] counters.
const SHIFT: u32 = 16;

/// The usual maximum of counters in a log.
const MOST: u64 = 8192;

#[derive(Clone, Copy, Default)]
struct Bucket {
    count: u64,
    /// Part of `count` held by pages in frames, which have yet to be written.
    frames: u64,
    /// Begin of the first group that begins in this bucket: a checkpoint is always at the begin of a group.
    first: Lsn,
}

#[derive(Default)]
struct Buckets {
    /// The number of the first bucket. Buckets before it have no counts.
    base: u64,
    buckets: VecDeque<Bucket>,
}

impl Buckets {
    fn at(&mut self, number: u64) -> &mut Bucket {
        if self.buckets.is_empty() {
            self.base = number;
        }
        while number < self.base {
            self.buckets.push_front(Bucket::default());
            self.base -= 1;
        }
        let index = to_usize(number - self.base);
        if self.buckets.len() <= index {
            self.buckets.resize(index + 1, Bucket::default());
        }
        &mut self.buckets[index]
    }

    /// Drops leading buckets without counts. The last bucket stays: later groups may begin in it, and its `first` is
    /// known.
    fn drop_empty(&mut self) {
        while self.buckets.len() > 1 && self.buckets.front().is_some_and(|bucket| bucket.count == 0) {
            self.buckets.pop_front();
            self.base += 1;
        }
    }
}

/// Counters of dirty pages and of writes under way, by the begin of their oldest change.
pub(crate) struct DirtyCounts {
    shift: AtomicU32,
    state: Mutex<Buckets>,
}

impl Default for DirtyCounts {
    fn default() -> Self {
        DirtyCounts { shift: AtomicU32::new(SHIFT), state: Mutex::new(Rank::DirtyCounts, Buckets::default()) }
    }
}

impl DirtyCounts {
    /// Bytes of the counters for a log of `capacity` bytes. The queue's allocation may be twice as long as its
    /// contents.
    pub(super) fn memory_for(capacity: u64) -> u64 {
        2 * (capacity >> Self::shift_for(capacity)) * to_u64(size_of::<Bucket>())
    }

    fn shift_for(capacity: u64) -> u32 {
        SHIFT.max((capacity / MOST).max(1).ilog2())
    }

    /// Makes the counters as coarse as a log of `capacity` bytes has them. There are no counts yet.
    pub(crate) fn make_for(&self, capacity: u64) {
        debug_assert!(self.state.lock().buckets.is_empty(), "COUNT-1: counters are in use");
        self.shift.store(Self::shift_for(capacity), Ordering::Relaxed);
    }

    /// Adapts to a log of `capacity` bytes. A larger log gets coarser counters. In a smaller log the counters stay:
    /// merged counts cannot be told apart.
    pub(super) fn coarsen_for(&self, capacity: u64) {
        let mut state = self.state.lock();
        let (fine, coarse) = (self.shift.load(Ordering::Relaxed), Self::shift_for(capacity));
        if coarse <= fine {
            return;
        }
        // Buckets without counts must not make later counts look older than they are.
        state.drop_empty();
        let old = std::mem::take(&mut *state);
        for (number, bucket) in (old.base..).zip(old.buckets) {
            let into = state.at(number >> (coarse - fine));
            into.count += bucket.count;
            into.frames += bucket.frames;
            if into.first == Lsn::ZERO {
                into.first = bucket.first;
            }
        }
        self.shift.store(coarse, Ordering::Relaxed);
    }

    /// The number of the bucket that counts `lsn`.
    pub(crate) fn bucket(&self, lsn: Lsn) -> u64 {
        // Relaxed: the shift changes only under this mutex and the log's. Readers without them need only a hint.
        lsn.0 >> self.shift.load(Ordering::Relaxed)
    }

    /// Where the bucket that counts `lsn` ends.
    pub(crate) fn bucket_end(&self, lsn: Lsn) -> Lsn {
        let shift = self.shift.load(Ordering::Relaxed);
        Lsn(((lsn.0 >> shift) + 1) << shift)
    }

    /// Notes a group that begins at `start`, the first in its [`bucket`](Self::bucket). Groups are noted in order.
    pub(crate) fn note_group(&self, start: Lsn) {
        let mut state = self.state.lock();
        let bucket = state.at(self.bucket(start));
        if bucket.first == Lsn::ZERO {
            bucket.first = start;
        }
    }

    /// Adds a holder of a change of the group at `lsn`.
    pub(crate) fn add(&self, lsn: Lsn) {
        self.add_to(lsn, 0);
    }

    /// As [`add`](Self::add), for a page in a frame.
    pub(crate) fn add_frame(&self, lsn: Lsn) {
        self.add_to(lsn, 1);
    }

    fn add_to(&self, lsn: Lsn, frames: u64) {
        let mut state = self.state.lock();
        let bucket = state.at(self.bucket(lsn));
        if bucket.first == Lsn::ZERO || bucket.first > lsn {
            bucket.first = lsn;
        }
        bucket.count += 1;
        bucket.frames += frames;
    }

    /// Moves a change of the group at `lsn` from a page in a frame to a write.
    pub(crate) fn frame_taken(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        let bucket = state.at(self.bucket(lsn));
        debug_assert!(bucket.frames > 0, "COUNT-1: no page in a frame is held since LSN {lsn}");
        bucket.frames = bucket.frames.saturating_sub(1);
    }

    /// Moves a change of the group at `lsn` back to a page in a frame.
    pub(crate) fn frame_again(&self, lsn: Lsn) {
        self.state.lock().at(self.bucket(lsn)).frames += 1;
    }

    /// Removes a holder of a change of the group at `lsn`.
    pub(crate) fn remove(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        let bucket = state.at(self.bucket(lsn));
        debug_assert!(bucket.count > 0, "COUNT-1: LSN {lsn} has no holder");
        bucket.count = bucket.count.saturating_sub(1);
    }

    /// A group's begin at or before every holder's LSN; `None` if there is no holder.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        let mut state = self.state.lock();
        state.drop_empty();
        state.buckets.front().filter(|bucket| bucket.count > 0).map(|bucket| bucket.first)
    }

    /// Pages in frames by age, in classes of `group_bytes` of log or more, ascending, into `ages`. For each class: the
    /// end of its log bytes, and how many pages were dirtied first in them.
    pub(crate) fn frames_by_age(&self, group_bytes: u64, ages: &mut Vec<(u64, u64)>) {
        ages.clear();
        let state = self.state.lock();
        let shift = self.shift.load(Ordering::Relaxed);
        for (number, bucket) in (state.base..).zip(&state.buckets).filter(|(_, bucket)| bucket.frames > 0) {
            let end = (number + 1) << shift;
            match ages.last_mut() {
                // A class ends where its youngest bucket does, so that all its pages are due then.
                Some((last, frames)) if end / group_bytes == *last / group_bytes => {
                    (*last, *frames) = (end, *frames + bucket.frames);
                }
                _ => ages.push((end, bucket.frames)),
            }
        }
    }

    /// The sum of all counts.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.state.lock().buckets.iter().map(|bucket| bucket.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_begin_of_a_group_before_every_holder() {
        let counts = DirtyCounts::default();
        assert_eq!(counts.oldest(), None);
        for start in [4096, 70_000, 80_000, 200_000] {
            counts.note_group(Lsn(start));
        }
        counts.add(Lsn(80_000));
        counts.add(Lsn(200_000));
        assert_eq!(counts.oldest(), Some(Lsn(70_000)));
        counts.add_frame(Lsn(80_000));
        let mut ages = Vec::new();
        counts.frames_by_age(1, &mut ages);
        assert_eq!(ages, [(2 << 16, 1)]);
        counts.frame_taken(Lsn(80_000));
        counts.frames_by_age(1, &mut ages);
        assert_eq!(ages, []);
        counts.remove(Lsn(80_000));
        counts.remove(Lsn(80_000));
        assert_eq!(counts.oldest(), Some(Lsn(200_000)));
        counts.add(Lsn(4096));
        assert_eq!((counts.oldest(), counts.total()), (Some(Lsn(4096)), 2));
        counts.remove(Lsn(4096));
        counts.remove(Lsn(200_000));
        assert_eq!((counts.oldest(), counts.total()), (None, 0));
    }

    #[test]
    fn counters_of_a_log_that_becomes_larger_are_put_together() {
        let counts = DirtyCounts::default();
        counts.make_for(256 << 20);
        let kib = |kib: u64| Lsn(kib << 10);
        for at in [1, 70, 500, 600, 700, 3000] {
            counts.note_group(kib(at));
            counts.add_frame(kib(at));
        }
        // The first two pages are cleaned before the change of size, and stay forgotten.
        [1, 70].into_iter().for_each(|at| counts.remove(kib(at)));
        assert_eq!(counts.oldest(), Some(kib(500)));
        counts.coarsen_for(4 << 30);
        assert_eq!((counts.bucket(kib(700)), counts.bucket_end(kib(700))), (1, kib(1024)));
        assert_eq!((counts.oldest(), counts.total()), (Some(kib(500)), 4));
        let mut ages = Vec::new();
        counts.frames_by_age(1, &mut ages);
        assert_eq!(ages, [(512 << 10, 1), (1 << 20, 2), (3 << 20, 1)]);
        // Each holder removes the count that it added before the change of size.
        counts.remove(kib(500));
        assert_eq!(counts.oldest(), Some(kib(600)));
        counts.coarsen_for(256 << 20);
        assert_eq!(counts.bucket(kib(700)), 1);
        [600, 700, 3000].into_iter().for_each(|at| counts.remove(kib(at)));
        assert_eq!((counts.oldest(), counts.total()), (None, 0));
    }

    #[test]
    fn pages_are_grouped_by_age_and_a_large_log_has_coarse_counters() {
        let counts = DirtyCounts::default();
        counts.make_for(4 << 30);
        assert_eq!(counts.bucket(Lsn(4 << 30)), 8192);
        for lsn in [1 << 20, 2 << 20, 3 << 20, 40 << 20] {
            counts.add_frame(Lsn(lsn));
        }
        let mut ages = Vec::new();
        counts.frames_by_age(16 << 20, &mut ages);
        assert_eq!(ages, [((3 << 20) + (512 << 10), 3), ((40 << 20) + (512 << 10), 1)]);
    }

    #[test]
    fn memory_is_that_of_two_queues_as_long_as_the_log_has_buckets() {
        let bucket = to_u64(size_of::<Bucket>());
        assert_eq!(DirtyCounts::memory_for(1 << 20), 2 * 16 * bucket, "buckets of 64 KiB");
        assert_eq!(DirtyCounts::memory_for(512 << 20), 2 * 8192 * bucket);
        assert_eq!(DirtyCounts::memory_for(4 << 30), 2 * 8192 * bucket, "coarser ones");
    }
}
