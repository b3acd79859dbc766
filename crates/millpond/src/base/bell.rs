//! How the layers below ask the keeper for work: they ring, it looks.
//!
//! A ring is remembered until the keeper has looked, so none is lost between its look and its wait.

use super::sync::{Condvar, Mutex, Rank};

/// The keeper's doorbell.
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Default for Bell {
    fn default() -> Self {
        Bell { rung: Mutex::new(Rank::Bell, false), changed: Condvar::new() }
    }
}

impl Bell {
    /// Asks the keeper to look at its debts now. Cheap when it was asked already.
    pub(crate) fn ring(&self) {
        let mut rung = self.rung.lock();
        if *rung {
            return;
        }
        *rung = true;
        drop(rung);
        self.changed.notify_one();
    }

    /// Waits for a ring, at most until `deadline_ns`.
    pub(crate) fn wait_until(&self, deadline_ns: u64) {
        let mut rung = self.rung.lock();
        while !*rung {
            let (guard, timed_out) = self.changed.wait_until(rung, deadline_ns, "the bell");
            rung = guard;
            if timed_out {
                break;
            }
        }
        *rung = false;
    }
}
