//! The keeper's doorbell: lower layers ring it when there is work, and the keeper then looks for that work.
//!
//! A ring stays set until the keeper waits again, so none is lost between its look at the work and its wait.

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
    /// Asks the keeper to look for work now. Cheap if the bell was rung already.
    pub(crate) fn ring(&self) {
        let mut rung = self.rung.lock();
        if *rung {
            return;
        }
        *rung = true;
        drop(rung);
        self.changed.notify_one();
    }

    /// Waits for a ring, without a limit. Resets the bell.
    pub(crate) fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            rung = self.changed.wait(rung, "the bell");
        }
        *rung = false;
    }

    /// Waits for a ring, at most until `deadline_ns` of the engine's clock. Resets the bell.
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
