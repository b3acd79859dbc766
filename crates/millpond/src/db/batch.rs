//! Write batches.

use std::sync::Arc;

use super::options::Durability;
use super::tree::{Tree, TreeState};

/// What is to happen to a key.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Insert(Vec<u8>),
    Put(Vec<u8>),
    Update(Vec<u8>),
    Delete,
    Expect(Option<Vec<u8>>),
}

pub(crate) struct BatchOp {
    pub(crate) tree: Arc<TreeState>,
    pub(crate) key: Vec<u8>,
    pub(crate) change: Change,
}

/// Changes of any trees of one database that [`Db::write`](crate::Db::write) makes together or not at all.
///
/// The changes of one key happen in the order in which they were added. A batch has a size limit: see
/// [`Error::BatchTooLarge`](crate::Error::BatchTooLarge).
#[derive(Default)]
#[must_use]
pub struct WriteBatch {
    pub(crate) ops: Vec<BatchOp>,
    pub(crate) durability: Option<Durability>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, tree: &Tree, key: &[u8], change: Change) -> &mut Self {
        self.ops.push(BatchOp { tree: Arc::clone(&tree.state), key: key.to_vec(), change });
        self
    }

    /// Adds `key`, which must not be there ([`Error::KeyExists`](crate::Error::KeyExists)).
    pub fn insert(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Insert(value.to_vec()))
    }

    /// Sets `key`, whether it is there or not.
    pub fn put(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Put(value.to_vec()))
    }

    /// Sets `key`, which must be there ([`Error::KeyNotFound`](crate::Error::KeyNotFound)).
    pub fn update(&mut self, tree: &Tree, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Update(value.to_vec()))
    }

    /// Removes `key`, whether it is there or not.
    pub fn delete(&mut self, tree: &Tree, key: &[u8]) -> &mut Self {
        self.add(tree, key, Change::Delete)
    }

    /// Demands that `key` has this value (`None`: is not there) when the batch is written; otherwise nothing is, and
    /// the write returns [`Error::Conflict`](crate::Error::Conflict). So a read and a write that depends on it
    /// become one step.
    pub fn expect(&mut self, tree: &Tree, key: &[u8], value: Option<&[u8]>) -> &mut Self {
        self.add(tree, key, Change::Expect(value.map(<[u8]>::to_vec)))
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
