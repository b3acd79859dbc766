//! The decoders of rows in leaves, and of undo records.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::same::same;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::patch::Patch;
use crate::base::row::{COLD, COLD_CHUNKED, Reference, Row, Stamp, UndoRef};
use crate::txn::record::{Kind, Undo, UndoRecord, record_head};

fn txn(rng: &mut Xoshiro256PlusPlus) -> TxnId {
    TxnId(rng.next_u64() >> 16)
}

pub(super) fn row_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let stamp = (!rng.next_u64().is_multiple_of(4)).then(|| {
        let undo = UndoRef { page: rng.next_u32() >> 1, record: rng.next_u32().to_le_bytes()[0].into() };
        Stamp { txn: txn(rng), undo: rng.next_u64().is_multiple_of(2).then_some(undo) }
    });
    let is_chunked = rng.next_u64().is_multiple_of(3);
    let payload = if is_chunked {
        Reference { txn: txn(rng), number: rng.next_u32(), len: rng.next_u32() }.to_bytes().to_vec()
    } else {
        rng.next_u64().to_le_bytes().repeat(usize::from(rng.next_u32().to_le_bytes()[0] % 9))
    };
    match stamp {
        Some(stamp) => [&stamp.head(rng.next_u64().is_multiple_of(3), is_chunked)[..], &payload].concat(),
        None => [if is_chunked { &COLD_CHUNKED[..] } else { &COLD[..] }, &payload].concat(),
    }
}

pub(super) fn feed_row(bytes: &[u8]) -> Result<bool, String> {
    let Some(row) = Row::decode(bytes) else { return Ok(false) };
    let head = match row.stamp {
        Some(stamp) => stamp.head(row.is_deleted, row.is_chunked).to_vec(),
        None => if row.is_chunked { COLD_CHUNKED } else { COLD }.to_vec(),
    };
    same("the length of a row's head", &head.len(), &row.head_len())?;
    same("a row", &Row::decode(&[&head[..], row.payload].concat()), &Some(row))?;
    same("whether a row has a reference", &row.reference().is_some(), &row.is_chunked)?;
    if let Some(reference) = row.reference() {
        same("a reference", &reference.to_bytes().as_slice(), &row.payload)?;
    }
    let gone = row.is_deleted && row.stamp.is_some_and(|stamp| stamp.txn < TxnId::END);
    same("whether the row goes", &Row::compacted(bytes, TxnId::END).is_none(), &gone).map(|()| true)
}

pub(super) fn undo_record_sample(rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let kind = match rng.next_u64() % 4 {
        0 => Kind::Header { is_active: rng.next_u64().is_multiple_of(2) },
        1 => Kind::Part(rng.next_u32()),
        _ => Kind::Whole,
    };
    let mut bytes = record_head(kind, txn(rng)).to_vec();
    let changes = if matches!(kind, Kind::Header { .. }) { 0 } else { rng.next_u64() % 5 };
    for _ in 0..changes {
        let (key, value) = (rng.next_u64().to_le_bytes(), rng.next_u64().to_le_bytes());
        let op = match rng.next_u64() % 4 {
            0 => PageOp::Insert { key: &key, value: &value },
            1 => PageOp::Replace { key: &key, value: &value },
            2 => PageOp::Patch { key: &key, patch: Patch(b"") },
            _ => PageOp::Remove { key: &key },
        };
        let needs_purge = rng.next_u64().is_multiple_of(2);
        Undo { needs_purge, space: SpaceId(rng.next_u32() % 9), op }.encode(&mut bytes);
    }
    bytes
}

pub(super) fn feed_undo_record(bytes: &[u8]) -> Result<bool, String> {
    let Some(record) = UndoRecord::decode(bytes) else { return Ok(false) };
    let mut again = record_head(record.kind, record.txn).to_vec();
    let mut whole = true;
    for change in record.changes() {
        match change {
            Some(change) => {
                let _ = change.key();
                change.encode(&mut again);
            }
            None => {
                same("whether a change follows an unreadable one", &whole, &true)?;
                whole = false;
            }
        }
    }
    let read = UndoRecord::decode(&again).ok_or("an undo record does not decode, encoded again")?;
    same("an undo record's head", &(read.kind, read.txn), &(record.kind, record.txn))?;
    let readable: Vec<_> = record.changes().flatten().collect();
    same("an undo record's changes", &read.changes().flatten().collect(), &readable).map(|()| whole)
}
