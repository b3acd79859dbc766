//! Purge: the background thread that removes deleted rows, once no reader may ask for them.
//!
//! Purge goes through undo records with delete marks, page by page, and removes the rows leaf by leaf. A row that is
//! already removed, or was written again, stays as it is. After a crash the next open queues all undo pages: so purge
//! finds again the rows that the crash left.
//!
//! Leaves that are not in memory are read together, as for a batch. Before purge asks for the next ones, it gives up
//! its admission to miss pages.
//!
//! Purge waits as an operation does, for pages, frames and the log. Only two kinds of threads wait for purge: threads
//! that drop trees ([`Engine::all_spaces`]), for one leaf's rows; and the thread that closes the database. The purge
//! thread also [rolls back](crate::undo::rollback).
//!
//! PURGE-1  While the number of waiting undo pages is at its limit, batches that leave delete marks purge, too. Each
//!          purges more rows than it leaves, so the backlog shrinks under any number of writers. From half the limit
//!          on, batches purge in proportion ([`purge_debt`](crate::pace::purge_debt)), so that the backlog seldom comes
//!          to the limit. A batch purges after it has ended, without a latch, frame, row lock or admission to miss
//!          pages, and waits as any operation does. Exempt is work that no thread may do now: records that a batch in
//!          flight holds back, and all of it while too many pages wait to be merged.
//!
//! PURGE-2  A deleted row goes when each live snapshot sees its deletion. Beside older snapshots it goes, too, when
//!          none of them sees a version of the row (CHAIN-1), as far as a few reads of undo pages show that. Otherwise
//!          its undo page waits until the latest snapshot that keeps a row of the page is gone, and is then gone
//!          through once more. It is no debt of writers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::row::Row;
use crate::base::sync::{self, JoinHandle};
use crate::base::waits::enter_background;
use crate::btree::descent::{LatchOrder, Restarts, Root, Stop, leaf_write};
use crate::btree::merge::is_underfull;
use crate::engine::tree_state::TreeState;
use crate::engine::{Engine, MergeWish};
use crate::mtr::{Mtr, RECORD_HEADER};
use crate::pace::purge_debt::takes_another;
use crate::pool::pin::PageWrite;
use crate::redo::append::{set_appended, take_appended};
use crate::redo::credits::LogCredit;
use crate::txn::purge_queue::Rest;
use crate::txn::record::UndoRecord;
use crate::txn::slot::{Owed, Slot};
use crate::txn::versions::{NoVersions, PURGE_LOOKS_AT, Seen, Versions};
use crate::txn::work::Work;
use crate::undo::rollback::roll_back;

/// Most rows that one mini-transaction removes.
const ROWS_TOGETHER: usize = 32;

/// Bytes of redo that the removal of a row adds to its key.
const OP_HEADER: usize = 3;

/// Starts the purge thread.
pub(crate) fn start(engine: &Arc<Engine>) -> Result<JoinHandle<()>, Error> {
    let engine = Arc::clone(engine);
    let purge = move || {
        enter_background();
        if catch_unwind(AssertUnwindSafe(|| run(&engine))).is_err() {
            // As with the keeper: the log stops, so that no thread goes on as if nothing had happened.
            let error = Error::Bug("purge panicked: reopen the database".into());
            engine.core.log.stop(&error);
            engine.txns.locks.stop(&error.to_string());
            engine.bell.ring();
        }
    };
    sync::spawn("mp-purge", purge).map_err(|e| Error::thread("mp-purge", e))
}

/// The thread's body: works until it is asked to stop.
fn run(engine: &Engine) {
    while let Some(work) = engine.txns.next_work() {
        match work {
            Work::RollBack(loser) => match roll_back(engine, &loser) {
                Ok(()) => engine.txns.undone(loser),
                Err(error) => {
                    // The rollback is retried. Waiters for its rows get an error meanwhile, as it may never succeed.
                    if !matches!(error, Error::Closed(_)) {
                        engine.txns.locks.fail(loser.txn, &error.to_string());
                    }
                    engine.txns.put_off_loser(loser);
                }
            },
            // A page that cannot be read stays where it is: `check` reports it.
            Work::Read(id) => {
                let is_read = engine.core.pool.load(id).is_ok();
                match id.space() {
                    SpaceId::UNDO if is_read => engine.txns.read(id),
                    SpaceId::UNDO => {}
                    _ => engine.unpark_merges(id),
                }
                engine.bell.ring();
            }
            Work::Purge(id, from) => {
                go_through(engine, id, from, usize::MAX);
            }
        }
    }
}

/// Ends a batch, and does its part of purge (PURGE-1) as far as that is possible now. Records that are held back are
/// left to the purge thread.
///
/// Callers hold nothing but gates, for which the close of a database waits, and perhaps turns that come before the gate
/// of spaces. May wait on `page_read`, `free_frame`, `log_space` and `metadata`.
pub(crate) fn end_and_purge(engine: &Engine, slot: Slot<'_>) {
    let Owed { debt, of_batch } = slot.end(engine.purge_pages_max());
    let owed = debt.max(of_batch);
    if owed == 0 {
        return;
    }
    // PACE-1: no thread pays for the bytes that purge logs.
    let own = take_appended();
    // A debt that cannot be worked off now is forgotten: otherwise one later writer would owe all of it at once.
    let (mut done, mut due) = (0, 0);
    while done < owed
        && let Some((id, from)) = engine.txns.take_queued()
    {
        let purged = go_through(engine, id, from, owed - done);
        done += purged.rows;
        if matches!(purged.rest, Rest::HeldBack(_)) {
            break;
        }
        if !takes_another(done, owed, purged.rows) {
            due = owed;
            break;
        }
    }
    let due = due.max(done.min(owed));
    if due != done && of_batch <= debt {
        engine.txns.has_purged(due, done);
    }
    set_appended(own);
}

/// The result of a pass through an undo page.
#[derive(Clone, Copy)]
struct Purged {
    /// Number of the next record to go through.
    to: usize,
    /// Number of rows that were looked at. Records without delete marks do not count.
    rows: usize,
    rest: Rest,
    /// The latest snapshot that kept one of the rows.
    pinned_by: Option<Lsn>,
}

/// Goes through an undo page taken from the queue, from record `from` on, and puts it back. Purges about `most` rows
/// with delete marks, but at least those of one record.
fn go_through(engine: &Engine, id: PageId, from: usize, most: usize) -> Purged {
    let held_back = Purged { to: from, rows: 0, rest: Rest::HeldBack(TxnId::END), pinned_by: None };
    let purged = match purge_page(engine, id, from, most) {
        Ok(purged) => purged,
        // A damaged undo page is not put back, nor is any page once the log has stopped.
        Err(Error::Corruption(_)) => return held_back,
        Err(_) if engine.core.log.health().is_err() => return held_back,
        // Any other error: the page is tried again later.
        Err(_) => held_back,
    };
    engine.txns.purged(id, purged.to, purged.rest, purged.pinned_by);
    // The keeper may now give the undo page back, or merge leaves.
    if purged.rest == Rest::Nothing || purged.to > from {
        engine.bell.ring();
    }
    purged
}

/// Does the work of [`go_through`], without putting the page back.
fn purge_page(engine: &Engine, id: PageId, from: usize, most: usize) -> Result<Purged, Error> {
    let mut marked: Vec<(SpaceId, Vec<u8>)> = Vec::new();
    let mut purged = Purged { to: from, rows: 0, rest: Rest::HeldBack(TxnId::END), pinned_by: None };
    {
        let page = engine.core.pool.load(id)?.read();
        let view = page.view();
        let record_at = |index| UndoRecord::decode(view.value(index));
        let records = (from..view.len()).map(record_at);
        // An entry that is no record is skipped; `check` reports it.
        let has_ended = |record: UndoRecord<'_>| engine.txns.commits.has_ended(record.txn);
        for record in records.take_while(|record| record.is_none_or(has_ended)) {
            if purged.rows >= most {
                // As below, without a look at the record's rows.
                purged.rest = Rest::Unread;
                break;
            }
            let before = marked.len();
            let changes = record.into_iter().flat_map(UndoRecord::changes).flatten();
            let deleted = changes.filter(|change| change.needs_purge);
            marked.extend(deleted.map(|change| (change.space, change.key().to_vec())));
            let rows = marked.len() - before;
            if !takes_another(purged.rows, most, rows) {
                marked.truncate(before);
                purged.rest = Rest::Unread;
                break;
            }
            purged.rows += rows;
            purged.to += 1;
        }
        if purged.to == view.len() {
            purged.rest = Rest::Nothing;
        } else if let (Rest::HeldBack(_), Some(record)) = (purged.rest, record_at(purged.to)) {
            purged.rest = Rest::HeldBack(record.txn);
        }
    }
    // Leaf by leaf.
    marked.sort_unstable();
    marked.dedup();
    for marked in marked.chunk_by(|one, next| one.0 == next.0) {
        match purge_rows(engine, marked) {
            // A damaged tree keeps its delete marks; purge of other trees goes on.
            Err(Error::Corruption(_)) => {}
            Ok(Looked::AtAll(pinned_by)) => purged.pinned_by = purged.pinned_by.max(pinned_by),
            Ok(Looked::NotNow) => {
                return Ok(Purged { to: from, rows: 0, rest: Rest::HeldBack(TxnId::END), pinned_by: None });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(purged)
}

/// The end of a look at rows.
enum Looked {
    /// All were looked at. This is the latest snapshot that kept one of them.
    AtAll(Option<Lsn>),
    /// Too many pages wait for the keeper to merge them.
    NotNow,
}

/// Removes the rows of `marked` that have delete marks and that no reader looks for; `marked` is of one space and
/// sorted by key.
fn purge_rows(engine: &Engine, mut marked: &[(SpaceId, Vec<u8>)]) -> Result<Looked, Error> {
    let core = &engine.core;
    let Some(&(space, _)) = marked.first() else { return Ok(Looked::AtAll(None)) };
    // It stays right when it gets old.
    let horizon = engine.txns.snapshots.horizon();
    let (mut pinned_by, mut loads) = (None, 0);
    let tree: Option<Arc<TreeState>> = engine.open_trees.lock().get(&space).cloned();
    let own_root = Root::new(space);
    let root = tree.as_ref().map_or(&own_root, |tree| &tree.root);
    let mut restarts = Restarts::new(&core.pool);
    let mut came_further = false;
    while let Some((_, first)) = marked.first() {
        // No space is dropped meanwhile. A thread that drops one waits for one leaf's rows only, and for no read.
        let spaces = engine.keep_spaces(&mut restarts);
        engine.check_open()?;
        if !core.store.has_space(space) {
            return Ok(Looked::AtAll(None));
        }
        if engine.has_many_wishes() {
            return Ok(Looked::NotNow);
        }
        let together = &marked[..marked.len().min(ROWS_TOGETHER)];
        let redo_len = RECORD_HEADER + together.iter().map(|(_, key)| OP_HEADER + key.len()).sum::<usize>();
        let credit = restarts.reserve(&core.log, redo_len, 1)?;
        let stop: Stop<'_> = match leaf_write(core, root, first, LatchOrder::First) {
            Err(stop) => stop,
            Ok(page) => {
                let here = together.iter().take_while(|(_, key)| page.view().covers(key)).count();
                let removed = remove_rows(engine, page, &together[..here], horizon, credit)?;
                if let Some(tree) = tree.as_ref().filter(|_| removed.leaves_too_few) {
                    let (tree, key) = (Arc::clone(tree), first.clone());
                    engine.wish_merge(MergeWish { tree, key, level: 0, tries: 0 });
                }
                pinned_by = pinned_by.max(removed.pinned_by);
                marked = &marked[removed.rows..];
                came_further |= removed.rows > 0;
                loads = if removed.rows > 0 { 0 } else { loads };
                if let Some(page) = removed.missing {
                    drop(spaces);
                    restarts.begin_wait();
                    loads += 1;
                    // Pages that are too many, or cannot be read: the horizon decides.
                    if loads > LOADS_A_ROW || core.pool.load(page).is_err() {
                        (marked, loads) = (&marked[1..], 0);
                        pinned_by = pinned_by.max(Some(horizon));
                    }
                }
                continue;
            }
        };
        drop((credit, spaces));
        if std::mem::take(&mut came_further) {
            // Its kept pages are of earlier leaves, and the lane is for operations without progress: it starts afresh.
            restarts = Restarts::new(&core.pool);
        }
        if matches!(stop, Stop::Load(_)) && restarts.is_to_read_ahead() {
            restarts.read_ahead(core, marked.iter().map(|(_, key)| (root, key.as_slice())));
        }
        restarts.resolve(stop)?;
    }
    Ok(Looked::AtAll(pinned_by))
}

/// Reads of undo pages for the versions of one row. If it has more, purge leaves the row until the oldest snapshot is
/// gone.
const LOADS_A_ROW: usize = 3;

/// The result of a look at rows of one leaf.
struct Removed {
    /// Number of rows that were looked at.
    rows: usize,
    /// So few rows are left that the leaf is to be merged.
    leaves_too_few: bool,
    /// The latest snapshot that kept one of the rows.
    pinned_by: Option<Lsn>,
    /// An undo page that is to be read before the next row can be looked at.
    missing: Option<PageId>,
}

/// Removes the rows with delete marks that no reader looks for from a leaf that covers all of `rows`. Each snapshot is
/// at or after `horizon`.
fn remove_rows(
    engine: &Engine,
    page: PageWrite<'_>,
    rows: &[(SpaceId, Vec<u8>)],
    horizon: Lsn,
    credit: LogCredit<'_>,
) -> Result<Removed, Error> {
    let (id, before) = (page.id(), Fill::of(&page));
    let mut mtr = Mtr::new(&engine.core.log, [page]);
    let mut result = Removed { rows: 0, leaves_too_few: false, pinned_by: None, missing: None };
    let mut removed = 0;
    let mut cut_out: Vec<Seen> = Vec::new();
    for (space, key) in rows {
        match marked_row(engine, mtr.page(0), *space, key, horizon) {
            Marked::NoMore => {}
            Marked::Unneeded(records) => {
                mtr.apply(0, id, &PageOp::Remove { key })?;
                removed += 1;
                cut_out.extend(records);
            }
            Marked::Pinned(by) => result.pinned_by = result.pinned_by.max(Some(by)),
            Marked::Behind(page) => {
                result.missing = Some(page);
                break;
            }
        }
        result.rows += 1;
    }
    if removed == 0 {
        return Ok(result);
    }
    result.leaves_too_few = before.wants_merge(mtr.page(0), engine.core.store.page_size());
    mtr.commit(credit)?;
    engine.txns.cut_out(&cut_out);
    engine.txns.purged_rows.fetch_add(removed, Ordering::Relaxed);
    Ok(result)
}

/// What became of a row that once had a delete mark.
enum Marked {
    /// It has none, or one of a later transaction, whose own record leads purge here.
    NoMore,
    /// No reader looks for it. These are the records of its versions, if readers might still follow them.
    Unneeded(SmallVec<[Seen; 3]>),
    /// This snapshot sees a version of it.
    Pinned(Lsn),
    /// Whether it is needed depends on versions with a record in this page.
    Behind(PageId),
}

/// Looks at the row of `key`. Each snapshot is at or after `horizon`.
fn marked_row(engine: &Engine, page: &PageWrite<'_>, space: SpaceId, key: &[u8], horizon: Lsn) -> Marked {
    let Ok(index) = page.view().search(key) else { return Marked::NoMore };
    if planted!("purge_removes_what_is_there") {
        return Marked::Unneeded(SmallVec::new());
    }
    let value = page.view().value(index);
    let is_deleted = Row::decode(value).is_some_and(|row| row.is_deleted);
    if !is_deleted {
        return Marked::NoMore;
    }
    let txns = &engine.txns;
    match Versions::of(&engine.core, txns, (space, key), value, horizon, PURGE_LOOKS_AT) {
        Err(NoVersions::SeenByAll) => Marked::Unneeded(SmallVec::new()),
        Err(NoVersions::InFlight) => Marked::NoMore,
        Ok(versions) => match versions.pinned_by(txns) {
            Ok(None) => Marked::Unneeded(versions.records().into()),
            Ok(Some(by)) => Marked::Pinned(by),
            Err(page) => Marked::Behind(page),
        },
    }
}

/// How full a leaf was before removals.
struct Fill {
    free_bytes: usize,
    entries: usize,
}

impl Fill {
    fn of(page: &PageWrite<'_>) -> Fill {
        Fill { free_bytes: page.view().free_bytes(), entries: page.view().len() }
    }

    /// Whether a leaf from which rows were removed is to be merged. A wish is due when the leaf has just become too
    /// empty, and each time that its number of entries falls below another power of two.
    fn wants_merge(&self, leaf: &PageWrite<'_>, page_size: usize) -> bool {
        let view = leaf.view();
        let is_root = leaf.id() == PageId::root(leaf.id().space());
        let halved = view.len().checked_ilog2() < self.entries.checked_ilog2();
        !is_root && (self.free_bytes <= page_size / 4 * 3 || halved) && is_underfull(view, page_size)
    }
}
