//! One thread's statements.

use std::hint::black_box;

use ::millpond::{Db, Durability, Error as MillpondError, Index, Modify, Table, Tree, WriteBatch};

use crate::Error;
use crate::engine::{IdRange, KRange, Outcome, RangeSelect, Session, TableNo};
use crate::generators::row::{C_LEN, PAD_LEN, Row};

/// The index on `k`.
pub(super) const K_INDEX: &str = "k";

/// Bytes of `k` in a row.
pub(super) const K_LEN: usize = 4;

/// Bytes of a row's value.
const ROW_LEN: usize = K_LEN + C_LEN + PAD_LEN;

/// How long a load's batches may stay undurable. The load ends with a checkpoint.
const LOAD_DURABILITY: Durability = Durability::Background(100);

/// One thread's handles and buffers.
pub struct MillpondSession {
    db: Db,
    tables: Vec<Table>,
    /// The table of a session for `bulk_insert`.
    bulk: Option<Tree>,
    /// Texts that a statement selects.
    texts: Vec<[u8; C_LEN]>,
}

impl MillpondSession {
    pub(super) fn of_tables(db: Db, tables: Vec<Table>) -> MillpondSession {
        MillpondSession { db, tables, bulk: None, texts: Vec::new() }
    }

    pub(super) fn of_bulk_table(db: Db, bulk: Tree) -> MillpondSession {
        MillpondSession { bulk: Some(bulk), ..MillpondSession::of_tables(db, Vec::new()) }
    }

    #[cfg(test)]
    pub(super) fn table(&self, table: TableNo) -> &Table {
        &self.tables[table.index()]
    }

    /// The table's index on `k`.
    fn index(&self, table: TableNo) -> Result<Index, Error> {
        self.tables[table.index()].index(K_INDEX).map_err(|_| Error::NoIndex(table))
    }

    /// Changes a row by `change`, if it is there.
    fn update(&self, table: TableNo, id: u64, change: impl Fn(&mut [u8])) -> Result<Outcome, Error> {
        let mut wrong = None;
        let changed = |old: &[u8]| {
            let mut new = old.to_vec();
            change(&mut new);
            new
        };
        let decide = |old: Option<&[u8]>| match old {
            None => Modify::Keep,
            Some(old) if old.len() == ROW_LEN => Modify::Put(changed(old)),
            Some(old) => {
                wrong = Some(malformed(table, id, old));
                Modify::Keep
            }
        };
        let was_there = self.tables[table.index()].modify(&id.to_be_bytes(), decide).map_err(Error::engine)?;
        match wrong {
            Some(error) => Err(error),
            None => Ok(if was_there { Outcome::Done } else { Outcome::NoRow }),
        }
    }
}

impl Session for MillpondSession {
    fn select_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        let row = row(&self.tables[table.index()], table, id)?;
        Ok(if row.is_some() { Outcome::Done } else { Outcome::NoRow })
    }

    fn select_range(&mut self, table: TableNo, ids: IdRange, select: RangeSelect) -> Result<u64, Error> {
        let (first, last) = (ids.first.to_be_bytes(), ids.last.to_be_bytes());
        let mut scan = self.tables[table.index()].scan(&first[..]..=&last[..]);
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
        let index = self.index(table)?;
        let mut found = 0;
        for &k in ks {
            let k = k.to_be_bytes();
            let mut rows = index.rows(&k[..]..=&k[..]);
            while let Some((key, row)) = rows.next_row().map_err(Error::engine)? {
                if row.len() != ROW_LEN {
                    return Err(malformed(table, id_of(key), row));
                }
                black_box(row);
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
        self.update(table, id, |row| {
            let new_k = k_of(row).wrapping_add(1);
            row[..K_LEN].copy_from_slice(&new_k.to_be_bytes());
        })
    }

    fn replace_c(&mut self, table: TableNo, id: u64, c: &[u8; C_LEN]) -> Result<Outcome, Error> {
        self.update(table, id, |row| row[K_LEN..K_LEN + C_LEN].copy_from_slice(c))
    }

    fn delete_row(&mut self, table: TableNo, id: u64) -> Result<Outcome, Error> {
        let was_there = self.tables[table.index()].delete(&id.to_be_bytes()).map_err(Error::engine)?;
        Ok(if was_there { Outcome::Done } else { Outcome::NoRow })
    }

    fn insert_row(&mut self, table: TableNo, row: &Row) -> Result<Outcome, Error> {
        match self.tables[table.index()].insert(&row.id.to_be_bytes(), &row_value(row)) {
            Ok(()) => Ok(Outcome::Done),
            Err(MillpondError::KeyExists(..)) => Ok(Outcome::Exists),
            Err(other) => Err(Error::engine(other)),
        }
    }

    fn insert_bulk(&mut self, ids: IdRange) -> Result<(), Error> {
        let Some(rows) = &self.bulk else {
            return Err(Error::Invalid("the session is not one of bulk_insert".to_owned()));
        };
        let mut batch = WriteBatch::new();
        for id in ids.first..=ids.last {
            let k = u32::try_from(id).unwrap_or(u32::MAX);
            batch.insert(rows, &id.to_be_bytes(), &k.to_be_bytes());
        }
        self.db.write(batch).map_err(Error::engine)
    }

    fn load_rows(&mut self, table: TableNo, rows: &[Row]) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.durability(LOAD_DURABILITY);
        for row in rows {
            batch.insert(&self.tables[table.index()], &row.id.to_be_bytes(), &row_value(row));
        }
        self.db.write(batch).map_err(Error::engine)
    }
}

/// The row `id`, checked for its length.
fn row(rows: &Table, table: TableNo, id: u64) -> Result<Option<Vec<u8>>, Error> {
    match rows.get(&id.to_be_bytes()).map_err(Error::engine)? {
        Some(row) if row.len() != ROW_LEN => Err(malformed(table, id, &row)),
        row => Ok(row),
    }
}

fn malformed(table: TableNo, id: u64, row: &[u8]) -> Error {
    Error::RowMalformed { table, id, length: row.len() }
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
