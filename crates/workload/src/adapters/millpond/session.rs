//! One thread's statements.

use std::hint::black_box;

use ::millpond::{Db, Durability, Index, OnConflict, Transaction, Tree, TxnOptions, WriteBatch};

use super::rows::{K_INDEX, K_LEN, Rows, c_of, id_of, inserted, k_of};
use crate::Error;
use crate::engine::{IdRange, KRange, Outcome, RangeSelect, Session, TableNo};
use crate::generators::row::{C_LEN, Row};

/// Batches of a load become durable within 100 ms. The load ends with a checkpoint.
pub(super) const LOAD_DURABILITY: Durability = Durability::Background(100);

/// One thread's handles and buffers.
pub struct MillpondSession {
    db: Db,
    tables: Vec<Rows>,
    /// The table of a `bulk_insert` session; `None` in other sessions.
    bulk: Option<Tree>,
    /// Texts that a statement selects.
    texts: Vec<[u8; C_LEN]>,
    /// The transaction that has begun.
    txn: Option<Transaction>,
}

/// sysbench's transactions run on InnoDB with its repeatable read, which changes the latest rows. They compute no value
/// from what they have read.
pub(super) fn options() -> TxnOptions {
    TxnOptions::new().on_conflict(OnConflict::Latest)
}

impl MillpondSession {
    pub(super) fn of_tables(db: Db, tables: Vec<Rows>) -> MillpondSession {
        MillpondSession { db, tables, bulk: None, texts: Vec::new(), txn: None }
    }

    pub(super) fn of_bulk_table(db: Db, bulk: Tree) -> MillpondSession {
        MillpondSession { bulk: Some(bulk), ..MillpondSession::of_tables(db, Vec::new()) }
    }

    #[cfg(test)]
    pub(super) fn table(&self, table: TableNo) -> &millpond::Table {
        &self.rows(table).table
    }

    fn rows(&self, table: TableNo) -> &Rows {
        &self.tables[table.index()]
    }

    /// The insertion of these rows.
    fn batch_of(&self, table: TableNo, rows: &[Row]) -> WriteBatch {
        let (mut batch, to) = (WriteBatch::new(), self.rows(table));
        for row in rows {
            // A hidden key equals the id, so the rows' order does not depend on which thread is faster.
            batch.insert(&to.table, row.id.to_be_bytes(), to.value(row));
        }
        batch
    }

    /// The table's index on `k`.
    fn index(&self, table: TableNo) -> Result<Index, Error> {
        self.rows(table).table.index(K_INDEX).map_err(|_| Error::NoIndex(table))
    }
}

impl Session for MillpondSession {
    fn begin(&mut self) -> Result<(), Error> {
        self.txn = Some(self.db.begin(options()).map_err(Error::engine)?);
        Ok(())
    }

    fn commit(&mut self) -> Result<Outcome, Error> {
        self.txn.take().map_or(Ok(()), |txn| txn.commit().map(drop)).map_err(Error::engine)?;
        Ok(Outcome::Done)
    }

    fn rollback(&mut self) -> Result<(), Error> {
        // A deadlock has rolled it back already.
        drop(self.txn.take());
        Ok(())
    }

    fn select_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        self.rows(table).get(id, self.txn.as_ref())
    }

    fn select_range(&mut self, table: TableNo, ids: IdRange, select: RangeSelect) -> Result<u64, Error> {
        let mut scan = self.tables[table.index()].range(ids, self.txn.as_ref())?;
        self.texts.clear();
        let (mut rows, mut sum) = (0, 0);
        while let Some(row) = scan.next_row()? {
            rows += 1;
            match select {
                RangeSelect::SumOfK => sum += u64::from(k_of(row)),
                RangeSelect::Rows | RangeSelect::Sorted | RangeSelect::SortedDistinct => {
                    self.texts.push(c_of(row));
                }
            }
        }
        match select {
            RangeSelect::Rows | RangeSelect::SumOfK => {}
            RangeSelect::Sorted => self.texts.sort_unstable(),
            RangeSelect::SortedDistinct => {
                self.texts.sort_unstable();
                self.texts.dedup();
            }
        }
        // A server would send these to a client, so the compiler must not drop the work.
        black_box((&self.texts, sum));
        Ok(rows)
    }

    fn select_points(&mut self, table: TableNo, ks: &[u32]) -> Result<u64, Error> {
        let index = self.index(table)?;
        let mut found = 0;
        for &k in ks {
            let k = k.to_be_bytes();
            let mut rows = index.rows(&k[..]..=&k[..]);
            while let Some((key, row)) = rows.next_row().map_err(Error::engine)? {
                black_box(self.rows(table).whole(id_of(key), row)?);
                found += 1;
            }
        }
        Ok(found)
    }

    fn count_ranges(&mut self, table: TableNo, ranges: &[KRange]) -> Result<u64, Error> {
        let index = self.index(table)?;
        let mut found = 0;
        for range in ranges {
            let (first, last) = (range.first.to_be_bytes(), range.last.to_be_bytes());
            let mut entries = index.scan(&first[..]..=&last[..]);
            while entries.next_entry().map_err(Error::engine)?.is_some() {
                found += 1;
            }
        }
        Ok(found)
    }

    fn increment_k(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        self.tables[table.index()].update(id, self.txn.as_mut(), |row| {
            let new_k = k_of(row).wrapping_add(1);
            row[..K_LEN].copy_from_slice(&new_k.to_be_bytes());
        })
    }

    fn replace_c(&mut self, table: TableNo, id: u64, c: &[u8; C_LEN]) -> Result<Outcome, Error> {
        let put = |row: &mut [u8]| row[K_LEN..K_LEN + C_LEN].copy_from_slice(c);
        self.tables[table.index()].update(id, self.txn.as_mut(), put)
    }

    fn delete_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        self.tables[table.index()].delete(id, self.txn.as_mut())
    }

    fn insert_row(&mut self, table: TableNo, row: &Row) -> Result<Outcome, Error> {
        self.tables[table.index()].insert(row, self.txn.as_mut())
    }

    fn insert_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<Outcome, Error> {
        inserted(self.db.write(self.batch_of(table, rows)).map(drop))
    }

    fn insert_bulk(&mut self, ids: IdRange) -> Result<(), Error> {
        let Some(rows) = &self.bulk else {
            return Err(Error::Invalid("the session is not one of bulk_insert".to_owned()));
        };
        let mut batch = WriteBatch::new();
        for id in ids.first..=ids.last {
            let k = u32::try_from(id).unwrap_or(u32::MAX);
            batch.insert(rows, id.to_be_bytes(), k.to_be_bytes());
        }
        self.db.write(batch).map(drop).map_err(Error::engine)
    }

    fn load_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<(), Error> {
        let mut batch = self.batch_of(table, rows);
        batch.durability(LOAD_DURABILITY);
        self.db.write(batch).map(drop).map_err(Error::engine)
    }
}
