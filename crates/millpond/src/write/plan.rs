//! Plans a group: the change of each key, and the change that would undo it. Nothing is changed here.
//!
//! [`plan`] looks at the latched leaves, checks all preconditions, and reduces the ops of a key to their net effect. It
//! stops at a row that is locked, or whose chunks the batch must delete first. [`Planned::carry_out`] then makes a
//! change.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::Error;
use crate::base::ids::{SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::patch::{HEAD_AT, Patch, PatchBuf, find_patch};
use crate::base::page::view::PageView;
use crate::base::row::{HEAD_LEN, Reference, Row, Stamp, UNDO_REF_AT, UndoRef};
use crate::btree::descent::Root;
use crate::btree::scan::no_row;
use crate::engine::Engine;
use crate::engine::tree_state::{Role, TreeState};
use crate::mtr::RECORD_HEADER;
use crate::pool::pin::PageWrite;
use crate::txn::lock_table::Mode;
use crate::txn::record::Undo;
use crate::txn::snapshots::Live;
use crate::txn::versions::{Seen, Shortcut, head_with};
use crate::write::chunks::LongValues;
use crate::write::op::{Change, Op, conflict};

/// Number of leaves of a batch up to which no memory is allocated.
pub(super) const LEAVES_INLINE: usize = 4;

/// Bytes for the stamps of four rows.
const SLACK: usize = 4 * (HEAD_LEN - 1);

/// A latched leaf, and the root of its tree.
pub(crate) type Leaf<'p, 'a> = (&'a Root, PageWrite<'p>);

pub(crate) type Leaves<'p, 'a> = SmallVec<[Leaf<'p, 'a>; LEAVES_INLINE]>;

/// The plan of a group.
pub(crate) struct Plan<'a> {
    /// In the order of their leaves and keys.
    pub(super) changes: SmallVec<[Planned<'a>; LEAVES_INLINE]>,
    /// Keys without a row that are to be locked.
    pub(super) absent: SmallVec<[(SpaceId, &'a [u8]); 1]>,
    /// Whether the first key exists.
    pub(super) was_there: bool,
    /// Number of the ops that are planned: all before the one that stopped the plan.
    pub(super) ops: usize,
    pub(super) stopped: Option<RowObstacle<'a>>,
}

/// The reason why no more ops are planned.
#[derive(Clone, Copy)]
pub(crate) enum RowObstacle<'a> {
    /// Another transaction has locked this row, which has this stamp.
    Locked(SpaceId, &'a [u8], Option<Stamp>),
    /// A row of this tree has a long value, whose chunks are to be deleted with it.
    Replaces(&'a Arc<TreeState>, Reference),
}

/// The parameters of a plan.
#[derive(Clone, Copy)]
pub(crate) struct PlanContext<'t> {
    pub(super) engine: &'t Engine,
    pub(super) long_values: &'t LongValues<'t>,
    pub(super) txn: TxnId,
    /// The transaction has several groups: it locks every row that it looks at.
    pub(super) in_parts: bool,
    /// The transaction's snapshot, if no other may have changed a row since that it looks at here.
    pub(super) first_wins: Option<&'t Live>,
    /// The files have no room for further pages: deleted rows keep no payload.
    pub(super) is_short_of_room: bool,
    /// Versions of a row that are looked at, to leave out those that no reader looks for (CHAIN-1); 0: none is left
    /// out.
    pub(super) looks_at: u32,
}

impl Plan<'_> {
    /// Changes in undo pages that no reader will follow once the group is in the log.
    pub(super) fn cut_out(&self) -> impl Iterator<Item = Seen> {
        let overwritten = self.changes.iter().filter_map(|change| change.shortcut.as_deref());
        overwritten.flat_map(|overwritten| overwritten.shortcut.cut_out.iter().copied())
    }

    /// Bytes of redo for the leaves.
    pub(super) fn redo_len(&self) -> usize {
        let leaves = self.changes.chunk_by(|one, next| one.leaf == next.leaf).count();
        leaves * RECORD_HEADER + self.changes.iter().map(Planned::redo_len).sum::<usize>()
    }
}

/// The net effect of a batch on the entry of one key.
enum Effect<'a> {
    /// There is no entry: insert one with this payload.
    Insert(&'a [u8]),
    /// Replace the whole row; this is the new payload.
    Replace(&'a [u8]),
    /// Patch the row, most of which stays. The patch has room for the stamp.
    Patch(PatchBuf),
}

/// A change of one key's entry.
pub(crate) struct Planned<'a> {
    /// Index of its leaf.
    pub(super) leaf: usize,
    pub(super) key: &'a [u8],
    effect: Effect<'a>,
    /// The entry gets a delete mark.
    deletes: bool,
    /// The new payload is a reference to chunks.
    is_chunked: bool,
    /// Purge has to look at the entry afterwards.
    pub(super) needs_purge: bool,
    /// Bytes of the row before the change, and after it.
    old_len: usize,
    new_len: usize,
    /// The change that leads back, as a range of the slot's buffer; empty if none is needed.
    pub(super) undo: Range<usize>,
    /// The undo record that will hold the change that leads back.
    pub(super) undo_ref: Option<UndoRef>,
    /// What the change leaves out of the row's versions.
    pub(super) shortcut: Option<Box<Overwritten>>,
}

/// What is to be changed in the chain of a version that is overwritten.
pub(crate) struct Overwritten {
    pub(super) shortcut: Shortcut,
    /// Where in the slot's buffer the version's new undo record is to be named.
    pub(super) names_at: usize,
}

impl<'a> Planned<'a> {
    /// The order of changes in a leaf: first rows that shrink, then rows that grow, then new rows.
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

    /// Bytes that are to stay free in a leaf beside a new row. Rows that are changed later get stamps: with this room,
    /// a compaction that drops old stamps suffices, and no page need be split.
    pub(super) fn slack(&self) -> usize {
        if matches!(self.effect, Effect::Insert(_)) { SLACK } else { 0 }
    }

    /// Bytes of the row after the change.
    pub(super) fn new_len(&self) -> usize {
        self.new_len
    }

    /// Bytes of redo for the change, without the header of its record.
    fn redo_len(&self) -> usize {
        let value = match &self.effect {
            Effect::Insert(_) | Effect::Replace(_) => self.new_len,
            Effect::Patch(patch) => patch.len(),
        };
        PageOp::Replace { key: self.key, value: b"" }.encoded_len() + value
    }

    /// Has `apply` carry out the change, with the stamp of transaction `txn`.
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

/// Checks all preconditions and reduces the changes of each key to their net effect, up to the first row that
/// [stops](RowObstacle) the plan. Writes the changes that lead back to `undo`.
pub(super) fn plan<'a>(
    ops: &[Op<'a>],
    leaves: &[Leaf<'_, '_>],
    undo: &mut Vec<u8>,
    context: PlanContext<'_>,
) -> Result<Plan<'a>, Error> {
    undo.clear();
    let locks = &context.engine.txns.locks;
    let changes = SmallVec::with_capacity(ops.len());
    let mut planned = Plan { changes, absent: SmallVec::new(), was_there: false, ops: 0, stopped: None };
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
        if locks.is_locked(first.tree.space, first.key, stamp, context.txn, Mode::Exclusive) {
            planned.stopped = Some(RowObstacle::Locked(first.tree.space, first.key, stamp));
            break;
        }
        check_first(context.engine, context.txn, context.first_wins, (first.tree, first.key), stamp)?;
        let row = entry.map(|(_, row)| row).filter(|row| !row.is_deleted);
        let before = row.map(|row| Value { bytes: row.payload, is_reference: row.is_chunked });
        planned.was_there |= std::mem::take(&mut is_first) && before.is_some();
        let after = net_change(ops, before)?;
        let changes = after.is_some_and(|after| after != before);
        if let Some(reference) = row.and_then(|row| row.reference()).filter(|_| changes)
            && !context.long_values.replaces(first.tree.space, reference)
        {
            planned.stopped = Some(RowObstacle::Replaces(first.tree, reference));
            break;
        }
        let after = match after {
            Some(after) if changes => after,
            same if context.in_parts => {
                // No other transaction may change a row that the batch has looked at, before all of it is written: the
                // row gets a stamp; without a row, its key is locked.
                let Some(value) = same.unwrap_or_else(|| expected(ops)) else {
                    planned.absent.push((first.tree.space, first.key));
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
            (None, Some(payload)) => insertion(leaf, first, payload, undo, context),
            (Some((value, row)), after) => change(leaf, first, value, &row, after, undo, context),
            (None, None) => continue,
        };
        planned.changes.push(change);
    }
    Ok(planned)
}

/// WRITE-4: fails if another transaction has changed the row of `key`, whose stamp this is, since the snapshot of
/// `txn`. A row without a stamp was changed before all live snapshots: so the snapshot must be live after the look at
/// the row. Callers have its leaf latched.
pub(super) fn check_first(
    engine: &Engine,
    txn: TxnId,
    snapshot: Option<&Live>,
    (tree, key): (&Arc<TreeState>, &[u8]),
    stamp: Option<Stamp>,
) -> Result<(), Error> {
    let Some(live) = snapshot.filter(|_| !planted!("first_updater_loses")) else { return Ok(()) };
    // An index that was built since, and its notes, are others' changes as a whole: the row's own stamp decides.
    if matches!(tree.role, Role::Notes { .. }) || matches!(tree.role, Role::Index { .. }) && tree.began_after(live.at) {
        return Ok(());
    }
    let is_hidden = |stamp: Stamp| stamp.txn != txn && !engine.txns.commits.is_visible_at(stamp.txn, live.at);
    if stamp.is_some_and(is_hidden) {
        return Err(tree.has_changed(key));
    }
    if live.is_ended() {
        let message = "the transaction's snapshot was older than max_snapshot_age: roll back and begin again";
        return Err(Error::SnapshotTooOld(message.into()));
    }
    Ok(())
}

/// The insertion of a new entry. Readers need no undo record for it; a transaction of several groups may have to remove
/// the entry again.
fn insertion<'a>(
    leaf: usize,
    op: &Op<'a>,
    new: Value<'a>,
    undo: &mut Vec<u8>,
    context: PlanContext<'_>,
) -> Planned<'a> {
    let begin = undo.len();
    if context.in_parts {
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
        shortcut: None,
    }
}

/// The change of an existing entry to one with payload `after`; `None`: to one with a delete mark.
fn change<'a>(
    leaf: usize,
    op: &Op<'a>,
    value: &[u8],
    row: &Row<'_>,
    after: Option<Value<'a>>,
    undo: &mut Vec<u8>,
    context: PlanContext<'_>,
) -> Planned<'a> {
    let deletes = after.is_none();
    let new_is_chunked = after.is_some_and(|after| after.is_reference);
    let after = after.map(|after| after.bytes);
    let (core, txns) = (&context.engine.core, &context.engine.txns);
    let find = || Shortcut::find(core, txns, (op.tree.space, op.key), value, context.looks_at);
    let shortcut = (context.looks_at > 0).then(find).flatten();
    let new_head = shortcut.as_ref().and_then(|_| head_with(value, None));
    let old_head = new_head.as_ref().map_or(&value[..row.head_len()], |head| &head[..]);
    let mut patch = PatchBuf::new();
    // A deleted row keeps its payload, so the log needs only the mark. If a patch is not shorter than the payload, the
    // row loses the payload, and the undo record has it.
    let kept = after.unwrap_or(row.payload);
    let leads_on = !(deletes && context.is_short_of_room)
        && find_patch((row.head_len(), &[0; HEAD_LEN]), row.payload, kept, &mut patch);
    let (effect, payload) = match leads_on {
        true => (Effect::Patch(std::mem::take(&mut patch)), kept),
        false => (Effect::Replace(after.unwrap_or_default()), after.unwrap_or_default()),
    };
    let is_chunked = if deletes { row.is_chunked && leads_on } else { new_is_chunked };
    let leads_back = find_patch((HEAD_LEN, old_head), payload, row.payload, &mut patch);
    let old_row: Cow<'_, [u8]> = match &new_head {
        Some(head) if !leads_back => Cow::Owned([head, row.payload].concat()),
        _ => Cow::Borrowed(value),
    };
    let (back, from_end) = match leads_back {
        true => (PageOp::Patch { key: op.key, patch: Patch(&patch) }, patch.len() - HEAD_AT),
        false => (PageOp::Replace { key: op.key, value: &old_row }, old_row.len()),
    };
    let begin = undo.len();
    // If this change replaces a delete mark and is undone, the mark is back. Purge may have looked meanwhile, and found
    // none: so it must look again.
    let needs_purge = deletes || context.in_parts && row.is_deleted && !planted!("undone_mark_not_purged");
    Undo { needs_purge, space: op.tree.space, op: back }.encode(undo);
    let names_at = undo.len() - from_end + UNDO_REF_AT;
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
        shortcut: shortcut.map(|shortcut| Box::new(Overwritten { shortcut, names_at })),
    }
}

/// The value that `ops` expect, if they expect one.
fn expected<'a>(ops: &[Op<'a>]) -> Option<Value<'a>> {
    let value = |op: &Op<'a>| if let Change::Expect(value) = op.change { value } else { None };
    ops.iter().find_map(|op| value(op).map(|bytes| Value { bytes, is_reference: op.is_reference }))
}

/// A value, or the reference to a value in chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Value<'a> {
    bytes: &'a [u8],
    is_reference: bool,
}

/// The net effect of `ops`, all of one key whose value is `before`: no change (`None`), a new value, or a deletion
/// (`Some(None)`). An error names the precondition that does not hold.
fn net_change<'a>(ops: &[Op<'a>], before: Option<Value<'_>>) -> Result<Option<Option<Value<'a>>>, Error> {
    let mut changed: Option<Option<Value<'a>>> = None;
    for op in ops {
        let value = if let Some(value) = changed { value } else { before };
        let of_op = |bytes| Value { bytes, is_reference: op.is_reference };
        match op.change {
            Change::Insert(_) if value.is_some() => return Err(op.tree.has_already(op.key)),
            Change::Update(_) if value.is_none() => return Err(op.tree.has_no(op.key)),
            Change::Expect(expected) if value != expected.map(of_op) => return Err(conflict(op)),
            Change::Insert(new) | Change::Put(new) | Change::Update(new) => changed = Some(Some(of_op(new))),
            Change::Delete => changed = Some(None),
            Change::Expect(_) => {}
        }
    }
    Ok(changed)
}
