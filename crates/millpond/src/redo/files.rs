//! The ring of log files: equal, preallocated, zero-written, recycled in place.
//!
//! Each file begins with a header block; the rest is payload. Byte `lsn` of the log is byte `lsn % capacity` of the
//! payloads put one after the other.

use std::io;
use std::sync::Arc;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::aligned::{BLOCK, BLOCK_U64, aligned, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::ids::Lsn;
use crate::io::device::{Device, Files};

const MAGIC: [u8; 8] = *b"MPREDO\0\0";

/// How many files form the ring.
pub(crate) const RING: u64 = 4;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LogFileHeader {
    magic: [u8; 8],
    crc: U32,
    index: U32,
    uuid: [U64; 2],
    payload_bytes: U64,
}

/// The open log files.
pub(crate) struct LogFiles {
    files: Vec<Arc<dyn Device>>,
    payload_bytes: u64,
}

fn file_name(generation: u32, index: u64) -> String {
    format!("redo-{generation}-{index}.mpd")
}

/// The generation that a log file's name tells; `None`: it is no log file's.
fn generation_of(name: &str) -> Option<u32> {
    let (generation, index) = name.strip_prefix("redo-")?.strip_suffix(".mpd")?.split_once('-')?;
    let (generation, index) = (generation.parse().ok()?, index.parse().ok()?);
    (name == file_name(generation, index) && index < RING).then_some(generation)
}

/// Whether `name` is that of a log file.
pub(crate) fn is_log_file(name: &str) -> bool {
    generation_of(name).is_some()
}

fn header_block(uuid: [u64; 2], index: u64, payload_bytes: u64) -> crate::base::aligned::AlignedBuf {
    let mut header = LogFileHeader {
        magic: MAGIC,
        crc: U32::new(0),
        index: U32::new(u32::try_from(index).expect("REDO: the ring is small")),
        uuid: uuid.map(U64::new),
        payload_bytes: U64::new(payload_bytes),
    };
    header.crc = U32::new(crc32c(&[], &[header.as_bytes()]));
    let mut block = aligned(BLOCK);
    block[..size_of::<LogFileHeader>()].copy_from_slice(header.as_bytes());
    block
}

impl LogFiles {
    /// Makes the ring anew: `capacity` payload bytes, rounded down to whole blocks per file. Durable on return.
    pub(crate) fn create(files: &dyn Files, uuid: [u64; 2], generation: u32, capacity: u64) -> Result<LogFiles, Error> {
        let payload_bytes = Self::payload_for(capacity);
        let zeroes = aligned(to_usize(payload_bytes.min(1 << 20)));
        let mut ring = Vec::new();
        for index in 0..RING {
            let name = file_name(generation, index);
            let make = || -> io::Result<Arc<dyn Device>> {
                let file = files.create(&name)?;
                file.grow(BLOCK_U64 + payload_bytes)?;
                file.write_at(&header_block(uuid, index, payload_bytes), 0)?;
                let mut at = 0;
                while at < payload_bytes {
                    let len = (payload_bytes - at).min(to_u64(zeroes.len()));
                    file.write_at(&zeroes[..to_usize(len)], BLOCK_U64 + at)?;
                    at += len;
                }
                file.sync()?;
                Ok(file)
            };
            let doing =
                || format!("create log file '{name}' of {} bytes in '{}'", BLOCK_U64 + payload_bytes, files.place());
            ring.push(make().map_err(|e| Error::io(&doing(), e))?);
        }
        Ok(LogFiles { files: ring, payload_bytes })
    }

    /// Payload bytes of each file in a ring of `capacity`.
    pub(crate) fn payload_for(capacity: u64) -> u64 {
        capacity / RING / BLOCK_U64 * BLOCK_U64
    }

    /// Opens the ring of `generation` and checks that every file is the one expected.
    pub(crate) fn open(
        files: &dyn Files,
        uuid: [u64; 2],
        generation: u32,
        payload_bytes: u64,
    ) -> Result<LogFiles, Error> {
        let mut ring = Vec::new();
        let mut block = aligned(BLOCK);
        for index in 0..RING {
            let name = file_name(generation, index);
            let file = files.open(&name).map_err(|e| {
                if e.kind() == io::ErrorKind::NotFound {
                    let message = format!(
                        "log file '{name}' is missing in '{}': restore it, or the database from a backup",
                        files.place()
                    );
                    return Error::Corruption(message.into());
                }
                Error::io(&format!("open log file '{name}'"), e)
            })?;
            let wrong = |what: &str| {
                Error::Corruption(
                    format!("log file '{}' {what}: restore the database from a backup", file.name()).into(),
                )
            };
            let len = file.len().map_err(|e| Error::io(&format!("look at '{}'", file.name()), e))?;
            if len < BLOCK_U64 + payload_bytes {
                return Err(wrong(&format!("has {len} bytes instead of {}", BLOCK_U64 + payload_bytes)));
            }
            file.read_at(&mut block, 0).map_err(|e| Error::io(&format!("read '{}'", file.name()), e))?;
            if *block != *header_block(uuid, index, payload_bytes) {
                return Err(wrong("has a header that is not the one written"));
            }
            ring.push(file);
        }
        Ok(LogFiles { files: ring, payload_bytes })
    }

    /// Removes all log files that are not of `generation`.
    pub(crate) fn remove_others(files: &dyn Files, generation: u32) -> io::Result<()> {
        for name in files.list()?.iter().filter(|name| generation_of(name).is_some_and(|g| g != generation)) {
            files.remove(name)?;
        }
        Ok(())
    }

    /// Payload bytes of the ring.
    pub(crate) fn capacity(&self) -> u64 {
        self.payload_bytes * to_u64(self.files.len())
    }

    /// Payload bytes of each file.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Cuts `[at, at + len)` where files end: (file, offset in the file, length) of each piece.
    fn pieces(&self, at: Lsn, len: usize) -> impl Iterator<Item = (&Arc<dyn Device>, u64, usize)> {
        let mut position = at.0;
        let end = at.0 + to_u64(len);
        std::iter::from_fn(move || {
            if position >= end {
                return None;
            }
            let in_file = position % self.payload_bytes;
            let file = &self.files[to_usize(position / self.payload_bytes) % self.files.len()];
            let piece = (end - position).min(self.payload_bytes - in_file);
            position += piece;
            Some((file, BLOCK_U64 + in_file, to_usize(piece)))
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
}
