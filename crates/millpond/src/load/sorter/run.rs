//! Runs: sorted parts of the rows, each in a file of its own.
//!
//! A file is a sequence of blocks of 64 KiB. A block: checksum (4 bytes), bytes of the block in use (4), records.
//! A record: length of the key (2), length of the payload (2), key, payload. No record crosses a block's end.

use std::sync::Arc;

use crate::base::aligned::{AlignedBuf, aligned, to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::error::Error;
use crate::base::page::view::u16_at;
use crate::io::device::{Device, Files};

/// Bytes of a block.
pub(crate) const BLOCK_LEN: usize = 64 << 10;

/// Bytes before a block's records.
const BLOCK_HEAD: usize = 8;

/// Bytes before a record's key.
const RECORD_HEAD: usize = 4;

/// Blocks written together: 1 MiB.
const BLOCKS_A_WRITE: usize = 16;

/// A file that is removed on drop.
struct TempFile {
    files: Arc<dyn Files>,
    file: Arc<dyn Device>,
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // On failure the next open removes the file.
        let _ = self.files.remove(self.file.name());
    }
}

/// Rows in the order of their keys, on the device.
pub(crate) struct Run {
    file: TempFile,
    blocks: u64,
}

/// A run that is being written.
pub(crate) struct RunWriter {
    file: TempFile,
    buf: AlignedBuf,
    /// Blocks in the file.
    written: u64,
    /// Blocks in `buf`, including the one being filled.
    filled: usize,
    /// Bytes in use of the last block in `buf`.
    used: usize,
}

/// Appends a record, whose payload has two parts.
pub(crate) fn write_record(out: &mut Vec<u8>, key: &[u8], payload: [&[u8]; 2]) {
    let len = |bytes: usize| u16::try_from(bytes).expect("SORT-2: keys and rows are within the limits");
    out.extend_from_slice(&len(key.len()).to_le_bytes());
    out.extend_from_slice(&len(payload[0].len() + payload[1].len()).to_le_bytes());
    [key, payload[0], payload[1]].iter().for_each(|part| out.extend_from_slice(part));
}

/// Bytes of a record.
pub(crate) fn record_len(key: usize, payload: usize) -> usize {
    RECORD_HEAD + key + payload
}

/// Key and payload of the record at the start of `bytes`.
pub(crate) fn record_at(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (key, payload) = (u16_at(bytes, 0), u16_at(bytes, 2));
    let rest = bytes.get(RECORD_HEAD..RECORD_HEAD + key + payload).unwrap_or_default();
    rest.split_at_checked(key).unwrap_or_default()
}

impl RunWriter {
    pub(crate) fn create(files: &Arc<dyn Files>, name: &str) -> Result<RunWriter, Error> {
        let file = files.create(name).map_err(|e| Error::io(&format!("create '{name}' in '{}'", files.place()), e))?;
        let file = TempFile { files: Arc::clone(files), file };
        let buf = aligned(BLOCKS_A_WRITE * BLOCK_LEN);
        Ok(RunWriter { file, buf, written: 0, filled: 1, used: BLOCK_HEAD })
    }

    /// Adds a record made by [`write_record`], whose key is not below the last record's.
    pub(crate) fn push(&mut self, record: &[u8]) -> Result<(), Error> {
        if self.used + record.len() > BLOCK_LEN {
            self.end_block()?;
        }
        let at = (self.filled - 1) * BLOCK_LEN + self.used;
        self.buf[at..at + record.len()].copy_from_slice(record);
        self.used += record.len();
        Ok(())
    }

    /// Seals the block, and begins the next one.
    fn end_block(&mut self) -> Result<(), Error> {
        let number = self.written + to_u64(self.filled) - 1;
        let block = &mut self.buf[(self.filled - 1) * BLOCK_LEN..self.filled * BLOCK_LEN];
        let used = u32::try_from(self.used).expect("SORT-2: a block has 64 KiB");
        block[4..BLOCK_HEAD].copy_from_slice(&used.to_le_bytes());
        let crc = crc32c(&[number], &[&block[4..self.used]]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        self.used = BLOCK_HEAD;
        self.filled += 1;
        if self.filled > BLOCKS_A_WRITE {
            self.write(BLOCKS_A_WRITE)?;
        }
        Ok(())
    }

    fn write(&mut self, blocks: usize) -> Result<(), Error> {
        let (offset, file) = (self.written * to_u64(BLOCK_LEN), &self.file.file);
        self.written += to_u64(blocks);
        let (name, len) = (file.name(), self.written * to_u64(BLOCK_LEN));
        file.grow(len).map_err(|e| Error::io(&format!("grow '{name}' to {len} bytes"), e))?;
        let written = file.write_at(&self.buf[..blocks * BLOCK_LEN], offset);
        written.map_err(|e| Error::io(&format!("write to '{name}' at {offset}"), e))?;
        self.filled = 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Run, Error> {
        self.end_block()?;
        if self.filled > 1 {
            self.write(self.filled - 1)?;
        }
        Ok(Run { file: self.file, blocks: self.written })
    }
}

/// A run that is being read.
pub(crate) struct RunReader {
    run: Run,
    /// Blocks that are read together.
    buf: AlignedBuf,
    next_block: u64,
    /// Blocks in `buf` that follow the one in use.
    ahead: usize,
    /// Begin of the block in use in `buf`.
    block: usize,
    /// Begin of the current record in `buf`.
    at: usize,
    /// End of the current record in `buf`.
    end: usize,
    /// End of the block's records in `buf`.
    used: usize,
}

impl RunReader {
    /// A reader of the run from its first record, with memory for `blocks` blocks: at least 1, and at most as many as
    /// are written together.
    pub(super) fn new(run: Run, blocks: usize) -> RunReader {
        let buf = aligned(blocks.clamp(1, BLOCKS_A_WRITE) * BLOCK_LEN);
        RunReader { run, buf, next_block: 0, ahead: 0, block: 0, at: 0, end: 0, used: 0 }
    }

    /// Goes on to the next record. False: there is none.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        self.at = self.end;
        while self.at >= self.used {
            if self.next_block == self.run.blocks {
                return Ok(false);
            }
            self.read_block()?;
        }
        let (key, payload) = record_at(&self.buf[self.at..self.used]);
        self.end = self.at + record_len(key.len(), payload.len());
        Ok(true)
    }

    fn read_block(&mut self) -> Result<(), Error> {
        let (file, number) = (&self.run.file.file, self.next_block);
        let offset = number * to_u64(BLOCK_LEN);
        if self.ahead > 0 {
            self.block += BLOCK_LEN;
        } else {
            let blocks = (self.buf.len() / BLOCK_LEN).min(to_usize(self.run.blocks - number));
            let read = file.read_at(&mut self.buf[..blocks * BLOCK_LEN], offset);
            read.map_err(|e| Error::io(&format!("read '{}' at {offset}", file.name()), e))?;
            (self.block, self.ahead) = (0, blocks);
        }
        let block = &self.buf[self.block..self.block + BLOCK_LEN];
        let word = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let used = to_usize(u64::from(word(4)));
        let whole = (BLOCK_HEAD..=BLOCK_LEN).contains(&used) && crc32c(&[number], &[&block[4..used]]) == word(0);
        if !whole {
            let message = format!(
                "the sort file '{}' differs at {offset} from what was written: see the kernel's log for the disk, and load again",
                file.name()
            );
            return Err(Error::Corruption(message.into()));
        }
        let first = self.block + BLOCK_HEAD;
        (self.at, self.end, self.used) = (first, first, self.block + used);
        self.next_block += 1;
        self.ahead -= 1;
        Ok(())
    }

    /// The current record.
    pub(super) fn record(&self) -> &[u8] {
        &self.buf[self.at..self.end]
    }
}
