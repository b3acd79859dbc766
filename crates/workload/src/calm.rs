//! How even a run was: the figures that a mean hides.
//!
//! Only whole seconds count: the one in which the run stopped is left out, and all threads begin together, so the first
//! is whole. A run shorter than a second has no figures.

use serde::Serialize;

/// The evenness of a run, second by second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calm {
    /// Median of the completions per second; the mean of the two in the middle if their number is even.
    pub median_per_s: f64,
    /// Completions in the worst second.
    pub worst_per_s: u64,
    /// Which second that was, from 1; the first of them if there are several.
    pub worst_second: usize,
    /// Seconds with less than half of the median.
    pub brownout_s: usize,
}

impl Calm {
    /// Computes the figures from the completions in each whole second; `None` if there is none.
    pub fn of(seconds: &[u64]) -> Option<Calm> {
        let (worst_index, &worst_per_s) = seconds.iter().enumerate().min_by_key(|&(_, count)| count)?;
        let median_per_s = median(seconds)?;
        let brownout_s = seconds.iter().filter(|&&count| (count as f64) < median_per_s / 2.0).count();
        Some(Calm { median_per_s, worst_per_s, worst_second: worst_index + 1, brownout_s })
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

    #[test]
    fn figures_of_an_uneven_run() {
        let calm = Calm::of(&[100, 110, 49, 90, 0, 120]).unwrap();
        assert_eq!(calm.median_per_s, 95.0);
        assert_eq!((calm.worst_per_s, calm.worst_second), (0, 5));
        assert_eq!(calm.brownout_s, 1, "49 is over half of 95, 0 is not");
    }

    #[test]
    fn half_of_the_median_is_not_yet_a_brownout() {
        assert_eq!(Calm::of(&[100, 100, 50]).unwrap().brownout_s, 0);
        assert_eq!(Calm::of(&[100, 100, 49]).unwrap().brownout_s, 1);
    }

    #[test]
    fn run_without_completions_is_not_calm_by_accident() {
        let calm = Calm::of(&[0, 0, 0]).unwrap();
        assert_eq!((calm.median_per_s, calm.worst_per_s, calm.worst_second), (0.0, 0, 1));
    }

    #[test]
    fn no_whole_second_has_no_figures() {
        assert_eq!(Calm::of(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3]), Some(3.0));
    }
}
