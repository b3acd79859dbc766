//! Undo records: the transaction of each, and the changes that lead back.

use smallvec::SmallVec;

use crate::base::ids::{SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::reader::Reader;

/// The kind of a record: its first byte.
const ACTIVE: u8 = 1;
const WHOLE: u8 = 2;
const ENDED: u8 = 3;
const PART: u8 = 4;

/// The change left a delete mark, or undoing it would: purge has to look at the row.
const NEEDS_PURGE: u8 = 1;

/// Bytes before a record's changes, at most.
pub(crate) const RECORD_HEAD_MAX: usize = 1 + TxnId::LEN + size_of::<u32>();

/// The part of a transaction that a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole transaction: the group that the record came with committed it. Or a step past versions that no reader
    /// looks for ([CHAIN-1](super::versions)), from a version of a transaction that is committed.
    Whole,
    /// The header of a transaction of several groups, without changes. While it is active, a crash means that all
    /// changes of the transaction are undone; without a header none are (TXN-5).
    Header { is_active: bool },
    /// Changes of a transaction of several groups, with the number of this part, from 0.
    Part(u32),
}

/// The reverse of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    /// Purge has to look at the row.
    pub(crate) needs_purge: bool,
    pub(crate) space: SpaceId,
    /// The operation that leads back, for the leaf that covers its key.
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

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UndoRecord<'a> {
    pub(crate) kind: Kind,
    pub(crate) txn: TxnId,
    changes: &'a [u8],
}

/// A record's first bytes; its changes follow.
pub(crate) fn record_head(kind: Kind, txn: TxnId) -> SmallVec<[u8; RECORD_HEAD_MAX]> {
    let state = match kind {
        Kind::Whole => WHOLE,
        Kind::Header { is_active: true } => ACTIVE,
        Kind::Header { is_active: false } => ENDED,
        Kind::Part(_) => PART,
    };
    let number = if let Kind::Part(number) = kind { Some(number.to_le_bytes()) } else { None };
    [state].into_iter().chain(txn.to_bytes()).chain(number.into_iter().flatten()).collect()
}

impl<'a> UndoRecord<'a> {
    /// The record in an undo page's entry; `None`: the bytes are none.
    pub(crate) fn decode(value: &'a [u8]) -> Option<UndoRecord<'a>> {
        let (&state, rest) = value.split_first()?;
        let (txn, rest) = rest.split_first_chunk()?;
        let (kind, changes) = match state {
            WHOLE => (Kind::Whole, rest),
            ACTIVE | ENDED if rest.is_empty() => (Kind::Header { is_active: state == ACTIVE }, rest),
            PART => rest.split_first_chunk().map(|(number, rest)| (Kind::Part(u32::from_le_bytes(*number)), rest))?,
            _ => return None,
        };
        Some(UndoRecord { kind, txn: TxnId::from_bytes(*txn), changes })
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
        for kind in [Kind::Whole, Kind::Part(0x0102_0304)] {
            let mut bytes = record_head(kind, TxnId(77)).to_vec();
            let head_len = bytes.len();
            for change in &changes {
                change.encode(&mut bytes);
            }
            survives(&bytes, head_len, kind, &changes);
        }
        for kind in [Kind::Header { is_active: true }, Kind::Header { is_active: false }] {
            let mut bytes = record_head(kind, TxnId(77)).to_vec();
            survives(&bytes, bytes.len(), kind, &[]);
            bytes.push(0);
            assert_eq!(UndoRecord::decode(&bytes), None, "a header has no changes");
        }
        assert_eq!(UndoRecord::decode(&[5, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(changes[1].key(), b"l");
    }

    fn survives(bytes: &[u8], head_len: usize, kind: Kind, changes: &[Undo<'_>]) {
        let record = UndoRecord::decode(bytes).expect("a record");
        assert_eq!((record.kind, record.txn), (kind, TxnId(77)));
        assert_eq!(record.changes().map(|change| change.expect("whole")).collect::<Vec<_>>(), changes);
        for end in 0..head_len {
            assert_eq!(UndoRecord::decode(&bytes[..end]), None, "cut at {end}");
        }
        if changes.is_empty() {
            return;
        }
        let cut = UndoRecord::decode(&bytes[..bytes.len() - 1]).expect("a record");
        assert_eq!(cut.changes().last(), Some(None));
        let mut free = bytes[..head_len].to_vec();
        Undo { needs_purge: false, space: SpaceId(7), op: PageOp::Free }.encode(&mut free);
        assert_eq!(UndoRecord::decode(&free).expect("a record").changes().last(), Some(None));
    }
}
