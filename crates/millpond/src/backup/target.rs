//! The directory that a backup is written to, or restored to.

use crate::base::error::Error;
use crate::io::device::Files;
use crate::io::directory_lock::LOCK_FILE;

/// The manifest's file.
pub(crate) const MANIFEST: &str = "backup.mpd";

/// Refuses files beside which a backup would be made.
pub(super) fn check_empty(files: &dyn Files) -> Result<(), Error> {
    let names = list(files)?;
    match names.iter().find(|name| *name != LOCK_FILE) {
        None => Ok(()),
        Some(name) => {
            let message = format!("'{}' is not empty (it has '{name}'): name a new directory", files.place());
            Err(Error::InvalidOptions(message.into()))
        }
    }
}

pub(super) fn list(files: &dyn Files) -> Result<Vec<String>, Error> {
    files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))
}

/// Removes all files but the lock's; the manifest first.
pub(super) fn remove_all(files: &dyn Files) -> std::io::Result<()> {
    let mut names = files.list()?;
    names.sort_unstable_by_key(|name| name != MANIFEST);
    names.iter().filter(|name| *name != LOCK_FILE).try_for_each(|name| files.remove(name))
}

pub(super) fn sync_names(files: &dyn Files) -> Result<(), Error> {
    files.sync_names().map_err(|e| Error::io(&format!("sync directory '{}'", files.place()), e))
}
