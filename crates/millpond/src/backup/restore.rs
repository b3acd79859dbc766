//! The restoration of a backup: its files are copied to a new directory, and each image is verified on the way.

use std::path::Path;
use std::sync::Arc;

use crate::backup::manifest::Manifest;
use crate::backup::options::{BackupReport, WorkOptions};
use crate::backup::target::{check_empty, list, mark_unfinished, refuse_used, remove_all, sync_names, verify};
use crate::base::aligned::{aligned, round_down, to_u64, to_usize};
use crate::base::error::Error;
use crate::base::page::layout::header;
use crate::io::device::{Device, Files};
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::redo::files::is_log_file;
use crate::store::files::{DATA_FILE, MANIFEST, UNFINISHED, create, is_map_file, len_of, sync, write};
use crate::store::image::{SlotContent, content_of};
use crate::store::superblock::{SLOTS_START, Superblock};
use crate::store::zones::ZONE_BYTES;

/// Restores the backup in directory `from` to directory `to`, which is new or empty. The next open of `to` recovers the
/// database as it was at the backup's LSN; `from` stays as it is. Everything is durable on return. An error, or a crash
/// in between, leaves nothing in `to` that opens as a database. The files get the permissions of a new database.
///
/// Reads and writes the whole data file, at the device's rate; [`WorkOptions::rate`] is not looked at.
///
/// # Errors
/// * [`Error::Format`]: `from` is no backup, or not a whole one.
/// * [`Error::InvalidOptions`]: `to` is not empty.
/// * [`Error::Corruption`]: an image, the map or the log in the backup is damaged, or a file is missing.
/// * [`Error::Cancelled`]: the function of [`WorkOptions::progress`] broke.
/// * [`Error::OutOfSpace`], [`Error::Permission`], [`Error::InUse`] and others of the system.
pub fn restore(from: impl AsRef<Path>, to: impl AsRef<Path>, mut options: WorkOptions) -> Result<BackupReport, Error> {
    let from = Directory::open(from.as_ref(), HowToOpen::new(Access::Read, false))?;
    let manifest = Manifest::read(&from)?;
    refuse_used(to.as_ref())?;
    let to = Arc::new(Directory::open(to.as_ref(), HowToOpen::new(Access::Create, false))?);
    check_empty(&*to).inspect_err(|_| to.take_back())?;
    let restored = restore_files(&from, &*to, &manifest, &mut options);
    match restored {
        Ok(_) => to.release(),
        Err(_) => {
            let _ = remove_all(&*to);
            to.take_back();
        }
    }
    restored
}

/// As [`restore`], on files of any kind.
///
/// # Errors
/// As [`restore`].
pub fn restore_on(from: &dyn Files, to: &dyn Files) -> Result<BackupReport, Error> {
    let manifest = Manifest::read(from)?;
    check_empty(to)?;
    restore_files(from, to, &manifest, &mut WorkOptions::new()).inspect_err(|_| _ = remove_all(to))
}

fn restore_files(
    from: &dyn Files,
    to: &dyn Files,
    manifest: &Manifest,
    options: &mut WorkOptions,
) -> Result<BackupReport, Error> {
    mark_unfinished(to)?;
    for name in list(from)?.iter().filter(|name| is_map_file(name) || is_log_file(name)) {
        copy_whole(&*open(from, name)?, &*create(to, name)?, is_log_file(name))?;
    }
    let (source, copy) = (open(from, DATA_FILE)?, create(to, DATA_FILE)?);
    let superblock = Superblock::choose(Superblock::read_both(&*source)?, source.name())?;
    let pages = copy_pages(&*source, &*copy, &superblock, options)?;
    if (superblock.uuid, superblock.durable_lsn, pages) != (manifest.uuid, manifest.lsn, manifest.pages) {
        let message = format!(
            "'{}' has {pages} pages of a database at LSN {}, and '{MANIFEST}' names {} at LSN {}: the files are not of one backup",
            from.place(),
            superblock.durable_lsn,
            manifest.pages,
            manifest.lsn
        );
        return Err(Error::Corruption(message.into()));
    }
    sync(&*copy)?;
    sync_names(to)?;
    // Last: without superblocks it is no database.
    let mut head = aligned(to_usize(SLOTS_START));
    read(&*source, &mut head, 0)?;
    write(&*copy, &head, 0)?;
    sync(&*copy)?;
    verify(to, &mut |_| Ok(()))?;
    to.remove(UNFINISHED).map_err(|e| Error::io(&format!("remove '{UNFINISHED}' in '{}'", to.place()), e))?;
    sync_names(to)?;
    Ok(manifest.report())
}

/// Copies the images in all slots. Returns their number.
fn copy_pages(
    source: &dyn Device,
    copy: &dyn Device,
    superblock: &Superblock,
    options: &mut WorkOptions,
) -> Result<u64, Error> {
    let len = len_of(source)?;
    if len < SLOTS_START {
        let message = format!("'{}' is cut short: it has {len} bytes; restore another backup", source.name());
        return Err(Error::Corruption(message.into()));
    }
    copy.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", copy.name()), e))?;
    let (page_size, zones) = (to_usize(u64::from(superblock.page_size)), to_usize(len - SLOTS_START) / ZONE_BYTES);
    let (mut buf, mut pages) = (aligned(ZONE_BYTES), 0);
    for zone in 0..zones {
        let offset = SLOTS_START + to_u64(zone * ZONE_BYTES);
        read(source, &mut buf, offset)?;
        let (mut count, mut end) = (0, 0);
        for (at, image) in (0..).zip(buf.chunks(page_size)) {
            match content_of(image, superblock.uuid) {
                SlotContent::Zero => {}
                SlotContent::Image(_) => (count, end) = (count + 1, (at + 1) * page_size),
                SlotContent::Garbage => {
                    let message = format!(
                        "the image at offset {} of '{}', of page {}, is damaged: restore another backup",
                        offset + to_u64(at * page_size),
                        source.name(),
                        header(image).page_id.get()
                    );
                    return Err(Error::Corruption(message.into()));
                }
            }
        }
        write(copy, &buf[..end], offset)?;
        pages += count;
        options.tell(to_u64((zone + 1) * ZONE_BYTES), to_u64(zones * ZONE_BYTES))?;
    }
    Ok(pages)
}

/// Copies a file of whole blocks; a log file's zeroes, too, so that the log's syncs have no extents to convert later.
/// Durable on return, except its name.
fn copy_whole(source: &dyn Device, copy: &dyn Device, is_log: bool) -> Result<(), Error> {
    let len = round_down(len_of(source)?);
    copy.grow(len).map_err(|e| Error::io(&format!("grow '{}' to {len} bytes", copy.name()), e))?;
    let mut buf = aligned(ZONE_BYTES);
    for offset in (0..len).step_by(ZONE_BYTES) {
        let piece = &mut buf[..to_usize((len - offset).min(to_u64(ZONE_BYTES)))];
        read(source, piece, offset)?;
        // Other files have zeroes already.
        if is_log || piece.iter().any(|byte| *byte != 0) {
            write(copy, piece, offset)?;
        }
    }
    sync(copy)
}

fn open(files: &dyn Files, name: &str) -> Result<Arc<dyn Device>, Error> {
    files.open(name).map_err(|e| Error::io(&format!("open '{name}' in '{}'", files.place()), e))
}

fn read(file: &dyn Device, buf: &mut [u8], offset: u64) -> Result<(), Error> {
    file.read_at(buf, offset).map_err(|e| Error::io(&format!("read '{}' at {offset}", file.name()), e))
}
