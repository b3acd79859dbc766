//! How much of the purge a writer does himself, while purge by itself does not get on as fast as writers leave work for
//! it: as much as it is behind by. So all pay alike, each a little, and what waits stands still somewhere between half
//! and all of what may.
//!
//! It is counted in rows: a record is of one, or of all that a batch has deleted.

/// Rows that are seen to for each that is left, while as many pages wait as may: one for one would keep what waits as
/// it is.
const ROWS_MAX: u64 = 4;

/// Rows that one sees to together: who looks for one has the next of its page at hand.
const TOGETHER: u64 = 4;

/// Parts of a row.
const UNIT: u64 = 1024;

/// Whether somebody who has seen to `done` of the `owed` rows goes through another record, of `rows`, as a whole: the
/// first one always, and then as long as that brings him nearer to what he owes.
pub(crate) fn takes_another(done: usize, owed: usize, rows: usize) -> bool {
    done == 0 || (done < owed && owed - done >= rows / 2)
}

/// What writers owe together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PurgeDebt {
    /// Owed by nobody yet, for it is below a turn.
    units: u64,
    /// Was done already: a record is gone through as a whole.
    ahead: u64,
}

impl PurgeDebt {
    /// Somebody left `rows` for purge, while `waiting` pages wait, of which there may be `most`. Returns how many rows
    /// he is to see to now: with up to half of `most` none; from there on it grows in proportion.
    pub(crate) fn left(&mut self, rows: u64, waiting: u64, most: u64) -> u64 {
        let half = most / 2;
        // Who has left nothing owes nothing, whatever others have put off.
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

    /// Somebody who had to see to `owed` rows has seen to `done`: the next have the difference off, or it is theirs.
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

    /// Writers leave records of so many `rows`, purge sees to `purged` of each row; what waits after as many as
    /// `records`, in pages, and the most rows that one writer had to see to.
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
    fn who_is_kept_up_with_does_nothing() {
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
                // A quarter of the way for each record in four.
                let stands = half + half * (1.0 - purged) / 4.0;
                assert!((waiting - stands).abs() < 1.1, "{purged} from {begin} of {most}: {waiting}, not {stands}");
                assert!(longest <= 8, "{longest} rows at once");
            }
        }
    }

    /// The same for batches: none of them has to go through the records of several while others go through none.
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

    /// Half of a record of 200 was put off: it is no business of those who only insert.
    #[test]
    fn who_leaves_nothing_owes_nothing() {
        let mut debt = PurgeDebt::default();
        debt.paid(280, 200);
        assert_eq!((debt.left(0, 1_500, 2_048), debt.left(1, 1_500, 2_048)), (0, 81));
        assert_eq!(
            [(0, 4, 200), (200, 299, 200), (200, 300, 200), (4, 4, 1)].map(|(a, b, c)| takes_another(a, b, c)),
            [true, false, true, false]
        );
    }

    /// What was done ahead is not owed again, however little each owes.
    #[test]
    fn what_was_done_ahead_is_taken_off_once() {
        let mut debt = PurgeDebt::default();
        debt.paid(10, 20);
        let owed: u64 = (0..20).map(|_| debt.left(1, 20, 32)).sum();
        // One for each, ten of them done already; of the last three none is due yet.
        assert!((8..=10).contains(&owed), "{owed}");
    }
}
