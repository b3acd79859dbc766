//! Progress of long work on standard error: a bar on a terminal, otherwise one line every 10 s; nothing with `--quiet`.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;

use crate::output::{is_quiet, talk};

/// Time between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Time between two states of a turning mark.
const TURN_EVERY: Duration = Duration::from_millis(120);

/// The bar's look: done, total, rate, time left.
const BAR: &str = "{msg} {bar:40} {human_pos} of {human_len} UNIT, {rate} UNIT/s, {eta} left";

/// The mark's look, for work of unknown length.
const MARK: &str = "{spinner} {msg}, {elapsed}";

/// Progress of some work, reported by several threads. Dropping it removes the bar.
pub(crate) struct Progress {
    what: &'static str,
    unit: &'static str,
    total: u64,
    started: Instant,
    shown: Shown,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    /// A mark that a thread turns, if one could be started.
    Mark {
        mark: ProgressBar,
        clock: Option<Clock>,
    },
    Lines {
        done: AtomicU64,
        next_line: Mutex<Instant>,
    },
    Clock {
        _clock: Clock,
    },
}

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// Shows a bar of bytes. The result takes the bytes that are done, and all; it breaks once `stop` is set.
pub(crate) fn bar_of_bytes(
    what: &'static str,
    stop: &Arc<AtomicBool>,
) -> impl FnMut(u64, u64) -> ControlFlow<()> + Send + use<> {
    let stop = Arc::clone(stop);
    let (mut bar, mut before): (Option<Progress>, _) = (None, 0);
    move |done, total| {
        let more = (done / MIB).saturating_sub(before);
        bar.get_or_insert_with(|| Progress::start(what, "MiB", total / MIB)).advance(more);
        before += more;
        // Relaxed: an independent flag.
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Progress {
    /// Starts to show the progress of `what` (such as `loading`) over `total` pieces of `unit` (such as `rows`).
    pub(crate) fn start(what: &'static str, unit: &'static str, total: u64) -> Progress {
        let started = Instant::now();
        let shown = if is_quiet() {
            Shown::Nothing
        } else if stderr().is_terminal() {
            Shown::Bar(ProgressBar::new(total).with_style(style(&BAR.replace("UNIT", unit))).with_message(what))
        } else {
            Shown::Lines { done: AtomicU64::new(0), next_line: Mutex::new(started + LINE_EVERY) }
        };
        Progress { what, unit, total, started, shown }
    }

    /// Starts to show the elapsed time of `what`.
    pub(crate) fn working(what: &'static str) -> Progress {
        let started = Instant::now();
        let shown = if is_quiet() {
            Shown::Nothing
        } else if stderr().is_terminal() {
            let mark = ProgressBar::new_spinner().with_style(style(MARK)).with_message(what);
            // Not the library's own thread, which panics if it cannot be started.
            let turned = mark.clone();
            let clock = Clock::start(TURN_EVERY, move || turned.tick());
            Shown::Mark { mark, clock }
        } else {
            let speak = move || talk(&format!("{what}: {:.0} s so far", started.elapsed().as_secs_f64()));
            Clock::start(LINE_EVERY, speak).map_or(Shown::Nothing, |_clock| Shown::Clock { _clock })
        };
        Progress { what, unit: "", total: 0, started, shown }
    }

    /// Notes that `pieces` more are done.
    pub(crate) fn advance(&self, pieces: u64) {
        match &self.shown {
            Shown::Nothing | Shown::Mark { .. } | Shown::Clock { .. } => {}
            Shown::Bar(bar) => bar.inc(pieces),
            Shown::Lines { done, next_line } => {
                // Relaxed: an independent figure.
                let done = done.fetch_add(pieces, Ordering::Relaxed) + pieces;
                let now = Instant::now();
                let mut next_line = next_line.lock();
                if now >= *next_line {
                    *next_line = now + LINE_EVERY;
                    talk(&line(self.what, self.unit, done, self.total, now - self.started));
                }
            }
        }
    }

    /// Calls `print` while the bar is hidden.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.shown {
            Shown::Bar(bar) | Shown::Mark { mark: bar, .. } => bar.suspend(print),
            Shown::Nothing | Shown::Lines { .. } | Shown::Clock { .. } => print(),
        }
    }

    /// Removes the bar and returns the elapsed time; the caller reports the result.
    pub(crate) fn finish(self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        match &mut self.shown {
            Shown::Bar(bar) => bar.finish_and_clear(),
            Shown::Mark { mark, clock } => {
                // First, or the clock's thread would draw the mark again.
                drop(clock.take());
                mark.finish_and_clear();
            }
            Shown::Nothing | Shown::Lines { .. } | Shown::Clock { .. } => {}
        }
    }
}

/// A thread that repeats an action while work is going on.
struct Clock {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Clock {
    /// Starts the thread; `None` if no thread can be started, and then the action never runs.
    fn start(every: Duration, act: impl Fn() + Send + 'static) -> Option<Clock> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let tick = move || {
            let mut next = Instant::now() + every;
            // Relaxed: an independent flag; the thread that sets it unparks this thread afterwards.
            while !ended.load(Ordering::Relaxed) {
                let now = Instant::now();
                if now < next {
                    thread::park_timeout(next - now);
                    continue;
                }
                next += every;
                act();
            }
        };
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(tick).ok()?;
        Some(Clock { has_ended, thread: Some(thread) })
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed); // Relaxed: as in `start`
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    // The library's own format of the rate has four decimals.
    let rate = |state: &ProgressState, text: &mut dyn Write| {
        let _ = write!(text, "{:.0}", state.per_sec());
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("rate", rate)
}

fn line(what: &str, unit: &str, done: u64, total: u64, elapsed: Duration) -> String {
    let per_s = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let left_s = total.saturating_sub(done) as f64 / per_s.max(1e-3);
    format!("{what}: {done} of {total} {unit}, {per_s:.0} {unit}/s, {left_s:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_says_done_total_rate_and_time_left() {
        let text = line("loading", "rows", 250, 1_000, Duration::from_secs(10));
        assert_eq!(text, "loading: 250 of 1000 rows, 25 rows/s, 30 s left");
    }

    #[test]
    fn clock_acts_until_it_is_dropped() {
        let (acted, acts) = std::sync::mpsc::channel();
        let clock = Clock::start(Duration::from_millis(1), move || _ = acted.send(()));
        assert!(acts.recv().is_ok() && acts.recv().is_ok());
        drop(clock);
        // The sender was dropped with its thread.
        acts.iter().for_each(drop);
        assert_eq!(acts.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    }

    /// A compaction may find more to do than it has said.
    #[test]
    fn bar_of_bytes_takes_a_number_that_falls() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut bar = bar_of_bytes("compacting", &stop);
        assert_eq!([9, 3, 12].map(|mib| bar(mib * MIB, 20 * MIB)), [ControlFlow::Continue(()); 3]);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(bar(12 * MIB, 20 * MIB), ControlFlow::Break(()));
    }

    #[test]
    fn templates_are_valid() {
        for template in [BAR.replace("UNIT", "rows"), MARK.to_owned()] {
            assert!(ProgressStyle::with_template(&template).is_ok(), "{template}");
        }
    }
}
