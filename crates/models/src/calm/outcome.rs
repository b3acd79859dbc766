//! The outcome of a run.

use std::fmt;

/// A part of a run that is judged separately: by the median of its own seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Its first second.
    pub from_s: usize,
    /// The second after its last.
    pub to_s: usize,
    /// Its seconds under half of its own median that are expected: the load exceeds a device that stands still.
    pub brownout_s: usize,
}

impl Phase {
    /// A phase from one second to before another.
    pub const fn new(name: &'static str, from_s: usize, to_s: usize) -> Phase {
        Phase { name, from_s, to_s, brownout_s: 0 }
    }
}

/// The updates of a run, second by second, and its waits.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Updates done in each second.
    pub per_second: Vec<u32>,
    /// Updates that found the log full.
    pub log_wall_waits: u64,
    /// The largest checkpoint age, as a fraction of the log's capacity.
    pub age_max: f64,
    /// The longest update, from its begin.
    pub slowest_ms: f64,
    /// The longest time without a completed update.
    pub longest_gap_ms: f64,
    /// Seconds in which a limit was in force.
    pub limited_s: f64,
    /// The device's writes in pages a second, as the controller estimates them.
    pub capacity: f64,
    /// Pages written.
    pub written: u64,
}

/// Evenness of the updates over a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evenness {
    /// Updates in the median second.
    pub median: u32,
    /// Updates in the worst second.
    pub worst: u32,
    /// Seconds under half of the median.
    pub brownout_s: usize,
    /// Standard deviation over mean.
    pub variation: f64,
}

impl Outcome {
    /// How even the seconds in `phase` were.
    pub fn evenness(&self, phase: Phase) -> Evenness {
        evenness(&self.per_second[phase.from_s..phase.to_s.min(self.per_second.len())])
    }

    /// How even the seconds outside of all `phases` were.
    pub fn evenness_outside(&self, phases: &[Phase]) -> Evenness {
        let inside = |second: usize| phases.iter().any(|phase| (phase.from_s..phase.to_s).contains(&second));
        let seconds: Vec<u32> =
            self.per_second.iter().enumerate().filter(|(s, _)| !inside(*s)).map(|(_, n)| *n).collect();
        evenness(&seconds)
    }
}

fn evenness(seconds: &[u32]) -> Evenness {
    let mut sorted = seconds.to_vec();
    sorted.sort_unstable();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
    let count = sorted.len().max(1) as f64;
    let mean = sorted.iter().map(|n| f64::from(*n)).sum::<f64>() / count;
    let variance = sorted.iter().map(|n| (f64::from(*n) - mean).powi(2)).sum::<f64>() / count;
    Evenness {
        median,
        worst: sorted.first().copied().unwrap_or(0),
        brownout_s: sorted.iter().filter(|n| **n * 2 < median).count(),
        variation: variance.sqrt() / mean.max(1e-9),
    }
}

impl fmt::Display for Evenness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:6} {:6} {:5} {:6.3}", self.median, self.worst, self.brownout_s, self.variation)
    }
}
