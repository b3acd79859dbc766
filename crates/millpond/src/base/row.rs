//! Rows: the values of a leaf's entries.
//!
//! ROW-1  A row is a byte of flags, a stamp if a flag says so, and the payload. A transaction that changes a row stamps
//!        it. A row that has not changed for long has a head of one byte.
//! ROW-2  Readers treat a row with a delete mark as absent. The row is removed when no reader may need it any more: a
//!        compaction removes it when its stamp is below the oldest transaction that is active or not visible to each
//!        snapshot, purge by PURGE-2.
//! ROW-3  A payload that is too long for its leaf is split into chunks, rows of another tree, and the row holds a
//!        [`Reference`] to them. Chunks come and go in the transaction of their row. No two payloads ever have the same
//!        reference.

use super::ids::TxnId;

/// The row has a stamp.
const STAMPED: u8 = 1;

/// The row was deleted.
const DELETED: u8 = 2;

/// The head of a row that has not changed for long: the bytes before the payload.
pub(crate) const COLD: [u8; 1] = [0];

/// The payload is a reference to chunks.
const CHUNKED: u8 = 4;

/// The head of such a row with a [`Reference`] as its payload.
pub(crate) const COLD_CHUNKED: [u8; 1] = [CHUNKED];

/// Bytes of a stamp.
const STAMP_LEN: usize = TxnId::LEN + 6;

/// Bytes of the head of a recently changed row.
pub(crate) const HEAD_LEN: usize = 1 + STAMP_LEN;

/// The transaction that changed a row last, and the undo record with the version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) txn: TxnId,
    /// The version before; `None`: there was no row.
    pub(crate) undo: Option<UndoRef>,
}

/// An undo record: the number of its page, and its own number in the page. In a stored row the page's number is one
/// larger, and 0 means that there is no undo record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoRef {
    pub(crate) page: u32,
    pub(crate) record: u16,
}

impl UndoRef {
    /// Bytes in a stored row.
    pub(crate) const LEN: usize = size_of::<u32>() + size_of::<u16>();

    /// The bytes in a stored row.
    pub(crate) fn to_bytes(undo: Option<UndoRef>) -> [u8; UndoRef::LEN] {
        let mut bytes = [0; UndoRef::LEN];
        if let Some(UndoRef { page, record }) = undo {
            bytes[..4].copy_from_slice(&page.wrapping_add(1).to_le_bytes());
            bytes[4..].copy_from_slice(&record.to_le_bytes());
        }
        bytes
    }
}

/// Where the undo record is named in a row with a stamp.
pub(crate) const UNDO_REF_AT: usize = HEAD_LEN - UndoRef::LEN;

/// A row, to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) stamp: Option<Stamp>,
    pub(crate) is_deleted: bool,
    /// Whether the payload is a [`Reference`].
    pub(crate) is_chunked: bool,
    pub(crate) payload: &'a [u8],
}

/// The payload of a row in chunks: the transaction that wrote it, a number unique within that transaction, and the
/// length of the whole payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reference {
    pub(crate) txn: TxnId,
    pub(crate) number: u32,
    pub(crate) len: u32,
}

/// Bytes of a reference, and of a chunk's key.
pub(crate) const REFERENCE_LEN: usize = TxnId::LEN + 2 * size_of::<u32>();

impl Reference {
    /// The row's payload.
    pub(crate) fn to_bytes(self) -> [u8; REFERENCE_LEN] {
        self.with(self.len.to_le_bytes())
    }

    /// Decodes a row's payload.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Reference> {
        let mut txn = *bytes.first_chunk::<{ TxnId::LEN }>()?;
        txn.reverse();
        let number = u32::from_be_bytes(bytes.get(TxnId::LEN..TxnId::LEN + 4)?.try_into().ok()?);
        let len = u32::from_le_bytes(bytes.get(TxnId::LEN + 4..)?.try_into().ok()?);
        Some(Reference { txn: TxnId::from_bytes(txn), number, len })
    }

    /// The key of chunk `index`. The chunks of one payload are adjacent.
    pub(crate) fn chunk_key(self, index: u32) -> [u8; REFERENCE_LEN] {
        self.with(index.to_be_bytes())
    }

    fn with(self, last: [u8; 4]) -> [u8; REFERENCE_LEN] {
        let mut bytes = [0; REFERENCE_LEN];
        bytes[..TxnId::LEN].copy_from_slice(&self.txn.to_bytes());
        bytes[..TxnId::LEN].reverse();
        bytes[TxnId::LEN..TxnId::LEN + 4].copy_from_slice(&self.number.to_be_bytes());
        bytes[TxnId::LEN + 4..].copy_from_slice(&last);
        bytes
    }
}

impl Stamp {
    /// The bytes before the payload of a row with this stamp.
    pub(crate) fn head(self, is_deleted: bool, is_chunked: bool) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[0] = STAMPED | if is_deleted { DELETED } else { 0 } | if is_chunked { CHUNKED } else { 0 };
        head[1..7].copy_from_slice(&self.txn.to_bytes());
        head[UNDO_REF_AT..].copy_from_slice(&UndoRef::to_bytes(self.undo));
        head
    }
}

impl<'a> Row<'a> {
    /// Decodes the value of a leaf's entry; `None`: it is not a row.
    #[inline]
    pub(crate) fn decode(value: &'a [u8]) -> Option<Row<'a>> {
        let (&flags, rest) = value.split_first()?;
        if flags & !(STAMPED | DELETED | CHUNKED) != 0 {
            return None;
        }
        let (is_deleted, is_chunked) = (flags & DELETED != 0, flags & CHUNKED != 0);
        if flags & STAMPED == 0 {
            // A delete leaves a stamp, and compaction removes the stamp only together with the row.
            let row = Row { stamp: None, is_deleted, is_chunked, payload: rest };
            return (!is_deleted && row.has_its_length()).then_some(row);
        }
        let (txn, rest) = rest.split_first_chunk()?;
        let (page, rest) = rest.split_first_chunk()?;
        let (record, payload) = rest.split_first_chunk()?;
        let page = u32::from_le_bytes(*page).checked_sub(1);
        let undo = page.map(|page| UndoRef { page, record: u16::from_le_bytes(*record) });
        let row = Row { stamp: Some(Stamp { txn: TxnId::from_bytes(*txn), undo }), is_deleted, is_chunked, payload };
        row.has_its_length().then_some(row)
    }

    fn has_its_length(&self) -> bool {
        !self.is_chunked || self.payload.len() == REFERENCE_LEN
    }

    /// The reference to the chunks of the row's payload, if it has chunks.
    pub(crate) fn reference(&self) -> Option<Reference> {
        if self.is_chunked { Reference::from_bytes(self.payload) } else { None }
    }

    /// Bytes before the payload.
    pub(crate) fn head_len(&self) -> usize {
        if self.stamp.is_some() { HEAD_LEN } else { 1 }
    }

    /// The row after stamps below `oldest` are dropped; `None`: the row is removed (ROW-2).
    pub(crate) fn compacted(value: &'a [u8], oldest: TxnId) -> Option<Compacted<'a>> {
        match Row::decode(value) {
            Some(Row { stamp: Some(stamp), is_deleted, is_chunked, payload }) if stamp.txn < oldest => {
                (!is_deleted).then_some(Compacted::Cold(if is_chunked { CHUNKED } else { 0 }, payload))
            }
            _ => Some(Compacted::Same(value)),
        }
    }
}

/// A row after a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compacted<'a> {
    /// Unchanged.
    Same(&'a [u8]),
    /// The remaining flags and the payload, without a stamp.
    Cold(u8, &'a [u8]),
}

impl Compacted<'_> {
    /// The row's length in bytes.
    pub(crate) fn len(self) -> usize {
        match self {
            Compacted::Same(value) => value.len(),
            Compacted::Cold(_, payload) => 1 + payload.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_encoding_and_what_is_none_is_refused() {
        let stamp = Stamp { txn: TxnId(0x0102_0304_0506), undo: Some(UndoRef { page: 7, record: 9 }) };
        for is_deleted in [false, true] {
            let bytes = [&stamp.head(is_deleted, false)[..], b"payload"].concat();
            let row = Row { stamp: Some(stamp), is_deleted, is_chunked: false, payload: b"payload" };
            assert_eq!(Row::decode(&bytes), Some(row));
            for end in 0..HEAD_LEN {
                assert_eq!(Row::decode(&bytes[..end]), None, "cut at {end}");
            }
        }
        assert_eq!(
            Row::decode(b"\0cold"),
            Some(Row { stamp: None, is_deleted: false, is_chunked: false, payload: b"cold" })
        );
        assert_eq!(Row::decode(&[DELETED]), None);
        assert_eq!(Row::decode(&[16]), None);
    }

    #[test]
    fn references_survive_encoding_and_keys_of_chunks_ascend() {
        let reference = Reference { txn: TxnId(0x0102_0304_0506), number: 7, len: 900_000 };
        assert_eq!(Reference::from_bytes(&reference.to_bytes()), Some(reference));
        let stamp = Stamp { txn: reference.txn, undo: None };
        let row = [&stamp.head(false, true)[..], &reference.to_bytes()].concat();
        assert_eq!(Row::decode(&row).and_then(|row| row.reference()), Some(reference));
        assert_eq!(Row::decode(&row[..row.len() - 1]), None);
        let cold = [&COLD_CHUNKED[..], &reference.to_bytes()].concat();
        assert_eq!(Row::compacted(&row, TxnId::END), Some(Compacted::Cold(CHUNKED, &reference.to_bytes())));
        assert_eq!(Row::decode(&cold).and_then(|row| row.reference()), Some(reference));
        let next = Reference { number: 8, len: 1, ..reference };
        let later = Reference { txn: TxnId(0x0102_0304_0600), number: 0, len: 1 };
        let keys = [reference.chunk_key(0), reference.chunk_key(300), next.chunk_key(0), later.chunk_key(0)];
        assert!(keys.is_sorted());
    }

    #[test]
    fn compaction_drops_old_stamps_and_what_was_deleted_before() {
        let stamp = Stamp { txn: TxnId(5), undo: None };
        let (live, dead) =
            ([&stamp.head(false, false)[..], b"v"].concat(), [&stamp.head(true, false)[..], b"v"].concat());
        assert_eq!(Row::compacted(&live, TxnId(6)), Some(Compacted::Cold(0, b"v")));
        assert_eq!(Row::compacted(&dead, TxnId(6)), None);
        for row in [&live, &dead] {
            assert_eq!(Row::compacted(row, TxnId(5)), Some(Compacted::Same(row)));
        }
        assert_eq!(Row::compacted(b"\0v", TxnId(6)), Some(Compacted::Same(b"\0v")));
    }
}
