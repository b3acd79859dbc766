//! The window within which pages may be put into flush lists out of order: InnoDB's `recent_closed` of 8.0.
//!
//! Who has his group in the log waits until it begins within the window, marks its pages dirty, and leaves a link; a
//! thread, the closer, follows the links. So a flush list is ordered but for the window's length, and a checkpoint may
//! not pass the window's tail. Who waits keeps his pages latched, sleeps 20 microseconds at a time, and looks again;
//! what he waits for is the closer, which sleeps too, and by default is woken by nobody.
//!
//! CLOSED-1  The oldest group without a link always has room: its owner waits for nobody but the closer, and, where
//!           there is none (while a database is opened or closed), follows the links himself.
//! CLOSED-2  From its place in the log to its link a group is counted (COUNT-1): its pages hold the checkpoint back
//!           before they are marked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::link_buffer::LinkBuffer;
use crate::base::bell::Bell;
use crate::base::choice::Choice;
use crate::base::clock;
use crate::base::ids::Lsn;
use crate::base::sync;
use crate::base::waits::{WaitClass, Waits};

/// Who wakes the closer of the window `recent_closed`, and whether there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogRecentClosed {
    /// Pages are marked dirty while their group gets its place in the log: there is nothing to wait for.
    #[default]
    None,
    /// Nobody wakes it: MySQL 8.0's.
    Poll,
    /// Who waits for it, each time that he looks.
    Wake,
    /// Who waits for it, unless it was woken already.
    WakeIfUnset,
}

/// What a window may have.
const WAYS_TO_WAKE: &[LogRecentClosed] = &[LogRecentClosed::Poll, LogRecentClosed::Wake, LogRecentClosed::WakeIfUnset];

/// How long one who waits sleeps between two looks.
const NAP_NS: u64 = 20_000;

/// How long the closer sleeps when there is no link to follow.
const CLOSER_NAP_NS: u64 = 1_000_000;

/// The window.
pub(crate) struct RecentClosed {
    how: Choice<LogRecentClosed>,
    bytes: u64,
    links: LinkBuffer,
    bell: Bell,
    is_woken: AtomicBool,
    has_closer: AtomicBool,
    /// Looks of those who had to wait, after the first.
    pub(crate) wait_loops: AtomicU64,
}

impl RecentClosed {
    pub(super) fn new(how: LogRecentClosed, bytes: u64, end: Lsn) -> RecentClosed {
        RecentClosed {
            how: Choice::new(WAYS_TO_WAKE, how),
            bytes,
            links: LinkBuffer::new(bytes, end),
            bell: Bell::default(),
            is_woken: AtomicBool::new(false),
            has_closer: AtomicBool::new(false),
            wait_loops: AtomicU64::new(0),
        }
    }

    /// Has others wake the closer from now on, or nobody. Who waits looks at it each time that he looks for room; and
    /// the closer's own nap ends in any case.
    pub(super) fn set_how(&self, how: LogRecentClosed) {
        self.how.set(how);
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> u64 {
        LinkBuffer::memory_for(self.bytes)
    }

    /// Up to here all groups have their pages marked, as far as the closer has looked.
    pub(super) fn tail(&self) -> Lsn {
        if self.has_closer.load(Ordering::Relaxed) { self.links.tail() } else { self.links.follow() }
    }

    /// Waits until a group that begins at `start` is within the window, under whatever latches the caller has. `waited`
    /// is told of each nap, how many microseconds it took: who waits for one of the latches waits for the window, too.
    pub(super) fn enter(&self, start: Lsn, waits: &Waits, waited: impl Fn(u32)) {
        if self.links.has_room(start) {
            return;
        }
        waits.timed(WaitClass::RecentClosed, || {
            while !self.links.has_room(start) {
                self.wake();
                self.wait_loops.fetch_add(1, Ordering::Relaxed);
                let began_ns = clock::now_ns();
                sync::nap_latched(NAP_NS);
                waited(u32::try_from((clock::now_ns() - began_ns) / 1_000).unwrap_or(u32::MAX));
            }
        });
    }

    fn wake(&self) {
        if !self.has_closer.load(Ordering::Relaxed) {
            // CLOSED-1
            self.links.follow();
            return;
        }
        let is_wanted = match self.how.get() {
            LogRecentClosed::None | LogRecentClosed::Poll => false,
            LogRecentClosed::Wake => true,
            // Relaxed: one who misses it looks again in 20 microseconds.
            LogRecentClosed::WakeIfUnset => !self.is_woken.swap(true, Ordering::Relaxed),
        };
        if is_wanted {
            self.bell.ring();
        }
    }

    /// The pages of the group are marked.
    pub(super) fn leave(&self, start: Lsn, end: Lsn) {
        self.links.add(start, end);
    }

    /// Waits until all groups before `lsn` have their pages marked. Those who are at it wait for the closer at most.
    pub(super) fn wait_closed(&self, lsn: Lsn) {
        while self.links.follow() < lsn {
            sync::nap(NAP_NS);
        }
    }

    /// The closer's work, until there is no need for it any more.
    pub(crate) fn close_groups(&self, is_ending: impl Fn() -> bool) {
        /// When it is gone, however that came, those who wait follow the links themselves.
        struct Closer<'w>(&'w AtomicBool);
        impl Drop for Closer<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Relaxed);
            }
        }
        self.has_closer.store(true, Ordering::Relaxed);
        let _closer = Closer(&self.has_closer);
        while !is_ending() {
            let before = self.links.tail();
            self.is_woken.store(false, Ordering::Relaxed);
            if self.links.follow() == before {
                self.bell.wait_until(clock::now_ns() + CLOSER_NAP_NS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
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
            window.wait_closed(Lsn(1100));
            assert_eq!(clock::now_ns(), 1_040 * US, "what is closed is not waited for");
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
}
