//! Makes a backup: has the map frozen, then copies the log, the images and the map.

use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;

use crate::backup::manifest::Manifest;
use crate::backup::options::{BackupOptions, BackupReport};
use crate::backup::target::{check_empty, mark_unfinished, refuse_used, remove_all, sync_names, verify};
use crate::base::aligned::{BLOCK, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::clock;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank, sleep_until};
use crate::engine::{CheckpointGoal, Engine, Freeze, FreezeInto};
use crate::io::device::{Device, Files};
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::redo::files::{Lap, LogFiles, Ring};
use crate::store::frozen::{Frozen, finish_data};
use crate::store::zones::ZONE_BYTES;

/// Attempts to begin beside a change of the log's capacity, each behind a checkpoint.
const TRIES: u32 = 10;

/// Bytes of log in one transfer.
const LOG_PIECE: usize = 1 << 20;

/// Time between two looks whether writes in place have ended.
const LOOK_NS: u64 = 1_000_000;

/// A frozen map. Dropping it ends the pins, and the hold on the log.
struct Backup<'e> {
    engine: &'e Arc<Engine>,
    frozen: Box<Frozen>,
    lsn: Lsn,
}

impl Drop for Backup<'_> {
    fn drop(&mut self) {
        // Before the pins: another backup begins once they are gone, and has a hold of its own.
        self.engine.end_log_hold();
        self.engine.core.store.thaw();
    }
}

/// Backs up to a new or an empty directory.
pub(crate) fn back_up_to(engine: &Arc<Engine>, to: &Path, options: BackupOptions) -> Result<BackupReport, Error> {
    refuse_used(to)?;
    let directory = Arc::new(Directory::open(to, HowToOpen::new(Access::Create, false))?);
    let made = back_up(engine, &*directory, options);
    match made {
        Ok(_) => directory.release(),
        Err(_) => directory.take_back(),
    }
    made
}

/// Backs up to `files`, which are none yet.
pub(crate) fn back_up(
    engine: &Arc<Engine>,
    files: &dyn Files,
    mut options: BackupOptions,
) -> Result<BackupReport, Error> {
    engine.check_changeable()?;
    check_empty(files)?;
    let made = Backup::begin(engine).and_then(|mut backup| backup.copy(files, &mut options));
    // What cannot be removed has no manifest.
    made.inspect_err(|_| _ = remove_all(files))
}

impl<'e> Backup<'e> {
    /// Has the keeper freeze the map.
    fn begin(engine: &'e Arc<Engine>) -> Result<Backup<'e>, Error> {
        for _ in 0..TRIES {
            // The log is kept from the newest superblock on.
            engine.checkpoint_wait(CheckpointGoal::Superblock)?;
            let into: FreezeInto = Arc::new(Mutex::new(Rank::Handoff, None));
            engine.checkpoint_wait(CheckpointGoal::Freeze(Arc::clone(&into)))?;
            let answer = into.lock().take();
            match answer {
                Some(Freeze::Frozen(frozen, lsn)) => return Ok(Backup { engine, frozen, lsn }),
                Some(Freeze::Busy) => {
                    let message = "another backup of this database is being made: wait for its end, and try again";
                    return Err(Error::InUse(message.into()));
                }
                Some(Freeze::Moving) | None => engine.checkpoint_wait(CheckpointGoal::All)?,
            }
        }
        Err(Error::InUse("the log's capacity is being changed: back up when that has ended".into()))
    }

    fn copy(&mut self, files: &dyn Files, options: &mut BackupOptions) -> Result<BackupReport, Error> {
        let engine = self.engine;
        engine.core.log.flush_wait(self.lsn)?;
        self.check_room(files)?;
        mark_unfinished(files)?;
        let log_bytes = self.copy_log(files, options)?;
        if !engine.end_log_hold() {
            return Err(self.log_needed(files));
        }
        let data = self.frozen.create_data(files)?;
        let pages = self.copy_pages(&*data, options)?;
        let superblocks = self.frozen.write_map(files, self.lsn)?;
        sync_names(files)?;
        // BACKUP-4
        finish_data(&*data, &superblocks)?;
        verify(files)?;
        let manifest = Manifest { uuid: self.frozen.superblock.uuid, lsn: self.lsn, pages, log_bytes };
        manifest.write(files)?;
        Ok(manifest.report())
    }

    /// An error if the bytes read last may not be those of the frozen database: the pins are broken, or the database
    /// was closed, after which another process may change its files.
    fn check_held(&self) -> Result<(), Error> {
        self.engine.check_usable()?;
        if self.engine.core.store.lost_pins() {
            let message = "the backup was given up: writers needed room, and the data file could not grow: free some on the file system of the database, or back up to another one, and try again";
            return Err(Error::out_of_space(message.to_owned()));
        }
        Ok(())
    }

    /// An error if the copy would fill its file system, which may be that of the database, too.
    fn check_room(&self, files: &dyn Files) -> Result<(), Error> {
        let needed = self.frozen.data_len() + self.frozen.superblock.redo.capacity();
        let needed = needed + needed / 16;
        match files.free_bytes() {
            Some(free) if free < needed => {
                let (needed, free) = (ByteSize::b(needed), ByteSize::b(free));
                let place = files.place();
                let message = format!(
                    "a backup to '{place}' needs {needed}, and {free} are free on that file system: free some, or name a directory on another one"
                );
                Err(Error::out_of_space(message))
            }
            _ => Ok(()),
        }
    }

    /// The error after the keeper has broken the hold on the log.
    fn log_needed(&self, files: &dyn Files) -> Error {
        let message = format!(
            "the backup was given up: writers needed the room of the log before it was copied to '{}': back up to a faster device, or set a larger redo_capacity",
            files.place()
        );
        self.engine.check_usable().err().unwrap_or_else(|| Error::out_of_space(message))
    }

    /// Copies the log from the checkpoint to the backup's LSN, to a ring of the same size. Returns its length.
    fn copy_log(&self, files: &dyn Files, options: &mut BackupOptions) -> Result<u64, Error> {
        let (from, superblock) = (self.frozen.superblock.checkpoint_lsn, &self.frozen.superblock);
        let log = self.engine.core.log.files();
        let ring = Ring::reserve(files, superblock.owner(), superblock.redo)?;
        let lap = Lap { boundary: from, first_group: from, nonce: superblock.nonce };
        ring.write_lap(&lap)?;
        let to = LogFiles::new(ring, None);
        log.copy_laps(&to, from, self.lsn)?;
        let end = round_up(self.lsn.0);
        let mut buf = aligned(LOG_PIECE);
        let mut at = round_down(from.0);
        while at < end {
            let piece = &mut buf[..to_usize((end - at).min(to_u64(LOG_PIECE)))];
            log.read(piece, Lsn(at))?;
            self.check_held()?;
            if self.engine.log_hold.lock().is_none() {
                return Err(self.log_needed(files));
            }
            // Groups behind the backup's LSN are not in it.
            let whole = to_usize(self.lsn.0 - at).min(piece.len());
            piece[whole..].fill(0);
            to.write(piece, Lsn(at))?;
            at += to_u64(piece.len());
            options.tell(0, self.frozen.zones)?;
        }
        to.sync_all()?;
        Ok(self.lsn.since(from))
    }

    /// Copies the images of all pages. Returns their number.
    fn copy_pages(&self, data: &dyn Device, options: &mut BackupOptions) -> Result<u64, Error> {
        let (store, zones) = (&self.engine.core.store, self.frozen.zones);
        while !store.is_at_rest() {
            sleep_until(clock::now_ns() + LOOK_NS);
            self.check_held()?;
        }
        let mut pace = Pace::new(options.rate_on(self.engine.write_capacity()));
        let named = self.frozen.named_slots();
        let (mut buf, mut pages) = (aligned(ZONE_BYTES), 0);
        for zone in 0..zones {
            let read = store.read_frozen(&self.frozen, zone, &named, &mut buf);
            self.check_held()?;
            let (count, end) = read?;
            if count > 0 {
                self.frozen.write_zone(data, zone, &buf[..end])?;
                pace.wait(ZONE_BYTES);
            }
            pages += count;
            store.unpin_zone(zone);
            options.tell(zone + 1, zones)?;
        }
        Ok(pages)
    }
}

/// Keeps a rate.
struct Pace {
    per_s: u64,
    next_ns: u64,
}

impl Pace {
    fn new(per_s: u64) -> Pace {
        Pace { per_s, next_ns: clock::now_ns() }
    }

    /// Waits until `bytes` more may be copied. A delay of more than 50 ms is not made up for.
    fn wait(&mut self, bytes: usize) {
        let now_ns = clock::now_ns();
        self.next_ns =
            self.next_ns.max(now_ns.saturating_sub(1_000_000_000 / 20)) + to_u64(bytes) * 1_000_000_000 / self.per_s;
        if self.next_ns > now_ns {
            sleep_until(self.next_ns);
        }
    }
}

const _: () = assert!(LOG_PIECE.is_multiple_of(BLOCK));
