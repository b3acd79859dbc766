//! How a batch that changes rows of tables becomes one that changes trees (ROWS-1, ROWS-2).

use std::ops::Range;
use std::sync::Arc;

use super::batch::{Change, Op, Place, WriteBatch};
use super::engine::Engine;
use super::options::Durability;
use super::row_changes::{EntryChanges, TableState};
use super::write::write;
use crate::base::error::Error;

/// The changes of one row, in the order in which they were added.
struct RowChanges<'a> {
    table: &'a Arc<TableState>,
    key: &'a [u8],
    ops: Range<usize>,
}

impl RowChanges<'_> {
    /// Whether what the row was decides on what becomes of the indexes. What is inserted was not there.
    fn must_read(&self, ops: &[Op<'_>]) -> bool {
        let first = ops[self.ops.clone()].iter().find(|op| !matches!(op.change, Change::Expect(_)));
        first.is_some_and(|op| !matches!(op.change, Change::Insert(_)))
    }
}

/// Writes a batch with rows of tables among what it changes.
pub(super) fn write_rows(engine: &Engine, batch: &WriteBatch, durability: Durability) -> Result<(), Error> {
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
    let row_ops: Vec<Op<'_>> = of_rows.iter().map(|(_, op)| *op).collect();
    let has_expectations = batch.ops().any(|(_, op)| matches!(op.change, Change::Expect(_)));
    let mut before: Option<Vec<Option<Vec<u8>>>> = None;
    loop {
        let read = |row: &RowChanges<'_>| match row.must_read(&row_ops) {
            true => row.table.rows.get(engine, row.key),
            false => Ok(None),
        };
        let old_rows: Vec<Option<Vec<u8>>> = rows.iter().map(read).collect::<Result<_, _>>()?;
        let mut entries = EntryChanges::default();
        let mut ops = of_trees.clone();
        for (row, old) in rows.iter().zip(&old_rows) {
            let (old, changes) = (old.as_deref(), &row_ops[row.ops.clone()]);
            if row.must_read(&row_ops) {
                ops.push(Op { change: Change::Expect(old), ..changes[0] });
            }
            ops.extend_from_slice(changes);
            let last = changes.iter().rfind(|op| !matches!(op.change, Change::Expect(_)));
            entries.add(row.table, row.key, old, last.and_then(|op| op.change.value()))?;
        }
        ops.extend(entries.ops());
        match write(engine, &mut ops, durability) {
            // What the batch itself expects is no other when nobody has changed what was read.
            Err(Error::Conflict(_)) if !has_expectations || before.as_ref() != Some(&old_rows) => {
                before = Some(old_rows);
            }
            done => return done.map(drop),
        }
    }
}
