//! `--rand-type=uniform`: every row with equal probability.

use rand::RngExt;

use super::Random;

/// The uniform distribution over `1..=n`.
#[derive(Clone, Debug)]
pub struct Uniform {
    n: u64,
}

impl Uniform {
    /// Makes the distribution; `n` is at least 1.
    pub(super) fn new(n: u64) -> Uniform {
        Uniform { n }
    }

    /// Draws a number from `1..=n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        random.random_range(1..=self.n)
    }
}

#[cfg(test)]
mod tests {
    use crate::keys::RandType;
    use crate::keys::tests::spread;

    #[test]
    fn each_tenth_gets_a_tenth() {
        for share in spread(RandType::Uniform, 1_000, 200_000, 10) {
            assert!((0.097..0.103).contains(&share), "{share}");
        }
    }
}
