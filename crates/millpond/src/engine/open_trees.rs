//! The shared states of open trees.
//!
//! [`open_state`] finds a tree's [`TreeState`] in [`Engine::open_trees`] by the tree's space, or makes it there: all
//! handles of a tree get the same one. A drop of the tree removes it from there.

use std::collections::btree_map;
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
    Arc::new(TreeState { name: name.to_owned(), role, space, root, chunks, database, gate })
}

/// Notes that the chunks of a tree are in this space, if there is one.
pub(crate) fn set_chunks(engine: &Engine, tree: &TreeState, space: Option<SpaceId>) {
    if let Some(space) = space {
        tree.chunks.get_or_init(|| open_state(engine, &tree.name, space, Role::Chunks));
    }
}
