//! The maximum rate of an engine: a closed loop that runs until the rate has settled.
//!
//! An engine is fast at first: the log is empty, the pool is clean or cold, and no pages have to be written back. A
//! share of that rate may be more than the engine sustains. So the phase lasts until the last window is as fast as the
//! one before, and neither debt grows: checkpoint age and dirty pages. It never lasts longer than [`LONGEST_S`].

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use super::{Interval, Observer, Pace, Plan, run_clients};
use crate::Error;
use crate::calm::median;
use crate::engine::Instruments;
use crate::generators::Client;

/// Seconds in each of the two windows that are compared.
const WINDOW_S: usize = 5;

/// Least length of the phase: two windows, after some time to settle.
pub const SHORTEST_S: u64 = 15;

/// Greatest length of the phase.
pub const LONGEST_S: u64 = 45;

/// How much the median rates of two windows may differ: a tenth, three times the spread of single quiet seconds
/// (measured 2026-11 on two CPUs).
const RATE_TOLERANCE: f64 = 0.1;

/// How much a debt may grow between two windows, in percentage points of its maximum.
const DEBT_TOLERANCE_PERCENT: f64 = 1.0;

/// The rate that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Maximum {
    /// Transactions per second: the median of the last two windows.
    pub per_s: f64,
    /// Statements that changed a row, per transaction on average.
    pub writes_per_transaction: f64,
    /// Statements that changed a row, for each sync of the log; `None`: there was no sync.
    pub writes_per_log_sync: Option<f64>,
    /// Seconds that the phase lasted.
    pub phase_s: usize,
    /// Whether the engine had settled; if not, it may not sustain the rate.
    pub has_settled: bool,
}

impl Maximum {
    /// Seconds at the end of the phase from which the rate is taken.
    pub const COUNTED_S: usize = 2 * WINDOW_S;
}

/// Measures the rate of `clients`, one for each of the plan's threads, whatever its pace, time, events and report interval.
///
/// # Errors
/// [`Error::Interrupted`]: `stop` became true. Otherwise as [`run_clients`].
pub fn measure<C: Client>(
    engine: &impl Instruments,
    clients: Vec<C>,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<Maximum, Error> {
    measure_for(engine, clients, plan, stop, SHORTEST_S, LONGEST_S)
}

pub(super) fn measure_for<C: Client>(
    engine: &impl Instruments,
    clients: Vec<C>,
    plan: &Plan,
    stop: &AtomicBool,
    shortest_s: u64,
    longest_s: u64,
) -> Result<Maximum, Error> {
    // Another seed, so that the run that follows does not touch the same rows in the same order.
    let plan = Plan {
        pace: Pace::ClosedLoop,
        report_interval_s: 1,
        time_s: longest_s,
        warmup_s: 0,
        events: 0,
        seed: !plan.seed,
        ..*plan
    };
    let mut watch = Watch { seconds: Vec::new(), shortest_s, has_settled: false };
    let finished = run_clients(engine, clients, &plan, stop, &mut watch)?;
    if finished.was_stopped && !watch.has_settled {
        return Err(Error::Interrupted);
    }
    let rates: Vec<u64> = watch.seconds.iter().map(|second| second.transactions).collect();
    let counted = &rates[rates.len().saturating_sub(Maximum::COUNTED_S)..];
    match median(counted) {
        Some(per_s) if per_s > 0.0 => Ok(Maximum {
            per_s,
            writes_per_transaction: finished.writes_per_transaction(),
            writes_per_log_sync: finished.writes_per_log_sync(),
            phase_s: rates.len(),
            has_settled: watch.has_settled,
        }),
        _ => Err(Error::Invalid("not one transaction a second: there is no maximum to take a share of".to_owned())),
    }
}

/// Figures of one second.
#[derive(Clone, Copy, Debug)]
struct Second {
    transactions: u64,
    age_percent: f64,
    dirty_percent: f64,
}

/// Ends the phase when the engine has settled.
struct Watch {
    seconds: Vec<Second>,
    shortest_s: u64,
    has_settled: bool,
}

impl Observer for Watch {
    fn interval(&mut self, interval: &Interval) -> ControlFlow<()> {
        self.seconds.push(Second {
            // If the collector wakes late, this interval is longer than a second and the next one shorter.
            transactions: (interval.record.transactions() as f64 / interval.length_s) as u64,
            age_percent: interval.gauges.age_percent,
            dirty_percent: interval.gauges.dirty_percent,
        });
        self.has_settled = self.seconds.len() as u64 >= self.shortest_s && has_settled(&self.seconds);
        if self.has_settled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Whether the last window has the rate and the debts of the one before, within the tolerances.
fn has_settled(seconds: &[Second]) -> bool {
    let Some(counted) = seconds.len().checked_sub(2 * WINDOW_S).map(|start| &seconds[start..]) else { return false };
    let (before, last) = counted.split_at(WINDOW_S);
    let rate = |window: &[Second]| {
        let rates: Vec<u64> = window.iter().map(|second| second.transactions).collect();
        median(&rates).unwrap_or(0.0)
    };
    let mean = |window: &[Second], debt: fn(&Second) -> f64| window.iter().map(debt).sum::<f64>() / WINDOW_S as f64;
    let grows = |debt| mean(last, debt) - mean(before, debt) > DEBT_TOLERANCE_PERCENT;
    let is_steady = (rate(last) - rate(before)).abs() <= RATE_TOLERANCE * rate(before);
    is_steady && !grows(|second| second.age_percent) && !grows(|second| second.dirty_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(rates: &[u64], age_step: f64) -> Vec<Second> {
        let age = |at: usize| at as f64 * age_step;
        rates
            .iter()
            .enumerate()
            .map(|(at, &transactions)| Second { transactions, age_percent: age(at), dirty_percent: 90.0 })
            .collect()
    }

    #[test]
    fn even_rates_without_growing_debt_have_settled() {
        assert!(has_settled(&seconds(&[100, 98, 103, 99, 101, 95, 104, 100, 99, 102], 0.0)));
        assert!(has_settled(&seconds(&[9, 100, 98, 103, 99, 101, 95, 104, 100, 99, 102], 0.0)), "only the end counts");
    }

    #[test]
    fn rates_that_still_fall_or_rise_have_not_settled() {
        assert!(!has_settled(&seconds(&[48, 48, 49, 49, 35, 27, 29, 31, 30, 28], 0.0)));
        assert!(!has_settled(&seconds(&[80, 80, 80, 80, 80, 90, 90, 90, 90, 90], 0.0)));
    }

    #[test]
    fn even_rates_while_the_log_still_fills_have_not_settled() {
        assert!(!has_settled(&seconds(&[100; 10], 1.0)));
        assert!(has_settled(&seconds(&[100; 10], 0.1)));
    }

    #[test]
    fn too_few_seconds_have_not_settled() {
        assert!(!has_settled(&seconds(&[100; 9], 0.0)));
        assert!(!has_settled(&[]));
    }
}
