//! The store's counters.

use std::sync::atomic::AtomicU64;

use crate::base::pending::Pending;

/// Counters of the store.
#[derive(Default)]
pub(crate) struct StoreCounters {
    pub(crate) page_reads: AtomicU64,
    pub(crate) pending_reads: Pending,
    pub(crate) page_writes: AtomicU64,
    pub(crate) undo_page_writes: AtomicU64,
    pub(crate) write_calls: AtomicU64,
    pub(crate) write_failures: AtomicU64,
    pub(crate) data_syncs: AtomicU64,
    pub(crate) pending_syncs: Pending,
    pub(crate) map_records: AtomicU64,
    pub(crate) map_groups: AtomicU64,
    pub(crate) map_page_writes: AtomicU64,
    pub(crate) pages_freed: AtomicU64,
    pub(crate) zones_emptied: AtomicU64,
    pub(crate) pages_moved: AtomicU64,
    pub(crate) cuts: AtomicU64,
    pub(crate) zones_cut: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}
