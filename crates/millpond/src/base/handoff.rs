//! One wait, ended by one supplier: the waiter parks, and the supplier hands it a value.
//!
//! HANDOFF-1  `give` is called at most once, and `take_wait` at most once.

use std::sync::Arc;

use super::laws;
use super::sync::{Condvar, Mutex, Rank};
use super::waits::{WaitClass, Waits};

/// A place where one thread waits for one value.
pub(crate) struct Handoff<T> {
    value: Mutex<Option<T>>,
    given: Condvar,
}

impl<T> Handoff<T> {
    /// A new hand-off, shared by the waiter and its supplier.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Handoff { value: Mutex::new(Rank::Handoff, None), given: Condvar::new() })
    }

    /// Hands over the value, which ends the wait.
    pub(crate) fn give(&self, value: T) {
        let mut slot = self.value.lock();
        debug_assert!(slot.is_none(), "HANDOFF-1: a wait is ended once");
        *slot = Some(value);
        drop(slot);
        self.given.notify_one();
    }

    /// Parks until the supplier gives a value. The caller holds no page latch (LAW-1).
    pub(crate) fn take_wait(&self, class: WaitClass, waits: &Waits) -> T {
        laws::check_park();
        waits.timed(class, || {
            let mut slot = self.value.lock();
            loop {
                if let Some(value) = slot.take() {
                    return value;
                }
                slot = self.given.wait(slot, class.name());
            }
        })
    }

    /// Like [`take_wait`](Self::take_wait), but at most until `until_ns` of the clock. `None`: there is no value yet,
    /// and there may be one later.
    pub(crate) fn take_wait_by(&self, until_ns: u64, class: WaitClass, waits: &Waits) -> Option<T> {
        laws::check_park();
        waits.timed(class, || {
            let mut slot = self.value.lock();
            let mut is_late = false;
            while slot.is_none() && !is_late {
                (slot, is_late) = self.given.wait_until(slot, until_ns, class.name());
            }
            slot.take()
        })
    }
}
