//! The table of row locks: holders, lines of waiters, and circles of transactions that wait for one another.
//!
//! LOCK-4  A circle is found when a wait begins, for every transaction waits in one line only: the search follows each
//!         waiter to the holders and earlier waiters that it waits for. It visits a waiting transaction once at most.
//!         One member of the circle gets an error instead of the lock, so no circle lasts. Only a transaction of
//!         statements does; the other waiters take their locks in one order (LOCK-3), so each circle has such a member.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use smallvec::SmallVec;

use crate::base::clock;
use crate::base::error::{Error, closed};
use crate::base::handoff::Handoff;
use crate::base::ids::{SpaceId, TxnId};

/// How a lock is held, or is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// With others of this mode.
    Shared,
    Exclusive,
}

impl Mode {
    fn conflicts(self, other: Mode) -> bool {
        self.max(other) == Mode::Exclusive
    }
}

/// A row or an absent key of a space; without a key, the tree as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) space: SpaceId,
    pub(crate) key: Option<Box<[u8]>>,
}

impl Place {
    pub(super) fn row(space: SpaceId, key: &[u8]) -> Place {
        Place { space, key: Some(key.into()) }
    }
}

/// The end of a wait for a lock: the lock, or the reason why there is none.
pub(super) type Answer = Result<(), NoLock>;

/// The reason why a lock is not given up.
#[derive(Clone)]
pub(super) enum NoLock {
    /// The holder's changes cannot be undone as things are.
    NotUndone(Arc<str>),
    /// No thread is left that would give the lock up.
    Stopped(Arc<str>),
    /// The transactions waited for one another, and this one is the victim.
    Deadlock,
    /// Another thread has cancelled the wait.
    Cancelled,
    /// The lock was not given up in time.
    TooLate,
    /// The database is being closed, and the lock's holder does not end before.
    Closing,
}

impl NoLock {
    #[cold]
    pub(super) fn error(&self) -> Error {
        match self {
            NoLock::NotUndone(why) => Error::NotUndone(
                format!("the row is locked by a batch that failed and is not undone ({why}): fix the cause (the undo is retried all the time); if that does not help, run `millpond check`").into(),
            ),
            NoLock::Stopped(why) => Error::ReadOnly(
                format!("the row is locked by a batch that no thread will end after an earlier failure ({why}): reopen the database").into(),
            ),
            NoLock::Deadlock => Error::Deadlock(
                "transactions waited for one another's locks, and this one was rolled back: begin it again".into(),
            ),
            NoLock::Cancelled => Error::Cancelled("the wait for a lock was cancelled by another thread".into()),
            NoLock::Closing => closed(),
            NoLock::TooLate => Error::LockTimeout(
                "a transaction that has not ended kept its lock for too long: repeat the call later, or roll back".into(),
            ),
        }
    }
}

/// A transaction that wants a lock.
pub(super) struct Waiter {
    pub(super) txn: TxnId,
    pub(super) mode: Mode,
    pub(super) handoff: Arc<Handoff<Answer>>,
}

/// A lock that some transaction holds, or waits for.
#[derive(Default)]
pub(super) struct Lock {
    holders: SmallVec<[(TxnId, Mode); 1]>,
    waiters: VecDeque<Waiter>,
}

impl Lock {
    pub(super) fn holders(&self) -> impl Iterator<Item = TxnId> {
        self.holders.iter().map(|(holder, _)| *holder)
    }

    pub(super) fn is_held_by(&self, txn: TxnId) -> bool {
        self.mode_of(txn).is_some()
    }

    /// How a transaction holds the lock.
    pub(super) fn mode_of(&self, txn: TxnId) -> Option<Mode> {
        self.holders.iter().find(|(holder, _)| *holder == txn).map(|(_, mode)| *mode)
    }

    /// The transactions that keep `txn` from holding the lock in this mode.
    fn in_the_way(&self, txn: TxnId, mode: Mode) -> impl Iterator<Item = TxnId> {
        let conflicts = move |(holder, held): &&(TxnId, Mode)| *holder != txn && mode.conflicts(*held);
        self.holders.iter().filter(conflicts).map(|(holder, _)| *holder)
    }

    /// Whether `txn` must wait for the lock: another transaction is in the way, or came earlier. A holder that wants a
    /// stronger mode passes the line.
    pub(super) fn blocks(&self, txn: TxnId, mode: Mode) -> bool {
        let has_line = !self.waiters.is_empty() && !planted!("newcomer_passes_the_line");
        self.in_the_way(txn, mode).next().is_some() || has_line && !self.is_held_by(txn)
    }
}

/// A circle of transactions that waited for one another, and its end.
#[derive(Clone)]
pub(crate) struct Circle {
    /// When it was found, in ns of the coarse clock.
    pub(crate) found_ns: u64,
    pub(crate) members: Vec<Member>,
}

/// A member of a circle.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) txn: TxnId,
    /// What it waited for.
    pub(crate) place: Place,
    pub(crate) mode: Mode,
    /// The number of its changes, if it is a transaction of statements.
    pub(crate) written: Option<u64>,
    pub(crate) gave_way: bool,
}

/// Bytes of a lock that one transaction holds, beside its key: an entry of a map, and one of the transaction's list.
/// Both have the key.
const HELD_BYTES: usize = 256;

impl Place {
    /// Bytes that a transaction's hold of this place takes, about. Locks of whole trees are few.
    fn held_bytes(&self) -> usize {
        self.key.as_ref().map_or(0, |key| HELD_BYTES + 2 * key.len())
    }
}

/// Number of circles that are kept for reports.
const CIRCLES_KEPT: usize = 8;

/// A transaction that waits.
pub(super) struct Waiting {
    pub(super) place: Place,
    /// Its priority and the number of its changes, if it may be the victim.
    pub(super) cost: Option<(u8, u64)>,
}

/// The locks of one space.
type SpaceLocks = HashMap<Box<[u8]>, Lock, FixedState>;

#[derive(Default)]
pub(super) struct LockTable {
    /// Transactions of several groups that have not ended: each row with the stamp of one is locked by it.
    pub(super) in_flight: BTreeSet<TxnId>,
    /// Transactions in flight whose changes cannot be undone, and why.
    pub(super) failed: HashMap<TxnId, NoLock, FixedState>,
    /// The reason why no lock will be given up any more, if so.
    pub(super) stopped: Option<NoLock>,
    /// Transactions of statements that have not ended: a user's thread ends them.
    pub(super) of_statements: HashSet<TxnId, FixedState>,
    /// The last circles.
    pub(super) circles: VecDeque<Circle>,
    /// The database is being closed: no transaction of statements will give up its locks any more.
    pub(super) is_closing: bool,
    rows: HashMap<SpaceId, SpaceLocks, FixedState>,
    trees: HashMap<SpaceId, Lock, FixedState>,
    /// The places of the locks that each transaction holds in this table.
    held: HashMap<TxnId, Vec<Place>, FixedState>,
    /// Bytes that the held locks of rows take, about.
    bytes: usize,
    pub(super) waiting: HashMap<TxnId, Waiting, FixedState>,
}

impl LockTable {
    /// Bytes that the held locks of rows take, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of locked rows.
    pub(super) fn rows(&self) -> usize {
        self.rows.values().map(HashMap::len).sum()
    }

    pub(super) fn row(&self, space: SpaceId, key: &[u8]) -> Option<&Lock> {
        self.rows.get(&space)?.get(key)
    }

    pub(super) fn lock(&self, place: &Place) -> Option<&Lock> {
        match &place.key {
            Some(key) => self.row(place.space, key),
            None => self.trees.get(&place.space),
        }
    }

    fn lock_mut(&mut self, place: &Place) -> Option<&mut Lock> {
        match &place.key {
            Some(key) => self.rows.get_mut(&place.space)?.get_mut(key),
            None => self.trees.get_mut(&place.space),
        }
    }

    fn made(&mut self, place: &Place) -> &mut Lock {
        match &place.key {
            Some(key) => self.rows.entry(place.space).or_default().entry(key.clone()).or_default(),
            None => self.trees.entry(place.space).or_default(),
        }
    }

    /// Has a transaction hold a lock in this mode, or in a stronger one if it has that already.
    pub(super) fn hold(&mut self, place: &Place, txn: TxnId, mode: Mode) {
        let lock = self.made(place);
        match lock.holders.iter_mut().find(|(holder, _)| *holder == txn) {
            Some((_, held)) => *held = mode.max(*held),
            None => {
                lock.holders.push((txn, mode));
                self.held.entry(txn).or_default().push(place.clone());
                self.bytes += place.held_bytes();
            }
        }
    }

    /// Lets the first waiters of a line have the lock, as many as may. A lock without holders leaves the table.
    fn hand_on(&mut self, place: &Place) {
        loop {
            let Some(lock) = self.lock_mut(place) else { return };
            let is_next = |next: &Waiter| lock.in_the_way(next.txn, next.mode).next().is_none();
            if !lock.waiters.front().is_some_and(is_next) {
                if lock.holders.is_empty() {
                    self.forget(place);
                }
                return;
            }
            let Some(next) = lock.waiters.pop_front() else { return };
            self.waiting.remove(&next.txn);
            self.hold(place, next.txn, next.mode);
            next.handoff.give(Ok(()));
        }
    }

    fn forget(&mut self, place: &Place) {
        match &place.key {
            None => _ = self.trees.remove(&place.space),
            Some(key) => {
                if let Some(rows) = self.rows.get_mut(&place.space) {
                    rows.remove(key);
                    if rows.is_empty() {
                        self.rows.remove(&place.space);
                    }
                }
            }
        }
    }

    /// The reason why it would be in vain for `txn` to wait for a lock, if so.
    pub(super) fn in_vain(&self, place: &Place, txn: TxnId) -> Option<NoLock> {
        if self.is_closing && self.of_statements.contains(&txn) {
            return Some(NoLock::Closing);
        }
        let reason = |holder| match self.failed.get(&holder) {
            Some(why) => Some(why.clone()),
            None => (self.is_closing && self.of_statements.contains(&holder)).then_some(NoLock::Closing),
        };
        self.stopped.clone().or_else(|| self.lock(place)?.holders().find_map(reason))
    }

    /// Puts a transaction at the end of a lock's line; one that holds the lock already, at its beginning.
    pub(super) fn queue(&mut self, waiter: Waiter, waiting: Waiting) {
        let txn = waiter.txn;
        let lock = self.made(&waiting.place);
        match lock.is_held_by(txn) {
            true => lock.waiters.push_front(waiter),
            false => lock.waiters.push_back(waiter),
        }
        self.waiting.insert(txn, waiting);
    }

    /// Takes a transaction out of the line in which it waits. False: it does not wait, or no more.
    pub(super) fn leave(&mut self, txn: TxnId) -> bool {
        self.refuse(txn, None)
    }

    /// Ends the wait of a transaction, and tells its thread `why`. False: it does not wait.
    pub(super) fn refuse(&mut self, txn: TxnId, why: Option<NoLock>) -> bool {
        let Some(Waiting { place, .. }) = self.waiting.remove(&txn) else { return false };
        if let Some(lock) = self.lock_mut(&place)
            && let Some(at) = lock.waiters.iter().position(|waiter| waiter.txn == txn)
            && let Some(waiter) = lock.waiters.remove(at)
            && let Some(why) = why
        {
            waiter.handoff.give(Err(why));
        }
        // Others may have waited for it only.
        self.hand_on(&place);
        true
    }

    /// A transaction that holds a lock in mode `now` goes back to `before`, or gives the lock up. Nothing changes if it
    /// holds the lock otherwise.
    pub(super) fn go_back(&mut self, place: &Place, txn: TxnId, now: Mode, before: Option<Mode>) {
        let Some(lock) = self.lock_mut(place).filter(|lock| lock.mode_of(txn) == Some(now)) else { return };
        match (before, lock.holders.iter_mut().find(|(holder, _)| *holder == txn)) {
            (Some(before), Some((_, mode))) => {
                *mode = before;
                self.hand_on(place);
            }
            _ => self.release(place, txn),
        }
    }

    /// A transaction gives up one lock.
    pub(super) fn release(&mut self, place: &Place, txn: TxnId) {
        if let Some(held) = self.held.get_mut(&txn) {
            if let Some(at) = held.iter().rposition(|held| held == place) {
                held.swap_remove(at);
            }
            if held.is_empty() {
                self.held.remove(&txn);
            }
        }
        self.give_up(place, txn);
    }

    fn give_up(&mut self, place: &Place, txn: TxnId) {
        let Some(lock) = self.lock_mut(place) else { return };
        let before = lock.holders.len();
        lock.holders.retain(|(holder, _)| *holder != txn);
        if lock.holders.len() < before {
            self.bytes -= place.held_bytes();
        }
        self.hand_on(place);
    }

    /// A transaction gives up all its locks.
    pub(super) fn end(&mut self, txn: TxnId) {
        self.in_flight.remove(&txn);
        self.failed.remove(&txn);
        self.of_statements.remove(&txn);
        for place in self.held.remove(&txn).unwrap_or_default() {
            self.give_up(&place, txn);
        }
    }

    /// Ends the waits for locks that such transactions hold.
    pub(super) fn tell(&mut self, why: &NoLock, is_meant: impl Fn(&LockTable, TxnId) -> bool) {
        let holds = |waiting: &Waiting| {
            self.lock(&waiting.place).is_some_and(|lock| lock.holders().any(|holder| is_meant(self, holder)))
        };
        let meant: Vec<TxnId> =
            self.waiting.iter().filter(|(_, waiting)| holds(waiting)).map(|(txn, _)| *txn).collect();
        for txn in meant {
            self.refuse(txn, Some(why.clone()));
        }
    }

    /// The transactions for which a waiting one waits. Of a line, the last exclusive one before it and those behind
    /// that suffice: the others are reached through them.
    fn awaited(&self, txn: TxnId) -> SmallVec<[TxnId; 4]> {
        let lock = self.waiting.get(&txn).and_then(|waiting| self.lock(&waiting.place));
        let Some(lock) = lock else { return SmallVec::new() };
        let Some(at) = lock.waiters.iter().position(|waiter| waiter.txn == txn) else { return SmallVec::new() };
        let mode = lock.waiters[at].mode;
        let mut awaited: SmallVec<[TxnId; 4]> = lock.in_the_way(txn, mode).collect();
        for earlier in lock.waiters.range(..at).rev() {
            if mode.conflicts(earlier.mode) {
                awaited.push(earlier.txn);
            }
            if earlier.mode == Mode::Exclusive {
                break;
            }
        }
        awaited
    }

    /// A circle of waiting transactions with `txn` in it, from that one on; empty: there is none (LOCK-4).
    pub(super) fn circle(&self, txn: TxnId) -> Vec<TxnId> {
        let mut seen: HashSet<TxnId, FixedState> = HashSet::default();
        // The way to the present transaction: each with those that it waits for and that were not followed yet.
        let mut way: Vec<(TxnId, SmallVec<[TxnId; 4]>)> = vec![(txn, self.awaited(txn))];
        while let Some((_, awaited)) = way.last_mut() {
            match awaited.pop() {
                None => _ = way.pop(),
                Some(next) if next == txn => return way.into_iter().map(|(txn, _)| txn).collect(),
                Some(next) if seen.insert(next) => {
                    let awaited = self.awaited(next);
                    way.push((next, awaited));
                }
                Some(_) => {}
            }
        }
        Vec::new()
    }

    /// Keeps a circle for reports.
    pub(super) fn note_circle(&mut self, circle: &[TxnId], victim: TxnId) {
        let member = |txn: &TxnId| {
            let waiting = self.waiting.get(txn)?;
            let line = &self.lock(&waiting.place)?.waiters;
            let mode = line.iter().find(|waiter| waiter.txn == *txn)?.mode;
            let (place, written) = (waiting.place.clone(), waiting.cost.map(|(_, written)| written));
            Some(Member { txn: *txn, place, mode, written, gave_way: *txn == victim })
        };
        let members = circle.iter().filter_map(member).collect();
        self.circles.truncate(CIRCLES_KEPT - 1);
        self.circles.push_front(Circle { found_ns: clock::coarse_ns(), members });
    }

    /// The member of a circle that gives way: of those that may, one with the lowest priority; of these the one with
    /// the fewest changes; and of several such the one that began its wait last, which comes first in the circle.
    pub(super) fn victim(&self, circle: &[TxnId]) -> Option<TxnId> {
        let cost = |txn: &TxnId| self.waiting.get(txn).and_then(|waiting| waiting.cost);
        circle.iter().filter(|txn| cost(txn).is_some()).min_by_key(|txn| cost(txn)).copied()
    }
}
