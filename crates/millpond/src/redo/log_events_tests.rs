//! Unit tests of `log_events`, apart from its file because a model includes that file unchanged.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::log_events::*;
use crate::base::clock;
use crate::base::ids::Lsn;
use crate::simulation::{run, sleep_ns, spawn};

/// Log bytes after which the events repeat.
const ROUND: u64 = EVENTS * BYTES;

#[test]
fn byte_before_an_lsn_decides_its_event_and_events_come_round() {
    let events = LogEvents::new();
    let number = |lsn| events.0.iter().position(|event| std::ptr::eq(event, events.of(Lsn(lsn))));
    assert_eq!(events.0.len(), 2048);
    for (lsn, at) in [(0, 0), (1, 0), (512, 0), (513, 1), (1024, 1), (1025, 2), (ROUND, 2047)] {
        assert_eq!((number(lsn), number(ROUND + lsn.max(1))), (Some(at), Some(at)), "{lsn}");
    }
    assert_eq!((number(ROUND + 1), number(7 * ROUND + 513)), (Some(0), Some(1)));
}

/// Threads wait for `lsns`, and have napped for less than a millisecond when `set` covers the log from `from` to `to`.
/// If `is_over`, their waits are over by then. Returns how often each thread had looked a moment later.
fn looks(lsns: &[u64], (from, to): (u64, u64), is_over: bool) -> Vec<u64> {
    run(1, || {
        let events = Arc::new(LogEvents::new());
        let over = Arc::new(AtomicBool::new(false));
        let waiters: Vec<_> = lsns
            .iter()
            .map(|lsn| {
                let (events, over, looks) = (Arc::clone(&events), Arc::clone(&over), Arc::new(AtomicU64::new(0)));
                let (lsn, counted) = (Lsn(*lsn), Arc::clone(&looks));
                let wait = move || {
                    events.wait(lsn, || {
                        counted.fetch_add(1, Ordering::Relaxed);
                        over.load(Ordering::Relaxed)
                    })
                };
                (spawn("waiter", wait).expect("a thread"), looks)
            })
            .collect();
        sleep_ns(NAP_NS / 2);
        over.store(is_over, Ordering::Relaxed);
        events.set(Lsn(from), Lsn(to));
        sleep_ns(NAP_NS / 4);
        let looks = waiters.iter().map(|(_, looks)| looks.load(Ordering::Relaxed)).collect();
        over.store(true, Ordering::Relaxed);
        events.set_all();
        waiters.into_iter().for_each(|(thread, _)| _ = thread.join().expect("no panic"));
        looks
    })
    .0
}

#[test]
fn only_waiters_in_the_block_of_a_set_event_look_again() {
    // One look to begin with, and one more when woken.
    assert_eq!(looks(&[1024, 1025, 1536, 1537], (1024, 1536), true), [1, 2, 2, 1]);
    assert_eq!(looks(&[1024, 1025, 1536, 1537], (1024, 1537), true), [1, 2, 2, 2]);
    // The rest of a block that was partly written before; and a waiter that shares the event, one round later.
    assert_eq!(looks(&[512, 513, 1024, ROUND + 1000, 1025], (700, 701), false), [1, 2, 2, 2, 1]);
    assert_eq!(looks(&[1, 1024, 1025, ROUND], (ROUND - 1, ROUND + 1024), true), [2, 2, 1, 2], "past the end");
}

#[test]
fn no_waiter_is_woken_twice_however_much_is_set() {
    assert_eq!(looks(&[1, 513, 300_000, ROUND], (0, 5 * ROUND), false), [2; 4]);
    assert_eq!(looks(&[1, 513, 300_000, ROUND], (300_000, 3 * ROUND), false), [2; 4]);
    assert_eq!(looks(&[1, 513, 300_000, ROUND], (0, ROUND - BYTES), false), [2, 2, 2, 1], "all but one block");
}

/// Quarters of a millisecond between the looks of one waiter, until the time is over.
fn naps(until_ms: u64, woken_at_ms: &'static [u64]) -> Vec<u64> {
    run(2, || {
        let events = Arc::new(LogEvents::new());
        let waker = {
            let events = Arc::clone(&events);
            let wake = move || {
                for ms in woken_at_ms {
                    sleep_ns(ms * NAP_NS - NAP_NS / 4 - clock::now_ns());
                    events.set(Lsn(1), Lsn(2));
                }
            };
            spawn("waker", wake).expect("a thread")
        };
        let looks = RefCell::new(Vec::new());
        let naps = events.wait(Lsn(1), || {
            looks.borrow_mut().push(clock::now_ns() * 4 / NAP_NS);
            clock::now_ns() >= until_ms * NAP_NS
        });
        waker.join().expect("no panic");
        let looks = looks.into_inner();
        assert_eq!(naps, looks.len() as u64 - 1, "the number of sleeps");
        looks.windows(2).map(|two| two[1] - two[0]).collect()
    })
    .0
}

#[test]
fn only_naps_that_the_clock_ends_double_from_1_to_100_ms() {
    assert_eq!(naps(327, &[]), [1, 2, 4, 8, 16, 32, 64, 100, 100].map(|ms| ms * 4));
    // Woken 0.25 ms before milliseconds two, three and six are over, from naps of 2, 2 and 4 ms.
    assert_eq!(naps(9, &[2, 3, 6]), [4, 3, 4, 8, 4, 16]);
}
