//! The rings of log files: equal, preallocated, zero-written, recycled in place.
//!
//! Each file begins with a header block; the rest is payload. Byte `lsn` of the log is byte `lsn % capacity` of the
//! concatenated payloads of a ring's files. While `redo_capacity` changes there are two rings: the log moves from the
//! first to the second at the LSN that the superblock names.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, round_down, round_up, to_u64, to_usize};
use crate::base::clock;
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::io::device::{Device, Files};

pub(crate) const MAGIC: [u8; 8] = *b"MPREDO\0\0";

/// Files in a ring.
pub(crate) const RING: u64 = 4;

/// Capacity of the largest log, in bytes.
pub(crate) const CAPACITY_MAX: u64 = 1 << 40;

/// Offset of the lap in the header block: in a sector of its own, so that writing it never harms the header.
pub(crate) const LAP_OFFSET: usize = 512;

/// The constant part of a log file's header block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct LogFileHeader {
    pub(crate) magic: [u8; 8],
    pub(crate) crc: U32,
    pub(crate) index: U32,
    pub(crate) uuid: [U64; 2],
    pub(crate) payload_bytes: U64,
    pub(crate) generation: U32,
    pub(crate) page_size: U32,
    pub(crate) features: U64,
}

/// The lap, written when the log comes round to a file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct LogFileLap {
    pub(crate) first_group: U64,
    pub(crate) nonce: U64,
    pub(crate) crc: U32,
}

/// The database that a log belongs to: in every file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uuid: [u64; 2],
    pub(crate) page_size: u32,
    pub(crate) features: u64,
}

/// The first group that begins in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lap {
    /// The first LSN of the file in this lap.
    pub(crate) boundary: Lsn,
    pub(crate) first_group: Lsn,
    pub(crate) nonce: u64,
}

/// The begin of a group, and the nonce of the epoch there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Start {
    pub(crate) at: Lsn,
    pub(crate) nonce: u64,
}

/// A ring's generation and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) generation: u32,
    pub(crate) payload_bytes: u64,
}

impl Geometry {
    /// The ring of `generation` that holds `capacity` bytes, rounded down to whole blocks per file.
    pub(crate) fn of(generation: u32, capacity: u64) -> Geometry {
        Geometry { generation, payload_bytes: capacity / RING / BLOCK_U64 * BLOCK_U64 }
    }

    /// Whether this engine makes such rings.
    pub(crate) fn is_possible(self) -> bool {
        (BLOCK_U64..=CAPACITY_MAX / RING).contains(&self.payload_bytes) && self.payload_bytes.is_multiple_of(BLOCK_U64)
    }

    /// Payload bytes of the ring.
    pub(crate) fn capacity(self) -> u64 {
        self.payload_bytes * RING
    }
}

/// The LSN at which the log moves to another ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Switch {
    pub(crate) at: Lsn,
    pub(crate) to: Geometry,
}

/// One ring of open files.
#[derive(Clone)]
pub(crate) struct Ring {
    files: Vec<Arc<dyn Device>>,
    pub(crate) geometry: Geometry,
    owner: Owner,
}

pub(crate) fn file_name(generation: u32, index: u64) -> String {
    format!("redo-{generation}-{index}.mpd")
}

/// The generation and index in a log file's name; `None` if it is no log file's name.
pub(super) fn parse_name(name: &str) -> Option<(u32, u64)> {
    let (generation, index) = name.strip_prefix("redo-")?.strip_suffix(".mpd")?.split_once('-')?;
    let (generation, index) = (generation.parse().ok()?, index.parse().ok()?);
    (name == file_name(generation, index) && index < RING).then_some((generation, index))
}

/// Whether `name` is that of a log file.
pub(crate) fn is_log_file(name: &str) -> bool {
    parse_name(name).is_some()
}

fn header_of(owner: Owner, index: u64, geometry: Geometry) -> LogFileHeader {
    let mut header = LogFileHeader {
        magic: MAGIC,
        crc: U32::new(0),
        index: U32::new(u32::try_from(index).expect("REDO: the ring is small")),
        uuid: owner.uuid.map(U64::new),
        payload_bytes: U64::new(geometry.payload_bytes),
        generation: U32::new(geometry.generation),
        page_size: U32::new(owner.page_size),
        features: U64::new(owner.features),
    };
    header.crc = U32::new(crc32c(&[], &[header.as_bytes()]));
    header
}

/// The contents of a header; `None` if it is damaged.
pub(crate) fn read_header(block: &[u8]) -> Option<(Owner, u64, Geometry)> {
    let (header, _) = LogFileHeader::read_from_prefix(block).ok()?;
    let owner =
        Owner { uuid: header.uuid.map(U64::get), page_size: header.page_size.get(), features: header.features.get() };
    let geometry = Geometry { generation: header.generation.get(), payload_bytes: header.payload_bytes.get() };
    let index = u64::from(header.index.get());
    (header.as_bytes() == header_of(owner, index, geometry).as_bytes()).then_some((owner, index, geometry))
}

/// The first group of the file's lap, and its nonce; `None` if the lap is damaged.
pub(crate) fn read_lap(block: &[u8], uuid: [u64; 2]) -> Option<Start> {
    let (lap, _) = LogFileLap::read_from_prefix(block.get(LAP_OFFSET..)?).ok()?;
    let (first_group, nonce) = (lap.first_group.get(), lap.nonce.get());
    (lap.crc.get() == lap_crc(uuid, first_group, nonce)).then_some(Start { at: Lsn(first_group), nonce })
}

fn lap_crc(uuid: [u64; 2], first_group: u64, nonce: u64) -> u32 {
    crc32c(&uuid, &[&first_group.to_le_bytes(), &nonce.to_le_bytes()])
}

pub(crate) fn header_block(owner: Owner, index: u64, geometry: Geometry, lap: Option<&Lap>) -> AlignedBuf {
    let mut block = aligned(BLOCK);
    let header = header_of(owner, index, geometry);
    block[..size_of::<LogFileHeader>()].copy_from_slice(header.as_bytes());
    if let Some(lap) = lap {
        let crc = lap_crc(owner.uuid, lap.first_group.0, lap.nonce);
        let lap =
            LogFileLap { first_group: U64::new(lap.first_group.0), nonce: U64::new(lap.nonce), crc: U32::new(crc) };
        block[LAP_OFFSET..LAP_OFFSET + size_of::<LogFileLap>()].copy_from_slice(lap.as_bytes());
    }
    block
}

/// Called after each piece of a ring that is filled.
pub(crate) type Rest<'a> = &'a dyn Fn(u64) -> Result<(), Error>;

/// Bytes of zeroes in one write.
const PIECE: u64 = 1 << 20;

/// Zeroes that may be written before a sync: unsynced zeroes in the page cache would delay other threads' syncs.
const UNSYNCED_MAX: u64 = 8 * PIECE;

/// Makes a log file with a header and reserved space on the device. Nothing of it is durable.
fn reserve_file(
    files: &dyn Files,
    name: &str,
    owner: Owner,
    index: u64,
    geometry: Geometry,
) -> Result<Arc<dyn Device>, Error> {
    let len = BLOCK_U64 + geometry.payload_bytes;
    let make = || -> io::Result<Arc<dyn Device>> {
        let file = files.create(name)?;
        file.grow(len)?;
        file.write_at(&header_block(owner, index, geometry, None), 0)?;
        Ok(file)
    };
    make().map_err(|e| Error::io(&format!("create log file '{name}' of {len} bytes in '{}'", files.place()), e))
}

/// Fills a log file with zeroes, durable on return; its name is not. `rest` receives the nanoseconds that each piece
/// took. An error from it ends the filling.
fn fill_file(file: &dyn Device, payload_bytes: u64, rest: Rest<'_>) -> Result<(), Error> {
    let zeroes = aligned(to_usize(payload_bytes.min(PIECE)));
    for at in (0..payload_bytes).step_by(zeroes.len()) {
        let began_ns = clock::now_ns();
        let len = (payload_bytes - at).min(to_u64(zeroes.len()));
        let end = at + len;
        let mut written = file.write_at(&zeroes[..to_usize(len)], BLOCK_U64 + at);
        if end == payload_bytes || end.is_multiple_of(UNSYNCED_MAX) {
            written = written.and_then(|()| file.sync());
        }
        let doing = || format!("fill log file '{}' of {} bytes", file.name(), BLOCK_U64 + payload_bytes);
        written.map_err(|e| Error::io(&doing(), e))?;
        rest(clock::now_ns().saturating_sub(began_ns))?;
    }
    Ok(())
}

/// The name of a log file until it is whole.
const FILE_NEW: &str = "redo-new.mpd";

/// A file that is missing from a ring.
#[derive(Clone)]
pub(crate) struct MissingFile {
    owner: Owner,
    index: u64,
    geometry: Geometry,
}

impl MissingFile {
    /// The missing files of a ring.
    pub(crate) fn find(files: &dyn Files, owner: Owner, geometry: Geometry) -> Result<Vec<MissingFile>, Error> {
        let names = files.list().map_err(|e| Error::io(&format!("list '{}'", files.place()), e))?;
        let all = (0..RING).map(|index| MissingFile { owner, index, geometry });
        Ok(all.filter(|file| !names.contains(&file.name())).collect())
    }

    pub(crate) fn name(&self) -> String {
        file_name(self.geometry.generation, self.index)
    }

    /// Creates an empty file in its place in `files`, which are in memory.
    pub(crate) fn stand_in(&self, files: &dyn Files) -> Result<(), Error> {
        let header = header_block(self.owner, self.index, self.geometry, None);
        let made = files.create(&self.name()).and_then(|file| {
            file.grow(BLOCK_U64 + self.geometry.payload_bytes)?;
            file.write_at(&header, 0)
        });
        made.map_err(|e| Error::io(&format!("hold log file '{}' in memory", self.name()), e))
    }

    /// Creates the file, empty, in one step; durable on return.
    pub(crate) fn create(&self, files: &dyn Files) -> Result<(), Error> {
        let made = reserve_file(files, FILE_NEW, self.owner, self.index, self.geometry)
            .and_then(|file| fill_file(&*file, self.geometry.payload_bytes, &|_| Ok(())));
        if made.is_err() {
            // Half a file would keep the disk full.
            let _ = files.remove(FILE_NEW);
        }
        made?;
        let named = files.rename(FILE_NEW, &self.name()).and_then(|()| files.sync_names());
        named.map_err(|e| Error::io(&format!("rename '{FILE_NEW}' to '{}'", self.name()), e))
    }
}

impl Ring {
    /// Makes a new ring. Its files are durable on return, their names are not.
    pub(crate) fn create(files: &dyn Files, owner: Owner, geometry: Geometry) -> Result<Ring, Error> {
        let ring = Ring::reserve(files, owner, geometry)?;
        ring.fill(&|_| Ok(()))?;
        Ok(ring)
    }

    /// Makes a ring's files, with space reserved on the device: quickly. The ring must not be used before it is
    /// [filled](Self::fill).
    pub(crate) fn reserve(files: &dyn Files, owner: Owner, geometry: Geometry) -> Result<Ring, Error> {
        let ring =
            (0..RING).map(|index| reserve_file(files, &file_name(geometry.generation, index), owner, index, geometry));
        Ok(Ring { files: ring.collect::<Result<_, _>>()?, geometry, owner })
    }

    /// Fills a reserved ring with zeroes, so that the log's syncs have no extents to convert later. Takes as long as
    /// the device needs for the whole ring. Its files are durable on return, their names are not. `rest` receives the
    /// nanoseconds that each piece took. An error from it ends the filling.
    pub(crate) fn fill(&self, rest: Rest<'_>) -> Result<(), Error> {
        self.files.iter().try_for_each(|file| fill_file(&**file, self.geometry.payload_bytes, rest))
    }

    /// Opens a ring and checks that every file has the expected header and length.
    pub(crate) fn open(files: &dyn Files, owner: Owner, geometry: Geometry) -> Result<Ring, Error> {
        let mut ring = Vec::new();
        let mut block = aligned(BLOCK);
        for index in 0..RING {
            let name = file_name(geometry.generation, index);
            let file = files.open(&name).map_err(|e| {
                if e.kind() == io::ErrorKind::NotFound {
                    let message = format!(
                        "log file '{name}' is missing in '{}': restore it, or a backup (`millpond restore`); if the database was closed, `millpond rebuild --force` does without",
                        files.place()
                    );
                    return Error::Corruption(message.into());
                }
                Error::io(&format!("open log file '{name}'"), e)
            })?;
            let wrong = |what: &str| {
                Error::Corruption(
                    format!(
                        "log file '{}' {what}: restore a backup (`millpond restore`); if it was closed, take the file away and run `millpond rebuild --force`",
                        file.name()
                    )
                    .into(),
                )
            };
            let len = file.len().map_err(|e| Error::io(&format!("look at '{}'", file.name()), e))?;
            let wanted = BLOCK_U64 + geometry.payload_bytes;
            if len < wanted {
                return Err(wrong(&format!("has {len} bytes instead of {wanted}")));
            }
            file.read_at(&mut block, 0).map_err(|e| Error::io(&format!("read '{}'", file.name()), e))?;
            if read_header(&block) != Some((owner, index, geometry)) {
                return Err(wrong("has a header that is not the one written"));
            }
            ring.push(file);
        }
        Ok(Ring { files: ring, geometry, owner })
    }

    fn file(&self, at: Lsn) -> (&Arc<dyn Device>, u64) {
        let index = at.0 / self.geometry.payload_bytes % RING;
        (&self.files[to_usize(index)], index)
    }

    /// The first group of a file's lap, and its nonce; `None` if the file names none.
    fn lap_of(&self, file: &dyn Device) -> Result<Option<Start>, Error> {
        let mut block = aligned(BLOCK);
        file.read_at(&mut block, 0).map_err(|e| Error::io(&format!("read the header of '{}'", file.name()), e))?;
        Ok(read_lap(&block, self.owner.uuid))
    }

    /// Writes the lap of the file that holds `lap.boundary`.
    pub(crate) fn write_lap(&self, lap: &Lap) -> Result<(), Error> {
        let (file, index) = self.file(lap.boundary);
        let block = header_block(self.owner, index, self.geometry, Some(lap));
        file.write_at(&block, 0).map_err(|e| Error::device(&format!("write the header of '{}'", file.name()), e))
    }
}

/// Whether the payload of a log file holds a byte other than zero.
pub(super) fn holds_groups(file: &dyn Device) -> Result<bool, Error> {
    let reading = |e| Error::io(&format!("read log file '{}'", file.name()), e);
    let end = round_down(file.len().map_err(reading)?);
    let mut buf = aligned(1 << 20);
    for at in (BLOCK_U64..end).step_by(1 << 20) {
        let len = to_usize((end - at).min(1 << 20));
        file.read_at(&mut buf[..len], at).map_err(reading)?;
        if buf[..len].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the files of one ring.
pub(crate) fn remove_ring(files: &dyn Files, generation: u32) -> io::Result<()> {
    (0..RING).try_for_each(|index| files.remove(&file_name(generation, index)))
}

/// Removes all log files that are of none of `generations`. No thread makes log files meanwhile.
pub(crate) fn remove_others(files: &dyn Files, generations: &[u32]) -> io::Result<()> {
    for name in files.list()? {
        if parse_name(&name).is_some_and(|(generation, _)| !generations.contains(&generation)) {
            files.remove(&name)?;
        }
    }
    Ok(())
}

/// The log's files: one ring, or two, of which the second begins at an LSN.
#[derive(Clone)]
pub(crate) struct LogFiles {
    first: Ring,
    second: Option<(Lsn, Ring)>,
}

impl LogFiles {
    pub(crate) fn new(first: Ring, second: Option<(Lsn, Ring)>) -> LogFiles {
        LogFiles { first, second }
    }

    fn rings(&self) -> impl Iterator<Item = &Ring> {
        [&self.first].into_iter().chain(self.second.as_ref().map(|(_, ring)| ring))
    }

    /// Opens the rings named by a superblock.
    pub(crate) fn open(
        files: &dyn Files,
        owner: Owner,
        geometry: Geometry,
        switch: Option<Switch>,
    ) -> Result<LogFiles, Error> {
        let first = Ring::open(files, owner, geometry)?;
        let second = match switch {
            None => None,
            Some(switch) => Some((switch.at, Ring::open(files, owner, switch.to)?)),
        };
        Ok(LogFiles { first, second })
    }

    /// The same files with a second ring that begins at `at`.
    pub(super) fn with_second(&self, at: Lsn, ring: Ring) -> LogFiles {
        LogFiles { first: self.first.clone(), second: Some((at, ring)) }
    }

    /// The second ring alone.
    pub(super) fn second_alone(&self) -> LogFiles {
        let first = self.second.as_ref().map_or(&self.first, |(_, ring)| ring);
        LogFiles { first: first.clone(), second: None }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.first.geometry
    }

    pub(crate) fn switch(&self) -> Option<Switch> {
        self.second.as_ref().map(|(at, ring)| Switch { at: *at, to: ring.geometry })
    }

    /// Payload bytes of the ring that the log is in, or is moving to.
    pub(crate) fn capacity(&self) -> u64 {
        self.second.as_ref().map_or(&self.first, |(_, ring)| ring).geometry.capacity()
    }

    /// The first LSN that must not be written while only the log before `checkpoint` may be overwritten.
    ///
    /// Two blocks are left free: the block that holds `checkpoint` and the block that holds the log's end never share a
    /// place in the ring.
    pub(super) fn wall(&self, checkpoint: Lsn) -> Lsn {
        let in_first = checkpoint.plus(self.first.geometry.capacity() - 2 * BLOCK_U64);
        match &self.second {
            Some((at, ring)) if in_first >= *at => checkpoint.max(*at).plus(ring.geometry.capacity() - 2 * BLOCK_U64),
            _ => in_first,
        }
    }

    fn ring(&self, at: Lsn) -> &Ring {
        match &self.second {
            Some((switch, ring)) if at >= *switch => ring,
            _ => &self.first,
        }
    }

    /// The first file boundary in `(start, end]`.
    pub(super) fn boundary(&self, start: Lsn, end: Lsn) -> Option<Lsn> {
        let ring = self.ring(start);
        let file_end = Lsn((start.0 / ring.geometry.payload_bytes + 1) * ring.geometry.payload_bytes);
        let switch = self.second.as_ref().map(|(at, _)| *at).filter(|at| *at > start);
        Some(switch.map_or(file_end, |at| at.min(file_end))).filter(|boundary| *boundary <= end)
    }

    pub(super) fn write_lap(&self, lap: &Lap) -> Result<(), Error> {
        self.ring(lap.boundary).write_lap(lap)
    }

    /// Cuts `[at, at + len)` at file ends: (file, offset in the file, length) of each piece.
    fn pieces(&self, at: Lsn, len: usize) -> impl Iterator<Item = (&Arc<dyn Device>, u64, usize)> {
        let mut position = at;
        let end = at.plus(to_u64(len));
        std::iter::from_fn(move || {
            if position >= end {
                return None;
            }
            let piece_end = self.boundary(position, end).unwrap_or(end);
            let ring = self.ring(position);
            let (file, _) = ring.file(position);
            let offset = BLOCK_U64 + position.0 % ring.geometry.payload_bytes;
            let piece = to_usize(piece_end.since(position));
            position = piece_end;
            Some((file, offset, piece))
        })
    }

    /// Reads whole blocks at `at`, which is block-aligned.
    pub(crate) fn read(&self, buf: &mut [u8], at: Lsn) -> Result<(), Error> {
        let mut done = 0;
        for (file, offset, len) in self.pieces(at, buf.len()) {
            file.read_at(&mut buf[done..done + len], offset)
                .map_err(|e| Error::io(&format!("read {len} bytes at {offset} of log file '{}'", file.name()), e))?;
            done += len;
        }
        Ok(())
    }

    /// Writes whole blocks at `at`, which is block-aligned.
    pub(crate) fn write(&self, buf: &[u8], at: Lsn) -> Result<(), Error> {
        let mut done = 0;
        for (file, offset, len) in self.pieces(at, buf.len()) {
            file.write_at(&buf[done..done + len], offset).map_err(|e| {
                Error::device(&format!("write {len} bytes at {offset} of log file '{}'", file.name()), e)
            })?;
            done += len;
        }
        Ok(())
    }

    /// Syncs the files that hold `[at, at + len)`.
    pub(crate) fn sync(&self, at: Lsn, len: usize) -> Result<(), Error> {
        for (file, _, _) in self.pieces(at, len) {
            file.sync().map_err(|e| Error::device(&format!("sync log file '{}'", file.name()), e))?;
        }
        Ok(())
    }

    /// Writes to `to` the laps of the files that the log from `from` to `end` runs into.
    pub(crate) fn copy_laps(&self, to: &LogFiles, from: Lsn, end: Lsn) -> Result<(), Error> {
        let mut at = from;
        while let Some(boundary) = self.boundary(at, end) {
            let ring = self.ring(boundary);
            if let Some(start) = ring.lap_of(&**ring.file(boundary).0)? {
                to.write_lap(&Lap { boundary, first_group: start.at, nonce: start.nonce })?;
            }
            at = boundary;
        }
        Ok(())
    }

    /// The first groups of the files' laps, for the files that name one; oldest first.
    pub(crate) fn laps(&self) -> Result<Vec<Start>, Error> {
        let mut laps = Vec::new();
        for ring in self.rings() {
            for file in &ring.files {
                laps.extend(ring.lap_of(&**file)?);
            }
        }
        laps.sort_unstable();
        Ok(laps)
    }

    /// The name of a file that holds unknown groups: it names no lap, and the log from `start` to its `end` does not
    /// run into it. The file behind the end is exempt: its groups may be the remains of the last flush before a crash.
    pub(super) fn unknown_file(&self, start: Lsn, end: Lsn) -> Result<Option<String>, Error> {
        let behind = self.boundary(end, Lsn(u64::MAX)).unwrap_or(end).plus(1);
        // Except for the first, a piece begins where the log runs into a file.
        let pieces = self.pieces(start, to_usize(behind.since(start))).enumerate();
        let entered = pieces.filter(|(index, (_, offset, _))| *index > 0 || *offset == BLOCK_U64);
        let entered: BTreeSet<String> = entered.map(|(_, (file, ..))| file.name().to_owned()).collect();
        for ring in self.rings() {
            for file in ring.files.iter().filter(|file| !entered.contains(file.name())) {
                if ring.lap_of(&**file)?.is_none() && holds_groups(&**file)? {
                    return Ok(Some(file.name().to_owned()));
                }
            }
        }
        Ok(None)
    }

    /// Rewrites `[from, end)` with the bytes that are read there, and the headers of the files that hold it. In an
    /// earlier process a sync of these bytes may have failed. Then they can be read, but the next sync does not write
    /// them, since the kernel takes them for written.
    pub(crate) fn write_again(&self, from: Lsn, end: Lsn) -> Result<(), Error> {
        let (from, end) = (Lsn(round_down(from.0)), Lsn(round_up(end.0)));
        let mut buf = aligned(to_usize(end.since(from)).clamp(BLOCK, 1 << 20));
        for at in (from.0..end.0).step_by(buf.len()).map(Lsn) {
            let len = buf.len().min(to_usize(end.since(at)));
            self.read(&mut buf[..len], at)?;
            self.write(&buf[..len], at)?;
        }
        for (file, _, _) in self.pieces(from, to_usize(end.since(from))) {
            let header = &mut buf[..BLOCK];
            let again = file.read_at(header, 0).and_then(|()| file.write_at(header, 0));
            again.map_err(|e| Error::device(&format!("write the header of '{}' again", file.name()), e))?;
        }
        Ok(())
    }

    /// Syncs all files.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        for file in self.rings().flat_map(|ring| &ring.files) {
            file.sync().map_err(|e| Error::device(&format!("sync log file '{}'", file.name()), e))?;
        }
        Ok(())
    }
}
