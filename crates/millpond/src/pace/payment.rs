//! How writers pay for what they log while they are slowed down: with time, each in its place.
//!
//! A charge moves one clock, which all share, by its cost: bytes of log over the limit in force. The place at which it
//! comes to stand is the payer's, who sleeps until then *before his next transaction*, holding nothing. So payers are
//! served first come, first served, any number of threads is slowed down to the limit together, and who writes little
//! has mostly paid by the time he comes again. The debt of one who does not come again stays on the clock.
//!
//! PACE-1  Nobody pays while he holds what others wait for: before a transaction all of it; inside of one only at a
//!         statement's start, what is over [`INSIDE_BYTES`], for [`INSIDE_NS`] at most, and not while others wait for
//!         its rows, unless the log is nearly full. Never between a commit and its acknowledgement, and never for
//!         rolling back, purge, recovery.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a transaction may owe before it pays at a statement's start, in bytes of log.
pub(crate) const INSIDE_BYTES: u64 = 256 << 10;

/// What it pays there at most.
const INSIDE_NS: u64 = 20_000_000;

/// So far ahead of their places payers may be: writers come in bursts, as frames and commits do, and a sleep that is
/// shorter than a millisecond takes longer than it should.
const AHEAD_NS: u64 = 10_000_000;

/// The clock of payments.
#[derive(Debug, Default)]
pub(crate) struct PaymentClock {
    /// Bytes a second; 0: nobody pays.
    limit: AtomicU64,
    paid_until_ns: AtomicU64,
}

/// When a debt is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before a transaction.
    Begin,
    /// At the start of a statement of a transaction that has rows locked.
    Statement {
        /// What the transaction has logged since it paid last, in bytes.
        owed: u64,
        /// Somebody waits for its rows, and the log has room.
        others_wait: bool,
    },
}

impl PaymentClock {
    /// Slows writers down to so many bytes of log a second together; infinity: no longer.
    pub(crate) fn set_limit(&self, bytes_per_s: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "finite, and at least 1")]
        let limit = if bytes_per_s.is_finite() { bytes_per_s.max(1.0) as u64 } else { 0 };
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether writers are slowed down.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// Charges `bytes` of log at `now_ns`. Returns the payer's place. Nobody is limited: 0.
    pub(crate) fn charge(&self, bytes: u64, now_ns: impl FnOnce() -> u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return 0;
        }
        let cost_ns = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(limit)).unwrap_or(u64::MAX);
        let now_ns = now_ns();
        let moved = |at: u64| Some(at.max(now_ns).saturating_add(cost_ns));
        let before = self.paid_until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved).unwrap_or(0);
        before.max(now_ns).saturating_add(cost_ns)
    }

    /// The place of one who has none: behind all who have.
    pub(crate) fn last_place(&self) -> u64 {
        self.paid_until_ns.load(Ordering::Relaxed)
    }

    /// When who has `place` may go on, if that is not at once.
    pub(crate) fn wait_until_ns(&self, place_ns: u64, now_ns: u64, when: Place) -> Option<u64> {
        if !self.is_limited() {
            return None;
        }
        let until_ns = match when {
            Place::Begin => place_ns,
            Place::Statement { owed, others_wait } if owed < INSIDE_BYTES || others_wait => return None,
            Place::Statement { .. } => place_ns.min(now_ns + AHEAD_NS + INSIDE_NS),
        };
        let until_ns = until_ns.saturating_sub(AHEAD_NS);
        (until_ns > now_ns).then_some(until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payers_are_served_in_their_order_and_as_fast_as_the_limit() {
        let clock = PaymentClock::default();
        assert_eq!((clock.charge(1 << 20, || 5), clock.is_limited()), (0, false));
        clock.set_limit(1e6);
        let places: Vec<u64> = (0..1000).map(|_| clock.charge(1000, || 7_000_000)).collect();
        assert!(places.is_sorted() && places[999] == 7_000_000 + 1_000_000_000, "a second for a megabyte");
        assert_eq!(clock.last_place(), places[999]);
        assert_eq!(clock.wait_until_ns(places[500], 7_000_000, Place::Begin), Some(places[500] - AHEAD_NS));
        assert_eq!(clock.wait_until_ns(places[9], 7_000_000, Place::Begin), None, "a burst");
        // Time that nobody used is gone.
        assert_eq!(clock.charge(1000, || 9_000_000_000), 9_001_000_000);
        clock.set_limit(f64::INFINITY);
        assert_eq!(clock.wait_until_ns(u64::MAX, 0, Place::Begin), None);
    }

    #[test]
    fn inside_of_a_transaction_little_is_paid() {
        let clock = PaymentClock::default();
        clock.set_limit(1e6);
        let place = clock.charge(1 << 20, || 0);
        let inside = |owed, others_wait| clock.wait_until_ns(place, 0, Place::Statement { owed, others_wait });
        assert_eq!(inside(INSIDE_BYTES - 1, false), None);
        assert_eq!(inside(INSIDE_BYTES, true), None);
        assert_eq!(inside(INSIDE_BYTES, false), Some(INSIDE_NS));
    }
}
