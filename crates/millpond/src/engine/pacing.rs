//! The controller at work. The engine's measurements go in; rates for the keeper and a limit for writers come out. The
//! arithmetic is in [`crate::pace`].
//!
//! PACE-2  One tick at a time. The keeper runs it. If the tick is overdue because the keeper waits for a device, the
//!         next thread that is about to write runs it.

mod paying;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::clock;
use crate::base::sync::{Condvar, Mutex, Rank};
use crate::engine::flush_reason::FlushReason;
use crate::pace::log_length::LogLength;
use crate::pace::payment::Payments;
use crate::pace::rules::Rules;
use crate::pace::shares::For;
use crate::pace::tick::{Pace, Rates};
use crate::pace::zone_cleaning::Costs;
use crate::store::lot::LOT_PAGES;

/// Approximate number of age groups of dirty pages that a tick looks at.
const AGES: u64 = 256;

/// Upper bound for an earlier run's rate, in pages a second: no device writes more, so a larger value is not believed.
const EARLIER_MAX: u64 = 10_000_000;

/// Time that pages wait to be joined by others, if they are fewer than a lot.
const GATHER_NS: u64 = 100_000_000;

/// Value of `busy_since_ns` when the keeper has nothing to write.
const IDLE: u64 = u64::MAX;

/// Most databases for which a thread remembers its debts at a time.
const PAYER_OF_MAX: usize = 4;

/// The controller, its inputs and its outputs.
pub(crate) struct Pacing {
    state: Mutex<State>,
    next_tick_ns: AtomicU64,
    /// Time since which the keeper has always had something to write, or [`IDLE`]. Written by the keeper, and by a tick
    /// during redo; read by ticks.
    busy_since_ns: AtomicU64,
    payments: Mutex<Payments>,
    /// Writers that pay sleep here.
    news: Condvar,
    /// Whether writers are limited: a copy of what `payments` says, read without its mutex.
    is_limited: AtomicBool,
    /// The controller measures, and decides nothing: a classic method of flushing does.
    only_looks: bool,
    /// Number of this engine, unique in the process: tells a thread's debts to several databases apart.
    number: u64,
    /// Length of the log that the controller goes by, in bytes; 0: no tick so far. Written by ticks.
    log_length: AtomicU64,
    /// Total time for which writers were limited.
    limited_ns: AtomicU64,
    /// Total time that ticks took.
    ticks_ns: AtomicU64,
    /// Measured cost of a write and of each page in it, in nanoseconds; 0 and 0: not known.
    write_cost_ns: AtomicU64,
    page_cost_ns: AtomicU64,
}

struct State {
    pace: Pace,
    ages: Vec<(u64, u64)>,
    /// Time of the last write of pages for the log.
    flushed_ns: u64,
    log_length: LogLength,
}

/// The pages that the keeper writes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Pages for free frames. This many pages for the log are due as well.
    Frames(usize),
    /// This many pages for the log.
    Log(usize),
    Nothing,
}

impl Pacing {
    /// A controller for a device that wrote `pages_per_s` in an earlier run; 0: not known. With `only_looks` it
    /// measures, and decides nothing: the page cleaners decide.
    pub(crate) fn new(pages_per_s: u64, only_looks: bool) -> Pacing {
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

    /// Time at which the next tick is due.
    pub(crate) fn next_tick_ns(&self) -> u64 {
        self.next_tick_ns.load(Ordering::Relaxed)
    }

    /// The pages to write next; `frames_short`: free frames are wanted, too.
    pub(crate) fn next(&self, frames_short: bool, now_ns: u64) -> Next {
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

    /// The reason why pages are written for the log.
    pub(crate) fn why(&self) -> FlushReason {
        if self.state.lock().pace.rates().for_idleness { FlushReason::Background } else { FlushReason::Pace }
    }

    /// Notes that there are no pages to write.
    pub(crate) fn nothing_to_write(&self) {
        self.busy_since_ns.store(IDLE, Ordering::Relaxed);
    }

    /// Notes that pages are going to be written. Only the keeper calls this.
    /// [`nothing_to_write`](Self::nothing_to_write) is called by the keeper, and by ticks while the log is redone.
    pub(crate) fn is_writing(&self) {
        if self.busy_since_ns.load(Ordering::Relaxed) == IDLE {
            self.busy_since_ns.store(clock::now_ns(), Ordering::Relaxed);
        }
    }

    /// Notes that `pages` were written; `both`: pages for the other purpose are due as well.
    pub(crate) fn written(&self, what: For, pages: usize, both: bool, now_ns: u64) {
        let mut state = self.state.lock();
        state.pace.pay(what, pages, both);
        if what == For::Log {
            state.flushed_ns = now_ns;
        }
    }

    /// Whether the controller decides nothing, as with the classic methods of flushing.
    pub(crate) fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// Number of pages that are to be written for the log.
    pub(crate) fn owed(&self) -> usize {
        if self.only_looks { 0 } else { self.state.lock().pace.owed() }
    }

    /// Whether the log is nearly full.
    pub(crate) fn is_urgent(&self) -> bool {
        self.state.lock().pace.is_urgent()
    }

    /// The rates in force.
    pub(crate) fn rates(&self) -> Rates {
        self.state.lock().pace.rates()
    }

    /// Notes the measured costs of writes and pages.
    pub(crate) fn note_costs(&self, costs: Option<Costs>) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and not negative")]
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let (write, page) = costs.map_or((0, 0), |costs| (ns(costs.write_s), ns(costs.page_s)));
        self.write_cost_ns.store(write, Ordering::Relaxed);
        self.page_cost_ns.store(page, Ordering::Relaxed);
    }

    /// The costs of a write and of a page, in nanoseconds.
    pub(crate) fn costs_ns(&self) -> (u64, u64) {
        (self.write_cost_ns.load(Ordering::Relaxed), self.page_cost_ns.load(Ordering::Relaxed))
    }

    /// Whether writers are slowed down.
    fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Sets the limit, in bytes of log a second. If it is much larger than before, sleeping payers are woken.
    fn set_limit(&self, bytes_per_s: f64, now_ns: u64) {
        self.change_payments(|payments| payments.set_limit(bytes_per_s, now_ns));
    }

    /// Ends all payments and wakes sleeping payers: the database is being closed, or has stopped.
    pub(crate) fn end_payments(&self) {
        self.change_payments(|payments| payments.end(clock::now_ns()));
    }

    /// Applies `change`, which returns whether sleeping payers are to be woken.
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

    /// Total time for which a limit was in force, whether or not a writer had to wait.
    pub(crate) fn limited_us(&self) -> u64 {
        self.limited_ns.load(Ordering::Relaxed) / 1000
    }

    /// Total time that the controller itself took.
    pub(crate) fn tick_us(&self) -> u64 {
        self.ticks_ns.load(Ordering::Relaxed) / 1000
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);
