//! A moment of the database that is held while its images are read: what a backup copies, and what a check verifies.

use std::cell::Cell;
use std::sync::Arc;

use crate::backup::options::WorkOptions;
use crate::backup::rate::Pace;
use crate::base::aligned::{aligned, to_u64};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank, sleep_until};
use crate::engine::{CheckpointGoal, Engine, Freeze, FreezeInto};
use crate::store::frozen::{Frozen, ZoneRead};
use crate::store::zones::ZONE_BYTES;

/// Attempts to begin beside a change of the log's capacity, each behind a checkpoint.
const TRIES: u32 = 10;

/// Time between two looks whether writes in place have ended.
const LOOK_NS: u64 = 1_000_000;

/// A frozen map with pinned images. Dropping it ends the pins, and the hold on the log.
pub(crate) struct Moment<'e> {
    pub(super) engine: &'e Arc<Engine>,
    pub(crate) frozen: Box<Frozen>,
    /// The log up to here has all that changed the frozen map.
    pub(super) lsn: Lsn,
    /// Writers needed the log before it was copied.
    pub(super) lost_log: Cell<bool>,
}

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        // Before the pins: another backup begins once they are gone, and has a hold of its own.
        self.engine.end_log_hold();
        self.engine.core.store.thaw();
    }
}

impl<'e> Moment<'e> {
    /// Has the keeper freeze the map. The log is kept from the newest superblock on, until the hold is ended.
    pub(crate) fn hold(engine: &'e Arc<Engine>) -> Result<Moment<'e>, Error> {
        for _ in 0..TRIES {
            engine.checkpoint_wait(CheckpointGoal::Superblock)?;
            let into: FreezeInto = Arc::new(Mutex::new(Rank::Handoff, None));
            engine.checkpoint_wait(CheckpointGoal::Freeze(Arc::clone(&into)))?;
            let answer = into.lock().take();
            match answer {
                Some(Freeze::Frozen(frozen, lsn)) => {
                    return Ok(Moment { engine, frozen, lsn, lost_log: Cell::new(false) });
                }
                Some(Freeze::Busy) => {
                    let message =
                        "another backup or check of this database is under way: wait for its end, and try again";
                    return Err(Error::InUse(message.into()));
                }
                Some(Freeze::Moving) | None => engine.checkpoint_wait(CheckpointGoal::All)?,
            }
        }
        Err(Error::InUse("the log's capacity is being changed: try again when that has ended".into()))
    }

    /// An error if the bytes read last may not be those of the frozen database: the pins are broken, or the database
    /// was closed, after which another process may change its files.
    pub(super) fn check_held(&self) -> Result<(), Error> {
        self.engine.check_usable()?;
        if self.engine.core.store.lost_pins() {
            let message = "given up: writers needed room, and the data file could not grow: free some on the file system of the database, and try again; a backup beside it needs room, too";
            return Err(Error::out_of_space(message.to_owned()));
        }
        Ok(())
    }

    /// Bytes of the data file.
    pub(crate) fn bytes(&self) -> u64 {
        to_u64(self.frozen.zones * ZONE_BYTES)
    }

    /// Reads all zones at the rate of `options`, and calls `each` with a zone's number, what was found, and its bytes.
    /// The progress is of the data file and of `more` bytes that come later.
    pub(crate) fn each_zone(
        &self,
        options: &mut WorkOptions,
        more: u64,
        mut each: impl FnMut(usize, Result<ZoneRead, Error>, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let store = &self.engine.core.store;
        while !store.is_at_rest() {
            sleep_until(clock::now_ns() + LOOK_NS);
            self.check_held()?;
        }
        let mut pace = Pace::new(options.rate_on(self.engine.write_capacity()));
        let named = self.frozen.named_slots();
        let (mut buf, total) = (aligned(ZONE_BYTES), self.bytes() + more);
        for zone in 0..self.frozen.zones {
            let read = store.read_frozen(&self.frozen, zone, &named, &mut buf);
            self.check_held()?;
            let done = to_u64((zone + 1) * ZONE_BYTES);
            if read.as_ref().map_or(true, |read| !read.is_empty()) {
                each(zone, read, &buf)?;
                pace.wait(ZONE_BYTES, || {
                    self.check_held()?;
                    options.tell(done, total)
                })?;
            }
            store.unpin_zone(zone);
            options.tell(done, total)?;
        }
        Ok(())
    }
}
