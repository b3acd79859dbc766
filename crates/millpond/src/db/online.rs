//! What may be changed while the database is in use.

use std::time::Duration;

use bytesize::ByteSize;

use super::database::Db;
use super::engine::{Engine, Wish, closed};
use super::options::{FRAMES_MIN, REDO_PAGES_MIN, validate_recovery_time};
use crate::base::aligned::{to_u64, to_usize};
use crate::base::error::Error;
use crate::redo::files::{CAPACITY_MAX, Geometry, Ring, remove_ring};

impl Db {
    /// Gives the log another capacity, between 128 pages and 1 TiB, while the database is in use: new files are made
    /// and zero-written, then the log goes over to them. Waits on `checkpoint` until all that is dirty by then was
    /// written: as long as the device takes for that, and under a load that it can just bear many times as long.
    /// Writers go on meanwhile; with less log they may be slowed down.
    ///
    /// The log keeps 48 bytes for each page of the buffer pool, and must be four times as large as what it keeps.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too small for the pool or for the log's buffers, or too large.
    /// [`Error::OutOfSpace`]: the files do not fit; the old ones stay. [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_redo_capacity(&self, capacity: ByteSize) -> Result<(), Error> {
        let engine = self.engine();
        let _ddl = engine.ddl();
        engine.check_open()?;
        let smallest = engine.core.log.smallest_capacity().max(REDO_PAGES_MIN * to_u64(engine.core.store.page_size()));
        if !(smallest..=CAPACITY_MAX).contains(&capacity.as_u64()) {
            let message = format!(
                "redo_capacity is {capacity}: use {} to 1TiB while the database is open; reopening it allows less",
                ByteSize::b(smallest)
            );
            return Err(Error::InvalidOptions(message.into()));
        }
        change_redo_capacity(engine, capacity.as_u64())
    }

    /// Has recoveries take no longer than this, about, from 1 s to an hour, or as long as the log's capacity makes them
    /// ([`Options::recovery_time_target`](crate::Options::recovery_time_target)). Waits for nothing: the log becomes
    /// shorter little by little, by half in seven seconds while pages are written in time, in forty while they are not.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too short or too long. [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_recovery_time_target(&self, target: Option<Duration>) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_open()?;
        target.map_or(Ok(()), validate_recovery_time).map_err(|mistake| Error::InvalidOptions(mistake.into()))?;
        engine.recovery_time.set(target);
        Ok(())
    }

    /// Gives the buffer pool another size, between 32 pages for each instance and
    /// [`buffer_pool_size_max`](crate::Options::buffer_pool_size_max), while the database is in use. Waits on
    /// `checkpoint`.
    ///
    /// A larger one is there on return. With a smaller one the pages beyond its end are written and leave; those
    /// in use at that moment a little later.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: too small or too large. [`Error::DeviceFailed`]: the system has no memory to map.
    /// [`Error::ReadOnly`] when the engine has stopped.
    pub fn set_buffer_pool_size(&self, size: ByteSize) -> Result<(), Error> {
        let engine = self.engine();
        engine.check_open()?;
        let page_size = to_u64(engine.core.store.page_size());
        let frames = size.as_u64() / page_size;
        let least = FRAMES_MIN * to_u64(engine.core.pool.instance_count());
        if !(least..=engine.frames_max).contains(&frames) {
            let message = format!(
                "buffer_pool_size is {size}: use {} ({least} pages) to {} (buffer_pool_size_max) while the database is open",
                ByteSize::b(least * page_size),
                ByteSize::b(engine.frames_max * page_size)
            );
            return Err(Error::InvalidOptions(message.into()));
        }
        // Here, and not in the keeper: who has no memory is told so, and nothing else stops.
        engine.core.pool.make_frames(to_usize(frames))?;
        engine.checkpoint_wait(Wish::Pool(frames))
    }
}

/// Makes a new ring of files and has the keeper go over to it.
pub(super) fn change_redo_capacity(engine: &Engine, capacity: u64) -> Result<(), Error> {
    if engine.core.log.geometry().1.is_some() {
        // An earlier change that a crash interrupted ends with a checkpoint.
        engine.checkpoint_wait(Wish::All)?;
    }
    let (now, _) = engine.core.log.geometry();
    if engine.core.log.geometry().1.is_some() {
        let message = "the last change of redo_capacity has not ended yet: try again later";
        return Err(Error::InUse(message.into()));
    }
    let geometry = Geometry::of(now.generation.wrapping_add(1), capacity);
    if geometry.payload_bytes == now.payload_bytes {
        return Ok(());
    }
    let files = engine.files.lock().clone().ok_or_else(closed)?;
    let owner = engine.core.store.superblock().owner();
    let ring = match Ring::create(&*files, owner, geometry) {
        Ok(ring) => ring,
        Err(error) => {
            // Nothing names them; what cannot be removed now is removed at the next open.
            let _ = remove_ring(&*files, geometry.generation);
            return Err(error);
        }
    };
    files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))?;
    engine.checkpoint_wait(Wish::Ring(ring))
}
