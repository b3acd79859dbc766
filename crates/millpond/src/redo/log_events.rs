//! Wait places for the log: an array of events, one for each block of 512 bytes in turn, as in MySQL 8.0.

use crate::base::clock;
use crate::base::ids::Lsn;
use crate::base::sync::{Condvar, Mutex, Rank};

/// Events, and bytes of log that share one event.
pub(super) const EVENTS: u64 = 2048;
pub(super) const BYTES: u64 = 512;

/// The first sleep in ns. Each sleep that the clock ends doubles the next, up to a hundred times this.
pub(super) const NAP_NS: u64 = 1_000_000;
pub(super) const NAP_MAX_NS: u64 = 100 * NAP_NS;

pub(super) struct Event {
    /// Guards only the check before a sleep: a thread that sets the event does so before that check, or after the sleep
    /// began.
    looking: Mutex<()>,
    set: Condvar,
}

/// The events.
pub(super) struct LogEvents(pub(super) Box<[Event]>);

impl LogEvents {
    pub(super) fn new() -> LogEvents {
        let event = |_| Event { looking: Mutex::new(Rank::LogEvents, ()), set: Condvar::new() };
        LogEvents((0..EVENTS).map(event).collect())
    }

    /// The event of the block with the byte before `lsn`.
    pub(super) fn of(&self, lsn: Lsn) -> &Event {
        let number = lsn.0.saturating_sub(1) / BYTES % EVENTS;
        &self.0[usize::try_from(number).expect("EVENTS are few")]
    }

    /// Wakes all threads that wait for an LSN between the two.
    pub(super) fn set(&self, from: Lsn, to: Lsn) {
        let blocks = from.0 / BYTES..=to.0.saturating_sub(1) / BYTES;
        for block in blocks.take(usize::try_from(EVENTS).expect("few")) {
            let event = self.of(Lsn(block * BYTES + 1));
            drop(event.looking.lock());
            event.set.notify_all();
        }
    }

    /// Wakes all waiters.
    pub(super) fn set_all(&self) {
        self.set(Lsn(0), Lsn(EVENTS * BYTES));
    }

    /// Sleeps until `is_over`: woken at the event of `lsn`, or by the clock. Returns the number of sleeps.
    pub(super) fn wait(&self, lsn: Lsn, is_over: impl Fn() -> bool) -> u64 {
        let event = self.of(lsn);
        let (mut nap_ns, mut naps) = (NAP_NS, 0);
        let mut looking = event.looking.lock();
        while !is_over() {
            let (guard, timed_out) = event.set.wait_until(looking, clock::now_ns() + nap_ns, "the log, or the clock");
            looking = guard;
            naps += 1;
            if timed_out {
                nap_ns = (nap_ns * 2).min(NAP_MAX_NS);
            }
        }
        naps
    }
}
