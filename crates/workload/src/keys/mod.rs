//! Distributions of the rows that transactions touch: sysbench's `--rand-type`, with its formulas and default
//! parameters.
//!
//! | value | what it draws | parameters (sysbench's defaults) |
//! |---|---|---|
//! | [`uniform`] | every row with equal probability | – |
//! | [`special`] | three of four from 1 % of the rows in the middle, the others bell-shaped | 12 terms, 1 %, 75 % |
//! | [`pareto`] | 80 % from the first 20 % of the rows, and so on inwards | h = 0.2 |
//! | [`zipfian`] | row r with a weight of 1 / r^0.8 | exponent 0.8 |
//! | [`gaussian`] | bell-shaped around the middle | 12 terms |
//!
//! Every draw is over `1..=n`. Source: the random number options of sysbench 1.0; the formulas are implemented anew.

pub mod gaussian;
pub mod pareto;
pub mod special;
pub mod uniform;
pub mod zipfian;

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Error;
use crate::names::by_name;

/// The random number generator of this crate: fast, small, reproducible from a seed.
pub type Random = Xoshiro256PlusPlus;

/// Returns the generator of one stream of a seed.
///
/// Streams of one seed are independent of each other, so a thread's numbers do not depend on what other threads draw.
pub fn random(seed: u64, stream: u64) -> Random {
    // The golden ratio's bits spread consecutive streams over the seed space; `seed_from_u64` mixes the rest.
    Random::seed_from_u64(seed ^ stream.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The name of a distribution, as `--rand-type` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RandType {
    /// Every row with equal probability.
    Uniform,
    /// Hot rows in the middle; sysbench's default.
    #[default]
    Special,
    /// 80 % of the draws from the first 20 % of the rows.
    Pareto,
    /// Weights fall with a power of the rank.
    Zipfian,
    /// Bell-shaped.
    Gaussian,
}

impl RandType {
    /// All values, in the order in which help lists them.
    pub const ALL: [RandType; 5] =
        [RandType::Uniform, RandType::Special, RandType::Pareto, RandType::Zipfian, RandType::Gaussian];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            RandType::Uniform => "uniform",
            RandType::Special => "special",
            RandType::Pareto => "pareto",
            RandType::Zipfian => "zipfian",
            RandType::Gaussian => "gaussian",
        }
    }
}

impl fmt::Display for RandType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RandType {
    type Err = String;

    fn from_str(text: &str) -> Result<RandType, String> {
        by_name(text, RandType::ALL, RandType::name)
    }
}

/// A distribution over `1..=n`, ready to draw from.
#[derive(Clone, Debug)]
pub enum Keys {
    /// See [`uniform`].
    Uniform(uniform::Uniform),
    /// See [`special`].
    Special(special::Special),
    /// See [`pareto`].
    Pareto(pareto::Pareto),
    /// See [`zipfian`].
    Zipfian(zipfian::Zipfian),
    /// See [`gaussian`].
    Gaussian(gaussian::Gaussian),
}

impl Keys {
    /// Makes the distribution `rand_type` over `1..=n`, with sysbench's default parameters.
    ///
    /// # Errors
    /// [`Error::Invalid`]: `n` is 0.
    pub fn new(rand_type: RandType, n: u64) -> Result<Keys, Error> {
        if n == 0 {
            return Err(Error::Invalid("there is no row to draw: --table-size must be at least 1".to_owned()));
        }
        Ok(match rand_type {
            RandType::Uniform => Keys::Uniform(uniform::Uniform::new(n)),
            RandType::Special => Keys::Special(special::Special::new(n)),
            RandType::Pareto => Keys::Pareto(pareto::Pareto::new(n)),
            RandType::Zipfian => Keys::Zipfian(zipfian::Zipfian::new(n)?),
            RandType::Gaussian => Keys::Gaussian(gaussian::Gaussian::new(n)),
        })
    }

    /// Draws a number from `1..=n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Keys::Uniform(keys) => keys.draw(random),
            Keys::Special(keys) => keys.draw(random),
            Keys::Pareto(keys) => keys.draw(random),
            Keys::Zipfian(keys) => keys.draw(random),
            Keys::Gaussian(keys) => keys.draw(random),
        }
    }
}

/// Draws a double from `[0, 1)`.
fn unit(random: &mut Random) -> f64 {
    random.random::<f64>()
}

/// Turns an offset from the range's start into a member of `1..=n`; one past the end, by rounding, becomes `n`.
fn member(offset: f64, n: u64) -> u64 {
    (offset as u64).min(n - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws `count` numbers and returns how many fell into each of `buckets` equal parts of `1..=n`.
    pub(super) fn spread(rand_type: RandType, n: u64, count: u64, buckets: u64) -> Vec<f64> {
        let keys = Keys::new(rand_type, n).unwrap();
        let mut random = random(7, 0);
        let mut found = vec![0_u64; buckets as usize];
        for _ in 0..count {
            let drawn = keys.draw(&mut random);
            assert!((1..=n).contains(&drawn), "{rand_type}: {drawn} is outside 1..={n}");
            found[((drawn - 1) * buckets / n) as usize] += 1;
        }
        found.into_iter().map(|hits| hits as f64 / count as f64).collect()
    }

    #[test]
    fn every_type_stays_in_range_for_tiny_tables() {
        for rand_type in RandType::ALL {
            for n in [1, 2, 3, 99, 101] {
                spread(rand_type, n, 2_000, 1);
            }
        }
    }

    #[test]
    fn every_type_reaches_each_row_of_a_small_table_or_says_why() {
        // Special and gaussian leave the borders out in practice: a mean of 12 uniforms is never there.
        for rand_type in [RandType::Uniform, RandType::Pareto, RandType::Zipfian] {
            let found = spread(rand_type, 10, 20_000, 10);
            assert!(found.iter().all(|&share| share > 0.0), "{rand_type}: {found:?}");
        }
    }

    #[test]
    fn empty_table_is_refused() {
        for rand_type in RandType::ALL {
            assert!(matches!(Keys::new(rand_type, 0), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for rand_type in RandType::ALL {
            assert_eq!(rand_type.name().parse::<RandType>(), Ok(rand_type));
        }
        assert!("zipf".parse::<RandType>().unwrap_err().contains("zipfian"));
    }

    #[test]
    fn same_seed_and_stream_draw_the_same_numbers_and_others_do_not() {
        let draws = |seed, stream| {
            let mut random = random(seed, stream);
            std::array::from_fn::<u64, 8, _>(|_| random.random())
        };
        assert_eq!(draws(1, 2), draws(1, 2));
        assert_ne!(draws(1, 2), draws(1, 3));
        assert_ne!(draws(1, 2), draws(2, 2));
    }
}
