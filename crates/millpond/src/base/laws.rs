//! The laws that can be looked at while the engine runs: asserted in debug builds, counted in release builds.
//!
//! LAW-1  Who parks, or reads or writes a device, holds no page latch. (Waiting for another latch is not parking: the
//!        order of latches sees to it that it ends.)
//! LAW-2  No wait ends by a timer, but the keeper's for its next tick. (Looked at by a test: no other code has one.)
//! LAW-5  Who reads or writes a device holds no mutex of a structure. The locks that are held over I/O on
//!        purpose are [`Turn`](super::sync::Turn)s.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::sync;

thread_local! {
    static LATCHES: Cell<u32> = const { Cell::new(0) };
    static MUTEXES: Cell<u32> = const { Cell::new(0) };
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

/// A structure's mutex that this thread holds. Guards own one.
pub(super) struct MutexHeld(());

impl MutexHeld {
    pub(super) fn new() -> MutexHeld {
        MUTEXES.with(|held| held.set(held.get() + 1));
        MutexHeld(())
    }
}

impl Drop for MutexHeld {
    fn drop(&mut self) {
        MUTEXES.with(|held| held.set(held.get() - 1));
    }
}

fn broken(law: &str, held: u32) {
    VIOLATIONS.fetch_add(1, Ordering::Relaxed);
    debug_assert!(sync::panicking(), "{law}: {held} held");
}

/// This thread is about to park.
pub(crate) fn check_park() {
    let latches = LATCHES.with(Cell::get);
    if latches > 0 {
        broken("LAW-1: a thread parks with page latches", latches);
    }
}

/// This thread is about to read, write or sync a device.
pub(crate) fn check_io() {
    let (latches, mutexes) = (LATCHES.with(Cell::get), MUTEXES.with(Cell::get));
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
