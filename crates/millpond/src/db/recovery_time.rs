//! How much log may be to be recovered: what is applied in the time that somebody allows for it.
//!
//! How fast a log is applied was measured when one was, at this open or an earlier one; the superblock keeps it. The
//! controller goes by the smaller of this and the log's capacity ([`pacing`](super::pacing)); the log's wall stays
//! where it is, and what is beyond is slack.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of log a second that are expected to be applied before any was: a fourth of what two shared processors do.
const EXPECTED_PER_S: u64 = 32 << 20;

/// From so many bytes of log on, a recovery tells how fast it goes.
const TELLS_BYTES: u64 = 4 << 20;

/// The log may be so long in any case, and this part of its capacity, as a divisor: nobody is slowed down to nothing.
const LEAST_BYTES: u64 = 4 << 20;
const LEAST_PART: u64 = 16;

/// The target, and what is known.
#[derive(Debug, Default)]
pub(crate) struct RecoveryTime {
    /// 0: none.
    target_ms: AtomicU64,
    /// Bytes a second; 0: not measured.
    applied_per_s: AtomicU64,
}

impl RecoveryTime {
    /// What an earlier open has measured; 0: nothing.
    pub(super) fn new(target: Option<Duration>, earlier_per_s: u64) -> RecoveryTime {
        let time = RecoveryTime { applied_per_s: AtomicU64::new(earlier_per_s), ..RecoveryTime::default() };
        time.set(target);
        time
    }

    pub(super) fn set(&self, target: Option<Duration>) {
        let ms = target.map_or(0, |target| u64::try_from(target.as_millis()).unwrap_or(u64::MAX));
        self.target_ms.store(ms, Ordering::Relaxed);
    }

    /// An open has applied so much log in so long.
    pub(super) fn applied(&self, bytes: u64, us: u64) {
        if bytes >= TELLS_BYTES {
            let per_s = u128::from(bytes) * 1_000_000 / u128::from(us.max(1));
            self.applied_per_s.store(u64::try_from(per_s).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Bytes a second; 0: not measured.
    pub(super) fn applied_per_s(&self) -> u64 {
        self.applied_per_s.load(Ordering::Relaxed)
    }

    fn expected_per_s(&self) -> u64 {
        match self.applied_per_s() {
            0 => EXPECTED_PER_S,
            measured => measured,
        }
    }

    /// How many microseconds it would take to recover from `bytes` of log.
    pub(super) fn of_us(&self, bytes: u64) -> u64 {
        let us = u128::from(bytes) * 1_000_000 / u128::from(self.expected_per_s());
        u64::try_from(us).unwrap_or(u64::MAX)
    }

    /// Bytes of log that the target allows, of a log of `capacity`.
    pub(super) fn log_bytes(&self, capacity: u64) -> u64 {
        let target_ms = self.target_ms.load(Ordering::Relaxed);
        if target_ms == 0 {
            return capacity;
        }
        let allowed = u128::from(self.expected_per_s()) * u128::from(target_ms) / 1000;
        let least = LEAST_BYTES.max(capacity / LEAST_PART);
        u64::try_from(allowed).unwrap_or(u64::MAX).max(least).min(capacity)
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
        time.applied(1 << 20, 1);
        assert_eq!(time.applied_per_s(), 0, "too little to tell");
        time.applied(100 << 20, 1_000_000);
        assert_eq!((time.log_bytes(1 << 30), time.of_us(50 << 20)), (200 << 20, 500_000));
        assert_eq!(time.log_bytes(100 << 20), 100 << 20, "no more than there is");
        time.set(Some(Duration::from_millis(1)));
        assert_eq!((time.log_bytes(1 << 30), time.log_bytes(2 << 20)), (64 << 20, 2 << 20), "no less than this");
    }
}
