//! The lock of a database's directory: for one writing process, or for any number of reading ones.
//!
//! LOCK-1  Two files carry the lock: the directory, and `lock.mpd` in it. A lock file that was removed and created
//!         again is another file. On a file system that cannot lock a directory, only the lock file carries the lock.
//! LOCK-2  The permissions of `lock.mpd` apply before any lock is tried: a user that may not open it cannot lock others
//!         out.
//! LOCK-3  A writer notes its process id in `lock.mpd`, and removes the note when it closes. The note is a hint for
//!         people: no code relies on it.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::lock_holders::{Holder, find_holders, sentence};
use crate::base::error::Error;

/// The file whose lock marks the database as open.
pub(crate) const LOCK_FILE: &str = "lock.mpd";

/// The locked files of a directory.
pub(super) struct DirectoryLock {
    file: File,
    /// Whether the file notes this process's id (LOCK-3).
    is_noted: bool,
    /// Whether this open created the file.
    pub(super) is_new: bool,
}

impl DirectoryLock {
    /// Locks directory `dir`, called `path` in messages: shared for readers, exclusively for a writer.
    pub(super) fn take(dir: &File, path: &Path, access: Access, mode: Mode) -> Result<DirectoryLock, Error> {
        let (file, is_new) = open_lock_file(dir, path, access, mode)?;
        let mut tries = 0;
        loop {
            match try_lock(dir, &file, access) {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let holders = find_holders([&file, dir]);
                    tries += 1;
                    // If no holder is visible, it may just have closed: tries once more.
                    if !holders.is_empty() || tries == 2 {
                        return Err(in_use(path, &holders, &file));
                    }
                }
                Err(TryLockError::Error(e)) => {
                    return Err(Error::io(&format!("lock '{LOCK_FILE}' in '{}'", path.display()), e));
                }
            }
        }
        if is_new {
            // Synced before any other file is created. Otherwise, after a loss of power, remaining files would look
            // like a database that lost its lock file.
            dir.sync_all().map_err(|e| Error::io(&format!("sync directory '{}'", path.display()), e))?;
        }
        let is_noted = access != Access::Read;
        if is_noted {
            // A full disk refuses the note; then only `/proc` names the holder.
            let note = format!("{}\n", std::process::id());
            let _ = file.set_len(0).and_then(|()| file.write_all_at(note.as_bytes(), 0));
        }
        Ok(DirectoryLock { file, is_noted, is_new })
    }

    /// Releases the lock, also for forked processes, which share its open files.
    pub(super) fn release(&self, dir: &File) {
        if self.is_noted {
            let _ = self.file.set_len(0);
        }
        // If this fails, closing the files releases the locks.
        let _ = self.file.unlock();
        let _ = dir.unlock();
    }
}

fn open_lock_file(dir: &File, path: &Path, access: Access, mode: Mode) -> Result<(File, bool), Error> {
    let open = |flags| rustix::io::retry_on_intr(|| rustix::fs::openat(dir, LOCK_FILE, flags | OFlags::CLOEXEC, mode));
    let opened = match access {
        Access::Read => open(OFlags::RDONLY).map(|file| (file, false)),
        Access::Write => open(OFlags::RDWR).map(|file| (file, false)),
        Access::Create => match open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => Ok((file, true)),
            // Without `EXCL`: the file may have been removed since.
            Err(rustix::io::Errno::EXIST) => open(OFlags::RDWR | OFlags::CREATE).map(|file| (file, false)),
            Err(errno) => Err(errno),
        },
    };
    match opened {
        Ok((file, is_new)) => Ok((file.into(), is_new)),
        Err(rustix::io::Errno::NOENT) => Err(without_lock_file(path)),
        Err(errno) => Err(Error::io(&format!("open '{LOCK_FILE}' in '{}'", path.display()), errno.into())),
    }
}

fn without_lock_file(path: &Path) -> Error {
    let ours = |entry: io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.path().extension() == Some(OsStr::new("mpd")))
    };
    if std::fs::read_dir(path).is_ok_and(|mut entries| entries.any(ours)) {
        let message = format!(
            "file '{LOCK_FILE}' is missing in '{}', where other files of a database are: if no process has it open, make an empty file of that name",
            path.display()
        );
        return Error::Corruption(message.into());
    }
    let message = format!("'{}' is not a Millpond database: it has no file '{LOCK_FILE}'", path.display());
    Error::Format(message.into())
}

fn try_lock(dir: &File, file: &File, access: Access) -> Result<(), TryLockError> {
    let lock = |file: &File| if access == Access::Read { file.try_lock_shared() } else { file.try_lock() };
    match lock(dir) {
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        // LOCK-1: not every file system locks directories.
        _ => lock(file).inspect_err(|_| {
            let _ = dir.unlock();
        }),
    }
}

fn in_use(path: &Path, holders: &[Holder], file: &File) -> Error {
    let mut note = [0; 16];
    let len = file.read_at(&mut note, 0).unwrap_or(0);
    let noted = std::str::from_utf8(&note[..len]).ok().and_then(|text| text.trim().parse().ok());
    let message =
        format!("database '{}' is in use by {}: close it there first", path.display(), sentence(holders, noted));
    Error::InUse(message.into())
}

/// What a directory is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Inspection only: nothing is written.
    Read,
    /// An existing database.
    Write,
    /// An existing database, or a new one.
    Create,
}
