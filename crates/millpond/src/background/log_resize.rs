//! Changes the log's capacity: a thread makes files beside the load, then the log moves to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytesize::ByteSize;

use crate::background::threads::Threads;
use crate::base::aligned::to_u64;
use crate::base::error::{Error, closed};
use crate::base::sync::TurnGuard;
use crate::base::waits::WaitClass;
use crate::engine::redo_change::NewRing;
use crate::engine::{CheckpointGoal, Engine};
use crate::options::table::DEFAULT_REDO_CAPACITY;
use crate::options::{REDO_PAGES_MIN, bytes, needed_capacity};
use crate::redo::files::{CAPACITY_MAX, Geometry, Rest, Ring, remove_ring};

/// A log of at most this many bytes is made during the open, a larger one beside the load.
const AT_ONCE_MAX: u64 = DEFAULT_REDO_CAPACITY;

/// The initial capacity of a log that is to have `capacity` bytes: large enough for a pool of `frames`.
pub(crate) fn first_capacity(capacity: u64, frames: u64) -> u64 {
    capacity.min(AT_ONCE_MAX.max(needed_capacity(frames)))
}

impl Engine {
    fn redo_turn(&self) -> TurnGuard<'_, Option<NewRing>> {
        let change = &self.redo_change;
        // Relaxed: a hint to the thread that has the turn that another one waits.
        change.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = self.waits.timed(WaitClass::Checkpoint, || change.turn.lock());
        change.waiting.fetch_sub(1, Ordering::Relaxed);
        turn
    }

    /// Waits until no thread makes files for the log any more. The database is closed: such a thread gives up.
    pub(crate) fn end_redo_change(&self) {
        drop(self.redo_turn());
    }

    fn check_writable(&self) -> Result<(), Error> {
        self.check_changeable()?;
        self.core.log.health()
    }
}

/// Gives the log another capacity: see [`Db::set_redo_capacity`](crate::Db::set_redo_capacity).
pub(crate) fn set_capacity(engine: &Engine, capacity: ByteSize) -> Result<(), Error> {
    let mut pending = engine.redo_turn();
    engine.check_writable()?;
    let smallest = engine.core.log.smallest_capacity().max(REDO_PAGES_MIN * to_u64(engine.core.store.page_size()));
    if !(smallest..=CAPACITY_MAX).contains(&capacity.as_u64()) {
        let message = format!(
            "redo_capacity is {}: use {} to {} while the database is open; reopening it allows less",
            bytes(capacity.as_u64()),
            bytes(smallest),
            bytes(CAPACITY_MAX)
        );
        return Err(Error::InvalidOptions(message.into()));
    }
    // A pending ring is no longer wanted, or this call makes it anew.
    if let Some(new) = pending.take() {
        new.give_up();
        engine.redo_change.tell(None);
    }
    let new = NewRing::reserve(engine, capacity.as_u64())?;
    new.map_or(Ok(()), |new| new.go_over(engine, &|_| engine.check_writable()))?;
    // An earlier failure no longer matters.
    engine.redo_change.tell(None);
    Ok(())
}

/// Gives the log of a database that is being opened another capacity. A new thread in `threads` makes files of more
/// than [`AT_ONCE_MAX`]. It takes half of the device's time while no other thread waits. On return the files are known
/// to fit on the device, if the file system can tell.
pub(crate) fn change_at_open(engine: &Arc<Engine>, threads: &mut Threads, capacity: u64) -> Result<(), Error> {
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
        // A failure stops nothing: the old files still serve.
        let made = new.go_over(engine, &rest);
        engine.redo_change.tell(made.err().map(|why| format!("{} could not be made: {why}", ByteSize::b(capacity))));
        Ok(())
    })
}

impl NewRing {
    /// Reserves a ring of `capacity` bytes; `None`: the log has that capacity. The caller has the turn.
    fn reserve(engine: &Engine, capacity: u64) -> Result<Option<NewRing>, Error> {
        if engine.core.log.geometry().1.is_some() {
            // An earlier change that a crash interrupted ends with a checkpoint.
            engine.checkpoint_wait(CheckpointGoal::All)?;
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
                // No superblock names these files. The next open removes those that cannot be removed now.
                let _ = remove_ring(&*files, geometry.generation);
                Err(error)
            }
        }
    }

    /// Fills the ring, and has the keeper move the log to it. `rest` is that of [`Ring::fill`]; its error means that
    /// the database was closed, or has stopped.
    fn go_over(self, engine: &Engine, rest: Rest<'_>) -> Result<(), Error> {
        let made = self.ring.fill(rest).and_then(|()| {
            let named = self.files.sync_names();
            named.map_err(|e| Error::io(&format!("sync directory '{}'", self.files.place()), e))?;
            engine.checkpoint_wait(CheckpointGoal::Ring(self.ring.clone()))
        });
        // If the keeper gave up before it took the ring, no thread will ever take it.
        let (now, switch) = engine.core.log.geometry();
        if made.is_err() && switch.is_none() && now.generation != self.ring.geometry.generation {
            self.give_up();
        }
        made
    }

    /// Removes the ring's files, which no superblock names. The next open removes those that cannot be removed now.
    fn give_up(self) {
        let _ = remove_ring(&*self.files, self.ring.geometry.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::aligned::BLOCK_U64;
    use crate::options::validate_reserve;
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
