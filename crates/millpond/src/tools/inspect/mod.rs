//! The contents of a database's files, for people: `info`, and dumps.
//!
//! Dumps read the files as they are. They recover nothing, write nothing, and go on behind damage as far as they can.

mod info;
mod log;
mod page;

use std::path::Path;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SlotId, SpaceId};
use crate::io::device::Files;
use crate::io::directory::{Directory, HowToOpen};
use crate::io::directory_lock::Access;
use crate::store::image::slot_of;
use crate::store::look::{DataFile, read_map};
use crate::store::map::{ENTRIES, MapEntry, MapPage};
use crate::store::superblock::{Found, OFFSETS, Superblock, uuid_text};

/// Receives a dump line by line; `false` ends the dump.
pub type Lines<'a> = &'a mut dyn FnMut(&str) -> bool;

/// A value of [`Inspector::status_figures`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Figure {
    /// A word.
    Text(String),
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
    /// The value could not be determined.
    Unknown,
    /// Numbers by name.
    Numbers(Vec<(String, u64)>),
}

/// A database's files, for reading. No process can open the database while this exists.
pub struct Inspector {
    files: Arc<dyn Files>,
}

impl Inspector {
    /// Looks at the database in directory `path`; `cached`: through the page cache.
    ///
    /// # Errors
    /// [`Error::Format`]: no database. [`Error::InUse`]: the database is open. Errors of the operating system.
    pub fn open(path: impl AsRef<Path>, cached: bool) -> Result<Inspector, Error> {
        Ok(Inspector { files: Arc::new(Directory::open(path.as_ref(), HowToOpen::new(Access::Read, cached))?) })
    }

    /// Looks at a database on any implementation of [`Files`].
    pub fn on(files: Arc<dyn Files>) -> Inspector {
        Inspector { files }
    }

    /// Facts about the database, as names and values, in the order to show them. The log beyond the last checkpoint is
    /// replayed in memory.
    ///
    /// # Errors
    /// [`Error::Corruption`], [`Error::Format`]: there is no valid superblock. Errors of the operating system.
    pub fn info(&self) -> Result<Vec<(String, String)>, Error> {
        info::info(&self.files)
    }

    /// The state that the database was left in, as names and values, in the order to show them: superblock, log,
    /// whether it was closed, files. Unlike [`info`](Self::info), this replays nothing, and takes the time to read the
    /// log.
    ///
    /// # Errors
    /// As [`info`](Self::info).
    pub fn status(&self) -> Result<Vec<(String, String)>, Error> {
        info::status(&*self.files)
    }

    /// As [`status`](Self::status), for programs: names end in the unit, if there is one. A figure that is also a
    /// metric of an open database has the metric's name.
    ///
    /// # Errors
    /// As [`info`](Self::info).
    pub fn status_figures(&self) -> Result<Vec<(&'static str, Figure)>, Error> {
        info::status_figures(&*self.files)
    }

    /// Every field of both superblocks, or their problems.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn superblocks(&self, out: Lines<'_>) -> Result<(), Error> {
        let data = DataFile::open(&*self.files)?;
        for (place, found) in data.found.iter().enumerate() {
            if !out(&format!("superblock {place} at offset {}: {}", OFFSETS[place], verdict(found))) {
                return Ok(());
            }
            if let Found::Valid(superblock) = found {
                superblock_fields(superblock, out);
            }
        }
        Ok(())
    }

    /// The directory and the map pages that the newest superblock names, and the place of each page in them: of all
    /// spaces, or of one.
    ///
    /// # Errors
    /// [`Error::Corruption`]: no superblock, or no directory, can be read. Errors of the operating system.
    pub fn map(&self, space: Option<u32>, out: Lines<'_>) -> Result<(), Error> {
        let superblock = DataFile::open(&*self.files)?.superblock()?;
        let mut problems = Vec::new();
        let mut map = read_map(&*self.files, &superblock, &mut problems)?;
        let mut going = out(&format!(
            "directory {} of checkpoint {}: {} spaces, {} bytes",
            superblock.place(),
            superblock.sequence,
            map.space_count(),
            superblock.directory_bytes
        ));
        for problem in problems {
            going = going && out(&format!("problem: {problem}"));
        }
        let page_size = u64::from(superblock.page_size);
        for (id, page) in map.map_pages_mut().filter(|(id, _)| space.is_none_or(|space| id.space().0 == space)) {
            going = going && map_page(id, page, page_size, out);
        }
        Ok(())
    }

    /// The image of page `number` of `space` that the map names, whole or not.
    ///
    /// # Errors
    /// [`Error::Corruption`]: no superblock, or no directory, can be read. Errors of the operating system.
    pub fn page(&self, space: u32, number: u32, out: Lines<'_>) -> Result<(), Error> {
        let data = DataFile::open(&*self.files)?;
        let superblock = data.superblock()?;
        let id = PageId::new(SpaceId(space), number);
        let mut problems = Vec::new();
        let map = read_map(&*self.files, &superblock, &mut problems)?;
        let entry = map.get(id);
        let Some(slot) = slot_of(entry, u64::from(superblock.page_size)) else {
            let damaged = if problems.is_empty() { "" } else { ", but parts of the map cannot be read" };
            out(&format!(
                "page {id} has no image at checkpoint {}{damaged}; it may be in the log only",
                superblock.sequence
            ));
            problems.iter().all(|problem| out(&format!("problem: {problem}")));
            return Ok(());
        };
        page::image(&data, &superblock, slot, Some((id, entry)), out)
    }

    /// The contents of a slot, whatever they are.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`]: there is no such slot. [`Error::Corruption`]: no superblock tells how long slots are.
    /// Errors of the operating system.
    pub fn slot(&self, slot: u64, out: Lines<'_>) -> Result<(), Error> {
        let data = DataFile::open(&*self.files)?;
        page::image(&data, &data.superblock()?, SlotId(slot), None, out)
    }

    /// The log's groups, each with its records, and where and why the log ends.
    ///
    /// From LSN `from` on, or from the checkpoint; at most `limit` groups. Without a superblock, and before its
    /// checkpoint, the files' own headers tell where groups begin.
    ///
    /// # Errors
    /// [`Error::Corruption`]: no place is known from which the log could be read. Errors of the operating system.
    pub fn log(&self, from: Option<u64>, limit: Option<u64>, out: Lines<'_>) -> Result<(), Error> {
        log::groups(&*self.files, from, limit, out)
    }
}

fn verdict(found: &Found) -> String {
    match found {
        Found::Valid(_) => "valid".to_owned(),
        Found::OtherFormat { version, .. } => format!("of format version {version}, which this build does not read"),
        Found::UnknownFeatures { bits, .. } => {
            format!("whole, with features that this build does not know (bits {bits:#x})")
        }
        Found::Damaged => "damaged: its checksum does not hold".to_owned(),
        Found::Foreign => "not a superblock: overwritten, or never written".to_owned(),
    }
}

fn superblock_fields(superblock: &Superblock, out: Lines<'_>) {
    let (redo, switch) = (superblock.redo, superblock.switch);
    let next = switch.map_or("none".to_owned(), |switch| {
        format!("at {}, to generation {} of {} bytes a file", switch.at, switch.to.generation, switch.to.payload_bytes)
    });
    let fields = [
        ("uuid", uuid_text(superblock.uuid)),
        ("features", format!("{:#x}", superblock.features)),
        ("sequence", superblock.sequence.to_string()),
        ("page_size", superblock.page_size.to_string()),
        ("next_space", superblock.next_space.to_string()),
        ("checkpoint_lsn", superblock.checkpoint_lsn.to_string()),
        ("durable_lsn", superblock.durable_lsn.to_string()),
        ("nonce", format!("{:016x}", superblock.nonce)),
        ("directory_bytes", superblock.directory_bytes.to_string()),
        ("directory_crc", format!("{:08x}", superblock.directory_crc)),
        ("redo", format!("generation {} of {} bytes a file", redo.generation, redo.payload_bytes)),
        ("switch", next),
    ];
    for (name, value) in fields {
        if !out(&format!("  {name:<18}{value}")) {
            return;
        }
    }
}

/// One map page: a line for each page with an image, and for each run of pages without one.
fn map_page(id: PageId, page: &MapPage, page_size: u64, out: Lines<'_>) -> bool {
    let (space, index) = (id.space(), id.number());
    let place = match page.place.is_some() {
        true => format!("offset {}", page.place.offset()),
        false if page.lsn > Lsn::ZERO => "in the directory".to_owned(),
        false => "no image".to_owned(),
    };
    let used = page.entries.iter().filter(|entry| entry.is_some()).count();
    if !out(&format!("space {space} map page {index}: {place}, LSN {}, {used} entries", page.lsn)) {
        return false;
    }
    let numbered: Vec<(u32, MapEntry)> = (index * ENTRIES..).zip(page.entries.iter().copied()).collect();
    let runs = numbered.chunk_by(|(_, a), (_, b)| a.is_some() == b.is_some());
    for run in runs {
        let (Some((first, entry)), Some((last, _))) = (run.first(), run.last()) else { continue };
        if !entry.is_some() {
            if !out(&format!("  {space}:{first}..={last} no image")) {
                return false;
            }
            continue;
        }
        for (number, entry) in run {
            let slot = slot_of(*entry, page_size).map_or("no slot".to_owned(), |slot| format!("slot {}", slot.0));
            let (offset, len, tag) = (entry.offset(), entry.len(), entry.tag());
            if !out(&format!("  {space}:{number} {slot} (offset {offset}, {len} bytes, tag {tag:05x})")) {
                return false;
            }
        }
    }
    true
}
