//! Arrival times of transactions: a Poisson process with exponentially distributed gaps, as in sysbench, or even gaps.
//!
//! Arrivals are not stored: they are a function of the seed. The collector counts past arrivals with a generator of its
//! own. So the queue costs neither memory nor a thread, however long it grows.

use parking_lot::Mutex;
use rand_distr::{Distribution, Exp1};

use crate::Error;
use crate::keys::{Random, random};

/// Random stream of the arrivals, of the run's seed.
const STREAM: u64 = 1;

/// Highest rate accepted: a gap of a nanosecond.
const RATE_MAX: f64 = 1e9;

/// Distribution of the time from one arrival to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gaps {
    /// As in a Poisson process.
    Poisson,
    /// Always the same.
    Even,
}

/// The arrivals of a run; workers take each one once, in order.
#[derive(Debug)]
pub(super) struct Schedule {
    per_s: f64,
    taken: Mutex<Progress>,
    counted: Mutex<Progress>,
}

impl Schedule {
    /// Makes a schedule of `per_s` arrivals a second on average.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the rate is not above 0, or above one in a nanosecond.
    pub(super) fn new(per_s: f64, gaps: Gaps, seed: u64) -> Result<Schedule, Error> {
        if !(per_s > 0.0 && per_s <= RATE_MAX) {
            return Err(Error::Invalid(format!("a rate of {per_s} transactions a second cannot be offered")));
        }
        let progress = || Mutex::new(Progress::new(Arrivals::new(per_s, gaps, seed)));
        Ok(Schedule { per_s, taken: progress(), counted: progress() })
    }

    /// Arrivals a second, on average.
    pub(super) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// The first arrival that no worker has taken, in ns since the start; it may lie in the future.
    pub(super) fn next_ns(&self) -> u64 {
        self.taken.lock().next_ns
    }

    /// Takes the next arrival, in ns since the start.
    pub(super) fn take(&self) -> u64 {
        self.taken.lock().advance()
    }

    /// Number of arrivals up to `now_ns` that no worker has taken. `now_ns` must not decrease between calls.
    pub(super) fn waiting(&self, now_ns: u64) -> u64 {
        let arrived = {
            let mut counted = self.counted.lock();
            while counted.next_ns <= now_ns {
                counted.advance();
            }
            counted.passed
        };
        // A worker takes its arrival early and sleeps until then, so `taken` may be ahead of `arrived`.
        arrived.saturating_sub(self.taken.lock().passed)
    }
}

/// A position in the sequence of arrivals.
#[derive(Debug)]
struct Progress {
    arrivals: Arrivals,
    next_ns: u64,
    passed: u64,
}

impl Progress {
    fn new(mut arrivals: Arrivals) -> Progress {
        let next_ns = arrivals.next_ns();
        Progress { arrivals, next_ns, passed: 0 }
    }

    fn advance(&mut self) -> u64 {
        let arrival_ns = self.next_ns;
        self.next_ns = self.arrivals.next_ns();
        self.passed += 1;
        arrival_ns
    }
}

/// The arrivals as a sequence of times.
#[derive(Clone, Debug)]
struct Arrivals {
    random: Random,
    gaps: Gaps,
    mean_gap_ns: f64,
    at_ns: f64,
}

impl Arrivals {
    fn new(per_s: f64, gaps: Gaps, seed: u64) -> Arrivals {
        let mean_gap_ns = 1e9 / per_s;
        // Even arrivals begin half a gap after the start, so that their number in any time is the rate, rounded.
        let at_ns = if gaps == Gaps::Even { -mean_gap_ns / 2.0 } else { 0.0 };
        Arrivals { random: random(seed, STREAM), gaps, mean_gap_ns, at_ns }
    }

    fn next_ns(&mut self) -> u64 {
        let gap: f64 = match self.gaps {
            Gaps::Poisson => Exp1.sample(&mut self.random),
            Gaps::Even => 1.0,
        };
        self.at_ns += gap * self.mean_gap_ns;
        self.at_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn arrivals_have_the_rate_and_the_gaps_of_a_poisson_process() {
        let mut arrivals = Arrivals::new(1_000.0, Gaps::Poisson, 7);
        let times: Vec<u64> = (0..100_000).map(|_| arrivals.next_ns()).collect();
        assert!(times.is_sorted());
        let seconds = times[times.len() - 1] as f64 / SECOND as f64;
        assert!((99.0..101.0).contains(&seconds), "{seconds}");
        let over_mean = times.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count() as f64 / 1e5;
        assert!((0.363..0.373).contains(&over_mean), "1/e of the gaps exceed the mean, not {over_mean}");
        // Counts per 100 ms have a variance equal to their mean.
        let mut counts = vec![0_f64; 950];
        for time in times {
            if let Some(count) = counts.get_mut((time / (SECOND / 10)) as usize) {
                *count += 1.0;
            }
        }
        let variance = counts.iter().map(|c| (c - 100.0).powi(2)).sum::<f64>() / counts.len() as f64;
        assert!((85.0..115.0).contains(&variance), "{variance}");
    }

    #[test]
    fn queue_is_what_has_arrived_and_was_not_taken() {
        let schedule = Schedule::new(1_000.0, Gaps::Poisson, 3).unwrap();
        assert_eq!(schedule.waiting(0), 0);
        let first: Vec<u64> = (0..10).map(|_| schedule.take()).collect();
        assert_eq!(schedule.waiting(first[9]), 0, "all that have arrived were taken");
        let mut all = Arrivals::new(1_000.0, Gaps::Poisson, 3);
        let arrived = (0..).map(|_| all.next_ns()).take_while(|&at| at <= SECOND).count() as u64;
        assert_eq!(schedule.waiting(SECOND), arrived - 10);
        schedule.take();
        assert_eq!(schedule.waiting(SECOND), arrived - 11);
    }

    #[test]
    fn even_arrivals_are_as_many_in_each_second() {
        let mut arrivals = Arrivals::new(250.0, Gaps::Even, 7);
        let times: Vec<u64> = (0..1_000).map(|_| arrivals.next_ns()).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == SECOND / 250));
        assert_eq!(times.iter().filter(|&&at| at < SECOND).count(), 250);
    }

    #[test]
    fn impossible_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
            assert!(Schedule::new(rate, Gaps::Even, 1).is_err(), "{rate}");
        }
    }
}
