//! The window within which pages may enter flush lists out of order: InnoDB's `recent_closed` of 8.0.
//!
//! A thread whose group is in the log waits until the group begins within the window, marks its pages dirty, and leaves
//! a link. The closer, a thread, follows the links. So a flush list is ordered except for the window's length, and a
//! checkpoint may not pass the window's tail. A waiter keeps its pages latched, sleeps 20 microseconds at a time, and
//! looks again. It waits for the closer, which sleeps too, and which by default no thread wakes.
//!
//! CLOSED-1  The oldest group without a link always has room: its thread waits only for the closer. Without a closer
//!           (while a database is opened or closed) it follows the links itself.
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

/// The waking of the closer of the window `recent_closed`, and whether there is a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LogRecentClosed {
    /// Pages are marked dirty while their group gets its place in the log: no thread has to wait.
    #[default]
    None,
    /// No thread wakes the closer, as in MySQL 8.0.
    Poll,
    /// A waiter wakes the closer each time that it looks.
    Wake,
    /// A waiter wakes the closer unless it was woken already.
    WakeIfUnset,
}

/// The choices for an existing window.
const WAYS_TO_WAKE: &[LogRecentClosed] = &[LogRecentClosed::Poll, LogRecentClosed::Wake, LogRecentClosed::WakeIfUnset];

/// A waiter's sleep between two looks.
const NAP_NS: u64 = 20_000;

/// The closer's sleep when there is no link to follow.
const CLOSER_NAP_NS: u64 = 1_000_000;

/// The window.
pub(crate) struct RecentClosed {
    how: Choice<LogRecentClosed>,
    bytes: u64,
    pub(super) links: LinkBuffer,
    pub(super) bell: Bell,
    is_woken: AtomicBool,
    pub(super) has_closer: AtomicBool,
    /// Looks of waiters after their first.
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

    /// Changes how waiters wake the closer. A waiter reads this at each look, and the closer's own nap ends in any
    /// case.
    pub(super) fn set_how(&self, how: LogRecentClosed) {
        self.how.set(how);
    }

    /// Bytes of the window's memory.
    pub(super) fn memory(&self) -> u64 {
        LinkBuffer::memory_for(self.bytes)
    }

    /// All groups before this LSN have their pages marked, as far as the closer has looked.
    pub(super) fn tail(&self) -> Lsn {
        if self.has_closer.load(Ordering::Relaxed) { self.links.tail() } else { self.links.follow() }
    }

    /// Waits until a group that begins at `start` is within the window; the caller may hold latches. `waited` receives
    /// the microseconds of each nap: a thread that waits for one of the latches waits for the window, too.
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

    pub(super) fn wake(&self) {
        if !self.has_closer.load(Ordering::Relaxed) {
            // CLOSED-1
            self.links.follow();
            return;
        }
        let is_wanted = match self.how.get() {
            LogRecentClosed::None | LogRecentClosed::Poll => false,
            LogRecentClosed::Wake => true,
            // Relaxed: a waiter that misses it looks again in 20 microseconds.
            LogRecentClosed::WakeIfUnset => !self.is_woken.swap(true, Ordering::Relaxed),
        };
        if is_wanted {
            self.bell.ring();
        }
    }

    /// Leaves the group's link: its pages are marked.
    pub(super) fn leave(&self, start: Lsn, end: Lsn) {
        self.links.add(start, end);
    }

    /// Waits until all groups before `lsn` have their pages marked, or the log has failed: a failed thread may leave no
    /// link. The threads that are marking pages wait for the closer at most.
    pub(super) fn wait_closed(&self, lsn: Lsn, has_failed: impl Fn() -> bool) {
        while self.links.follow() < lsn && !has_failed() {
            sync::nap(NAP_NS);
        }
    }

    /// The closer's loop, until `is_ending`.
    pub(crate) fn close_groups(&self, is_ending: impl Fn() -> bool) {
        /// In whatever way the closer ends, waiters follow the links themselves afterwards.
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
