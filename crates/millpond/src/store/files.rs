//! A store's files: their names, what the names in a directory tell without a data file, and their opening.

use std::sync::Arc;

use crate::base::error::{Error, MEND_MAP};
use crate::io::device::{Device, Files};
use crate::redo::files::is_log_file;

/// The data file.
pub(crate) const DATA_FILE: &str = "data.mpd";

/// The data file while the database is being created.
pub(crate) const DATA_FILE_NEW: &str = "data-new.mpd";

/// The map file.
pub(crate) const MAP_FILE: &str = "map.mpd";

/// The two files of the map directory.
pub(crate) const DIRECTORY_FILES: [&str; 2] = ["directory-0.mpd", "directory-1.mpd"];

/// The manifest of a backup: the database beside it is one.
pub(crate) const MANIFEST: &str = "backup.mpd";

/// It marks a backup, or a restoration, that has not ended.
pub(crate) const UNFINISHED: &str = "backup-new.mpd";

/// Whether it is a file of the store, except the data file.
pub(crate) fn is_map_file(name: &str) -> bool {
    name == MAP_FILE || DIRECTORY_FILES.contains(&name)
}

/// Whether a directory with these file names is that of a database that lost its data file. The creation of a database
/// makes the name of the new data file durable before it creates map files, and renames it last. So a data file existed
/// where map files are alone.
pub(crate) fn lost_its_data_file(names: &[String]) -> bool {
    let has_data = names.iter().any(|name| name == DATA_FILE || name == DATA_FILE_NEW);
    !has_data && names.iter().any(|name| is_map_file(name))
}

/// The error for a directory with these file names, but without a data file.
pub(crate) fn without_data_file(place: &str, names: &[String]) -> Error {
    if lost_its_data_file(names) {
        let message = format!(
            "'{place}' has the map files of a database and no '{DATA_FILE}': restore it, or a backup (`millpond restore`)"
        );
        return Error::Corruption(message.into());
    }
    let cut_short = names.iter().any(|name| name == DATA_FILE_NEW || is_log_file(name));
    let more = if cut_short { "; its creation was cut short: open it with `create` to make it" } else { "" };
    Error::Format(format!("'{place}' is not a Millpond database: it has no file '{DATA_FILE}'{more}").into())
}

/// Opens a file that the store must have.
pub(super) fn open_file(files: &dyn Files, name: &str) -> Result<Arc<dyn Device>, Error> {
    files.open(name).map_err(|e| {
        if e.kind() == std::io::ErrorKind::NotFound && name == DATA_FILE {
            return match files.list() {
                Ok(names) => without_data_file(&files.place(), &names),
                Err(e) => Error::io(&format!("list '{}'", files.place()), e),
            };
        }
        if e.kind() == std::io::ErrorKind::NotFound {
            let message = format!("file '{name}' is missing in '{}': put it back, or {MEND_MAP}", files.place());
            return Error::Corruption(message.into());
        }
        Error::io(&format!("open '{name}' in '{}'", files.place()), e)
    })
}

/// The length of a file, in bytes.
pub(crate) fn len_of(file: &dyn Device) -> Result<u64, Error> {
    file.len().map_err(|e| Error::io(&format!("look at '{}'", file.name()), e))
}

/// Creates a file of a copy of a database.
pub(crate) fn create(files: &dyn Files, name: &str) -> Result<Arc<dyn Device>, Error> {
    files.create(name).map_err(|e| Error::io(&format!("create '{name}' in '{}'", files.place()), e))
}

/// Writes to a file of a copy, unless there is nothing to write.
pub(crate) fn write(file: &dyn Device, bytes: &[u8], offset: u64) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    file.write_at(bytes, offset)
        .map_err(|e| Error::io(&format!("write {} bytes at {offset} of '{}'", bytes.len(), file.name()), e))
}

/// Syncs a file of a copy.
pub(crate) fn sync(file: &dyn Device) -> Result<(), Error> {
    file.sync().map_err(|e| Error::io(&format!("sync '{}'", file.name()), e))
}
