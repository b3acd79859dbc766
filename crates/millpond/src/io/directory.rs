//! The blocking device: a directory of the file system, `pread`, `pwrite` and `fdatasync` in the caller's thread.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags};

use super::device::{Device, Files};
use crate::base::error::Error;

/// A directory on a real file system.
pub(crate) struct Directory {
    path: PathBuf,
    cached: bool,
    /// Locked for as long as the database is open.
    _lock: File,
}

/// The file whose lock says that the database is open.
pub(crate) const LOCK_FILE: &str = "lock.mpd";

impl Directory {
    /// Opens (and, if `create`, makes) the directory and takes its lock.
    pub(crate) fn open(path: &Path, cached: bool, create: bool) -> Result<Directory, Error> {
        if create {
            std::fs::create_dir_all(path)
                .map_err(|e| Error::io(&format!("create directory '{}'", path.display()), e))?;
        }
        match std::fs::metadata(path) {
            Ok(meta) if !meta.is_dir() => {
                let message = format!("'{}' is not a directory: name the directory of a database", path.display());
                return Err(Error::Format(message.into()));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let message = format!("'{}' does not exist: name the directory of a database", path.display());
                return Err(Error::Format(message.into()));
            }
            Err(e) => return Err(Error::io(&format!("look at '{}'", path.display()), e)),
        }
        let lock = Self::lock(path, create)?;
        let directory = Directory { path: path.to_owned(), cached, _lock: lock };
        Ok(directory)
    }

    fn lock(path: &Path, create: bool) -> Result<File, Error> {
        let lock_path = path.join(LOCK_FILE);
        let opened = if create {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock_path)
        } else {
            File::open(&lock_path)
        };
        let lock = opened.map_err(|e| {
            if e.kind() == io::ErrorKind::NotFound {
                let message = format!("'{}' is not a Millpond database: it has no file '{LOCK_FILE}'", path.display());
                return Error::Format(message.into());
            }
            Error::io(&format!("open '{}'", lock_path.display()), e)
        })?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(std::fs::TryLockError::WouldBlock) => {
                let message =
                    format!("database '{}' is in use by another process: close it there first", path.display());
                Err(Error::InUse(message.into()))
            }
            Err(std::fs::TryLockError::Error(e)) => Err(Error::io(&format!("lock '{}'", lock_path.display()), e)),
        }
    }

    fn open_file(&self, name: &str, create: bool) -> io::Result<Arc<dyn Device>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(create);
        if !self.cached {
            // The flag's bits are a positive int on every Linux target.
            options.custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0));
        }
        let file = options.open(&path).map_err(|e| {
            if !self.cached && e.kind() == io::ErrorKind::InvalidInput {
                return io::Error::other(format!("this file system has no O_DIRECT; open with `cached` ({e})"));
            }
            e
        })?;
        Ok(Arc::new(BlockingFile { file, name: path.display().to_string() }))
    }
}

impl Files for Directory {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.open_file(name, false)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.open_file(name, true)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

struct BlockingFile {
    file: File,
    name: String,
}

impl Device for BlockingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        let have = self.len()?;
        if len <= have {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), have, len - have) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(len),
            Err(e) => Err(e.into()),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
