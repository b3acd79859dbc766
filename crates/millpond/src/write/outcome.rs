//! Outcomes of a write: of an attempt, of a group, and of a batch.
//!
//! An attempt ends with [`Done`] or an [`Obstacle`]. [`write_group`](crate::write::group::write_group) turns these into
//! a [`GroupOutcome`]: its caller goes on, writes in parts, or adds deletions of chunks.

use std::sync::Arc;

use crate::base::ids::{Lsn, SpaceId};
use crate::base::row::{Reference, Stamp};
use crate::btree::descent::{Root, Stop};
use crate::btree::split::Pending;
use crate::engine::tree_state::TreeState;

/// The result of a written group, or of a written batch.
pub(crate) struct Done {
    /// LSN after all changes that the group or batch made or saw: its CommitTs, if it changed something.
    pub(crate) end: Lsn,
    /// Whether the first key, in the order of the batch, existed before.
    pub(crate) was_there: bool,
    /// Number of the first ops that were written.
    pub(super) ops: usize,
}

/// The end of an attempt to write a batch.
pub(crate) enum Applied {
    Done(Done),
    /// Nothing was done, because the batch is too large for one group.
    TooLarge,
    /// Nothing was done: another transaction has locked this row, which has this stamp.
    Locked(SpaceId, Vec<u8>, Option<Stamp>),
    /// Nothing was done: the batch is to be written in parts, and needs intents on these trees and tables first.
    InParts(Vec<SpaceId>),
}

/// The size that a batch may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Any,
    OneGroup,
}

/// What a group of the log is of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A batch, which is a transaction of this one group.
    Batch,
    /// A statement of a transaction that is committed later.
    Statement,
    /// A part of a batch or statement that is too large for one group: the changes of a few leaves.
    Part,
}

/// The reason why an attempt to write a group ended without it.
pub(crate) enum Obstacle<'p, 'a> {
    Stop(Stop<'p>),
    /// A leaf of this tree has no room for these entries.
    Full(&'a Root, Vec<Pending>),
    /// A leaf was compacted, which removed old stamps, or another thread was faster: try again.
    Again,
    /// The changes that lead back need this many undo pages.
    Undo(usize),
    /// The group takes this many bytes of redo.
    Redo(usize),
    /// There are too many leaves, or too much redo, for one group.
    TooLarge,
    /// Another transaction has locked this row, which has this stamp.
    Locked(SpaceId, &'a [u8], Option<Stamp>),
    /// A row of this tree has a long value, whose chunks are to be deleted with it.
    Replaces(&'a Arc<TreeState>, Reference),
}

impl<'p, T: Into<Stop<'p>>> From<T> for Obstacle<'p, '_> {
    fn from(stop: T) -> Self {
        Obstacle::Stop(stop.into())
    }
}

/// The outcome of [`write_group`](crate::write::group::write_group).
pub(crate) enum GroupOutcome<'a> {
    Written(Done),
    /// The ops are too much for one group.
    TooLarge,
    /// Another transaction has locked this row, which has this stamp. Only a batch of one group gets this: others wait
    /// where they are.
    Locked(SpaceId, &'a [u8], Option<Stamp>),
    /// A row of this tree has a long value, whose chunks are to be deleted with it.
    Replaces(&'a Arc<TreeState>, Reference),
}
