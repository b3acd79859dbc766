//! `--rand-type=pareto`: 80 % of the draws from the first 20 % of the rows, 64 % from the first 4 %, and so on.

use super::{Random, member, unit};

/// sysbench's default of `--rand-pareto-h`: the share `h` of the rows gets the share `1 − h` of the draws.
const H: f64 = 0.2;

/// A power of a uniform number, `u ^ (ln h / ln (1 − h))`, over `1..=n`.
#[derive(Clone, Debug)]
pub struct Pareto {
    n: u64,
    power: f64,
}

impl Pareto {
    /// Makes the distribution; `n` is at least 1.
    pub(super) fn new(n: u64) -> Pareto {
        Pareto { n, power: H.ln() / (1.0 - H).ln() }
    }

    /// Draws a number from `1..=n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        member(unit(random).powf(self.power) * self.n as f64, self.n)
    }
}

#[cfg(test)]
mod tests {
    use crate::keys::RandType;
    use crate::keys::tests::spread;

    #[test]
    fn shares_follow_the_eighty_twenty_rule_twice_over() {
        let found = spread(RandType::Pareto, 100_000, 200_000, 25);
        let first_fifth: f64 = found[..5].iter().sum();
        assert!((0.795..0.805).contains(&first_fifth), "{first_fifth}");
        assert!((0.635..0.645).contains(&found[0]), "{}", found[0]);
    }

    #[test]
    fn later_rows_are_never_more_likely() {
        let found = spread(RandType::Pareto, 100_000, 400_000, 10);
        assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "{found:?}");
    }
}
