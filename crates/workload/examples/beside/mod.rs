//! What the figures of loads and of index builds share: a new directory, and durable updates beside the work.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of a value.
pub(crate) const VALUE: usize = 184;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What one thread's updates were like.
pub(crate) struct Updates {
    per_s: f64,
    slowest_ms: f64,
}

impl fmt::Display for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s, slowest {:.1} ms", self.per_s, self.slowest_ms)
    }
}

/// The exit code of `program`, whose error is shown.
pub(crate) fn exit(program: &str, outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Refuses a directory that exists: it is removed in the end.
pub(crate) fn must_be_new(dir: &Path) -> Outcome<()> {
    if dir.exists() {
        return Err(format!("'{}' exists: name a directory that does not", dir.display()).into());
    }
    Ok(())
}

/// Calls `update`, with the number of the call, as long as `go_on` says so. It says how long it took.
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
