//! The insert benchmark: tables that grow at one end and shrink at the other, with random access to their indexes.
//!
//! Tokutek designed it; the steps here are those of Mark Callaghan's iibench. Each client has a table of its own with
//! the columns transactionid (the primary key, ascending), dateandtime, cashregisterid, customerid, productid, price
//! and data, and three non-unique indexes.
//!
//! | step | what each client does |
//! |---|---|
//! | `l.i0` | inserts rows in the order of the primary key, many in a transaction; there are no indexes yet |
//! | `l.x` | creates the three indexes, one after the other |
//! | `l.i1` | inserts rows and deletes as many of the oldest in one transaction, as fast as possible |
//! | `l.i2` | the same with fewer rows in a transaction |
//! | `qr100` | reads some entries of an index from a random place on, as fast as possible; a second thread inserts and deletes 100 rows a second |
//! | `qp100` | reads some rows by random primary keys, beside the same second thread |
//!
//! The `q` steps also accept any other rate.

mod client;
mod purchase;
mod step;

pub use client::{Indexer, Loader, Reader, Span, Writer};
pub use purchase::{Domains, Purchase};
pub use step::{Queries, Step};

use crate::engine::TableNo;

/// The name of a client's table.
pub fn purchases_name(table: TableNo) -> String {
    format!("purchases{}", table.get())
}
