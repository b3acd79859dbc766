//! The laws that the engine checks while it runs: asserted in debug builds, counted in release builds.
//!
//! LAW-1  A thread that parks, or reads or writes a device, holds no page latch. (Waiting for another latch is not
//!        parking: the order of latches guarantees that such a wait ends. One exception: the classic
//!        `log_recent_closed` waits under latches, as the server that it models does. Only it calls `nap_latched`, and
//!        it counts its loops.)
//! LAW-2  No wait ends by a timer. Exceptions: the keeper's wait for its next tick, the log thread's wait for the next
//!        commit in the background that is due, payments, the classic policies, and the rests of the thread that makes
//!        files for a larger log, for which no operation waits. (A test scans the sources for timed waits in other
//!        files.)
//! LAW-5  A thread that reads or writes a device holds no mutex of a structure. Locks that are held over I/O on purpose
//!        are [`Turn`](super::sync::Turn)s.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::panicking;

use super::rank::{MUTEXES, Rank};

thread_local! {
    static LATCHES: Cell<u32> = const { Cell::new(0) };
    /// The ranks of the mutexes and turns that this thread holds.
    static RANKS: Cell<u64> = const { Cell::new(0) };
}

/// Violations of laws in this process. Each is a bug.
static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// One page latch that this thread holds. Each latch guard owns one.
pub(crate) struct LatchHeld(());

impl LatchHeld {
    pub(crate) fn new() -> LatchHeld {
        LATCHES.with(|held| held.set(held.get() + 1));
        LatchHeld(())
    }
}

impl Drop for LatchHeld {
    fn drop(&mut self) {
        LATCHES.with(|held| held.set(held.get() - 1));
    }
}

/// A mutex or turn that this thread holds. Each guard owns one.
pub(super) struct MutexHeld(Rank);

impl MutexHeld {
    pub(super) fn new(rank: Rank) -> MutexHeld {
        RANKS.with(|held| {
            debug_assert!(held.get() & rank.bit() == 0 || panicking(), "RANK-1: {rank:?} is held twice");
            held.set(held.get() | rank.bit());
        });
        MutexHeld(rank)
    }

    /// The rank of the mutex or turn.
    pub(super) fn rank(&self) -> Rank {
        self.0
    }
}

impl Drop for MutexHeld {
    fn drop(&mut self) {
        RANKS.with(|held| held.set(held.get() & !self.0.bit()));
    }
}

fn broken(law: &str, held: u32) {
    VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    debug_assert!(panicking(), "{law}: {held} held");
}

/// Checks a thread that is about to wait for a mutex or turn (RANK-1). In debug builds only.
#[inline]
pub(super) fn check_rank(rank: Rank) {
    if cfg!(debug_assertions) {
        let held = RANKS.with(Cell::get) & !(rank.bit() - 1);
        debug_assert!(held == 0 || panicking(), "RANK-1: {rank:?} is waited for with {held:#b} held");
    }
}

/// Checks a thread that is about to wait for anything but a mutex (RANK-2). `own` is the rank of the condition
/// variable's mutex. In debug builds only.
#[inline]
pub(super) fn check_no_mutex(own: Option<Rank>) {
    if cfg!(debug_assertions) {
        let held = RANKS.with(Cell::get) & MUTEXES & !own.map_or(0, Rank::bit);
        debug_assert!(held == 0 || panicking(), "RANK-2: a thread waits with {held:#b} held");
    }
}

/// Checks a thread that is about to park (LAW-1, RANK-2).
pub(crate) fn check_park() {
    let latches = LATCHES.with(Cell::get);
    if latches > 0 {
        broken("LAW-1: a thread parks with page latches", latches);
    }
    check_no_mutex(None);
}

/// Checks a thread that is about to read, write or sync a device (LAW-1, LAW-5).
pub(crate) fn check_io() {
    let (latches, mutexes) = (LATCHES.with(Cell::get), (RANKS.with(Cell::get) & MUTEXES).count_ones());
    if latches > 0 {
        broken("LAW-1: a device is used under page latches", latches);
    }
    if mutexes > 0 {
        broken("LAW-5: a device is used under mutexes", mutexes);
    }
}

/// Violations of laws in this process.
pub(crate) fn violations() -> u64 {
    VIOLATIONS.load(Ordering::Relaxed)
}
