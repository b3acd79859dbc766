//! Makes the files of a new database.

use std::io;
use std::path::Path;

use bytesize::ByteSize;

use crate::background::log_resize::first_capacity;
use crate::base::aligned::BLOCK_U64;
use crate::base::error::Error;
use crate::base::ids::{Lsn, SpaceId, TxnId};
use crate::base::page::layout::is_page_size;
use crate::base::random::random_u64;
use crate::io::device::Files;
use crate::io::directory::names_without_lock;
use crate::open::cases::Case;
use crate::options::value::size_text;
use crate::options::{Options, PageStoreKind, REDO_PAGES_MIN, invalid, mistake_of_reserve};
use crate::redo::files::{Geometry, Lap, LogFiles, Ring, is_log_file};
use crate::store::files::{DATA_FILE, DATA_FILE_NEW, is_map_file, without_data_file};
use crate::store::page_store::PageStore;
use crate::store::superblock::{FEATURE_IN_PLACE, Superblock};

pub(crate) const DEFAULT_PAGE_SIZE: u64 = 16 << 10;

/// Refuses to make a database beside other files, or one that could not be opened. Changes nothing.
fn check_creation(place: &str, names: &[String], options: &Options) -> Result<(), Error> {
    match Case::of(names) {
        Case::Lost => Err(without_data_file(place, names)),
        Case::Strange(stranger) => {
            let message = format!(
                "'{place}' is not a Millpond database, and not empty (it has '{stranger}'): name an empty or a new \
                 directory"
            );
            Err(Error::Format(message.into()))
        }
        Case::New | Case::CutShort | Case::Database => validate_new(options),
    }
}

/// Checks everything for a new database; all mistakes in one error.
pub(super) fn validate_new(options: &Options) -> Result<(), Error> {
    let page_size = new_page_size(options);
    let mut mistakes = options.mistakes(page_size, options.page_store.unwrap_or_default());
    if is_page_size(page_size) {
        mistakes.extend(mistake_of_reserve(options.frames_max(page_size), new_capacity(options, page_size)));
    }
    invalid(mistakes)
}

/// The page size of a new database, in bytes.
fn new_page_size(options: &Options) -> u64 {
    options.page_size.map_or(DEFAULT_PAGE_SIZE, |size| size.as_u64())
}

/// Bytes up to which a new database's log grows.
fn new_capacity(options: &Options, page_size: u64) -> u64 {
    options.redo_capacity_most(options.frames_max(page_size), page_size)
}

/// The page size of a new database, and the bytes of its log.
fn sizes(options: &Options) -> (u64, u64) {
    let page_size = new_page_size(options);
    (page_size, new_capacity(options, page_size))
}

/// Makes the files of a new database, or none. It exists from the moment its data file gets its name.
pub(crate) fn create(files: &dyn Files, names: &[String], options: &Options) -> Result<(), Error> {
    check_creation(&files.place(), names, options)?;
    // Files of an interrupted creation make room for this one.
    remove_unfinished(files, |name| name != DATA_FILE_NEW)
        .map_err(|e| Error::io(&format!("remove files in '{}'", files.place()), e))?;
    if let Some(free) = files.free_bytes()
        && let Some(refused) = without_room(files, options, free)
    {
        return Err(Error::out_of_space(refused));
    }
    let made = create_files(files, options);
    if made.is_err() {
        take_back(files);
    }
    match made {
        Err(error) if error.is_of_full_device() => {
            // The file system promised more than it has: there is a quota, or it cannot tell.
            let told = files.free_bytes().and_then(|free| without_room(files, options, free));
            Err(told.map_or_else(|| error.with_advice(&way_to_less(options)), Error::out_of_space))
        }
        made => made,
    }
}

/// Removes the files of a creation that failed, except those of a database that exists.
fn take_back(files: &dyn Files) {
    // The map files go first, durably: beside them there is always the new data file. The next creation removes files
    // that cannot be removed now.
    let _ = remove_unfinished(files, |name| name != DATA_FILE_NEW)
        .and_then(|()| files.sync_names())
        .and_then(|()| remove_unfinished(files, |_| true));
}

/// Removes the `wanted` files of a database that does not exist yet.
fn remove_unfinished(files: &dyn Files, wanted: impl Fn(&str) -> bool) -> io::Result<()> {
    let names = files.list()?;
    if names.iter().any(|name| name == DATA_FILE) {
        return Ok(());
    }
    let unfinished = |name: &str| name == DATA_FILE_NEW || is_map_file(name) || is_log_file(name);
    names.iter().filter(|name| unfinished(name) && wanted(name)).try_for_each(|name| files.remove(name))
}

/// The reason why a new database does not fit into `free` bytes, and a size that does; `None`: the database fits.
fn without_room(files: &dyn Files, options: &Options, free: u64) -> Option<String> {
    let (page_size, capacity) = sizes(options);
    let frames = options.frames_max(page_size);
    let (log, others) = (first_capacity(options, capacity, frames), PageStore::created_bytes(page_size));
    if log + others <= free {
        return None;
    }
    // A part stays free for what the file system itself writes.
    let fitting = (free.saturating_sub(others) / 16 * 15) >> 20 << 20;
    let is_possible = fitting >= REDO_PAGES_MIN * page_size && mistake_of_reserve(frames, fitting).is_none();
    let way_out = if is_possible {
        format!("set redo_capacity to {} or less, or free some", size_text(ByteSize::b(fitting)))
    } else {
        "free some, and set a smaller redo_capacity".to_owned()
    };
    let message = format!(
        "no space for a new database in '{}': its log takes {} (redo_capacity), its other files {}, and {} are free on \
         that file system: {way_out}",
        files.place(),
        size_text(ByteSize::b(log)),
        ByteSize::b(others),
        ByteSize::b(free)
    );
    Some(message)
}

/// The advice if the free space is not known.
fn way_to_less(options: &Options) -> String {
    let (page_size, capacity) = sizes(options);
    let log = size_text(ByteSize::b(first_capacity(options, capacity, options.frames_max(page_size))));
    format!("the log of the new database takes {log}: set a smaller redo_capacity")
}

fn create_files(files: &dyn Files, options: &Options) -> Result<(), Error> {
    let (page_size, capacity) = sizes(options);
    let uuid = [random_u64(), random_u64()];
    // A larger log is made once the database is open.
    let redo = Geometry::of(0, first_capacity(options, capacity, options.frames_max(page_size)));
    let in_place = options.page_store == Some(PageStoreKind::InPlace);
    let superblock = Superblock {
        features: if in_place { FEATURE_IN_PLACE } else { 0 },
        uuid,
        sequence: 0,
        page_size: u32::try_from(page_size).map_err(|_| Error::Bug("a page size was not checked".into()))?,
        next_space: SpaceId::FIRST.0,
        checkpoint_lsn: Lsn(BLOCK_U64),
        durable_lsn: Lsn(BLOCK_U64),
        nonce: random_u64(),
        directory_bytes: 0,
        directory_crc: 0,
        redo,
        switch: None,
        next_txn: TxnId(1),
        write_capacity: 0,
        apply_rate: 0,
        // Its log is new: no group follows.
        closed: true,
    };
    let ring = Ring::create(files, superblock.owner(), redo)?;
    let lap = Lap { boundary: Lsn::ZERO, first_group: superblock.checkpoint_lsn, nonce: superblock.nonce };
    ring.write_lap(&lap)?;
    LogFiles::new(ring, None).sync_all()?;
    PageStore::create(files, superblock)
}

/// Refuses a directory in which no database can be made, before anything is made in it, such as the lock file.
///
/// This check takes no lock and removes nothing, so it does not decide which process has the database open. If there
/// is a lock file already, nothing is refused here: a process may be at work, and a refused open would leave nothing
/// new. The process that gets the lock checks again.
pub(super) fn refuse_strangers(path: &Path, options: &Options) -> Result<(), Error> {
    match names_without_lock(path) {
        Some(names) if Case::of(&names) != Case::Database => {
            check_creation(&path.display().to_string(), &names, options)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;

    use super::*;
    use crate::store::doublewrite::Doublewrite;

    #[test]
    fn a_log_that_is_not_asked_for_follows_the_pool() {
        let capacity = |options: &Options| new_capacity(options, DEFAULT_PAGE_SIZE);
        assert_eq!(capacity(&Options::new()), 256 << 20);
        assert_eq!(capacity(&Options::new().buffer_pool_size(ByteSize::gib(8))), 2 << 30);
        for large in
            [Options::new().buffer_pool_size(ByteSize::gib(64)), Options::new().buffer_pool_size_max(ByteSize::gib(64))]
        {
            assert_eq!(capacity(&large), 8 << 30);
            validate_new(&large).expect("its log is large enough");
            let asked = large.redo_capacity(ByteSize::mib(256));
            let refused = validate_new(&asked).expect_err("the wanted capacity is kept").to_string();
            assert!(
                refused.contains("redo_capacity is 256MiB") && refused.contains("leave redo_capacity out"),
                "{refused}"
            );
        }
    }

    #[test]
    fn every_mistake_of_a_new_database_is_in_one_error() {
        let options = Options::new().read_ahead_pages(65).classic(|of| of.doublewrite(Doublewrite::On));
        let options = options.buffer_pool_size(ByteSize::gib(64)).redo_capacity(ByteSize::mib(256));
        let error = validate_new(&options).expect_err("three mistakes").to_string();
        for part in ["read_ahead_pages is 65", "doublewrite is for page_store=in_place", "needs 865MiB"] {
            assert!(error.contains(part), "{part} in: {error}");
        }
        assert!(validate_new(&Options::new().page_size(ByteSize::b(0))).is_err(), "no page, no division by it");
    }
}
