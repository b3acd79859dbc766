//! Purge: the background thread that removes what was deleted, once no transaction may ask for it any more.
//!
//! It goes through undo records that have delete marks, page by page, and removes the rows leaf by leaf. A row that is
//! gone already, or was written again since, is left alone. What a crash cut short is found again at the next open: all
//! undo pages are gone through.
//!
//! Leaves that are not in memory are read together, as those of a batch are; before the next are asked for, it gives up
//! its place among those who miss pages.
//!
//! It waits as an operation does, for pages, frames and the log; nobody waits for it but those who drop trees
//! ([`Engine::all_spaces`]), for one leaf's rows, and who close the database. It also [rolls back](super::rollback).
//!
//! PURGE-1  While as many undo pages wait as may, batches that leave delete marks go through the records of some of
//!          them themselves, of more rows than they leave: so what waits becomes less, however many write. Before that,
//!          from half as many on, they do it in proportion ([`purge_debt`](crate::pace::purge_debt)), so that it does
//!          not come so far. A batch does so when it has ended, with no latch, frame, row or leave to miss pages in its
//!          hand, and waits as any operation does. What nobody may purge just now is excepted: what a batch in flight
//!          holds back, and everything while too many pages wait to be merged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::{Engine, MergeWish};
use super::rollback::roll_back;
use super::tree::TreeState;
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::row::Row;
use crate::base::sync::{self, JoinHandle};
use crate::base::waits::enter_background;
use crate::btree::descent::{Manner, Restarts, Root, Stop, leaf_write, pages_ahead};
use crate::btree::merge::is_underfull;
use crate::mtr::{Mtr, RECORD_HEADER};
use crate::pace::purge_debt::takes_another;
use crate::pool::frame::PageWrite;
use crate::redo::credits::LogCredit;
use crate::redo::log::{set_appended, take_appended};
use crate::txn::purge_queue::Rest;
use crate::txn::record::UndoRecord;
use crate::txn::slots::{Slot, Work};

/// Rows that are removed by one mini-transaction, at most.
const ROWS_TOGETHER: usize = 32;

/// Bytes that the removal of a row adds to its key.
const OP_HEADER: usize = 3;

/// Starts the thread.
pub(super) fn start(engine: &Arc<Engine>) -> Result<JoinHandle<()>, Error> {
    let engine = Arc::clone(engine);
    let purge = move || {
        enter_background();
        if catch_unwind(AssertUnwindSafe(|| run(&engine))).is_err() {
            // As with the keeper: nobody goes on as if nothing had happened.
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
                    // It is tried again, but nobody waits for what may never come.
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

/// Ends a batch, and does its part of the purge (PURGE-1), as far as that can go on just now: what is held back, purge
/// tries again.
///
/// Callers hold gates, for which the close of a database waits, and perhaps turns that come before that of spaces, and
/// nothing else. May wait on `page_read`, `free_frame`, `log_space` and `metadata`.
pub(super) fn end_and_purge(engine: &Engine, slot: Slot<'_>) {
    let owed = slot.end(engine.purge_pages_max());
    if owed == 0 {
        return;
    }
    // PACE-1: what is logged for purge is nobody's.
    let own = take_appended();
    // What nobody can do just now is forgotten: it would come upon somebody together, later.
    let (mut done, mut due) = (0, 0);
    while done < owed
        && let Some((id, from)) = engine.txns.take_queued(&engine.core.store)
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
    if due != done {
        engine.txns.has_purged(due, done);
    }
    set_appended(own);
}

/// How far somebody came who went through an undo page.
#[derive(Clone, Copy)]
struct Purged {
    /// The number of the next record.
    to: usize,
    /// Rows that were looked at: records without delete marks are no work.
    rows: usize,
    rest: Rest,
}

/// Purges what an undo page says, from record `from` on, about `most` rows with delete marks, and those of one record
/// at least; the page was taken from the queue.
fn go_through(engine: &Engine, id: PageId, from: usize, most: usize) -> Purged {
    let held_back = Purged { to: from, rows: 0, rest: Rest::HeldBack(TxnId::END) };
    let purged = match purge_page(engine, id, from, most) {
        Ok(purged) => purged,
        // An undo page that is damaged stays as it is, and so does all when the log has stopped.
        Err(Error::Corruption(_)) => return held_back,
        Err(_) if engine.core.log.health().is_err() => return held_back,
        // Once more, later.
        Err(_) => held_back,
    };
    engine.txns.purged(id, purged.to, purged.rest);
    // A page is unneeded, perhaps, and leaves are to be merged.
    if purged.rest == Rest::Nothing || purged.to > from {
        engine.bell.ring();
    }
    purged
}

/// The same, but for what becomes of the page.
fn purge_page(engine: &Engine, id: PageId, from: usize, most: usize) -> Result<Purged, Error> {
    let oldest = engine.txns.oldest(&engine.core.store);
    let mut marked: Vec<(SpaceId, Vec<u8>)> = Vec::new();
    let mut purged = Purged { to: from, rows: 0, rest: Rest::HeldBack(oldest) };
    {
        let page = engine.core.pool.load(id)?.read();
        let view = page.view();
        let records = (from..view.len()).map(|index| UndoRecord::decode(view.value(index)));
        // What is no record is for `check` to report.
        for record in records.take_while(|record| record.is_none_or(|record| record.txn < oldest)) {
            if purged.rows >= most {
                // As below, but its rows need not be read for that.
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
        }
    }
    // Leaf by leaf.
    marked.sort_unstable();
    marked.dedup();
    for marked in marked.chunk_by(|one, next| one.0 == next.0) {
        match purge_rows(engine, marked, oldest) {
            // A damaged tree keeps its delete marks; others do not.
            Err(Error::Corruption(_)) | Ok(true) => {}
            Ok(false) => return Ok(Purged { to: from, rows: 0, rest: Rest::HeldBack(TxnId::END) }),
            Err(error) => return Err(error),
        }
    }
    Ok(purged)
}

/// Removes the rows of `marked`, of one space and in the order of their keys, that have delete marks from before
/// `oldest`. False: not all of them, for the keeper does not come after with merging what has become too empty.
fn purge_rows(engine: &Engine, mut marked: &[(SpaceId, Vec<u8>)], oldest: TxnId) -> Result<bool, Error> {
    let core = &engine.core;
    let Some(&(space, _)) = marked.first() else { return Ok(true) };
    let tree: Option<Arc<TreeState>> = engine.open_trees.lock().get(&space).cloned();
    let own_root = Root::new(space);
    let root = tree.as_ref().map_or(&own_root, |tree| &tree.root);
    let mut restarts = Restarts::new(&core.pool);
    let mut came_further = false;
    while let Some((_, first)) = marked.first() {
        // No space goes meanwhile; who wants that waits for one leaf's rows only, and for none of its reads.
        let spaces = engine.keep_spaces(&mut restarts);
        engine.check_open()?;
        if !core.store.has_space(space) {
            return Ok(true);
        }
        if engine.has_many_wishes() {
            return Ok(false);
        }
        let together = &marked[..marked.len().min(ROWS_TOGETHER)];
        let redo_len = RECORD_HEADER + together.iter().map(|(_, key)| OP_HEADER + key.len()).sum::<usize>();
        let credit = restarts.reserve(&core.log, redo_len, 1)?;
        let stop: Stop<'_> = match leaf_write(core, root, first, Manner::First) {
            Err(stop) => stop,
            Ok(page) => {
                let here = together.iter().take_while(|(_, key)| page.view().covers(key)).count();
                let removed = remove_rows(engine, page, &together[..here], oldest, credit)?;
                if let Some(tree) = tree.as_ref().filter(|_| removed == Removed::TooMuch) {
                    let (tree, key) = (Arc::clone(tree), first.clone());
                    engine.wish_merge(MergeWish { tree, key, level: 0, tries: 0 });
                }
                marked = &marked[here..];
                came_further = true;
                continue;
            }
        };
        drop((credit, spaces));
        if std::mem::take(&mut came_further) {
            // What it has kept are leaves of before, and the lane is for those who do not get on.
            restarts = Restarts::new(&core.pool);
        }
        if matches!(stop, Stop::Load(_)) && restarts.is_to_gather() {
            let keys = marked.iter().map(|(_, key)| (root, key.as_slice()));
            restarts.gather(&pages_ahead(core, keys, engine.purge_leaves()).pages);
        }
        restarts.resolve(stop)?;
    }
    Ok(true)
}

/// What is left of a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Removed {
    /// Enough.
    Some,
    /// So little that it is to be merged.
    TooMuch,
}

/// Removes those of the rows that are marked from a leaf that covers them.
fn remove_rows(
    engine: &Engine,
    page: PageWrite<'_>,
    rows: &[(SpaceId, Vec<u8>)],
    oldest: TxnId,
    credit: LogCredit<'_>,
) -> Result<Removed, Error> {
    let (id, before) = (page.id(), Fill::of(&page));
    let mut mtr = Mtr::new(&engine.core.log, [page]);
    let mut removed = 0;
    for (_, key) in rows {
        if has_mark(mtr.page(0), key, oldest) {
            mtr.apply(0, id, &PageOp::Remove { key })?;
            removed += 1;
        }
    }
    if removed == 0 {
        return Ok(Removed::Some);
    }
    let wants_merge = before.wants_merge(mtr.page(0), engine.core.store.page_size());
    mtr.commit(credit)?;
    engine.txns.purged_rows.fetch_add(removed, Ordering::Relaxed);
    Ok(if wants_merge { Removed::TooMuch } else { Removed::Some })
}

/// Whether the row of `key` has a delete mark from before `oldest`.
fn has_mark(page: &PageWrite<'_>, key: &[u8], oldest: TxnId) -> bool {
    if planted!("purge_removes_what_is_there") {
        return page.view().search(key).is_ok();
    }
    let row = page.view().search(key).ok().and_then(|index| Row::decode(page.view().value(index)));
    row.is_some_and(|row| row.is_deleted && row.stamp.is_some_and(|stamp| stamp.txn < oldest))
}

/// How full a leaf was.
struct Fill {
    free_bytes: usize,
    entries: usize,
}

impl Fill {
    fn of(page: &PageWrite<'_>) -> Fill {
        Fill { free_bytes: page.view().free_bytes(), entries: page.view().len() }
    }

    /// Whether a leaf from which something was removed is to be merged: when it has become too empty just now, and each
    /// time that its entries have come below another power of two.
    fn wants_merge(&self, leaf: &PageWrite<'_>, page_size: usize) -> bool {
        let view = leaf.view();
        let is_root = leaf.id() == PageId::root(leaf.id().space());
        let halved = view.len().checked_ilog2() < self.entries.checked_ilog2();
        !is_root && (self.free_bytes <= page_size / 4 * 3 || halved) && is_underfull(view, page_size)
    }
}
