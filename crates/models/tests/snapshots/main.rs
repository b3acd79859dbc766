//! The list of live snapshots and the commit table, `txn/snapshots.rs` and `txn/commit_table.rs` themselves, under
//! loom, with the pruner as a thread of its own.
//!
//! A version that was current in [a, b) goes when a pruner has seen a horizon of b or later. A snapshot at `at` needs
//! the version with a <= at < b. So it loses none if, while it lives, no pruner has seen a horizon after `at` (SNAP-1).
//!
//! | shown | by |
//! |---|---|
//! | no horizon passes a live snapshot, also one that is taken while the pruner looks | [`Pruned`] |
//! | a snapshot sees every commit that was visible before it was taken | the reader's own commit |
//! | a snapshot that was too old returns nothing that it read after a later horizon | the reader's last look |
//! | chunks that are put together say of each snapshot what their values said | [`judge`] |
//! | the horizon comes to the last commit once no snapshot lives | the end of each model |
//!
//! Bugs that were planted, and found (`make planted`): `live_snapshot_passed`, `horizon_behind_the_list`,
//! `ended_snapshot_read_on`, `cut_looks_at_the_oldest_only`.

#[path = "../../../millpond/src/planted.rs"]
#[macro_use]
mod planted;

mod base;
mod txn;

use std::sync::Arc;

use base::ids::{Lsn, TxnId};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use txn::commit_table::CommitTable;
use txn::snapshots::Snapshots;
use txn::{IDS, commit};

/// The highest horizon that a pruner has seen: it has removed versions up to there.
struct Pruned(AtomicU64);

struct Model {
    commits: Arc<CommitTable>,
    snapshots: Snapshots,
    pruned: Pruned,
}

impl Model {
    fn new() -> Arc<Model> {
        let commits = Arc::new(txn::table(Lsn(1)));
        let snapshots = Snapshots::new(Arc::clone(&commits));
        Arc::new(Model { commits, snapshots, pruned: Pruned(AtomicU64::new(0)) })
    }

    fn prune(&self) {
        self.pruned.0.fetch_max(self.snapshots.horizon().0, Ordering::SeqCst);
    }

    /// Reads twice at a snapshot. What is read at one that has ended is thrown away (SNAP-2).
    fn read(&self) {
        let live = self.snapshots.take();
        for _ in 0..2 {
            let (pruned, at) = (self.pruned.0.load(Ordering::SeqCst), live.at);
            assert!(
                pruned <= at.0 || live.is_ended(),
                "versions up to {pruned} are gone, and a snapshot at {at} lives"
            );
        }
        self.snapshots.release(&live);
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
        let live = model.snapshots.take();
        assert!(live.at >= Lsn(2), "{}", live.at);
        model.snapshots.release(&live);
        other.join().unwrap();
    });
}

/// A snapshot that is too old holds the horizon back no longer, and its reader notices.
#[test]
fn snapshot_that_is_too_old_is_told_before_the_horizon_passes() {
    explore(|| {
        let model = Model::new();
        model.snapshots.set_max_age(Some(std::time::Duration::from_nanos(1)));
        let pruner = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.commits.show(Lsn(2));
                model.snapshots.end_old();
                model.prune();
            })
        };
        model.read();
        pruner.join().unwrap();
        assert_eq!(model.snapshots.figures().0, 0);
    });
}

/// Takes a snapshot, and judges two transactions of one chunk twice. Their CommitTs are 12 and 13.
fn judge(model: &Model) {
    let live = model.snapshots.take();
    for _ in 0..2 {
        for (txn, commit) in IDS.into_iter().zip([12, 13]) {
            let (at, is_visible) = (live.at, model.commits.is_visible_at(txn, live.at));
            assert_eq!(is_visible, commit <= at.0, "the commit at {commit} and a snapshot at {at}");
        }
        // The others go on.
        model.pruned.0.load(Ordering::SeqCst);
    }
    model.snapshots.release(&live);
}

/// The pruner puts the chunk together as soon as its cut allows it, and lets it go when the horizon has passed it.
#[test]
fn chunk_is_put_together_only_between_snapshots() {
    explore(|| {
        let model = Model::new();
        let writer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                commit(&model.commits, IDS[0], Lsn(12));
                model.pruned.0.load(Ordering::SeqCst);
                commit(&model.commits, IDS[1], Lsn(13));
            })
        };
        let pruner = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                for _ in 0..2 {
                    let cut = model.snapshots.cut();
                    model.pruned.0.load(Ordering::SeqCst);
                    model.commits.put_together(|range| cut.has_none_within(range));
                    let horizon = model.snapshots.horizon();
                    model.pruned.0.load(Ordering::SeqCst);
                    model.commits.floor(horizon);
                }
            })
        };
        // An older snapshot, so that there is one even before the writer begins.
        let old = model.snapshots.take();
        judge(&model);
        writer.join().unwrap();
        pruner.join().unwrap();
        for txn in [IDS[0], IDS[1]] {
            assert!(model.commits.has_ended(txn));
            assert!(old.at >= Lsn(13) || !model.commits.is_visible_at(IDS[1], old.at));
        }
        model.snapshots.release(&old);
        assert_eq!(model.commits.floor(model.snapshots.horizon()), TxnId(4096));
    });
}
