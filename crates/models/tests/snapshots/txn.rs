//! The engine's list of live snapshots, with a commit table that has `last_visible` only.

#[path = "../../../millpond/src/txn/snapshots.rs"]
pub(crate) mod snapshots;

pub(crate) mod commit_table {
    use loom::sync::atomic::{AtomicU64, Ordering};

    use crate::base::ids::Lsn;

    pub(crate) struct CommitTable {
        last_visible: AtomicU64,
    }

    impl CommitTable {
        pub(crate) fn new(at: Lsn) -> CommitTable {
            CommitTable { last_visible: AtomicU64::new(at.0) }
        }

        pub(crate) fn show(&self, commit: Lsn) {
            self.last_visible.fetch_max(commit.0, Ordering::AcqRel);
        }

        pub(crate) fn last_visible(&self) -> Lsn {
            Lsn(self.last_visible.load(Ordering::Acquire))
        }
    }
}
