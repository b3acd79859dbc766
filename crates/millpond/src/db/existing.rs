//! What the options and a database that exists must be for each other.

use std::sync::Arc;

use bytesize::ByteSize;

use super::database::{open_existing, page_store_of};
use super::option_text::size_text;
use super::options::{FRAMES_MIN, Options, bytes, fitting_frames, invalid, needed_capacity, validate_reserve};
use super::profile::Profile;
use super::redo_change::first_capacity;
use super::status_server::Doors;
use crate::base::error::Error;
use crate::base::process::Home;
use crate::io::device::Files;
use crate::io::lease::LeasedFiles;
use crate::store::open::DATA_FILE;
use crate::store::superblock::Superblock;

/// The options must not say something else than the database; all mistakes in one error.
pub(super) fn check_fixed(options: &Options, superblock: &Superblock, place: &str) -> Result<(), Error> {
    let page_size = u64::from(superblock.page_size);
    let mut mistakes = Vec::new();
    if let Some(wanted) = options.page_size
        && wanted.as_u64() != page_size
    {
        let (wanted, has) = (size_text(wanted), bytes(page_size));
        mistakes.push(format!("page_size is {wanted}, and '{place}' has pages of {has}: leave the option out"));
    }
    let has = page_store_of(superblock);
    if let Some(wanted) = options.page_store
        && wanted != has
    {
        let of_profile = if options.profile == Profile::Millpond { "" } else { ", or give it beside the profile" };
        mistakes.push(format!(
            "page_store is {wanted}, and '{place}' was created with {has}: leave the option out{of_profile}"
        ));
    }
    mistakes.extend(options.mistakes(page_size, has));
    invalid(mistakes)
}

fn superblock_in(files: &dyn Files) -> Result<Superblock, Error> {
    let data = files.open(DATA_FILE).map_err(|e| Error::io(&format!("open '{DATA_FILE}'"), e))?;
    Superblock::choose(Superblock::read_both(&*data)?, data.name())
}

/// A pool that needs a larger log than there is, and options that ask for such a log, or for no capacity at all: the
/// log is made larger first, by opening the database with a pool that the log is large enough for.
pub(super) fn enlarge_log_first(files: &Arc<dyn Files>, home: &Arc<Home>, options: &Options) -> Result<(), Error> {
    if options.fit_pool {
        return Ok(());
    }
    // What is wrong with it is told when it is opened.
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
    // Not larger than the pool needs: the rest is made beside the load.
    let redo_capacity = ByteSize::b(first_capacity(wanted, frames));
    let fewer = Options { buffer_pool_size: size, buffer_pool_size_max: None, ..options.clone() };
    let files = Arc::new(LeasedFiles::for_a_while(Arc::clone(files), Arc::clone(home)));
    let db = open_existing(files, Arc::clone(home), &fewer.redo_capacity(redo_capacity), Doors::none())?;
    db.set_redo_capacity(redo_capacity)?;
    db.close()
}

/// Refuses to redo in memory, for a database that is only read, more pages than the pool has frames.
pub(super) fn check_redo_fits(options: &Options, pages: u64, page_size: u64, place: &str) -> Result<(), Error> {
    let needed = (pages + FRAMES_MIN) * page_size;
    if pages == 0 || needed <= options.buffer_pool_size.as_u64() {
        return Ok(());
    }
    // Where pages are noted in parts they are counted by the first one: it may be that much smaller than another.
    let enough = needed + needed / 8;
    let message = format!(
        "'{place}' was not closed, and its log changes {pages} pages, which stay in memory with read_only: use a \
         buffer_pool_size of {} or more, or open it once without read_only",
        size_text(ByteSize::b(enough.next_multiple_of(1 << 20)))
    );
    Err(Error::InvalidOptions(message.into()))
}
