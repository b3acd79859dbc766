//! What holds the checkpoint back, counted by LSN.
//!
//! Whoever has a change that is in no image named by the durable map holds a count at the begin of the group that made
//! it: a frame, a write under way, a map page, recovery. Dirtiness moves between holders; its count stays.
//!
//! COUNT-1  A count is added under the log's mutex, at the begin of the group that is getting its place. So who has
//!          read the log's end finds all groups before it counted.
//! COUNT-2  Who hands dirtiness on under another LSN adds the new count before removing the old one.

use std::collections::VecDeque;

use crate::base::aligned::{to_u64, to_usize};
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// Log bytes that share a counter, as a shift: 64 KiB.
const SHIFT: u32 = 16;

#[derive(Clone, Copy, Default)]
struct Bucket {
    count: u64,
    /// Begin of the first group that begins in this bucket: a checkpoint is always at a group's begin.
    first: Lsn,
}

#[derive(Default)]
struct Buckets {
    /// The number of the first bucket: all before it have no counts.
    base: u64,
    buckets: VecDeque<Bucket>,
}

impl Buckets {
    fn at(&mut self, lsn: Lsn) -> &mut Bucket {
        let number = lsn.0 >> SHIFT;
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
}

/// Counters of dirty pages and of writes under way, by the begin of their oldest change.
pub(crate) struct DirtyCounts {
    state: Mutex<Buckets>,
}

impl Default for DirtyCounts {
    fn default() -> Self {
        DirtyCounts { state: Mutex::new(Rank::DirtyCounts, Buckets::default()) }
    }
}

impl DirtyCounts {
    /// Bytes of the counters for a log of `capacity`, in a queue that may be twice as long.
    pub(crate) fn memory_for(capacity: u64) -> u64 {
        2 * (capacity >> SHIFT) * to_u64(size_of::<Bucket>())
    }

    /// The counter that stands for `lsn`.
    pub(crate) fn bucket(lsn: Lsn) -> u64 {
        lsn.0 >> SHIFT
    }

    /// A group begins at `start`, the first in its [`bucket`](Self::bucket). Groups are noted in order.
    pub(crate) fn note_group(&self, start: Lsn) {
        let mut state = self.state.lock();
        let bucket = state.at(start);
        if bucket.first == Lsn::ZERO {
            bucket.first = start;
        }
    }

    /// Somebody holds a change of the group at `lsn` from now on.
    pub(crate) fn add(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        let bucket = state.at(lsn);
        if bucket.first == Lsn::ZERO || bucket.first > lsn {
            bucket.first = lsn;
        }
        bucket.count += 1;
    }

    /// Somebody no longer holds a change of the group at `lsn`.
    pub(crate) fn remove(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        let bucket = state.at(lsn);
        debug_assert!(bucket.count > 0, "COUNT-1: nobody holds LSN {lsn}");
        bucket.count = bucket.count.saturating_sub(1);
    }

    /// A group's begin that no holder is before; `None`: nobody holds anything.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        let mut state = self.state.lock();
        // The last bucket stays: the groups to come may begin in it, and its first one is known.
        while state.buckets.len() > 1 && state.buckets.front().is_some_and(|bucket| bucket.count == 0) {
            state.buckets.pop_front();
            state.base += 1;
        }
        state.buckets.front().filter(|bucket| bucket.count > 0).map(|bucket| bucket.first)
    }

    /// For each counter that is not 0: the end of the log bytes that it stands for, and the count; ascending.
    pub(crate) fn by_age(&self) -> Vec<(Lsn, u64)> {
        let state = self.state.lock();
        let numbered = (state.base + 1..).zip(&state.buckets);
        numbered.filter(|(_, b)| b.count > 0).map(|(end, bucket)| (Lsn(end << SHIFT), bucket.count)).collect()
    }

    /// All counts together.
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
        assert_eq!(counts.by_age(), [(Lsn(2 << 16), 1), (Lsn(4 << 16), 1)]);
        counts.remove(Lsn(80_000));
        assert_eq!(counts.oldest(), Some(Lsn(200_000)));
        counts.add(Lsn(4096));
        assert_eq!((counts.oldest(), counts.total()), (Some(Lsn(4096)), 2));
        counts.remove(Lsn(4096));
        counts.remove(Lsn(200_000));
        assert_eq!((counts.oldest(), counts.total()), (None, 0));
    }
}
