//! CRC-32C with a seed, so that whole bytes in the wrong place fail the check.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli) of the seed's words followed by the parts.
///
/// The seed names the place of the bytes (database, page, LSN): equal bytes elsewhere get another checksum.
pub(crate) fn crc32c(seed: &[u64], parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for word in seed {
        digest.update(&word.to_le_bytes());
    }
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("CRC-1: a CRC-32 has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_castagnoli_and_depends_on_the_seed() {
        assert_eq!(crc32c(&[], &[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[], &[b"1234", b"56789"]), 0xe306_9283);
        assert_ne!(crc32c(&[1], &[b"x"]), crc32c(&[2], &[b"x"]));
    }
}
