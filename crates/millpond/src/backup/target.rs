//! The directory that a backup is written to, or restored to.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::base::error::Error;
use crate::io::device::Files;
use crate::io::directory_lock::LOCK_FILE;
use crate::recovery::{Rest, analyse};
use crate::redo::dirty_counts::DirtyCounts;
use crate::redo::files::LogFiles;
use crate::store::files::UNFINISHED;
use crate::store::page_store::PageStore;

/// Frames for which the table of pages is made while the log is verified.
const FRAMES: usize = 1024;

/// Refuses files beside which a backup would be made.
pub(super) fn check_empty(files: &dyn Files) -> Result<(), Error> {
    match list(files)?.iter().find(|name| *name != LOCK_FILE) {
        None => Ok(()),
        Some(name) => Err(used(&files.place(), name)),
    }
}

pub(super) fn list(files: &dyn Files) -> Result<Vec<String>, Error> {
    files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))
}

/// Removes all files but the lock's; the mark that it is unfinished last.
pub(super) fn remove_all(files: &dyn Files) -> std::io::Result<()> {
    let mut names = files.list()?;
    names.sort_unstable_by_key(|name| name == UNFINISHED);
    names.iter().filter(|name| *name != LOCK_FILE).try_for_each(|name| files.remove(name))
}

pub(super) fn sync_names(files: &dyn Files) -> Result<(), Error> {
    files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))
}

/// Refuses a directory with files, before anything is made or changed in it, such as the lock file. The process that
/// gets the lock looks again.
pub(super) fn refuse_used(path: &Path) -> Result<(), Error> {
    // An unreadable one, or none, is the open's to report.
    let names = std::fs::read_dir(path).into_iter().flatten().flatten();
    match names.map(|entry| entry.file_name()).find(|name| name != LOCK_FILE) {
        None => Ok(()),
        Some(name) => Err(used(&path.display().to_string(), &name.to_string_lossy())),
    }
}

fn used(place: &str, name: &str) -> Error {
    Error::InvalidOptions(format!("'{place}' is not empty (it has '{name}'): name a new directory").into())
}

/// Marks the directory as that of a backup, or a restoration, that has not ended: no open takes it. Durable on return.
pub(super) fn mark_unfinished(files: &dyn Files) -> Result<(), Error> {
    files.create(UNFINISHED).map_err(|e| Error::io(&format!("create '{UNFINISHED}' in '{}'", files.place()), e))?;
    sync_names(files)
}

/// Verifies the files of a database that would be recovered: superblocks, directories, map pages, and the log up to the
/// end that the newest superblock names. `rest` is called between parts of the log, with their bytes.
pub(super) fn verify(files: &dyn Files, rest: Rest<'_>) -> Result<(), Error> {
    let counts = Arc::new(DirtyCounts::default());
    let (store, _) = PageStore::open(files, Arc::clone(&counts))?;
    let superblock = store.superblock();
    let log = LogFiles::open(files, superblock.owner(), superblock.redo, superblock.switch)?;
    counts.make_for(log.capacity());
    analyse(&log, &superblock, &store, &counts, (FRAMES, BTreeSet::new()), rest).map(drop)
}
