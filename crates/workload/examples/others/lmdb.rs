//! LMDB, by the crate `heed`. Commits are durable by default: data and meta page are synced.

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, PutFlags, RoTxn, WithTls};

use super::{Engine, Key, Outcome, Reader, Row, Value, entry, is_row, push_rows, sorted_entries};

/// Bytes of the map: address space only, as the file grows with the data.
const MAP_BYTES: usize = 1 << 40;

type Tree = Database<'static, Bytes, Bytes>;

struct Lmdb {
    env: Env,
    rows: Tree,
    entries: Tree,
}

/// There is no cache to size: LMDB reads through its map, from the system's page cache.
pub(super) fn open(dir: &Path) -> Outcome<Box<dyn Engine>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(2);
    // SAFETY: the directory is this program's own: no other process changes the file that is mapped.
    let env = unsafe { options.open(dir)? };
    let opened = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let rows = opener.create_database(txn, Some("rows"))?;
        let entries = opener.create_database(txn, Some("k"))?;
        heed::Result::Ok(CommitOrAbort::<_, ()>::Commit((rows, entries)))
    })?;
    let (rows, entries) = opened.commit().ok_or("the databases were not created")?;
    Ok(Box::new(Lmdb { env, rows, entries }))
}

impl Engine for Lmdb {
    /// One transaction.
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Outcome<()> {
        let mut txn = self.env.write_txn()?;
        let entries =
            push_rows(rows, |key, value| Ok(self.rows.put_with_flags(&mut txn, PutFlags::APPEND, key, value)?))?;
        for entry in &entries {
            self.entries.put_with_flags(&mut txn, PutFlags::APPEND, entry, &[])?;
        }
        Ok(txn.commit()?)
    }

    fn update(&self, key: &Key, value: &Value) -> Outcome<()> {
        let mut txn = self.env.write_txn()?;
        let old = entry(key, self.rows.get(&txn, key)?.ok_or("a row is gone")?)?;
        self.rows.put(&mut txn, key, value)?;
        self.entries.delete(&mut txn, &old)?;
        self.entries.put(&mut txn, &entry(key, value)?, &[])?;
        Ok(txn.commit()?)
    }

    /// In the order of keys, as the trees are.
    fn insert_batch(&self, rows: &[Row]) -> Outcome<()> {
        let mut txn = self.env.write_txn()?;
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        for (key, value) in sorted {
            self.rows.put(&mut txn, key, value)?;
        }
        for entry in sorted_entries(rows)? {
            self.entries.put(&mut txn, &entry, &[])?;
        }
        Ok(txn.commit()?)
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(ReadTxn { txn: self.env.read_txn()?, rows: self.rows }))
    }

    fn counts(&self) -> Outcome<(u64, u64)> {
        let txn = self.env.read_txn()?;
        let count = |tree: &Tree| -> Outcome<u64> {
            let mut count = 0;
            for row in tree.iter(&txn)? {
                row?;
                count += 1;
            }
            Ok(count)
        };
        Ok((count(&self.rows)?, count(&self.entries)?))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

/// A thread's transaction for all its reads.
struct ReadTxn<'e> {
    txn: RoTxn<'e, WithTls>,
    rows: Tree,
}

impl Reader for ReadTxn<'_> {
    fn get(&mut self, key: &Key) -> Outcome<bool> {
        Ok(self.rows.get(&self.txn, key)?.is_some_and(|value| is_row(key, value)))
    }

    fn scan(&mut self, from: &Key, limit: usize) -> Outcome<usize> {
        let (mut found, range) = (0, (Bound::Included(&from[..]), Bound::Unbounded));
        for row in self.rows.range(&self.txn, &range)?.take(limit) {
            let (key, value) = row?;
            found += usize::from(is_row(key, value));
        }
        Ok(found)
    }
}
