//! redb. Commits have the default durability, `Immediate`.

use std::ops::Bound;
use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{AMPLE_BYTES, Engine, Key, Outcome, Reader, Row, Value, entry, is_row, push_rows, sorted_entries};
use crate::common::VALUE;

// Keys and values of fixed width: their pages hold no offsets.
const ROWS: TableDefinition<'_, &[u8; 8], &[u8; VALUE]> = TableDefinition::new("rows");
const ENTRIES: TableDefinition<'_, &[u8; 12], ()> = TableDefinition::new("k");

type ReadOnlyRows = redb::ReadOnlyTable<&'static [u8; 8], &'static [u8; VALUE]>;

struct Redb(Database);

pub(super) fn open(dir: &Path) -> Outcome<Box<dyn Engine>> {
    let cache = usize::try_from(AMPLE_BYTES)?;
    Ok(Box::new(Redb(Database::builder().set_cache_size(cache).create(dir.join("redb"))?)))
}

impl Redb {
    fn write(&self, change: impl FnOnce(&WriteTransaction) -> Outcome<()>) -> Outcome<()> {
        let mut txn = self.0.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        change(&txn)?;
        Ok(txn.commit()?)
    }
}

impl Engine for Redb {
    /// One transaction, with the cursors that redb has for sorted rows.
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Outcome<()> {
        self.write(|txn| {
            let mut table = txn.open_table(ROWS)?;
            let mut cursor = table.upper_bound_mut(Bound::<&Key>::Unbounded)?;
            let sorted = push_rows(rows, |key, value| Ok(cursor.insert_before(key, value)?))?;
            cursor.close()?;
            let mut entries = txn.open_table(ENTRIES)?;
            let mut cursor = entries.upper_bound_mut(Bound::<&[u8; 12]>::Unbounded)?;
            for entry in &sorted {
                cursor.insert_before(entry, ())?;
            }
            Ok(cursor.close()?)
        })
    }

    fn update(&self, key: &Key, value: &Value) -> Outcome<()> {
        self.write(|txn| {
            let mut table = txn.open_table(ROWS)?;
            let old = entry(key, table.insert(key, value)?.ok_or("a row is gone")?.value())?;
            let mut entries = txn.open_table(ENTRIES)?;
            entries.remove(&old)?;
            entries.insert(&entry(key, value)?, ())?;
            Ok(())
        })
    }

    /// In the order of keys, as the trees are.
    fn insert_batch(&self, rows: &[Row]) -> Outcome<()> {
        self.write(|txn| {
            let (mut table, mut entries) = (txn.open_table(ROWS)?, txn.open_table(ENTRIES)?);
            let mut sorted: Vec<&Row> = rows.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                table.insert(key, value)?;
            }
            for entry in &sorted_entries(rows)? {
                entries.insert(entry, ())?;
            }
            Ok(())
        })
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        // The table keeps its transaction open.
        Ok(Box::new(self.0.begin_read()?.open_table(ROWS)?))
    }

    fn counts(&self) -> Outcome<(u64, u64)> {
        let txn = self.0.begin_read()?;
        let (mut rows, mut entries) = (0, 0);
        for row in txn.open_table(ROWS)?.iter()? {
            row?;
            rows += 1;
        }
        for entry in txn.open_table(ENTRIES)?.iter()? {
            entry?;
            entries += 1;
        }
        Ok((rows, entries))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(self.0.close()?)
    }
}

impl Reader for ReadOnlyRows {
    fn get(&mut self, key: &Key) -> Outcome<bool> {
        Ok(ReadOnlyRows::get(self, key)?.is_some_and(|value| is_row(key, value.value())))
    }

    fn scan(&mut self, from: &Key, limit: usize) -> Outcome<usize> {
        let mut found = 0;
        for row in ReadOnlyRows::range::<&Key>(self, from..)?.take(limit) {
            let (key, value) = row?;
            found += usize::from(is_row(key.value(), value.value()));
        }
        Ok(found)
    }
}
