//! The order queue: tables of orders in which recent orders change, new ones come, and the oldest goes.
//!
//! A transaction, over one table:
//!
//! | statement | rows |
//! |---|---|
//! | 1 read by primary key | drawn |
//! | 2 updates of the status, which is indexed, and of amount and note, which are not | drawn |
//! | 1 insert | a new order |
//! | 1 delete | the oldest order that no other transaction has locked |
//!
//! So the number of rows stays the same. An order's number ascends, and its primary key is a pseudo-random function of
//! that ([`key_of`]). Rows are drawn by rank: rank 1 is the newest order, so recent orders are hot. A drawn order may be
//! gone already: then the statement counts as one that found no row, and the next rank is used.

mod client;
mod numbers;
mod order;

pub use client::Client;
pub use numbers::Numbers;
pub use order::{Order, key_of};

use crate::engine::TableNo;

/// The name of a table of orders.
pub fn orders_name(table: TableNo) -> String {
    format!("orders{}", table.get())
}
