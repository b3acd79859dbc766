//! Rows: what the value of a leaf's entry is.
//!
//! ROW-1  A row is a byte of flags, a stamp if a flag says so, and the payload. Who changes a row stamps it; a row that
//!        nobody has changed for long pays one byte.
//! ROW-2  A row with a delete mark is not there for those who look for it. It goes when no transaction may ask for it
//!        any more: when its stamp is below the oldest one that is active.

use super::ids::TxnId;

/// The row has a stamp.
const STAMPED: u8 = 1;

/// The row was deleted.
const DELETED: u8 = 2;

/// What comes before the payload of a row that nobody has changed for long.
pub(crate) const COLD: [u8; 1] = [0];

/// Bytes of a stamp.
const STAMP_LEN: usize = TxnId::LEN + 6;

/// Bytes of what comes before the payload of a row that was just changed.
pub(crate) const HEAD_LEN: usize = 1 + STAMP_LEN;

/// Who changed a row last, and where what was before is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) txn: TxnId,
    /// What was before; `None`: there was no row.
    pub(crate) undo: Option<UndoRef>,
}

/// An undo record: the number of its page, and its own in the page. In rows the page's number is one larger, and 0 says
/// that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoRef {
    pub(crate) page: u32,
    pub(crate) record: u16,
}

/// A row, to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) stamp: Option<Stamp>,
    pub(crate) is_deleted: bool,
    pub(crate) payload: &'a [u8],
}

impl Stamp {
    /// What comes before the payload of a row with this stamp.
    pub(crate) fn head(self, is_deleted: bool) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[0] = if is_deleted { STAMPED | DELETED } else { STAMPED };
        head[1..7].copy_from_slice(&self.txn.to_bytes());
        if let Some(undo) = self.undo {
            head[7..11].copy_from_slice(&undo.page.wrapping_add(1).to_le_bytes());
            head[11..].copy_from_slice(&undo.record.to_le_bytes());
        }
        head
    }
}

impl<'a> Row<'a> {
    /// The row in a leaf's entry; `None`: the bytes are none.
    pub(crate) fn decode(value: &'a [u8]) -> Option<Row<'a>> {
        let (&flags, rest) = value.split_first()?;
        if flags & !(STAMPED | DELETED) != 0 {
            return None;
        }
        let is_deleted = flags & DELETED != 0;
        if flags & STAMPED == 0 {
            // Who deletes leaves a stamp, and it goes together with the row.
            return (!is_deleted).then_some(Row { stamp: None, is_deleted, payload: rest });
        }
        let (txn, rest) = rest.split_first_chunk()?;
        let (page, rest) = rest.split_first_chunk()?;
        let (record, payload) = rest.split_first_chunk()?;
        let page = u32::from_le_bytes(*page).checked_sub(1);
        let undo = page.map(|page| UndoRef { page, record: u16::from_le_bytes(*record) });
        Some(Row { stamp: Some(Stamp { txn: TxnId::from_bytes(*txn), undo }), is_deleted, payload })
    }

    /// Bytes before the payload.
    pub(crate) fn head_len(&self) -> usize {
        if self.stamp.is_some() { HEAD_LEN } else { 1 }
    }

    /// What is left of the row when stamps below `oldest` are dropped; `None`: nothing (ROW-2).
    pub(crate) fn compacted(value: &'a [u8], oldest: TxnId) -> Option<Compacted<'a>> {
        match Row::decode(value) {
            Some(Row { stamp: Some(stamp), is_deleted, payload }) if stamp.txn < oldest => {
                (!is_deleted).then_some(Compacted::Cold(payload))
            }
            _ => Some(Compacted::Same(value)),
        }
    }
}

/// What a compaction leaves of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compacted<'a> {
    /// All of it.
    Same(&'a [u8]),
    /// The payload, without a stamp.
    Cold(&'a [u8]),
}

impl Compacted<'_> {
    /// Bytes of the row.
    pub(crate) fn len(self) -> usize {
        match self {
            Compacted::Same(value) => value.len(),
            Compacted::Cold(payload) => 1 + payload.len(),
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
            let bytes = [&stamp.head(is_deleted)[..], b"payload"].concat();
            assert_eq!(Row::decode(&bytes), Some(Row { stamp: Some(stamp), is_deleted, payload: b"payload" }));
            for end in 0..HEAD_LEN {
                assert_eq!(Row::decode(&bytes[..end]), None, "cut at {end}");
            }
        }
        assert_eq!(Row::decode(b"\0cold"), Some(Row { stamp: None, is_deleted: false, payload: b"cold" }));
        assert_eq!(Row::decode(&[DELETED]), None);
        assert_eq!(Row::decode(&[16]), None);
    }

    #[test]
    fn compaction_drops_old_stamps_and_what_was_deleted_before() {
        let stamp = Stamp { txn: TxnId(5), undo: None };
        let (live, dead) = ([&stamp.head(false)[..], b"v"].concat(), [&stamp.head(true)[..], b"v"].concat());
        assert_eq!(Row::compacted(&live, TxnId(6)), Some(Compacted::Cold(b"v")));
        assert_eq!(Row::compacted(&dead, TxnId(6)), None);
        for row in [&live, &dead] {
            assert_eq!(Row::compacted(row, TxnId(5)), Some(Compacted::Same(row)));
        }
        assert_eq!(Row::compacted(b"\0v", TxnId(6)), Some(Compacted::Same(b"\0v")));
    }
}
