//! `millpond top SOCKET|PORT`: what is the engine doing, second by second?

mod figures;
mod screen;
mod source;

use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use self::figures::Figures;
pub(crate) use self::source::Source;
use self::source::{Awaited, Sample};
use crate::exit::{Answer, Failure};
use crate::output::{print, talk};
use crate::signals;

/// The stop flag is checked at least this often.
const NAP: Duration = Duration::from_millis(50);

/// The longest interval: the engine keeps the slowest operations of a minute.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_long_help = "A running engine is watched on the socket or the port that it was given (bench
--status-socket=PATH, --metrics-port=PORT; Options::status_socket, Options::metrics_port). Any number of viewers may
watch at the same time. On a terminal the view is redrawn, and q or Ctrl-C leaves it; otherwise, or with --plain, a
block of lines is printed at each interval. When the engine ends, top ends too, and reports whether it was closed.

Examples:
  millpond top --once /tmp/millpond.sock
  millpond top --plain --interval=200ms --once /tmp/millpond.sock")]
pub(crate) struct TopArgs {
    /// The status socket of a running engine, or its port for Prometheus
    #[arg(value_name = "SOCKET|PORT")]
    target: PathBuf,

    /// Time between two samples, 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Show one interval, and end
    #[arg(long)]
    once: bool,

    /// Lines of text, also on a terminal
    #[arg(long)]
    plain: bool,
}

/// An engine that is being watched.
struct Watch<'a> {
    target: &'a str,
    source: Source,
    interval: Duration,
    last: Sample,
}

impl Watch<'_> {
    /// The current figures, without rates.
    fn first(&self) -> Figures {
        Figures::between(&self.last, &self.last)
    }

    /// Asks for a new sample.
    fn ask(&self) -> Result<Awaited<Sample>, Failure> {
        self.source.sample()
    }

    /// The figures from the last sample to this one. `None`: the engine has ended.
    fn look(&mut self, answer: io::Result<Sample>) -> Result<Option<Figures>, Failure> {
        let now = match answer {
            Ok(now) => now,
            Err(why) if has_ended(&why) => return Ok(None),
            Err(why) => return Err(self.source.failure(&why, "")),
        };
        let figures = Figures::between(&self.last, &now);
        self.last = now;
        Ok(Some(figures))
    }

    /// Reports that the engine has ended.
    fn tell_end(&self) -> Answer {
        talk(&self.source.ending());
        Answer::Yes
    }
}

/// Whether the error means that the engine has ended, or ended while it answered.
fn has_ended(why: &io::Error) -> bool {
    matches!(
        why.kind(),
        ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
    )
}

/// Watches an engine.
pub(crate) fn run(args: &TopArgs) -> Result<Answer, Failure> {
    let source = Source::parse(&args.target)?;
    let target = args.target.display().to_string();
    let stop = signals::stop_flag()?;
    let Some(first) = answer(&source.sample()?, &stop) else { return Ok(Answer::Interrupted) };
    let first = first.map_err(|why| source.failure(&why, ""))?;
    let mut watch = Watch { target: &target, source, interval: args.interval, last: first };
    if std::io::stdout().is_terminal() && !args.plain && !args.once {
        return screen::run(&mut watch, &stop);
    }
    loop {
        if !sleep(watch.interval, &stop) {
            return Ok(Answer::Interrupted);
        }
        let Some(answer) = answer(&watch.ask()?, &stop) else { return Ok(Answer::Interrupted) };
        let Some(figures) = watch.look(answer)? else {
            if args.once {
                return Err(Failure::message(format!("the engine at '{target}' has ended before it was asked again")));
            }
            return Ok(watch.tell_end());
        };
        let block = figures.block(&target);
        if args.once {
            print(&block)?;
            return Ok(Answer::Yes);
        }
        print(&format!("{block}\n"))?;
    }
}

/// Waits for an answer. `None`: interrupted.
fn answer(awaited: &Awaited<Sample>, stop: &AtomicBool) -> Option<io::Result<Sample>> {
    // Relaxed: an independent flag.
    while !stop.load(Ordering::Relaxed) {
        if let Some(answer) = awaited.wait(NAP) {
            return Some(answer);
        }
    }
    None
}

/// Sleeps; returns `false` if interrupted.
fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    loop {
        // Relaxed: an independent flag.
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let Some(left) = until.checked_duration_since(Instant::now()) else { return true };
        thread::sleep(left.min(NAP));
    }
}

/// Reads an interval, such as `1s`.
fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).ok();
    let is_right = |time: &Duration| (INTERVAL_MIN..=INTERVAL_MAX).contains(time);
    time.filter(is_right).ok_or_else(|| "not a time from 100ms to 60s: write, for example, 1s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_engine_is_told_from_one_that_cannot_be_asked() {
        use ErrorKind::*;
        for ended in [NotFound, ConnectionRefused, ConnectionReset, BrokenPipe, UnexpectedEof] {
            assert!(has_ended(&ended.into()), "{ended:?}");
        }
        for other in [PermissionDenied, WouldBlock, TimedOut, InvalidData, Other] {
            assert!(!has_ended(&other.into()), "{other:?}");
        }
    }

    #[test]
    fn intervals_have_units_and_limits() {
        assert_eq!(["100ms", "1s", "1m"].map(interval), [100, 1_000, 60_000].map(|ms| Ok(Duration::from_millis(ms))));
        for wrong in ["", "1", "0s", "99ms", "61s", "-1s", "often"] {
            assert!(interval(wrong).is_err_and(|why| why.contains("100ms to 60s")), "{wrong}");
        }
    }
}
