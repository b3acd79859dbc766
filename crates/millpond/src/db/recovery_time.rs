//! How much log may be to be recovered: what is applied in the time that somebody allows for it.
//!
//! How fast a log is applied was measured when one was, at this open or an earlier one; the superblock keeps it. What
//! an open takes beside that was measured, too. The controller goes by the smaller of this and the log's capacity
//! ([`pacing`](super::pacing)); the log's wall stays where it is, and what is beyond is slack.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of log a second that are expected to be applied before any was: a fourth of what two shared processors do.
const EXPECTED_PER_S: u64 = 32 << 20;

/// From so many bytes of log on, a recovery tells how fast it goes.
const TELLS_BYTES: u64 = 4 << 20;

/// The log may be so long in any case: nobody is slowed down to nothing.
const LEAST_BYTES: u64 = 4 << 20;

/// The target, and what is known.
#[derive(Debug, Default)]
pub(crate) struct RecoveryTime {
    /// 0: none.
    target_ms: AtomicU64,
    /// Bytes a second; 0: not measured.
    applied_per_s: AtomicU64,
    /// What an open takes beside applying the log.
    beside_us: AtomicU64,
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

    /// What was set last.
    pub(super) fn target(&self) -> Option<Duration> {
        match self.target_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// An open has looked for so much log and applied it in so long, and taken so long for other things. What an
    /// earlier one has measured counts as much.
    pub(super) fn applied(&self, bytes: u64, us: u64, beside_us: u64) {
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
        u64::try_from(us).unwrap_or(u64::MAX).saturating_add(self.beside_us.load(Ordering::Relaxed))
    }

    /// Bytes of log that the target allows, of a log of `capacity`.
    pub(super) fn log_bytes(&self, capacity: u64) -> u64 {
        let target_ms = self.target_ms.load(Ordering::Relaxed);
        if target_ms == 0 {
            return capacity;
        }
        let target_us = target_ms.saturating_mul(1000);
        // Where other things take longer than that, no log is short enough.
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
