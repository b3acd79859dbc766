//! Checks whether options fit an existing database.

use bytesize::ByteSize;

use crate::base::error::Error;
use crate::io::device::Files;
use crate::options::profile::Profile;
use crate::options::value::size_text;
use crate::options::{FRAMES_MIN, Options, PageStoreKind, bytes, invalid};
use crate::store::files::DATA_FILE;
use crate::store::superblock::{FEATURE_IN_PLACE, Superblock};

/// Refuses options that contradict the database; all mistakes in one error.
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
        let of_profile =
            if options.classic.profile == Profile::Millpond { "" } else { ", or give it beside the profile" };
        mistakes.push(format!(
            "page_store is {wanted}, and '{place}' was created with {has}: leave the option out{of_profile}"
        ));
    }
    mistakes.extend(options.mistakes(page_size, has));
    invalid(mistakes)
}

pub(crate) fn superblock_in(files: &dyn Files) -> Result<Superblock, Error> {
    let data = files.open(DATA_FILE).map_err(|e| Error::io(&format!("open '{DATA_FILE}'"), e))?;
    Superblock::choose(Superblock::read_both(&*data)?, data.name())
}

/// Refuses to redo in memory, for a database that is only read, more pages than the pool has frames.
pub(super) fn check_redo_fits(options: &Options, pages: u64, page_size: u64, place: &str) -> Result<(), Error> {
    let needed = (pages + FRAMES_MIN) * page_size;
    if pages == 0 || needed <= options.buffer_pool_size.as_u64() {
        return Ok(());
    }
    // If analysis notes pages in parts, the count is estimated from the first part, which may be smaller than others.
    let enough = needed + needed / 8;
    let message = format!(
        "'{place}' was not closed, and its log changes {pages} pages, which stay in memory with read_only: use a \
         buffer_pool_size of {} or more, or open it once without read_only",
        size_text(ByteSize::b(enough.next_multiple_of(1 << 20)))
    );
    Err(Error::InvalidOptions(message.into()))
}

/// The page store of a database: how its pages are written.
pub(crate) fn page_store_of(superblock: &Superblock) -> PageStoreKind {
    if superblock.features & FEATURE_IN_PLACE != 0 { PageStoreKind::InPlace } else { PageStoreKind::CopyOnWrite }
}
