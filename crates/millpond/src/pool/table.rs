//! The page table: maps a page to the frame that it is in, or is being read into.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::base::error::Error;
use crate::base::handoff::Handoff;
use crate::base::ids::{FrameId, PageId};
use crate::base::sync::{Mutex, MutexGuard, Rank};

/// Shards of the table, each with its own mutex.
const SHARDS: usize = 64;

/// A thread that waits for another's read, and is told how it ended.
pub(super) type ReadWaiter = Arc<Handoff<Result<(), Arc<Error>>>>;

pub(super) enum Entry {
    Resident(FrameId),
    /// A read is under way, by the thread that missed first, into this frame, which is in its hand. The others wait.
    Reading(FrameId, Vec<ReadWaiter>),
}

pub(super) type Shard = HashMap<PageId, Entry, FixedState>;

/// The page table.
pub(super) struct Table {
    shards: Box<[Mutex<Shard>]>,
    // A fixed seed: a map's order decides nothing, but equal runs must stay equal.
    hasher: FixedState,
}

impl Table {
    pub(super) fn new() -> Table {
        let shard = |_| Mutex::new(Rank::PageTable, HashMap::with_hasher(FixedState::default()));
        Table { shards: (0..SHARDS).map(shard).collect(), hasher: FixedState::default() }
    }

    /// The shard that `id` belongs to, locked.
    pub(super) fn shard(&self, id: PageId) -> MutexGuard<'_, Shard> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(id.0);
        // The upper bits choose the shard: the shard's map uses the lower ones.
        let index = usize::try_from(hasher.finish() >> 58).expect("POOL: 6 bits are left");
        self.shards[index].lock()
    }
}

const _: () = assert!(SHARDS == 1 << 6);
