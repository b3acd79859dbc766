//! The controller: what is known about log, pages and device, every 20 ms, becomes rates.
//!
//! A pure function of its inputs and of its own memory. Mostly the keeper runs it; whoever finds it overdue does, so
//! that a keeper that waits for a slow device does not leave writers with the rates of before.

use super::envelope::{Envelope, float};
use super::redo_limit::{Pressure, RedoLimit};
use super::shares::{For, Shares};
use super::write_capacity::{WriteCapacity, Written};

/// Between two ticks.
pub(crate) const TICK_NS: u64 = 20_000_000;

/// A tick that is so late is run by whoever finds it.
pub(crate) const OVERDUE_NS: u64 = 40_000_000;

/// The checkpoint age, as a part of the log's capacity, that pages are written for: what is left is for a device that
/// is slower for a while. A page has to be clean earlier, by the log that is written until a checkpoint has passed it.
const WINDOW: f64 = 0.75;

/// But it may be dirty for this part.
const SHORTEST_WINDOW: f64 = 0.25;

/// That takes at least so many seconds: a data sync, and a checkpoint.
const PUBLISHED_S: f64 = 0.3;

/// An average of how much log is written until a checkpoint has passed what is clean, in seconds. Not a maximum: a
/// device that stops holds checkpoints back, too, and is what the rest of the log is for.
const LAG_S: f64 = 5.0;

/// From one checkpoint to the next it grows from nearly nothing: at the most it is so many times the average.
const PEAK: f64 = 1.5;

/// The checkpoint age that writers are slowed down for.
const LAST_WINDOW: f64 = 0.88;

/// More than is needed is written, by this factor: what is late was not foreseen.
const MARGIN: f64 = 1.05;

/// Averages of the log's growth: the larger counts.
const FAST_S: f64 = 0.25;
const SLOW_S: f64 = 4.0;

/// An average of what is written, and of what is dirtied, in seconds.
const WRITTEN_S: f64 = 0.5;
const DIRTIED_S: f64 = 4.0;

/// Pages that are dirty for so long are written while the log is quiet, although nothing needs it...
const IDLE_AFTER_S: f64 = 10.0;

/// ...in so much time, but for the last ones: a page a second.
const IDLE_WITHIN_S: f64 = 120.0;

/// A log is quiet that has grown by less than this part of its capacity in that time, as a divisor.
const QUIET_PART: u64 = 64;

/// The log is nearly full for the [`Shares`] of the device.
const URGENT_AGE: f64 = 0.80;

/// A log that is filled in so many seconds leaves no time to gather pages for a lot.
const SHORT_LAP_S: f64 = 5.0;

/// A device is saturated that has always had a page to write for so long.
const SATURATED_NS: u64 = 250_000_000;

/// What may be owed to the log at once, in seconds of the rate: what the device did not do is not made up in a burst.
const OWED_S: f64 = 0.25;

/// Rules that the simulation switches off, one at a time, to see what they are worth. The engine has all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Writers are slowed down with evidence only.
    pub(crate) evidence: bool,
    /// A deadline counts as some seconds away.
    pub(crate) floor: bool,
    /// What the device can do is measured.
    pub(crate) measured: bool,
    /// Writers become slower and slower before the log is full.
    pub(crate) brake: bool,
    /// A lull does not make the log's growth look small.
    pub(crate) slow_average: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { evidence: true, floor: true, measured: true, brake: true, slow_average: true }
    }
}

/// What is known at a tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) now_ns: u64,
    /// Where the log ends.
    pub(crate) next_lsn: u64,
    /// Where redo would begin.
    pub(crate) checkpoint_lsn: u64,
    /// Bytes that the log is to have from there, and that it can have.
    pub(crate) capacity: u64,
    pub(crate) full: u64,
    /// Where the files begin that have so much room: all that is older has to be clean by the time that the log has
    /// filled these.
    pub(crate) ring_lsn: u64,
    /// Dirty pages by age, as in [`Envelope`].
    pub(crate) ages: &'a [(u64, u64)],
    /// Pages written so far.
    pub(crate) written: u64,
    /// Pages of whole lots.
    pub(crate) written_in_lots: u64,
    /// Time that the device took for these.
    pub(crate) lots_ns: u64,
    /// Since when there has always been something to write; `None`: there is nothing.
    pub(crate) busy_since_ns: Option<u64>,
}

/// What the controller has decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Pages a second to write for the log.
    pub(crate) flush_pages_per_s: f64,
    /// Bytes a second by which the log may grow; infinity: nobody is slowed down.
    pub(crate) redo_limit: f64,
    /// Bytes a second by which it grows.
    pub(crate) redo_per_s: f64,
    /// Pages a second that the device can write; 0: nothing is known.
    pub(crate) capacity_pages_per_s: f64,
    /// What is written for the log is so because the log is quiet, and not because it needs that.
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
    /// Where the log was, some seconds ago and since then: (time, LSN).
    past: std::collections::VecDeque<(u64, u64)>,
    /// Bytes of log from the checkpoint to the oldest dirty page, on average.
    lag_bytes: f64,
    /// How long it takes to fill the log.
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
    /// A controller of a device that could write so many pages a second in an earlier run; 0: nothing is known.
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

    /// The next rates.
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
            // No more than there is: where all pages are dirty, hardly any becomes so.
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

    /// Pages that have been dirty for longer than [`IDLE_AFTER_S`].
    fn idle_pages(&mut self, inputs: Inputs<'_>) -> f64 {
        // One position a second is enough.
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

    /// So many pages are being written; `both`: pages are wanted for the other, too.
    pub(crate) fn pay(&mut self, what: For, pages: usize, both: bool) {
        let pages = float(pages as u64);
        if what == For::Log {
            self.owed = (self.owed - pages).max(0.0);
        }
        if both {
            self.shares.written(what, pages);
        }
    }

    /// What is written next, if pages are wanted for frames and for the log.
    pub(crate) fn next(&self) -> For {
        self.shares.next(self.urgent)
    }

    /// Whether the log is nearly full.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Whether the log is filled so fast that nothing may wait for others.
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

/// A moving average over `within_s` seconds, `seconds` later.
fn follow(average: f64, now: f64, seconds: f64, within_s: f64) -> f64 {
    average + (now - average) * (1.0 - (-seconds / within_s).exp())
}
