//! The engine's only clock.
//!
//! Real time outside of simulations. Under the deterministic scheduler, virtual time, which moves only when every
//! thread is parked. No other code of the engine reads a clock.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The time of the first call, by `Instant` and by the coarse clock.
static ORIGIN: LazyLock<(Instant, u64)> = LazyLock::new(|| (Instant::now(), since_boot_ns(ClockId::Monotonic)));

/// Nanoseconds since the first call in this process (real time), or since the simulation began (virtual time).
pub(crate) fn now_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(task) = super::scheduler::current() {
        return task.now_ns();
    }
    nanos(ORIGIN.0.elapsed())
}

/// `time` in nanoseconds, the engine's unit of time; at most 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// As [`now_ns`], but up to one tick of the system (1 to 10 ms) late, for a fraction of the cost.
pub(crate) fn coarse_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(task) = super::scheduler::current() {
        return task.now_ns();
    }
    since_boot_ns(ClockId::MonotonicCoarse).saturating_sub(ORIGIN.1)
}

fn since_boot_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The real instant that [`now_ns`] counts as `at_ns`.
pub(super) fn instant_at(at_ns: u64) -> Instant {
    ORIGIN.0 + Duration::from_nanos(at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both clocks have the same origin. The system decides how late the coarse one may be, but never a second.
    #[test]
    fn the_coarse_clock_is_a_little_behind_the_other() {
        for _ in 0..1000 {
            let before = now_ns();
            let coarse = coarse_ns();
            let after = now_ns();
            assert!(coarse <= after && coarse + 1_000_000_000 > before, "{before} {coarse} {after}");
        }
    }
}
