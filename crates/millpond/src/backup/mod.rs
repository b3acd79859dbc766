//! Hot backups: a copy of a database at one LSN, made while writers go on, and its restoration.
//!
//! A backup has the files of a database as a crash at that LSN would leave them: the images of all pages, the map that
//! names them, the log from the last checkpoint to the LSN, and the superblocks. An open would recover it as after a
//! crash. It has a manifest, too, and with it no open for writing takes it: a backup stays what it is, and is restored
//! to another directory.
//!
//! BACKUP-4  The superblocks are written after everything else is durable, and the manifest after them. So a directory
//!           with a manifest has a whole backup, and one without is none.
//!
//! BACKUP-1 to 3 are in [`crate::store::frozen`].

pub(crate) mod copy;
pub(crate) mod manifest;
pub(crate) mod moment;
pub(crate) mod options;
pub(crate) mod rate;
pub(crate) mod restore;
pub(crate) mod target;
