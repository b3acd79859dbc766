//! Rollback: undoes the changes of a batch of several groups that failed, or whose commit was not in the log when the
//! process ended.
//!
//! The batch's records are undone from the last to the first, leaf by leaf, in groups of their own. A row whose stamp
//! names the record is still changed; any other row was undone before. So a crash needs no mark of how far a rollback
//! came. When all records are undone, the header says that the transaction has ended (TXN-5). Until then the
//! transaction's rows stay locked, and readers see the rows before it.
//!
//! The writer of a batch rolls back, the thread of a transaction, or for what a crash cut short the purge thread; at an
//! open at rest the opening thread. It waits as an operation does, for pages, frames and the log, and may use the
//! rollback's share of the data file. Threads that wait for the rows wait for it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::base::error::Error;
use crate::base::ids::{PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::view::PageView;
use crate::base::row::{Row, Stamp, UndoRef};
use crate::btree::descent::{LatchOrder, Restarts, Root, Stop, leaf_write};
use crate::btree::split::{Pending, split_leaf};
use crate::core::Core;
use crate::engine::Engine;
use crate::mtr::{Mtr, RECORD_HEADER};
use crate::pool::pin::PageWrite;
use crate::redo::credits::LogCredit;
use crate::txn::before::load_record;
use crate::txn::header::end_header;
use crate::txn::record::{Kind, Undo, UndoRecord};
use crate::txn::slot::Slot;
use crate::txn::work::Loser;

/// Most bytes of redo of a compaction.
const COMPACT_LEN: usize = 16;

/// Finds in all undo pages the transactions that were active when the process ended, and the pages that are not theirs.
/// A damaged undo page does not fail the open: if it was of a batch in flight, a part of that batch stays.
pub(crate) fn find_losers(core: &Core) -> Result<(Vec<Loser>, Vec<PageId>), Error> {
    let mut headers: HashMap<TxnId, UndoRef, FixedState> = HashMap::default();
    let mut parts: HashMap<TxnId, Vec<(u32, UndoRef)>, FixedState> = HashMap::default();
    let pages: Vec<PageId> = core.store.used(SpaceId::UNDO);
    for ids in pages.chunks(READ_TOGETHER.min(core.pool.len() / 8)) {
        core.pool.load_many(ids);
        for &id in ids {
            let page = match core.pool.load(id) {
                Ok(pin) => pin.read(),
                // As in purge: a damaged page stays as it is, and `check` reports it.
                Err(Error::Corruption(_)) => continue,
                Err(error) => return Err(error),
            };
            let view = page.view();
            for index in 0..view.len() {
                let at = UndoRef { page: id.number(), record: u16::try_from(index).unwrap_or(u16::MAX) };
                match UndoRecord::decode(view.value(index)) {
                    Some(UndoRecord { kind: Kind::Header { is_active: true }, txn, .. }) => {
                        headers.insert(txn, at);
                    }
                    Some(UndoRecord { kind: Kind::Part(number), txn, .. }) => {
                        parts.entry(txn).or_default().push((number, at));
                    }
                    Some(_) | None => {}
                }
            }
        }
    }
    let mut losers = Vec::new();
    let mut others: std::collections::BTreeSet<PageId> = pages.into_iter().collect();
    if planted!("losers_forgotten") {
        headers.clear();
    }
    for (txn, header) in headers {
        let mut records = parts.remove(&txn).unwrap_or_default();
        records.sort_unstable_by_key(|(number, _)| *number);
        let records: Vec<UndoRef> = records.into_iter().map(|(_, at)| at).collect();
        let of = |at: &UndoRef| PageId::new(SpaceId::UNDO, at.page);
        // No other transaction has records in these pages: a transaction that fails keeps its pages.
        let pages = std::iter::once(&header).chain(&records).map(of).filter(|id| others.remove(id)).collect();
        losers.push(Loser { txn, header, records, pages });
    }
    losers.sort_unstable_by_key(|loser| loser.txn);
    Ok((losers, others.into_iter().collect()))
}

/// Number of undo pages that are read together when a database is opened.
const READ_TOGETHER: usize = 64;

/// Undoes everything that `loser` has changed.
pub(crate) fn roll_back(engine: &Engine, loser: &Loser) -> Result<(), Error> {
    let mut trees = Trees { engine, roots: HashMap::default() };
    loser.records.iter().rev().try_for_each(|&at| trees.undo_record(loser.txn, at))?;
    end_header(&engine.core, loser.txn, loser.header)
}

/// Undoes all changes of the transaction of `slot` in this thread, and ends it; purge goes on with what could not be
/// undone.
pub(crate) fn roll_back_all(engine: &Engine, slot: Slot<'_>) -> Result<(), Error> {
    let Some(loser) = slot.into_loser() else { return Ok(()) };
    match roll_back(engine, &loser) {
        Ok(()) => {
            engine.txns.undone(loser);
            Ok(())
        }
        Err(error) => {
            engine.txns.give_to_purge(loser);
            Err(error)
        }
    }
}

/// Undoes what the transaction of `slot` has changed since `savepoint`, which is one of its
/// [savepoints](Slot::savepoint). If it fails, the transaction must be given up.
pub(crate) fn roll_back_to(engine: &Engine, slot: &mut Slot<'_>, savepoint: u32) -> Result<(), Error> {
    let mut trees = Trees { engine, roots: HashMap::default() };
    while let Some(at) = slot.last_from(savepoint) {
        trees.undo_record(slot.txn(), at)?;
        slot.last_is_undone();
    }
    Ok(())
}

fn no_record(at: UndoRef) -> Error {
    let UndoRef { page, record } = at;
    let id = PageId::new(SpaceId::UNDO, page);
    let message = format!(
        "undo page {id}: entry {record} is no record of the transaction that has it: `millpond check` tells what else is damaged: restore a backup (`millpond restore`)"
    );
    Error::Corruption(message.into())
}

/// The trees in which rows are undone.
struct Trees<'e> {
    engine: &'e Engine,
    roots: HashMap<SpaceId, Root, FixedState>,
}

impl Trees<'_> {
    /// Undoes the changes of one record that are not undone yet.
    fn undo_record(&mut self, txn: TxnId, at: UndoRef) -> Result<(), Error> {
        let record = load_record(&self.engine.core, at)?.ok_or_else(|| no_record(at))?;
        let record = UndoRecord::decode(&record).filter(|record| record.txn == txn).ok_or_else(|| no_record(at))?;
        let changes: Option<Vec<Undo<'_>>> = record.changes().collect();
        let changes = changes.ok_or_else(|| no_record(at))?;
        let stamp = Stamp { txn, undo: Some(at) };
        changes.chunk_by(|one, next| one.space == next.space).try_for_each(|of_space| self.undo(stamp, of_space))
    }

    /// Undoes the changes of one record in one tree that are not undone yet.
    fn undo(&mut self, stamp: Stamp, mut changes: &[Undo<'_>]) -> Result<(), Error> {
        let core = &self.engine.core;
        let Some(Undo { space, .. }) = changes.first() else { return Ok(()) };
        let root = self.roots.entry(*space).or_insert_with(|| Root::new(*space));
        let mut restarts = Restarts::new(&core.pool);
        while let Some(first) = changes.first() {
            self.engine.txns.check_running()?;
            // No space is dropped meanwhile.
            let spaces = self.engine.keep_spaces(&mut restarts);
            if !core.store.has_space(*space) {
                return Ok(());
            }
            // At most as many bytes as an undo page has.
            let ops: usize = changes.iter().map(|change| change.op.encoded_len()).sum();
            let redo_len = RECORD_HEADER + COMPACT_LEN + ops;
            let credit = restarts.reserve(&core.log, redo_len, 1)?;
            let stop: Stop<'_> = match leaf_write(core, root, first.key(), LatchOrder::First) {
                Err(stop) => stop,
                Ok(page) => {
                    let here = changes.iter().take_while(|change| page.view().covers(change.key())).count();
                    let oldest = self.engine.txns.oldest();
                    match undo_rows(core, page, stamp, &changes[..here], oldest, credit)? {
                        None => changes = &changes[here..],
                        Some(pending) => split_leaf(core, root, &[pending], restarts.for_rollback())?,
                    }
                    continue;
                }
            };
            // Released first: a thread that takes spaces out of the map must not wait for our reads.
            drop((credit, spaces));
            restarts.resolve(stop)?;
        }
        Ok(())
    }
}

/// Undoes changes of rows in a leaf that covers them, first the changes that free room. Returns the entry for which
/// there is no room: its row was longer before, and other rows have come into the leaf since. The changes undone until
/// then stay undone.
fn undo_rows(
    core: &Core,
    page: PageWrite<'_>,
    stamp: Stamp,
    changes: &[Undo<'_>],
    oldest: TxnId,
    credit: LogCredit<'_>,
) -> Result<Option<Pending>, Error> {
    let id = page.id();
    let grows = |change: &&Undo<'_>| lengths(page.view(), stamp, change).is_some_and(|(before, now)| before > now);
    let (growing, shrinking): (Vec<_>, Vec<_>) = changes.iter().partition(grows);
    let mut mtr = Mtr::new(&core.log, [page]);
    let (mut changed, mut compacted, mut pending) = (false, false, None);
    for change in shrinking.into_iter().chain(growing) {
        let Some((before, now)) = lengths(mtr.page(0).view(), stamp, change) else { continue };
        let fits = |mtr: &Mtr<'_>| before <= mtr.page(0).view().free_bytes() + now;
        if !fits(&mtr) && !compacted {
            // The transaction is active, so its stamps are not below `oldest`: a compaction keeps these rows as they
            // are, and the changes that lead back still apply.
            mtr.apply(0, id, &PageOp::Compact { oldest })?;
            (changed, compacted) = (true, true);
        }
        if !fits(&mtr) {
            let view = mtr.page(0).view();
            let value_len = before - view.entry_len_of(change.key().len(), 0);
            pending = Some(Pending { key: change.key().to_vec(), value_len });
            break;
        }
        mtr.apply(0, id, &change.op)?;
        changed = true;
    }
    if changed {
        mtr.commit(credit)?;
    }
    Ok(pending)
}

/// Bytes that the entry of `change` takes once undone, and bytes that it takes now. `None`: it is undone already.
fn lengths(view: PageView<'_>, stamp: Stamp, change: &Undo<'_>) -> Option<(usize, usize)> {
    let index = view.search(change.key()).ok()?;
    let value = view.value(index);
    Row::decode(value).filter(|row| row.stamp == Some(stamp))?;
    let len = |value: usize| view.entry_len_of(change.key().len(), value);
    let before = match &change.op {
        PageOp::Replace { value, .. } | PageOp::Insert { value, .. } => len(value.len()),
        PageOp::Patch { patch, .. } => len(patch.len_of(value.len())?),
        _ => 0,
    };
    Some((before, len(value.len())))
}
