//! The engine's memory budget: the most memory that its parts hold with the present settings and data.

use std::sync::atomic::Ordering;

use crate::background::keeper::ZONES_TOGETHER;
use crate::base::aligned::to_u64;
use crate::engine::Engine;
use crate::load::loading;
use crate::options::unsynced_max;
use crate::recovery;
use crate::store::lot::LOADED_MAX;
use crate::store::zones::ZONE_BYTES;

impl Engine {
    /// The sum of the parts' budgets, in bytes.
    pub(crate) fn memory_budget(&self) -> u64 {
        let core = &self.core;
        let writer = self.writers.memory_budget(core.store.page_size()) + to_u64(ZONES_TOGETHER * ZONE_BYTES);
        let loads = to_u64(self.loads.lock().len() * loading::memory(core.store.page_size()));
        // A database that was redone for reading only keeps the pages that the keeper cleans in memory.
        let redone = self.read_only.load(Ordering::Relaxed) && self.opening.redo_pages > 0;
        let in_memory = if redone { to_u64(core.pool.len() * core.store.page_size()) } else { 0 };
        core.pool.memory_budget()
            + core.log.memory_budget()
            + core.store.memory_budget(unsynced_max(self.frames_max) + to_u64(LOADED_MAX))
            + self.waits.memory_budget()
            + recovery::memory_budget(core.pool.len(), core.store.page_size())
            + writer
            + loads
            + in_memory
    }
}
