//! Makes a backup: has the map frozen, then copies the log, the images and the map.

use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;

use crate::background::log_resize::grow_now;
use crate::backup::manifest::Manifest;
use crate::backup::moment::Moment;
use crate::backup::options::{BackupReport, WorkOptions};
use crate::backup::rate::Pace;
use crate::backup::target::{check_empty, mark_unfinished, refuse_used, remove_all, sync_names, verify};
use crate::base::aligned::{BLOCK, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::engine::Engine;
use crate::io::device::Files;
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::redo::files::{Lap, LogFiles, Ring};
use crate::store::frozen::{PIECE, finish_data};

/// Backs up to a new or an empty directory.
pub(crate) fn back_up_to(engine: &Arc<Engine>, to: &Path, options: WorkOptions) -> Result<BackupReport, Error> {
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
    mut options: WorkOptions,
) -> Result<BackupReport, Error> {
    engine.check_changeable()?;
    check_empty(files)?;
    loop {
        let (made, lost_log) = match Moment::hold(engine) {
            Ok(moment) => (moment.copy(files, &mut options), moment.lost_log.get()),
            Err(error) => (Err(error), false),
        };
        let Err(error) = made else { return made };
        // What cannot be removed has no manifest.
        let removed = remove_all(files);
        // A log that begins small may be too short for a backup beside the load.
        if !lost_log || removed.is_err() || !grow_now(engine)? {
            return Err(error);
        }
    }
}

impl Moment<'_> {
    fn copy(&self, files: &dyn Files, options: &mut WorkOptions) -> Result<BackupReport, Error> {
        let engine = self.engine;
        engine.core.log.flush_wait(self.lsn)?;
        self.check_room(files)?;
        mark_unfinished(files)?;
        let mut pace = Pace::new(engine, options);
        let log_bytes = self.copy_log(files, &mut pace, options)?;
        if !engine.end_log_hold() {
            return Err(self.log_needed(files));
        }
        let data = self.frozen.create_data(files)?;
        let mut pages = 0;
        self.each_piece(&mut pace, options, 0, |piece, read, bytes| {
            let read = read?;
            pages += read.images;
            match read.damage.into_iter().next() {
                None => self.frozen.write_piece(&*data, piece, &bytes[..read.end]),
                Some(damage) => Err(damage),
            }
        })?;
        let superblocks = self.frozen.write_map(files, self.lsn)?;
        sync_names(files)?;
        // BACKUP-4
        finish_data(&*data, &superblocks)?;
        verify(files, &mut |bytes| pace.wait(bytes, || options.tell(self.bytes(), self.bytes())))?;
        let manifest = Manifest { uuid: self.frozen.superblock.uuid, lsn: self.lsn, pages, log_bytes };
        manifest.write(files)?;
        Ok(manifest.report())
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
        self.lost_log.set(true);
        let message = format!(
            "the backup was given up: writers needed the room of the log before it was copied to '{}': back up to a faster device, or give it a larger one (Db::set_redo_capacity)",
            files.place()
        );
        self.engine.check_usable().err().unwrap_or_else(|| Error::out_of_space(message))
    }

    /// Copies the log from the checkpoint to the backup's LSN, to a ring of the same size. Returns its length.
    fn copy_log(&self, files: &dyn Files, pace: &mut Pace<'_>, options: &mut WorkOptions) -> Result<u64, Error> {
        let (from, superblock) = (self.frozen.superblock.checkpoint_lsn, &self.frozen.superblock);
        let log = self.engine.core.log.files();
        let ring = Ring::reserve(files, superblock.owner(), superblock.redo)?;
        let lap = Lap { boundary: from, first_group: from, nonce: superblock.nonce };
        ring.write_lap(&lap)?;
        let to = LogFiles::new(ring, None);
        log.copy_laps(&to, from, self.lsn)?;
        let end = round_up(self.lsn.0);
        let mut buf = aligned(PIECE);
        let mut at = round_down(from.0);
        while at < end {
            let piece = &mut buf[..to_usize((end - at).min(to_u64(PIECE)))];
            log.read(piece, Lsn(at))?;
            self.check_held()?;
            if !self.holds_log() {
                return Err(self.log_needed(files));
            }
            // Groups behind the backup's LSN are not in it.
            let whole = to_usize(self.lsn.0 - at).min(piece.len());
            piece[whole..].fill(0);
            to.write(piece, Lsn(at))?;
            at += to_u64(piece.len());
            pace.wait_unless(piece.len(), || {
                options.tell(0, self.bytes())?;
                Ok(self.is_urgent(Lsn(at)))
            })?;
        }
        to.sync_all()?;
        Ok(self.lsn.since(from))
    }
}

const _: () = assert!(PIECE.is_multiple_of(BLOCK));
