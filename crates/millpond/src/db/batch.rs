//! Write batches.

use std::ops::Range;
use std::sync::Arc;

use super::options::Durability;
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
    fn map<W>(self, get: impl FnOnce(V) -> W) -> Change<W> {
        match self {
            Change::Insert(value) => Change::Insert(get(value)),
            Change::Put(value) => Change::Put(get(value)),
            Change::Update(value) => Change::Update(get(value)),
            Change::Delete => Change::Delete,
            Change::Expect(value) => Change::Expect(value.map(get)),
        }
    }
}

/// A change of one key, borrowed from whoever asks for it.
#[derive(Clone, Copy)]
pub(crate) struct Op<'a> {
    pub(crate) tree: &'a Arc<TreeState>,
    pub(crate) key: &'a [u8],
    pub(crate) change: Change<&'a [u8]>,
}

/// A change whose key and value are in the batch's memory.
struct BatchOp {
    tree: Arc<TreeState>,
    key: Range<usize>,
    change: Change<Range<usize>>,
}

/// Changes of any trees of one database that [`Db::write`](crate::Db::write) makes together or not at all.
///
/// The changes of one key happen in the order in which they were added. A batch has a size limit: see
/// [`Error::BatchTooLarge`](crate::Error::BatchTooLarge).
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

    fn add(&mut self, tree: &Tree, key: &[u8], change: Change<&[u8]>) -> &mut Self {
        let key = self.keep(key);
        let change = change.map(|value| self.keep(value));
        self.ops.push(BatchOp { tree: Arc::clone(&tree.state), key, change });
        self
    }

    /// The changes, in the order in which they were added.
    pub(crate) fn ops(&self) -> impl Iterator<Item = Op<'_>> {
        self.ops.iter().map(|op| Op {
            tree: &op.tree,
            key: &self.bytes[op.key.clone()],
            change: op.change.clone().map(|value| &self.bytes[value]),
        })
    }

    /// Adds `key`, which must not be there ([`Error::KeyExists`](crate::Error::KeyExists)).
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Insert(value))
    }

    /// Sets `key`, whether it is there or not.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Put(value))
    }

    /// Sets `key`, which must be there ([`Error::KeyNotFound`](crate::Error::KeyNotFound)).
    pub fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Update(value))
    }

    /// Removes `key`, whether it is there or not.
    pub fn delete(&mut self, tree: &Tree, key: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Delete)
    }

    /// Demands that `key` has this value (`None`: is not there) when the batch is written; otherwise nothing is, and
    /// the write returns [`Error::Conflict`](crate::Error::Conflict). So a read and a write that depends on it
    /// become one step.
    pub fn expect(&mut self, tree: &Tree, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        self.add(tree, key, Change::Expect(value))
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
