//! Limits for the lengths of keys and values, and estimates of the redo that a batch takes.
//!
//! The limits follow from the page size ([`Limits`](crate::options::Limits)). The estimates decide how much log is
//! reserved at first, and whether a batch is written in parts from the start.

use std::fmt::Display;

use crate::base::error::Error;
use crate::base::quoted::quoted;
use crate::base::row::HEAD_LEN;
use crate::engine::Engine;
use crate::mtr::RECORD_HEADER;
use crate::write::op::{Change, Op};

/// Bytes that a page operation adds to its key and value: its kind and two lengths.
pub(crate) const OP_HEADER: usize = 5;

/// Refuses an op with a key or a value that is too long.
pub(super) fn check_sizes(engine: &Engine, op: &Op<'_>) -> Result<(), Error> {
    check_lengths(engine, op.key, op.value_len(), op.tree)
}

/// Refuses a key or a value that is too long; `of` names its tree or table in the error.
pub(crate) fn check_lengths(engine: &Engine, key: &[u8], value_len: usize, of: &dyn Display) -> Result<(), Error> {
    if key.len() > engine.limits.key {
        let (key, len, most) = (quoted(key), key.len(), engine.limits.key);
        let page_size = engine.core.store.page_size();
        let message = format!("key {key} of {of} has {len} bytes: at most {most} fit with pages of {page_size} bytes");
        return Err(Error::KeyTooLong(message.into()));
    }
    if u32::try_from(value_len).is_err() {
        let (key, most) = (quoted(key), u32::MAX);
        let message = format!(
            "the value for key {key} of {of} has {value_len} bytes: at most {most} are possible; store it in parts"
        );
        return Err(Error::ValueTooLong(message.into()));
    }
    Ok(())
}

/// Most bytes of redo that `ops` probably take. It is a guess: if old values are longer than the new ones, the writer
/// reserves again with the exact number.
pub(super) fn probable_redo(ops: &[Op<'_>]) -> usize {
    let of_one = |op: &Op<'_>| match op.change {
        Change::Expect(_) => 0,
        Change::Insert(value) => RECORD_HEADER + OP_HEADER + op.key.len() + HEAD_LEN + value.len(),
        _ => 2 * (OP_HEADER + op.key.len() + op.value_len()) + PER_CHANGE,
    };
    ops.iter().map(of_one).sum()
}

/// Whether ops that probably take `probable` bytes of redo are certainly too much for one group.
pub(crate) fn is_large(engine: &Engine, probable: usize) -> bool {
    probable > 2 * engine.limits.batch_bytes
}

/// Most bytes of redo of a change, beside its new and old value: two records, the row's stamp in two patches, and the
/// head of the undo record.
const PER_CHANGE: usize = 2 * RECORD_HEADER + 3 * HEAD_LEN + 64;
