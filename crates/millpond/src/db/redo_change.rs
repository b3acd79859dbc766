//! Another capacity for the log: files are made beside the load, then the log goes over to them.

use std::sync::Arc;

use bytesize::ByteSize;

use super::background::Threads;
use super::create::DEFAULT_REDO_CAPACITY;
use super::database::Db;
use super::engine::{Engine, Wish, closed};
use super::options::REDO_PAGES_MIN;
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::sync::{Mutex, Rank, Turn, TurnGuard};
use crate::base::waits::WaitClass;
use crate::io::device::Files;
use crate::redo::files::{CAPACITY_MAX, Geometry, Ring, remove_ring};

/// A log of up to so many bytes is made while the database is opened, a larger one beside the load.
pub(super) const AT_ONCE_MAX: u64 = DEFAULT_REDO_CAPACITY;

/// Who changes the log's capacity, and how that goes.
pub(crate) struct RedoChange {
    /// One change at a time.
    turn: Turn<()>,
    /// What is made beside the load, or why it was not.
    news: Mutex<Option<String>>,
}

impl Default for RedoChange {
    fn default() -> Self {
        RedoChange { turn: Turn::new(Rank::RedoChange, ()), news: Mutex::new(Rank::Status, None) }
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
        let engine = self.engine();
        let _turn = engine.redo_turn();
        engine.check_open()?;
        let smallest = engine.core.log.smallest_capacity().max(REDO_PAGES_MIN * to_u64(engine.core.store.page_size()));
        if !(smallest..=CAPACITY_MAX).contains(&capacity.as_u64()) {
            let message = format!(
                "redo_capacity is {capacity}: use {} to 1TiB while the database is open; reopening it allows less",
                ByteSize::b(smallest)
            );
            return Err(Error::InvalidOptions(message.into()));
        }
        let new = NewRing::reserve(engine, capacity.as_u64())?;
        new.map_or(Ok(()), |new| new.go_over(engine, &|_| engine.check_open().is_ok()))?;
        // What failed before is past.
        engine.redo_change.tell(None);
        Ok(())
    }
}

impl Engine {
    fn redo_turn(&self) -> TurnGuard<'_, ()> {
        self.waits.timed(WaitClass::Checkpoint, || self.redo_change.turn.lock())
    }

    /// Waits until nobody makes files for the log any more. The database is closed: who does gives up.
    pub(super) fn end_redo_change(&self) {
        drop(self.redo_turn());
    }
}

/// Gives the log of a database that is being opened another capacity. Files of more than [`AT_ONCE_MAX`] are made by
/// one of `threads`, which takes half of the device's time for it, at most; that they fit on the device is known on
/// return.
pub(super) fn change_at_open(engine: &Arc<Engine>, threads: &mut Threads, capacity: u64) -> Result<(), Error> {
    if capacity <= AT_ONCE_MAX {
        let _turn = engine.redo_turn();
        let new = NewRing::reserve(engine, capacity)?;
        return new.map_or(Ok(()), |new| new.go_over(engine, &|_| true));
    }
    let begun = Handoff::new();
    let answer = Arc::clone(&begun);
    threads.start("mp-redo-files", engine, move |engine, end| {
        // Before anybody has a handle: what is asked for later is done later.
        let _turn = engine.redo_turn();
        let new = match NewRing::reserve(engine, capacity) {
            Ok(Some(new)) => new,
            none => {
                begun.give(none.map(drop));
                return Ok(());
            }
        };
        engine.redo_change.tell(Some(format!("{} are being made", ByteSize::b(capacity))));
        begun.give(Ok(()));
        let rest = |took_ns| engine.check_open().is_ok() && !end.rest(took_ns);
        // The old files are as good: nobody is stopped for want of larger ones.
        let made = new.go_over(engine, &rest);
        engine.redo_change.tell(made.err().map(|why| format!("{} could not be made: {why}", ByteSize::b(capacity))));
        Ok(())
    })?;
    answer.take_wait(WaitClass::Checkpoint, &engine.waits)
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

    /// Fills it, and has the keeper go over to it. `rest` as [`Ring::fill`] has it; who says no there has closed the
    /// database.
    fn go_over(self, engine: &Engine, rest: &dyn Fn(u64) -> bool) -> Result<(), Error> {
        let NewRing { files, ring } = self;
        let filled = ring.fill(rest).and_then(|filled| if filled { Ok(()) } else { Err(closed()) });
        if let Err(error) = filled {
            let _ = remove_ring(&*files, ring.geometry.generation);
            return Err(error);
        }
        files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))?;
        engine.checkpoint_wait(Wish::Ring(ring))
    }
}
