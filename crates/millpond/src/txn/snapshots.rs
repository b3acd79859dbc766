//! Live snapshots: the moments that readers still look at.
//!
//! SNAP-1  A snapshot's CommitTs is read with the list of live snapshots locked, and is in the list from then on. The
//!         horizon is the oldest CommitTs in the list; without one it is `last_visible` as it was before the list was
//!         looked at. So every later snapshot is at or after each horizon that was ever returned.
//! SNAP-2  A snapshot that is too old is marked as ended before it leaves the list. A reader looks at the mark after it
//!         has read and before it returns anything: what it has read after a later horizon is thrown away.
//!
//! A version that was overwritten or deleted at or before the horizon may be removed: no snapshot sees it. Purge,
//! compaction of stamps and the giving back of undo pages go by that. The commit table goes by the [`Cut`], which has
//! all moments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::commit_table::CommitTable;
use super::primitives::AtomicBool;
use crate::base::clock;
use crate::base::ids::Lsn;
use crate::base::sync::{Mutex, Rank};

/// The live snapshots of a database.
pub(crate) struct Snapshots {
    commits: Arc<CommitTable>,
    list: Mutex<List>,
    /// The CommitTs of the oldest live snapshot; `u64::MAX`: there is none. Written with the list locked; a reader that
    /// has not locked it may find an older value.
    oldest: AtomicU64,
    /// Snapshots that are older end, in ns; 0: none ends by itself.
    max_age_ns: AtomicU64,
    pub(crate) walks: Walks,
}

/// What readers of snapshots had to do for rows that were changed since.
#[derive(Default)]
pub(crate) struct Walks {
    /// Number of such rows.
    pub(crate) rows: AtomicU64,
    /// Number of undo records that led back from them.
    pub(crate) steps: AtomicU64,
    /// The most of one row.
    pub(crate) most: AtomicU64,
}

impl Walks {
    /// Notes that `steps` undo records led back to a row's version.
    pub(crate) fn note(&self, steps: u64) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(steps, Ordering::Relaxed);
        if self.most.load(Ordering::Relaxed) < steps {
            self.most.fetch_max(steps, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct List {
    /// By CommitTs, and by a number that tells snapshots of one moment apart.
    live: BTreeMap<(Lsn, u64), Arc<Live>>,
    /// The number of the next snapshot.
    next: u64,
}

impl List {
    fn oldest(&self) -> Option<Lsn> {
        self.live.keys().next().map(|(at, _)| *at)
    }
}

/// The moments at which readers look: those of all live snapshots, and all from `visible` on. It stays right when it
/// gets old: then it only keeps more.
pub(crate) struct Cut {
    /// `last_visible` as it was before the list was looked at: every later snapshot is at or after it.
    visible: Lsn,
    /// Ascending.
    live: Vec<Lsn>,
}

impl Cut {
    /// Whether no reader looks at a moment from `from` on and before `to`. Then what was current only in between may
    /// go.
    pub(crate) fn has_none_within(&self, (from, to): (Lsn, Lsn)) -> bool {
        if planted!("cut_looks_at_the_oldest_only") {
            return to <= self.visible && self.live.first().is_none_or(|oldest| *oldest < from || *oldest >= to);
        }
        let next = self.live.partition_point(|at| *at < from);
        to <= self.visible && self.live.get(next).is_none_or(|at| *at >= to)
    }
}

/// A live snapshot, or one that was too old.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) at: Lsn,
    number: u64,
    pub(crate) began_ns: u64,
    is_ended: AtomicBool,
}

impl Live {
    /// Whether the snapshot was too old (SNAP-2).
    pub(crate) fn is_ended(&self) -> bool {
        !planted!("ended_snapshot_read_on") && self.is_ended.load(Ordering::Acquire)
    }
}

impl Snapshots {
    pub(crate) fn new(commits: Arc<CommitTable>) -> Snapshots {
        let list = Mutex::new(Rank::Snapshots, List::default());
        let oldest = AtomicU64::new(u64::MAX);
        Snapshots { commits, list, oldest, max_age_ns: AtomicU64::new(0), walks: Walks::default() }
    }

    /// Takes a snapshot of all that is visible. Callers [release](Self::release) it.
    pub(crate) fn take(&self) -> Arc<Live> {
        let mut list = self.list.lock();
        let (at, number) = (self.commits.last_visible(), list.next);
        list.next += 1;
        let live = Arc::new(Live { at, number, began_ns: clock::now_ns(), is_ended: AtomicBool::new(false) });
        list.live.insert((at, number), Arc::clone(&live));
        self.note_oldest(&list);
        live
    }

    /// Gives up a snapshot.
    pub(crate) fn release(&self, live: &Live) {
        let mut list = self.list.lock();
        list.live.remove(&(live.at, live.number));
        self.note_oldest(&list);
    }

    fn note_oldest(&self, list: &List) {
        // Relaxed: a reader acts on it only where an older value does no harm.
        self.oldest.store(list.oldest().map_or(u64::MAX, |oldest| oldest.0), Ordering::Relaxed);
    }

    /// Sets the age at which snapshots end; `None`: none ends by itself. They end with the next
    /// [`end_old`](Self::end_old).
    pub(crate) fn set_max_age(&self, age: Option<Duration>) {
        let ns = age.map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        self.max_age_ns.store(ns, Ordering::Relaxed);
    }

    /// The age at which snapshots end.
    pub(crate) fn max_age(&self) -> Option<Duration> {
        Some(self.max_age_ns.load(Ordering::Relaxed)).filter(|ns| *ns > 0).map(Duration::from_nanos)
    }

    /// The keeper's tick: ends snapshots that are too old, and keeps the commit table small.
    pub(super) fn tick(&self) {
        self.end_old();
        let cut = self.cut();
        self.commits.put_together(|range| cut.has_none_within(range));
    }

    /// Ends the snapshots that are too old (SNAP-2).
    pub(crate) fn end_old(&self) {
        let Some(max_age) = self.max_age() else { return };
        let now_ns = clock::now_ns();
        let mut list = self.list.lock();
        list.live.retain(|_, live| {
            let is_old = Duration::from_nanos(now_ns.saturating_sub(live.began_ns)) > max_age;
            if is_old {
                live.is_ended.store(true, Ordering::Release);
            }
            !is_old
        });
        self.note_oldest(&list);
    }

    /// The horizon (SNAP-1).
    pub(crate) fn horizon(&self) -> Lsn {
        // Before the list: a snapshot that is not in it yet is at or after this.
        let mut visible = self.commits.last_visible();
        let list = self.list.lock();
        let oldest = list.oldest().filter(|_| !planted!("live_snapshot_passed"));
        drop(list);
        if planted!("horizon_behind_the_list") {
            visible = self.commits.last_visible();
        }
        oldest.map_or(visible, |oldest| visible.min(oldest))
    }

    /// The CommitTs of the oldest live snapshot, or of one that was live a moment ago; `None`: there is none. One load.
    #[inline]
    pub(crate) fn oldest_hint(&self) -> Option<Lsn> {
        Some(self.oldest.load(Ordering::Relaxed)).filter(|oldest| *oldest != u64::MAX).map(Lsn)
    }

    /// Whether there is a live snapshot of this moment.
    pub(crate) fn is_live(&self, at: Lsn) -> bool {
        self.list.lock().live.range((at, 0)..).next().is_some_and(|((next, _), _)| *next == at)
    }

    /// The latest live snapshot at or after `from` and before `to`, or a moment at which one may still be taken there.
    /// `None`: no reader looks at a moment in between, nor will one. What was current only in between may go.
    pub(crate) fn latest_within(&self, (from, to): (Lsn, Lsn)) -> Option<Lsn> {
        // Before the list: a snapshot that is not in it yet is at or after this.
        let visible = self.commits.last_visible();
        if to > visible {
            return Some(visible);
        }
        if from >= to {
            return None;
        }
        let list = self.list.lock();
        if planted!("cut_looks_at_the_oldest_only") {
            return list.oldest().filter(|oldest| *oldest >= from && *oldest < to);
        }
        list.live.range((from, 0)..(to, 0)).next_back().map(|((at, _), _)| *at)
    }

    /// The moments of all live snapshots.
    pub(crate) fn cut(&self) -> Cut {
        let visible = self.commits.last_visible();
        let mut live: Vec<Lsn> = self.list.lock().live.keys().map(|(at, _)| *at).collect();
        live.dedup();
        Cut { visible, live }
    }

    /// The number of live snapshots, and how long the oldest has lived, in ns; 0: there is none.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let list = self.list.lock();
        let began_ns = list.live.values().map(|live| live.began_ns).min();
        (list.live.len() as u64, began_ns.map_or(0, |began_ns| clock::now_ns().saturating_sub(began_ns)))
    }
}
