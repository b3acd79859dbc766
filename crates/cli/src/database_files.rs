//! The files of a Millpond database, for commands that make one and remove it again.
//!
//! Only regular files with one of the engine's names are ever removed. If anything else is in the directory, the
//! directory stays, too.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde::Serialize;
use workload::probe;

use crate::exit::{Failure, without_temporary_name};

/// How the names of the engine's files begin; all end in `.mpd`.
const PREFIXES: [&str; 7] = ["data", "doublewrite", "map", "directory-", "redo-", "sort-", "lock"];

/// Remains after a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing.
    Nothing,
    /// The directory, with files that are not the database's.
    OtherFiles,
}

/// Sizes of a database's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Bytes {
    /// Of the data file.
    pub(crate) data_bytes: u64,
    /// Of the log's files.
    pub(crate) log_bytes: u64,
    /// Of all others: map, directories.
    pub(crate) other_bytes: u64,
}

/// Sizes of the files of the database in `dir`; unreadable files are left out.
pub(crate) fn bytes(dir: &Path) -> Bytes {
    let mut bytes = Bytes::default();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let (Some(name), Ok(metadata)) = (name.to_str(), entry.metadata()) else { continue };
        if !is_database_file(name) {
            continue;
        }
        let sum = match name {
            name if name.starts_with("data") => &mut bytes.data_bytes,
            name if name.starts_with("redo-") => &mut bytes.log_bytes,
            _ => &mut bytes.other_bytes,
        };
        *sum += metadata.len();
    }
    bytes
}

/// Whether `dir` does not exist, or is an empty directory.
///
/// # Errors
/// It cannot be read.
pub(crate) fn is_vacant(dir: &Path) -> Result<bool, Failure> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::NotADirectory => {
            Err(Failure::message(format!("'{}' is no directory: name another with --dir", dir.display())))
        }
        Err(cause) => Err(Failure::message(format!(
            "cannot read directory '{}': {cause}; name another with --dir, or give this user access to it",
            dir.display()
        ))),
    }
}

/// Makes `dir` ready for a test's own database: it is new or empty, and files can be made in it.
///
/// # Errors
/// Something is in it, or it cannot be read, or written to.
pub(crate) fn make_vacant(dir: &Path) -> Result<(), Failure> {
    if !is_vacant(dir)? {
        return Err(Failure::message(format!(
            "'{}' is not empty; name a new directory with --dir, or remove what an earlier test left there",
            dir.display()
        )));
    }
    make_writable(dir)
}

/// Creates `dir` if it is missing, for its owner alone as the engine does, and tests that a file can be created in it.
///
/// # Errors
/// The directory cannot be created, or no file in it.
pub(crate) fn make_writable(dir: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let tried = made.and_then(|()| tempfile::tempfile_in(dir).map(drop));
    tried.map_err(|cause| {
        Failure::message(format!(
            "cannot make files in '{}': {}; name another directory, or give this user access to it",
            dir.display(),
            without_temporary_name(&cause)
        ))
    })
}

/// Removes the database in `dir`, and `dir` itself if nothing else is in it.
///
/// # Errors
/// A file could not be removed.
pub(crate) fn remove(dir: &Path) -> Result<Left, Failure> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Left::Nothing),
        Err(cause) => return Err(cannot("read directory", dir, &cause)),
    };
    let mut left = Left::Nothing;
    for entry in entries {
        let entry = entry.map_err(|cause| cannot("read directory", dir, &cause))?;
        let is_file = entry.file_type().map_err(|cause| cannot("look at", &entry.path(), &cause))?.is_file();
        if is_file && entry.file_name().to_str().is_some_and(is_database_file) {
            fs::remove_file(entry.path()).map_err(|cause| cannot("remove", &entry.path(), &cause))?;
        } else {
            left = Left::OtherFiles;
        }
    }
    if left == Left::Nothing {
        fs::remove_dir(dir).map_err(|cause| cannot("remove", dir, &cause))?;
    }
    Ok(left)
}

fn is_database_file(name: &str) -> bool {
    name == probe::FILE_NAME || (name.ends_with(".mpd") && PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

fn cannot(deed: &str, path: &Path, cause: &io::Error) -> Failure {
    Failure::message(format!("cannot {deed} '{}': {cause}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn database_goes_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        fs::create_dir(&db).unwrap();
        for name in [
            "data.mpd",
            "doublewrite.mpd",
            "data-new.mpd",
            "map.mpd",
            "directory-1.mpd",
            "redo-1-2.mpd",
            "lock.mpd",
            "notes.txt",
            "mine.mpd",
        ] {
            fs::write(db.join(name), b"x").unwrap();
        }
        fs::create_dir(db.join("data-folder.mpd")).unwrap();
        assert!(!is_vacant(&db).unwrap());
        assert_eq!(remove(&db).unwrap(), Left::OtherFiles);
        let mut names: Vec<_> = fs::read_dir(&db).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["data-folder.mpd", "mine.mpd", "notes.txt"]);
    }

    #[test]
    fn bytes_are_counted_by_the_files_names() {
        let dir = tempfile::tempdir().unwrap();
        for (name, length) in [("data.mpd", 3), ("map.mpd", 5), ("redo-1-2.mpd", 7), ("redo-1-3.mpd", 11), ("x", 13)] {
            fs::write(dir.path().join(name), vec![0; length]).unwrap();
        }
        assert_eq!(bytes(dir.path()), Bytes { data_bytes: 3, log_bytes: 18, other_bytes: 5 });
        assert_eq!(bytes(&dir.path().join("none")), Bytes::default());
    }

    #[test]
    fn vacant_directory_is_made_and_what_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("a/b");
        make_writable(&made).unwrap();
        assert!(is_vacant(&made).unwrap());
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        let file = dir.path().join("file");
        fs::write(&file, b"x").unwrap();
        for wrong in [file.clone(), file.join("x")] {
            assert!(is_vacant(&wrong).is_err() && make_writable(&wrong).is_err(), "{}", wrong.display());
        }
    }

    #[test]
    fn directory_goes_with_the_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        assert!(is_vacant(&db).unwrap());
        fs::create_dir(&db).unwrap();
        assert!(is_vacant(&db).unwrap());
        fs::write(db.join("lock.mpd"), b"").unwrap();
        assert_eq!(remove(&db).unwrap(), Left::Nothing);
        assert!(!db.exists());
        assert_eq!(remove(&db).unwrap(), Left::Nothing);
    }
}
