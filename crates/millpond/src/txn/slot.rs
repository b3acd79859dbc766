//! A slot: what a transaction under way has to itself.

use std::sync::Arc;

use smallvec::SmallVec;

use super::commit_table::Chunk;
use super::header::{HEADER_REDO, Ready};
use super::lock_table::Mode;
use super::locks::{LOCK_TIMEOUT, Patience};
use super::record::{Kind, record_head};
use super::snapshots::Live;
use super::transactions::{Kept, OwnPage, Transactions, WAKE_AT};
use super::work::Loser;
use crate::base::aligned::{to_u64, to_usize};
use crate::base::clock::{self, nanos};
use crate::base::error::Error;
use crate::base::ids::{Lsn, PageId, SpaceId, TxnId};
use crate::base::page::op::PageOp;
use crate::base::page::view::entry_len;
use crate::base::row::{Stamp, UndoRef};
use crate::base::waits::Waits;
use crate::core::Core;
use crate::mtr::Mtr;
use crate::redo::credits::LogCredit;
use crate::store::page_store::PageStore;
use crate::store::space::Share;

/// Bytes of redo that a new undo page takes at most.
const NEW_PAGE_REDO: usize = 128;

/// Rows that a writer is to purge when its transaction has ended: as many as the larger number says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    /// Its part of the debt of all writers.
    pub(crate) debt: usize,
    /// The rows that a batch in parts has left.
    pub(crate) of_batch: usize,
}

/// An appended undo record.
pub(crate) struct Appended {
    /// Index of its page among the slot's.
    pub(crate) page: usize,
    pub(crate) number: u16,
    pub(crate) changes: u32,
    /// Number of its rows that purge has to look at.
    pub(crate) marked_rows: usize,
    /// The record undoes changes of the slot's transaction.
    pub(crate) is_own: bool,
}

/// Most changes that are counted off with the directory locked once.
const CUT_OUT_TOGETHER: usize = 64;

/// Number of undo pages that an idle slot keeps.
const PAGES_KEPT: usize = 2;

/// Bytes of the buffer that an idle slot keeps.
const UNDO_KEPT: usize = 16 << 10;

/// A transaction at work, with the undo pages that are its own meanwhile.
pub(crate) struct Slot<'t> {
    all: &'t Transactions,
    own: Own,
    has_ended: bool,
}

/// What a transaction has to itself. Between two statements it is [put away](Slot::put_away).
pub(crate) struct Own {
    txn: TxnId,
    kept: Kept,
    /// Pages in which the transaction left records with delete marks.
    marked: SmallVec<[PageId; 2]>,
    /// Number of rows with delete marks.
    marked_rows: usize,
    /// Pages that the slot has left.
    left: SmallVec<[OwnPage; 2]>,
    /// Changes in undo pages that no reader follows any more, with the pages' LSNs.
    cut_out: SmallVec<[(PageId, Lsn); 4]>,
    /// The records of a transaction of several groups; `None`: the transaction has one group.
    parts: Option<Parts>,
    /// A row lock obtained by a wait, of a transaction with nothing in flight.
    row: Option<(SpaceId, Vec<u8>)>,
    /// A transaction of statements: a user's thread ends it.
    has_statements: bool,
    /// A batch of several groups.
    is_batch_in_parts: bool,
    /// The trees and tables on which it has an intent.
    intents: SmallVec<[SpaceId; 4]>,
    /// The number of the next reference to chunks of a long value.
    next_reference: u32,
    /// The snapshot that the transaction has read at: rows that others have changed since are conflicts.
    first_wins: Option<Arc<Live>>,
    /// How it waits for locks.
    patience: Patience,
    owed: u64,
    /// It may change rows beyond the snapshot of its readers (ROWS-4).
    is_mixed: bool,
}

/// The undo records of a transaction of several groups.
struct Parts {
    header: UndoRef,
    /// Each with the number of its part.
    records: Vec<(u32, UndoRef)>,
    /// The number of the next part. Those of records that are undone are not used again.
    next: u32,
}

impl Own {
    /// The header of a transaction of several groups.
    pub(crate) fn header(&self) -> Option<UndoRef> {
        self.parts.as_ref().map(|parts| parts.header)
    }

    fn new(txn: TxnId, kept: Kept) -> Own {
        Own {
            txn,
            kept,
            marked: SmallVec::new(),
            marked_rows: 0,
            left: SmallVec::new(),
            cut_out: SmallVec::new(),
            parts: None,
            row: None,
            has_statements: false,
            is_batch_in_parts: false,
            intents: SmallVec::new(),
            next_reference: 0,
            first_wins: None,
            patience: Patience::BATCH,
            owed: 0,
            is_mixed: false,
        }
    }

    /// The place in the transaction's changes to which [`Slot::last_from`] leads back.
    pub(crate) fn savepoint(&self) -> u32 {
        self.parts.as_ref().map_or(0, |parts| parts.next)
    }
}

impl Transactions {
    /// Begins a transaction. Fails when there are no more ids.
    pub(crate) fn begin(&self, store: &PageStore) -> Result<Slot<'_>, Error> {
        let mut directory = self.directory.lock();
        let txn = self.next_id(&mut directory, store)?;
        let mut kept = directory.idle.pop().unwrap_or_default();
        if kept.chunk.as_ref().is_none_or(|chunk| chunk.number() != Chunk::number_of(txn)) {
            kept.chunk.clone_from(&directory.chunk);
        }
        Ok(Slot { all: self, own: Own::new(txn, kept), has_ended: false })
    }

    /// Goes on with a transaction that was put away.
    pub(crate) fn resume(&self, own: Own) -> Slot<'_> {
        Slot { all: self, own, has_ended: false }
    }
}

impl Slot<'_> {
    /// Puts the transaction away, between two statements. Unless it is [resumed](Transactions::resume), it never ends.
    pub(crate) fn put_away(mut self) -> Own {
        self.has_ended = true;
        let txn = self.own.txn;
        std::mem::replace(&mut self.own, Own::new(txn, Kept::default()))
    }

    pub(crate) fn txn(&self) -> TxnId {
        self.own.txn
    }

    /// Makes this a transaction of statements, which keeps locks from statement to statement.
    pub(crate) fn begin_statements(&mut self) {
        self.own.has_statements = true;
        self.all.locks.begin_statements(self.own.txn);
    }

    /// LOCK-5: notes that the transaction uses the tree or table of the rows in `space`. May wait on `metadata`;
    /// callers have entered no gates.
    pub(crate) fn intend(&mut self, space: SpaceId, waits: &Waits) -> Result<(), Error> {
        if !self.own.intents.contains(&space) {
            self.release_row();
            let patience = self.patience(Mode::Shared);
            self.all.locks.intend(space, self.own.txn, &patience, waits)?;
            self.own.intents.push(space);
        }
        Ok(())
    }

    /// Whether the transaction has intents on what it uses.
    pub(crate) fn has_intents(&self) -> bool {
        !self.own.intents.is_empty()
    }

    /// How the transaction waits for a lock now: a batch, for the default time at most.
    fn patience(&self, mode: Mode) -> Patience {
        let own = self.own.patience.clone();
        let default = || Some(clock::now_ns().saturating_add(nanos(LOCK_TIMEOUT)));
        Patience { mode, written: self.written(), until_ns: own.until_ns.or_else(default), ..own }
    }

    /// The number of changes of a transaction of statements.
    fn written(&self) -> Option<u64> {
        let records = self.own.parts.as_ref().map_or(0, |parts| to_u64(parts.records.len()));
        self.own.has_statements.then_some(records)
    }

    /// Bytes that the transaction has logged since it paid last.
    pub(crate) fn owed(&mut self) -> &mut u64 {
        &mut self.own.owed
    }

    /// Sets how the transaction waits for locks, and the snapshot since which no other transaction may have changed a
    /// row that it changes. `is_mixed`: it has readers of a snapshot, and may change rows beyond that.
    pub(crate) fn set_terms(&mut self, patience: Patience, first_wins: Option<Arc<Live>>, is_mixed: bool) {
        (self.own.patience, self.own.first_wins, self.own.is_mixed) = (patience, first_wins, is_mixed);
    }

    /// Whether the transaction has readers of a snapshot, and may change rows beyond that.
    pub(crate) fn is_mixed(&self) -> bool {
        self.own.is_mixed
    }

    /// The snapshot since which no other transaction may have changed a row that this one changes.
    pub(crate) fn first_wins(&self) -> Option<&Arc<Live>> {
        self.own.first_wins.as_ref()
    }

    /// A number for a reference to chunks that no other reference of the transaction has.
    pub(crate) fn next_reference(&mut self) -> Result<u32, Error> {
        let number = self.own.next_reference;
        self.own.next_reference = number.checked_add(1).ok_or_else(|| too_many("long values"))?;
        Ok(number)
    }

    /// The present place in the transaction's changes ([`Own::savepoint`]).
    pub(crate) fn savepoint(&self) -> u32 {
        self.own.savepoint()
    }

    /// The last record of changes made since `savepoint` that are not undone.
    pub(crate) fn last_from(&self, savepoint: u32) -> Option<UndoRef> {
        let last = self.own.parts.as_ref().and_then(|parts| parts.records.last());
        last.filter(|(number, _)| *number >= savepoint).map(|(_, at)| *at)
    }

    /// Notes that the last record's changes are undone.
    pub(crate) fn last_is_undone(&mut self) {
        if let Some(parts) = &mut self.own.parts {
            parts.records.pop();
        }
    }

    /// The pages to append to, in order.
    pub(crate) fn pages(&self) -> &[OwnPage] {
        &self.own.kept.pages
    }

    /// Buffer for the changes that lead back.
    pub(crate) fn undo(&mut self) -> &mut Vec<u8> {
        &mut self.own.kept.undo
    }

    /// Leaves page `index`: it is full, or not in memory.
    pub(crate) fn leave(&mut self, index: usize) {
        self.own.left.push(self.own.kept.pages.remove(index));
    }

    /// The kind of the next record, which follows `others` records that are not appended yet.
    pub(crate) fn next_kind(&self, others: u32) -> Result<Kind, Error> {
        match &self.own.parts {
            None => Ok(Kind::Whole),
            Some(parts) => {
                let number = parts.next.checked_add(others).filter(|number| *number < u32::MAX);
                number.map(Kind::Part).ok_or_else(|| too_many("changes"))
            }
        }
    }

    /// Whether the transaction has several groups.
    pub(crate) fn is_in_parts(&self) -> bool {
        self.own.parts.is_some()
    }

    /// Notes appended records. All pages but the last are full.
    pub(crate) fn appended(&mut self, records: impl Iterator<Item = Appended>) {
        let mut last = 0;
        for Appended { page: index, number, changes, marked_rows, is_own } in records {
            let page = &mut self.own.kept.pages[index];
            page.changes += i64::from(changes);
            self.own.marked_rows += marked_rows;
            if marked_rows > 0 && self.own.marked.last() != Some(&page.id) {
                self.own.marked.push(page.id);
            }
            if let Some(parts) = self.own.parts.as_mut().filter(|_| is_own) {
                parts.records.push((parts.next, UndoRef { page: page.id.number(), record: number }));
                parts.next += 1;
            }
            last = index;
        }
        self.own.left.extend(self.own.kept.pages.drain(..last));
    }

    /// Notes changes in undo pages that no reader follows any more, now that the group is in the log.
    pub(crate) fn cut_out(&mut self, changes: impl IntoIterator<Item = (PageId, Lsn)>) {
        self.own.cut_out.extend(changes);
    }

    /// Makes this a transaction of several groups (TXN-5), in a mini-transaction of its own. May wait as
    /// [`add_page`](Self::add_page) does.
    pub(crate) fn begin_parts(&mut self, core: &Core) -> Result<(), Error> {
        // It starts without a row lock (LOCK-3).
        self.release_row();
        let record = record_head(Kind::Header { is_active: true }, self.own.txn);
        let (page, credit) = loop {
            let Some(&OwnPage { id, .. }) = self.own.kept.pages.first() else {
                self.add_page(core)?;
                continue;
            };
            let credit = core.log.reserve(HEADER_REDO, 1)?;
            match core.pool.fetch(id).map(|pin| pin.write()) {
                Some(page) if entry_len(size_of::<u16>(), record.len()) <= page.view().free_bytes() => {
                    break (page, credit);
                }
                _ => self.leave(0),
            }
        };
        let (id, number) = (page.id(), u16::try_from(page.view().len()).unwrap_or(u16::MAX));
        let mut mtr = Mtr::new(&core.log, [page]);
        mtr.apply(0, id, &PageOp::Insert { key: &number.to_be_bytes(), value: &record })?;
        mtr.note_txn(self.own.txn);
        mtr.commit(credit)?;
        self.all.locks.begin(self.own.txn);
        let header = UndoRef { page: id.number(), record: number };
        self.own.is_batch_in_parts = !self.own.has_statements;
        self.own.parts = Some(Parts { header, records: Vec::new(), next: 0 });
        Ok(())
    }

    /// Logs the group that commits the transaction (COMMIT-1, COMMIT-2). Returns its end, the CommitTs.
    pub(crate) fn commit(&self, mtr: Mtr<'_>, credit: LogCredit<'_>) -> Result<Lsn, Error> {
        let order = |end| {
            if let Some(chunk) = &self.own.kept.chunk {
                chunk.commit(self.own.txn, end);
            }
        };
        mtr.commit_in_order(credit, order, |end| self.all.commits.show(end))
    }

    /// Commits a transaction of several groups. Returns the group's end. May wait on `log_space`, `page_read` and
    /// `free_frame`.
    pub(crate) fn commit_parts(&mut self, core: &Core) -> Result<Lsn, Error> {
        let Some(header) = self.own.header() else { return Ok(Lsn::ZERO) };
        let end = self.order(core, Ready::of(core, header)?)?;
        self.end_locks();
        Ok(end)
    }

    /// Gives a transaction of several groups its place in the order of commits: it is visible on return, and has its
    /// locks still. Returns the group's end. Waits for the header page's latch at most.
    pub(crate) fn order(&mut self, core: &Core, ready: Ready<'_>) -> Result<Lsn, Error> {
        let (mtr, credit) = ready.end(core, self.own.txn)?;
        let end = self.commit(mtr, credit)?;
        self.own.parts = None;
        self.all.locks.commit(self.own.txn);
        Ok(end)
    }

    /// Gives up all locks.
    fn end_locks(&mut self) {
        self.own.has_statements = false;
        self.own.intents.clear();
        self.all.locks.end(self.own.txn);
    }

    /// Gives the transaction up, to be undone; `None`: it has changed nothing, and has ended.
    pub(crate) fn into_loser(mut self) -> Option<Loser> {
        let loser = self.own.as_loser();
        self.has_ended = loser.is_some();
        loser
    }

    /// Waits for a locked row, on `row_lock`; `stamp` is the stamp that the row had a moment ago. Callers hold gates
    /// only.
    pub(crate) fn wait_for_row(
        &mut self,
        space: SpaceId,
        key: &[u8],
        stamp: Option<Stamp>,
        mode: Mode,
        waits: &Waits,
    ) -> Result<(), Error> {
        self.release_row();
        let patience = self.patience(mode);
        let is_held = self.all.locks.wait((space, key), stamp, self.own.txn, &patience, waits)?;
        if is_held && self.own.parts.is_none() && !self.own.has_statements {
            self.own.row = Some((space, key.to_vec()));
        }
        Ok(())
    }

    /// LOCK-3: gives up the lock of a row that the transaction had waited for.
    fn release_row(&mut self) {
        if let Some((space, key)) = self.own.row.take() {
            self.all.locks.release(space, &key, self.own.txn);
        }
    }

    /// Adds an empty page, one that is no longer needed or a new one, in a mini-transaction of its own. May wait on
    /// `log_space`, `page_read`, `free_frame` and `file_growth`; callers hold nothing else.
    pub(crate) fn add_page(&mut self, core: &Core) -> Result<(), Error> {
        let credit = core.log.reserve(NEW_PAGE_REDO, 1)?;
        let (id, page) = match self.all.take_newest_unneeded() {
            // Read if need be: a reader of earlier rows may be reading the page, too. An unreadable page stays where it
            // is until the next open.
            Some(id) => match core.pool.load(id) {
                Ok(pin) => (id, pin.write()),
                Err(Error::Corruption(_)) => core.new_page(SpaceId::UNDO, Share::Undo)?,
                Err(error) => {
                    self.all.put_off(id);
                    return Err(error);
                }
            },
            None => core.new_page(SpaceId::UNDO, Share::Undo)?,
        };
        let mut mtr = Mtr::new(&core.log, [page]);
        mtr.apply(0, id, &PageOp::Init { level: 0, low: b"", high: None, entries: Vec::new() })?;
        let since = mtr.commit(credit)?;
        self.all.directory.lock().pages.begin(id, since);
        self.own.kept.pages.push(OwnPage { id, changes: 0 });
        Ok(())
    }
}

impl Slot<'_> {
    /// Ends the transaction. Returns how many rows its writer is to purge now, where `most` undo pages may wait for
    /// purge.
    pub(crate) fn end(mut self, most: usize) -> Owed {
        self.give_up(most)
    }

    fn give_up(&mut self, most: usize) -> Owed {
        if std::mem::replace(&mut self.has_ended, true) {
            return Owed::default();
        }
        self.release_row();
        if self.own.parts.is_none() && self.own.cut_out.len() > CUT_OUT_TOGETHER {
            let cut_out = std::mem::take(&mut self.own.cut_out);
            cut_out.chunks(CUT_OUT_TOGETHER).for_each(|some| self.all.cut_out(some));
        }
        if let Some(loser) = self.own.as_loser() {
            // The transaction failed. Its changes are undone before any of its pages are given up.
            self.all.give_to_purge(loser);
            return Owed::default();
        }
        let mut directory = self.all.directory.lock();
        let txn = self.own.txn;
        if let Some(chunk) = &self.own.kept.chunk {
            chunk.end(txn);
        }
        for page in self.own.marked.drain(..) {
            directory.pages.enqueue(page);
        }
        let visible = self.all.commits.last_visible();
        for page in self.own.left.drain(..) {
            directory.pages.leave(page.id, visible, page.changes);
        }
        for (id, seen) in self.own.cut_out.drain(..) {
            directory.pages.cut_out(id, seen);
        }
        let mut kept = std::mem::take(&mut self.own.kept);
        // A large batch's unused pages are left to others.
        let surplus = PAGES_KEPT.min(kept.pages.len());
        for page in kept.pages.drain(surplus..) {
            directory.pages.leave(page.id, visible, page.changes);
        }
        if kept.undo.capacity() > UNDO_KEPT {
            kept.undo = Vec::new();
        }
        directory.idle.push(kept);
        // What a snapshot keeps is no debt: no writer can pay it.
        let waiting = directory.pages.len();
        let owed = directory.purge_debt.left(to_u64(self.own.marked_rows), to_u64(waiting), to_u64(most));
        // A batch in parts purges as many rows as it leaves, unless a snapshot may see them. Their leaves are in memory
        // now; for a backlog they would be read once more.
        let is_seen = self.all.snapshots.oldest_hint().is_some();
        let of_batch = if self.own.is_batch_in_parts && !is_seen { self.own.marked_rows } else { 0 };
        let wakes = directory.is_waiting && directory.pages.ready() >= WAKE_AT;
        drop(directory);
        if self.own.has_statements || self.has_intents() {
            self.end_locks();
        }
        if wakes {
            self.all.work.notify_one();
        }
        Owed { debt: to_usize(owed), of_batch }
    }
}

impl Own {
    /// Makes a transaction of several groups one that is to be undone; `None`: it is none, or is committed.
    fn as_loser(&mut self) -> Option<Loser> {
        let Parts { header, records, .. } = self.parts.take()?;
        let pages = self.left.drain(..).chain(self.kept.pages.drain(..)).map(|page| page.id).collect();
        self.marked.clear();
        let records = records.into_iter().map(|(_, at)| at).collect();
        Some(Loser { txn: self.txn, header, records, pages })
    }
}

/// The error for a transaction whose numbers are used up.
#[cold]
fn too_many(what: &str) -> Error {
    Error::TooLarge(format!("the transaction has too many {what}: commit it, and go on in another").into())
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.give_up(usize::MAX);
    }
}
