//! How even a run was: the figures that a mean hides.
//!
//! Only whole seconds count. All threads begin together, so the first second is whole; the second in which the run
//! stops is left out. A run shorter than a second has no figures.

use serde::Serialize;

/// The evenness of a run, second by second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calm {
    /// Median of the completions per second; the mean of the two in the middle if their number is even.
    pub median_per_s: f64,
    /// Completions in the worst second.
    pub worst_per_s: u64,
    /// Number of the worst second, from 1; the first one if several are equally bad.
    pub worst_second: usize,
    /// Seconds with less than half of the offered rate; without an offered rate, of the median.
    pub brownout_s: usize,
}

impl Calm {
    /// Computes the figures from the completions in each whole second. `offered_per_s` is the offered rate, if any.
    /// Returns `None` if there is no whole second.
    pub fn of(seconds: &[u64], offered_per_s: Option<f64>) -> Option<Calm> {
        let (worst_index, &worst_per_s) = seconds.iter().enumerate().min_by_key(|&(_, count)| count)?;
        let median_per_s = median(seconds)?;
        let below = brownout_below(seconds, offered_per_s);
        let brownout_s = seconds.iter().filter(|&&count| (count as f64) < below).count();
        Some(Calm { median_per_s, worst_per_s, worst_second: worst_index + 1, brownout_s })
    }
}

/// A second may fall short of the offered rate by this many standard deviations of its arrivals: that is chance.
const CHANCE: f64 = 5.0;

/// The limit of a brownout: a second with fewer completions is one. It is half of the offered rate, or of the median.
/// At a low offered rate the limit is lower, since few may arrive by chance. With a median of 0, each second without a
/// completion is a brownout.
pub fn brownout_below(seconds: &[u64], offered_per_s: Option<f64>) -> f64 {
    match (offered_per_s, median(seconds)) {
        (Some(offered), _) => (offered / 2.0).min(offered - CHANCE * offered.sqrt()).max(0.0),
        (None, Some(median)) if median > 0.0 => median / 2.0,
        (None, Some(_)) => 1.0,
        (None, None) => 0.0,
    }
}

/// The median of some counts; `None` of none.
pub fn median(counts: &[u64]) -> Option<f64> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper as f64);
    }
    let lower = sorted[sorted.len() / 2 - 1];
    Some((lower as f64 + upper as f64) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(seconds: &[u64]) -> Calm {
        Calm::of(seconds, None).unwrap()
    }

    #[test]
    fn figures_of_an_uneven_run() {
        let calm = closed(&[100, 110, 49, 90, 0, 120]);
        assert_eq!(calm.median_per_s, 95.0);
        assert_eq!((calm.worst_per_s, calm.worst_second), (0, 5));
        assert_eq!(calm.brownout_s, 1, "49 is over half of 95, 0 is not");
    }

    #[test]
    fn half_of_the_median_is_not_yet_a_brownout() {
        assert_eq!(closed(&[100, 100, 50]).brownout_s, 0);
        assert_eq!(closed(&[100, 100, 49]).brownout_s, 1);
    }

    #[test]
    fn median_of_zero_makes_a_brownout_of_each_silent_second() {
        let calm = closed(&[9_000, 8_900, 0, 0, 0, 0, 0, 0]);
        assert_eq!((calm.median_per_s, calm.worst_per_s, calm.worst_second), (0.0, 0, 3));
        assert_eq!(calm.brownout_s, 6);
        assert_eq!(closed(&[0, 0, 0]).brownout_s, 3);
    }

    #[test]
    fn offered_rate_measures_a_run_whose_median_is_low() {
        let overloaded = [400, 390, 410, 400, 1_000];
        assert_eq!(closed(&overloaded).brownout_s, 0);
        assert_eq!(Calm::of(&overloaded, Some(1_000.0)).unwrap().brownout_s, 4);
    }

    #[test]
    fn few_arrivals_in_a_second_by_chance_are_no_brownout() {
        assert_eq!(Calm::of(&[3, 0, 5, 1], Some(3.0)).unwrap().brownout_s, 0);
        assert_eq!(Calm::of(&[60, 13, 58], Some(60.0)).unwrap().brownout_s, 1, "60 - 5 x 7.7 is 21");
    }

    #[test]
    fn no_whole_second_has_no_figures() {
        assert_eq!(Calm::of(&[], None), None);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3]), Some(3.0));
    }
}
