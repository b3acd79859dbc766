//! Memory aligned for O_DIRECT.

use aligned_vec::{ABox, AVec, ConstAlign};

/// The unit of every device transfer, in bytes: offset, length and memory address are multiples of it.
pub(crate) const BLOCK: usize = 4096;

/// [`BLOCK`] as a file offset.
pub(crate) const BLOCK_U64: u64 = 4096;

/// A zeroed byte buffer of fixed length whose address is a multiple of [`BLOCK`].
pub(crate) type AlignedBuf = ABox<[u8], ConstAlign<BLOCK>>;

/// Allocates `len` zero bytes, aligned.
pub(crate) fn aligned(len: usize) -> AlignedBuf {
    let mut bytes: AVec<u8, ConstAlign<BLOCK>> = AVec::with_capacity(BLOCK, len);
    bytes.resize(len, 0);
    bytes.into_boxed_slice()
}

/// `value` as a length in memory.
///
/// Widths on disk and in shared state are explicit; the engine runs on 64-bit machines only, so this cannot fail there.
pub(crate) fn to_usize(value: u64) -> usize {
    usize::try_from(value).expect("BASE-1: a usize has 64 bits")
}

/// `value` as a file offset or count.
pub(crate) fn to_u64(value: usize) -> u64 {
    u64::try_from(value).expect("BASE-1: a usize has 64 bits")
}

/// Rounds `value` up to a multiple of [`BLOCK`].
pub(crate) fn round_up(value: u64) -> u64 {
    value.div_ceil(BLOCK_U64) * BLOCK_U64
}

/// Rounds `value` down to a multiple of [`BLOCK`].
pub(crate) fn round_down(value: u64) -> u64 {
    value / BLOCK_U64 * BLOCK_U64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zero() {
        for len in [BLOCK, 3 * BLOCK, if cfg!(miri) { 4 * BLOCK } else { 1 << 20 }] {
            let buf = aligned(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr().addr() % BLOCK, 0);
            assert!(buf.iter().all(|&b| b == 0));
        }
        assert_eq!(round_up(1), 4096);
        assert_eq!(round_up(4096), 4096);
        assert_eq!(round_down(8191), 4096);
    }
}
