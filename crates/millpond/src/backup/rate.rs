//! The rate of a backup, and of other work that reads all of a database beside its load.

use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::sync::sleep_until;

/// Time between two looks of a thread that waits.
const LOOK_NS: u64 = 100_000_000;

/// Keeps a rate.
pub(crate) struct Pace {
    per_s: u64,
    next_ns: u64,
}

impl Pace {
    pub(crate) fn new(per_s: u64) -> Pace {
        Pace { per_s, next_ns: clock::now_ns() }
    }

    /// Waits until `bytes` more may be read, and calls `look` ten times a second meanwhile: an error from it ends the
    /// wait. A delay of more than 50 ms is not made up for.
    pub(crate) fn wait(&mut self, bytes: usize, mut look: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let now_ns = clock::now_ns();
        self.next_ns =
            self.next_ns.max(now_ns.saturating_sub(1_000_000_000 / 20)) + to_u64(bytes) * 1_000_000_000 / self.per_s;
        loop {
            let now_ns = clock::now_ns();
            if now_ns >= self.next_ns {
                return Ok(());
            }
            sleep_until(self.next_ns.min(now_ns + LOOK_NS));
            look()?;
        }
    }
}
