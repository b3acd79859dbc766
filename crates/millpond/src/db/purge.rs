//! Purge: the background thread that removes what was deleted, once no transaction may ask for it any more.
//!
//! It goes through undo records that have delete marks. To remove a row it has its whole leaf compacted: what else was
//! deleted there goes with it, and stamps that nobody asks for. A row that is gone already, or was written again since,
//! is left alone. What a crash cut short is found again at the next open: all undo pages are gone through.
//!
//! It waits as an operation does, for pages, frames and the log; nobody waits for it but those who create or drop trees
//! ([`Engine::ddl`]), for one page's records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::engine::{Engine, MergeWish};
use super::tree::TreeState;
use crate::base::aligned::to_u64;
use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::row::Row;
use crate::btree::descent::{Manner, Restarts, Root, Stop, leaf_write};
use crate::btree::merge::is_underfull;
use crate::mtr::{Mtr, RECORD_HEADER};
use crate::pool::frame::PageWrite;
use crate::txn::record::UndoRecord;
use crate::txn::slots::Work;

/// Bytes of redo that a compaction takes at most.
const REDO_LEN: usize = RECORD_HEADER + 16;

/// The thread's body: works until it is asked to stop.
pub(super) fn run(engine: &Engine) {
    while let Some(work) = engine.txns.next_work() {
        match work {
            // A page that cannot be read stays where it is: `check` reports it.
            Work::Read(id) => {
                if engine.core.pool.load(id).is_ok() {
                    engine.txns.read(id);
                    engine.bell.ring();
                }
            }
            Work::Purge(id, from) => {
                // Damage, or a log that has stopped: the delete marks stay.
                if let Ok((purged, to_the_end)) = purge_page(engine, id, from) {
                    engine.txns.purged(id, purged, to_the_end);
                    engine.bell.ring();
                }
            }
        }
    }
}

/// Goes through the records of an undo page, from number `from` on. Returns how far it came, and whether to the end.
fn purge_page(engine: &Engine, id: PageId, from: usize) -> Result<(usize, bool), Error> {
    let records: Vec<Vec<u8>> = {
        let page = engine.core.pool.load(id)?.read();
        let view = page.view();
        (from..view.len()).map(|index| view.value(index).to_vec()).collect()
    };
    let oldest = engine.txns.oldest(&engine.core.store);
    let _ddl = engine.ddl();
    engine.check_open()?;
    for (number, record) in (from..).zip(&records) {
        let Some(record) = UndoRecord::decode(record) else { continue };
        if record.txn >= oldest {
            return Ok((number, false));
        }
        for change in record.changes().flatten().filter(|change| change.needs_purge) {
            purge_row(engine, change.space, change.key(), oldest)?;
        }
    }
    Ok((from + records.len(), true))
}

/// Removes the row of `key`, if it has a delete mark from before `oldest`. The caller lets no tree be dropped.
fn purge_row(engine: &Engine, space: SpaceId, key: &[u8], oldest: TxnId) -> Result<(), Error> {
    let core = &engine.core;
    if !core.store.has_space(space) {
        return Ok(());
    }
    let tree: Option<Arc<TreeState>> = engine.open_trees.lock().values().find(|tree| tree.space == space).cloned();
    let own_root = Root::new(space);
    let root = tree.as_ref().map_or(&own_root, |tree| &tree.root);
    let mut restarts = Restarts::new(&core.pool);
    loop {
        let credit = match core.log.try_reserve(REDO_LEN, 1)? {
            Some(credit) => credit,
            None => {
                restarts.begin_wait();
                core.log.reserve(REDO_LEN, 1)?
            }
        };
        let stop: Stop<'_> = match leaf_write(core, root, key, Manner::First) {
            Err(stop) => stop,
            Ok(page) if !has_mark(&page, key, oldest) => return Ok(()),
            Ok(page) => {
                let id = page.id();
                let before = Fill::of(&page);
                let mut mtr = Mtr::new(&core.log, [page]);
                mtr.apply(0, id, &PageOp::Compact { oldest })?;
                let removed = before.entries - mtr.page(0).view().len();
                engine.txns.purged_rows.fetch_add(to_u64(removed), Ordering::Relaxed);
                let wants_merge = before.wants_merge(mtr.page(0), core.store.page_size());
                mtr.commit(credit)?;
                if let Some(tree) = tree.filter(|_| wants_merge) {
                    engine.wish_merge(MergeWish { tree, key: key.to_vec(), level: 0, tries: 0 });
                }
                return Ok(());
            }
        };
        drop(credit);
        restarts.resolve(stop)?;
    }
}

/// Whether the row of `key` has a delete mark from before `oldest`.
fn has_mark(page: &PageWrite<'_>, key: &[u8], oldest: TxnId) -> bool {
    if cfg!(planted = "purge_removes_what_is_there") {
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
