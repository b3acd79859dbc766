//! Progress of long work: a bar on standard error if that is a terminal, else one line every 10 s.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::output::talk;

/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The bar's look: done, total, rate, time left.
const BAR: &str = "{msg} {bar:40} {human_pos} of {human_len} rows, {per_sec}, {eta} left";

/// Progress of some rows' work, told from several threads.
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    started: Instant,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    Lines { done: AtomicU64, next_line: Mutex<Instant> },
}

impl Progress {
    /// Starts to show the progress of `what` (such as `loading`) over `total` rows.
    pub(crate) fn start(what: &'static str, total: u64) -> Progress {
        let started = Instant::now();
        let shown = if stderr().is_terminal() {
            let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            Shown::Bar(ProgressBar::new(total).with_style(style).with_message(what))
        } else {
            Shown::Lines { done: AtomicU64::new(0), next_line: Mutex::new(started + LINE_EVERY) }
        };
        Progress { what, total, started, shown }
    }

    /// Notes that `rows` more are done.
    pub(crate) fn advance(&self, rows: u64) {
        match &self.shown {
            Shown::Bar(bar) => bar.inc(rows),
            Shown::Lines { done, next_line } => {
                // Relaxed: a figure.
                let done = done.fetch_add(rows, Ordering::Relaxed) + rows;
                let now = Instant::now();
                let mut next_line = next_line.lock();
                if now >= *next_line {
                    *next_line = now + LINE_EVERY;
                    talk(&line(self.what, done, self.total, now - self.started));
                }
            }
        }
    }

    /// Takes the bar away; the caller says what was done.
    pub(crate) fn finish(self) -> Duration {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }
}

fn line(what: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let per_s = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let left_s = total.saturating_sub(done) as f64 / per_s.max(1e-3);
    format!("{what}: {done} of {total} rows, {per_s:.0} rows/s, {left_s:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_done_total_rate_and_time_left() {
        let text = line("loading", 250, 1_000, Duration::from_secs(10));
        assert_eq!(text, "loading: 250 of 1000 rows, 25 rows/s, 30 s left");
    }

    #[test]
    fn bars_template_is_valid() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }
}
