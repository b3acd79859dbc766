//! The engine's `base` as far as the list of live snapshots needs it, over loom.

#![expect(dead_code, reason = "the model uses a part of it")]

#[path = "../../../millpond/src/base/aligned.rs"]
pub(crate) mod aligned;
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

/// Each look at the time is two nanoseconds after the last.
pub(crate) mod clock {
    use std::sync::atomic::{AtomicU64, Ordering};

    static NOW_NS: AtomicU64 = AtomicU64::new(0);

    pub(crate) fn now_ns() -> u64 {
        NOW_NS.fetch_add(2, Ordering::Relaxed)
    }
}
