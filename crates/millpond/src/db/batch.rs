//! Write batches.

use std::ops::Range;
use std::sync::Arc;

use super::options::Durability;
use super::row_changes::TableState;
use super::table::Table;
use super::tree::{Tree, TreeState};

/// What is to happen to a key; a value is where `V` says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<V> {
    Insert(V),
    Put(V),
    Update(V),
    Delete,
    Expect(Option<V>),
}

impl<V> Change<V> {
    pub(super) fn map<W>(self, get: impl FnOnce(V) -> W) -> Change<W> {
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
    /// What there is when the change has been made, if it is one.
    pub(super) fn value(self) -> Option<&'a [u8]> {
        match self {
            Change::Insert(value) | Change::Put(value) | Change::Update(value) => Some(value),
            Change::Delete | Change::Expect(_) => None,
        }
    }
}

/// A change of one key, borrowed from whoever asks for it.
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

    /// Bytes of the value that comes or is expected.
    pub(super) fn value_len(&self) -> usize {
        match self.change {
            Change::Expect(expected) => expected.map_or(0, <[u8]>::len),
            other => other.value().map_or(0, <[u8]>::len),
        }
    }
}

/// A change whose key and value are in the batch's memory.
struct BatchOp {
    place: Place,
    key: Range<usize>,
    change: Change<Range<usize>>,
}

/// What a change of a batch is a change of.
pub(super) enum Place {
    Tree(Arc<TreeState>),
    /// The indexes follow.
    Table(Arc<TableState>),
}

impl Place {
    /// The tree that has the key.
    pub(super) fn tree(&self) -> &Arc<TreeState> {
        match self {
            Place::Tree(tree) => tree,
            Place::Table(table) => &table.rows,
        }
    }
}

/// What a change of a batch is a change of: a [`Tree`], or a [`Table`] together with its indexes.
#[must_use]
pub struct BatchTarget(Place);

impl From<&Tree> for BatchTarget {
    fn from(tree: &Tree) -> BatchTarget {
        BatchTarget(Place::Tree(Arc::clone(&tree.state)))
    }
}

impl From<&&Tree> for BatchTarget {
    fn from(tree: &&Tree) -> BatchTarget {
        BatchTarget::from(*tree)
    }
}

impl From<&Table> for BatchTarget {
    fn from(table: &Table) -> BatchTarget {
        BatchTarget(Place::Table(Arc::clone(&table.state)))
    }
}

impl From<&&Table> for BatchTarget {
    fn from(table: &&Table) -> BatchTarget {
        BatchTarget::from(*table)
    }
}

/// Changes of any trees and tables of one database that [`Db::write`](crate::Db::write) makes together or not at all.
///
/// The indexes of tables follow. For that, rows that are not inserted are read before, and the write goes round if
/// another writer changes one of them in between; rows may exchange what is unique among them.
///
/// The changes of one key happen in the order in which they were added. A batch may be of any size that fits in memory.
/// One that is larger than a group of the log can be is written in parts: its rows are locked until all of it is there.
#[derive(Default)]
#[must_use]
pub struct WriteBatch {
    /// All keys and values.
    bytes: Vec<u8>,
    ops: Vec<BatchOp>,
    pub(crate) durability: Option<Durability>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        from..self.bytes.len()
    }

    fn add(&mut self, to: impl Into<BatchTarget>, key: &[u8], change: Change<&[u8]>) -> &mut Self {
        let key = self.keep(key);
        let change = change.map(|value| self.keep(value));
        self.ops.push(BatchOp { place: to.into().0, key, change });
        self
    }

    /// The changes, in the order in which they were added, and of what.
    pub(super) fn ops(&self) -> impl Iterator<Item = (&Place, Op<'_>)> {
        self.ops.iter().map(|op| {
            let change = op.change.clone().map(|value| &self.bytes[value]);
            (&op.place, Op::new(op.place.tree(), &self.bytes[op.key.clone()], change))
        })
    }

    /// Adds `key`, which must not be there ([`Error::KeyExists`](crate::Error::KeyExists)).
    pub fn insert(&mut self, to: impl Into<BatchTarget>, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(to, key, Change::Insert(value))
    }

    /// Sets `key`, whether it is there or not.
    pub fn put(&mut self, to: impl Into<BatchTarget>, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(to, key, Change::Put(value))
    }

    /// Sets `key`, which must be there ([`Error::KeyNotFound`](crate::Error::KeyNotFound)).
    pub fn update(&mut self, to: impl Into<BatchTarget>, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(to, key, Change::Update(value))
    }

    /// Removes `key`, whether it is there or not.
    pub fn delete(&mut self, from: impl Into<BatchTarget>, key: &[u8]) -> &mut Self {
        self.add(from, key, Change::Delete)
    }

    /// Demands that `key` has this value (`None`: is not there) when the batch is written; otherwise nothing is, and
    /// the write returns [`Error::Conflict`](crate::Error::Conflict). So a read and a write that depends on it
    /// become one step.
    pub fn expect(&mut self, of: impl Into<BatchTarget>, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        self.add(of, key, Change::Expect(value))
    }

    /// When this batch is safe, instead of when the database's options say.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = Some(durability);
        self
    }

    /// Changes in the batch.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}
