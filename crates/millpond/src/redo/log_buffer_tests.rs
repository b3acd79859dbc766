//! Unit tests of the log buffer, apart from its file because a model includes that file unchanged.

use super::log_buffer::LogBuffer;
use crate::base::aligned::{AlignedBuf, BLOCK, BLOCK_U64, to_u64};
use crate::base::ids::Lsn;
use crate::base::sync::Mutex;

#[test]
fn what_is_written_is_read_also_over_the_end_of_the_ring() {
    let buffer = LogBuffer::new(2 * BLOCK_U64);
    let bytes: Vec<u8> = (0..u8::MAX).cycle().take(2 * BLOCK).collect();
    for lsn in [0, 100, 3 * BLOCK_U64 - 1, 7 * BLOCK_U64 + 5].map(Lsn) {
        buffer.write(&bytes, lsn);
        let mut again = vec![0; bytes.len()];
        buffer.read(&mut again, lsn);
        assert_eq!(again, bytes, "{lsn}");
    }
}

#[test]
fn memory_is_that_of_all_blocks_and_their_mutexes() {
    let block = BLOCK_U64 + to_u64(size_of::<Mutex<AlignedBuf>>());
    assert_eq!(LogBuffer::memory_for(0), block);
    assert_eq!(LogBuffer::memory_for(7 * BLOCK_U64), 8 * block);
}
