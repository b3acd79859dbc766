//! Turns a batch that changes rows of tables into one that changes trees (ROWS-1, ROWS-2, ROWS-3).
//!
//! The changes of index entries follow from the old rows. Rows that are only inserted need no reading. For others, a
//! batch that fits one group expects the rows that it has read, and starts over if they have changed. A larger batch
//! locks its rows before it reads them ([`Large`]).

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::sync::ReadGuard;
use crate::engine::Engine;
use crate::engine::durable::wait_durable;
use crate::engine::table_state::{Indexes, TableState};
use crate::engine::tree_state::TreeState;
use crate::options::durability::Durability;
use crate::txn::slot::Slot;
use crate::txn::view::View;
use crate::write::batch::{Place, WriteBatch};
use crate::write::chunks::ensure_chunk_trees;
use crate::write::entry_changes::EntryChanges;
use crate::write::group::is_wide;
use crate::write::op::{Change, Decide, Op};
use crate::write::outcome::{Applied, Done, Extent, Size};
use crate::write::parts::{HowToLock, Large, lock_row};
use crate::write::sizes::{is_large, probable_redo};
use crate::write::{apply_with, intents, try_apply};

/// Old rows; `None` if there was none, and for rows that need not be read.
type OldRows = Vec<Option<Vec<u8>>>;

/// The changes of one row, in the order in which they were added.
struct RowChanges<'a> {
    /// Index of its table in [`Wanted::tables`].
    table: usize,
    key: &'a [u8],
    ops: Range<usize>,
}

/// The changes that a batch asks for, grouped by tables and rows.
struct Wanted<'a> {
    of_trees: Vec<Op<'a>>,
    /// The tables, in the order of their rows' spaces.
    tables: Vec<&'a TableState>,
    /// The changed rows, in the order of tables and keys.
    rows: Vec<RowChanges<'a>>,
    row_ops: Vec<Op<'a>>,
    has_expectations: bool,
}

impl<'a> Wanted<'a> {
    fn of(batch: &'a WriteBatch) -> Wanted<'a> {
        let (mut of_trees, mut of_rows) = (Vec::new(), Vec::new());
        for (place, op) in batch.ops() {
            match place {
                Place::Tree(_) => of_trees.push(op),
                Place::Table(table) => of_rows.push((table, op)),
            }
        }
        of_rows.sort_by(|(_, a), (_, b)| (a.tree.space, a.key).cmp(&(b.tree.space, b.key)));
        let (mut tables, mut rows): (Vec<&TableState>, Vec<RowChanges<'_>>) = (Vec::new(), Vec::new());
        for (at, (table, op)) in of_rows.iter().enumerate() {
            let is_same_table = tables.last().is_some_and(|last| last.rows.space == table.rows.space);
            if !is_same_table {
                tables.push(table);
            }
            match rows.last_mut() {
                Some(row) if is_same_table && row.key == op.key => row.ops.end = at + 1,
                _ => rows.push(RowChanges { table: tables.len() - 1, key: op.key, ops: at..at + 1 }),
            }
        }
        let row_ops = of_rows.into_iter().map(|(_, op)| op).collect();
        let has_expectations = batch.ops().any(|(_, op)| matches!(op.change, Change::Expect(_)));
        Wanted { of_trees, tables, rows, row_ops, has_expectations }
    }

    fn ops_of(&self, row: &RowChanges<'_>) -> &[Op<'a>] {
        &self.row_ops[row.ops.clone()]
    }

    /// Whether the changes of entries depend on the old row. A row that is inserted first did not exist.
    fn must_read(&self, row: &RowChanges<'_>) -> bool {
        let first = self.ops_of(row).iter().find(|op| !matches!(op.change, Change::Expect(_)));
        first.is_some_and(|op| !matches!(op.change, Change::Insert(_)))
    }

    /// All changes that the batch asks for, without those of entries.
    fn asked(&self) -> impl Iterator<Item = Op<'a>> {
        self.of_trees.iter().chain(&self.row_ops).copied()
    }

    fn rows_of(&self, row: &RowChanges<'_>) -> &'a Arc<TreeState> {
        &self.tables[row.table].rows
    }

    /// Enters the tables' gates: their lists of indexes stay as they are (ROWS-3).
    fn enter(&self, engine: &Engine) -> Vec<ReadGuard<'a, Indexes>> {
        self.tables.iter().map(|table| table.enter(&engine.waits)).collect()
    }

    /// The changes of entries, where `indexes` has each table's indexes, and `old_rows` the old rows.
    fn entries<'t>(
        &'t self,
        indexes: &'t [ReadGuard<'_, Indexes>],
        old_rows: &OldRows,
        mut entries: EntryChanges<'t>,
    ) -> Result<EntryChanges<'t>, Error> {
        for (row, old) in self.rows.iter().zip(old_rows) {
            let last = self.ops_of(row).iter().rfind(|op| !matches!(op.change, Change::Expect(_)));
            // A row that is only expected stays.
            let new = last.map_or(old.as_deref(), |op| op.change.value());
            entries.add(self.tables[row.table], &indexes[row.table], row.key, old.as_deref(), new)?;
        }
        Ok(entries)
    }

    /// Writes a batch of whose rows none must be read.
    fn insert(&self, engine: &Engine) -> Result<Option<Done>, Error> {
        apply_with(engine, |slot| {
            let indexes = self.enter(engine);
            let entries = self.entries(&indexes, &vec![None; self.rows.len()], EntryChanges::default())?;
            let mut ops: Vec<Op<'_>> = self.asked().chain(entries.ops()).collect();
            try_apply(engine, &mut ops, Extent::Batch, Size::Any, slot)
        })
    }

    /// Reads rows, and expects them to be the same when it writes; starts over if they are not. `None`: the batch is
    /// too much for one group.
    fn expect_and_write(&self, engine: &Engine) -> Result<Option<Done>, Error> {
        let mut before: Option<OldRows> = None;
        apply_with(engine, |slot| {
            loop {
                let read = |row: &RowChanges<'_>| match self.must_read(row) {
                    true => self.rows_of(row).get(engine, row.key, View::NEWEST),
                    false => Ok(None),
                };
                let old_rows: OldRows = self.rows.iter().map(read).collect::<Result<_, _>>()?;
                let indexes = self.enter(engine);
                let entries = self.entries(&indexes, &old_rows, EntryChanges::default())?;
                let mut ops = self.expecting(&old_rows);
                ops.extend(entries.ops());
                match try_apply(engine, &mut ops, Extent::Batch, Size::OneGroup, slot) {
                    // Reads the rows again. If they are as before, the conflict is with an expectation of the batch
                    // itself.
                    Err(Error::Conflict(_)) if !self.has_expectations || before.as_ref() != Some(&old_rows) => {
                        drop(ops);
                        before = Some(old_rows);
                    }
                    done => return done,
                }
            }
        })
    }

    /// Locks all rows before it reads them. A large batch that started over whenever another writer was faster might
    /// never end.
    fn lock_and_write(&self, engine: &Engine) -> Result<Done, Error> {
        let mut slot = engine.txns.begin(&engine.core.store)?;
        intents(self.asked()).into_iter().try_for_each(|space| slot.intend(space, &engine.waits))?;
        let indexes = self.enter(engine);
        let of_table = |(table, indexes): (&&TableState, &ReadGuard<'_, Indexes>)| table.trees_with(indexes);
        let mut trees: Vec<Arc<TreeState>> = self.tables.iter().zip(&indexes).flat_map(of_table).collect();
        trees.extend(self.of_trees.iter().map(|op| Arc::clone(op.tree)));
        trees.sort_unstable_by_key(|tree| tree.space);
        trees.dedup_by_key(|tree| tree.space);
        let mut large = Large::begin(engine, slot, &trees)?;
        // In their order (WRITE-1), also rows that need not be read.
        let lock = |row: &RowChanges<'_>| {
            let old = large.lock_row(self.rows_of(row), row.key)?;
            Ok(old.filter(|_| self.must_read(row)))
        };
        let old_rows: OldRows = match self.rows.iter().map(lock).collect() {
            Ok(old_rows) => old_rows,
            Err(error) => return Err(large.fail(error)),
        };
        match self.entries(&indexes, &old_rows, EntryChanges::default()) {
            Ok(entries) => large.write(self.asked().chain(entries.ops()).collect()),
            Err(error) => Err(large.fail(error)),
        }
    }
}

/// Writes a batch as changes of the transaction of `slot`. If it fails, some of them may be written.
pub(super) fn write_rows_of(engine: &Engine, batch: &WriteBatch, slot: &mut Slot<'_>) -> Result<Done, Error> {
    let wanted = Wanted::of(batch);
    // Before anything is held.
    ensure_chunk_trees(engine, &wanted.of_trees)?;
    ensure_chunk_trees(engine, &wanted.row_ops)?;
    intents(wanted.asked()).into_iter().try_for_each(|space| slot.intend(space, &engine.waits))?;
    let indexes = wanted.enter(engine);
    let is_to_read = wanted.rows.iter().any(|row| wanted.must_read(row));
    if wanted.has_expectations || !is_to_read || is_wide(engine, &wanted.row_ops) {
        return wanted.lock_and_write_in(engine, &indexes, slot);
    }
    // Mostly no other transaction is in the way: then the stamps are all the locks that are needed.
    let view = View::newest_for(Some(slot.txn()));
    match wanted.expect_and_write_in(engine, &indexes, view, slot) {
        Ok(Some(done)) => Ok(done),
        Err(error) if !is_unexpected(&error) => Err(error),
        Ok(None) | Err(_) => wanted.lock_and_write_in(engine, &indexes, slot),
    }
}

/// The changes of entries, none so far, that a statement makes.
fn changes_of<'t>(slot: &Slot<'_>) -> EntryChanges<'t> {
    if slot.is_mixed() { EntryChanges::of_all_entries() } else { EntryChanges::default() }
}

fn is_unexpected(error: &Error) -> bool {
    matches!(error, Error::Conflict(row) if row.is_unexpected())
}

/// Writes `ops` as changes of the transaction of `slot`. If it fails, some of them may be written, unless they are to
/// be written in one group. `None`: they do not fit one group.
fn write_ops(engine: &Engine, ops: &mut [Op<'_>], size: Size, slot: &mut Slot<'_>) -> Result<Option<Done>, Error> {
    match try_apply(engine, ops, Extent::Statement, size, slot)? {
        Applied::Done(done) => Ok(Some(done)),
        Applied::TooLarge => Ok(None),
        Applied::Locked(..) | Applied::InParts(_) => Err(Error::Bug("a statement is written where it is".into())),
    }
}

/// Makes the change that `decide` returns for the row `key` of `table`, as a change of the transaction of `slot`. True:
/// the row existed.
pub(super) fn modify_row_of(
    engine: &Engine,
    table: &Arc<TableState>,
    key: &[u8],
    decide: &mut Decide<'_>,
    slot: &mut Slot<'_>,
) -> Result<bool, Error> {
    slot.intend(table.rows.space, &engine.waits)?;
    let view = View::newest_for(Some(slot.txn()));
    for locks in [false, true] {
        let old = match locks {
            false => table.rows.get(engine, key, view)?,
            true => {
                let _gate = table.rows.enter(&engine.waits)?;
                lock_row(engine, slot, &table.rows, key, HowToLock::TO_WRITE)?.and_then(|locked| locked.value)
            }
        };
        let Some(change) = decide(old.as_deref()) else { return Ok(old.is_some()) };
        let change = match &change {
            Change::Put(value) => Change::Put(value.as_slice()),
            _ => Change::Delete,
        };
        let op = Op::new(&table.rows, key, change);
        ensure_chunk_trees(engine, &[op])?;
        let indexes = table.enter(&engine.waits);
        let mut entries = changes_of(slot);
        entries.add(table, &indexes, key, old.as_deref(), change.value())?;
        let expect = Op { change: Change::Expect(old.as_deref()), ..op };
        let mut ops: Vec<Op<'_>> = [expect, op].into_iter().chain(entries.ops()).collect();
        match write_ops(engine, &mut ops, Size::Any, slot) {
            Err(error) if is_unexpected(&error) && !locks => {}
            done => return done.map(|_| old.is_some()),
        }
    }
    Err(Error::Bug("a locked row was changed by another transaction".into()))
}

impl Wanted<'_> {
    /// Reads rows, and expects them to be the same when it writes. `None`: it is too much for one group.
    fn expect_and_write_in(
        &self,
        engine: &Engine,
        indexes: &[ReadGuard<'_, Indexes>],
        view: View,
        slot: &mut Slot<'_>,
    ) -> Result<Option<Done>, Error> {
        let read = |row: &RowChanges<'_>| match self.must_read(row) {
            true => self.rows_of(row).get(engine, row.key, view),
            false => Ok(None),
        };
        let old_rows: OldRows = self.rows.iter().map(read).collect::<Result<_, _>>()?;
        let entries = self.entries(indexes, &old_rows, changes_of(slot))?;
        let mut ops = self.expecting(&old_rows);
        ops.extend(entries.ops());
        write_ops(engine, &mut ops, Size::OneGroup, slot)
    }

    /// Locks rows before it reads them.
    fn lock_and_write_in(
        &self,
        engine: &Engine,
        indexes: &[ReadGuard<'_, Indexes>],
        slot: &mut Slot<'_>,
    ) -> Result<Done, Error> {
        // In their order; rows that need not be read are locked when they are written. A row that is only expected gets
        // a stamp, and so may its entries (ROWS-4).
        let is_mixed = slot.is_mixed();
        let is_expected =
            |row: &RowChanges<'_>| self.ops_of(row).iter().all(|op| matches!(op.change, Change::Expect(_)));
        let lock = |row: &RowChanges<'_>| match self.must_read(row) || is_mixed && is_expected(row) {
            true => {
                let rows = self.rows_of(row);
                let _gate = rows.enter(&engine.waits)?;
                Ok(lock_row(engine, slot, rows, row.key, HowToLock::TO_WRITE)?.and_then(|locked| locked.value))
            }
            false => Ok(None),
        };
        let old_rows: OldRows = self.rows.iter().map(lock).collect::<Result<_, Error>>()?;
        let entries = self.entries(indexes, &old_rows, changes_of(slot))?;
        let mut ops: Vec<Op<'_>> = self.asked().chain(entries.ops()).collect();
        let done = write_ops(engine, &mut ops, Size::Any, slot)?;
        done.ok_or_else(|| Error::Bug("a statement of any size is too large".into()))
    }

    /// All changes of rows and trees, after the expectation that the rows that were read are still the same.
    fn expecting<'o>(&'o self, old_rows: &'o OldRows) -> Vec<Op<'o>> {
        let mut ops: Vec<Op<'o>> = self.of_trees.clone();
        for (row, old) in self.rows.iter().zip(old_rows) {
            let changes = self.ops_of(row);
            if self.must_read(row) {
                ops.push(Op { change: Change::Expect(old.as_deref()), ..changes[0] });
            }
            ops.extend_from_slice(changes);
        }
        ops
    }
}

/// Writes a batch that changes rows of tables, and waits for the log as `durability` demands.
pub(crate) fn write_rows(engine: &Engine, batch: &WriteBatch, durability: Durability) -> Result<Done, Error> {
    let wanted = Wanted::of(batch);
    engine.check_changeable()?;
    let _paying = engine.begin_write();
    // Before anything is held.
    ensure_chunk_trees(engine, &wanted.of_trees)?;
    ensure_chunk_trees(engine, &wanted.row_ops)?;
    let done = if !wanted.rows.iter().any(|row| wanted.must_read(row)) {
        wanted.insert(engine)?.ok_or_else(|| Error::Bug("a batch of any size is too large".into()))?
    } else {
        let is_large = is_large(engine, probable_redo(&wanted.of_trees) + probable_redo(&wanted.row_ops))
            || is_wide(engine, &wanted.row_ops);
        let written = if is_large { None } else { wanted.expect_and_write(engine)? };
        match written {
            Some(done) => done,
            None => wanted.lock_and_write(engine)?,
        }
    };
    wait_durable(engine, done.end, durability)?;
    Ok(done)
}
