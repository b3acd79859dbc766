//! How many pages those may pin together who miss some.
//!
//! An operation that finds all its pages in memory holds no frame for longer than a latch. One that misses pins pages
//! between its restarts: it asks for as many places first. There are so few that most frames are left to others; who
//! finds none waits in the order of coming, holding nothing. Who ends the wait: an operation that is through.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::handoff::Handoff;
use crate::base::sync::{Mutex, Rank};
use crate::base::waits::{WaitClass, Waits};

struct State {
    limit: usize,
    held: usize,
    /// Who waits, and for how many places.
    line: VecDeque<(usize, Arc<Handoff<()>>)>,
    open: bool,
}

/// The door.
pub(crate) struct Admission {
    state: Mutex<State>,
}

/// Leave to miss pages, and to pin so many; given back when dropped.
#[must_use]
pub(crate) struct Admitted<'p> {
    admission: &'p Admission,
    places: usize,
}

impl Admission {
    pub(super) fn new(places: usize) -> Admission {
        Admission {
            state: Mutex::new(Rank::Admission, State { limit: places, held: 0, line: VecDeque::new(), open: false }),
        }
    }

    /// Waits for so many places, on `admission`; callers hold nothing. Who asks for more than there are
    /// has all of them.
    pub(crate) fn enter(&self, places: usize, waits: &Waits) -> Admitted<'_> {
        let handoff = {
            let mut state = self.state.lock();
            if state.open || (state.line.is_empty() && state.has(places)) {
                state.held += places;
                return Admitted { admission: self, places };
            }
            let handoff = Handoff::new();
            state.line.push_back((places, Arc::clone(&handoff)));
            handoff
        };
        handoff.take_wait(WaitClass::Admission, waits);
        Admitted { admission: self, places }
    }

    /// So many places from now on.
    pub(super) fn resize(&self, places: usize) {
        let woken = {
            let mut state = self.state.lock();
            state.limit = places;
            state.next()
        };
        woken.iter().for_each(|handoff| handoff.give(()));
    }

    /// Lets everybody in: the engine has stopped, and each is to find out by itself.
    pub(super) fn wake_all(&self) {
        let line = {
            let mut state = self.state.lock();
            state.open = true;
            state.held += state.line.iter().map(|(places, _)| places).sum::<usize>();
            std::mem::take(&mut state.line)
        };
        line.iter().for_each(|(_, handoff)| handoff.give(()));
    }
}

impl Admitted<'_> {
    /// How many it may pin.
    pub(crate) fn places(&self) -> usize {
        self.places
    }
}

impl State {
    /// Whether so many places are free.
    fn has(&self, places: usize) -> bool {
        self.held == 0 || self.held + places <= self.limit
    }

    /// Gives the free places to those who came first.
    fn next(&mut self) -> Vec<Arc<Handoff<()>>> {
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
        let woken = {
            let mut state = self.admission.state.lock();
            state.held -= self.places;
            state.next()
        };
        woken.iter().for_each(|handoff| handoff.give(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_door_made_narrower_lets_nobody_in_before_enough_have_left() {
        let (admission, waits) = (Admission::new(3), Waits::new(Duration::from_secs(1)));
        let mut inside: Vec<_> = (0..3).map(|_| admission.enter(1, &waits)).collect();
        admission.resize(1);
        inside.truncate(1);
        assert_eq!(admission.state.lock().held, 1);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| drop(admission.enter(1, &waits)));
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
    fn who_asks_for_many_is_not_passed_by_those_who_ask_for_one() {
        let (admission, waits) = (Admission::new(4), Waits::new(Duration::from_secs(1)));
        let inside = admission.enter(2, &waits);
        let line = |count: usize| {
            while admission.state.lock().line.len() < count {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            // More than there are: alone.
            let many = scope.spawn(|| {
                let many = admission.enter(9, &waits);
                assert_eq!(admission.state.lock().held, 9);
                line(1);
                drop(many);
            });
            line(1);
            let one = scope.spawn(|| drop(admission.enter(1, &waits)));
            line(2);
            assert_eq!(admission.state.lock().held, 2, "two places are free, and who came later waits for the first");
            drop(inside);
            many.join().expect("no panic");
            one.join().expect("no panic");
        });
        assert_eq!(admission.state.lock().held, 0);
    }
}
