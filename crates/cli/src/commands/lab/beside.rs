//! What goes on beside a load: one thing that users do, and that stalls others where an engine is not made for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millpond::{Db, Field, Table};
use serde::{Deserialize, Serialize};
use workload::engine::TableNo;

use crate::exit::Failure;

/// How long a reader that takes its time rests after some rows.
const REST: Duration = Duration::from_millis(2);

/// Rows after which it rests.
const ROWS_A_REST: usize = 1_000;

/// Something beside a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Beside {
    /// One scan over all rows of the first table, so many seconds after the load has begun, right behind a pass of who
    /// frees frames ahead of need.
    Scan { after_s: f64 },
    /// Scans of the first table that rest all the time, until the load ends.
    LongReader,
    /// The table behind `table` is dropped; an index on `k` of `table` is dropped and made again; then it is dropped,
    /// too.
    Ddl { after_s: f64, table: u32 },
}

/// When it was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// So many seconds after the load began.
    pub(super) from_s: f64,
    /// How long it took.
    pub(super) ms: f64,
}

/// Does it.
pub(super) fn run(what: &Beside, db: &Db, is_over: &AtomicBool) -> Result<Done, Failure> {
    let load_began = Instant::now();
    let wait = |after_s: f64| {
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < after_s && !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        Instant::now()
    };
    let began = match what {
        Beside::Scan { after_s } => {
            let table = open(db, 1)?;
            wait(*after_s);
            let began = behind_a_pass(db);
            for row in table.scan(..) {
                row?;
            }
            began
        }
        Beside::LongReader => {
            let table = open(db, 1)?;
            let began = Instant::now();
            let mut rows = 0;
            while !is_over.load(Ordering::Relaxed) {
                rows += read_slowly(&table, is_over)?;
            }
            if rows == 0 {
                return Err(Failure::message("the reader beside the load has read no row"));
            }
            began
        }
        Beside::Ddl { after_s, table } => {
            let name = named(*table);
            let opened = db.open_table(&name)?;
            let began = wait(*after_s);
            db.drop_table(&named(*table + 1))?;
            opened.drop_index("k")?;
            opened.create_index("k", [Field::value(0..4)])?;
            drop(opened);
            db.drop_table(&name)?;
            began
        }
    };
    let from_s = began.duration_since(load_began).as_secs_f64();
    Ok(Done { from_s, ms: began.elapsed().as_secs_f64() * 1e3 })
}

/// Waits until whoever frees frames ahead of need has just done so, if anybody does within two seconds: what comes then
/// finds the list full, and a thread that has all of its sleep before it.
fn behind_a_pass(db: &Db) -> Instant {
    let passes = || db.stats().buffer_lru_batch_num_scan;
    let (before, from) = (passes(), Instant::now());
    while passes() == before && from.elapsed() < Duration::from_secs(2) {
        thread::sleep(Duration::from_millis(1));
    }
    Instant::now()
}

/// One pass over the rows, with a rest after each few; returns how many there were.
fn read_slowly(table: &Table, is_over: &AtomicBool) -> Result<usize, Failure> {
    let mut rows = 0;
    for (at, row) in table.scan(..).enumerate() {
        row?;
        rows += 1;
        if at % ROWS_A_REST == 0 {
            thread::sleep(REST);
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(rows)
}

fn named(table: u32) -> String {
    TableNo::from_index(table - 1).to_string()
}

fn open(db: &Db, table: u32) -> Result<Table, Failure> {
    Ok(db.open_table(&named(table))?)
}
