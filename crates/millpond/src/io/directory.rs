//! The real device: a directory of the file system. `pread`, `pwrite` and `fdatasync` run in the caller's thread.
//! Batches of reads or writes run at the same time.
//!
//! DIR-1  After the open, every file is reached through the directory's descriptor: the database keeps its files when
//!        the process changes its working directory, or the directory is renamed.
//! DIR-2  New files are accessible to the owner (mode 0600), and to the group as the options say, or, without an
//!        option, as all existing files of the database are. New directories get the same access, with the right to
//!        enter them. When a writer opens existing files, they lose their permissions for other users.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags};

use super::batch::{Batches, IoEngine};
use super::device::{Device, Files, ReadPiece, WritePiece};
use super::directory_lock::{Access, DirectoryLock, LOCK_FILE};
use super::page_cache::PageCache;
use crate::base::error::Error;
use crate::base::laws;

/// A directory on a real file system.
pub(crate) struct Directory {
    /// The path as the caller gave it. For messages only (DIR-1).
    path: PathBuf,
    /// Whether files go through the page cache: asked for, or since the file system has no direct I/O.
    page_cache: PageCache,
    access: Access,
    batches: Arc<Batches>,
    /// Permissions of new files (DIR-2).
    mode: Mode,
    /// The directory itself.
    dir: File,
    /// Held until the database is closed.
    lock: DirectoryLock,
    /// The directories that this open created, the innermost first.
    made: Vec<PathBuf>,
}

/// The group's access to a database's files. Other users have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum GroupAccess {
    /// Nothing: files have mode 0600, directories 0700.
    #[default]
    None,
    /// Inspect a database that no process has open: files have mode 0640, directories 0750.
    Read,
    /// Open the database, too: files have mode 0660, directories 0770.
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
    /// Whether files go through the page cache even if the file system has direct I/O.
    pub(crate) cached: bool,
    pub(crate) engine: IoEngine,
    /// The requested access of the group; `None`: as the database's files have it.
    pub(crate) group: Option<GroupAccess>,
}

impl HowToOpen {
    /// `access` and `cached`, with the defaults for everything else.
    pub(crate) fn new(access: Access, cached: bool) -> HowToOpen {
        HowToOpen { access, cached, engine: IoEngine::Auto, group: None }
    }
}

impl Directory {
    /// Opens the directory (and creates it for [`Access::Create`]) and takes its lock.
    pub(crate) fn open(path: &Path, how: HowToOpen) -> Result<Directory, Error> {
        let HowToOpen { access, cached, engine, group } = how;
        let batches = Batches::new(engine).map_err(|e| {
            let message = format!("io_engine = io_uring is not available here ({e}): leave io_engine at auto");
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
        let page_cache = PageCache::new(cached);
        let directory = Directory { path, page_cache, access, batches, mode, dir, lock, made };
        if access != Access::Read {
            directory.set_permissions(group).map_err(|e| {
                let what =
                    if group.is_some() { "the permissions of group_access" } else { "no permissions for other users" };
                let doing = format!("give the files in '{}' {what}", directory.place());
                Error::io(&doing, e)
            })?;
        }
        Ok(directory)
    }

    /// Removes the lock file and the directories that this open created, unless they contain other files: for an open
    /// that failed to create a database.
    pub(crate) fn take_back(&self) {
        let is_empty = || list(&self.dir).is_ok_and(|names| names.iter().all(|name| name == LOCK_FILE));
        if self.lock.is_new && is_empty() && self.remove(LOCK_FILE).is_ok() {
            remove_directories(&self.made);
        }
    }

    /// Gives the directory and its existing files the permissions of `group`. The directory keeps further permissions,
    /// because it may contain other files. Without a `group` the files only lose their permissions for other users. A
    /// user that may not change these opens the database all the same.
    fn set_permissions(&self, group: Option<GroupAccess>) -> io::Result<()> {
        for name in list(&self.dir)?.iter().filter(|name| name.ends_with(".mpd")) {
            let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            // A link may lead to a file outside of the database.
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
            // Does not follow a link, whose target would be emptied.
            flags |= OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        }
        let file = self.page_cache.open(flags, |flags| rustix::fs::openat(&self.dir, name, flags, self.mode))?;
        if create && self.mode != GroupAccess::None.files() {
            // The process's umask may have removed the group's permissions.
            rustix::fs::fchmod(&file, self.mode)?;
        }
        let name = self.path.join(name).display().to_string();
        Ok(Arc::new(RealFile { file: file.into(), batches: Arc::clone(&self.batches), name }))
    }
}

/// The names in a directory without a lock file; none if the directory does not exist. `None`: it has a lock file, or
/// is unreadable; the following open reports why.
pub(crate) fn names_without_lock(path: &Path) -> Option<Vec<String>> {
    let names = match File::open(path).and_then(|dir| list(&dir)) {
        Ok(names) => names,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(_) => return None,
    };
    // Checked after the list: a creator makes this file first, so a list made without it has no file of that database.
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

/// Opens an existing directory.
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

/// Permissions of new files in the directory (DIR-2).
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

/// Creates a directory and its missing ancestors, and makes each durable in its parent: if a crash removed the name of
/// a database's directory, the whole database would be lost. Returns the created directories, the innermost first.
fn create_durably(path: &Path, group: GroupAccess) -> io::Result<Vec<PathBuf>> {
    let missing = path.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists());
    let missing: Vec<PathBuf> = missing.map(std::path::absolute).collect::<Result<_, _>>()?;
    DirBuilder::new().recursive(true).mode(group.directories().bits()).create(path)?;
    // Syncs at least the directory's own parent: an earlier try may have created the directory and stopped before the
    // sync.
    for dir in path.ancestors().take(missing.len().max(1)) {
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match File::open(parent) {
            Ok(parent) => parent.sync_all()?,
            // A directory without read permission cannot be synced; the file system's own timer must suffice.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(missing)
}

/// Removes directories, the innermost first, until one is not empty.
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
        // Some file systems do not report free space.
        (room.f_blocks > 0).then(|| room.f_bavail.saturating_mul(room.f_frsize))
    }

    fn release(&self) {
        self.lock.release(&self.dir);
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn page_cache(&self) -> &'static str {
        self.page_cache.text()
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

    fn cut(&self, len: u64) -> io::Result<()> {
        laws::check_io();
        if len >= self.len()? { Ok(()) } else { self.file.set_len(len) }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
