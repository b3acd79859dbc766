//! The controller at work: what the engine knows goes in, what keeper and writers go by comes out ([`crate::pace`]).
//!
//! PACE-2  One tick at a time. The keeper's own, or, when that is overdue for it waits for a device, that of whoever is
//!         about to write.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::engine::Engine;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::sync::{self, Mutex, Rank};
use crate::base::waits::{Operation, WaitClass};
use crate::pace::payment::{PaymentClock, Place};
use crate::pace::shares::For;
use crate::pace::tick::{Inputs, OVERDUE_NS, Pace, Rates, Rules, TICK_NS};
use crate::pace::zone_cleaning::Costs;
use crate::redo::log::take_appended;
use crate::store::page_store::LOT_PAGES;

/// Groups of dirty pages by age that a tick looks at, about.
const AGES: u64 = 256;

/// No device writes more pages a second: what says so is not to be believed.
const EARLIER_MAX: u64 = 10_000_000;

/// Fewer pages than a lot wait for others for so long.
const GATHER_NS: u64 = 100_000_000;

/// Who waits for his payment looks so often whether he still has to.
const LOOK_NS: u64 = 20_000_000;

/// The controller, and what it goes by.
pub(crate) struct Pacing {
    state: Mutex<State>,
    next_tick_ns: AtomicU64,
    /// When the keeper had nothing to write last.
    nothing_to_write_ns: AtomicU64,
    clock: PaymentClock,
    /// Time for which there was a limit.
    limited_ns: AtomicU64,
    /// What a write and a page cost, in nanoseconds of a lot; 0 and 0: not known.
    write_cost_ns: AtomicU64,
    page_cost_ns: AtomicU64,
}

struct State {
    pace: Pace,
    ages: Vec<(u64, u64)>,
    /// When pages were written for the log last.
    flushed_ns: u64,
}

/// What the keeper writes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// For frames; there are so many pages for the log, too.
    Frames(usize),
    /// So many pages for the log.
    Log(usize),
    Nothing,
}

impl Pacing {
    /// A controller of a device that wrote so many pages a second in an earlier run; 0: nothing is known.
    pub(super) fn new(pages_per_s: u64) -> Pacing {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
        let pace = Pace::new(pages_per_s.min(EARLIER_MAX) as f64, Rules::default());
        Pacing {
            state: Mutex::new(Rank::Pacing, State { pace, ages: Vec::new(), flushed_ns: 0 }),
            next_tick_ns: AtomicU64::new(0),
            nothing_to_write_ns: AtomicU64::new(0),
            clock: PaymentClock::default(),
            limited_ns: AtomicU64::new(0),
            write_cost_ns: AtomicU64::new(0),
            page_cost_ns: AtomicU64::new(0),
        }
    }

    /// When the next tick is due.
    pub(super) fn next_tick_ns(&self) -> u64 {
        self.next_tick_ns.load(Ordering::Relaxed)
    }

    /// What to write next, if frames are short or not.
    pub(super) fn next(&self, frames_short: bool, now_ns: u64) -> Next {
        let state = self.state.lock();
        let owed = state.pace.owed();
        let gathered = now_ns >= state.flushed_ns + GATHER_NS || state.pace.is_log_short_lived();
        let is_enough = owed >= LOT_PAGES || (owed > 0 && gathered);
        match (frames_short, is_enough) {
            (true, true) if state.pace.next() == For::Log => Next::Log(owed),
            (true, _) => Next::Frames(if is_enough { owed } else { 0 }),
            (false, true) => Next::Log(owed),
            (false, false) => {
                self.nothing_to_write(now_ns);
                Next::Nothing
            }
        }
    }

    /// The device is idle, as far as pages go.
    pub(super) fn nothing_to_write(&self, now_ns: u64) {
        self.nothing_to_write_ns.store(now_ns, Ordering::Relaxed);
    }

    /// So many pages were written; `both`: there is more to write for the other, too.
    pub(super) fn written(&self, what: For, pages: usize, both: bool, now_ns: u64) {
        let mut state = self.state.lock();
        state.pace.pay(what, pages, both);
        if what == For::Log {
            state.flushed_ns = now_ns;
        }
    }

    /// Pages that are to be written for the log.
    pub(super) fn owed(&self) -> usize {
        self.state.lock().pace.owed()
    }

    /// Whether the log is nearly full.
    pub(super) fn is_urgent(&self) -> bool {
        self.state.lock().pace.is_urgent()
    }

    /// The rates in force.
    pub(super) fn rates(&self) -> Rates {
        self.state.lock().pace.rates()
    }

    /// What writes and pages were found to cost.
    pub(super) fn note_costs(&self, costs: Option<Costs>) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let (write, page) = costs.map_or((0, 0), |costs| (ns(costs.write_s), ns(costs.page_s)));
        self.write_cost_ns.store(write, Ordering::Relaxed);
        self.page_cost_ns.store(page, Ordering::Relaxed);
    }

    /// The same, in nanoseconds: of a write, of a page.
    pub(super) fn costs_ns(&self) -> (u64, u64) {
        (self.write_cost_ns.load(Ordering::Relaxed), self.page_cost_ns.load(Ordering::Relaxed))
    }

    /// Time for which writers were slowed down, or could have been.
    pub(super) fn limited_us(&self) -> u64 {
        self.limited_ns.load(Ordering::Relaxed) / 1000
    }
}

thread_local! {
    /// Where this thread's payments have come to, and on whose clock.
    static PLACE: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// A transaction under way, which is charged for what it has logged when it ends.
#[must_use]
pub(crate) struct Paying<'e> {
    engine: &'e Engine,
    _operation: Operation<'e>,
}

impl Drop for Paying<'_> {
    fn drop(&mut self) {
        self.engine.charge();
    }
}

impl Engine {
    /// Begins a transaction: pays for those that this thread has written before. Callers hold nothing. May wait on
    /// `throttle`.
    pub(super) fn begin_write(&self) -> Paying<'_> {
        let operation = self.waits.operation("write");
        let pacing = &self.pacing;
        let now = clock::coarse_ns();
        if now >= pacing.next_tick_ns().saturating_add(OVERDUE_NS) {
            self.tick_pace();
        }
        if pacing.clock.is_limited() && !planted!("nobody_pays") {
            self.pay(Place::Begin);
        }
        take_appended();
        Paying { engine: self, _operation: operation }
    }

    /// At a statement's start inside of a transaction: pays part of what that has logged.
    pub(super) fn pay_inside(&self, owed: &mut u64, others_wait: bool) {
        *owed += self.charge();
        let others_wait = others_wait && !self.is_log_nearly_full();
        if self.pacing.clock.is_limited() && self.pay(Place::Statement { owed: *owed, others_wait }) {
            *owed = 0;
        }
    }

    /// Charges this thread for what it has logged; returns how many bytes.
    fn charge(&self) -> u64 {
        let bytes = take_appended();
        match self.pacing.clock.charge(bytes, clock::now_ns) {
            0 => {}
            place => PLACE.set((self.address(), place)),
        }
        bytes
    }

    /// Waits for this thread's place (PACE-1). Whether there was a wait.
    fn pay(&self, when: Place) -> bool {
        let clock = &self.pacing.clock;
        let place = match PLACE.get() {
            (engine, place) if engine == self.address() => place,
            _ => clock.last_place(),
        };
        let mut now = clock::now_ns();
        let Some(until) = clock.wait_until_ns(place, now, when) else { return false };
        self.waits.timed(WaitClass::Throttle, || {
            // Nobody ends this wait but time. The limit may be lifted meanwhile.
            while now < until && clock.is_limited() {
                sync::sleep_until(until.min(now + LOOK_NS));
                now = clock::now_ns();
                if now >= self.pacing.next_tick_ns() + OVERDUE_NS {
                    self.tick_pace();
                }
            }
        });
        true
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Bytes of log that the controller goes by.
    pub(super) fn log_capacity(&self) -> u64 {
        self.recovery_time.log_bytes(self.core.log.capacity())
    }

    fn is_log_nearly_full(&self) -> bool {
        let positions = self.core.log.positions();
        positions.next.since(positions.checkpoint) > self.log_capacity() / 10 * 9
    }

    /// What the device was found to write, in bytes of pages a second; 0: not seen yet.
    pub(super) fn write_capacity(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let pages_per_s = self.pacing.rates().capacity_pages_per_s as u64;
        pages_per_s.saturating_mul(to_u64(self.core.store.page_size()))
    }

    /// Runs the controller's next tick, unless somebody is at it.
    pub(super) fn tick_pace(&self) {
        let Some(mut state) = self.pacing.state.try_lock() else { return };
        let now_ns = clock::now_ns();
        if now_ns < self.pacing.next_tick_ns() {
            return;
        }
        let before_ns = self.pacing.next_tick_ns.swap(now_ns + TICK_NS, Ordering::Relaxed);
        let State { pace, ages, .. } = &mut *state;
        let (log, positions, capacity) = (&self.core.log, self.core.log.positions(), self.log_capacity());
        log.counts.frames_by_age(capacity / AGES, ages);
        let (written_in_lots, lots_ns) = self.page_writes.lots();
        let rates = pace.tick(Inputs {
            now_ns,
            next_lsn: positions.next.0,
            checkpoint_lsn: positions.checkpoint.0,
            capacity,
            ages,
            written: self.page_writes.all(),
            written_in_lots,
            lots_ns,
            nothing_to_write_ns: self.pacing.nothing_to_write_ns.load(Ordering::Relaxed),
        });
        if self.pacing.clock.is_limited() {
            let since_ns = now_ns.saturating_sub(before_ns.saturating_sub(TICK_NS));
            self.pacing.limited_ns.fetch_add(since_ns, Ordering::Relaxed);
        }
        self.pacing.clock.set_limit(rates.redo_limit);
    }

    /// LSN before which map pages have to be written.
    pub(super) fn map_pages_cut(&self) -> u64 {
        let (next, capacity) = (self.core.log.positions().next.0, self.log_capacity());
        let is_quiet = self.pacing.state.lock().pace.is_quiet(next, capacity);
        if is_quiet { u64::MAX } else { next.saturating_sub(capacity / 8 * 3) }
    }

    /// The LSN before which those pages were dirtied that are going to be written for the log in the next `seconds`,
    /// and `at_least` so many.
    pub(super) fn due_cut(&self, seconds: f64, at_least: usize) -> u64 {
        let state = self.pacing.state.lock();
        let Rates { flush_pages_per_s, capacity_pages_per_s, .. } = state.pace.rates();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let soon = (flush_pages_per_s.min(capacity_pages_per_s) * seconds) as u64;
        let wanted = soon.max(to_u64(at_least));
        let mut counted = 0;
        let cut = state.ages.iter().find(|(_, pages)| {
            counted += pages;
            counted >= wanted
        });
        cut.or(state.ages.last()).map_or(0, |(lsn, _)| *lsn)
    }
}
