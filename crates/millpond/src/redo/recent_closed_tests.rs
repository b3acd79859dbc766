//! Units of `recent_closed`: not in its file, which a model takes as it is.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::recent_closed::*;
use crate::base::clock;
use crate::base::ids::Lsn;
use crate::base::waits::{WaitClass, Waits};
use crate::simulation::{run, sleep_ns, spawn};

const US: u64 = 1_000;

/// A window of 1,024 bytes, from 1,000 on: who begins at 2,032 has no room, and has some when it begins at 1,040.
fn window(how: LogRecentClosed) -> Arc<RecentClosed> {
    Arc::new(RecentClosed::new(how, 1024, Lsn(1000)))
}

/// Waits for room for a group that begins at 2,032: when that ended, in microseconds; waits, as they are counted,
/// and naps, as one is told.
fn enter(window: &RecentClosed) -> (u64, u64, Vec<u32>) {
    let (waits, naps) = (Waits::new(Duration::from_secs(1)), RefCell::new(Vec::new()));
    window.enter(Lsn(2032), &waits, |us| {
        naps.borrow_mut().push(us);
        assert!(naps.borrow().len() < 1_000, "nobody follows the links");
    });
    let counted = waits.summary()[WaitClass::RecentClosed as usize].count;
    (clock::now_ns() / US, counted, naps.into_inner())
}

#[test]
fn who_begins_within_the_window_does_not_wait_and_who_begins_beyond_it_waits_until_links_are_followed() {
    run(1, || {
        let window = window(LogRecentClosed::Poll);
        let waits = Waits::new(Duration::from_secs(1));
        for at in [1000, 1500, 2024, 2031] {
            window.enter(Lsn(at), &waits, |_| unreachable!("there is room at {at}"));
        }
        assert_eq!((clock::now_ns(), window.wait_loops.load(Ordering::Relaxed)), (0, 0));
        let waiter = {
            let window = Arc::clone(&window);
            spawn("waiter", move || enter(&window)).expect("a thread")
        };
        sleep_ns(190 * US);
        // One that is not the oldest makes no room.
        window.leave(Lsn(1040), Lsn(1100));
        sleep_ns(820 * US);
        window.leave(Lsn(1000), Lsn(1040));
        // CLOSED-1: he follows them himself, at 1,020 microseconds, and looks after the nap.
        assert_eq!(waiter.join().expect("no panic"), (1_040, 1, vec![20; 52]));
        assert_eq!(window.wait_loops.load(Ordering::Relaxed), 52);
        assert_eq!((window.links.tail(), window.tail()), (Lsn(1100), Lsn(1100)));
        window.wait_closed(Lsn(1100), || false);
        assert_eq!(clock::now_ns(), 1_040 * US, "what is closed is not waited for");
        // Who would have left the link has failed, which is seen at the fourth look.
        let looks = Cell::new(0);
        window.wait_closed(Lsn(1200), || looks.replace(looks.get() + 1) == 3);
        assert_eq!((clock::now_ns(), looks.get()), (1_100 * US, 4));
    });
}

#[test]
fn the_bell_is_rung_by_each_look_or_by_the_first_or_by_none() {
    run(2, || {
        let window = window(LogRecentClosed::Poll);
        window.has_closer.store(true, Ordering::Relaxed);
        // Whether the closer's bell rings for a look: he would go on at once.
        let is_rung = || {
            let before = clock::now_ns();
            window.wake();
            window.bell.wait_until(before + US);
            clock::now_ns() == before
        };
        assert_eq!([is_rung(), is_rung()], [false, false]);
        window.set_how(LogRecentClosed::WakeIfUnset);
        assert_eq!([is_rung(), is_rung(), is_rung()], [true, false, false]);
        window.set_how(LogRecentClosed::Wake);
        assert_eq!([is_rung(), is_rung(), is_rung()], [true, true, true]);
        // Where there is a closer, nobody does its work.
        window.leave(Lsn(1000), Lsn(1040));
        assert!(is_rung() && window.tail() == Lsn(1000), "followed by one who waits");
    });
}

/// A closer that has nothing to follow before one who waits at 110 microseconds comes, whose link is left just
/// before: when he had room, and his looks. Then another one, at 5,310, after a second link.
fn behind_a_closer(how: LogRecentClosed) -> [(u64, usize); 2] {
    run(3, || {
        let window = window(how);
        let is_ending = Arc::new(AtomicBool::new(false));
        let closer = {
            let (window, is_ending) = (Arc::clone(&window), Arc::clone(&is_ending));
            spawn("closer", move || window.close_groups(|| is_ending.load(Ordering::Relaxed))).expect("a thread")
        };
        sleep_ns(110 * US);
        window.leave(Lsn(1000), Lsn(1040));
        assert_eq!(window.tail(), Lsn(1000), "the closer's to follow");
        let (first, _, looks) = enter(&window);
        let first = (first, looks.len());
        sleep_ns(5_310 * US - clock::now_ns());
        let waits = Waits::new(Duration::from_secs(1));
        let before = window.wait_loops.load(Ordering::Relaxed);
        window.leave(Lsn(1040), Lsn(2032));
        window.enter(Lsn(3000), &waits, |_| ());
        let loops = window.wait_loops.load(Ordering::Relaxed) - before;
        let second = (clock::now_ns() / US, usize::try_from(loops).expect("few"));
        is_ending.store(true, Ordering::Relaxed);
        closer.join().expect("no panic");
        // It is gone: links are followed by who looks.
        window.leave(Lsn(2032), Lsn(2048));
        assert_eq!(window.tail(), Lsn(2048));
        [first, second]
    })
    .0
}

#[test]
fn a_closer_that_nobody_wakes_comes_when_its_nap_is_over_and_one_that_is_woken_at_once() {
    assert_eq!(behind_a_closer(LogRecentClosed::Poll), [(1_010, 45), (6_010, 35)]);
    for how in [LogRecentClosed::Wake, LogRecentClosed::WakeIfUnset] {
        assert_eq!(behind_a_closer(how), [(130, 1), (5_330, 1)], "{how:?}");
    }
}
