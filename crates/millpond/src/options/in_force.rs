//! Options that operations read while they run.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::options::Options;
use crate::options::durability::Durability;

/// Options that operations load at each use, and that may change meanwhile.
pub(crate) struct InForce {
    /// Encoded by [`code_of`].
    durability: AtomicU32,
    read_ahead_pages: AtomicUsize,
}

impl InForce {
    pub(crate) fn new(options: &Options) -> InForce {
        let in_force = InForce { durability: AtomicU32::new(0), read_ahead_pages: AtomicUsize::new(0) };
        in_force.set(options);
        in_force
    }

    pub(crate) fn set(&self, options: &Options) {
        // Relaxed: an operation under way may use the old or the new value. A commit itself waits for the durability
        // that it has loaded.
        self.durability.store(code_of(options.commit_durability()), Ordering::Relaxed);
        self.read_ahead_pages.store(options.read_ahead_pages, Ordering::Relaxed);
    }

    /// The durability of writes whose batch sets none.
    pub(crate) fn durability(&self) -> Durability {
        match self.durability.load(Ordering::Relaxed) {
            COMMIT => Durability::Commit,
            WRITTEN => Durability::Written,
            NONE => Durability::None,
            background => Durability::Background(background - NONE),
        }
    }

    /// Leaves that a scan reads ahead together, at most.
    pub(crate) fn read_ahead_pages(&self) -> usize {
        self.read_ahead_pages.load(Ordering::Relaxed)
    }
}

pub(crate) const COMMIT: u32 = 0;

pub(crate) const WRITTEN: u32 = 1;

pub(crate) const NONE: u32 = 2;

/// A [`Durability`] as a number. `Background` is its milliseconds, at least 1, plus `NONE`.
pub(crate) fn code_of(durability: Durability) -> u32 {
    match durability {
        Durability::Commit => COMMIT,
        Durability::Written => WRITTEN,
        Durability::None => NONE,
        Durability::Background(ms) => ms.saturating_add(NONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_in_force() {
        let of = |options: Options| InForce::new(&options).durability();
        for durability in [
            Durability::Commit,
            Durability::Written,
            Durability::None,
            Durability::Background(1),
            Durability::Background(60_000),
        ] {
            assert_eq!(of(Options::new().durability(durability)), durability);
        }
        assert_eq!(of(Options::new().classic(|classic| classic.flush_log_at_commit(2))), Durability::Written);
        let in_force = InForce::new(&Options::new());
        assert_eq!((in_force.durability(), in_force.read_ahead_pages()), (Durability::Commit, 32));
        in_force.set(&Options::new().read_ahead_pages(7).classic(|classic| classic.flush_log_at_commit(0)));
        assert_eq!((in_force.durability(), in_force.read_ahead_pages()), (Durability::Background(1_000), 7));
    }
}
