//! What a batch will do to each of its keys, and what would undo it. Nothing is changed here.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::batch::{Change, Op};
use super::chunks::LongValues;
use super::tree::TreeState;
use crate::base::error::Error;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::patch::{HEAD_AT, Patch, PatchBuf, find_patch};
use crate::base::page::view::PageView;
use crate::base::row::{HEAD_LEN, Reference, Row, Stamp, UndoRef};
use crate::btree::descent::Root;
use crate::btree::scan::no_row;
use crate::mtr::RECORD_HEADER;
use crate::pool::frame::PageWrite;
use crate::txn::locks::Locks;
use crate::txn::record::Undo;

/// Leaves of a batch for which no memory is allocated.
pub(super) const LEAVES_INLINE: usize = 4;

/// Room for the stamps of four rows.
const SLACK: usize = 4 * (HEAD_LEN - 1);

/// A latched leaf, and the tree that it is of.
pub(super) type Leaf<'p, 'a> = (&'a Root, PageWrite<'p>);

pub(super) type Leaves<'p, 'a> = SmallVec<[Leaf<'p, 'a>; LEAVES_INLINE]>;

/// What a batch will do, or a part of it.
pub(super) struct Plan<'a> {
    /// In the order of their leaves and keys.
    pub(super) changes: SmallVec<[Planned<'a>; LEAVES_INLINE]>,
    /// Whether the first key was there.
    pub(super) was_there: bool,
    /// How many of the ops are planned: all up to what stops it.
    pub(super) ops: usize,
    pub(super) stopped: Option<Stopped<'a>>,
}

/// Why no more of the ops are planned.
#[derive(Clone, Copy)]
pub(super) enum Stopped<'a> {
    /// Another transaction has locked this row, which has this stamp.
    Locked(SpaceId, &'a [u8], Option<Stamp>),
    /// A row of this tree has a long value, whose chunks are to be deleted with it.
    Replaces(&'a Arc<TreeState>, Reference),
}

/// How a batch is planned.
#[derive(Clone, Copy)]
pub(super) struct Manner<'t> {
    pub(super) long_values: &'t LongValues<'t>,
    pub(super) locks: &'t Locks,
    pub(super) txn: TxnId,
    /// The transaction has several groups: it locks every row that it looks at.
    pub(super) in_parts: bool,
    /// There is no room for other pages: deleted rows keep no payload.
    pub(super) is_short_of_room: bool,
}

impl Plan<'_> {
    /// Bytes of redo for the leaves.
    pub(super) fn redo_len(&self) -> usize {
        let leaves = self.changes.chunk_by(|one, next| one.leaf == next.leaf).count();
        leaves * RECORD_HEADER + self.changes.iter().map(Planned::redo_len).sum::<usize>()
    }
}

/// The net effect of a batch on the entry of one key.
enum Effect<'a> {
    /// There is none: one with this payload.
    Insert(&'a [u8]),
    /// All of the row is new.
    Replace(&'a [u8]),
    /// Most of the row is there. The patch has room for the stamp.
    Patch(PatchBuf),
}

/// A change of one key's entry.
pub(super) struct Planned<'a> {
    /// Which of the leaves has it.
    pub(super) leaf: usize,
    pub(super) key: &'a [u8],
    effect: Effect<'a>,
    /// The entry gets a delete mark.
    deletes: bool,
    /// The payload that will be there is a reference to chunks.
    is_chunked: bool,
    /// Purge has to look at the entry afterwards.
    pub(super) needs_purge: bool,
    /// Bytes of the row that is there, and of the one that will be.
    old_len: usize,
    new_len: usize,
    /// Where the change that leads back is; empty if there is no entry to lead back to.
    pub(super) undo: Range<usize>,
    /// Where it will be.
    pub(super) undo_ref: Option<UndoRef>,
}

impl<'a> Planned<'a> {
    /// First what shrinks, then what grows, then what is new.
    pub(super) fn turn(&self) -> u8 {
        match self.effect {
            Effect::Insert(_) => 2,
            Effect::Replace(_) | Effect::Patch(_) => u8::from(self.new_len > self.old_len),
        }
    }

    /// Bytes that the change adds to `leaf`, and bytes that it frees.
    pub(super) fn growth(&self, leaf: PageView<'_>) -> (usize, usize) {
        let entry_len = |value: usize| leaf.entry_len_of(self.key.len(), value);
        let freed = if matches!(self.effect, Effect::Insert(_)) { 0 } else { entry_len(self.old_len) };
        (entry_len(self.new_len), freed)
    }

    /// Bytes that are to stay free in a leaf beside a new row. Those that are changed later get stamps: with this, old
    /// stamps can go in their favour, and no page need be split.
    pub(super) fn slack(&self) -> usize {
        if matches!(self.effect, Effect::Insert(_)) { SLACK } else { 0 }
    }

    /// Bytes of the row that will be.
    pub(super) fn new_len(&self) -> usize {
        self.new_len
    }

    /// Bytes of redo, but for the record that they are in.
    fn redo_len(&self) -> usize {
        let value = match &self.effect {
            Effect::Insert(_) | Effect::Replace(_) => self.new_len,
            Effect::Patch(patch) => patch.len(),
        };
        PageOp::Replace { key: self.key, value: b"" }.encoded_len() + value
    }

    /// Has `apply` carry the change out, for this transaction.
    pub(super) fn carry_out<R>(&mut self, txn: TxnId, apply: impl FnOnce(&PageOp<'_>) -> R) -> R {
        let head = Stamp { txn, undo: self.undo_ref }.head(self.deletes, self.is_chunked);
        let row = |payload: &[u8]| {
            let mut row: SmallVec<[u8; 512]> = SmallVec::from_slice(&head);
            row.extend_from_slice(payload);
            row
        };
        let key = self.key;
        match &mut self.effect {
            Effect::Insert(payload) => apply(&PageOp::Insert { key, value: &row(payload) }),
            Effect::Replace(payload) => apply(&PageOp::Replace { key, value: &row(payload) }),
            Effect::Patch(patch) => {
                patch[HEAD_AT..HEAD_AT + HEAD_LEN].copy_from_slice(&head);
                apply(&PageOp::Patch { key, patch: Patch(patch) })
            }
        }
    }
}

/// Checks all preconditions and reduces the changes of each key to their net effect, up to the first row that another
/// transaction has locked. `undo` gets what leads back.
pub(super) fn plan<'a>(
    ops: &[Op<'a>],
    leaves: &[Leaf<'_, '_>],
    undo: &mut Vec<u8>,
    manner: Manner<'_>,
) -> Result<Plan<'a>, Error> {
    undo.clear();
    let changes = SmallVec::with_capacity(ops.len());
    let mut planned = Plan { changes, was_there: false, ops: 0, stopped: None };
    let mut leaf = 0;
    let mut is_first = true;
    for ops in ops.chunk_by(|one, next| one.tree.space == next.tree.space && one.key == next.key) {
        let first = &ops[0];
        while leaves[leaf].0.space() != first.tree.space || !leaves[leaf].1.view().covers(first.key) {
            leaf += 1;
        }
        let view = leaves[leaf].1.view();
        let entry = match view.search(first.key) {
            Err(_) => None,
            Ok(index) => {
                let value = view.value(index);
                Some((value, Row::decode(value).ok_or_else(|| no_row(leaves[leaf].1.id(), index))?))
            }
        };
        let stamp = entry.and_then(|(_, row)| row.stamp);
        if manner.locks.is_locked(first.tree.space, first.key, stamp, manner.txn) {
            planned.stopped = Some(Stopped::Locked(first.tree.space, first.key, stamp));
            break;
        }
        let row = entry.map(|(_, row)| row).filter(|row| !row.is_deleted);
        let before = row.map(|row| Value { bytes: row.payload, is_reference: row.is_chunked });
        planned.was_there |= std::mem::take(&mut is_first) && before.is_some();
        let after = net_change(ops, before)?;
        let changes = after.is_some_and(|after| after != before);
        if let Some(reference) = row.and_then(|row| row.reference()).filter(|_| changes)
            && !manner.long_values.replaces(first.tree.space, reference)
        {
            planned.stopped = Some(Stopped::Replaces(first.tree, reference));
            break;
        }
        let after = match after {
            Some(after) if changes => after,
            same if manner.in_parts => {
                // Nobody may make untrue what was looked at, before all of the batch is there.
                let Some(value) = same.unwrap_or_else(|| expected(ops)) else {
                    if !manner.locks.hold(first.tree.space, first.key, manner.txn) {
                        planned.stopped = Some(Stopped::Locked(first.tree.space, first.key, stamp));
                        break;
                    }
                    planned.ops += ops.len();
                    continue;
                };
                Some(value)
            }
            _ => {
                planned.ops += ops.len();
                continue;
            }
        };
        planned.ops += ops.len();
        let change = match (entry, after) {
            (None, Some(payload)) => insertion(leaf, first, payload, undo, manner),
            (Some((value, row)), after) => change(leaf, first, value, &row, after, undo, manner),
            (None, None) => continue,
        };
        planned.changes.push(change);
    }
    Ok(planned)
}

/// A new entry. Nobody who reads asks what was before; a transaction of several groups may have to take it out again.
fn insertion<'a>(leaf: usize, op: &Op<'a>, new: Value<'a>, undo: &mut Vec<u8>, manner: Manner<'_>) -> Planned<'a> {
    let begin = undo.len();
    if manner.in_parts {
        Undo { needs_purge: false, space: op.tree.space, op: PageOp::Remove { key: op.key } }.encode(undo);
    }
    Planned {
        leaf,
        key: op.key,
        effect: Effect::Insert(new.bytes),
        needs_purge: false,
        deletes: false,
        is_chunked: new.is_reference,
        old_len: 0,
        new_len: HEAD_LEN + new.bytes.len(),
        undo: begin..undo.len(),
        undo_ref: None,
    }
}

/// The change of an entry that is there to one with payload `after`, or with a delete mark.
fn change<'a>(
    leaf: usize,
    op: &Op<'a>,
    value: &[u8],
    row: &Row<'_>,
    after: Option<Value<'a>>,
    undo: &mut Vec<u8>,
    manner: Manner<'_>,
) -> Planned<'a> {
    let deletes = after.is_none();
    let new_is_chunked = after.is_some_and(|after| after.is_reference);
    let after = after.map(|after| after.bytes);
    let old_head = &value[..row.head_len()];
    let mut patch = PatchBuf::new();
    // A deleted row keeps its payload: the mark is all that the log needs to say. If the payload is shorter than that,
    // the undo record has it.
    let kept = after.unwrap_or(row.payload);
    let leads_on = !(deletes && manner.is_short_of_room)
        && find_patch((row.head_len(), &[0; HEAD_LEN]), row.payload, kept, &mut patch);
    let (effect, payload) = match leads_on {
        true => (Effect::Patch(std::mem::take(&mut patch)), kept),
        false => (Effect::Replace(after.unwrap_or_default()), after.unwrap_or_default()),
    };
    let is_chunked = if deletes { row.is_chunked && leads_on } else { new_is_chunked };
    let leads_back = find_patch((HEAD_LEN, old_head), payload, row.payload, &mut patch);
    let back = match leads_back {
        true => PageOp::Patch { key: op.key, patch: Patch(&patch) },
        false => PageOp::Replace { key: op.key, value },
    };
    let begin = undo.len();
    // Purge may look for a delete mark while this is in its place, and not find it.
    let needs_purge = deletes || manner.in_parts && row.is_deleted && !planted!("undone_mark_not_purged");
    Undo { needs_purge, space: op.tree.space, op: back }.encode(undo);
    Planned {
        leaf,
        key: op.key,
        effect,
        needs_purge,
        deletes,
        is_chunked,
        old_len: value.len(),
        new_len: HEAD_LEN + payload.len(),
        undo: begin..undo.len(),
        undo_ref: None,
    }
}

/// The value that `ops` expect, if they expect one.
fn expected<'a>(ops: &[Op<'a>]) -> Option<Value<'a>> {
    let value = |op: &Op<'a>| if let Change::Expect(value) = op.change { value } else { None };
    ops.iter().find_map(|op| value(op).map(|bytes| Value { bytes, is_reference: op.is_reference }))
}

/// The error for a key that has another value than it should have.
pub(super) fn conflict(op: &Op<'_>) -> Error {
    let message = format!("key {} of {} is not as the batch expects: read it again and retry", shown(op.key), op.tree);
    Error::Conflict(message.into())
}

pub(super) fn shown(key: &[u8]) -> String {
    let short = &key[..key.len().min(32)];
    let dots = if short.len() < key.len() { "..." } else { "" };
    format!("'{}{dots}'", short.escape_ascii())
}

/// A value, or the reference to one that is in chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Value<'a> {
    bytes: &'a [u8],
    is_reference: bool,
}

/// What `ops`, which are all of one key whose value is `before`, leave of it: nothing changed (`None`), a value, or
/// no key. An error names the precondition that does not hold.
fn net_change<'a>(ops: &[Op<'a>], before: Option<Value<'_>>) -> Result<Option<Option<Value<'a>>>, Error> {
    let mut changed: Option<Option<Value<'a>>> = None;
    for op in ops {
        let value = if let Some(value) = changed { value } else { before };
        let of_op = |bytes| Value { bytes, is_reference: op.is_reference };
        match op.change {
            Change::Insert(_) if value.is_some() => return Err(op.tree.has_already(op.key)),
            Change::Update(_) if value.is_none() => {
                let message = format!("{} has no key {}: insert or put it", op.tree, shown(op.key));
                return Err(Error::KeyNotFound(message.into()));
            }
            Change::Expect(expected) if value != expected.map(of_op) => return Err(conflict(op)),
            Change::Insert(new) | Change::Put(new) | Change::Update(new) => changed = Some(Some(of_op(new))),
            Change::Delete => changed = Some(None),
            Change::Expect(_) => {}
        }
    }
    Ok(changed)
}
