//! The log's buffer for concurrent copies: a ring of blocks, each behind its own mutex.

use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, aligned, to_u64, to_usize};
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// A ring of blocks. The buffer's owner grants `[lsn, lsn + len)` to one reader or writer at a time. It ensures that no
/// older part of the log uses that place any more.
pub(super) struct LogBuffer {
    blocks: Box<[Mutex<AlignedBuf>]>,
}

impl LogBuffer {
    /// A buffer of whole blocks, and one more: the oldest byte and the newest byte are in different blocks.
    pub(super) fn new(bytes: u64) -> LogBuffer {
        let block = |_| Mutex::new(Rank::LogBlock, aligned(BLOCK));
        LogBuffer { blocks: (0..=bytes / BLOCK_U64).map(block).collect() }
    }

    /// Memory of a buffer of `bytes` bytes.
    pub(super) fn memory_for(bytes: u64) -> u64 {
        (bytes / BLOCK_U64 + 1) * (BLOCK_U64 + to_u64(size_of::<Mutex<AlignedBuf>>()))
    }

    /// Calls `with` on each piece of `[lsn, lsn + len)`: the block's bytes, and their range within `len`.
    fn pieces(&self, lsn: Lsn, len: usize, mut with: impl FnMut(&mut [u8], std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = lsn.plus(to_u64(done));
            let in_block = to_usize(at.0 % BLOCK_U64);
            let piece = (BLOCK - in_block).min(len - done);
            let mut block = self.blocks[to_usize(at.0 / BLOCK_U64 % to_u64(self.blocks.len()))].lock();
            with(&mut block[in_block..in_block + piece], done..done + piece);
            done += piece;
        }
    }

    pub(super) fn write(&self, bytes: &[u8], lsn: Lsn) {
        self.pieces(lsn, bytes.len(), |block, range| block.copy_from_slice(&bytes[range]));
    }

    pub(super) fn read(&self, bytes: &mut [u8], lsn: Lsn) {
        self.pieces(lsn, bytes.len(), |block, range| bytes[range].copy_from_slice(block));
    }
}
