//! The shared states of open trees.
//!
//! [`open_state`] finds a tree's [`TreeState`] in [`Engine::open_trees`] by the tree's space, or makes it there: all
//! handles of a tree get the same one. A drop of the tree removes it from there.

use std::collections::btree_map;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::ids::SpaceId;
use crate::base::sync::RwLock;
use crate::btree::descent::Root;
use crate::engine::Engine;
use crate::engine::tree_state::{Gate, Role, TreeState};

/// The state that handles of the tree in `space` share; made if the tree is not open.
pub(crate) fn open_state(engine: &Engine, name: &str, space: SpaceId, role: Role) -> Arc<TreeState> {
    match engine.open_trees.lock().entry(space) {
        btree_map::Entry::Occupied(open) => Arc::clone(open.get()),
        btree_map::Entry::Vacant(vacant) => Arc::clone(vacant.insert(tree_state(engine, name, space, role))),
    }
}

/// A new state that is not listed in [`Engine::open_trees`]: for a tree that has no name yet.
pub(crate) fn tree_state(engine: &Engine, name: &str, space: SpaceId, role: Role) -> Arc<TreeState> {
    let database = std::ptr::from_ref(engine).addr();
    let (root, gate) = (Root::new(space), RwLock::new(Gate::Open));
    let chunks = OnceLock::new();
    let is_new = space >= SpaceId(engine.first_new_space.load(Ordering::Acquire)) && role != Role::Chunks;
    let since = AtomicU64::new(0);
    let tree = TreeState { name: name.to_owned(), role, space, root, chunks, since, database, gate };
    if is_new {
        begin_now(engine, &tree);
    }
    Arc::new(tree)
}

/// Notes that a tree got its present content now: by its creation, a load, or the build of an index. Callers keep
/// readers of snapshots from it until then. Later snapshots see it.
pub(crate) fn begin_now(engine: &Engine, tree: &TreeState) {
    let now = engine.core.log.positions().next;
    tree.begin_at(now);
    // Every commit up to here is in the table: it came there inside the log's mutex.
    engine.txns.commits.show(now);
}

/// Notes that the chunks of a tree are in this space, if there is one.
pub(crate) fn set_chunks(engine: &Engine, tree: &TreeState, space: Option<SpaceId>) {
    if let Some(space) = space {
        tree.chunks.get_or_init(|| open_state(engine, &tree.name, space, Role::Chunks));
    }
}
