//! The tables of the insert benchmark.
//!
//! | bytes of a value | column |
//! |---|---|
//! | 0 to 7 | dateandtime, milliseconds since 1970 |
//! | 8 to 11 | cashregisterid |
//! | 12 to 15 | customerid |
//! | 16 to 19 | productid |
//! | 20 to 23 | price |
//! | 24 to the end | data |
//!
//! Numbers are big-endian, so that bytes sort like numbers. The key is the transaction's id.

use std::hint::black_box;

use ::millpond::{Db, Error as MillpondError, Field, Table, TableDefinition, WriteBatch};

use super::session::LOAD_DURABILITY;
use super::verified::{Entries, verified};
use super::{Millpond, first_number};
use crate::Error;
use crate::engine::purchases::{PurchaseEngine, PurchaseIndex, PurchaseLoad, PurchaseSession, PurchaseState};
use crate::engine::{IdRange, Outcome, TableNo, Verified};
use crate::generators::insert_benchmark::{Purchase, purchases_name};

/// Bytes of the indexed columns in a row's value.
const DATE: std::ops::Range<usize> = 0..8;
const CASH_REGISTER: std::ops::Range<usize> = 8..12;
const CUSTOMER: std::ops::Range<usize> = 12..16;
const PRICE: std::ops::Range<usize> = 20..24;

/// The columns of an index, in order.
fn columns(index: PurchaseIndex) -> &'static [std::ops::Range<usize>] {
    match index {
        PurchaseIndex::Market => &[PRICE, CUSTOMER],
        PurchaseIndex::Register => &[CASH_REGISTER, PRICE, CUSTOMER],
        PurchaseIndex::PriceDate => &[PRICE, DATE, CUSTOMER],
    }
}

fn fields(index: PurchaseIndex) -> impl Iterator<Item = Field> {
    columns(index).iter().cloned().map(Field::value)
}

/// Whether a table is one of the insert benchmark's, by its name.
pub(super) fn is_purchases(name: &str) -> bool {
    name.strip_prefix("purchases").is_some_and(|number| number.parse::<u32>().is_ok())
}

impl Millpond {
    fn open_purchases(&self, table: TableNo) -> Result<Table, Error> {
        let name = purchases_name(table);
        self.db.open_table(&name).map_err(|error| match error {
            MillpondError::TreeNotFound(..) => Error::NoPurchases(name),
            other => Error::engine(other),
        })
    }
}

impl PurchaseEngine for Millpond {
    type Purchases<'e> = MillpondPurchases;

    fn purchase_table(&self, table: TableNo) -> Result<PurchaseState, Error> {
        let name = purchases_name(table);
        let note = match self.meta()? {
            Some(meta) => meta.get(name.as_bytes()).map_err(Error::engine)?,
            None => None,
        };
        if let Some((rows, data_len)) = note.as_deref().and_then(<[u8]>::split_first_chunk)
            && let Ok(data_len) = data_len.try_into()
        {
            let (rows, data_len) = (u64::from_be_bytes(*rows), u32::from_be_bytes(data_len));
            return Ok(PurchaseState::Loaded(PurchaseLoad { rows, data_len }));
        }
        let is_there = self.db.tables().map_err(Error::engine)?.contains(&name);
        Ok(if is_there { PurchaseState::HalfLoaded } else { PurchaseState::Missing })
    }

    fn create_purchases(&self, table: TableNo) -> Result<(), Error> {
        self.make_meta()?;
        self.db.create_table(&purchases_name(table), TableDefinition::new()).map(drop).map_err(Error::engine)
    }

    fn missing_indexes(&self, table: TableNo) -> Result<Vec<PurchaseIndex>, Error> {
        let table = self.open_purchases(table)?;
        Ok(PurchaseIndex::ALL.into_iter().filter(|index| table.index(index.name()).is_err()).collect())
    }

    fn finish_purchases(&self, table: TableNo, load: PurchaseLoad) -> Result<(), Error> {
        let note = [&load.rows.to_be_bytes()[..], &load.data_len.to_be_bytes()].concat();
        self.db.checkpoint().map_err(Error::engine)?;
        self.make_meta()?.put(purchases_name(table).as_bytes(), &note).map_err(Error::engine)
    }

    fn drop_purchases(&self, table: TableNo) -> Result<bool, Error> {
        self.drop_named(&purchases_name(table))
    }

    fn purchases(&self, table: TableNo) -> Result<MillpondPurchases, Error> {
        let rows = self.open_purchases(table)?;
        // A missing index is an error only when a session reads that index.
        let indexes = PurchaseIndex::ALL.map(|index| rows.index(index.name()).ok());
        Ok(MillpondPurchases { db: self.db.clone(), number: table, table: rows, indexes, value: Vec::new() })
    }

    fn verify_purchases(&self, table: TableNo) -> Result<Verified, Error> {
        let rows = self.open_purchases(table)?;
        let entries = |index: PurchaseIndex| Entries {
            name: index.name(),
            columns: columns(index),
            of: rows.index(index.name()).ok(),
        };
        verified(&purchases_name(table), &rows, &PurchaseIndex::ALL.map(entries))
    }
}

/// One thread's access to a table of the insert benchmark.
pub struct MillpondPurchases {
    db: Db,
    number: TableNo,
    table: Table,
    /// In the order of [`PurchaseIndex::ALL`].
    indexes: [Option<::millpond::Index>; PurchaseIndex::ALL.len()],
    /// A row's value.
    value: Vec<u8>,
}

impl MillpondPurchases {
    /// Adds rows to a batch.
    fn insert(&mut self, batch: &mut WriteBatch, rows: &[Purchase]) {
        for row in rows {
            self.value.clear();
            self.value.extend_from_slice(&row.date_ms.to_be_bytes());
            for column in [row.cash_register, row.customer, row.product, row.price] {
                self.value.extend_from_slice(&column.to_be_bytes());
            }
            self.value.extend_from_slice(&row.data);
            batch.insert(&self.table, row.id.to_be_bytes(), &self.value);
        }
    }
}

impl PurchaseSession for MillpondPurchases {
    fn ids(&mut self) -> Result<Option<IdRange>, Error> {
        let (first, last) = (first_number(self.table.scan(..))?, first_number(self.table.scan(..).rev())?);
        Ok((last > 0).then_some(IdRange { first, last }))
    }

    fn load(&mut self, rows: &[Purchase]) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.durability(LOAD_DURABILITY);
        self.insert(&mut batch, rows);
        self.db.write(batch).map(drop).map_err(Error::engine)
    }

    fn create_index(&mut self, index: PurchaseIndex) -> Result<(), Error> {
        self.table.create_index(index.name(), fields(index)).map(drop).map_err(Error::engine)
    }

    fn turn_over(&mut self, rows: &[Purchase], oldest: IdRange) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        self.insert(&mut batch, rows);
        for id in oldest.first..=oldest.last {
            batch.delete(&self.table, id.to_be_bytes());
        }
        self.db.write(batch).map(drop).map_err(Error::engine)
    }

    fn select_purchase(&mut self, id: u64) -> Result<Outcome, Error> {
        let row = self.table.get(id.to_be_bytes()).map_err(Error::engine)?;
        // A server would send the row to a client, so the compiler must not drop the work.
        Ok(if black_box(row).is_some() { Outcome::Done } else { Outcome::NoRow })
    }

    fn scan_entries(&mut self, index: PurchaseIndex, from: u32, rows: usize) -> Result<usize, Error> {
        let Some(entries) = &self.indexes[index as usize] else {
            return Err(Error::NoPurchaseIndex { table: purchases_name(self.number), index: index.name() });
        };
        let from = from.to_be_bytes();
        let mut entries = entries.scan(&from[..]..);
        let mut found = 0;
        while found < rows && black_box(entries.next_entry().map_err(Error::engine)?).is_some() {
            found += 1;
        }
        Ok(found)
    }
}
