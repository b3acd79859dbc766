//! Changes the log's capacity: a thread makes files beside the load, then the log moves to them. A log grows in this
//! way when [`RedoChange::look`](crate::engine::redo_change::RedoChange::look) asks for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytesize::ByteSize;

use crate::background::threads::{End, Threads};
use crate::base::aligned::to_u64;
use crate::base::error::{Error, closed};
use crate::base::sync::TurnGuard;
use crate::base::waits::WaitClass;
use crate::engine::redo_change::STEP;
use crate::engine::{CheckpointGoal, Engine};
use crate::io::device::Files;
use crate::options::{Options, REDO_PAGES_MIN, bytes, needed_capacity};
use crate::redo::files::{CAPACITY_MAX, Geometry, Rest, Ring, remove_ring};

/// A log of at most this many bytes is made during the open, a larger one beside the load.
const AT_ONCE_MAX: u64 = 256 << 20;

/// Where the log grows, this many times the new files' bytes are free before: what the load writes meanwhile must find
/// room.
const ROOM: u64 = 2;

/// The initial capacity of a log that grows up to `most` bytes: large enough for a pool of `frames`.
pub(crate) fn first_capacity(options: &Options, most: u64, frames: u64) -> u64 {
    let least = options.redo_capacity_least(most);
    most.min(least.min(AT_ONCE_MAX).max(needed_capacity(frames)))
}

impl Engine {
    fn redo_turn(&self) -> TurnGuard<'_, ()> {
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
    let _turn = engine.redo_turn();
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
    let new = NewRing::reserve(engine, capacity.as_u64())?;
    new.map_or(Ok(()), |new| new.go_over(engine, &|_| engine.check_writable()))?;
    if engine.redo_change.most() > 0 {
        engine.redo_change.set_most(engine.core.log.geometry().0.capacity());
    }
    // Another one that was asked for meanwhile no longer is. What is asked for from here on is looked at by its turn.
    engine.redo_change.take_asked();
    // An earlier failure no longer matters.
    engine.redo_change.tell(None);
    Ok(())
}

/// Gives the log of a database that is being opened the capacity that the options ask for at least or at most, and has
/// it grow from there. A new thread in `threads` makes files of more than [`AT_ONCE_MAX`], and those of a log that
/// grows.
pub(crate) fn change_at_open(engine: &Arc<Engine>, threads: &mut Threads, options: &Options) -> Result<(), Error> {
    let (ring, switch) = engine.core.log.geometry();
    // A crash may have interrupted a change.
    let (ring, change) = (switch.map_or(ring, |switch| switch.to), &engine.redo_change);
    let most = options.redo_capacity_most(engine.frames_max, to_u64(engine.core.store.page_size()));
    let most = Geometry::of(0, most).capacity();
    let least = options.redo_capacity_least(most);
    let wanted = options.redo_capacity.map_or(ring.capacity(), |_| ring.capacity().clamp(least, most));
    let is_other = Geometry::of(ring.generation, wanted) != ring;
    if is_other && wanted <= AT_ONCE_MAX {
        let _turn = engine.redo_turn();
        NewRing::reserve(engine, wanted)?.map_or(Ok(()), |new| new.go_over(engine, &|_| Ok(())))?;
    }
    if is_other && wanted > AT_ONCE_MAX {
        change.ask(wanted);
    } else if least == most || most <= wanted {
        return Ok(());
    }
    if least < most {
        change.set_most(most);
    }
    threads.ring_at_end(&change.bell);
    threads.start("mp-redo-files", engine, |engine, end| {
        while !end.is_near() {
            // The wait ends with a tick that asks for a larger log, or with the close.
            if !make_beside_load(engine, end) {
                engine.redo_change.bell.wait();
            }
        }
        Ok(())
    })
}

/// Gives the log the capacity that was asked for. False: none was. Takes half of the device's time while no other
/// thread waits. A failure stops nothing: the old files still serve.
fn make_beside_load(engine: &Engine, end: &End) -> bool {
    let change = &engine.redo_change;
    if !change.is_asked() {
        return false;
    }
    let _turn = engine.redo_turn();
    // A change by a user may have come first.
    let (asked, most, now) = (change.take_asked(), change.most(), engine.core.log.geometry().0.capacity());
    let is_growth = most > 0 && asked > now && now <= most;
    if asked == 0 || most > 0 && (asked > most || asked <= now && now <= most) {
        return true;
    }
    // The padding of a switch would break a backup's hold on the log. The next tick asks again.
    if is_growth && engine.log_hold.lock().is_some() {
        change.try_again();
        return true;
    }
    let size = ByteSize::b(asked);
    change.tell(Some(format!("{size} are being made")));
    let rest = |took_ns| {
        let nobody_waits = change.waiting.load(Ordering::Relaxed) == 0;
        if end.rest(if nobody_waits { took_ns } else { 0 }) {
            return Err(closed());
        }
        engine.check_writable()
    };
    let room = if is_growth { check_room(engine, asked) } else { Ok(()) };
    let made = room.and_then(|()| NewRing::reserve(engine, asked));
    let made = made.and_then(|new| new.map_or(Ok(()), |new| new.go_over(engine, &rest)));
    change.tell(made.err().map(|why| format!("{size} could not be made: {why}")));
    true
}

/// Has a log grow by a step now, if it is one that grows: a backup needs more room. Returns whether it has grown.
pub(crate) fn grow_now(engine: &Engine) -> Result<bool, Error> {
    let _turn = engine.redo_turn();
    engine.check_writable()?;
    let (now, most) = (engine.core.log.geometry().0.capacity(), engine.redo_change.most());
    let wanted = most.min(now * STEP);
    if wanted <= now || check_room(engine, wanted).is_err() {
        return Ok(false);
    }
    let new = NewRing::reserve(engine, wanted)?;
    new.map_or(Ok(()), |new| new.go_over(engine, &|_| engine.check_writable()))?;
    Ok(true)
}

/// An error if the files of a log that grows would take room that the load needs soon.
fn check_room(engine: &Engine, capacity: u64) -> Result<(), Error> {
    let files = engine.files.lock().clone().ok_or_else(closed)?;
    match files.free_bytes() {
        Some(free) if free < ROOM * capacity => {
            let (needed, free) = (ByteSize::b(ROOM * capacity), ByteSize::b(free));
            Err(Error::out_of_space(format!("{needed} are to be free first, and {free} are")))
        }
        _ => Ok(()),
    }
}

/// A ring whose files are reserved on the device, and not filled yet.
struct NewRing {
    files: Arc<dyn Files>,
    ring: Ring,
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
    use crate::options::profile::Profile;
    use crate::options::validate_reserve;
    use crate::redo::files::RING;

    #[test]
    fn a_log_begins_as_large_as_the_pool_needs() {
        let classic = Options::new().profile(Profile::Mysql56);
        let large = Options::new().redo_capacity_min(ByteSize::gib(1));
        for (options, first) in [(Options::new(), 16 << 20), (classic, AT_ONCE_MAX), (large, AT_ONCE_MAX)] {
            let first_capacity = |capacity, frames| first_capacity(&options, capacity, frames);
            assert_eq!(first_capacity(1 << 40, 1024), first);
            assert_eq!(first_capacity(8 << 20, 1024), 8 << 20);
            let (frames, step) = (4 << 20, RING * BLOCK_U64);
            let first = first_capacity(1 << 40, frames);
            assert!((850 << 20..1 << 30).contains(&first) && validate_reserve(frames, first).is_ok(), "{first}");
            assert!(validate_reserve(frames, first - step).is_err());
            assert_eq!(first_capacity(first - step, frames), first - step);
        }
    }
}
