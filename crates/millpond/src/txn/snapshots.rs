//! Live snapshots: the moments that readers still look at.
//!
//! SNAP-1  A snapshot's CommitTs is read with the list of live snapshots locked, and is in the list from then on. The
//!         horizon is the oldest CommitTs in the list; without one it is `last_visible` as it was before the list was
//!         looked at. So every later snapshot is at or after each horizon that was ever returned.
//!
//! What all versions up to the horizon hide from each snapshot may be removed: purge, compaction of stamps and the
//! giving back of undo pages go by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::commit_table::CommitTable;
use crate::base::clock;
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// The live snapshots of a database.
pub(crate) struct Snapshots {
    commits: Arc<CommitTable>,
    /// By CommitTs, ascending.
    live: Mutex<BTreeMap<Lsn, Live>>,
}

/// The snapshots of one CommitTs.
struct Live {
    count: u64,
    /// When the first of them was taken.
    since_ns: u64,
}

impl Snapshots {
    pub(crate) fn new(commits: Arc<CommitTable>) -> Snapshots {
        Snapshots { commits, live: Mutex::new(Rank::Snapshots, BTreeMap::new()) }
    }

    /// Takes a snapshot of all that is visible. Callers [release](Self::release) its CommitTs.
    pub(crate) fn take(&self) -> Lsn {
        let mut live = self.live.lock();
        let at = self.commits.last_visible();
        live.entry(at).or_insert_with(|| Live { count: 0, since_ns: clock::now_ns() }).count += 1;
        at
    }

    /// Gives up a snapshot.
    pub(crate) fn release(&self, at: Lsn) {
        let mut live = self.live.lock();
        if let Some(of_moment) = live.get_mut(&at) {
            of_moment.count -= 1;
            if of_moment.count == 0 {
                live.remove(&at);
            }
        }
    }

    /// The horizon (SNAP-1).
    pub(crate) fn horizon(&self) -> Lsn {
        // Before the list: a snapshot that is not in it yet is at or after this.
        let mut visible = self.commits.last_visible();
        let live = self.live.lock();
        let oldest = live.keys().next().filter(|_| !planted!("live_snapshot_passed")).copied();
        drop(live);
        if planted!("horizon_behind_the_list") {
            visible = self.commits.last_visible();
        }
        oldest.map_or(visible, |oldest| visible.min(oldest))
    }

    /// The number of live snapshots, and how long the oldest has lived, in ns; 0: there is none.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let live = self.live.lock();
        let oldest_ns = live.values().next().map_or(0, |oldest| clock::now_ns().saturating_sub(oldest.since_ns));
        (live.values().map(|of_moment| of_moment.count).sum(), oldest_ns)
    }
}
