//! The workloads by name, and the counts of their statements.

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;

use crate::names::by_name;

/// A workload, by sysbench's name where it is one of sysbench's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// One row by id.
    PointSelect,
    /// Rows by id and ranges of ids.
    ReadOnly,
    /// The statements of `ReadOnly` and of `WriteOnly`.
    ReadWrite,
    /// Updates, a delete and an insert.
    WriteOnly,
    /// `UPDATE sbtestN SET k = k + 1 WHERE id = ?`
    UpdateIndex,
    /// `UPDATE sbtestN SET c = ? WHERE id = ?`
    UpdateNonIndex,
    /// `INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?)`, with new ids above all others.
    Insert,
    /// `DELETE FROM sbtestN WHERE id = ?`
    Delete,
    /// `SELECT id, k, c, pad FROM sbtest1 WHERE k IN (?, ...)`
    RandomPoints,
    /// `SELECT count(k) FROM sbtest1 WHERE k BETWEEN ? AND ? OR ...`
    RandomRanges,
    /// `INSERT INTO sbtestN VALUES (?, ?), ...`, each thread into a table of its own.
    BulkInsert,
    /// Not one of sysbench's: `INSERT INTO sbtestN (id, k, c, pad) VALUES (?, ?, ?, ?), ...`, with new ids anywhere.
    RandomBatches,
}

impl Workload {
    /// All workloads, in the order in which help lists them.
    pub const ALL: [Workload; 12] = [
        Workload::PointSelect,
        Workload::ReadOnly,
        Workload::ReadWrite,
        Workload::WriteOnly,
        Workload::UpdateIndex,
        Workload::UpdateNonIndex,
        Workload::Insert,
        Workload::Delete,
        Workload::RandomPoints,
        Workload::RandomRanges,
        Workload::BulkInsert,
        Workload::RandomBatches,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::PointSelect => "oltp_point_select",
            Workload::ReadOnly => "oltp_read_only",
            Workload::ReadWrite => "oltp_read_write",
            Workload::WriteOnly => "oltp_write_only",
            Workload::UpdateIndex => "oltp_update_index",
            Workload::UpdateNonIndex => "oltp_update_non_index",
            Workload::Insert => "oltp_insert",
            Workload::Delete => "oltp_delete",
            Workload::RandomPoints => "select_random_points",
            Workload::RandomRanges => "select_random_ranges",
            Workload::BulkInsert => "bulk_insert",
            Workload::RandomBatches => "random_batches",
        }
    }

    /// Whether sysbench puts begin and commit around its statements, unless `--skip-trx` is given.
    pub const fn is_transactional(self) -> bool {
        matches!(self, Workload::ReadOnly | Workload::ReadWrite | Workload::WriteOnly)
    }

    /// Whether it runs over the tables `sbtestN`, not over a table per thread.
    pub const fn uses_tables(self) -> bool {
        !matches!(self, Workload::BulkInsert)
    }

    /// Whether it finds rows by the index on `k`.
    pub const fn reads_index(self) -> bool {
        matches!(self, Workload::RandomPoints | Workload::RandomRanges)
    }

    /// Whether sysbench runs it over one table only, of which each thread draws from a part.
    pub const fn wants_one_table(self) -> bool {
        matches!(self, Workload::RandomPoints | Workload::RandomRanges)
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
        by_name(text, Workload::ALL, Workload::name)
    }
}

/// Statements by kind, as sysbench counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queries {
    /// Statements that read.
    pub read: u64,
    /// Statements that changed a row.
    pub write: u64,
    /// Begins and commits of transactions of several statements, and statements that should write and found no row.
    pub other: u64,
}

impl Queries {
    /// All of them.
    pub fn total(self) -> u64 {
        self.read + self.write + self.other
    }
}

impl AddAssign for Queries {
    fn add_assign(&mut self, more: Queries) {
        self.read += more.read;
        self.write += more.write;
        self.other += more.other;
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
    fn queries_add_up_by_kind() {
        let mut sum = Queries { read: 1, write: 2, other: 3 };
        sum += Queries { read: 10, write: 20, other: 30 };
        assert_eq!(sum, Queries { read: 11, write: 22, other: 33 });
        assert_eq!(sum.total(), 66);
    }
}
