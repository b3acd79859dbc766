//! A transaction as drawn. After a conflict the same one is retried, so that hot rows stay as hot as the distribution
//! makes them.

use crate::engine::{IdRange, KRange, RangeSelect, TableNo};
use crate::generators::row::{C_LEN, Row};

/// One statement to run. Long data lies beside it in the [`Transaction`], so that a point select stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Read a row.
    SelectRow {
        /// Of this table.
        table: TableNo,
        /// With this id.
        id: u64,
    },
    /// Read a range of rows.
    SelectRange {
        /// Of this table.
        table: TableNo,
        /// With these ids.
        ids: IdRange,
        /// The columns or the aggregate.
        select: RangeSelect,
    },
    /// Add one to `k`.
    IncrementK {
        /// Of this table.
        table: TableNo,
        /// In the row with this id.
        id: u64,
    },
    /// Put another text into `c`.
    ReplaceC {
        /// Of this table.
        table: TableNo,
        /// In the row with this id.
        id: u64,
        /// The place of the text in [`Transaction::texts`].
        text: usize,
    },
    /// Delete a row, if it is there.
    DeleteRow {
        /// Of this table.
        table: TableNo,
        /// With this id.
        id: u64,
    },
    /// Delete the row with the id of a new row, then insert the new row: two statements.
    DeleteInsert {
        /// In this table.
        table: TableNo,
        /// The place of the new row in [`Transaction::rows`].
        row: usize,
    },
    /// Insert a row.
    InsertRow {
        /// Into this table.
        table: TableNo,
        /// The place of the row in [`Transaction::rows`].
        row: usize,
    },
    /// Insert all rows of [`Transaction::rows`] together.
    InsertRows {
        /// Into this table.
        table: TableNo,
    },
    /// Read the rows of the values of `k` in [`Transaction::points`].
    SelectPoints {
        /// Of this table.
        table: TableNo,
    },
    /// Count the rows of the ranges of `k` in [`Transaction::ranges`].
    CountRanges {
        /// Of this table.
        table: TableNo,
    },
    /// Add the next row to the thread's packet.
    BulkRow,
}

/// One transaction to run: a buffer that is reused for each draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Its statements, in order.
    pub statements: Vec<Statement>,
    /// Rows to insert.
    pub rows: Vec<Row>,
    /// Texts for `c`.
    pub texts: Vec<[u8; C_LEN]>,
    /// Values of `k`, ascending, each once.
    pub points: Vec<u32>,
    /// Ranges of `k`, ascending, none overlapping another.
    pub ranges: Vec<KRange>,
}

impl Transaction {
    /// Empties the buffer, but keeps its memory.
    pub(super) fn clear(&mut self) {
        self.statements.clear();
        self.rows.clear();
        self.texts.clear();
        self.points.clear();
        self.ranges.clear();
    }

    /// Keeps a row; returns its place.
    pub(super) fn keep_row(&mut self, row: Row) -> usize {
        self.rows.push(row);
        self.rows.len() - 1
    }

    /// Keeps a text; returns its place.
    pub(super) fn keep_text(&mut self, text: [u8; C_LEN]) -> usize {
        self.texts.push(text);
        self.texts.len() - 1
    }

    /// Sorts points and ranges, removes duplicate points and merges overlapping ranges, so that each row counts once.
    pub(super) fn tidy(&mut self) {
        self.points.sort_unstable();
        self.points.dedup();
        self.ranges.sort_unstable_by_key(|range| range.first);
        self.ranges.dedup_by(|next, kept| {
            let overlaps = next.first <= kept.last;
            if overlaps {
                kept.last = kept.last.max(next.last);
            }
            overlaps
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_ranges_are_sorted_and_asked_for_once() {
        let range = |first, last| KRange { first, last };
        let mut transaction = Transaction {
            points: vec![5, 3, 5, 9, 3],
            ranges: vec![range(20, 25), range(3, 8), range(8, 13), range(4, 6), range(14, 19)],
            ..Transaction::default()
        };
        transaction.tidy();
        assert_eq!(transaction.points, [3, 5, 9]);
        assert_eq!(transaction.ranges, [range(3, 13), range(14, 19), range(20, 25)]);
    }
}
