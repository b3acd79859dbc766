//! The entry points of an open: for a directory, or files of any kind; for a new database, or an existing one.

use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;

use crate::background::log_resize;
use crate::background::log_resize::first_capacity;
use crate::base::error::Error;
use crate::base::process::Home;
use crate::io::device::Files;
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::io::lease::LeasedFiles;
use crate::io::overlay::Overlay;
use crate::open::cases::Case;
use crate::open::create::{create, refuse_strangers, validate_new};
use crate::open::endpoints::Endpoints;
use crate::open::fixed_options::{check_fixed, superblock_in};
use crate::open::running::Running;
use crate::open::start::open_existing;
use crate::options::{Options, fitting_frames, needed_capacity, validate_reserve};
use crate::store::files::{DATA_FILE, MANIFEST, UNFINISHED, without_data_file};

/// Opens the directory of a database, and makes it if it does not exist and the options allow that.
fn open_directory(path: &Path, options: &Options) -> Result<Directory, Error> {
    // Before anything is created: a mistake in the options leaves no trace.
    if !path.join(DATA_FILE).exists() {
        validate_new(options)?;
    }
    let access = match (options.read_only, options.create) {
        (true, _) => Access::Read,
        (false, true) => Access::Create,
        (false, false) => Access::Write,
    };
    if access == Access::Create {
        refuse_strangers(path, options)?;
    }
    let how = HowToOpen { access, cached: options.cached, engine: options.io_engine, group: options.group_access };
    Directory::open(path, how)
}

/// Opens the database in a directory, whose files `wrap` may replace. A failed creation leaves nothing.
pub(crate) fn open_in(
    path: &Path,
    options: Options,
    wrap: impl FnOnce(Arc<Directory>) -> Arc<dyn Files>,
) -> Result<Running, Error> {
    let directory = Arc::new(open_directory(path, &options)?);
    open_on(wrap(Arc::clone(&directory)), options).inspect_err(|_| directory.take_back())
}

/// Enlarges the log first, if the pool needs a larger one, and the options ask for such a log or for no capacity. To do
/// so, it opens the database with a pool that the present log is large enough for.
fn enlarge_log_first(files: &Arc<dyn Files>, home: &Arc<Home>, options: &Options) -> Result<(), Error> {
    if options.fit_pool {
        return Ok(());
    }
    // The open itself reports a damaged superblock.
    let Ok(superblock) = superblock_in(&**files) else { return Ok(()) };
    check_fixed(options, &superblock, &files.place())?;
    let page_size = u64::from(superblock.page_size);
    let frames = options.frames_max(page_size);
    let next = superblock.switch.map_or(superblock.redo, |switch| switch.to);
    let smallest = next.capacity().min(superblock.redo.capacity());
    let enough = || next.capacity().max(needed_capacity(frames));
    let wanted = options.redo_capacity.map_or_else(enough, |size| size.as_u64());
    validate_reserve(frames, wanted)?;
    let fitting = fitting_frames(frames, smallest);
    if fitting == frames {
        return Ok(());
    }
    let size = ByteSize::b(fitting * page_size);
    // The log becomes no larger than the pool needs: the rest is made beside the load.
    let redo_capacity = ByteSize::b(first_capacity(options, wanted, frames));
    let fewer = Options { buffer_pool_size: size, buffer_pool_size_max: None, ..options.clone() };
    let files = Arc::new(LeasedFiles::for_a_while(Arc::clone(files), Arc::clone(home)));
    let running = open_existing(files, Arc::clone(home), &fewer.redo_capacity(redo_capacity), Endpoints::none())?;
    log_resize::set_capacity(&running.engine, redo_capacity)?;
    running.shut_down()
}

/// Refuses to write to a backup, and to open what has not become one.
fn refuse_backup(files: &dyn Files, names: &[String], may_read: bool) -> Result<(), Error> {
    let has = |file: &str| names.iter().any(|name| name == file);
    let place = files.place();
    let message = match () {
        () if has(UNFINISHED) => format!(
            "'{place}' has a backup, or a database restored of one, that was cut short: remove the directory, and begin again"
        ),
        () if has(MANIFEST) && !may_read => format!(
            "'{place}' is a backup, which stays as it is: restore it to another directory (`millpond restore`), or open it read-only"
        ),
        () => return Ok(()),
    };
    Err(Error::Format(message.into()))
}

/// Refuses a backup, whole or not.
pub(crate) fn refuse_any_backup(files: &dyn Files) -> Result<(), Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    refuse_backup(files, &names, false)
}

/// Opens the database in these files, which no other process has. Creates it first, if the options ask for that.
pub(crate) fn open_on(files: Arc<dyn Files>, options: Options) -> Result<Running, Error> {
    let options = options.settled().for_reading();
    let files: Arc<dyn Files> = if options.read_only { Arc::new(Overlay::releasing(files)) } else { files };
    let home = Arc::new(Home::new());
    let files: Arc<dyn Files> = Arc::new(LeasedFiles::new(files, Arc::clone(&home)));
    // Before anything is changed: an unusable socket path leaves all as it is.
    let endpoints = Endpoints::open(&options)?;
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    refuse_backup(&*files, &names, options.read_only || options.at_rest)?;
    match Case::of(&names) {
        Case::Database => {}
        _ if options.create => create(&*files, &names, &options)?,
        _ => return Err(without_data_file(&files.place(), &names)),
    }
    enlarge_log_first(&files, &home, &options)?;
    open_existing(files, home, &options, endpoints)
}
