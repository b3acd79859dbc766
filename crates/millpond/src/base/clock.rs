//! The engine's only clock.
//!
//! Real time outside of simulations; virtual time under the deterministic scheduler, where it moves only when every
//! thread is parked. Nothing else in the engine reads a clock.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the first call in this process (real time), or since the simulation began (virtual time).
pub(crate) fn now_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(task) = super::scheduler::current() {
        return task.now_ns();
    }
    u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The same, some milliseconds old perhaps, for a fraction of the cost.
pub(crate) fn coarse_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(task) = super::scheduler::current() {
        return task.now_ns();
    }
    let time = clock_gettime(ClockId::MonotonicCoarse);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The real instant that [`now_ns`] counts as `at_ns`.
pub(super) fn instant_at(at_ns: u64) -> Instant {
    *ORIGIN + Duration::from_nanos(at_ns)
}
