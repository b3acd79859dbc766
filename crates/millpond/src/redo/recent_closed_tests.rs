//! Unit tests of `recent_closed`, apart from its file because a model includes that file unchanged.

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

/// A window of 1,024 bytes from 1,000 on: a group at 2,032 has no room until the window begins at 1,040.
fn window(how: LogRecentClosed) -> Arc<RecentClosed> {
    Arc::new(RecentClosed::new(how, 1024, Lsn(1000)))
}

/// Waits for room for a group that begins at 2,032. Returns the end of the wait in microseconds, the waits counted, and
/// the naps reported.
fn enter(window: &RecentClosed) -> (u64, u64, Vec<u32>) {
    let (waits, naps) = (Waits::new(Duration::from_secs(1)), RefCell::new(Vec::new()));
    window.enter(Lsn(2032), &waits, |us| {
        naps.borrow_mut().push(us);
        assert!(naps.borrow().len() < 1_000, "no thread follows the links");
    });
    let counted = waits.summary()[WaitClass::RecentClosed as usize].count;
    (clock::now_ns() / US, counted, naps.into_inner())
}

#[test]
fn only_a_begin_beyond_the_window_waits_for_the_links() {
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
        // A link that is not the oldest makes no room.
        window.leave(Lsn(1040), Lsn(1100));
        sleep_ns(820 * US);
        window.leave(Lsn(1000), Lsn(1040));
        // CLOSED-1: the waiter follows the links itself, at 1,020 microseconds, and looks after the nap.
        assert_eq!(waiter.join().expect("no panic"), (1_040, 1, vec![20; 52]));
        assert_eq!(window.wait_loops.load(Ordering::Relaxed), 52);
        assert_eq!((window.links.tail(), window.tail()), (Lsn(1100), Lsn(1100)));
        window.wait_closed(Lsn(1100), || false);
        assert_eq!(clock::now_ns(), 1_040 * US, "no wait for closed groups");
        // The thread that would have left the link has failed. The fourth look sees that.
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
        // Whether a look rings the closer's bell: then the wait ends at once.
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
        // With a closer, no other thread follows the links.
        window.leave(Lsn(1000), Lsn(1040));
        assert!(is_rung() && window.tail() == Lsn(1000), "followed by a waiter");
    });
}

/// A closer without links to follow, and two waits. A link is left just before each wait: at 110 and at 5,310
/// microseconds. Returns for each wait its end, in microseconds, and the number of looks.
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
        // The closer is gone: a thread that looks follows the links.
        window.leave(Lsn(2032), Lsn(2048));
        assert_eq!(window.tail(), Lsn(2048));
        [first, second]
    })
    .0
}

#[test]
fn closer_comes_at_the_end_of_its_nap_or_at_once_when_woken() {
    assert_eq!(behind_a_closer(LogRecentClosed::Poll), [(1_010, 45), (6_010, 35)]);
    for how in [LogRecentClosed::Wake, LogRecentClosed::WakeIfUnset] {
        assert_eq!(behind_a_closer(how), [(130, 1), (5_330, 1)], "{how:?}");
    }
}
