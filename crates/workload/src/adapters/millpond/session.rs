//! One thread's statements.

use std::hint::black_box;

use ::millpond::{Db, Durability, Error as MillpondError, Tree, WriteBatch};

use crate::Error;
use crate::engine::{IdRange, KRange, Outcome, RangeSelect, Session, TableNo};
use crate::generators::row::{C_LEN, PAD_LEN, Row};

/// Bytes of `k` in a row and in an index entry's key.
pub(super) const K_LEN: usize = 4;

/// Bytes of an id.
const ID_LEN: usize = 8;

/// Bytes of a row's value.
const ROW_LEN: usize = K_LEN + C_LEN + PAD_LEN;

/// How long a load's batches may stay undurable. The load ends with a checkpoint.
const LOAD_DURABILITY: Durability = Durability::Background(100);

/// One thread's handles and buffers.
pub struct MillpondSession {
    db: Db,
    tables: Vec<TablePair>,
    /// The table of a session for `bulk_insert`.
    bulk: Option<Tree>,
    /// Most rows that one batch of `bulk_insert` may have, as far as is known.
    bulk_rows_max: u64,
    /// Texts that a statement selects.
    texts: Vec<[u8; C_LEN]>,
}

/// A table and its index, if it has one.
pub(super) struct TablePair {
    pub(super) rows: Tree,
    pub(super) index: Option<Tree>,
}

impl TablePair {
    /// Puts `new` in the place of the row `old`, and moves its index entry, if nobody was faster.
    fn replace(&self, db: &Db, id: u64, old: &[u8], new: &[u8; ROW_LEN]) -> Result<Outcome, Error> {
        let row_key = id.to_be_bytes();
        let (old_k, new_k) = (k_of(old), k_of(new));
        let mut batch = WriteBatch::new();
        batch.expect(&self.rows, &row_key, Some(old)).put(&self.rows, &row_key, new);
        if let Some(index) = self.index.as_ref().filter(|_| old_k != new_k) {
            batch.delete(index, &index_key(old_k, id)).insert(index, &index_key(new_k, id), &[]);
        }
        outcome(db.write(batch))
    }
}

impl MillpondSession {
    pub(super) fn of_tables(db: Db, tables: Vec<TablePair>) -> MillpondSession {
        MillpondSession { db, tables, bulk: None, bulk_rows_max: u64::MAX, texts: Vec::new() }
    }

    pub(super) fn of_bulk_table(db: Db, bulk: Tree) -> MillpondSession {
        MillpondSession { bulk: Some(bulk), ..MillpondSession::of_tables(db, Vec::new()) }
    }

    #[cfg(test)]
    pub(super) fn table(&self, table: TableNo) -> &TablePair {
        &self.tables[table.index()]
    }

    /// Changes a row by `change`, if it is there.
    fn update(&self, table: TableNo, id: u64, change: impl FnOnce(&mut [u8; ROW_LEN])) -> Result<Outcome, Error> {
        let pair = &self.tables[table.index()];
        let Some(old) = row(&pair.rows, table, id)? else { return Ok(Outcome::NoRow) };
        let mut new = [0; ROW_LEN];
        new.copy_from_slice(&old);
        change(&mut new);
        pair.replace(&self.db, id, &old, &new)
    }
}

impl Session for MillpondSession {
    fn select_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        let row = row(&self.tables[table.index()].rows, table, id)?;
        Ok(if row.is_some() { Outcome::Done } else { Outcome::NoRow })
    }

    fn select_range(&mut self, table: TableNo, ids: IdRange, select: RangeSelect) -> Result<u64, Error> {
        let (first, last) = (ids.first.to_be_bytes(), ids.last.to_be_bytes());
        let mut scan = self.tables[table.index()].rows.scan(&first[..]..=&last[..]);
        self.texts.clear();
        let (mut rows, mut sum) = (0, 0);
        while let Some((key, row)) = scan.next_row().map_err(Error::engine)? {
            let row: &[u8; ROW_LEN] = row.try_into().map_err(|_| malformed(table, id_of(key), row))?;
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
        // A client would be sent these: the work must be done though nobody looks.
        black_box((&self.texts, sum));
        Ok(rows)
    }

    fn select_points(&mut self, table: TableNo, ks: &[u32]) -> Result<u64, Error> {
        let TablePair { rows, index } = &self.tables[table.index()];
        let index = index.as_ref().ok_or(Error::NoIndex(table))?;
        let mut found = 0;
        for &k in ks {
            let (first, last) = (index_key(k, 0), index_key(k, u64::MAX));
            let mut entries = index.scan(&first[..]..=&last[..]);
            while let Some((entry, _)) = entries.next_row().map_err(Error::engine)? {
                let id = id_of(&entry[K_LEN..]);
                // The scan is no snapshot: by now the row may be gone, or have another `k`.
                if let Some(row) = row(rows, table, id)?.filter(|row| k_of(row) == k) {
                    black_box(&row);
                    found += 1;
                }
            }
        }
        Ok(found)
    }

    fn count_ranges(&mut self, table: TableNo, ranges: &[KRange]) -> Result<u64, Error> {
        let index = self.tables[table.index()].index.as_ref().ok_or(Error::NoIndex(table))?;
        let mut found = 0;
        for range in ranges {
            let (first, last) = (index_key(range.first, 0), index_key(range.last, u64::MAX));
            let mut entries = index.scan(&first[..]..=&last[..]);
            while entries.next_row().map_err(Error::engine)?.is_some() {
                found += 1;
            }
        }
        Ok(found)
    }

    fn increment_k(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        self.update(table, id, |row| {
            let new_k = k_of(row).wrapping_add(1);
            row[..K_LEN].copy_from_slice(&new_k.to_be_bytes());
        })
    }

    fn replace_c(&mut self, table: TableNo, id: u64, c: &[u8; C_LEN]) -> Result<Outcome, Error> {
        self.update(table, id, |row| row[K_LEN..K_LEN + C_LEN].copy_from_slice(c))
    }

    fn delete_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        let TablePair { rows, index } = &self.tables[table.index()];
        let row_key = id.to_be_bytes();
        let Some(old) = row(rows, table, id)? else { return Ok(Outcome::NoRow) };
        let mut batch = WriteBatch::new();
        batch.expect(rows, &row_key, Some(&old)).delete(rows, &row_key);
        if let Some(index) = index {
            batch.delete(index, &index_key(k_of(&old), id));
        }
        outcome(self.db.write(batch))
    }

    fn insert_row(&mut self, table: TableNo, row: &Row) -> Result<Outcome, Error> {
        let TablePair { rows, index } = &self.tables[table.index()];
        let mut batch = WriteBatch::new();
        batch.insert(rows, &row.id.to_be_bytes(), &row_value(row));
        if let Some(index) = index {
            batch.insert(index, &index_key(row.k, row.id), &[]);
        }
        outcome(self.db.write(batch))
    }

    fn insert_bulk(&mut self, ids: IdRange) -> Result<(), Error> {
        let Some(rows) = &self.bulk else {
            return Err(Error::Invalid("the session is not one of bulk_insert".to_owned()));
        };
        let mut next = ids.first;
        while next <= ids.last {
            let last = ids.last.min(next.saturating_add(self.bulk_rows_max - 1));
            let mut batch = WriteBatch::new();
            for id in next..=last {
                let k = u32::try_from(id).unwrap_or(u32::MAX);
                batch.insert(rows, &id.to_be_bytes(), &k.to_be_bytes());
            }
            match self.db.write(batch) {
                Ok(()) => next = last + 1,
                // A small pool or log bounds what one batch may change at once.
                Err(MillpondError::BatchTooLarge(..)) if last > next => self.bulk_rows_max = (last - next).div_ceil(2),
                Err(other) => return Err(Error::engine(other)),
            }
        }
        Ok(())
    }

    fn load_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<(), Error> {
        let pair = &self.tables[table.index()];
        let mut entries: Vec<[u8; K_LEN + ID_LEN]> = rows.iter().map(|row| index_key(row.k, row.id)).collect();
        entries.sort_unstable();
        let mut batch = WriteBatch::new();
        batch.durability(LOAD_DURABILITY);
        for row in rows {
            batch.insert(&pair.rows, &row.id.to_be_bytes(), &row_value(row));
        }
        for (index, entry) in pair.index.iter().flat_map(|index| entries.iter().map(move |entry| (index, entry))) {
            batch.insert(index, entry, &[]);
        }
        match self.db.write(batch) {
            // A small pool or log bounds what one batch may change at once.
            Err(MillpondError::BatchTooLarge(..)) if rows.len() > 1 => {
                let (first, second) = rows.split_at(rows.len() / 2);
                self.load_rows(table, first)?;
                self.load_rows(table, second)
            }
            written => written.map_err(Error::engine),
        }
    }
}

/// The row `id`, checked for its length.
fn row(rows: &Tree, table: TableNo, id: u64) -> Result<Option<Vec<u8>>, Error> {
    match rows.get(&id.to_be_bytes()).map_err(Error::engine)? {
        Some(row) if row.len() != ROW_LEN => Err(malformed(table, id, &row)),
        row => Ok(row),
    }
}

fn malformed(table: TableNo, id: u64, row: &[u8]) -> Error {
    Error::RowMalformed { table, id, length: row.len() }
}

/// What a statement came to; an error that is no answer stays one.
fn outcome(written: Result<(), MillpondError>) -> Result<Outcome, Error> {
    match written {
        Ok(()) => Ok(Outcome::Done),
        Err(MillpondError::Conflict(..)) => Ok(Outcome::Conflict),
        Err(MillpondError::KeyExists(..)) => Ok(Outcome::Exists),
        Err(other) => Err(Error::engine(other)),
    }
}

fn index_key(k: u32, id: u64) -> [u8; K_LEN + ID_LEN] {
    let mut key = [0; K_LEN + ID_LEN];
    key[..K_LEN].copy_from_slice(&k.to_be_bytes());
    key[K_LEN..].copy_from_slice(&id.to_be_bytes());
    key
}

fn row_value(row: &Row) -> [u8; ROW_LEN] {
    let mut value = [0; ROW_LEN];
    value[..K_LEN].copy_from_slice(&row.k.to_be_bytes());
    value[K_LEN..K_LEN + C_LEN].copy_from_slice(&row.c);
    value[K_LEN + C_LEN..].copy_from_slice(&row.pad);
    value
}

/// The `k` of a row, whose length was checked.
fn k_of(row: &[u8]) -> u32 {
    u32::from_be_bytes([row[0], row[1], row[2], row[3]])
}

/// The id in a key of 8 bytes.
fn id_of(key: &[u8]) -> u64 {
    key.iter().fold(0, |id, &byte| id << 8 | u64::from(byte))
}

/// The text of a row's column `c`.
fn c_of(row: &[u8; ROW_LEN]) -> [u8; C_LEN] {
    std::array::from_fn(|index| row[K_LEN + index])
}
