//! Counts operations, and keeps the time of the slowest operation in each of the last seconds.
//!
//! Each thread counts in one of a few stripes, so two threads seldom write to the same cache line. The slowest times
//! are a ring of seconds. Readers take nothing out of it, so all readers see the same. An entry has its second in the
//! upper bits and the time in the lower ones. So one `fetch_max` replaces an older second's entry by a newer one's, and
//! a faster operation's by a slower one's. Mostly a load shows that nothing has to change.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::aligned::{to_u64, to_usize};

/// The kind of an operation that a caller requests. An operation inside of another is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// Reads the value of a key.
    Get,
    /// Reads a leaf's rows for a scan.
    Scan,
    /// Writes a batch.
    Write,
    /// Takes part in a bulk load.
    BulkLoad,
    /// Takes part in an index build.
    IndexBuild,
}

const KINDS: usize = 5;

impl OperationKind {
    /// The name that a [`Stall`](super::stall::Stall) uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OperationKind::Get => "get",
            OperationKind::Scan => "scan",
            OperationKind::Write => "write",
            OperationKind::BulkLoad => "bulk load",
            OperationKind::IndexBuild => "index build",
        }
    }
}

/// Seconds that a reader sees, the current one included: a reader that looks once a minute misses none.
const TOLD: usize = 61;

/// Entries of the ring.
const RING: usize = 64;

/// Lower bits of an entry: microseconds, up to twelve days.
const US_BITS: u32 = 40;

const STRIPES: usize = 16;

/// Two cache lines long, since processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; KINDS]);

/// The operations of one database.
pub(crate) struct Operations {
    stripes: [Stripe; STRIPES],
    slowest: [AtomicU64; RING],
}

/// The slowest operations of the last seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slowest {
    /// The current second of the engine's clock.
    pub(crate) second: u64,
    /// Microseconds of the slowest operation that ended `index` seconds ago. 0: it took less than one, or none ended.
    pub(crate) us: Vec<u64>,
}

/// Assigns the next stripe, round-robin. A thread calls it once.
pub(super) fn next_stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
}

fn second_of(ns: u64) -> u64 {
    ns / 1_000_000_000
}

fn slot_of(second: u64) -> usize {
    to_usize(second % to_u64(RING))
}

impl Operations {
    pub(super) fn new() -> Operations {
        Operations {
            stripes: std::array::from_fn(|_| Stripe::default()),
            slowest: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Records an operation that ended at `now_ns`, in a thread of this stripe.
    pub(super) fn ended(&self, kind: OperationKind, stripe: usize, now_ns: u64, elapsed_ns: u64) {
        // Relaxed, here and below: each counter is read by itself.
        self.stripes[stripe].0[kind as usize].fetch_add(1, Ordering::Relaxed);
        let second = second_of(now_ns);
        // Stored as second + 1, so that an entry of second 0 differs from an empty one.
        let entry = ((second + 1) << US_BITS) | (elapsed_ns / 1_000).min((1 << US_BITS) - 1);
        let slot = &self.slowest[slot_of(second)];
        if slot.load(Ordering::Relaxed) < entry {
            slot.fetch_max(entry, Ordering::Relaxed);
        }
    }

    /// The number of operations that have ended.
    pub(crate) fn count(&self, kind: OperationKind) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0[kind as usize].load(Ordering::Relaxed)).sum()
    }

    /// The slowest of the last seconds, as of `now_ns`.
    pub(super) fn slowest(&self, now_ns: u64) -> Slowest {
        let now = second_of(now_ns);
        let of_second = |second: u64| {
            let entry = self.slowest[slot_of(second)].load(Ordering::Relaxed);
            if entry >> US_BITS == second + 1 { entry & ((1 << US_BITS) - 1) } else { 0 }
        };
        let us = (0..to_u64(TOLD)).map(|ago| now.checked_sub(ago).map_or(0, of_second)).collect();
        Slowest { second: now, us }
    }
}

const _: () = assert!(OperationKind::IndexBuild as usize + 1 == KINDS && TOLD < RING);

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_second_has_its_slowest_however_often_it_is_read() {
        let operations = Operations::new();
        for (now_ns, ms) in [(0, 4), (S / 2, 9), (S - 1, 7), (S, 2), (3 * S, 0), (3 * S + 1, 1)] {
            operations.ended(OperationKind::Get, 3, now_ns, ms * 1_000_000);
        }
        for _ in 0..2 {
            let found = operations.slowest(3 * S + 5);
            assert_eq!((found.second, found.us.len(), &found.us[..5]), (3, TOLD, &[1_000, 0, 2_000, 9_000, 0][..]));
        }
        let later = operations.slowest(60 * S);
        assert_eq!((later.us[57], later.us[59], later.us[60]), (1_000, 2_000, 9_000));
        assert_eq!(operations.slowest(64 * S).us.iter().sum::<u64>(), 0, "second 0 is not reported as second 64");
    }

    #[test]
    fn newer_second_replaces_an_older_one_however_slow_that_was() {
        let operations = Operations::new();
        operations.ended(OperationKind::Write, 0, 5 * S, 900 * S);
        operations.ended(OperationKind::Write, 0, 69 * S, 1_000_000);
        assert_eq!(operations.slowest(69 * S).us[0], 1_000);
        // An older second's entry that comes late changes nothing.
        operations.ended(OperationKind::Write, 0, 5 * S, 900 * S);
        assert_eq!(operations.slowest(69 * S).us[0], 1_000);
        operations.ended(OperationKind::Write, 0, 70 * S, u64::MAX);
        assert_eq!(operations.slowest(70 * S).us[..2], [(1 << US_BITS) - 1, 1_000], "an entry's longest time");
    }

    #[test]
    fn all_stripes_are_counted() {
        let operations = Operations::new();
        (0..STRIPES).for_each(|stripe| operations.ended(OperationKind::Scan, stripe, 0, 0));
        assert_eq!([OperationKind::Scan, OperationKind::Get].map(|kind| operations.count(kind)), [16, 0]);
        assert!(next_stripe() < STRIPES);
    }
}
