//! `--rand-type=special`: a few hot rows in the middle of the table. sysbench's default.
//!
//! One uniform number decides and places. Below 0.25, the draw is bell-shaped over the whole table. Otherwise the same
//! number, in `[0.25, 1)`, is stretched over the middle 1 %. So the hot rows are the upper three quarters of that 1 %,
//! as in sysbench 1.0.

use super::gaussian::mean_of_terms;
use super::{Random, member, unit};

/// Share of the draws that go to the hot rows; sysbench's default of `--rand-spec-res` is 75 (percent).
const HOT_DRAWS: f64 = 0.75;

/// Share of the table that the hot rows lie in; sysbench's default of `--rand-spec-pct` is 1 (percent).
const HOT_ROWS: f64 = 0.01;

/// Three of four draws from the middle 1 %, the others bell-shaped.
#[derive(Clone, Debug)]
pub struct Special {
    n: u64,
}

impl Special {
    /// Makes the distribution; `n` is at least 1.
    pub(super) fn new(n: u64) -> Special {
        Special { n }
    }

    /// Draws a number from `1..=n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        // The distance from the first row to the last, as sysbench counts the range.
        let span = (self.n - 1) as f64;
        let decider = unit(random);
        if decider < 1.0 - HOT_DRAWS {
            return member(mean_of_terms(random) * span, self.n);
        }
        let hot_start = span / 2.0 - span * HOT_ROWS / 2.0;
        member(hot_start + decider * (span * HOT_ROWS + 1.0), self.n)
    }
}

#[cfg(test)]
mod tests {
    use crate::keys::RandType;
    use crate::keys::tests::spread;

    #[test]
    fn three_quarters_fall_on_the_hot_percent() {
        // Of the bell-shaped quarter, 4.6 % fall there too (density at the middle: 12 / sqrt(2 pi) / 100).
        let found = spread(RandType::Special, 100_000, 400_000, 200);
        let hot = found[99] + found[100];
        assert!((0.755..0.770).contains(&hot), "{hot}");
    }

    #[test]
    fn lower_quarter_of_the_hot_percent_is_not_hot() {
        let found = spread(RandType::Special, 100_000, 400_000, 400);
        // 0.25 % of the rows each: 198..202 are the middle 1 %.
        assert!(found[198] < 0.01, "{}", found[198]);
        for hot in [199, 200, 201] {
            assert!((0.24..0.27).contains(&found[hot]), "{hot}: {}", found[hot]);
        }
    }

    #[test]
    fn other_quarter_is_bell_shaped() {
        let found = spread(RandType::Special, 100_000, 400_000, 12);
        // One to two standard deviations below the middle: 13.6 % of a quarter.
        assert!((0.031..0.037).contains(&found[4]), "{}", found[4]);
        assert!((0.031..0.037).contains(&found[7]), "{}", found[7]);
        assert!(found[0] + found[11] < 0.000_1);
    }
}
