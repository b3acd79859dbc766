//! Another capacity for the log: files are made beside the load, then the log goes over to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytesize::ByteSize;

use super::background::Threads;
use super::create::DEFAULT_REDO_CAPACITY;
use super::database::Db;
use super::engine::{Engine, Wish, closed};
use super::options::{REDO_PAGES_MIN, bytes, needed_capacity};
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::sync::{Mutex, Rank, Turn, TurnGuard};
use crate::base::waits::WaitClass;
use crate::io::device::Files;
use crate::redo::files::{CAPACITY_MAX, Geometry, Rest, Ring, remove_ring};

/// A log of up to so many bytes is made while the database is opened, a larger one beside the load.
const AT_ONCE_MAX: u64 = DEFAULT_REDO_CAPACITY;

/// The log that a database which is to have `capacity` begins with: large enough for a pool of `frames`.
pub(super) fn first_capacity(capacity: u64, frames: u64) -> u64 {
    capacity.min(AT_ONCE_MAX.max(needed_capacity(frames)))
}

/// Who changes the log's capacity, and how that goes.
pub(crate) struct RedoChange {
    /// One change at a time; and the one that a thread is about to begin, or whoever comes before it.
    turn: Turn<Option<NewRing>>,
    /// Those who wait for their turn.
    waiting: AtomicUsize,
    /// What is made beside the load, or why it was not.
    news: Mutex<Option<String>>,
}

impl Default for RedoChange {
    fn default() -> Self {
        RedoChange {
            turn: Turn::new(Rank::RedoChange, None),
            waiting: AtomicUsize::new(0),
            news: Mutex::new(Rank::Status, None),
        }
    }
}

impl RedoChange {
    fn tell(&self, news: Option<String>) {
        *self.news.lock() = news;
    }

    /// What is to be said of the log's files.
    pub(super) fn news(&self) -> Option<String> {
        self.news.lock().clone()
    }
}

impl Db {
    /// Gives the log another capacity, between 128 pages and 1 TiB, while the database is in use: new files are made
    /// and zero-written, then the log goes over to them. Waits on `checkpoint` for a change that is under way, as one
    /// to the capacity that the database was [opened](crate::Options::redo_capacity) with may be, and then until all
    /// that is dirty by then was written: as long as the device takes for that, and under a load that it can just bear
    /// many times as long. Writers go on meanwhile; with less log they may be slowed down.
    ///
    /// The log keeps 48 bytes for each page of the buffer pool, and must be four times as large as what it keeps.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too small for the pool or for the log's buffers, or too large.
    /// [`Error::OutOfSpace`]: the files do not fit; the old ones stay. [`Error::Closed`]: the database was closed
    /// meanwhile. [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_redo_capacity(&self, capacity: ByteSize) -> Result<(), Error> {
        let engine = self.here()?;
        let mut pending = engine.redo_turn();
        engine.check_writable()?;
        let smallest = engine.core.log.smallest_capacity().max(REDO_PAGES_MIN * to_u64(engine.core.store.page_size()));
        if !(smallest..=CAPACITY_MAX).contains(&capacity.as_u64()) {
            let message = format!(
                "redo_capacity is {}: use {} to 1TiB while the database is open; reopening it allows less",
                bytes(capacity.as_u64()),
                bytes(smallest)
            );
            return Err(Error::InvalidOptions(message.into()));
        }
        // What was to be made otherwise is not wanted any more, or is this.
        if let Some(new) = pending.take() {
            new.give_up();
            engine.redo_change.tell(None);
        }
        let new = NewRing::reserve(engine, capacity.as_u64())?;
        new.map_or(Ok(()), |new| new.go_over(engine, &|_| engine.check_writable()))?;
        // What failed before is past.
        engine.redo_change.tell(None);
        Ok(())
    }
}

impl Engine {
    fn redo_turn(&self) -> TurnGuard<'_, Option<NewRing>> {
        let change = &self.redo_change;
        // Relaxed: a hint to who has it that somebody waits.
        change.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = self.waits.timed(WaitClass::Checkpoint, || change.turn.lock());
        change.waiting.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    /// Waits until nobody makes files for the log any more. The database is closed: who does gives up.
    pub(super) fn end_redo_change(&self) {
        drop(self.redo_turn());
    }

    fn check_writable(&self) -> Result<(), Error> {
        self.check_changeable()?;
        self.core.log.health()
    }
}

/// Gives the log of a database that is being opened another capacity. Files of more than [`AT_ONCE_MAX`] are made by
/// one of `threads`, which takes half of the device's time for it while nobody waits; that they fit on the device is
/// known on return, where the file system can tell.
pub(super) fn change_at_open(engine: &Arc<Engine>, threads: &mut Threads, capacity: u64) -> Result<(), Error> {
    let mut pending = engine.redo_turn();
    let Some(new) = NewRing::reserve(engine, capacity)? else { return Ok(()) };
    if capacity <= AT_ONCE_MAX {
        return new.go_over(engine, &|_| Ok(()));
    }
    *pending = Some(new);
    drop(pending);
    engine.redo_change.tell(Some(format!("{} are being made", ByteSize::b(capacity))));
    threads.start("mp-redo-files", engine, move |engine, end| {
        let mut pending = engine.redo_turn();
        let Some(new) = pending.take() else { return Ok(()) };
        let rest = |took_ns| {
            let nobody_waits = engine.redo_change.waiting.load(Ordering::Relaxed) == 0;
            if end.rest(if nobody_waits { took_ns } else { 0 }) {
                return Err(closed());
            }
            engine.check_writable()
        };
        // The old files are as good: nobody is stopped for want of larger ones.
        let made = new.go_over(engine, &rest);
        engine.redo_change.tell(made.err().map(|why| format!("{} could not be made: {why}", ByteSize::b(capacity))));
        Ok(())
    })
}

/// A ring that has room on the device, and is not filled yet.
struct NewRing {
    files: Arc<dyn Files>,
    ring: Ring,
}

impl NewRing {
    /// Of `capacity`; `None`: the log has it. Nobody else changes it.
    fn reserve(engine: &Engine, capacity: u64) -> Result<Option<NewRing>, Error> {
        if engine.core.log.geometry().1.is_some() {
            // An earlier change that a crash interrupted ends with a checkpoint.
            engine.checkpoint_wait(Wish::All)?;
        }
        let (now, switch) = engine.core.log.geometry();
        if switch.is_some() {
            let message = "the last change of redo_capacity has not ended yet: try again later";
            return Err(Error::InUse(message.into()));
        }
        let geometry = Geometry::of(now.generation.wrapping_add(1), capacity);
        if geometry.payload_bytes == now.payload_bytes {
            return Ok(None);
        }
        let files = engine.files.lock().clone().ok_or_else(closed)?;
        let owner = engine.core.store.superblock().owner();
        match Ring::reserve(&*files, owner, geometry) {
            Ok(ring) => Ok(Some(NewRing { files, ring })),
            Err(error) => {
                // Nothing names them; what cannot be removed now is removed at the next open.
                let _ = remove_ring(&*files, geometry.generation);
                Err(error)
            }
        }
    }

    /// Fills it, and has the keeper go over to it. `rest` as [`Ring::fill`] has it; whose error means that the database
    /// was closed, or has stopped.
    fn go_over(self, engine: &Engine, rest: Rest<'_>) -> Result<(), Error> {
        let made = self.ring.fill(rest).and_then(|()| {
            let named = self.files.sync_names();
            named.map_err(|e| Error::io(&format!("sync directory '{}'", self.files.place()), e))?;
            engine.checkpoint_wait(Wish::Ring(self.ring.clone()))
        });
        // Where the keeper has given up before it took the ring, nobody ever will.
        let (now, switch) = engine.core.log.geometry();
        if made.is_err() && switch.is_none() && now.generation != self.ring.geometry.generation {
            self.give_up();
        }
        made
    }

    /// Removes its files, which nothing names; what cannot be removed now is removed at the next open.
    fn give_up(self) {
        let _ = remove_ring(&*self.files, self.ring.geometry.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::aligned::BLOCK_U64;
    use crate::db::options::validate_reserve;
    use crate::redo::files::RING;

    #[test]
    fn a_log_begins_as_large_as_the_pool_needs() {
        assert_eq!(first_capacity(1 << 40, 1024), AT_ONCE_MAX);
        assert_eq!(first_capacity(8 << 20, 1024), 8 << 20);
        let (frames, step) = (4 << 20, RING * BLOCK_U64);
        let first = first_capacity(1 << 40, frames);
        assert!((850 << 20..1 << 30).contains(&first) && validate_reserve(frames, first).is_ok(), "{first}");
        assert!(validate_reserve(frames, first - step).is_err());
        assert_eq!(first_capacity(first - step, frames), first - step);
    }
}
