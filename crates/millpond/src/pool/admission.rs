//! Admission: limits the pages that operations with misses pin together.
//!
//! An operation that finds all its pages in memory holds no frame for longer than a latch. An operation that misses
//! pins pages between its restarts, and first asks for as many places. Places are few, so most frames are left to
//! others. An operation that finds no place waits in FIFO order, holding nothing. The wait ends when an admitted
//! operation leaves. If holders of the places spent at least half of that time waiting for a free frame, the wait is
//! counted as a wait for a frame instead.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::aligned::to_u64;
use crate::base::handoff::Handoff;
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::{WaitClass, Waited, Waits, is_half};

/// The totals that a waiter is told as it is let in.
#[derive(Clone, Copy)]
struct Held {
    /// [`State::frame_us`], in microseconds.
    frame_us: u64,
    limit: usize,
}

struct State {
    limit: usize,
    held: usize,
    /// The waiters in arrival order, and how many places each wants.
    line: VecDeque<(usize, Arc<Handoff<Held>>)>,
    open: bool,
    /// Microseconds that holders of places waited for frames, times their places. Each holder adds its own as it
    /// leaves.
    frame_us: u64,
}

/// The limit of places, and the line of operations that wait for some.
pub(crate) struct Admission {
    state: Mutex<State>,
}

/// The right to miss pages and to pin `places` of them; given back when dropped.
#[must_use]
pub(crate) struct Admitted<'p> {
    admission: &'p Admission,
    places: usize,
    before: Waited,
}

impl Admission {
    pub(super) fn new(places: usize) -> Admission {
        Admission {
            state: Mutex::new(
                Rank::Admission,
                State { limit: places, held: 0, line: VecDeque::new(), open: false, frame_us: 0 },
            ),
        }
    }

    /// Waits for `places` places, on `admission`; callers hold nothing. A request for more than there are gets all of
    /// them. Calls `behind` with the length of the wait in nanoseconds if it counts as a wait for a frame.
    pub(super) fn enter(&self, places: usize, waits: &Waits, behind: impl FnOnce(u64)) -> Admitted<'_> {
        let (handoff, before_us) = {
            let mut state = self.state.lock();
            if state.open || (state.line.is_empty() && state.has(places)) {
                state.held += places;
                return self.admitted(places);
            }
            let handoff = Handoff::new();
            state.line.push_back((places, Arc::clone(&handoff)));
            (handoff, state.frame_us)
        };
        let held = Cell::new(None);
        let wait = || (true, held.set(Some(handoff.take_wait(WaitClass::Admission, waits))));
        waits.timed_as(WaitClass::Admission, wait, |ns| match held.get() {
            Some(Held { frame_us, limit }) if is_half(frame_us - before_us, ns * to_u64(limit)) => {
                behind(ns);
                WaitClass::FreeFrame
            }
            _ => WaitClass::Admission,
        });
        self.admitted(places)
    }

    fn admitted(&self, places: usize) -> Admitted<'_> {
        Admitted { admission: self, places, before: Waited::on(WaitClass::FreeFrame) }
    }

    /// Sets the number of places.
    pub(super) fn resize(&self, places: usize) {
        let (woken, held) = {
            let mut state = self.state.lock();
            state.limit = places;
            (state.next(), state.told())
        };
        woken.iter().for_each(|handoff| handoff.give(held));
    }

    /// Lets all waiters in: the engine has stopped, and each operation is to find that out by itself.
    pub(super) fn wake_all(&self) {
        let (line, held) = {
            let mut state = self.state.lock();
            state.open = true;
            state.held += state.line.iter().map(|(places, _)| places).sum::<usize>();
            (std::mem::take(&mut state.line), state.told())
        };
        line.iter().for_each(|(_, handoff)| handoff.give(held));
    }
}

impl State {
    /// Whether `places` places are free, or all are.
    fn has(&self, places: usize) -> bool {
        self.held == 0 || self.held + places <= self.limit
    }

    fn told(&self) -> Held {
        Held { frame_us: self.frame_us, limit: self.limit }
    }

    /// Gives the free places to the oldest waiters.
    fn next(&mut self) -> Vec<Arc<Handoff<Held>>> {
        let mut woken = Vec::new();
        while self.line.front().is_some_and(|(places, _)| self.has(*places))
            && let Some((places, handoff)) = self.line.pop_front()
        {
            self.held += places;
            woken.push(handoff);
        }
        woken
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let (woken, held) = {
            let mut state = self.admission.state.lock();
            state.held -= self.places;
            state.frame_us += u64::from(self.before.elapsed_us()) * to_u64(self.places.min(state.limit));
            (state.next(), state.told())
        };
        woken.iter().for_each(|handoff| handoff.give(held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::lane::tests::behind;
    use std::time::Duration;

    #[test]
    fn narrowed_admission_admits_none_before_enough_have_left() {
        let (admission, waits) = (Admission::new(3), Waits::new(Duration::from_secs(1)));
        let mut inside: Vec<_> = (0..3).map(|_| admission.enter(1, &waits, |_| ())).collect();
        admission.resize(1);
        inside.truncate(1);
        assert_eq!(admission.state.lock().held, 1);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| drop(admission.enter(1, &waits, |_| ())));
            while admission.state.lock().line.is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(admission.state.lock().held, 1);
            inside.clear();
            late.join().expect("no panic");
        });
        assert_eq!(admission.state.lock().held, 0);
    }

    #[test]
    fn request_for_many_places_is_not_passed_by_single_ones() {
        let (admission, waits) = (Admission::new(4), Waits::new(Duration::from_secs(1)));
        let inside = admission.enter(2, &waits, |_| ());
        let line = |count: usize| {
            while admission.state.lock().line.len() < count {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            // More than there are: admitted alone.
            let many = scope.spawn(|| {
                let many = admission.enter(9, &waits, |_| ());
                assert_eq!(admission.state.lock().held, 9);
                line(1);
                drop(many);
            });
            line(1);
            let one = scope.spawn(|| drop(admission.enter(1, &waits, |_| ())));
            line(2);
            assert_eq!(admission.state.lock().held, 2, "two places are free, and the later waiter does not pass");
            drop(inside);
            many.join().expect("no panic");
            one.join().expect("no panic");
        });
        assert_eq!(admission.state.lock().held, 0);
    }

    /// One of `places` places is held for 10 ms by a thread that waits for a frame for `frame_ms` of them. Another
    /// thread wants all places.
    fn behind_one_who_waits(places: usize, frame_ms: u64) -> (u64, u64, bool) {
        let door = Arc::new(Admission::new(places));
        let first = |waits: &Waits| door.enter(1, waits, |_| ());
        let of_second = Arc::clone(&door);
        behind(WaitClass::Admission, frame_ms, first, move |waits, told| drop(of_second.enter(places, waits, told)))
    }

    #[test]
    fn waiter_for_places_of_frame_waiters_waits_for_a_frame() {
        // The first waits for its own frame.
        assert_eq!(behind_one_who_waits(1, 8), (0, 2, true));
        assert_eq!(behind_one_who_waits(1, 2), (1, 1, false));
        assert_eq!(behind_one_who_waits(2, 8), (1, 1, false), "four tenths of the two places");
    }
}
