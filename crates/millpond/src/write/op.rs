//! A change of one key: the ops that batches consist of.
//!
//! [`Op`] borrows its tree, key and value from the caller. Its [`Change`] is a write with or without a precondition, or
//! an expectation that changes nothing.

use std::sync::Arc;

use crate::base::error::Error;
use crate::engine::tree_state::TreeState;

/// A change of a key, or an expectation. `V` holds the value or tells its place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<V> {
    Insert(V),
    Put(V),
    Update(V),
    Delete,
    Expect(Option<V>),
}

/// Decides by a row (`None`: there is none) how it is changed; `None`: it stays.
pub(crate) type Decide<'d> = dyn FnMut(Option<&[u8]>) -> Option<Change<Vec<u8>>> + 'd;

impl<V> Change<V> {
    pub(crate) fn map<W>(self, get: impl FnOnce(V) -> W) -> Change<W> {
        match self {
            Change::Insert(value) => Change::Insert(get(value)),
            Change::Put(value) => Change::Put(get(value)),
            Change::Update(value) => Change::Update(get(value)),
            Change::Delete => Change::Delete,
            Change::Expect(value) => Change::Expect(value.map(get)),
        }
    }
}

impl<'a> Change<&'a [u8]> {
    /// The key's value after the change; `None` for a deletion or an expectation.
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Change::Insert(value) | Change::Put(value) | Change::Update(value) => Some(value),
            Change::Delete | Change::Expect(_) => None,
        }
    }
}

/// A change of one key, borrowed from the caller.
#[derive(Clone, Copy)]
pub(crate) struct Op<'a> {
    pub(crate) tree: &'a Arc<TreeState>,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<&'a [u8]>,
    /// The value is a [`Reference`](crate::base::row::Reference) to chunks.
    pub(super) is_reference: bool,
}

impl<'a> Op<'a> {
    pub(crate) fn new(tree: &'a Arc<TreeState>, key: &'a [u8], change: Change<&'a [u8]>) -> Op<'a> {
        Op { tree, key, change, is_reference: false }
    }

    /// Bytes of the new or expected value.
    pub(super) fn value_len(&self) -> usize {
        match self.change {
            Change::Expect(expected) => expected.map_or(0, <[u8]>::len),
            other => other.value().map_or(0, <[u8]>::len),
        }
    }
}

/// The error for a key that has another value than the batch expects.
pub(super) fn conflict(op: &Op<'_>) -> Error {
    op.tree.has_other(op.key)
}
