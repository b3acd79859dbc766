//! The laws that can be looked at while the engine runs: asserted in debug builds, counted in release builds.
//!
//! LAW-1  Who parks, or reads or writes a device, holds no page latch. (Waiting for another latch is not parking: the
//!        order of latches sees to it that it ends. The classic `log_recent_closed` waits under latches, as the server
//!        does that it is after: by a sleep of its own, `nap_latched`, that no other code has, and counted by loops.)
//! LAW-2  No wait ends by a timer, but the keeper's for its next tick, payments, those of the classic policies, and the
//!        rests of who makes files for a large log, for which no operation waits. (Looked at by a test: no other code
//!        has one.)
//! LAW-5  Who reads or writes a device holds no mutex of a structure. The locks that are held over I/O on
//!        purpose are [`Turn`](super::sync::Turn)s.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::rank::{MUTEXES, Rank};
use super::sync;

thread_local! {
    static LATCHES: Cell<u32> = const { Cell::new(0) };
    /// The ranks of the mutexes and turns that this thread holds.
    static RANKS: Cell<u64> = const { Cell::new(0) };
}

/// How often a law was broken in this process. Each is a bug.
static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// A page latch that this thread holds. Guards own one.
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

/// A mutex or turn that this thread holds. Guards own one.
pub(super) struct MutexHeld(Rank);

impl MutexHeld {
    pub(super) fn new(rank: Rank) -> MutexHeld {
        RANKS.with(|held| {
            debug_assert!(held.get() & rank.bit() == 0 || sync::panicking(), "RANK-1: {rank:?} is held twice");
            held.set(held.get() | rank.bit());
        });
        MutexHeld(rank)
    }

    /// What is held.
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
    debug_assert!(sync::panicking(), "{law}: {held} held");
}

/// This thread is about to wait for a mutex or turn (RANK-1). In debug builds only.
#[inline]
pub(super) fn check_rank(rank: Rank) {
    if cfg!(debug_assertions) {
        let held = RANKS.with(Cell::get) & !(rank.bit() - 1);
        debug_assert!(held == 0 || sync::panicking(), "RANK-1: {rank:?} is waited for with {held:#b} held");
    }
}

/// This thread is about to wait for something else than a mutex; `own` is that of the condition variable (RANK-2). In
/// debug builds only.
#[inline]
pub(super) fn check_no_mutex(own: Option<Rank>) {
    if cfg!(debug_assertions) {
        let held = RANKS.with(Cell::get) & MUTEXES & !own.map_or(0, Rank::bit);
        debug_assert!(held == 0 || sync::panicking(), "RANK-2: a thread waits with {held:#b} held");
    }
}

/// This thread is about to park.
pub(crate) fn check_park() {
    let latches = LATCHES.with(Cell::get);
    if latches > 0 {
        broken("LAW-1: a thread parks with page latches", latches);
    }
    check_no_mutex(None);
}

/// This thread is about to read, write or sync a device.
pub(crate) fn check_io() {
    let (latches, mutexes) = (LATCHES.with(Cell::get), (RANKS.with(Cell::get) & MUTEXES).count_ones());
    if latches > 0 {
        broken("LAW-1: a device is used under page latches", latches);
    }
    if mutexes > 0 {
        broken("LAW-5: a device is used under mutexes", mutexes);
    }
}

/// How often a law was broken in this process.
pub(crate) fn violations() -> u64 {
    VIOLATIONS.load(Ordering::Relaxed)
}
