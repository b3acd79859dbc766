//! Durable updates beside other work.

use std::fmt;
use std::time::{Duration, Instant};

use super::common::Outcome;

/// Rate and slowest update of one thread.
pub(crate) struct Updates {
    per_s: f64,
    slowest_ms: f64,
}

impl fmt::Display for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s, slowest {:.1} ms", self.per_s, self.slowest_ms)
    }
}

/// Calls `update` with the number of the call while `go_on` returns true. `update` returns its own duration.
pub(crate) fn update_while(
    go_on: impl Fn() -> bool,
    mut update: impl FnMut(u64) -> Outcome<Duration>,
) -> Outcome<Updates> {
    let (began, mut count, mut slowest) = (Instant::now(), 0u64, Duration::ZERO);
    while go_on() {
        slowest = slowest.max(update(count)?);
        count += 1;
    }
    Ok(Updates { per_s: count as f64 / began.elapsed().as_secs_f64(), slowest_ms: slowest.as_secs_f64() * 1e3 })
}
