//! The controller at work: what the engine knows goes in, what keeper and writers go by comes out ([`crate::pace`]).
//!
//! PACE-2  One tick at a time. The keeper's own, or, when that is overdue for it waits for a device, that of whoever is
//!         about to write.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use smallvec::SmallVec;

use super::engine::Engine;
use super::page_writer::Why;
use crate::base::aligned::to_u64;
use crate::base::clock;
use crate::base::laws;
use crate::base::operations::OperationKind;
use crate::base::sync::{Condvar, Mutex, Rank};
use crate::base::waits::{Operation, WaitClass};
use crate::pace::envelope::float;
use crate::pace::log_length::LogLength;
use crate::pace::payment::{Payments, Place, Places};
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

/// No time: there is nothing to write.
const IDLE: u64 = u64::MAX;

/// Databases whose payers a thread may be at a time.
const PAYER_OF_MAX: usize = 4;

/// The controller, and what it goes by.
pub(crate) struct Pacing {
    state: Mutex<State>,
    next_tick_ns: AtomicU64,
    /// Since when the keeper has always had something to write, or [`IDLE`].
    busy_since_ns: AtomicU64,
    payments: Mutex<Payments>,
    /// Payers sleep here.
    news: Condvar,
    /// Whether there is a limit, as `payments` has it.
    is_limited: AtomicBool,
    /// It measures, and decides nothing.
    only_looks: bool,
    /// Whose payments they are: no other engine's of this process has it.
    number: u64,
    /// Bytes of log that the controller goes by; 0: those that are wanted.
    log_length: AtomicU64,
    /// Time for which there was a limit.
    limited_ns: AtomicU64,
    /// Time that ticks have taken.
    ticks_ns: AtomicU64,
    /// What a write and a page cost, in nanoseconds of a lot; 0 and 0: not known.
    write_cost_ns: AtomicU64,
    page_cost_ns: AtomicU64,
}

struct State {
    pace: Pace,
    ages: Vec<(u64, u64)>,
    /// When pages were written for the log last.
    flushed_ns: u64,
    log_length: LogLength,
}

impl Payer {
    /// Takes the places of one database out, and those that there are too many of.
    fn take(&mut self, number: u64) -> Option<Places> {
        if let Some(at) = self.places.iter().position(|(of, _)| *of == number) {
            return Some(self.places.remove(at).1);
        }
        if self.places.len() >= PAYER_OF_MAX {
            self.places.remove(0);
        }
        None
    }
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
    /// A controller of a device that wrote so many pages a second in an earlier run; 0: nothing is known. One that
    /// `only_looks` measures, and decides nothing: page cleaners do.
    pub(super) fn new(pages_per_s: u64, only_looks: bool) -> Pacing {
        #[expect(clippy::cast_precision_loss, reason = "a rate needs no exact count")]
        let pace = Pace::new(pages_per_s.min(EARLIER_MAX) as f64, Rules::default());
        Pacing {
            state: Mutex::new(
                Rank::Pacing,
                State { pace, ages: Vec::new(), flushed_ns: 0, log_length: LogLength::default() },
            ),
            next_tick_ns: AtomicU64::new(0),
            busy_since_ns: AtomicU64::new(IDLE),
            payments: Mutex::new(Rank::Payments, Payments::default()),
            news: Condvar::new(),
            is_limited: AtomicBool::new(false),
            log_length: AtomicU64::new(0),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            only_looks,
            limited_ns: AtomicU64::new(0),
            ticks_ns: AtomicU64::new(0),
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
        let owed = if self.only_looks { 0 } else { state.pace.owed() };
        let gathered = now_ns >= state.flushed_ns + GATHER_NS || state.pace.is_log_short_lived();
        let is_enough = owed >= LOT_PAGES || (owed > 0 && gathered);
        match (frames_short, is_enough) {
            (true, true) if state.pace.next() == For::Log => Next::Log(owed),
            (true, _) => Next::Frames(if is_enough { owed } else { 0 }),
            (false, true) => Next::Log(owed),
            (false, false) => {
                self.nothing_to_write();
                Next::Nothing
            }
        }
    }

    /// Why pages that the log is owed are written.
    pub(super) fn why(&self) -> Why {
        if self.state.lock().pace.rates().for_idleness { Why::Background } else { Why::Pace }
    }

    /// The device is idle, as far as pages go.
    pub(super) fn nothing_to_write(&self) {
        self.busy_since_ns.store(IDLE, Ordering::Relaxed);
    }

    /// Pages are going to be written. Called by the keeper only, as is [`nothing_to_write`](Self::nothing_to_write),
    /// and before the log is redone.
    pub(super) fn is_writing(&self) {
        if self.busy_since_ns.load(Ordering::Relaxed) == IDLE {
            self.busy_since_ns.store(clock::now_ns(), Ordering::Relaxed);
        }
    }

    /// So many pages were written; `both`: there is more to write for the other, too.
    pub(super) fn written(&self, what: For, pages: usize, both: bool, now_ns: u64) {
        let mut state = self.state.lock();
        state.pace.pay(what, pages, both);
        if what == For::Log {
            state.flushed_ns = now_ns;
        }
    }

    /// Whether it decides nothing, as with the classic methods of flushing.
    pub(super) fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// Pages that are to be written for the log.
    pub(super) fn owed(&self) -> usize {
        if self.only_looks { 0 } else { self.state.lock().pace.owed() }
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

    /// Whether writers are slowed down.
    fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Another limit, in bytes of log a second. Who sleeps for his payment is told if it is much larger.
    fn set_limit(&self, bytes_per_s: f64, now_ns: u64) {
        self.change_payments(|payments| payments.set_limit(bytes_per_s, now_ns));
    }

    /// Nobody pays any more: the database is being closed, or has stopped. Who sleeps is woken.
    pub(super) fn end_payments(&self) {
        self.change_payments(|payments| payments.end(clock::now_ns()));
    }

    /// `change` says whether who sleeps is to look again.
    fn change_payments(&self, change: impl FnOnce(&mut Payments) -> bool) {
        let is_news = {
            let mut payments = self.payments.lock();
            let is_news = change(&mut payments);
            self.is_limited.store(payments.is_limited(), Ordering::Relaxed);
            is_news
        };
        if is_news {
            self.news.notify_all();
        }
    }

    /// Time for which writers were slowed down, or could have been.
    pub(super) fn limited_us(&self) -> u64 {
        self.limited_ns.load(Ordering::Relaxed) / 1000
    }

    /// Time that the controller itself has taken.
    pub(super) fn tick_us(&self) -> u64 {
        self.ticks_ns.load(Ordering::Relaxed) / 1000
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// What a thread owes, and to whom.
#[derive(Default)]
struct Payer {
    /// By the numbers of databases, those last that it wrote to last.
    places: SmallVec<[(u64, Places); 1]>,
    /// Transactions under way, one within the other.
    paying: u32,
}

thread_local! {
    static PAYER: RefCell<Payer> = RefCell::default();
}

/// A transaction under way, which is charged for what it has logged when it ends.
#[must_use]
pub(crate) struct Paying<'e> {
    engine: &'e Engine,
    _operation: Operation<'e>,
}

impl Drop for Paying<'_> {
    fn drop(&mut self) {
        PAYER.with_borrow_mut(|payer| payer.paying -= 1);
        self.engine.charge(false);
    }
}

impl Engine {
    /// Begins a transaction: pays for those that this thread has written before. Callers hold nothing. May wait on
    /// `throttle`.
    pub(super) fn begin_write(&self) -> Paying<'_> {
        let operation = self.waits.operation(OperationKind::Write);
        if let Some(classic) = &self.classic_flushing {
            self.sync_flush(classic);
        }
        if clock::coarse_ns() >= self.pacing.next_tick_ns().saturating_add(OVERDUE_NS) {
            self.tick_pace();
        }
        if self.pacing.is_limited() && !planted!("nobody_pays") {
            self.pay(None);
        }
        take_appended();
        PAYER.with_borrow_mut(|payer| payer.paying += 1);
        Paying { engine: self, _operation: operation }
    }

    /// At a statement's start inside of a transaction: pays part of what that has logged.
    pub(super) fn pay_inside(&self, owed: &mut u64) {
        // What the engine writes for itself is not paid for.
        if PAYER.with_borrow(|payer| payer.paying == 0) {
            return;
        }
        if let Some(classic) = &self.classic_flushing {
            self.sync_flush(classic);
        }
        *owed += self.charge(true);
        if self.pacing.is_limited() && self.pay(Some(*owed)) {
            *owed = 0;
        }
    }

    /// Charges this thread for what it has logged; returns how many bytes.
    fn charge(&self, is_large: bool) -> u64 {
        let bytes = take_appended();
        if self.pacing.is_limited() {
            PAYER.with_borrow_mut(|payer| {
                let mut places = payer.take(self.pacing.number).unwrap_or_default();
                self.pacing.payments.lock().charge(bytes, is_large, clock::now_ns(), &mut places);
                payer.places.push((self.pacing.number, places));
            });
        }
        bytes
    }

    /// Waits until this thread's debts are paid (PACE-1). Whether there was a wait. Time ends it; a limit that becomes
    /// much larger, or is lifted; the end of the database. A statement in a transaction that has logged `owed` bytes
    /// looks again, whenever it is woken, whether it still may wait.
    fn pay(&self, owed: Option<u64>) -> bool {
        laws::check_park();
        let place = || {
            owed.map_or(Place::Begin, |owed| Place::Statement {
                owed,
                others_wait: self.txns.locks.is_anybody_waiting(),
                log_nearly_full: self.is_log_nearly_full(),
            })
        };
        let pacing = &self.pacing;
        let own = PAYER.with_borrow(|payer| payer.places.iter().find(|(of, _)| *of == pacing.number).copied());
        let since_ns = clock::now_ns();
        let when = place();
        let mut payments = pacing.payments.lock();
        let places = own.map_or_else(|| payments.last_places(), |(_, places)| places);
        let Some(mut until) = payments.wait_until_ns(places, since_ns, since_ns, when) else { return false };
        self.waits.timed(WaitClass::Throttle, || {
            loop {
                drop(pacing.news.wait_until(payments, until, "payment"));
                let now = clock::now_ns();
                if now >= pacing.next_tick_ns() + OVERDUE_NS {
                    self.tick_pace();
                }
                let when = place();
                payments = pacing.payments.lock();
                match payments.wait_until_ns(places, since_ns, now, when) {
                    Some(later) => until = later,
                    None => break,
                }
            }
        });
        true
    }

    /// Bytes that the log is to have at most: its capacity, or what is recovered from in the time that is wanted.
    pub(super) fn log_wanted(&self) -> u64 {
        self.recovery_time.log_bytes(self.core.log.capacity())
    }

    /// The same, on its way to less.
    pub(super) fn log_length(&self) -> u64 {
        match self.pacing.log_length.load(Ordering::Relaxed) {
            0 => self.log_wanted(),
            length => length,
        }
    }

    /// Where the newest ring of the log begins, if it goes over to one, and how much of that is taken: until the
    /// checkpoint has come there, what was logged since.
    fn ring_and_age(&self) -> (u64, u64) {
        let (ring, positions) = (self.core.log.geometry().1, self.core.log.positions());
        let ring_lsn = ring.map_or(0, |switch| switch.at.0);
        (ring_lsn, positions.next.0.saturating_sub(positions.checkpoint.0.max(ring_lsn)))
    }

    fn is_log_nearly_full(&self) -> bool {
        self.ring_and_age().1 > self.core.log.capacity() / 10 * 9
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
        if self.redoing.load(Ordering::Relaxed) {
            // Nothing is written for the log, and nobody writes: the device's rest is not to be seen.
            self.pacing.nothing_to_write();
            self.pacing.next_tick_ns.store(now_ns + TICK_NS, Ordering::Relaxed);
            return;
        }
        let before_ns = self.pacing.next_tick_ns.swap(now_ns + TICK_NS, Ordering::Relaxed);
        let (log, positions) = (&self.core.log, self.core.log.positions());
        let since_ns = if before_ns == 0 { TICK_NS } else { now_ns.saturating_sub(before_ns - TICK_NS) };
        let (ring_lsn, age) = self.ring_and_age();
        let full = log.capacity();
        let capacity = state.log_length.tick(float(since_ns) / 1e9, self.log_wanted(), full, age);
        self.pacing.log_length.store(capacity, Ordering::Relaxed);
        let State { pace, ages, .. } = &mut *state;
        log.counts.frames_by_age(capacity / AGES, ages);
        let (written_in_lots, lots_ns) = self.page_writes.lots();
        let rates = pace.tick(Inputs {
            now_ns,
            next_lsn: positions.next.0,
            checkpoint_lsn: positions.checkpoint.0,
            capacity,
            full,
            ring_lsn,
            ages,
            written: self.page_writes.all(),
            written_in_lots,
            lots_ns,
            busy_since_ns: Some(self.pacing.busy_since_ns.load(Ordering::Relaxed)).filter(|since_ns| *since_ns != IDLE),
        });
        if self.pacing.is_limited() {
            self.pacing.limited_ns.fetch_add(since_ns, Ordering::Relaxed);
        }
        if !self.pacing.only_looks {
            self.pacing.set_limit(rates.redo_limit, now_ns);
        }
        self.pacing.ticks_ns.fetch_add(clock::now_ns().saturating_sub(now_ns), Ordering::Relaxed);
    }

    /// LSN before which map pages have to be written.
    pub(super) fn map_pages_cut(&self) -> u64 {
        let (next, capacity) = (self.core.log.positions().next.0, self.log_length());
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
