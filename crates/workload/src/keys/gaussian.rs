//! `--rand-type=gaussian`: bell-shaped around the middle, as the mean of twelve uniform draws.

use super::{Random, member, unit};

/// sysbench's default of `--rand-spec-iter`.
const TERMS: u32 = 12;

/// The mean of twelve uniform numbers, stretched over `1..=n`: expected value `n / 2`, standard deviation `n / 12`.
#[derive(Clone, Debug)]
pub struct Gaussian {
    n: u64,
}

impl Gaussian {
    /// Makes the distribution; `n` is at least 1.
    pub(super) fn new(n: u64) -> Gaussian {
        Gaussian { n }
    }

    /// Draws a number from `1..=n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        member(mean_of_terms(random) * self.n as f64, self.n)
    }
}

/// Returns the mean of [`TERMS`] uniform draws, in `[0, 1)`.
pub(super) fn mean_of_terms(random: &mut Random) -> f64 {
    (0..TERMS).map(|_| unit(random)).sum::<f64>() / f64::from(TERMS)
}

#[cfg(test)]
mod tests {
    use crate::keys::RandType;
    use crate::keys::tests::spread;

    #[test]
    fn middle_sixth_holds_what_one_standard_deviation_holds() {
        // n / 12 either side of the middle is one standard deviation: 68.3 % of a normal distribution.
        let found = spread(RandType::Gaussian, 12_000, 200_000, 12);
        let middle = found[5] + found[6];
        assert!((0.67..0.70).contains(&middle), "{middle}");
    }

    #[test]
    fn both_halves_weigh_the_same_and_the_ends_are_rare() {
        let found = spread(RandType::Gaussian, 10_000, 200_000, 10);
        let lower: f64 = found[..5].iter().sum();
        assert!((0.495..0.505).contains(&lower), "{lower}");
        assert!(found[0] < 0.000_1);
        assert!(found[9] < 0.000_1);
    }
}
