//! How writers pay for their log bytes while they are slowed down: with time, each at its place in a queue.
//!
//! A charge adds bytes of log to a queue that all writers share. The queue is paid off at the limit in force. A payer's
//! place is the end of its charge. The payer sleeps until its place is paid *before its next transaction*, and holds
//! nothing meanwhile. So payers are served FIFO, any number of threads together stays within the limit, and a payer
//! that writes little has mostly paid by its next transaction. The debt of a payer that does not return stays in the
//! queue. The queue counts bytes, not time: another limit applies to all of them at once. Only the end of all limits
//! cancels debts.
//!
//! Log bytes of large transactions, beyond those paid on their way, have a queue of their own. It gets a fourth of the
//! limit while others owe anything: so the writer of a row does not wait behind a million rows of another.
//!
//! PACE-1  A thread pays nothing while it holds a resource that others wait for. Before a transaction it pays all.
//!         Inside of one it pays only at a statement's start, only the debt over [`INSIDE_BYTES`], for at most
//!         [`INSIDE_NS`], and not while a thread waits for a row, unless the log is nearly full. It never pays between
//!         a commit and its acknowledgement, and never for rollback, purge or recovery.

use super::envelope::float;

/// The debt, in bytes of log, from which a transaction pays at a statement's start.
pub(crate) const INSIDE_BYTES: u64 = 256 << 10;

/// The longest payment there, in ns.
const INSIDE_NS: u64 = 20_000_000;

/// How far, in seconds, payers may run ahead of their places. Writers come in bursts, as frames and commits do, and a
/// sleep of less than a millisecond takes too long.
const AHEAD_S: f64 = 0.01;

/// The part of the limit for large transactions while others owe anything.
const LARGE_SHARE: f64 = 0.25;

/// A sleeper is woken when the limit has grown by this factor...
const NEWS_FACTOR: f64 = 2.0;

/// ...and wakes after this many seconds in any case, for smaller growth.
const SLEEP_MAX_S: f64 = 0.25;

/// Bytes owed, in the order of payment. Both fields are totals.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    charged: f64,
    paid: f64,
}

impl Queue {
    fn owed(&self) -> f64 {
        self.charged - self.paid
    }

    /// Pays `bytes` and returns the unused rest.
    fn pay(&mut self, bytes: f64) -> f64 {
        let paid = bytes.min(self.owed());
        self.paid += paid;
        bytes - paid
    }

    /// Seconds until `place` is paid, if no new debts arise. This queue gets `share` of `limit` bytes a second while
    /// `other`, which gets the rest, owes anything, and then all of it.
    fn seconds_to(&self, place: f64, other: &Queue, share: f64, limit: f64) -> f64 {
        let bytes = place - self.paid;
        let shared_s = other.owed() / (limit * (1.0 - share));
        let paid_meanwhile = limit * share * shared_s;
        if bytes <= paid_meanwhile { bytes / (limit * share) } else { shared_s + (bytes - paid_meanwhile) / limit }
    }
}

/// The ends of a payer's debts in both queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) struct Places {
    small: f64,
    large: f64,
}

/// The payments of all writers.
#[derive(Clone, Debug)]
pub(crate) struct Payments {
    /// Bytes a second; infinity: no limit.
    limit: f64,
    /// No thread pays any more, whatever the limit.
    has_ended: bool,
    /// The limit that sleepers know of, or a smaller one.
    told: f64,
    /// The time up to which the queues are paid.
    at_ns: u64,
    small: Queue,
    large: Queue,
}

impl Default for Payments {
    fn default() -> Self {
        let (small, large) = (Queue::default(), Queue::default());
        Payments { limit: f64::INFINITY, has_ended: false, told: f64::INFINITY, at_ns: 0, small, large }
    }
}

/// The occasion of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before a transaction.
    Begin,
    /// At the start of a statement of a transaction that holds row locks.
    Statement {
        /// Log bytes of the transaction since its last payment.
        owed: u64,
        /// A thread waits for a row.
        others_wait: bool,
        log_nearly_full: bool,
    },
}

impl Payments {
    /// Limits all writers together to `bytes_per_s` from now on. Infinity ends the limit and cancels all debts. True:
    /// sleepers must look again.
    pub(crate) fn set_limit(&mut self, bytes_per_s: f64, now_ns: u64) -> bool {
        self.go_on(now_ns);
        self.limit = if self.has_ended { f64::INFINITY } else { bytes_per_s.max(1.0) };
        if !self.is_limited() {
            self.small.paid = self.small.charged;
            self.large.paid = self.large.charged;
        }
        let is_news = self.limit > self.told * NEWS_FACTOR || (!self.is_limited() && self.told.is_finite());
        self.told = if is_news { self.limit } else { self.told.min(self.limit) };
        is_news
    }

    /// Ends all payments for good. True: sleepers must look again.
    pub(crate) fn end(&mut self, now_ns: u64) -> bool {
        self.has_ended = true;
        self.set_limit(f64::INFINITY, now_ns)
    }

    /// Whether writers are slowed down.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_finite()
    }

    /// Pays up to now. Time without debts is not saved up.
    fn go_on(&mut self, now_ns: u64) {
        let seconds = float(now_ns.saturating_sub(self.at_ns)) / 1e9;
        self.at_ns = self.at_ns.max(now_ns);
        if self.is_limited() {
            let bytes = self.limit * seconds;
            let of_large = if self.small.owed() > 0.0 { bytes * LARGE_SHARE } else { bytes };
            let rest = self.large.pay(of_large) + bytes - of_large;
            let rest = self.small.pay(rest);
            self.large.pay(rest);
        }
    }

    /// Charges `bytes` of log, which a large transaction logged on its way (`is_large`) or any other. Updates the
    /// payer's places.
    pub(crate) fn charge(&mut self, bytes: u64, is_large: bool, now_ns: u64, places: &mut Places) {
        if !self.is_limited() {
            return;
        }
        self.go_on(now_ns);
        let (queue, place) =
            if is_large { (&mut self.large, &mut places.large) } else { (&mut self.small, &mut places.small) };
        queue.charged += float(bytes);
        *place = queue.charged;
    }

    /// The places of a payer without any: behind all others, except large transactions.
    pub(crate) fn last_places(&self) -> Places {
        Places { small: self.small.charged, large: 0.0 }
    }

    /// When a payer with these places, which has waited since `since_ns`, may go on; `None`: at once. It may be too
    /// early; the payer then asks again.
    pub(crate) fn wait_until_ns(&mut self, places: Places, since_ns: u64, now_ns: u64, when: Place) -> Option<u64> {
        self.go_on(now_ns);
        let most_ns = match when {
            Place::Begin | Place::Statement { log_nearly_full: true, owed: INSIDE_BYTES.., .. } => u64::MAX,
            Place::Statement { owed: INSIDE_BYTES.., others_wait: false, .. } => since_ns + INSIDE_NS,
            Place::Statement { .. } => return None,
        };
        if !self.is_limited() {
            return None;
        }
        let small_s = self.small.seconds_to(places.small, &self.large, 1.0 - LARGE_SHARE, self.limit);
        let large_s = self.large.seconds_to(places.large, &self.small, LARGE_SHARE, self.limit);
        let wait_s = (small_s.max(large_s) - AHEAD_S).clamp(0.0, SLEEP_MAX_S);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let wait_ns = (wait_s * 1e9) as u64;
        let until_ns = now_ns.saturating_add(wait_ns).min(most_ns);
        (until_ns > now_ns).then_some(until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const AHEAD_NS: u64 = 10_000_000;

    fn limited(bytes_per_s: f64, now_ns: u64) -> Payments {
        let mut payments = Payments::default();
        payments.set_limit(bytes_per_s, now_ns);
        payments
    }

    fn charged(payments: &mut Payments, bytes: u64, is_large: bool, now_ns: u64) -> Places {
        let mut places = Places::default();
        payments.charge(bytes, is_large, now_ns, &mut places);
        places
    }

    /// Simulates a sleeper, which learns when it may go on.
    fn begin(payments: &mut Payments, places: Places, now_ns: u64) -> Option<u64> {
        let (mut payments, mut until) = (payments.clone(), None);
        while let Some(later) = payments.wait_until_ns(places, now_ns, until.unwrap_or(now_ns), Place::Begin) {
            assert!(later - until.unwrap_or(now_ns) <= 250_000_000);
            until = Some(later);
        }
        until
    }

    fn micros(ns: u64) -> u64 {
        (ns + 500) / 1000
    }

    #[test]
    fn payers_are_served_in_their_order_and_as_fast_as_the_limit() {
        let mut payments = Payments::default();
        assert_eq!(charged(&mut payments, 1 << 20, false, 5), Places::default(), "no limit");
        payments.set_limit(1e6, 7 * S);
        let places: Vec<Places> = (0..1000).map(|_| charged(&mut payments, 1000, false, 7 * S)).collect();
        assert!(places.is_sorted());
        assert_eq!(payments.last_places(), places[999]);
        assert_eq!(begin(&mut payments, places[9], 7 * S), None, "a burst");
        for at in [100, 500, 999] {
            let due = 7 * S + (at as u64 + 1) * 1_000_000 - AHEAD_NS;
            assert_eq!(begin(&mut payments, places[at], 7 * S).map(micros), Some(micros(due)));
            assert_eq!(begin(&mut payments.clone(), places[at], due + 1000), None);
        }
        // Unused time is lost.
        let place = charged(&mut payments, 100_000, false, 60 * S);
        assert_eq!(begin(&mut payments, place, 60 * S).map(micros), Some(micros(60 * S + 90_000_000)));
    }

    #[test]
    fn another_limit_acts_on_what_is_owed() {
        let mut payments = limited(1e4, 0);
        let place = charged(&mut payments, 1_000_000, false, 0);
        assert_eq!(begin(&mut payments, place, 0).map(micros), Some(micros(100 * S - AHEAD_NS)));
        assert!(!payments.set_limit(9e3, S) && !payments.set_limit(1.7e4, S), "a little more is no news");
        assert!(payments.set_limit(1e6, S), "a hundred times as much is");
        let until = begin(&mut payments, place, S).expect("a while yet");
        assert!((S + 900_000_000..2 * S).contains(&until), "{until}");
        assert!(payments.set_limit(f64::INFINITY, S));
        assert_eq!(begin(&mut payments, place, S), None);
        assert!(!payments.set_limit(f64::INFINITY, S));
        payments.set_limit(1e4, 2 * S);
        assert_eq!(begin(&mut payments, place, 2 * S), None, "the end of the limit cancels debts");
        let place = charged(&mut payments, 1_000_000, false, 2 * S);
        assert!(payments.end(2 * S) && !payments.set_limit(1e4, 2 * S), "a limit set after the end has no effect");
        assert_eq!(begin(&mut payments, place, 2 * S), None);
    }

    #[test]
    fn small_writer_does_not_wait_behind_a_large_transaction() {
        let mut payments = limited(1e6, 0);
        let large = charged(&mut payments, 64_000_000, true, 0);
        let small = charged(&mut payments, 75_000, false, 0);
        let until = begin(&mut payments, small, 0).expect("a while");
        assert!((89_999_000..=90_000_000).contains(&until), "three fourths are for the small one: {until}");
        assert_eq!(begin(&mut payments, small, 91_000_000), None);
        assert_eq!(payments.last_places(), small, "a new payer does not wait for it");
        let until = begin(&mut payments, large, 100_000_000).expect("a minute");
        assert!((63 * S..65 * S).contains(&until), "the large one gets all when no other owes: {until}");
        // A payer that waits while the large one's last bytes are paid gets the whole limit after these.
        let mut payments = limited(1e6, 0);
        charged(&mut payments, 10_000, true, 0);
        let small = charged(&mut payments, 210_000, false, 0);
        assert_eq!(begin(&mut payments, small, 0).map(micros), Some(micros(220_000_000 - AHEAD_NS)));
    }

    #[test]
    fn inside_of_a_transaction_little_is_paid() {
        let mut payments = limited(1e6, 0);
        let place = charged(&mut payments, 1 << 20, true, 0);
        let mut inside = |owed, others_wait, log_nearly_full, now_ns| {
            payments.wait_until_ns(place, 0, now_ns, Place::Statement { owed, others_wait, log_nearly_full })
        };
        assert_eq!(inside(INSIDE_BYTES - 1, false, true, 0), None);
        assert_eq!(inside(INSIDE_BYTES, true, false, 0), None);
        assert_eq!(inside(INSIDE_BYTES, false, false, 0), Some(INSIDE_NS));
        assert_eq!(inside(INSIDE_BYTES, false, false, INSIDE_NS), None);
        let until = inside(INSIDE_BYTES, true, true, INSIDE_NS);
        assert!(until > Some(10 * INSIDE_NS), "all of it, for the log is nearly full: {until:?}");
        assert!(inside(INSIDE_BYTES, true, true, S) > Some(S) && inside(INSIDE_BYTES, true, true, 2 * S).is_none());
    }
}
