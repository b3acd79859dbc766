//! The state that all handles of one tree share: its name and role, its root, and its gate.
//!
//! Operations hold the gate shared. A thread that drops the tree or closes the database holds it exclusively, and
//! leaves in it the reason why no operation may begin.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::error::{Error, MEND_INDEX, closed};
use crate::base::ids::{Lsn, SpaceId};
use crate::base::quoted::quoted;
use crate::base::row_error::{Case, RowError, RowsOwner};
use crate::base::sync::{ReadGuard, RwLock};
use crate::base::waits::{WaitClass, Waits};
use crate::btree::descent::Root;

/// The state that all handles of one tree share.
pub(crate) struct TreeState {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) space: SpaceId,
    pub(crate) root: Root,
    /// The tree with the chunks of long values, once it exists.
    pub(super) chunks: OnceLock<Arc<TreeState>>,
    /// Snapshots before this CommitTs cannot read the tree: it was created, loaded or built later. 0: it was there at
    /// open.
    pub(super) since: AtomicU64,
    /// The engine's address: tells the trees of one open database from those of another.
    pub(crate) database: usize,
    /// Shared for operations under way, exclusive for a thread that drops the tree or closes the database.
    pub(crate) gate: RwLock<Gate>,
}

/// The purpose of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A tree by itself.
    Tree,
    /// The rows of the table of its name.
    Rows,
    /// The chunks of the long values of the tree or table of its name.
    Chunks,
    /// An index of this table.
    Index { table: String, is_unique: bool },
    /// The keys of entries that came or went while an index of this table is built.
    Notes { table: String },
}

/// Whether operations may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Dropped,
    /// The tree was emptied: its name now stands for a new tree.
    Truncated,
    Closed,
}

impl TreeState {
    /// Notes that the tree got its present content at this CommitTs, or before it.
    pub(super) fn begin_at(&self, since: Lsn) {
        self.since.store(since.0, Ordering::Release);
    }

    /// Whether the tree got its present content after this moment.
    pub(crate) fn began_after(&self, at: Lsn) -> bool {
        self.since.load(Ordering::Acquire) > at.0
    }

    /// Refuses a snapshot of a moment before the tree had its content.
    pub(crate) fn check_snapshot(&self, at: Lsn) -> Result<(), Error> {
        if !self.began_after(at) {
            return Ok(());
        }
        let message = format!("the snapshot is older than {self}: take a new one");
        Err(Error::SnapshotTooOld(message.into()))
    }

    /// Enters the gate, shared; fails if the tree is dropped or the database closed. May wait on `metadata` for a
    /// thread that does that.
    pub(crate) fn enter(&self, waits: &Waits) -> Result<ReadGuard<'_, Gate>, Error> {
        let gate = self.gate.try_read().unwrap_or_else(|| waits.timed(WaitClass::Metadata, || self.gate.read()));
        match *gate {
            Gate::Open => Ok(gate),
            Gate::Dropped => Err(self.dropped()),
            Gate::Truncated => {
                Err(Error::TreeNotFound(format!("{self} was truncated: open it again by its name").into()))
            }
            Gate::Closed => Err(closed()),
        }
    }

    /// The error for a tree that is not found in the catalog: the gate's reason, or that the tree was dropped.
    pub(crate) fn gone(&self, waits: &Waits) -> Error {
        self.enter(waits).err().unwrap_or_else(|| self.dropped())
    }

    fn dropped(&self) -> Error {
        Error::TreeNotFound(format!("{self} was dropped: open or create it again").into())
    }

    /// The tree with the chunks of long values. A thread that has entered this tree need not enter that one: both are
    /// dropped together.
    pub(crate) fn chunks(&self) -> Option<&Arc<TreeState>> {
        self.chunks.get()
    }

    /// This tree, and the tree with its chunks if there is one.
    pub(crate) fn with_chunks(self: &Arc<Self>) -> impl Iterator<Item = &Arc<TreeState>> {
        std::iter::once(self).chain(self.chunks())
    }

    /// The error for an insert of a key that exists.
    #[cold]
    pub(crate) fn has_already(self: &Arc<Self>, key: &[u8]) -> Error {
        match self.role {
            Role::Tree | Role::Rows => Error::KeyExists(self.row_error(key, Case::Exists)),
            Role::Index { is_unique: true, .. } => Error::KeyExists(self.row_error(key, Case::Taken)),
            Role::Index { is_unique: false, .. } | Role::Chunks | Role::Notes { .. } => {
                let (key, way_out) = (quoted(key), MEND_INDEX);
                Error::Corruption(format!("{self} has the entry {key} of a row that has none: {way_out}").into())
            }
        }
    }

    /// The error for an update of a key that does not exist.
    #[cold]
    pub(crate) fn has_no(self: &Arc<Self>, key: &[u8]) -> Error {
        Error::KeyNotFound(self.row_error(key, Case::Missing))
    }

    /// The error for a key that has another value than the batch expects.
    #[cold]
    pub(crate) fn has_other(self: &Arc<Self>, key: &[u8]) -> Error {
        Error::Conflict(self.row_error(key, Case::Unexpected))
    }

    /// The error for a key that was changed since the writer's snapshot.
    #[cold]
    pub(crate) fn has_changed(self: &Arc<Self>, key: &[u8]) -> Error {
        Error::Conflict(self.row_error(key, Case::Changed))
    }

    fn row_error(self: &Arc<Self>, key: &[u8], case: Case) -> RowError {
        let of: Arc<TreeState> = Arc::clone(self);
        RowError::new(of, key, case)
    }
}

impl RowsOwner for TreeState {
    fn name(&self) -> &str {
        match &self.role {
            Role::Index { table, .. } | Role::Notes { table } => table,
            Role::Tree | Role::Rows | Role::Chunks => &self.name,
        }
    }

    fn index(&self) -> Option<&str> {
        match self.role {
            Role::Index { .. } | Role::Notes { .. } => Some(&self.name),
            Role::Tree | Role::Rows | Role::Chunks => None,
        }
    }
}

/// The tree's description in errors.
impl fmt::Display for TreeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.escape_debug();
        match &self.role {
            Role::Tree => write!(f, "tree '{name}'"),
            Role::Rows => write!(f, "table '{name}'"),
            Role::Chunks => write!(f, "the chunks of '{name}'"),
            Role::Index { table, .. } => write!(f, "index '{name}' of table '{}'", table.escape_debug()),
            Role::Notes { table } => {
                write!(f, "what is noted while index '{name}' of table '{}' is made", table.escape_debug())
            }
        }
    }
}
