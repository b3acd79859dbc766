//! Long values in batches: a batch is extended by the changes of their chunks, rows of a separate tree (ROW-3).
//!
//! CHUNKS-1  A batch that gives a row a long value also inserts its chunks. A batch that takes a row's long value away
//!           also deletes its chunks. So rows and chunks agree for readers, after a failure and after a crash.
//! CHUNKS-2  A reader of chunks holds nothing that keeps them. If some are missing, the row has another value by now,
//!           or none; else the database is damaged.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::FixedState;
use typed_arena::Arena;

use crate::base::aligned::to_usize;
use crate::base::error::Error;
use crate::base::ids::SpaceId;
use crate::base::row::{COLD, HEAD_LEN, REFERENCE_LEN, Reference};
use crate::ddl::ensure_chunk_tree;
use crate::engine::Engine;
use crate::engine::tree_state::{Role, TreeState};
use crate::read::long_values::{CHUNKS_A_LEAF, chunk_count, chunk_len, damaged};
use crate::txn::slot::Slot;
use crate::txn::view::View;
use crate::write::op::{Change, Op, conflict};

/// Most bytes that a load fills in a leaf of chunks: the rest is room for the stamps of the chunks' deletion.
pub(crate) fn full_leaf(page_size: usize) -> usize {
    page_size - CHUNKS_A_LEAF * (HEAD_LEN - COLD.len())
}

/// The chunks of a long value, each with its key.
pub(crate) fn chunks_of(
    reference: Reference,
    value: &[u8],
    page_size: usize,
) -> impl Iterator<Item = ([u8; REFERENCE_LEN], &[u8])> {
    (0..).zip(value.chunks(chunk_len(page_size))).map(move |(index, chunk)| (reference.chunk_key(index), chunk))
}

/// Memory for keys of chunks and references; allocated when the first is stored.
pub(crate) type Bytes = OnceCell<Arena<[u8; REFERENCE_LEN]>>;

/// The additional changes of a batch with long values, or on rows with long values.
pub(crate) struct LongValues<'a> {
    bytes: &'a Bytes,
    page_size: usize,
    /// The long values that the batch takes away, each with the space of its row. The batch deletes their chunks.
    replaced: HashSet<(SpaceId, Reference), FixedState>,
}

impl<'a> LongValues<'a> {
    pub(super) fn new(bytes: &'a Bytes, page_size: usize) -> LongValues<'a> {
        LongValues { bytes, page_size, replaced: HashSet::default() }
    }

    fn keep(&self, bytes: [u8; REFERENCE_LEN]) -> &'a [u8] {
        self.bytes.get_or_init(Arena::new).alloc(bytes)
    }

    /// Whether the batch deletes the chunks of `reference`, of a row in `space`.
    pub(super) fn replaces(&self, space: SpaceId, reference: Reference) -> bool {
        self.replaced.contains(&(space, reference))
    }

    /// Takes the long values out of `ops`, which are sorted and of the transaction of `slot`. Rows get references, and
    /// inserts of the chunks are added. Expected long values are compared with the present ones here.
    pub(super) fn expand(
        &mut self,
        engine: &Engine,
        ops: &mut Cow<'_, [Op<'a>]>,
        slot: &mut Slot<'_>,
    ) -> Result<(), Error> {
        let view = View::newest_for(Some(slot.txn()));
        let mut expanded: Vec<Op<'a>> = Vec::with_capacity(ops.len());
        for of_key in ops.chunk_by(|one, next| one.tree.space == next.tree.space && one.key == next.key) {
            if of_key.iter().all(|op| op.value_len() <= engine.limits.value) {
                expanded.extend_from_slice(of_key);
                continue;
            }
            let last = of_key.iter().rposition(|op| !matches!(op.change, Change::Expect(_)));
            // The key's value, once a change of the batch has set it.
            let mut known: Option<Option<&[u8]>> = None;
            for (at, op) in of_key.iter().enumerate() {
                match op.change {
                    Change::Expect(expected) => match known {
                        Some(value) if value == expected => {}
                        Some(_) => return Err(conflict(op)),
                        None => expanded.push(self.expectation(engine, op, expected, view)?),
                    },
                    Change::Delete => {
                        known = Some(None);
                        expanded.push(*op);
                    }
                    Change::Insert(value) | Change::Put(value) | Change::Update(value) => {
                        known = Some(Some(value));
                        // A later change supersedes any but the last.
                        if last == Some(at) && value.len() > engine.limits.value {
                            let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
                            let reference = Reference { txn: slot.txn(), number: slot.next_reference()?, len };
                            self.insert_chunks(op, value, reference, &mut expanded);
                        } else {
                            expanded.push(*op);
                        }
                    }
                }
            }
        }
        sort(&mut expanded);
        *ops = Cow::Owned(expanded);
        Ok(())
    }

    /// Appends `op` with a reference as its value, and the inserts of the chunks.
    fn insert_chunks(&self, op: &Op<'a>, value: &'a [u8], reference: Reference, out: &mut Vec<Op<'a>>) {
        let bytes: &'a [u8] = self.keep(reference.to_bytes());
        let change = op.change.map(|_| bytes);
        out.push(Op { change, is_reference: true, ..*op });
        let Some(tree) = op.tree.chunks() else { return };
        for (key, chunk) in chunks_of(reference, value, self.page_size) {
            let key: &'a [u8] = self.keep(key);
            out.push(Op::new(tree, key, Change::Insert(chunk)));
        }
    }

    /// Prepares `op`, which expects a value: compares an expected long value with the row's. If they are equal, the
    /// returned op expects the row's reference.
    fn expectation(
        &self,
        engine: &Engine,
        op: &Op<'a>,
        expected: Option<&'a [u8]>,
        view: View,
    ) -> Result<Op<'a>, Error> {
        let Some(expected) = expected.filter(|value| value.len() > engine.limits.value) else { return Ok(*op) };
        loop {
            let Some(reference) = op.tree.find_reference(engine, op.key, view)? else {
                return Err(conflict(op));
            };
            if to_usize(u64::from(reference.len)) != expected.len() {
                return Err(conflict(op));
            }
            match op.tree.long_value(engine, op.key, reference, view)? {
                Some(value) if value == expected => {
                    let bytes: &'a [u8] = self.keep(reference.to_bytes());
                    return Ok(Op { change: Change::Expect(Some(bytes)), is_reference: true, ..*op });
                }
                Some(_) => return Err(conflict(op)),
                None => {}
            }
        }
    }

    /// Adds to `ops` the deletion of the chunks of `reference`, the present value of a row of `tree`.
    pub(super) fn delete_chunks(
        &mut self,
        tree: &'a Arc<TreeState>,
        reference: Reference,
        ops: &mut Vec<Op<'a>>,
    ) -> Result<(), Error> {
        let chunks = tree.chunks().ok_or_else(|| damaged(tree, reference, "there is no tree with chunks"))?;
        let count = if planted!("chunks_kept") { 0 } else { chunk_count(reference, self.page_size) };
        for index in 0..count {
            let key: &'a [u8] = self.keep(reference.chunk_key(index));
            ops.push(Op::new(chunks, key, Change::Delete));
        }
        self.replaced.insert((tree.space, reference));
        Ok(())
    }
}

/// Sorts by tree and key, rows of tables first. The changes of one key keep their order.
pub(crate) fn sort(ops: &mut [Op<'_>]) {
    let is_later = |tree: &TreeState| tree.role != Role::Rows && !planted!("rows_not_first");
    let place = |op: &Op<'_>| (is_later(op.tree), op.tree.space);
    ops.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.key.cmp(b.key)));
}

/// Creates the spaces for chunks that the long values in `ops` need. Callers hold nothing. Returns whether `ops` set or
/// expect long values.
pub(crate) fn ensure_chunk_trees(engine: &Engine, ops: &[Op<'_>]) -> Result<bool, Error> {
    let mut any = false;
    for op in ops.iter().filter(|op| op.value_len() > engine.limits.value) {
        any = true;
        if !matches!(op.change, Change::Expect(_)) {
            ensure_chunk_tree(engine, op.tree)?;
        }
    }
    Ok(any)
}
