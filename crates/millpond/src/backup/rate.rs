//! The rate of a backup, and of other work that reads all of a database beside its load.

use std::sync::atomic::Ordering;

use crate::backup::options::WorkOptions;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::sync::sleep_until;
use crate::engine::Engine;
use crate::pace::give_way::{GiveWay, Synced};

/// Time between two looks of a thread that waits.
const LOOK_NS: u64 = 1_000_000;

/// Seconds of the rate that a thread that was late makes up for: the device may be slower than the rate.
const LATE_S: f64 = 0.005;

/// Keeps a rate, and gives way to the load.
pub(crate) struct Pace<'e> {
    engine: &'e Engine,
    way: GiveWay,
    /// Bytes that were read and not waited for; negative: bytes that may be read at once.
    owed: f64,
    /// Up to when the time was counted.
    paid_ns: u64,
}

impl<'e> Pace<'e> {
    /// Work that begins now, at the rate of `options` at most.
    pub(crate) fn new(engine: &'e Engine, options: &WorkOptions) -> Pace<'e> {
        let (most, now_ns) = (options.rate_on(engine.write_capacity()), clock::now_ns());
        Pace { engine, way: GiveWay::new(most as f64, now_ns, synced(engine)), owed: 0.0, paid_ns: now_ns }
    }

    /// Waits until `bytes` more may be read, and calls `look` each ms meanwhile: an error from it ends the wait.
    pub(crate) fn wait(&mut self, bytes: usize, mut look: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        self.wait_unless(bytes, || look().map(|()| false))
    }

    /// As [`wait`](Self::wait), but no longer than until `is_urgent`, which is called each ms. What was not waited for
    /// then is not made up for.
    pub(crate) fn wait_unless(
        &mut self,
        bytes: usize,
        mut is_urgent: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        self.owed += to_u64(bytes) as f64;
        loop {
            let now_ns = clock::now_ns();
            let until_ns = match self.way.look(now_ns, synced(self.engine)) {
                Some(until_ns) => until_ns,
                None => {
                    let per_s = self.way.per_s();
                    let paid = per_s * now_ns.saturating_sub(self.paid_ns) as f64 / 1e9;
                    self.owed = (self.owed - paid).max(-per_s * LATE_S);
                    now_ns + (self.owed.max(0.0) * 1e9 / per_s).ceil() as u64
                }
            };
            self.paid_ns = now_ns;
            if now_ns >= until_ns {
                return Ok(());
            }
            if is_urgent()? {
                self.owed = 0.0;
                return Ok(());
            }
            sleep_until(until_ns.min(now_ns + LOOK_NS));
        }
    }
}

fn synced(engine: &Engine) -> Synced {
    let counters = &engine.core.log.counters;
    // Relaxed: a sync between the two reads changes a mean of many by little.
    let (syncs, ns) = (counters.syncs.load(Ordering::Relaxed), counters.sync_ns.load(Ordering::Relaxed));
    Synced { syncs, ns, pending: counters.pending_syncs.now() > 0 }
}
