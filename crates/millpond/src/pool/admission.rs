//! How many operations may miss pages at the same time.
//!
//! An operation that finds all its pages in memory holds no frame for longer than a latch. One that misses pins pages
//! between its restarts. So many of these are let in that their pins leave most frames to others; the rest wait in the
//! order in which they came, holding nothing. Who ends the wait: an operation that is through.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::handoff::Handoff;
use crate::base::sync::Mutex;
use crate::base::waits::{WaitClass, Waits};

struct State {
    limit: usize,
    held: usize,
    line: VecDeque<Arc<Handoff<()>>>,
    open: bool,
}

/// The door.
pub(crate) struct Admission {
    state: Mutex<State>,
}

/// Leave to miss pages; given back when dropped.
#[must_use]
pub(crate) struct Admitted<'p> {
    admission: &'p Admission,
}

impl Admission {
    pub(super) fn new(places: usize) -> Admission {
        Admission { state: Mutex::new(State { limit: places, held: 0, line: VecDeque::new(), open: false }) }
    }

    /// Waits for a place, on `free_frame`; callers hold nothing.
    pub(crate) fn enter(&self, waits: &Waits) -> Admitted<'_> {
        let handoff = {
            let mut state = self.state.lock();
            if state.open || (state.held < state.limit && state.line.is_empty()) {
                state.held += 1;
                return Admitted { admission: self };
            }
            let handoff = Handoff::new();
            state.line.push_back(Arc::clone(&handoff));
            handoff
        };
        handoff.take_wait(WaitClass::FreeFrame, waits);
        Admitted { admission: self }
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
            state.held += state.line.len();
            std::mem::take(&mut state.line)
        };
        line.iter().for_each(|handoff| handoff.give(()));
    }
}

impl State {
    /// Gives the free places to those who came first.
    fn next(&mut self) -> Vec<Arc<Handoff<()>>> {
        let count = self.limit.saturating_sub(self.held).min(self.line.len());
        self.held += count;
        self.line.drain(..count).collect()
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let woken = {
            let mut state = self.admission.state.lock();
            state.held -= 1;
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
        let mut inside: Vec<_> = (0..3).map(|_| admission.enter(&waits)).collect();
        admission.resize(1);
        inside.truncate(1);
        assert_eq!(admission.state.lock().held, 1);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| drop(admission.enter(&waits)));
            while admission.state.lock().line.is_empty() {
                std::thread::yield_now();
            }
            assert_eq!(admission.state.lock().held, 1);
            inside.clear();
            late.join().expect("no panic");
        });
        assert_eq!(admission.state.lock().held, 0);
    }
}
