//! The real device: a directory of the file system. `pread`, `pwrite` and `fdatasync` in the caller's thread, and
//! batches of reads or writes that are under way together.
//!
//! DIR-1  After the open, every file is found through the directory's descriptor: a process that changes its working
//!        directory, or a directory that is renamed, does not take the files away.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FallocateFlags, Mode, OFlags};

use super::batch::{Batches, IoEngine};
use super::device::{Device, Files, ReadPiece, WritePiece};
use crate::base::error::Error;
use crate::base::laws;

/// A directory on a real file system.
pub(crate) struct Directory {
    /// As the caller gave it. For messages only (DIR-1).
    path: PathBuf,
    cached: bool,
    access: Access,
    batches: Arc<Batches>,
    /// The directory itself, locked for as long as the database is open.
    dir: File,
    /// The lock file, locked as long.
    lock: File,
}

/// What a directory is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Only to look: nothing is written.
    Read,
    /// A database that is there.
    Write,
    /// One that is there, or will be.
    Create,
}

/// The file whose lock says that the database is open.
pub(crate) const LOCK_FILE: &str = "lock.mpd";

impl Directory {
    /// Opens (and for [`Access::Create`] makes) the directory and takes its lock.
    pub(crate) fn open(path: &Path, cached: bool, access: Access, engine: IoEngine) -> Result<Directory, Error> {
        let batches = Batches::new(engine).map_err(|e| {
            let message = format!("io_engine = io_uring cannot be had here ({e}): leave io_engine at auto");
            Error::InvalidOptions(message.into())
        })?;
        if access == Access::Create {
            create_durably(path).map_err(|e| {
                use io::ErrorKind::{AlreadyExists, NotADirectory, NotFound};
                if matches!(e.kind(), NotFound | NotADirectory | AlreadyExists) {
                    let message = format!(
                        "'{}' is no directory and cannot be made one ({e}): name the directory of a database, or a new one",
                        path.display()
                    );
                    return Error::Format(message.into());
                }
                Error::io(&format!("create directory '{}'", path.display()), e)
            })?;
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
        let [lock, dir] = Self::lock(path, access)?;
        Ok(Directory { path: path.to_owned(), cached, access, batches: Arc::new(batches), dir, lock })
    }

    fn lock(path: &Path, access: Access) -> Result<[File; 2], Error> {
        let lock_path = path.join(LOCK_FILE);
        let opened = if access == Access::Create {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock_path)
        } else {
            File::open(&lock_path)
        };
        // The directory itself, too: a lock file that was removed and made anew is another file. File systems that
        // cannot lock a directory have the lock file alone.
        let directory = File::open(path).map_err(|e| Error::io(&format!("open '{}'", path.display()), e))?;
        let lock = opened.map_err(|e| {
            if e.kind() == io::ErrorKind::NotFound {
                let ours = |entry: io::Result<std::fs::DirEntry>| {
                    entry.is_ok_and(|entry| entry.path().extension() == Some(OsStr::new("mpd")))
                };
                if std::fs::read_dir(path).is_ok_and(|mut entries| entries.any(ours)) {
                    let message = format!(
                        "file '{LOCK_FILE}' is missing in '{}', where other files of a database are: if nobody has it open, make an empty file of that name",
                        path.display()
                    );
                    return Error::Corruption(message.into());
                }
                let message = format!("'{}' is not a Millpond database: it has no file '{LOCK_FILE}'", path.display());
                return Error::Format(message.into());
            }
            Error::io(&format!("open '{}'", lock_path.display()), e)
        })?;
        let locked = match directory.try_lock() {
            Err(std::fs::TryLockError::WouldBlock) => Err(std::fs::TryLockError::WouldBlock),
            _ => lock.try_lock(),
        };
        match locked {
            Ok(()) => Ok([lock, directory]),
            Err(std::fs::TryLockError::WouldBlock) => {
                let message = format!(
                    "database '{}' is in use, by another process or by this one: close it there first",
                    path.display()
                );
                Err(Error::InUse(message.into()))
            }
            Err(std::fs::TryLockError::Error(e)) => Err(Error::io(&format!("lock '{}'", lock_path.display()), e)),
        }
    }

    fn open_file(&self, name: &str, create: bool) -> io::Result<Arc<dyn Device>> {
        let mut flags = OFlags::CLOEXEC;
        flags |= if self.access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
        if create {
            flags |= OFlags::CREATE | OFlags::TRUNC;
        }
        if !self.cached {
            flags |= OFlags::DIRECT;
        }
        let open = || rustix::fs::openat(&self.dir, name, flags, Mode::from_raw_mode(0o666));
        let file = rustix::io::retry_on_intr(open).map_err(|errno| {
            let error = io::Error::from(errno);
            if !self.cached && error.kind() == io::ErrorKind::InvalidInput {
                return io::Error::other(format!("this file system has no O_DIRECT; open with `cached` ({error})"));
            }
            error
        })?;
        let name = self.path.join(name).display().to_string();
        Ok(Arc::new(RealFile { file: file.into(), batches: Arc::clone(&self.batches), name }))
    }
}

/// The names in a directory that has no lock file, none if it is not there; `None` if it has one, or cannot be listed:
/// opening tells why.
pub(crate) fn names_without_lock(path: &Path) -> Option<Vec<String>> {
    let names = match File::open(path).and_then(|dir| list(&dir)) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(_) => return None,
    };
    // Behind the list: who makes a database makes this file first, so of its files none is in a list without it.
    (!path.join(LOCK_FILE).exists()).then_some(names)
}

/// The names in a directory, in order.
fn list(dir: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Makes a directory and all above it, and each durable in the one that holds it: a database in a directory whose
/// name a crash takes away is lost as a whole.
fn create_durably(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).count();
    std::fs::create_dir_all(path)?;
    // At least its own parent: an earlier try may have made the directory and not come this far.
    for dir in path.ancestors().take(missing.max(1)) {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match File::open(parent) {
            Ok(parent) => parent.sync_all()?,
            // A directory that may be written and not read cannot be synced; the file system's own timer must do.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl Files for Directory {
    fn open(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.open_file(name, false)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn Device>> {
        self.open_file(name, true)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        list(&self.dir)
    }

    fn sync_names(&self) -> io::Result<()> {
        laws::check_io();
        self.dir.sync_all()
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn release(&self) {
        for locked in [&self.lock, &self.dir] {
            // The locks go with the last handle at the latest.
            let _ = locked.unlock();
        }
    }

    fn io_engine(&self) -> &'static str {
        self.batches.name()
    }
}

struct RealFile {
    file: File,
    batches: Arc<Batches>,
    name: String,
}

impl Device for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        laws::check_io();
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        laws::check_io();
        self.file.write_all_at(buf, offset)
    }

    fn read_many(&self, reads: &mut [ReadPiece<'_>]) -> Vec<io::Result<()>> {
        laws::check_io();
        self.batches.read(&self.file, reads)
    }

    fn write_many(&self, writes: &[WritePiece<'_>]) -> Vec<io::Result<()>> {
        laws::check_io();
        self.batches.write(&self.file, writes)
    }

    fn sync(&self) -> io::Result<()> {
        laws::check_io();
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        laws::check_io();
        let have = self.len()?;
        if len <= have {
            return Ok(());
        }
        let allocate = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), have, len - have);
        match rustix::io::retry_on_intr(allocate) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(len),
            Err(e) => Err(e.into()),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
