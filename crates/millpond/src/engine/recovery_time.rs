//! The length of log that a recovery can apply within the time that the user allows.
//!
//! An open measures how fast it applies the log; the superblock keeps that rate for later opens. The open also measures
//! the time for everything else. The controller ([`pacing`](crate::engine::pacing)) goes by the smaller of this length
//! and the log's capacity. The log's own bound stays at the capacity: the rest is slack.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of log that a recovery is expected to apply a second, before one was measured: a fourth of what two shared
/// processors do.
const EXPECTED_PER_S: u64 = 32 << 20;

/// Least bytes of log with which a recovery's speed is measured.
const TELLS_BYTES: u64 = 4 << 20;

/// Bytes of log that are always allowed, so that writers are not slowed down to nothing.
const LEAST_BYTES: u64 = 4 << 20;

/// The target for the recovery time, and the measured speed.
#[derive(Debug, Default)]
pub(crate) struct RecoveryTime {
    /// The user's target; 0: none.
    target_ms: AtomicU64,
    /// Bytes of log applied a second; 0: not measured.
    applied_per_s: AtomicU64,
    /// Time that the last open took beside applying the log.
    beside_us: AtomicU64,
}

impl RecoveryTime {
    /// A target, and the speed that earlier opens measured; 0: none.
    pub(crate) fn new(target: Option<Duration>, earlier_per_s: u64) -> RecoveryTime {
        let time = RecoveryTime { applied_per_s: AtomicU64::new(earlier_per_s), ..RecoveryTime::default() };
        time.set(target);
        time
    }

    /// Sets the target.
    pub(crate) fn set(&self, target: Option<Duration>) {
        let ms = target.map_or(0, |target| u64::try_from(target.as_millis()).unwrap_or(u64::MAX));
        self.target_ms.store(ms, Ordering::Relaxed);
    }

    /// The target that was set last.
    pub(crate) fn target(&self) -> Option<Duration> {
        match self.target_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Notes an open's measurement: it applied `bytes` of log in `us`, and took `beside_us` for the rest. The new speed
    /// is the mean of the speed known so far and this one.
    pub(crate) fn applied(&self, bytes: u64, us: u64, beside_us: u64) {
        self.beside_us.store(beside_us, Ordering::Relaxed);
        if bytes >= TELLS_BYTES {
            let per_s = u128::from(bytes) * 1_000_000 / u128::from(us.max(1));
            let per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
            let known = match self.applied_per_s() {
                0 => per_s,
                earlier => earlier.midpoint(per_s),
            };
            self.applied_per_s.store(known, Ordering::Relaxed);
        }
    }

    /// Bytes of log applied a second; 0: not measured.
    pub(crate) fn applied_per_s(&self) -> u64 {
        self.applied_per_s.load(Ordering::Relaxed)
    }

    fn expected_per_s(&self) -> u64 {
        match self.applied_per_s() {
            0 => EXPECTED_PER_S,
            measured => measured,
        }
    }

    /// Microseconds that a recovery from `bytes` of log would take.
    pub(crate) fn of_us(&self, bytes: u64) -> u64 {
        let us = u128::from(bytes) * 1_000_000 / u128::from(self.expected_per_s());
        u64::try_from(us).unwrap_or(u64::MAX).saturating_add(self.beside_us.load(Ordering::Relaxed))
    }

    /// Bytes of log that the target allows, at most `capacity`.
    pub(super) fn log_bytes(&self, capacity: u64) -> u64 {
        let target_ms = self.target_ms.load(Ordering::Relaxed);
        if target_ms == 0 {
            return capacity;
        }
        let target_us = target_ms.saturating_mul(1000);
        // If everything else takes most of the target, no log is short enough: half of the target is allowed anyway.
        let applying_us = target_us.saturating_sub(self.beside_us.load(Ordering::Relaxed)).max(target_us / 2);
        let allowed = u128::from(self.expected_per_s()) * u128::from(applying_us) / 1_000_000;
        u64::try_from(allowed).unwrap_or(u64::MAX).max(LEAST_BYTES).min(capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_as_long_as_is_applied_in_time() {
        let time = RecoveryTime::new(None, 0);
        assert_eq!(time.log_bytes(1 << 30), 1 << 30);
        time.set(Some(Duration::from_secs(2)));
        assert_eq!(time.log_bytes(1 << 30), 64 << 20, "as expected");
        time.applied(1 << 20, 1, 0);
        assert_eq!(time.applied_per_s(), 0, "too little to tell");
        time.applied(100 << 20, 1_000_000, 0);
        assert_eq!((time.log_bytes(1 << 30), time.of_us(50 << 20)), (200 << 20, 500_000));
        time.applied(0, 0, 1_000_000);
        assert_eq!(
            (time.log_bytes(1 << 30), time.of_us(50 << 20)),
            (100 << 20, 1_500_000),
            "a second for other things"
        );
        time.applied(200 << 20, 1_000_000, 0);
        assert_eq!(time.log_bytes(1 << 30), 300 << 20, "the mean of two");
        time.applied(0, 0, 5_000_000);
        assert_eq!(time.log_bytes(1 << 30), 150 << 20, "half of the time in any case");
        time.applied(0, 0, 0);
        assert_eq!(time.log_bytes(100 << 20), 100 << 20, "no more than there is");
        time.set(Some(Duration::from_millis(1)));
        assert_eq!((time.log_bytes(1 << 30), time.log_bytes(2 << 20)), (4 << 20, 2 << 20), "no less than this");
    }
}
