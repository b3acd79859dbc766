//! The real device: a directory of the file system. `pread`, `pwrite` and `fdatasync` in the caller's thread, and
//! batches of reads or writes that are under way together.
//!
//! DIR-1  After the open, every file is found through the directory's descriptor: a process that changes its working
//!        directory, or a directory that is renamed, does not take the files away.
//! DIR-2  Files are made for the owner alone (mode 0600), and for the group what the options ask or, without them, what
//!        all files of the database have. Directories that are made have the same, with the right to enter them. Files
//!        that are there lose what they have for other users when a writer opens them.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags};

use super::batch::{Batches, IoEngine};
use super::device::{Device, Files, ReadPiece, WritePiece};
use super::directory_lock::{DirectoryLock, LOCK_FILE};
use crate::base::error::{Error, WayOut};
use crate::base::laws;

/// A directory on a real file system.
pub(crate) struct Directory {
    /// As the caller gave it. For messages only (DIR-1).
    path: PathBuf,
    cached: bool,
    access: Access,
    batches: Arc<Batches>,
    /// Permissions of the files that are made (DIR-2).
    mode: Mode,
    /// The directory itself.
    dir: File,
    /// Locked until the database is closed.
    lock: DirectoryLock,
    /// The directories that this open made, the innermost first.
    made: Vec<PathBuf>,
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

/// What the group of a database's files may do with them. Other users may nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroupAccess {
    /// Nothing: files have mode 0600, directories 0700.
    #[default]
    None,
    /// Look at a database that nobody has open: files have mode 0640, directories 0750.
    Read,
    /// Open it, too: files have mode 0660, directories 0770.
    Write,
}

impl GroupAccess {
    fn files(self) -> Mode {
        Mode::from_raw_mode(match self {
            GroupAccess::None => 0o600,
            GroupAccess::Read => 0o640,
            GroupAccess::Write => 0o660,
        })
    }

    fn directories(self) -> Mode {
        Mode::from_raw_mode(match self {
            GroupAccess::None => 0o700,
            GroupAccess::Read => 0o750,
            GroupAccess::Write => 0o770,
        })
    }
}

/// How a directory is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HowToOpen {
    pub(crate) access: Access,
    /// Whether files go through the page cache.
    pub(crate) cached: bool,
    pub(crate) engine: IoEngine,
    /// What is asked for the group; `None`: as the database has it.
    pub(crate) group: Option<GroupAccess>,
}

impl HowToOpen {
    /// For `access`, with the defaults of everything else.
    pub(crate) fn new(access: Access, cached: bool) -> HowToOpen {
        HowToOpen { access, cached, engine: IoEngine::Auto, group: None }
    }
}

impl Directory {
    /// Opens (and for [`Access::Create`] makes) the directory and takes its lock.
    pub(crate) fn open(path: &Path, how: HowToOpen) -> Result<Directory, Error> {
        let HowToOpen { access, cached, engine, group } = how;
        let batches = Batches::new(engine).map_err(|e| {
            let message = format!("io_engine = io_uring cannot be had here ({e}): leave io_engine at auto");
            Error::InvalidOptions(message.into())
        })?;
        let mut made = Vec::new();
        if access == Access::Create {
            made = create_durably(path, group.unwrap_or_default()).map_err(|e| {
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
        let dir = open_dir(path)?;
        let mode = mode_of(&dir, group);
        let lock = DirectoryLock::take(&dir, path, access, mode).inspect_err(|_| remove_directories(&made))?;
        let (path, batches) = (path.to_owned(), Arc::new(batches));
        let directory = Directory { path, cached, access, batches, mode, dir, lock, made };
        if access != Access::Read {
            directory.set_permissions(group).map_err(|e| {
                let doing = format!("give the files in '{}' the permissions of group_access", directory.place());
                Error::io(&doing, e)
            })?;
        }
        Ok(directory)
    }

    /// Takes away the lock file and the directories that this open made, if no other file came into them: no database
    /// was made.
    pub(crate) fn take_back(&self) {
        let is_empty = || list(&self.dir).is_ok_and(|names| names.iter().all(|name| name == LOCK_FILE));
        if self.lock.is_new && is_empty() && self.remove(LOCK_FILE).is_ok() {
            remove_directories(&self.made);
        }
    }

    /// Gives the files that are there, and the directory, the permissions of `group`. The directory keeps what it has
    /// beyond them: other files may be in it. Without a `group` the files only lose what they have for other users;
    /// who may not change that opens the database all the same.
    fn set_permissions(&self, group: Option<GroupAccess>) -> io::Result<()> {
        for name in list(&self.dir)?.iter().filter(|name| name.ends_with(".mpd")) {
            let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            // A link may lead to a file that is none of the database's.
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                continue;
            }
            let has = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
            let wanted = if group.is_some() { self.mode } else { has - Mode::RWXO };
            if wanted == has {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let set = || rustix::fs::fchmod(rustix::fs::openat(&self.dir, name, flags, Mode::empty())?, wanted);
            match set() {
                Err(rustix::io::Errno::PERM) if group.is_none() => {}
                done => done?,
            }
        }
        let Some(group) = group else { return Ok(()) };
        let has = Mode::from_raw_mode(rustix::fs::fstat(&self.dir)?.st_mode);
        let wanted = has | group.directories();
        if group != GroupAccess::None && wanted != has {
            rustix::fs::fchmod(&self.dir, wanted)?;
        }
        Ok(())
    }

    fn open_file(&self, name: &str, create: bool) -> io::Result<Arc<dyn Device>> {
        let mut flags = OFlags::CLOEXEC;
        flags |= if self.access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
        if create {
            // A link is not followed: what it leads to would be emptied.
            flags |= OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        }
        if !self.cached {
            flags |= OFlags::DIRECT;
        }
        let open = || rustix::fs::openat(&self.dir, name, flags, self.mode);
        let file = rustix::io::retry_on_intr(open).map_err(|errno| {
            let error = io::Error::from(errno);
            if !self.cached && error.kind() == io::ErrorKind::InvalidInput {
                let way_out = format!("this file system has no O_DIRECT ({error}): open the database with `cached`");
                return io::Error::other(WayOut(way_out));
            }
            error
        })?;
        if create && self.mode != GroupAccess::None.files() {
            // The process's umask may have taken the group's.
            rustix::fs::fchmod(&file, self.mode)?;
        }
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

/// Opens a directory that is to be there.
fn open_dir(path: &Path) -> Result<File, Error> {
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotADirectory => {
            let message = format!("'{}' is not a directory: name the directory of a database", path.display());
            Error::Format(message.into())
        }
        io::ErrorKind::NotFound => {
            let message = format!("'{}' does not exist: name the directory of a database", path.display());
            Error::Format(message.into())
        }
        _ => Error::io(&format!("open '{}'", path.display()), e),
    })
}

/// Permissions of files that are made in the directory (DIR-2).
fn mode_of(dir: &File, group: Option<GroupAccess>) -> Mode {
    if let Some(group) = group {
        return group.files();
    }
    let names = list(dir).unwrap_or_default();
    let files = names.iter().filter(|name| name.ends_with(".mpd"));
    let modes = files.filter_map(|name| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok());
    let of_all = modes.map(|stat| Mode::from_raw_mode(stat.st_mode)).reduce(|all, one| all & one);
    GroupAccess::None.files() | (of_all.unwrap_or(Mode::empty()) & (Mode::RGRP | Mode::WGRP))
}

/// Makes a directory and all above it, and each durable in the one that holds it: a database in a directory whose
/// name a crash takes away is lost as a whole. Those that were made, the innermost first.
fn create_durably(path: &Path, group: GroupAccess) -> io::Result<Vec<PathBuf>> {
    let missing = path.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let missing: Vec<PathBuf> = missing.map(std::path::absolute).collect::<Result<_, _>>()?;
    DirBuilder::new().recursive(true).mode(group.directories().bits()).create(path)?;
    // At least its own parent: an earlier try may have made the directory and not come this far.
    for dir in path.ancestors().take(missing.len().max(1)) {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match File::open(parent) {
            Ok(parent) => parent.sync_all()?,
            // A directory that may be written and not read cannot be synced; the file system's own timer must do.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(missing)
}

/// Removes directories as far as they are empty, the innermost first.
fn remove_directories(made: &[PathBuf]) {
    let _ = made.iter().try_for_each(std::fs::remove_dir);
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

    fn free_bytes(&self) -> Option<u64> {
        let room = rustix::fs::fstatvfs(&self.dir).ok()?;
        // Some file systems do not count.
        (room.f_blocks > 0).then(|| room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn release(&self) {
        self.lock.release(&self.dir);
    }

    fn place(&self) -> String {
        self.path.display().to_string()
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
