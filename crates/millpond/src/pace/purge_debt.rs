//! How much of the purge a writer does himself, while purge by itself does not get on as fast as writers leave work for
//! it: as much as it is behind by. So all pay alike, each a little, and what waits stands still somewhere between half
//! and all of what may.

/// Records that are gone through for each that is left, while as many pages wait as may: one for one would keep what
/// waits as it is.
const RECORDS_MAX: u64 = 4;

/// Records of which one goes through together: who looks for one has the next of its page at hand.
const TOGETHER: u64 = 4;

/// Parts of a record.
const UNIT: u64 = 1024;

/// What writers owe together, below a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PurgeDebt {
    units: u64,
}

impl PurgeDebt {
    /// Somebody left `records` for purge, while `waiting` pages wait, of which there may be `most`. Returns how many
    /// records he is to go through now: with up to half of `most` none; from there on it grows in proportion.
    pub(crate) fn left(&mut self, records: u64, waiting: u64, most: u64) -> u64 {
        let half = most / 2;
        if waiting <= half {
            return 0;
        }
        let share = (RECORDS_MAX * UNIT * (waiting - half) / (most - half)).min(RECORDS_MAX * UNIT);
        self.units += records * share;
        if self.units < TOGETHER * UNIT {
            return 0;
        }
        let records = self.units / UNIT;
        self.units %= UNIT;
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of a page.
    const PAGE: f64 = 100.0;

    /// Writers leave a record each, purge goes through `purged` of each; what waits after as many as `records`, in
    /// pages, and the most that one writer had to go through.
    fn after(records: u32, purged: f64, waiting: f64, most: u64) -> (f64, u64) {
        let (mut debt, mut waiting, mut longest) = (PurgeDebt::default(), waiting * PAGE, 0);
        for _ in 0..records {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some pages")]
            let own = debt.left(1, (waiting / PAGE) as u64, most);
            longest = longest.max(own);
            #[expect(clippy::cast_precision_loss, reason = "a few")]
            let own = own as f64;
            waiting = (waiting + 1.0 - purged - own).max(0.0);
        }
        (waiting / PAGE, longest)
    }

    #[test]
    fn who_is_kept_up_with_does_nothing() {
        assert_eq!(after(100_000, 1.0, 16.0, 32), (16.0, 0));
        assert_eq!(PurgeDebt::default().left(u64::from(u32::MAX), 0, 1), 0);
    }

    #[test]
    fn what_waits_stands_still_between_half_and_all() {
        for purged in [0.0, 0.3, 0.9] {
            for (begin, most) in [(0.0, 32), (100.0, 32), (1000.0, 2048)] {
                let (waiting, longest) = after(1_000_000, purged, begin, most);
                #[expect(clippy::cast_precision_loss, reason = "a few")]
                let half = most as f64 / 2.0;
                // A quarter of the way for each record in four.
                let stands = half + half * (1.0 - purged) / 4.0;
                assert!((waiting - stands).abs() < 1.1, "{purged} from {begin} of {most}: {waiting}, not {stands}");
                assert!(longest <= 8, "{longest} records at once");
            }
        }
    }

    #[test]
    fn a_large_batch_goes_through_as_much_as_it_has_left() {
        let mut debt = PurgeDebt::default();
        assert_eq!(debt.left(1_000, 32, 32), 4_000);
        assert_eq!(debt.left(1_000, 1_000_000, 32), 4_000);
        assert_eq!(debt.left(1, 17, 32), 0);
    }
}
