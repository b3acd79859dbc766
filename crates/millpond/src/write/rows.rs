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
use crate::txn::lock_table::Mode;
use crate::txn::slot::Slot;
use crate::txn::view::View;
use crate::write::batch::{Place, WriteBatch};
use crate::write::chunks::ensure_chunk_trees;
use crate::write::entry_changes::EntryChanges;
use crate::write::op::{Change, Op};
use crate::write::outcome::{Done, Size};
use crate::write::parts::{Large, lock_row};
use crate::write::sizes::{is_large, probable_redo};
use crate::write::statement::write_ops;
use crate::write::{apply, apply_sized};

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
    ) -> Result<EntryChanges<'t>, Error> {
        let mut entries = EntryChanges::default();
        for (row, old) in self.rows.iter().zip(old_rows) {
            let last = self.ops_of(row).iter().rfind(|op| !matches!(op.change, Change::Expect(_)));
            let new = last.and_then(|op| op.change.value());
            entries.add(self.tables[row.table], &indexes[row.table], row.key, old.as_deref(), new)?;
        }
        Ok(entries)
    }

    /// Writes a batch of whose rows none must be read.
    fn insert(&self, engine: &Engine) -> Result<Done, Error> {
        let indexes = self.enter(engine);
        let entries = self.entries(&indexes, &vec![None; self.rows.len()])?;
        let mut ops: Vec<Op<'_>> = self.asked().chain(entries.ops()).collect();
        apply(engine, &mut ops)
    }

    /// Reads rows, and expects them to be the same when it writes; starts over if they are not. `None`: the batch is
    /// too much for one group.
    fn expect_and_write(&self, engine: &Engine) -> Result<Option<Done>, Error> {
        let mut before: Option<OldRows> = None;
        loop {
            let read = |row: &RowChanges<'_>| match self.must_read(row) {
                true => self.rows_of(row).get(engine, row.key, View::NEWEST),
                false => Ok(None),
            };
            let old_rows: OldRows = self.rows.iter().map(read).collect::<Result<_, _>>()?;
            let indexes = self.enter(engine);
            let entries = self.entries(&indexes, &old_rows)?;
            let mut ops = self.of_trees.clone();
            for (row, old) in self.rows.iter().zip(&old_rows) {
                let changes = self.ops_of(row);
                if self.must_read(row) {
                    ops.push(Op { change: Change::Expect(old.as_deref()), ..changes[0] });
                }
                ops.extend_from_slice(changes);
            }
            ops.extend(entries.ops());
            match apply_sized(engine, &mut ops, Size::OneGroup) {
                // Reads the rows again. If they are as before, the conflict is with an expectation of the batch itself.
                Err(Error::Conflict(_)) if !self.has_expectations || before.as_ref() != Some(&old_rows) => {
                    drop(ops);
                    before = Some(old_rows);
                }
                done => return done,
            }
        }
    }

    /// Locks all rows before it reads them. A large batch that started over whenever another writer was faster might
    /// never end.
    fn lock_and_write(&self, engine: &Engine) -> Result<Done, Error> {
        let indexes = self.enter(engine);
        let of_table = |(table, indexes): (&&TableState, &ReadGuard<'_, Indexes>)| table.trees_with(indexes);
        let mut trees: Vec<Arc<TreeState>> = self.tables.iter().zip(&indexes).flat_map(of_table).collect();
        trees.extend(self.of_trees.iter().map(|op| Arc::clone(op.tree)));
        trees.sort_unstable_by_key(|tree| tree.space);
        trees.dedup_by_key(|tree| tree.space);
        let mut large = Large::begin(engine, &trees)?;
        // In their order (WRITE-1), also rows that need not be read.
        let lock = |row: &RowChanges<'_>| {
            let old = large.lock_row(self.rows_of(row), row.key)?;
            Ok(old.filter(|_| self.must_read(row)))
        };
        let old_rows: OldRows = self.rows.iter().map(lock).collect::<Result<_, Error>>()?;
        let entries = self.entries(&indexes, &old_rows)?;
        large.write(self.asked().chain(entries.ops()).collect())
    }
}

/// Writes a batch as changes of the transaction of `slot`. If it fails, some of them may be written.
pub(super) fn write_rows_of(engine: &Engine, batch: &WriteBatch, slot: &mut Slot<'_>) -> Result<Done, Error> {
    let wanted = Wanted::of(batch);
    // Before anything is held.
    ensure_chunk_trees(engine, &wanted.of_trees)?;
    ensure_chunk_trees(engine, &wanted.row_ops)?;
    let indexes = wanted.enter(engine);
    // In their order; rows that need not be read are locked when they are written.
    let lock = |row: &RowChanges<'_>| match wanted.must_read(row) {
        true => {
            let rows = wanted.rows_of(row);
            let _gate = rows.enter(&engine.waits)?;
            lock_row(engine, slot, rows, row.key, Mode::Exclusive)
        }
        false => Ok(None),
    };
    let old_rows: OldRows = wanted.rows.iter().map(lock).collect::<Result<_, Error>>()?;
    let entries = wanted.entries(&indexes, &old_rows)?;
    let mut ops: Vec<Op<'_>> = wanted.asked().chain(entries.ops()).collect();
    write_ops(engine, &mut ops, slot)
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
        wanted.insert(engine)?
    } else {
        let is_large = is_large(engine, probable_redo(&wanted.of_trees) + probable_redo(&wanted.row_ops));
        let written = if is_large { None } else { wanted.expect_and_write(engine)? };
        match written {
            Some(done) => done,
            None => wanted.lock_and_write(engine)?,
        }
    };
    wait_durable(engine, done.end, durability)?;
    Ok(done)
}
