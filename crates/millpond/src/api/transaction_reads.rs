//! Reads of transactions, with and without locks.

use std::sync::Arc;

use crate::api::index::{Index, IndexRows, IndexScan};
use crate::api::read_mode::{OnLocked, Read, ReadMode, Sees, Ticket};
use crate::api::snapshot::RowsOf;
use crate::api::transaction::{Transaction, of_another_database};
use crate::api::txn_options::{Isolation, OnConflict};
use crate::base::error::Error;
use crate::base::ids::CommitTs;
use crate::btree::scan::OwnedRow;
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::read::snapshot::LiveSnapshot;
use crate::schema::key_range::{KeyBounds, KeyRange};
use crate::txn::lock_table::Mode;
use crate::txn::view::View;
use crate::write::parts::{LockedRow, lock_row, unlock_row};
use crate::write::statement::Failed;

impl Transaction {
    /// The snapshot that all reads share at repeatable read.
    fn shared_snapshot(&self) -> &Arc<LiveSnapshot> {
        self.snapshot.get_or_init(|| Arc::new(LiveSnapshot::take(&self.engine)))
    }

    /// The snapshot of a scan: the shared one, or a new one.
    fn snapshot(&self) -> Arc<LiveSnapshot> {
        match self.options.isolation {
            Isolation::ReadCommitted => Arc::new(LiveSnapshot::take(&self.engine)),
            Isolation::RepeatableRead => Arc::clone(self.shared_snapshot()),
        }
    }

    /// A reader of the rows that this transaction sees.
    fn reader(&self) -> Reader {
        let first_wins = self.options.on_conflict == OnConflict::Error;
        let is_mixed = self.options.isolation == Isolation::ReadCommitted || !first_wins;
        Reader { snapshot: Some(self.snapshot()), own: Some(Arc::clone(&self.changes)), is_mixed }
    }

    pub(super) fn state_of<'t>(&self, RowsOf { engine, state }: RowsOf<'t>) -> Result<&'t Arc<TreeState>, Error> {
        self.check_open()?;
        if !Arc::ptr_eq(engine, &self.engine) {
            return Err(of_another_database(state));
        }
        Ok(state)
    }

    /// Reads the value of `key`: that of the transaction's own last change, or else the one that its
    /// [`Isolation`] lets it see.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]; those of [`Snapshot::get`](crate::Snapshot::get).
    pub fn get<'t>(&self, of: impl Into<RowsOf<'t>>, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let of = of.into();
        if self.options.isolation == Isolation::ReadCommitted {
            return self.get_newest(of, key.as_ref());
        }
        let state = self.state_of(of)?;
        let snapshot = self.shared_snapshot();
        state.check_snapshot(snapshot.at())?;
        let view = View { at: Some(snapshot.at()), own: self.changes.txn() };
        self.changes.unless_over(snapshot.unless_ended(state.get(&self.engine, key.as_ref(), view)))
    }

    /// The rows in `range`, ascending; [`rev`](Iterator::rev) makes it descending. The scan sees changes that the
    /// transaction makes meanwhile: it goes on from the last row that it has returned. When the transaction is over,
    /// the scan fails with [`Error::TransactionOver`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn scan<'t>(&self, of: impl Into<RowsOf<'t>>, range: impl KeyRange) -> Result<Scan, Error> {
        let state = self.state_of(of.into())?;
        let reader = self.reader_of(state)?;
        Ok(Scan::new(&self.engine, state, reader, Some(range.into_bounds())))
    }

    /// The row with the lowest key. Costs as much as a [`scan`](Self::scan) of one leaf.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first<'t>(&self, of: impl Into<RowsOf<'t>>) -> Result<Option<OwnedRow>, Error> {
        self.scan(of, ..)?.next().transpose()
    }

    /// The row with the highest key; otherwise like [`first`](Self::first).
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last<'t>(&self, of: impl Into<RowsOf<'t>>) -> Result<Option<OwnedRow>, Error> {
        self.scan(of, ..)?.next_back().transpose()
    }

    /// The entries of an index with fields in `range`: fields and primary key of each. Sees changes as
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn entries(&self, of: &Index, range: impl KeyRange) -> Result<IndexScan, Error> {
        let reader = self.reader_of_index(of)?;
        Ok(of.scan_at(reader, range))
    }

    /// The rows with fields in `range`, in the order of the fields: primary key and row of each. Sees changes as
    /// [`scan`](Self::scan) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn rows(&self, of: &Index, range: impl KeyRange) -> Result<IndexRows, Error> {
        let reader = self.reader_of_index(of)?;
        Ok(of.rows_at(reader, range))
    }

    fn reader_of(&self, state: &TreeState) -> Result<Reader, Error> {
        let reader = self.reader();
        reader.snapshot.as_ref().map_or(Ok(()), |snapshot| state.check_snapshot(snapshot.at()))?;
        Ok(reader)
    }

    fn reader_of_index(&self, index: &Index) -> Result<Reader, Error> {
        self.state_of(RowsOf::from(&index.table))?;
        let reader = self.reader_of(&index.state.entries)?;
        reader.snapshot.as_ref().map_or(Ok(()), |snapshot| index.table.state.rows.check_snapshot(snapshot.at()))?;
        Ok(reader)
    }

    /// Reads the newest committed value of `key` and locks the row, or the key if there is no row, until the
    /// transaction ends: no other transaction changes it before. Waits on `row_lock` for a transaction that has it.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn get_for_update<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.get_locked(of.into(), key.as_ref(), Mode::Exclusive)
    }

    /// As [`get_for_update`](Self::get_for_update), but other transactions may lock the row in the same way.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn get_for_share<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.get_locked(of.into(), key.as_ref(), Mode::Shared)
    }

    fn get_locked(&mut self, of: RowsOf<'_>, key: &[u8], mode: Mode) -> Result<Option<Vec<u8>>, Error> {
        let (read, _) = self.lock(of, key, mode, OnLocked::Wait)?;
        Ok(read.and_then(|locked| locked.value))
    }

    /// Reads the row of `key` in the given way, and locks it if the way says so.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); for a locking read those of [`write`](Self::write).
    pub fn read<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
        mode: ReadMode,
    ) -> Result<Read, Error> {
        let (of, key) = (of.into(), key.as_ref());
        let unlocked = |value| Read { value, ticket: None, is_locked_by_other: false };
        let mode = match mode {
            ReadMode { sees: Sees::Snapshot, .. } => return self.get(of, key).map(unlocked),
            ReadMode { sees: Sees::Newest, .. } => return self.get_newest(of, key).map(unlocked),
            ReadMode { sees: Sees::Locked(mode), on_locked } => match self.lock(of, key, mode, on_locked)? {
                (Some(LockedRow { value, before }), tree) => {
                    let ticket = Ticket { of: self.number(), tree, key: key.into(), mode, had: before };
                    return Ok(Read { ticket: Some(ticket).filter(|_| before < Some(mode)), ..unlocked(value) });
                }
                (None, _) => on_locked,
            },
        };
        let value = if mode == OnLocked::ReadCommitted { self.get_newest(of, key)? } else { None };
        Ok(Read { is_locked_by_other: true, ..unlocked(value) })
    }

    fn get_newest(&self, of: RowsOf<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let state = self.state_of(of)?;
        self.changes.unless_over(state.get(&self.engine, key, View::newest_for(self.changes.txn())))
    }

    /// Locks a row and reads it; `None`: another transaction has the lock. Also returns the row's tree.
    fn lock(
        &mut self,
        of: RowsOf<'_>,
        key: &[u8],
        mode: Mode,
        on_locked: OnLocked,
    ) -> Result<(Option<LockedRow>, Arc<TreeState>), Error> {
        let state = self.state_of(of)?;
        let timeout = if let OnLocked::WaitFor(timeout) = on_locked { Some(timeout) } else { None };
        let waits = matches!(on_locked, OnLocked::Wait | OnLocked::WaitFor(_));
        let locked = self.statement(timeout, |engine, slot| {
            let locked = slot.intend(state.space, &engine.waits).and_then(|()| {
                let _gate = state.enter(&engine.waits)?;
                lock_row(engine, slot, state, key, mode, waits)
            });
            locked.map_err(|error| Failed { is_undone: !matches!(error, Error::Deadlock(_)), error })
        })?;
        Ok((locked, Arc::clone(state)))
    }

    /// Gives up the lock that a read has taken. Nothing happens if the transaction has locked the row otherwise since,
    /// or has changed it.
    ///
    /// # Errors
    /// [`Error::TransactionOver`]; [`Error::WrongKind`]: the lock is of another transaction. Those of
    /// [`get`](Self::get): then the lock is kept.
    pub fn unlock(&mut self, ticket: Ticket) -> Result<(), Error> {
        self.check_open()?;
        if ticket.of != self.number() {
            return Err(Error::WrongKind("the lock is of another transaction: unlock it there".into()));
        }
        let Some(txn) = self.changes.txn() else { return Ok(()) };
        let Ticket { tree, key, mode, had, .. } = ticket;
        unlock_row(&self.engine, txn, (&tree, &key), mode, had)
    }

    /// The moment of the transaction's snapshot, at repeatable read, once something was read: it sees every commit up
    /// to this one, and its own changes.
    pub fn snapshot_commit_ts(&self) -> Option<CommitTs> {
        self.snapshot.get().map(|snapshot| snapshot.at().into())
    }

    /// A number that tells the transactions of a process apart.
    pub(super) fn number(&self) -> u64 {
        self.changes.number
    }

    /// A scan of rows as a cursor goes through them: one that locks them first sees the newest committed ones.
    pub(super) fn scan_that(&self, of: RowsOf<'_>, sees: Sees, range: KeyBounds) -> Result<Scan, Error> {
        let state = self.state_of(of)?;
        let reader = match sees {
            Sees::Snapshot => self.reader_of(state)?,
            Sees::Newest | Sees::Locked(_) => Reader { own: Some(Arc::clone(&self.changes)), ..Reader::default() },
        };
        Ok(Scan::new(&self.engine, state, reader, Some(range)))
    }
}
