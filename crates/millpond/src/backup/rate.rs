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

/// A delay of more than this is not made up for: the device may be slower than the rate.
const LATE_NS: u64 = 5_000_000;

/// Keeps a rate, and gives way to the load.
pub(crate) struct Pace<'e> {
    engine: &'e Engine,
    way: GiveWay,
    next_ns: u64,
}

impl<'e> Pace<'e> {
    /// Work that begins now, at the rate of `options` at most.
    pub(crate) fn new(engine: &'e Engine, options: &WorkOptions) -> Pace<'e> {
        let (most, now_ns) = (options.rate_on(engine.write_capacity()), clock::now_ns());
        Pace { engine, way: GiveWay::new(most as f64, now_ns, synced(engine)), next_ns: now_ns }
    }

    /// Waits until `bytes` more may be read, and calls `look` each ms meanwhile: an error from it ends the wait.
    pub(crate) fn wait(&mut self, bytes: usize, mut look: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        self.wait_unless(bytes, || look().map(|()| false))
    }

    /// As [`wait`](Self::wait), but no longer than until `is_urgent`, which is called each ms.
    pub(crate) fn wait_unless(
        &mut self,
        bytes: usize,
        mut is_urgent: impl FnMut() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let now_ns = clock::now_ns();
        let takes_ns = to_u64(bytes) as f64 * 1e9 / self.way.per_s();
        self.next_ns = self.next_ns.max(now_ns.saturating_sub(LATE_NS)) + takes_ns as u64;
        loop {
            let now_ns = clock::now_ns();
            let paused_until_ns = self.way.look(now_ns, synced(self.engine));
            let until_ns = paused_until_ns.unwrap_or(self.next_ns);
            if now_ns >= until_ns || is_urgent()? {
                return Ok(());
            }
            sleep_until(until_ns.min(now_ns + LOOK_NS));
        }
    }
}

fn synced(engine: &Engine) -> Synced {
    let counters = &engine.core.log.counters;
    // Relaxed: a sync between the two reads changes a mean of many by little.
    Synced { syncs: counters.syncs.load(Ordering::Relaxed), ns: counters.sync_ns.load(Ordering::Relaxed) }
}
