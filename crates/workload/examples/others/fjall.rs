//! fjall. Without its feature `lz4` it compresses nothing.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{AMPLE_BYTES, Engine, Key, Outcome, Reader, Row, RowLocks, Value, entry, is_row, push_rows};

struct Fjall {
    db: Database,
    rows: Keyspace,
    entries: Keyspace,
    locks: RowLocks,
}

pub(super) fn open(dir: &Path) -> Outcome<Box<dyn Engine>> {
    let db = Database::builder(dir).cache_size(AMPLE_BYTES).open()?;
    let rows = db.keyspace("rows", KeyspaceCreateOptions::default)?;
    let entries = db.keyspace("k", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { db, rows, entries, locks: RowLocks::new() }))
}

impl Fjall {
    /// Makes durable what is committed. fjall has no group commit: a sync holds the journal. A batch that syncs itself
    /// holds it from its write on, and is no faster; this way, other threads' commits come between.
    fn sync(&self) -> Outcome<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl Engine for Fjall {
    /// By fjall's ingestion of sorted rows, which syncs its files.
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Outcome<()> {
        let mut ingestion = self.rows.start_ingestion()?;
        let sorted = push_rows(rows, |key, value| Ok(ingestion.write(&key[..], &value[..])?))?;
        ingestion.finish()?;
        let mut ingestion = self.entries.start_ingestion()?;
        for entry in &sorted {
            ingestion.write(&entry[..], &[][..])?;
        }
        Ok(ingestion.finish()?)
    }

    fn update(&self, key: &Key, value: &Value) -> Outcome<()> {
        let row = self.locks.lock(key);
        let old = entry(key, &self.rows.get(key)?.ok_or("a row is gone")?)?;
        let mut batch = self.db.batch();
        batch.insert(&self.rows, &key[..], &value[..]);
        batch.remove(&self.entries, &old[..]);
        batch.insert(&self.entries, &entry(key, value)?[..], &[][..]);
        batch.commit()?;
        drop(row);
        self.sync()
    }

    fn insert_batch(&self, rows: &[Row]) -> Outcome<()> {
        let mut batch = self.db.batch();
        for (key, value) in rows {
            batch.insert(&self.rows, &key[..], &value[..]);
            batch.insert(&self.entries, &entry(key, value)?[..], &[][..]);
        }
        batch.commit()?;
        self.sync()
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.rows))
    }

    fn counts(&self) -> Outcome<(u64, u64)> {
        let count = |keyspace: &Keyspace| -> Outcome<u64> {
            let mut count = 0;
            for row in keyspace.iter() {
                row.key()?;
                count += 1;
            }
            Ok(count)
        };
        Ok((count(&self.rows)?, count(&self.entries)?))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.sync()
    }
}

impl Reader for &Keyspace {
    fn get(&mut self, key: &Key) -> Outcome<bool> {
        Ok(Keyspace::get(self, key)?.is_some_and(|value| is_row(key, &value)))
    }

    fn scan(&mut self, from: &Key, limit: usize) -> Outcome<usize> {
        let mut found = 0;
        for row in Keyspace::range::<&Key, _>(self, from..).take(limit) {
            let (key, value) = row.into_inner()?;
            found += usize::from(is_row(&key, &value));
        }
        Ok(found)
    }
}
