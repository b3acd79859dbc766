//! Reads of transactions, with and without locks.

use std::sync::Arc;

use crate::api::read_mode::{OnLocked, Read, ReadMode, Sees, Ticket};
use crate::api::snapshot::RowsOf;
use crate::api::transaction::{Transaction, of_another_database};
use crate::api::txn_options::{Isolation, OnConflict};
use crate::base::error::Error;
use crate::base::ids::{CommitTs, SpaceId};
use crate::btree::scan::OwnedRow;
use crate::engine::tree_state::TreeState;
use crate::read::reader::Reader;
use crate::read::scan::Scan;
use crate::read::snapshot::LiveSnapshot;
use crate::schema::key_range::{KeyBounds, KeyRange};
use crate::txn::lock_table::Mode;
use crate::txn::view::View;
use crate::write::parts::{HowToLock, LockedRow, lock_row, unlock_row};
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

    pub(super) fn reader_of(&self, state: &TreeState) -> Result<Reader, Error> {
        let reader = self.reader();
        reader.snapshot.as_ref().map_or(Ok(()), |snapshot| state.check_snapshot(snapshot.at()))?;
        Ok(reader)
    }

    /// Reads the newest committed value of `key` and locks the row, or the key if there is no row, until the
    /// transaction ends: no other transaction changes it before. Waits on `row_lock` for a transaction that has it.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and [`Error::TooManyLocks`].
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
    /// Those of [`get_for_update`](Self::get_for_update).
    pub fn get_for_share<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.get_locked(of.into(), key.as_ref(), Mode::Shared)
    }

    fn get_locked(&mut self, of: RowsOf<'_>, key: &[u8], mode: Mode) -> Result<Option<Vec<u8>>, Error> {
        let state = self.state_of(of)?;
        let read = self.lock(state.space, state, key, mode, OnLocked::Wait)?;
        Ok(read.and_then(|locked| locked.value))
    }

    /// Reads the row of `key` in the given way, and locks it if the way says so.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); for a locking read those of [`write`](Self::write), and [`Error::TooManyLocks`].
    pub fn read<'t>(
        &mut self,
        of: impl Into<RowsOf<'t>>,
        key: impl AsRef<[u8]>,
        mode: ReadMode,
    ) -> Result<Read, Error> {
        let (of, key) = (of.into(), key.as_ref());
        let unlocked = |value| Read { value, ticket: None, is_locked_by_other: false };
        match mode.sees {
            Sees::Snapshot => self.get(of, key).map(unlocked),
            Sees::Newest => self.get_newest(of, key).map(unlocked),
            Sees::Locked(lock) => {
                let state = self.state_of(of)?;
                self.read_locked(state.space, state, key, lock, mode.on_locked)
            }
        }
    }

    /// A locking read of a row in `tree`, that of the rows in `space` or of one of their indexes.
    pub(super) fn read_locked(
        &mut self,
        space: SpaceId,
        tree: &Arc<TreeState>,
        key: &[u8],
        mode: Mode,
        on_locked: OnLocked,
    ) -> Result<Read, Error> {
        if let Some(LockedRow { value, before }) = self.lock(space, tree, key, mode, on_locked)? {
            let ticket = Ticket { of: self.number(), tree: Arc::clone(tree), key: key.into(), mode, had: before };
            return Ok(Read { value, ticket: Some(ticket).filter(|_| before < Some(mode)), is_locked_by_other: false });
        }
        let value = match on_locked {
            OnLocked::ReadCommitted => self.newest_in(tree, key)?,
            _ => None,
        };
        Ok(Read { value, ticket: None, is_locked_by_other: true })
    }

    fn get_newest(&self, of: RowsOf<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.newest_in(self.state_of(of)?, key)
    }

    fn newest_in(&self, tree: &TreeState, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.changes.unless_over(tree.get(&self.engine, key, View::newest_for(self.changes.txn())))
    }

    /// Locks a row of `tree` and reads it; `None`: another transaction has the lock. The transaction has an intent on
    /// the tree or table of the rows in `space` from then on.
    fn lock(
        &mut self,
        space: SpaceId,
        tree: &Arc<TreeState>,
        key: &[u8],
        mode: Mode,
        on_locked: OnLocked,
    ) -> Result<Option<LockedRow>, Error> {
        let timeout = if let OnLocked::WaitFor(timeout) = on_locked { Some(timeout) } else { None };
        let waits = matches!(on_locked, OnLocked::Wait | OnLocked::WaitFor(_));
        self.statement(timeout, |engine, slot| {
            let locked = slot.intend(space, &engine.waits).and_then(|()| {
                let _gate = tree.enter(&engine.waits)?;
                lock_row(engine, slot, tree, key, HowToLock { mode, waits, most: engine.lock_memory_max() })
            });
            locked.map_err(|error| Failed { is_undone: !matches!(error, Error::Deadlock(_)), error })
        })
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

    /// A scan of rows as a cursor goes through them.
    pub(super) fn scan_that(&self, of: RowsOf<'_>, sees: Sees, range: KeyBounds) -> Result<Scan, Error> {
        let state = self.state_of(of)?;
        let reader = if sees == Sees::Snapshot { self.reader_of(state)? } else { self.newest_reader() };
        Ok(Scan::new(&self.engine, state, reader, Some(range)))
    }

    /// A reader of the newest committed rows, and of the transaction's own: what a cursor goes through that locks them.
    pub(super) fn newest_reader(&self) -> Reader {
        Reader { own: Some(Arc::clone(&self.changes)), ..Reader::default() }
    }
}
