//! The latch word: many readers or one writer.
//!
//! LATCH-1  The word holds either the exclusive bit or a count of readers, never both.
//! LATCH-2  `PARKED` is set under the queue's lock by whoever is about to park, and cleared under it by whoever wakes
//!          the last. Whoever leaves the latch free and sees it wakes the queue's front: one writer, or all readers
//!          before the next writer.
//! LATCH-3  A newcomer may overtake who waits, but not for long: about every half millisecond the latch is handed to
//!          the queue's front without being free in between. New readers never overtake anybody.
//!
//! Nobody spins: a latch may be held by a thread that has no CPU. Who ends the wait: whoever releases the latch.

#![allow(unsafe_code, reason = "a lock word: `lock_api` builds the guards on it")]

use std::cell::Cell;

use super::primitives::{
    AtomicU64, DEFAULT_PARK_TOKEN, FilterOp, Ordering, ParkResult, ParkToken, UnparkResult, UnparkToken, park,
    unpark_filter,
};

/// Held by a writer.
const EXCLUSIVE: u64 = 1;

/// Somebody is parked.
const PARKED: u64 = 2;

/// One reader.
const READER: u64 = 4;

/// What a parked thread waits for.
const WANTS_SHARED: ParkToken = DEFAULT_PARK_TOKEN;
const WANTS_EXCLUSIVE: ParkToken = ParkToken(1);

/// What a parked thread is woken with: try again, or it is yours.
const RETRY: UnparkToken = UnparkToken(0);
const YOURS: UnparkToken = UnparkToken(1);

/// How a wait ended.
enum Woken {
    /// The latch is ours.
    Holding,
    /// It is our turn to try.
    InTurn,
    /// There was nothing to wait for any more.
    NotParked,
}

/// A latch's word.
pub(crate) struct Latch {
    word: AtomicU64,
}

impl Latch {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// What keeps a reader out: a writer, and those who wait, unless it is the reader's turn.
    fn blocks_shared(in_turn: bool) -> u64 {
        if in_turn { EXCLUSIVE } else { EXCLUSIVE | PARKED }
    }

    fn take_shared(&self, in_turn: bool) -> bool {
        let blocked = Self::blocks_shared(in_turn);
        let free = |word: u64| (word & blocked == 0).then_some(word + READER);
        // Acquire: pairs with the Release of the writer before.
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    fn take_exclusive(&self) -> bool {
        let free = |word: u64| (word & !PARKED == 0).then_some(word | EXCLUSIVE);
        // Acquire: pairs with the Releases of all who had it before.
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).is_ok()
    }

    /// Parks while one of the bits `blocking` is set.
    fn wait(&self, wants: ParkToken, blocking: u64) -> Woken {
        let still_blocked = || {
            let mark = |word: u64| (word & blocking != 0).then_some(word | PARKED);
            // Relaxed: the queue's lock orders this with whoever wakes.
            self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark).is_ok()
        };
        // SAFETY: the address is this latch's own, and nobody parks on it for anything else; the closures neither
        // panic nor park.
        let result = unsafe { park(self.address(), still_blocked, || (), |_, _| (), wants, None) };
        match result {
            ParkResult::Unparked(token) if token == YOURS => Woken::Holding,
            ParkResult::Unparked(_) => Woken::InTurn,
            ParkResult::Invalid | ParkResult::TimedOut => Woken::NotParked,
        }
    }

    #[cold]
    fn wait_shared(&self) {
        // The second look, before parking.
        let mut in_turn = false;
        while !self.take_shared(in_turn) {
            match self.wait(WANTS_SHARED, Self::blocks_shared(in_turn)) {
                Woken::Holding => return,
                Woken::InTurn => in_turn = true,
                Woken::NotParked => {}
            }
        }
    }

    #[cold]
    fn wait_exclusive(&self) {
        while !self.take_exclusive() {
            if matches!(self.wait(WANTS_EXCLUSIVE, !PARKED), Woken::Holding) {
                return;
            }
        }
    }

    /// Wakes the queue's front; the latch was left free.
    #[cold]
    fn wake(&self) {
        // What those woken would hold together: one writer, or readers.
        let held = Cell::new(0);
        let front = |token: ParkToken| match held.get() {
            0 if token == WANTS_EXCLUSIVE => {
                held.set(EXCLUSIVE);
                FilterOp::Unpark
            }
            EXCLUSIVE => FilterOp::Stop,
            readers if token == WANTS_SHARED => {
                held.set(readers + READER);
                FilterOp::Unpark
            }
            _ => FilterOp::Stop,
        };
        let woken = |result: UnparkResult| {
            let parked = if result.have_more_threads { PARKED } else { 0 };
            let hand_over = |word: u64| (word & !PARKED == 0).then_some(held.get() | parked);
            // Release and Acquire: what the last holder did comes before what those do to whom it is handed over.
            if result.be_fair && self.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, hand_over).is_ok() {
                return YOURS;
            }
            // Relaxed: the queue's lock orders this with whoever parks.
            if parked == 0 {
                self.word.fetch_and(!PARKED, Ordering::Relaxed);
            }
            RETRY
        };
        // SAFETY: the address is this latch's own; the closures neither panic nor park.
        let _ = unsafe { unpark_filter(self.address(), front, woken) };
    }
}

// SAFETY: LATCH-1: a thread gets the exclusive bit only from a word without holders, and a reader's count only from
// one without it; it gives back what it got. Acquire on taking pairs with Release on giving back.
unsafe impl lock_api::RawRwLock for Latch {
    const INIT: Latch = Latch { word: AtomicU64::new(0) };

    type GuardMarker = lock_api::GuardNoSend;

    fn lock_shared(&self) {
        if !self.take_shared(false) {
            self.wait_shared();
        }
    }

    fn try_lock_shared(&self) -> bool {
        self.take_shared(false)
    }

    unsafe fn unlock_shared(&self) {
        // Release: pairs with the Acquire of the writer after us.
        if self.word.fetch_sub(READER, Ordering::Release) == READER | PARKED {
            self.wake();
        }
    }

    fn lock_exclusive(&self) {
        if !self.take_exclusive() {
            self.wait_exclusive();
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        self.take_exclusive()
    }

    unsafe fn unlock_exclusive(&self) {
        // Release: pairs with the Acquire of whoever has it next.
        if self.word.fetch_and(!EXCLUSIVE, Ordering::Release) & PARKED != 0 {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use lock_api::RwLock;

    use super::*;

    #[test]
    fn writers_exclude_everybody_and_readers_only_writers() {
        let latch = RwLock::<Latch, u64>::new(0);
        let one = latch.try_read().expect("free");
        let two = latch.try_read().expect("shared");
        assert!(latch.try_write().is_none());
        drop((one, two));
        let writer = latch.try_write().expect("free");
        assert!(latch.try_read().is_none() && latch.try_write().is_none());
        drop(writer);
        assert!(latch.try_read().is_some());
    }

    /// A reader that comes after a parked writer is served after it, however many readers hold the latch.
    #[test]
    fn new_readers_do_not_overtake_a_parked_writer() {
        let latch = RwLock::<Latch, Vec<&'static str>>::new(Vec::new());
        std::thread::scope(|scope| {
            let held = latch.read();
            scope.spawn(|| latch.write().push("writer"));
            while latch.try_read().is_some() {
                std::thread::yield_now();
            }
            let late = scope.spawn(|| latch.read().clone());
            // Time for a reader that does not wait its turn to show itself.
            for _ in 0..1000 {
                std::thread::yield_now();
            }
            drop(held);
            assert_eq!(late.join().expect("no panic"), ["writer"]);
        });
    }

    /// Two counters that only differ while a writer is at work.
    #[test]
    fn no_reader_sees_half_of_a_change_and_nobody_waits_for_ever() {
        let latch = Arc::new(RwLock::<Latch, [u64; 2]>::new([0; 2]));
        let seen = Arc::new(AtomicU64::new(0));
        let turns = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..turns {
                        let mut pair = latch.write();
                        pair[0] += 1;
                        std::hint::black_box(&mut pair);
                        pair[1] += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..turns {
                        let pair = latch.read();
                        assert_eq!(pair[0], pair[1]);
                        seen.fetch_max(pair[0], Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(*latch.read(), [3 * turns; 2]);
    }
}
