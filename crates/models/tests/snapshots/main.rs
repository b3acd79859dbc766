//! The list of live snapshots, `txn/snapshots.rs` itself, under loom, with the pruner as a thread of its own.
//!
//! A version that was current in [a, b) goes when a pruner has seen a horizon of b or later. A snapshot at `at` needs the
//! version with a <= at < b. So it loses none if, while it lives, no pruner has seen a horizon after `at` (SNAP-1).
//!
//! | shown | by |
//! |---|---|
//! | no horizon passes a live snapshot, also one that is taken while the pruner looks | [`Pruned`] |
//! | a snapshot sees every commit that was visible before it was taken | the reader's own commit |
//! | the horizon comes to the last commit once no snapshot lives | the end of each model |
//!
//! Bugs that were planted, and found (`make planted`): `live_snapshot_passed`, `horizon_behind_the_list`.

#[path = "../../../millpond/src/planted.rs"]
#[macro_use]
mod planted;

mod base;
mod txn;

use std::sync::Arc;

use base::ids::Lsn;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use txn::commit_table::CommitTable;
use txn::snapshots::Snapshots;

/// The highest horizon that a pruner has seen: it has removed versions up to there.
struct Pruned(AtomicU64);

struct Model {
    commits: Arc<CommitTable>,
    snapshots: Snapshots,
    pruned: Pruned,
}

impl Model {
    fn new() -> Arc<Model> {
        let commits = Arc::new(CommitTable::new(Lsn(1)));
        let snapshots = Snapshots::new(Arc::clone(&commits));
        Arc::new(Model { commits, snapshots, pruned: Pruned(AtomicU64::new(0)) })
    }

    fn prune(&self) {
        self.pruned.0.fetch_max(self.snapshots.horizon().0, Ordering::SeqCst);
    }

    /// Reads twice at a snapshot.
    fn read(&self) {
        let at = self.snapshots.take();
        for _ in 0..2 {
            let pruned = self.pruned.0.load(Ordering::SeqCst);
            assert!(pruned <= at.0, "versions up to {pruned} are gone, and a snapshot at {at} lives");
        }
        self.snapshots.release(at);
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if std::env::var_os("MILLPOND_FULL").is_some() { 4 } else { 3 });
    builder.check(model);
}

#[test]
fn horizon_passes_no_snapshot_beside_commits() {
    explore(|| {
        let model = Model::new();
        let writer = {
            let model = Arc::clone(&model);
            thread::spawn(move || [2, 3].into_iter().for_each(|commit| model.commits.show(Lsn(commit))))
        };
        let pruner = {
            let model = Arc::clone(&model);
            thread::spawn(move || (0..2).for_each(|_| model.prune()))
        };
        model.read();
        writer.join().unwrap();
        pruner.join().unwrap();
        assert_eq!(model.snapshots.horizon(), Lsn(3), "nothing is left to look back to");
    });
}

/// Two snapshots, of the same moment or of two.
#[test]
fn horizon_waits_for_the_older_of_two_snapshots() {
    explore(|| {
        let model = Model::new();
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.read())
        };
        let pruner = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.commits.show(Lsn(2));
                model.prune();
            })
        };
        model.read();
        other.join().unwrap();
        pruner.join().unwrap();
        assert_eq!((model.snapshots.horizon(), model.snapshots.figures().0), (Lsn(2), 0));
    });
}

/// A session sees its own commit in its next snapshot.
#[test]
fn snapshot_sees_what_was_shown_before_it() {
    explore(|| {
        let model = Model::new();
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.commits.show(Lsn(3));
                model.prune();
            })
        };
        model.commits.show(Lsn(2));
        let at = model.snapshots.take();
        assert!(at >= Lsn(2), "{at}");
        model.snapshots.release(at);
        other.join().unwrap();
    });
}
