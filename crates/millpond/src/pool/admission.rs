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
    free: usize,
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
        Admission { state: Mutex::new(State { free: places, line: VecDeque::new(), open: false }) }
    }

    /// Waits for a place, on `free_frame`; callers hold nothing.
    pub(crate) fn enter(&self, waits: &Waits) -> Admitted<'_> {
        let handoff = {
            let mut state = self.state.lock();
            if state.open || (state.free > 0 && state.line.is_empty()) {
                state.free = state.free.saturating_sub(1);
                return Admitted { admission: self };
            }
            let handoff = Handoff::new();
            state.line.push_back(Arc::clone(&handoff));
            handoff
        };
        handoff.take_wait(WaitClass::FreeFrame, waits);
        Admitted { admission: self }
    }

    /// The pool has another size.
    pub(super) fn resize(&self, before: usize, now: usize) {
        let mut state = self.state.lock();
        state.free = (state.free + now).saturating_sub(before);
        let woken: Vec<_> = {
            let count = state.free.min(state.line.len());
            state.free -= count;
            state.line.drain(..count).collect()
        };
        drop(state);
        woken.iter().for_each(|handoff| handoff.give(()));
    }

    /// Lets everybody in: the engine has stopped, and each is to find out by itself.
    pub(super) fn wake_all(&self) {
        let line = {
            let mut state = self.state.lock();
            state.open = true;
            std::mem::take(&mut state.line)
        };
        line.iter().for_each(|handoff| handoff.give(()));
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let next = {
            let mut state = self.admission.state.lock();
            let next = state.line.pop_front();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            next.give(());
        }
    }
}
