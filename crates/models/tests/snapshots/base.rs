//! The engine's `base` as far as the list of live snapshots needs it, over loom.

#![expect(dead_code, reason = "the model uses a part of it")]

#[path = "../../../millpond/src/base/ids.rs"]
pub(crate) mod ids;
#[path = "../../../millpond/src/base/rank.rs"]
pub(crate) mod rank;
#[path = "../stand_ins/sync.rs"]
pub(crate) mod sync;

/// The primitives of `sync`.
mod threads {
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use loom::thread::yield_now;
}

/// Time stands still.
pub(crate) mod clock {
    pub(crate) fn now_ns() -> u64 {
        0
    }
}
