//! A redo group's frame: what makes a mini-transaction's bytes whole or worthless.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::aligned::{to_u64, to_usize};
use crate::base::crc::crc32c;
use crate::base::ids::Lsn;

/// The first bytes of a group.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct GroupHeader {
    /// Bytes of the whole group: header, payload, trailer.
    pub(crate) len: U32,
    /// CRC-32C of the payload, seeded with nonce, LSN and length.
    pub(crate) crc: U32,
}

/// Bytes of a [`GroupHeader`].
pub(crate) const GROUP_HEADER_LEN: usize = 8;

/// Bytes after the payload: the length again.
pub(crate) const GROUP_TRAILER_LEN: usize = 4;

/// Bytes that framing adds to a payload.
pub(crate) const GROUP_FRAME_LEN: usize = GROUP_HEADER_LEN + GROUP_TRAILER_LEN;

const _: () = assert!(size_of::<GroupHeader>() == GROUP_HEADER_LEN);

fn seal(nonce: u64, at: Lsn, len: u32, payload_crc: u32) -> u32 {
    crc32c(&[nonce, at.0, u64::from(len) << 32 | u64::from(payload_crc)], &[])
}

/// The checksum of a payload by itself: computed before its place is known, and outside of the log's mutex.
pub(crate) fn payload_crc(payload: &[u8]) -> u32 {
    crc32c(&[], &[payload])
}

/// Writes a group that begins at `at` into `out`, which is exactly as long as the group.
pub(crate) fn write_group(out: &mut [u8], nonce: u64, at: Lsn, payload: &[u8], payload_crc: u32) {
    let len = u32::try_from(out.len()).expect("REDO-5: a group is shorter than the log buffer");
    let header = GroupHeader { len: U32::new(len), crc: U32::new(seal(nonce, at, len, payload_crc)) };
    out[..GROUP_HEADER_LEN].copy_from_slice(header.as_bytes());
    out[GROUP_HEADER_LEN..GROUP_HEADER_LEN + payload.len()].copy_from_slice(payload);
    let trailer = out.len() - GROUP_TRAILER_LEN;
    out[trailer..].copy_from_slice(&len.to_le_bytes());
}

/// The length that a group claims, if it is a possible one.
pub(crate) fn claimed_len(bytes: &[u8], longest: usize) -> Option<usize> {
    let (header, _) = GroupHeader::ref_from_prefix(bytes).ok()?;
    let len = to_usize(u64::from(header.len.get()));
    (len > GROUP_FRAME_LEN && len <= longest).then_some(len)
}

/// The payload of the group that is all of `bytes` and begins at `at`; `None` if it is not whole, or not of this
/// place and epoch.
pub(crate) fn read_group(bytes: &[u8], nonce: u64, at: Lsn) -> Option<&[u8]> {
    let (header, _) = GroupHeader::ref_from_prefix(bytes).ok()?;
    if u64::from(header.len.get()) != to_u64(bytes.len()) {
        return None;
    }
    let payload = bytes.get(GROUP_HEADER_LEN..bytes.len().checked_sub(GROUP_TRAILER_LEN)?)?;
    let trailer = bytes.get(bytes.len() - GROUP_TRAILER_LEN..)?;
    let whole =
        trailer == header.len.as_bytes() && header.crc.get() == seal(nonce, at, header.len.get(), payload_crc(payload));
    whole.then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_passes_only_whole_at_its_own_place_and_in_its_own_epoch() {
        let payload = b"some page operations";
        let mut bytes = vec![0u8; payload.len() + GROUP_FRAME_LEN];
        write_group(&mut bytes, 77, Lsn(4096), payload, payload_crc(payload));
        assert_eq!(claimed_len(&bytes, 1000), Some(bytes.len()));
        assert_eq!(claimed_len(&bytes, 10), None);
        assert_eq!(read_group(&bytes, 77, Lsn(4096)), Some(&payload[..]));
        assert_eq!(read_group(&bytes, 78, Lsn(4096)), None, "another epoch");
        assert_eq!(read_group(&bytes, 77, Lsn(4097)), None, "another place");
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[position] ^= 1 << bit;
                assert_eq!(read_group(&flipped, 77, Lsn(4096)), None, "bit {bit} of byte {position}");
            }
        }
    }
}
