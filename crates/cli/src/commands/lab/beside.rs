//! An activity beside a load: something that users do, and that stalls other clients of an engine not made for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millpond::{Db, Field, Table};
use serde::{Deserialize, Serialize};
use workload::engine::TableNo;

use crate::exit::Failure;

/// Rest of the long reader after [`ROWS_A_REST`] rows.
const REST: Duration = Duration::from_millis(2);

/// Number of rows after which the long reader rests.
const ROWS_A_REST: usize = 1_000;

/// An activity beside a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Beside {
    /// One scan over all rows of the first table, `after_s` seconds after the load began, right after a pass of the
    /// thread that frees frames ahead of need.
    Scan { after_s: f64 },
    /// Scans of the first table with many rests, until the load ends.
    LongReader,
    /// Drops the table after `table`, drops the index on `k` of `table` and creates it again, then drops `table`.
    Ddl { after_s: f64, table: u32 },
}

/// Time of the activity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// Begin, in seconds after the begin of the load.
    pub(super) from_s: f64,
    /// Duration, in ms.
    pub(super) ms: f64,
}

/// Runs the activity.
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

/// Waits, for up to two seconds, for the end of a pass of the thread that frees frames ahead of need. The scan that
/// follows finds the free list full, and that thread at the begin of its sleep.
fn behind_a_pass(db: &Db) -> Instant {
    let passes = || db.stats().buffer_lru_batch_num_scan;
    let (before, from) = (passes(), Instant::now());
    while passes() == before && from.elapsed() < Duration::from_secs(2) {
        thread::sleep(Duration::from_millis(1));
    }
    Instant::now()
}

/// One pass over the rows with a rest after every [`ROWS_A_REST`]; returns the number of rows read.
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
