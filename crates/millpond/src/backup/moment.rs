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
use crate::store::frozen::{Frozen, PIECE, PieceRead};
use crate::store::zones::ZONE_BYTES;

/// Attempts to begin beside a change of the log's capacity, each behind a checkpoint.
const TRIES: u32 = 10;

const PIECES_A_ZONE: usize = ZONE_BYTES / PIECE;

/// How many times sooner the log is read than writers would need its room.
const IN_TIME: f64 = 2.0;

/// A log of at most this many bytes is read at once: that takes some ms, and its room may be needed as soon.
const AT_ONCE_MAX: u64 = 16 << 20;

/// Time between two looks whether writes in place have ended.
const LOOK_NS: u64 = 1_000_000;

/// A frozen map with pinned images. Dropping it ends the pins, and the hold on the log.
pub(crate) struct Moment<'e> {
    pub(crate) engine: &'e Arc<Engine>,
    pub(crate) frozen: Box<Frozen>,
    /// The log up to here has all that changed the frozen map.
    pub(crate) lsn: Lsn,
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
    pub(crate) fn check_held(&self) -> Result<(), Error> {
        self.engine.check_usable()?;
        if self.engine.core.store.lost_pins() {
            let message = "given up: writers needed room, and the data file could not grow: free some on the file system of the database, and try again; a backup beside it needs room, too";
            return Err(Error::out_of_space(message.to_owned()));
        }
        Ok(())
    }

    /// Whether the log up to the moment's LSN is still in its files.
    pub(crate) fn holds_log(&self) -> bool {
        self.engine.log_hold.lock().is_some()
    }

    /// Whether the log, read up to `at`, must be read faster: writers may soon need its room, or do already.
    pub(crate) fn is_urgent(&self, at: Lsn) -> bool {
        let (from, next) = (self.frozen.superblock.checkpoint_lsn, self.engine.core.log.positions().next);
        let part = |of: Lsn, all: Lsn, since: Lsn| of.0.saturating_sub(since.0) as f64 / all.since(since).max(1) as f64;
        let hold = *self.engine.log_hold.lock();
        let is_short = self.lsn.since(from) <= AT_ONCE_MAX;
        is_short || hold.is_none_or(|hold| part(at, self.lsn, from) < IN_TIME * part(next, hold.upto, self.lsn))
    }

    /// Bytes of the data file.
    pub(crate) fn bytes(&self) -> u64 {
        to_u64(self.frozen.zones * ZONE_BYTES)
    }

    /// Reads all pieces of the data file, as `pace` allows, and calls `each` with a piece's number, what was found, and
    /// its bytes. The progress is of the data file and of `more` bytes that come later.
    pub(crate) fn each_piece(
        &self,
        pace: &mut Pace<'_>,
        options: &mut WorkOptions,
        more: u64,
        mut each: impl FnMut(usize, Result<PieceRead, Error>, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let store = &self.engine.core.store;
        while !store.is_at_rest() {
            sleep_until(clock::now_ns() + LOOK_NS);
            self.check_held()?;
        }
        let named = self.frozen.named_slots();
        let (mut buf, total) = (aligned(PIECE), self.bytes() + more);
        for piece in 0..self.frozen.zones * PIECES_A_ZONE {
            let read = store.read_frozen(&self.frozen, piece, &named, &mut buf);
            self.check_held()?;
            let done = to_u64((piece + 1) * PIECE);
            if read.as_ref().map_or(true, |read| !read.is_empty()) {
                each(piece, read, &buf)?;
                pace.wait(PIECE, || {
                    self.check_held()?;
                    options.tell(done, total)
                })?;
            }
            if (piece + 1).is_multiple_of(PIECES_A_ZONE) {
                store.unpin_zone(piece / PIECES_A_ZONE);
                options.tell(done, total)?;
            }
        }
        Ok(())
    }
}
