//! Writers pay for the log that they append, by waits on `throttle`; and the controller's tick.
//!
//! A transaction is charged when it ends; its thread pays before its next transaction or, inside a long transaction,
//! at a statement's start. The arithmetic of both is in [`payment`](crate::pace::payment) and
//! [`tick`](crate::pace::tick).

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use crate::base::aligned::to_u64;
use crate::base::operations::OperationKind;
use crate::base::waits::{Operation, WaitClass};
use crate::base::{clock, laws};
use crate::engine::Engine;
use crate::engine::pacing::{AGES, IDLE, PAYER_OF_MAX, State};
use crate::engine::redo_change::Usage;
use crate::pace::envelope::float;
use crate::pace::payment::{Place, Places};
use crate::pace::tick::{Inputs, OVERDUE_NS, Rates, TICK_NS};
use crate::redo::append::take_appended;
use crate::redo::files::Geometry;

impl Payer {
    /// Removes and returns the places of database `number`. If it has none, makes room for them: forgets the database
    /// that the thread wrote to least recently, if the list is full.
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

/// A thread's debts, by database.
#[derive(Default)]
pub(crate) struct Payer {
    /// Ends of the debts in the payment queues, by the databases' numbers. The database written to last comes last.
    places: SmallVec<[(u64, Places); 1]>,
    /// Number of this thread's transactions under way, nested ones included.
    paying: u32,
}

thread_local! {
    static PAYER: RefCell<Payer> = RefCell::default();
}

/// A transaction or a statement under way. When dropped, the thread is charged for the bytes that it has logged.
#[must_use]
pub(crate) struct Paying<'e> {
    engine: &'e Engine,
    _operation: Operation<'e>,
}

impl Paying<'_> {
    /// Charges the thread for the bytes that it has logged so far, and returns their number.
    pub(crate) fn charge(&self) -> u64 {
        self.engine.charge(false)
    }
}

impl Drop for Paying<'_> {
    fn drop(&mut self) {
        PAYER.with_borrow_mut(|payer| payer.paying -= 1);
        self.engine.charge(false);
    }
}

impl Engine {
    /// Begins a transaction: pays for this thread's earlier ones. Callers hold nothing. May wait on `throttle`.
    pub(crate) fn begin_write(&self) -> Paying<'_> {
        self.begin(None)
    }

    /// Begins a statement of a transaction that may hold row locks, as [`begin_write`](Self::begin_write) does: pays
    /// little while others wait. `owed`: bytes that the transaction has logged since it paid last.
    pub(crate) fn begin_statement(&self, owed: &mut u64) -> Paying<'_> {
        self.begin(Some(owed))
    }

    fn begin(&self, owed: Option<&mut u64>) -> Paying<'_> {
        let operation = self.waits.operation(OperationKind::Write);
        if let Some(classic) = &self.classic_flushing {
            self.sync_flush(classic);
        }
        if clock::coarse_ns() >= self.pacing.next_tick_ns().saturating_add(OVERDUE_NS) {
            self.tick_pace();
        }
        if self.pacing.is_limited() && !planted!("no_writer_pays") {
            let has_paid = self.pay(owed.as_deref().copied());
            owed.filter(|_| has_paid).into_iter().for_each(|owed| *owed = 0);
        }
        take_appended();
        PAYER.with_borrow_mut(|payer| payer.paying += 1);
        Paying { engine: self, _operation: operation }
    }

    /// Pays part of the log bytes of a transaction, at the start of one of its statements. `owed`: bytes that the
    /// transaction has logged since it paid last.
    pub(crate) fn pay_inside(&self, owed: &mut u64) {
        // The engine does not pay for its own writes.
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

    /// Charges this thread for the bytes that it has logged, and returns their number.
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

    /// Waits until this thread's debts are paid (PACE-1). Returns whether there was a wait. The wait ends with time,
    /// when the limit becomes much larger or is lifted, or when the database ends. A statement in a transaction that
    /// has logged `owed` bytes checks at each wake-up whether it may still wait.
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

    /// Wanted length of the log in bytes: its capacity, or less if the wanted recovery time demands it.
    pub(crate) fn log_wanted(&self) -> u64 {
        self.recovery_time.log_bytes(self.core.log.capacity())
    }

    /// Length of the log in force, in bytes: goes down to [`log_wanted`](Self::log_wanted) gradually.
    pub(crate) fn log_length(&self) -> u64 {
        match self.pacing.log_length.load(Ordering::Relaxed) {
            0 => self.log_wanted(),
            length => length,
        }
    }

    /// The log's first ring; the LSN at which the newest ring begins while the log switches rings, else 0; and the used
    /// bytes of that ring. Until the checkpoint has reached the ring, these are the bytes logged since its begin.
    fn ring_and_age(&self) -> (Geometry, u64, u64) {
        let ((ring, switch), positions) = (self.core.log.geometry(), self.core.log.positions());
        let ring_lsn = switch.map_or(0, |switch| switch.at.0);
        (ring, ring_lsn, positions.next.0.saturating_sub(positions.checkpoint.0.max(ring_lsn)))
    }

    fn is_log_nearly_full(&self) -> bool {
        self.ring_and_age().2 > self.core.log.capacity() / 10 * 9
    }

    /// Measured write rate of the device, in bytes of pages a second; 0: not measured yet.
    pub(crate) fn write_capacity(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let pages_per_s = self.pacing.rates().capacity_pages_per_s as u64;
        pages_per_s.saturating_mul(to_u64(self.core.store.page_size()))
    }

    /// Runs the controller's next tick if it is due and no other thread is running it.
    pub(crate) fn tick_pace(&self) {
        let Some(mut state) = self.pacing.state.try_lock() else { return };
        let now_ns = clock::now_ns();
        if now_ns < self.pacing.next_tick_ns() {
            return;
        }
        if self.redoing.load(Ordering::Relaxed) {
            // No pages are written for the log, and there are no writers: the device would seem idle.
            self.pacing.nothing_to_write();
            self.pacing.next_tick_ns.store(now_ns + TICK_NS, Ordering::Relaxed);
            return;
        }
        let before_ns = self.pacing.next_tick_ns.swap(now_ns + TICK_NS, Ordering::Relaxed);
        let (log, positions) = (&self.core.log, self.core.log.positions());
        let since_ns = if before_ns == 0 { TICK_NS } else { now_ns.saturating_sub(before_ns - TICK_NS) };
        let (ring, ring_lsn, age) = self.ring_and_age();
        let full = log.capacity();
        let capacity = state.log_length.tick(float(since_ns) / 1e9, self.log_wanted(), full, age);
        self.pacing.log_length.store(capacity, Ordering::Relaxed);
        let State { pace, ages, .. } = &mut *state;
        log.counts.frames_by_age(capacity / AGES, ages);
        if ring_lsn == 0 {
            let dirty = ages.iter().map(|(_, pages)| pages).sum::<u64>() * to_u64(self.core.store.page_size());
            self.redo_change.look(Usage { capacity: ring.capacity(), age, dirty, next_lsn: positions.next.0 });
        }
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

    /// The LSN before which changed map pages have to be written.
    pub(crate) fn map_pages_cut(&self) -> u64 {
        let (next, capacity) = (self.core.log.positions().next.0, self.log_length());
        let is_quiet = self.pacing.state.lock().pace.is_quiet(next, capacity);
        if is_quiet { u64::MAX } else { next.saturating_sub(capacity / 8 * 3) }
    }

    /// An LSN such that the pages dirtied before it are about those to be written for the log in the next `seconds`,
    /// and at least `at_least` pages.
    pub(crate) fn due_cut(&self, seconds: f64, at_least: usize) -> u64 {
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
