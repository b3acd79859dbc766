//! sysbench's OLTP transactions, one statement each.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use rand::RngExt;

use super::row::Row;
use crate::Error;
use crate::engine::{Engine, Outcome, Session, TableNo, TableState};
use crate::keys::{Keys, RandType, Random};

/// Most tables that one run may have; more are a slip of the keyboard.
const TABLES_MAX: u32 = 10_000;

/// A workload, by sysbench's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// `SELECT c FROM sbtestN WHERE id = ?`
    PointSelect,
    /// `UPDATE sbtestN SET k = k + 1 WHERE id = ?`
    UpdateIndex,
    /// `INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?)`, with new ids above all others.
    Insert,
}

impl Workload {
    /// All workloads, in the order in which help lists them.
    pub const ALL: [Workload; 3] = [Workload::PointSelect, Workload::UpdateIndex, Workload::Insert];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::PointSelect => "oltp_point_select",
            Workload::UpdateIndex => "oltp_update_index",
            Workload::Insert => "oltp_insert",
        }
    }

    /// What one transaction counts as.
    pub const fn queries(self) -> Queries {
        match self {
            Workload::PointSelect => Queries { read: 1, write: 0, other: 0 },
            Workload::UpdateIndex | Workload::Insert => Queries { read: 0, write: 1, other: 0 },
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let names = Workload::ALL.map(Workload::name).join(", ");
        Workload::ALL.into_iter().find(|w| w.name() == text).ok_or_else(|| format!("not one of {names}"))
    }
}

/// Statements by kind, as sysbench counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queries {
    /// Statements that read.
    pub read: u64,
    /// Statements that write.
    pub write: u64,
    /// Begin, commit and the like.
    pub other: u64,
}

impl Queries {
    /// The statements of `transactions` transactions like this one.
    pub fn times(self, transactions: u64) -> Queries {
        Queries { read: self.read * transactions, write: self.write * transactions, other: self.other * transactions }
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.read + self.write + self.other
    }
}

/// How many tables of how many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSet {
    tables: u32,
    table_size: u64,
}

impl TableSet {
    /// Makes a set of `tables` tables with `table_size` rows each.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no table or too many, no row, or more rows than the column `k` can count (4 294 967 295).
    pub fn new(tables: u32, table_size: u64) -> Result<TableSet, Error> {
        if !(1..=TABLES_MAX).contains(&tables) {
            return Err(Error::Invalid(format!("--tables must be 1 to {TABLES_MAX}, not {tables}")));
        }
        if !(1..=u64::from(u32::MAX)).contains(&table_size) {
            return Err(Error::Invalid(format!("--table-size must be 1 to {}, not {table_size}", u32::MAX)));
        }
        Ok(TableSet { tables, table_size })
    }

    /// How many tables.
    pub fn tables(self) -> u32 {
        self.tables
    }

    /// Rows that each is loaded with.
    pub fn table_size(self) -> u64 {
        self.table_size
    }

    /// The tables' numbers.
    pub fn numbers(self) -> impl ExactSizeIterator<Item = TableNo> {
        TableNo::first(self.tables)
    }
}

/// A workload over a set of loaded tables: what all threads of a run share.
#[derive(Debug)]
pub struct Load {
    workload: Workload,
    set: TableSet,
    keys: Keys,
    /// For each table the next id to insert.
    next_ids: Vec<CachePadded<AtomicU64>>,
}

impl Load {
    /// Makes the load, after a look at the tables.
    ///
    /// # Errors
    /// [`Error::NotLoaded`], [`Error::HalfLoaded`], [`Error::TableSize`]: the tables are not as `set` says.
    /// [`Error::Engine`]: the engine could not answer.
    pub fn new<E: Engine>(engine: &E, workload: Workload, set: TableSet, rand_type: RandType) -> Result<Load, Error> {
        let mut next_ids = Vec::new();
        for table in set.numbers() {
            match engine.table(table)? {
                TableState::Missing => return Err(Error::NotLoaded(table)),
                TableState::HalfLoaded => return Err(Error::HalfLoaded(table)),
                TableState::Loaded(rows) if rows != set.table_size => {
                    return Err(Error::TableSize { table, found: rows, wanted: set.table_size });
                }
                TableState::Loaded(_) => {}
            }
            next_ids.push(CachePadded::new(AtomicU64::new(engine.last_id(table)? + 1)));
        }
        Ok(Load { workload, set, keys: Keys::new(rand_type, set.table_size)?, next_ids })
    }

    /// The workload.
    pub fn workload(&self) -> Workload {
        self.workload
    }

    /// The tables.
    pub fn set(&self) -> TableSet {
        self.set
    }

    /// Draws the next transaction.
    pub fn draw(&self, random: &mut Random) -> Event {
        let table = match self.set.tables {
            1 => TableNo::from_index(0),
            tables => TableNo::from_index(random.random_range(0..tables)),
        };
        match self.workload {
            Workload::PointSelect => Event::SelectRow { table, id: self.keys.draw(random) },
            Workload::UpdateIndex => Event::IncrementK { table, id: self.keys.draw(random) },
            Workload::Insert => {
                // Relaxed: the id only has to be unique; the engine orders the inserts.
                let id = self.next_ids[table.index()].fetch_add(1, Ordering::Relaxed);
                Event::InsertRow { table, row: Row::random(id, &self.keys, random) }
            }
        }
    }
}

/// One transaction to run. The same one is run again after a conflict, so that hot rows stay as hot as they were drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Read a row.
    SelectRow {
        /// Of this table.
        table: TableNo,
        /// With this id.
        id: u64,
    },
    /// Add one to `k`.
    IncrementK {
        /// Of this table.
        table: TableNo,
        /// In the row with this id.
        id: u64,
    },
    /// Insert a row.
    InsertRow {
        /// Into this table.
        table: TableNo,
        /// The row.
        row: Row,
    },
}

impl Event {
    /// Runs the transaction once.
    ///
    /// # Errors
    /// What [`Session`]'s methods return.
    pub fn run(&self, session: &mut impl Session) -> Result<Outcome, Error> {
        match self {
            Event::SelectRow { table, id } => session.select_row(*table, *id),
            Event::IncrementK { table, id } => session.increment_k(*table, *id),
            Event::InsertRow { table, row } => session.insert_row(*table, row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse::<Workload>(), Ok(workload));
        }
        assert!("oltp_read".parse::<Workload>().unwrap_err().contains("oltp_insert"));
    }

    #[test]
    fn table_sets_out_of_range_are_refused() {
        assert!(TableSet::new(0, 10).is_err());
        assert!(TableSet::new(TABLES_MAX + 1, 10).is_err());
        assert!(TableSet::new(1, 0).is_err());
        assert!(TableSet::new(1, u64::from(u32::MAX) + 1).is_err());
        let set = TableSet::new(3, 10).unwrap();
        let names: Vec<String> = set.numbers().map(|t| t.to_string()).collect();
        assert_eq!(names, ["sbtest1", "sbtest2", "sbtest3"]);
    }

    #[test]
    fn queries_count_as_sysbench_counts_them() {
        assert_eq!(Workload::PointSelect.queries().times(5), Queries { read: 5, write: 0, other: 0 });
        assert_eq!(Workload::UpdateIndex.queries().times(5).total(), 5);
        assert_eq!(Workload::Insert.queries().write, 1);
    }
}
