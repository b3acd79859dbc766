//! What an undo record says: whose it is, and the changes that lead back.

use crate::base::ids::{SpaceId, TxnId};
use crate::base::page::op::{PageOp, Reader};

/// The record is of a transaction that was committed by the group that the record came with.
const COMMITTED: u8 = 2;

/// The change left a delete mark, which purge has to remove.
const NEEDS_PURGE: u8 = 1;

/// Bytes before a record's changes.
pub(crate) const RECORD_HEAD_LEN: usize = 1 + TxnId::LEN;

/// One change, undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    /// The change left a delete mark.
    pub(crate) needs_purge: bool,
    pub(crate) space: SpaceId,
    /// What leads back, for the leaf that covers its key.
    pub(crate) op: PageOp<'a>,
}

impl<'a> Undo<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.needs_purge { NEEDS_PURGE } else { 0 });
        out.extend_from_slice(&self.space.0.to_le_bytes());
        self.op.encode(out);
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Undo<'a>> {
        let flags = reader.u8().filter(|flags| flags & !NEEDS_PURGE == 0)?;
        let space = SpaceId(reader.u32()?);
        let op = PageOp::decode(reader)?;
        let of_a_row = matches!(op, PageOp::Insert { .. } | PageOp::Replace { .. } | PageOp::Patch { .. })
            || matches!(op, PageOp::Remove { .. });
        of_a_row.then_some(Undo { needs_purge: flags & NEEDS_PURGE != 0, space, op })
    }

    /// The key of the row.
    pub(crate) fn key(&self) -> &'a [u8] {
        match self.op {
            PageOp::Insert { key, .. } | PageOp::Replace { key, .. } => key,
            PageOp::Patch { key, .. } | PageOp::Remove { key } => key,
            PageOp::Init { .. } | PageOp::Truncate { .. } | PageOp::Compact { .. } | PageOp::Free => b"",
        }
    }
}

/// A record, to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoRecord<'a> {
    pub(crate) txn: TxnId,
    changes: &'a [u8],
}

impl<'a> UndoRecord<'a> {
    /// A record's first bytes; its changes follow.
    pub(crate) fn head(txn: TxnId) -> [u8; RECORD_HEAD_LEN] {
        let [a, b, c, d, e, f] = txn.to_bytes();
        [COMMITTED, a, b, c, d, e, f]
    }

    /// The record in an undo page's entry; `None`: the bytes are none.
    pub(crate) fn decode(value: &'a [u8]) -> Option<UndoRecord<'a>> {
        let (_, rest) = value.split_first().filter(|(state, _)| **state == COMMITTED)?;
        let (txn, changes) = rest.split_first_chunk()?;
        Some(UndoRecord { txn: TxnId::from_bytes(*txn), changes })
    }

    /// The changes; `None` in the place of one that cannot be read, which is then the last.
    pub(crate) fn changes(self) -> impl Iterator<Item = Option<Undo<'a>>> {
        let mut reader = Reader::new(self.changes);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let change = Undo::decode(&mut reader);
            if change.is_none() {
                reader.rest();
            }
            Some(change)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::page::patch::Patch;

    #[test]
    fn records_survive_encoding_and_what_is_none_is_refused() {
        let changes = [
            Undo { needs_purge: true, space: SpaceId(7), op: PageOp::Patch { key: b"k", patch: Patch(b"") } },
            Undo { needs_purge: false, space: SpaceId(8), op: PageOp::Replace { key: b"l", value: b"before" } },
        ];
        let mut bytes = UndoRecord::head(TxnId(77)).to_vec();
        for change in &changes {
            change.encode(&mut bytes);
        }
        let record = UndoRecord::decode(&bytes).expect("a record");
        assert_eq!(record.txn, TxnId(77));
        assert_eq!(record.changes().map(|change| change.expect("whole")).collect::<Vec<_>>(), changes);
        assert_eq!(changes[1].key(), b"l");
        for end in 0..RECORD_HEAD_LEN {
            assert_eq!(UndoRecord::decode(&bytes[..end]), None, "cut at {end}");
        }
        let cut = UndoRecord::decode(&bytes[..bytes.len() - 1]).expect("a record");
        assert_eq!(cut.changes().last(), Some(None));
        let mut free = bytes[..RECORD_HEAD_LEN].to_vec();
        Undo { needs_purge: false, space: SpaceId(7), op: PageOp::Free }.encode(&mut free);
        assert_eq!(UndoRecord::decode(&free).expect("a record").changes().last(), Some(None));
    }
}
