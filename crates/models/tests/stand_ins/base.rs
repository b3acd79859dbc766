//! The engine's `base` over shuttle's threads: the real files, except for the seam itself.

#![expect(dead_code, unreachable_pub, reason = "each model uses a part of the engine's base")]

#[path = "../../../millpond/src/base/aligned.rs"]
pub(crate) mod aligned;
#[path = "../../../millpond/src/base/bell.rs"]
pub(crate) mod bell;
#[path = "../../../millpond/src/base/choice.rs"]
pub(crate) mod choice;
#[path = "../../../millpond/src/base/crc.rs"]
pub(crate) mod crc;
#[path = "../../../millpond/src/base/error.rs"]
pub(crate) mod error;
#[path = "../../../millpond/src/base/handoff.rs"]
pub(crate) mod handoff;
#[path = "../../../millpond/src/base/ids.rs"]
pub(crate) mod ids;
#[path = "../../../millpond/src/base/pending.rs"]
pub(crate) mod pending;
#[path = "../../../millpond/src/base/quoted.rs"]
pub(crate) mod quoted;
#[path = "../../../millpond/src/base/rank.rs"]
pub(crate) mod rank;
#[path = "../../../millpond/src/base/row_error.rs"]
pub(crate) mod row_error;
pub(crate) mod sync;

/// The primitives of `sync`.
mod threads {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use shuttle::thread::yield_now;
}

/// The engine's own tests check the laws.
pub(crate) mod laws {
    pub(crate) fn check_park() {}
}

/// No thread of the model spins.
pub(crate) mod cpus {
    pub(crate) struct Cpus {
        pub(crate) affinity: f64,
        pub(crate) quota: Option<f64>,
        pub(crate) periods: u64,
        pub(crate) throttled: u64,
    }

    impl Cpus {
        pub(crate) fn read() -> Cpus {
            Cpus { affinity: 1.0, quota: None, periods: 0, throttled: 0 }
        }

        pub(crate) fn effective(&self) -> f64 {
            self.quota.map_or(self.affinity, |quota| quota.min(self.affinity))
        }
    }

    pub(crate) fn used_us() -> u64 {
        0
    }
}

/// Time stands still.
pub(crate) mod clock {
    pub(crate) fn now_ns() -> u64 {
        0
    }
}

/// Waits without clocks.
pub(crate) mod waits {
    #[derive(Clone, Copy)]
    pub(crate) enum WaitClass {
        FreeFrame,
        LogSpace,
        LogWrite,
        LogFlush,
        PageRead,
        RecentClosed,
    }

    impl WaitClass {
        pub(crate) fn name(self) -> &'static str {
            "a hand-off"
        }
    }

    pub(crate) struct Waits;

    impl Waits {
        pub(crate) fn timed<T>(&self, _class: WaitClass, wait: impl FnOnce() -> T) -> T {
            wait()
        }
    }
}
