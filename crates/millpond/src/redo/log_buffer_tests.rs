//! Units of the log buffer: not in its file, which a model takes as it is.

use super::log_buffer::LogBuffer;
use crate::base::aligned::{BLOCK, BLOCK_U64};
use crate::base::ids::Lsn;

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
