//! `--rand-type=zipfian`: row r with a weight of 1 / r^0.8; the first row is the hottest.

use rand_distr::{Distribution, Zipf};

use super::{Random, member};
use crate::Error;

/// sysbench's default of `--rand-zipfian-exp`.
const EXPONENT: f64 = 0.8;

/// Zipf's distribution over `1..=n`.
#[derive(Clone, Debug)]
pub struct Zipfian {
    n: u64,
    zipf: Zipf<f64>,
}

impl Zipfian {
    /// Makes the distribution; `n` is at least 1.
    pub(super) fn new(n: u64) -> Result<Zipfian, Error> {
        let zipf = Zipf::new(n as f64, EXPONENT)
            .map_err(|cause| Error::Invalid(format!("zipfian over {n} rows cannot be drawn: {cause}")))?;
        Ok(Zipfian { n, zipf })
    }

    /// Draws a number from `1..=n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        member(self.zipf.sample(random) - 1.0, self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::EXPONENT;
    use crate::keys::RandType;
    use crate::keys::tests::spread;

    #[test]
    fn each_rank_has_its_weight() {
        let n = 100_u32;
        let all: f64 = (1..=n).map(|rank| f64::from(rank).powf(-EXPONENT)).sum();
        let found = spread(RandType::Zipfian, u64::from(n), 400_000, u64::from(n));
        for rank in [1_u32, 2, 3, 10, 50, 100] {
            let expected = f64::from(rank).powf(-EXPONENT) / all;
            let share = found[rank as usize - 1];
            assert!((share / expected - 1.0).abs() < 0.05, "rank {rank}: {share}, expected {expected}");
        }
    }

    #[test]
    fn hot_head_of_a_large_table_has_its_share() {
        // Sum of r^-0.8 over 1..=1000, and over 1..=100 000, by the same formula.
        let weight = |upto: u32| (1..=upto).map(|rank| f64::from(rank).powf(-EXPONENT)).sum::<f64>();
        let expected = weight(1_000) / weight(100_000);
        let found = spread(RandType::Zipfian, 100_000, 200_000, 100);
        assert!((found[0] / expected - 1.0).abs() < 0.02, "{}, expected {expected}", found[0]);
    }
}
