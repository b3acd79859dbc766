//! Facts about a database.

use std::sync::Arc;

use bytesize::ByteSize;

use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::io::device::Files;
use crate::observe::facts::{bytes, tree_facts};
use crate::open::fixed_options::page_store_of;
use crate::redo::files::LogFiles;
use crate::redo::scan::LogScan;
use crate::store::look::{DataFile, read_map};
use crate::store::superblock::uuid_text;
use crate::store::superblock::{FEATURE_IN_PLACE, FORMAT, Found, Superblock};
use crate::tools::check::open_in_memory;
use crate::tools::inspect::Figure;

/// Bytes of the pool that the log is replayed in.
const POOL: ByteSize = ByteSize::mib(64);

/// A text of names and values.
#[derive(Default)]
struct Table(Vec<(String, String)>);

impl Table {
    fn row(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }
}

/// Facts about the database, as names and values.
pub(crate) fn info(files: &Arc<dyn Files>) -> Result<Vec<(String, String)>, Error> {
    let data = DataFile::open(&**files)?;
    let superblock = data.superblock()?;
    let mut table = Table::default();
    identity(&superblock, &data.found, &mut table);
    log_rows(&**files, &superblock, &mut table)?;
    file_rows(&**files, &mut table)?;
    let mut problems = Vec::new();
    match read_map(&**files, &superblock, &mut problems) {
        Ok(mut map) => table.row("map pages", map.map_pages_mut().count()),
        Err(error) => table.row("map pages", format!("cannot be read: {error}")),
    }
    let opened = open_in_memory(files, POOL).and_then(|db| {
        db.checkpoint()?;
        let rows = tree_facts(db.engine())?;
        db.close()?;
        Ok(rows)
    });
    match opened {
        Ok(rows) => table.0.extend(rows),
        Err(error) => table.row("trees", format!("cannot be listed: {error}")),
    }
    Ok(table.0)
}

/// Facts known without a replay of the log: whether the database was closed, and the work of the next open.
pub(crate) fn status(files: &dyn Files) -> Result<Vec<(String, String)>, Error> {
    let data = DataFile::open(files)?;
    let superblock = data.superblock()?;
    let mut table = Table::default();
    identity(&superblock, &data.found, &mut table);
    let log = log_rows(files, &superblock, &mut table)?;
    let closed = match log.filter(|log| !log.is_damaged).map(|log| log.groups) {
        Some(0) => "yes: the log has nothing beyond the last checkpoint".to_owned(),
        Some(groups) => format!("no: the next open redoes {groups} groups of the log"),
        None => "not known: the log cannot be read to its end; see 'millpond check'".to_owned(),
    };
    table.row("closed", closed);
    file_rows(files, &mut table)?;
    Ok(table.0)
}

/// As [`status`], for programs.
pub(super) fn status_figures(files: &dyn Files) -> Result<Vec<(&'static str, Figure)>, Error> {
    let data = DataFile::open(files)?;
    let superblock = data.superblock()?;
    let valid = data.found.iter().filter(|found| matches!(found, Found::Valid(_))).count();
    // `status` reports the problem of the log's files in words.
    let log = match LogFiles::open(files, superblock.owner(), superblock.redo, superblock.switch) {
        Ok(log) => Some(read_log(&log, &superblock)?),
        Err(_) => None,
    };
    let number = |number: Option<u64>| number.map_or(Figure::Unknown, Figure::Number);
    let (checkpoint, next) = (superblock.checkpoint_lsn, superblock.switch.map_or(superblock.redo, |to| to.to));
    let read = log.as_ref().filter(|log| !log.is_damaged);
    Ok(vec![
        ("uuid", Figure::Text(uuid_text(superblock.uuid))),
        ("format", Figure::Number(u64::from(FORMAT))),
        ("page_store", Figure::Text(page_store_of(&superblock).to_string())),
        ("page_size_bytes", Figure::Number(u64::from(superblock.page_size))),
        ("superblock_sequence", Figure::Number(superblock.sequence)),
        ("superblocks_valid", Figure::Number(to_u64(valid))),
        ("log_lsn_last_checkpoint", Figure::Number(checkpoint.0)),
        ("log_lsn_durable", Figure::Number(superblock.durable_lsn.0)),
        ("log_lsn_end", number(log.as_ref().map(|log| log.end.0))),
        ("log_generation", Figure::Number(u64::from(superblock.redo.generation))),
        ("log_capacity_bytes", Figure::Number(superblock.redo.capacity())),
        ("log_capacity_next_bytes", Figure::Number(next.capacity())),
        ("log_is_damaged", Figure::Flag(read.is_none())),
        ("redo_groups", number(log.as_ref().map(|log| log.groups))),
        ("redo_bytes", number(log.as_ref().map(|log| log.end.since(checkpoint)))),
        ("is_closed", read.map_or(Figure::Unknown, |log| Figure::Flag(log.groups == 0))),
        ("file_bytes", Figure::Numbers(file_lengths(files)?)),
    ])
}

/// The log beyond the last checkpoint.
struct LogRead {
    end: Lsn,
    groups: u64,
    /// More of the log was durable than can be read.
    is_damaged: bool,
}

fn read_log(log: &LogFiles, superblock: &Superblock) -> Result<LogRead, Error> {
    let mut scan = LogScan::new(log, superblock.nonce, superblock.checkpoint_lsn);
    let mut groups = 0u64;
    while scan.next()?.is_some() {
        groups += 1;
    }
    let end = scan.position();
    let is_damaged = end < superblock.durable_lsn || (!superblock.is_closed_at(end) && scan.proof_of_more()?.is_some());
    Ok(LogRead { end, groups, is_damaged })
}

fn identity(superblock: &Superblock, found: &[Found; 2], table: &mut Table) {
    let in_place = superblock.features & FEATURE_IN_PLACE != 0;
    let place = superblock.place();
    let other = if matches!(found[1 - place], Found::Valid(_)) { "valid too" } else { "damaged" };
    table.row("uuid", uuid_text(superblock.uuid));
    table.row("format", FORMAT);
    table.row("page store", if in_place { "in place" } else { "copy-on-write" });
    table.row("page size", superblock.page_size);
    table.row("superblock", format!("sequence {}, in place {place}; the other is {other}", superblock.sequence));
}

/// Adds the log's rows. Returns the log that was read; `None`: the log's files cannot be opened.
fn log_rows(files: &dyn Files, superblock: &Superblock, table: &mut Table) -> Result<Option<LogRead>, Error> {
    let redo = superblock.redo;
    table.row("checkpoint LSN", superblock.checkpoint_lsn);
    table.row("durable LSN", superblock.durable_lsn);
    table.row("log", format!("generation {}, {}", redo.generation, bytes(redo.capacity())));
    if let Some(switch) = superblock.switch {
        let to =
            format!("at LSN {} to generation {}, {}", switch.at, switch.to.generation, bytes(switch.to.capacity()));
        table.row("log goes over", to);
    }
    let log = match LogFiles::open(files, superblock.owner(), redo, superblock.switch) {
        Ok(log) => log,
        Err(error) => {
            table.row("log end", format!("cannot be read: {error}"));
            return Ok(None);
        }
    };
    let read = read_log(&log, superblock)?;
    let LogRead { end, groups, is_damaged } = read;
    table.row("log end", if is_damaged { format!("{end}, by damage: more was durable") } else { end.to_string() });
    table.row("to replay", format!("{groups} groups, {}", bytes(end.since(superblock.checkpoint_lsn))));
    Ok(Some(read))
}

fn file_rows(files: &dyn Files, table: &mut Table) -> Result<(), Error> {
    for (name, len) in file_lengths(files)? {
        table.row(&format!("file {name}"), bytes(len));
    }
    Ok(())
}

/// The database's files and their lengths.
fn file_lengths(files: &dyn Files) -> Result<Vec<(String, u64)>, Error> {
    let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
    let length = |name: String| {
        let len = files.open(&name).and_then(|file| file.len());
        let len = len.map_err(|e| Error::io(&format!("look at '{name}' in '{}'", files.place()), e))?;
        Ok((name, len))
    };
    names.into_iter().filter(|name| name.ends_with(".mpd")).map(length).collect()
}
