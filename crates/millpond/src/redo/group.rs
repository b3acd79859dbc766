//! A redo group's frame, which makes a mini-transaction's bytes whole or worthless.

use zerocopy::little_endian::{U32, U64};
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
    /// CRC-32C of the rest, with nonce and LSN.
    pub(crate) crc: U32,
    /// How many bytes before the group's LSN the log was known to be durable. It tells a damaged log from a short one.
    pub(crate) behind: U32,
    /// A [`GroupKind`].
    pub(crate) kind: u8,
}

/// The kind of a group's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupKind {
    /// Changes of pages.
    Pages,
    /// Where images of pages are on the device.
    Map,
    /// The nonce of all later groups.
    Epoch,
}

impl GroupKind {
    fn code(self) -> u8 {
        match self {
            GroupKind::Pages => 1,
            GroupKind::Map => 2,
            GroupKind::Epoch => 3,
        }
    }

    fn of(code: u8) -> Option<GroupKind> {
        [GroupKind::Pages, GroupKind::Map, GroupKind::Epoch].into_iter().find(|kind| kind.code() == code)
    }
}

/// Bytes of each of the two log buffers, at most; a small log has smaller ones.
pub(super) const BUFFER_MAX: u64 = 4 << 20;

/// Bytes of log that writers may append ahead of the durable log: half of the range of [`GroupHeader::behind`].
/// Cleaning's groups come on top of it (REDO-13).
pub(crate) const BEHIND_MAX: u64 = 1 << 31;

/// Bytes of a [`GroupHeader`].
pub(crate) const GROUP_HEADER_LEN: usize = 13;

/// Bytes after the payload: the length again.
pub(crate) const GROUP_TRAILER_LEN: usize = 4;

/// Bytes that framing adds to a payload.
pub(crate) const GROUP_FRAME_LEN: usize = GROUP_HEADER_LEN + GROUP_TRAILER_LEN;

const _: () = assert!(size_of::<GroupHeader>() == GROUP_HEADER_LEN);

/// A group's LSN, and the nonce of its epoch: both go into its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) nonce: u64,
    pub(crate) at: Lsn,
}

/// Computes a group's checksum. The payload's checksum comes first: the bits of place and header then stand where no
/// bit of the payload was summed, so that flipped bits of the two cannot cancel out.
fn seal(place: Place, header: &GroupHeader, payload_crc: u32) -> u32 {
    // In one call, since this runs under the log's mutex.
    let mut rest = [0; 29];
    rest[..4].copy_from_slice(&payload_crc.to_le_bytes());
    rest[4..8].copy_from_slice(header.len.as_bytes());
    rest[8..12].copy_from_slice(header.behind.as_bytes());
    rest[12] = header.kind;
    rest[13..21].copy_from_slice(&place.nonce.to_le_bytes());
    rest[21..].copy_from_slice(&place.at.0.to_le_bytes());
    crc32c(&[], &[&rest])
}

/// The checksum of a payload alone, computed before its place is known, and without the log's mutex.
pub(crate) fn payload_crc(payload: &[u8]) -> u32 {
    crc32c(&[], &[payload])
}

/// Writes a group into `out`, which is exactly as long as the group. The log is known to be durable up to `durable`.
pub(crate) fn write_group(
    out: &mut [u8],
    place: Place,
    durable: Lsn,
    kind: GroupKind,
    payload: &[u8],
    payload_crc: u32,
) {
    let len = u32::try_from(out.len()).expect("REDO-5: a group is shorter than the log buffer");
    let behind = u32::try_from(place.at.since(durable)).expect("REDO-13: the log that is not durable is bounded");
    let (behind, zero) = (U32::new(behind), U32::new(0));
    let mut header = GroupHeader { len: U32::new(len), crc: zero, behind, kind: kind.code() };
    header.crc = U32::new(seal(place, &header, payload_crc));
    out[..GROUP_HEADER_LEN].copy_from_slice(header.as_bytes());
    out[GROUP_HEADER_LEN..GROUP_HEADER_LEN + payload.len()].copy_from_slice(payload);
    let trailer = out.len() - GROUP_TRAILER_LEN;
    out[trailer..].copy_from_slice(&len.to_le_bytes());
}

/// The length that a group claims; `None` if it is impossible.
pub(crate) fn claimed_len(bytes: &[u8], longest: usize) -> Option<usize> {
    let (header, _) = GroupHeader::ref_from_prefix(bytes).ok()?;
    let len = to_usize(u64::from(header.len.get()));
    (len > GROUP_FRAME_LEN && len <= longest).then_some(len)
}

/// A whole group, valid at its place and in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group<'a> {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    /// The log was durable up to here when the group got its place.
    pub(crate) durable: Lsn,
    pub(crate) kind: GroupKind,
    pub(crate) payload: &'a [u8],
}

/// Reads the group that fills all of `bytes`; `None` if it is damaged, or of another place or epoch.
pub(crate) fn read_group(bytes: &[u8], place: Place) -> Option<Group<'_>> {
    let (header, _) = GroupHeader::ref_from_prefix(bytes).ok()?;
    if u64::from(header.len.get()) != to_u64(bytes.len()) {
        return None;
    }
    let payload = bytes.get(GROUP_HEADER_LEN..bytes.len().checked_sub(GROUP_TRAILER_LEN)?)?;
    let trailer = bytes.get(bytes.len() - GROUP_TRAILER_LEN..)?;
    let durable = Lsn(place.at.0.checked_sub(u64::from(header.behind.get()))?);
    let kind = GroupKind::of(header.kind)?;
    // The checksum last: a search for groups reads at every byte, and old bytes may look like a long group at each.
    let whole = trailer == header.len.as_bytes() && header.crc.get() == seal(place, header, payload_crc(payload));
    whole.then(|| Group { start: place.at, end: place.at.plus(to_u64(bytes.len())), durable, kind, payload })
}

/// The payload of an epoch group.
pub(crate) fn epoch_payload(nonce: u64) -> [u8; 8] {
    nonce.to_le_bytes()
}

/// The nonce in an epoch group's payload.
pub(crate) fn epoch_nonce(payload: &[u8]) -> Option<u64> {
    U64::ref_from_bytes(payload).ok().map(|nonce| nonce.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_passes_only_whole_in_its_own_place_and_epoch() {
        let payload = b"some page operations";
        let place = Place { nonce: 77, at: Lsn(4096) };
        let mut bytes = vec![0u8; payload.len() + GROUP_FRAME_LEN];
        write_group(&mut bytes, place, Lsn(4000), GroupKind::Map, payload, payload_crc(payload));
        assert_eq!(claimed_len(&bytes, 1000), Some(bytes.len()));
        assert_eq!(claimed_len(&bytes, 10), None);
        let (durable, end) = (Lsn(4000), place.at.plus(to_u64(bytes.len())));
        let group = Group { start: place.at, end, durable, kind: GroupKind::Map, payload };
        assert_eq!(read_group(&bytes, place), Some(group));
        assert_eq!(read_group(&bytes, Place { nonce: 78, ..place }), None, "another epoch");
        assert_eq!(read_group(&bytes, Place { at: Lsn(4097), ..place }), None, "another place");
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[position] ^= 1 << bit;
                assert_eq!(read_group(&flipped, place), None, "bit {bit} of byte {position}");
            }
        }
    }

    /// Regression: the LSN was summed before the payload's checksum. Then a flipped bit of the payload could cancel a
    /// bit of the LSN. Where the ring's length is a power of two, a group of the previous lap passed.
    #[test]
    fn a_flipped_bit_of_an_older_lap_makes_no_group_of_this_one() {
        let payload: Vec<u8> = (0..150).collect();
        let place = Place { nonce: 77, at: Lsn(32_781) };
        let mut bytes = vec![0u8; payload.len() + GROUP_FRAME_LEN];
        write_group(&mut bytes, place, Lsn(32_700), GroupKind::Pages, &payload, payload_crc(&payload));
        for position in 0..bytes.len() {
            for bit in 0..8 {
                bytes[position] ^= 1 << bit;
                for shift in 12..44 {
                    let later = Place { at: place.at.plus(1 << shift), ..place };
                    assert_eq!(read_group(&bytes, later), None, "bit {bit} of byte {position}, 2^{shift} later");
                }
                bytes[position] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn claimed_lengths_leave_room_for_a_payload_and_fit() {
        let claimed = |payload: &[u8], longest: usize| {
            let mut bytes = vec![0u8; payload.len() + GROUP_FRAME_LEN];
            let place = Place { nonce: 77, at: Lsn(4096) };
            write_group(&mut bytes, place, Lsn(4000), GroupKind::Map, payload, payload_crc(payload));
            claimed_len(&bytes, longest)
        };
        assert_eq!(claimed(b"", 1000), None, "nothing is in it");
        assert_eq!(claimed(b"x", 1000), Some(GROUP_FRAME_LEN + 1));
        assert_eq!(claimed(b"x", GROUP_FRAME_LEN + 1), Some(GROUP_FRAME_LEN + 1));
        assert_eq!(claimed(b"x", GROUP_FRAME_LEN), None);
        assert_eq!((epoch_nonce(&epoch_payload(u64::MAX - 5)), epoch_nonce(b"1234567")), (Some(u64::MAX - 5), None));
    }
}
