//! Write batches: the public list of changes that [`Db::write`](crate::Db::write) makes together.
//!
//! A batch keeps all keys and values in one piece of memory. Targets are trees, or tables together with their indexes.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::table_state::TableState;
use crate::engine::tree_state::TreeState;
use crate::options::durability::Durability;
use crate::write::op::{Change, Op};

/// A change whose key and value are ranges of the batch's memory.
struct BatchOp {
    place: Place,
    key: Range<usize>,
    change: Change<Range<usize>>,
}

/// The tree or table that a change of a batch changes.
pub(crate) enum Place {
    Tree(Arc<TreeState>),
    /// A table: its indexes change with the rows.
    Table(Arc<TableState>),
}

impl Place {
    /// The tree with the key.
    pub(super) fn tree(&self) -> &Arc<TreeState> {
        match self {
            Place::Tree(tree) => tree,
            Place::Table(table) => &table.rows,
        }
    }
}

/// The target of a change of a batch: a [`Tree`](crate::Tree), or a [`Table`](crate::Table) together with its indexes.
#[must_use]
pub struct BatchTarget(pub(crate) Place);

/// Changes of any trees and tables of one database that [`Db::write`](crate::Db::write) makes together or not at all.
///
/// The indexes of tables are kept up to date. For that, the write first reads all rows that are not inserted; it starts
/// over if another writer changes one of them in between. Rows may exchange values that are unique among them.
///
/// The changes of one key happen in the order in which they were added. A batch may have any size that fits in memory.
/// A batch that is too large for a group of the log is written in parts; its rows are locked until all parts are
/// written.
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

    /// The changes with their targets, in the order in which they were added.
    pub(crate) fn ops(&self) -> impl Iterator<Item = (&Place, Op<'_>)> {
        self.ops.iter().map(|op| {
            let change = op.change.clone().map(|value| &self.bytes[value]);
            (&op.place, Op::new(op.place.tree(), &self.bytes[op.key.clone()], change))
        })
    }

    /// Adds `key`, which must not exist ([`Error::KeyExists`](crate::Error::KeyExists)).
    pub fn insert(&mut self, to: impl Into<BatchTarget>, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add(to, key.as_ref(), Change::Insert(value.as_ref()))
    }

    /// Sets the value of `key`, whether the key exists or not.
    pub fn put(&mut self, to: impl Into<BatchTarget>, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add(to, key.as_ref(), Change::Put(value.as_ref()))
    }

    /// Sets the value of `key`, which must exist ([`Error::KeyNotFound`](crate::Error::KeyNotFound)).
    pub fn update(&mut self, to: impl Into<BatchTarget>, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.add(to, key.as_ref(), Change::Update(value.as_ref()))
    }

    /// Removes `key`, whether it exists or not.
    pub fn delete(&mut self, from: impl Into<BatchTarget>, key: impl AsRef<[u8]>) -> &mut Self {
        self.add(from, key.as_ref(), Change::Delete)
    }

    /// Demands that `key` has this value (`None`: does not exist) when the batch is written. Otherwise nothing is
    /// written, and the write returns [`Error::Conflict`](crate::Error::Conflict). So a read and a write that depends
    /// on it become one atomic step.
    pub fn expect(&mut self, of: impl Into<BatchTarget>, key: impl AsRef<[u8]>, value: Option<&[u8]>) -> &mut Self {
        self.add(of, key.as_ref(), Change::Expect(value))
    }

    /// Sets how safe this batch is when the write returns, instead of the database's option.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = Some(durability);
        self
    }

    /// Number of changes in the batch.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}
