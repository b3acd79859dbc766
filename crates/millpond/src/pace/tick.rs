//! The controller: every 20 ms it turns the state of log, pages and device into rates.
//!
//! A pure function of its inputs and its own memory. Mostly the keeper runs it. Any thread that finds it overdue runs
//! it, too, so that writers do not keep old rates while the keeper waits for a slow device.

use super::envelope::{Envelope, float};
use super::redo_limit::{Pressure, RedoLimit};
use super::shares::{For, Shares};
use super::write_capacity::{WriteCapacity, Written};
use crate::pace::rules::Rules;

/// Nanoseconds between two ticks.
pub(crate) const TICK_NS: u64 = 20_000_000;

/// A tick this late, in ns, is run by the thread that finds it.
pub(crate) const OVERDUE_NS: u64 = 40_000_000;

/// The checkpoint age, as a part of the log's capacity, for which pages are written. The rest is a reserve for a device
/// that is slower for a while. Pages must be clean earlier still, by the log that is written until a checkpoint has
/// passed them (the lag).
const WINDOW: f64 = 0.75;

/// A page may stay dirty for at least this part of the log.
const SHORTEST_WINDOW: f64 = 0.25;

/// The least lag, in seconds of log: a data sync, and a checkpoint.
const PUBLISHED_S: f64 = 0.3;

/// Averaging time of the lag, in seconds. An average, not a maximum: a device that stops holds checkpoints back, too,
/// and for that there is the reserve.
const LAG_S: f64 = 5.0;

/// The lag grows from nearly zero between two checkpoints: its maximum is this factor of the average.
const PEAK: f64 = 1.5;

/// The checkpoint age, as a part of the log's capacity, for which writers are slowed down.
const LAST_WINDOW: f64 = 0.88;

/// Factor by which more is written than needed, because some delays are not foreseen.
const MARGIN: f64 = 1.05;

/// Averaging times of the log's growth, in seconds: the larger average counts.
const FAST_S: f64 = 0.25;
const SLOW_S: f64 = 4.0;

/// Averaging times of pages written, and of pages dirtied, in seconds.
const WRITTEN_S: f64 = 0.5;
const DIRTIED_S: f64 = 4.0;

/// Pages that have been dirty for this many seconds are written while the log is quiet, although nothing needs it...
const IDLE_AFTER_S: f64 = 10.0;

/// ...within this many seconds, except for the last ones, which leave at a page a second.
const IDLE_WITHIN_S: f64 = 120.0;

/// A log is quiet if it has grown in that time by less than this part of its capacity, as a divisor.
const QUIET_PART: u64 = 64;

/// The checkpoint age from which on the log counts as nearly full in the [`Shares`] of the device.
const URGENT_AGE: f64 = 0.80;

/// A log that fills up in less than this many seconds leaves no time to gather pages for a lot (batch of pages).
const SHORT_LAP_S: f64 = 5.0;

/// A device is saturated if it had a page to write all the time for this many ns.
const SATURATED_NS: u64 = 250_000_000;

/// The largest arrears of the log, in seconds of the rate: work that the device did not do is not made up in a burst.
const OWED_S: f64 = 0.25;

/// The controller's inputs at a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) now_ns: u64,
    /// LSN of the log's end.
    pub(crate) next_lsn: u64,
    /// LSN where redo would begin.
    pub(crate) checkpoint_lsn: u64,
    /// Bytes that the log should hold from there, and bytes that it can hold.
    pub(crate) capacity: u64,
    pub(crate) full: u64,
    /// LSN where the files of that size begin. All pages dirtied before it must be clean by the time that the log has
    /// filled these files.
    pub(crate) ring_lsn: u64,
    /// Dirty pages by age, as in [`Envelope`].
    pub(crate) ages: &'a [(u64, u64)],
    /// Pages written so far.
    pub(crate) written: u64,
    /// Pages of whole lots (batches) written so far.
    pub(crate) written_in_lots: u64,
    /// Time, in ns, that the device took for these.
    pub(crate) lots_ns: u64,
    /// The time since when there has always been a page to write; `None`: there is none now.
    pub(crate) busy_since_ns: Option<u64>,
}

/// The controller's decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Pages a second to write for the log.
    pub(crate) flush_pages_per_s: f64,
    /// Bytes a second by which the log may grow; infinity: writers are not slowed down.
    pub(crate) redo_limit: f64,
    /// Growth of the log, in bytes a second.
    pub(crate) redo_per_s: f64,
    /// Capacity of the device, in pages a second; 0: unknown.
    pub(crate) capacity_pages_per_s: f64,
    /// Whether pages are written for the log only because it is quiet, and not because it needs them.
    pub(crate) for_idleness: bool,
}

/// The controller's memory.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    rules: Rules,
    last: Option<Last>,
    fast: f64,
    slow: f64,
    written_per_s: f64,
    dirtied_per_s: f64,
    capacity: WriteCapacity,
    shares: Shares,
    limit: RedoLimit,
    /// The log's end in the last seconds, oldest first: (time, LSN).
    past: std::collections::VecDeque<(u64, u64)>,
    /// Bytes of log from the checkpoint to the oldest dirty page, on average.
    lag_bytes: f64,
    /// Seconds in which the log fills up.
    lap_s: f64,
    owed: f64,
    urgent: bool,
    rates: Rates,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    now_ns: u64,
    next_lsn: u64,
    dirty: u64,
    written: u64,
    written_in_lots: u64,
    lots_ns: u64,
}

impl Pace {
    /// A controller of a device whose capacity an earlier run measured, in pages a second; 0: unknown.
    pub(crate) fn new(earlier_pages_per_s: f64, rules: Rules) -> Pace {
        let capacity = WriteCapacity::new(earlier_pages_per_s);
        Pace {
            rules,
            last: None,
            fast: 0.0,
            slow: 0.0,
            written_per_s: 0.0,
            dirtied_per_s: 0.0,
            capacity,
            shares: Shares::default(),
            limit: RedoLimit::default(),
            past: std::collections::VecDeque::new(),
            lag_bytes: 0.0,
            lap_s: f64::INFINITY,
            owed: 0.0,
            urgent: false,
            rates: Rates {
                flush_pages_per_s: 0.0,
                redo_limit: f64::INFINITY,
                redo_per_s: 0.0,
                capacity_pages_per_s: earlier_pages_per_s,
                for_idleness: false,
            },
        }
    }

    /// Computes the next rates.
    pub(crate) fn tick(&mut self, inputs: Inputs<'_>) -> Rates {
        let dirty = inputs.ages.iter().map(|(_, pages)| pages).sum();
        let last = self.last.replace(Last {
            now_ns: inputs.now_ns,
            next_lsn: inputs.next_lsn,
            dirty,
            written: inputs.written,
            written_in_lots: inputs.written_in_lots,
            lots_ns: inputs.lots_ns,
        });
        let Some(last) = last.filter(|last| last.now_ns < inputs.now_ns) else { return self.rates };
        let seconds = float(inputs.now_ns - last.now_ns) / 1e9;
        self.look_at_log(seconds, float(inputs.next_lsn.saturating_sub(last.next_lsn)) / seconds);
        let redo_per_s = if self.rules.slow_average { self.fast.max(self.slow) } else { self.fast };

        let busy_ns = inputs.busy_since_ns.map_or(0, |since_ns| inputs.now_ns.saturating_sub(since_ns));
        let saturated = busy_ns >= SATURATED_NS;
        let since = |now: u64, then: u64| float(now.saturating_sub(then));
        let pages = since(inputs.written, last.written);
        self.written_per_s = follow(self.written_per_s, pages / seconds, seconds, WRITTEN_S);
        let dirtied = (float(dirty) - float(last.dirty) + pages).max(0.0);
        self.dirtied_per_s = follow(self.dirtied_per_s, dirtied / seconds, seconds, DIRTIED_S);
        let lots_pages = since(inputs.written_in_lots, last.written_in_lots);
        let lots_s = since(inputs.lots_ns, last.lots_ns) / 1e9;
        if self.rules.measured {
            self.capacity.tick(seconds, Written { pages, lots_pages, lots_s, saturated, lap_s: self.lap_s });
        }

        let capacity = float(inputs.capacity.max(1));
        let from_lsn = inputs.checkpoint_lsn.max(inputs.ring_lsn);
        let taken = inputs.next_lsn.saturating_sub(from_lsn);
        let age = float(taken) / capacity;
        self.lap_s = capacity / redo_per_s.max(1.0);
        self.urgent = age > URGENT_AGE;
        let oldest = inputs.ages.first().map_or(inputs.next_lsn, |(lsn, _)| *lsn);
        let lag_bytes = float(oldest.saturating_sub(inputs.checkpoint_lsn));
        self.lag_bytes = follow(self.lag_bytes, lag_bytes, seconds, LAG_S);
        let lag = (self.lag_bytes * PEAK).max(redo_per_s * PUBLISHED_S) / capacity;
        let within = |part: f64| (part - lag).max(SHORTEST_WINDOW);
        let within = |part: f64| Envelope {
            ages: inputs.ages,
            next_lsn: inputs.next_lsn,
            ring_lsn: inputs.ring_lsn,
            window_bytes: within(part) * capacity,
            soonest_s: float(TICK_NS) / 1e9,
        };
        let needed = within(WINDOW).pages_per_s(redo_per_s) * MARGIN;
        let idle = match self.idle_pages(inputs) {
            0.0 => 0.0,
            pages => (pages / IDLE_WITHIN_S).max(1.0),
        };
        let flush_pages_per_s = needed.max(idle);
        self.owed = (self.owed + flush_pages_per_s * seconds).min((flush_pages_per_s * OWED_S).max(1.0));

        let pressure = Pressure {
            envelope: within(LAST_WINDOW),
            age,
            room: float(inputs.full.saturating_sub(taken)),
            full: float(inputs.full),
            redo_per_s,
            // At most 1: while all pages are dirty, hardly any page becomes dirty.
            kept_up_per_s: self.slow * (self.written_per_s / self.dirtied_per_s.max(1.0)).min(1.0),
            pages_per_s: self.capacity.pages_per_s(),
            saturated,
        };
        let redo_limit = self.limit.tick(seconds, pressure, self.rules);
        let capacity_pages_per_s = self.capacity.pages_per_s();
        let for_idleness = idle > needed;
        self.rates = Rates { flush_pages_per_s, redo_limit, redo_per_s, capacity_pages_per_s, for_idleness };
        self.rates
    }

    fn look_at_log(&mut self, seconds: f64, bytes_per_s: f64) {
        self.fast = follow(self.fast, bytes_per_s, seconds, FAST_S);
        self.slow = follow(self.slow, bytes_per_s, seconds, SLOW_S);
    }

    /// Pages that have been dirty for longer than [`IDLE_AFTER_S`], while the log is quiet.
    fn idle_pages(&mut self, inputs: Inputs<'_>) -> f64 {
        // One position a second suffices.
        if self.past.back().is_none_or(|(at, _)| float(inputs.now_ns - at) >= 1e9) {
            self.past.push_back((inputs.now_ns, inputs.next_lsn));
        }
        while self.past.get(1).is_some_and(|(at, _)| float(inputs.now_ns - at) >= IDLE_AFTER_S * 1e9) {
            self.past.pop_front();
        }
        let Some(&(at, lsn)) = self.past.front().filter(|_| self.is_quiet(inputs.next_lsn, inputs.capacity)) else {
            return 0.0;
        };
        if float(inputs.now_ns - at) < IDLE_AFTER_S * 1e9 {
            return 0.0;
        }
        float(inputs.ages.iter().take_while(|(first, _)| *first <= lsn).map(|(_, pages)| pages).sum())
    }

    /// Pages that the log is owed now.
    pub(crate) fn owed(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let owed = self.owed as usize;
        owed
    }

    /// Records that `pages` pages are being written for `what`; `both`: the other purpose has work, too.
    pub(crate) fn pay(&mut self, what: For, pages: usize, both: bool) {
        let pages = float(pages as u64);
        if what == For::Log {
            self.owed = (self.owed - pages).max(0.0);
        }
        if both {
            self.shares.written(what, pages);
        }
    }

    /// The purpose of the next write, if frames and log both have work.
    pub(crate) fn next(&self) -> For {
        self.shares.next(self.urgent)
    }

    /// Whether the log is nearly full.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Whether the log fills up so fast that pages must not wait for a whole lot.
    pub(crate) fn is_log_short_lived(&self) -> bool {
        self.lap_s < SHORT_LAP_S
    }

    /// Whether the log has hardly grown in the last seconds.
    pub(crate) fn is_quiet(&self, next_lsn: u64, capacity: u64) -> bool {
        self.past.front().is_some_and(|(_, lsn)| next_lsn.saturating_sub(*lsn) < capacity / QUIET_PART)
    }

    /// The rates in force.
    pub(crate) fn rates(&self) -> Rates {
        self.rates
    }
}

/// A moving average over `within_s` seconds, updated after `seconds`.
fn follow(average: f64, now: f64, seconds: f64, within_s: f64) -> f64 {
    average + (now - average) * (1.0 - (-seconds / within_s).exp())
}
