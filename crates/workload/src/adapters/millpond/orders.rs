//! The tables of the order queue.
//!
//! | bytes of a value | column |
//! |---|---|
//! | 0 to 7 | created: the order's number |
//! | 8 to 11 | customer |
//! | 12 to 15 | product |
//! | 16 to 19 | status |
//! | 20 to 23 | amount |
//! | 24 to 143 | note |
//! | 144 to 183 | address |
//!
//! Numbers are big-endian, so that bytes sort like numbers. The key is a pseudo-random function of the order's number.
//! Key and value together have 200 bytes.
//!
//! | index | columns |
//! |---|---|
//! | `created`, unique | created |
//! | `customer` | customer, created |
//! | `status` | status, product |

use std::hint::black_box;
use std::ops::Range;

use ::millpond::{Cursor, Db, Field, Index, Modify, ReadMode, Table, TableDefinition, Transaction, WriteBatch};

use super::rows::{conflict, found, inserted};
use super::session::{LOAD_DURABILITY, options};
use super::verified::{Entries, verified};
use super::{Millpond, first_number};
use crate::Error;
use crate::engine::orders::{OrderEngine, OrderSession, OrderTransaction};
use crate::engine::{IdRange, Outcome, TableNo, TableState, Verified};
use crate::generators::orders::{Order, key_of, orders_name};
use crate::generators::row::C_LEN;

/// Bytes of the columns in a row's value; those of the address are the last ones.
const CREATED: Range<usize> = 0..8;
const CUSTOMER: Range<usize> = 8..12;
const PRODUCT: Range<usize> = 12..16;
const STATUS: Range<usize> = 16..20;
const AMOUNT: Range<usize> = 20..24;
const NOTE: Range<usize> = 24..24 + C_LEN;

/// Bytes of a row's value.
const VALUE_LEN: usize = Order::LEN - Order::KEY_LEN;

/// The index on the order's number.
const CREATED_INDEX: &str = "created";

/// The other indexes, with their columns.
const INDEXES: [(&str, &[Range<usize>]); 2] = [("customer", &[CUSTOMER, CREATED]), ("status", &[STATUS, PRODUCT])];

fn definition() -> TableDefinition {
    let created = TableDefinition::new().unique(CREATED_INDEX, [Field::value(CREATED)]);
    INDEXES
        .iter()
        .fold(created, |definition, (name, columns)| definition.index(name, columns.iter().cloned().map(Field::value)))
}

/// The value of an order.
fn value(order: &Order) -> Vec<u8> {
    let mut value = Vec::with_capacity(VALUE_LEN);
    value.extend_from_slice(&order.number.to_be_bytes());
    for column in [order.customer, order.product, order.status, order.amount] {
        value.extend_from_slice(&column.to_be_bytes());
    }
    value.extend_from_slice(&order.note);
    value.extend_from_slice(&order.address);
    value
}

/// Replaces a column of 4 bytes, of a row whose length was checked.
fn change(row: &mut [u8], column: Range<usize>, change: impl Fn(u32) -> u32) {
    if let Ok(number) = <&mut [u8; 4]>::try_from(&mut row[column]) {
        *number = change(u32::from_be_bytes(*number)).to_be_bytes();
    }
}

/// Whether a table is one of the order queue's, by its name.
pub(super) fn is_orders(name: &str) -> bool {
    name.strip_prefix("orders").is_some_and(|number| number.parse::<u32>().is_ok())
}

impl Millpond {
    fn open_orders(&self, number: TableNo) -> Result<Orders, Error> {
        let table = self.open_named(orders_name(number))?;
        let created = table.index(CREATED_INDEX).map_err(Error::engine)?;
        Ok(Orders { table, created })
    }
}

impl OrderEngine for Millpond {
    type Orders<'e> = MillpondOrders;

    fn order_table(&self, table: TableNo) -> Result<TableState, Error> {
        self.state_of(&orders_name(table))
    }

    fn create_orders(&self, table: TableNo) -> Result<(), Error> {
        self.make_meta()?;
        self.db.create_table(&orders_name(table), definition()).map(drop).map_err(Error::engine)
    }

    fn finish_orders(&self, table: TableNo, rows: u64) -> Result<(), Error> {
        self.db.checkpoint().map_err(Error::engine)?;
        self.make_meta()?.put(orders_name(table).as_bytes(), rows.to_be_bytes()).map_err(Error::engine)
    }

    fn drop_orders(&self, table: TableNo) -> Result<bool, Error> {
        self.drop_named(&orders_name(table))
    }

    fn orders(&self, tables: u32) -> Result<MillpondOrders, Error> {
        let tables = TableNo::first(tables).map(|number| self.open_orders(number)).collect::<Result<_, Error>>()?;
        Ok(MillpondOrders { db: self.db.clone(), tables })
    }

    fn verify_orders(&self, table: TableNo) -> Result<Verified, Error> {
        let Orders { table: rows, created, .. } = self.open_orders(table)?;
        let mut indexes = vec![Entries { name: CREATED_INDEX, columns: &[CREATED], of: Some(created) }];
        for (name, columns) in INDEXES {
            indexes.push(Entries { name, columns, of: Some(rows.index(name).map_err(Error::engine)?) });
        }
        verified(&orders_name(table), &rows, &indexes)
    }
}

/// A table of orders.
struct Orders {
    table: Table,
    /// The index on the order's number.
    created: Index,
}

/// One thread's access to the tables of the order queue.
pub struct MillpondOrders {
    db: Db,
    tables: Vec<Orders>,
}

impl OrderSession for MillpondOrders {
    type Transaction<'s> = MillpondOrderTransaction<'s>;

    fn numbers(&mut self, table: TableNo) -> Result<Option<IdRange>, Error> {
        let created = &self.tables[table.index()].created;
        let (first, last) = (first_number(created.scan(..))?, first_number(created.scan(..).rev())?);
        Ok((last > 0).then_some(IdRange { first, last }))
    }

    fn load(&mut self, table: TableNo, orders: &[Order]) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        batch.durability(LOAD_DURABILITY);
        for order in orders {
            batch.insert(&self.tables[table.index()].table, key_of(table, order.number), value(order));
        }
        self.db.write(batch).map(drop).map_err(Error::engine)
    }

    fn begin(&mut self) -> Result<MillpondOrderTransaction<'_>, Error> {
        let txn = self.db.begin(options()).map_err(Error::engine)?;
        Ok(MillpondOrderTransaction { tables: &self.tables, txn })
    }
}

/// A transaction over the tables of the order queue.
pub struct MillpondOrderTransaction<'s> {
    tables: &'s [Orders],
    txn: Transaction,
}

impl MillpondOrderTransaction<'_> {
    /// A cursor through the orders from a number on.
    fn from(&self, table: TableNo, from: u64) -> Cursor {
        Cursor::through(&self.tables[table.index()].created, &from.to_be_bytes()[..]..)
    }
}

impl OrderTransaction for MillpondOrderTransaction<'_> {
    fn select_order(&mut self, table: TableNo, number: u64) -> Result<Outcome, Error> {
        let row = self.txn.get(&self.tables[table.index()].table, key_of(table, number));
        // A server would send the row to a client, so the compiler must not drop the work.
        found(row.map(|row| black_box(row).is_some()))
    }

    fn change_order(&mut self, table: TableNo, number: u64, note: &[u8; C_LEN]) -> Result<Outcome, Error> {
        let Orders { table: rows, .. } = &self.tables[table.index()];
        let mut wrong = None;
        let was_there = self.txn.modify(rows, key_of(table, number), |old| {
            let Some(old) = old else { return Modify::Keep };
            if old.len() != VALUE_LEN {
                wrong = Some(old.len());
                return Modify::Keep;
            }
            let mut new = old.to_vec();
            change(&mut new, STATUS, Order::next_status);
            change(&mut new, AMOUNT, |cents| cents.wrapping_add(1));
            new[NOTE].copy_from_slice(note);
            Modify::Put(new)
        });
        match wrong {
            None => found(was_there),
            Some(length) => {
                Err(Error::RowMalformed { table: orders_name(table), id: number, length, wanted: VALUE_LEN })
            }
        }
    }

    fn insert_order(&mut self, table: TableNo, order: &Order) -> Result<Outcome, Error> {
        let rows = &self.tables[table.index()].table;
        inserted(self.txn.insert(rows, key_of(table, order.number), value(order)))
    }

    fn first_order(&mut self, table: TableNo, from: u64) -> Result<Option<u64>, Error> {
        let mut cursor = self.from(table, from);
        let first = cursor.next(&mut self.txn, ReadMode::newest()).map_err(Error::engine)?;
        Ok(first.and_then(|(_, row)| row.first_chunk()).copied().map(u64::from_be_bytes))
    }

    fn delete_first(&mut self, table: TableNo, from: u64) -> Result<Outcome, Error> {
        let mut cursor = self.from(table, from);
        match cursor.next(&mut self.txn, ReadMode::exclusive().skip_locked()) {
            Ok(None) => Ok(Outcome::NoRow),
            Ok(Some((key, _))) => found(self.txn.delete(&self.tables[table.index()].table, key)),
            Err(error) => conflict(error),
        }
    }

    fn commit(self) -> Result<(), Error> {
        self.txn.commit().map(drop).map_err(Error::engine)
    }
}
