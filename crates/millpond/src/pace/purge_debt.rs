//! How many rows a writer purges itself while purge falls behind: in proportion to the backlog. So all writers pay
//! alike, each a little, and the backlog settles between half and all of its maximum.
//!
//! The unit is a row: an undo record is of one row, or of all rows that a batch deleted.

/// Rows to purge for each row left, at the maximum of the backlog. One for one would only keep the backlog constant.
const ROWS_MAX: u64 = 4;

/// Rows that a writer purges together: the next row of a page is then at hand.
const TOGETHER: u64 = 4;

/// Units of debt in a row.
const UNIT: u64 = 1024;

/// Whether a writer that has purged `done` of its `owed` rows takes another whole record of `rows`: always the first
/// one, then as long as that brings it closer to `owed`.
pub(crate) fn takes_another(done: usize, owed: usize, rows: usize) -> bool {
    done == 0 || (done < owed && owed - done >= rows / 2)
}

/// The common debt of all writers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PurgeDebt {
    /// Debt below [`TOGETHER`] rows, which no writer has been asked for yet.
    units: u64,
    /// Work done in advance, because a record is purged as a whole.
    ahead: u64,
}

impl PurgeDebt {
    /// A writer leaves `rows` to purge, while the backlog is `waiting` pages of at most `most`. Returns the rows that
    /// the writer must purge now: none up to half of `most`, then in proportion.
    pub(crate) fn left(&mut self, rows: u64, waiting: u64, most: u64) -> u64 {
        let half = most / 2;
        // A writer that leaves nothing owes nothing, whatever debt others have put off.
        if waiting <= half || rows == 0 {
            return 0;
        }
        let share = (ROWS_MAX * UNIT * (waiting - half) / (most - half)).min(ROWS_MAX * UNIT);
        let (owed, ahead) = (self.units + rows * share, self.ahead);
        self.ahead = ahead.saturating_sub(owed);
        self.units = owed.saturating_sub(ahead);
        if self.units < TOGETHER * UNIT {
            return 0;
        }
        let rows = self.units / UNIT;
        self.units %= UNIT;
        rows
    }

    /// A writer that owed `owed` rows has purged `done`: the difference is credited or charged to the next writers.
    pub(crate) fn paid(&mut self, owed: u64, done: u64) {
        self.units += owed.saturating_sub(done) * UNIT;
        self.ahead += done.saturating_sub(owed) * UNIT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a page.
    const PAGE: f64 = 100.0;

    /// Writers leave records of `rows` rows each, and purge handles the part `purged` of each. Returns, after `records`
    /// records, the backlog in pages and the most rows that one writer purged.
    fn after(records: u32, rows: u32, purged: f64, waiting: f64, most: u64) -> (f64, u64) {
        let (mut debt, mut waiting, mut longest) = (PurgeDebt::default(), waiting * PAGE, 0);
        for _ in 0..records {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some pages")]
            let owed = debt.left(u64::from(rows), (waiting / PAGE) as u64, most);
            let (most, whole) = (usize::try_from(owed).expect("small"), usize::try_from(rows).expect("small"));
            let mut own = 0;
            while owed > 0 && takes_another(own, most, whole) {
                own += whole;
            }
            let own = u64::try_from(own).expect("small");
            debt.paid(owed, own);
            longest = longest.max(own);
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let own = own as f64;
            waiting = (waiting + f64::from(rows) * (1.0 - purged) - own).max(0.0);
        }
        (waiting / PAGE, longest)
    }

    #[test]
    fn writer_owes_nothing_while_purge_keeps_up() {
        assert_eq!(after(100_000, 1, 1.0, 16.0, 32), (16.0, 0));
        assert_eq!(PurgeDebt::default().left(u64::from(u32::MAX), 0, 1), 0);
    }

    #[test]
    fn what_waits_stands_still_between_half_and_all() {
        for purged in [0.0, 0.3, 0.9] {
            for (begin, most) in [(0.0, 32), (100.0, 32), (1000.0, 2048)] {
                let (waiting, longest) = after(1_000_000, 1, purged, begin, most);
                #[expect(clippy::cast_precision_loss, reason = "a few")]
                let half = most as f64 / 2.0;
                // One row in four per record, over half of the backlog.
                let stands = half + half * (1.0 - purged) / 4.0;
                assert!((waiting - stands).abs() < 1.1, "{purged} from {begin} of {most}: {waiting}, not {stands}");
                assert!(longest <= 8, "{longest} rows at once");
            }
        }
    }

    /// The same for batches: no batch purges several records while others purge none.
    #[test]
    fn batches_go_through_one_record_of_their_length_each() {
        for rows in [200, 35] {
            for purged in [0.0, 0.3, 0.9] {
                let (waiting, longest) = after(100_000, rows, purged, 0.0, 2048);
                let stands = 1024.0 + 1024.0 * (1.0 - purged) / 4.0;
                let off = (waiting - stands).abs();
                assert!(off < 5.0, "{purged} of {rows}: {waiting}, not {stands}");
                assert_eq!(longest, u64::from(rows), "at once");
            }
        }
    }

    #[test]
    fn a_large_batch_sees_to_as_much_as_it_has_left() {
        let mut debt = PurgeDebt::default();
        assert_eq!(debt.left(1_000, 32, 32), 4_000);
        debt.paid(4_000, 4_500);
        assert_eq!(debt.left(1_000, 1_000_000, 32), 3_500);
        assert_eq!(debt.left(1, 17, 32), 0);
    }

    /// Half of a record of 200 was put off: writers that only insert do not pay for it.
    #[test]
    fn writer_that_leaves_no_rows_owes_nothing() {
        let mut debt = PurgeDebt::default();
        debt.paid(280, 200);
        assert_eq!((debt.left(0, 1_500, 2_048), debt.left(1, 1_500, 2_048)), (0, 81));
        assert_eq!(
            [(0, 4, 200), (200, 299, 200), (200, 300, 200), (4, 4, 1)].map(|(a, b, c)| takes_another(a, b, c)),
            [true, false, true, false]
        );
    }

    /// Work done in advance is credited once, however little each writer owes.
    #[test]
    fn what_was_done_ahead_is_taken_off_once() {
        let mut debt = PurgeDebt::default();
        debt.paid(10, 20);
        let owed: u64 = (0..20).map(|_| debt.left(1, 20, 32)).sum();
        // One row each, ten of them done in advance; of the last three none is due yet.
        assert!((8..=10).contains(&owed), "{owed}");
    }
}
