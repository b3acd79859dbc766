//! The steps of the insert benchmark, by name.

use std::fmt;
use std::str::FromStr;

/// Highest rate beside queries; a higher one is a typing error.
const ROWS_PER_S_MAX: u32 = 1_000_000;

/// A step of the insert benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `l.i0`: the load.
    Load,
    /// `l.x`: the indexes.
    CreateIndexes,
    /// `l.i1`: inserts and deletes, many in a transaction.
    ManyInserts,
    /// `l.i2`: inserts and deletes, few in a transaction.
    FewInserts,
    /// `qr` or `qp`: queries beside inserts and deletes.
    Queries {
        /// The kind of query.
        queries: Queries,
        /// Rows that are inserted, and deleted, per second and client.
        rows_per_s: u32,
    },
}

/// The kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// `qr`: short ranges of an index.
    Ranges,
    /// `qp`: rows by primary key.
    Points,
}

impl Step {
    /// iibench's steps, in iibench's order.
    pub const DEFAULT: &str = "l.i0,l.x,l.i1,l.i2,qr100,qp100,qr500,qp500,qr1000,qp1000";

    /// Whether the step prepares the tables for the others.
    pub fn prepares(self) -> bool {
        matches!(self, Step::Load | Step::CreateIndexes)
    }

    /// A short description of the step.
    pub fn what(self) -> &'static str {
        match self {
            Step::Load => "inserts in key order",
            Step::CreateIndexes => "makes three indexes",
            Step::ManyInserts | Step::FewInserts => "inserts and deletes",
            Step::Queries { queries: Queries::Ranges, .. } => "ranges of indexes, beside inserts and deletes",
            Step::Queries { queries: Queries::Points, .. } => "rows by primary key, beside inserts and deletes",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Load => f.write_str("l.i0"),
            Step::CreateIndexes => f.write_str("l.x"),
            Step::ManyInserts => f.write_str("l.i1"),
            Step::FewInserts => f.write_str("l.i2"),
            Step::Queries { queries: Queries::Ranges, rows_per_s } => write!(f, "qr{rows_per_s}"),
            Step::Queries { queries: Queries::Points, rows_per_s } => write!(f, "qp{rows_per_s}"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        let queries = |queries, rate: &str| {
            let rows_per_s = rate.parse().ok().filter(|rate| (1..=ROWS_PER_S_MAX).contains(rate));
            let wrong =
                || format!("'{text}' has no rate of 1 to {ROWS_PER_S_MAX} rows a second: write, for example, qr100");
            rows_per_s.map(|rows_per_s| Step::Queries { queries, rows_per_s }).ok_or_else(wrong)
        };
        match text {
            "l.i0" => Ok(Step::Load),
            "l.x" => Ok(Step::CreateIndexes),
            "l.i1" => Ok(Step::ManyInserts),
            "l.i2" => Ok(Step::FewInserts),
            _ => match text.split_at_checked(2) {
                Some(("qr", rate)) => queries(Queries::Ranges, rate),
                Some(("qp", rate)) => queries(Queries::Points, rate),
                _ => Err(format!("there is no step '{text}': write some of {}", Step::DEFAULT)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused_with_a_way_out() {
        for name in Step::DEFAULT.split(',').chain(["qr1", "qp1000000"]) {
            assert_eq!(name.parse::<Step>().unwrap().to_string(), name);
        }
        for (wrong, said) in
            [("", "l.i0,"), ("l.i3", "'l.i3'"), ("qr", "qr100"), ("qp0", "'qp0'"), ("qr1000001", "1000000")]
        {
            let error = wrong.parse::<Step>().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
