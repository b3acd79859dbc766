//! How a batch that changes rows of tables becomes one that changes trees (ROWS-1, ROWS-2).

use std::ops::Range;
use std::sync::Arc;

use super::batch::{Change, Op, Place, WriteBatch};
use super::chunks::have_places;
use super::engine::Engine;
use super::options::Durability;
use super::row_changes::{EntryChanges, TableState};
use super::write::{Size, is_large, probable_redo, write, write_sized};
use super::write_parts::Large;
use crate::base::error::Error;

/// What rows were; `None` also for those that are not asked for.
type OldRows = Vec<Option<Vec<u8>>>;

/// The changes of one row, in the order in which they were added.
struct RowChanges<'a> {
    table: &'a Arc<TableState>,
    key: &'a [u8],
    ops: Range<usize>,
}

/// What a batch wants.
struct Wanted<'a> {
    of_trees: Vec<Op<'a>>,
    /// In the order of tables and keys.
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
        let mut rows: Vec<RowChanges<'_>> = Vec::new();
        for (at, (table, op)) in of_rows.iter().enumerate() {
            match rows.last_mut() {
                Some(row) if row.table.rows.space == table.rows.space && row.key == op.key => row.ops.end = at + 1,
                _ => rows.push(RowChanges { table, key: op.key, ops: at..at + 1 }),
            }
        }
        let row_ops = of_rows.into_iter().map(|(_, op)| op).collect();
        let has_expectations = batch.ops().any(|(_, op)| matches!(op.change, Change::Expect(_)));
        Wanted { of_trees, rows, row_ops, has_expectations }
    }

    fn ops_of(&self, row: &RowChanges<'_>) -> &[Op<'a>] {
        &self.row_ops[row.ops.clone()]
    }

    /// Whether what the row was decides on what becomes of the indexes. What is inserted was not there.
    fn must_read(&self, row: &RowChanges<'_>) -> bool {
        let first = self.ops_of(row).iter().find(|op| !matches!(op.change, Change::Expect(_)));
        first.is_some_and(|op| !matches!(op.change, Change::Insert(_)))
    }

    /// The changes of indexes' entries with rows that are `old_rows`.
    fn entries(&'a self, old_rows: &OldRows) -> Result<EntryChanges<'a>, Error> {
        let mut entries = EntryChanges::default();
        for (row, old) in self.rows.iter().zip(old_rows) {
            let last = self.ops_of(row).iter().rfind(|op| !matches!(op.change, Change::Expect(_)));
            entries.add(row.table, row.key, old.as_deref(), last.and_then(|op| op.change.value()))?;
        }
        Ok(entries)
    }
}

/// Writes a batch with rows of tables among what it changes.
pub(super) fn write_rows(engine: &Engine, batch: &WriteBatch, durability: Durability) -> Result<(), Error> {
    let wanted = Wanted::of(batch);
    let asked = || wanted.of_trees.iter().chain(&wanted.row_ops).copied();
    if !wanted.rows.iter().any(|row| wanted.must_read(row)) {
        let entries = wanted.entries(&vec![None; wanted.rows.len()])?;
        let mut ops: Vec<Op<'_>> = asked().chain(entries.ops()).collect();
        return write(engine, &mut ops, durability).map(drop);
    }
    let probable = probable_redo(&wanted.of_trees) + probable_redo(&wanted.row_ops);
    let mut before: Option<OldRows> = None;
    while !is_large(engine, probable) {
        let read = |row: &RowChanges<'_>| match wanted.must_read(row) {
            true => row.table.rows.get(engine, row.key),
            false => Ok(None),
        };
        let old_rows: OldRows = wanted.rows.iter().map(read).collect::<Result<_, _>>()?;
        let entries = wanted.entries(&old_rows)?;
        let mut ops = wanted.of_trees.clone();
        for (row, old) in wanted.rows.iter().zip(&old_rows) {
            let changes = wanted.ops_of(row);
            if wanted.must_read(row) {
                ops.push(Op { change: Change::Expect(old.as_deref()), ..changes[0] });
            }
            ops.extend_from_slice(changes);
        }
        ops.extend(entries.ops());
        match write_sized(engine, &mut ops, durability, Size::OneGroup) {
            // What the batch itself expects is no other when nobody has changed what was read.
            Err(Error::Conflict(_)) if !wanted.has_expectations || before.as_ref() != Some(&old_rows) => {
                drop(entries);
                before = Some(old_rows);
            }
            Ok(None) => break,
            done => return done.map(drop),
        }
    }
    // Too much for one group: to do all of it again whenever another writer was faster could take for ever.
    let ops: Vec<Op<'_>> = asked().collect();
    have_places(engine, &ops)?;
    let mut trees: Vec<&Arc<_>> = ops.iter().map(|op| op.tree).collect();
    trees.extend(wanted.rows.iter().flat_map(|row| row.table.trees()));
    trees.sort_unstable_by_key(|tree| tree.space);
    trees.dedup_by_key(|tree| tree.space);
    let mut large = Large::begin(engine, trees.into_iter())?;
    // All rows, in their order (WRITE-1), also those that are not to be read.
    let lock = |row: &RowChanges<'_>| {
        let old = large.lock_row(&row.table.rows, row.key)?;
        Ok(old.filter(|_| wanted.must_read(row)))
    };
    let old_rows: OldRows = wanted.rows.iter().map(lock).collect::<Result<_, Error>>()?;
    let entries = wanted.entries(&old_rows)?;
    large.write(asked().chain(entries.ops()).collect(), durability)
}
